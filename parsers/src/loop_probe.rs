//! Loop probe: a switch that receives its own frame again has found a loop.
//!
//! DA CF-00-00-00-00-00, SA of the port, perhaps a tag, EtherType 0x9000; skip count 16, function
//! 16, receipt number 16 (little-endian), then `weft` and a number of 64 bits (big-endian); zeros
//! to 60 bytes.
//!
//! Source: DEC/Intel/Xerox Ethernet 2.0, chapter 8 (Configuration Testing Protocol);
//! docs/spec/wire-formats.md §2.5.
//!
//! A probe is a reply of that protocol. Bridges flood it; stations that know the protocol take it
//! for the reply to another station's request, and ignore it.

use crate::addr::MacAddr;
use crate::bytes::{be16, be64, cut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::ethernet;
use crate::types::{Tci, ether_type};

/// Bytes of a probe as emitted, without FCS.
pub const FRAME_LEN: usize = ethernet::MIN_FRAME_LEN;
/// Loopback assistance multicast address.
pub const DST: MacAddr = MacAddr([0xCF, 0, 0, 0, 0, 0]);

/// Bytes from the EtherType up to the end of the number.
const LEN: usize = 20;
/// Function 1, reply, in the byte order of the wire.
const REPLY: u16 = 0x0100;
/// Tells weft's replies from others.
const MARK: [u8; 4] = *b"weft";

/// The fields of a probe that differ from probe to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopProbe {
    /// Address of the port that sent it.
    pub src: MacAddr,
    /// Number of that port.
    pub port: u8,
    /// Number chosen anew for each series of probes, by which the switch knows its own.
    pub nonce: u64,
}

impl LoopProbe {
    /// Reads a frame, of which `tagged` says whether a tag stands before the EtherType.
    ///
    /// # Errors
    /// [`ParseError::Short`] when the frame ends before the number; [`ParseError::Value`] when it is another frame.
    pub fn parse(frame: &[u8], tagged: bool) -> Result<Self, ParseError> {
        let layer = Layer::LoopProbe;
        let (addresses, rest) = cut::<12>(frame, layer)?;
        let at = if tagged { crate::vlan::TAG_LEN } else { 0 };
        // too short for its tag: `cut` below reports it
        let rest = rest.get(at..).unwrap_or_default();
        let (body, _) = cut::<LEN>(rest, layer)?;
        let wrong = |field, value| Err(ParseError::Value { layer, field, value });
        let (kind, function) = (be16::<0, _>(body), be16::<4, _>(body));
        if *window::<0, 6, _>(addresses) != DST.0 || kind != ether_type::LOOPBACK {
            return wrong(Field::EtherType, kind);
        }
        // replies of other stations share EtherType and address; only the mark makes one a probe
        if function != REPLY || be16::<2, _>(body) != 0 || *window::<8, 4, _>(body) != MARK {
            return wrong(Field::Operation, function);
        }
        // the receipt number has 16 bits, a port's number 8
        let [port, high] = *window::<6, 2, _>(body);
        if high != 0 {
            return wrong(Field::Operation, function);
        }
        let src = MacAddr(*window::<6, 6, _>(addresses));
        Ok(Self { src, port, nonce: be64::<12, _>(body) })
    }

    /// Writes a whole frame, with a tag (TPID and TCI) if the VLAN wants one.
    pub fn emit(&self, tag: Option<(u16, Tci)>, out: &mut [u8; FRAME_LEN]) {
        let mut body = [0; LEN];
        put::<0, 2, _>(&mut body, ether_type::LOOPBACK.to_be_bytes());
        put::<4, 2, _>(&mut body, REPLY.to_be_bytes());
        put::<6, 2, _>(&mut body, [self.port, 0]);
        put::<8, 4, _>(&mut body, MARK);
        put::<12, 8, _>(&mut body, self.nonce.to_be_bytes());
        *out = [0; FRAME_LEN];
        put::<0, 6, _>(out, DST.0);
        put::<6, 6, _>(out, self.src.0);
        match tag {
            Some((tpid, tci)) => {
                put::<12, 2, _>(out, tpid.to_be_bytes());
                put::<14, 2, _>(out, tci.0.to_be_bytes());
                put::<16, LEN, _>(out, body);
            }
            None => put::<12, LEN, _>(out, body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    const WORKED: LoopProbe =
        LoopProbe { src: MacAddr([2, 0, 0, 0, 0, 7]), port: 3, nonce: 0x0102_0304_0506_0708 };

    #[test]
    fn worked_probes_both_ways() {
        #[rustfmt::skip] // columns: tag, what stands between addresses and number
        let cases = [
            (None,                    &[0x90, 0, 0, 0, 1, 0, 3, 0, b'w', b'e', b'f', b't'][..]),
            (Some((0x8100, Tci(5))),  &[0x81, 0, 0, 5, 0x90, 0, 0, 0, 1, 0, 3, 0, b'w', b'e', b'f', b't'][..]),
        ];
        for (tag, front) in cases {
            let mut frame = [0xEE; FRAME_LEN];
            WORKED.emit(tag, &mut frame);
            assert_eq!(frame[..12], [0xCF, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 7]);
            let end = 12 + front.len();
            assert_eq!(frame[12..end], *front);
            assert_eq!(frame[end..end + 8], [1, 2, 3, 4, 5, 6, 7, 8]);
            assert!(frame[end + 8..].iter().all(|&byte| byte == 0));
            assert_eq!(LoopProbe::parse(&frame, tag.is_some()), Ok(WORKED));
            assert!(LoopProbe::parse(&frame, tag.is_none()).is_err());
            for len in 0..end + 8 {
                let short = LoopProbe::parse(&frame[..len], tag.is_some());
                assert!(matches!(short, Err(ParseError::Short { .. })), "{len}");
            }
        }
    }

    #[test]
    fn other_frames_are_none() {
        let mut rng = Rng::new(90);
        let mut good = [0; FRAME_LEN];
        WORKED.emit(None, &mut good);
        for at in (0..6).chain(12..18).chain(19..24) {
            let mut frame = good;
            frame[at] ^= 1 << rng.below(8);
            assert!(LoopProbe::parse(&frame, false).is_err(), "byte {at}");
        }
        for _ in 0..10_000 {
            let probe = LoopProbe { src: MacAddr(rng.bytes()), port: rng.u8(), nonce: rng.u64() };
            probe.emit(None, &mut good);
            assert_eq!(LoopProbe::parse(&good, false), Ok(probe));
        }
    }
}
