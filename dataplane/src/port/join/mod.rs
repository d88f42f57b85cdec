//! Joins TCP segments that leave one after the other into one super-frame, which the kernel takes in one go. The
//! receiver's stack or the device splits it into the same frames again.
//!
//! A [`Joint`] starts with the first [`Segment`], takes more as long as each continues the one before, and then writes
//! the headers of the super-frame.
//!
//! Source: virtio 1.3, 5.1.6 (`virtio_net_hdr`); Linux `net/ipv4/tcp_offload.c`, `udp_offload.c`; the reverse of `gso`.

mod segment;

use weft_parsers::ip_proto;
use weft_parsers::partial::UDP_FIELD;

use self::segment::{CSUM_AT, Tunnel};
pub(super) use self::segment::{OUTER_IP, Segment};
use super::field::put;
use super::gso::{GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_TUNNEL_IPV4, GSO_UDP_TUNNEL_IPV6};
use super::segment_headers::SegmentHeaders;
use crate::pool::PartialCsum;

/// Longest headers that are joined, in bytes: a tunnel with 64 bytes of Geneve between two Ethernet and IPv6 headers,
/// and the longest TCP header.
pub(super) const HEADERS_LEN_MAX: usize = 2 * (14 + 8 + 40) + 8 + 64 + 60;
/// Longest super-frame in bytes, headers included: any device with TSO takes this much.
const SUPER_LEN_MAX: usize = 0xFFFF;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Segments of one stream that continue each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joint<'a> {
    first: Segment<'a>,
    /// Payload bytes of each segment but the last, and of all together.
    size: usize,
    payload: usize,
    count: u16,
    /// FIN and PSH of the last segment. With either of them, or after a shorter segment, no further one is taken.
    end: u8,
    is_over: bool,
    /// Headers of the next segment if it is as long as the one before and not the last.
    next_headers: Option<SegmentHeaders>,
}

/// Fields of a super-frame's virtio-net header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub gso_type: u8,
    pub gso_size: u16,
    pub header_len: u16,
    pub partial: PartialCsum,
    pub tunnel: Option<JoinedTunnel>,
}

/// Fields for a super-frame in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinedTunnel {
    /// Whether the tunnel's UDP header has a checksum.
    pub has_csum: bool,
    /// Offsets in the frame of the tunnel's UDP header and of the IP header inside.
    pub udp: u16,
    pub inner_ip: u16,
}

impl<'a> Joint<'a> {
    pub(super) fn new(first: Segment<'a>) -> Self {
        let (size, end) = (first.payload().len(), first.flags & (FIN | PSH));
        let (payload, is_over) = (size, end != 0);
        Self { first, size, payload, count: 1, end, is_over, next_headers: None }
    }

    /// Takes the segment in the next frame and returns its payload, if splitting would give back the same frames.
    pub(super) fn take<'b>(&mut self, frame: &'b [u8], partial: PartialCsum) -> Option<&'b [u8]> {
        if let Some(payload) = self.take_alike(frame, partial) {
            return Some(payload);
        }
        let next = self.first.parse_next(frame, partial)?;
        if !self.continues(&next) {
            return None;
        }
        if !self.is_over {
            self.next_headers = self.headers_behind(&next);
        }
        Some(next.payload())
    }

    /// Takes a segment whose headers are those that splitting would give it, byte by byte. All that [`Segment`] checks
    /// holds for these.
    fn take_alike<'b>(&mut self, frame: &'b [u8], partial: PartialCsum) -> Option<&'b [u8]> {
        let headers = self.next_headers.as_mut().filter(|_| !self.is_over)?;
        let (start, size) = (self.first.payload, self.size);
        let is_alike = usize::from(partial.start) == self.first.l4
            && partial.offset == CSUM_AT
            && frame.len() == start + size
            && start + self.payload + size <= SUPER_LEN_MAX
            && frame.get(..start) == Some(headers.bytes());
        if !is_alike {
            return None;
        }
        headers.advance();
        self.payload += size;
        self.count += 1;
        frame.get(start..)
    }

    /// The headers of the segment behind `taken`, which is not the last one.
    fn headers_behind(&self, taken: &Segment<'_>) -> Option<SegmentHeaders> {
        let around = taken.tunnel.map(|tunnel| tunnel.ip);
        let ipv4 = around.into_iter().chain([taken.ip]).filter(|ip| !ip.v6).map(|ip| ip.at);
        SegmentHeaders::behind(taken.headers(), ipv4, taken.l4, self.size)
    }

    fn continues(&mut self, next: &Segment<'_>) -> bool {
        let first = &self.first;
        let done = u32::try_from(self.payload).unwrap_or(u32::MAX);
        let more = next.payload().len();
        let continues = !self.is_over
            // All segments but the last have the same size: the super-frame has one `gso_size`.
            && more <= self.size
            && first.payload + self.payload + more <= SUPER_LEN_MAX
            && next.seq == first.seq.wrapping_add(done)
            // Splitting leaves CWR on the first segment only, so no later one may have it.
            && next.flags & !(FIN | PSH) == first.flags & !(FIN | PSH | CWR)
            && first.is_followed_by(next, self.count);
        if continues {
            self.payload += more;
            self.count += 1;
            self.end = next.flags & (FIN | PSH);
            self.is_over = self.end != 0 || more < self.size;
        }
        continues
    }

    pub(super) const fn is_in_tunnel(&self) -> bool {
        self.first.is_in_tunnel()
    }

    /// Writes the headers of the super-frame to the start of `into`, which has [`HEADERS_LEN_MAX`].
    pub(super) fn emit(&self, into: &mut [u8]) -> Option<Joined> {
        let Segment { tunnel, ip, l4, payload, flags, .. } = self.first;
        let headers = into.get_mut(..payload)?;
        headers.copy_from_slice(self.first.headers());
        let whole = payload + self.payload;
        ip.put_len(headers, whole)?;
        // Splitting moves FIN and PSH to the last segment, from which they came.
        *headers.get_mut(l4 + 13)? = flags | self.end;
        let pseudo = ip.pseudo_sum(headers, ip_proto::TCP, whole)?;
        put(headers, l4 + usize::from(CSUM_AT), pseudo.to_be_bytes());
        let (around, tunnel) = match tunnel {
            Some(tunnel) => {
                let kind = if tunnel.ip.v6 { GSO_UDP_TUNNEL_IPV6 } else { GSO_UDP_TUNNEL_IPV4 };
                (kind, Some(self.emit_tunnel(headers, tunnel)?))
            }
            None => (0, None),
        };
        let ecn = if flags & CWR == 0 { 0 } else { GSO_ECN };
        Some(Joined {
            gso_type: ecn | around | if ip.v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            gso_size: u16::try_from(self.size).ok()?,
            header_len: u16::try_from(payload).ok()?,
            partial: PartialCsum { start: u16::try_from(l4).ok()?, offset: CSUM_AT },
            tunnel,
        })
    }

    /// Writes the lengths of a tunnel's headers. Its UDP checksum, if it has one, is partial in a super-frame.
    fn emit_tunnel(&self, headers: &mut [u8], tunnel: Tunnel) -> Option<JoinedTunnel> {
        let Tunnel { ip, has_csum } = tunnel;
        let (whole, udp) = (headers.len() + self.payload, tunnel.udp());
        ip.put_len(headers, whole)?;
        put(headers, udp + 4, u16::try_from(whole - udp).ok()?.to_be_bytes());
        if has_csum {
            let pseudo = ip.pseudo_sum(headers, ip_proto::UDP, whole)?;
            put(headers, udp + UDP_FIELD, pseudo.to_be_bytes());
        }
        let inner_ip = u16::try_from(self.first.ip.at).ok()?;
        Some(JoinedTunnel { has_csum, udp: u16::try_from(udp).ok()?, inner_ip })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use weft_base::rng::Rng;

    use super::super::csum;
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
        let mut joint = Joint::new(Segment::parse(&frames[0].0, frames[0].1, true).unwrap());
        let mut payload = joint.first.payload().to_vec();
        let mut count = 1;
        for (frame, partial) in &frames[1..] {
            match joint.take(frame, *partial) {
                Some(next) => payload.extend(next),
                None => break,
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
                put(&mut frames[2].0, 24, [0; 2]);
                let check = !csum::sum(&frames[2].0[14..34], 0);
                put(&mut frames[2].0, 24, check.to_be_bytes());
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

    /// Whatever changes in a frame, comparing it with the headers that it should have decides as parsing it does.
    #[test]
    fn a_segment_is_compared_as_it_would_be_parsed() {
        let mut rng = Rng::new(0x101);
        for round in 0..20_000 {
            let (whole, _) = super_frame(round % 2 == 0, round % 3, 9_000, CWR | PSH);
            let mut frames = split(&whole, round % 2 == 0, 1_000, GSO_ECN);
            let at = usize::try_from(rng.below(9)).unwrap();
            let headers = frames[at].0.len() - 1_000;
            let byte = usize::try_from(rng.below(headers as u64 + 2)).unwrap();
            frames[at].0[byte] ^= 1 << rng.below(8);
            if rng.chance(1, 8) {
                frames[at].1.start ^= 1 << rng.below(8);
            }
            let Some(first) = Segment::parse(&frames[0].0, frames[0].1, true) else { continue };
            let (mut compared, mut parsed) = (Joint::new(first), Joint::new(first));
            for (number, (frame, partial)) in frames.iter().enumerate().skip(1) {
                parsed.next_headers = None;
                let want = parsed.take(frame, *partial);
                assert_eq!(compared.take(frame, *partial), want, "{round}: {number}, {at} {byte}");
                if want.is_none() {
                    break;
                }
            }
            let state = |joint: &Joint<'_>| (joint.payload, joint.count, joint.end, joint.is_over);
            assert_eq!(state(&compared), state(&parsed), "{round}");
        }
    }

    #[test]
    fn a_super_frame_has_no_more_than_64_kib() {
        let (whole, _) = super_frame(false, 0, 65_000, 0);
        let mut frames = split(&whole, false, 1_000, 0);
        let (next, _) = super_frame(false, 0, 1_000, 0);
        let mut next = split(&next, false, 1_000, 0).remove(0);
        let seq = 0xFFFF_F000_u32.wrapping_add(65_000);
        next.0[38..42].copy_from_slice(&seq.to_be_bytes());
        put(&mut next.0, 18, 65_u16.to_be_bytes());
        put(&mut next.0, 24, [0; 2]);
        let check = !csum::sum(&next.0[14..34], 0);
        put(&mut next.0, 24, check.to_be_bytes());
        frames.push(next);
        assert_eq!(join(&frames).0, 65);
    }

    #[test]
    fn other_frames_are_no_segments() {
        let (whole, l4) = super_frame(false, 1, 1_000, 0);
        let partial = PartialCsum { start: l4, offset: CSUM_AT };
        assert!(Segment::parse(&whole, partial, true).is_none(), "its checksum is complete");
        let (whole, _) = split(&whole, false, 1_000, 0).remove(0);
        assert!(Segment::parse(&whole, partial, true).is_some());
        for len in 0..whole.len() {
            assert!(Segment::parse(&whole[..len], partial, true).is_none(), "{len}");
        }
        for (start, offset) in [(l4 - 4, CSUM_AT), (l4 + 1, CSUM_AT), (l4, 6), (0, 0), (0xFFFF, 16)]
        {
            assert!(
                Segment::parse(&whole, PartialCsum { start, offset }, true).is_none(),
                "{start}"
            );
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
            assert_eq!(Segment::parse(&frame, partial, true).is_some(), whole_header, "{name}");
        }
        let (bare, l4) = super_frame(false, 0, 0, 0);
        assert!(
            Segment::parse(&bare, PartialCsum { start: l4, offset: CSUM_AT }, true).is_none(),
            "no payload"
        );
    }
}
