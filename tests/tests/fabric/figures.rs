//! The figures of CXL 3.1, section 7.7, as whole fabrics in one process: real switches, real endpoints, the real manager.
//!
//! A file of `pcaps/fabric` → `weft_lab::fabric` in virtual time → what hosts see, read and write.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 7.7.1 to 7.7.6.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use weft_cxl::cci::Component;
use weft_dataplane::time::Span;
use weft_fm::service::status::Phase;
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Via as TraceVia};
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::{End as End2, Part, uuid};
use weft_lab::fabric::managed::ManagedFabric;
use weft_pbr_switch::StaticInit;
use weft_tests::fabric_here::{books, range, transfer, up};

fn tree(fabric: &ManagedFabric, host: usize) -> String {
    match fabric.ask(Part::Host(host), &Command::Tree {}).unwrap() {
        Answer::Tree { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

/// Writes by one, and reads what is there by another.
fn written_and_read(fabric: &ManagedFabric, by: Part, to: Part, addr: u64, len: u64, seed: u64) {
    let write = transfer(fabric, by, &Command::Write(range(addr, len, seed)));
    assert!(write.ok && write.written == len, "{addr:#x}: {write:?}");
    let read = transfer(fabric, to, &Command::Read(range(addr, len, seed)));
    assert!(read.ok && read.read == len && read.mismatched == 0, "{addr:#x}: {read:?}");
}

/// What a host's functions are: bus, device and function, and Device ID.
fn functions(fabric: &ManagedFabric, host: usize) -> Vec<(String, String)> {
    let text = tree(fabric, host);
    let lines = text.lines().filter(|line| line.as_bytes().get(2) == Some(&b':'));
    let parts = lines.map(|line| {
        let mut words = line.split_whitespace();
        let bdf = words.next().unwrap().to_owned();
        (bdf, words.nth(1).unwrap().to_owned())
    });
    parts.collect()
}

#[test]
fn figure_7_25_hosts_share_memory_of_a_gfd() {
    let fabric = up("fig-7-25");
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(1), base, 1 << 16, 7);
    books(&fabric);
}

/// CXL 3.1 section 7.7.2.6: a virtual switch without downstream bridges is a GAE and nothing else to its host, which reaches
/// G-FAM by what it sets there.
#[test]
fn a_host_with_nothing_bound_sees_a_gae_and_no_switch() {
    let fabric = up("fig-7-31");
    let want = [("00:00.0", "1e98:0100"), ("01:00.0", "1e98:5746")];
    assert_eq!(functions(&fabric, 0), want.map(|(bdf, id)| (bdf.to_owned(), id.to_owned())));
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(0), base + 4_096, 4_096, 8);
    books(&fabric);
}

#[test]
fn figure_7_26_interleaved_memory_is_one_for_both_hosts() {
    let fabric = up("fig-7-26");
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(1), base, 1 << 18, 1);
    written_and_read(&fabric, Part::Host(1), Part::Host(0), base + (1 << 29), 1 << 18, 2);
    books(&fabric);
}

#[test]
fn figure_7_27_memory_of_two_ways_of_256_bytes() {
    let fabric = up("fig-7-27");
    let base = fabric.topology().memory[0].hpa;
    // Requests stay within an interleave granule: a read has at most 512 bytes, and each GFD gets its own part of it.
    let mut write = range(base, 1 << 12, 3);
    write.len = Some(Num(256));
    let done = transfer(&fabric, Part::Host(0), &Command::Write(write.clone()));
    assert!(done.ok, "{done:?}");
    let read = transfer(&fabric, Part::Host(1), &Command::Read(write));
    assert!(read.ok && read.read == 256, "{read:?}");
    books(&fabric);
}

#[test]
fn figure_7_28_devices_within_a_leaf_and_across() {
    let fabric = up("fig-7-28");
    let found = functions(&fabric, 0);
    let ids: Vec<_> = found.iter().map(|(_, id)| id.as_str()).collect();
    assert!(ids.contains(&"1e98:0d00") && ids.contains(&"1e98:0d01"), "{found:?}");
    assert!(!functions(&fabric, 1).iter().any(|(_, id)| id.starts_with("1e98:0d")));
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(1), base, 1 << 14, 5);
    books(&fabric);
}

/// Each address of the walk: what the trace explains is what the switches and GFDs did.
#[test]
fn figure_7_31_a_trace_explains_each_lookup() {
    let mut fabric = up("fig-7-31");
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(0), base, 1 << 16, 11);
    for granule in 0..8 {
        let hpa = base + granule * 4_096 + 64;
        let asked = Request::Trace { host: "h0".to_owned(), hpa, via: TraceVia::Uio };
        let Ok(Response::Trace(trace)) = fabric.fm().request(&asked) else { panic!("no trace") };
        assert_eq!(trace.end, End::Memory, "{trace:?}");
        assert!(trace.steps.iter().all(|step| step.asked), "{trace:?}");
        // One write into that place is seen by the GFD that the trace names, and by no other.
        let before = writes(&fabric);
        let write = Access { len: Some(Num(64)), ..range(hpa, 64, granule) };
        assert!(transfer(&fabric, Part::Host(0), &Command::Write(write)).ok);
        let after = writes(&fabric);
        let grown: Vec<usize> = (0..4).filter(|&at| after[at] > before[at]).collect();
        let state = fabric.fm().state().unwrap();
        let named = state.inventory.gfds.iter().find(|gfd| Some(gfd.pid.bits()) == trace.dpid);
        let uuids: Vec<_> =
            fabric.parts().layout().gfds.iter().map(|gfd| uuid(gfd.serial)).collect();
        assert_eq!(grown.len(), 1, "{before:?} {after:?}");
        assert_eq!(Some(uuids[grown[0]]), named.map(|gfd| gfd.uuid), "{hpa:#x}");
    }
    books(&fabric);
}

/// Writes that each GFD has carried out.
fn writes(fabric: &ManagedFabric) -> Vec<u64> {
    let count = fabric.parts().layout().gfds.len();
    let of = |at| match fabric.ask(Part::Gfd(at), &Command::Status {}).unwrap() {
        Answer::Status(status) => status.counts["gfd"]["writes"].as_u64().unwrap(),
        other => panic!("{other:?}"),
    };
    (0..count).map(of).collect()
}

#[test]
fn figure_7_33_memory_of_another_is_refused() {
    let fabric = up("fig-7-33");
    let [own, others, both] = [0, 1, 2].map(|at| fabric.topology().memory[at].hpa);
    written_and_read(&fabric, Part::Host(0), Part::Host(0), own, 4_096, 1);
    written_and_read(&fabric, Part::Host(1), Part::Host(1), others, 4_096, 2);
    written_and_read(&fabric, Part::Host(0), Part::Host(1), both, 4_096, 3);
    let refused = transfer(&fabric, Part::Host(0), &Command::Read(range(others, 4_096, 2)));
    assert!(!refused.ok && refused.failures.contains_key("UR"), "{refused:?}");
    let refused = transfer(&fabric, Part::Host(1), &Command::Write(range(own, 4_096, 9)));
    assert!(!refused.ok && refused.failures.contains_key("UR"), "{refused:?}");
    let still = transfer(&fabric, Part::Host(0), &Command::Read(range(own, 4_096, 1)));
    assert!(still.ok, "nothing was written: {still:?}");
    books(&fabric);
}

/// An HBR switch below an edge with two devices, one at a host, a device at a host, and one across.
#[test]
fn figure_7_42_plain_switches_below_and_beside() {
    let fabric = up("fig-7-42");
    let ids = |host| functions(&fabric, host).into_iter().map(|(_, id)| id).collect::<Vec<_>>();
    let devices =
        |host: usize| ids(host).into_iter().filter(|id| id.starts_with("1e98:0d")).collect();
    let [first, second, third]: [Vec<String>; 3] = [0, 1, 2].map(devices);
    assert_eq!(first, ["1e98:0d01", "1e98:0d02", "1e98:0d00"]);
    assert_eq!((second, third), (vec!["1e98:0d03".to_owned()], vec!["1e98:0d04".to_owned()]));
    books(&fabric);
}

/// Every host reaches memory behind every switch of the mesh; the manager proves its routes anew.
#[test]
fn figure_7_43_and_7_44_a_mesh_whose_routes_are_proved() {
    let mut fabric = up("fig-7-43");
    let base = fabric.topology().memory[0].hpa;
    for host in 0..4 {
        let addr = base + (host as u64) * 0x10_0000;
        written_and_read(&fabric, Part::Host(host), Part::Host((host + 1) % 4), addr, 1 << 14, 4);
    }
    let asked = Request::Routes { prove: true, switch: None };
    match fabric.fm().request(&asked) {
        Ok(Response::Routes(routes)) => assert!(routes.proof.is_some(), "{routes:?}"),
        other => panic!("{other:?}"),
    }
    books(&fabric);
}

/// Host 0: its edge with ep0, and two switches below it; host 1: its edge with ep3, and one. Each device answers its
/// own host only.
#[test]
fn figure_7_45_each_host_sees_its_own_hierarchy() {
    let fabric = up("fig-7-45");
    hierarchies(&fabric);
    books(&fabric);
}

/// CXL 3.1 section 7.7.12.1: without a manager the hosts see and reach the same, by tables that switches have from the
/// start; the manager beside them asks nobody.
#[test]
fn a_static_fabric_has_the_hierarchies_of_a_managed_one() {
    let mut fabric = up("static");
    hierarchies(&fabric);
    assert_eq!(fabric.fm().board().status().calls, 0);
    let of = |fabric: &ManagedFabric| -> Vec<StaticInit> {
        let parts = fabric.parts();
        (0..4).map(|at| StaticInit::of(parts.agent(at).unwrap().switch())).collect()
    };
    let managed = up("fig-7-45");
    assert_eq!(of(&fabric), of(&managed), "PIDs, routes, groups and bindings");
    let unowned = fabric.parts().agent(0).unwrap().switch().common().ownership.primary();
    assert_eq!(unowned, None);
    books(&fabric);
}

/// What each host of figure 7-45 sees, and what it and its devices reach.
fn hierarchies(fabric: &ManagedFabric) {
    let want = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(bdf, id)| ((*bdf).to_owned(), (*id).to_owned())).collect()
    };
    let (root, bridge, gae) = ("1e98:0100", "1e98:5747", "1e98:5746");
    let first = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d00"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d01"),
        ("06:00.1", gae),
        ("02:02.0", bridge),
        ("0b:00.0", bridge),
        ("0c:00.0", bridge),
        ("0d:00.0", "1e98:0d04"),
        ("0b:00.1", gae),
        ("01:00.1", gae),
    ];
    let second = [
        ("00:00.0", root),
        ("01:00.0", bridge),
        ("02:00.0", bridge),
        ("03:00.0", "1e98:0d03"),
        ("02:01.0", bridge),
        ("06:00.0", bridge),
        ("07:00.0", bridge),
        ("08:00.0", "1e98:0d02"),
        ("06:00.1", gae),
        ("01:00.1", gae),
    ];
    assert_eq!(functions(fabric, 0), want(&first));
    assert_eq!(functions(fabric, 1), want(&second));
    // Host 0 writes into the device behind the second switch, and the device into the host.
    let bar = 0x40_0020_0000;
    written_and_read(fabric, Part::Host(0), Part::Host(0), bar, 4_096, 6);
    let peek = OwnRange {
        addr: Num(0),
        len: Some(Num(4_096)),
        seed: Some(6),
        bar: Some(0),
        ..OwnRange::default()
    };
    let seen = transfer(fabric, Part::Device(1), &Command::Peek(peek.clone()));
    assert!(seen.ok, "{seen:?}");
    let other = transfer(fabric, Part::Device(2), &Command::Peek(peek));
    assert!(!other.ok && other.mismatched > 0, "host 1's device at the same address: {other:?}");
    let dma = Access { via: Via::Plain, ..range(0x20_0000, 4_096, 8) };
    let wrote = transfer(fabric, Part::Device(1), &Command::DmaWrite(dma));
    assert!(wrote.ok, "{wrote:?}");
    let own = |host| {
        let own = OwnRange {
            addr: Num(0x20_0000),
            len: Some(Num(4_096)),
            seed: Some(8),
            ..OwnRange::default()
        };
        transfer(fabric, Part::Host(host), &Command::Peek(own))
    };
    assert!(own(0).ok && !own(1).ok, "into the memory of its own host only");
}

/// Unbound, a device is gone from its host; bound again it is there; nothing else has changed.
#[test]
fn unbinding_takes_away_and_binding_gives_back() {
    let mut fabric = up("fig-7-45");
    let before = (functions(&fabric, 0), functions(&fabric, 1));
    // The host hears of it by an interrupt of the slot, and looks for itself.
    let notice = |fabric: &ManagedFabric| fabric.parts().until(Span::from_ms(20), |_| false);
    let bridge = "entry/0/2".to_owned();
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    notice(&fabric);
    let without = functions(&fabric, 0);
    assert!(!without.iter().any(|(_, id)| id == "1e98:0d01"), "{without:?}");
    assert_eq!(functions(&fabric, 1), before.1);
    let to = "sw1/0/0".to_owned();
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
    notice(&fabric);
    assert_eq!((functions(&fabric, 0), functions(&fabric, 1)), before);
    books(&fabric);
}

/// A revoked host is refused at once; the other one goes on.
#[test]
fn revoking_stops_one_host_and_no_other() {
    let mut fabric = up("fig-7-26");
    let base = fabric.topology().memory[0].hpa;
    written_and_read(&fabric, Part::Host(0), Part::Host(1), base, 1 << 14, 1);
    let (name, host) = ("pool".to_owned(), "h0".to_owned());
    fabric.fm().request(&Request::Revoke { name, host }).unwrap();
    let refused = transfer(&fabric, Part::Host(0), &Command::Write(range(base, 1 << 14, 2)));
    assert!(!refused.ok && refused.failures.contains_key("UR"), "{refused:?}");
    let read = transfer(&fabric, Part::Host(1), &Command::Read(range(base, 1 << 14, 1)));
    assert!(read.ok, "{read:?}");
    books(&fabric);
}

/// A link of the mesh is pulled: the manager routes around it, and puts it back to use.
#[test]
fn a_pulled_link_is_routed_around_and_back() {
    let mut fabric = up("fig-7-43");
    let base = fabric.topology().memory[0].hpa;
    let wire = {
        let parts = fabric.parts();
        let of = |end: End2| matches!(end.part, Part::Switch(_));
        parts.layout().wires.iter().position(|ends| ends.iter().all(|end| of(*end))).unwrap()
    };
    written_and_read(&fabric, Part::Host(0), Part::Host(1), base, 1 << 14, 1);
    for up in [false, true] {
        fabric.parts().set_wire(wire, up);
        fabric.parts().until(Span::from_ms(150), |_| false);
        fabric.fm().watch();
        for host in 0..4 {
            let addr = base + (host as u64) * 0x10_0000;
            let to = Part::Host((host + 1) % 4);
            written_and_read(&fabric, Part::Host(host), to, addr, 1 << 13, 2);
        }
    }
    let status = fabric.fm().board().status();
    assert_eq!((status.phase, status.counts.down), (Phase::Up, 0), "{status:?}");
}
