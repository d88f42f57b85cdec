//! Worked bytes of docs/spec/wire-formats.md §1.3 to §1.4b, short lengths, round trips.
//! Tables, name first.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md.

use super::*;
use crate::testing::{Rng, refuses_every_shorter};

const ORDERS: [Gen2Order; 2] = [Gen2Order::Slap, Gen2Order::AsDocumented];

#[test]
fn worked_gen1_both_ways() {
    let bytes = [2, 0, 0, 0, 0, 2, 0x20, 0, 0, 0, 0, 1];
    let fields = Gen1Repr { dst: MacAddr([2, 0, 0, 0, 0, 2]), tc: TrafficClass(0x20), src: 1 };
    let mut out = [0; LEN];
    fields.emit(&mut out);
    assert_eq!(out, bytes);
    let (view, rest) = Gen1::parse(&bytes).unwrap();
    assert_eq!(view.repr(), fields);
    assert!(rest.is_empty());
}

#[test]
fn worked_gen2_both_ways() {
    let request = Gen2Repr {
        order: Gen2Order::Slap,
        key_words: KeyWords::UNICAST,
        tc: TrafficClass(0x20),
        dst: 2,
        src: 1,
        payload_hi: 0xA1_A2A3,
        payload_lo: 0xB1_B2B3,
    };
    let documented = Gen2Repr { order: Gen2Order::AsDocumented, ..request };
    let ack = Gen2Repr {
        tc: TrafficClass(0x24),
        dst: 1,
        src: 2,
        payload_hi: 0,
        payload_lo: 0,
        ..request
    };
    let group = Gen2Repr {
        key_words: KeyWords::MULTICAST,
        tc: TrafficClass(0x48),
        dst: multicast_id(5),
        ..request
    };
    #[rustfmt::skip] // columns: name, fields, bytes
    let cases = [
        ("request, slap",   request,    [0x82, 0xA1, 0xA2, 0xA3, 0, 2, 0x20, 0xB1, 0xB2, 0xB3, 0, 1]),
        ("as documented",   documented, [0x20, 0xA1, 0xA2, 0xA3, 0, 2, 0x82, 0xB1, 0xB2, 0xB3, 0, 1]),
        ("ack",             ack,        [0x82, 0, 0, 0, 0, 1, 0x24, 0, 0, 0, 0, 2]),
        ("multicast",       group,      [0x83, 0xA1, 0xA2, 0xA3, 0x80, 5, 0x48, 0xB1, 0xB2, 0xB3, 0, 1]),
    ];
    for (name, fields, bytes) in cases {
        let mut out = [0; LEN];
        fields.emit(&mut out);
        assert_eq!(out, bytes, "{name}");
        let (view, rest) = Gen2::parse(&bytes, fields.order).unwrap();
        assert_eq!(view.repr(), fields, "{name}");
        assert!(rest.is_empty());
    }
}

#[test]
fn worked_lite_both_ways() {
    let bytes = [0x82, 0, 0, 0, 0, 2, 0x40, 0, 0x2A, 0, 0, 1];
    let fields = LiteRepr {
        order: Gen2Order::Slap,
        key_words: KeyWords::UNICAST,
        tc: TrafficClass::new(2, TrafficClass::FLOW_TYPE1_REQ),
        dst: 2,
        src: 1,
        xpu_id: 0x2A,
    };
    let mut out = [0; LEN];
    fields.emit(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(Lite::parse(&bytes, Gen2Order::Slap).unwrap().0.repr(), fields);
    LiteRepr { order: Gen2Order::AsDocumented, ..fields }.emit(&mut out);
    assert_eq!((out[0], out[6]), (0x40, 0x82), "the other order swaps bytes 0 and 6");
}

#[test]
fn shorter_is_refused() {
    refuses_every_shorter(Layer::Afh, LEN, |bytes| Gen1::parse(bytes).err());
    for order in ORDERS {
        refuses_every_shorter(Layer::Afh, LEN, |bytes| Gen2::parse(bytes, order).err());
        refuses_every_shorter(Layer::Afh, LEN, |bytes| Lite::parse(bytes, order).err());
    }
}

#[test]
fn parse_undoes_emit() {
    let mut rng = Rng::new(9);
    let mut out = [0; LEN];
    for round in 0..4000 {
        let tc = TrafficClass(rng.u8());
        let gen1 = Gen1Repr { dst: MacAddr(rng.bytes()), tc, src: rng.u64() >> 24 };
        gen1.emit(&mut out);
        assert_eq!(Gen1::parse(&out).unwrap().0.repr(), gen1);

        let order = ORDERS[round % 2];
        let (key_words, dst, src) = (KeyWords(rng.u8()), rng.u16(), rng.u16());
        let (payload_hi, payload_lo) = (rng.u32() >> 8, rng.u32() >> 8);
        let gen2 = Gen2Repr { order, key_words, tc, dst, src, payload_hi, payload_lo };
        gen2.emit(&mut out);
        assert_eq!(Gen2::parse(&out, order).unwrap().0.repr(), gen2);

        let lite = LiteRepr { order, key_words, tc, dst, src, xpu_id: rng.u16() };
        lite.emit(&mut out);
        assert_eq!(Lite::parse(&out, order).unwrap().0.repr(), lite);
        assert_eq!((out[1], out[2], out[3], out[9]), (0, 0, 0, 0), "reserved bytes");
    }
}

#[test]
fn values_too_wide_do_not_spill() {
    let mut out = [0; LEN];
    Gen1Repr { dst: MacAddr::ZERO, tc: TrafficClass(0), src: u64::MAX }.emit(&mut out);
    assert_eq!(out[6], 0, "TC is not part of the source");
}

#[test]
fn key_words_bits() {
    #[rustfmt::skip] // columns: name, byte, 16 bit, version, quadrant, local, multicast, looks like GEN2
    let cases = [
        ("unicast",        0x82, true,  0, 0, true,  false, true),
        ("multicast",      0x83, true,  0, 0, true,  true,  true),
        ("reserved bits",  0xB2, true,  0, 0, true,  false, true),
        ("32 bit",         0x02, false, 0, 0, true,  false, false),
        ("version 1",      0xC2, true,  1, 0, true,  false, false),
        ("quadrant 3",     0x8E, true,  0, 3, true,  false, false),
        ("global",         0x80, true,  0, 0, false, false, false),
    ];
    for (name, bits, is_16b, version, quadrant, local, multicast, looks) in cases {
        let key = KeyWords(bits);
        assert_eq!(
            (key.is_16b(), key.version(), key.slap_quadrant()),
            (is_16b, version, quadrant),
            "{name}"
        );
        assert_eq!(
            (key.is_local(), key.is_multicast(), key.looks_like_gen2()),
            (local, multicast, looks),
            "{name}"
        );
    }
}

#[test]
fn traffic_class_parts() {
    #[rustfmt::skip] // columns: byte, vc, flow (docs/spec/wire-formats.md §1.4b)
    let cases = [(0x20, 1, TrafficClass::FLOW_TYPE1_REQ), (0x24, 1, TrafficClass::FLOW_TYPE1_ACK),
                 (0x48, 2, TrafficClass::FLOW_TYPE2), (0x40, 2, TrafficClass::FLOW_TYPE1_REQ),
                 (0xFC, 7, 7), (0x0C, 0, TrafficClass::FLOW_TYPE3)];
    for (byte, vc, flow) in cases {
        let tc = TrafficClass(byte);
        assert_eq!((tc.vc(), tc.flow(), tc.index()), (vc, flow, byte >> 2), "{byte:#04x}");
        assert_eq!(TrafficClass::new(vc, flow), tc, "{byte:#04x}");
    }
}
