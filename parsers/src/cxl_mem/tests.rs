//! Messages against the worked bytes of the page, with every field, cut short, and of any bytes.
//!
//! Source: docs/spec/wire-formats.md §3.9.

use super::*;

fn request(op: MemOp) -> MemHead {
    MemHead { addr: Hpa(0x0123_4567_BA40), ..MemHead::new(op, 5) }
}

fn emitted(message: &MemMessage<'_>) -> ([u8; LEN_MAX], usize) {
    let mut out = [0xEE; LEN_MAX];
    let len = message.emit(&mut out).unwrap();
    (out, len)
}

/// The worked bytes of docs/spec/wire-formats.md §3.9.
#[test]
fn worked_bytes() {
    const ADDR: [u8; 8] = [0, 0, 0x01, 0x23, 0x45, 0x67, 0xBA, 0x40];
    let line = [0xA5; LINE];
    let answer = MemHead { load: DevLoad::Optimal, ..MemHead::new(MemOp::MemData, 5) };
    let poisoned = MemHead { poison: true, ..request(MemOp::MemWr) };
    let lease = Lease { number: 0x0102_0304_0506_0708, term: 984 };
    let granted = MemHead { meta: MetaField::State, lease, ..MemHead::new(MemOp::CmpE, 5) };
    let lost = MemHead { poison: true, ..MemHead::new(MemOp::Cmp, 5) };
    let cases = [
        (request(MemOp::MemRd), None, [0x11, 0x18, 0, 0, 0, 5, 0, 0], ADDR),
        (answer, Some(&line), [0x40, 0x18, 0x10, 0, 0, 5, 0, 0], [0; 8]),
        (poisoned, Some(&line), [0x21, 0x19, 0, 0, 0, 5, 0, 0], ADDR),
        (MemHead::new(MemOp::Cmp, 5), None, [0x30, 0x18, 0, 0, 0, 5, 0, 0], [0; 8]),
        (granted, None, [0x32, 0, 0, 0, 0, 5, 0x03, 0xD8], [1, 2, 3, 4, 5, 6, 7, 8]),
        (lost, None, [0x30, 0x19, 0, 0, 0, 5, 0, 0], [0; 8]),
    ];
    for (head, data, first, addr) in cases {
        let (bytes, len) = emitted(&MemMessage { head, data, enables: None });
        assert_eq!((&bytes[..8], &bytes[8..16]), (&first[..], &addr[..]), "{head:?}");
        assert_eq!(len, if data.is_some() { 80 } else { 16 });
        let read = MemMessage::parse(&bytes[..len]).unwrap();
        assert_eq!((read.head, read.data, read.enables), (head, data, None));
    }
}

/// Every opcode with every field set comes back with the fields of its class, all others 0; any cut is refused.
#[test]
fn a_class_has_its_fields_and_no_others() {
    let line = core::array::from_fn(|at| u8::try_from(at).unwrap());
    for &op in MemOp::ALL {
        let all = MemHead {
            op,
            snoop: 5,
            meta: MetaField::Extended,
            meta_value: 2,
            poison: true,
            tc: 3,
            load: DevLoad::SevereOverload,
            ld: 9,
            tag: 0xF123,
            bi_id: 0xABC,
            addr: Hpa(0x000F_4567_89AB_CDC0),
            lease: Lease { number: 0xFEDC_BA98_7654_3210, term: 0xBEEF },
        };
        let class = op.class();
        let (data, enables) = (class.has_data().then_some(&line), op == MemOp::MemWrPtl);
        let enables = enables.then_some(0x8000_0000_0000_0001);
        let (bytes, len) = emitted(&MemMessage { head: all, data, enables });
        let read = MemMessage::parse(&bytes[..len]).unwrap();
        let bi = matches!(class, MemClass::BiSnp | MemClass::BiRsp);
        let none = MemHead::new(op, 0);
        let want = MemHead {
            op,
            snoop: if class.is_request() { 5 } else { 0 },
            meta: if bi { none.meta } else { all.meta },
            meta_value: if bi { 0 } else { 2 },
            poison: class.has_poison(),
            tc: if class.is_request() { 3 } else { 0 },
            load: if class.is_response() { all.load } else { none.load },
            ld: if bi { 0 } else { 9 },
            tag: if bi { 0x123 } else { 0xF123 },
            bi_id: if bi { 0xABC } else { 0 },
            addr: match class {
                MemClass::Ndr | MemClass::Drs => Hpa(0),
                _ => all.addr,
            },
            lease: if class.is_response() { all.lease } else { Lease::NONE },
        };
        assert_eq!((read.head, read.data, read.enables), (want, data, enables), "{op:?}");
        assert_eq!(read.len(), len);
        for short in 0..len {
            assert!(MemMessage::parse(&bytes[..short]).is_err(), "{op:?} of {short} bytes");
            assert!(
                MemMessage { head: all, data, enables }.emit(&mut [0; LEN_MAX][..short]).is_err()
            );
        }
        let mut other = bytes;
        other[2] ^= BEP;
        assert!(MemMessage::parse(&other[..len]).is_err(), "{op:?}: byte enables");
    }
}

/// The fast look agrees with the whole one, but for data that is cut short.
#[test]
fn the_fast_look_sees_the_same() {
    let mut state = 7_u64;
    for round in 0..20_000_u32 {
        let mut bytes: [u8; LEN_MAX] = core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        if round % 2 == 0 {
            let ops = MemOp::ALL;
            bytes[0] = ops[usize::from(bytes[1]) % ops.len()] as u8;
        }
        let whole = MemMessage::parse(&bytes);
        let fast = fast_mem(bytes.first_chunk().unwrap());
        assert_eq!(fast.map(|(op, _, len)| (op, len)), whole.ok().map(|m| (m.head.op, m.len())));
        if let (Some((op, addr, _)), Ok(message)) = (fast, whole)
            && op.class().is_request()
        {
            assert_eq!(addr, message.head.addr);
        }
    }
}

/// Random bytes: nothing panics, and a message that is read is written as the same bytes, reserved
/// bits 0.
#[test]
fn any_bytes_are_read_or_refused() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut read = 0;
    for _ in 0..20_000 {
        let bytes: [u8; LEN_MAX] = core::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        let Ok(message) = MemMessage::parse(&bytes) else { continue };
        read += 1;
        let (again, len) = emitted(&message);
        let same = MemMessage::parse(&again[..len]).unwrap();
        assert_eq!((same.head, same.data), (message.head, message.data));
        assert_eq!(again[0], bytes[0]);
    }
    assert!(read > 500, "{read} were messages");
}

#[test]
fn names_and_numbers_are_each_others() {
    for byte in 0..=u8::MAX {
        let known = MemOp::ALL.iter().find(|&&op| op as u8 == byte).copied();
        assert_eq!(MemOp::decode(byte), known);
    }
    assert!(MemOp::ALL.windows(2).all(|pair| (pair[0] as u8) < pair[1] as u8));
}
