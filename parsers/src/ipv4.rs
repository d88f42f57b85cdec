//! IPv4 header.
//!
//! Version 4, IHL 4, TOS 8, length 16, id 16, flags 3, offset 13, TTL 8, protocol 8, checksum 16,
//! source 32, destination 32 bits, then options. IHL counts 32-bit words, the fragment offset 8
//! bytes.
//!
//! Source: RFC 791 3.1, RFC 2474, RFC 3168; docs/spec/wire-formats.md §1.2.

use core::net::Ipv4Addr;

use crate::bytes::{be16, be64, byte, cut, cut_mut, put, window};
use crate::checksum::{Sum, checksum, update16};
use crate::error::{Field, Layer, ParseError};
use crate::types::{Dscp, Ecn};

/// Bytes of the header without options.
pub const LEN: usize = 20;
/// Flag "do not fragment" in the word of flags and offset; Standard frames carry it.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// Checksum of a header without options; 0 of one that has its correct checksum.
#[inline]
#[must_use]
pub const fn plain_checksum(header: &[u8; LEN]) -> u16 {
    let sum = Sum::ZERO.with64(be64::<0, _>(header)).with64(be64::<8, _>(header));
    sum.with16(be16::<16, _>(header)).with16(be16::<18, _>(header)).finish()
}

/// Borrowed IPv4 header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    head: &'a [u8; LEN],
    options: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Splits a header with its options off the front of `bytes`; also returns the bytes behind it,
    /// which may be padded beyond [`Ipv4::total_len`]. The checksum is not looked at.
    ///
    /// # Errors
    /// [`ParseError::Short`] when the header does not fit; [`ParseError::Value`] when the version is
    /// not 4 or the IHL is below 5.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (head, rest) = cut(bytes, Layer::Ipv4)?;
        let first = byte::<0, _>(head);
        let header_len = usize::from(first & 0xF) * 4;
        if first >> 4 != 4 {
            return Err(value(Field::Version, first >> 4));
        }
        let Some(options_len) = header_len.checked_sub(LEN) else {
            return Err(value(Field::Ihl, first & 0xF));
        };
        let Some((options, rest)) = rest.split_at_checked(options_len) else {
            return Err(ParseError::short(Layer::Ipv4, header_len, bytes.len()));
        };
        Ok((Self { head, options }, rest))
    }

    /// Bytes of the header with its options, 20..=60.
    #[inline]
    #[must_use]
    pub const fn header_len(self) -> usize {
        LEN + self.options.len()
    }

    /// Options, a multiple of four bytes.
    #[inline]
    #[must_use]
    pub const fn options(self) -> &'a [u8] {
        self.options
    }

    /// TOS byte: DSCP and ECN together.
    #[inline]
    #[must_use]
    pub const fn tos(self) -> u8 {
        byte::<1, _>(self.head)
    }

    /// Differentiated services code point.
    #[inline]
    #[must_use]
    pub const fn dscp(self) -> Dscp {
        Dscp::from_tos(self.tos())
    }

    /// ECN codepoint, TOS bits 1:0.
    #[inline]
    #[must_use]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_low_bits(self.tos())
    }

    /// Bytes of header and payload, as the sender claims.
    #[inline]
    #[must_use]
    pub const fn total_len(self) -> u16 {
        be16::<2, _>(self.head)
    }

    /// Identification, shared by the fragments of a packet.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u16 {
        be16::<4, _>(self.head)
    }

    /// Flags in bits 15:13, fragment offset in bits 12:0.
    #[inline]
    #[must_use]
    pub const fn fragment(self) -> u16 {
        be16::<6, _>(self.head)
    }

    /// A part of a packet: more fragments follow, or the offset is not 0.
    #[inline]
    #[must_use]
    pub const fn is_fragment(self) -> bool {
        self.fragment() & 0x3FFF != 0
    }

    /// Time to live, in hops.
    #[inline]
    #[must_use]
    pub const fn ttl(self) -> u8 {
        byte::<8, _>(self.head)
    }

    /// Protocol of the payload; [`crate::ip_proto`] names some.
    #[inline]
    #[must_use]
    pub const fn proto(self) -> u8 {
        byte::<9, _>(self.head)
    }

    /// Header checksum as it stands.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        be16::<10, _>(self.head)
    }

    /// Whether the header checksum is right.
    #[must_use]
    pub fn is_checksum_ok(self) -> bool {
        crate::checksum::Sum::ZERO.with(self.head).with(self.options).finish() == 0
    }

    /// Source address, bytes 12 to 15.
    #[inline]
    #[must_use]
    pub const fn src(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::from_be_bytes(*window::<12, 4, _>(self.head)))
    }

    /// Destination address, bytes 16 to 19.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(u32::from_be_bytes(*window::<16, 4, _>(self.head)))
    }

    /// All fields but options and checksum, to change and emit.
    #[must_use]
    pub const fn repr(self) -> Ipv4Repr {
        Ipv4Repr {
            tos: self.tos(),
            total_len: self.total_len(),
            id: self.id(),
            fragment: self.fragment(),
            ttl: self.ttl(),
            proto: self.proto(),
            src: self.src(),
            dst: self.dst(),
        }
    }
}

const fn value(field: Field, value: u8) -> ParseError {
    ParseError::Value { layer: Layer::Ipv4, field, value: value as u16 }
}

/// Writer of an IPv4 header in place.
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    head: &'a mut [u8; LEN],
}

impl<'a> Ipv4Mut<'a> {
    /// Takes the fixed part of a header at the front of `bytes`; version and IHL are not looked at.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        match cut_mut(bytes, Layer::Ipv4) {
            Ok((head, _)) => Ok(Self { head }),
            Err(error) => Err(error),
        }
    }

    /// TOS byte: DSCP and ECN together.
    #[inline]
    #[must_use]
    pub const fn tos(&self) -> u8 {
        byte::<1, _>(self.head)
    }

    /// Replaces the TOS byte and brings the checksum up to date (RFC 1624); a checksum that was
    /// wrong stays wrong by as much.
    #[inline]
    pub const fn set_tos(&mut self, tos: u8) {
        // the checksum counts words: version, IHL and TOS share the first one
        let old = be16::<0, _>(self.head);
        let updated = update16(be16::<10, _>(self.head), old, old & 0xFF00 | tos as u16);
        put::<1, 1, _>(self.head, [tos]);
        put::<10, 2, _>(self.head, updated.to_be_bytes());
    }
}

/// IPv4 header as plain fields, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Repr {
    /// DSCP in bits 7:2, ECN in bits 1:0.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: u16,
    /// Identification, shared by the fragments of a packet.
    pub id: u16,
    /// Flags in bits 15:13, fragment offset in bits 12:0.
    pub fragment: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub proto: u8,
    /// Source address, bytes 12 to 15.
    pub src: Ipv4Addr,
    /// Destination address, bytes 16 to 19.
    pub dst: Ipv4Addr,
}

impl Ipv4Repr {
    /// Writes the header with its checksum.
    pub fn emit(&self, out: &mut [u8; LEN]) {
        put::<0, 2, _>(out, [0x45, self.tos]);
        put::<2, 2, _>(out, self.total_len.to_be_bytes());
        put::<4, 2, _>(out, self.id.to_be_bytes());
        put::<6, 2, _>(out, self.fragment.to_be_bytes());
        put::<8, 4, _>(out, [self.ttl, self.proto, 0, 0]);
        put::<12, 4, _>(out, self.src.octets());
        put::<16, 4, _>(out, self.dst.octets());
        // over a checksum field of zeros, as RFC 791 has it
        let sum = checksum(out);
        put::<10, 2, _>(out, sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_shorter_of};

    const WORKED: [u8; LEN] = [
        0x45, 0x21, 0x00, 0x68, 0x00, 0x01, 0x40, 0x00, 0x40, 0x11, 0x26, 0x61, 0x0A, 0, 0, 1,
        0x0A, 0, 0, 2,
    ];

    #[test]
    fn worked_header_both_ways() {
        let want = Ipv4Repr {
            tos: 0x21,
            total_len: 0x68,
            id: 1,
            fragment: DONT_FRAGMENT,
            ttl: 64,
            proto: 17,
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
        };
        let (view, rest) = Ipv4::parse(&WORKED).unwrap();
        assert!(rest.is_empty());
        assert_eq!(view.repr(), want);
        assert_eq!((view.dscp().get(), view.ecn()), (8, Ecn::Ect1));
        assert!(view.is_checksum_ok() && !view.is_fragment());
        let mut out = [0xEE; LEN];
        want.emit(&mut out);
        assert_eq!(out, WORKED);
    }

    #[test]
    fn shorter_is_refused_with_and_without_options() {
        refuses_shorter_of(&WORKED, Layer::Ipv4, |bytes| Ipv4::parse(bytes).err());
        let mut with_options = [0; 60];
        with_options[0] = 0x4F;
        for had in LEN..60 {
            let error = Ipv4::parse(&with_options[..had]).unwrap_err();
            assert_eq!(error, ParseError::short(Layer::Ipv4, 60, had));
        }
        let (view, _) = Ipv4::parse(&with_options).unwrap();
        assert_eq!((view.header_len(), view.options().len()), (60, 40));
        assert_eq!(
            Ipv4Mut::parse(&mut [0; 19]).unwrap_err(),
            ParseError::short(Layer::Ipv4, 20, 19)
        );
    }

    #[test]
    fn wrong_version_and_ihl_are_named() {
        let cases = [("version 6", 0x65, Field::Version, 6), ("ihl 4", 0x44, Field::Ihl, 4)];
        for (name, first, field, value) in cases {
            let mut bytes = WORKED;
            bytes[0] = first;
            let want = ParseError::Value { layer: Layer::Ipv4, field, value };
            assert_eq!(Ipv4::parse(&bytes).unwrap_err(), want, "{name}");
        }
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(5);
        for _ in 0..1000 {
            let want = Ipv4Repr {
                tos: rng.u8(),
                total_len: rng.u16(),
                id: rng.u16(),
                fragment: rng.u16(),
                ttl: rng.u8(),
                proto: rng.u8(),
                src: rng.u32().into(),
                dst: rng.u32().into(),
            };
            let mut out = [0; LEN];
            want.emit(&mut out);
            let (view, _) = Ipv4::parse(&out).unwrap();
            assert_eq!(view.repr(), want);
            assert!(view.is_checksum_ok());
            let tos = rng.u8();
            Ipv4Mut::parse(&mut out).unwrap().set_tos(tos);
            let (view, _) = Ipv4::parse(&out).unwrap();
            assert_eq!(view.repr(), Ipv4Repr { tos, ..want });
            assert!(view.is_checksum_ok());
        }
    }
}
