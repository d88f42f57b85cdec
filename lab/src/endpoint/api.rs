//! What every kind of endpoint implements, so that a runner can drive it.
//!
//! [`Endpoint::poll`] moves frames, [`Endpoint::begin`] takes a command, [`EventLog`] collects answers and events.
//!
//! Units: time as a parameter.
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
    /// Its kind, as `weft endpoint` calls it.
    fn kind(&self) -> &'static str;

    /// What it is called.
    fn name(&self) -> &str;

    /// Its links.
    fn link_count(&self) -> usize {
        1
    }

    /// Whether it has logical devices, of which a command names one.
    fn has_lds(&self) -> bool {
        false
    }

    /// Takes in what the ports have, and sends what is to be sent.
    ///
    /// # Errors
    /// A port's own.
    fn poll_links(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError>;

    /// Tells `log` of the next thing that happened; false if there is none.
    fn next_event(&mut self, log: &mut EventLog) -> bool;

    /// Moves commands under way on, tells `log` of those that are over, and says how many requests it has submitted.
    fn submit_requests(&mut self, now: Instant, log: &mut EventLog) -> usize {
        let _ = (now, log);
        0
    }

    /// Moves commands, frames and events on once, and tells `log` what came of it.
    ///
    /// # Errors
    /// A port's own.
    fn poll(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
        log: &mut EventLog,
    ) -> Result<Progress, PortError> {
        self.submit_requests(now, log);
        let mut progress = self.poll_links(now, ports, bufs)?;
        while self.next_event(log) {
            progress.frames += 1; // what it led to is to be sent
        }
        progress.frames += self.submit_requests(now, log);
        Ok(progress)
    }

    /// Takes a command: answers it at once, or says `None` and tells `log` later by its number.
    ///
    /// # Errors
    /// Why not; nothing was done then.
    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused>;

    /// Its own memory that a command to store or peek names.
    ///
    /// # Errors
    /// It has none, none such, or none for that command.
    fn own_memory(&mut self, command: &Command) -> Result<&mut dyn OwnMemory, Refused> {
        Err(not_for(self.kind(), command))
    }

    /// What it counts, by who counts.
    fn counts(&self) -> Value;

    /// What else there is to say of it.
    fn detail(&self) -> Value;

    /// The name of a list of its details that may be long.
    fn detail_list(&self) -> Option<&'static str> {
        None
    }

    /// Some rows of that list, from what has number `from`, and with which number it goes on.
    fn detail_rows(&self, from: usize) -> (Vec<Value>, Option<usize>) {
        let _ = from;
        (Vec::new(), None)
    }

    /// Counts and details of what it is, without that list; links are the runner's to tell.
    fn status(&self) -> Status {
        let (kind, name) = (self.kind().to_owned(), self.name().to_owned());
        let (counts, detail) = (self.counts(), self.detail());
        Status { kind, name, counts, detail, ..Status::default() }
    }

    /// Gives back all chunks that wait.
    fn release(&mut self, bufs: &mut Bufs);
}

/// The refusal of a command that an endpoint has no use for.
#[must_use]
pub fn not_for(kind: &str, command: &Command) -> Refused {
    Refused::because(format!("a {kind} has no command {:?}", command.name()))
}

/// The one port of an endpoint with one link.
pub(super) fn sole(ports: &mut [Box<dyn Port>]) -> Option<&mut dyn Port> {
    ports.first_mut().map(|port| &mut **port as &mut dyn Port)
}
