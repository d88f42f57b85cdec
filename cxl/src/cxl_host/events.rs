//! Events of a host in a bounded queue, and its counts.
//!
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

/// Events kept until the owner fetches them; beyond that many the oldest is dropped.
const EVENTS_MAX: usize = 65_536;

/// An event at a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transaction has ended.
    Done(Done),
    /// Enumeration has ended; [`super::CxlHost::tree`] returns its result.
    Enumerated(Result<(), EnumerateError>),
    /// A message-signalled interrupt.
    Msi {
        /// Address that it was written to.
        addr: Hpa,
        data: u32,
        from: Bdf,
    },
    /// The level of an INTx pin has changed below the root port.
    Intx(intx::Message),
    /// A function reports an error.
    Error {
        from: Bdf,
        /// Severity of the error.
        message: ErrorMessage,
    },
    /// All functions below have answered `PME_Turn_Off`.
    TurnedOff,
    /// A message that the host does not handle itself.
    Message(ReceivedMessage),
    /// A mailbox has answered a command, or has failed to.
    Response {
        /// Number of the command, from [`super::CxlHost::command`].
        number: u64,
        result: Result<Response, MailboxFailure>,
    },
    /// A change of a device's `CacheID` has ended; [`super::CxlHost::tree`] has the `CacheID`s.
    CacheId { device: Bdf, result: Result<(), CacheIdFailure> },
    /// CDATs of functions, or why one could not be read.
    Cdats(Vec<CdatRead>),
    /// Acknowledged stores to this line are lost: the device had given up on the host, or did not answer the
    /// write-back.
    LineLost(Hpa),
    /// A device's cache fell silent, answers again, or has lost a line.
    Cache(HomeNews),
    /// The link came up, or went down.
    Link(bool),
    /// Software begins (true) or ends a reset of the bus below the root port.
    Reset(bool),
    /// A reset of the bus below this bridge has ended, and the bus was enumerated again.
    BusReset(Bdf),
}

/// Counts of TLPs, interrupts and events at a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HostCounts {
    /// Counts by kind and outcome.
    #[serde(flatten)]
    pub tlps: TlpCounts,
    /// Interrupts received, those of the root port included.
    pub interrupts: u64,
    /// Resets ordered from below: dropped.
    pub foreign_resets: u64,
    /// Events dropped because the owner did not fetch them.
    pub events_lost: u64,
}

/// Queue of events for the owner.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    lost: u64,
}

impl Events {
    /// Appends an event; drops the oldest if too many wait.
    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() >= EVENTS_MAX {
            self.queue.pop_front();
            self.lost += 1;
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    /// Events dropped because the owner did not fetch them.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}
