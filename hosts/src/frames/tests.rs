//! Frames compared with the parsers' own builder, read by the receiver, and damaged on purpose.
//!
//! Tables run over kinds, lengths and priorities.
//!
//! Source: docs/spec/wire-formats.md §1, §2.

use weft_base::rng::Rng;
use weft_dataplane::time::Instant;
use weft_parsers::frame::{FrameRepr, HeaderRepr, StandardRepr};
use weft_parsers::rh::RhRepr;
use weft_parsers::{AfhMode, HEAD_LEN, ParseConfig, afh, mark_ce};

use super::*;
use crate::stamp::Reading;

const DATA: [Kind; 6] =
    [Kind::Standard, Kind::Gen1, Kind::Gen2, Kind::Lite, Kind::Ethernet, Kind::Roce6];
const STAMP: Stamp = Stamp { stream: 9, seq: 0x0012_3456_789A, sent: Instant::from_ps(77_000) };

fn spec(kind: Kind) -> FrameSpec {
    FrameSpec::new(kind, Station::numbered(1), Station::numbered(0x302))
}

fn tagged(kind: Kind) -> FrameSpec {
    spec(kind).with_vlan(Pcp::from_low_bits(3), Vid::from_low_bits(100))
}

/// Every data kind, with and without tag and ICRC where it can have them.
fn variants() -> Vec<FrameSpec> {
    let all = DATA.into_iter().flat_map(|kind| {
        [(spec(kind), false), (tagged(kind), false), (spec(kind), true), (tagged(kind), true)]
    });
    let all = all.map(|(spec, icrc)| FrameSpec { icrc, ..spec });
    all.filter(|spec| spec.check().is_ok()).collect()
}

fn config(kind: Kind) -> ParseConfig {
    let afh = if kind == Kind::Lite { AfhMode::Lite } else { AfhMode::Auto };
    ParseConfig { afh, ..ParseConfig::DEFAULT }
}

fn built(spec: &FrameSpec, len: usize) -> Vec<u8> {
    let mut out = vec![0xEE; len];
    spec.emit(&STAMP, &mut out).unwrap();
    out
}

fn received(frame: &[u8], config: &ParseConfig) -> Result<Received, weft_parsers::ParseError> {
    let mut head = [0; HEAD_LEN];
    let len = frame.len().min(HEAD_LEN);
    head[..len].copy_from_slice(&frame[..len]);
    receive(&head, frame, config)
}

/// Lengths to try: the least, 60, typical ones, the largest.
fn lens(spec: &FrameSpec) -> Vec<usize> {
    let (min, max) = (spec.len_min(), spec.len_max());
    let mut lens = vec![min, min + 1, 60, 61, 98, 99, 100, 101, 102, 256, 1398, max - 1, max];
    lens.retain(|len| (min..=max).contains(len));
    lens
}

/// The same frame by the parsers' own builder, which the worked bytes of the design check.
fn by_parsers(spec: &FrameSpec, payload: &[u8]) -> Vec<u8> {
    let (hi, lo) = stamp::header_bits(STAMP.stream, STAMP.seq);
    let header = match spec.kind {
        Kind::Standard => HeaderRepr::Standard(StandardRepr {
            dst: spec.dst.mac,
            src: spec.src.mac,
            tos: spec.dscp.get() << 2 | spec.ecn as u8,
            id: spec.ip_id,
            ttl: spec.ttl,
            ip_src: spec.src.ip4,
            ip_dst: spec.dst.ip4,
            sport: spec.sport,
            dport: spec.dport,
        }),
        Kind::Gen1 => HeaderRepr::Gen1(
            afh::Gen1Repr { dst: spec.dst.mac, tc: spec.tc, src: spec.src.mac.to_bits() },
            ether_type::MAC_TYPE1,
        ),
        Kind::Gen2 => HeaderRepr::Gen2(
            afh::Gen2Repr {
                order: spec.gen2_order,
                key_words: KeyWords::UNICAST,
                tc: spec.tc,
                dst: spec.dst.id,
                src: spec.src.id,
                payload_hi: hi,
                payload_lo: lo,
            },
            ether_type::MAC_TYPE1,
        ),
        _ => HeaderRepr::Lite(afh::LiteRepr {
            order: spec.gen2_order,
            key_words: KeyWords::UNICAST,
            tc: spec.tc,
            dst: spec.dst.id,
            src: spec.src.id,
            xpu_id: spec.xpu_id,
        }),
    };
    let rh = RhRepr {
        len_or_syndrome: RhRepr::len_field(payload.len()),
        psn: 0x89A,
        ..RhRepr::default()
    };
    let tag = spec.vlan.map(|tci| (ether_type::CTAG, tci));
    let frame = FrameRepr { header, tag, rh, payload, icrc: spec.icrc };
    let mut out = vec![0; frame.len()];
    frame.emit(&mut out).unwrap();
    out
}

#[test]
fn frames_equal_those_of_the_parsers() {
    let four = |spec: &FrameSpec| !matches!(spec.kind, Kind::Ethernet | Kind::Roce6);
    let mut checked = 0;
    for order in [Gen2Order::Slap, Gen2Order::AsDocumented] {
        for spec in variants().into_iter().filter(four) {
            let spec = FrameSpec { gen2_order: order, ..spec };
            for len in lens(&spec) {
                let frame = built(&spec, len);
                let payload = &frame[spec.header_len()..len - spec.trailer_len()];
                assert_eq!(frame, by_parsers(&spec, payload), "{} {len}", spec.kind.name());
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn receivers_read_what_was_sent_padded_or_not() {
    for spec in variants() {
        let name = spec.kind.name();
        for len in lens(&spec) {
            let mut frame = built(&spec, len);
            for padded in [len, len.max(60), len.max(64)] {
                if padded > len && spec.kind == Kind::Lite && len >= 60 {
                    continue;
                }
                frame.resize(padded, 0);
                let got = received(&frame, &config(spec.kind)).unwrap();
                let Reading::Mark(mark) = got.reading else { panic!("{name} {len}: {got:?}") };
                assert_eq!(got.flaw, None, "{name} {len} {padded}");
                assert_eq!((mark.stream, mark.seq.near(STAMP.seq)), (STAMP.stream, STAMP.seq));
                assert_eq!(got.head.format(), spec.format(), "{name}");
                assert_eq!(got.head.tci(), spec.vlan, "{name}");
                assert_eq!(got.head.src(), spec.source_key().unwrap().0, "{name}");
                if mark.sent.is_some() {
                    assert_eq!(mark.sent, Some(STAMP.sent), "{name} {len}");
                }
            }
        }
    }
}

/// Formats x priorities x sizes: the header leads to the priority asked for.
#[test]
fn every_format_reaches_every_priority_it_can() {
    for (map, count) in [(PriMap::four(), 4), (PriMap::eight(), 8)] {
        for kind in DATA {
            for pri in 0..count {
                let pri = Pri::new(pri).unwrap();
                for base in [spec(kind), tagged(kind)] {
                    let Ok(spec) = base.clone().with_pri(pri, &map) else {
                        let by_tc = matches!(kind, Kind::Gen1 | Kind::Gen2 | Kind::Lite);
                        let missing = by_tc && count == 4 && pri.get() == 1;
                        let plain = kind == Kind::Ethernet && pri.get() != 0;
                        assert!(base.vlan.is_none() && (missing || plain), "{kind:?} {pri:?}");
                        continue;
                    };
                    if spec.check().is_err() {
                        assert_eq!(kind, Kind::Lite, "only Lite has no tag");
                        continue;
                    }
                    for len in [60.max(spec.len_min()), 256, spec.len_max()] {
                        let got = received(&built(&spec, len), &config(kind)).unwrap();
                        assert_eq!(map.pri(&got.head), pri, "{kind:?} {len}");
                    }
                }
            }
        }
    }
}

#[test]
fn lengths_out_of_range_say_what_was_expected() {
    #[rustfmt::skip] // columns: frame, least, most; docs/spec/wire-formats.md §1.1 without the FCS
    let cases = [
        (spec(Kind::Standard),                                56, 1394),
        (tagged(Kind::Standard),                              60, 1398),
        (FrameSpec { icrc: true, ..tagged(Kind::Standard) },  64, 1402),
        (spec(Kind::Gen1),                                    46, 1366),
        (FrameSpec { icrc: true, ..tagged(Kind::Gen2) },      54, 1374),
        (spec(Kind::Lite),                                    36, 1356),
        (spec(Kind::Ethernet),                                38, 9728),
        (FrameSpec { oversize: true, ..spec(Kind::Gen1) },    46, 9728),
        (FrameSpec { stamped: false, ..spec(Kind::Gen1) },    22, 1366),
        (spec(Kind::Pfc),                                     60, 60),
    ];
    for (spec, min, max) in cases {
        let kind = spec.kind.name();
        assert_eq!((spec.len_min(), spec.len_max()), (min, max), "{kind}");
        assert_eq!(spec.emit(&STAMP, &mut vec![0; max]), Ok(()), "{kind}");
        for had in [0, min - 1, max + 1] {
            let want = FrameError::Len { kind, had, min, max };
            let mut out = vec![0xEE; had];
            assert_eq!(spec.emit(&STAMP, &mut out), Err(want.clone()), "{kind} {had}");
            assert!(out.iter().all(|byte| *byte == 0xEE), "nothing was written");
            let sized = spec.clone().with_sizes(Sizes::List(vec![min, had]));
            assert_eq!(sized.check(), Err(want), "{kind} {had}");
        }
    }
    let text = spec(Kind::Lite).with_sizes(Sizes::Fixed(20)).check().unwrap_err().to_string();
    assert_eq!(text, "lite frame of 20 bytes: expected 36 to 1356 (without FCS)");
}

#[test]
fn largest_plus_one_is_built_when_asked_for() {
    for base in variants().into_iter().filter(|spec| spec.kind != Kind::Ethernet) {
        let len = base.len_max() + 1;
        let spec = FrameSpec { oversize: true, ..base };
        let got = received(&built(&spec, len), &config(spec.kind)).unwrap();
        assert!(matches!(got.reading, Reading::Mark(_)) && got.flaw.is_none(), "{len}");
    }
}

#[test]
fn parts_that_a_format_lacks_are_refused() {
    #[rustfmt::skip] // columns: frame, part
    let cases = [
        (tagged(Kind::Lite),                                "a tag"),
        (tagged(Kind::Pfc),                                 "a tag"),
        (FrameSpec { icrc: true, ..spec(Kind::Lite) },      "an ICRC"),
        (FrameSpec { icrc: true, ..spec(Kind::Ethernet) },  "an ICRC"),
        (FrameSpec { icrc: true, ..spec(Kind::Pause) },     "an ICRC"),
    ];
    for (spec, part) in cases {
        let want = FrameError::Part { kind: spec.kind.name(), part };
        assert_eq!(spec.check(), Err(want), "{}", spec.kind.name());
    }
    let empty = spec(Kind::Gen1).with_sizes(Sizes::List(vec![]));
    assert_eq!(empty.check(), Err(FrameError::Sizes { kind: "gen1" }));
}

/// Flips every bit after the addresses: no damaged frame passes as the whole one that was sent, except for bytes that a
/// switch may change or that no check covers.
#[test]
fn every_flipped_payload_bit_is_found() {
    for spec in variants() {
        let len = spec.len_min() + 37;
        let frame = built(&spec, len);
        let want = received(&frame, &config(spec.kind)).unwrap();
        let start = spec.header_len();
        for bit in start * 8..len * 8 {
            let mut broken = frame.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let got = received(&broken, &config(spec.kind)).unwrap();
            let same = got.reading == want.reading && got.flaw.is_none();
            assert!(!same, "{} tag {:?}: bit {bit}", spec.kind.name(), spec.vlan);
        }
    }
}

#[test]
fn cut_and_grown_frames_are_found() {
    for spec in variants() {
        let frame = built(&spec, 300);
        let config = config(spec.kind);
        let cut = received(&frame[..299], &config).unwrap();
        assert_eq!(cut.flaw, Some(Flaw::Short), "{}", spec.kind.name());
        let grown = received(&[&frame[..], &[0]].concat(), &config).unwrap();
        assert_eq!(grown.flaw, Some(Flaw::Grown), "{}", spec.kind.name());
        let short = built(&spec, spec.len_min().max(50));
        let mut padded = short.clone();
        padded.resize(64, 0);
        let last = padded.len() - 1;
        if short.len() < 64 {
            padded[last] = 1;
            assert_eq!(received(&padded, &config).unwrap().flaw, Some(Flaw::Grown));
        }
    }
}

/// A CE mark as the switch sets it leaves the frame whole; a TOS changed without the checksum not.
#[test]
fn marks_keep_a_frame_whole() {
    for spec in [spec(Kind::Standard), FrameSpec { icrc: true, ..tagged(Kind::Standard) }] {
        let mut frame = built(&spec, 200);
        let ip = if spec.vlan.is_some() { 18 } else { 14 };
        assert!(mark_ce(&mut frame, ip));
        let got = received(&frame, &ParseConfig::DEFAULT).unwrap();
        assert_eq!((got.flaw, got.head.ecn()), (None, Some(Ecn::Ce)));
        frame[ip + 1] ^= 1;
        let got = received(&frame, &ParseConfig::DEFAULT).unwrap();
        assert_eq!(got.flaw, Some(Flaw::IpChecksum));
    }
}

#[test]
fn gen2_payload_bits_are_checked() {
    let mut frame = built(&spec(Kind::Gen2), 200);
    frame[2] ^= 0x40;
    let got = received(&frame, &ParseConfig::DEFAULT).unwrap();
    assert_eq!(got.flaw, Some(Flaw::HeaderBits));
    let fixed = FrameSpec { payload_bits: PayloadBits::Fixed(1, 2), ..spec(Kind::Gen2) };
    let frame = built(&fixed, 200);
    assert_eq!((&frame[1..4], &frame[7..10]), (&[0, 0, 1][..], &[0, 0, 2][..]));
    assert_eq!(received(&frame, &ParseConfig::DEFAULT).unwrap().flaw, None);
}

/// Worked bytes of docs/spec/wire-formats.md §2.3.
#[test]
fn control_frames_are_those_of_the_design() {
    let pfc = Pfc { enable: 0, quanta: [0; 8] }.with(3, 0x0100).with(5, 0x0200);
    let frame = FrameSpec { pfc, ..spec(Kind::Pfc) }.to_vec(&STAMP, 0).unwrap();
    let mut want = [0; 60];
    want[..18].copy_from_slice(&[
        0x01, 0x80, 0xC2, 0, 0, 1, 0x02, 0, 0, 0, 0, 1, 0x88, 0x08, 0x01, 0x01, 0x00, 0x28,
    ]);
    (want[24], want[28]) = (0x01, 0x02);
    assert_eq!(frame, want);
    assert_eq!(crc::fcs(&frame), [0x7C, 0x1A, 0x8E, 0x8E]);
    let pause = FrameSpec { pause: Pause { quanta: 0xFFFF }, ..spec(Kind::Pause) };
    let frame = pause.to_vec(&STAMP, 0).unwrap();
    assert_eq!(Pause::parse(&frame), Ok(Pause { quanta: 0xFFFF }));
    assert_eq!(received(&frame, &ParseConfig::DEFAULT).unwrap().reading, Reading::Foreign);
}

#[test]
fn announcements_reach_everybody() {
    for base in variants() {
        let frame = base.announcement().to_vec(&STAMP, 0).unwrap();
        let got = received(&frame, &config(base.kind)).unwrap();
        assert!(got.head.group() && got.head.source_valid(), "{}", base.kind.name());
        assert!(!got.head.reserved_group() && frame.len() >= 60);
        assert_eq!(got.head.src(), base.source_key().unwrap().0, "{}", base.kind.name());
        assert_eq!(got.head.tci(), base.vlan);
        assert!(matches!(got.reading, Reading::Mark(_)), "{}", base.kind.name());
    }
}

/// 200,000 frames with random bytes and ends: none panics, and none with a wrong payload passes as whole (but for the
/// 16-bit check, 1 in 65,536).
#[test]
fn garbage_is_survived() {
    let mut rng = Rng::new(0x5EED);
    let bases: Vec<_> = variants().into_iter().map(|spec| (built(&spec, 120), spec)).collect();
    let (mut passed, mut wrong) = (0, 0);
    for round in 0..200_000usize {
        let (base, spec) = &bases[round % bases.len()];
        let mut frame = base.clone();
        if rng.chance(1, 2) {
            frame.truncate(usize::try_from(rng.below(121)).unwrap());
        }
        for _ in 0..=rng.below(4) {
            let at = usize::try_from(rng.below(120)).unwrap();
            if let Some(byte) = frame.get_mut(at) {
                *byte = rng.next_u64().to_le_bytes()[0];
            }
        }
        let Ok(got) = received(&frame, &config(spec.kind)) else { continue };
        if matches!(got.reading, Reading::Mark(_)) && got.flaw.is_none() {
            passed += 1;
            wrong += usize::from(frame[spec.header_len()..] != base[spec.header_len()..]);
        }
    }
    assert!(passed > 1_000 && wrong <= 6, "{passed} passed, {wrong} wrong");
}

/// The front of a frame equals the front of the whole frame, and is read the same way; bytes after it are not checked.
#[test]
fn a_front_is_read_as_the_whole_frame() {
    for kind in [Kind::Standard, Kind::Gen1, Kind::Gen2, Kind::Lite] {
        let mut spec = FrameSpec::new(kind, Station::numbered(2), Station::numbered(1));
        spec.icrc = kind != Kind::Lite;
        let stamp = Stamp { stream: 7, seq: 1 << 40 | 9, sent: Instant::from_ns(5) };
        let mut whole = vec![0; 1_300];
        spec.emit(&stamp, &mut whole).unwrap();
        let mut front = [0; 96];
        spec.emit_front(&stamp, 1_300, &mut front).unwrap();
        let marked = spec.header_len() + crate::stamp::LEN;
        assert_eq!(front[..marked], whole[..marked], "{kind:?}");
        let afh = if kind == Kind::Lite { AfhMode::Lite } else { AfhMode::Auto };
        let config = ParseConfig { afh, ..ParseConfig::DEFAULT };
        let head = whole.first_chunk().unwrap();
        let seen = receive_front(head, 1_300, &front, &config).unwrap();
        assert_eq!(Ok(seen), receive(head, &whole, &config), "{kind:?}");
        let shorter = receive_front(head, 1_200, &front, &config).unwrap();
        assert!(shorter.flaw.is_some() || !matches!(shorter.reading, Reading::Mark(_)), "{kind:?}");
    }
}
