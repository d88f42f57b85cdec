//! Each command of a switch as bytes: requests and responses written by hand from the specification.
//!
//! A row has the sender, opcode, payload, return code and payload of the response. A refused row must not change the
//! switch. Payloads are in hex: `00*16` stands for 16 bytes, and spaces and bars only separate fields.
//!
//! Source: docs/spec/wire-formats.md §4.1 to §4.6; 0001h to 0005h, 0400h, 0401h, 5203h after CXL 3.1 sections 7.6.7,
//! 8.2.9.

use weft_cxl::cci::Common;

use super::*;

/// Sender, opcode, request, return code, response.
type Row = (Session, u16, &'static str, u16, &'static str);

const OTHER_FM: Session = Session::Fm(2);

const OK: u16 = 0;
const STARTED: u16 = 1;
const INPUT: u16 = 2;
const UNSUPPORTED: u16 = 3;
const BUSY: u16 = 6;
const HANDLE: u16 = 0x0E;
const LENGTH: u16 = 0x16;
const LOG: u16 = 0x17;
const EXHAUSTED: u16 = 0x1D;
const NOT_ABORTABLE: u16 = 0x20;

fn hex(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split([' ', '|', '\n']).filter(|word| !word.is_empty()) {
        let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
        let one: Vec<u8> = (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hex"))
            .collect();
        assert!(digits.len().is_multiple_of(2), "{word}");
        bytes.extend(one.repeat(times.parse().expect("a number")));
    }
    bytes
}

/// A request with tag A5h.
fn request(opcode: u16, payload: &str) -> Vec<u8> {
    let payload = hex(payload);
    let [low, high] = opcode.to_le_bytes();
    let [len, len_high, ..] = payload.len().to_le_bytes();
    [&[0, 0xA5, 0, low, high, len, len_high, 0, 0, 0, 0, 0], &payload[..]].concat()
}

/// The response to it, with its whole header.
fn response(opcode: u16, code: u16, payload: &str) -> Vec<u8> {
    let mut bytes = request(opcode, payload);
    (bytes[0], bytes[7]) = (1, if code == STARTED { 0x80 } else { 0 });
    bytes[8..10].copy_from_slice(&code.to_le_bytes());
    bytes
}

impl Bench {
    /// Sends each row, and compares the response with it.
    fn tell(&mut self, rows: &[Row]) {
        for &(who, opcode, payload, code, want) in rows {
            let before = self.switch.clone();
            let (served, out) = self.send(who, &request(opcode, payload));
            let name = format!("{opcode:04X} {payload} of {who:?}");
            assert_eq!(served, Served::Response, "{name}");
            assert_eq!(out, response(opcode, code, want), "{name}\n is {out:02X?}");
            assert!(
                code < INPUT || self.switch == before,
                "{name} was refused and changed something"
            );
        }
    }
}

/// The example of docs/spec/wire-formats.md §4.4.
const CLAIM: &str = "00 0100 101112131415161718191A1B1C1D1E1F 1000";

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const OWNERS: &[Row] = &[
    (FM, 0x0001, "", OK, "981E 4657 981E 0000 | 0700000000000000 | 10 | 00"),
    (HOST, 0x0001, "00", LENGTH, ""),
    (FM, 0x0002, "", UNSUPPORTED, ""),
    (FM, 0x0700, "", OK, "FF0F FF0F 00*16 FF0F 00*16"),
    (FM, 0x0700, "00", LENGTH, ""),
    (FM, 0x0701, "01 0100 10*16 1000", INPUT, ""),
    (FM, 0x0701, "04 0100 10*16 1000", INPUT, ""),
    (FM, 0x0701, "00 FF0F 10*16 1000", INPUT, ""),
    (FM, 0x0701, CLAIM, OK, "0100 101112131415161718191A1B1C1D1E1F FF0F 00*16"),
    (FM, 0x0701, CLAIM, INPUT, ""),
    (FM, 0x0700, "", OK, "1000 0100 101112131415161718191A1B1C1D1E1F FF0F 00*16"),
    (FM, 0x0701, "01 0200 20*16 0000", OK, "0100 101112131415161718191A1B1C1D1E1F 0200 20*16"),
    (OTHER_FM, 0x0701, "02 0200 20*16 1100", INPUT, ""),
    (FM, 0x0701, "02 0100 101112131415161718191A1B1C1D1E1F 1100", OK,
        "0100 101112131415161718191A1B1C1D1E1F 0200 20*16"),
    (OTHER_FM, 0x0003, "", UNSUPPORTED, ""),
    (OTHER_FM, 0x0701, "03 0200 20*16 0000", OK, "0200 20*16 FF0F 00*16"),
    (OTHER_FM, 0x0700, "", OK, "1100 0200 20*16 FF0F 00*16"),
    (OTHER_FM, 0x0002, "", OK, "00 00 0000 0000 0000"),
    (OTHER_FM, 0x0002, "00", LENGTH, ""),
    (OTHER_FM, 0x0003, "", OK, "10"),
    (OTHER_FM, 0x0003, "00", LENGTH, ""),
    (OTHER_FM, 0x0004, "0C", OK, "0C"),
    (OTHER_FM, 0x0003, "", OK, "0C"),
    (OTHER_FM, 0x0004, "07", INPUT, ""),
    (OTHER_FM, 0x0004, "14", OK, "10"),
    (OTHER_FM, 0x0005, "", OK, ""),
    (OTHER_FM, 0x0005, "00", LENGTH, ""),
    // The log has 72 commands of four bytes each.
    (HOST, 0x0400, "", OK, "0100 00*6 | 0DA9C0B5BF414B788F7996B1623B3F17 20010000"),
    (HOST, 0x0400, "00", LENGTH, ""),
    (HOST, 0x0401, "0DA9C0B5BF414B788F7996B1623B3F17 04000000 08000000", OK, "02000000 03000000"),
    (HOST, 0x0401, "0DA9C0B5BF414B788F7996B1623B3F17 20010000 01000000", INPUT, ""),
    (HOST, 0x0401, "00*16 00000000 04000000", LOG, ""),
    // Bytes 0 to 3 of a table of 128 bytes.
    (OTHER_FM, 0x0702, "1100 0000 00*8 0400000000000000", OK, "8000000000000000 0400000000000000 80000000"),
    (OTHER_FM, 0x0702, "1200 0000 00*8 0400000000000000", INPUT, ""),
    (OTHER_FM, 0x0702, "FF0F 0000 00*8 0400000000000000", INPUT, ""),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const EVENTS: &[Row] = &[
    (FM, 0x0100, "00", OK, "00*32"),
    (FM, 0x0100, "01", OK, "00 00 0000 00*8 00*8 0100 00*10 \
        | 77CF92719C02470B9FE4BC7B75F2DA97 80 010000 0100 0000 00*8 00 00 00*14 \
        | 01 00 0000 00 03 00 00 00 0F 10 00 3F 06 00 00 00 0000 00*61"),
    (FM, 0x0100, "05", INPUT, ""),
    (FM, 0x0100, "", LENGTH, ""),
    (FM, 0x0101, "01 00 01 00*3 0900", HANDLE, ""),
    (FM, 0x0101, "01 01 01 00*3 0100", INPUT, ""),
    (FM, 0x0101, "01 00 01 00*3 0100", OK, ""),
    (FM, 0x0101, "01 01 00 00*3", OK, ""),
    (FM, 0x0101, "05 01 00 00*3", INPUT, ""),
    (FM, 0x0100, "01", OK, "00*32"),
    (FM, 0x0104, "", OK, "0000"),
    (FM, 0x0104, "00", LENGTH, ""),
    (FM, 0x0105, "FFFF", OK, "0300"),
    (FM, 0x0105, "FF", LENGTH, ""),
    (FM, 0x0104, "", OK, "0300"),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const PORTS: &[Row] = &[
    (FM, 0x5100, "", OK, "00 00 06 02 | 3F 00*31 | 03 00*31 | 0800 0100 00"),
    (FM, 0x5100, "00", LENGTH, ""),
    (FM, 0x5101, "02 01 04", OK,
        "02 00*3 | 01 03 03 00 05 0F 10 10 3F 06 06 04 00 0000 02 | 04 05 04 00 06 0F 10 10 3F 06 06 04 00 0000 00"),
    (FM, 0x5101, "02 01 06", INPUT, ""),
    (FM, 0x5101, "01 01", OK, "01 00*3 | 01 03 03 00 05 0F 10 10 3F 06 06 04 00 0000 02"),
    (FM, 0xC510, "02 01 04", OK, "0000000000000000 02 00*7 | 01 00*23 | 04 00*23"),
    (FM, 0xC510, "01 06", INPUT, ""),
    (HOST, 0xC510, "01 01", UNSUPPORTED, ""),
    (HOST, 0x5102, "01 00", UNSUPPORTED, ""), // hosts may not control ports
    (FM, 0x5102, "01 03", INPUT, ""),
    (FM, 0x5102, "00 00", INPUT, ""), // a host port
    (FM, 0x5102, "04 02", INPUT, ""), // a port to another switch
    (FM, 0x5102, "09 00", INPUT, ""),
    (FM, 0x5102, "03 02", INPUT, ""), // a port without a link
    (FM, 0x5102, "02 00", OK, ""),
    (FM, 0x5102, "02 01", OK, ""),
    (FM, 0x5102, "01 02", OK, ""),
    (FM, 0x5103, "01 00F000 00000000", OK, "981E4757"),
    (FM, 0x5103, "01 06F080 01020300", OK, "00000000"),
    (FM, 0x5103, "01 06F000 00000000", OK, "01020300"),
    (FM, 0x5103, "01 06F480 01020300", INPUT, ""),
    (FM, 0x5103, "09 00F000 00000000", INPUT, ""),
    (FM, 0x5104, "", OK, "00"),
    (FM, 0x5104, "00", LENGTH, ""),
    (HOST, 0x5105, "505152535455565758595A5B5C5D5E5F", OK, ""),
    (HOST, 0x5105, "00*16", INPUT, ""),
    (HOST, 0x5104, "", OK, "01"),
    (FM, 0x5106, "00", OK, "01"),
    (FM, 0x5106, "01", OK, "00"),
    (FM, 0x5106, "02", INPUT, ""),
    (FM, 0x5107, "00", OK, "505152535455565758595A5B5C5D5E5F"),
    (FM, 0x5107, "02", INPUT, ""),
    (FM, 0x5702, "02 04 01", OK,
        "02 00*3 | 04 03 7700 07*16 01 08 01*16 02*16 | 01 00 FF0F 00*16 00 00 00*16 00*16"),
    (FM, 0x5702, "02 04 06", INPUT, ""),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const BIND: &[Row] = &[
    (FM, 0x5200, "00 FF 02 00 01", OK,
        "02 00*3 | 00 01 00 05 0200FF00 00FFFF00 00FFFF00 00FFFF00 00FFFF00 | 01 01 FF 03 00FFFF00 00FFFF00 00FFFF00"),
    (FM, 0x5200, "00 FF 02 00 02", INPUT, ""),
    (FM, 0x5201, "00 01 00 00 FFFF", INPUT, ""),
    (FM, 0x5202, "00 01 00", INPUT, ""),
    (FM, 0x5201, "00 01 02 00 FFFF", STARTED, ""),
    (FM, 0x0002, "", OK, "01 00 0152 0000 0000"),
    (FM, 0x0005, "", NOT_ABORTABLE, ""),
    (FM, 0x5201, "00 02 03 00 FFFF", BUSY, ""),
];
#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const UNBIND: &[Row] = &[
    (FM, 0x0002, "", OK, "C8 00 0152 0000 0000"),
    (FM, 0x5200, "00 FF 01 00", OK, "01 00*3 | 00 01 00 05 0200FF00 0202FF00 00FFFF00 00FFFF00 00FFFF00"),
    (FM, 0x5202, "00 01 03", INPUT, ""),
    (FM, 0x5202, "02 01 00", INPUT, ""),
    (FM, 0x5203, "00 02 0000 00000400 00*32", OK, ""),
    (FM, 0x5203, "00 02 0000 00000000 00*32", INPUT, ""),
    (FM, 0x5203, "00 05 0000 00000400 00*32", INPUT, ""),
    (FM, 0x5202, "00 01 01", STARTED, ""),
];
#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const UNBOUND: &[Row] = &[
    (FM, 0x0002, "", OK, "C8 00 0252 0000 0000"),
    (FM, 0x5200, "00 FF 01 00", OK, "01 00*3 | 00 01 00 05 0200FF00 00FFFF00 00FFFF00 00FFFF00 00FFFF00"),
];

/// An Identify request, as another component receives it.
const INNER: &str = "00 33 00 01 00 00 00 00 00 00 00 00";

/// Requests that another component answers: its answer, and the response of the switch.
#[rustfmt::skip] // columns: opcode, request, answer of the other component, response
const AWAY: &[(u16, &str, &str, &str)] = &[
    (0x5300, "01 00 0C00 | 003300010000000000000000", "01 33 00 01 00*8 A1", "0D00 0000 | 01 33 00 01 00*8 A1"),
    (0x5301, "01 01F000 0100 0000 00000000", "A1A2A3A4", "A1A2A3A4"),
    (0x5302, "01 00F00F 0100 0400 0800000000000000", "0400 0000 A1A2A3A4", "0400 0000 A1A2A3A4"),
    (0x5302, "01 00F08F 0100 0400 0800000000000000 A1A2A3A4", "0000 0000", "0000 0000"),
    (0x5701, "0400 00 00 0C00 | 003300010000000000000000", "01 33 00 01 00*8 A1", "0D00 0000 | 01 33 00 01 00*8 A1"),
];
#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const NOT_AWAY: &[Row] = &[
    (FM, 0x5300, "02 00 0C00 | 003300010000000000000000", INPUT, ""),
    (FM, 0x5300, "01 02 0C00 | 003300010000000000000000", INPUT, ""),
    (FM, 0x5300, "01 00 0D00 | 003300010000000000000000", LENGTH, ""),
    (FM, 0x5301, "01 01F000 0200 0000 00000000", INPUT, ""),
    (FM, 0x5301, "02 01F000 0000 0000 00000000", INPUT, ""),
    (FM, 0x5302, "01 00F00F 0200 0400 0800000000000000", INPUT, ""),
    (FM, 0x5302, "01 00F08F 0100 0400 0800000000000000 A1A2A3", LENGTH, ""),
    (FM, 0x5302, "01 00F00F 0100 0110 0800000000000000", INPUT, ""),
    (FM, 0x5701, "0900 00 00 0C00 | 003300010000000000000000", INPUT, ""),
    (FM, 0x5701, "5500 01 00 0C00 | 003300010000000000000000", INPUT, ""),
    (FM, 0x5701, "0400 07 00 0C00 | 003300010000000000000000", INPUT, ""),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const ROUTES: &[Row] = &[
    (FM, 0x5700, "", OK, "01 00*7 | 01 01 00 03"),
    (FM, 0x5700, "00", LENGTH, ""),
    (FM, 0x5703, "0000 0200", OK, "0C00 0200 | 0000 01 00 00 00 FF0F | 0000 01 01 00 00 FF0F"),
    (FM, 0x5703, "0B00 0900", OK, "0C00 0100 | 0500 00 01 00 05 FF0F"),
    (FM, 0x5703, "0D00 0100", INPUT, ""),
    (FM, 0x5704, "00 00 0100 | 2000 0000 00", OK, ""),
    (FM, 0x5703, "0000 0100", OK, "0C00 0100 | 0000 01 00 00 00 2000"),
    (FM, 0x5704, "00 00 0200 | 2100 0000 01 | 2000 0100 00", INPUT, ""),
    (FM, 0x5704, "00 00 0100 | FF0F 0000 01", INPUT, ""),
    (FM, 0x5704, "07 00 0100 | 2100 0000 01", INPUT, ""),
    (FM, 0x5705, "00 01", OK, "FF0F 1000 00*8 0000 00*8 0000"),
    (FM, 0x5705, "00 05", INPUT, ""),
    (FM, 0x5706, "00 00 01 00 FF0F 0000 00*20", INPUT, ""),
    (FM, 0x5706, "02 00 01 00 9900 0000 00*20", INPUT, ""),
    (FM, 0x5706, "01 00 01 00 9900 0000 00*20", INPUT, ""),
    (FM, 0x5706, "00 00 01 00 9900 0000 E803000000000000 0300 0100000000000000 0900", STARTED, ""),
];
#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const TABLES: &[Row] = &[
    (FM, 0x5705, "00 01", OK, "9900 1000 E803000000000000 0300 0100000000000000 0900"),
    (FM, 0x5707, "0000 0900", OK, "0000 0200 | 00 00 00 3F 00*31 00*4 | 01 00 00 3F 00*31 00*4"),
    (FM, 0x5707, "0300 0100", INPUT, ""),
    (FM, 0x5709, "00 00 0300 2201 | 0105 0105 0203", OK, ""),
    (FM, 0x5708, "00 00 0300 2301", OK, "00 00 0300 2301 00 00 | 0105 0203 0000"),
    (FM, 0x5709, "00 00 0200 2301 | 0000 0106", INPUT, ""),
    (FM, 0x5709, "00 00 0200 2301 | 0000 0306", INPUT, ""),
    (FM, 0x5708, "00 00 0200 FF0F", INPUT, ""),
    (FM, 0x5708, "01 00 0100 0000", INPUT, ""),
    (FM, 0x570B, "00 00 0100 0200 | 0405000000000000 01 19 0000", OK, ""),
    (FM, 0x570A, "00 00 0200 0200", OK, "00 00 0200 0200 | 0405000000000000 01 19 0000 | 00*12"),
    (FM, 0x570B, "00 00 0100 0200 | 0406000000000000 01 11 0000", INPUT, ""),
    (FM, 0x570B, "00 00 0100 0200 | 0405000000000000 01 1B 0000", INPUT, ""),
    (FM, 0x570A, "00 00 0100 0400", INPUT, ""),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const ACCESS: &[Row] = &[
    (FM, 0x5900, "00 00 02", OK, "FF7F 0200 0200 00 02 | 1000 0000 | 1000 0000"),
    (FM, 0x5900, "01 00 02", INPUT, ""),
    (HOST, 0x5800, "04 09", OK, "FF7F 0200 0200 04 01 | 1000 0000"),
    (HOST, 0x5800, "06 01", INPUT, ""),
    (FM, 0x5902, "00 00 2301 00*20", OK, ""),
    (FM, 0x5902, "00 00 FF0F 00*20", INPUT, ""),
    (FM, 0x5902, "00 00 2451 00*20", INPUT, ""),
    (FM, 0x5902, "02 00 2401 00*20", INPUT, ""),
    (FM, 0x5901, "00 00*3 24000000 01000000", OK, "01000000 | 08"),
    (FM, 0x5902, "00 00 2321 00*20", OK, ""),
    (FM, 0x5901, "00 00*3 24020000 02000000", OK, "02000000 | 08 00"),
    (FM, 0x5901, "00 00*3 01000000 00040000", INPUT, ""),
    (HOST, 0x5802, "23000000 02000000", OK, "02000000 | 00 08"),
    (HOST, 0x5802, "00040000 01000000", INPUT, ""),
    (HOST, 0x5801, "24000000 01000000 00", OK, "01000000 | 08"),
    (HOST, 0x5801, "01000000 00020000 01", INPUT, ""),
    (HOST, 0x5801, "24000000 01000000 01", OK, "01000000 | 08"),
    (HOST, 0x5801, "24000000 01000000 00", OK, "01000000 | 00"),
    (FM, 0x5904, "00 00 03", OK, ""),
    (FM, 0x5903, "00", OK, "03"),
    (FM, 0x5904, "02 00 01", INPUT, ""),
    (FM, 0x5903, "02", INPUT, ""),
    (FM, 0x5716, "00 00 2301", OK, ""),
    (FM, 0x5716, "00 00 2421", INPUT, ""),
    (FM, 0x5716, "00 00 FF0F", INPUT, ""),
    (FM, 0x5715, "00 00*3 24000000 01000000", OK, "01000000 | 08"),
    (FM, 0x5715, "02 00*3 24000000 01000000", INPUT, ""),
    (HOST, 0x5714, "24000000 01000000", OK, "01000000 | 08"),
    (HOST, 0x5714, "00020000 01000000", INPUT, ""),
];

/// Window from 1 TiB on, with four segments of 64 GiB in FAST and two in LDST.
#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const EDGE: &[Row] = &[
    (HOST, 0x5804, "00 00 01 00 0000000000010000 0000000040010000", OK, ""),
    (HOST, 0x5804, "00 08 01 00 0000000000010000 0000000040010000", INPUT, ""),
    (HOST, 0x5804, "00 00 00 00 0010000000010000 0000000040010000", INPUT, ""),
    (HOST, 0x5803, "00 00*3", OK, "00 1000 00 0800 01 01 0000 0000000000010000 0000000040010000 2000"),
    (HOST, 0x5803, "05 00*3", INPUT, ""),
    (HOST, 0x5806, "00 00 0200 0100 | 01 00 00 00 2301 0000 | 03 00 00 00 2301 0000", OK, ""),
    (HOST, 0x5806, "00 00 0200 0100 | 00*8 | 01 00 00 00 2401 0000", INPUT, ""),
    (HOST, 0x5806, "00 00 0100 0100 | 01 09 00 00 2301 0000", INPUT, ""),
    (HOST, 0x5805, "00 00 0300 0100", OK, "0300 0100 | 0100000023010000 | 0300000023010000 | 00*8"),
    (HOST, 0x5805, "00 00 0100 1000", INPUT, ""),
    (HOST, 0x5808, "00 00 0100 0300 0000 | 2301", OK, ""),
    (HOST, 0x5808, "00 00 0200 0300 0000 | FF0F 2401", INPUT, ""),
    (HOST, 0x5807, "00 00 0200 0300", OK, "0200 0300 | 2301 FF0F"),
    (HOST, 0x5807, "00 00 0100 0800", INPUT, ""),
    (HOST, 0x570D, "01 00 0000000000010000 0000000020010000", OK, ""),
    (HOST, 0x570D, "01 08 0000000000010000 0000000020010000", INPUT, ""),
    (HOST, 0x570D, "01 00 0000000000010000 0000000000010000", INPUT, ""),
    (HOST, 0x570C, "01", OK, "01 1000 00 0800 0001 FF0F 0000000000010000 0000000020010000"),
    (HOST, 0x570C, "05", INPUT, ""),
    (HOST, 0x570F, "01 00 0100 0000 | 03 00 00 00 2301 0000", OK, ""),
    (HOST, 0x570F, "01 00 0200 0000 | 00*8 | 01 00 00 00 2401 0000", INPUT, ""),
    (HOST, 0x570E, "01 00 0200 0000", OK, "0200 0000 | 0300000023010000 | 00*8"),
    (HOST, 0x570E, "01 00 0100 1000", INPUT, ""),
    (HOST, 0x5711, "01 00 0100 0300 0000 | 2301", OK, ""),
    (HOST, 0x5711, "01 00 0200 0300 0000 | FF0F 2401", INPUT, ""),
    (HOST, 0x5710, "01 00 0200 0300", OK, "0200 0300 | 2301 FF0F"),
    (HOST, 0x5710, "01 00 0100 0800", INPUT, ""),
    (HOST, 0x5713, "01 00 0100 0500 | 2311 01 02 23", OK, ""),
    (HOST, 0x5713, "01 00 0200 0600 | 2301 00 09 00 | 2401 00 03 00", INPUT, ""),
    (HOST, 0x5712, "01 00 0200 0500", OK, "0200 0500 | 2311 01 02 23 | 00*5"),
    (HOST, 0x5712, "01 00 0200 FF00", INPUT, ""),
    (HOST, 0x010A, "0100010000000003", OK, ""),
    (HOST, 0x0109, "", OK, "0100010000000003"),
    (HOST, 0x010A, "0100010000000004", INPUT, ""),
    (HOST, 0x0109, "00", LENGTH, ""),
];

#[rustfmt::skip] // columns: sender, opcode, request, return code, response
const PROXIES: &[Row] = &[
    (HOST, 0x5809, "5100 0010000000000000 4000 0020000000000000 4000", INPUT, ""),
    (FM, 0x5902, "00 00 5100 00*20", OK, ""),
    (FM, 0x5902, "00 00 5200 00*20", OK, ""),
    (FM, 0x5902, "00 00 5300 00*20", OK, ""),
    (HOST, 0x5809, "5100 0010000000000000 4000 0020000000000000 4000", OK, "00 0100"),
    (HOST, 0x5809, "5100 0010000000000000 4000 0020000000000000 4000", BUSY, ""),
    (HOST, 0x5809, "5200 0010000000000000 4000 0020000000000000 4000", OK, "00 0000"),
    (HOST, 0x5809, "5300 0010000000000000 4000 0020000000000000 4000", EXHAUSTED, ""),
    (HOST, 0x580A, "5100", OK, "01 00 0000"),
    (HOST, 0x580A, "5110", INPUT, ""),
    (HOST, 0x580B, "5210", INPUT, ""),
    (HOST, 0x580B, "5100", OK, "0100"),
    (HOST, 0x580B, "5100", INPUT, ""),
    (HOST, 0x580A, "5100", OK, "00 00 0100"),
    (HOST, 0x5809, "5100 0010000000000000 4000 0020000000000000 4000", OK, "01 0000"),
];

const ALL: [&[Row]; 12] =
    [OWNERS, EVENTS, PORTS, BIND, UNBIND, UNBOUND, NOT_AWAY, ROUTES, TABLES, ACCESS, EDGE, PROXIES];

/// A switch with a device of two logical devices at port 1, and another switch at port 4.
fn linked() -> Bench {
    let mut bench = Bench::new();
    bench.up(1);
    bench.up(2);
    bench.up(4);
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    bench.switch.set_partner(port(4), told(3, PidAndKind::SWITCH));
    bench
}

//= docs/spec/wire-formats.md §4.1, §4.2, §4.4: 0001h to 0005h, 0400h, 0401h, 0700h to 0702h
#[test]
fn owners_and_what_every_component_has() {
    Bench::fresh().tell(OWNERS);
}

//= docs/spec/wire-formats.md §4.3, §4.5: 5100h to 5107h, 5702h
#[test]
fn ports() {
    linked().tell(PORTS);
}

//= docs/spec/wire-formats.md §4.3: 5200h to 5203h
#[test]
fn virtual_switches_and_their_vppbs() {
    let mut bench = linked();
    bench.tell(BIND);
    bench.wait(Span::from_ms(2));
    bench.tell(UNBIND);
    bench.wait(Span::from_ms(2));
    bench.tell(UNBOUND);
}

//= docs/spec/wire-formats.md §4.1, §4.3, §4.5: 5300h to 5302h, 5701h
#[test]
fn what_others_answer() {
    let mut bench = linked();
    bench.tell(NOT_AWAY);
    for &(opcode, payload, answer, want) in AWAY {
        let (served, out) = bench.send(FM, &request(opcode, payload));
        let Served::Pending(ticket) = served else { panic!("{opcode:04X} {payload}: {out:02X?}") };
        let sent: Vec<Outgoing> = bench.switch.outgoing().collect();
        if let [Outgoing { to: FarRequest::Device(_, inner) | FarRequest::Port(_, inner), .. }] =
            &sent[..]
        {
            assert_eq!(*inner, hex(INNER), "{opcode:04X}: as it came");
        }
        assert_eq!((sent.len(), out.len()), (1, 0), "{opcode:04X} {payload}");
        let answer = bench.switch.common_mut().complete(ticket, Ok(&hex(answer)));
        let message = answer.expect("awaited").message;
        assert_eq!(message, response(opcode, OK, want), "{opcode:04X}\n is {message:02X?}");
    }
}

//= docs/spec/wire-formats.md §4.5: 5700h, 5703h to 570Bh
#[test]
fn pids_and_routes() {
    let mut bench = linked();
    bench.tell(ROUTES);
    bench.wait(Span::from_ms(2));
    bench.tell(TABLES);
}

//= docs/spec/wire-formats.md §4.5, §4.6: 5714h to 5716h, 5800h to 5802h, 5900h to 5904h
#[test]
fn who_may_reach_what() {
    linked().tell(ACCESS);
}

//= docs/spec/wire-formats.md §4.5, §4.6: 0109h, 010Ah, 570Ch to 5713h, 5803h to 5808h
#[test]
fn the_hosts_tables() {
    let mut bench = linked();
    bench.assign(0, 0, 0x20);
    bench.tell(ACCESS);
    bench.tell(EDGE);
}

//= docs/spec/wire-formats.md §4.6: 5809h to 580Bh
#[test]
fn commands_to_gfds() {
    linked().tell(PROXIES);
}

//= docs/spec/wire-formats.md §4.2: 0100h, 0101h, 0104h, 0105h
#[test]
fn the_event_logs() {
    let mut bench = Bench::new();
    bench.switch.log_port(bench.now, port(1));
    bench.tell(EVENTS);
}

/// Each command of a switch has one row that succeeds and one that is refused.
#[test]
fn every_command_is_in_a_row_that_is_done_and_one_that_is_refused() {
    let bench = Bench::fresh();
    let away = AWAY.iter().map(|&(opcode, ..)| (opcode, true));
    let rows = ALL.into_iter().flatten().map(|&(_, opcode, _, code, _)| (opcode, code < INPUT));
    let all: Vec<(u16, bool)> = rows.chain(away).collect();
    for command in Common::COMMANDS.iter().chain(bench.switch.commands()) {
        for done in [true, false] {
            assert!(all.contains(&(command.opcode.0, done)), "{}, done: {done}", command.opcode);
        }
    }
}
