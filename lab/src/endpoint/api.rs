//! The interface that every kind of endpoint implements for the runner.
//!
//! [`Endpoint::poll`] moves frames, [`Endpoint::begin`] starts a command, and [`EventLog`] collects answers and events.
//!
//! Source: docs/endpoint.md.

use serde_json::Value;
use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::command::{Answer, Command, Status};
use super::event_log::EventLog;
use super::own_memory::OwnMemory;

/// A CXL component at the ends of links that a runner drives: a host, a device, a GFD or an HBR switch.
pub trait Endpoint: Send {
    /// Kind of endpoint, as `weft endpoint` names it.
    fn kind(&self) -> &'static str;

    /// Name in reports, from the specification.
    fn name(&self) -> &str;

    /// Number of its links; the runner needs that many ports.
    fn link_count(&self) -> usize {
        1
    }

    /// Whether it has logical devices, one of which a command may name.
    fn has_lds(&self) -> bool {
        false
    }

    /// Receives frames from the ports, and sends those that are due.
    ///
    /// # Errors
    /// An error of a port.
    fn poll_links(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError>;

    /// Records the next event in `log`; false if there is none.
    fn next_event(&mut self, log: &mut EventLog) -> bool;

    /// Advances the commands in progress, records finished ones in `log`, and returns the number of requests submitted.
    fn submit_requests(&mut self, now: Instant, log: &mut EventLog) -> usize {
        let _ = (now, log);
        0
    }

    /// Advances commands, frames and events once, and records the results in `log`.
    ///
    /// # Errors
    /// An error of a port.
    fn poll(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
        log: &mut EventLog,
    ) -> Result<Progress, PortError> {
        // Before the links, so that requests of new commands leave in this poll.
        self.submit_requests(now, log);
        let mut progress = self.poll_links(now, ports, bufs)?;
        while self.next_event(log) {
            progress.frames += 1; // the next poll sends its results without delay
        }
        // An event may have finished a request, which makes room for the next one of its command.
        progress.frames += self.submit_requests(now, log);
        Ok(progress)
    }

    /// Starts a command: answers it at once, or returns `None` and later records the answer in `log` under `number`.
    ///
    /// # Errors
    /// The reason for a refusal; nothing was done then.
    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused>;

    /// The part of its own memory that a store or peek command names.
    ///
    /// # Errors
    /// It has no memory, no such memory, or none for that command.
    fn own_memory(&mut self, command: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        Err(not_for(self.kind(), command))
    }

    /// Counters, grouped by the component that counts.
    fn counts(&self) -> Value;

    /// State beside the counters, as JSON.
    fn detail(&self) -> Value;

    /// Name of a list in its details that may be long, and is therefore made in slices.
    fn detail_list(&self) -> Option<&'static str> {
        None
    }

    /// Some rows of that list from row `from` on, and the row to continue with; `None` at the end.
    fn detail_rows(&self, from: usize) -> (Vec<Value>, Option<usize>) {
        let _ = from;
        (Vec::new(), None)
    }

    /// Counters and details without that list; the runner adds the links.
    fn status(&self) -> Status {
        let (kind, name) = (self.kind().to_owned(), self.name().to_owned());
        let (counts, detail) = (self.counts(), self.detail());
        Status { kind, name, counts, detail, ..Status::default() }
    }

    /// Gives all buffers that it holds back to `bufs`.
    fn release(&mut self, bufs: &mut Bufs);
}

/// The refusal of a command that this kind of endpoint does not have.
#[must_use]
pub fn not_for(kind: &str, command: &Command) -> Refused {
    Refused::because(format!("a {kind} has no command {:?}", command.name()))
}

/// The port of an endpoint with one link.
pub(super) fn sole(ports: &mut [Box<dyn Port>]) -> Option<&mut dyn Port> {
    ports.first_mut().map(|port| &mut **port as &mut dyn Port)
}
