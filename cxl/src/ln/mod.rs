//! Lightweight Notification: devices keep copies of a host's cache lines and are told when one changes.
//!
//! [`lnc::Lnc`] stands at the host (requests in, answers and messages out), [`lnr::Lnr`] in a device
//! function (requests and copies), [`registers::LnrRegisters`] is its extended capability; plain values,
//! which a thin layer maps to and from TLPs.
//!
//! Units: bytes; addresses are host physical addresses; lines are 64 or 128 bytes.
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

/// Size of a cache line, one for the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSize {
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
}

impl LineSize {
    /// Bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// The line that `addr` lies in; the bits below are ignored.
    #[inline]
    #[must_use]
    pub const fn line(self, addr: Hpa) -> Line {
        Line(addr.0 & !(self.bytes() as u64 - 1))
    }
}

/// Address of a line's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(u64);

impl Line {
    /// The address.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> Hpa {
        Hpa(self.0)
    }
}

/// What an LN Message tells: field NR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The line was written.
    Updated = 0,
    /// The line is watched no more.
    Evicted = 1,
    /// No line of the function is watched any more.
    AllEvicted = 2,
}

impl Reason {
    /// `None` for 3, which is reserved; the low two bits count.
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

/// How an LN Message finds its receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    /// By id, to one function.
    Directed(Bdf),
    /// To all below one root port.
    Broadcast,
}

/// An LN Message: `MsgD`, posted, LN bit clear, TC 0, two double words of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LnMessage {
    /// Receivers.
    pub to: Route,
    /// Field NR, two bits, as on the wire: see [`Reason`].
    pub nr: u8,
    /// Payload: address of the line, 64 bits for 32-bit addresses too. Bits 5:0, and bit 6 for lines of 128
    /// bytes, are zero when sent and ignored when received.
    pub addr: Hpa,
}

#[cfg(test)]
mod tests;
