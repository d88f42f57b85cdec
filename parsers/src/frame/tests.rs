//! Worked frames of docs/spec/wire-formats.md §1.2 to §1.4a, byte by byte with ICRC and FCS.
//! One test a format.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md.

use super::*;
use crate::afh::{Gen2Order, KeyWords, TrafficClass};
use crate::classify::{HEAD_LEN, ParseConfig, parse_head};
use crate::crc::fcs;
use crate::ecn::mark_ce;
use crate::ethernet::MIN_FRAME_LEN;
use crate::rh::{RhOpcode, syndrome};
use crate::testing::Rng;

const STANDARD: StandardRepr = StandardRepr {
    dst: MacAddr([2, 0, 0, 0, 0, 2]),
    src: MacAddr([2, 0, 0, 0, 0, 1]),
    tos: 0x21,
    id: 1,
    ttl: 64,
    ip_src: Ipv4Addr::new(10, 0, 0, 1),
    ip_dst: Ipv4Addr::new(10, 0, 0, 2),
    sport: 0xC000,
    dport: udp::PORT_ROCE,
};
const RH: RhRepr = RhRepr {
    opcode: RhOpcode::Send,
    fack: true,
    pad: 0,
    timestamp_en: true,
    timestamp: 0x1234,
    p_key: 0x5A,
    len_or_syndrome: 72,
    psn: 0x0AB,
    dest_qp: 0x123,
};
const RH_BYTES: [u8; 8] = [0x21, 0x12, 0x34, 0x5A, 0x90, 0x15, 0x61, 0x23];
const TAG: Option<(u16, Tci)> = Some((ether_type::CTAG, Tci(0x6064)));

fn payload() -> [u8; 64] {
    core::array::from_fn(|at| u8::try_from(at).unwrap())
}

/// Emits into room of the exact size, which must be enough, after every smaller one was not.
fn emit<'a>(frame: &FrameRepr<'_>, room: &'a mut [u8]) -> &'a mut [u8] {
    let need = frame.len();
    for had in 0..need {
        assert_eq!(frame.emit(&mut room[..had]), Err(EmitError::Short { need, had }));
    }
    room.fill(0xEE);
    assert_eq!(frame.emit(&mut room[..need]), Ok(need));
    &mut room[..need]
}

#[test]
fn worked_standard() {
    let payload = payload();
    let header = HeaderRepr::Standard(STANDARD);
    let with_icrc = FrameRepr { header, tag: None, rh: RH, payload: &payload, icrc: true };
    let tagged = FrameRepr { tag: TAG, ..with_icrc };
    let plain = FrameRepr { icrc: false, ..with_icrc };
    let mut room = [0; 200];

    let out = emit(&with_icrc, &mut room);
    let front = [
        0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, 0x45, 0x21, 0x00, 0x68, 0x00,
        0x01, 0x40, 0x00, 0x40, 0x11, 0x26, 0x61, 0x0A, 0, 0, 0x01, 0x0A, 0, 0, 0x02, 0xC0, 0x00,
        0x12, 0xB7, 0x00, 0x54, 0xFF, 0xFF, 0x21, 0x12, 0x34, 0x5A, 0x90, 0x15, 0x61, 0x23,
    ];
    assert_eq!(out[..50], front);
    assert_eq!(out[50..114], payload);
    assert_eq!(out[114..], [0x91, 0x60, 0x6E, 0xB7], "ICRC");
    assert_eq!(fcs(out), [0x7D, 0xB8, 0xD5, 0x78]);
    assert_eq!(out.len() + 4, 122);

    assert!(mark_ce(out, 14));
    assert_eq!((out[15], &out[24..26]), (0x23, &[0x26, 0x5F][..]));
    assert_eq!(fcs(out), [0x0E, 0x45, 0x8F, 0x90], "after CE");
    assert_eq!(icrc_ip(&out[14..114], Transport::RcLink), Ok([0x91, 0x60, 0x6E, 0xB7]));

    let out = emit(&tagged, &mut room);
    assert_eq!((&out[..12], &out[16..50]), (&front[..12], &front[12..46]));
    assert_eq!(out[12..16], [0x81, 0x00, 0x60, 0x64]);
    assert_eq!(fcs(out), [0x1B, 0x2E, 0x13, 0x88]);
    assert_eq!(out.len() + 4, 126);

    let out = emit(&plain, &mut room);
    assert_eq!((&out[16..18], &out[38..40]), (&[0x00, 0x64][..], &[0x00, 0x50][..]), "lengths");
    assert_eq!(out[24..26], [0x26, 0x65], "checksum");
    assert_eq!(fcs(out), [0x44, 0x64, 0x05, 0x49]);
    assert_eq!(out.len() + 4, 118);
}

#[test]
fn worked_gen1() {
    let payload = payload();
    let gen1 = Gen1Repr { dst: STANDARD.dst, tc: TrafficClass(0x20), src: 1 };
    let header = HeaderRepr::Gen1(gen1, ether_type::MAC_TYPE1);
    let plain = FrameRepr { header, tag: None, rh: RH, payload: &payload, icrc: false };
    let mut room = [0; 200];

    let out = emit(&plain, &mut room);
    assert_eq!(out[..14], [2, 0, 0, 0, 0, 2, 0x20, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    assert_eq!((&out[14..22], &out[22..]), (&RH_BYTES[..], &payload[..]));
    assert_eq!(fcs(out), [0xB0, 0x64, 0x33, 0xB7]);
    assert_eq!(out.len() + 4, 90);

    let tagged = FrameRepr { tag: TAG, ..plain };
    let out = emit(&tagged, &mut room);
    assert_eq!(out[11..18], [1, 0x81, 0x00, 0x60, 0x64, 0x88, 0xB5]);
    assert_eq!(out[18..26], RH_BYTES);

    let with_icrc = FrameRepr { tag: TAG, icrc: true, ..plain };
    let out = emit(&with_icrc, &mut room);
    assert_eq!(out[90..], [0x9E, 0xF2, 0xBF, 0xB5], "zlib.crc32(8 * FF + RH + payload)");
}

#[test]
fn worked_gen2() {
    let ack_rh = RhRepr {
        opcode: RhOpcode::Ack,
        fack: false,
        len_or_syndrome: syndrome::ACK,
        dest_qp: 0x45,
        ..RH
    };
    let request = Gen2Repr {
        order: Gen2Order::Slap,
        key_words: KeyWords::UNICAST,
        tc: TrafficClass(0x20),
        dst: 2,
        src: 1,
        payload_hi: 0xA1_A2A3,
        payload_lo: 0xB1_B2B3,
    };
    let ack = Gen2Repr {
        tc: TrafficClass(0x24),
        dst: 1,
        src: 2,
        payload_hi: 0,
        payload_lo: 0,
        ..request
    };
    let header = HeaderRepr::Gen2(request, ether_type::MAC_TYPE1);
    let frame = FrameRepr { header, tag: None, rh: RH, payload: &[], icrc: false };
    let mut room = [0; 200];
    let out = emit(&frame, &mut room);
    let want = [0x82, 0xA1, 0xA2, 0xA3, 0, 2, 0x20, 0xB1, 0xB2, 0xB3, 0, 1, 0x88, 0xB5];
    assert_eq!((&out[..14], &out[14..]), (&want[..], &RH_BYTES[..]));

    let header = HeaderRepr::Gen2(ack, ether_type::MAC_TYPE1);
    let frame = FrameRepr { header, rh: ack_rh, ..frame };
    let mut padded = [0; MIN_FRAME_LEN];
    assert_eq!(frame.emit(&mut padded), Ok(22));
    let want = [
        0x82, 0, 0, 0, 0, 1, 0x24, 0, 0, 0, 0, 2, 0x88, 0xB5, 0x41, 0x12, 0x34, 0x5A, 0x3E, 0x15,
        0x60, 0x45,
    ];
    assert_eq!((&padded[..22], &padded[22..]), (&want[..], &[0; 38][..]));
    assert_eq!(fcs(&padded), [0x01, 0x27, 0xAD, 0xB5]);
}

#[test]
fn worked_lite() {
    let payload = payload();
    let lite = LiteRepr {
        order: Gen2Order::Slap,
        key_words: KeyWords::UNICAST,
        tc: TrafficClass(0x40),
        dst: 2,
        src: 1,
        xpu_id: 0x2A,
    };
    let header = HeaderRepr::Lite(lite);
    let frame = FrameRepr { header, tag: None, rh: RH, payload: &payload, icrc: false };
    let mut room = [0; 200];
    let out = emit(&frame, &mut room);
    assert_eq!(out[..12], [0x82, 0, 0, 0, 0, 2, 0x40, 0, 0x2A, 0, 0, 1]);
    assert_eq!(out[12..], payload);
    assert_eq!(fcs(out), [0xC5, 0xFF, 0xAC, 0x4F]);
    assert_eq!(out.len() + 4, 80);
    let same = FrameRepr { tag: TAG, icrc: true, ..frame };
    assert_eq!(same.len(), 76, "Lite has neither tag nor ICRC");
}

#[test]
fn largest_frames_have_the_documented_lengths() {
    let payload = [0; MAX_PAYLOAD_LEN];
    let standard = HeaderRepr::Standard(STANDARD);
    let gen1 = HeaderRepr::Gen1(Gen1Repr::default(), 0);
    let frame = FrameRepr { header: standard, tag: None, rh: RH, payload: &payload, icrc: true };
    assert_eq!(frame.len() + 4, 1402);
    assert_eq!(FrameRepr { tag: TAG, ..frame }.len() + 4, 1406);
    assert_eq!(FrameRepr { header: gen1, tag: TAG, ..frame }.len() + 4, 1378);
}

#[test]
fn payload_beyond_ipv4_is_refused() {
    static PAYLOAD: [u8; 65_536] = [0; 65_536];
    let header = HeaderRepr::Standard(STANDARD);
    let most = 65_535 - 20 - 8 - 8;
    for (payload, fits) in [(most, true), (most + 1, false), (65_536, false)] {
        let bytes = &PAYLOAD[..payload];
        let frame = FrameRepr { header, tag: None, rh: RH, payload: bytes, icrc: false };
        let need = payload + 50;
        let want =
            if fits { EmitError::Short { need, had: 0 } } else { EmitError::TooLong { payload } };
        assert_eq!(frame.emit(&mut []), Err(want), "{payload}");
    }
}

/// Every frame that can be built is classified as what it is, on a port of its mode.
#[test]
fn classification_agrees_with_the_builder() {
    use crate::types::AfhMode;
    let mut rng = Rng::new(18);
    let mut room = [0; 400];
    for round in 0..4000 {
        let tc = TrafficClass(rng.u8() & 0xFC);
        let key_words = if rng.bool() { KeyWords::MULTICAST } else { KeyWords::UNICAST };
        let order = if rng.bool() { Gen2Order::Slap } else { Gen2Order::AsDocumented };
        let (dst, src) = (rng.u16(), rng.u16());
        let (payload_hi, payload_lo) = (rng.u32() >> 8, rng.u32() >> 8);
        let (header, afh) = match round % 4 {
            0 => (HeaderRepr::Standard(StandardRepr { tos: rng.u8(), ..STANDARD }), AfhMode::None),
            1 => {
                let dst = MacAddr(rng.bytes());
                (HeaderRepr::Gen1(Gen1Repr { dst, tc, src: rng.u64() }, 0x88B6), AfhMode::Gen1)
            }
            2 => {
                let gen2 = Gen2Repr { order, key_words, tc, dst, src, payload_hi, payload_lo };
                (HeaderRepr::Gen2(gen2, 0x88B5), AfhMode::Gen2)
            }
            _ => {
                let lite = LiteRepr { order, key_words, tc, dst, src, xpu_id: rng.u16() };
                (HeaderRepr::Lite(lite), AfhMode::Lite)
            }
        };
        let bytes: [u8; 256] = rng.bytes();
        let payload = &bytes[..usize::try_from(rng.below(64)).unwrap() * 4];
        let rh = RhRepr { opcode: RhOpcode::from_low_bits(rng.u8()), ..RH };
        let tag = rng.bool().then(|| (ether_type::CTAG, Tci(rng.u16())));
        let frame = FrameRepr { header, tag, rh, payload, icrc: rng.bool() };
        let len = frame.emit(&mut room).unwrap().max(MIN_FRAME_LEN);
        let mut head = [0; HEAD_LEN];
        let seen = len.min(HEAD_LEN);
        head[..seen].copy_from_slice(&room[..seen]);
        let cfg = ParseConfig { afh, gen2_order: order, ..ParseConfig::DEFAULT };
        let found = parse_head(&head, len, &cfg).unwrap();
        assert_eq!(found.format(), frame.format(), "{frame:?}");
        match header {
            HeaderRepr::Standard(header) => {
                assert_eq!(found.dscp().map(crate::types::Dscp::get), Some(header.tos >> 2));
                assert_eq!(found.tc(), None);
            }
            HeaderRepr::Gen1(..) => assert_eq!(found.tc(), Some(tc)),
            HeaderRepr::Gen2(..) | HeaderRepr::Lite(_) => {
                assert_eq!(found.tc(), Some(tc));
                assert_eq!(found.group(), key_words.is_multicast());
                assert_eq!(found.dst().address(), u64::from(dst));
                assert_eq!(found.src().address(), u64::from(src));
            }
        }
        let lite = found.format() == Format::AfhLite;
        assert_eq!(found.rh_opcode(), (!lite).then_some(rh.opcode));
        assert_eq!(found.tci(), tag.filter(|_| !lite).map(|(_, tci)| tci));
    }
}
