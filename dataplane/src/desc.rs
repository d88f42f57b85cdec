//! Frame descriptor: what moves through the switch while the octets stay in the pool.
//!
//! Shape: 12 octets (16 with the VOQ link): chunk 32, len 16, vid 16, start/2 8, input 8, pri 3 +
//! flags 5, format 8. Not `Copy`: whoever holds it holds the frame (or one share of it).
//! Units: octets.
//! Source: architecture.md, "Data's way through".

use weft_parsers::Format;

use crate::types::{PortId, Pri};

/// Handle of a frame in the packet pool. Made by [`crate::pool::Bufs::alloc`], ended by `free`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped descriptor leaks its chunk"]
pub struct Desc {
    pub(crate) chunk: u32,
    len: u16,
    vid: u16,
    half_start: u8,
    input: u8,
    pri_flags: u8,
    format: Format,
}

const _: () = assert!(size_of::<Desc>() == 12, "with the VOQ link a descriptor is 16 octets");

/// Facts about a frame that later stages need, as bits over the priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// ECN-capable transport on a frame that may be marked (pipeline.md §8).
    Ect = 0x08,
    /// The frame carries an outer VLAN tag.
    Tagged = 0x10,
    /// TCP or UDP checksum holds only the pseudo-header's sum; see [`crate::pool::PartialCsum`].
    PartialCsum = 0x20,
    /// Charged to its ingress group, not its VOQ (lossless, pipeline.md §4).
    Pg = 0x40,
    /// One of several copies that share a chunk.
    Shared = 0x80,
}

/// A frame's start as it is kept: halved, so that 510 fits an octet.
#[expect(clippy::cast_possible_truncation, reason = "the pool checks that a start is at most 510")]
const fn half(start: usize) -> u8 {
    (start / 2) as u8
}

impl Desc {
    pub(crate) const fn new(chunk: u32, start: usize) -> Self {
        Self {
            chunk,
            len: 0,
            vid: 0,
            half_start: half(start),
            input: 0,
            pri_flags: 0,
            format: Format::Other,
        }
    }

    /// A second handle of the same chunk; the pool counts it.
    pub(crate) const fn twin(&self) -> Self {
        Self { ..*self }
    }

    /// Octets of the frame, without FCS.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn set_len(&mut self, len: u16) {
        self.len = len;
    }

    /// Where in its chunk the frame starts.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> usize {
        self.half_start as usize * 2
    }

    pub(crate) const fn set_start(&mut self, start: usize) {
        self.half_start = half(start);
    }

    /// The port that the frame came in by.
    #[inline]
    #[must_use]
    pub const fn input(&self) -> PortId {
        PortId::from_low_bits(self.input)
    }

    /// Notes the port that the frame came in by.
    #[inline]
    pub const fn set_input(&mut self, input: PortId) {
        self.input = input.get();
    }

    /// Switch-internal priority.
    #[inline]
    #[must_use]
    pub const fn pri(&self) -> Pri {
        Pri::from_low_bits(self.pri_flags)
    }

    /// Sets the priority.
    #[inline]
    pub const fn set_pri(&mut self, pri: Pri) {
        self.pri_flags = self.pri_flags & !7 | pri.get();
    }

    /// VLAN that the frame belongs to.
    #[inline]
    #[must_use]
    pub const fn vid(&self) -> u16 {
        self.vid
    }

    /// Sets the VLAN.
    #[inline]
    pub const fn set_vid(&mut self, vid: u16) {
        self.vid = vid;
    }

    /// The frame's format.
    #[inline]
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Sets the format.
    #[inline]
    pub const fn set_format(&mut self, format: Format) {
        self.format = format;
    }

    /// Whether `flag` is set.
    #[inline]
    #[must_use]
    pub const fn has(&self, flag: Flag) -> bool {
        self.pri_flags & flag as u8 != 0
    }

    /// Sets or clears `flag`.
    #[inline]
    pub const fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.pri_flags |= flag as u8;
        } else {
            self.pri_flags &= !(flag as u8);
        }
    }

    /// The chunk's number, for traces and tests.
    #[inline]
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }
}
