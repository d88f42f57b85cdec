//! What happens at a device, and what it counts.
//!
//! [`Event`]s by function number; [`DeviceCounts`].
//!
//! Units: TLPs.
//! Source: PCIe 6.0 chapters 2 and 6; PCIe 5.0 section 6.21.

use weft_parsers::fabric::Hpa;

use crate::ln::{LnMessage, Outcome, Ticket};
use crate::pci::mailbox::Command;
use crate::requester::{Done, Failure};
use crate::transaction_layer::{ReceivedMessage, TlpCounts};

/// What happened at a device; `function` is the number of its function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transaction ended.
    Done {
        /// Whose.
        function: u8,
        /// How.
        done: Done,
    },
    /// An LN read or probe came to its end.
    Ln {
        /// Whose.
        function: u8,
        /// Which.
        ticket: Ticket,
        /// How.
        outcome: Outcome,
        /// What came: the data, or why there is none.
        result: Result<Vec<u8>, Failure>,
    },
    /// An LN Message took copies.
    Notified {
        /// Whose.
        function: u8,
        /// Which.
        message: LnMessage,
        /// How many.
        copies: usize,
    },
    /// A command for the mailbox, which [`super::CxlDevice::complete`] ends.
    Command {
        /// Whose.
        function: u8,
        /// What.
        command: Command,
    },
    /// It was reset: one function by FLR, or all by the link.
    Reset(Option<u8>),
    /// A changed line of a cache was lost: it was not the device's any more, or could not be written back.
    LineLost {
        /// Whose.
        function: u8,
        /// The line.
        line: Hpa,
    },
    /// A message that it has no use for.
    Message(ReceivedMessage),
}

/// Counts of TLPs at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceCounts {
    /// By kind and outcome.
    #[serde(flatten)]
    pub tlps: TlpCounts,
    /// Configuration requests answered with retry status.
    pub retried: u64,
    /// Completions for nothing.
    pub unexpected: u64,
    /// LN messages that took copies.
    pub notified: u64,
    /// Lines that a host loaded by CXL.mem.
    pub loads: u64,
    /// Lines that a host stored by CXL.mem.
    pub stores: u64,
    /// Requests of CXL.mem that were refused: no memory is there, or it is none of a line.
    pub mem_refused: u64,
}
