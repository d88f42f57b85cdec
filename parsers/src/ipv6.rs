//! IPv6 fixed header.
//!
//! Version 4, traffic class 8, flow label 20, payload length 16, next header 8, hop limit 8, source
//! 128, destination 128 bits.
//!
//! Source: RFC 8200 section 3.

use core::net::Ipv6Addr;

use crate::bytes::{be16, byte, cut, cut_mut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::types::{Dscp, Ecn};

/// Bytes of the fixed header.
pub const LEN: usize = 40;

/// Borrowed IPv6 header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Ipv6<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain; [`ParseError::Value`] when the
    /// version is not 6.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let (head, rest) = match cut(bytes, Layer::Ipv6) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        let version = byte::<0, _>(head) >> 4;
        if version != 6 {
            let (layer, field) = (Layer::Ipv6, Field::Version);
            return Err(ParseError::Value { layer, field, value: version as u16 });
        }
        Ok((Self { head }, rest))
    }

    /// Traffic class: DSCP and ECN together.
    #[inline]
    #[must_use]
    pub const fn traffic_class(self) -> u8 {
        traffic_class(self.head)
    }

    /// Differentiated services code point.
    #[inline]
    #[must_use]
    pub const fn dscp(self) -> Dscp {
        Dscp::from_tos(self.traffic_class())
    }

    /// ECN codepoint, traffic class bits 1:0.
    #[inline]
    #[must_use]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_low_bits(self.traffic_class())
    }

    /// Flow label, 20 bits.
    #[inline]
    #[must_use]
    pub const fn flow_label(self) -> u32 {
        u32::from_be_bytes(*window::<0, 4, _>(self.head)) & 0xF_FFFF
    }

    /// Bytes behind the fixed header, as the sender claims.
    #[inline]
    #[must_use]
    pub const fn payload_len(self) -> u16 {
        be16::<4, _>(self.head)
    }

    /// Protocol or extension header that follows.
    #[inline]
    #[must_use]
    pub const fn next_header(self) -> u8 {
        byte::<6, _>(self.head)
    }

    /// Hop limit, byte 7.
    #[inline]
    #[must_use]
    pub const fn hop_limit(self) -> u8 {
        byte::<7, _>(self.head)
    }

    /// Source address, bytes 8 to 23.
    #[inline]
    #[must_use]
    pub const fn src(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(*window::<8, 16, _>(self.head)))
    }

    /// Destination address, bytes 24 to 39.
    #[inline]
    #[must_use]
    pub const fn dst(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from_be_bytes(*window::<24, 16, _>(self.head)))
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> Ipv6Repr {
        Ipv6Repr {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            payload_len: self.payload_len(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            src: self.src(),
            dst: self.dst(),
        }
    }
}

#[inline]
const fn traffic_class(head: &[u8; LEN]) -> u8 {
    let [_, low] = (be16::<0, _>(head) >> 4).to_be_bytes();
    low
}

/// Writer of an IPv6 header in place.
#[derive(Debug)]
pub struct Ipv6Mut<'a> {
    head: &'a mut [u8; LEN],
}

impl<'a> Ipv6Mut<'a> {
    /// Takes a header at the front of `bytes`; the version is not looked at.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        match cut_mut(bytes, Layer::Ipv6) {
            Ok((head, _)) => Ok(Self { head }),
            Err(error) => Err(error),
        }
    }

    /// Traffic class: DSCP and ECN together.
    #[inline]
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        traffic_class(self.head)
    }

    /// Replaces the traffic class; no checksum covers it.
    #[inline]
    pub const fn set_traffic_class(&mut self, value: u8) {
        // version above and flow label below the traffic class stay
        let word = be16::<0, _>(self.head) & 0xF00F | (value as u16) << 4;
        put::<0, 2, _>(self.head, word.to_be_bytes());
    }
}

/// IPv6 header as plain fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Repr {
    /// DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// Flow label; the low 20 bits count.
    pub flow_label: u32,
    /// Bytes behind the fixed header.
    pub payload_len: u16,
    /// Protocol or extension header that follows.
    pub next_header: u8,
    /// Hop limit; each router takes 1.
    pub hop_limit: u8,
    /// Source address, bytes 8 to 23.
    pub src: Ipv6Addr,
    /// Destination address, bytes 24 to 39.
    pub dst: Ipv6Addr,
}

impl Ipv6Repr {
    /// Writes the 40 bytes.
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        let first = 6 << 28 | (self.traffic_class as u32) << 20 | self.flow_label & 0xF_FFFF;
        put::<0, 4, _>(out, first.to_be_bytes());
        put::<4, 2, _>(out, self.payload_len.to_be_bytes());
        put::<6, 2, _>(out, [self.next_header, self.hop_limit]);
        put::<8, 16, _>(out, self.src.octets());
        put::<24, 16, _>(out, self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_shorter_of};

    #[test]
    fn shorter_is_refused() {
        let mut bytes = [0; LEN];
        bytes[0] = 0x60;
        refuses_shorter_of(&bytes, Layer::Ipv6, |bytes| Ipv6::parse(bytes).err());
        let error = Ipv6Mut::parse(&mut bytes[..39]).unwrap_err();
        assert_eq!(error, ParseError::short(Layer::Ipv6, 40, 39));
    }

    #[test]
    fn wrong_version_is_named() {
        let error = Ipv6::parse(&[0x45; LEN]).unwrap_err();
        let (layer, field) = (Layer::Ipv6, Field::Version);
        assert_eq!(error, ParseError::Value { layer, field, value: 4 });
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(6);
        for _ in 0..1000 {
            let want = Ipv6Repr {
                traffic_class: rng.u8(),
                flow_label: rng.u32() >> 12,
                payload_len: rng.u16(),
                next_header: rng.u8(),
                hop_limit: rng.u8(),
                src: Ipv6Addr::from(rng.bytes::<16>()),
                dst: Ipv6Addr::from(rng.bytes::<16>()),
            };
            let mut out = [0xEE; LEN];
            want.emit(&mut out);
            assert_eq!(Ipv6::parse(&out).unwrap().0.repr(), want);
            let traffic_class = rng.u8();
            Ipv6Mut::parse(&mut out).unwrap().set_traffic_class(traffic_class);
            assert_eq!(Ipv6::parse(&out).unwrap().0.repr(), Ipv6Repr { traffic_class, ..want });
        }
    }
}
