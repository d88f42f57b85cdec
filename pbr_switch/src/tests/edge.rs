//! Commands of hosts to their edge, and those by which the FM allows them: 570Ch to 5716h, 58xxh, 59xxh, 0109h, 010Ah.

use super::*;
use weft_cxl::cdat::read::Contents;
use weft_dataplane::pbr::{Found, Prefixes};
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, FastCaps, GaeIdentity, GaeRange, GetFastCaps, GetInterrupts,
    PrefixFlags, ProxyCommand, ProxyStarted, ProxyStatus, SetFast, SetPrefix, VcsGaeRange,
};
use weft_parsers::cci::notify::GamBuffer;
use weft_parsers::cci::tables::{
    ConfigureLdstAccess, EdgeRange, Entries, LdstAccess, LdstCaps, PidOp, SetEdge, SetLdst,
    VcsVectorRange, Vector, VectorRange,
};
use weft_parsers::cci::vcs::BindVppb;
use weft_parsers::cci::{Bits, Wire};
use weft_parsers::fabric::{Bdf, FastEntry, Hpa, Interleave, LdstEntry, ReRouterEntry, Target};

const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 1 << 36;
const OFF: PrefixFlags = PrefixFlags { out: false, into: false };
const ON: PrefixFlags = PrefixFlags { out: true, into: true };

fn allow(op: AccessOp, bits: u16) -> Request<'static> {
    let access = PidOp { pid: pid(bits), op };
    Request::ConfigureAccess(ConfigureAccess { vcs: 0, access, cost: FREE })
}

fn allow_ld(op: LdstAccess, bits: u16) -> Request<'static> {
    let access = PidOp { pid: pid(bits), op };
    Request::ConfigureLdstAccess(ConfigureLdstAccess { vcs: 0, access })
}

fn set_fast(
    vppb: u8,
    segment_size: u8,
    prefix: PrefixFlags,
    base: u64,
    limit: u64,
) -> Request<'static> {
    Request::SetFast(SetFast { vppb, segment_size, prefix, base: Hpa(base), limit: Hpa(limit) })
}

fn set_ldst(vppb: u8, segment_size: u8, base: u64, limit: u64) -> Request<'static> {
    Request::SetLdst(SetLdst { vppb, segment_size, base: Hpa(base), limit: Hpa(limit) })
}

const fn range(vppb: u8, start: u16, count: u16) -> EdgeRange {
    EdgeRange { vppb, count, start }
}

fn set<T: Wire, const N: usize>(vppb: u8, start: u16, list: &[T]) -> SetEdge<'_, T, N> {
    SetEdge { vppb, start, entries: List::of(list) }
}

fn put_fast(start: u16, list: &[Option<FastEntry>]) -> Request<'_> {
    Request::SetFastSegments(set(0, start, list))
}

fn put_routes(vppb: u8, start: u16, list: &[ReRouterEntry]) -> Request<'_> {
    Request::SetReRouter(set(vppb, start, list))
}

fn data(payload: &[u8]) -> Vec<u8> {
    read::<Vector<'_>>(payload).data.bytes().to_vec()
}

#[test]
fn fast_is_set_by_the_host_where_the_fm_allows_and_read_by_the_dataplane() {
    let mut bench = Bench::new();
    bench.assign(0, 0, 0x20);
    bench.ok(HOST, &set_fast(0, 0, OFF, BASE, BASE + 4 * SEGMENT));
    let (interleave, target) = (Interleave::NONE, Target::Direct(pid(0x123)));
    let entry = [Some(FastEntry { gim: false, interleave, target })];
    let gim = [Some(FastEntry { gim: true, interleave, target })];
    let put = put_fast;
    bench.bad(HOST, &put(1, &entry), BAD);
    bench.ok(FM, &allow(AccessOp::EnableGmv, 0x123));
    bench.ok(HOST, &put(1, &entry));
    bench.bad(HOST, &put(2, &gim), BAD);
    bench.bad(HOST, &put(2, &[entry[0], gim[0]]), BAD);
    bench.bad(HOST, &put(16, &entry), BAD);
    bench.bad(HOST, &Request::SetFastSegments(set(9, 0, &entry)), BAD);
    let get = |vppb, start, count| Request::GetFastSegments(range(vppb, start, count));
    let payload = bench.ok(HOST, &get(0, 1, 1));
    assert_eq!(read::<Entries<'_, Option<FastEntry>>>(&payload).entries, List::of(&entry));
    bench.bad(HOST, &get(0, 16, 1), BAD);
    bench.bad(HOST, &get(5, 0, 1), BAD);
    let lookup = |bench: &Bench| {
        bench.switch.tables().edge(port(0)).expect("an edge").fast().lookup(Hpa(BASE + SEGMENT))
    };
    assert_eq!(lookup(&bench), Found::Hit { flag: false, dpid: pid(0x123) });
    let payload = bench.ok(HOST, &Request::GetFastCaps(GetFastCaps { vppb: 0 }));
    let caps: FastCaps<'_> = read(&payload);
    assert_eq!(
        (caps.segments, caps.idt, caps.base, caps.limit),
        (16, 8, Hpa(BASE), Hpa(BASE + 4 * SEGMENT))
    );
    assert_eq!(caps.pids, List::of(&[pid(0x20)]));
    for request in [
        set_fast(0, 8, OFF, BASE, BASE + SEGMENT),
        set_fast(0, 0, OFF, BASE + 4_096, BASE + SEGMENT),
        set_fast(0, 0, OFF, BASE, BASE),
        set_fast(0, 0, OFF, BASE, BASE + 17 * SEGMENT),
        set_fast(0, 0, ON, 0, 0),
        set_fast(5, 0, OFF, 0, 0),
        Request::GetFastCaps(GetFastCaps { vppb: 5 }),
    ] {
        bench.bad(HOST, &request, BAD);
    }
    bench.ok(FM, &allow(AccessOp::DisableGmv, 0x123));
    let gmv = &bench.switch.tables().edge(port(0)).expect("an edge").access().gmv;
    assert!(!gmv.contains(pid(0x123)), "the next request is refused");
    bench.ok(HOST, &set_fast(0, 0, OFF, 0, 0));
    assert_eq!(lookup(&bench), Found::Miss);
}

#[test]
fn the_interleave_tables_are_set_and_read() {
    let mut bench = Bench::new();
    let pids = [pid(0x123), Pid::NONE];
    bench.bad(HOST, &Request::SetIdt(set(0, 3, &pids)), BAD);
    bench.bad(HOST, &Request::SetLdstIdt(set(1, 3, &pids)), BAD);
    bench.ok(FM, &allow(AccessOp::EnableVtv, 0x123));
    bench.ok(FM, &allow_ld(LdstAccess::Enable, 0x123));
    bench.ok(HOST, &Request::SetIdt(set(0, 3, &pids)));
    bench.ok(HOST, &Request::SetLdstIdt(set(1, 3, &pids)));
    let fast = bench.ok(HOST, &Request::GetIdt(range(0, 3, 2)));
    let ldst = bench.ok(HOST, &Request::GetLdstIdt(range(1, 3, 2)));
    for payload in [fast, ldst] {
        assert_eq!(read::<Entries<'_, Pid>>(&payload).entries, List::of(&pids));
    }
    for request in [
        Request::SetIdt(set(0, 7, &pids)),
        Request::SetLdstIdt(set(1, 7, &pids)),
        Request::SetIdt(set(9, 0, &pids)),
        Request::SetLdstIdt(set(9, 0, &pids)),
        Request::GetIdt(range(0, 8, 1)),
        Request::GetLdstIdt(range(0, 8, 1)),
        Request::GetIdt(range(9, 0, 1)),
        Request::GetLdstIdt(range(9, 0, 1)),
    ] {
        bench.bad(HOST, &request, BAD);
    }
}

#[test]
fn ldst_goes_with_its_vppb_to_the_port_that_it_is_bound_to() {
    let mut bench = Bench::new();
    bench.assign(1, 0, 0x30);
    bench.ok(HOST, &set_ldst(2, 0, BASE, BASE + 2 * SEGMENT));
    let (interleave, target) = (Interleave::NONE, Target::Direct(pid(0x123)));
    let entry = [Some(LdstEntry { segment: true, interleave, target })];
    let put = |start| Request::SetLdstSegments(set(2, start, &entry));
    bench.bad(HOST, &put(0), BAD);
    bench.ok(FM, &allow_ld(LdstAccess::Enable, 0x123));
    bench.ok(HOST, &put(0));
    bench.bad(HOST, &put(16), BAD);
    let get = |vppb, start| Request::GetLdstSegments(range(vppb, start, 1));
    let payload = bench.ok(HOST, &get(2, 0));
    assert_eq!(read::<Entries<'_, Option<LdstEntry>>>(&payload).entries, List::of(&entry));
    bench.bad(HOST, &get(2, 16), BAD);
    bench.bad(HOST, &get(5, 0), BAD);
    let bind = Request::BindVppb(BindVppb { vcs: 0, vppb: 2, port: 1, ld: 0xFFFF });
    assert_eq!(bench.background(&bind), ReturnCode::Success);
    let edge = bench.switch.tables().edge(port(1)).expect("an edge");
    assert_eq!(edge.ldst().lookup(Hpa(BASE)), Found::Hit { flag: true, dpid: pid(0x123) });
    let caps: LdstCaps = read(&bench.ok(HOST, &Request::GetLdstCaps(2)));
    assert_eq!(
        (caps.pid, caps.segments, caps.re_routers, caps.base),
        (pid(0x30), 16, 256, Hpa(BASE))
    );
    for request in [
        set_ldst(2, 8, BASE, BASE + SEGMENT),
        set_ldst(2, 0, BASE + 1, BASE + SEGMENT),
        set_ldst(5, 0, 0, 0),
        Request::GetLdstCaps(5),
    ] {
        bench.bad(HOST, &request, BAD);
    }
}

#[test]
fn the_re_router_is_below_and_zeros_are_no_entry() {
    let mut bench = Bench::new();
    bench.ok(FM, &allow_ld(LdstAccess::Enable, 0x123));
    let route = ReRouterEntry { dpid: pid(0x123), segment: Some(1), requester: Bdf::new(2, 4, 3) };
    let none = ReRouterEntry { dpid: pid(0), segment: None, requester: Bdf::from_bits(0) };
    let get = |vppb, start, count| Request::GetReRouter(range(vppb, start, count));
    bench.ok(HOST, &put_routes(1, 5, &[route]));
    let payload = bench.ok(HOST, &get(1, 4, 2));
    assert_eq!(read::<Entries<'_, ReRouterEntry>>(&payload).entries, List::of(&[none, route]));
    let other = ReRouterEntry { dpid: pid(0x124), requester: Bdf::new(3, 0, 0), ..route };
    for request in [
        put_routes(1, 6, &[route]), // requester 2:4.3 is in entry 5 already
        put_routes(1, 6, &[ReRouterEntry { requester: Bdf::new(9, 0, 0), ..route }, other]),
        put_routes(1, 256, &[route]),
        put_routes(0, 0, &[route]),
        put_routes(5, 0, &[route]),
        get(1, 255, 2),
        get(0, 0, 1),
        get(5, 0, 1),
    ] {
        bench.bad(HOST, &request, BAD);
    }
    bench.ok(HOST, &put_routes(1, 5, &[none]));
    let payload = bench.ok(HOST, &get(1, 5, 1));
    assert_eq!(read::<Entries<'_, ReRouterEntry>>(&payload).entries, List::of(&[none]));
}

#[test]
fn access_vectors_are_the_fms_to_set_and_the_hosts_to_read() {
    let mut bench = Bench::new();
    let part = VectorRange { start: 0x24, len: 1 };
    let gmv = |bench: &mut Bench| data(&bench.ok(HOST, &Request::GetPidAccess(part)));
    let vtv = |bench: &mut Bench| {
        let range = VectorRange { start: 512 + 0x24, len: 1 };
        data(&bench.ok(FM, &Request::GetVcsAccess(VcsVectorRange { vcs: 0, range })))
    };
    let lav = |bench: &mut Bench, session| {
        let of_fm = Request::GetVcsLav(VcsVectorRange { vcs: 0, range: part });
        let request = if session == HOST { Request::GetLav(part) } else { of_fm };
        data(&bench.ok(session, &request))
    };
    for (op, want) in [
        (AccessOp::EnableGmv, [8, 0]),
        (AccessOp::EnableVtv, [8, 8]),
        (AccessOp::UpdateCost, [8, 8]),
        (AccessOp::DisableGmv, [0, 8]),
        (AccessOp::DisableVtv, [0, 0]),
    ] {
        bench.ok(FM, &allow(op, 0x123));
        assert_eq!([gmv(&mut bench)[0], vtv(&mut bench)[0]], want, "{op:?}");
        bench.bad(FM, &allow(op, 0xFFF), BAD);
    }
    for (op, want) in [(LdstAccess::Enable, 8), (LdstAccess::Disable, 0)] {
        bench.ok(FM, &allow_ld(op, 0x123));
        assert_eq!([lav(&mut bench, HOST), lav(&mut bench, FM)], [[want], [want]], "{op:?}");
        bench.bad(FM, &allow_ld(op, 0xFFF), BAD);
    }
    let of = |vcs, start, len| VcsVectorRange { vcs, range: VectorRange { start, len } };
    let access = PidOp { pid: pid(5), op: AccessOp::EnableGmv };
    let access_ld = PidOp { pid: pid(5), op: LdstAccess::Enable };
    for request in [
        Request::GetVcsLav(of(0, 1, 512)),
        Request::GetVcsLav(of(2, 0, 1)),
        Request::GetVcsAccess(of(0, 1, 1_024)),
        Request::GetVcsAccess(of(2, 0, 1)),
        Request::GetVcsAccess(of(1, 0, 1)), // virtual switch 1 has no GAE
        Request::ConfigureAccess(ConfigureAccess { vcs: 1, access, cost: FREE }),
        Request::ConfigureAccess(ConfigureAccess { vcs: 2, access, cost: FREE }),
        Request::ConfigureLdstAccess(ConfigureLdstAccess { vcs: 2, access: access_ld }),
    ] {
        bench.bad(FM, &request, BAD);
    }
    let far = VectorRange { start: u32::MAX, len: u32::MAX };
    bench.bad(HOST, &Request::GetPidAccess(far), BAD);
    bench.bad(HOST, &Request::GetLav(far), BAD);
}

#[test]
fn the_interrupt_vector_tells_what_has_changed_until_it_is_read() {
    let mut bench = Bench::new();
    let ask = |len, clear| {
        Request::GetPidInterrupts(GetInterrupts { range: VectorRange { start: 0x24, len }, clear })
    };
    assert_eq!(data(&bench.ok(HOST, &ask(1, false))), [0]);
    bench.ok(FM, &allow(AccessOp::EnableGmv, 0x123));
    bench.ok(FM, &allow(AccessOp::EnableGmv, 0x123));
    bench.ok(FM, &allow(AccessOp::EnableGmv, 0x12F));
    let told = Event::AccessChanged { vcs: 0 };
    assert_eq!(bench.events(), [told, told], "once for each change");
    assert_eq!(data(&bench.ok(HOST, &ask(2, false))), [8, 0x80]);
    assert_eq!(data(&bench.ok(HOST, &ask(1, true))), [8]);
    assert_eq!(data(&bench.ok(HOST, &ask(2, false))), [0, 0x80], "what was read is cleared");
    bench.bad(HOST, &ask(512, true), BAD);
    bench.ok(FM, &Request::SetResponseLimit(8));
    let long = VcsVectorRange { vcs: 0, range: VectorRange { start: 0, len: 512 } };
    bench.bad(FM, &Request::GetVcsLav(long), ReturnCode::ResourcesExhausted);
    let all = GetInterrupts { range: long.range, clear: true };
    let read = data(&bench.ok(HOST, &Request::GetPidInterrupts(all)));
    assert_eq!((read.len(), read[0x25]), (512, 0x80), "the FM's limit is not the host's");
}

#[test]
fn identify_gae_lists_the_fasts_of_a_virtual_switch() {
    let mut bench = Bench::new();
    let ask = |vcs, start, count| {
        Request::IdentifyVcsGae(VcsGaeRange { vcs, range: GaeRange { start, count } })
    };
    let host = bench.ok(HOST, &Request::IdentifyGae(GaeRange { start: 0, count: 9 }));
    assert_eq!(host, bench.ok(FM, &ask(0, 0, 9)));
    let it: GaeIdentity<'_> = read(&host);
    assert_eq!((it.vppbs.len(), it.threads, it.free, it.caps.pids_max), (5, 2, 2, 0xFFF));
    assert!(it.vppbs.iter().all(|it| it.segments == 16));
    assert_eq!(read::<GaeIdentity<'_>>(&bench.ok(FM, &ask(0, 3, 1))).vppbs.len(), 1);
    bench.bad(FM, &ask(0, 6, 1), BAD);
    bench.bad(FM, &ask(1, 0, 1), BAD);
    bench.bad(FM, &ask(2, 0, 1), BAD);
    bench.bad(HOST, &Request::IdentifyGae(GaeRange { start: 6, count: 1 }), BAD);
    bench.bad(OTHER_HOST, &Request::IdentifyGae(GaeRange { start: 0, count: 1 }), BAD);
}

#[test]
fn vend_prefix_is_allowed_by_the_fm_and_turned_on_by_the_host() {
    let mut bench = Bench::new();
    let put = |vcs, prefix| Request::SetPrefix(SetPrefix { vcs, prefix });
    let at = |bench: &Bench| bench.switch.tables().edge(port(0)).expect("an edge").prefixes.bits();
    assert_eq!((bench.ok(FM, &Request::GetPrefix(0)), at(&bench)), (vec![0], 0));
    bench.ok(FM, &put(0, ON));
    assert_eq!((bench.ok(FM, &Request::GetPrefix(0)), at(&bench)), (vec![3], 3));
    bench.ok(HOST, &set_fast(0, 0, PrefixFlags { out: true, into: false }, 0, 0));
    assert_eq!((bench.ok(FM, &Request::GetPrefix(0)), at(&bench)), (vec![3], 1));
    bench.ok(FM, &put(0, PrefixFlags { out: false, into: true }));
    assert_eq!(at(&bench), Prefixes::default().bits(), "what the FM takes is off");
    for request in [put(1, ON), put(2, ON), Request::GetPrefix(1), Request::GetPrefix(2)] {
        bench.bad(FM, &request, BAD);
    }
}

#[test]
fn the_gam_buffer_is_the_hosts() {
    let mut bench = Bench::new();
    let buffer = GamBuffer { valid: true, overflow: false, address: Hpa(0x10000), index: 3 };
    bench.ok(HOST, &Request::SetGamBuffer(buffer));
    let got: GamBuffer = read(&bench.ok(HOST, &Request::GetGamBuffer));
    assert_eq!(got, buffer);
    let past = GamBuffer { index: 4, ..buffer };
    bench.bad(HOST, &Request::SetGamBuffer(past), BAD);
    let high = GamBuffer { address: Hpa(GamBuffer::ADDRESS), ..buffer };
    bench.bad(HOST, &Request::SetGamBuffer(high), BAD);
    bench.bad(OTHER_HOST, &Request::SetGamBuffer(buffer), ReturnCode::Unsupported);
}

//= docs/spec/wire-formats.md §4.6: one active 5809 per target PID; no thread left: Resources Exhausted
#[test]
fn gfd_commands_are_forwarded_by_as_many_threads_as_there_are() {
    let mut bench = Bench::new();
    let (request, response) = (Hpa(0x1000), Hpa(0x2000));
    let start = |bits, len| {
        Request::Proxy(ProxyCommand { pid: pid(bits), request, len, response, response_max: 64 })
    };
    let named = |bits, seq| PidOp { pid: pid(bits), op: Bits::from_low_bits(seq) };
    bench.bad(HOST, &start(0x51, 64), BAD);
    for bits in 0x51..0x54 {
        bench.ok(FM, &allow(AccessOp::EnableGmv, bits));
    }
    bench.events();
    let it: ProxyStarted = read(&bench.ok(HOST, &start(0x51, 64)));
    assert_eq!((it.seq.get(), it.free), (0, 1));
    let (vcs, seq) = (0, 0);
    let (len, response_max) = (64, 64);
    let want = Event::Proxy { vcs, pid: pid(0x51), seq, request, len, response, response_max };
    assert_eq!(bench.events(), [want]);
    bench.bad(HOST, &start(0x51, 64), ReturnCode::Busy);
    bench.ok(HOST, &start(0x52, 1_024));
    bench.bad(HOST, &start(0x53, 64), ReturnCode::ResourcesExhausted);
    bench.bad(HOST, &start(0x53, 1_025), BAD);
    bench.bad(HOST, &start(0x53, 11), BAD);
    let status = |bench: &mut Bench, bits, seq| -> (bool, u16) {
        let it: ProxyStatus = read(&bench.ok(HOST, &Request::GetProxyStatus(named(bits, seq))));
        (it.running, it.free)
    };
    assert_eq!(status(&mut bench, 0x51, 0), (true, 0));
    bench.switch.change(|vcses, _| vcses.proxy_ended(0, pid(0x51), 1));
    assert_eq!(status(&mut bench, 0x51, 0), (true, 0), "another one");
    bench.switch.change(|vcses, _| vcses.proxy_ended(0, pid(0x51), 0));
    assert_eq!(status(&mut bench, 0x51, 0), (false, 1));
    bench.bad(HOST, &Request::GetProxyStatus(named(0x51, 1)), BAD);
    bench.bad(HOST, &Request::GetProxyStatus(named(0x53, 0)), BAD);
    bench.bad(HOST, &Request::CancelProxy(named(0x51, 0)), BAD);
    bench.bad(HOST, &Request::CancelProxy(named(0x52, 1)), BAD);
    bench.events();
    assert_eq!(bench.ok(HOST, &Request::CancelProxy(named(0x52, 0))), [2, 0]);
    assert_eq!(bench.events(), [Event::CancelProxy { vcs: 0, pid: pid(0x52), seq: 0 }]);
    let it: ProxyStarted = read(&bench.ok(HOST, &start(0x52, 64)));
    assert_eq!((it.seq.get(), it.free), (1, 1));
}

/// CXL 3.1 section 7.7.12.4: for each range of its window that leads to a component, a host reads the cost of the path,
/// as the manager set it.
#[test]
fn a_host_reads_what_the_way_to_a_component_adds() {
    let mut bench = Bench::new();
    bench.assign(0, 0, 0x20);
    let ask = |bits, start| Request::ReadCdat(ReadCdat { target: pid(bits), start, len: 4_096 });
    let tell = |op, bits, latency| {
        let cost = PathCost { latency_base: 100, latency, bandwidth_base: 500, bandwidth: 64 };
        let access = PidOp { pid: pid(bits), op };
        Request::ConfigureAccess(ConfigureAccess { vcs: 0, access, cost })
    };
    let whole = |bench: &mut Bench, target, start| -> Vec<u8> {
        read::<Cdat<'_>>(&bench.ok(HOST, &ask(target, start))).data.bytes().to_vec()
    };
    bench.bad(HOST, &ask(0x51, 0), BAD);
    bench.ok(FM, &tell(AccessOp::EnableGmv, 0x51, 555));
    bench.ok(FM, &tell(AccessOp::EnableGmv, 0x52, 7));
    assert_eq!(whole(&mut bench, 0x51, 0).len(), 16, "nothing leads there yet");
    bench.ok(HOST, &set_fast(0, 0, OFF, BASE, BASE + 8 * SEGMENT));
    let direct = |bits| Target::Direct(pid(bits));
    let entry = |interleave, target| Some(FastEntry { gim: false, interleave, target });
    let two = Interleave::from_codes(1, 0).unwrap();
    let idt = [pid(0x52), pid(0x51)];
    bench.ok(HOST, &Request::SetIdt(SetEdge { vppb: 0, start: 3, entries: List::of(&idt) }));
    let list = [
        entry(Interleave::NONE, direct(0x51)),
        entry(two, Target::Interleaved(3)),
        entry(Interleave::NONE, direct(0x52)),
        None,
        entry(Interleave::NONE, direct(0x51)),
    ];
    bench.ok(HOST, &put_fast(0, &list));
    let all = whole(&mut bench, 0x51, 0);
    assert_eq!((all.len(), all[..4].to_vec()), (16 + 2 * 72, vec![160, 0, 0, 0]));
    assert_eq!(all.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)), 0);
    let word = |at: usize| u64::from_le_bytes(all[at..at + 8].try_into().unwrap());
    let short = |at: usize| u16::from_le_bytes(all[at..at + 2].try_into().unwrap());
    for (nth, (base, len)) in
        [(BASE, 2 * SEGMENT), (BASE + 4 * SEGMENT, SEGMENT)].iter().enumerate()
    {
        let at = 16 + nth * 72;
        let handle = u8::try_from(nth).unwrap();
        assert_eq!(all[at..at + 8], [0, 0, 24, 0, handle, 0, 0, 0], "DSMAS");
        assert_eq!((word(at + 8), word(at + 16)), (*base, *len));
        for (at, kind, unit, value) in [(at + 24, 0, 100, 555), (at + 48, 3, 500, 64)] {
            assert_eq!(all[at..at + 8], [1, 0, 24, 0, handle, 0, kind, 0], "DSLBIS");
            assert_eq!((word(at + 8), short(at + 16)), (unit, value));
        }
    }
    assert_eq!(whole(&mut bench, 0x51, 100), all[100..], "in parts");
    bench.events();
    bench.ok(FM, &tell(AccessOp::UpdateCost, 0x51, 555));
    assert_eq!(bench.events(), [], "as before");
    bench.ok(FM, &tell(AccessOp::UpdateCost, 0x51, 600));
    assert_eq!(bench.events(), [Event::AccessChanged { vcs: 0 }], "it is to be read again");
    let now = whole(&mut bench, 0x51, 0);
    assert_eq!(now[56..58], 600_u16.to_le_bytes());
    for target in [0x10, 0x53] {
        bench.bad(HOST, &ask(target, 0), BAD);
    }
    bench.bad(HOST, &ask(0x51, 1 << 40), BAD);
    bench.bad(OTHER_HOST, &ask(0x51, 0), BAD);
    bench.bad(FM, &ask(0x51, 0), BAD);
    bench.ok(FM, &allow(AccessOp::DisableGmv, 0x51));
    bench.bad(HOST, &ask(0x51, 0), BAD);
}

/// CXL 3.1 section 7.7.12.4: target `FFF` is the virtual switch itself. Below a virtual link its table includes the
/// path that the manager gave with the binding. The mailbox in configuration space (DOE) has the same table.
#[test]
fn a_virtual_switch_tells_of_its_ways_and_of_the_path() {
    let mut bench = Bench::new();
    let ask = Request::ReadCdat(ReadCdat { target: Pid::NONE, start: 0, len: 4_096 });
    let ways = |bench: &mut Bench, session| {
        let payload = bench.ok(session, &ask);
        let bytes = read::<Cdat<'_>>(&payload).data.bytes().to_vec();
        let Session::Host { vcs } = session else { panic!("a host asks") };
        let own = bench.switch.vcs(vcs).unwrap().vppbs[0].bridge.cdat().unwrap();
        assert_eq!(own.bytes(), bytes, "by DOE");
        let found = Contents::of_table(&bytes);
        let to = |port| {
            let way = found.way_to(port)?;
            Some((way.read_latency_ps.unwrap() / 1_000, way.write_bandwidth_mbps.unwrap()))
        };
        let last = if session == HOST { 4 } else { 2 };
        assert_eq!((to(1), to(last + 1)), (to(last), None), "as many as there are vPPBs");
        (to(1).unwrap(), bytes[12])
    };
    assert_eq!(ways(&mut bench, HOST), ((100, 128_000), 0));
    assert_eq!(ways(&mut bench, OTHER_HOST), ((100, 128_000), 0), "bound to nothing");
    bench.assign(4, 0, 0x40);
    let path = |latency| {
        let cost = PathCost { latency_base: 1_000, latency, bandwidth_base: 1_000, bandwidth: 32 };
        let own = Chosen(None);
        Request::BindPid(BindPid { op: BindOp::Bind, vcs: 1, vppb: 0, pid: pid(0x98), own, cost })
    };
    assert_eq!(bench.background(&path(205)), ReturnCode::Success);
    assert_eq!(ways(&mut bench, OTHER_HOST), ((305, 32_000), 1));
    assert_eq!(bench.background(&path(305)), ReturnCode::Success);
    assert_eq!(ways(&mut bench, OTHER_HOST), ((405, 32_000), 2), "another way of the same link");
    assert_eq!(ways(&mut bench, HOST), ((100, 128_000), 0));
    bench.bad(FM, &ask, BAD);
}
