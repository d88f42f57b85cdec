//! Partial checksums: found in frames that etherparse builds, as the kernel would leave them.
//! TCP and UDP over IPv4 and IPv6, tagged or not; the field holds the pseudo-header's sum or the
//! checksum that etherparse computes.
//!
//! Units: bytes.
//! Source: etherparse 0.21; docs/spec/pipeline.md §11.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use etherparse::{PacketBuilder, PacketBuilderStep, SingleVlanHeader, VlanHeader, VlanId, VlanPcp};
use weft_parsers::checksum::{pseudo_v4, pseudo_v6};
use weft_parsers::partial::{PartialCsum, Place, find, place, pseudo_sum};
use weft_parsers::{HEAD_LEN, Head, ParseConfig, parse_head};

const SOURCE: [u8; 16] = [0xFE, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xFF];
const TARGET: [u8; 16] = [0x20, 0x01, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0xAA, 0xBB, 0xCC, 0xDD];

/// A frame with its right checksum, and the folded sum of its pseudo-header.
fn frame(udp: bool, v6: bool, tagged: bool, payload: &[u8]) -> (Vec<u8>, u16) {
    let start = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let (source, target) = ([192, 168, 255, 254], [10, 1, 2, 3]);
    let ip = match (tagged, v6) {
        (false, false) => start.ipv4(source, target, 64),
        (false, true) => start.ipv6(SOURCE, TARGET, 64),
        (true, v6) => {
            let tag = SingleVlanHeader {
                pcp: VlanPcp::try_new(3).unwrap(),
                vlan_id: VlanId::try_new(7).unwrap(),
                ..SingleVlanHeader::default()
            };
            let start = start.vlan(VlanHeader::Single(tag));
            if v6 { start.ipv6(SOURCE, TARGET, 64) } else { start.ipv4(source, target, 64) }
        }
    };
    let mut out = Vec::new();
    let (l4_len, proto) = if udp { (8, 17) } else { (20, 6) };
    if udp {
        ip.udp(5000, 5001).write_to_vec(&mut out, payload).unwrap();
    } else {
        write_tcp(ip, &mut out, payload);
    }
    let len = u16::try_from(l4_len + payload.len()).unwrap();
    let sum = if v6 {
        pseudo_v6(SOURCE, TARGET, proto, len.into())
    } else {
        pseudo_v4(source, target, proto, len)
    };
    (out, sum.fold())
}

fn write_tcp(ip: PacketBuilderStep<etherparse::IpHeaders>, out: &mut Vec<u8>, payload: &[u8]) {
    ip.tcp(5000, 5001, 1, 1024).write_to_vec(out, payload).unwrap();
}

fn head(frame: &[u8], cfg: &ParseConfig) -> ([u8; HEAD_LEN], Head) {
    let mut bytes = [0; HEAD_LEN];
    let part = frame.len().min(HEAD_LEN);
    bytes[..part].copy_from_slice(&frame[..part]);
    (bytes, parse_head(&bytes, frame.len(), cfg).unwrap())
}

#[test]
fn the_field_and_what_it_holds_while_partial_are_found() {
    for bits in 0..8_u8 {
        let (udp, v6, tagged) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        for len in [0, 1, 2, 999] {
            let (frame, pseudo) = frame(udp, v6, tagged, &vec![0x5A; len]);
            let (bytes, head) = head(&frame, &ParseConfig::DEFAULT);
            let start = 14 + if tagged { 4 } else { 0 } + if v6 { 40 } else { 20 };
            let field = start + if udp { 6 } else { 16 };
            let name = format!("udp {udp}, v6 {v6}, tagged {tagged}, {len} bytes");
            assert_eq!(place(&head), Place::At { start, field }, "{name}");
            assert_eq!(pseudo_sum(&bytes, &head), pseudo, "{name}");
            let complete = u16::from_be_bytes([frame[field], frame[field + 1]]);
            assert_ne!(complete, pseudo, "{name}: a complete one differs");
        }
    }
}

#[test]
fn fixed_fields_fragments_and_other_protocols_have_none_and_options_hide_it() {
    let (plain, _) = frame(true, false, false, &[0; 40]);
    let (six, _) = frame(false, true, false, &[0; 40]);
    let with = |frame: &[u8], changes: &[(usize, u8)]| {
        let mut changed = frame.to_vec();
        for &(at, byte) in changes {
            changed[at] = byte;
        }
        changed
    };
    #[rustfmt::skip] // columns: name, frame, want
    let cases = [
        ("Standard",                 with(&plain, &[(36, 0x12), (37, 0xB7)]), Place::Nowhere),
        ("more fragments",           with(&plain, &[(20, 0x20)]),             Place::Nowhere),
        ("ICMP",                     with(&plain, &[(23, 1)]),                Place::Nowhere),
        ("SCTP",                     with(&plain, &[(23, 132)]),              Place::Nowhere),
        ("no room for UDP",          with(&plain, &[(16, 0), (17, 27)]),      Place::Nowhere),
        ("IPv4 options",             with(&plain, &[(14, 0x46)]),             Place::Hidden),
        ("hop by hop",               with(&six, &[(20, 0)]),                  Place::Hidden),
        ("IPv6 fragment",            with(&six, &[(20, 44)]),                 Place::Hidden),
        ("ICMPv6",                   with(&six, &[(20, 58)]),                 Place::Nowhere),
        ("not IP",                   with(&plain, &[(12, 0x08), (13, 0x06)]), Place::Nowhere),
        ("MAC control",              with(&plain, &[(12, 0x88), (13, 0x08)]), Place::Nowhere),
    ];
    for (name, frame, want) in cases {
        let (_, head) = head(&frame, &ParseConfig::DEFAULT);
        assert_eq!(place(&head), want, "{name}");
    }
}

#[test]
fn a_partial_checksum_is_found_by_its_value() {
    for bits in 0..8_u8 {
        let (udp, v6, tagged) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        for len in [0, 1, 100, 1_400] {
            let name = format!("udp {udp}, v6 {v6}, tagged {tagged}, {len} bytes");
            let (mut frame, pseudo) = frame(udp, v6, tagged, &vec![0x5A; len]);
            assert_eq!(find(&frame, &[]), None, "{name}: complete");
            let l3 = 14 + if tagged { 4 } else { 0 };
            let start = l3 + if v6 { 40 } else { 20 };
            let field = start + if udp { 6 } else { 16 };
            frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
            let want = partial(start, field - start);
            assert_eq!(find(&frame, &[]), Some(want), "{name}");
            let (bytes, head) = head(&frame, &ParseConfig::DEFAULT);
            let place = place(&head);
            assert_eq!(place, Place::At { start, field }, "{name}: one pass says the same");
            assert_eq!(pseudo_sum(&bytes, &head), pseudo, "{name}: one pass says the same");
            assert_eq!(find(&frame, &[5001]), (!udp).then_some(want), "{name}: a fixed value");
            let more = [&frame[..12], &[0x88, 0xA8, 0, 5], &frame[12..]].concat();
            assert_eq!(find(&more, &[]), Some(partial(start + 4, field - start)), "{name}: a tag");
            for cut in 0..frame.len() {
                assert_eq!(find(&frame[..cut], &[]), None, "{name}, cut to {cut}");
            }
            let padded = [frame.as_slice(), &[0; 3]].concat();
            assert_eq!(find(&padded, &[]), None, "{name}: padded");
            if !v6 {
                let mut fragment = frame.clone();
                fragment[l3 + 6] |= 0x20;
                assert_eq!(find(&fragment, &[]), None, "{name}: a fragment");
            }
        }
    }
    assert_eq!(find(&[0; 60], &[]), None, "not IP");
}

#[test]
fn options_and_extension_headers_are_passed_over() {
    let (mut four, pseudo) = frame(true, false, false, &[1; 20]);
    four[40..42].copy_from_slice(&pseudo.to_be_bytes());
    four.splice(34..34, [1; 4]); // an option
    four[14] = 0x46;
    let len = u16::try_from(four.len() - 14).unwrap();
    four[16..18].copy_from_slice(&len.to_be_bytes());
    assert_eq!(find(&four, &[]), Some(partial(38, 6)));
    let (_, hidden) = head(&four, &ParseConfig::DEFAULT);
    assert_eq!(place(&hidden), Place::Hidden, "one pass does not look there");

    let (mut six, pseudo) = frame(false, true, false, &[1; 20]);
    six[70..72].copy_from_slice(&pseudo.to_be_bytes());
    six.splice(54..54, [6, 0, 1, 4, 0, 0, 0, 0]); // hop by hop, then TCP
    six[20] = 0;
    let len = u16::try_from(six.len() - 54).unwrap();
    six[18..20].copy_from_slice(&len.to_be_bytes());
    assert_eq!(find(&six, &[]), Some(partial(62, 16)));
    six[20] = 44; // a fragment header
    assert_eq!(find(&six, &[]), None);
}

fn partial(start: usize, offset: usize) -> PartialCsum {
    let [start, offset] = [start, offset].map(|at| u16::try_from(at).unwrap());
    PartialCsum { start, offset }
}
