//! IBTA base transport header, which stands behind UDP in RoCEv2.
//!
//! Opcode 8, SE 1, `MigReq` 1, pad 2, `TVer` 4, `P_Key` 16, FECN 1, BECN 1, reserved 6, `DestQP`
//! 24, `AckReq` 1, reserved 7, PSN 24 bits; 12 bytes in all.
//!
//! Source: IBTA architecture specification volume 1, 9.2; docs/spec/wire-formats.md §2.1.

use crate::bytes::{be16, be24, byte, cut, low24, put};
use crate::error::{Layer, ParseError};

/// Bytes of the header.
pub const LEN: usize = 12;
/// Opcode of a congestion notification packet.
pub const OPCODE_CNP: u8 = 0x81;

/// Borrowed RoCE base transport header. Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Bth<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Bth<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Bth) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// Opcode: transport in bits 7:5, operation in bits 4:0.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> u8 {
        byte::<0, _>(self.head)
    }

    /// Name of the opcode if it is one of the reliable connection's or the CNP.
    #[must_use]
    pub const fn opcode_name(self) -> Option<&'static str> {
        Some(match self.opcode() {
            0x00 => "send first",
            0x01 => "send middle",
            0x02 => "send last",
            0x03 => "send last imm",
            0x04 => "send only",
            0x05 => "send only imm",
            0x06 => "write first",
            0x07 => "write middle",
            0x08 => "write last",
            0x09 => "write last imm",
            0x0A => "write only",
            0x0B => "write only imm",
            0x0C => "read request",
            0x0D => "read response first",
            0x0E => "read response middle",
            0x0F => "read response last",
            0x10 => "read response only",
            0x11 => "ack",
            0x12 => "atomic ack",
            0x13 => "cmp swap",
            0x14 => "fetch add",
            OPCODE_CNP => "cnp",
            _ => return None,
        })
    }

    /// Bytes of padding in the payload, 0..=3.
    #[inline]
    #[must_use]
    pub const fn pad(self) -> u8 {
        byte::<1, _>(self.head) >> 4 & 3
    }

    /// All fields, to change and emit; reserved bits are left behind.
    #[must_use]
    pub const fn repr(self) -> BthRepr {
        let second = byte::<1, _>(self.head);
        BthRepr {
            opcode: self.opcode(),
            solicited: second & 0x80 != 0,
            mig_req: second & 0x40 != 0,
            pad: self.pad(),
            t_ver: second & 0xF,
            p_key: be16::<2, _>(self.head),
            fecn: byte::<4, _>(self.head) & 0x80 != 0,
            becn: byte::<4, _>(self.head) & 0x40 != 0,
            dest_qp: be24::<5, _>(self.head),
            ack_req: byte::<8, _>(self.head) & 0x80 != 0,
            psn: be24::<9, _>(self.head),
        }
    }
}

/// RoCE base transport header as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "five one-bit fields on the wire")]
pub struct BthRepr {
    /// Transport in bits 7:5, operation in bits 4:0.
    pub opcode: u8,
    /// SE, solicited event: the receiver is to raise an event for this message.
    pub solicited: bool,
    /// `MigReq`, bit 6 of byte 1: state of path migration.
    pub mig_req: bool,
    /// Bytes of padding in the payload, 0..=3.
    pub pad: u8,
    /// Transport header version; 4 bits.
    pub t_ver: u8,
    /// Partition key, 0xFFFF by default.
    pub p_key: u16,
    /// FECN: a switch has met congestion on the packet's way.
    pub fecn: bool,
    /// BECN: the receiver returns news of congestion; set in a CNP.
    pub becn: bool,
    /// Destination queue pair; 24 bits.
    pub dest_qp: u32,
    /// The sender wants an ACK.
    pub ack_req: bool,
    /// Packet sequence number; 24 bits.
    pub psn: u32,
}

impl BthRepr {
    /// Writes the header, reserved bits 0.
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        let second = (self.solicited as u8) << 7
            | (self.mig_req as u8) << 6
            | (self.pad & 3) << 4
            | self.t_ver & 0xF;
        put::<0, 2, _>(out, [self.opcode, second]);
        put::<2, 2, _>(out, self.p_key.to_be_bytes());
        put::<4, 1, _>(out, [(self.fecn as u8) << 7 | (self.becn as u8) << 6]);
        put::<5, 3, _>(out, low24(self.dest_qp));
        put::<8, 1, _>(out, [(self.ack_req as u8) << 7]);
        put::<9, 3, _>(out, low24(self.psn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_every_shorter};

    #[test]
    fn worked_cnp_both_ways() {
        let bytes = [0x81, 0x00, 0xFF, 0xFF, 0x40, 0x00, 0x01, 0x23, 0, 0, 0, 0];
        let fields = BthRepr {
            opcode: OPCODE_CNP,
            p_key: 0xFFFF,
            becn: true,
            dest_qp: 0x123,
            ..BthRepr::default()
        };
        let mut out = [0xEE; LEN];
        fields.emit(&mut out);
        assert_eq!(out, bytes);
        let (view, _) = Bth::parse(&bytes).unwrap();
        assert_eq!((view.repr(), view.opcode_name()), (fields, Some("cnp")));
    }

    #[test]
    fn shorter_is_refused() {
        refuses_every_shorter(Layer::Bth, LEN, |bytes| Bth::parse(bytes).err());
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(13);
        for _ in 0..2000 {
            let want = BthRepr {
                opcode: rng.u8(),
                solicited: rng.bool(),
                mig_req: rng.bool(),
                pad: rng.u8() & 3,
                t_ver: rng.u8() & 0xF,
                p_key: rng.u16(),
                fecn: rng.bool(),
                becn: rng.bool(),
                dest_qp: rng.u32() >> 8,
                ack_req: rng.bool(),
                psn: rng.u32() >> 8,
            };
            let mut out = [0; LEN];
            want.emit(&mut out);
            assert_eq!(Bth::parse(&out).unwrap().0.repr(), want);
        }
    }
}
