//! Traces on a fake fabric, whose hosts have no GAE: the FAST is the manager's own calculation.
//!
//! Addresses in a share over four GFDs are traced; tests compare steps and ends.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §5.1 to §5.3.

use weft_parsers::fabric::Interleave;

use super::fake::Shared;
use super::service::{shared, started};
use crate::service::{Fm, Request, Response};
use crate::show::trace::{End, Trace, Via};

const POOL: &str = "[[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 4\nsize = \"2GiB\"\nhpa = \"0x10000000000\"\n";
const HPA: u64 = 1 << 40;

fn traced(fm: &mut Fm, hpa: u64) -> Trace {
    match fm.request(&Request::Trace { host: "h0".into(), hpa, via: Via::Uio }).unwrap() {
        Response::Trace(trace) => trace,
        other => panic!("{other:?}"),
    }
}

fn pool() -> (Shared, Fm) {
    let shared = shared();
    let fm = started(&shared, POOL);
    (shared, fm)
}

#[test]
fn every_turn_leads_to_its_gfd_and_its_place_there() {
    let (_shared, mut fm) = pool();
    let share = fm.state().unwrap().grants.memory.shares[0].clone();
    let interleave = Interleave::from_codes(2, 4).unwrap();
    for offset in [0, 4_095, 4_096, 8_192 + 7, 3 * 4_096, 4 * 4_096, (2 << 30) - 1] {
        let trace = traced(&mut fm, HPA + offset);
        let part = share.parts[usize::from(interleave.way(HPA + offset))];
        assert_eq!(trace.end, End::Memory, "{trace:?}");
        assert_eq!(trace.dpid, Some(part.gfd.bits()));
        assert_eq!(trace.dpa, Some(part.dpa + interleave.compact(offset)));
        let tables: Vec<&str> = trace.steps.iter().map(|step| step.table.as_str()).collect();
        for table in ["FAST", "GMV", "DRT", "GDT", "DMP", "MGT", "SAT"] {
            assert!(tables.contains(&table), "{table}: {tables:?}");
        }
        let guessed: Vec<&str> =
            trace.steps.iter().filter(|s| !s.asked).map(|s| s.table.as_str()).collect();
        assert_eq!(guessed, ["FAST"]);
    }
}

#[test]
fn a_trace_says_which_table_it_ends_at() {
    let (shared, mut fm) = pool();
    let share = fm.state().unwrap().grants.memory.shares[0].clone();
    let (host, part) = (share.hosts[0].pid, share.parts[0]);
    let place = shared.with(|fake| fake.nodes.iter().position(|n| n.base.pid == part.gfd).unwrap());
    let why = |fm: &mut Fm| match traced(fm, HPA).end {
        End::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    let outside = traced(&mut fm, HPA + (2 << 30));
    assert!(matches!(outside.end, End::Unknown(_)), "{outside:?}");
    shared.with(|fake| fake.gfd(place).sat.insert(host, 0));
    assert!(why(&mut fm).contains("no right to the group"));
    shared.with(|fake| fake.gfd(place).extents.clear());
    assert!(why(&mut fm).contains("no group"));
    shared.with(|fake| {
        let second = *fake.gfd(place).gdt.get(&(host, part.decoder)).unwrap();
        fake.gfd(place).gdt.insert((host, 7), crate::tests::trace::at(second, 7));
    });
    assert!(why(&mut fm).contains("several decoders"));
    shared.with(|fake| fake.switch(0).drt.remove(&part.gfd));
    assert!(why(&mut fm).contains("no route"));
    shared.with(|fake| fake.switch(0).vcss[0].gmv.clear());
    assert!(why(&mut fm).contains("GMV"));
}

/// The same decoder at another index.
pub fn at(
    entry: weft_parsers::cci::gfd_access::GdtEntry,
    index: u8,
) -> weft_parsers::cci::gfd_access::GdtEntry {
    weft_parsers::cci::gfd_access::GdtEntry { index, ..entry }
}

#[test]
fn after_a_revoke_the_trace_ends_where_the_right_was() {
    let (_shared, mut fm) = pool();
    fm.request(&Request::Revoke { name: "pool".into(), host: "h0".into() }).unwrap();
    let trace = traced(&mut fm, HPA);
    // The share has no hosts any more: only the host's own FAST could tell where it would go.
    assert!(matches!(trace.end, End::Unknown(_)), "{trace:?}");
}
