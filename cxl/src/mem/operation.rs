//! What loads and stores are, and how they end.
//!
//! [`MemOperation`] in, [`MemDone`] out.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;

use crate::requester::Failure;

/// Most requests under way: half of the tags, so that the other half rests.
pub const IN_FLIGHT_MAX: usize = 1 << 15;

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemCounts {
    /// Requests that were sent, a line each.
    pub sent: u64,
    /// Requests that have their answer.
    pub answered: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Requests that were given up while under way.
    pub given_up: u64,
    /// Messages for nothing that is under way.
    pub unexpected: u64,
    /// Responses that do not fit their request.
    pub mismatched: u64,
    /// Level of throttling now, 0 to 255.
    pub throttle: u8,
}

/// What a requester is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemSpec {
    /// Requests under way, at most [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// How long an answer may take.
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
    /// Nobody has that memory, or nobody may tell.
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
    /// So many bytes are loaded.
    Load {
        /// First address.
        addr: Hpa,
        /// Bytes.
        len: usize,
    },
    /// These bytes are stored.
    Store {
        /// First address.
        addr: Hpa,
        /// What.
        data: Vec<u8>,
    },
}

/// A load or store that ended, and the bytes that were loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemDone {
    /// Which.
    pub id: MemId,
    /// Its end. A store that was refused ends like any other: CXL.mem has no word for it.
    pub result: Result<Vec<u8>, MemFailure>,
}
