//! Ethernet header.
//!
//! Destination 48, source 48, EtherType 16 bits; [`Ethernet`] reads, [`EthernetRepr`] emits.
//!
//! Source: IEEE 802.3-2022 clause 3.2; docs/spec/wire-formats.md §1.2.

use crate::addr::MacAddr;
use crate::bytes::{be16, cut, put, window};
use crate::error::{Layer, ParseError};

/// Bytes of the header.
pub const LEN: usize = 14;
/// Least length of a frame on the wire, FCS not counted; transmit pads up to it.
pub const MIN_FRAME_LEN: usize = 60;

/// Borrowed Ethernet header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Ethernet<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Ethernet) {
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

    /// Source address, bytes 6 to 11.
    #[inline]
    #[must_use]
    pub const fn src(self) -> MacAddr {
        MacAddr(*window::<6, 6, _>(self.head))
    }

    /// EtherType, or a length when below 0x0600.
    #[inline]
    #[must_use]
    pub const fn ether_type(self) -> u16 {
        be16::<12, _>(self.head)
    }

    /// All fields, to change and emit.
    #[must_use]
    pub const fn repr(self) -> EthernetRepr {
        EthernetRepr { dst: self.dst(), src: self.src(), ether_type: self.ether_type() }
    }
}

/// Ethernet header as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetRepr {
    /// Destination address; a group has its I/G bit set.
    pub dst: MacAddr,
    /// Source address; never a group.
    pub src: MacAddr,
    /// EtherType behind the addresses; the TPID where a tag follows.
    pub ether_type: u16,
}

impl EthernetRepr {
    /// Writes the 14 bytes.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        put::<0, 6, _>(out, self.dst.0);
        put::<6, 6, _>(out, self.src.0);
        put::<12, 2, _>(out, self.ether_type.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_every_shorter};

    #[test]
    fn worked_header() {
        let bytes = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45];
        let (view, rest) = Ethernet::parse(&bytes).unwrap();
        assert_eq!(view.dst(), MacAddr([2, 0, 0, 0, 0, 2]));
        assert_eq!(view.src(), MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(view.ether_type(), 0x0800);
        assert_eq!(rest, [0x45]);
    }

    #[test]
    fn shorter_is_refused() {
        refuses_every_shorter(Layer::Ethernet, LEN, |bytes| Ethernet::parse(bytes).err());
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let want = EthernetRepr {
                dst: MacAddr(rng.bytes()),
                src: MacAddr(rng.bytes()),
                ether_type: rng.u16(),
            };
            let mut out = [0; LEN];
            want.emit(&mut out);
            assert_eq!(Ethernet::parse(&out).unwrap().0.repr(), want);
        }
    }
}
