//! Loads and stores: [`MemOperation`] describes one, [`MemDone`] its end.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;

use crate::requester::Failure;

/// Most requests under way: half of the tags, so that the other half rests.
pub const IN_FLIGHT_MAX: usize = 1 << 15;

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemCounts {
    /// Requests sent, one for each line.
    pub sent: u64,
    /// Requests answered.
    pub answered: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Requests that were given up while under way.
    pub given_up: u64,
    /// Messages that match no request under way.
    pub unexpected: u64,
    /// Responses that do not fit their request.
    pub mismatched: u64,
    /// Level of throttling now, 0 to 255.
    pub throttle: u8,
}

/// Parameters of a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemSpec {
    /// Requests under way, at most [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// Time limit for an answer.
    pub timeout: Span,
}

/// Number of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemId(pub u64);

/// Why a load or store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemFailure {
    /// An address that no message can name.
    #[error("the address is not below 2^52")]
    Address,
    /// No device has memory there, or the host has no right to it: the answer is the same.
    #[error("there is no such memory, or it is not the host's")]
    NoMemory,
    /// A line is poisoned.
    #[error("a line is poisoned")]
    Poisoned,
    /// An answer that does not fit its request.
    #[error("an answer does not fit its request")]
    Mismatch,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// Given up: a reset, or the link went down.
    #[error("given up: the link went down")]
    GivenUp,
}

impl From<MemFailure> for Failure {
    fn from(failure: MemFailure) -> Self {
        match failure {
            MemFailure::Address => Self::Address,
            MemFailure::NoMemory => Self::NoMemory,
            MemFailure::Poisoned => Self::Poisoned,
            MemFailure::Mismatch => Self::Mismatch,
            MemFailure::Timeout => Self::Timeout,
            MemFailure::GivenUp => Self::GivenUp,
        }
    }
}

/// A load or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemOperation {
    /// Loads `len` bytes.
    Load { addr: Hpa, len: usize },
    /// Stores `data`.
    Store { addr: Hpa, data: Vec<u8> },
}

/// A load or store that ended, and the bytes that were loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemDone {
    pub id: MemId,
    /// The loaded bytes (none for a store), or the failure. A refused store ends like any other: CXL.mem cannot report
    /// it.
    pub result: Result<Vec<u8>, MemFailure>,
}
