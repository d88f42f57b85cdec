//! What goes and comes under load, in one process and virtual time, where counts are exact.
//!
//! A file of `pcaps/fabric` → `weft_lab::fabric` with loads of both hosts → a fault → who was hit, and who was not.
//!
//! Units: bytes; virtual milliseconds.
//! Source: docs/spec/cxl-fabric.md "Dynamic change".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod lost;
mod pulled;
mod restarts;

use weft_dataplane::time::Span;
use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, LoadReport, Via};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, pass, range, up};

/// Figure 7-26: two hosts with four GFDs over two switches that two links join; each host with a load of its own.
fn loaded() -> ManagedFabric {
    loaded_by(Via::default())
}

fn loaded_by(via: Via) -> ManagedFabric {
    let fabric = up("fig-7-26");
    for host in 0..2 {
        let addr = fabric.topology().memory[0].hpa + host as u64 * 0x10_0000;
        let access = Access { via, ..range(addr, 1 << 15, host as u64) };
        let start = Command::LoadStart { access, rounds: 0, pause_ms: 1 };
        fabric.ask(Part::Host(host), &start).unwrap();
    }
    pass(&fabric, 20);
    fabric
}

/// How the load of a host goes; each request has one outcome.
fn load(fabric: &ManagedFabric, host: usize) -> LoadReport {
    let Answer::Load(load) = fabric.ask(Part::Host(host), &Command::LoadStatus {}).unwrap() else {
        panic!("no load");
    };
    let failures: u64 = load.failures.values().sum();
    let ends =
        load.answered + load.wrong + load.posted + load.unanswered + load.under_way + failures;
    assert_eq!(load.requests, ends, "{load:?}");
    *load
}

/// Ends both loads; all is told, and the switches' books are even.
fn stop(fabric: &ManagedFabric) -> [LoadReport; 2] {
    let ended = [0, 1].map(|host| {
        fabric.ask(Part::Host(host), &Command::LoadStop {}).unwrap();
        fabric.parts().until(Span::from_ms(5_000), |parts| {
            let status = parts.runner(Part::Host(host)).unwrap().status();
            status.detail["load"]["running"] == false
        });
        load(fabric, host)
    });
    for report in &ended {
        assert_eq!((report.running, report.under_way, report.wrong), (false, 0, 0), "{report:?}");
    }
    books(fabric);
    ended
}

/// The first request that is refused is at the latest the first one behind the manager's answer; the other host loses
/// none; given back, all is as before.
#[test]
fn a_revoked_host_is_refused_from_then_on_and_nobody_else() {
    let mut fabric = loaded();
    let before = fabric.fm().state();
    assert!(load(&fabric, 0).done > 2 && load(&fabric, 0).failed == 0);
    let (name, host) = ("pool".to_owned(), "h0".to_owned());
    fabric.fm().request(&Request::Revoke { name: name.clone(), host: host.clone() }).unwrap();
    let then = load(&fabric, 0);
    pass(&fabric, 100);
    let now = load(&fabric, 0);
    assert!(now.answered - then.answered <= then.under_way, "{then:?} {now:?}");
    assert!(now.failures["UR"] >= then.failures.get("UR").unwrap_or(&0) + 16, "{now:?}");
    assert_eq!((now.failures.len(), now.done, now.unanswered), (1, then.done, 0), "{now:?}");
    fabric.fm().request(&Request::Grant { name, host }).unwrap();
    pass(&fabric, 30);
    let given = load(&fabric, 0);
    pass(&fabric, 100);
    let later = load(&fabric, 0);
    assert!(later.done > given.done, "{later:?}");
    assert_eq!((later.failed, &later.failures), (given.failed, &given.failures), "{later:?}");
    assert_eq!(fabric.fm().state(), before);
    let [_, other] = stop(&fabric);
    assert_eq!((other.failed, other.unanswered, other.failures.len()), (0, 0, 0), "{other:?}");
    assert_eq!(other.answered, other.requests, "{other:?}");
}

/// Requests that both loads have sent, and of these how many failed.
fn sent(fabric: &ManagedFabric) -> (u64, u64) {
    let loads = [0, 1].map(|host| load(fabric, host));
    let failed = |load: &LoadReport| load.failures.values().sum::<u64>();
    (loads.iter().map(|load| load.requests).sum(), loads.iter().map(failed).sum())
}

/// One of two links is pulled and put back, each of them once: what was on it is all that may be without an answer, and is counted
/// so. From the last table on every request gets through, at once: the outage ends there.
#[test]
fn a_pulled_link_costs_what_was_on_it() {
    let wires = {
        let fabric = loaded();
        let is_switch = |part: Part| matches!(part, Part::Switch(_));
        let parts = fabric.parts();
        let wires = parts.layout().wires.iter().enumerate();
        let between = wires.filter(|(_, ends)| ends.iter().all(|end| is_switch(end.part)));
        between.map(|(wire, _)| wire).collect::<Vec<_>>()
    };
    assert_eq!(wires.len(), 2);
    // UIO takes the other link at once. Answers to CXL.mem have static routes: they wait until the tables have changed.
    let lost = |via| wires.iter().map(|wire| pulled(*wire, via)).sum::<u64>();
    assert_eq!(lost(Via::Uio), 0);
    assert_eq!(lost(Via::CxlMem), 0);
}

/// Pulls one wire and puts it back; returns how many requests were lost.
fn pulled(wire: usize, via: Via) -> u64 {
    let mut fabric = loaded_by(via);
    let before = fabric.fm().state();
    let under_way: u64 = [0, 1].iter().map(|host| load(&fabric, *host).under_way).sum();
    let first = sent(&fabric).0;
    fabric.parts().set_wire(wire, false);
    pass(&fabric, 20);
    fabric.fm().watch();
    let most = under_way + sent(&fabric).0 - first;
    for host in 0..2 {
        let addr = fabric.topology().memory[0].hpa + (2 + host as u64) * 0x10_0000;
        for write in [true, false] {
            let at_once = Access { timeout_ms: 50, ..range(addr, 1 << 14, 9) };
            let done = access(&fabric, Part::Host(host), at_once, write);
            assert!(done.ok, "host {host}: {done:?}");
        }
    }
    // Whatever was lost is given up in time, and the loads go on.
    pass(&fabric, 3_000);
    let hit = [load(&fabric, 0), load(&fabric, 1)];
    pass(&fabric, 100);
    for (host, hit) in hit.iter().enumerate() {
        let now = load(&fabric, host);
        assert!(now.done > hit.done && now.failures == hit.failures, "{now:?}");
    }
    fabric.parts().set_wire(wire, true);
    pass(&fabric, 150);
    fabric.fm().watch();
    pass(&fabric, 100);
    assert_eq!(fabric.fm().state(), before);
    let ended = stop(&fabric);
    let lost: u64 = ended.iter().map(|load| load.failures.values().sum::<u64>()).sum();
    let lost = lost + ended.iter().map(|load| load.unanswered).sum::<u64>();
    assert!(lost <= most, "{lost} were lost, and {most} can have been on the link");
    for (load, hit) in ended.iter().zip(&hit) {
        assert_eq!(load.failures, hit.failures, "nothing is lost when it comes back: {load:?}");
        assert!(load.failures.keys().all(|how| how == "timeout" || how == "UR"), "{load:?}");
    }
    lost
}

/// A device is unbound and bound again under the load of others, who do not notice.
#[test]
fn unbinding_disturbs_nobody_else() {
    let mut fabric = loaded();
    let before = fabric.fm().state();
    let bridge = "entry/0/1".to_owned();
    let row = fabric.fm().state().unwrap().bindings.local[0];
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    pass(&fabric, 30);
    let to = format!("port:{}", row.port);
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
    pass(&fabric, 30);
    // What is bound last stands last in the list.
    let sorted = |state: Option<weft_fm::state::store::State>| {
        let mut state = state.unwrap();
        state.bindings.local.sort_by_key(|local| local.bridge);
        state
    };
    assert_eq!(sorted(fabric.fm().state()), sorted(before));
    for report in stop(&fabric) {
        assert_eq!((report.failed, report.answered), (0, report.requests), "{report:?}");
    }
}

/// CXL 3.1 section 7.7.12.4: the latency that a host reads in the CDAT of a device is that of the way that there is.
#[test]
fn hosts_read_what_a_longer_way_costs() {
    let mut fabric = up("fig-7-43");
    let far = fabric.fm().state().unwrap().grants.memory.shares[0].parts[1].gfd;
    let read = |fabric: &ManagedFabric| {
        let input = [&far.bits().to_le_bytes()[..], &[0; 10], &4_096_u64.to_le_bytes()].concat();
        let gae = Command::Gae {
            opcode: Num(0x0702),
            input: Hex(input),
            block: None,
            timeout_ms: 30_000,
        };
        let Answer::Response { output, .. } = fabric.ask(Part::Host(0), &gae).unwrap() else {
            panic!("no answer of the mailbox");
        };
        // Behind total, count and header: a DSMAS of 24 bytes, then the latency, of which the value has bytes 16 and 17.
        let cdat = &output.0[16 + 16..];
        assert_eq!((cdat[0], cdat[24]), (0, 1), "DSMAS and DSLBIS: {cdat:x?}");
        u16::from_le_bytes([cdat[24 + 16], cdat[24 + 17]])
    };
    let wire = {
        let parts = fabric.parts();
        let is = |end: Part, at| end == Part::Switch(at);
        let mut wires = parts.layout().wires.iter();
        wires
            .position(|[a, b]| is(a.part, 0) && is(b.part, 1) || is(a.part, 1) && is(b.part, 0))
            .unwrap()
    };
    fabric.fm().watch();
    let direct = read(&fabric);
    fabric.parts().set_wire(wire, false);
    pass(&fabric, 20);
    fabric.fm().watch();
    let detour = read(&fabric);
    assert!(direct > 0 && detour > direct, "{direct} ns, and {detour} ns by another switch");
    fabric.parts().set_wire(wire, true);
    pass(&fabric, 150);
    fabric.fm().watch();
    assert_eq!(read(&fabric), direct);
    books(&fabric);
}
