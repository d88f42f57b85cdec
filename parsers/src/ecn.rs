//! ECN of a frame, and marking it in place.
//!
//! ECT(0) and ECT(1) become CE, and the IPv4 checksum follows; nothing else changes.
//!
//! Source: RFC 3168 section 5, RFC 1624; docs/spec/wire-formats.md §2.4; docs/spec/pipeline.md §8.

use crate::ipv4::{Ipv4, Ipv4Mut};
use crate::ipv6::{Ipv6, Ipv6Mut};
use crate::types::Ecn;

/// Marks the IP packet at `ip_offset` of `frame` as having met congestion, if its sender lets it be
/// marked: Not-ECT and CE are left alone. Returns whether the frame was changed. A frame that holds
/// no valid IPv4 or IPv6 header there ([`crate::Head::ip_valid`]) is left alone as well. A checksum
/// that is wrong stays wrong, by as much. An ICRC stays right: it masks these bytes.
#[inline]
pub fn mark_ce(frame: &mut [u8], ip_offset: usize) -> bool {
    let Some(packet) = frame.get_mut(ip_offset..) else { return false };
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Ok((view, _)) = Ipv4::parse(packet) else { return false };
            // no room for its own header: a router would drop it, and `Head::ip_valid` is false for
            // it, too
            let fits = usize::from(view.total_len()) >= view.header_len();
            if !fits || !view.ecn().is_ect() {
                return false;
            }
            // CE is 11, so that setting both bits marks ECT(0) and ECT(1) alike and leaves DSCP as
            // it is
            let tos = view.tos() | Ecn::Ce as u8;
            let Ok(mut ip) = Ipv4Mut::parse(packet) else { return false };
            ip.set_tos(tos);
            true
        }
        Some(6) => {
            let Ok(mut ip) = Ipv6Mut::parse(packet) else { return false };
            let class = ip.traffic_class();
            let marks = Ecn::from_low_bits(class).is_ect();
            if marks {
                ip.set_traffic_class(class | Ecn::Ce as u8);
            }
            marks
        }
        _ => false,
    }
}

/// The ECN field of the IP packet at `ip_offset` of `frame`; `None` where none begins there.
#[inline]
#[must_use]
pub fn ecn_of(frame: &[u8], ip_offset: usize) -> Option<Ecn> {
    let packet = frame.get(ip_offset..)?;
    match packet.first()? >> 4 {
        4 => Ipv4::parse(packet).ok().map(|(view, _)| view.ecn()),
        6 => Ipv6::parse(packet).ok().map(|(view, _)| Ecn::from_low_bits(view.traffic_class())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{HEAD_LEN, ParseConfig, parse_head};
    use crate::ipv4::Ipv4Repr;
    use crate::ipv6::{self, Ipv6, Ipv6Repr};
    use crate::testing::Rng;
    use core::net::{Ipv4Addr, Ipv6Addr};

    //= RFC 3168 section 5
    const WANT: [(Ecn, bool, Ecn); 4] = [
        (Ecn::NotEct, false, Ecn::NotEct),
        (Ecn::Ect1, true, Ecn::Ce),
        (Ecn::Ect0, true, Ecn::Ce),
        (Ecn::Ce, false, Ecn::Ce),
    ];

    #[test]
    fn ipv4_marks_ect_only_and_keeps_the_checksum_right() {
        let mut rng = Rng::new(14);
        for tos in 0..=u8::MAX {
            let (before, changed, after) = WANT[usize::from(tos & 3)];
            let mut frame: [u8; 60] = rng.bytes();
            let ip = Ipv4Repr {
                tos,
                total_len: 20 + rng.u16() / 2,
                id: rng.u16(),
                fragment: 0,
                ttl: rng.u8(),
                proto: 17,
                src: Ipv4Addr::from(rng.u32()),
                dst: Ipv4Addr::from(rng.u32()),
            };
            ip.emit(frame[18..38].first_chunk_mut().unwrap());
            let untouched = frame;
            assert_eq!(mark_ce(&mut frame, 18), changed, "{before:?}");
            let (view, _) = Ipv4::parse(&frame[18..]).unwrap();
            assert_eq!(view.repr(), Ipv4Repr { tos: tos & !3 | after as u8, ..ip });
            assert!(view.is_checksum_ok());
            assert_eq!((&frame[..18], &frame[38..]), (&untouched[..18], &untouched[38..]));
            assert!(changed || frame == untouched);
        }
    }

    #[test]
    fn ipv6_marks_ect_only() {
        let mut rng = Rng::new(15);
        for traffic_class in 0..=u8::MAX {
            let (before, changed, after) = WANT[usize::from(traffic_class & 3)];
            let mut frame: [u8; 70] = rng.bytes();
            let ip = Ipv6Repr {
                traffic_class,
                flow_label: rng.u32() >> 12,
                payload_len: rng.u16(),
                next_header: 17,
                hop_limit: rng.u8(),
                src: Ipv6Addr::from(rng.bytes::<16>()),
                dst: Ipv6Addr::from(rng.bytes::<16>()),
            };
            ip.emit(frame[14..14 + ipv6::LEN].first_chunk_mut().unwrap());
            let untouched = frame;
            assert_eq!(mark_ce(&mut frame, 14), changed, "{before:?}");
            let (view, _) = Ipv6::parse(&frame[14..]).unwrap();
            let want = Ipv6Repr { traffic_class: traffic_class & !3 | after as u8, ..ip };
            assert_eq!(view.repr(), want);
            assert_eq!((&frame[..14], &frame[54..]), (&untouched[..14], &untouched[54..]));
        }
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        let v4 = {
            let mut frame = [0; 40];
            frame[14..18].copy_from_slice(&[0x45, 1, 0, 20]);
            frame
        };
        let v6 = {
            let mut frame = [0; 60];
            frame[14..16].copy_from_slice(&[0x60, 0x10]);
            frame
        };
        let v4_with = |at: usize, byte: u8| {
            let mut frame = v4;
            frame[at] = byte;
            frame
        };
        let (ihl, wordy, short) = (v4_with(14, 0x44), v4_with(14, 0x4F), v4_with(17, 19));
        #[rustfmt::skip] // columns: name, frame, offset
        let cases: [(&str, &[u8], usize); 9] = [
            ("ipv4 one byte short", &v4[..33], 14),
            ("ipv6 one byte short", &v6[..53], 14),
            ("version 0",            &v4,       0),
            ("ihl below 5",          &ihl,      14),
            ("options not there",    &wordy,    14),
            ("total length 19",      &short,    14),
            ("at the end",           &v4,       40),
            ("beyond the end",       &v4,       41),
            ("far beyond",           &v4,       usize::MAX),
        ];
        for (name, bytes, offset) in cases {
            let mut frame = [0; 60];
            let frame = &mut frame[..bytes.len()];
            frame.copy_from_slice(bytes);
            assert!(!mark_ce(frame, offset), "{name}");
            assert_eq!(frame, bytes, "{name}");
        }
        assert!(mark_ce(&mut { v4 }[..34], 14) && mark_ce(&mut { v6 }[..54], 14));
    }

    /// A frame is marked exactly if classification calls its IP valid and its ECN is ECT.
    #[test]
    fn classification_and_marking_agree_on_what_is_ip() {
        let mut rng = Rng::new(16);
        let (mut marked, mut left) = (0, 0);
        for _ in 0..100_000 {
            let mut head: [u8; HEAD_LEN] = rng.bytes();
            let ether_types: [[u8; 2]; 5] =
                [[8, 0], [0x86, 0xDD], [0x81, 0], [0x88, 0xB5], [0x88, 0xA8]];
            let mut one_of =
                |all: &[[u8; 2]]| all[usize::try_from(rng.below(all.len() as u64)).unwrap()];
            head[12..14].copy_from_slice(&one_of(&ether_types));
            head[16..18].copy_from_slice(&one_of(&[
                [8, 0],
                [0x86, 0xDD],
                [0, 20],
                [0, 23],
                [0, 60],
            ]));
            let ip = if head[12..14] == [0x81, 0] { 18 } else { 14 };
            head[ip] = one_of(&[[0x45; 2], [0x46; 2], [0x44; 2], [0x60; 2], [0x4F; 2]])[0];
            head[ip + 2..ip + 4].copy_from_slice(&one_of(&[[0, 19], [0, 20], [0, 24], [9, 9]]));
            let Ok(found) = parse_head(&head, HEAD_LEN, &ParseConfig::DEFAULT) else { continue };
            let want = found.ip_valid() && found.ecn().is_some_and(Ecn::is_ect);
            let mut frame = head;
            assert_eq!(mark_ce(&mut frame, ip) && found.has_ip(), want, "{head:02x?}");
            if want {
                marked += 1;
            } else {
                left += 1;
            }
        }
        assert!(marked > 5_000 && left > 5_000, "{marked} marked, {left} left");
    }
}
