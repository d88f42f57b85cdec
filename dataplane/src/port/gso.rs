//! Splits super-frames: one that TSO, USO or GRO made of many frames becomes those frames again.
//!
//! The super-frame stays in its buffer, and a [`Splitter`] keeps the position in it. Each call writes the next frame:
//! headers with their own lengths, IP ids, TCP sequence and flags, then payload. The TCP or UDP checksum is left
//! partial (pseudo-header only), for the output to complete or pass on. Checksums of tunnels in front hold for the
//! completed one.
//!
//! Source: virtio 1.3, 5.1.6 (`virtio_net_hdr`); Linux `net/ipv4/tcp_offload.c`, `udp_offload.c`, `gre_offload.c`. For
//! a super-frame of a tunnel the kernel gives a packet socket the type of the packet inside, and the start of its
//! checksum.

use weft_parsers::checksum::{Sum, checksum};
use weft_parsers::encap::{self, Answer, Header, Headers, Kind, Lengths, Transport, gre};
use weft_parsers::partial::{self, UDP_FIELD};
use weft_parsers::{ip_proto, ipv4, ipv6, udp};

use super::field::{be16, be32, byte, put};
use super::segment_headers::SegmentHeaders;
use crate::pool::PartialCsum;

/// Values of `virtio_net_hdr.gso_type`, and its bits for TCP with CWR and for a tunnel over UDP. Taps know the tunnel's
/// bits (Linux 6.17), packet sockets do not.
pub(crate) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
pub(super) const GSO_UDP_TUNNEL_IPV4: u8 = 0x20;
pub(super) const GSO_UDP_TUNNEL_IPV6: u8 = 0x40;
const GSO_UDP_TUNNEL: u8 = GSO_UDP_TUNNEL_IPV4 | GSO_UDP_TUNNEL_IPV6;
pub(super) const GSO_ECN: u8 = 0x80;

const TCP_LEN_MIN: usize = 20;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Smallest segment, TCP options included, that super-frames are split into. Every host accepts this size (RFC 9293
/// 3.7.1), so no stack cuts a long write smaller. With one byte each, 64 KiB would become 65,000 frames.
const SEGMENT_LEN_MIN: usize = 536;

/// A super-frame that cannot be split: its headers do not fit its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("super-frame whose headers do not fit its gso type")]
pub struct BadGso;

/// Structure of a super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layers {
    /// Headers in front of TCP or UDP; the last is its IP header.
    headers: Headers,
    udp: bool,
    /// Offsets in the frame of the TCP or UDP header and of the payload.
    l4: usize,
    payload: usize,
}

/// Progress of splitting one super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splitter {
    layers: Layers,
    /// Payload bytes of each frame but the last.
    size: usize,
    len: usize,
    /// Offset of the next frame's payload in the super-frame; `len` after the last one.
    next: usize,
    index: u16,
    /// CWR belongs to the first frame only (RFC 3168). Otherwise it is part of `AccECN`'s counter and stays on all
    /// frames.
    cwr_once: bool,
    /// Headers of the next frame, unless it is one of the first or the last: those differ in more than counters.
    next_headers: Option<SegmentHeaders>,
}

/// Finds the headers in front of the payload that is split; `None` if they do not fit the type.
fn layers(frame: &[u8], gso_type: u8, csum_start: Option<u16>) -> Option<Layers> {
    let (wanted, version) = match gso_type & !(GSO_ECN | GSO_UDP_TUNNEL) {
        GSO_TCPV4 => (ip_proto::TCP, Some(Kind::Ipv4)),
        GSO_TCPV6 => (ip_proto::TCP, Some(Kind::Ipv6)),
        GSO_UDP_L4 => (ip_proto::UDP, None),
        _ => return None, // fragments of UFO, or what is not known
    };
    let accept = |headers: &Headers, Transport { proto, at }: Transport| {
        let is_there = match csum_start {
            // The type describes the packet whose checksum starts at `csum_start`; a TCP or UDP header in front of that
            // belongs to a tunnel.
            Some(start) if at < usize::from(start) => return Answer::Inside,
            Some(start) => at == usize::from(start),
            None => headers.is_plain(),
        };
        let ip = headers.as_slice().last().map(|header| header.kind);
        let fits = is_there && proto == wanted && version.is_none_or(|kind| Some(kind) == ip);
        if fits { Answer::Take } else { Answer::Leave }
    };
    let (headers, Transport { at: l4, .. }) = encap::walk(frame, Lengths::SuperFrame, accept)?;
    let udp = wanted == ip_proto::UDP;
    let header = if udp { udp::LEN } else { usize::from(byte(frame, l4 + 12)? >> 4) * 4 };
    let payload = l4 + header;
    let fits = header >= if udp { udp::LEN } else { TCP_LEN_MIN } && payload <= frame.len();
    fits.then_some(Layers { headers, udp, l4, payload })
}

impl Splitter {
    /// Prepares to split a super-frame (tags in the data) by the metadata of its virtio-net header; `csum_start` is
    /// where its partial checksum starts, if it has one.
    ///
    /// # Errors
    /// The type cannot be split (fragments of UFO), or the headers do not fit it.
    pub fn new(
        frame: &[u8],
        gso_type: u8,
        gso_size: u16,
        csum_start: Option<u16>,
    ) -> Result<Self, BadGso> {
        let layers = layers(frame, gso_type, csum_start).ok_or(BadGso)?;
        let Layers { headers, payload, .. } = layers;
        let size = usize::from(gso_size);
        // The 16-bit length fields of IP and UDP must hold the frames' lengths.
        let l3 = headers.as_slice().first().map_or(0, |outermost| outermost.at);
        if size == 0 || payload + size - l3 > 0xFFFF {
            return Err(BadGso);
        }
        let cwr_once = gso_type & GSO_ECN != 0;
        let (len, next, index) = (frame.len(), payload, 0);
        Ok(Self { layers, size, len, next, index, cwr_once, next_headers: None })
    }

    /// Whether all segments have 536 bytes or more, or there is only one.
    #[must_use]
    pub const fn is_worth_it(&self) -> bool {
        let Layers { udp, l4, payload, .. } = self.layers;
        let options = payload - l4 - if udp { udp::LEN } else { TCP_LEN_MIN };
        self.left() <= 1 || self.size + options >= SEGMENT_LEN_MIN
    }

    /// Whether no frame has been written or left out.
    pub(super) const fn is_at_start(&self) -> bool {
        self.index == 0
    }

    /// Headers in front of the TCP or UDP header, outermost first.
    pub(super) fn headers(&self) -> &[Header] {
        self.layers.headers.as_slice()
    }

    /// Offset of the payload in each frame.
    pub(super) const fn payload_at(&self) -> usize {
        self.layers.payload
    }

    /// Payload bytes of each frame but the last.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Number of frames still to come.
    #[must_use]
    pub const fn left(&self) -> usize {
        let rest = (self.len - self.next).div_ceil(self.size);
        // A super-frame without payload is one frame of headers.
        if rest == 0 && self.index == 0 { 1 } else { rest }
    }

    /// Length of the next frame in bytes.
    #[must_use]
    pub const fn next_len(&self) -> usize {
        let rest = self.len - self.next;
        self.layers.payload + if rest < self.size { rest } else { self.size }
    }

    /// Leaves out the next frame; those behind it keep their sequence numbers and ids.
    pub fn skip(&mut self) {
        let rest = self.len - self.next;
        self.next += if rest < self.size { rest } else { self.size };
        self.index = self.index.wrapping_add(1);
        if let Some(headers) = &mut self.next_headers {
            headers.advance();
        }
    }

    /// Whether the next frame is neither the first, which may have CWR, nor the last, which may be shorter and has FIN
    /// and PSH.
    const fn is_in_between(&self) -> bool {
        self.index > 0 && self.next + self.size < self.len
    }

    /// The headers of the frame behind `frame`, which is one in between.
    fn headers_behind(&self, frame: &[u8]) -> Option<SegmentHeaders> {
        let Layers { headers, udp, l4, payload } = self.layers;
        let is_counted = |header: &Header| match header.kind {
            Kind::Ipv4 | Kind::Ipv6 | Kind::Udp => true,
            Kind::Gre => false, // it may have numbers and sums of its own
        };
        if udp || !headers.as_slice().iter().all(is_counted) {
            return None;
        }
        let ipv4 = headers.as_slice().iter().filter(|header| header.kind == Kind::Ipv4);
        SegmentHeaders::behind(frame.get(..payload)?, ipv4.map(|header| header.at), l4, self.size)
    }

    /// Writes the next frame of `super_frame` to `into`; returns its length and where its partial checksum is. `None`
    /// when `into` is shorter than [`Self::next_len`], `super_frame` is another one, or no frame is left.
    pub fn emit(&mut self, super_frame: &[u8], into: &mut [u8]) -> Option<(usize, PartialCsum)> {
        if self.left() == 0 || super_frame.len() != self.len {
            return None;
        }
        let Layers { headers, udp, l4, payload } = self.layers;
        let headers = headers.as_slice();
        let len = self.next_len();
        let frame = into.get_mut(..len)?;
        let (header, body) = frame.split_at_mut_checked(payload)?;
        body.copy_from_slice(super_frame.get(self.next..self.next + body.len())?);
        let (proto, offset) = if udp { (ip_proto::UDP, 6) } else { (ip_proto::TCP, 16) };
        let partial = PartialCsum { start: u16::try_from(l4).ok()?, offset };
        let is_in_between = self.is_in_between();
        if is_in_between && let Some(headers) = &self.next_headers {
            header.copy_from_slice(headers.bytes());
            self.skip();
            return Some((len, partial));
        }
        header.copy_from_slice(super_frame.get(..payload)?);
        if udp {
            put(frame, l4 + 4, u16::try_from(len - l4).ok()?.to_be_bytes());
        } else {
            self.put_tcp(frame, len - payload)?;
        }
        let pseudo = partial::pseudo_header(frame, *headers.last()?, proto, len - l4)?.fold();
        put(frame, l4 + usize::from(offset), pseudo.to_be_bytes());
        // From the inside out: an outer checksum covers the headers behind it, which must be final.
        for n in (0..headers.len()).rev() {
            self.put_header(frame, headers.get(..=n)?, pseudo)?;
        }
        // Once made, they count on with each frame.
        let behind = if is_in_between { self.headers_behind(frame) } else { None };
        self.skip();
        self.next_headers = behind;
        Some((len, partial))
    }

    /// Writes sequence number and flags of the next frame, whose payload has `len` bytes.
    fn put_tcp(&self, frame: &mut [u8], len: usize) -> Option<()> {
        let Layers { l4, payload, .. } = self.layers;
        let done = u32::try_from(self.next - payload).ok()?;
        put(frame, l4 + 4, be32(frame, l4 + 4)?.wrapping_add(done).to_be_bytes());
        let mut flags = byte(frame, l4 + 13)?;
        // FIN ends the stream and PSH the write: both belong to the last segment (as in Linux's tcp_gso_segment).
        flags &= if self.next + len == self.len { 0xFF } else { !(TCP_FIN | TCP_PSH) };
        flags &= if self.index == 0 || !self.cwr_once { 0xFF } else { !TCP_CWR };
        put(frame, l4 + 13, [flags]);
        Some(())
    }

    /// Writes lengths, id and checksum of the last of `headers` for the next frame, whose inner headers are final.
    fn put_header(&self, frame: &mut [u8], headers: &[Header], pseudo: u16) -> Option<()> {
        let (&Header { kind, at }, before) = headers.split_last()?;
        let l4 = self.layers.l4;
        let len = frame.len() - at;
        match kind {
            Kind::Ipv4 => {
                put(frame, at + 2, u16::try_from(len).ok()?.to_be_bytes());
                // Ids count up by one per segment, from the super-frame's.
                put(frame, at + 4, be16(frame, at + 4)?.wrapping_add(self.index).to_be_bytes());
                put(frame, at + 10, [0; 2]);
                let header = usize::from(byte(frame, at)? & 0xF) * 4;
                debug_assert!(header >= ipv4::LEN, "as was seen when it was found");
                let check = match frame.get(at..)?.first_chunk() {
                    Some(plain) if header == ipv4::LEN => ipv4::plain_checksum(plain),
                    _ => checksum(frame.get(at..at + header)?),
                };
                put(frame, at + 10, check.to_be_bytes());
            }
            Kind::Ipv6 => {
                put(frame, at + 4, u16::try_from(len - ipv6::LEN).ok()?.to_be_bytes());
            }
            Kind::Udp => {
                put(frame, at + 4, u16::try_from(len).ok()?.to_be_bytes());
                // 0 means that the tunnel sends no checksum (RFC 768), and it stays so.
                if be16(frame, at + UDP_FIELD)? != 0 {
                    put(frame, at + UDP_FIELD, [0; 2]);
                    let ip = partial::pseudo_header(frame, *before.last()?, ip_proto::UDP, len)?;
                    let check = partial::sum_if_complete(frame, at, l4, pseudo)?.with16(ip.fold());
                    // 0 would say that there is none (RFC 768).
                    put(frame, at + UDP_FIELD, not_zero(check.finish()).to_be_bytes());
                }
            }
            Kind::Gre => self.put_gre(frame, at, pseudo)?,
        }
        Some(())
    }

    /// Writes sequence number and checksum of GRE, if it has them.
    fn put_gre(&self, frame: &mut [u8], at: usize, pseudo: u16) -> Option<()> {
        let flags = be16(frame, at)?;
        if let Some(sequence) = gre::sequence_at(flags) {
            let number = be32(frame, at + sequence)?.wrapping_add(self.index.into());
            put(frame, at + sequence, number.to_be_bytes());
        }
        if flags & gre::CHECKSUM != 0 {
            put(frame, at + 4, [0; 2]);
            let check: Sum = partial::sum_if_complete(frame, at, self.layers.l4, pseudo)?;
            put(frame, at + 4, check.finish().to_be_bytes());
        }
        Some(())
    }
}

const fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xFFFF } else { checksum }
}

#[cfg(test)]
mod tests {
    use etherparse::{IpNumber, PacketBuilder, SlicedPacket, TransportSlice};

    use weft_base::rng::Rng;

    use super::super::csum;
    use super::*;

    struct Case {
        name: &'static str,
        v6: bool,
        udp: bool,
        tags: usize,
        payload: usize,
        size: u16,
        ecn: bool,
    }

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
    }

    /// A super-frame as the kernel hands it over; lengths too large for IP are left at 0.
    fn super_frame(case: &Case) -> Vec<u8> {
        let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if case.v6 {
            eth.ipv6([1; 16], [9; 16], 64)
        } else {
            eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut frame = Vec::new();
        let payload = body(case.payload);
        if case.udp {
            ip.udp(1, 2).write(&mut frame, &payload).unwrap();
        } else {
            let tcp = ip.tcp(1, 2, 0xFFFF_F000, 4).psh().fin();
            let tcp = if case.ecn { tcp.cwr() } else { tcp };
            tcp.write(&mut frame, &payload).unwrap();
        }
        for tag in 0..case.tags {
            let bytes = if tag == 0 { [0x81, 0, 0x60, 5] } else { [0x88, 0xA8, 0, 9] };
            frame.splice(12..12, bytes);
        }
        frame
    }

    fn gso_type(case: &Case) -> u8 {
        let kind = match (case.udp, case.v6) {
            (true, _) => GSO_UDP_L4,
            (_, true) => GSO_TCPV6,
            _ => GSO_TCPV4,
        };
        kind | if case.ecn { GSO_ECN } else { 0 }
    }

    fn l4(case: &Case) -> u16 {
        let ip = if case.v6 { 40 } else { 20 };
        u16::try_from(14 + 4 * case.tags + ip).unwrap()
    }

    fn split(case: &Case) -> Vec<Vec<u8>> {
        let whole = super_frame(case);
        let mut splitter =
            Splitter::new(&whole, gso_type(case), case.size, Some(l4(case))).unwrap();
        let mut frames = Vec::new();
        while splitter.left() > 0 {
            let mut into = vec![0xEE; splitter.next_len()];
            let mut one_by_one = Splitter { next_headers: None, ..splitter };
            let (len, partial) = splitter.emit(&whole, &mut into).unwrap();
            assert_eq!(len, into.len());
            let mut same = vec![0xDD; len];
            assert_eq!(one_by_one.emit(&whole, &mut same), Some((len, partial)));
            assert!(same == into, "{}: its headers as computed", case.name);
            assert!(csum::complete_frame(&mut into, partial));
            frames.push(into);
        }
        assert_eq!(splitter.emit(&whole, &mut [0; 2_000]), None, "{}", case.name);
        frames
    }

    #[rustfmt::skip] // columns: name, IPv6, UDP, tags, payload, size, CWR
    const CASES: [(&str, bool, bool, usize, usize, u16, bool); 9] = [
        ("one exact",      false, false, 0, 1_448,  1_448, false),
        ("one byte over", false, false, 0, 1_449,  1_448, false),
        ("largest v4",     false, false, 0, 65_000, 1_448, false),
        ("largest v6",     true,  false, 0, 65_000, 1_428, false),
        ("tagged",         false, false, 1, 10_000, 1_448, false),
        ("two tags, v6",   true,  false, 2, 10_000, 1_428, false),
        ("cwr",            false, false, 0, 5_000,  1_000, true),
        ("udp v4",         false, true,  0, 9_001,  1_000, false),
        ("udp v6 tagged",  true,  true,  1, 3_000,  1_472, false),
    ];

    fn cases() -> impl Iterator<Item = Case> {
        CASES.into_iter().map(|(name, v6, udp, tags, payload, size, ecn)| Case {
            name,
            v6,
            udp,
            tags,
            payload,
            size,
            ecn,
        })
    }

    /// Segments of a few bytes would be made of a hostile neighbour's long frame by the ten thousand.
    #[test]
    fn only_segments_of_a_size_that_hosts_send_are_worth_splitting() {
        #[rustfmt::skip] // columns: name, udp, bytes of payload, of a segment, bytes of TCP options, worth it
        let cases = [
            ("one byte each",        false, 60_000,     1,  0, false),
            ("just too short",        false,  5_000,   535,  0, false),
            ("least",                 false,  5_000,   536,  0, true),
            ("least with timestamps", false,  5_000,   524, 12, true),
            ("too short with them",   false,  5_000,   523, 12, false),
            ("short, but only one",   false,    100,   100,  0, true),
            ("udp",                   true,  60_000,   100,  0, false),
            ("udp, least",            true,  60_000,   536,  0, true),
            ("as usual",              false, 60_000, 1_448, 12, true),
        ];
        for (name, udp, payload, size, options, want) in cases {
            let case = Case { name, v6: false, udp, tags: 0, payload, size, ecn: false };
            let mut whole = super_frame(&case);
            let l4 = usize::from(l4(&case));
            if options > 0 {
                whole[l4 + 12] += 0x10 * (options / 4);
                let at = l4 + 20;
                whole.splice(at..at, std::iter::repeat_n(1, usize::from(options)));
            }
            let splitter = Splitter::new(&whole, gso_type(&case), size, None).unwrap();
            assert_eq!(splitter.is_worth_it(), want, "{name}");
        }
    }

    #[test]
    fn the_frames_carry_the_payload_with_right_headers_and_checksums() {
        for case in cases() {
            let name = case.name;
            let frames = split(&case);
            let count = case.payload.div_ceil(usize::from(case.size));
            assert_eq!(frames.len(), count, "{name}");
            let mut joined = Vec::new();
            for (index, frame) in frames.iter().enumerate() {
                let packet = SlicedPacket::from_ethernet(frame).unwrap();
                assert_eq!(packet.vlan_ids().len(), case.tags, "{name}");
                let last = index + 1 == count;
                let ip = packet.net.clone().unwrap();
                if let Some(v4) = ip.ipv4_ref() {
                    let header = v4.header().to_header();
                    assert_eq!(header.header_checksum, header.calc_header_checksum(), "{name}");
                    assert_eq!(usize::from(header.identification), index, "{name}");
                    let total = frame.len() - 14 - 4 * case.tags;
                    assert_eq!(usize::from(header.total_len), total, "{name}");
                }
                if let Some(v6) = ip.ipv6_ref() {
                    let total = frame.len() - 54 - 4 * case.tags;
                    assert_eq!(usize::from(v6.header().payload_length()), total, "{name}");
                }
                let number = if case.udp { IpNumber::UDP } else { IpNumber::TCP };
                let payload = match packet.transport.unwrap() {
                    TransportSlice::Tcp(tcp) => {
                        assert_eq!(number, IpNumber::TCP);
                        let header = tcp.to_header();
                        let want = if case.v6 {
                            tcp.calc_checksum_ipv6([1; 16], [9; 16])
                        } else {
                            tcp.calc_checksum_ipv4([10, 0, 0, 1], [10, 0, 0, 2])
                        };
                        assert_eq!(header.checksum, want.unwrap(), "{name} {index}");
                        let seq = u32::try_from(index).unwrap() * u32::from(case.size);
                        assert_eq!(header.sequence_number, 0xFFFF_F000_u32.wrapping_add(seq));
                        assert_eq!((header.fin, header.psh), (last, last), "{name} {index}");
                        assert_eq!(header.cwr, case.ecn && index == 0, "{name} {index}");
                        tcp.payload()
                    }
                    TransportSlice::Udp(udp) => {
                        let header = udp.to_header();
                        let payload = udp.payload();
                        let want = if case.v6 {
                            header.calc_checksum_ipv6_raw([1; 16], [9; 16], payload)
                        } else {
                            header.calc_checksum_ipv4_raw([10, 0, 0, 1], [10, 0, 0, 2], payload)
                        };
                        assert_eq!(header.checksum, want.unwrap(), "{name} {index}");
                        payload
                    }
                    other => panic!("{name}: {other:?}"),
                };
                joined.extend_from_slice(payload);
            }
            assert_eq!(joined, body(case.payload), "{name}");
        }
    }

    #[test]
    fn headers_that_do_not_fit_the_type_are_refused() {
        let case = || Case {
            name: "",
            v6: false,
            udp: false,
            tags: 0,
            payload: 3_000,
            size: 1_000,
            ecn: false,
        };
        let whole = super_frame(&case());
        #[rustfmt::skip] // columns: name, gso type, size, csum_start
        let cases = [
            ("v6 type on v4",   GSO_TCPV6,  1_000,  None),
            ("udp type on tcp", GSO_UDP_L4, 1_000,  None),
            ("ufo",             3,          1_000,  None),
            ("unknown",         77,         1_000,  None),
            ("no size",         GSO_TCPV4,  0,      None),
            ("size too large",  GSO_TCPV4,  65_520, None),
            ("inner segment",   GSO_TCPV4,  1_000,  Some(84)),
        ];
        for (name, kind, size, start) in cases {
            assert_eq!(Splitter::new(&whole, kind, size, start), Err(BadGso), "{name}");
        }
        assert!(Splitter::new(&whole, GSO_TCPV4, 1_000, None).is_ok());
    }

    #[test]
    fn no_cut_or_damaged_header_makes_it_panic() {
        for case in cases() {
            let whole = super_frame(&case);
            let head = usize::from(l4(&case)) + 24;
            for len in 0..head {
                let cut = &whole[..len];
                if let Ok(mut splitter) = Splitter::new(cut, gso_type(&case), case.size, None) {
                    assert!(splitter.left() <= 1, "{}", case.name);
                    splitter.emit(cut, &mut [0; 2_000]);
                }
            }
            for at in 0..head {
                for value in [0, 1, 0x45, 0x4F, 0x60, 0xFF] {
                    let mut damaged = whole.clone();
                    damaged[at] = value;
                    let made = Splitter::new(&damaged, gso_type(&case), case.size, None);
                    let Ok(mut splitter) = made else { continue };
                    let mut bound = 70_000;
                    while splitter.left() > 0 && bound > 0 {
                        if splitter.emit(&damaged, &mut [0; 2_000]).is_none() {
                            splitter.skip();
                        }
                        bound -= 1;
                    }
                    assert!(bound > 0, "{} {at}", case.name);
                }
            }
        }
    }

    fn set_id(frame: &mut [u8], id: u16) {
        put(frame, 18, id.to_be_bytes());
        put(frame, 24, [0; 2]);
        let check = checksum(&frame[14..34]);
        put(frame, 24, check.to_be_bytes());
    }

    /// Counters that overflow, in tunnels with and without a checksum, and frames that are left out.
    #[test]
    fn headers_that_are_counted_on_are_those_that_are_computed() {
        let mut rng = Rng::new(0x5E6);
        for round in 0..200 {
            let case = Case {
                name: "",
                v6: rng.chance(1, 3),
                udp: false,
                tags: 0,
                payload: 20_000 + usize::try_from(rng.below(10_000)).unwrap(),
                size: 700 + u16::try_from(rng.below(800)).unwrap(),
                ecn: rng.chance(1, 2),
            };
            let mut whole = super_frame(&case);
            let (mut start, mut kind) = (l4(&case), gso_type(&case));
            if !case.v6 {
                set_id(&mut whole, 0xFFF0);
            }
            if rng.chance(1, 2) {
                let outer = PacketBuilder::ethernet2([6; 6], [8; 6]).ipv4([10; 4], [11; 4], 64);
                let mut tunnel = Vec::new();
                let inside = [&[8, 0, 0, 0, 0, 0, 42, 0], whole.as_slice()].concat();
                outer.udp(40_000, 4_789).write(&mut tunnel, &inside).unwrap();
                set_id(&mut tunnel, 0xFFF8);
                if rng.chance(1, 2) {
                    put(&mut tunnel, 40, [0; 2]); // no checksum
                }
                (whole, start, kind) = (tunnel, start + 50, kind | GSO_UDP_TUNNEL_IPV4);
            }
            let mut splitter = Splitter::new(&whole, kind, case.size, Some(start)).unwrap();
            while splitter.left() > 0 {
                if rng.chance(1, 9) {
                    splitter.skip();
                    continue;
                }
                let mut one_by_one = Splitter { next_headers: None, ..splitter };
                let mut frames = [vec![0; splitter.next_len()], vec![0; splitter.next_len()]];
                let [counted, computed] = &mut frames;
                assert_eq!(
                    splitter.emit(&whole, counted),
                    one_by_one.emit(&whole, computed),
                    "{round}"
                );
                assert!(counted == computed, "{round}: frame {}", one_by_one.index);
            }
        }
    }

    #[test]
    fn a_super_frame_without_payload_is_one_frame() {
        let case =
            Case { name: "", v6: false, udp: false, tags: 0, payload: 0, size: 1_000, ecn: false };
        assert_eq!(split(&case).len(), 1);
    }
}
