//! Each command of a device at the level of messages: bytes in, bytes out, and the state after a refused one. [`Rig`]
//! is a device of 1 GiB owned by session 0, in blocks of 256 MiB, with 4 groups, 2 partitions and 2 regions.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.4, §4.7.

use super::*;
use crate::cci::{Common, Component, Served, Session, serve};
use crate::gfd::device::LinkStatus;
use crate::gfd::{Config, Gfd, Memory};
use weft_dataplane::time::{Instant, LinkRate};
use weft_parsers::cci::Opcode;
use weft_parsers::fabric::Pid;

const OWNER: Session = Session::Fm(0);

struct Rig(Device);

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap())
        .collect()
}

/// Little-endian bytes of a number, as digits.
fn le64(value: u64) -> String {
    value.to_le_bytes().map(|byte| format!("{byte:02X} ")).concat()
}

fn zeros(count: usize) -> String {
    "00 ".repeat(count)
}

/// Requests that read all state.
const READS: [(u16, &str); 9] = [
    (0x0700, ""),
    (0x4900, ""),
    (0x4902, "00 00 08 00"),
    (0x4904, "01 00 00 00 10 00 00 00 00 00 00 00"),
    (0x4905, "00 00 04 00"),
    (0x490B, "00 00 00 00 10 00 00 00"),
    (0x490C, "00 00 00 10 00 00"),
    (0x490E, ""),
    (0x4913, "A1 00 00 00 08 00"),
];

impl Rig {
    fn new() -> Self {
        let config =
            Config { groups: 4, dmps: 2, regions: 2, ..Config::full(Pid::NONE, LinkRate::gbps(8)) };
        let mut rig = Self(Device::new(Gfd::new(config, Memory::anonymous(1 << 30)), 7));
        // the example of docs/spec/wire-formats.md §4.4
        let uuid = "10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F";
        let (code, _) = rig.ask(OWNER, 0x0701, &format!("00 01 00 {uuid} 10 00"));
        assert_eq!(code, 0);
        rig
    }

    /// With a partition and a region of 1 GiB.
    fn set_up() -> Self {
        let mut rig = Self::new();
        rig.good(0x4906, &format!("00 00 01 00 {}", dmp("28", 0)), "");
        rig.good(0x4903, &region(0), "");
        rig
    }

    /// Return code and payload of the answer.
    fn ask(&mut self, session: Session, opcode: u16, payload: &str) -> (u16, Vec<u8>) {
        let payload = hex(payload);
        let [low, high] = opcode.to_le_bytes();
        let [len, len_high, ..] = payload.len().to_le_bytes();
        let head = [0, 9, 0, low, high, len, len_high, 0, 0, 0, 0, 0];
        let mut out = Vec::new();
        let message = [&head[..], &payload].concat();
        let served = serve(&mut self.0, Instant::ZERO, session, &message, &mut out);
        assert_eq!((served, &out[..5]), (Served::Response, &[1, 9, 0, low, high][..]));
        assert_eq!(usize::from(u16::from_le_bytes([out[5], out[6]])), out.len() - 12);
        (u16::from_le_bytes([out[8], out[9]]), out[12..].to_vec())
    }

    fn good(&mut self, opcode: u16, payload: &str, want: &str) {
        let (code, got) = self.ask(OWNER, opcode, payload);
        assert_eq!((code, got), (0, hex(want)), "{opcode:04X}");
    }

    /// The command is refused with `want`, and all readable state is as before.
    fn bad(&mut self, opcode: u16, payload: &str, want: u16) {
        let all = |rig: &mut Self| READS.map(|(opcode, payload)| rig.ask(OWNER, opcode, payload));
        let before = all(self);
        assert_eq!(self.ask(OWNER, opcode, payload), (want, vec![]), "{opcode:04X} {payload}");
        assert_eq!(all(self), before, "{opcode:04X} {payload}");
    }
}

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 256 << 20;
const TAG: &str = "60 61 62 63 64 65 66 67 68 69 6A 6B 6C 6D 6E 6F";

fn dmp(flags: &str, index: u8) -> String {
    let (base, len) = (le64(0), le64(GIB));
    format!("{base}{len}{len}{}{flags} {index:02X} 00 00 00 00 00 00", le64(BLOCK))
}

fn region(id: u8) -> String {
    format!("{id:02X} 00 00 00 {} 01 00 00 00 {} {} {}", le64(BLOCK), le64(0), le64(4), le64(GIB))
}

fn extent(start: u64, len: u64, tag: &str) -> String {
    format!("{}{}{tag} 00 00 {}", le64(start), le64(len), zeros(6))
}

const INVALID_INPUT: u16 = 2;
const UNSUPPORTED: u16 = 3;
const INVALID_LENGTH: u16 = 0x16;
const EXHAUSTED: u16 = 0x1D;
const BAD_EXTENTS: u16 = 0x1E;

#[test]
fn who_it_is_and_how_it_is() {
    let mut rig = Rig::new();
    assert_eq!(rig.0.gfd.pid(), Pid::from_low_bits(0x10), "the PID that its owner gave");
    let (code, identity) = rig.ask(OWNER, 0x4900, "");
    assert_eq!((code, identity.len()), (0, 148));
    assert_eq!(identity[..12], hex("02 02 04 00 0F 00 01 00 03 00 03 00"));
    assert_eq!(identity[12..20], 4u64.to_le_bytes(), "1 GiB in 256 MiB");
    assert_eq!(
        identity[20 + 8..20 + 24],
        hex("00 F0 FF FF FF 01 00 00 00 00 00 00 00 00 00 00"),
        "two regions"
    );
    let (_, status) = rig.ask(OWNER, 0x4901, "");
    assert_eq!(status.len(), 11);
    let (_, identity) = rig.ask(Session::Fm(5), 0x0001, "");
    assert_eq!((identity[8], identity[17]), (7, 4), "serial, GFD");
    rig.good(0x0702, &format!("10 00 00 00 {}{}", le64(0), le64(99)), &{
        format!("{}{}10 00 00 00 01 EF {}", le64(16), le64(16), zeros(10))
    });
    rig.bad(0x0702, &format!("11 00 00 00 {}{}", le64(0), le64(99)), INVALID_INPUT);
    rig.bad(0x0702, &format!("10 00 00 00 {}{}", le64(17), le64(1)), INVALID_INPUT);
    rig.bad(0x4900, "00", INVALID_LENGTH);
}

/// A session without rights may not even read; a host's GAE may.
#[test]
fn strangers_are_refused() {
    let mut rig = Rig::set_up();
    for (opcode, payload) in READS.iter().filter(|(opcode, _)| *opcode >= 0x4900) {
        assert_eq!(
            rig.ask(Session::Fm(1), *opcode, payload),
            (UNSUPPORTED, vec![]),
            "{opcode:04X}"
        );
        assert_eq!(rig.ask(Session::Host { vcs: 0 }, *opcode, payload).0, UNSUPPORTED);
        let proxy = Session::Proxy(Pid::from_low_bits(0xA1));
        assert_eq!(rig.ask(proxy, *opcode, payload).0, 0, "{opcode:04X}");
    }
    let before = rig.0.gfd.group_access(Pid::from_low_bits(0xA1));
    assert_eq!(rig.ask(Session::Fm(1), 0x490D, "01 00 A1 00 03 00 00 00").0, UNSUPPORTED);
    assert_eq!(rig.0.gfd.group_access(Pid::from_low_bits(0xA1)), before);
}

#[test]
fn partitions_and_regions() {
    let mut rig = Rig::new();
    let none = format!("{}{}00 00 00 00 00 00", zeros(32), "20 01 ");
    rig.good(0x4906, &format!("00 00 01 00 {}", dmp("28", 0)), "");
    rig.good(0x4905, "00 00 04 00", &format!("00 00 02 02 {}{none}", dmp("28", 0)));
    rig.good(0x4905, "00 00 01 01", &format!("00 00 02 01 {none}"));
    rig.bad(0x4905, "00 00 01 02", INVALID_INPUT);
    rig.bad(0x4906, &format!("00 00 01 01 {}", dmp("28", 0)), INVALID_INPUT);
    rig.bad(0x4906, &format!("00 00 01 02 {}", dmp("28", 2)), INVALID_INPUT);
    rig.bad(0x4906, &format!("00 00 02 00 {}", dmp("28", 0)), INVALID_LENGTH);
    rig.bad(0x4906, &format!("00 00 02 00 {}{}", dmp("28", 0), dmp("28", 1)), INVALID_INPUT);
    rig.good(0x4903, &region(0), "");
    let row = format!("{}{}{}{}00 00 00 00 01 00 00 00", le64(0), le64(4), le64(GIB), le64(BLOCK));
    let (_, got) = rig.ask(OWNER, 0x4902, "00 00 01 00");
    assert_eq!((&got[..44], got.len()), (&hex(&format!("00 00 02 01 {row}"))[..], 60));
    rig.bad(0x4902, "00 00 01 02", INVALID_INPUT);
    rig.bad(0x4903, &region(2), INVALID_INPUT);
    rig.bad(0x4903, &region(1), INVALID_INPUT); // over the first
    let huge = format!(
        "01 00 00 00 {}{}{}{}{}",
        le64(BLOCK),
        "00 00 00 00 ",
        le64(0),
        le64(1 << 40),
        le64(GIB)
    );
    rig.bad(0x4903, &huge, INVALID_INPUT);
}

#[test]
fn capacity_and_tags() {
    let mut rig = Rig::set_up();
    let want = |policy: u8, len: u64, tag: &str, count: u8, list: &str| {
        format!("01 00 {policy:02X} 00 {}{tag} {count:02X} 00 00 00 08 00 00 00 {list}", le64(len))
    };
    let list = |rows: &[String], generation: u8| {
        let count = rows.len();
        let head = format!("01 00 00 00 00 00 00 00 {count:02X} 00 00 00 {count:02X} 00 00 00");
        format!("{head} {generation:02X} 00 00 00 00 00 00 00 {}", rows.concat())
    };
    let mut one = extent(0, BLOCK, TAG);
    one.replace_range(one.len() - 24..one.len() - 19, "01 00"); // of a sharable tag, the first
    rig.good(0x4907, &want(0, BLOCK, TAG, 0, ""), &list(&[one.clone()], 1));
    rig.good(0x4904, "01 00 00 00 10 00 00 00 00 00 00 00", &list(&[one.clone()], 1));
    rig.good(0x4904, "02 00 00 00 10 00 00 00 00 00 00 00", &format!("02 00 {}", zeros(22)));
    rig.bad(0x4904, "04 00 00 00 10 00 00 00 00 00 00 00", INVALID_INPUT);
    rig.bad(0x4904, "01 00 00 00 10 00 00 00 02 00 00 00", INVALID_INPUT);
    let tags = |reference: u8, generation: u8| {
        format!("{generation:02X} 00 00 00 01 00 00 00 00 00 00 00 {TAG} {reference:02X} 00 00 00")
    };
    let (_, got) = rig.ask(OWNER, 0x490B, "00 00 00 00 10 00 00 00");
    assert_eq!(got, hex(&tags(0, got[0])));
    rig.good(0x4909, TAG, "");
    let (_, got) = rig.ask(OWNER, 0x490B, "00 00 00 00 10 00 00 00");
    assert_eq!(got, hex(&tags(1, got[0])));
    let nobody = "77 ".repeat(16);
    rig.bad(0x4909, &nobody, INVALID_INPUT);
    rig.bad(0x490A, &nobody, INVALID_INPUT);
    rig.bad(0x490B, "02 00 00 00 10 00 00 00", INVALID_INPUT);
    rig.bad(0x4906, &format!("00 00 01 00 {}", dmp("28", 0)), INVALID_INPUT); // a group is in use
    rig.bad(0x4907, &want(0, BLOCK + 1, &nobody, 0, ""), INVALID_INPUT);
    rig.bad(0x4907, &want(0, GIB, &nobody, 0, ""), EXHAUSTED);
    rig.bad(0x4907, &want(9, BLOCK, &nobody, 0, ""), INVALID_INPUT);
    rig.bad(0x4907, &want(2, 0, &nobody, 0, ""), BAD_EXTENTS);
    rig.bad(0x4907, &want(2, 0, &nobody, 1, ""), INVALID_LENGTH);
    rig.bad(0x4907, &want(2, 0, &nobody, 1, &extent(4_096, BLOCK, &nobody)), BAD_EXTENTS);
    // The length beside named extents is their sum, or 0.
    let free = extent(4 * BLOCK, BLOCK, &nobody);
    rig.bad(0x4907, &want(2, BLOCK + 1, &nobody, 1, &free), INVALID_INPUT);
    rig.bad(0x4907, &want(2, 2 * BLOCK, &nobody, 1, &free), INVALID_INPUT);
    rig.bad(0x4908, &want(1, 2 * BLOCK, TAG, 1, &extent(0, BLOCK, TAG)), INVALID_INPUT);
    rig.bad(0x4908, &want(0, 0, &nobody, 0, ""), INVALID_INPUT);
    rig.bad(0x4908, &want(2, 0, TAG, 0, ""), INVALID_INPUT);
    rig.good(0x490A, TAG, "");
    rig.good(0x4908, &want(0x20, 0, TAG, 0, ""), &list(&[one], 2));
    rig.good(0x4904, "01 00 00 00 10 00 00 00 00 00 00 00", &list(&[], 2));
    // its part in the answer
    let told: Vec<u8> =
        core::iter::from_fn(|| rig.0.gfd.events().pop_fm()).map(|it| it.event.kind as u8).collect();
    assert_eq!(told, [10], "alike ones wait for their turn");
}

/// An answer with a list is cut to the response limit, and the command's changes stay.
#[test]
fn long_lists_are_cut_and_not_refused() {
    let mut rig = Rig::set_up();
    rig.good(0x0004, "08", "08"); // 256 bytes
    let (code, got) = rig.ask(OWNER, 0x490C, "00 00 FF 0F 00 00");
    assert_eq!((code, got[2], got.len()), (0, 59, 6 + 59 * 4));
    rig.bad(0x490C, "00 00 01 00 FF 0F", INVALID_INPUT);
    let fractions = "01 ".repeat(240);
    rig.bad(0x4912, &format!("F0 00 00 00 {fractions}"), EXHAUSTED);
}

#[test]
fn who_may_use_which_group() {
    let mut rig = Rig::new();
    rig.good(0x490D, "02 00 A1 00 03 00 00 80 A2 00 04 00 00 00", "");
    rig.good(0x490C, "00 00 02 00 A1 00", "00 00 02 00 A1 00 03 00 00 80 04 00 00 00");
    rig.bad(0x490D, "02 00 A1 00 00 00 00 00 FF 0F 01 00 00 00", INVALID_INPUT);
    rig.bad(0x490D, "01 00 A1 00 10 00 00 00", INVALID_INPUT); // group 4 of 4
    rig.bad(0x490D, "02 00 A1 00 00 00 00 00", INVALID_LENGTH);
}

#[test]
fn quality_of_service() {
    let mut rig = Rig::new();
    let control = "01 19 32 08 34 12 07";
    rig.good(0x490F, control, control);
    rig.good(0x490E, "", control);
    rig.good(0x490F, "01 32 19 0F FF FF FF", "01 32 19 0F FF FF FF"); // severe below moderate
    rig.good(0x490F, control, control);
    for wrong in
        ["00 65 65 08", "00 00 19 08", "00 19 00 08", "00 19 32 10", "02 19 32 08", "80 19 32 08"]
    {
        rig.bad(0x490F, &format!("{wrong} 00 00 08"), INVALID_INPUT);
    }
    rig.good(0x4910, "", "00");
    rig.good(0x4912, "02 00 A1 00 80 40", "02 00 A1 00 80 40");
    rig.good(0x4911, "03 00 A1 00", "03 00 A1 00 80 40 00");
    rig.bad(0x4912, "02 00 FE 0F 01 01", INVALID_INPUT);
    rig.good(0x4911, "01 00 FE 0F", "01 00 FE 0F 00");
    rig.bad(0x4911, "01 00 FF 0F", INVALID_INPUT);
    rig.bad(0x4912, "03 00 A1 00 01 01", INVALID_LENGTH);
}

#[test]
fn decoders() {
    let mut rig = Rig::new();
    let entry = |index: u8, interleave: u8, way: u8, base: u64| {
        let place = format!("{}{}{}", le64(base), le64(0), le64(BLOCK));
        format!("{index:02X} 01 00 00 {place}{interleave:02X} 04 {way:02X} 00 ")
    };
    let empty = |index: u8| format!("{index:02X} {}", zeros(31));
    let (first, second) = (entry(0, 1, 1, 1 << 40), entry(1, 2, 3, 1 << 41));
    rig.good(0x4914, &format!("A1 00 00 00 02 00 {first}{second}"), "");
    let third = empty(2);
    rig.good(
        0x4913,
        "A1 00 00 00 03 00",
        &format!("A1 00 00 00 00 03 08 00 {first}{second}{third}"),
    );
    let other = entry(0, 1, 0, 3 << 40);
    rig.bad(
        0x4914,
        &format!("A1 00 00 00 02 00 {other}{}", entry(1, 9, 0, 1 << 42)),
        INVALID_INPUT,
    );
    rig.bad(
        0x4914,
        &format!("A1 00 00 00 02 00 {other}{}", entry(1, 1, 2, 1 << 42)),
        INVALID_INPUT,
    );
    rig.bad(0x4914, &format!("A1 00 00 00 01 01 {other}"), INVALID_INPUT); // not its place
    rig.bad(
        0x4914,
        &format!("A1 00 00 00 02 07 {}{}", entry(7, 0, 0, 0), entry(8, 0, 0, 0)),
        INVALID_INPUT,
    );
    rig.bad(0x4914, "A1 00 00 00 00 08", INVALID_INPUT);
    rig.bad(0x4914, &format!("FF 0F 00 00 01 00 {other}"), INVALID_INPUT);
    rig.bad(0x4914, &format!("A1 00 00 00 02 00 {other}"), INVALID_LENGTH);
    rig.bad(0x4913, "A1 00 00 00 01 08", INVALID_INPUT);
    rig.bad(0x4913, "FF 0F 00 00 01 00", INVALID_INPUT);
    rig.good(0x4914, &format!("A1 00 00 00 02 00 {}{}", empty(0), empty(1)), "");
    rig.good(0x4913, "A1 00 00 00 01 00", &format!("A1 00 00 00 00 01 08 00 {}", empty(0)));
}

/// Every command of the device is in the log of commands and has a case above.
#[test]
fn the_log_lists_them() {
    let rig = Rig::new();
    let own: Vec<u16> = rig.0.commands().iter().map(|command| command.opcode.0).collect();
    let want: Vec<u16> = core::iter::once(0x0702).chain(0x4900..=0x4914).collect();
    assert_eq!(own, want);
}

/// Identity and status of a device of 1 GiB, byte for byte.
#[test]
fn identity_and_status_by_bytes() {
    let mut rig = Rig::set_up();
    let (low, high) = ("00 F0 FF FF FF 01 00 00 ", zeros(8));
    let regions = low.repeat(2) + &high.repeat(6);
    let partitions = low.repeat(2) + &high.repeat(2);
    // 2 DMPs, 2 regions, 4 groups, policies 0 to 3, QoS, release policies 0 and 1, sanitize of both; 4 times 256 MB,
    // all of it volatile
    let head = "02 02 04 00 0F 00 01 00 03 00 03 00 ";
    let (four, none) = (le64(4), zeros(16));
    let identity = format!("{head}{four}{regions}{partitions}{four}{none}{high}");
    rig.good(0x4900, "", &identity);
    rig.good(0x4901, "", &zeros(11));
    rig.0.gfd.set_status(LinkStatus {
        flags: 1,
        mode: 2,
        width_max: 16,
        width: 8,
        speeds: 0x3F,
        speed_max: 6,
        speed: 5,
        ltssm: 4,
        first_lane: 3,
        link_flags: 0x0102,
    });
    rig.good(0x4901, "", "01 02 10 08 3F 06 05 04 03 02 01");
    let row = format!("{}{}{}{}00 00 00 00 01 00 00 00", le64(0), le64(4), le64(GIB), le64(BLOCK));
    let none = format!("{}00 00 00 00 00 00 00 00", zeros(32));
    // 4,096 extents and 1,024 tags, all of them free
    let totals = "00 10 00 00 00 10 00 00 00 04 00 00 00 04 00 00";
    rig.good(0x4902, "00 00 08 00", &format!("00 00 02 02 {row}{none}{totals}"));
}

/// Each command one byte longer and, where it has any, one shorter.
#[test]
fn each_command_has_its_length() {
    let (tag, want) = (TAG, format!("01 00 00 00 {}{TAG} {}08 00 00 00", le64(BLOCK), zeros(4)));
    let decoder = format!("00 {}", zeros(31));
    let (regions, partition, gdt) = (
        region(0),
        format!("00 00 01 00 {}", dmp("28", 0)),
        format!("A1 00 00 00 01 00 {decoder}"),
    );
    let rest: [(u16, &str); 15] = [
        (0x0702, "10 00 00 00 00 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00"),
        (0x4901, ""),
        (0x4903, &regions),
        (0x4906, &partition),
        (0x4907, &want),
        (0x4908, &want),
        (0x4909, tag),
        (0x490A, tag),
        (0x490D, "01 00 A1 00 03 00 00 00"),
        (0x490F, "01 19 32 08 34 12 07"),
        (0x4910, ""),
        (0x4911, "03 00 A1 00"),
        (0x4912, "02 00 A1 00 80 40"),
        (0x4913, "A1 00 00 00 08 00"),
        (0x4914, &gdt),
    ];
    let mut seen: Vec<u16> = Vec::new();
    for (opcode, payload) in READS.into_iter().chain(rest).filter(|(opcode, _)| *opcode > 0x0700) {
        let mut rig = Rig::set_up();
        rig.bad(opcode, &format!("{payload} 00"), INVALID_LENGTH);
        if let Some(short) = payload.trim_end().len().checked_sub(2) {
            rig.bad(opcode, &payload[..short], INVALID_LENGTH);
        }
        seen.push(opcode);
    }
    let own = Rig::new();
    for command in own.0.commands() {
        assert!(seen.contains(&command.opcode.0), "{}", command.opcode);
    }
}

/// Commands of switches and of memory devices, events and notifications, at any length.
#[test]
fn commands_of_other_components_are_unsupported_and_change_nothing() {
    let mut rig = Rig::set_up();
    let had: Vec<Opcode> =
        Common::COMMANDS.iter().chain(rig.0.commands()).map(|it| it.opcode).collect();
    let absent: Vec<Opcode> =
        Opcode::LAID_OUT.iter().copied().filter(|opcode| !had.contains(opcode)).collect();
    for opcode in &absent {
        for payload in ["", "00", &zeros(64)] {
            rig.bad(opcode.0, payload, UNSUPPORTED);
        }
    }
    let of_a_switch = (0x5100..=0x5107).chain(0x5700..=0x5716).chain(0x5800..=0x580B);
    assert!(of_a_switch.chain([0x0100, 0x0107, 0x0109]).all(|it| absent.contains(&Opcode(it))));
}
