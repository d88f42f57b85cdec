//! The engine's environment: memory by address, and a way to send UIO requests. [`Memory`] reads and writes;
//! [`UioPort`] takes [`Request`]s and returns [`Completion`]s.
//!
//! Source: docs/spec/wire-formats.md §3.6, §5.5.

use weft_dataplane::time::Instant;
use weft_parsers::fabric::{Hpa, Pid};

use crate::completer::Target;

/// Kind of memory, by its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemKind {
    /// Memory of a host.
    Host,
    /// Memory of a device: with a place of its own on the fabric, or below a host, which shows it in its window.
    Device,
    /// G-FAM: at the same place for all that were granted it.
    Fabric,
}

/// A place on the fabric: a segment, and an offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// PID that the segment leads to.
    pub pid: Pid,
    /// Offset from the segment's start, in bytes.
    pub offset: u64,
}

/// Memory of the host or device, by the addresses that its user knows.
pub trait Memory: Target {
    /// Kind of all `len` bytes from `addr` on; `None` if there is no memory, or more than one kind.
    fn kind(&self, addr: u64, len: u64) -> Option<MemKind>;
    /// Place on the fabric of `len` bytes of device or fabric memory, if they have one of their own.
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
    pub const COUNT: u16 = 1 << 14;

    /// The low 14 bits of `bits`.
    #[must_use]
    pub const fn from_low_bits(bits: u16) -> Self {
        Self(bits & (Self::COUNT - 1))
    }

    /// The tag in the low 14 bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// Number of a stream: requests of one may share a queue or a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(super) u32);

impl StreamId {
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The operation of a UIO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// `UIOMRd`, with its length in bytes.
    Read(usize),
    /// `UIOMWr`, with its length in bytes.
    Write(usize),
}

/// A UIO request of at most 4 KiB that crosses no 4 KiB boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tag that its completions repeat.
    pub tag: Tag,
    pub stream: StreamId,
    pub addr: Hpa,
    pub body: Body,
}

/// The result in a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// `UIORdCplD`: a part of the data; parts come in any order.
    Data {
        /// Offset from the request's address.
        offset: u64,
        data: &'a [u8],
        /// Whether the data is poisoned.
        poisoned: bool,
    },
    /// `UIOWrCpl`: the write was carried out.
    Written,
    Unsupported,
    Aborted,
}

/// The completion of a UIO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// Tag of the request.
    pub tag: Tag,
    /// Result of the request.
    pub answer: Answer<'a>,
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// No room; try again later.
    Full,
    /// `fill` could not read the data of the write.
    Unfilled,
}

/// Sends UIO requests and returns their completions. No method blocks.
pub trait UioPort {
    /// Accepts a request. `fill` is called with the buffer for the data of a write, whose old contents are undefined,
    /// and returns whether it has filled it.
    ///
    /// # Errors
    /// See [`NotTaken`].
    fn submit(
        &mut self,
        now: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken>;
    /// Calls `each` for the completions that have come by `now`.
    fn poll(&mut self, now: Instant, each: &mut dyn FnMut(Completion<'_>));
}
