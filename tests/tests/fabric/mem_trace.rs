//! A trace by CXL.mem, against what loads and stores of the running fabric then meet.
//!
//! `pcaps/fabric/gfam.toml` and figure 7-38 in virtual time.
//!
//! Units: bytes.
//! Source: docs/fm.md "Trace"; docs/spec/cxl-fabric.md "CXL.mem"; CXL 3.1 sections 7.7.2.5, 7.7.3.3.

use weft_fm::service::{Request, Response};
use weft_fm::show::trace::{End, Trace, Via};
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via as By};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::{Part, uuid};
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{access, range, transfer, up};

fn traced(fabric: &mut ManagedFabric, host: &str, hpa: u64, via: Via) -> Trace {
    match fabric.fm().request(&Request::Trace { host: host.to_owned(), hpa, via }) {
        Ok(Response::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

fn by_mem(addr: u64, seed: u64) -> Access {
    Access { via: By::CxlMem, ..range(addr, 64, seed) }
}

/// Refused with this reason; a load of that host is answered with `MemData-NXM`, and its store is without effect: a load
/// by `other`, who may, finds what was there.
fn is_refused(fabric: &mut ManagedFabric, hpa: u64, why: &str) {
    let trace = traced(fabric, "h1", hpa, Via::CxlMem);
    let End::Refused(text) = &trace.end else { panic!("{hpa:#x}: {trace:?}") };
    assert!(text.contains(why) && text.contains("MemData-NXM"), "{hpa:#x}: {text}");
    let load = access(fabric, Part::Host(1), by_mem(hpa, 1), false);
    assert!(load.failures.keys().eq(["no_memory"]), "{hpa:#x}: {load:?}");
    let store = access(fabric, Part::Host(1), by_mem(hpa, 99), true);
    assert!(store.failures.keys().eq(["no_memory"]), "{hpa:#x}: {store:?}");
}

#[test]
fn a_trace_by_cxl_mem_says_what_loads_and_stores_meet() {
    let mut fabric = up("gfam");
    let shares = fabric.topology().memory.clone();
    let gfds = fabric.fm().state().unwrap().inventory.gfds;
    let uuids: Vec<_> = fabric.parts().layout().gfds.iter().map(|gfd| uuid(gfd.serial)).collect();
    for (seed, share) in (1..).zip(&shares) {
        let hpa = share.hpa + 0x5_0040 * seed;
        let trace = traced(&mut fabric, "h1", hpa, Via::CxlMem);
        assert_eq!(trace.end, End::Memory, "{trace:?}");
        assert!(trace.steps.iter().all(|step| step.asked), "{trace:?}");
        // The line that is stored lies in that GFD, at that DPA.
        assert!(access(&fabric, Part::Host(1), by_mem(hpa, seed), true).ok);
        let gfd = gfds.iter().find(|gfd| Some(gfd.pid.bits()) == trace.dpid).unwrap();
        let place = uuids.iter().position(|uuid| *uuid == gfd.uuid).unwrap();
        let (addr, len) = (Num(trace.dpa.unwrap()), Some(Num(64)));
        let own = OwnRange { addr, len, seed: Some(seed), ..OwnRange::default() };
        let peek = transfer(&fabric, Part::Gfd(place), &Command::Peek(own));
        assert!(peek.ok, "{share:?}: {peek:?}");
    }
    // Outside of all segments.
    is_refused(&mut fabric, 0x1000, "no FAST or LDST entry, and no HDM decoder");
    // Revoked: the other host still finds what it has stored.
    let share = &shares[0];
    let kept = access(&fabric, Part::Host(0), by_mem(share.hpa, 7), true);
    assert!(kept.ok, "{kept:?}");
    let revoke = Request::Revoke { name: share.name.clone(), host: "h1".to_owned() };
    fabric.fm().request(&revoke).unwrap();
    is_refused(&mut fabric, share.hpa, "");
    assert!(access(&fabric, Part::Host(0), by_mem(share.hpa, 7), false).ok, "it was overwritten");
    // Devices do not load.
    let device = shares.iter().find_map(|share| share.devices.first()).unwrap().clone();
    let asked = Request::Trace { host: device, hpa: share.hpa, via: Via::CxlMem };
    let said = fabric.fm().request(&asked).unwrap_err().to_string();
    assert!(said.contains("only hosts load and store by CXL.mem"), "{said}");
}

/// GIM is for UIO: the same address that UIO reaches is refused to loads.
#[test]
fn a_trace_by_cxl_mem_ends_at_gim() {
    let mut fabric = up("fig-7-38");
    let Ok(Response::Gim(shown)) = fabric.fm().request(&Request::Gim) else { panic!("no GIM") };
    let row = shown.iter().find(|row| row.from.iter().any(|who| who.name == "h1")).unwrap();
    let uio = traced(&mut fabric, "h1", row.hpa, Via::Uio);
    assert_eq!(uio.end, End::Host, "{uio:?}");
    assert!(access(&fabric, Part::Host(1), range(row.hpa, 64, 5), true).ok);
    is_refused(&mut fabric, row.hpa, "GIM takes UIO only");
    let unchanged = access(&fabric, Part::Host(1), range(row.hpa, 64, 5), false);
    assert!(unchanged.ok, "{unchanged:?}");
}
