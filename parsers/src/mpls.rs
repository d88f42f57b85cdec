//! MPLS label stack entry: the top one carries the bits that choose a priority.
//!
//! Label 20, EXP 3, bottom of stack 1, TTL 8 bits; view and plain struct.
//!
//! Source: RFC 3032 section 2.1 (layout), RFC 5462 section 1 (EXP is named Traffic Class), RFC 5332
//! section 3 (both values of `EtherType`); docs/spec/wire-formats.md §1.2a.

use crate::bytes::{be16, byte, cut, put};
use crate::error::{Layer, ParseError};
use crate::types::{Exp, ether_type};

/// Bytes of one entry of the label stack.
pub const LEN: usize = 4;

/// Whether a label stack follows this EtherType.
#[inline]
#[must_use]
pub const fn is_mpls(kind: u16) -> bool {
    kind == ether_type::MPLS || kind == ether_type::MPLS_UPSTREAM
}

/// Borrowed entry of an MPLS label stack. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct LabelEntry<'a> {
    head: &'a [u8; LEN],
}

impl<'a> LabelEntry<'a> {
    /// Splits the top entry off the front of `bytes`; also returns the bytes behind it: the next
    /// entry, unless this is the [bottom](Self::is_bottom).
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Mpls) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// Label of the entry, 20 bits.
    #[inline]
    #[must_use]
    pub const fn label(self) -> u32 {
        (be16::<0, _>(self.head) as u32) << 4 | byte::<2, _>(self.head) as u32 >> 4
    }

    /// EXP, the Traffic Class of RFC 5462.
    #[inline]
    #[must_use]
    pub const fn exp(self) -> Exp {
        Exp::from_third_byte(byte::<2, _>(self.head))
    }

    /// The last entry of the stack.
    #[inline]
    #[must_use]
    pub const fn is_bottom(self) -> bool {
        byte::<2, _>(self.head) & 1 != 0
    }

    /// Time to live, in hops.
    #[inline]
    #[must_use]
    pub const fn ttl(self) -> u8 {
        byte::<3, _>(self.head)
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> LabelRepr {
        LabelRepr {
            label: self.label(),
            exp: self.exp(),
            is_bottom: self.is_bottom(),
            ttl: self.ttl(),
        }
    }
}

/// Entry of an MPLS label stack as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelRepr {
    /// Label; the lower 20 bits are sent.
    pub label: u32,
    /// EXP, the Traffic Class of RFC 5462.
    pub exp: Exp,
    /// The last entry of the stack.
    pub is_bottom: bool,
    /// Time to live, in hops.
    pub ttl: u8,
}

impl LabelRepr {
    /// Writes the entry's 4 bytes.
    pub const fn emit(self, out: &mut [u8; LEN]) {
        // bits of the label above the low 20 fall off the word
        let word = self.label << 12
            | (self.exp.get() as u32) << 9
            | (self.is_bottom as u32) << 8
            | self.ttl as u32;
        put::<0, 4, _>(out, word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Label 16, EXP 5, bottom, TTL 64: the worked bytes of docs/spec/wire-formats.md.
    const WORKED: [u8; LEN] = [0x00, 0x01, 0x0B, 0x40];

    #[test]
    fn worked_bytes_are_read_and_written() {
        let (entry, rest) = LabelEntry::parse(&WORKED).unwrap();
        let fields = (entry.label(), entry.exp().get(), entry.is_bottom(), entry.ttl());
        assert_eq!((fields, rest.len()), ((16, 5, true, 64), 0));
        let mut out = [0xEE; LEN];
        entry.repr().emit(&mut out);
        assert_eq!(out, WORKED);
    }

    #[test]
    fn each_field_keeps_to_its_bits() {
        for bit in 0..32 {
            let bytes = (1_u32 << bit).to_be_bytes();
            let entry = LabelEntry::parse(&bytes).unwrap().0.repr();
            let want = LabelRepr {
                label: if bit >= 12 { 1 << (bit - 12) } else { 0 },
                exp: Exp::from_third_byte(if (9..12).contains(&bit) { 1 << (bit - 8) } else { 0 }),
                is_bottom: bit == 8,
                ttl: if bit < 8 { 1 << bit } else { 0 },
            };
            let mut out = [0; LEN];
            entry.emit(&mut out);
            assert_eq!((entry, out), (want, bytes), "bit {bit}");
        }
    }

    #[test]
    fn every_shorter_length_is_refused() {
        for len in 0..LEN {
            let found = LabelEntry::parse(&WORKED[..len]).map(|(entry, _)| entry.repr());
            assert_eq!(found, Err(ParseError::short(Layer::Mpls, LEN, len)));
        }
    }
}
