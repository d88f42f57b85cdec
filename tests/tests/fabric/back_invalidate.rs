//! Coherent caches of hosts over a whole fabric: no load is stale, whoever stored, and nobody waits for ever.
//!
//! `pcaps/fabric/hdm-db.toml` in virtual time.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Back-invalidate"; CXL 3.1 sections 3.3.3, 7.7.2.1.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_base::rng::Rng;
use weft_dataplane::time::Span;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, LoadReport, Via};
use weft_lab::endpoint::number::Hex;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, books, file, range, up, up_text};

const HOSTS: [Part; 4] = [Part::Host(0), Part::Host(1), Part::Host(2), Part::Host(3)];
/// Bytes that all hosts share.
const SHARED: usize = 64 * 64;

fn counts(fabric: &ManagedFabric, part: Part) -> Value {
    match fabric.ask(part, &Command::Status {}).unwrap() {
        Answer::Status(status) => status.counts,
        other => panic!("{other:?}"),
    }
}

fn sum(fabric: &ManagedFabric, parts: &[Part], pointer: &str) -> u64 {
    let one = |part: &Part| counts(fabric, *part).pointer(pointer).and_then(Value::as_u64);
    parts.iter().map(|part| one(part).unwrap_or_else(|| panic!("{part:?} {pointer}"))).sum()
}

/// Some bytes of the shared lines.
fn some(base: u64, at: usize, bytes: &[u8], via: Via) -> Access {
    let place = range(base + at as u64, bytes.len() as u64, 0);
    Access { via, seed: None, data: Some(Hex(bytes.to_vec())), ..place }
}

/// Stores and loads of random parts of 64 lines by random hosts, by an accelerator and by UIO past the caches, against a
/// plain array.
fn no_load_is_stale(operations: usize) {
    let fabric = up("hdm-db");
    let base = fabric.topology().memory[0].hpa;
    let (mut want, mut rng) = (vec![0; SHARED], Rng::new(0xC0C0));
    for nth in 0..operations {
        let mut below = |most: usize| usize::try_from(rng.below(most as u64)).unwrap();
        let (at, host) = (below(SHARED - 1), below(4));
        let len = (1 + below(200)).min(SHARED - at);
        let (by, via) = match below(12) {
            0 => (Part::Device(0), Via::Uio),
            1 => (HOSTS[host], Via::Uio),
            _ => (HOSTS[host], Via::CxlMem),
        };
        let write = below(2) == 0;
        if write {
            want[at..at + len].fill_with(|| rng.next_u64().to_le_bytes()[0]);
        }
        let what = some(base, at, &want[at..at + len], via);
        let done = access(&fabric, by, what, write);
        assert!(done.ok && done.mismatched == 0, "{nth}: {by:?} {via:?} {at} {len}: {done:?}");
    }
    let gfds = [Part::Gfd(0), Part::Gfd(1)];
    for (what, parts) in [
        ("/cache/counts/hits", &HOSTS[..]),
        ("/cache/counts/misses", &HOSTS),
        ("/cache/counts/snoops", &HOSTS),
        ("/cache/counts/written_back", &HOSTS),
        ("/coherence/snoops", &gfds),
        ("/coherence/evicted", &gfds),
    ] {
        assert!(sum(&fabric, parts, what) > 0, "{what}");
    }
    for (what, parts) in [
        ("/cache/counts/lost", &HOSTS[..]),
        ("/cxl_mem/timeouts", &HOSTS),
        ("/cxl_mem/unexpected", &HOSTS),
        ("/cxl_mem/mismatched", &HOSTS),
        ("/coherence/silent", &gfds),
        ("/coherence/wrong", &gfds),
        ("/coherence/stale_writes", &gfds),
        ("/coherence/waiting", &gfds),
        ("/gfd/unexpected", &gfds),
        ("/gfd/refused", &gfds),
        ("/gfd/overrun", &gfds),
    ] {
        assert_eq!(sum(&fabric, parts, what), 0, "{what}");
    }
    let snoops = sum(&fabric, &gfds, "/coherence/snoops");
    assert_eq!(sum(&fabric, &HOSTS, "/cache/counts/snoops"), snoops, "each snoop has its answer");
    books(&fabric);
}

#[test]
fn thousands_of_operations_of_four_hosts_find_no_stale_byte() {
    no_load_is_stale(3_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_a_hundred_thousand_operations_find_no_stale_byte() {
    no_load_is_stale(100_000);
}

fn load(fabric: &ManagedFabric, part: Part) -> LoadReport {
    match fabric.ask(part, &Command::LoadStatus {}).unwrap() {
        Answer::Load(report) => *report,
        other => panic!("{other:?}"),
    }
}

/// Four hosts store and load their own bytes of the same lines at the same time: snoops meet requests, and all get through.
fn contend(fabric: &ManagedFabric, rounds: u64) {
    let base = fabric.topology().memory[0].hpa;
    for (nth, host) in (0..).zip(HOSTS) {
        let place = Access { via: Via::CxlMem, ..range(base + 8_000 + 1_000 * nth, 1_000, nth) };
        let near = Access { via: Via::CxlMem, ..range(base + 16 * nth, 16, nth) };
        let access = if rounds.is_multiple_of(2) { near } else { place };
        fabric.ask(host, &Command::LoadStart { access, rounds, pause_ms: 0 }).unwrap();
    }
    for host in HOSTS {
        let report = loop {
            let report = load(fabric, host);
            if !report.running {
                break report;
            }
            fabric.parts().until(Span::from_ms(50), |_| false);
        };
        let got = (report.done, report.failed, report.mismatched, report.wrong);
        assert_eq!(got, (rounds, 0, 0, 0), "{host:?}: {report:?}");
    }
}

#[test]
fn hosts_that_share_a_line_all_get_through() {
    let fabric = up("hdm-db");
    contend(&fabric, 200);
    contend(&fabric, 101);
    assert!(sum(&fabric, &HOSTS, "/cache/counts/conflicts") > 0, "snoops met requests");
    books(&fabric);
}

/// A host whose link is down for longer than a snoop may take uses no line that others have changed meanwhile; a line that it had
/// changed itself, and others asked for, is poisoned for all, and others are as it left them.
#[test]
fn a_host_whose_link_was_down_finds_no_stale_byte() {
    let fabric = up("hdm-db");
    let base = fabric.topology().memory[0].hpa;
    let place = |line: usize, byte: u8| some(base, 64 * line, &[byte; 64], Via::CxlMem);
    let does =
        |host: usize, write, line, byte| access(&fabric, HOSTS[host], place(line, byte), write);
    let good = |host, write, line, byte| {
        let done = does(host, write, line, byte);
        assert!(done.ok && done.mismatched == 0, "{host} {write} {line}: {done:?}");
    };
    let poisoned = |host, line| {
        let done = does(host, false, line, 0);
        assert_eq!(done.failures.get("poisoned"), Some(&1), "{host} {line}: {done:?}");
    };
    good(0, true, 0, 1);
    good(1, false, 0, 1); // both share it
    good(1, true, 1, 2);
    good(1, true, 2, 3);
    let link = |is_up| {
        let mut parts = fabric.parts();
        for wire in parts.wires_of(HOSTS[1]) {
            parts.set_wire(wire, is_up);
        }
        parts.until(Span::from_ms(300), |_| false);
    };
    link(false);
    good(0, true, 0, 4);
    poisoned(0, 1);
    link(true);
    good(1, false, 0, 4);
    poisoned(1, 1);
    good(1, false, 2, 3);
    let counted =
        ["/cache/counts/lost", "/cache/counts/lapsed"].map(|it| sum(&fabric, &HOSTS[1..2], it));
    assert_eq!(counted, [1, 3]);
    let Ok(Answer::Events { events, .. }) = fabric.ask(HOSTS[1], &Command::Events {}) else {
        panic!("no events")
    };
    let lost: Vec<_> = events.iter().filter(|event| event.kind == "line_lost").collect();
    assert!(lost.len() == 1 && lost[0].text.contains(&format!("{:#x}", base + 64)), "{lost:?}");
    good(2, true, 1, 5);
    good(1, false, 1, 5);
    books(&fabric);
}

/// One place in each cache and each filter: everything waits for everything that may be waited for, and nothing for ever.
#[test]
fn with_one_place_everywhere_nothing_waits_for_ever() {
    let text = file("hdm-db").replace("cache_lines = 24", "cache_lines = 1");
    let text = text.replace("filter_lines = 24", "filter_lines = 1");
    let fabric = up_text("hdm-db with one place", &text);
    contend(&fabric, 100);
    contend(&fabric, 51);
    assert!(sum(&fabric, &[Part::Gfd(0), Part::Gfd(1)], "/coherence/evicted") > 0);
    books(&fabric);
}
