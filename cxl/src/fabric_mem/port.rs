//! What an engine stands on: memory by address, and a way to send UIO requests.
//! [`Memory`] reads and writes; [`UioPort`] takes [`Request`]s and hands in [`Completion`]s.
//!
//! Units: bytes; tags of 14 bits.
//! Source: docs/spec/wire-formats.md §3.6, §5.5.

use weft_dataplane::time::Instant;
use weft_parsers::fabric::{Hpa, Pid};

use crate::completer::Target;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemKind {
    /// In a host.
    Host,
    /// In a device: with a place of its own on the fabric, or below a host, which shows it in its window.
    Device,
    /// In the fabric, at the same place for all who were granted it.
    Fabric,
}

/// A place on the fabric: whose segment, and how far in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Port id that the segment leads to.
    pub pid: Pid,
    /// Bytes from the segment's start.
    pub offset: u64,
}

/// Memory of the host or device, by the addresses that its user knows.
pub trait Memory: Target {
    /// What all `len` bytes from `addr` on are; `None` when there is no such memory, or two kinds.
    fn kind(&self, addr: u64, len: u64) -> Option<MemKind>;
    /// Where `len` bytes of device or fabric memory lie on the fabric, if they have a place of their own there.
    fn place(&self, addr: u64, len: u64) -> Option<Place>;
    /// Whether bytes are moved by requests to the same address, and not by [`Target::read`] and [`Target::write`].
    fn by_requests(&self, addr: u64) -> bool {
        let _ = addr;
        false
    }
}

/// Tag of a request, 14 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub(super) u16);

impl Tag {
    /// How many there are.
    pub const COUNT: u16 = 1 << 14;

    /// The low 14 bits of `bits`.
    #[must_use]
    pub const fn from_low_bits(bits: u16) -> Self {
        Self(bits & (Self::COUNT - 1))
    }

    /// The 14 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// Number of a stream: requests of one may share a queue or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(super) u32);

impl StreamId {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The operation of a UIO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `UIOMRd` of so many bytes.
    Read(usize),
    /// `UIOMWr` of so many bytes.
    Write(usize),
}

/// A UIO request of at most 4 KiB that crosses no 4 KiB boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back in its completions.
    pub tag: Tag,
    /// Stream that it belongs to.
    pub stream: StreamId,
    /// Fabric address.
    pub addr: Hpa,
    /// What to do.
    pub body: Body,
}

/// The result in a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// `UIORdCplD`: a part of the data.
    Data {
        /// Bytes from the request's address.
        offset: u64,
        /// The data.
        data: &'a [u8],
        /// It is marked as bad.
        poisoned: bool,
    },
    /// `UIOWrCpl`: written.
    Written,
    /// Status UR.
    Unsupported,
    /// Status CA.
    Aborted,
}

/// The completion of a UIO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// Of the request.
    pub tag: Tag,
    /// What it says.
    pub answer: Answer<'a>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// There is no room; try again later.
    Full,
    /// Its data could not be read.
    Unfilled,
}

/// A way to send UIO requests and get their completions. No method blocks.
pub trait UioPort {
    /// Takes a request. `fill` gets the place of the data of a write, with anything in it, and says whether it has filled it.
    ///
    /// # Errors
    /// See [`NotTaken`].
    fn submit(
        &mut self,
        now: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken>;
    /// Hands in the completions that have come by `now`.
    fn poll(&mut self, now: Instant, each: &mut dyn FnMut(Completion<'_>));
}
