//! Frames to start mutations from, and a seeded mutator.
//!
//! [`Mutator`] holds valid frames of every format and gives damaged copies.
//!
//! Source: docs/spec/wire-formats.md §1 and §2.

use std::net::Ipv4Addr;

use weft_base::rng::Rng;
use weft_parsers::afh::{Gen1Repr, Gen2Repr, LiteRepr};
use weft_parsers::frame::{FrameRepr, HeaderRepr, StandardRepr};
use weft_parsers::mac_control::FRAME_LEN;
use weft_parsers::rh::RhRepr;
use weft_parsers::{
    Gen2Order, KeyWords, MacAddr, Pause, Pcp, Pfc, RhOpcode, Tci, TrafficClass, Vid, ether_type, rh,
};

/// Stations that the frames come from and go to.
const STATIONS: u8 = 6;

fn mac(station: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, station])
}

/// Valid frames: every format, with and without tag, short and long, and every MAC Control frame.
#[must_use]
pub fn valid() -> Vec<Vec<u8>> {
    let payload = [0x5A; 1_024];
    let mut frames = Vec::new();
    for station in 0..STATIONS {
        let (src, dst) = (station, (station + 1) % STATIONS);
        // derived from the station, so that fields differ from frame to frame without a generator
        let tc = TrafficClass(station.wrapping_mul(0x24));
        let order = if station % 2 == 0 { Gen2Order::Slap } else { Gen2Order::AsDocumented };
        let key_words = if station == 5 { KeyWords::MULTICAST } else { KeyWords::UNICAST };
        let (dst16, src16) = (u16::from(dst) + 1, u16::from(src) + 1);
        let headers = [
            HeaderRepr::Standard(StandardRepr {
                dst: mac(dst),
                src: mac(src),
                tos: station.wrapping_mul(45) | 2,
                id: 1,
                ttl: 64,
                ip_src: Ipv4Addr::new(10, 0, 0, src),
                ip_dst: Ipv4Addr::new(10, 0, 0, dst),
                sport: 49_152,
                dport: 4_791,
            }),
            HeaderRepr::Gen1(
                Gen1Repr { dst: mac(dst), tc, src: 0x0200_0000_0000 | u64::from(src) },
                ether_type::MAC_TYPE1,
            ),
            HeaderRepr::Gen2(
                Gen2Repr {
                    order,
                    key_words,
                    tc,
                    dst: dst16,
                    src: src16,
                    payload_hi: 7,
                    payload_lo: 9,
                },
                ether_type::MAC_TYPE2,
            ),
            HeaderRepr::Lite(LiteRepr { order, key_words, tc, dst: dst16, src: src16, xpu_id: 3 }),
        ];
        for (at, header) in headers.into_iter().enumerate() {
            let tci = Tci::new(Pcp::from_low_bits(station), false, Vid::from_low_bits(100));
            let tag = (station % 3 == 0).then_some((ether_type::CTAG, tci));
            let len = [0, 44, 200, 1_024][(at + usize::from(station)) % 4];
            frames.push(emit(&FrameRepr {
                header,
                tag,
                rh: RhRepr {
                    opcode: RhOpcode::from_low_bits(station),
                    fack: true,
                    pad: 0,
                    timestamp_en: false,
                    timestamp: 0,
                    p_key: 1,
                    len_or_syndrome: RhRepr::len_field(len),
                    psn: 77,
                    dest_qp: 5,
                },
                payload: &payload[..len],
                icrc: station % 2 == 0,
            }));
        }
    }
    frames.extend(mac_control());
    let mut arp = vec![0xFF; 6];
    arp.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    arp.resize(60, 0);
    frames.push(arp);
    frames
}

fn emit(repr: &FrameRepr<'_>) -> Vec<u8> {
    let mut frame = vec![0; repr.len() + rh::LEN];
    let len = repr.emit(&mut frame).expect("frames of constants fit");
    frame.truncate(len);
    frame.resize(len.max(LEN_MIN), 0);
    frame
}

fn mac_control() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (class, quanta) in [(0, 0), (1, 1), (3, 0xFFFF), (7, 100)] {
        let mut out = [0; FRAME_LEN];
        Pfc::default().with(class, quanta).emit(mac(1), &mut out);
        frames.push(out.to_vec());
    }
    let mut out = [0; FRAME_LEN];
    Pause { quanta: 9 }.emit(mac(1), &mut out);
    frames.push(out.to_vec());
    frames
}

/// Damages valid frames, the same way for the same seed.
pub struct Mutator {
    valid: Vec<Vec<u8>>,
    rng: Rng,
    frame: Vec<u8>,
}

/// Shortest frame on a wire, without FCS.
const LEN_MIN: usize = 60;
/// Longest frame that is made: longer than any port takes.
const LEN_MAX: usize = 1_600;

impl Mutator {
    /// Frames of [`valid`], damaged by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { valid: valid(), rng: Rng::new(seed), frame: Vec::with_capacity(LEN_MAX) }
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound.max(1) as u64)).unwrap_or(0)
    }

    /// The next frame: a quarter are valid, the others have one to four damages.
    pub fn frame(&mut self) -> &[u8] {
        let at = self.below(self.valid.len());
        self.frame.clear();
        self.frame.extend_from_slice(&self.valid[at]);
        // 0 and 1 of 8 leave the frame valid
        let damages = self.below(8).saturating_sub(1).min(4);
        for _ in 0..damages {
            self.damage();
        }
        &self.frame
    }

    #[expect(clippy::cast_possible_truncation, reason = "any byte will do")]
    fn damage(&mut self) {
        let len = self.frame.len();
        let value = self.rng.next_u64();
        match value % 6 {
            // A byte of the headers, where parsers decide.
            0 | 1 => {
                let at = self.below(len.min(48));
                if let Some(byte) = self.frame.get_mut(at) {
                    *byte = (value >> 32) as u8;
                }
            }
            2 => {
                let at = self.below(len * 8);
                if let Some(byte) = self.frame.get_mut(at / 8) {
                    *byte ^= 1 << (at % 8);
                }
            }
            3 => {
                let to = self.below(len + 1);
                self.frame.truncate(to);
            }
            4 => {
                let to = len + self.below(LEN_MAX - len.min(LEN_MAX) + 1);
                self.frame.resize(to, (value >> 16) as u8);
            }
            // The front of another valid frame over this one's.
            _ => {
                let other = self.below(self.valid.len());
                let count = self.below(len.min(self.valid[other].len()) + 1);
                self.frame[..count].copy_from_slice(&self.valid[other][..count]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::{AfhMode, Format, HEAD_LEN, ParseConfig, parse_head};

    fn format(frame: &[u8], afh: AfhMode) -> Format {
        let mut head = [0; HEAD_LEN];
        let len = frame.len().min(HEAD_LEN);
        head[..len].copy_from_slice(&frame[..len]);
        let config = ParseConfig { afh, ..ParseConfig::DEFAULT };
        parse_head(&head, frame.len(), &config).unwrap().format()
    }

    #[test]
    fn valid_frames_are_of_every_format() {
        let auto: Vec<Format> = valid().iter().map(|f| format(f, AfhMode::Auto)).collect();
        for want in
            [Format::Standard, Format::AfhGen1, Format::AfhGen2, Format::MacControl, Format::Other]
        {
            assert!(auto.contains(&want), "{want:?} is not among {auto:?}");
        }
        assert!(valid().iter().any(|f| format(f, AfhMode::Lite) == Format::AfhLite));
    }

    #[test]
    fn damage_is_seeded_and_bounded() {
        let (mut one, mut two, mut other) = (Mutator::new(1), Mutator::new(1), Mutator::new(2));
        let mut differs = false;
        for _ in 0..2_000 {
            let frame = one.frame().to_vec();
            assert_eq!(frame, two.frame());
            assert!(frame.len() <= LEN_MAX);
            differs |= frame != other.frame();
        }
        assert!(differs);
    }
}
