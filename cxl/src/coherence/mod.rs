//! Coherence of lines of device memory in hosts' caches (HDM-DB): the states of a line, and the effect of each snoop.
//!
//! [`filter::Filter`] is the device's half, [`cache::Cache`] a host's; neither knows tags or messages.
//! [`snoops::Snoops`] manages tags and time limits of snoops and issues leases to hosts; [`lease::Leases`] holds the
//! leases that a host has received. A line has 64 bytes; the device names it by number, the host by address.
//!
//! At most one request of a host for a line is under way, and one snoop, unless the device has given up on an earlier
//! one.
//!
//! Source: CXL 3.1 sections 3.3.3, 3.3.5 to 3.3.10; docs/spec/cxl-fabric.md "Back-invalidate".

pub mod cache;
pub mod cache_counts;
pub mod filter;
pub mod lease;
pub mod news;
pub mod snoops;
pub mod waited;

#[cfg(test)]
pub(crate) mod tests;

use weft_parsers::cxl_mem::MemOp;

/// How a host holds a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// Read-only copy; other hosts may hold the line, too.
    Shared,
    /// The only copy, exclusive or modified: only the owner knows which.
    Owned,
}

/// A device's snoop of a host that holds a line, mildest first: the order decides which of two snoops is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Snoop {
    /// `BISnpCur`: write back a changed line, and keep it as it is.
    Current,
    /// `BISnpData`: write back a changed line, and keep a shared copy at most.
    Data,
    /// `BISnpInv`: write back a changed line, and drop it.
    Invalidate,
}

impl Snoop {
    #[must_use]
    pub const fn op(self) -> MemOp {
        match self {
            Self::Current => MemOp::BiSnpCur,
            Self::Data => MemOp::BiSnpData,
            Self::Invalidate => MemOp::BiSnpInv,
        }
    }

    /// Snoop of a message; `None` for other messages, and for snoops of blocks of lines, which are not offered.
    #[must_use]
    pub const fn of(op: MemOp) -> Option<Self> {
        match op {
            MemOp::BiSnpCur => Some(Self::Current),
            MemOp::BiSnpData => Some(Self::Data),
            MemOp::BiSnpInv => Some(Self::Invalidate),
            _ => None,
        }
    }

    /// The most that a host may keep after this snoop if it held the line as `had`.
    #[must_use]
    pub fn leaves(self, had: Option<Hold>) -> Option<Hold> {
        match self {
            Self::Current => had,
            Self::Data => had.map(|_| Hold::Shared),
            Self::Invalidate => None,
        }
    }
}

/// Why an access to a line failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No device has memory at that address, or the host has no right to it.
    NoMemory,
    Poisoned,
    Timeout,
    /// The answer has another opcode than its request allows.
    Mismatch,
}

/// Opcode of the answer of a host that keeps the line as `left`.
#[must_use]
pub const fn answer_op(left: Option<Hold>) -> MemOp {
    match left {
        None => MemOp::BiRspI,
        Some(Hold::Shared) => MemOp::BiRspS,
        Some(Hold::Owned) => MemOp::BiRspE,
    }
}

/// Hold that a host keeps by its answer to a snoop; `None` if `op` is not such an answer.
#[must_use]
pub const fn answered(op: MemOp) -> Option<Option<Hold>> {
    match op {
        MemOp::BiRspI => Some(None),
        MemOp::BiRspS => Some(Some(Hold::Shared)),
        MemOp::BiRspE => Some(Some(Hold::Owned)),
        _ => None,
    }
}
