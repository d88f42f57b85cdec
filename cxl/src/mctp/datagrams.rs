//! A component as an MCTP endpoint whose packets somebody else puts together: whole messages in, whole messages out.
//!
//! [`Datagrams::receive`] takes a message and who sent it, and returns its response; [`Datagrams::resolve`] says where
//! one goes that comes later.
//!
//! Units: bytes; time as `Instant`.
//! Source: DMTF DSP0236 section 8; docs/mctp.md "The kernel's MCTP".
//!
//! Whoever puts them together answers control messages, and knows the EIDs. What a message says of its sender only says where
//! its response goes; how many requests wait in all is bounded by the component, which is Busy beyond.

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::time::Instant;

use super::MctpCounts;
use super::control::cci_type;
use crate::cci::{Answer, Component, Requests, Right, Session, Ticket};

/// An endpoint: its network and EID.
pub type Sender = (u32, u8);

/// Where a message came from; its response goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Who sent it.
    pub sender: Sender,
    /// Its type.
    pub kind: u8,
    /// Its tag.
    pub tag: u8,
}

/// Serves MCTP messages that come whole.
#[derive(Clone, Debug)]
pub struct Datagrams {
    session: Session,
    right: Right,
    /// Requests that wait, by who sent them.
    waiting: BTreeMap<Sender, Requests<Origin>>,
    counts: MctpCounts,
}

impl Datagrams {
    /// All of them are of `session`, which may become at most `right`.
    #[must_use]
    pub fn new(session: Session, right: Right) -> Self {
        Self { session, right, waiting: BTreeMap::new(), counts: MctpCounts::default() }
    }

    /// Carries out a message, without its type, whose sender owns its tag if `owner`; the response, unless there is none or
    /// it comes later.
    pub fn receive(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        from: Origin,
        owner: bool,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        if cci_type(from.kind).is_none() {
            self.counts.unknown_type += 1;
            return None;
        }
        if !owner {
            self.counts.no_request += 1;
            return None;
        }
        let (session, right) = (self.session, self.right);
        let requests =
            self.waiting.entry(from.sender).or_insert_with(|| Requests::new(session, right));
        let ignored = requests.ignored();
        let response = requests.carry_out(component, now, from, body);
        if requests.ignored() > ignored {
            self.counts.no_request += 1;
        } else {
            self.counts.requests += 1;
        }
        if requests.is_idle() {
            self.waiting.remove(&from.sender);
        }
        response
    }

    /// Notes a message that is longer than any request.
    pub const fn too_long(&mut self) {
        self.counts.too_long += 1;
    }

    /// Notes a response that could not be sent.
    pub const fn unsent(&mut self) {
        self.counts.unsent += 1;
    }

    /// Gives up all requests that wait: their answers are lost.
    pub fn give_up(&mut self) {
        self.counts.unsent += self.tickets().len() as u64;
        self.waiting.clear();
    }

    /// Where a response goes that was awaited, if it is one of these.
    pub fn resolve(&mut self, answer: &Answer) -> Option<Origin> {
        let from = self.waiting.values_mut().find_map(|requests| requests.resolve(answer))?;
        if self.waiting.get(&from.sender).is_some_and(Requests::is_idle) {
            self.waiting.remove(&from.sender);
        }
        Some(from)
    }

    /// The requests whose answers are awaited.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.waiting.values().flat_map(Requests::tickets).collect()
    }

    /// What has been counted since the last time.
    pub fn take_counts(&mut self) -> MctpCounts {
        core::mem::take(&mut self.counts)
    }
}
