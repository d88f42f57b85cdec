//! UDP header.
//!
//! Source port, destination port, length, checksum, 16 bits each; the length counts the header.
//!
//! Source: RFC 768; docs/spec/wire-formats.md §0 (C1) and §1.2 for the fixed checksum of Standard
//! frames.

use crate::bytes::{be16, cut, put};
use crate::error::{Layer, ParseError};

/// Bytes of the header.
pub const LEN: usize = 8;
/// Destination port of `RoCE` version 2 and of Standard frames.
pub const PORT_ROCE: u16 = 4791;
/// Checksum of Standard frames; receivers do not verify it.
pub const STANDARD_CHECKSUM: u16 = 0xFFFF;

/// Borrowed UDP header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Udp<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it, which may be
    /// padded beyond [`Udp::len`].
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Udp) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// Source port, bytes 0 and 1.
    #[inline]
    #[must_use]
    pub const fn sport(self) -> u16 {
        be16::<0, _>(self.head)
    }

    /// Destination port, bytes 2 and 3.
    #[inline]
    #[must_use]
    pub const fn dport(self) -> u16 {
        be16::<2, _>(self.head)
    }

    /// Bytes of header and payload, as the sender claims.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a field of the header, not a collection")]
    pub const fn len(self) -> u16 {
        be16::<4, _>(self.head)
    }

    /// Checksum; 0 for none.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        be16::<6, _>(self.head)
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> UdpRepr {
        UdpRepr {
            sport: self.sport(),
            dport: self.dport(),
            len: self.len(),
            checksum: self.checksum(),
        }
    }
}

/// UDP header as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port, bytes 0 and 1.
    pub sport: u16,
    /// Destination port, bytes 2 and 3.
    pub dport: u16,
    /// Bytes of header and payload.
    pub len: u16,
    /// Checksum, written as it is.
    pub checksum: u16,
}

impl UdpRepr {
    /// Writes the 8 bytes.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        put::<0, 2, _>(out, self.sport.to_be_bytes());
        put::<2, 2, _>(out, self.dport.to_be_bytes());
        put::<4, 2, _>(out, self.len.to_be_bytes());
        put::<6, 2, _>(out, self.checksum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_every_shorter};

    #[test]
    fn worked_header_both_ways() {
        let bytes = [0xC0, 0x00, 0x12, 0xB7, 0x00, 0x54, 0xFF, 0xFF];
        let want =
            UdpRepr { sport: 0xC000, dport: PORT_ROCE, len: 84, checksum: STANDARD_CHECKSUM };
        assert_eq!(Udp::parse(&bytes).unwrap().0.repr(), want);
        let mut out = [0; LEN];
        want.emit(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn shorter_is_refused() {
        refuses_every_shorter(Layer::Udp, LEN, |bytes| Udp::parse(bytes).err());
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(7);
        for _ in 0..1000 {
            let want =
                UdpRepr { sport: rng.u16(), dport: rng.u16(), len: rng.u16(), checksum: rng.u16() };
            let mut out = [0; LEN];
            want.emit(&mut out);
            assert_eq!(Udp::parse(&out).unwrap().0.repr(), want);
        }
    }
}
