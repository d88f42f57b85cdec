//! A device with logical devices (LDs) in a whole fabric: each host has one, and reaches no other.
//!
//! `pcaps/fabric/mld.toml` in virtual time → what hosts see, read and write, and what the manager asks.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 2.5, 7.6.7.3, 7.6.7.4, 7.6.7.6, 7.7.12.3; docs/spec/cxl-fabric.md "Logical devices".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_fm::service::request::{CapacityChange, CapacityRow, LdChange, LdRow, TopologyFormat};
use weft_fm::service::{Request, Response};
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, TransferReport};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{bars, books, cci, file, look, range, transfer, up, up_text};

const MLD: Part = Part::Device(0);
const MIB: u64 = 1 << 20;

/// Where the host sees the memory of its logical device.
fn bar(fabric: &ManagedFabric, host: usize) -> u64 {
    let found = bars(fabric, Part::Host(host), &[0x0D00]);
    *found.first().unwrap_or_else(|| panic!("host {host} sees none"))
}

/// Whether a logical device has the pattern of `seed` at `addr`.
fn holds(fabric: &ManagedFabric, ld: u8, addr: u64, len: u64, seed: u64) -> bool {
    let (addr, len, seed) = (Num(addr), Some(Num(len)), Some(seed));
    let (ld, bar) = (Some(ld), Some(0));
    let place = OwnRange { addr, len, seed, ld, bar, ..OwnRange::default() };
    transfer(fabric, MLD, &Command::Peek(place)).ok
}

/// A command to LD `FFFFh` of the device, in a tunnel (5300h) of the switch that it is at; the message that came back.
fn by_tunnel(fabric: &mut ManagedFabric, opcode: u16, payload: &str) -> String {
    let digits: String = payload.chars().filter(|c| !c.is_whitespace()).collect();
    let [low, high] = opcode.to_le_bytes();
    let len = digits.len() / 2;
    let inner = format!("000000{low:02x}{high:02x}{len:02x}000000000000{digits}");
    let size = inner.len() / 2;
    let (code, answer) = cci(fabric, "entry", 0x5300, &format!("01 00 {size:02x}00 {inner}"));
    assert_eq!(code, 0, "the tunnel itself");
    answer
}

/// The value at a place in what a part says of itself.
fn count(fabric: &ManagedFabric, part: Part, place: &str) -> u64 {
    let Answer::Status(status) = fabric.ask(part, &Command::Status {}).unwrap() else { panic!() };
    status
        .counts
        .pointer(place)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("{place}: {status:?}"))
}

/// Each host enumerates its logical device, at its own switch or across the fabric, and what it writes is in that one
/// and in no other.
#[test]
fn each_host_has_a_logical_device_and_reaches_no_other() {
    let fabric = up("mld");
    let bars = [bar(&fabric, 0), bar(&fabric, 1)];
    let len = 1 << 16;
    for (host, ld, other) in [(0, 0, 2), (1, 2, 0)] {
        let seed = 40 + host as u64;
        let addr = bars[host];
        let write = transfer(&fabric, Part::Host(host), &Command::Write(range(addr, len, seed)));
        assert!(write.ok && write.written == len, "host {host}: {write:?}");
        let read = transfer(&fabric, Part::Host(host), &Command::Read(range(addr, len, seed)));
        assert!(read.ok && read.mismatched == 0, "host {host}: {read:?}");
        assert!(holds(&fabric, ld, 0, len, seed), "it is in LD {ld}");
        assert!(!holds(&fabric, other, 0, len, seed), "and not in LD {other}");
    }
    // Each keeps its own after both have written; all that is beyond the memory that is an LD's is refused.
    for (host, seed) in [(0, 40), (1, 41)] {
        let own = Part::Host(host);
        assert!(transfer(&fabric, own, &Command::Read(range(bars[host], len, seed))).ok);
        let last = Access { seed: None, ..range(bars[host] + 256 * MIB - 64, 64, 0) };
        assert!(transfer(&fabric, own, &Command::Read(last)).ok);
        let beyond = Access { seed: None, ..range(bars[host] + 256 * MIB, 64, 0) };
        let refused = transfer(&fabric, own, &Command::Read(beyond));
        assert!(!refused.ok && refused.failures.contains_key("UR"), "{refused:?}");
    }
    assert_eq!(count(&fabric, MLD, "/mld/no_prefix"), 0);
    assert_eq!(count(&fabric, MLD, "/mld/unknown_ld"), 0);
    books(&fabric);
}

/// The manager knows of the logical devices, and gives each to one host alone.
#[test]
fn the_manager_shows_and_binds_logical_devices() {
    let mut fabric = up("mld");
    let Ok(Response::Topology(text)) =
        fabric.fm().request(&Request::Topology { drawn: TopologyFormat::Text })
    else {
        panic!("no topology")
    };
    let text = format!("{text:?}");
    assert!(
        text.contains("mld0") && text.contains("of type 5") && text.contains("4 LDs"),
        "{text}"
    );
    // 5101h: type 5, four LDs.
    let (code, state) = cci(&mut fabric, "entry", 0x5101, "01 01");
    assert_eq!((code, &state[16..18], &state[38..40]), (0, "05", "04"), "{state}");
    let mut bind = |to: &str| {
        let bridge = "entry/0/1".to_owned();
        fabric.fm().request(&Request::Bind { bridge, to: to.to_owned() }).map_err(|e| e.to_string())
    };
    let taken = bind("port:1.2").unwrap_err();
    assert!(taken.contains("bound already"), "{taken}");
    for (to, part) in [("port:1", "name one, as port:1.0"), ("port:1.9", "logical devices 0 to 3")]
    {
        fabric.fm().request(&Request::Unbind { bridge: "entry/0/1".to_owned() }).ok();
        let bridge = "entry/0/1".to_owned();
        let said = fabric.fm().request(&Request::Bind { bridge, to: to.to_owned() }).unwrap_err();
        assert!(said.message.contains(part), "{to}: {said:?}");
    }
    // The host gets another one in its place.
    let bridge = "entry/0/1".to_owned();
    let bound = fabric.fm().request(&Request::Bind { bridge, to: "port:1.1".to_owned() });
    assert!(bound.is_ok(), "{bound:?}");
}

/// 5301h and 5302h reach the configuration space and the memory of one logical device, also of one that no host has.
#[test]
fn the_manager_reaches_each_logical_device() {
    let mut fabric = up("mld");
    // Register 0 of LD 3: Vendor and Device ID.
    let (code, ids) = cci(&mut fabric, "entry", 0x5301, "01 00F000 0300 0000 00000000");
    assert_eq!((code, ids.as_str()), (0, "981e000d"));
    let (code, _) = cci(&mut fabric, "entry", 0x5301, "01 00F000 0400 0000 00000000");
    assert_eq!(code, 2, "there is no LD 4");
    // Four bytes at 8 of LD 3, written and read.
    let write = "01 00F080 0300 0400 0800000000000000 A1A2A3A4";
    assert_eq!(cci(&mut fabric, "entry", 0x5302, write), (0, "00000000".to_owned()));
    let read = "01 00F000 0300 0400 0800000000000000";
    assert_eq!(cci(&mut fabric, "entry", 0x5302, read), (0, "04000000a1a2a3a4".to_owned()));
    let other = "01 00F000 0100 0400 0800000000000000";
    assert_eq!(cci(&mut fabric, "entry", 0x5302, other), (0, "0400000000000000".to_owned()));
    let beyond = "01 00F000 0300 0400 0000001000000000";
    assert_eq!(cci(&mut fabric, "entry", 0x5302, beyond).0, 2, "256 MiB are its own");
}

/// 5400h to 5402h by a tunnel to LD `FFFFh`; 5500h and 5501h tell of one head; a second tunnel leads to an LD itself.
#[test]
fn memory_is_dealt_out_by_tunnel() {
    let mut fabric = up("mld");
    let info = by_tunnel(&mut fabric, 0x5400, "");
    assert!(info.ends_with("0000004000000000040001"), "1 GiB, 4 LDs: {info}");
    let four = "0100000000000000 0000000000000000".replace(' ', "").repeat(4);
    let list = by_tunnel(&mut fabric, 0x5401, "00 10");
    assert!(list.ends_with(&format!("04000004{four}")), "{list}");
    // LD 1 and LD 3 have no host that uses them: what is taken of one goes to the other.
    let none = "0000000000000000 0000000000000000";
    let two = "0200000000000000 0000000000000000";
    let set = by_tunnel(&mut fabric, 0x5402, &format!("01 03 0000 {none}"));
    assert_eq!(&set[24..28], "0000", "{set}");
    let set = by_tunnel(&mut fabric, 0x5402, &format!("01 01 0000 {two}"));
    assert_eq!(&set[24..28], "0000", "{set}");
    let read = |ld: u8| format!("01 00F000 {ld:02x}00 0400 0000001000000000");
    assert_eq!(cci(&mut fabric, "entry", 0x5302, &read(1)).0, 0, "LD 1 has 512 MiB now");
    // More than there is, and what a host uses, are refused, and nothing has changed.
    for (start, list, code) in
        [("01", "0300000000000000 0000000000000000", "0200"), ("00", none, "0600")]
    {
        let set = by_tunnel(&mut fabric, 0x5402, &format!("01 {start} 0000 {list}"));
        assert_eq!(&set[24..28], code, "{set}");
    }
    let list = by_tunnel(&mut fabric, 0x5401, "01 01");
    assert!(list.ends_with(&two.replace(' ', "")), "{list}");
    let heads = by_tunnel(&mut fabric, 0x5500, "00 10");
    assert!(heads.ends_with("040100000004000000000000"), "{heads}");
    // Identify of LD 2 by a tunnel within the tunnel: a Type 3 device.
    let identify = "000000010000000000000000";
    let inner = by_tunnel(&mut fabric, 0x5300, &format!("02 00 0C00 {identify}"));
    assert!(inner.contains("981e000d") && inner.ends_with("03"), "{inner}");
}

/// A manager that puts the MCTP message type in front of what it tunnels gets it in front of what comes back, through one
/// tunnel and through two; one that does not gets none.
#[test]
fn a_tunnel_answers_in_the_form_that_it_was_asked_in() {
    let mut fabric = up("mld");
    let get_ld_info = "000900005400000000000000";
    let identify = "000700010000000000000000";
    for kind in ["", "07", "08"] {
        let typed = |message: &str| format!("{kind}{message}");
        let size = |message: &str| format!("{:02x}00", message.len() / 2);
        let ask = |fabric: &mut _, message: &str| {
            let (code, answer) =
                cci(fabric, "entry", 0x5300, &format!("01 00 {} {message}", size(message)));
            assert_eq!(code, 0, "{message}");
            answer[8..].to_owned() // behind length and reserved bytes
        };
        let info = ask(&mut fabric, &typed(get_ld_info));
        let head = typed("0109000054");
        assert!(info.starts_with(&head) && info.ends_with("040001"), "{kind}: {info}");
        let inner = typed(identify);
        let payload = format!("0200{}{inner}", size(&inner));
        let tunnel = typed(&format!("0008000053{}000000000000{payload}", &size(&payload)[..2]));
        let twice = ask(&mut fabric, &tunnel);
        let (outer, inner) = (typed("0108000053"), typed("0107000100"));
        assert!(twice.starts_with(&outer), "{kind}: {twice}");
        let at = outer.len() + 14 + 8; // the rest of the header, length and reserved bytes
        assert!(twice[at..].starts_with(&inner) && twice.ends_with("03"), "{kind}: {twice}");
    }
    // A type and no message, and a number that is no type.
    for message in ["08", "09000900005400000000000000"] {
        let size = message.len() / 2;
        let (code, _) = cci(&mut fabric, "entry", 0x5300, &format!("01 00 {size:02x}00 {message}"));
        assert_eq!(code, 2, "{message}");
    }
}

/// What one host does to its logical device leaves the other's alone: a reset by its bridge, and another host's leaving.
#[test]
fn a_reset_of_one_is_not_seen_by_another() {
    let fabric = up("mld");
    let bars = [bar(&fabric, 0), bar(&fabric, 1)];
    let command = |host: usize, reg, value: Option<u64>| {
        let bdf = serde_json::from_value(serde_json::json!(if host == 0 {
            "02:00.0"
        } else {
            "03:00.0"
        }));
        let bdf = bdf.unwrap();
        let what = match value {
            None => Command::ConfigRead { bdf, reg },
            Some(value) => Command::ConfigWrite { bdf, reg, value: Num(value), enables: 0xF },
        };
        fabric.ask(Part::Host(host), &what).unwrap()
    };
    // Secondary Bus Reset (bit 6 of Bridge Control) of host 0's bridge to its LD.
    let Answer::Register { value } = command(0, 0x3C, None) else { panic!() };
    command(0, 0x3C, Some(value | 1 << 22));
    command(0, 0x3C, Some(value & !(1 << 22)));
    fabric.parts().until(Span::from_ms(20), |_| false);
    assert_eq!(count(&fabric, MLD, "/mld/resets"), 1);
    // Host 0's device has forgotten where it is; host 1's has not.
    let gone = transfer(
        &fabric,
        Part::Host(0),
        &Command::Read(Access { seed: None, ..range(bars[0], 64, 0) }),
    );
    assert!(!gone.ok, "{gone:?}");
    let there = transfer(
        &fabric,
        Part::Host(1),
        &Command::Read(Access { seed: None, ..range(bars[1], 64, 0) }),
    );
    assert!(there.ok, "{there:?}");
    books(&fabric);
}

/// `weft fm ld`: what each logical device has and who sees it; memory and bandwidth are dealt out, and what cannot be is
/// refused with what there is.
#[test]
fn the_manager_deals_out_memory_and_bandwidth() {
    let mut fabric = up("mld");
    let lds = |fabric: &mut ManagedFabric| match fabric.fm().request(&Request::Lds) {
        Ok(Response::Lds(rows)) => rows,
        other => panic!("{other:?}"),
    };
    let rows = lds(&mut fabric);
    assert!(rows.iter().all(|row| row.device == "mld0"), "{rows:?}");
    let mib: Vec<u64> = rows.iter().map(|row| row.memory / MIB).collect();
    assert_eq!(mib, [256; 4]);
    let shown: Vec<bool> = rows.iter().map(|row| row.bridge.is_some()).collect();
    assert_eq!(shown, [true, false, true, false], "{rows:?}");
    let set = |fabric: &mut ManagedFabric, ld, change| {
        let asked = Request::SetLd { device: "mld0".to_owned(), ld, change };
        fabric.fm().request(&asked).map(drop).map_err(|refused| refused.message)
    };
    set(&mut fabric, 3, LdChange::Memory(0)).unwrap();
    set(&mut fabric, 1, LdChange::Memory(512 * MIB)).unwrap();
    set(&mut fabric, 0, LdChange::Bandwidth(128)).unwrap();
    set(&mut fabric, 2, LdChange::Bandwidth(64)).unwrap();
    set(&mut fabric, 2, LdChange::Limit(32)).unwrap();
    #[rustfmt::skip] // columns: LD, what it is to have, what is said
    let cases = [
        (3, LdChange::Memory(256 * MIB),  "0 MiB of 1024 MiB are no other one's"),
        (1, LdChange::Memory(MIB),        "a multiple of 256 MiB"),
        (0, LdChange::Memory(0),          "uses its memory: unbind it first"),
        (1, LdChange::Bandwidth(65),      "more than 256"),
        (4, LdChange::Limit(1),           "they are 0 to 3"),
    ];
    for (ld, change, part) in cases {
        let said = set(&mut fabric, ld, change).unwrap_err();
        assert!(said.contains(part), "LD {ld} {change:?}: {said}");
    }
    let rows = lds(&mut fabric);
    let has: Vec<_> = rows.iter().map(|row| (row.memory / MIB, row.bandwidth, row.limit)).collect();
    let want = [(256, 128, 0), (512, 0, 0), (256, 64, 32), (0, 0, 0)];
    assert_eq!(has, want.map(|(memory, share, limit)| (memory, Some(share), Some(limit))));
    // Hosts reach their memory all the same, by turns.
    for (host, seed) in [(0, 7), (1, 8)] {
        let at = bar(&fabric, host);
        let write = transfer(&fabric, Part::Host(host), &Command::Write(range(at, 1 << 18, seed)));
        assert!(write.ok, "{write:?}");
        let read = transfer(&fabric, Part::Host(host), &Command::Read(range(at, 1 << 18, seed)));
        assert!(read.ok && read.mismatched == 0, "{read:?}");
    }
    books(&fabric);
}

/// What a file says of its logical devices they have when the fabric is up; a command changes it, also for a manager that is
/// started again, and what somebody else has changed is put back.
#[test]
fn logical_devices_have_what_the_file_says() {
    let more =
        "ld_mib = [256, 512, 256, 0]\nld_bandwidth = [192, 0, 64, 0]\nld_limit = [0, 0, 32, 0]\n";
    let mut fabric = up_text("mld", &format!("{}{more}", file("mld")));
    let has = |fabric: &mut ManagedFabric| match fabric.fm().request(&Request::Lds) {
        Ok(Response::Lds(rows)) => {
            let row = |row: &LdRow| (row.memory / MIB, row.bandwidth.unwrap(), row.limit.unwrap());
            rows.iter().map(row).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let want = [(256, 192, 0), (512, 0, 0), (256, 64, 32), (0, 0, 0)];
    assert_eq!(has(&mut fabric), want);
    for host in 0..2 {
        let at = bar(&fabric, host);
        assert!(access(&fabric, host, at, Some(7), true).ok, "host {host}");
        assert!(access(&fabric, host, at, Some(7), false).ok, "host {host}");
    }
    // Others than the manager give LD 0 and LD 2 each other's share, and LD 3 what LD 1 had: neither can be put back first.
    for (opcode, payload) in [
        (0x5407, "01 00 40"),
        (0x5407, "01 02 C0"),
        (0x5402, "01 01 0000 0000000000000000 0000000000000000"),
        (0x5402, "01 03 0000 0200000000000000 0000000000000000"),
    ] {
        let done = by_tunnel(&mut fabric, opcode, payload);
        assert_eq!(&done[24..28], "0000", "{opcode:x}: {done}");
    }
    assert_eq!(has(&mut fabric), [(256, 64, 0), (0, 0, 0), (256, 192, 32), (512, 0, 0)]);
    fabric.fm().request(&Request::Discover).unwrap();
    assert_eq!(has(&mut fabric), want);
    // A command stays, for the next discovery and the next manager.
    for (ld, change) in [(2, LdChange::Limit(16)), (1, LdChange::Memory(256 * MIB))] {
        let asked = Request::SetLd { device: "mld0".to_owned(), ld, change };
        fabric.fm().request(&asked).unwrap();
    }
    let want = [(256, 192, 0), (256, 0, 0), (256, 64, 16), (0, 0, 0)];
    fabric.fm().request(&Request::Discover).unwrap();
    assert_eq!(has(&mut fabric), want);
    fabric.restart_manager(|_| ()).unwrap();
    assert_eq!(has(&mut fabric), want);
    let errors = fabric.fm().board().status().errors;
    assert_eq!(errors, [""; 0]);
    // What cannot be put back, as a host uses it, is told, and keeps nothing else from it.
    for (opcode, payload) in
        [(0x5402, "01 00 0000 0200000000000000 0000000000000000"), (0x5409, "01 02 00")]
    {
        let done = by_tunnel(&mut fabric, opcode, payload);
        assert_eq!(&done[24..28], "0000", "{opcode:x}: {done}");
    }
    fabric.fm().request(&Request::Discover).unwrap();
    assert_eq!(has(&mut fabric), [(512, 192, 0), (256, 0, 0), (256, 64, 16), (0, 0, 0)]);
    let errors = fabric.fm().board().status().errors;
    assert!(errors.iter().any(|error| error.contains("uses its memory")), "{errors:?}");
    books(&fabric);
}

/// A device that is started again has again what it had, whenever the manager looks: also where its link was lost and
/// came back between two looks, and where it has not told its switch of its logical devices yet.
#[test]
fn a_device_has_again_what_it_had_whenever_the_manager_looks() {
    let mut fabric = up("mld");
    for (ld, change) in [
        (3, LdChange::Memory(0)),
        (1, LdChange::Memory(512 * MIB)),
        (0, LdChange::Bandwidth(128)),
        (2, LdChange::Limit(32)),
    ] {
        let asked = Request::SetLd { device: "mld0".to_owned(), ld, change };
        fabric.fm().request(&asked).unwrap();
    }
    change_capacity(&mut fabric, 2, more(4, Some("db"), None)).unwrap();
    let rows = |fabric: &mut ManagedFabric| fabric.fm().request(&Request::Lds);
    let had = (format!("{:?}", rows(&mut fabric)), capacity(&mut fabric));
    let pass_us = |fabric: &ManagedFabric, us: u64| {
        fabric.parts().until(Span::from_us(us), |_| false);
    };
    // Microseconds without a link, and until the first look after it has come back.
    for away in [1, 1_000] {
        for back in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 20_000] {
            fabric.parts().stop(MLD).unwrap();
            pass_us(&fabric, away);
            fabric.parts().run(MLD);
            pass_us(&fabric, back);
            fabric.fm().watch();
            look(&mut fabric);
            let has = (format!("{:?}", rows(&mut fabric)), capacity(&mut fabric));
            assert_eq!(has, had, "{away} µs away, looked at {back} µs later");
            assert_eq!(fabric.fm().board().status().errors, [""; 0]);
        }
    }
}

/// CXL 3.1 section 7.6.7.4.10: a limit holds within 2 % in virtual time, while another host has what it had without the flood.
#[test]
fn a_host_that_wants_too_much_takes_nothing_from_another() {
    let mut fabric = up("mld");
    let bars = [bar(&fabric, 0), bar(&fabric, 1)];
    let len = 1 << 20;
    let read = |fabric: &ManagedFabric, host: usize| {
        let access = Access { seed: None, ..range(bars[host], len, 0) };
        let report = transfer(fabric, Part::Host(host), &Command::Read(access));
        assert!(report.ok, "host {host}: {report:?}");
        report.ns
    };
    let limit = LdChange::Limit(1);
    let asked = Request::SetLd { device: "mld0".to_owned(), ld: 0, change: limit };
    fabric.fm().request(&asked).unwrap();
    // 1/256 of 100 Gbit/s, but for a burst of 16 KiB at once.
    let want = (len - (16 << 10)) * 8 * 256 / 100;
    let before = read(&fabric, 1); // at the rate of the device
    let took = read(&fabric, 0);
    assert!(took.abs_diff(want) * 50 <= want, "{took} ns, not {want}");
    let access = Access { seed: Some(1), ..range(bars[0], len, 1) };
    let load = Command::LoadStart { access, rounds: 0, pause_ms: 0 };
    assert_eq!(fabric.ask(Part::Host(0), &load).unwrap(), Answer::Done);
    fabric.parts().until(Span::from_ms(2), |_| false);
    let beside = read(&fabric, 1);
    assert!(beside * 10 <= before * 11, "{beside} ns beside the flood, {before} ns without");
    assert!(count(&fabric, MLD, "/mld/waiting") > 0, "host 0 waits");
    assert_eq!(count(&fabric, MLD, "/mld/overrun"), 0);
    fabric.ask(Part::Host(0), &Command::LoadStop {}).unwrap();
}

/// What `weft fm ld capacity list` shows of the device.
fn capacity(fabric: &mut ManagedFabric) -> CapacityRow {
    match fabric.fm().request(&Request::LdCapacity) {
        Ok(Response::LdCapacity(mut rows)) if rows.len() == 1 => rows.remove(0),
        other => panic!("{other:?}"),
    }
}

fn change_capacity(
    fabric: &mut ManagedFabric,
    ld: u8,
    change: CapacityChange,
) -> Result<(), String> {
    let asked = Request::SetLdCapacity { device: "mld0".to_owned(), ld, change };
    fabric.fm().request(&asked).map(drop).map_err(|refused| refused.message)
}

fn more(mib: u64, tag: Option<&str>, at: Option<u64>) -> CapacityChange {
    CapacityChange::Add { size: mib * MIB, tag: tag.map(str::to_owned), at, contiguous: false }
}

fn less(size: Option<u64>, tag: Option<&str>, at: Option<u64>, force: bool) -> CapacityChange {
    CapacityChange::Release { size, tag: tag.map(str::to_owned), at, force }
}

/// A host reads 64 KiB at an address, or writes the pattern of `seed` there.
fn access(
    fabric: &ManagedFabric,
    host: usize,
    addr: u64,
    seed: Option<u64>,
    write: bool,
) -> TransferReport {
    let access = Access { seed, ..range(addr, 1 << 16, 0) };
    let command = if write { Command::Write(access) } else { Command::Read(access) };
    transfer(fabric, Part::Host(host), &command)
}

/// `weft fm ld capacity`: what is added to a logical device its host reaches at once and no other does; once released it is refused,
/// while the other host has what it had.
#[test]
fn capacity_is_added_and_released_while_hosts_run() {
    let mut fabric = up("mld");
    let bars = [bar(&fabric, 0), bar(&fabric, 1)];
    let refused = |fabric: &ManagedFabric, host: usize, at| {
        let read = access(fabric, host, bars[host] + at, None, false);
        assert!(!read.ok && read.failures.contains_key("UR"), "host {host}, {at:x}: {read:?}");
    };
    let row = capacity(&mut fabric);
    assert_eq!((row.device.as_str(), row.base, row.size), ("mld0", 1024 * MIB, 512 * MIB));
    assert_eq!((row.free, row.block, row.extents.len()), (512 * MIB, 2 * MIB, 0));
    let base = row.base;
    for host in 0..2 {
        refused(&fabric, host, base);
    }
    // LD 0 is host 0's, LD 2 host 1's.
    change_capacity(&mut fabric, 0, more(64, Some("first"), None)).unwrap();
    change_capacity(&mut fabric, 2, more(2, None, Some(base + 64 * MIB))).unwrap();
    for (host, at, seed) in [(0, base, 70), (1, base + 64 * MIB, 71)] {
        assert!(access(&fabric, host, bars[host] + at, Some(seed), true).ok, "host {host}");
        let read = access(&fabric, host, bars[host] + at, Some(seed), false);
        assert!(read.ok && read.mismatched == 0, "host {host}: {read:?}");
        let other = 1 - host;
        refused(&fabric, other, at);
        assert!(!access(&fabric, other, bars[other] + at, Some(99), true).ok, "nor does it write");
    }
    assert!(holds(&fabric, 0, base, 1 << 16, 70));
    let (addr, len, ld, bar) = (Num(base), Some(Num(64)), Some(2), Some(0));
    let place = OwnRange { addr, len, ld, bar, ..OwnRange::default() };
    assert!(fabric.ask(MLD, &Command::Peek(place)).is_err(), "LD 2 has no such byte");
    change_capacity(&mut fabric, 0, less(Some(2 * MIB), None, Some(base), true)).unwrap();
    refused(&fabric, 0, base);
    let rest = access(&fabric, 0, bars[0] + base + 2 * MIB, None, false);
    assert!(rest.ok, "the rest is still there: {rest:?}");
    let other = access(&fabric, 1, bars[1] + base + 64 * MIB, Some(71), false);
    assert!(other.ok && other.mismatched == 0, "the other host has what it had: {other:?}");
    // What host 0 had goes to host 1: zeros.
    change_capacity(&mut fabric, 2, more(2, None, Some(base))).unwrap();
    let read = access(&fabric, 1, bars[1] + base, Some(70), false);
    assert!(!read.ok && read.failures.is_empty(), "nothing of host 0: {read:?}");
    change_capacity(&mut fabric, 0, less(None, Some("first"), None, true)).unwrap();
    assert_eq!(capacity(&mut fabric).free, 508 * MIB);
    books(&fabric);
}

/// What two logical devices share their hosts load and store as one; what is kept outlives them all, until it is forgotten.
#[test]
fn capacity_is_shared_and_kept() {
    let mut fabric = up("mld");
    let bars = [bar(&fabric, 0), bar(&fabric, 1)];
    let (base, tag) = (capacity(&mut fabric).base, || "both".to_owned());
    let share = || CapacityChange::Share { tag: tag() };
    let said = change_capacity(&mut fabric, 2, share()).unwrap_err();
    assert!(said.contains("has that tag"), "{said}");
    change_capacity(&mut fabric, 0, more(4, Some("both"), None)).unwrap();
    change_capacity(&mut fabric, 2, share()).unwrap();
    let both = capacity(&mut fabric);
    let shown: Vec<_> = both.extents.iter().map(|it| (it.ld, it.start, it.len / MIB)).collect();
    assert_eq!(shown, [(0, base, 4), (2, base, 4)]);
    assert_eq!(both.free, 508 * MIB, "counted once");
    assert!(access(&fabric, 0, bars[0] + base, Some(70), true).ok);
    let read = |fabric: &ManagedFabric, host: usize, seed| {
        let read = access(fabric, host, bars[host] + base, Some(seed), false);
        (read.ok, read.mismatched, read.failures.contains_key("UR"))
    };
    assert_eq!(read(&fabric, 1, 70), (true, 0, false), "what host 0 has written");
    assert!(access(&fabric, 1, bars[1] + base, Some(71), true).ok);
    assert_eq!(read(&fabric, 0, 71), (true, 0, false), "and host 1");
    let keep = change_capacity(&mut fabric, 1, CapacityChange::Keep { tag: tag() }).unwrap_err();
    assert!(keep.contains("has no such capacity"), "{keep}");
    let forget = || CapacityChange::Forget { tag: tag() };
    let said = change_capacity(&mut fabric, 0, forget()).unwrap_err();
    assert!(said.contains("kept"), "{said}");
    change_capacity(&mut fabric, 0, CapacityChange::Keep { tag: tag() }).unwrap();
    assert_eq!(capacity(&mut fabric).kept, ["both"]);
    change_capacity(&mut fabric, 0, less(None, Some("both"), None, true)).unwrap();
    change_capacity(&mut fabric, 2, less(None, Some("both"), None, true)).unwrap();
    assert_eq!((read(&fabric, 0, 71).2, read(&fabric, 1, 71).2), (true, true), "nobody has it");
    change_capacity(&mut fabric, 2, share()).unwrap();
    assert_eq!(read(&fabric, 1, 71), (true, 0, false), "and here it is again");
    change_capacity(&mut fabric, 2, less(None, Some("both"), None, true)).unwrap();
    change_capacity(&mut fabric, 0, forget()).unwrap();
    assert!(change_capacity(&mut fabric, 2, share()).is_err(), "it is gone");
    assert_eq!(capacity(&mut fabric).free, 512 * MIB);
    books(&fabric);
}

/// The size of blocks is any that the device has, while nobody has anything.
#[test]
fn capacity_is_dealt_out_in_blocks_of_another_size() {
    let mut fabric = up("mld");
    let (base, kib) = (capacity(&mut fabric).base, 1 << 10);
    let small = CapacityChange::Add { size: 64 * kib, tag: None, at: None, contiguous: false };
    let block = |size| CapacityChange::Block { size };
    let said = change_capacity(&mut fabric, 0, small.clone()).unwrap_err();
    assert!(said.contains("multiples of 2048 KiB"), "{said}");
    for (size, part) in [
        (0, "blocks of 0 KiB: the device has "),
        (96 * kib, "blocks of 96 KiB: the device has "),
        (1 << 40, ", 524288 KiB"),
    ] {
        let said = change_capacity(&mut fabric, 0, block(size)).unwrap_err();
        assert!(said.contains(part), "{size}: {said}");
    }
    assert_eq!(capacity(&mut fabric).block, 2 * MIB, "nothing has changed");
    change_capacity(&mut fabric, 0, block(64 * kib)).unwrap();
    assert_eq!(capacity(&mut fabric).block, 64 * kib);
    change_capacity(&mut fabric, 0, small).unwrap();
    let bar = bar(&fabric, 0);
    assert!(access(&fabric, 0, bar + base, Some(70), true).ok);
    let beyond = access(&fabric, 0, bar + base + 64 * kib, None, false);
    assert!(beyond.failures.contains_key("UR"), "{beyond:?}");
    let said = change_capacity(&mut fabric, 0, block(2 * MIB)).unwrap_err();
    assert!(said.contains("release all of it first"), "{said}");
    assert_eq!(capacity(&mut fabric).free, 512 * MIB - 64 * kib);
    books(&fabric);
}

/// What cannot be added or released is refused with what there is, and nothing has changed.
#[test]
fn capacity_that_there_is_not_is_refused_with_what_there_is() {
    let mut fabric = up("mld");
    let base = capacity(&mut fabric).base;
    change_capacity(&mut fabric, 0, more(64, Some("first"), None)).unwrap();
    change_capacity(&mut fabric, 2, more(2, None, Some(base + 64 * MIB))).unwrap();
    let before = capacity(&mut fabric);
    let shown = before.extents.iter().map(|e| (e.ld, e.start, e.len / MIB, e.tag.as_deref()));
    let want = [(0, base, 64, Some("first")), (2, base + 64 * MIB, 2, None)];
    assert_eq!(shown.collect::<Vec<_>>(), want);
    #[rustfmt::skip] // columns: LD, what is asked for, what is said
    let cases = [
        (1, more(448, None, None),                       "446 MiB of 512 MiB are nobody's"),
        (1, more(1, None, None),                         "multiples of 2048 KiB"),
        (1, more(2, None, Some(base)),                   "is in use"),
        (1, more(2, None, Some(0)),                      "dynamic capacity is at 0x40000000 to 0x60000000"),
        (1, more(2, Some("first"), None),                "another logical device's"),
        (4, more(2, None, None),                         "they are 0 to 3"),
        (1, more(2, Some("a name of seventeen"), None),  "1 to 16 bytes"),
        (0, less(None, Some("first"), None, false),      "uses its memory: unbind it first, or give --force"),
        (2, less(None, Some("first"), None, true),       "has no such capacity"),
        (2, less(Some(2 * MIB), None, Some(base), true), "has no such capacity"),
        (1, less(None, None, None, true),                "has no such capacity"),
    ];
    for (ld, what, part) in cases {
        let said = change_capacity(&mut fabric, ld, what.clone()).unwrap_err();
        assert!(said.contains(part), "LD {ld} {what:?}: {said}");
    }
    assert_eq!(capacity(&mut fabric), before);
}

/// 5600h to 5605h as bytes by a tunnel to LD `FFFFh`: docs/spec/wire-formats.md §4.3b.
#[test]
fn dynamic_capacity_by_tunnel() {
    let mut fabric = up("mld");
    let info = by_tunnel(&mut fabric, 0x5600, "");
    assert!(info.contains("040100000f000000030001000200000000000000"), "{info}");
    let region = by_tunnel(&mut fabric, 0x5601, "0200 08 00");
    let want = "02000101 0000004000000000 0200000000000000 0000002000000000 0000200000000000 0000000000000000";
    assert!(region.contains(&want.replace(' ', "")), "{region}");
    let tag = "101112131415161718191a1b1c1d1e1f";
    let add = format!("0200 01 00 0000000400000000 {tag} 00000000");
    let done = by_tunnel(&mut fabric, 0x5604, &add);
    assert_eq!(&done[24..28], "0000", "{done}");
    let list = by_tunnel(&mut fabric, 0x5603, "0200 0000 08000000 00000000");
    let want = format!("0000004000000000 0000000400000000 {tag} 0000 000000000000");
    assert!(list.ends_with(&want.replace(' ', "")), "{list}");
    let tags = by_tunnel(&mut fabric, 0x5608, "00000000 08000000");
    assert!(tags.contains(&format!("01000000010000000100000001000000{tag}0000000004")), "{tags}");
    // Host 1 has its memory on: Busy (0006h) unless by force.
    for (flags, code) in [("00", "0600"), ("10", "0000"), ("10", "0200")] {
        let release = format!("0200 {flags} 00 0000000000000000 {tag} 00000000");
        let done = by_tunnel(&mut fabric, 0x5605, &release);
        assert_eq!(&done[24..28], code, "{flags}: {done}");
    }
    let enable =
        by_tunnel(&mut fabric, 0x5604, &format!("0200 03 00 0000000000000000 {tag} 00000000"));
    assert_eq!(&enable[24..28], "0200", "nobody has it to share any more: {enable}");
    // LD 0 and 2 share it, with the tag kept, as bytes.
    let add = format!("0000 01 00 0000000400000000 {tag} 00000000");
    let share = format!("0200 03 00 0000000000000000 {tag} 00000000");
    for (opcode, payload) in [(0x5604, add.as_str()), (0x5604, share.as_str()), (0x5606, tag)] {
        let done = by_tunnel(&mut fabric, opcode, payload);
        assert_eq!(&done[24..28], "0000", "{opcode:x}: {done}");
    }
    let tags = by_tunnel(&mut fabric, 0x5608, "00000000 08000000");
    assert!(tags.contains(&format!("010000000100000001000000{tag}0100000005")), "{tags}");
    let list = by_tunnel(&mut fabric, 0x5603, "0200 0000 08000000 00000000");
    let want = format!("0000004000000000 0000000400000000 {tag} 0100 000000000000");
    assert!(list.ends_with(&want.replace(' ', "")), "{list}");
    for code in ["0000", "0200"] {
        let done = by_tunnel(&mut fabric, 0x5607, tag);
        assert_eq!(&done[24..28], code, "{done}");
    }
}

/// On a machine so busy that the parts hardly get to run before the links' time is over, logical devices are bound, too: the
/// manager begins when their switch knows of them.
#[test]
fn logical_devices_are_bound_on_a_busy_machine() {
    let mut now = weft_dataplane::time::Instant::ZERO;
    let clock = move |moved: bool| {
        let is_busy = now < weft_dataplane::time::Instant::ZERO + Span::from_ms(200);
        now += match (is_busy, moved) {
            (true, _) => Span::from_ms(40),
            (false, true) => Span::from_ns(100),
            (false, false) => Span::from_us(100),
        };
        now
    };
    let fabric = ManagedFabric::up(&file("mld"), Box::new(clock));
    let mut fabric = fabric.unwrap_or_else(|error| panic!("{error}: {error:?}"));
    assert_eq!(fabric.fm().board().status().errors, [""; 0]);
    for host in 0..2 {
        bar(&fabric, host);
    }
}

/// At a rate that the file says, the shares of two hosts that want all of a device's bandwidth decide: 3 to 1 here.
#[test]
fn shares_of_a_slow_device_decide_in_a_fabric() {
    let slow = "dynamic_mib = 512\ngbps = 1\nld_bandwidth = [192, 0, 64, 0]\n";
    let text = file("mld").replace("dynamic_mib = 512\n", slow);
    let fabric = up_text("mld", &text);
    let hosts = [0, 1];
    for host in hosts {
        let access = range(bar(&fabric, host), 4 << 10, 1);
        let load = Command::LoadStart { access, rounds: 0, pause_ms: 0 };
        assert_eq!(fabric.ask(Part::Host(host), &load), Ok(Answer::Done));
    }
    let done = |host| match fabric.ask(Part::Host(host), &Command::LoadStatus {}) {
        Ok(Answer::Load(load)) => load.done,
        other => panic!("{other:?}"),
    };
    let begun = hosts.map(done);
    fabric.parts().until(Span::from_ms(200), |_| false);
    let made = [0, 1].map(|host| done(host) - begun[host]);
    assert!(made[1] > 0 && (2 * made[1]..=4 * made[1]).contains(&made[0]), "{made:?}");
    for host in hosts {
        fabric.ask(Part::Host(host), &Command::LoadStop {}).unwrap();
    }
}
