//! Reads the most common frame between endpoints, Standard without IP options, in one pass.
//!
//! [`Usual::read`] has the header fields an endpoint needs, [`Usual::mark`] the mark. For a frame that is not of this
//! shape both return `None`, and [`receive_front`](super::receive_front) reads it; for one that is, both ways give the
//! same answer.
//!
//! Source: docs/spec/wire-formats.md §1.1, §1.5, §1.8.

use weft_parsers::checksum::Sum;
use weft_parsers::rh::Rh;
use weft_parsers::{
    AfhMode, Ecn, ParseConfig, crc, ether_type, ethernet, ip_proto, ipv4, rh, udp, vlan,
};

use crate::stamp::{self, Mark};

/// Bytes in which all headers lie: those of the shortest frame.
const FRONT: usize = ethernet::MIN_FRAME_LEN;
const TAGGED: usize = ethernet::LEN + vlan::TAG_LEN;
/// EtherType, then version and header length of an IPv4 header without options.
const TYPE: u64 = (ether_type::IPV4 as u64) << 8 | 0x45;
/// In the eight bytes from the IP flags on: fragmentation (without its top bits, reserved and "don't fragment") and
/// protocol.
const MASK: u64 = 0x3FFF_00FF << 32;
const UDP: u64 = (ip_proto::UDP as u64) << 32;

/// A Standard frame with an RC Link header, without options and fragments.
#[derive(Clone, Copy, Debug)]
pub struct Usual<'a> {
    /// MAC address of the sender as a number.
    pub src: u64,
    /// ECN codepoint of the IP header.
    pub ecn: Ecn,
    /// The RC Link header.
    pub rh: Rh<'a>,
    ip: usize,
    /// Bytes after the RC Link header according to the UDP length.
    told: usize,
    front: &'a [u8; FRONT],
}

impl<'a> Usual<'a> {
    /// Reads the headers of `frame`, which is the whole frame or its front; `None` if it is not of the common shape.
    #[inline]
    #[must_use]
    pub fn read(frame: &'a [u8], config: &ParseConfig) -> Option<Self> {
        let front = frame.first_chunk()?;
        // A Lite port has no EtherType to go by: any bytes may stand there.
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
            // Port 0 in the configuration means that there is no such port.
            && port != 0;
        if !is_usual {
            return None;
        }
        let (rh, _) = Rh::parse(front.get(IP + ipv4::LEN + udp::LEN..)?).ok()?;
        let [tos, ..] = *front.get(IP + 1..)?.first_chunk::<1>()?;
        // Eight bytes from 4 on end with the source address, bytes 6 to 11.
        let src = be64(front, 4) & ((1 << 48) - 1);
        let told = udp_len - (udp::LEN + rh::LEN);
        Some(Self { src, ecn: Ecn::from_low_bits(tos), rh, ip: IP, told, front })
    }

    /// The mark of a frame of `len` bytes, if it arrived undamaged and `frame` is only its front.
    #[inline]
    #[must_use]
    pub fn mark(&self, frame: &[u8], len: usize) -> Option<Mark> {
        let at = self.ip + ipv4::LEN + udp::LEN + rh::LEN;
        let mark = stamp::read_long(frame.get(at..)?.first_chunk()?, self.told)?;
        let end = at + mark.len + if mark.extras.icrc { crc::LEN } else { 0 };
        // A whole frame has a payload and an ICRC to check, and a padded one an end to find: `receive_front` does both.
        if frame.len() >= len || len != end {
            return None;
        }
        let ip = self.front.get(self.ip..)?.first_chunk::<{ ipv4::LEN }>()?;
        let (words, rest) = ip.as_chunks::<8>();
        let sum = words.iter().fold(Sum::ZERO, |sum, word| sum.with64(u64::from_be_bytes(*word)));
        let [high, low, next_high, next_low] = *rest.first_chunk()?;
        let sum = sum.with64(u64::from(u32::from_be_bytes([high, low, next_high, next_low])));
        // A checksum that is right sums to zero, its own field included (RFC 1071).
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
