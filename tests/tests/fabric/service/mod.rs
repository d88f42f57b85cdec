//! The fabric manager as a service against real components: what it brings about, what its trace says, and what the
//! components' own lookups make of the same addresses.
//!
//! A ring of switches with GFDs → `weft_fm::service` in process and over TCP → memory over four GFDs, FAST
//! written by the host → traces held against FAST, DRT, GDT and SAT.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.5 to §4.7, §5.1 to §5.3.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod anew;
mod media;
mod world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_cxl::cci::Session;
use weft_dataplane::pbr::segments::Found;
use weft_fm::cci::{CciSession, InProcess, RetryPolicy, Socket, TransportError, Way};
use weft_fm::service::status::{Phase, StartMode};
use weft_fm::service::{Fm, Request, Response, Setup};
use weft_fm::show::overview::Asked;
use weft_fm::show::trace::{End, Trace, Via};
use weft_fm::state::desired::DesiredState;
use weft_parsers::cci::gae::{PrefixFlags, SetFast};
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::tables::{SetEntries, SetIdt};
use weft_parsers::cci::{List, Request as Command};
use weft_parsers::fabric::{FastEntry, Hpa, Interleave, Pid, Target};

use world::{BLOCK, HOST, World, listen};

/// Where the fabric's memory begins for the host.
const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;

fn want(gae: Option<&str>) -> DesiredState {
    let gae = gae.map_or(String::new(), |gae| format!("gae = {gae:?}\n"));
    let text = format!(
        "[[host]]\nname = \"h0\"\nswitch = \"entry\"\nport = {HOST}\n{gae}\
         [[memory]]\nname = \"pool\"\nhosts = [\"h0\"]\nways = 4\nsize = {}\ngranularity = 4096\nhpa = {BASE}\n",
        4 * BLOCK
    );
    DesiredState::parse(&text).unwrap()
}

/// A way to switch 0 by a session.
fn session(world: &Arc<Mutex<World>>, session: Session) -> CciSession {
    let world = world.clone();
    let entry = InProcess(move |request: &[u8]| {
        let answer = world.lock().unwrap().message(0, session, request);
        answer.ok_or(TransportError::Timeout(0))
    });
    CciSession::new(Box::new(entry), RetryPolicy::quick())
}

const OF_HOST: Session = Session::Host { vcs: 0 };

fn manager(world: &Arc<Mutex<World>>) -> Fm {
    let fabric = session(world, Session::Fm(1));
    let (want, mode) = (want(None), StartMode::FmFirst);
    let mut fm =
        Fm::new(Setup { fabric, desired: want, mode, take_over: false, store: None, drain: || {} });
    fm.set_gae("h0", session(world, OF_HOST));
    fm
}

/// The host writes its FAST: four ways of 4 KiB, in the order that the FM gave.
fn write_fast(host: &mut CciSession, gfds: &[Pid]) {
    let (base, limit) = (Hpa(BASE), Hpa(BASE + SEGMENT));
    let prefix = PrefixFlags::default();
    let set = SetFast { vppb: 0, segment_size: 0, prefix, base, limit };
    host.call(Way::Entry, &Command::SetFast(set)).unwrap();
    let idt = SetIdt { vppb: 0, start: 0x40, entries: List::of(gfds) };
    host.call(Way::Entry, &Command::SetIdt(idt)).unwrap();
    let interleave = Interleave::from_codes(2, 4).unwrap();
    let entry = FastEntry { gim: false, interleave, target: Target::Interleaved(0x40) };
    let entries = [Some(entry)];
    let set = SetEntries { vppb: 0, start: 0, entries: List::of(&entries) };
    host.call(Way::Entry, &Command::SetFastSegments(set)).unwrap();
}

fn traced(fm: &mut Fm, hpa: u64) -> Trace {
    match fm.request(&Request::Trace { host: "h0".into(), hpa, via: Via::Uio }).unwrap() {
        Response::Trace(trace) => trace,
        other => panic!("{other:?}"),
    }
}

fn tables(trace: &Trace) -> Vec<&str> {
    trace.steps.iter().map(|step| step.table.as_str()).collect()
}

/// What the tables themselves make of an address: DPID, the ports it leaves by, DPA, and whether the GFD allows it.
type Looked = (Option<u16>, Vec<(usize, u8)>, Option<u64>, bool);

fn looked_up(world: &Mutex<World>, rpid: Pid, hpa: u64) -> Looked {
    let world = world.lock().unwrap();
    let edge = &world.switches[0].vcs(0).unwrap().vppbs[0].tables;
    let Found::Hit { dpid, .. } = edge.fast().lookup(Hpa(hpa)) else {
        return (None, Vec::new(), None, false);
    };
    let gfd = &world.gfd_of(dpid).gfd;
    let dpa = gfd.gdt().decode(rpid, Hpa(hpa)).ok().map(|hit| hit.dpa.0);
    let may = gfd.guard().part(rpid, Hpa(hpa), true).is_ok();
    (Some(dpid.bits()), world.way(0, dpid), dpa, may)
}

#[test]
fn a_trace_says_what_the_tables_do() {
    let world = Arc::new(Mutex::new(World::ring(4, 1, &[0, 1, 2, 2])));
    let mut fm = manager(&world);
    fm.start().unwrap();
    let status = fm.board().status();
    assert_eq!((status.phase, status.errors.len()), (Phase::Up, 0), "{status:?}");
    assert_eq!((status.counts.switches, status.counts.gfds, status.counts.shares), (4, 4, 1));
    let share = fm.state().unwrap().grants.memory.shares[0].clone();
    let (host, gfds): (Pid, Vec<Pid>) =
        (share.hosts[0].pid, share.parts.iter().map(|part| part.gfd).collect());
    // Before the host has written its FAST, nothing of the fabric is mapped.
    let before = traced(&mut fm, BASE);
    assert_eq!((before.end, before.dpid), (End::Hierarchy, None));

    write_fast(&mut session(&world, OF_HOST), &gfds);
    let mut far = 0;
    for offset in [0, 63, 4_095, 4_096, 2 * 4_096 + 9, 3 * 4_096, 5 * 4_096, BLOCK, 4 * BLOCK - 1] {
        let hpa = BASE + offset;
        let trace = traced(&mut fm, hpa);
        let (dpid, way, dpa, may) = looked_up(&world, host, hpa);
        assert_eq!((trace.dpid, trace.dpa), (dpid, dpa), "{hpa:#x}: {trace:?}");
        assert!(dpid.is_some() && dpa.is_some() && may, "{hpa:#x}");
        assert_eq!((&trace.end, trace.hops.len()), (&End::Memory, way.len()), "{trace:?}");
        assert!(trace.steps.iter().all(|step| step.asked), "{trace:?}");
        let has = tables(&trace);
        let wanted =
            ["FabricBase", "FAST", "way", "FAST IDT", "GMV", "DRT", "GDT", "DMP", "MGT", "SAT"];
        assert!(wanted.iter().all(|table| has.contains(table)), "{has:?}");
        far = far.max(way.len());
    }
    assert_eq!(far, 3, "two switches away, and out at the edge");

    // Behind the share: FAST still leads there, the GFD refuses.
    let behind = traced(&mut fm, BASE + 4 * BLOCK);
    let (dpid, _, dpa, _) = looked_up(&world, host, BASE + 4 * BLOCK);
    assert_eq!((behind.dpid, behind.dpa, dpa), (dpid, None, None));
    assert!(matches!(&behind.end, End::Refused(why) if why.contains("no decoder")), "{behind:?}");
    // Outside of the window.
    let outside = traced(&mut fm, BASE + SEGMENT + 1);
    assert_eq!(outside.end, End::Hierarchy);
    assert_eq!(looked_up(&world, host, BASE + SEGMENT + 1).0, None);

    fm.request(&Request::Revoke { name: "pool".into(), host: "h0".into() }).unwrap();
    let revoked = traced(&mut fm, BASE);
    assert!(matches!(&revoked.end, End::Refused(why) if why.contains("GMV")), "{revoked:?}");
    assert!(!looked_up(&world, host, BASE).3, "the GFD does not allow it either");
}

/// An overview has FAST as the host's GAE reports it: window, segments, and targets by way; what GFDs report of their load.
#[test]
fn an_overview_has_the_tables_of_the_host() {
    let world = Arc::new(Mutex::new(World::ring(2, 1, &[0, 1, 1, 0])));
    let mut fm = manager(&world);
    fm.start().unwrap();
    let overview = |fm: &mut Fm| match fm.request(&Request::Overview).unwrap() {
        Response::Overview(all) => *all,
        other => panic!("{other:?}"),
    };
    let before = overview(&mut fm);
    let off = before.maps.iter().find(|map| map.at.switch.0 == 0).unwrap();
    assert!(matches!(&off.fast, Asked::Read(table) if table.base == 0 && table.runs.is_empty()));
    let share = fm.state().unwrap().grants.memory.shares[0].clone();
    let gfds: Vec<Pid> = share.parts.iter().map(|part| part.gfd).collect();
    let mut host = session(&world, OF_HOST);
    write_fast(&mut host, &gfds);
    // At the end of a longer window, so that several commands are needed: one more entry, of one way, twice.
    let direct =
        |pid| FastEntry { gim: false, interleave: Interleave::NONE, target: Target::Direct(pid) };
    let set = SetFast {
        vppb: 0,
        segment_size: 0,
        prefix: PrefixFlags::default(),
        base: Hpa(BASE),
        limit: Hpa(BASE + 300 * SEGMENT),
    };
    host.call(Way::Entry, &Command::SetFast(set)).unwrap();
    let entries = [Some(direct(gfds[1])), Some(direct(gfds[1]))];
    let set = SetEntries { vppb: 0, start: 298, entries: List::of(&entries) };
    host.call(Way::Entry, &Command::SetFastSegments(set)).unwrap();

    let all = overview(&mut fm);
    let map = all.maps.iter().find(|map| map.at == off.at).unwrap();
    assert_eq!((map.pid, map.host), (share.hosts[0].pid.bits(), true));
    let Asked::Read(fast) = &map.fast else { panic!("{map:?}") };
    assert_eq!((fast.base, fast.limit, fast.segment_bytes), (BASE, BASE + 300 * SEGMENT, SEGMENT));
    let way: Vec<u16> = gfds.iter().map(|pid| pid.bits()).collect();
    let runs: Vec<_> = fast
        .runs
        .iter()
        .map(|run| (run.hpa, run.segments, run.gim, run.ways, run.targets.as_slice()))
        .collect();
    let want = [(BASE, 1, false, 4, &way[..]), (BASE + 298 * SEGMENT, 2, false, 1, &way[1..2])];
    assert_eq!(runs, want);
    assert_eq!(fast.runs[0].granularity, 4_096);
    assert!(matches!(&map.ldst, Asked::Read(table) if table.base == 0), "{map:?}");
    // No other host's GAE is known.
    assert!(all.maps.iter().all(|one| one.at == map.at || matches!(one.fast, Asked::NotRead(_))));
    let loads: Vec<_> = all.gfds.iter().map(|load| &load.backpressure_percent).collect();
    assert_eq!(loads, [&Asked::Read(0); 4], "nothing waits there");
}

#[test]
fn over_tcp_a_manager_is_known_again_after_a_break_and_after_a_restart() {
    let world = Arc::new(Mutex::new(World::ring(2, 1, &[0, 1, 1, 1])));
    let entry = listen(&world, Session::Fm);
    let made = || {
        let socket =
            Socket::new(entry.peer.parse().unwrap(), MessageType::FmApi, Duration::from_secs(10));
        let fabric = CciSession::new(Box::new(socket), RetryPolicy::live());
        let (want, mode) = (want(None), StartMode::Simultaneous);
        let mut fm = Fm::new(Setup {
            fabric,
            desired: want,
            mode,
            take_over: false,
            store: None,
            drain: || {},
        });
        fm.start().unwrap();
        assert_eq!(fm.board().status().errors, Vec::<String>::new());
        fm
    };
    let mut first = made();
    // The next request comes by a new connection, which begins with who asks.
    entry.cut();
    let access = first.request(&Request::Access { host: "h0".into() });
    assert!(matches!(access, Ok(Response::Access(_))), "{access:?}");
    let state = first.state().unwrap();
    drop(first);
    let mut second = made();
    assert_eq!(second.state().unwrap(), state, "read from the components: there is no store");
    second.watch();
    assert_eq!(second.board().status().errors, Vec::<String>::new());
    let message = "00 07 00 00 57 00 00 00 00 00 00 00".to_owned();
    let to = format!("pid:{}", state.inventory.switches[1].pid);
    match second.request(&Request::Cci { to, message }).unwrap() {
        Response::Cci(answer) => {
            assert_eq!((answer.code, answer.payload.len()), (0, 24), "{answer:?}");
        }
        other => panic!("{other:?}"),
    }
}
