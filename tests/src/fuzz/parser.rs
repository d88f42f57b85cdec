//! The parser: one pass over the first 64 bytes against the views of the single headers.
//!
//! The first byte chooses settings, the rest is a frame. The facts of [`parse_head`] are compared
//! with each view.
//!
//! Source: docs/spec/wire-formats.md §1 and §2.

use weft_dataplane::port::csum::complete_frame;
use weft_parsers::afh::{Gen1, Gen2, Lite};
use weft_parsers::bth::Bth;
use weft_parsers::cc_update::CcUpdate;
use weft_parsers::ethernet::Ethernet;
use weft_parsers::ipv4::Ipv4;
use weft_parsers::ipv6::Ipv6;
use weft_parsers::mac_control::MacControl;
use weft_parsers::rh::Rh;
use weft_parsers::vlan::{Tpids, VlanTag};
use weft_parsers::{
    AddrKey, AfhMode, Ecn, Format, Gen2Order, HEAD_LEN, Head, IpVersion, MacAddr, ParseConfig,
    ParseError, Pause, Pfc, mark_ce, parse_head, partial,
};

use super::Input;

const MODES: [AfhMode; 5] =
    [AfhMode::Auto, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::None];

/// The settings that `byte` stands for.
fn config(byte: u8) -> ParseConfig {
    let mode = MODES
        .into_iter()
        .cycle()
        .nth(usize::from(byte >> 6 | (byte & 1) << 2))
        .unwrap_or(AfhMode::Auto);
    ParseConfig {
        afh: mode,
        gen2_order: if byte & 4 == 0 { Gen2Order::Slap } else { Gen2Order::AsDocumented },
        tpids: Tpids::new(if byte & 8 == 0 { &[0x8100] } else { &[0x88A8, 0x8100] })
            .unwrap_or(Tpids::CTAG),
        udp_type2: if byte & 16 == 0 { 0 } else { 4_792 },
        port_mac: if byte & 2 == 0 { MacAddr::ZERO } else { MacAddr([2, 0, 0, 0, 0, 1]) },
        ..ParseConfig::DEFAULT
    }
}

/// Parses the frame behind the first byte, with the settings that the byte stands for.
///
/// # Panics
/// The parser contradicts a view.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let config = config(input.byte());
    let frame = input.take(usize::MAX);
    views_do_not_panic(frame);
    a_completed_checksum_is_complete(frame);
    let mut head = [0; HEAD_LEN];
    // as the dataplane hands it over: zeros behind a short frame
    let seen = frame.len().min(HEAD_LEN);
    head[..seen].copy_from_slice(&frame[..seen]);
    match parse_head(&head, frame.len(), &config) {
        Err(ParseError::Short { need, had, .. }) => {
            assert_eq!(usize::from(had), frame.len(), "all of the frame was there");
            assert!(need > had, "refused with {had} of {need} bytes");
        }
        Err(other) => panic!("parse_head refuses short frames only, not {other}"),
        Ok(found) => {
            addresses(&found, frame, &config);
            network(&found, frame);
        }
    }
}

/// A checksum that is found partial lies in the frame, wherever a tunnel may lead, and completing
/// it twice changes nothing: the second time it is complete, or its value is by chance the one
/// before.
fn a_completed_checksum_is_complete(frame: &[u8]) {
    let Some(left) = partial::find(frame, &[]) else { return };
    let mut done = frame.to_vec();
    assert!(complete_frame(&mut done, left), "{left:?} in {} bytes", frame.len());
    let again = partial::find(&done, &[]).filter(|again| again.start == left.start);
    if let Some(again) = again {
        let once = done.clone();
        assert!(complete_frame(&mut done, again));
        assert_eq!(done, once, "{left:?}");
    }
}

/// Views and the marker take any bytes at any offset.
fn views_do_not_panic(frame: &[u8]) {
    let pfc = Pfc::parse(frame).ok();
    let paused = (0..=u8::MAX).filter(|&class| pfc.is_some_and(|pfc| pfc.class(class).is_some()));
    assert!(paused.count() <= 8, "PFC has eight classes");
    let parsed = [
        Pause::parse(frame).is_ok(),
        MacControl::parse(frame).is_ok_and(|(control, _)| control.opcode() != 0),
        Rh::parse(frame).is_ok_and(|(rh, _)| rh.repr().psn < 1 << 12),
        CcUpdate::parse(frame).is_ok(),
        Bth::parse(frame).is_ok_and(|(bth, _)| bth.repr().pad < 4),
    ];
    assert!(!frame.is_empty() || parsed == [false; 5], "nothing is read from nothing");
    // `usize::MAX` and the frame's end: no offset may panic
    for offset in [0, 14, 18, frame.len(), usize::MAX] {
        let mut copy = frame.to_vec();
        let was_right = frame.get(offset..).is_some_and(is_right);
        if mark_ce(&mut copy, offset) && was_right {
            assert!(copy.get(offset..).is_some_and(is_right), "a mark keeps the checksum right");
        }
        assert_eq!(copy.len(), frame.len());
    }
}

/// Whether an IPv4 header with a right checksum starts at `packet`.
fn is_right(packet: &[u8]) -> bool {
    Ipv4::parse(packet).is_ok_and(|(ip, _)| ip.is_checksum_ok())
}

/// Addresses, tag and Traffic Class are those of the format's own view.
fn addresses(found: &Head, frame: &[u8], config: &ParseConfig) {
    let (ethernet, behind) = Ethernet::parse(frame).expect("a frame that parses has addresses");
    let (mut tag, mut kind) = (None, ethernet.ether_type());
    if config.tpids.contains(kind) && found.format() != Format::AfhLite {
        let (view, _) = VlanTag::parse(behind).expect("a tag that is named is whole");
        (tag, kind) = (Some(view.tci()), view.ether_type());
    }
    assert_eq!(found.tci(), tag);
    assert_eq!(found.tagged(), tag.is_some());
    let of_frame = (found.dst(), found.src(), found.tc());
    match found.format() {
        Format::AfhGen1 => {
            let (view, _) = Gen1::parse(frame).expect("as long as addresses");
            let (dst, src) = (AddrKey::ethernet(view.dst()), AddrKey::gen1(view.src()));
            assert_eq!(of_frame.1, src);
            assert!(of_frame.0.address() & 0xFF_FFFF_FFFF == dst.address() & 0xFF_FFFF_FFFF);
            assert_eq!(of_frame.2, Some(view.tc()));
        }
        Format::AfhGen2 => {
            // `auto` may have read the frame in the other order than the port's
            let agrees = [Gen2Order::Slap, Gen2Order::AsDocumented].into_iter().any(|order| {
                Gen2::parse(frame, order).is_ok_and(|(view, _)| {
                    let (dst, src) = (AddrKey::id16(view.dst()), AddrKey::id16(view.src()));
                    of_frame == (dst, src, Some(view.tc()))
                })
            });
            assert!(agrees, "no order of GEN2 reads so: {of_frame:?}");
        }
        Format::AfhLite => {
            let (view, _) = Lite::parse(frame, config.gen2_order).expect("as long as addresses");
            let (dst, src) = (AddrKey::id16(view.dst()), AddrKey::id16(view.src()));
            assert_eq!(of_frame, (dst, src, Some(view.tc())));
        }
        _ => {
            let (dst, src) = (AddrKey::ethernet(ethernet.dst()), AddrKey::ethernet(ethernet.src()));
            assert_eq!(of_frame, (dst, src, None));
            assert_eq!(found.group(), ethernet.dst().is_group());
        }
    }
    if found.format() == Format::MacControl {
        assert_eq!(kind, 0x8808);
        assert!(!found.has_ip());
    }
}

/// DSCP, ECN and protocol are those of the IP view.
fn network(found: &Head, frame: &[u8]) {
    let Some(offset) = found.ip_offset() else {
        assert_eq!((found.dscp(), found.ecn()), (None, None));
        assert!(!found.to_standard_port(), "nothing to mark without IP");
        return;
    };
    let packet = frame.get(usize::from(offset)..).expect("the header lies in the frame");
    match found.ip_version() {
        Some(IpVersion::V4) => {
            // Malformed header lengths are forwarded as other Ethernet, so the view may refuse.
            if let Ok((ip, _)) = Ipv4::parse(packet) {
                assert_eq!(found.dscp(), Some(ip.dscp()));
                assert_eq!(found.ecn(), Some(ip.ecn()));
                assert_eq!(found.ip_proto(), ip.proto());
                assert!(
                    !(ip.is_fragment() && found.to_standard_port()),
                    "a fragment is not Standard"
                );
            }
        }
        Some(IpVersion::V6) => {
            let (ip, _) = Ipv6::parse(packet).expect("a header that is named is whole");
            assert_eq!(found.dscp(), Some(ip.dscp()));
            assert_eq!(found.ecn(), Some(ip.ecn()));
            assert_eq!(found.ip_proto(), ip.next_header());
        }
        None => panic!("an IP header without a version"),
    }
    assert!(found.ip_valid() || !found.to_standard_port(), "Standard is IP");
    // the mark must follow from the facts of the head alone, as the pipeline goes by them
    let mut copy = frame.to_vec();
    let changed = mark_ce(&mut copy, usize::from(offset));
    let want = found.ip_valid() && found.ecn().is_some_and(Ecn::is_ect);
    assert_eq!(changed, want, "all of valid IP that is ECT is marked, and nothing else");
}

#[cfg(test)]
mod tests {
    use super::super::frames::Mutator;
    use super::*;

    #[test]
    fn damaged_frames_agree_with_the_views_in_every_mode() {
        let mut mutator = Mutator::new(3);
        let mut bytes = Vec::new();
        for _ in 0..200_000 {
            bytes.clear();
            bytes.push(u8::try_from(mutator.below(256)).unwrap());
            bytes.extend_from_slice(mutator.frame());
            run(&bytes);
        }
    }
}
