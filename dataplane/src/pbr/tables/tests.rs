//! Tests of [`Tables`]: TLPs on their way through two switches, PID assignment, and snapshots that stay.

use super::*;
use crate::pbr::egress::{Leaving, Out, leave};
use crate::pbr::ingress::Header;
use crate::pbr::vcs::{Binding, Function, Route, Vppb};
use crate::pbr::{Bridge, CacheDecoding, CacheRoutes, Fast, Kind, Ldst, Prefixes, Role, Window};
use weft_parsers::fabric::{Bdf, FastEntry, Hpa, Interleave, Target};

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn port(index: usize) -> PortId {
    PortId::new(index).unwrap()
}

/// PIDs of the host's edge, the device's edge, and both ends of their virtual link.
const HOST: u16 = 0x0A1;
const DEVICE: u16 = 0x0B2;
const LINK_HOST: u16 = 0x0A2;
const LINK_FAR: u16 = 0x0B3;

/// No queue, no congestion.
struct Idle;

impl Load for Idle {
    fn queued_bytes(&self, _port: PortId) -> u64 {
        0
    }
    fn is_full(&self, _port: PortId) -> bool {
        false
    }
}

fn bridge(secondary: u8, subordinate: u8) -> Bridge {
    Bridge {
        command: Bridge::ALL_ON,
        primary: secondary - 1,
        secondary,
        subordinate,
        memory: Window::memory(0xE000, 0xE000),
        ..Bridge::default()
    }
}

fn vppb(bridge: Bridge, binding: Binding) -> Vppb {
    Vppb { bridge, binding, ..Vppb::default() }
}

/// A switch whose edge is port 0 and whose way to the other switch is port 1.
fn switch(role: Role, own: u16, link: u16, vcs: Vcs, side: Side) -> Tables {
    let mut tables = Tables::new(PortSet::first(2), 1).unwrap();
    let mut edge =
        EdgePort::new(role, pid(own), Fast::new(16, 0).unwrap(), Ldst::new(16, 0).unwrap());
    (edge.vcs, edge.prefixes) = (Some((0, side)), Prefixes::from_bits(3));
    tables.set_edge(port(0), Some(edge)).unwrap();
    tables.set_vcs(0, Some(vcs)).unwrap();
    tables.assign(pid(own), Assigned::Port(port(0))).unwrap();
    tables.assign(pid(link), Assigned::Port(port(1))).unwrap();
    tables.set_drt(usize::from(own), &[DrtEntry::Port(0)]).unwrap();
    tables
}

/// A host's switch and a device's, bound to each other and with a way in both directions.
fn pair() -> (Tables, Tables) {
    let down = Binding::Fabric { spid: pid(LINK_HOST), dpid: pid(LINK_FAR) };
    let up = Binding::Fabric { spid: pid(LINK_FAR), dpid: pid(LINK_HOST) };
    let local = Binding::Port(port(0));
    let near = Vcs::new(vppb(bridge(1, 4), local), None, &[vppb(bridge(2, 4), down)]).unwrap();
    let far = Vcs::new(vppb(bridge(3, 4), up), None, &[vppb(bridge(4, 4), local)]).unwrap();
    let mut host = switch(Role::Usp, HOST, LINK_HOST, near, Side::Above);
    let mut device = switch(Role::Dsp, DEVICE, LINK_FAR, far, Side::Below(0));
    for bits in [DEVICE, LINK_FAR] {
        host.set_drt(usize::from(bits), &[DrtEntry::Port(1)]).unwrap();
    }
    for bits in [HOST, LINK_HOST] {
        device.set_drt(usize::from(bits), &[DrtEntry::Port(1)]).unwrap();
    }
    (host, device)
}

fn request(kind: Kind, route: Route) -> Request {
    Request { kind, route, prefix: None, segment: None, requester: None, ld: None, ln: None }
}

fn header(verdict: Verdict) -> Header {
    match verdict {
        Verdict::Fabric { header, .. } => header,
        other => panic!("{other:?}"),
    }
}

/// The port that a TLP with this header takes.
fn way(tables: &Tables, header: Header) -> Result<Option<PortId>, Refusal> {
    match tables.forward(header.spid, header.dpid, header.hie)? {
        Arrival::Out(to) => tables.pick(to, Flow::Dynamic, PortSet::first(2), 0, &Idle),
        other => panic!("{other:?}"),
    }
}

/// CXL 3.1 section 7.7.6.4: the host sees one virtual link. Requests going down enter the far switch at the vUSP;
/// answers come back in at the vDSP.
#[test]
fn a_virtual_link_joins_two_virtual_switches() {
    let (host, device) = pair();
    let read = request(Kind::MemoryRequest, Route::Memory(Hpa(0xE000_0040)));
    let down = header(host.ingress(port(0), &read));
    assert_eq!((down.spid, down.dpid, down.hie), (pid(LINK_HOST), pid(LINK_FAR), true));
    assert_eq!(way(&host, down), Ok(Some(port(1))));
    let Ok(Arrival::Vcs(vcs, side)) = device.forward(down.spid, down.dpid, true) else {
        panic!("it ends at the vUSP");
    };
    assert_eq!((vcs, side), (0, Side::Above));
    let to_device = device.hierarchical(vcs, side, &read);
    assert_eq!(to_device, Verdict::Port { port: port(0), ld: None, type1_to_0: false });
    let answer = request(Kind::Completion, Route::Id(Bdf::new(0, 1, 0)));
    let up = header(device.ingress(port(0), &answer));
    assert_eq!((up.spid, up.dpid, up.hie), (pid(LINK_FAR), pid(LINK_HOST), true));
    assert_eq!(host.forward(up.spid, up.dpid, true), Ok(Arrival::Vcs(0, Side::Below(0))));
    let to_host = host.hierarchical(0, Side::Below(0), &answer);
    assert_eq!(to_host, Verdict::Port { port: port(0), ld: None, type1_to_0: false });
}

/// Configuration of a device behind a virtual link: Type 1 to the vDSP's bus becomes Type 0, which ends at the vUSP.
#[test]
fn configuration_crosses_a_virtual_link() {
    let (host, device) = pair();
    let config = |bus| request(Kind::Other, Route::Config1(Bdf::new(bus, 0, 0)));
    let converted = |verdict| match verdict {
        Verdict::Fabric { type1_to_0, .. } | Verdict::Port { type1_to_0, .. } => type1_to_0,
        other => panic!("{other:?}"),
    };
    assert!(converted(host.ingress(port(0), &config(2))));
    let at_vusp = request(Kind::Other, Route::Config0(Bdf::new(2, 0, 0)));
    let function = device.hierarchical(0, Side::Above, &at_vusp);
    assert_eq!(function, Verdict::Internal(Function::Upstream));
    assert!(!converted(host.ingress(port(0), &config(4))));
    assert!(converted(device.hierarchical(0, Side::Above, &config(4))));
}

/// CXL 3.1 section 7.7.3.3, flow one: FAST, PIF, prefix with the source at the far edge, and its completion back.
#[test]
fn gim_goes_out_with_the_source_in_front_and_its_completion_comes_back() {
    let (mut host, mut device) = pair();
    let mut access = Access::default();
    access.vtv.allow(pid(DEVICE)).unwrap();
    access.vtv.allow(pid(HOST)).unwrap();
    let access = Arc::new(access);
    host.set_access(0, &access);
    device.set_access(0, &access);
    let target = Target::Direct(pid(DEVICE));
    let gim = FastEntry { gim: true, interleave: Interleave::NONE, target };
    host.change_edge(port(0), |edge| {
        edge.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40))?;
        edge.set_fast(0, &[Some(gim)])
    })
    .unwrap();
    let write = request(Kind::UioRequest, Route::Memory(Hpa((1 << 40) + 8)));
    let out = header(host.ingress(port(0), &write));
    assert_eq!((out.spid, out.dpid, out.pif, out.hie), (pid(HOST), pid(DEVICE), true, false));
    assert_eq!((way(&host, out), way(&device, out)), (Ok(Some(port(1))), Ok(Some(port(0)))));
    let leaving = Leaving { kind: Kind::UioRequest, spid: out.spid, pif: out.pif };
    let left = leave(device.edge(port(0)).unwrap(), &leaving);
    assert_eq!(left, Out::Strip { prefix: Some(pid(HOST)) });
    let answer = request(Kind::UioCompletion, Route::Id(Bdf::new(0, 0, 0)));
    let back = header(device.ingress(port(0), &Request { prefix: Some(pid(HOST)), ..answer }));
    assert_eq!((back.spid, back.dpid, back.pif), (pid(DEVICE), pid(HOST), false));
    assert_eq!((way(&device, back), way(&host, back)), (Ok(Some(port(1))), Ok(Some(port(0)))));
    let leaving = Leaving { kind: Kind::UioCompletion, spid: back.spid, pif: back.pif };
    assert_eq!(leave(host.edge(port(0)).unwrap(), &leaving), Out::Strip { prefix: None });
}

/// docs/spec/cxl-fabric.md "Dynamic change": once the FM revokes a target, the next request is refused, and others are
/// not.
#[test]
fn a_revoked_target_is_refused_from_the_next_snapshot_on() {
    let (mut tables, _) = pair();
    let mut access = Access::default();
    for bits in [1, 2] {
        access.gmv.allow(pid(bits)).unwrap();
    }
    tables.set_access(0, &Arc::new(access.clone()));
    let entry = |bits| {
        let target = Target::Direct(pid(bits));
        Some(FastEntry { gim: false, interleave: Interleave::NONE, target })
    };
    tables
        .change_edge(port(0), |edge| {
            edge.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40))?;
            edge.set_fast(0, &[entry(1), entry(2)])
        })
        .unwrap();
    let mut next = tables.clone();
    access.gmv.forbid(pid(1));
    next.set_access(0, &Arc::new(access));
    let read = |segment: u64| {
        request(Kind::MemoryRequest, Route::Memory(Hpa((1 << 40) + (segment << 36))))
    };
    let revoked = Verdict::UnsupportedRequest(Refusal::NotInGmv);
    assert_eq!(next.ingress(port(0), &read(0)), revoked);
    assert_eq!(header(next.ingress(port(0), &read(1))).dpid, pid(2));
    assert_eq!(
        header(tables.ingress(port(0), &read(0))).dpid,
        pid(1),
        "the old one stays as it was"
    );
}

/// docs/spec/wire-formats.md §4.5: a PID stands for one target; assignment does not touch the DRT.
#[test]
fn a_pid_is_assigned_to_one_target() {
    let mut tables = Tables::new(PortSet::first(4), 0).unwrap();
    tables.assign(pid(5), Assigned::Port(port(1))).unwrap();
    assert_eq!(tables.assign(pid(5), Assigned::Port(port(1))), Ok(()), "once more the same");
    let other = Err(TableError::Assigned(pid(5)));
    assert_eq!(tables.assign(pid(5), Assigned::Port(port(2))), other);
    assert_eq!(tables.assign(pid(5), Assigned::Switch), other);
    assert_eq!(tables.assign(pid(6), Assigned::Port(port(4))), Err(TableError::Port(4)));
    assert_eq!(tables.assign(Pid::NONE, Assigned::Switch), Err(TableError::NoPid));
    assert_eq!(tables.forward(pid(1), pid(5), false), Err(Refusal::NoDrtEntry));
    tables.clear(pid(5)).unwrap();
    tables.assign(pid(5), Assigned::Switch).unwrap();
    assert_eq!(tables.forward(pid(1), pid(5), false), Ok(Arrival::Here));
    assert_eq!(tables.assigned().collect::<Vec<_>>(), [(pid(5), Assigned::Switch)]);
    assert_eq!(
        tables.forward(Pid::NONE, Pid::NONE, false),
        Ok(Arrival::Here),
        "fff: whoever has it"
    );
}

/// docs/spec/wire-formats.md §3.7: Hie in transit follows the DRT; at its end both PIDs must be those of a binding.
#[test]
fn hie_ends_at_a_binding_or_is_passed_on() {
    let (host, _) = pair();
    let cross = host.forward(pid(0x111), pid(LINK_FAR), true);
    assert_eq!(cross, Ok(Arrival::Out(Dispatch::Port(port(1)))), "in transit");
    assert_eq!(host.forward(pid(0x111), pid(LINK_HOST), true), Err(Refusal::NoBinding));
    assert_eq!(host.forward(pid(LINK_FAR), pid(HOST), true), Err(Refusal::NoBinding));
    let bare = host.forward(pid(LINK_FAR), pid(HOST), false);
    assert_eq!(bare, Ok(Arrival::Out(Dispatch::Port(port(0)))), "from edge to edge");
}

#[test]
fn changes_that_fail_change_nothing() {
    let (mut tables, _) = pair();
    let no = TableError::Vppb(7);
    let failed = tables.change_edge(port(0), |edge| {
        edge.segment = 9;
        Err(no)
    });
    assert_eq!((failed, tables.edge(port(0)).unwrap().segment), (Err(no), 0));
    assert_eq!(tables.change_edge(port(1), |_| Ok(())), Err(TableError::Port(1)), "no edge");
    assert_eq!(tables.set_edge(port(9), None), Err(TableError::Port(9)));
    let same = tables.vcs(0).unwrap().clone();
    let twice = tables.set_vcs(3, Some(same));
    assert!(matches!(twice, Err(TableError::BoundTwice { .. })), "{twice:?}");
    assert!(tables.vcs(3).is_none());
    let read = request(Kind::MemoryRequest, Route::Memory(Hpa(0)));
    assert_eq!(tables.ingress(port(1), &read), Verdict::Drop(Refusal::WrongRole), "a fabric port");
    assert_eq!(tables.hierarchical(9, Side::Above, &read), Verdict::Drop(Refusal::NoVcs));
}

/// CXL 3.1 section 7.7.12.3 (Bind vPPB): logical devices behind one port belong to different hosts.
#[test]
fn logical_devices_of_a_port_have_their_own_hosts() {
    let mut tables = Tables::new(PortSet::first(3), 0).unwrap();
    let ld = |ld| Binding::Ld { port: port(2), ld };
    for (vcs, binding) in [(0, ld(0)), (1, ld(5))] {
        let root = Binding::Port(port(usize::from(vcs)));
        let whole = Vcs::new(vppb(bridge(1, 4), root), None, &[vppb(bridge(2, 4), binding)]);
        tables.set_vcs(vcs, Some(whole.unwrap())).unwrap();
    }
    let edge = |vcs| {
        let tables = (Fast::new(1, 0).unwrap(), Ldst::new(1, 0).unwrap());
        let mut edge = EdgePort::new(Role::Dsp, pid(DEVICE), tables.0, tables.1);
        edge.vcs = Some((vcs, Side::Below(0)));
        edge
    };
    let mut device = edge(0);
    device.vcs = None;
    device.set_ld(0, Some(edge(0))).unwrap();
    device.set_ld(5, Some(edge(1))).unwrap();
    assert_eq!(device.set_ld(16, None), Err(TableError::Ld(16)));
    tables.set_edge(port(2), Some(device)).unwrap();
    let read = request(Kind::MemoryRequest, Route::Memory(Hpa(0x1000)));
    let decide = |tables: &Tables, ld| tables.ingress(port(2), &Request { ld, ..read });
    let out = |at| Verdict::Port { port: port(at), ld: None, type1_to_0: false };
    assert_eq!((decide(&tables, Some(0)), decide(&tables, Some(5))), (out(0), out(1)));
    for unbound in [Some(1), Some(0xFFFF)] {
        assert_eq!(decide(&tables, unbound), Verdict::Drop(Refusal::Unbound), "{unbound:?}");
    }
    assert_eq!(decide(&tables, None), Verdict::UnsupportedRequest(Refusal::NoVcs));
    let mut access = Access::default();
    access.lav.allow(pid(7)).unwrap();
    tables.set_access(1, &Arc::new(access));
    let allowed = [0, 5].map(|ld| {
        let part = tables.edge(port(2)).unwrap().part(Some(ld)).unwrap();
        part.access().lav.contains(pid(7))
    });
    assert_eq!(allowed, [false, true], "each has what its own host may reach");
}

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: each row of the table, from edge to edge of two switches
#[test]
fn cxl_cache_goes_between_a_device_and_its_host_by_cache_id() {
    let (mut host, mut device) = pair();
    let mut routes = CacheRoutes::default();
    routes.set(5, pid(DEVICE));
    let vcs = host.vcs(0).unwrap().clone().with_cache_routes(routes);
    host.set_vcs(0, Some(vcs)).unwrap();
    // The virtual link is the host's own PID at its edge.
    let up = Binding::Fabric { spid: pid(LINK_FAR), dpid: pid(HOST) };
    let far = Vcs::new(vppb(bridge(3, 4), up), None, device.vcs(0).unwrap().below()).unwrap();
    device.set_vcs(0, Some(far)).unwrap();
    let set = |edge: &mut EdgePort| {
        edge.cache_ids = CacheDecoding::new(Some(5), []);
        Ok(())
    };
    device.change_edge(port(0), set).unwrap();

    let sent = |tables: &Tables, kind, cache_id| {
        tables.ingress(port(0), &request(kind, Route::CacheId(cache_id)))
    };
    let d2h = header(sent(&device, Kind::CacheToHost, 5));
    assert_eq!((d2h.spid, d2h.dpid, d2h.hie, d2h.dsar), (pid(DEVICE), pid(HOST), false, false));
    let h2d = header(sent(&host, Kind::CacheToDevice, 5));
    assert_eq!((h2d.spid, h2d.dpid, h2d.hie, h2d.dsar), (pid(HOST), pid(DEVICE), false, true));
    for (tables, kind, cache_id, refusal) in [
        (&host, Kind::CacheToDevice, 4, Refusal::NoCacheId),
        (&host, Kind::CacheToHost, 5, Refusal::WrongRole),
        (&device, Kind::CacheToDevice, 5, Refusal::WrongRole),
    ] {
        assert_eq!(sent(tables, kind, cache_id), Verdict::Drop(refusal), "{kind:?} {cache_id}");
    }

    let leaves = |tables: &Tables, kind, spid: u16, cache_id| {
        let edge = tables.edge(port(0)).unwrap();
        tables.may_leave_by_cache_id(edge, kind, pid(spid), cache_id)
    };
    #[rustfmt::skip] // columns: switch, message, SPID, CacheID, why not
    let cases = [
        (&host,   Kind::CacheToHost,   DEVICE, 5, Ok(())),
        (&host,   Kind::CacheToHost,   DEVICE, 4, Err(Refusal::NoCacheId)),
        (&host,   Kind::CacheToHost,   DEVICE, 6, Err(Refusal::NoCacheId)),
        (&host,   Kind::CacheToHost,   0x999,  5, Err(Refusal::NoCacheId)),
        (&host,   Kind::CacheToHost,   0xFFF,  0, Err(Refusal::NoCacheId)),
        (&host,   Kind::CacheToDevice, DEVICE, 5, Err(Refusal::WrongRole)),
        (&device, Kind::CacheToDevice, HOST,   5, Ok(())),
        (&device, Kind::CacheToDevice, HOST,   4, Err(Refusal::NoCacheId)),
        (&device, Kind::CacheToDevice, HOST,   6, Err(Refusal::NoCacheId)),
        (&device, Kind::CacheToDevice, 0x999,  5, Err(Refusal::ForeignHost)),
        (&device, Kind::CacheToHost,   HOST,   5, Err(Refusal::WrongRole)),
    ];
    for (tables, kind, spid, cache_id, want) in cases {
        assert_eq!(leaves(tables, kind, spid, cache_id), want, "{kind:?} {spid:x} {cache_id}");
    }
    // A device whose host has gone, or that is in reset, neither receives nor sends.
    device.set_vcs(0, None).unwrap();
    assert_eq!(sent(&device, Kind::CacheToHost, 5), Verdict::Drop(Refusal::Unbound));
    assert_eq!(leaves(&device, Kind::CacheToDevice, HOST, 5), Err(Refusal::ForeignHost));
    let reset = |edge: &mut EdgePort| {
        edge.resetting = true;
        Ok(())
    };
    device.change_edge(port(0), reset).unwrap();
    assert_eq!(leaves(&device, Kind::CacheToDevice, HOST, 5), Err(Refusal::Unbound));
}
