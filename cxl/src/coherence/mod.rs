//! Coherence of lines of a device's memory in hosts' caches (HDM-DB): who holds a line, and what a snoop does to it.
//!
//! [`filter::Filter`] is the device's half, [`cache::Cache`] a host's; neither knows tags or messages.
//! [`snoops::Snoops`] has tags and time limits of snoops, and tells hosts their leases; [`lease::Leases`] are a host's own.
//!
//! Units: lines of 64 bytes, by number in the device or by address at the host.
//! Source: CXL 3.1 sections 3.3.3, 3.3.5 to 3.3.10; docs/spec/cxl-fabric.md "Back-invalidate".
//!
//! At most one request of a host for a line is under way, and one snoop, unless the device has given up on an earlier one.

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
    /// It may read it; others may, too.
    Shared,
    /// It alone has it, and may have changed it.
    Owned,
}

/// What a device asks of a host that holds a line, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Snoop {
    /// `BISnpCur`: write back what is newer; keep the line as it is.
    Current,
    /// `BISnpData`: write back what is newer; keep no more than a shared copy.
    Data,
    /// `BISnpInv`: write back what is newer; keep nothing.
    Invalidate,
}

impl Snoop {
    /// The message that asks so.
    #[must_use]
    pub const fn op(self) -> MemOp {
        match self {
            Self::Current => MemOp::BiSnpCur,
            Self::Data => MemOp::BiSnpData,
            Self::Invalidate => MemOp::BiSnpInv,
        }
    }

    /// What a message asks; `None` of other messages, and of blocks of lines, which are not offered.
    #[must_use]
    pub const fn of(op: MemOp) -> Option<Self> {
        match op {
            MemOp::BiSnpCur => Some(Self::Current),
            MemOp::BiSnpData => Some(Self::Data),
            MemOp::BiSnpInv => Some(Self::Invalidate),
            _ => None,
        }
    }

    /// What a host may keep of a line that it has so.
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
    /// Nobody has that memory, or nobody may tell.
    NoMemory,
    /// The line is poisoned.
    Poisoned,
    /// No answer in time.
    Timeout,
    /// An answer that does not fit its request.
    Mismatch,
}

/// The message by which a host says what it keeps.
#[must_use]
pub const fn answer_op(left: Option<Hold>) -> MemOp {
    match left {
        None => MemOp::BiRspI,
        Some(Hold::Shared) => MemOp::BiRspS,
        Some(Hold::Owned) => MemOp::BiRspE,
    }
}

/// What a host says that it keeps; `None` of other messages.
#[must_use]
pub const fn answered(op: MemOp) -> Option<Option<Hold>> {
    match op {
        MemOp::BiRspI => Some(None),
        MemOp::BiRspS => Some(Some(Hold::Shared)),
        MemOp::BiRspE => Some(Some(Hold::Owned)),
        _ => None,
    }
}
