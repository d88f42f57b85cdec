//! UEC credit counter update (`CC_Update`), a MAC Control extension frame.
//!
//! CID 24, message type 8, 16 x 20-bit counters in order of VC, most significant bit first.
//! Counters are credits, modulo 2^20.
//!
//! Source: UE specification 1.0, link layer; docs/spec/wire-formats.md §1.6.
//!
//! The switch recognises, counts and consumes these frames; nothing acts on them.

use crate::addr::MacAddr;
use crate::bytes::{be24, byte, cut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::mac_control::{FRAME_LEN, emit_front, expect_opcode, opcode};

/// UEC's company id, in bytes 16 to 18 of an extension frame.
pub const CID: u32 = 0xFA_7ACB;
/// Bytes of a whole frame without FCS.
pub const LEN: usize = FRAME_LEN;
/// Counters in a frame.
pub const COUNTERS: usize = 16;

/// A `CC_Update` frame: credits consumed of 16 virtual channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CcUpdate {
    /// The counters are those of VC 16 to 31, not 0 to 15.
    pub upper: bool,
    /// Counters; 20 bits each.
    pub consumed: [u32; COUNTERS],
}

impl CcUpdate {
    /// Reads a whole frame.
    ///
    /// # Errors
    /// [`ParseError::Short`] below [`LEN`] bytes; [`ParseError::Value`] when opcode, CID or message
    /// type is another.
    pub fn parse(frame: &[u8]) -> Result<Self, ParseError> {
        let layer = Layer::CcUpdate;
        expect_opcode(frame, layer, opcode::EXTENSION)?;
        let (head, _) = cut::<LEN>(frame, layer)?;
        let cid = be24::<16, _>(head);
        if cid != CID {
            // an error has room for 16 bits: the low two bytes of the CID
            let [_, _, high, low] = cid.to_be_bytes();
            let value = u16::from_be_bytes([high, low]);
            return Err(ParseError::Value { layer, field: Field::Cid, value });
        }
        let upper = match byte::<19, _>(head) {
            1 => false,
            2 => true,
            other => {
                let value = u16::from(other);
                return Err(ParseError::Value { layer, field: Field::MsgType, value });
            }
        };
        let mut consumed = [0; COUNTERS];
        // two counters of 20 bits share five bytes, and the middle byte between them
        let pairs = window::<20, 40, _>(head).as_chunks::<5>().0;
        for (to, &[a, b, c, d, e]) in consumed.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
            *to = [u32::from_be_bytes([0, a, b, c]) >> 4, u32::from_be_bytes([0, c & 0xF, d, e])];
        }
        Ok(Self { upper, consumed })
    }

    /// Writes a whole frame from `src` to [`MacAddr::PAUSE`]; of each counter the low 20 bits.
    pub fn emit(&self, src: MacAddr, out: &mut [u8; LEN]) {
        emit_front(MacAddr::PAUSE, src, opcode::EXTENSION, out);
        put::<16, 4, _>(out, (CID << 8 | (1 + u32::from(self.upper))).to_be_bytes());
        let mut counters = [0; 40];
        let pairs = self.consumed.as_chunks::<2>().0;
        for (to, &[first, second]) in counters.as_chunks_mut::<5>().0.iter_mut().zip(pairs) {
            let bits = u64::from(first & 0xF_FFFF) << 20 | u64::from(second & 0xF_FFFF);
            *to = *window::<3, 5, _>(&bits.to_be_bytes());
        }
        put::<20, 40, _>(out, counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::fcs;
    use crate::mac_control;
    use crate::testing::Rng;

    const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn worked_frame_both_ways() {
        let mut fields = CcUpdate::default();
        fields.consumed[..2].copy_from_slice(&[0x12345, 0x10]);
        let mut frame = [0xEE; LEN];
        fields.emit(SRC, &mut frame);
        let front = [
            0x01, 0x80, 0xC2, 0x00, 0x00, 0x01, 0x02, 0, 0, 0, 0, 0x01, 0x88, 0x08, 0xFF, 0xFE,
            0xFA, 0x7A, 0xCB, 0x01, 0x12, 0x34, 0x50, 0x00, 0x10,
        ];
        assert_eq!((&frame[..25], &frame[25..]), (&front[..], &[0; 35][..]));
        assert_eq!(fcs(&frame), [0x83, 0xBF, 0xE3, 0x0F]);
        assert_eq!(CcUpdate::parse(&frame), Ok(fields));
    }

    #[test]
    fn parse_undoes_emit() {
        let mut rng = Rng::new(17);
        for _ in 0..1000 {
            let consumed = core::array::from_fn(|_| rng.u32() >> 12);
            let want = CcUpdate { upper: rng.bool(), consumed };
            let mut frame = [0; LEN];
            want.emit(SRC, &mut frame);
            assert_eq!(CcUpdate::parse(&frame), Ok(want));
        }
    }

    #[test]
    fn every_shorter_length_and_wrong_value_is_refused() {
        let mut good = [0; LEN];
        CcUpdate::default().emit(SRC, &mut good);
        for had in 0..LEN {
            let short = mac_control::LEN;
            let (layer, need) =
                if had < short { (Layer::MacControl, short) } else { (Layer::CcUpdate, LEN) };
            assert_eq!(CcUpdate::parse(&good[..had]), Err(ParseError::short(layer, need, had)));
        }
        #[rustfmt::skip] // columns: name, byte to change, to, field, value
        let cases = [
            ("opcode",         15, 0xFF, Field::Opcode,  0xFFFF),
            ("cid",            18, 0xCC, Field::Cid,     0x7ACC),
            ("message type 0", 19, 0,    Field::MsgType, 0),
            ("message type 3", 19, 3,    Field::MsgType, 3),
        ];
        for (name, at, to, field, value) in cases {
            let mut frame = good;
            frame[at] = to;
            let want = ParseError::Value { layer: Layer::CcUpdate, field, value };
            assert_eq!(CcUpdate::parse(&frame), Err(want), "{name}");
        }
    }
}
