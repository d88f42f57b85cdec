//! Flow hash: a number that all frames of a flow share, by which one of several links is chosen.
//!
//! `(frame, Head, VLAN)` to `u64`; every bit depends on every field that tells flows apart.
//!
//! Source: IEEE 802.1AX-2020 8.2 (frames of a conversation take one link);
//! docs/spec/wire-formats.md §1.5 and §2.1.
//!
//! Fields that tell flows apart: destination and source in their space (so that no Traffic Class and no payload
//! counts), VLAN, IP addresses and protocol, TCP and UDP ports, and the destination QP behind an RH (the
//! low bits of that of a BTH lie at the same place). A fragment has no ports, not even the first one: so
//! the whole of a datagram takes one link. Behind IPv6 extension headers there are none either.

use crate::head::Head;
use crate::types::{IpVersion, Vid, ip_proto};
use crate::{ethernet, udp, vlan};

/// Two odd numbers without a pattern (the golden ratio's and one of `xxHash`'s).
const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// Bits of a destination QP.
pub(crate) const QP_MASK: u16 = (1 << 13) - 1;
/// Offset of the destination QP's low bits in an RH and in a BTH.
pub(crate) const QP_AT: usize = 6;

/// The hash of `frame`'s flow; `head` is the result of its classification, `vid` its VLAN.
#[must_use]
pub fn flow_hash(frame: &[u8], head: &Head, vid: Vid) -> u64 {
    // the keys leave out Traffic Class and payload of AFH, which differ between frames of one flow
    let mut hash = mix(K1 ^ head.dst().to_bits(), head.src().to_bits());
    hash = mix(hash, u64::from(vid.get()) << 8 | u64::from(head.ip_proto()));
    if let (Some(version), Some(at)) = (head.ip_version(), head.ip_offset()) {
        let at = usize::from(at);
        let addresses = match version {
            IpVersion::V4 => at + 12..at + 20,
            IpVersion::V6 => at + 8..at + 40,
        };
        for word in frame.get(addresses).unwrap_or_default().chunks(8) {
            hash = mix(hash, number(word));
        }
    }
    let l4 = head.l4_offset().map(usize::from);
    if let (Some(at), ip_proto::TCP | ip_proto::UDP) = (l4, head.ip_proto()) {
        hash = mix(hash, number(frame.get(at..at + 4).unwrap_or_default()));
    }
    if head.rh_opcode().is_some() {
        let at = match l4 {
            Some(at) => at + udp::LEN,
            None if head.tagged() => ethernet::LEN + vlan::LEN,
            None => ethernet::LEN,
        };
        let qp = number(frame.get(at + QP_AT..at + QP_AT + 2).unwrap_or_default());
        hash = mix(hash, qp & u64::from(QP_MASK));
    }
    hash
}

/// Bytes as a number, first one highest.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// One number from two, by a wide multiplication whose halves are folded, and once more.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
const fn mix(hash: u64, word: u64) -> u64 {
    let wide = ((hash ^ word.rotate_left(32)) ^ K2) as u128 * (word ^ K1) as u128;
    let folded = (wide >> 64) as u64 ^ wide as u64 ^ hash.rotate_left(23);
    let again = folded as u128 * K2 as u128;
    (again >> 64) as u64 ^ again as u64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::classify::{HEAD_LEN, ParseConfig, parse_head};
    use crate::types::AfhMode;

    const LEN: usize = 120;

    fn hash(frame: &[u8], afh: AfhMode, vid: u16) -> u64 {
        let mut head = [0; HEAD_LEN];
        let seen = frame.len().min(HEAD_LEN);
        head[..seen].copy_from_slice(&frame[..seen]);
        let config = ParseConfig { afh, ..ParseConfig::DEFAULT };
        let head = parse_head(&head, frame.len(), &config).unwrap();
        flow_hash(frame, &head, Vid::from_low_bits(vid))
    }

    fn frame(parts: &[&[u8]]) -> [u8; LEN] {
        let mut frame = [0x11; LEN];
        let mut at = 0;
        for part in parts {
            frame[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        frame
    }

    const MACS: &[u8] = &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    const V4: &[u8] = &[0x45, 0, 0, 100, 7, 7, 0, 0, 64, 17, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2];

    /// Bytes of a frame that are in its flow's hash, found by turning one bit of each.
    fn counted(frame: &[u8], afh: AfhMode, bit: u8) -> Vec<usize> {
        let base = hash(frame, afh, 1);
        let differs = |at: &usize| {
            let mut other = frame.to_vec();
            other[*at] ^= bit;
            hash(&other, afh, 1) != base
        };
        (0..frame.len()).filter(differs).collect()
    }

    #[test]
    fn what_tells_flows_apart_counts_and_nothing_else_does() {
        let tcp = {
            let mut tcp = V4.to_vec();
            tcp[9] = 6;
            tcp
        };
        let fragment = {
            let mut fragment = V4.to_vec();
            fragment[6] = 0x20;
            fragment
        };
        let v6 = [&[0x60, 0, 0, 0, 0, 40, 17, 64][..], &[0xFD; 32]].concat();
        let udp: &[u8] = &[0x30, 0, 0x40, 0, 0, 40, 0, 0];
        let standard: &[u8] = &[0x30, 0, 0x12, 0xB7, 0, 40, 0, 0];
        let lite = [&[0x40, 1, 2, 3, 0, 1, 0x40, 4, 5, 6, 0, 2][..]].concat();
        let (ip, ports) = ([23, 26, 27, 28, 29, 30, 31, 32, 33], [34, 35, 36, 37]);
        let macs: Vec<usize> = (0..12).collect();
        let with = |more: &[usize]| [&macs[..], more].concat();
        let (v4, tag) = (&[8, 0][..], &[0x81, 0, 0, 5, 8, 0][..]);
        let header: &[usize] = &[14, 20, 21]; // version, length, fragments: these say what there is
        #[rustfmt::skip] // columns: name, frame, mode, bytes that make it another kind of frame, that count
        let cases = [
            ("plain", frame(&[MACS, &[0x88, 0xB7]]), AfhMode::Auto, &[][..], with(&[])),
            ("udp", frame(&[MACS, v4, V4, udp]), AfhMode::Auto, header, with(&[&ip[..], &ports].concat())),
            ("tcp", frame(&[MACS, v4, &tcp]), AfhMode::Auto, header, with(&[&ip[..], &ports].concat())),
            ("fragment", frame(&[MACS, v4, &fragment, udp]), AfhMode::Auto, header, with(&ip)),
            ("tagged", frame(&[MACS, tag, V4, udp]), AfhMode::Auto, &[16, 17, 18, 24, 25],
             with(&[&ip[..], &ports].concat().iter().map(|at| at + 4).collect::<Vec<_>>())),
            ("standard", frame(&[MACS, v4, V4, standard]), AfhMode::Auto, header,
             with(&[&ip[..], &ports, &[48, 49]].concat())),
            ("udp over v6", frame(&[MACS, &[0x86, 0xDD], &v6, udp]), AfhMode::Auto, &[],
             with(&[&[20][..], &(22..58).collect::<Vec<_>>()].concat())),
            ("gen1", frame(&[MACS, &[0x88, 0xB5]]), AfhMode::Gen1, &[0],
             [&(1..6).collect::<Vec<_>>()[..], &[7, 8, 9, 10, 11, 20, 21]].concat()),
            ("lite", frame(&[&lite]), AfhMode::Lite, &[], vec![4, 5, 10, 11]),
        ];
        for (name, frame, mode, kind, want) in cases {
            let own = |at: &usize| ![12, 13].contains(at) && !kind.contains(at);
            let got: Vec<_> = counted(&frame, mode, 1).into_iter().filter(own).collect();
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn the_vlan_counts_and_a_tag_s_priority_does_not() {
        let tagged = |pcp: u8| frame(&[MACS, &[0x81, 0, pcp << 5, 5, 8, 0], V4]);
        assert_eq!(hash(&tagged(0), AfhMode::Auto, 5), hash(&tagged(7), AfhMode::Auto, 5));
        assert_ne!(hash(&tagged(0), AfhMode::Auto, 5), hash(&tagged(0), AfhMode::Auto, 6));
        let untagged = frame(&[MACS, &[8, 0], V4]);
        assert_eq!(hash(&tagged(0), AfhMode::Auto, 5), hash(&untagged, AfhMode::Auto, 5));
    }

    #[test]
    fn any_length_that_parses_has_a_hash() {
        let frame = frame(&[MACS, &[8, 0], V4, &[0x30, 0, 0x40, 0, 0, 8]]);
        let whole = hash(&frame, AfhMode::Auto, 1);
        for len in 42..LEN {
            assert_eq!(hash(&frame[..len], AfhMode::Auto, 1), whole, "{len}");
        }
    }

    #[test]
    fn each_bit_is_even_over_numbered_flows() {
        let mut ones = [0_u32; 64];
        for flow in 0..4_096_u16 {
            let mut frame = frame(&[MACS, &[8, 0], V4, &[0, 0, 0x40, 0, 0, 40]]);
            frame[34..36].copy_from_slice(&flow.to_be_bytes());
            let hash = hash(&frame, AfhMode::Auto, 1);
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += u32::from(hash >> bit & 1 != 0);
            }
        }
        // 2,048 expected; five standard deviations are 160.
        assert!(ones.iter().all(|ones| (1_888..=2_208).contains(ones)), "{ones:?}");
    }
}
