//! MCTP packets in vendor-defined PCIe messages.
//!
//! `MsgD` routed by ID, code 0x7F, Vendor ID 0x1AB4; DW3 is reserved 4, version 4, destination EID
//! 8, source EID 8, SOM 1, EOM 1, sequence 2, TO 1, tag 3 bits; then the payload, filled up to
//! whole DWs.
//!
//! Source: DMTF DSP0238 section 6 (binding), DSP0236 section 8 (transport header).
//!
//! Non-flit headers have the padding's length in bits 5:4 of the tag and MCTP's code 0 in bits 3:0.
//! Flit-mode messages have no tag; where DSP0238 puts the length there was not found. So
//! [`MctpPacket::pad`] is 0 in flit mode, the payload keeps its padding, and the reader of the
//! message takes its length from the message's own header.

use super::fields::Route;
use super::kind::{Kind, Mode, Routing};
use super::layout::halves;
use super::repr::{Body, TlpRepr};
use super::view::{CODE_VDM_TYPE1, Tlp, refused};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::Bdf;
use crate::mctp::Transport;
pub use crate::mctp::{EID_NULL, UNIT, VERSION};

/// Vendor ID of DMTF.
pub const VENDOR_DMTF: u16 = 0x1AB4;

/// One packet of an MCTP message over PCIe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MctpPacket<'a> {
    /// Endpoint it goes to.
    pub dest: u8,
    /// Endpoint it comes from.
    pub source: u8,
    /// SOM: the first of its message.
    pub first: bool,
    /// EOM: the last of its message.
    pub last: bool,
    /// Sequence number, 2 bits.
    pub seq: u8,
    /// TO: the tag is the sender's, as in a request.
    pub owner: bool,
    /// Message tag, 3 bits.
    pub tag: u8,
    /// Bytes of padding at the end of `payload`, 0..=3; 0 in flit mode.
    pub pad: u8,
    /// Part of the message, whole DWs.
    pub payload: &'a [u8],
}

impl<'a> MctpPacket<'a> {
    /// Reads a parsed message, of either mode.
    ///
    /// # Errors
    /// It is no MCTP packet: another kind, code, vendor, version, or no byte of payload.
    pub fn parse(tlp: &Tlp<'a>) -> Result<Self, ParseError> {
        let (Kind::Message { data: true, .. }, Some((_, dw3))) = (tlp.kind(), tlp.message_dws())
        else {
            return Err(refused(Layer::Mctp, Field::TlpType, 0));
        };
        let code = tlp.message_code().unwrap_or_default();
        if code != CODE_VDM_TYPE1 {
            return Err(refused(Layer::Mctp, Field::TlpType, u16::from(code)));
        }
        if tlp.vendor_id() != Some(VENDOR_DMTF) {
            return Err(refused(Layer::Mctp, Field::VendorId, tlp.vendor_id().unwrap_or_default()));
        }
        let head = Transport::parse(dw3.to_be_bytes())?;
        let [_, tag] = tlp.tag().to_be_bytes();
        // bits 3:0 of a non-flit tag are MCTP's VDM code, 0 (DSP0238); flit-mode messages have no
        // tag
        if tag & 0xF != 0 {
            return Err(refused(Layer::Mctp, Field::VdmCode, u16::from(tag & 0xF)));
        }
        let Transport { dest, source, first, last, seq, owner, tag: number } = head;
        let (pad, payload) = (tag >> 4 & 3, tlp.payload());
        Ok(Self { dest, source, first, last, seq, owner, tag: number, pad, payload })
    }

    /// The message, to `target`; on a PBR link the PTH routes it and `target` is 0.
    #[must_use]
    pub const fn repr(&self, mode: Mode, requester: Bdf, target: Bdf) -> TlpRepr<'a> {
        let Self { dest, source, first, last, seq, owner, tag, pad, payload } = *self;
        let head = Transport { dest, source, first, last, seq, owner, tag };
        let kind = Kind::Message { routing: Routing::Id, data: true };
        let body = Body::Message {
            code: CODE_VDM_TYPE1,
            dw2: halves(target.bits(), VENDOR_DMTF),
            dw3: u32::from_be_bytes(head.emit()),
        };
        let tag = match mode {
            Mode::NonFlit => (pad as u16 & 3) << 4,
            Mode::Flit => 0,
        };
        let mut repr = TlpRepr::new(mode, kind, requester, tag, body);
        repr.payload = payload;
        repr
    }

    /// The payload without its padding.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        let len = self.payload.len().saturating_sub(usize::from(self.pad));
        self.payload.get(..len).unwrap_or_default()
    }
}

/// Where the message of a packet goes by its own header, for those who route by ID.
#[must_use]
pub fn target(tlp: &Tlp<'_>) -> Option<Bdf> {
    match tlp.route() {
        Route::Id(bdf) => Some(bdf),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// A packet of five bytes as DSP0238 lays it out: padding 3, single, tag 5 of the sender.
    #[test]
    fn worked_packets_parse_and_emit() {
        let payload = [7, 0, 1, 2, 3, 0, 0, 0];
        let packet = MctpPacket {
            dest: 0x0A,
            source: 0x0B,
            first: true,
            last: true,
            seq: 0,
            owner: true,
            tag: 5,
            pad: 3,
            payload: &payload,
        };
        #[rustfmt::skip]
        let old = [
            0x72, 0, 0, 2, 0x01, 0x00, 0x30, 0x7F, 0x02, 0x08, 0x1A, 0xB4, 0x01, 0x0A, 0x0B, 0xCD,
            7, 0, 1, 2, 3, 0, 0, 0,
        ];
        let (from, to) = (Bdf::new(1, 0, 0), Bdf::new(2, 1, 0));
        let mut out = [0; 24];
        assert_eq!(packet.repr(Mode::NonFlit, from, to).emit(&mut out), Ok(24));
        assert_eq!(out, old);
        let tlp = Tlp::parse(Mode::NonFlit, &out).expect("a message");
        assert_eq!(MctpPacket::parse(&tlp), Ok(packet));
        assert_eq!((packet.body(), target(&tlp)), (&payload[..5], Some(to)));
        // Flit mode: no tag, and on a PBR link no IDs.
        let middle = MctpPacket {
            dest: EID_NULL,
            source: EID_NULL,
            first: false,
            last: false,
            seq: 2,
            owner: false,
            pad: 0,
            ..packet
        };
        #[rustfmt::skip]
        let new = [
            0x72, 0, 0, 2, 0, 0, 0, 0x7F, 0, 0, 0x1A, 0xB4, 0x01, 0, 0, 0x25, 7, 0, 1, 2, 3, 0, 0, 0,
        ];
        let none = Bdf::from_bits(0);
        assert_eq!(middle.repr(Mode::Flit, none, none).emit(&mut out), Ok(24));
        assert_eq!(out, new);
        assert_eq!(
            MctpPacket::parse(&Tlp::parse(Mode::Flit, &out).expect("a message")),
            Ok(middle)
        );
    }

    #[test]
    fn other_messages_are_refused() {
        #[rustfmt::skip]
        let good = [
            0x72, 0, 0, 1, 0, 0, 0x00, 0x7F, 0, 0, 0x1A, 0xB4, 0x01, 0, 0, 0xC8, 8, 0, 0, 0,
        ];
        #[rustfmt::skip] // columns: name, byte, its value, the refused field
        let cases = [
            ("type 0",        7,  0x7E, Field::TlpType),
            ("other vendor",  10, 0x1E, Field::VendorId),
            ("version 2",     12, 0x02, Field::Version),
            ("other code",    6,  0x01, Field::VdmCode),
        ];
        for (name, at, value, want) in cases {
            let mut bytes = good;
            bytes[at] = value;
            let tlp = Tlp::parse(Mode::NonFlit, &bytes).expect("a message");
            let refused = MctpPacket::parse(&tlp).expect_err(name);
            assert!(matches!(refused, ParseError::Value { field, .. } if field == want), "{name}");
        }
        let tlp = Tlp::parse(Mode::NonFlit, &good).expect("a message");
        assert!(MctpPacket::parse(&tlp).is_ok());
        let write = [0x40, 0, 0, 1, 0, 0, 0, 0xF, 0, 0, 0, 0, 1, 2, 3, 4];
        let tlp = Tlp::parse(Mode::NonFlit, &write).expect("a write");
        assert!(MctpPacket::parse(&tlp).is_err());
    }

    #[test]
    fn random_packets_come_back() {
        let mut rng = Rng::new(5);
        for _ in 0..2_000 {
            let payload = rng.bytes::<64>();
            let dws = usize::try_from(rng.below(16)).expect("small") + 1;
            let mode = if rng.bool() { Mode::Flit } else { Mode::NonFlit };
            let packet = MctpPacket {
                dest: rng.u8(),
                source: rng.u8(),
                first: rng.bool(),
                last: rng.bool(),
                seq: rng.u8() & 3,
                owner: rng.bool(),
                tag: rng.u8() & 7,
                pad: if mode == Mode::Flit { 0 } else { rng.u8() & 3 },
                payload: &payload[..dws * 4],
            };
            let mut out = [0; 80];
            let id = Bdf::from_bits(rng.u16());
            let len = packet.repr(mode, id, id).emit(&mut out).expect("fits");
            let tlp = Tlp::parse(mode, &out[..len]).expect("a message");
            assert_eq!(MctpPacket::parse(&tlp), Ok(packet));
        }
    }
}
