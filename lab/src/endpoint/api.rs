//! What every kind of endpoint implements, so that a runner can drive it.
//!
//! Shape: [`Endpoint::poll`] moves frames, [`Endpoint::begin`] takes a command, [`EventLog`] collects answers and events.
//! Units: time as a parameter.
//! Source: docs/endpoint.md.

use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::command::{Answer, Command, Status};
use super::event_log::EventLog;

/// Something at the ends of links.
pub trait Endpoint: Send {
    /// `host`, `device`, `gfd`, `hbr`.
    fn kind(&self) -> &'static str;

    /// Its links.
    fn link_count(&self) -> usize {
        1
    }

    /// Takes in what the ports have, sends what is to be sent, and tells `log` what came of it.
    ///
    /// # Errors
    /// A port's own.
    fn poll(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
        log: &mut EventLog,
    ) -> Result<Progress, PortError>;

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

    /// Counts and details of what it is; links are the runner's to tell.
    fn status(&self) -> Status;

    /// Gives back all chunks that wait.
    fn release(&mut self, bufs: &mut Bufs);
}

/// What is said to a command that an endpoint has no use for.
#[must_use]
pub fn not_for(kind: &str, command: &Command) -> Refused {
    Refused::because(format!("a {kind} has no command {:?}", command.name()))
}

/// The one port of an endpoint with one link.
pub(super) fn sole(ports: &mut [Box<dyn Port>]) -> Option<&mut dyn Port> {
    ports.first_mut().map(|port| &mut **port as &mut dyn Port)
}
