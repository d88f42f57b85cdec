//! Messages against the worked bytes of docs/spec/wire-formats.md §3.12, with every field, cut short, and of any bytes.

use super::*;

const ADDR: Hpa = Hpa(0x0123_4567_BA40);

/// Fields, data, byte enables, and the first and second eight bytes.
type Worked<'a> = (CacheHead, Option<&'a [u8; LINE]>, Option<u64>, [u8; 8], [u8; 8]);

fn emitted(message: &CacheMessage<'_>) -> ([u8; LEN_MAX], usize) {
    let mut out = [0xEE; LEN_MAX];
    let len = message.emit(&mut out).unwrap();
    (out, len)
}

/// The worked bytes of docs/spec/wire-formats.md §3.12.
#[test]
fn worked_bytes() {
    let line = [0xA5; LINE];
    let with = |op, id| CacheHead { cache_id: 5, ..CacheHead::new(op, id) };
    let lease = Lease { number: 0x0102_0304_0506_0708, term: 984 };
    let own = CacheHead { addr: ADDR, ..with(CacheOp::RdOwn, 0x123) };
    let go = CacheHead { rsp_data: GoState::Exclusive as u16, lease, ..with(CacheOp::Go, 0x123) };
    let data = CacheHead { lease, ..with(CacheOp::DataToDevice, 0x123) };
    let snoop = CacheHead { addr: ADDR, ..with(CacheOp::SnpInv, 7) };
    let answer = CacheHead { addr: ADDR, ..CacheHead::new(CacheOp::RspIFwdM, 7) };
    let part = CacheHead { poison: true, bogus: true, ..CacheHead::new(CacheOp::DataToHost, 7) };
    #[rustfmt::skip] // columns: message, data, byte enables, first eight bytes, second eight
    let cases: [Worked<'_>; 6] = [
        (own,    None,        None,       [0x22, 0, 0x51, 0x23, 0, 0, 0, 0],       [0, 0, 1, 0x23, 0x45, 0x67, 0xBA, 0x40]),
        (go,     None,        None,       [0xA4, 0, 0x51, 0x23, 0, 2, 3, 0xD8],    [1, 2, 3, 4, 5, 6, 7, 8]),
        (data,   Some(&line), None,       [0xC0, 0, 0x51, 0x23, 0, 0, 3, 0xD8],    [1, 2, 3, 4, 5, 6, 7, 8]),
        (snoop,  None,        None,       [0x82, 0, 0x50, 0x07, 0, 0, 0, 0],       [0, 0, 1, 0x23, 0x45, 0x67, 0xBA, 0x40]),
        (answer, None,        None,       [0x4F, 0, 0x00, 0x07, 0, 0, 0, 0],       [0, 0, 1, 0x23, 0x45, 0x67, 0xBA, 0x40]),
        (part,   Some(&line), Some(0x81), [0x60, 0x68, 0x00, 0x07, 0, 0, 0, 0],    [0; 8]),
    ];
    for (head, data, enables, first, second) in cases {
        let (bytes, len) = emitted(&CacheMessage { head, data, enables });
        assert_eq!((&bytes[..8], &bytes[8..16]), (&first[..], &second[..]), "{head:?}");
        let want = match (data, enables) {
            (None, _) => 16,
            (Some(_), None) => 80,
            (Some(_), Some(_)) => 88,
        };
        assert_eq!(len, want, "{head:?}");
        let read = CacheMessage::parse(&bytes[..len]).unwrap();
        assert_eq!((read.head, read.data, read.enables), (head, data, enables));
    }
}

/// Every opcode with every field set comes back with the fields of its class, all others 0; any cut is refused.
#[test]
fn a_class_has_its_fields_and_no_others() {
    let line = core::array::from_fn(|at| u8::try_from(at).unwrap());
    for &op in CacheOp::ALL {
        let all = CacheHead {
            op,
            non_temporal: true,
            poison: true,
            bogus: true,
            go_err: true,
            pre: 2,
            cache_id: 0xC,
            id: 0xABC,
            rsp_data: 0x123,
            addr: Hpa(0x000F_4567_89AB_CDC0),
            lease: Lease { number: 0xFEDC_BA98_7654_3210, term: 0xBEEF },
        };
        let class = op.class();
        let data = class.has_data().then_some(&line);
        let enables = (op == CacheOp::DataToHost).then_some(0x8000_0000_0000_0001);
        let message = CacheMessage { head: all, data, enables };
        let (bytes, len) = emitted(&message);
        let read = CacheMessage::parse(&bytes[..len]).unwrap();
        let answers = class == CacheClass::H2dRsp;
        let want = CacheHead {
            op,
            non_temporal: class == CacheClass::D2hReq,
            poison: class.has_data(),
            bogus: class == CacheClass::D2hData,
            go_err: class == CacheClass::H2dData,
            pre: if answers { 2 } else { 0 },
            cache_id: 0xC,
            id: 0xABC,
            rsp_data: if answers { 0x123 } else { 0 },
            addr: if class.has_addr() { all.addr } else { Hpa(0) },
            lease: if class.has_lease() { all.lease } else { Lease::NONE },
        };
        assert_eq!((read.head, read.data, read.enables), (want, data, enables), "{op:?}");
        assert_eq!(read.len(), len);
        for short in 0..len {
            assert!(CacheMessage::parse(&bytes[..short]).is_err(), "{op:?} of {short} bytes");
            assert!(message.emit(&mut [0; LEN_MAX][..short]).is_err(), "{op:?}");
        }
        let mut other = bytes;
        other[1] |= BEP;
        assert_eq!(CacheMessage::parse(&other).is_ok(), op == CacheOp::DataToHost, "{op:?}");
    }
}

/// A switch sets the `CacheID`, and nothing else.
#[test]
fn a_cache_id_is_set_in_its_place() {
    let head = CacheHead { cache_id: 0xF, addr: ADDR, ..CacheHead::new(CacheOp::RdAny, 0xFED) };
    let (mut bytes, len) = emitted(&CacheMessage::of(head));
    set_cache_id(&mut bytes[..len], 3);
    assert_eq!(CacheMessage::parse(&bytes).unwrap().head, CacheHead { cache_id: 3, ..head });
    let mut short = [0x22; HEAD_LEN - 1];
    set_cache_id(&mut short, 3);
    assert_eq!(short, [0x22; HEAD_LEN - 1]);
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
        let Ok(message) = CacheMessage::parse(&bytes) else { continue };
        read += 1;
        let (again, len) = emitted(&message);
        let same = CacheMessage::parse(&again[..len]).unwrap();
        assert_eq!(
            (same.head, same.data, same.enables),
            (message.head, message.data, message.enables)
        );
        assert_eq!(again[0], bytes[0]);
    }
    assert!(read > 500, "{read} were messages");
}

#[test]
fn names_and_numbers_are_each_others() {
    for byte in 0..=u8::MAX {
        let known = CacheOp::ALL.iter().find(|&&op| op as u8 == byte).copied();
        assert_eq!(CacheOp::decode(byte), known);
    }
    assert!(CacheOp::ALL.windows(2).all(|pair| (pair[0] as u8) < pair[1] as u8));
    for bits in 0..16 {
        let state = GoState::decode(bits);
        assert!(state.is_none_or(|state| state as u16 == bits), "{bits}");
    }
}
