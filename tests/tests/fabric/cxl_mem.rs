//! CXL.mem end to end in one process: what one host stores, another loads, and UIO reads; and who gets nothing.
//!
//! `pcaps/fabric/gfam-256.toml` and `gfam.toml` in virtual time.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; CXL 3.1 sections 7.7.2.1, 7.7.2.5.

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, TransferReport, Via};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, range, up};

const HOSTS: [Part; 2] = [Part::Host(0), Part::Host(1)];

fn by_mem(addr: u64, len: u64, seed: u64) -> Access {
    Access { via: Via::CxlMem, ..range(addr, len, seed) }
}

fn well(fabric: &ManagedFabric, by: Part, what: Access, write: bool) {
    let (len, addr, via) = (what.len.unwrap().0, what.addr.0, what.via);
    let done = access(fabric, by, what, write);
    let moved = if write { done.written } else { done.read };
    assert!(done.ok && moved == len && done.mismatched == 0, "{by:?} {via:?} {addr:#x}: {done:?}");
}

fn counts(fabric: &ManagedFabric, part: Part) -> serde_json::Value {
    match fabric.ask(part, &Command::Status {}).unwrap() {
        Answer::Status(status) => status.counts,
        other => panic!("{other:?}"),
    }
}

/// Over 256 devices at each granularity, whole lines and parts of lines: stores are loaded by the other host and read by
/// UIO, and UIO writes are loaded.
#[test]
fn what_one_host_stores_another_loads_at_every_granularity() {
    let fabric = up("gfam-256");
    let shares = fabric.topology().memory.clone();
    assert_eq!(shares.len(), 7, "one for each granularity");
    for (nth, share) in (1..).zip(&shares) {
        let (at, len) = (share.hpa + 37 * nth, 20_000 + nth);
        let (here, there) = if nth % 2 == 0 { (HOSTS[0], HOSTS[1]) } else { (HOSTS[1], HOSTS[0]) };
        well(&fabric, here, by_mem(at, len, nth), true);
        well(&fabric, there, by_mem(at, len, nth), false);
        well(&fabric, there, range(at, len, nth), false);
        well(&fabric, there, range(at + 64, len, nth + 100), true);
        well(&fabric, here, by_mem(at + 64, len, nth + 100), false);
        // What lies before and behind the range is as it was.
        well(&fabric, here, by_mem(at, 64, nth), false);
        let behind = Access {
            data: Some("00".repeat(64).parse().unwrap()),
            seed: None,
            ..by_mem(at + 64 + len, 64, 0)
        };
        well(&fabric, there, behind, false);
    }
    let sent = counts(&fabric, HOSTS[0])["cxl_mem"].clone();
    assert_eq!(sent["sent"], sent["answered"]);
    for what in ["timeouts", "unexpected", "mismatched", "given_up"] {
        assert_eq!(sent[what], 0, "{what}");
    }
    let lost: u64 =
        (0..256).map(|at| counts(&fabric, Part::Gfd(at))["gfd"]["refused"].as_u64().unwrap()).sum();
    assert_eq!(lost, 0, "requests that a device refused");
    books(&fabric);
}

fn failed_so(report: &TransferReport, how: &str) -> bool {
    !report.ok && report.failures.keys().eq([how])
}

/// A host that has lost its right loads ones, and what it stores is nowhere; the other one is not disturbed. Nobody loads
/// where there is no segment, and a device does not load at all.
#[test]
fn who_has_no_right_loads_nothing_and_stores_nothing() {
    let mut fabric = up("gfam");
    let share = fabric.topology().memory[0].clone();
    let (hpa, len) = (share.hpa, 8_192);
    well(&fabric, HOSTS[0], by_mem(hpa, len, 5), true);
    well(&fabric, HOSTS[1], by_mem(hpa, len, 5), false);
    let revoke = Request::Revoke { name: share.name, host: "h1".to_owned() };
    fabric.fm().request(&revoke).unwrap();
    let load = access(&fabric, HOSTS[1], by_mem(hpa, len, 5), false);
    assert!(failed_so(&load, "no_memory"), "{load:?}");
    let store = access(&fabric, HOSTS[1], by_mem(hpa, len, 6), true);
    assert!(failed_so(&store, "no_memory"), "the load behind it tells: {store:?}");
    well(&fabric, HOSTS[0], by_mem(hpa, len, 5), false);
    // Neither FAST nor a message has such an address.
    for (addr, how) in [(1 << 52, "address"), (0x1000, "no_memory"), ((1 << 52) - 64, "no_memory")]
    {
        let load = access(&fabric, HOSTS[0], by_mem(addr, 64, 1), false);
        assert!(failed_so(&load, how), "{addr:#x}: {load:?}");
    }
    for command in [
        Command::Read(Access { to: Some(3), ..by_mem(hpa, 64, 1) }),
        Command::DmaRead(by_mem(hpa, 64, 1)),
    ] {
        let part = if matches!(command, Command::Read(_)) { HOSTS[0] } else { Part::Device(0) };
        let refused = fabric.ask(part, &command);
        assert!(refused.is_err(), "{command:?}: {refused:?}");
    }
    books(&fabric);
}
