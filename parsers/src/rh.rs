//! RC Link header (RH): the transport header of Standard, `AFH_GEN1` and `AFH_GEN2_16b`.
//!
//! Opcode 2, FACK 1, pad 2, reserved 2, timestamp enable 1, timestamp 16, `P_key` 8, length or
//! syndrome 7, PSN 12, destination QP 13 bits; big-endian, bit 63 first. PSNs compare modulo 4096.
//!
//! Source: docs/spec/wire-formats.md §1.5; IBTA AETH for the syndrome.

use crate::bytes::{be64, cut};
use crate::error::{Layer, ParseError};

/// Bytes of the header.
pub const LEN: usize = 8;

/// Opcode of the RC Link header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RhOpcode {
    /// 00: SEND, a request with payload.
    #[default]
    Send = 0,
    /// 01: ACK or NAK.
    Ack = 1,
    /// 10: CNP, congestion notification without payload.
    Cnp = 2,
    /// 11: reserved, and carried like any other.
    Reserved = 3,
}

impl RhOpcode {
    /// From the low two bits.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(value: u8) -> Self {
        match value & 3 {
            0 => Self::Send,
            1 => Self::Ack,
            2 => Self::Cnp,
            _ => Self::Reserved,
        }
    }

    /// Name used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Ack => "ack",
            Self::Cnp => "cnp",
            Self::Reserved => "reserved",
        }
    }
}

/// Borrowed RC Link header (RH). Getters cannot fail and return host byte order.
#[derive(Clone, Copy, Debug)]
pub struct Rh<'a> {
    head: &'a [u8; LEN],
}

impl<'a> Rh<'a> {
    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when fewer than [`LEN`] bytes remain.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        match cut(bytes, Layer::Rh) {
            Ok((head, rest)) => Ok((Self { head }, rest)),
            Err(error) => Err(error),
        }
    }

    /// `WIDTH` bits from bit `LOW` up.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the assertion holds the width to 16 bits")]
    const fn bits<const LOW: u32, const WIDTH: u32>(self) -> u16 {
        const { assert!(WIDTH <= 16 && LOW + WIDTH <= 64) };
        (be64::<0, _>(self.head) >> LOW & ((1 << WIDTH) - 1)) as u16
    }

    /// As [`Rh::bits`], of at most 8 bits.
    #[inline]
    const fn bits8<const LOW: u32, const WIDTH: u32>(self) -> u8 {
        const { assert!(WIDTH <= 8) };
        let [_, low] = self.bits::<LOW, WIDTH>().to_be_bytes();
        low
    }

    /// Opcode, bits 63:62.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> RhOpcode {
        RhOpcode::from_low_bits(self.bits8::<62, 2>())
    }

    /// A request that wants an ACK at once.
    #[inline]
    #[must_use]
    pub const fn fack(self) -> bool {
        self.bits::<61, 1>() != 0
    }

    /// Bytes of padding in the payload, 0..=3.
    #[inline]
    #[must_use]
    pub const fn pad(self) -> u8 {
        self.bits8::<59, 2>()
    }

    /// Bit 56: the timestamp is valid.
    #[inline]
    #[must_use]
    pub const fn timestamp_en(self) -> bool {
        self.bits::<56, 1>() != 0
    }

    /// Timestamp of the round trip measurement.
    #[inline]
    #[must_use]
    pub const fn timestamp(self) -> u16 {
        self.bits::<40, 16>()
    }

    /// Partition key, bits 39:32.
    #[inline]
    #[must_use]
    pub const fn p_key(self) -> u8 {
        self.bits8::<32, 8>()
    }

    /// Of a request: bytes of RH and payload if at most 127, else 0. Of an ACK: the syndrome.
    #[inline]
    #[must_use]
    pub const fn len_or_syndrome(self) -> u8 {
        self.bits8::<25, 7>()
    }

    /// Packet sequence number, 0..=4095.
    #[inline]
    #[must_use]
    pub const fn psn(self) -> u16 {
        self.bits::<13, 12>()
    }

    /// Destination queue pair, 13 bits; bits 1:0 are the bank.
    #[inline]
    #[must_use]
    pub const fn dest_qp(self) -> u16 {
        self.bits::<0, 13>()
    }

    /// All fields, to change and emit; the reserved bits are left behind.
    #[must_use]
    pub const fn repr(self) -> RhRepr {
        RhRepr {
            opcode: self.opcode(),
            fack: self.fack(),
            pad: self.pad(),
            timestamp_en: self.timestamp_en(),
            timestamp: self.timestamp(),
            p_key: self.p_key(),
            len_or_syndrome: self.len_or_syndrome(),
            psn: self.psn(),
            dest_qp: self.dest_qp(),
        }
    }
}

/// Syndrome of an ACK: bits 6:5 kind, bits 4:0 credit, RNR timer or NAK code.
pub mod syndrome {
    /// ACK without credit information.
    pub const ACK: u8 = 0x1F;
    /// Receiver not ready; the low five bits hold the timer.
    pub const RNR_NAK: u8 = 0x20;
    /// NAK: a PSN is missing.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// NAK: the request is invalid.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// NAK: remote access error.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    /// NAK: remote operational error.
    pub const NAK_REMOTE_OPERATIONAL: u8 = 0x63;
}

/// RC Link header (RH) as plain fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RhRepr {
    /// Opcode, bits 63:62.
    pub opcode: RhOpcode,
    /// A request that wants an ACK at once.
    pub fack: bool,
    /// Bytes of padding in the payload, 0..=3.
    pub pad: u8,
    /// Bit 56: the timestamp is valid.
    pub timestamp_en: bool,
    /// Timestamp of the round trip measurement.
    pub timestamp: u16,
    /// Partition key, bits 39:32.
    pub p_key: u8,
    /// Length of a request (see [`RhRepr::len_field`]) or syndrome of an ACK; 7 bits.
    pub len_or_syndrome: u8,
    /// Packet sequence number; 12 bits.
    pub psn: u16,
    /// Destination queue pair; 13 bits.
    pub dest_qp: u16,
}

impl RhRepr {
    /// Length field of a request with `payload_len` bytes: RH and payload if at most 127, else 0.
    #[must_use]
    pub const fn len_field(payload_len: usize) -> u8 {
        let [.., low] = payload_len.saturating_add(LEN).to_be_bytes();
        // 7 bits: 0 tells the receiver to take the length from elsewhere
        if payload_len <= 127 - LEN { low } else { 0 }
    }

    /// Writes the header; of each field the bits that fit, reserved bits 0.
    #[inline]
    pub const fn emit(&self, out: &mut [u8; LEN]) {
        let word = (self.opcode as u64) << 62
            | (self.fack as u64) << 61
            | (self.pad as u64 & 3) << 59
            | (self.timestamp_en as u64) << 56
            | (self.timestamp as u64) << 40
            | (self.p_key as u64) << 32
            | (self.len_or_syndrome as u64 & 0x7F) << 25
            | (self.psn as u64 & 0xFFF) << 13
            | self.dest_qp as u64 & 0x1FFF;
        *out = word.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_every_shorter};

    #[test]
    fn worked_headers_both_ways() {
        let send = RhRepr {
            fack: true,
            timestamp_en: true,
            timestamp: 0x1234,
            p_key: 0x5A,
            len_or_syndrome: RhRepr::len_field(64),
            psn: 0x0AB,
            dest_qp: 0x123,
            ..RhRepr::default()
        };
        let ack = RhRepr {
            opcode: RhOpcode::Ack,
            fack: false,
            len_or_syndrome: syndrome::ACK,
            dest_qp: 0x045,
            ..send
        };
        let nak = RhRepr {
            timestamp_en: false,
            timestamp: 0,
            len_or_syndrome: syndrome::NAK_SEQUENCE,
            ..ack
        };
        let cnp =
            RhRepr { opcode: RhOpcode::Cnp, p_key: 0x5A, dest_qp: 0x045, ..RhRepr::default() };
        let long = RhRepr {
            p_key: 0x5A,
            len_or_syndrome: RhRepr::len_field(120),
            psn: 0xFFF,
            dest_qp: 0x1FFF,
            ..RhRepr::default()
        };
        #[rustfmt::skip] // columns: name, fields, bytes
        let cases = [
            ("1 send",        send, [0x21, 0x12, 0x34, 0x5A, 0x90, 0x15, 0x61, 0x23]),
            ("2 ack",         ack,  [0x41, 0x12, 0x34, 0x5A, 0x3E, 0x15, 0x60, 0x45]),
            ("3 nak",         nak,  [0x40, 0x00, 0x00, 0x5A, 0xC0, 0x15, 0x60, 0x45]),
            ("4 cnp",         cnp,  [0x80, 0x00, 0x00, 0x5A, 0x00, 0x00, 0x00, 0x45]),
            ("5 long send",   long, [0x00, 0x00, 0x00, 0x5A, 0x01, 0xFF, 0xFF, 0xFF]),
        ];
        for (name, fields, bytes) in cases {
            let mut out = [0; LEN];
            fields.emit(&mut out);
            assert_eq!(out, bytes, "{name}");
            assert_eq!(Rh::parse(&bytes).unwrap().0.repr(), fields, "{name}");
        }
    }

    #[test]
    fn len_field_at_its_bounds() {
        for (payload, want) in [(0, 8), (64, 72), (119, 127), (120, 0), (1344, 0)] {
            assert_eq!(RhRepr::len_field(payload), want, "{payload}");
        }
    }

    #[test]
    fn shorter_is_refused() {
        refuses_every_shorter(Layer::Rh, LEN, |bytes| Rh::parse(bytes).err());
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(8);
        for _ in 0..10_000 {
            let want = RhRepr {
                opcode: RhOpcode::from_low_bits(rng.u8()),
                fack: rng.bool(),
                pad: rng.u8() & 3,
                timestamp_en: rng.bool(),
                timestamp: rng.u16(),
                p_key: rng.u8(),
                len_or_syndrome: rng.u8() >> 1,
                psn: rng.u16() >> 4,
                dest_qp: rng.u16() >> 3,
            };
            let mut out = [0; LEN];
            want.emit(&mut out);
            assert_eq!(Rh::parse(&out).unwrap().0.repr(), want);
            assert_eq!(out[0] & 0x06, 0, "reserved bits");
        }
    }

    #[test]
    fn values_too_wide_do_not_spill() {
        let wide = RhRepr {
            pad: 0xFF,
            len_or_syndrome: 0xFF,
            psn: 0xFFFF,
            dest_qp: 0xFFFF,
            ..RhRepr::default()
        };
        let mut out = [0; LEN];
        wide.emit(&mut out);
        assert_eq!(out, [0x18, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    }
}
