//! Frame descriptor: the handle that moves through the switch while the bytes stay in the pool.
//!
//! 12 bytes (16 with the id of a queue): chunk 32; vid 16, len 16; group 1, format 7, pri 3 + flags
//! 5, input 8, start/2 8. It is not `Copy`: whoever has it owns the frame, or one share of it.
//!
//! Units: bytes.
//! Source: ARCHITECTURE.md "The path of a frame".

use weft_parsers::Format;

use crate::types::{PortId, Pri};

/// Handle of a frame in the packet pool. [`crate::pool::Bufs::alloc`] makes it, and `free` ends it.
///
/// It has three whole words: with a field for each fact, a move would take a load and a store for
/// each.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped descriptor leaks its chunk"]
pub struct Desc {
    pub(crate) chunk: u32,
    size: u32,
    meta: u32,
}

/// A descriptor as it is stored in a queue. It is `Copy`; taking it out once (`unpack`) makes it
/// the owner again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedDesc {
    chunk: u32,
    frame_stats: FrameStats,
}

impl PackedDesc {
    /// An empty place in a queue.
    pub const NONE: Self = Self { chunk: u32::MAX, frame_stats: FrameStats { size: 0, meta: 0 } };

    /// The descriptor. To be called once for each stored one, as the result owns the frame.
    #[inline]
    pub const fn unpack(self) -> Desc {
        Desc { chunk: self.chunk, size: self.frame_stats.size, meta: self.frame_stats.meta }
    }
}

/// Length, priority and format of a frame, for counters: a descriptor without its chunk, so that it
/// may outlive the frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameStats {
    size: u32,
    meta: u32,
}

/// Result of classifying a frame: input 7:0, priority and flags 15:8, format 22:16, group 23.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescMeta(u32);

impl DescMeta {
    /// The fields as 24 bits.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The fields from the low 24 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0x00FF_FFFF)
    }

    /// The same fields with [`Flag::Pg`] set.
    #[must_use]
    pub const fn charged_to_group(self) -> Self {
        Self(self.0 | Flag::Pg.bit() >> 8)
    }

    /// Whether such frames carry an outer VLAN tag.
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        self.0 & Flag::Tagged.bit() >> 8 != 0
    }

    /// Facts about such a frame for counters, but for its length.
    #[must_use]
    pub const fn frame_stats(self) -> FrameStats {
        FrameStats { size: 0, meta: self.0 << 8 }
    }

    /// The format of such frames, like [`Desc::format_index`].
    #[inline]
    #[must_use]
    pub const fn format_index(self) -> usize {
        format_of(self.0 << 8)
    }
}

/// Fields that classification leaves as they are: the frame's start, and flags that its port or its
/// owner set.
const KEPT: u32 = 0xFF | Flag::PartialCsum.bit() | Flag::Pg.bit() | Flag::Shared.bit();

const VID_SHIFT: u32 = 16;
const INPUT_SHIFT: u32 = 8;
const PRI_SHIFT: u32 = 16;
const FORMAT_SHIFT: u32 = 24;
/// Bit above the format: the destination is a group.
const GROUP: u32 = 1 << 31;

/// The format field of a descriptor's last word.
#[inline]
const fn format_of(meta: u32) -> usize {
    ((meta & !GROUP) >> FORMAT_SHIFT) as usize
}

/// `word` with the byte at `shift` replaced.
#[inline]
const fn with_byte(word: u32, shift: u32, byte: u8) -> u32 {
    word & !(0xFF << shift) | (byte as u32) << shift
}

/// The byte of `word` at `shift`.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper bits are meant to go")]
const fn byte(word: u32, shift: u32) -> u8 {
    (word >> shift) as u8
}

const _: () = assert!(size_of::<Desc>() == 12, "with the VOQ link a descriptor is 16 bytes");

/// Facts about a frame that later stages need; each value is the bit in the byte above the
/// priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// ECN-capable transport, on a frame that may be marked (docs/spec/pipeline.md §8).
    Ect = 0x08,
    /// The frame carries an outer VLAN tag.
    Tagged = 0x10,
    /// Its TCP or UDP checksum only has the sum of the pseudo-header; see [`crate::pool::PartialCsum`].
    PartialCsum = 0x20,
    /// Charged to its ingress group, not its VOQ (lossless, docs/spec/pipeline.md §4).
    Pg = 0x40,
    /// One of several copies that share a chunk.
    Shared = 0x80,
}

impl Flag {
    #[inline]
    const fn bit(self) -> u32 {
        (self as u32) << PRI_SHIFT
    }
}

/// A frame's start as it is stored: halved, so that 510 fits a byte.
#[expect(clippy::cast_possible_truncation, reason = "the pool checks that a start is at most 510")]
const fn half(start: usize) -> u8 {
    (start / 2) as u8
}

impl Desc {
    #[inline]
    pub(crate) const fn new(chunk: u32, start: usize) -> Self {
        let meta = half(start) as u32 | (Format::Other as u32) << FORMAT_SHIFT;
        Self { chunk, size: 0, meta }
    }

    /// The descriptor in the form in which queues store it.
    #[inline]
    pub(crate) const fn pack(self) -> PackedDesc {
        PackedDesc { chunk: self.chunk, frame_stats: self.frame_stats() }
    }

    /// A second handle of the same chunk. The pool, which calls this, counts it.
    pub(crate) const fn twin(&self) -> Self {
        Self { ..*self }
    }

    /// Bytes of the frame, without FCS.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub const fn len(&self) -> usize {
        (self.size & 0xFFFF) as usize
    }

    #[inline]
    pub(crate) const fn set_len(&mut self, len: u16) {
        self.size = self.size & !0xFFFF | len as u32;
    }

    /// Offset of the frame in its chunk, in bytes; even, and at most 510.
    #[inline]
    #[must_use]
    pub const fn start(&self) -> usize {
        byte(self.meta, 0) as usize * 2
    }

    pub(crate) const fn set_start(&mut self, start: usize) {
        self.meta = with_byte(self.meta, 0, half(start));
    }

    /// The port that the frame came in by.
    #[inline]
    #[must_use]
    pub const fn input(&self) -> PortId {
        PortId::from_low_bits(byte(self.meta, INPUT_SHIFT))
    }

    /// Sets the port that the frame came in by.
    #[inline]
    pub const fn set_input(&mut self, input: PortId) {
        self.meta = with_byte(self.meta, INPUT_SHIFT, input.get());
    }

    /// Switch-internal priority, set by classification.
    #[inline]
    #[must_use]
    pub const fn pri(&self) -> Pri {
        Pri::from_low_bits(byte(self.meta, PRI_SHIFT))
    }

    /// Sets the priority and leaves all flags as they are.
    #[inline]
    pub const fn set_pri(&mut self, pri: Pri) {
        self.meta = self.meta & !(7 << PRI_SHIFT) | ((pri.get() as u32) << PRI_SHIFT);
    }

    /// VLAN that the frame belongs to, 0..=4095.
    #[inline]
    #[must_use]
    pub const fn vid(&self) -> u16 {
        (self.size >> VID_SHIFT) as u16
    }

    /// Sets the VLAN, 0..=4095.
    #[inline]
    pub const fn set_vid(&mut self, vid: u16) {
        self.size = self.size & 0xFFFF | (vid as u32) << VID_SHIFT;
    }

    /// The frame's format, as an index of [`Format::ALL`].
    #[inline]
    #[must_use]
    pub const fn format_index(&self) -> usize {
        format_of(self.meta)
    }

    /// Sets the format of a frame for one station: the group bit is cleared.
    #[inline]
    pub const fn set_format(&mut self, format: Format) {
        self.meta = with_byte(self.meta, FORMAT_SHIFT, format as u8);
    }

    /// Whether the destination is a group (docs/spec/pipeline.md §3), as far as classification found.
    #[inline]
    #[must_use]
    pub const fn is_for_group(&self) -> bool {
        self.meta & GROUP != 0
    }

    /// Marks the destination as a group; [`Self::classify`] clears that.
    #[inline]
    pub const fn set_for_group(&mut self) {
        self.meta |= GROUP;
    }

    /// Sets all results of classification at once, and the input.
    #[inline]
    pub const fn classify(
        &mut self,
        input: PortId,
        format: Format,
        pri: Pri,
        tagged: bool,
        ect: bool,
    ) {
        let found = ((format as u32) << FORMAT_SHIFT)
            | ((pri.get() as u32) << PRI_SHIFT)
            | ((input.get() as u32) << INPUT_SHIFT)
            | (Flag::Tagged.bit() * tagged as u32)
            | (Flag::Ect.bit() * ect as u32);
        // In one store; the group bit is cleared with the format, and `set_for_group` follows for
        // groups.
        self.meta = self.meta & KEPT | found;
    }

    /// The results that [`Self::classify`] has set.
    #[inline]
    #[must_use]
    pub const fn meta(&self) -> DescMeta {
        DescMeta((self.meta & !KEPT) >> 8)
    }

    /// Sets the results of classification from a frame of the same flow, and its VLAN.
    #[inline]
    pub const fn apply(&mut self, meta: DescMeta, vid: u16) {
        self.meta = self.meta & KEPT | meta.0 << 8;
        self.size = self.size & 0xFFFF | (vid as u32) << VID_SHIFT;
    }

    /// Whether the frame has `flag`.
    #[inline]
    #[must_use]
    pub const fn has(&self, flag: Flag) -> bool {
        self.meta & flag.bit() != 0
    }

    /// Whether any of `flags`, as bits of the flag byte, is set.
    #[inline]
    #[must_use]
    pub const fn has_any(&self, flags: u8) -> bool {
        self.meta & (flags as u32) << PRI_SHIFT != 0
    }

    /// Sets or clears `flag`.
    #[inline]
    pub const fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.meta |= flag.bit();
        } else {
            self.meta &= !flag.bit();
        }
    }

    /// The chunk's number, for traces and tests.
    #[inline]
    #[must_use]
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Length, priority and format, for counters.
    #[inline]
    #[must_use]
    pub const fn frame_stats(&self) -> FrameStats {
        FrameStats { size: self.size, meta: self.meta }
    }
}

impl FrameStats {
    /// Bytes of the frame, like [`Desc::len`].
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub const fn len(self) -> usize {
        (self.size & 0xFFFF) as usize
    }

    /// Priority of the frame, like [`Desc::pri`].
    #[inline]
    #[must_use]
    pub const fn pri(self) -> Pri {
        Pri::from_low_bits(byte(self.meta, PRI_SHIFT))
    }

    /// Format of the frame, like [`Desc::format_index`].
    #[inline]
    #[must_use]
    pub const fn format_index(self) -> usize {
        format_of(self.meta)
    }

    /// Whether the destination is a group, like [`Desc::is_for_group`].
    #[inline]
    #[must_use]
    pub const fn is_for_group(self) -> bool {
        self.meta & GROUP != 0
    }

    /// Whether both have the same priority, format and group bit.
    #[inline]
    #[must_use]
    pub const fn is_like(self, other: Self) -> bool {
        // The byte of the format includes the group bit; flags and input do not matter to counters
        // of a port.
        (self.meta ^ other.meta) & (0xFF << FORMAT_SHIFT | 7 << PRI_SHIFT) == 0
    }
}
