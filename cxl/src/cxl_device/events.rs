//! Events of a device, by function number, and its counts.
//!
//! Source: PCIe 6.0 chapters 2 and 6; PCIe 5.0 section 6.21.

use weft_parsers::fabric::Hpa;

use crate::ln::{LnMessage, Outcome, Ticket};
use crate::pci::mailbox::Command;
use crate::requester::{Done, Failure};
use crate::transaction_layer::{ReceivedMessage, TlpCounts};

/// An event at a device; `function` is the number of the function concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transaction has ended.
    Done { function: u8, done: Done },
    /// An LN read or probe has ended.
    Ln {
        function: u8,
        ticket: Ticket,
        outcome: Outcome,
        /// The data, or why there is none.
        result: Result<Vec<u8>, Failure>,
    },
    /// An LN Message invalidated copies of a line.
    Notified { function: u8, message: LnMessage, copies: usize },
    /// A command for the mailbox; the owner ends it with [`super::CxlDevice::complete`].
    Command { function: u8, command: Command },
    /// A reset: of one function by FLR, or (`None`) of all.
    Reset(Option<u8>),
    /// A changed line of a cache was lost: the device did not own it any more, or it could not be written back.
    LineLost { function: u8, line: Hpa },
    /// A message that the device does not handle itself.
    Message(ReceivedMessage),
}

/// Counts of TLPs at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceCounts {
    /// Counts by kind and outcome.
    #[serde(flatten)]
    pub tlps: TlpCounts,
    /// Configuration requests answered with retry status.
    pub retried: u64,
    /// Completions that match no request.
    pub unexpected: u64,
    /// LN messages that invalidated copies.
    pub notified: u64,
    /// Lines that a host loaded by CXL.mem.
    pub loads: u64,
    /// Lines that a host stored by CXL.mem.
    pub stores: u64,
    /// Requests of CXL.mem that were refused: there is no memory, or the opcode is not offered.
    pub mem_refused: u64,
}
