//! Standard layers held against etherparse, which shares no code with this crate.
//! Seeded random headers and frames, intact, damaged and cut short; both readers must agree.
//!
//! Units: bytes.
//! Source: etherparse 0.21.

#![expect(
    clippy::indexing_slicing,
    reason = "a test may panic; helpers outside test functions too"
)]

use etherparse::err::{ipv4, ipv6};
use etherparse::{
    EtherType, Ethernet2Header, Ethernet2HeaderSlice, IpNumber, Ipv4Header, Ipv4HeaderSlice,
    Ipv6Header, Ipv6HeaderSlice, SingleVlanHeader, SingleVlanHeaderSlice, UdpHeader,
    UdpHeaderSlice,
};
use weft_parsers::checksum::{complete, pseudo_v4, pseudo_v6};
use weft_parsers::ethernet::{Ethernet, EthernetRepr};
use weft_parsers::ipv4::{Ipv4, Ipv4Repr};
use weft_parsers::ipv6::{Ipv6, Ipv6Repr};
use weft_parsers::udp::{Udp, UdpRepr};
use weft_parsers::vlan::{VlanTag, VlanTagRepr};
use weft_parsers::{
    Field, Format, HEAD_LEN, IpVersion, MacAddr, ParseConfig, ParseError, Tci, parse_head,
};

/// Seeded random numbers (xorshift64).
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u64().to_be_bytes()[3])
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_be_bytes(self.bytes())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes())
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u16()) % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Etherparse reads our emitters' bytes as the same fields, and the other way round.
#[test]
fn emitters_agree() {
    let mut rng = Rng(0x5EED_0001);
    for _ in 0..5000 {
        let ours = EthernetRepr {
            dst: MacAddr(rng.bytes()),
            src: MacAddr(rng.bytes()),
            ether_type: rng.u16(),
        };
        let theirs = Ethernet2Header {
            source: ours.src.0,
            destination: ours.dst.0,
            ether_type: EtherType(ours.ether_type),
        };
        let mut out = [0; 14];
        ours.emit(&mut out);
        assert_eq!(out, theirs.to_bytes());

        let ours = VlanTagRepr { tci: Tci(rng.u16()), ether_type: rng.u16() };
        let mut out = [0; 4];
        ours.emit(&mut out);
        let theirs = SingleVlanHeader::from_bytes(out);
        assert_eq!(theirs.pcp.value(), ours.tci.pcp().get());
        assert_eq!(theirs.drop_eligible_indicator, ours.tci.dei());
        assert_eq!(theirs.vlan_id.value(), ours.tci.vid().get());
        assert_eq!(theirs.to_bytes(), out);

        let ours = Ipv4Repr {
            tos: rng.u8(),
            total_len: rng.u16(),
            id: rng.u16(),
            fragment: rng.u16() & 0x7FFF,
            ttl: rng.u8(),
            proto: rng.u8(),
            src: rng.u32().into(),
            dst: rng.u32().into(),
        };
        let mut out = [0; 20];
        ours.emit(&mut out);
        let (theirs, _) = Ipv4Header::from_slice(&out).unwrap();
        assert_eq!(theirs.header_checksum, theirs.calc_header_checksum());
        assert_eq!(theirs.to_bytes()[..], out);
        assert_eq!(theirs.is_fragmenting_payload(), ours.fragment & 0x3FFF != 0);

        let ours = Ipv6Repr {
            traffic_class: rng.u8(),
            flow_label: rng.u32() >> 12,
            payload_len: rng.u16(),
            next_header: rng.u8(),
            hop_limit: rng.u8(),
            src: rng.bytes::<16>().into(),
            dst: rng.bytes::<16>().into(),
        };
        let mut out = [0; 40];
        ours.emit(&mut out);
        let (theirs, _) = Ipv6Header::from_slice(&out).unwrap();
        assert_eq!(theirs.traffic_class, ours.traffic_class);
        assert_eq!(theirs.flow_label.value(), ours.flow_label);
        assert_eq!(theirs.to_bytes()[..], out);

        let ours =
            UdpRepr { sport: rng.u16(), dport: rng.u16(), len: rng.u16(), checksum: rng.u16() };
        let mut out = [0; 8];
        ours.emit(&mut out);
        let theirs = UdpHeader {
            source_port: ours.sport,
            destination_port: ours.dport,
            length: ours.len,
            checksum: ours.checksum,
        };
        assert_eq!(out, theirs.to_bytes());
    }
}

/// Both read or both refuse the same bytes, whatever they are and wherever they end.
#[test]
fn views_agree() {
    let mut rng = Rng(0x5EED_0002);
    for _ in 0..50_000 {
        let random: [u8; 64] = rng.bytes();
        let bytes = &random[..rng.below(65)];
        match (Ethernet::parse(bytes), Ethernet2HeaderSlice::from_slice(bytes)) {
            (Ok((ours, _)), Ok(theirs)) => {
                assert_eq!(ours.dst().0, theirs.destination());
                assert_eq!(ours.src().0, theirs.source());
                assert_eq!(ours.ether_type(), theirs.ether_type().0);
            }
            (Err(ours), Err(theirs)) => assert_short(ours, theirs.required_len, bytes.len()),
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
        match (VlanTag::parse(bytes), SingleVlanHeaderSlice::from_slice(bytes)) {
            (Ok((ours, _)), Ok(theirs)) => {
                assert_eq!(ours.pcp().get(), theirs.priority_code_point().value());
                assert_eq!(ours.dei(), theirs.drop_eligible_indicator());
                assert_eq!(ours.vid().get(), theirs.vlan_identifier().value());
                assert_eq!(ours.ether_type(), theirs.ether_type().0);
            }
            (Err(ours), Err(theirs)) => assert_short(ours, theirs.required_len, bytes.len()),
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
        match (Udp::parse(bytes), UdpHeaderSlice::from_slice(bytes)) {
            (Ok((ours, _)), Ok(theirs)) => {
                assert_eq!(ours.sport(), theirs.source_port());
                assert_eq!(ours.dport(), theirs.destination_port());
                assert_eq!((ours.len(), ours.checksum()), (theirs.length(), theirs.checksum()));
            }
            (Err(ours), Err(theirs)) => assert_short(ours, theirs.required_len, bytes.len()),
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
    }
}

/// As above for the two versions of IP, which refuse by value as well.
#[test]
fn ip_views_agree() {
    let mut rng = Rng(0x5EED_0005);
    for _ in 0..50_000 {
        let mut random: [u8; 64] = rng.bytes();
        random[0] = rng.pick(&[0x45, 0x46, 0x4F, 0x44, 0x60, 0x6F, random[0]]);
        let bytes = &random[..rng.below(65)];
        match (Ipv4::parse(bytes), Ipv4HeaderSlice::from_slice(bytes)) {
            (Ok((ours, rest)), Ok(theirs)) => ipv4_agrees(ours, rest, theirs, bytes),
            (Err(ours), Err(ipv4::HeaderSliceError::Len(theirs))) => {
                assert_short(ours, theirs.required_len, bytes.len());
            }
            (Err(ParseError::Value { field, value, .. }), Err(theirs)) => {
                let want = match theirs {
                    ipv4::HeaderSliceError::Content(ipv4::HeaderError::UnexpectedVersion {
                        version_number,
                    }) => (Field::Version, version_number),
                    ipv4::HeaderSliceError::Content(
                        ipv4::HeaderError::HeaderLengthSmallerThanHeader { ihl },
                    ) => (Field::Ihl, ihl),
                    ipv4::HeaderSliceError::Len(error) => panic!("{error:?}"),
                };
                assert_eq!((field, value), (want.0, u16::from(want.1)));
            }
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
        match (Ipv6::parse(bytes), Ipv6HeaderSlice::from_slice(bytes)) {
            (Ok((ours, _)), Ok(theirs)) => {
                assert_eq!(ours.traffic_class(), theirs.traffic_class());
                assert_eq!(ours.dscp().get(), theirs.dscp().value());
                assert_eq!(ours.ecn() as u8, theirs.ecn().value());
                assert_eq!(ours.flow_label(), theirs.flow_label().value());
                assert_eq!(ours.payload_len(), theirs.payload_length());
                assert_eq!(ours.next_header(), theirs.next_header().0);
                assert_eq!(ours.hop_limit(), theirs.hop_limit());
                assert_eq!(
                    (ours.src(), ours.dst()),
                    (theirs.source_addr(), theirs.destination_addr())
                );
            }
            (Err(ours), Err(ipv6::HeaderSliceError::Len(theirs))) => {
                assert_short(ours, theirs.required_len, bytes.len());
            }
            (Err(ParseError::Value { field, .. }), Err(_)) => assert_eq!(field, Field::Version),
            (ours, theirs) => panic!("{ours:?} {theirs:?}"),
        }
    }
}

fn ipv4_agrees(ours: Ipv4<'_>, rest: &[u8], theirs: Ipv4HeaderSlice<'_>, bytes: &[u8]) {
    assert_eq!(ours.header_len(), theirs.slice().len());
    assert_eq!(ours.options(), theirs.options());
    assert_eq!(rest, &bytes[theirs.slice().len()..]);
    assert_eq!(ours.dscp().get(), theirs.dcp().value());
    assert_eq!(ours.ecn() as u8, theirs.ecn().value());
    assert_eq!((ours.total_len(), ours.id()), (theirs.total_len(), theirs.identification()));
    assert_eq!(ours.fragment() & 0x4000 != 0, theirs.dont_fragment());
    assert_eq!(ours.fragment() & 0x2000 != 0, theirs.more_fragments());
    assert_eq!(ours.fragment() & 0x1FFF, theirs.fragments_offset().value());
    assert_eq!(ours.is_fragment(), theirs.is_fragmenting_payload());
    assert_eq!((ours.ttl(), ours.proto()), (theirs.ttl(), theirs.protocol().0));
    assert_eq!((ours.src(), ours.dst()), (theirs.source_addr(), theirs.destination_addr()));
    // etherparse computes the sum over the fields it knows, which leaves out the reserved flag
    if ours.fragment() & 0x8000 == 0 {
        let right = theirs.to_header().calc_header_checksum() == theirs.header_checksum();
        assert_eq!(ours.is_checksum_ok(), right);
    }
}

fn assert_short(ours: ParseError, theirs_need: usize, len: usize) {
    let ParseError::Short { need, had, .. } = ours else { panic!("{ours:?}") };
    assert_eq!((usize::from(need), usize::from(had)), (theirs_need, len));
}

/// Facts of a frame, read with etherparse alone. `None`: malformed.
#[derive(Debug, PartialEq, Eq)]
struct HeadSummary {
    standard: bool,
    markable: bool,
    tci: Option<u16>,
    ip: Option<(IpVersion, usize, u8)>, // version, offset, TOS
    l4: Option<(usize, u8)>,            // offset, protocol
}

/// The rules of docs/spec/wire-formats.md §1.8 for a port without AFH, the plain way.
fn summary(frame: &[u8]) -> Option<HeadSummary> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).ok()?;
    let mut found = HeadSummary { standard: false, markable: false, tci: None, ip: None, l4: None };
    let (mut kind, mut at) = (ethernet.ether_type(), 14);
    if kind == EtherType::VLAN_TAGGED_FRAME {
        let tag = SingleVlanHeaderSlice::from_slice(&frame[at..]).ok()?;
        found.tci = Some(u16::from_be_bytes([frame[14], frame[15]]));
        (kind, at) = (tag.ether_type(), 18);
    }
    let packet = &frame[at..];
    if kind == EtherType::IPV4 {
        let ip = match Ipv4HeaderSlice::from_slice(packet) {
            Ok(ip) => ip,
            Err(ipv4::HeaderSliceError::Len(_)) => return Some(found),
            Err(ipv4::HeaderSliceError::Content(error)) => {
                if matches!(error, ipv4::HeaderError::HeaderLengthSmallerThanHeader { .. }) {
                    found.ip = Some((IpVersion::V4, at, packet[1]));
                }
                return Some(found);
            }
        };
        found.ip = Some((IpVersion::V4, at, ip.dcp().value() << 2 | ip.ecn().value()));
        if ip.is_fragmenting_payload() {
            return Some(found);
        }
        let l4 = ip.slice().len();
        if ip.protocol() == IpNumber::UDP && l4 == 20 {
            if ip.total_len() < 28 {
                return Some(found);
            }
            let Ok(udp) = UdpHeaderSlice::from_slice(&packet[l4..]) else { return Some(found) };
            found.standard = udp.destination_port() == 4791;
            found.markable = found.standard;
            if found.standard && udp.length() >= 16 && packet.len() < 36 {
                return None;
            }
        }
        found.l4 = Some((at + l4, ip.protocol().0));
    } else if kind == EtherType::IPV6 {
        // Cut short, or another version.
        let Ok(ip) = Ipv6HeaderSlice::from_slice(packet) else { return Some(found) };
        found.ip = Some((IpVersion::V6, at, ip.traffic_class()));
        let next = ip.next_header();
        if next.is_ipv6_ext_header_value() || next.0 == 50 || next.0 == 59 {
            return Some(found);
        }
        if next == IpNumber::UDP {
            if ip.payload_length() < 8 {
                return Some(found);
            }
            let Ok(udp) = UdpHeaderSlice::from_slice(&packet[40..]) else { return Some(found) };
            found.markable = udp.destination_port() == 4791;
        }
        found.l4 = Some((at + 40, next.0));
    }
    Some(found)
}

/// 100 bytes in which the values that decide something are likely.
fn likely_frame(rng: &mut Rng) -> [u8; 100] {
    let mut frame: [u8; 100] = rng.bytes();
    let mut at = 12;
    let kinds = [0x0800u16, 0x0800, 0x86DD, 0x0806, 0x88A8];
    if rng.below(3) == 0 {
        frame[at..at + 2].copy_from_slice(&[0x81, 0x00]);
        at += 4;
    }
    let kind = rng.pick(&kinds);
    frame[at..at + 2].copy_from_slice(&kind.to_be_bytes());
    let ip = at + 2;
    let (any, any16) = (rng.u8(), rng.u16());
    if kind == 0x86DD {
        let next = [17, 17, 17, 6, 58, 0, 43, 44, 50, 51, 59, 60, 135, 139, 140, any];
        frame[ip] = rng.pick(&[0x60, 0x60, 0x60, 0x6F, 0x45, any]);
        frame[ip + 4..ip + 6].copy_from_slice(&rng.pick(&[7, 8, any16]).to_be_bytes());
        frame[ip + 6] = rng.pick(&next);
    } else {
        let total_len = rng.pick(&[0, 20, 27, 28, 1000, any16]);
        let fragment = rng.pick(&[0u16, 0x4000, 0x4000, 0x8000, 0x2000, 1, 0x1000]);
        frame[ip] = rng.pick(&[0x45, 0x45, 0x45, 0x45, 0x46, 0x4F, 0x43, 0x60, any]);
        frame[ip + 2..ip + 4].copy_from_slice(&total_len.to_be_bytes());
        frame[ip + 6..ip + 8].copy_from_slice(&fragment.to_be_bytes());
        frame[ip + 9] = rng.pick(&[17, 17, 17, 6, 1, any]);
    }
    for l4 in [ip + 20, ip + 40] {
        if rng.below(2) == 0 {
            frame[l4 + 2..l4 + 4].copy_from_slice(&4791u16.to_be_bytes());
        }
        if rng.below(2) == 0 {
            frame[l4 + 4..l4 + 6].copy_from_slice(&rng.pick(&[8u16, 15, 16, 80]).to_be_bytes());
        }
    }
    frame
}

/// One function that reads 64 bytes at fixed offsets finds the same facts as layer-by-layer reading.
#[test]
fn classification_agrees() {
    let mut rng = Rng(0x5EED_0003);
    let cfg = ParseConfig { afh: weft_parsers::AfhMode::None, ..ParseConfig::DEFAULT };
    let (mut standard, mut malformed, mut six, mut cut) = (0, 0, 0, 0);
    for _ in 0..1_000_000 {
        let frame = likely_frame(&mut rng);
        let any = 30 + rng.below(40);
        let len = rng.pick(&[14, 17, 18, 34, 42, 50, 54, 60, 62, 64, 100, any, any, any]);
        let frame = &frame[..len];
        let mut head = [0; HEAD_LEN];
        let seen = frame.len().min(HEAD_LEN);
        head[..seen].copy_from_slice(&frame[..seen]);
        let found = parse_head(&head, frame.len(), &cfg).ok().map(|head| HeadSummary {
            standard: head.format() == Format::Standard,
            markable: head.to_standard_port(),
            tci: head.tci().map(|tci| tci.0),
            ip: head.ip_version().map(|version| {
                let tos = head.dscp().unwrap().get() << 2 | head.ecn().unwrap() as u8;
                (version, usize::from(head.ip_offset().unwrap()), tos)
            }),
            l4: head.l4_offset().map(|at| (usize::from(at), head.ip_proto())),
        });
        assert_eq!(found, summary(frame), "{frame:02x?}");
        standard += u32::from(found.as_ref().is_some_and(|found| found.standard));
        six += u32::from(found.as_ref().is_some_and(|found| found.markable && !found.standard));
        malformed += u32::from(found.is_none());
        cut += u32::from(len < 34 && found.is_some_and(|found| found.ip.is_none()));
    }
    let reached = [standard, six, malformed, cut];
    assert!(reached.iter().all(|&count| count > 1000), "all branches are reached: {reached:?}");
}

/// A partial checksum, completed, is the one that etherparse computes from scratch.
#[test]
fn completed_checksums_agree() {
    let mut rng = Rng(0x5EED_0004);
    for _ in 0..2000 {
        let payload: [u8; 33] = rng.bytes();
        let payload = &payload[..rng.below(34)];
        let len = u16::try_from(8 + payload.len()).unwrap();
        let udp = UdpRepr { sport: rng.u16(), dport: rng.u16(), len, checksum: 0 };
        let theirs = UdpHeader {
            source_port: udp.sport,
            destination_port: udp.dport,
            length: len,
            checksum: 0,
        };
        let (src, dst) = (rng.bytes::<4>(), rng.bytes::<4>());
        let ip = Ipv4Header::new(len, 64, IpNumber::UDP, src, dst).unwrap();
        let want = theirs.calc_checksum_ipv4(&ip, payload).unwrap();
        assert_eq!(completed(udp, pseudo_v4(src, dst, 17, len).fold(), payload), want);

        let (src, dst) = (rng.bytes::<16>(), rng.bytes::<16>());
        let ip = Ipv6Header { source: src, destination: dst, ..Ipv6Header::default() };
        let want = theirs.calc_checksum_ipv6(&ip, payload).unwrap();
        let pseudo = pseudo_v6(src, dst, 17, len.into()).fold();
        assert_eq!(completed(udp, pseudo, payload), want);
    }
}

/// Checksum of a datagram whose checksum field held `pseudo` before it was completed.
fn completed(udp: UdpRepr, pseudo: u16, payload: &[u8]) -> u16 {
    let mut packet = vec![0; 8];
    UdpRepr { checksum: pseudo, ..udp }.emit(packet.first_chunk_mut().expect("8 bytes"));
    packet.extend_from_slice(payload);
    assert!(complete(&mut packet, 6, true));
    Udp::parse(&packet).expect("8 bytes and more").0.checksum()
}
