//! Memory of hosts and devices for others (GIM) in whole fabrics of one process: the figures of CXL 3.1, section 7.7, both flows.
//!
//! A file of `pcaps/fabric` → `weft_lab::fabric` in virtual time → what hosts and accelerators write and read.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.3.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_fm::service::request::GimRow;
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Trace, Via as TraceVia};
use weft_fm::state::desired::DesiredGim;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::fast_tables::{Region, UPSTREAM, commands};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::cci::gae::PrefixFlags;
use weft_parsers::cci::{Opcode, ReturnCode};
use weft_parsers::fabric::Pid;
use weft_tests::fabric_here::{access, books, pass, range, transfer, up, up_text};

/// Where a host's memory begins for itself.
const OWN: u64 = 0x10_0000;

fn rows(fabric: &mut ManagedFabric) -> Vec<GimRow> {
    match fabric.fm().request(&Request::Gim) {
        Ok(Response::Gim(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// What whose memory it is finds there itself, against a pattern.
fn has(fabric: &ManagedFabric, of: Part, offset: u64, len: u64, seed: u64) -> bool {
    let base = if matches!(of, Part::Host(_)) { OWN } else { 0 };
    let own = OwnRange {
        addr: Num(base + offset),
        len: Some(Num(len)),
        seed: Some(seed),
        ..OwnRange::default()
    };
    transfer(fabric, of, &Command::Peek(own)).ok
}

/// Writes and reads by `by`, byte for byte, and looks at the memory itself.
fn reaches(fabric: &ManagedFabric, by: Part, of: Part, to: Access) {
    let (len, seed) = (to.len.unwrap().0, to.seed.unwrap());
    let offset = to.addr.0 % (64 << 30);
    assert!(!has(fabric, of, offset, len, seed), "it is not there before");
    let write = access(fabric, by, to.clone(), true);
    assert!(write.ok && write.written == len, "{by:?} to {of:?}: {write:?}");
    assert!(has(fabric, of, offset, len, seed), "{by:?} to {of:?}");
    let read = access(fabric, by, to, false);
    assert!(read.ok && read.read == len && read.mismatched == 0, "{by:?} to {of:?}: {read:?}");
}

/// A write and a read are refused, and the memory is as it was.
fn refused(fabric: &ManagedFabric, by: Part, of: Part, to: &Access) {
    let (len, seed) = (to.len.unwrap().0, to.seed.unwrap());
    for write in [true, false] {
        let report = access(fabric, by, to.clone(), write);
        assert!(
            !report.ok && report.failures.contains_key("UR"),
            "{by:?}, write {write}: {report:?}"
        );
    }
    assert!(!has(fabric, of, to.addr.0 % (64 << 30), len, seed), "{by:?} has written");
}

/// What a host's GAE says to a command.
fn gae(fabric: &ManagedFabric, host: Part, opcode: Opcode, input: Vec<u8>) -> u16 {
    let (opcode, input) = (Num(opcode.0.into()), Hex(input));
    let command = Command::Gae { opcode, input, block: None, timeout_ms: 1_000 };
    match fabric.ask(host, &command).unwrap() {
        Answer::Response { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn traced(fabric: &mut ManagedFabric, host: &str, hpa: u64) -> Trace {
    let asked = Request::Trace { host: host.to_owned(), hpa, via: TraceVia::Uio };
    match fabric.fm().request(&asked) {
        Ok(Response::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

/// Each host and each accelerator reaches the memory of the other host; the trace says by which tables.
#[test]
fn figure_7_38_hosts_show_each_other_their_memory() {
    let mut fabric = up("fig-7-38");
    let shown = rows(&mut fabric);
    let mut seed = 0;
    for (of, row) in shown.iter().enumerate() {
        let other = 1 - of;
        let names: Vec<&str> = row.from.iter().map(|who| who.name.as_str()).collect();
        assert_eq!(names, [format!("h{other}"), format!("acc{other}")]);
        for by in [Part::Host(other), Part::Device(other)] {
            for (offset, len) in [(0, 1 << 14), (0x1_2345, 333), ((16 << 20) - 4_096, 4_096)] {
                seed += 1;
                reaches(&fabric, by, Part::Host(of), range(row.hpa + offset, len, seed));
            }
            // Behind what is shown, nobody answers but with UR.
            let behind = access(&fabric, by, range(row.hpa + (16 << 20), 64, seed), false);
            assert!(behind.failures.contains_key("UR"), "{behind:?}");
        }
        let trace = traced(&mut fabric, &format!("h{other}"), row.hpa);
        assert_eq!((&trace.end, trace.dpid), (&End::Host, Some(row.of.pid)), "{trace:?}");
        assert!(trace.steps.iter().all(|step| step.asked), "{trace:?}");
        let tables: Vec<&str> = trace.steps.iter().map(|step| step.table.as_str()).collect();
        assert!(
            ["FAST", "VTV", "DRT", "VendPrefixL0"].iter().all(|t| tables.contains(t)),
            "{tables:?}"
        );
    }
    books(&fabric);
}

/// Accelerators reach each other's memory, and no host does: not the others, nor the one whose accelerator it is.
#[test]
fn figure_7_39_accelerators_show_each_other_theirs() {
    let mut fabric = up("fig-7-39");
    let shown = rows(&mut fabric);
    for (of, row) in shown.iter().enumerate() {
        for by in (0..3).filter(|by| *by != of) {
            let (offset, seed) = (0x1_0000 * by as u64 + 0x101, 10 * of as u64 + by as u64);
            let to = range(row.hpa + offset, 10_000, seed);
            reaches(&fabric, Part::Device(by), Part::Device(of), to);
        }
        for host in 0..3 {
            refused(&fabric, Part::Host(host), Part::Device(of), &range(row.hpa, 4_096, 99));
        }
    }
    books(&fabric);
}

/// Flow one: FAST, PIF, the prefix at the far edge, the completion back by it.
#[test]
fn figure_7_40_the_fast_of_the_edge_finds_it() {
    let mut fabric = up("fig-7-40");
    let row = rows(&mut fabric).remove(0);
    let [host, device, memory, stranger] =
        [Part::Host(0), Part::Device(0), Part::Host(1), Part::Host(2)];
    reaches(&fabric, host, memory, range(row.hpa, 1 << 14, 1));
    reaches(&fabric, device, memory, range(row.hpa + (1 << 20), 1 << 14, 2));
    // Not by memory requests (GIM is for UIO), and not by who was not allowed.
    let plain = Access { via: Via::Plain, ..range(row.hpa, 64, 3) };
    let read = access(&fabric, host, plain, false);
    assert!(!read.ok && read.failures.contains_key("UR"), "{read:?}");
    refused(&fabric, stranger, memory, &range(row.hpa, 4_096, 4));
    // A stranger's FAST cannot be set to it either: the window can, and the segment is refused, as its VTV lacks it.
    let (hpa, len, targets) = (row.hpa, row.size, vec![Pid::from_low_bits(row.of.pid)]);
    let region = Region { hpa, len, granularity: 0, targets, gim: true };
    let commands = commands(UPSTREAM, &[region], PrefixFlags::default()).unwrap();
    let codes = commands.into_iter().map(|(opcode, input)| gae(&fabric, stranger, opcode, input));
    let codes: Vec<u16> = codes.collect();
    assert_eq!(codes, [ReturnCode::Success, ReturnCode::InvalidInput].map(ReturnCode::bits));
    refused(&fabric, stranger, memory, &range(row.hpa, 4_096, 4));
    // Nor may it, or the one that may by FAST, name the target itself.
    for by in [stranger, host, device] {
        let to = Access { to: Some(row.of.pid), ..range(row.hpa, 64, 5) };
        refused(&fabric, by, memory, &to);
    }
    books(&fabric);
}

/// Flow two: the requester names the target's PID itself, where the manager has allowed that.
#[test]
fn figure_7_41_the_requester_names_it_itself() {
    let mut fabric = up("fig-7-41");
    let row = rows(&mut fabric).remove(0);
    let memory = Part::Host(1);
    let named =
        |offset, seed| Access { to: Some(row.of.pid), ..range(row.hpa + offset, 5_000, seed) };
    reaches(&fabric, Part::Host(0), memory, named(0, 1));
    reaches(&fabric, Part::Device(0), memory, named(0x2_0000, 2));
    // Without the prefix there is no FAST that finds it; with it, others may not.
    refused(&fabric, Part::Host(0), memory, &range(row.hpa, 64, 3));
    for by in [Part::Device(1), Part::Host(2)] {
        refused(&fabric, by, memory, &named(0, 4));
    }
    // A PID that VTV does not have is refused even where prefixes are on.
    let own = fabric.fm().state().unwrap().grants.gim.grants[0].members[0].pid.bits();
    let to = Access { to: Some(own), ..range(row.hpa, 64, 5) };
    refused(&fabric, Part::Device(0), memory, &to);
    let trace = traced(&mut fabric, "h0", row.hpa);
    assert_eq!((&trace.end, trace.dpid), (&End::Host, Some(row.of.pid)), "{trace:?}");
    books(&fabric);
}

/// Revoked, a requester is refused at once and others go on; released, all are; shown again, all is as it was.
#[test]
fn revoking_gim_stops_one_and_no_other() {
    let mut fabric = up("fig-7-40");
    let row = rows(&mut fabric).remove(0);
    let [host, device, memory] = [Part::Host(0), Part::Device(0), Part::Host(1)];
    let access_of = |fabric: &mut ManagedFabric, host: &str| match fabric
        .fm()
        .request(&Request::Access { host: host.to_owned() })
    {
        Ok(Response::Access(access)) => access,
        other => panic!("{other:?}"),
    };
    let before = (access_of(&mut fabric, "h0"), access_of(&mut fabric, "h1"));
    reaches(&fabric, host, memory, range(row.hpa, 4_096, 1));
    let (name, who) = (row.name.clone(), "h0".to_owned());
    fabric.fm().request(&Request::Revoke { name: name.clone(), host: who }).unwrap();
    // VTV has the target still, for the accelerator of the same virtual switch: hosts' software does the rest.
    fabric.map().unwrap();
    refused(&fabric, host, memory, &range(row.hpa, 4_096, 2));
    reaches(&fabric, device, memory, range(row.hpa, 4_096, 3));
    fabric.fm().request(&Request::Release { name }).unwrap();
    refused(&fabric, device, memory, &range(row.hpa, 4_096, 4));
    assert_eq!(access_of(&mut fabric, "h1").vtv, Vec::<u16>::new());
    fabric.fm().request(&Request::Discover).unwrap();
    fabric.map().unwrap();
    assert_eq!((access_of(&mut fabric, "h0"), access_of(&mut fabric, "h1")), before);
    reaches(&fabric, host, memory, range(row.hpa, 4_096, 5));
    books(&fabric);
}

/// An accelerator at another switch than its host's.
const FAR: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [
    { name = "h0", at = "sw0", bind = ["acc0"], memory_mib = 64 },
    { name = "h1", at = "sw1", gim = true, memory_mib = 64 },
]
device = [{ name = "acc0", at = "sw1", kind = "accelerator" }]
gfd = [{ name = "g0", at = "sw0" }]
[[memory]]
name = "pool"
hosts = ["h1"]
devices = ["acc0"]
gfds = ["g0"]
len = 0x10000000
hpa = 0x10000000000
"#;

/// CXL 3.1 section 7.7.2.6: the virtual switch below a virtual link has a GAE of its own, by which the host sets the tables of
/// its bridges: a device there reaches G-FAM and GIM, until the link is taken away. Memory of its own host is no GIM to it.
#[test]
fn a_device_below_a_virtual_link_has_tables_by_the_gae_there() {
    let mut fabric = up_text("far", FAR);
    let (acc, owner) = (Part::Device(0), Part::Host(1));
    let gim = rows(&mut fabric)[0].hpa;
    let pool = 0x100_0000_0000;
    reaches(&fabric, acc, owner, range(gim + 4_096, 1 << 14, 3));
    let write = access(&fabric, acc, range(pool, 1 << 14, 4), true);
    assert!(write.ok, "{write:?}");
    let read = access(&fabric, owner, range(pool, 1 << 14, 4), false);
    assert!(read.ok && read.mismatched == 0, "{read:?}");

    let own = Request::ShowGim(DesiredGim {
        name: "own".to_owned(),
        of: "h0".to_owned(),
        from: vec!["acc0".to_owned()],
        prefix: false,
        size: 1 << 20,
        hpa: 0x200_0000_0000,
    });
    let refused_own = fabric.fm().request(&own).unwrap_err().to_string();
    assert!(refused_own.contains("gim-other-domain"), "{refused_own}");

    let bridge = "entry/0/1".to_owned();
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    // Its host has gone: the device has been reset, and sends nothing.
    let send = |fabric: &ManagedFabric, addr| {
        pass(fabric, 20);
        fabric.ask(acc, &Command::DmaWrite(range(addr, 4_096, 5)))
    };
    for addr in [gim, pool] {
        let gone = send(&fabric, addr).unwrap_err().message;
        assert!(gone.contains("may not send requests"), "{gone}");
    }
    let bind = Request::Bind { bridge, to: "sw1/0/0".to_owned() };
    let Response::Done(said) = fabric.fm().request(&bind).unwrap() else { unreachable!() };
    // What it was given it has, whoever has it now: who binds it is told.
    let [_, pool_too] = said.as_slice() else { panic!("{said:?}") };
    assert!(
        pool_too.starts_with("acc0 has access to memory \"pool\", which h0 was not"),
        "{said:?}"
    );
    assert!((0..200).any(|_| send(&fabric, gim).is_ok()), "the host has found it");
    refused(&fabric, acc, owner, &range(gim, 4_096, 5)); // the host has not set it yet
    fabric.bring_up_hosts().unwrap();
    reaches(&fabric, acc, owner, range(gim + 8_192, 1 << 14, 7));
    books(&fabric);
}

/// Two accelerators, each at the other host's switch: memory of one found by FAST, of the other named by its PID.
const CROSSED: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [
    { name = "h0", at = "sw0", bind = ["acc0"], memory_mib = 64 },
    { name = "h1", at = "sw1", bind = ["acc1"], memory_mib = 64 },
    { name = "h2", at = "sw1", memory_mib = 64 },
]
device = [
    { name = "acc0", at = "sw1", kind = "accelerator" },
    { name = "acc1", at = "sw0", kind = "accelerator" },
]
gim = [
    { of = "acc0", from = ["h1", "acc1"] },
    { of = "acc1", from = ["h0", "acc0"], by = "prefix" },
    { of = "h1", from = ["acc0"], by = "prefix" },
]
"#;

/// CXL 3.1 section 7.7.3: devices at another switch than their hosts' show their memory to hosts and to devices of other
/// hierarchies, by both flows, and reach it so; who was given nothing, and who was revoked, does not.
#[test]
fn devices_below_virtual_links_show_each_other_their_memory() {
    let mut fabric = up_text("crossed", CROSSED);
    let [acc0, acc1] = [0, 1].map(Part::Device);
    let [h0, h1, h2] = [0, 1, 2].map(Part::Host);
    let all = rows(&mut fabric);
    let row = |name: &str| all.iter().find(|row| row.name == name).unwrap().clone();
    let (by_fast, by_pid, of_host) = (row("acc0"), row("acc1"), row("h1"));
    let named = |row: &GimRow, offset, len, seed| Access {
        to: Some(row.of.pid),
        ..range(row.hpa + offset, len, seed)
    };
    let mut seed = 0;
    for (offset, len) in [(0, 1 << 14), (0x1_2345, 333), ((16 << 20) - 4_096, 4_096)] {
        for by in [h1, acc1] {
            seed += 1;
            reaches(&fabric, by, acc0, range(by_fast.hpa + offset, len, seed));
        }
        for by in [h0, acc0] {
            seed += 1;
            reaches(&fabric, by, acc1, named(&by_pid, offset, len, seed));
        }
        seed += 1;
        reaches(&fabric, acc0, h1, named(&of_host, offset, len, seed));
    }
    refused(&fabric, h2, acc0, &range(by_fast.hpa, 4_096, 90));
    refused(&fabric, h2, acc1, &named(&by_pid, 0, 4_096, 91));
    refused(&fabric, h0, acc0, &range(by_fast.hpa, 4_096, 92));
    for (name, host, part) in [("acc0", "acc1", "shows it memory"), ("acc1", "h0", "is revoked")] {
        let revoke = Request::Revoke { name: name.to_owned(), host: host.to_owned() };
        let said = format!("{:?}", fabric.fm().request(&revoke).unwrap());
        assert!(said.contains(part), "{said}");
        assert_eq!(said.contains("still lets"), host == "acc1", "{said}");
    }
    refused(&fabric, h0, acc1, &named(&by_pid, 0, 4_096, 93));
    // VTV has acc0 at acc1's edge still, for completions to it: the host's FAST leads there no more.
    fabric.map().unwrap();
    refused(&fabric, acc1, acc0, &range(by_fast.hpa, 4_096, 94));
    reaches(&fabric, h1, acc0, range(by_fast.hpa + 0x8000, 4_096, 95));
    reaches(&fabric, acc0, acc1, named(&by_pid, 0x8000, 4_096, 96));
    books(&fabric);
}

/// Hosts map GIM that the manager has given by command, of a host without any in the file, too; and nothing once it is released.
#[test]
fn what_is_given_by_command_is_mapped() {
    const HPA: u64 = 0x300_0000_0000;
    let mut fabric = up("fig-7-40");
    let [h0, h1, h2] = [0, 1, 2].map(Part::Host);
    let before = rows(&mut fabric)[0].hpa;
    let show = |name: &str, size: u64| {
        Request::ShowGim(DesiredGim {
            name: name.to_owned(),
            of: "h2".to_owned(),
            from: vec!["h1".to_owned()],
            prefix: false,
            size,
            hpa: HPA,
        })
    };
    fabric.fm().request(&show("w", 16 << 20)).unwrap();
    fabric.map().unwrap();
    reaches(&fabric, h1, h2, range(HPA + 0x1_0000, 4_096, 1));
    reaches(&fabric, h0, h1, range(before, 4_096, 2));
    refused(&fabric, h0, h2, &range(HPA, 64, 3));
    let release = |name: &str| Request::Release { name: name.to_owned() };
    fabric.fm().request(&release("w")).unwrap();
    fabric.map().unwrap();
    refused(&fabric, h1, h2, &range(HPA, 64, 4));
    // More than the host has is said by name, and all else is mapped.
    fabric.fm().request(&show("much", 32 << 20)).unwrap();
    let why = fabric.map().unwrap_err().to_string();
    assert!(why.contains("GIM \"much\": h2 has 16 MiB"), "{why}");
    reaches(&fabric, h0, h1, range(before + 0x2_0000, 4_096, 5));
    books(&fabric);
}
