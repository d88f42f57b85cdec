//! Joining of TCP segments that leave one after the other: one super-frame, which the kernel takes in
//! one go, and which the receiver's stack or the device splits into the same frames again.
//!
//! Shape: [`Segment::parse`] looks at a frame whose TCP checksum is partial; [`Joint`] takes segments
//! for as long as each continues the one before, then writes the headers of all.
//! Units: bytes.
//! Source: virtio 1.3, 5.1.6 (`virtio_net_hdr`); Linux `net/ipv4/tcp_offload.c`; the reverse of `gso`.

use std::ops::Range;

use super::csum;
use super::gso::{GSO_ECN, GSO_TCPV4, GSO_TCPV6};
use crate::pool::PartialCsum;

/// Longest headers that are joined: two tags, IPv6 and the longest TCP header.
pub(super) const HEADERS_LEN_MAX: usize = 14 + 8 + 40 + 60;
/// Longest super-frame, all headers included: what any device with TSO takes.
const SUPER_LEN_MAX: usize = 0xFFFF;

const TCP: u8 = 6;
/// Of an IPv4 header: more fragments, and this one's place.
const MORE_AND_OFFSET: u16 = 0x3FFF;
const FIN: u8 = 0x01;
const SYN_RST_URG: u8 = 0x26;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Of TCP's checksum in its header.
const CSUM_AT: u16 = 16;

/// A TCP segment that may be joined with others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    frame: &'a [u8],
    v6: bool,
    /// Bytes where the IP header, the TCP header and the payload start.
    l3: usize,
    l4: usize,
    payload: usize,
    id: u16,
    seq: u32,
    flags: u8,
}

fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

fn be16(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn be32(frame: &[u8], at: usize) -> Option<u32> {
    frame.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

impl<'a> Segment<'a> {
    /// `None` for anything but a whole TCP segment with payload behind plain headers: no fragment, no
    /// SYN, RST or URG, lengths and the IPv4 header's checksum right.
    pub(super) fn parse(frame: &'a [u8], partial: PartialCsum) -> Option<Self> {
        let mut l3 = 12;
        while matches!(be16(frame, l3)?, 0x8100 | 0x88A8) && l3 < 20 {
            l3 += 4;
        }
        let v6 = match be16(frame, l3)? {
            0x0800 => false,
            0x86DD => true,
            _ => return None,
        };
        l3 += 2;
        let l4 = usize::from(partial.start);
        let (header, len_at, protocol_at) = if v6 { (40, 4, 6) } else { (20, 2, 9) };
        let len = usize::from(be16(frame, l3 + len_at)?) + if v6 { header } else { 0 };
        if l4 != l3 + header || byte(frame, l3 + protocol_at)? != TCP || l3 + len != frame.len() {
            return None; // options and extension headers are rare: sent as they are
        }
        let plain_v4 = || {
            let ip = frame.get(l3..l4)?;
            let whole = be16(ip, 6)? & MORE_AND_OFFSET == 0;
            Some(byte(ip, 0)? == 0x45 && whole && csum::sum(ip, 0) == 0xFFFF)
        };
        let fits = if v6 { byte(frame, l3)? >> 4 == 6 } else { plain_v4()? };
        let payload = l4 + usize::from(byte(frame, l4 + 12)? >> 4) * 4;
        let flags = byte(frame, l4 + 13)?;
        let id = if v6 { 0 } else { be16(frame, l3 + 4)? };
        let seq = be32(frame, l4 + 4)?;
        let plain = partial.offset == CSUM_AT && flags & SYN_RST_URG == 0;
        (fits && plain && payload >= l4 + 20 && payload < frame.len()).then_some(Self {
            frame,
            v6,
            l3,
            l4,
            payload,
            id,
            seq,
            flags,
        })
    }

    /// Bytes of the IP packet.
    pub(super) const fn packet_len(&self) -> usize {
        self.frame.len() - self.l3
    }

    /// Bytes of the frame.
    pub(super) const fn len(&self) -> usize {
        self.frame.len()
    }

    pub(super) fn headers(&self) -> &'a [u8] {
        self.frame.get(..self.payload).unwrap_or_default()
    }

    pub(super) fn payload(&self) -> &'a [u8] {
        self.frame.get(self.payload..).unwrap_or_default()
    }

    /// Whether all is equal but lengths, ids, sequence, flags and checksums.
    fn is_of_one_stream(&self, other: &Self) -> bool {
        let (l3, l4, payload) = (self.l3, self.l4, self.payload);
        let ip = if self.v6 { [0..l3 + 4, l3 + 6..l3 + 8] } else { [0..l3 + 2, l3 + 6..l3 + 10] };
        let addresses = if self.v6 { l3 + 8 } else { l3 + 12 };
        let [first, second] = ip;
        let tcp = [addresses..l4 + 4, l4 + 8..l4 + 13, l4 + 14..l4 + 16, l4 + 18..payload];
        let same = |at: Range<usize>| self.frame.get(at.clone()) == other.frame.get(at);
        (other.v6, other.l3, other.l4, other.payload) == (self.v6, l3, l4, payload)
            && same(first)
            && same(second)
            && tcp.into_iter().all(same)
    }
}

/// Segments that continue each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joint<'a> {
    first: Segment<'a>,
    /// Payload of each segment but the last, and of all.
    size: usize,
    payload: usize,
    count: u16,
    /// FIN and PSH of the last one; with either, or a short one, there is no next.
    end: u8,
    is_over: bool,
}

/// What a virtio-net header says of a super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub gso_type: u8,
    pub gso_size: u16,
    pub header_len: u16,
    pub partial: PartialCsum,
}

impl<'a> Joint<'a> {
    pub(super) fn new(first: Segment<'a>) -> Self {
        let (size, end) = (first.payload().len(), first.flags & (FIN | PSH));
        Self { first, size, payload: size, count: 1, end, is_over: end != 0 }
    }

    /// Takes the next segment if it continues the stream, to be split again into the same frames.
    pub(super) fn take(&mut self, next: &Segment<'_>) -> bool {
        let first = &self.first;
        let done = u32::try_from(self.payload).unwrap_or(u32::MAX);
        let more = next.payload().len();
        let continues = !self.is_over
            && more <= self.size
            && first.payload + self.payload + more <= SUPER_LEN_MAX
            && next.seq == first.seq.wrapping_add(done)
            && (first.v6 || next.id == first.id.wrapping_add(self.count))
            // CWR is the first one's only: a frame that was split has it there.
            && next.flags & !(FIN | PSH) == first.flags & !(FIN | PSH | CWR)
            && first.is_of_one_stream(next);
        if continues {
            self.payload += more;
            self.count += 1;
            self.end = next.flags & (FIN | PSH);
            self.is_over = self.end != 0 || more < self.size;
        }
        continues
    }

    /// Writes the headers of the super-frame to the start of `into`, which has [`HEADERS_LEN_MAX`].
    pub(super) fn emit(&self, into: &mut [u8]) -> Option<Joined> {
        let Segment { v6, l3, l4, payload, flags, .. } = self.first;
        let headers = into.get_mut(..payload)?;
        headers.copy_from_slice(self.first.headers());
        let whole = payload + self.payload;
        let l4_len = u16::try_from(whole - l4).ok()?;
        let addresses = if v6 {
            put(headers, l3 + 4, l4_len);
            l3 + 8..l3 + 40
        } else {
            put(headers, l3 + 2, u16::try_from(whole - l3).ok()?);
            put(headers, l3 + 10, 0);
            let check = !csum::sum(headers.get(l3..l4)?, 0);
            put(headers, l3 + 10, check);
            l3 + 12..l3 + 20
        };
        *headers.get_mut(l4 + 13)? = flags | self.end;
        let pseudo = csum::sum(&[0, TCP], csum::sum(headers.get(addresses)?, l4_len));
        put(headers, l4 + usize::from(CSUM_AT), pseudo);
        let ecn = if flags & CWR == 0 { 0 } else { GSO_ECN };
        Some(Joined {
            gso_type: ecn | if v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            gso_size: u16::try_from(self.size).ok()?,
            header_len: u16::try_from(payload).ok()?,
            partial: PartialCsum { start: u16::try_from(l4).ok()?, offset: CSUM_AT },
        })
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..at + 2) {
        to.copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::super::gso::Splitter;
    use super::*;

    /// A super-frame of TCP as the kernel hands it over, and where its TCP header starts.
    fn super_frame(v6: bool, tags: usize, len: usize, flags: u8) -> (Vec<u8>, u16) {
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            eth.ipv6([1; 16], [9; 16], 64)
        } else {
            eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let payload: Vec<u8> = (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
        let mut frame = Vec::new();
        let timestamps = etherparse::TcpOptionElement::Timestamp(7, 9);
        ip.tcp(1, 2, 0xFFFF_F000, 4)
            .ack(5)
            .options(&[timestamps])
            .unwrap()
            .write(&mut frame, &payload)
            .unwrap();
        let l4 = if v6 { 54 } else { 34 };
        frame[l4 + 13] |= flags;
        for _ in 0..tags {
            frame.splice(12..12, [0x81, 0, 0x60, 5]);
        }
        (frame, u16::try_from(l4 + 4 * tags).unwrap())
    }

    /// The frames that a super-frame is split into.
    fn split(whole: &[u8], v6: bool, size: u16, ecn: u8) -> Vec<(Vec<u8>, PartialCsum)> {
        let kind = ecn | if v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        let mut splitter = Splitter::new(whole, kind, size, None).unwrap();
        let mut frames = Vec::new();
        while splitter.left() > 0 {
            let mut into = vec![0; splitter.next_len()];
            let (_, partial) = splitter.emit(whole, &mut into).unwrap();
            frames.push((into, partial));
        }
        frames
    }

    /// Joins as many of the first frames as go together: headers and payload of the super-frame.
    fn join(frames: &[(Vec<u8>, PartialCsum)]) -> (usize, Vec<u8>, Joined) {
        let mut joint = Joint::new(Segment::parse(&frames[0].0, frames[0].1).unwrap());
        let mut payload = joint.first.payload().to_vec();
        let mut count = 1;
        for (frame, partial) in &frames[1..] {
            match Segment::parse(frame, *partial) {
                Some(next) if joint.take(&next) => payload.extend(next.payload()),
                _ => break,
            }
            count += 1;
        }
        let mut headers = [0; HEADERS_LEN_MAX];
        let joined = joint.emit(&mut headers).unwrap();
        let mut whole = headers[..usize::from(joined.header_len)].to_vec();
        whole.extend(payload);
        (count, whole, joined)
    }

    #[test]
    fn what_was_split_is_joined_and_splits_into_the_same_frames() {
        #[rustfmt::skip] // columns: name, IPv6, tags, payload, size, flags
        let cases = [
            ("v4",            false, 0, 40_000, 1_448, PSH),
            ("one tag",       false, 1, 40_000, 1_444, 0),
            ("two tags, v6",  true,  2, 30_000, 1_420, PSH | FIN),
            ("cwr",           false, 0, 10_000, 1_000, CWR | PSH),
            ("last is whole", true,  0, 5_000,  1_000, 0),
            ("two",           false, 0, 1_449,  1_448, 0),
        ];
        for (name, v6, tags, len, size, flags) in cases {
            let (whole, l4) = super_frame(v6, tags, len, flags);
            let ecn = if flags & CWR == 0 { 0 } else { GSO_ECN };
            let frames = split(&whole, v6, size, ecn);
            let (count, again, joined) = join(&frames);
            assert_eq!(count, frames.len(), "{name}");
            assert_eq!((joined.gso_size, joined.partial.start), (size, l4), "{name}");
            assert_eq!(joined.gso_type & GSO_ECN, ecn, "{name}");
            assert_eq!(split(&again, v6, size, joined.gso_type & GSO_ECN), frames, "{name}");
        }
    }

    #[test]
    fn a_super_frame_ends_where_the_stream_does_not_go_on() {
        let (whole, _) = super_frame(false, 0, 4_000, PSH);
        let clean = split(&whole, false, 1_000, 0);
        assert_eq!(join(&clean).0, 4);
        // The third of four frames is changed: two are joined. Checksum first, where it must be right.
        #[rustfmt::skip] // columns: name, byte, mask, IPv4 checksum made right again
        let cases = [
            ("address",        5,  0x01, false), ("source",        11, 0x02, false),
            ("dscp",           15, 0x04, true),  ("CE mark",       15, 0x03, true),
            ("id",             19, 0x01, true),  ("ttl",           22, 0x01, true),
            ("IP checksum",    25, 0x01, false), ("fragment",      20, 0x20, true),
            ("destination",    33, 0x01, true),  ("TCP port",      35, 0x01, false),
            ("sequence",       41, 0x01, false), ("ack",           45, 0x01, false),
            ("urgent flag",    47, 0x20, false), ("reset",         47, 0x04, false),
            ("cwr in between", 47, 0x80, false), ("window",        49, 0x01, false),
            ("time stamp",     60, 0x01, false), ("IP length",     17, 0x01, true),
        ];
        for (name, at, mask, right) in cases {
            let mut frames = clean.clone();
            frames[2].0[at] ^= mask;
            if right {
                put(&mut frames[2].0, 24, 0);
                let check = !csum::sum(&frames[2].0[14..34], 0);
                put(&mut frames[2].0, 24, check);
            }
            assert_eq!(join(&frames).0, 2, "{name}");
        }
        let mut pushed = clean.clone();
        pushed[1].0[47] |= PSH;
        assert_eq!(join(&pushed).0, 2, "PSH is the last one's");
        let mut swapped = clean.clone();
        swapped.swap(1, 2);
        assert_eq!(join(&swapped).0, 1, "order");
        let shorter = split(&whole, false, 900, 0);
        let mixed = [clean[0].clone(), shorter[1].clone()];
        assert_eq!(join(&mixed).0, 1, "overlap");
    }

    #[test]
    fn a_super_frame_has_no_more_than_64_kib() {
        let (whole, _) = super_frame(false, 0, 65_000, 0);
        let mut frames = split(&whole, false, 1_000, 0);
        let (next, _) = super_frame(false, 0, 1_000, 0);
        let mut next = split(&next, false, 1_000, 0).remove(0);
        let seq = 0xFFFF_F000_u32.wrapping_add(65_000);
        next.0[38..42].copy_from_slice(&seq.to_be_bytes());
        put(&mut next.0, 18, 65);
        put(&mut next.0, 24, 0);
        let check = !csum::sum(&next.0[14..34], 0);
        put(&mut next.0, 24, check);
        frames.push(next);
        assert_eq!(join(&frames).0, 65);
    }

    #[test]
    fn other_frames_are_no_segments() {
        let (whole, l4) = super_frame(false, 1, 1_000, 0);
        let partial = PartialCsum { start: l4, offset: CSUM_AT };
        assert!(Segment::parse(&whole, partial).is_some());
        for len in 0..whole.len() {
            assert!(Segment::parse(&whole[..len], partial).is_none(), "{len}");
        }
        for (start, offset) in [(l4 - 4, CSUM_AT), (l4 + 1, CSUM_AT), (l4, 6), (0, 0), (0xFFFF, 16)]
        {
            assert!(Segment::parse(&whole, PartialCsum { start, offset }).is_none(), "{start}");
        }
        #[rustfmt::skip] // columns: name, byte, value
        let cases = [
            ("EtherType", 16, 0x86), ("UDP", 27, 17), ("IP options", 18, 0x46), ("SYN", 51, 0x12),
            ("short TCP header", 50, 0x40), ("long TCP header", 50, 0xF0),
        ];
        for (name, at, value) in cases {
            let mut frame = whole.clone();
            frame[at] = value;
            let whole_header = at == 50 && value == 0xF0; // 60 bytes: still a segment
            assert_eq!(Segment::parse(&frame, partial).is_some(), whole_header, "{name}");
        }
        let (bare, l4) = super_frame(false, 0, 0, 0);
        assert!(
            Segment::parse(&bare, PartialCsum { start: l4, offset: CSUM_AT }).is_none(),
            "no payload"
        );
    }
}
