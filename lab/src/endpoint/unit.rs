//! What a station drives: a host, a device, a GFD or an HBR switch, behind one trait.
//!
//! Shape: [`Unit::poll`] moves frames, [`Unit::begin`] takes a command, [`Desk`] collects answers and events.
//! Units: time as a parameter.
//! Source: docs/endpoint.md.

use std::collections::VecDeque;

use weft_cxl::tlp_end::Progress;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::command::{Answer, Command, EventReport, Status};

/// Events that wait for somebody to ask.
const EVENTS_MAX: usize = 4_096;

/// Answers and events of a unit.
#[derive(Debug, Default)]
pub struct Desk {
    now: Instant,
    answers: Vec<(u64, Result<Answer, Refused>)>,
    events: VecDeque<EventReport>,
    number: u64,
    lost: u64,
}

impl Desk {
    /// What happens from now on happens now.
    pub const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Notes an event.
    pub fn note(&mut self, kind: &str, text: impl Into<String>) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.lost += 1;
        }
        let (number, at_ns) = (self.number, self.now.as_ns());
        self.number += 1;
        self.events.push_back(EventReport {
            number,
            at_ns,
            kind: kind.to_owned(),
            text: text.into(),
        });
    }

    /// Answers the command of this number.
    pub fn answer(&mut self, number: u64, answer: Result<Answer, Refused>) {
        self.answers.push((number, answer));
    }

    /// Answers since this was last asked.
    pub fn take_answers(&mut self) -> Vec<(u64, Result<Answer, Refused>)> {
        core::mem::take(&mut self.answers)
    }

    /// Events since this was last asked.
    pub fn take_events(&mut self) -> (Vec<EventReport>, u64) {
        (self.events.drain(..).collect(), core::mem::take(&mut self.lost))
    }
}

/// Something at the ends of links.
pub trait Unit: Send {
    /// `host`, `device`, `gfd`, `hbr`.
    fn kind(&self) -> &'static str;

    /// Its links.
    fn link_count(&self) -> usize {
        1
    }

    /// Takes in what the ports have, sends what is to be sent, and tells `desk` what came of it.
    ///
    /// # Errors
    /// A port's own.
    fn poll(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        bufs: &mut Bufs,
        desk: &mut Desk,
    ) -> Result<Progress, PortError>;

    /// Takes a command: answers it at once, or says `None` and tells `desk` later by its number.
    ///
    /// # Errors
    /// Why not; nothing was done then.
    fn begin(
        &mut self,
        now: Instant,
        number: u64,
        command: &Command,
    ) -> Result<Option<Answer>, Refused>;

    /// Counts and details of what it is; links are the station's to tell.
    fn status(&self) -> Status;

    /// Gives back all chunks that wait.
    fn release(&mut self, bufs: &mut Bufs);
}

/// What is said to a command that a unit has no use for.
#[must_use]
pub fn not_for(kind: &str, command: &Command) -> Refused {
    Refused::because(format!("a {kind} has no command {:?}", command.name()))
}

/// The one port of a unit with one link.
pub(super) fn sole(ports: &mut [Box<dyn Port>]) -> Option<&mut dyn Port> {
    ports.first_mut().map(|port| &mut **port as &mut dyn Port)
}
