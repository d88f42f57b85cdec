//! Standard layers held against `pnet_packet`, which shares no code with this crate, nor with etherparse.
//!
//! Seeded random frames that one side writes field by field and the other reads; checksums from scratch.
//!
//! Units: bytes.
//! Source: `pnet_packet` 0.35.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic; helpers outside test functions too"
)]

use core::net::{Ipv4Addr, Ipv6Addr};

use pnet_packet::Packet;
use pnet_packet::ethernet::{EtherType, EthernetPacket, MutableEthernetPacket};
use pnet_packet::flowcontrol::{FlowControlOpcodes, FlowControlPacket};
use pnet_packet::ip::IpNextHeaderProtocol;
use pnet_packet::ipv4::{self, Ipv4Packet, MutableIpv4Packet};
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet_packet::tcp::{self, TcpPacket};
use pnet_packet::udp::{self, MutableUdpPacket, UdpPacket};
use pnet_packet::vlan::{ClassOfService, MutableVlanPacket, VlanPacket};
use weft_parsers::checksum::{complete, pseudo_v4, pseudo_v6};
use weft_parsers::frame::{FrameRepr, HeaderRepr, StandardRepr};
use weft_parsers::mac_control::{FRAME_LEN, Pause};
use weft_parsers::rh::RhRepr;
use weft_parsers::{
    Dscp, Ecn, Format, HEAD_LEN, MacAddr, ParseConfig, RhOpcode, Tci, ecn_of, ether_type, mark_ce,
    parse_head,
};

use crate::etherparse::Rng;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Bytes of `rng`, up to `most`.
fn payload(rng: &mut Rng, most: usize) -> Vec<u8> {
    let len = rng.below(most + 1);
    (0..len).map(|_| rng.u8()).collect()
}

/// A Standard frame as we emit it, whose fields `pnet_packet` reads, layer by layer.
#[test]
fn standard_frames_are_read_field_by_field() {
    let mut rng = Rng::new(0x9E7_0001);
    for _ in 0..3_000 {
        let standard = StandardRepr {
            dst: MacAddr(rng.bytes()),
            src: MacAddr(rng.bytes()),
            tos: rng.u8(),
            id: rng.u16(),
            ttl: rng.u8(),
            ip_src: rng.u32().into(),
            ip_dst: rng.u32().into(),
            sport: rng.u16(),
            dport: 4_791,
        };
        let tag = (rng.below(2) == 0).then(|| Tci(rng.u16()));
        let data = payload(&mut rng, 300);
        let frame = emitted(standard, tag, &data, rng.below(2) == 0);

        let outer = EthernetPacket::new(&frame).unwrap();
        assert_eq!(outer.get_destination().octets(), standard.dst.0);
        assert_eq!(outer.get_source().octets(), standard.src.0);
        let (inner, len) = match tag {
            None => {
                assert_eq!(outer.get_ethertype().0, ether_type::IPV4);
                (outer.payload(), frame.len() - 14)
            }
            Some(tci) => {
                let tag = VlanPacket::new(outer.payload()).unwrap();
                assert_eq!(outer.get_ethertype().0, ether_type::CTAG);
                assert_eq!(tag.get_priority_code_point().0, tci.pcp().get());
                assert_eq!(tag.get_drop_eligible_indicator() != 0, tci.dei());
                assert_eq!(tag.get_vlan_identifier(), tci.vid().get());
                assert_eq!(tag.get_ethertype().0, ether_type::IPV4);
                (&frame[18..], frame.len() - 18)
            }
        };
        let ip = Ipv4Packet::new(inner).unwrap();
        assert_eq!((ip.get_version(), ip.get_header_length()), (4, 5));
        assert_eq!((ip.get_dscp(), ip.get_ecn()), (standard.tos >> 2, standard.tos & 3));
        assert_eq!(usize::from(ip.get_total_length()), len);
        assert_eq!((ip.get_identification(), ip.get_ttl()), (standard.id, standard.ttl));
        assert_eq!((ip.get_flags(), ip.get_fragment_offset()), (0b010, 0), "do not fragment");
        assert_eq!((ip.get_source(), ip.get_destination()), (standard.ip_src, standard.ip_dst));
        assert_eq!(ip.get_checksum(), ipv4::checksum(&ip));
        let udp = UdpPacket::new(ip.payload()).unwrap();
        assert_eq!((udp.get_source(), udp.get_destination()), (standard.sport, 4_791));
        assert_eq!(usize::from(udp.get_length()), len - 20);
        assert_eq!(udp.get_checksum(), 0xFFFF, "fixed, as docs/spec/wire-formats.md has it");
        assert_eq!(udp.payload()[8..8 + data.len()], data, "behind the RC Link header");
    }
}

fn emitted(standard: StandardRepr, tag: Option<Tci>, payload: &[u8], icrc: bool) -> Vec<u8> {
    let rh = RhRepr {
        opcode: RhOpcode::Send,
        fack: false,
        pad: 0,
        timestamp_en: false,
        timestamp: 0,
        p_key: 1,
        len_or_syndrome: 0,
        psn: 1,
        dest_qp: 1,
    };
    let header = HeaderRepr::Standard(standard);
    let tag = tag.map(|tci| (ether_type::CTAG, tci));
    let frame = FrameRepr { header, tag, rh, payload, icrc };
    let mut out = vec![0; frame.len()];
    assert_eq!(frame.emit(&mut out), Ok(out.len()));
    out
}

/// A frame as `pnet_packet` writes it: our parser finds its fields, the packet and its ECN; a mark leaves a checksum that
/// `pnet_packet` computes from scratch.
#[test]
fn frames_of_pnet_are_classified_and_marked() {
    let mut rng = Rng::new(0x9E7_0002);
    let mut marked = 0;
    for round in 0..6_000 {
        let (is_v6, is_tagged) = (round % 2 == 0, round % 3 == 0);
        let (class, tci) = (rng.u8(), Tci(rng.u16()));
        let ip = if is_tagged { 18 } else { 14 };
        let data = payload(&mut rng, 60);
        let mut frame = written(&mut rng, is_v6, class, is_tagged.then_some(tci), &data);

        let mut front = [0; HEAD_LEN];
        front.iter_mut().zip(&frame).for_each(|(to, from)| *to = *from);
        let head = parse_head(&front, frame.len(), &ParseConfig::DEFAULT).unwrap();
        assert_eq!((head.format(), head.tagged()), (Format::Other, is_tagged));
        assert_eq!(head.tci(), is_tagged.then_some(tci));
        assert_eq!(head.ip_offset().map(usize::from), Some(ip));
        assert_eq!(head.dscp().map(Dscp::get), Some(class >> 2));
        let ecn = Ecn::from_low_bits(class);
        assert_eq!((head.ecn(), ecn_of(&frame, ip)), (Some(ecn), Some(ecn)));

        let before = frame.clone();
        let changes = mark_ce(&mut frame, ip);
        assert_eq!(changes, matches!(class & 3, 1 | 2), "{class:#x}");
        marked += u32::from(changes);
        let now = if changes { class | 3 } else { class };
        if is_v6 {
            let packet = Ipv6Packet::new(&frame[ip..]).unwrap();
            assert_eq!(packet.get_traffic_class(), now);
        } else {
            let packet = Ipv4Packet::new(&frame[ip..]).unwrap();
            assert_eq!(packet.get_dscp() << 2 | packet.get_ecn(), now);
            assert_eq!(packet.get_checksum(), ipv4::checksum(&packet), "{class:#x}");
        }
        assert_eq!(frame != before, changes);
    }
    assert!(marked > 2_000, "{marked}");
}

fn written(rng: &mut Rng, is_v6: bool, class: u8, tag: Option<Tci>, data: &[u8]) -> Vec<u8> {
    let ip = if tag.is_some() { 18 } else { 14 };
    let ip_len = if is_v6 { 40 } else { 20 };
    let mut frame = vec![0; ip + ip_len + 8 + data.len()];
    let ether = EtherType(if is_v6 { ether_type::IPV6 } else { ether_type::IPV4 });
    let mut outer = MutableEthernetPacket::new(&mut frame).unwrap();
    let (dst, src): ([u8; 6], [u8; 6]) = (rng.bytes(), rng.bytes());
    outer.set_destination(dst.into());
    outer.set_source(src.into());
    outer.set_ethertype(if tag.is_some() { EtherType(ether_type::CTAG) } else { ether });
    if let Some(tci) = tag {
        let mut tag = MutableVlanPacket::new(&mut frame[14..]).unwrap();
        tag.set_priority_code_point(ClassOfService(tci.pcp().get()));
        tag.set_drop_eligible_indicator(tci.dei().into());
        tag.set_vlan_identifier(tci.vid().get());
        tag.set_ethertype(ether);
    }
    let udp_len = u16::try_from(8 + data.len()).unwrap();
    if is_v6 {
        let mut packet = MutableIpv6Packet::new(&mut frame[ip..]).unwrap();
        packet.set_version(6);
        packet.set_traffic_class(class);
        packet.set_flow_label(rng.u32() >> 12);
        packet.set_payload_length(udp_len);
        packet.set_next_header(IpNextHeaderProtocol(UDP));
        packet.set_source(Ipv6Addr::from(rng.bytes::<16>()));
        packet.set_destination(Ipv6Addr::from(rng.bytes::<16>()));
    } else {
        let mut packet = MutableIpv4Packet::new(&mut frame[ip..]).unwrap();
        packet.set_version(4);
        packet.set_header_length(5);
        packet.set_dscp(class >> 2);
        packet.set_ecn(class & 3);
        packet.set_total_length(20 + udp_len);
        packet.set_identification(rng.u16());
        packet.set_ttl(rng.u8());
        packet.set_next_level_protocol(IpNextHeaderProtocol(UDP));
        packet.set_source(Ipv4Addr::from(rng.u32()));
        packet.set_destination(Ipv4Addr::from(rng.u32()));
        packet.set_checksum(ipv4::checksum(&packet.to_immutable()));
    }
    let mut packet = MutableUdpPacket::new(&mut frame[ip + ip_len..]).unwrap();
    packet.set_source(rng.u16());
    packet.set_destination(1_000);
    packet.set_length(udp_len);
    packet.set_payload(data);
    frame
}

/// A partial checksum of TCP or UDP over both versions, completed, is the one that `pnet_packet` computes from scratch.
#[test]
fn completed_checksums_agree() {
    let mut rng = Rng::new(0x9E7_0003);
    for round in 0..4_000 {
        let proto = if round % 2 == 0 { TCP } else { UDP };
        let (field, header) = if proto == TCP { (16, 20) } else { (6, 8) };
        let data = payload(&mut rng, 40);
        let mut packet: Vec<u8> = (0..header).map(|_| rng.u8()).chain(data).collect();
        let len = u16::try_from(packet.len()).unwrap();
        if proto == TCP {
            packet[12] = 5 << 4; // no options
        } else {
            packet[4..6].copy_from_slice(&len.to_be_bytes());
        }
        let (pseudo, want) = if round % 4 < 2 {
            let (src, dst) = (rng.bytes::<4>(), rng.bytes::<4>());
            let ends = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
            let want = if proto == TCP {
                tcp::ipv4_checksum(&TcpPacket::new(&packet).unwrap(), &ends.0, &ends.1)
            } else {
                udp::ipv4_checksum(&UdpPacket::new(&packet).unwrap(), &ends.0, &ends.1)
            };
            (pseudo_v4(src, dst, proto, len).fold(), want)
        } else {
            let (src, dst) = (rng.bytes::<16>(), rng.bytes::<16>());
            let ends = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
            let want = if proto == TCP {
                tcp::ipv6_checksum(&TcpPacket::new(&packet).unwrap(), &ends.0, &ends.1)
            } else {
                udp::ipv6_checksum(&UdpPacket::new(&packet).unwrap(), &ends.0, &ends.1)
            };
            (pseudo_v6(src, dst, proto, len.into()).fold(), want)
        };
        packet[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        assert!(complete(&mut packet, field, proto == UDP));
        let had = u16::from_be_bytes(packet[field..field + 2].try_into().unwrap());
        // A UDP checksum of 0 says that there is none, so that one is sent as 0xFFFF (RFC 768).
        let want = if proto == UDP && want == 0 { 0xFFFF } else { want };
        assert_eq!(had, want, "protocol {proto}, {len} bytes");
    }
}

/// PAUSE of IEEE 802.3x, as `pnet_packet` reads it.
#[test]
fn pause_is_read() {
    let mut rng = Rng::new(0x9E7_0004);
    for _ in 0..500 {
        let (quanta, mut out) = (rng.u16(), [0; FRAME_LEN]);
        Pause { quanta }.emit(MacAddr(rng.bytes()), &mut out);
        let outer = EthernetPacket::new(&out).unwrap();
        assert_eq!(outer.get_destination().octets(), MacAddr::PAUSE.0);
        assert_eq!(outer.get_ethertype().0, ether_type::MAC_CONTROL);
        let pause = FlowControlPacket::new(outer.payload()).unwrap();
        assert_eq!(pause.get_command(), FlowControlOpcodes::Pause);
        assert_eq!(pause.get_quanta(), quanta);
    }
}
