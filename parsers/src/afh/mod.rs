//! AI Forwarding Header (AFH): GEN1, GEN2 of 16-bit ids, and Lite, 12 bytes each.
//!
//! GEN1 is DA 48, TC 8, SA 40 bits; GEN2 and Lite carry `Key_words` 8, TC 8, destination 16, source
//! 16 and 2 x 24 bits of payload (GEN2) or the XPU id (Lite), in one of two byte orders.
//!
//! Source: docs/spec/wire-formats.md §1.3, §1.4, §1.4a, §1.4b.
//!
//! Behind a GEN1 or GEN2 header stands the EtherType (or a tag), so [`crate::ethernet::Ethernet`]
//! reads the same bytes with it; behind a Lite header stands the payload.

use crate::addr::{GEN1_MASK, MacAddr};
use crate::bytes::{be16, be24, be64, byte, cut, low24, put, window};
use crate::error::{Layer, ParseError};

/// Bytes of every AFH header.
pub const LEN: usize = 12;

/// Which bytes of GEN2 and Lite carry `Key_words` and Traffic Class (docs/spec/wire-formats.md §1.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Gen2Order {
    /// `Key_words` in byte 0, Traffic Class in byte 6.
    #[default]
    Slap,
    /// Traffic Class in byte 0, `Key_words` in byte 6.
    AsDocumented,
}

impl Gen2Order {
    /// Name used in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slap => "slap",
            Self::AsDocumented => "as_documented",
        }
    }

    /// The order that is not this one.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Slap => Self::AsDocumented,
            Self::AsDocumented => Self::Slap,
        }
    }
}

/// AFH Traffic Class byte: bits 7:5 VC, bits 4:2 flow, bits 1:0 zero (docs/spec/wire-formats.md §1.4b).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Flow of a TYPE1 request.
    pub const FLOW_TYPE1_REQ: u8 = 0;
    /// Flow of a TYPE1 ACK or CNP.
    pub const FLOW_TYPE1_ACK: u8 = 1;
    /// Flow of TYPE2 (multicast).
    pub const FLOW_TYPE2: u8 = 2;
    /// Flow of TYPE3 (raw Ethernet).
    pub const FLOW_TYPE3: u8 = 3;

    /// From a VC and a flow, of which the low three bits count.
    #[inline]
    #[must_use]
    pub const fn new(vc: u8, flow: u8) -> Self {
        Self((vc & 7) << 5 | (flow & 7) << 2)
    }

    /// Index 0..=63 into a table of 64: bits 7:2.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0 >> 2
    }

    /// Virtual channel, 0..=7.
    #[inline]
    #[must_use]
    pub const fn vc(self) -> u8 {
        self.0 >> 5
    }

    /// Flow, 0..=7; 4 to 7 are reserved.
    #[inline]
    #[must_use]
    pub const fn flow(self) -> u8 {
        self.0 >> 2 & 7
    }
}

/// `Key_words` byte of GEN2 and Lite (docs/spec/wire-formats.md §1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyWords(pub u8);

impl KeyWords {
    /// `GEN2_16b`, locally administered, unicast: 0x82.
    pub const UNICAST: Self = Self(0x82);
    /// `GEN2_16b`, locally administered, multicast: 0x83.
    pub const MULTICAST: Self = Self(0x83);

    /// W: true for `GEN2_16b`, false for `GEN2_32b` (whose layout is not public).
    #[inline]
    #[must_use]
    pub const fn is_16b(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// V, bit 6: version of the layout; only 0 is defined.
    #[inline]
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0 >> 6 & 1
    }

    /// Z, Y: SLAP quadrant, 0 for AAI.
    #[inline]
    #[must_use]
    pub const fn slap_quadrant(self) -> u8 {
        self.0 >> 2 & 3
    }

    /// X, bit 1: the address is locally administered.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0 & 2 != 0
    }

    /// M, bit 0: a multicast group (TYPE2).
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0 & 1 != 0
    }

    /// Looks like `Key_words` of `GEN2_16b` with all defaults: the test of mode `auto`.
    #[inline]
    #[must_use]
    pub const fn looks_like_gen2(self) -> bool {
        self.0 & 0xCE == 0x82
    }
}

impl Gen2Order {
    /// `Key_words` and Traffic Class of a header, in this order of bytes.
    #[inline]
    #[must_use]
    pub const fn key_words_and_tc(self, byte0: u8, byte6: u8) -> (KeyWords, TrafficClass) {
        match self {
            Self::Slap => (KeyWords(byte0), TrafficClass(byte6)),
            Self::AsDocumented => (KeyWords(byte6), TrafficClass(byte0)),
        }
    }

    /// Bytes 0 and 6 of a header.
    #[inline]
    const fn bytes(self, key_words: KeyWords, tc: TrafficClass) -> (u8, u8) {
        match self {
            Self::Slap => (key_words.0, tc.0),
            Self::AsDocumented => (tc.0, key_words.0),
        }
    }
}

/// Destination id of multicast group 0..=7: bit 15 set, the group in bits 2:0.
#[must_use]
pub const fn multicast_id(group: u8) -> u16 {
    0x8000 | (group & 7) as u16
}

/// Borrowed GEN1 header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Gen1<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Gen1<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Afh) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// Destination address, bytes 0 to 5.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> MacAddr {
        MacAddr(*window::<0, 6, _>(self.head))
    }

    /// Traffic Class, byte 6.
    #[inline]
    #[must_use]
    pub const fn tc(self) -> TrafficClass {
        TrafficClass(byte::<6, _>(self.head))
    }

    /// Source address, 40 bits.
    #[inline]
    #[must_use]
    pub const fn src(self) -> u64 {
        be64::<4, _>(self.head) & GEN1_MASK
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> Gen1Repr {
        Gen1Repr { dst: self.dst(), tc: self.tc(), src: self.src() }
    }
}

/// A GEN1 header as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gen1Repr {
    /// Destination address; of a group bit 40 is set.
    pub dst: MacAddr,
    /// Traffic Class, which takes the place of the source's top byte.
    pub tc: TrafficClass,
    /// Source address; the low 40 bits count.
    pub src: u64,
}

impl Gen1Repr {
    /// Writes the 12 bytes; the EtherType, or a tag, goes behind them.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        put::<0, 6, _>(out, self.dst.0);
        // one write for both: the Traffic Class is the top byte of the source's 48 bits
        put::<6, 6, _>(out, MacAddr::from_bits((self.tc.0 as u64) << 40 | self.src & GEN1_MASK).0);
    }
}

/// Borrowed GEN2 header of 16-bit ids. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Gen2<'a> {
    head: &'a [u8; LEN],
    order: Gen2Order,
}

impl<'a> Gen2<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it. It takes a
    /// header of 32-bit ids, too: ask [`KeyWords::is_16b`].
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8], order: Gen2Order) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Afh) {
            Ok((head, rest)) => Ok((Self { head, order }, rest)),
            Err(error) => Err(error),
        }
    }

    #[inline]
    const fn key_words_and_tc(self) -> (KeyWords, TrafficClass) {
        self.order.key_words_and_tc(byte::<0, _>(self.head), byte::<6, _>(self.head))
    }

    /// `Key_words`, from byte 0 or 6 as the order says.
    #[inline]
    #[must_use]
    pub const fn key_words(self) -> KeyWords {
        self.key_words_and_tc().0
    }

    /// Traffic Class, from byte 6 or 0 as the order says.
    #[inline]
    #[must_use]
    pub const fn tc(self) -> TrafficClass {
        self.key_words_and_tc().1
    }

    /// Payload bits of the destination half, 24 bits; 0 in an ACK.
    #[inline]
    #[must_use]
    pub const fn payload_hi(self) -> u32 {
        be24::<1, _>(self.head)
    }

    /// Destination id, bytes 4 and 5.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> u16 {
        be16::<4, _>(self.head)
    }

    /// Payload bits of the source half, 24 bits; 0 in an ACK.
    #[inline]
    #[must_use]
    pub const fn payload_lo(self) -> u32 {
        be24::<7, _>(self.head)
    }

    /// Source id, bytes 10 and 11.
    #[inline]
    #[must_use]
    pub const fn src(self) -> u16 {
        be16::<10, _>(self.head)
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> Gen2Repr {
        Gen2Repr {
            order: self.order,
            key_words: self.key_words(),
            tc: self.tc(),
            dst: self.dst(),
            src: self.src(),
            payload_hi: self.payload_hi(),
            payload_lo: self.payload_lo(),
        }
    }
}

/// A GEN2 header as plain fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gen2Repr {
    /// Which bytes carry `Key_words` and Traffic Class.
    pub order: Gen2Order,
    /// `Key_words`, [`KeyWords::UNICAST`] or [`KeyWords::MULTICAST`].
    pub key_words: KeyWords,
    /// Traffic Class, in the byte that `order` leaves for it.
    pub tc: TrafficClass,
    /// Destination id; of a group see [`multicast_id`].
    pub dst: u16,
    /// Source id, of which endpoints use 10 bits.
    pub src: u16,
    /// Payload bits of the destination half; the low 24 bits count.
    pub payload_hi: u32,
    /// Payload bits of the source half; the low 24 bits count.
    pub payload_lo: u32,
}

impl Gen2Repr {
    /// Writes the 12 bytes, in the order of `order`.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        let (byte0, byte6) = self.order.bytes(self.key_words, self.tc);
        put::<0, 1, _>(out, [byte0]);
        put::<1, 3, _>(out, low24(self.payload_hi));
        put::<4, 2, _>(out, self.dst.to_be_bytes());
        put::<6, 1, _>(out, [byte6]);
        put::<7, 3, _>(out, low24(self.payload_lo));
        put::<10, 2, _>(out, self.src.to_be_bytes());
    }
}

/// Borrowed Lite header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Lite<'a>(Gen2<'a>);

impl<'a> Lite<'a> {
    /// Splits a header off the front of `bytes`; also returns the payload.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8], order: Gen2Order) -> Result<(Self, &'a [u8]), ParseError> {
        match Gen2::parse(bytes, order) {
            Ok((gen2, rest)) => Ok((Self(gen2), rest)),
            Err(error) => Err(error),
        }
    }

    /// `Key_words`, from byte 0 or 6 as the order says.
    #[inline]
    #[must_use]
    pub const fn key_words(self) -> KeyWords {
        self.0.key_words()
    }

    /// Traffic Class; the receiver derives the bank from it.
    #[inline]
    #[must_use]
    pub const fn tc(self) -> TrafficClass {
        self.0.tc()
    }

    /// Destination id, bytes 4 and 5.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> u16 {
        self.0.dst()
    }

    /// Source id, bytes 10 and 11.
    #[inline]
    #[must_use]
    pub const fn src(self) -> u16 {
        self.0.src()
    }

    /// XPU id, of which 8 bits are used.
    #[inline]
    #[must_use]
    pub const fn xpu_id(self) -> u16 {
        be16::<7, _>(self.0.head)
    }

    /// All fields, to change and emit; the reserved bytes are left behind.
    #[must_use]
    pub const fn repr(self) -> LiteRepr {
        LiteRepr {
            order: self.0.order,
            key_words: self.key_words(),
            tc: self.tc(),
            dst: self.dst(),
            src: self.src(),
            xpu_id: self.xpu_id(),
        }
    }
}

/// A Lite header as plain fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiteRepr {
    /// Which bytes carry `Key_words` and Traffic Class.
    pub order: Gen2Order,
    /// `Key_words`, [`KeyWords::UNICAST`] or [`KeyWords::MULTICAST`].
    pub key_words: KeyWords,
    /// Traffic Class, in the byte that `order` leaves for it.
    pub tc: TrafficClass,
    /// Destination id; of a group see [`multicast_id`].
    pub dst: u16,
    /// Source id, of which endpoints use 10 bits.
    pub src: u16,
    /// XPU id, bytes 7 and 8, of which 8 bits are used.
    pub xpu_id: u16,
}

impl LiteRepr {
    /// Writes the header, reserved bytes 0.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        let &Self { order, key_words, tc, dst, src, xpu_id } = self;
        // Lite has the XPU id in bytes 7 and 8, the upper two of GEN2's three bytes of payload;
        // byte 9 is 0
        let payload_lo = (xpu_id as u32) << 8;
        Gen2Repr { order, key_words, tc, dst, src, payload_hi: 0, payload_lo }.emit(out);
    }
}

#[cfg(test)]
mod tests;
