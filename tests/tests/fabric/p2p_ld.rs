//! Accelerators that access logical devices directly (UIO direct P2P to HDM) in a whole fabric of one process.
//!
//! `pcaps/fabric/p2p-ld.toml` → `weft_lab::fabric` in virtual time → what accelerators write and read.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 2.5, 7.7.9; docs/spec/cxl-fabric.md "Logical devices".

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_fm::service::request::P2pState;
use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Via as TraceVia};
use weft_fm::state::desired::DesiredP2p;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, range, transfer, up};

const ACCS: [Part; 4] = [Part::Device(0), Part::Device(1), Part::Device(2), Part::Device(3)];
const MLD: Part = Part::Device(4);
const H1: Part = Part::Host(1);
const LEN: u64 = 5_000;
/// Where LD 1 is.
const ONE: u64 = 0x110_0000_0000;

/// Where the manager has given access, by name.
fn given(fabric: &mut ManagedFabric, name: &str) -> u64 {
    let Ok(Response::P2p(rows)) = fabric.fm().request(&Request::P2p) else { panic!() };
    let row = rows.into_iter().find(|row| row.name == name).unwrap();
    assert_eq!(row.state, P2pState::Given, "{row:?}");
    assert!(row.to.name.starts_with("mld0."), "{row:?}");
    row.hpa
}

/// Whether a logical device has a pattern.
fn has(fabric: &ManagedFabric, ld: u8, offset: u64, seed: u64) -> bool {
    let (addr, len, seed) = (Num(offset), Some(Num(LEN)), Some(seed));
    let own = OwnRange { addr, len, seed, ld: Some(ld), bar: Some(0), ..OwnRange::default() };
    fabric.ask(MLD, &Command::Peek(own.clone())).is_ok()
        && transfer(fabric, MLD, &Command::Peek(own)).ok
}

fn reaches(fabric: &ManagedFabric, by: Part, ld: u8, hpa: u64, offset: u64, seed: u64) {
    let write = access(fabric, by, range(hpa + offset, LEN, seed), true);
    assert!(write.ok && write.written == LEN, "{by:?} to LD {ld}: {write:?}");
    for other in 0..3 {
        assert_eq!(has(fabric, other, offset, seed), other == ld, "{by:?}: LD {other}");
    }
    let read = access(fabric, by, range(hpa + offset, LEN, seed), false);
    assert!(read.ok && read.mismatched == 0, "{by:?} to LD {ld}: {read:?}");
}

fn refused(fabric: &ManagedFabric, by: Part, hpa: u64, seed: u64) {
    for write in [true, false] {
        let report = access(fabric, by, range(hpa, LEN, seed), write);
        assert!(!report.ok && report.failures.contains_key("UR"), "{by:?}: {report:?}");
    }
    assert!((0..3).all(|ld| !has(fabric, ld, 0, seed)), "{by:?} has written");
}

/// Each accelerator reaches the logical device that it was given, also where its host has two at one port, and no other one;
/// revoked, it reaches none, and the others go on.
#[test]
fn accelerators_reach_the_logical_device_that_they_were_given() {
    let mut fabric = up("p2p-ld");
    let [zero, one, two] = ["zero", "one", "two"].map(|name| given(&mut fabric, name));
    let [acc0, acc1, acc2, acc3] = ACCS;
    let mut seed = 0;
    for (by, ld, hpa) in [(acc0, 0, zero), (acc2, 1, one), (acc1, 2, two), (acc3, 2, two)] {
        for offset in [0, 0x1_2345, (256 << 20) - LEN] {
            seed += 1;
            reaches(&fabric, by, ld, hpa, offset, seed);
        }
    }
    reaches(&fabric, acc1, 2, two, (512 << 20) - LEN, 60);
    // Behind its memory an LD refuses, and what was not given leads nowhere.
    let behind = access(&fabric, acc0, range(zero + (256 << 20), 64, 1), false);
    assert!(behind.failures.contains_key("UR"), "{behind:?}");
    for (by, hpa) in [(acc0, one), (acc0, two), (acc1, zero), (acc2, zero), (acc3, one)] {
        seed += 1;
        refused(&fabric, by, hpa, seed + 100);
    }
    // The host that has the LD, by CXL.mem and by UIO.
    let by_mem = |seed| Access { via: Via::CxlMem, ..range(two + 0x4_0000, LEN, seed) };
    assert!(access(&fabric, H1, by_mem(70), true).ok);
    assert!(has(&fabric, 2, 0x4_0000, 70) && !has(&fabric, 0, 0x4_0000, 70));
    let read = access(&fabric, H1, by_mem(70), false);
    assert!(read.ok && read.mismatched == 0, "{read:?}");
    reaches(&fabric, H1, 2, two, 0x5_0000, 71);
    let mut traced = |who: &str, hpa, via| {
        let asked = Request::Trace { host: who.to_owned(), hpa, via };
        let Ok(Response::Trace(trace)) = fabric.fm().request(&asked) else { panic!() };
        let step = trace.steps.iter().find(|step| step.table == "LD");
        (step.map(|step| step.found.clone()).unwrap_or_default(), trace.end)
    };
    for (who, hpa, via, ld) in [
        ("acc0", zero, TraceVia::Uio, 0),
        ("acc2", one, TraceVia::Uio, 1),
        ("acc3", two, TraceVia::Uio, 2),
        ("h1", two, TraceVia::CxlMem, 2),
    ] {
        let (found, end) = traced(who, hpa, via);
        assert!(
            found.contains(&format!("for LD {ld} of")) && end == End::Memory,
            "{who}: {found} {end:?}"
        );
    }
    let revoke = Request::Revoke { name: "two".to_owned(), host: "acc3".to_owned() };
    fabric.fm().request(&revoke).unwrap();
    refused(&fabric, acc3, two, 200);
    let asked = Request::Trace { host: "acc3".to_owned(), hpa: two, via: TraceVia::Uio };
    let Ok(Response::Trace(trace)) = fabric.fm().request(&asked) else { panic!() };
    assert!(trace.end != End::Memory, "{trace:?}");
    reaches(&fabric, acc1, 2, two, 0x6_0000, 72);
    reaches(&fabric, acc0, 0, zero, 0x6_0000, 73);
    books(&fabric);
}

/// A requester has one logical device of a device, as its requests name none; and one that no host binds is nobody's.
#[test]
fn the_manager_gives_a_requester_one_logical_device_of_a_device() {
    let mut fabric = up("p2p-ld");
    let mut add = |from: &str, to: &str, hpa| {
        let (from, to) = (vec![from.to_owned()], to.to_owned());
        let asked =
            Request::AddP2p(DesiredP2p { name: "more".to_owned(), from, to, size: 256 << 20, hpa });
        fabric.fm().request(&asked).map(drop).map_err(|refused| refused.message)
    };
    #[rustfmt::skip] // columns: who, what, where, part of the refusal
    let cases = [
        ("acc0", "mld0.1",       ONE,                 "p2p-one-ld: PID"),
        ("acc2", "mld0.1",       ONE + (1 << 36),     "p2p-one-address"),
        ("acc2", "sw1/port:3.1", ONE + (1 << 36),     "p2p-one-address"),
        ("acc0", "mld0.3",       0x300_0000_0000,     "p2p-bound: no host binds mld0.3"),
        ("acc0", "mld0.9",       0x300_0000_0000,     "p2p-bound: no host binds mld0.9"),
        ("acc0", "mld0",         0x300_0000_0000,     "mld0 has logical devices: name one, as mld0.0"),
    ];
    for (from, to, hpa, part) in cases {
        let said = add(from, to, hpa).unwrap_err();
        assert!(said.contains(part), "{from} to {to}: {said}");
    }
}
