//! A component as an MCTP endpoint behind a kernel that assembles messages: whole messages in, whole messages out.
//!
//! [`Datagrams::receive`] takes a message with its origin and returns the response; [`Datagrams::resolve`] returns
//! the origin of a request whose response came later.
//!
//! Units: bytes; time as `Instant`.
//! Source: DMTF DSP0236 section 8; docs/mctp.md "The kernel's MCTP".
//!
//! The kernel answers control messages and manages EIDs. The sender of a message decides only where its response
//! goes. The component bounds the number of pending requests, and is Busy beyond.

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::time::Instant;

use super::MctpCounts;
use super::control::cci_type;
use crate::cci::{Answer, Component, Requests, Right, Session, Ticket};

/// An endpoint, as network and EID.
pub type Sender = (u32, u8);

/// Origin of a message; its response goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub sender: Sender,
    /// MCTP message type.
    pub kind: u8,
    /// MCTP message tag.
    pub tag: u8,
}

/// Serves MCTP messages that come complete.
#[derive(Clone, Debug)]
pub struct Datagrams {
    session: Session,
    right: Right,
    /// Pending requests by sender; a sender without any has no entry.
    waiting: BTreeMap<Sender, Requests<Origin>>,
    counts: MctpCounts,
}

impl Datagrams {
    /// All messages belong to `session`, which may become at most `right`.
    #[must_use]
    pub fn new(session: Session, right: Right) -> Self {
        Self { session, right, waiting: BTreeMap::new(), counts: MctpCounts::default() }
    }

    /// Carries out a message (without its type); `owner` says whether its sender owns the tag. Returns the
    /// response, unless there is none or it comes later.
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
        // This endpoint sends no requests, so a message whose tag the sender does not own answers nothing.
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
        // A sender is any network and EID, so only those with pending requests are kept.
        if requests.is_idle() {
            self.waiting.remove(&from.sender);
        }
        response
    }

    /// Counts a message that is longer than any request.
    pub const fn too_long(&mut self) {
        self.counts.too_long += 1;
    }

    /// Counts a response that could not be sent.
    pub const fn unsent(&mut self) {
        self.counts.unsent += 1;
    }

    /// Drops all pending requests; their responses are lost.
    pub fn give_up(&mut self) {
        self.counts.unsent += self.tickets().len() as u64;
        self.waiting.clear();
    }

    /// Origin of the request that `answer` belongs to, if it is one of these.
    pub fn resolve(&mut self, answer: &Answer) -> Option<Origin> {
        let from = self.waiting.values_mut().find_map(|requests| requests.resolve(answer))?;
        if self.waiting.get(&from.sender).is_some_and(Requests::is_idle) {
            self.waiting.remove(&from.sender);
        }
        Some(from)
    }

    /// Tickets of all pending requests.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.waiting.values().flat_map(Requests::tickets).collect()
    }

    /// Returns the counts, and starts them from zero.
    pub fn take_counts(&mut self) -> MctpCounts {
        core::mem::take(&mut self.counts)
    }
}
