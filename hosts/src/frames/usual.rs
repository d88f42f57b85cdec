//! Standard frames as endpoints send them to each other: read at once.
//!
//! [`Usual::read`] has what an endpoint asks a head for, [`Usual::mark`] the mark; what is not as usual is left to
//! [`receive_front`](super::receive_front), which says the same of what is.
//!
//! Units: bytes without FCS.
//! Source: docs/spec/wire-formats.md §1.1, §1.5, §1.8.

use weft_parsers::checksum::Sum;
use weft_parsers::rh::Rh;
use weft_parsers::{
    AfhMode, Ecn, ParseConfig, crc, ether_type, ethernet, ip_proto, ipv4, rh, udp, vlan,
};

use crate::stamp::{self, Mark};

/// Bytes that the headers lie in: those of the shortest frame.
const FRONT: usize = ethernet::MIN_FRAME_LEN;
const TAGGED: usize = ethernet::LEN + vlan::TAG_LEN;
/// EtherType, version and length of the IP header.
const TYPE: u64 = (ether_type::IPV4 as u64) << 8 | 0x45;
/// Fragmentation (all but the bit that forbids it) and protocol, in the second eight bytes behind the EtherType's.
const MASK: u64 = 0x3FFF_00FF << 32;
const UDP: u64 = (ip_proto::UDP as u64) << 32;

/// A Standard frame with an RC Link header, without options and fragments.
#[derive(Clone, Copy, Debug)]
pub struct Usual<'a> {
    /// Where it comes from: its address as a number.
    pub src: u64,
    /// Its ECN codepoint.
    pub ecn: Ecn,
    /// Its RC Link header.
    pub rh: Rh<'a>,
    ip: usize,
    /// Bytes behind the RC Link header by UDP.
    told: usize,
    front: &'a [u8; FRONT],
}

impl<'a> Usual<'a> {
    /// Reads a frame, of which `frame` is all or the front; `None` where it is to be read in another way.
    #[inline]
    #[must_use]
    pub fn read(frame: &'a [u8], config: &ParseConfig) -> Option<Self> {
        let front = frame.first_chunk()?;
        if config.afh == AfhMode::Lite {
            return None;
        }
        if config.tpids.contains(be16(front, ethernet::LEN - 2)) {
            Self::at::<TAGGED>(front, config)
        } else {
            Self::at::<{ ethernet::LEN }>(front, config)
        }
    }

    #[inline]
    fn at<const IP: usize>(front: &'a [u8; FRONT], config: &ParseConfig) -> Option<Self> {
        // EtherType 16, version and IHL 8, TOS 8, total length 16, id 16
        let first = be64(front, IP - 2);
        // flags and offset 16, TTL 8, protocol 8, checksum and source 32
        let second = be64(front, IP + 6);
        let total_len = be16(front, IP + 2);
        let port = be16(front, IP + ipv4::LEN + 2);
        let udp_len = usize::from(be16(front, IP + ipv4::LEN + 4));
        let is_usual = first >> 40 == TYPE
            && second & MASK == UDP
            && usize::from(total_len) >= ipv4::LEN + udp::LEN
            && udp_len >= udp::LEN + rh::LEN
            && port == config.udp_type1
            && port != 0;
        if !is_usual {
            return None;
        }
        let (rh, _) = Rh::parse(front.get(IP + ipv4::LEN + udp::LEN..)?).ok()?;
        let [tos, ..] = *front.get(IP + 1..)?.first_chunk::<1>()?;
        let src = be64(front, 4) & ((1 << 48) - 1);
        let told = udp_len - (udp::LEN + rh::LEN);
        Some(Self { src, ecn: Ecn::from_low_bits(tos), rh, ip: IP, told, front })
    }

    /// Its mark, if it is a frame of `len` bytes that is as it was sent and of which `frame` is the front alone.
    #[inline]
    #[must_use]
    pub fn mark(&self, frame: &[u8], len: usize) -> Option<Mark> {
        let at = self.ip + ipv4::LEN + udp::LEN + rh::LEN;
        let mark = stamp::read_long(frame.get(at..)?.first_chunk()?, self.told)?;
        let end = at + mark.len + if mark.extras.icrc { crc::LEN } else { 0 };
        if frame.len() >= len || len != end {
            return None;
        }
        let ip = self.front.get(self.ip..)?.first_chunk::<{ ipv4::LEN }>()?;
        let (words, rest) = ip.as_chunks::<8>();
        let sum = words.iter().fold(Sum::ZERO, |sum, word| sum.with64(u64::from_be_bytes(*word)));
        let [high, low, next_high, next_low] = *rest.first_chunk()?;
        let sum = sum.with64(u64::from(u32::from_be_bytes([high, low, next_high, next_low])));
        (sum.finish() == 0).then_some(mark)
    }
}

#[inline]
fn be16(front: &[u8; FRONT], at: usize) -> u16 {
    front.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |two| u16::from_be_bytes(*two))
}

#[inline]
fn be64(front: &[u8; FRONT], at: usize) -> u64 {
    front.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |eight| u64::from_be_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;
    use weft_dataplane::pool::FRONT_LEN;
    use weft_dataplane::time::Instant;
    use weft_parsers::{AddrKey, Format, HEAD_LEN, MacAddr, Pcp, Vid, parse_head};

    use super::*;
    use crate::frames::{FrameSpec, Kind, Station, receive_front};
    use crate::sizes::Sizes;
    use crate::stamp::{Reading, Stamp};

    /// What it says of a frame is what is said without it, whatever was done to the frame.
    fn check(frame: &[u8], len: usize, config: &ParseConfig) -> [bool; 2] {
        let Some(usual) = Usual::read(frame, config) else { return [false; 2] };
        let mut head = [0; HEAD_LEN];
        for (to, from) in head.iter_mut().zip(frame) {
            *to = *from;
        }
        let parsed = parse_head(&head, len, config).unwrap();
        assert_eq!(
            (parsed.format(), parsed.src()),
            (Format::Standard, AddrKey::ethernet(MacAddr::from_bits(usual.src)))
        );
        assert_eq!(parsed.ecn(), Some(usual.ecn));
        let at = usize::from(parsed.l4_offset().unwrap()) + udp::LEN;
        assert_eq!(Rh::parse(&frame[at..]).unwrap().0.repr(), usual.rh.repr());
        let Some(mark) = usual.mark(frame, len) else { return [true, false] };
        let received = receive_front(&head, len, frame, config).unwrap();
        assert_eq!((received.reading, received.flaw), (Reading::Mark(mark), None));
        [true; 2]
    }

    #[test]
    fn what_is_read_at_once_is_what_is_read_bit_by_bit() {
        let mut rng = Rng::new(9);
        let config = ParseConfig::DEFAULT;
        let mut read = [[0_u32; 2]; 2];
        for round in 0..40_000 {
            let number = |rng: &mut Rng| u16::try_from(rng.below(1_024)).unwrap();
            let (from, to) =
                (Station::numbered(number(&mut rng)), Station::numbered(number(&mut rng)));
            let mut spec = FrameSpec::new(Kind::Standard, from, to);
            if rng.chance(1, 2) {
                spec = spec.with_vlan(Pcp::from_low_bits(3), Vid::from_low_bits(number(&mut rng)));
            }
            spec.icrc = rng.chance(1, 4);
            let least = spec.len_min().max(60);
            let len = least + usize::try_from(rng.below((spec.len_max() - least) as u64)).unwrap();
            spec.sizes = Sizes::Fixed(len);
            let stamp =
                Stamp { stream: 5, seq: rng.next_u64(), sent: Instant::from_ps(rng.next_u64()) };
            let mut frame = spec.to_vec(&stamp, 0).unwrap();
            if rng.chance(3, 4) {
                frame.truncate(FRONT_LEN);
            }
            let is_damaged = round % 4 != 0;
            if is_damaged {
                let most = frame.len().min(if rng.chance(1, 2) { 60 } else { 96 });
                let place = usize::try_from(rng.below(most as u64)).unwrap();
                frame[place] ^= 1 << rng.below(8);
            }
            let had = check(&frame, len, &config);
            for (count, had) in read[usize::from(is_damaged)].iter_mut().zip(had) {
                *count += u32::from(had);
            }
        }
        let [[whole, whole_marks], [damaged, damaged_marks]] = read;
        assert_eq!(whole, 10_000, "each is as usual");
        assert!(whole_marks > 6_500 && damaged > 20_000 && damaged_marks > 2_000, "{read:?}");
    }
}
