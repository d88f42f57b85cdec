//! Host-managed memory in a whole fabric of one process: behind HBR switches, with and without PBR switches above.
//!
//! `pcaps/fabric/hdm.toml` → `weft_lab::fabric` in virtual time → what hosts load and store, and what is refused.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.6.2, 8.2.4.20; docs/spec/cxl-fabric.md "HDM decoders", "CXL.mem through HBR switches".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_dataplane::types::PortId;
use weft_fm::service::{Request, Response, Vector};
use weft_fm::show::trace::{End, Via as TraceVia};
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::ldst_tables::{Direct, ldst};
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::fabric::Pid;
use weft_tests::fabric_here::{access, books, cci, file, look, pass, range, transfer, up, up_text};

const HOSTS: [Part; 3] = [Part::Host(0), Part::Host(1), Part::Host(2)];
const MEMS: [Part; 4] = [Part::Device(0), Part::Device(1), Part::Device(2), Part::Device(3)];
const UNIT: u64 = 256 << 20;
/// Where h2 places its memory: the smaller device first.
const FIRST: u64 = 0x80_0000_0000;

fn by_mem(hpa: u64, len: u64, seed: u64) -> Access {
    Access { via: Via::CxlMem, ..range(hpa, len, seed) }
}

fn has(fabric: &ManagedFabric, of: Part, offset: u64, len: u64, seed: u64) -> bool {
    let (addr, len) = (Num(offset), Some(Num(len)));
    let own = OwnRange { addr, len, seed: Some(seed), ..OwnRange::default() };
    transfer(fabric, of, &Command::Peek(own)).ok
}

/// A host loads and stores the memory of a device, at its first and last bytes, and what is behind it is refused.
fn works(fabric: &ManagedFabric, host: Part, of: Part, hpa: u64, size: u64, seed: u64) {
    for (offset, len) in [(0, 4_096), (0x101, 777), (size - 64, 64)] {
        assert!(!has(fabric, of, offset, len, seed), "{of:?}: not before");
        let write = access(fabric, host, by_mem(hpa + offset, len, seed), true);
        assert!(write.ok && write.written == len, "{of:?}: {write:?}");
        assert!(has(fabric, of, offset, len, seed), "{of:?} at {offset:#x}");
        let read = access(fabric, host, by_mem(hpa + offset, len, seed), false);
        assert!(read.ok && read.mismatched == 0, "{of:?}: {read:?}");
    }
}

/// A store changes nothing in the device, and a load is refused at once.
fn refused(fabric: &ManagedFabric, host: Part, of: Part, hpa: u64, seed: u64) {
    let write = access(fabric, host, by_mem(hpa, 64, seed), true);
    let read = access(fabric, host, by_mem(hpa, 64, seed), false);
    let at_once =
        !write.failures.contains_key("timeout") && read.failures.contains_key("no_memory");
    assert!(!read.ok && at_once, "{host:?} to {of:?} at {hpa:#x}: {write:?} {read:?}");
    assert!(!has(fabric, of, 0, 64, seed), "{host:?} has written");
}

/// Where the fabric manager has put a memory device, and the PID of the port that leads there.
fn given(fabric: &mut ManagedFabric, name: &str) -> (u64, u16) {
    let Ok(Response::P2p(rows)) = fabric.fm().request(&Request::P2p) else { panic!() };
    let row = rows.into_iter().find(|row| row.name == name).unwrap();
    (row.hpa, row.to.pid)
}

/// An HDM decoder: base, size, DPA or port, whether it is committed.
type Decoder = (u64, u64, Option<u64>, Option<u64>, bool);

/// All HDM decoders that a host has set.
fn decoders(fabric: &ManagedFabric, host: Part) -> Vec<Decoder> {
    let Ok(Answer::Tree { tree, text }) = fabric.ask(host, &Command::Tree {}) else { panic!() };
    let mut found = Vec::new();
    let mut left = vec![&tree];
    while let Some(node) = left.pop() {
        let number = |it: &Value, key: &str| it.get(key).and_then(Value::as_u64);
        for it in node.get("hdm").and_then(Value::as_array).into_iter().flatten() {
            let (base, size) = (number(it, "base").unwrap(), number(it, "size").unwrap());
            let committed = it.get("committed").and_then(Value::as_bool).unwrap();
            found.push((base, size, number(it, "dpa"), number(it, "port"), committed));
        }
        let below = node.pointer("/below/nodes").or_else(|| node.get("nodes"));
        left.extend(below.and_then(Value::as_array).into_iter().flatten().rev());
    }
    assert_eq!(text.matches(" committed").count(), found.len(), "{text}");
    found
}

/// Through an HBR switch below the edge of a PBR fabric, directly at an edge, and through HBR switches alone: each host reaches
/// what is its own, and sees its decoders.
#[test]
fn hosts_reach_their_memory_through_switches_of_both_kinds() {
    let mut fabric = up("hdm");
    let (shared, _) = given(&mut fabric, "shared");
    let (own, _) = given(&mut fabric, "own");
    works(&fabric, HOSTS[0], MEMS[0], shared, UNIT, 1);
    works(&fabric, HOSTS[1], MEMS[1], own, 2 * UNIT, 2);
    works(&fabric, HOSTS[2], MEMS[3], FIRST, UNIT, 3);
    works(&fabric, HOSTS[2], MEMS[2], FIRST + UNIT, 2 * UNIT, 4);
    let at = |base, size, dpa, port| (base, size, dpa, port, true);
    assert_eq!(
        decoders(&fabric, HOSTS[0]),
        [at(shared, UNIT, None, Some(1)), at(shared, UNIT, Some(0), None)]
    );
    assert_eq!(decoders(&fabric, HOSTS[1]), [at(own, 2 * UNIT, Some(0), None)]);
    let (one, two) = (FIRST, FIRST + UNIT);
    let all = decoders(&fabric, HOSTS[2]);
    let want = [
        at(one, UNIT, None, Some(2)),
        at(two, 2 * UNIT, None, Some(1)),
        at(two, 2 * UNIT, Some(0), None),
        at(one, UNIT, None, Some(1)),
        at(one, UNIT, Some(0), None),
    ];
    assert_eq!(all, want);
    // What lies behind is nobody's: the edge, the HBR switch and the device say so.
    refused(&fabric, HOSTS[0], MEMS[0], shared + UNIT, 5);
    refused(&fabric, HOSTS[0], MEMS[0], FIRST, 5);
    refused(&fabric, HOSTS[1], MEMS[1], own + 2 * UNIT, 5);
    refused(&fabric, HOSTS[2], MEMS[2], FIRST + 3 * UNIT, 5);
    books(&fabric);
}

/// A host that is not the memory's own does not reach it, with its tables set to lead there: neither the device's nor the HBR
/// switch's edge takes it.
#[test]
fn memory_is_its_own_hosts_alone() {
    let mut fabric = up("hdm");
    for (host, name, other, of) in
        [("h1", "shared", HOSTS[1], MEMS[0]), ("h0", "own", HOSTS[0], MEMS[1])]
    {
        let (hpa, pid) = given(&mut fabric, name);
        refused(&fabric, other, of, hpa, 7);
        let pid_text = format!("{pid:03x}");
        let allow = Request::SetAccess {
            host: host.to_owned(),
            vector: Vector::Lav,
            pid: pid_text,
            on: true,
        };
        fabric.fm().request(&allow).unwrap();
        let target = Pid::from_low_bits(pid);
        let direct = Direct { hpa, len: UNIT, target, across: false };
        for (opcode, input) in ldst(0, &[direct]).unwrap() {
            let (opcode, input) = (Num(opcode.0.into()), Hex(input));
            let command = Command::Gae { opcode, input, block: None, timeout_ms: 1_000 };
            let answer = fabric.ask(other, &command).unwrap();
            assert!(matches!(answer, Answer::Response { code: 0, .. }), "{answer:?}");
        }
        refused(&fabric, other, of, hpa, 8);
    }
    books(&fabric);
}

/// A device whose link was down answers nothing until its host has found it again, with the bytes that it had; others go on.
#[test]
fn a_link_that_was_down_ends_what_was_decoded() {
    let fabric = up("hdm");
    works(&fabric, HOSTS[2], MEMS[3], FIRST, UNIT, 1);
    works(&fabric, HOSTS[2], MEMS[2], FIRST + UNIT, 2 * UNIT, 2);
    let wires = fabric.parts().wires_of(MEMS[3]);
    let set = |is_up| {
        let mut parts = fabric.parts();
        for wire in &wires {
            parts.set_wire(*wire, is_up);
        }
    };
    set(false);
    fabric.parts().until(Span::from_ms(5), |_| false);
    refused(&fabric, HOSTS[2], MEMS[3], FIRST, 3);
    works(&fabric, HOSTS[2], MEMS[2], FIRST + UNIT, 2 * UNIT, 4);
    set(true);
    let read = |fabric: &ManagedFabric| access(fabric, HOSTS[2], by_mem(FIRST, 64, 1), false);
    for _ in 0..1_000 {
        if read(&fabric).ok {
            break;
        }
        pass(&fabric, 1);
    }
    let found = read(&fabric);
    assert!(found.ok && found.mismatched == 0, "the bytes are there again: {found:?}");
    works(&fabric, HOSTS[2], MEMS[3], FIRST, UNIT, 5);
    books(&fabric);
}

/// Unbound, a memory device is nobody's; bound again, its host finds it, and the bytes that it had.
#[test]
fn what_is_unbound_answers_nobody() {
    let mut fabric = up("hdm");
    let (own, _) = given(&mut fabric, "own");
    works(&fabric, HOSTS[1], MEMS[1], own, 2 * UNIT, 1);
    let bridge = "sw1/1/1".to_owned();
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    refused(&fabric, HOSTS[1], MEMS[1], own, 2);
    pass(&fabric, 20);
    assert_eq!(decoders(&fabric, HOSTS[1]), [], "the host has heard of it");
    let port =
        fabric.parts().layout().switches[1].ports.iter().position(|it| it.far.part == MEMS[1]);
    let to = format!("port:{}", port.unwrap());
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
    pass(&fabric, 20);
    look(&mut fabric);
    fabric.map().unwrap();
    assert_eq!(decoders(&fabric, HOSTS[1]).len(), 1);
    let read = access(&fabric, HOSTS[1], by_mem(own, 64, 1), false);
    assert!(read.ok && read.mismatched == 0, "{read:?}");
    works(&fabric, HOSTS[1], MEMS[1], own, 2 * UNIT, 3);
    books(&fabric);
}

/// PID of the port that leads to a part at a switch.
fn pid_at(fabric: &ManagedFabric, switch: usize, far: Part) -> u16 {
    let parts = fabric.parts();
    let port = parts.layout().switches[switch].ports.iter().position(|it| it.far.part == far);
    let port = PortId::new(port.unwrap()).unwrap();
    parts.agent(switch).unwrap().switch().port(port).unwrap().pid().bits()
}

/// The primary manager sets a bit of LAV in the virtual switch of a host at the first switch (5716h).
fn allow_at_device(fabric: &mut ManagedFabric, host: usize, pid: u16) {
    let all: Vec<usize> =
        fabric.parts().layout().switches[0].vcses.iter().map(|vcs| vcs.host).collect();
    let vcs = all.iter().position(|of| *of == host).unwrap();
    let [low, high] = pid.to_le_bytes();
    let (code, told) = cci(fabric, "entry", 0x5716, &format!("{vcs:02x} 00 {low:02x}{high:02x}"));
    assert_eq!(code, 0, "{told}");
}

fn has_ld(fabric: &ManagedFabric, ld: u8, addr: u64, seed: u64) -> bool {
    let (addr, len, seed) = (Num(addr), Some(Num(64)), Some(seed));
    let place = OwnRange { addr, len, seed, ld: Some(ld), ..OwnRange::default() };
    transfer(fabric, Part::Device(0), &Command::Peek(place)).ok
}

/// Two hosts have a logical device each, at the same address, by decoders of its own: each loads and stores its own memory, at
/// its own switch and across the fabric, and none without its right.
#[test]
fn each_host_loads_and_stores_its_own_logical_device() {
    // The manager takes "a1" for a PID, so that no host gets its memory by itself.
    let mut fabric = up_text("mld", &file("mld").replace("mld0", "a1"));
    let mld = pid_at(&fabric, 0, Part::Device(0));
    let hosts = [(0, "h0", 0), (1, "h1", 2)];
    let target = Pid::from_low_bits(mld);
    for (host, name, _) in hosts {
        let found = decoders(&fabric, HOSTS[host]);
        assert_eq!(found, [(FIRST, 2 << 30, Some(0), None, true)], "{host}");
        let direct = Direct { hpa: FIRST, len: 2 << 30, target, across: false };
        let nothing = access(&fabric, HOSTS[host], by_mem(FIRST, 64, 1), false);
        assert!(nothing.failures.contains_key("no_memory"), "no LDST: {nothing:?}");
        // As for P2P: the host's edge may ask the device's, and that may answer the host's.
        let own = pid_at(&fabric, host, HOSTS[host]);
        let (name, pid) = (name.to_owned(), format!("{mld:03x}"));
        let allow = Request::SetAccess { host: name, vector: Vector::Lav, pid, on: true };
        fabric.fm().request(&allow).unwrap();
        allow_at_device(&mut fabric, host, own);
        for (opcode, input) in ldst(0, &[direct]).unwrap() {
            let (opcode, input) = (Num(opcode.0.into()), Hex(input));
            let command = Command::Gae { opcode, input, block: None, timeout_ms: 1_000 };
            let answer = fabric.ask(HOSTS[host], &command).unwrap();
            assert!(matches!(answer, Answer::Response { code: 0, .. }), "{answer:?}");
        }
    }
    for (host, _, ld) in hosts {
        let seed = 10 + u64::from(ld);
        let write = access(&fabric, HOSTS[host], by_mem(FIRST, 64, seed), true);
        let read = access(&fabric, HOSTS[host], by_mem(FIRST, 64, seed), false);
        assert!(write.ok && read.ok && read.mismatched == 0, "{host}: {write:?} {read:?}");
        for other in 0..4 {
            assert_eq!(has_ld(&fabric, other, 0, seed), other == ld, "{host}: LD {other}");
        }
    }
    // A trace goes to the logical device of the host that asks.
    for (name, want) in [("h0", hosts[0].2), ("h1", hosts[1].2)] {
        let asked = Request::Trace { host: name.to_owned(), hpa: FIRST, via: TraceVia::CxlMem };
        let Ok(Response::Trace(trace)) = fabric.fm().request(&asked) else { panic!() };
        assert!(trace.dpid == Some(mld) && trace.end == End::Memory, "{trace:?}");
        let step = trace.steps.iter().find(|step| step.table == "LD").unwrap();
        assert!(step.found.contains(&format!("for LD {want} of")), "{trace:?}");
    }
    books(&fabric);
}

fn tree_text(fabric: &ManagedFabric, host: Part) -> String {
    match fabric.ask(host, &Command::Tree {}) {
        Ok(Answer::Tree { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

/// Binding is enough: the manager and the host set what leads to a memory device and to a logical device, by CXL.mem and by UIO.
#[test]
fn bound_memory_is_reached_without_a_p2p() {
    let mut fabric = up("ld-fam");
    let (whole, _) = given(&mut fabric, "mem0");
    let (logical, _) = given(&mut fabric, "mld0.1");
    works(&fabric, HOSTS[0], MEMS[0], whole, 2 * UNIT, 1);
    for (at, via, seed) in [
        (whole + 0x1000, Via::Uio, 2),
        (logical, Via::CxlMem, 3),
        (logical + UNIT - 64, Via::CxlMem, 4),
        (logical + 0x1000, Via::Uio, 5),
    ] {
        let checked = Access { via, check: true, ..range(at, 64, seed) };
        let done = access(&fabric, HOSTS[0], checked, true);
        assert!(done.ok && done.read == 64, "{at:#x}: {done:?}");
    }
    let text = tree_text(&fabric, HOSTS[0]);
    assert_eq!(text.matches(" committed").count(), 2, "{text}");
    assert!(!text.contains("not reached"), "{text}");
    books(&fabric);
}

/// Of several logical devices at one port a host reaches none by CXL.mem. Their decoders are committed all the same, and the tree
/// and a store say that nothing leads there.
#[test]
fn what_is_committed_and_not_reached_is_told() {
    let both = file("ld-fam").replace("\"mem0\", \"mld0.1\"", "\"mem0\", \"mld0.0\", \"mld0.1\"");
    let mut fabric = up_text("two logical devices", &both);
    let (whole, _) = given(&mut fabric, "mem0");
    works(&fabric, HOSTS[0], MEMS[0], whole, 2 * UNIT, 1);
    let text = tree_text(&fabric, HOSTS[0]);
    assert_eq!(text.matches("committed, not reached by CXL.mem").count(), 2, "{text}");
    let unreached: Vec<u64> = decoders(&fabric, HOSTS[0]).iter().map(|it| it.0).collect();
    for at in unreached.into_iter().filter(|at| *at != whole) {
        let store = access(&fabric, HOSTS[0], by_mem(at, 8_192, 2), true);
        assert!(!store.ok && store.written == 0, "{store:?}");
        assert_eq!(store.failures.get("no_memory"), Some(&2), "each 4 KiB: {store:?}");
    }
    books(&fabric);
}
