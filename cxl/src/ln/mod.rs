//! Lightweight Notification (LN): devices copy cache lines of a host, which notifies them when a line changes.
//!
//! [`lnc::Lnc`] is the completer at the host (requests in, answers and messages out), [`lnr::Lnr`] the requester in
//! a device function (requests and copies), [`registers::LnrRegisters`] its extended capability. All work on plain
//! values, which a thin layer maps to and from TLPs.
//!
//! Addresses are host physical addresses; lines have 64 or 128 bytes.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

mod limits;
pub mod lnc;
pub mod lnr;
pub mod regions;
pub mod registers;

pub use limits::LncCounts;
pub use lnc::{
    Access, Lnc, LncSpec, MemRequest, Origin, ReadAnswer, RootPort, Watched, WriteAnswer,
};
pub use lnr::{CplData, Lnr, LnrRequest, Outcome, Refused, Ticket};
pub use regions::Regions;
pub use registers::LnrRegisters;

use weft_parsers::fabric::{Bdf, Hpa};

/// Size of a cache line, the same for the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSize {
    B64,
    B128,
}

impl LineSize {
    /// The size in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// The line that contains `addr`.
    #[inline]
    #[must_use]
    pub const fn line(self, addr: Hpa) -> Line {
        Line(addr.0 & !(self.bytes() as u64 - 1))
    }
}

/// A cache line, by the address of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(u64);

impl Line {
    /// Address of the line's first byte.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> Hpa {
        Hpa(self.0)
    }
}

/// Reason of an LN Message, its field NR (Notification Reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The line was written.
    Updated = 0,
    /// The registration of the line has ended.
    Evicted = 1,
    /// All registrations of the function have ended.
    AllEvicted = 2,
}

impl Reason {
    /// The reason in the low two bits of `nr`; `None` for 3, which is reserved.
    #[must_use]
    pub const fn from_bits(nr: u8) -> Option<Self> {
        match nr & 3 {
            0 => Some(Self::Updated),
            1 => Some(Self::Evicted),
            2 => Some(Self::AllEvicted),
            _ => None,
        }
    }
}

/// Routing of an LN Message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// Routed by ID, to one function.
    Directed(Bdf),
    /// Broadcast to all functions below one root port.
    Broadcast,
}

/// An LN Message: `MsgD`, posted, LN bit clear, TC 0, two double words of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LnMessage {
    pub to: Route,
    /// Field NR as on the wire, two bits: see [`Reason`].
    pub nr: u8,
    /// Payload: address of the line, 64 bits for 32-bit addresses too. Bits 5:0, and bit 6 for lines of 128
    /// bytes, are zero when sent and ignored when received.
    pub addr: Hpa,
}

#[cfg(test)]
mod tests;
