//! Accelerators that access memory devices directly (UIO direct P2P to HDM) in a whole fabric of one process.
//!
//! `pcaps/fabric/p2p.toml` → `weft_lab::fabric` in virtual time → what accelerators write and read.
//!
//! Units: bytes.
//! Source: CXL 3.1 section 7.7.9.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_fm::service::request::{P2pRow, P2pState};
use weft_fm::service::{Request, Response, Vector};
use weft_fm::show::trace::{End, Trace, Via as TraceVia};
use weft_fm::state::desired::DesiredP2p;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::ldst_tables::{Direct, ldst};
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::cci::{Opcode, ReturnCode};
use weft_parsers::fabric::Pid;
use weft_tests::fabric_here::{access, books, file, range, transfer, up, up_text};

const ACC0: Part = Part::Device(0);
const ACC1: Part = Part::Device(1);
const ACC2: Part = Part::Device(2);
const MEM0: Part = Part::Device(3);
const MEM1: Part = Part::Device(4);
const HOSTS: [Part; 3] = [Part::Host(0), Part::Host(1), Part::Host(2)];

fn rows(fabric: &mut ManagedFabric) -> Vec<P2pRow> {
    match fabric.fm().request(&Request::P2p) {
        Ok(Response::P2p(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

fn row(fabric: &mut ManagedFabric, name: &str) -> P2pRow {
    rows(fabric).into_iter().find(|row| row.name == name).unwrap()
}

/// What the memory device itself finds there, against a pattern.
fn has(fabric: &ManagedFabric, of: Part, offset: u64, len: u64, seed: u64) -> bool {
    let (addr, len) = (Num(offset), Some(Num(len)));
    let own = OwnRange { addr, len, seed: Some(seed), ..OwnRange::default() };
    transfer(fabric, of, &Command::Peek(own)).ok
}

fn reaches(fabric: &ManagedFabric, by: Part, of: Part, hpa: u64, offset: u64, seed: u64) {
    const LEN: u64 = 5_000;
    assert!(!has(fabric, of, offset, LEN, seed), "it is not there before");
    let write = access(fabric, by, range(hpa + offset, LEN, seed), true);
    assert!(write.ok && write.written == LEN, "{by:?} to {of:?}: {write:?}");
    assert!(has(fabric, of, offset, LEN, seed), "{by:?} to {of:?}");
    let read = access(fabric, by, range(hpa + offset, LEN, seed), false);
    assert!(read.ok && read.mismatched == 0, "{by:?} to {of:?}: {read:?}");
}

/// A write and a read are refused with UR, and the memory is as it was.
fn refused(fabric: &ManagedFabric, by: Part, of: Part, hpa: u64, seed: u64) {
    for write in [true, false] {
        let report = access(fabric, by, range(hpa, 4_096, seed), write);
        let is_ur = report.failures.contains_key("UR");
        assert!(!report.ok && is_ur, "{by:?}, write {write}: {report:?}");
    }
    assert!(!has(fabric, of, 0, 4_096, seed), "{by:?} has written");
}

fn traced(fabric: &mut ManagedFabric, who: &str, hpa: u64) -> Trace {
    let asked = Request::Trace { host: who.to_owned(), hpa, via: TraceVia::Uio };
    match fabric.fm().request(&asked) {
        Ok(Response::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

fn tables(trace: &Trace) -> Vec<&str> {
    trace.steps.iter().map(|step| step.table.as_str()).collect()
}

/// What the mailboxes of a host say to a command: of its own switch, and of those below.
fn mailboxes(fabric: &ManagedFabric, host: Part, opcode: Opcode, input: &[u8]) -> Vec<u16> {
    let Ok(Answer::Tree { tree, .. }) = fabric.ask(host, &Command::Tree {}) else { panic!() };
    let mut found = Vec::new();
    let mut left: Vec<&Value> = tree.get("nodes").into_iter().collect();
    while let Some(nodes) = left.pop() {
        for node in nodes.as_array().unwrap() {
            if node.get("class").and_then(Value::as_u64) == Some(0x0C_0B_00) {
                found.extend(node.pointer("/bars/0/address").and_then(Value::as_u64));
            }
            left.extend(node.pointer("/below/nodes"));
        }
    }
    let one = |block: u64| {
        let (opcode, input) = (Num(opcode.0.into()), Hex(input.to_vec()));
        let block = Some(Num(block));
        let command = Command::Gae { opcode, input, block, timeout_ms: 1_000 };
        match fabric.ask(host, &command).unwrap() {
            Answer::Response { code, .. } => code,
            other => panic!("{other:?}"),
        }
    };
    found.into_iter().map(one).collect()
}

/// Within a hierarchy and between two: each accelerator reaches what it was given, no host takes part, and the trace says by
/// which tables.
#[test]
fn accelerators_reach_memory_devices_of_both_hierarchies() {
    let mut fabric = up("p2p");
    let (shared, theirs) = (row(&mut fabric, "shared"), row(&mut fabric, "theirs"));
    assert_eq!((shared.state, theirs.state), (P2pState::Given, P2pState::Given));
    let before: Vec<_> = HOSTS.map(|host| requests(&fabric, host)).into();
    let mut seed = 0;
    for (by, of, hpa) in
        [(ACC0, MEM0, shared.hpa), (ACC1, MEM0, shared.hpa), (ACC0, MEM1, theirs.hpa)]
    {
        for offset in [0, 0x1_2345, (256 << 20) - 5_000] {
            seed += 1;
            reaches(&fabric, by, of, hpa, offset, seed);
        }
        // Behind the memory, the device answers with UR, which comes back the same way.
        let behind = access(&fabric, by, range(hpa + (256 << 20), 64, seed), false);
        assert!(behind.failures.contains_key("UR"), "{behind:?}");
    }
    assert_eq!(HOSTS.map(|host| requests(&fabric, host)).to_vec(), before, "no host took part");
    // Who was given nothing reaches nothing.
    refused(&fabric, ACC1, MEM1, theirs.hpa, 90);
    refused(&fabric, ACC2, MEM0, shared.hpa, 91);
    for (who, row) in [("acc0", &shared), ("acc0", &theirs)] {
        let trace = traced(&mut fabric, who, row.hpa + 7);
        assert_eq!((&trace.end, trace.dpid), (&End::Memory, Some(row.to.pid)), "{trace:?}");
        for table in ["LDST window", "LDST", "LAV", "DRT", "re-router"] {
            assert!(tables(&trace).contains(&table), "{table}: {:?}", tables(&trace));
        }
        let ldst = trace.steps.iter().find(|step| step.table == "LDST").unwrap();
        assert!(ldst.asked, "acc0 is at its host's own switch: {ldst:?}");
    }
    let trace = traced(&mut fabric, "acc1", shared.hpa);
    assert_eq!((&trace.end, trace.dpid), (&End::Memory, Some(shared.to.pid)), "{trace:?}");
    books(&fabric);
}

/// Devices of two hierarchies may have the same id: completions find back by the segment that the edges put in.
#[test]
fn ids_of_two_hierarchies_may_be_the_same() {
    let here = "name = \"acc1\"\nat = \"sw2\"";
    let text = file("p2p").replace(here, "name = \"acc1\"\nat = \"sw1\"");
    let mut fabric = up_text("p2p", &text);
    let id = |by| match fabric.ask(by, &Command::Status {}).unwrap() {
        Answer::Status(status) => status.detail.pointer("/functions/0/id").cloned(),
        other => panic!("{other:?}"),
    };
    assert!(id(ACC0).is_some() && id(ACC0) == id(ACC1), "{:?} {:?}", id(ACC0), id(ACC1));
    let hpa = row(&mut fabric, "shared").hpa;
    for (by, seed) in [(ACC0, 1), (ACC1, 2), (ACC0, 3)] {
        reaches(&fabric, by, MEM0, hpa, 0x1_0000 * seed, seed);
    }
    books(&fabric);
}

/// A host loads and stores its memory device at another switch by CXL.mem, by LDST of its own port; accelerators see the same
/// bytes; no other host does, and nobody does once it is revoked.
#[test]
fn a_host_loads_and_stores_its_memory_device() {
    let mut fabric = up("p2p");
    let hpa = row(&mut fabric, "shared").hpa;
    let by_mem = |offset, len, seed| Access { via: Via::CxlMem, ..range(hpa + offset, len, seed) };
    for (offset, len, seed) in [(0, 4_096, 1), (0x101, 777, 2), ((256 << 20) - 64, 64, 3)] {
        let write = access(&fabric, HOSTS[0], by_mem(offset, len, seed), true);
        assert!(write.ok && write.written == len, "{write:?}");
        assert!(has(&fabric, MEM0, offset, len, seed));
        let read = access(&fabric, HOSTS[0], by_mem(offset, len, seed), false);
        assert!(read.ok && read.mismatched == 0, "{read:?}");
        let dma = access(&fabric, ACC1, range(hpa + offset, len, seed), false);
        assert!(dma.ok && dma.mismatched == 0, "{dma:?}");
    }
    // By UIO, too: the device's re-router knows its host.
    reaches(&fabric, HOSTS[0], MEM0, hpa, 0x2_0000, 4);
    let trace = mem_traced(&mut fabric, "h0", hpa);
    assert_eq!(trace.end, End::Memory, "{trace:?}");
    assert!(["LDST", "LAV", "DRT"].iter().all(|it| tables(&trace).contains(it)), "{trace:?}");
    let nothing = |fabric: &ManagedFabric, host, seed| {
        let write = access(fabric, host, by_mem(0, 64, seed), true);
        let read = access(fabric, host, by_mem(0, 64, seed), false);
        assert!(!read.ok, "{host:?}: {write:?} {read:?}");
        assert!(!has(fabric, MEM0, 0, 64, seed), "{host:?} has written");
    };
    for (host, name) in [(HOSTS[1], "h1"), (HOSTS[2], "h2")] {
        nothing(&fabric, host, 9);
        assert!(matches!(mem_traced(&mut fabric, name, hpa).end, End::Refused(_)));
    }
    // Behind the memory there is nothing, and the device says so.
    let behind = access(&fabric, HOSTS[0], by_mem(256 << 20, 64, 5), false);
    assert!(!behind.ok && behind.failures.keys().any(|how| how != "timeout"), "{behind:?}");
    fabric.fm().request(&Request::Release { name: "shared".to_owned() }).unwrap();
    nothing(&fabric, HOSTS[0], 10);
    books(&fabric);
}

fn mem_traced(fabric: &mut ManagedFabric, host: &str, hpa: u64) -> Trace {
    let asked = Request::Trace { host: host.to_owned(), hpa, via: TraceVia::CxlMem };
    match fabric.fm().request(&asked) {
        Ok(Response::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

/// What a hostile host writes into its LDST, with the right to name a memory device of another host, does not lead there by
/// CXL.mem: the edge of the device takes its own host's alone.
#[test]
fn a_memory_device_takes_cxl_mem_of_its_own_host_alone() {
    let mut fabric = up("p2p");
    let row = row(&mut fabric, "shared");
    // h1 has mem0 in its LAV at sw2, for acc1; let it have it at its own switch, too, and map it.
    let (pid, vector) = (format!("{:03x}", row.to.pid), Vector::Lav);
    let allow = Request::SetAccess { host: "h1".to_owned(), vector, pid, on: true };
    fabric.fm().request(&allow).unwrap();
    let target = Pid::from_low_bits(row.to.pid);
    let direct = Direct { hpa: row.hpa, len: row.size, target, across: false };
    for (opcode, input) in ldst(0, &[direct]).unwrap() {
        let codes = mailboxes(&fabric, HOSTS[1], opcode, &input);
        assert!(codes.contains(&ReturnCode::Success.bits()), "{codes:?}");
    }
    let by_mem = Access { via: Via::CxlMem, ..range(row.hpa, 64, 9) };
    let write = access(&fabric, HOSTS[1], by_mem.clone(), true);
    let read = access(&fabric, HOSTS[1], by_mem, false);
    assert!(!read.ok && !read.failures.contains_key("timeout"), "refused at once: {read:?}");
    assert!(!write.failures.contains_key("timeout"), "{write:?}");
    assert!(!has(&fabric, MEM0, 0, 64, 9), "it has written");
    let trace = mem_traced(&mut fabric, "h1", row.hpa);
    let End::Refused(why) = &trace.end else { panic!("{trace:?}") };
    assert!(why.contains("its own host alone"), "{why}");
    books(&fabric);
}

/// Below an HBR switch: accelerators of both hierarchies, one beside it below the same switch, and its host reach a memory device by
/// UIO through the decoders of that switch, and no other one does.
#[test]
fn a_memory_device_below_an_hbr_switch_is_reached_by_uio() {
    const BESIDE: Part = Part::Device(5);
    let text = file("p2p").replacen("\"acc0\", \"mem0\"", "\"acc0\", \"low\"", 1).replacen(
        "name = \"mem0\"\nat = \"sw1\"",
        "name = \"mem0\"\nat = \"low\"",
        1,
    );
    let more = "[[hbr]]\nname = \"low\"\nat = \"sw1\"\n[[device]]\nname = \"beside\"\nat = \"low\"\nkind = \"accelerator\"\n";
    let mut fabric = up_text("p2p", &format!("{text}{more}"));
    let shared = row(&mut fabric, "shared");
    let theirs = row(&mut fabric, "theirs");
    let [h0, h1, h2] = HOSTS.map(|host| requests(&fabric, host));
    let mut seed = 0;
    for by in [ACC0, ACC1, BESIDE, HOSTS[0]] {
        for offset in [0, 0x1_2345, (256 << 20) - 5_000] {
            seed += 1;
            reaches(&fabric, by, MEM0, shared.hpa, offset, seed);
        }
        let behind = access(&fabric, by, range(shared.hpa + (256 << 20), 64, seed), false);
        assert!(behind.failures.contains_key("UR"), "{by:?}: {behind:?}");
    }
    // What no decoder has goes up from below, and is its host's to refuse.
    let after = HOSTS.map(|host| requests(&fabric, host));
    assert_eq!(after, [h0 + 1, h1, h2], "no host took part but for what lies behind");
    let by_mem = Access { via: Via::CxlMem, ..range(shared.hpa + 0x8_0000, 4_096, 40) };
    assert!(access(&fabric, HOSTS[0], by_mem, true).ok);
    assert!(has(&fabric, MEM0, 0x8_0000, 4_096, 40));
    // The one beside it has no right elsewhere, and another domain none here.
    refused(&fabric, BESIDE, MEM1, theirs.hpa, 90);
    refused(&fabric, ACC2, MEM0, shared.hpa, 91);
    let revoke = Request::Revoke { name: "shared".to_owned(), host: "acc1".to_owned() };
    fabric.fm().request(&revoke).unwrap();
    refused(&fabric, ACC1, MEM0, shared.hpa, 92);
    reaches(&fabric, ACC0, MEM0, shared.hpa, 0x9_0000, 41);
    books(&fabric);
}

/// TLPs that a host was asked by.
fn requests(fabric: &ManagedFabric, host: Part) -> u64 {
    match fabric.ask(host, &Command::Status {}).unwrap() {
        Answer::Status(status) => {
            status.counts.pointer("/host/requests").and_then(Value::as_u64).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

/// Revoked while a load runs, the next request is refused; others go on; given again, it is as it was.
#[test]
fn revoking_stops_one_under_traffic_and_no_other() {
    let mut fabric = up("p2p");
    let row = row(&mut fabric, "shared");
    reaches(&fabric, ACC0, MEM0, row.hpa, 0, 1);
    for (by, seed, offset) in [(ACC0, 2, 0), (ACC1, 3, 1 << 20)] {
        let access = range(row.hpa + offset, 4_096, seed);
        let load = Command::LoadStart { access, rounds: 0, pause_ms: 0 };
        assert_eq!(fabric.ask(by, &load), Ok(Answer::Done));
    }
    let rounds = |fabric: &ManagedFabric, by| match fabric.ask(by, &Command::LoadStatus {}) {
        Ok(Answer::Load(load)) => (load.done, load.failures.clone()),
        other => panic!("{other:?}"),
    };
    fabric.parts().until(Span::from_us(300), |_| false);
    let revoke = Request::Revoke { name: "shared".to_owned(), host: "acc1".to_owned() };
    fabric.fm().request(&revoke).unwrap();
    let before = (rounds(&fabric, ACC0), rounds(&fabric, ACC1));
    fabric.parts().until(Span::from_us(300), |_| false);
    let after = (rounds(&fabric, ACC0), rounds(&fabric, ACC1));
    assert!(before.0.0 > 0 && after.0.0 > before.0.0, "the other goes on: {before:?} {after:?}");
    assert!(after.0.1.is_empty(), "without a failure: {after:?}");
    assert!(after.1.1.keys().any(|how| how == "UR"), "the next request is refused: {after:?}");
    for by in [ACC0, ACC1] {
        fabric.ask(by, &Command::LoadStop {}).unwrap();
    }
    refused(&fabric, ACC1, MEM0, row.hpa, 4);
    let trace = traced(&mut fabric, "acc1", row.hpa);
    assert!(!matches!(trace.end, End::Memory), "{trace:?}");
    // Hosts' software clears what is no longer given, and all is as before once it is given again.
    fabric.map().unwrap();
    refused(&fabric, ACC1, MEM0, row.hpa, 5);
    reaches(&fabric, ACC0, MEM0, row.hpa, 0x10_0000, 6);
    fabric.fm().request(&Request::Release { name: "shared".to_owned() }).unwrap();
    refused(&fabric, ACC0, MEM0, row.hpa, 7);
    fabric.fm().request(&Request::Discover).unwrap();
    fabric.map().unwrap();
    reaches(&fabric, ACC0, MEM0, row.hpa, 0, 8);
    reaches(&fabric, ACC1, MEM0, row.hpa, 0, 9);
    books(&fabric);
}

/// Whatever a host of another domain writes into its tables, LAV refuses it; and the manager gives it nothing by command.
#[test]
fn another_domain_gets_nothing() {
    let mut fabric = up("p2p");
    let row = row(&mut fabric, "shared");
    let add = Request::AddP2p(DesiredP2p {
        name: "stolen".to_owned(),
        from: vec!["acc2".to_owned()],
        to: "mem0".to_owned(),
        size: row.size,
        hpa: row.hpa,
    });
    let why = fabric.fm().request(&add).unwrap_err().message;
    assert!(why.contains("p2p-same-domain") && why.contains("differ"), "{why}");
    // Its window can be set, the entry is refused, as its LAV lacks the target.
    let target = Pid::from_low_bits(row.to.pid);
    let direct = Direct { hpa: row.hpa, len: row.size, target, across: true };
    let codes: Vec<Vec<u16>> = ldst(1, &[direct])
        .unwrap()
        .into_iter()
        .map(|(opcode, input)| mailboxes(&fabric, HOSTS[2], opcode, &input))
        .collect();
    let [ok, bad] = [ReturnCode::Success, ReturnCode::InvalidInput].map(ReturnCode::bits);
    assert_eq!(codes, [[ok], [bad]]);
    refused(&fabric, ACC2, MEM0, row.hpa, 1);
    // It cannot take another secret, nor set LAV itself.
    let secret = mailboxes(&fabric, HOSTS[2], Opcode::SET_SV, &[1; 16]);
    assert_eq!(secret, [bad], "it has one already");
    let lav = mailboxes(&fabric, HOSTS[2], Opcode::CONFIGURE_LDST_ACCESS, &[0, 0, 1, 0]);
    assert_eq!(lav, [ReturnCode::Unsupported.bits()]);
    reaches(&fabric, ACC1, MEM0, row.hpa, 0, 2);
    books(&fabric);
}

/// A host that comes back in another domain, or in none, has its access withdrawn at the manager's next look, and others
/// keep theirs.
#[test]
fn a_host_that_leaves_its_domain_loses_access() {
    let mut fabric = up("p2p");
    let row = row(&mut fabric, "shared");
    reaches(&fabric, ACC1, MEM0, row.hpa, 0, 1);
    for is_up in [false, true] {
        let mut parts = fabric.parts();
        for wire in parts.wires_of(HOSTS[1]) {
            parts.set_wire(wire, is_up);
        }
        parts.until(Span::from_ms(200), |_| false);
    }
    fabric.fm().watch();
    let now = self::row(&mut fabric, "shared");
    assert_eq!(now.state, P2pState::Waits, "{now:?}");
    assert!(now.why.unwrap().contains("h1 has set no domain validation secret"));
    fabric.map().unwrap();
    // Until then the whole grant waits: of acc0, too, as it is for both.
    for by in [ACC0, ACC1] {
        refused(&fabric, by, MEM0, row.hpa, 2);
    }
    fabric.bring_up_hosts().unwrap();
    reaches(&fabric, ACC0, MEM0, row.hpa, 0, 3);
    reaches(&fabric, ACC1, MEM0, row.hpa, 0, 4);
    books(&fabric);
}

fn add(fabric: &mut ManagedFabric, name: &str, from: &str, to: &str, hpa: u64) {
    let (name, from, to) = (name.to_owned(), vec![from.to_owned()], to.to_owned());
    let add = Request::AddP2p(DesiredP2p { name, from, to, size: 256 << 20, hpa });
    fabric.fm().request(&add).unwrap();
}

/// Hosts map what the manager has given by command, and what was given before goes on; what was released is gone.
#[test]
fn what_is_given_by_command_is_mapped() {
    let mut fabric = up("p2p");
    let [shared, theirs] = ["shared", "theirs"].map(|name| row(&mut fabric, name).hpa);
    refused(&fabric, ACC1, MEM1, theirs, 1);
    add(&mut fabric, "n", "acc1", "mem1", theirs);
    fabric.map().unwrap();
    reaches(&fabric, ACC1, MEM1, theirs, 0, 2);
    reaches(&fabric, ACC0, MEM1, theirs, 0, 3);
    assert_eq!(traced(&mut fabric, "acc1", theirs).end, End::Memory);
    // The same under another name than the file's.
    fabric.fm().request(&Request::Release { name: "theirs".to_owned() }).unwrap();
    add(&mut fabric, "theirs2", "acc0", "mem1", theirs);
    fabric.map().unwrap();
    reaches(&fabric, ACC0, MEM1, theirs, 0, 4);
    for name in ["n", "theirs2"] {
        fabric.fm().request(&Request::Release { name: name.to_owned() }).unwrap();
    }
    fabric.map().unwrap();
    refused(&fabric, ACC0, MEM1, theirs, 5);
    refused(&fabric, ACC1, MEM1, theirs, 6);
    reaches(&fabric, ACC1, MEM0, shared, 0, 7);
    books(&fabric);
}

/// What nobody can map is said by name with what to do, and all else is mapped.
#[test]
fn what_cannot_be_mapped_is_said() {
    let mut fabric = up("p2p");
    let [shared, theirs] = ["shared", "theirs"].map(|name| row(&mut fabric, name).hpa);
    let elsewhere = theirs + (64 << 30);
    fabric.fm().request(&Request::Release { name: "theirs".to_owned() }).unwrap();
    add(&mut fabric, "moved", "acc1", "mem1", elsewhere);
    add(&mut fabric, "again", "acc1", "mem0", shared);
    fabric.fm().request(&Request::Release { name: "shared".to_owned() }).unwrap();
    let why = fabric.map().unwrap_err().to_string();
    let at = format!("P2P \"moved\": mem1 has its 256 MiB at {theirs:#x}");
    assert!(why.contains(&at) && !why.contains("again"), "{why}");
    reaches(&fabric, ACC1, MEM0, shared, 0, 1);
    fabric.fm().request(&Request::Release { name: "moved".to_owned() }).unwrap();
    add(&mut fabric, "here", "acc1", "mem1", theirs);
    fabric.map().unwrap();
    reaches(&fabric, ACC1, MEM1, theirs, 0, 2);
    books(&fabric);
}

/// Hosts of one domain with the same PCIe segment can be given each other's devices by command, but not mapped: completions
/// might come to another one.
#[test]
fn one_segment_for_two_hierarchies_is_not_mapped() {
    let text = file("p2p").replace("segment = 2", "segment = 1");
    let text = text.replace("[\"acc0\", \"acc1\", \"h0\"]", "[\"acc0\", \"h0\"]");
    let text = text.replace("from = [\"acc0\"]\nto = \"mem1\"", "from = [\"h1\"]\nto = \"mem1\"");
    let mut fabric = up_text("p2p", &text);
    let shared = row(&mut fabric, "shared").hpa;
    add(&mut fabric, "n", "acc1", "mem0", shared);
    let why = fabric.map().unwrap_err().to_string();
    assert!(why.contains("P2P \"n\": p2p-own-pcie-segment: the host of acc1"), "{why}");
    refused(&fabric, ACC1, MEM0, shared, 1);
    reaches(&fabric, ACC0, MEM0, shared, 0, 2);
    books(&fabric);
}
