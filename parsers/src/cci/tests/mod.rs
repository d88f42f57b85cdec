//! Every command against bytes that were laid out by hand from the page, offset by offset.

mod basics;
mod edge;
mod gfd;
mod host_dc;
mod ld;
mod pbr;
mod stream;
mod switch;

use super::wire::refused;
use super::*;
use crate::testing::Rng;
use crate::{Field, ParseError};

/// Payloads in hex, with the requests that they carry.
type Requests = &'static [(&'static str, Request<'static>)];
type Responses = &'static [(&'static str, Response<'static>)];

const REQUESTS: [Requests; 7] = [
    basics::REQUESTS,
    switch::REQUESTS,
    ld::REQUESTS,
    host_dc::REQUESTS,
    pbr::REQUESTS,
    edge::REQUESTS,
    gfd::REQUESTS,
];
const RESPONSES: [Responses; 7] = [
    basics::RESPONSES,
    switch::RESPONSES,
    ld::RESPONSES,
    host_dc::RESPONSES,
    pbr::RESPONSES,
    edge::RESPONSES,
    gfd::RESPONSES,
];

/// Commands whose request is empty.
const NO_REQUEST: &[u16] = &[
    0x0001, 0x0002, 0x0003, 0x0005, 0x0102, 0x0104, 0x0109, 0x0400, 0x0700, 0x4900, 0x4901, 0x490E,
    0x4910, 0x5100, 0x5104, 0x5400, 0x5403, 0x5405, 0x5600, 0x5700,
];

/// Commands whose response is empty.
const NO_RESPONSE: &[u16] = &[
    0x0005, 0x0101, 0x0103, 0x0106, 0x0107, 0x0108, 0x010A, 0x4903, 0x4906, 0x4909, 0x490A, 0x490D,
    0x4914, 0x5102, 0x5105, 0x5201, 0x5202, 0x5203, 0x5602, 0x5604, 0x5605, 0x5606, 0x5607, 0x5704,
    0x5706, 0x5709, 0x570B, 0x570D, 0x570F, 0x5711, 0x5713, 0x5716, 0x5804, 0x5806, 0x5808, 0x5902,
    0x5904,
];

/// Bytes from hex digits; spaces and bars only set them apart.
pub struct Bytes {
    bytes: [u8; 512],
    len: usize,
}

pub fn hex(text: &str) -> Bytes {
    let mut digits = text.bytes().filter(u8::is_ascii_hexdigit);
    let mut parsed = Bytes { bytes: [0; 512], len: 0 };
    let value = |digit: u8| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap();
    while let Some(high) = digits.next() {
        let low = digits.next().expect("bytes have two digits");
        parsed.bytes[parsed.len] = value(high) << 4 | value(low);
        parsed.len += 1;
    }
    parsed
}

impl core::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// 490Bh counts nothing and 0401h is all data, so some of their prefixes are right.
fn has_no_count(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::DC_LIST_TAGS | Opcode::GET_LOG)
}

/// Checks one way of reading and writing: exact, at every other length refused, and with random bytes
/// put in either refused or read, written and read the same.
macro_rules! check {
    ($kind:ident, $text:expr, $want:expr) => {{
        let (bytes, want) = (hex($text), $want);
        let opcode = want.opcode();
        assert_eq!($kind::parse(opcode, &bytes), Ok(want), "{opcode}");
        let mut out = [0xFF; 512];
        assert_eq!(want.emit(&mut out), Some(bytes.len()), "{opcode}");
        assert_eq!(out[..bytes.len()], bytes[..], "{opcode}");
        assert!(out[bytes.len()..].iter().all(|&byte| byte == 0xFF), "{opcode} ends there");
        for room in 0..bytes.len() {
            assert_eq!(want.emit(&mut out[..room]), None, "{opcode} does not fit in {room}");
        }
        let counted = stringify!($kind) == "Request" || !has_no_count(opcode);
        for had in 0..bytes.len() {
            let refused = $kind::parse(opcode, &bytes[..had]).err();
            let is_length = matches!(refused, Some(RequestError::PayloadLength(_)));
            assert!(is_length || !counted, "{opcode}, {had} bytes: {refused:?}");
        }
        if counted {
            let mut long = bytes.bytes;
            long[bytes.len] = 0;
            let refused = $kind::parse(opcode, &long[..bytes.len() + 1]).err();
            assert!(
                matches!(refused, Some(RequestError::PayloadLength(_))),
                "{opcode}: {refused:?}"
            );
        }
        let mut rng = Rng::new(u64::from(opcode.0));
        let mut read = 0;
        for _ in 0..300 {
            let mut other = bytes.bytes;
            for _ in 0..=rng.below(6) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                other[at] = rng.u8();
            }
            let other = &other[..bytes.len()];
            if let Ok(value) = $kind::parse(opcode, other) {
                read += 1;
                let mut out = [0xFF; 512];
                assert_eq!(value.emit(&mut out), Some(other.len()), "{opcode} {other:02x?}");
                assert_eq!($kind::parse(opcode, &out[..other.len()]), Ok(value), "{opcode}");
                let within = out.iter().zip(other).all(|(out, other)| out & !other == 0);
                assert!(within, "{opcode} writes what was read, less reserved bits");
            }
        }
        assert!(read >= 5, "{opcode}: only {read} of 300 random payloads were read");
    }};
}

#[test]
fn every_request_is_read_and_written() {
    for (text, want) in REQUESTS.into_iter().flatten() {
        check!(Request, text, *want);
    }
}

#[test]
fn every_response_is_read_and_written() {
    for (text, want) in RESPONSES.into_iter().flatten() {
        check!(Response, text, *want);
    }
}

/// No command is left out: each has bytes by hand, or stands in the list of those that are empty.
#[test]
fn every_command_has_bytes_by_hand() {
    let long = [0; 1];
    for &opcode in Opcode::LAID_OUT {
        assert!(opcode.name().is_some());
        let request = REQUESTS.into_iter().flatten().any(|(_, r)| r.opcode() == opcode);
        let empty = NO_REQUEST.contains(&opcode.0);
        assert!(request != empty, "request of {opcode}");
        if empty {
            let parsed = Request::parse(opcode, &[]).expect("empty");
            assert_eq!((parsed.opcode(), parsed.emit(&mut [])), (opcode, Some(0)));
            let refused = Request::parse(opcode, &long).err();
            assert!(matches!(refused, Some(RequestError::PayloadLength(_))), "{opcode}");
        }
        let response = RESPONSES.into_iter().flatten().any(|(_, r)| r.opcode() == opcode);
        let empty = NO_RESPONSE.contains(&opcode.0);
        assert!(response != empty, "response of {opcode}");
        if empty {
            let parsed = Response::parse(opcode, &[]).expect("empty");
            assert_eq!((parsed.opcode(), parsed.emit(&mut [])), (opcode, Some(0)));
            let refused = Response::parse(opcode, &long).err();
            assert!(matches!(refused, Some(RequestError::PayloadLength(_))), "{opcode}");
        }
    }
    assert!(Opcode::LAID_OUT.is_sorted(), "in order, so none twice");
}

/// Reserved codes of the page's tables: opcode, payload, refused field, its value.
#[test]
fn reserved_codes_are_invalid_input() {
    #[rustfmt::skip] // columns: opcode, payload, field, value
    let cases = [
        (0x0701, "04 0100 00112233445566778899AABBCCDDEEFF 0100", Field::Operation, 4),
        (0x4907, "0100 04 00 0000000000000000 00000000000000000000000000000000 00000000 00000000", Field::Policy, 4),
        (0x4908, "0100 22 00 0000000000000000 00000000000000000000000000000000 00000000 00000000", Field::Policy, 2),
        (0x4914, "0100 0000 01 00 | 0001 00 00 0000000000000000 0000000000000000 0000000000000000 09 00 00 00", Field::Interleave, 0x900),
        (0x4914, "0100 0000 01 00 | 0001 00 00 0000000000000000 0000000000000000 0000000000000000 00 07 00 00", Field::Interleave, 7),
        (0x4914, "0100 0000 01 00 | 0001 00 00 0000000000000000 0000000000000000 0000000000000000 02 00 04 00", Field::Interleave, 4),
        (0x5102, "01 03", Field::Operation, 3),
        (0x5202, "01 02 03", Field::Operation, 3),
        (0x5300, "01 02 0000", Field::Kind, 2),
        (0x5302, "01 000080 0000 0110 0000000000000000 | ", Field::Length, 16),
        (0x5604, "0100 04 00 0000000000000000 00000000000000000000000000000000 00000000", Field::Policy, 4),
        (0x5605, "0100 02 00 0000000000000000 00000000000000000000000000000000 00000000", Field::Policy, 2),
        (0x5701, "0100 02 00 0000", Field::Kind, 2),
        (0x5704, "02 00 0000", Field::Operation, 2),
        (0x5706, "02 01 01 00 0100 0000 0000000000000000 0000 0000000000000000 0000", Field::Operation, 2),
        (0x5709, "00 00 0100 0000 | 0305", Field::Kind, 3),
        (0x570B, "00 00 0100 0000 | 0000000000000000 00 03 0000", Field::Mode, 3),
        (0x570B, "00 00 0100 0000 | 0000000000000000 08 00 0000", Field::Primary, 8),
        (0x570F, "00 00 0100 0000 | 01 09 00 00 0000 0000", Field::Interleave, 9),
        (0x5716, "01 00 0120", Field::Operation, 2),
        (0x5806, "00 00 0100 0000 | 01 00 07 00 0000 0000", Field::Interleave, 0),
        (0x5902, "01 00 0150 0000000000000000 0000 0000000000000000 0000", Field::Operation, 5),
    ];
    for (opcode, text, field, value) in cases {
        let opcode = Opcode(opcode);
        let error = Request::parse(opcode, &hex(text)).expect_err("reserved");
        if field == Field::Length {
            assert_eq!(error.return_code(), ReturnCode::InvalidPayloadLength, "{opcode}");
        } else {
            assert_eq!(error, RequestError::Input(refused(field, value)), "{opcode}");
            assert_eq!(error.return_code(), ReturnCode::InvalidInput, "{opcode}");
        }
    }
    let responses = [
        (0x5703, "0100 0100 | 0000 03 00 00 00 0000", Field::Kind, 3),
        (
            0x5707,
            "0000 0100 | 02 00 00 0000000000000000 0000000000000000 0000000000000000 0000000000000000 00000000",
            Field::Kind,
            2,
        ),
    ];
    for (opcode, text, field, value) in responses {
        let refused = RequestError::Input(refused(field, value));
        assert_eq!(Response::parse(Opcode(opcode), &hex(text)), Err(refused), "{opcode:#x}");
    }
}

#[test]
fn unknown_commands_are_unsupported() {
    for opcode in
        [0x0000, 0x0006, 0x4915, 0x5502, 0x5609, 0x5717, 0x580C, 0x5905, 0xC000, 0xC50F, 0xC511]
    {
        let opcode = Opcode(opcode);
        for error in [Request::parse(opcode, &[]).err(), Response::parse(opcode, &[]).err()] {
            assert_eq!(error, Some(RequestError::Unsupported(opcode)));
            assert_eq!(error.map(RequestError::return_code), Some(ReturnCode::Unsupported));
        }
    }
    assert_eq!(Opcode(0x5400).name(), Some("Get LD Info"));
    assert_eq!(Opcode(0x5717).name(), None);
    let text = crate::testing::Text::of(&Opcode(0x5704));
    assert_eq!(text.as_str(), "5704h Configure PID Assignment");
}

/// A list says too much or too little: the count is held against the bytes.
#[test]
fn counts_are_exact() {
    #[rustfmt::skip] // columns: opcode, payload, error
    let cases = [
        (0x5709, "00 00 0200 2301 | 0105",     ParseError::short(crate::Layer::CciPayload, 10, 8)),
        (0x5709, "00 00 0100 2301 | 0105 0106", refused(Field::Length, 4)),
        (0x5709, "00 00 0000 2301 | 0105",     refused(Field::Length, 2)),
        (0x5101, "03 01 02",                   ParseError::short(crate::Layer::CciPayload, 4, 3)),
        (0x5302, "01 000000 0000 0400 0000000000000000 | 01020304", refused(Field::Length, 20)),
    ];
    for (opcode, text, error) in cases {
        let bytes = hex(text);
        let got = Request::parse(Opcode(opcode), &bytes);
        assert_eq!(got, Err(RequestError::PayloadLength(error)), "{opcode:#x}");
    }
    // A count that no payload can meet.
    let huge = hex("0100 00 00 0000000000000000 00000000000000000000000000000000 FFFFFFFF");
    let got = Request::parse(Opcode::INITIATE_ADD, &huge);
    assert!(matches!(got, Err(RequestError::PayloadLength(_))), "{got:?}");
    let huge = hex("0000000000000000 FFFFFFFFFFFFFFFF");
    let got = Response::parse(Opcode::READ_CDAT, &huge);
    assert!(matches!(got, Err(RequestError::PayloadLength(_))), "{got:?}");
}

/// A list with more entries than its count can say is not emitted at all, rather than cut off.
#[test]
fn lists_that_cannot_be_counted_are_not_emitted() {
    let ports = [7; 256];
    let mut out = [0; 512];
    let request = |ports| Request::GetPortState(super::switch::PortList { ports });
    assert_eq!(request(List::of(&ports[..255])).emit(&mut out), Some(256));
    assert_eq!(request(List::of(&ports)).emit(&mut out), None);
}

/// Reserved bits are ignored when read.
#[test]
fn reserved_bits_do_not_count() {
    #[rustfmt::skip] // columns: opcode, payload, the same without reserved bits
    let cases = [
        (0x5709, "00 FF 0100 2301 | FD05",  "00 00 0100 2301 | 0105"),
        (0x5704, "F8 FF 0100 | 10F0 0100 00", "00 00 0100 | 1000 0100 00"),
        (0x5808, "01 FF 0100 0200 FFFF | 23F1", "01 00 0100 0200 0000 | 2301"),
        (0x010A, "FF FF FF FF FF FF FF FF", "E3 FF FF FF FF FF 0F FF"),
    ];
    for (opcode, text, clean) in cases {
        let bytes = hex(text);
        let request = Request::parse(Opcode(opcode), &bytes).expect("right otherwise");
        let mut out = [0xFF; 32];
        let len = request.emit(&mut out).expect("fits");
        assert_eq!(out[..len], hex(clean)[..], "{opcode:#x}");
    }
}
