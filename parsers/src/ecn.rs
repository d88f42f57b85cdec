//! ECN marking of a frame in place.
//! Shape: ECT(0) and ECT(1) become CE; the IPv4 checksum follows, nothing else changes.
//! Units: octets.
//! Source: RFC 3168 section 5, RFC 1624; wire-formats.md 2.4; pipeline.md 8.

use crate::ipv4::Ipv4Mut;
use crate::ipv6::Ipv6Mut;
use crate::types::Ecn;

/// Marks the IP packet at `ip_offset` of `frame` as having met congestion, if its sender lets it be
/// marked: Not-ECT and CE are left alone. Returns whether the frame was changed. A frame that holds
/// no IPv4 or IPv6 header there is left alone as well. An ICRC stays right: it masks these octets.
#[inline]
pub fn mark_ce(frame: &mut [u8], ip_offset: usize) -> bool {
    let Some(packet) = frame.get_mut(ip_offset..) else { return false };
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Ok(mut ip) = Ipv4Mut::parse(packet) else { return false };
            let tos = ip.tos();
            let marks = Ecn::from_low_bits(tos).is_ect();
            if marks {
                ip.set_tos(tos | Ecn::Ce as u8);
            }
            marks
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::{Ipv4, Ipv4Repr};
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
                total_len: rng.u16(),
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
            frame[14..16].copy_from_slice(&[0x45, 1]);
            frame
        };
        let v6 = {
            let mut frame = [0; 60];
            frame[14..16].copy_from_slice(&[0x60, 0x10]);
            frame
        };
        #[rustfmt::skip] // columns: name, frame, offset
        let cases: [(&str, &[u8], usize); 6] = [
            ("ipv4 one octet short", &v4[..33], 14),
            ("ipv6 one octet short", &v6[..53], 14),
            ("version 0",            &v4,       0),
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
}
