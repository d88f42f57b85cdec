//! What happens at a host, and what it counts.
//!
//! [`Event`]s in a bounded [`Events`]; [`HostCounts`].
//!
//! Units: TLPs, events.
//! Source: PCIe 6.0 chapters 2 and 6.

use std::collections::VecDeque;

use weft_parsers::fabric::{Bdf, Hpa};

use super::home::HomeNews;
use super::mailbox::{MailboxFailure, Response};
use crate::pci::ErrorMessage;
use crate::pci::enumerate::{CacheIdFailure, CdatRead, EnumerateError};
use crate::pci::intx;
use crate::requester::Done;
use crate::transaction_layer::{ReceivedMessage, TlpCounts};

/// Events that wait for whoever owns the host; beyond, the oldest is dropped.
const EVENTS_MAX: usize = 65_536;

/// What happened at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transaction ended.
    Done(Done),
    /// Enumeration is finished; [`super::CxlHost::tree`] has what it found.
    Enumerated(Result<(), EnumerateError>),
    /// An interrupt.
    Msi {
        /// Where it was written.
        addr: Hpa,
        /// What.
        data: u32,
        /// By whom.
        from: Bdf,
    },
    /// A pin of INTx is asserted by what is below, or by nothing any more.
    Intx(intx::Message),
    /// A function reports an error.
    Error {
        /// Who.
        from: Bdf,
        /// How bad.
        message: ErrorMessage,
    },
    /// All below are ready to lose power.
    TurnedOff,
    /// Another message.
    Message(ReceivedMessage),
    /// A mailbox answered a command, or did not.
    Response {
        /// The number that [`super::CxlHost::command`] gave it.
        number: u64,
        /// What it said.
        result: Result<Response, MailboxFailure>,
    },
    /// A device has been given a `CacheID`, or has none any more; [`super::CxlHost::tree`] has the table.
    CacheId {
        /// The device.
        device: Bdf,
        /// Whether it was done.
        result: Result<(), CacheIdFailure>,
    },
    /// CDATs of functions have been read, or not.
    Cdats(Vec<CdatRead>),
    /// What was stored in this line, and acknowledged, is lost: the device had given the line up, or its write-back has no answer.
    LineLost(Hpa),
    /// A device and its cache: it is silent, answers again, or has lost a line.
    Cache(HomeNews),
    /// The link came up, or went down.
    Link(bool),
    /// Software resets what is below the root port, or ends that.
    Reset(bool),
    /// A reset of the bus below this bridge is over, and what is there is enumerated.
    BusReset(Bdf),
}

/// Counts of TLPs, interrupts and events at a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HostCounts {
    /// By kind and outcome.
    #[serde(flatten)]
    pub tlps: TlpCounts,
    /// Interrupts.
    pub interrupts: u64,
    /// Resets that who is below has ordered: dropped.
    pub foreign_resets: u64,
    /// Events that nobody took.
    pub events_lost: u64,
}

/// Events that wait for whoever owns the host.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    lost: u64,
}

impl Events {
    /// Appends an event; where too many wait, the oldest is dropped.
    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() >= EVENTS_MAX {
            self.queue.pop_front();
            self.lost += 1;
        }
        self.queue.push_back(event);
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// Events that nobody took.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}
