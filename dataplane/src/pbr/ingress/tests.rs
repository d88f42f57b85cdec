//! Tests of [`ingress`]: a test for each rule of docs/spec/cxl-fabric.md "Ingress at an edge", in its order.

use super::*;
use crate::pbr::{Access, Bridge, Fast, Ldst, Prefixes, Vppb, Window};
use weft_parsers::fabric::{Bdf, FastEntry, Interleave, LdstEntry, ReRouterEntry, Target};

const TIB: u64 = 1 << 40;
const SEGMENT: u64 = 1 << 36;
/// Segments of the FAST: G-FAM, G-FAM of 2 ways, GIM, nothing; then those that GMV and VTV have lost.
const GFAM: u64 = TIB;
const WAYS: u64 = TIB + SEGMENT;
const GIM: u64 = TIB + 2 * SEGMENT;
const HOLE: u64 = TIB + 3 * SEGMENT;
const GFAM_LOST: u64 = TIB + 4 * SEGMENT;
const GIM_LOST: u64 = TIB + 5 * SEGMENT;
/// Segments of the LDST: within the segment, across segments, nothing, lost.
const LD: u64 = 2 * TIB;
const LD_ACROSS: u64 = 2 * TIB + SEGMENT;
const LD_HOLE: u64 = 2 * TIB + 2 * SEGMENT;
const LD_LOST: u64 = 2 * TIB + 3 * SEGMENT;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

/// A port with PID 0A1 and all kinds of entries; the FM took 00E from all vectors after they were set.
fn port(role: Role) -> EdgePort {
    let tables = (Fast::new(16, 8).unwrap(), Ldst::new(16, 8).unwrap());
    let mut port = EdgePort::new(role, pid(0x0A1), tables.0, tables.1);
    port.segment = 0x5A;
    port.vcs = Some((0, if role == Role::Usp { Side::Above } else { Side::Below(0) }));
    port.prefixes = Prefixes::from_bits(3);
    let mut access = Access::default();
    for bits in [1, 2, 0x00E] {
        access.gmv.allow(pid(bits)).unwrap();
        access.vtv.allow(pid(bits + 0x100)).unwrap();
        access.lav.allow(pid(bits + 0x200)).unwrap();
    }
    port.set_access(access.clone().into());
    port.configure_fast(0, Hpa(TIB), Hpa(TIB + 8 * SEGMENT)).unwrap();
    let direct = |bits, gim| {
        let target = Target::Direct(pid(bits));
        Some(FastEntry { gim, interleave: Interleave::NONE, target })
    };
    let interleave = Interleave::from_codes(1, 0).unwrap();
    let ways = Some(FastEntry { gim: false, interleave, target: Target::Interleaved(4) });
    let entries = [
        direct(1, false),
        ways,
        direct(0x101, true),
        None,
        direct(0x00E, false),
        direct(0x10E, true),
    ];
    port.set_fast(0, &entries).unwrap();
    port.set_fast_idt(4, &[pid(1), pid(2)]).unwrap();
    port.configure_ldst(0, Hpa(LD), Hpa(LD + 8 * SEGMENT)).unwrap();
    let ld = |bits, segment| {
        let target = Target::Direct(pid(bits));
        Some(LdstEntry { segment, interleave: Interleave::NONE, target })
    };
    port.set_ldst(0, &[ld(0x201, false), ld(0x202, true), None, ld(0x20E, false)]).unwrap();
    let requester = |bus: u8, dpid, segment| {
        Some(ReRouterEntry { dpid: pid(dpid), segment, requester: Bdf::new(bus, 0, 0) })
    };
    let entries =
        [requester(7, 0x201, None), requester(8, 0x202, Some(3)), requester(9, 0x20E, None)];
    port.set_rerouter(0, &entries).unwrap();
    access.gmv.forbid(pid(0x00E));
    access.vtv.forbid(pid(0x10E));
    access.lav.forbid(pid(0x20E));
    port.set_access(access.into());
    port
}

/// A switch whose only device, behind port 3, has the memory below 16 MiB and buses 2..=9.
fn vcs() -> Vcs {
    let bridge = |secondary, subordinate| Bridge {
        command: Bridge::ALL_ON,
        secondary,
        subordinate,
        memory: Window::new(0, (16 << 20) - 1),
        ..Bridge::default()
    };
    let vppb = |bridge, at| Vppb {
        bridge,
        binding: Binding::Port(PortId::new(at).unwrap()),
        ..Vppb::default()
    };
    Vcs::new(vppb(bridge(1, 9), 0), None, &[vppb(bridge(2, 9), 3)]).unwrap()
}

fn request(kind: Kind, route: Route) -> Request {
    Request { kind, route, prefix: None, segment: None, requester: None, ld: None, ln: None }
}

fn at(kind: Kind, address: u64) -> Request {
    request(kind, Route::Memory(Hpa(address)))
}

fn completion(kind: Kind, bus: u8, segment: Option<u8>) -> Request {
    Request { segment, ..request(kind, Route::Id(Bdf::new(bus, 0, 0))) }
}

fn with_prefix(request: Request, bits: u16) -> Request {
    Request { prefix: Some(pid(bits)), ..request }
}

/// Into the fabric from edge to edge.
fn to(role: Role, dpid: u16, pif: bool) -> Verdict {
    let dsar = role == Role::Usp;
    let header = Header { spid: pid(0x0A1), dpid: pid(dpid), pif, hie: false, dsar };
    Verdict::Fabric { header, segment: None, type1_to_0: false }
}

fn decide(role: Role, request: Request) -> Verdict {
    ingress(&port(role), Some(&vcs()), &request)
}

fn unsupported(refusal: Refusal) -> Verdict {
    Verdict::UnsupportedRequest(refusal)
}

const PORT_3: Verdict =
    Verdict::Port { port: PortId::from_low_bits(3), ld: None, type1_to_0: false };
const TO_ROOT: Verdict =
    Verdict::Port { port: PortId::from_low_bits(0), ld: None, type1_to_0: false };

/// Step 1; CXL 3.1 section 7.7.3.3, flow two: the PID is the DPID, FAST is passed by, PIF is set.
#[test]
fn prefix_of_a_uio_request_is_its_dpid() {
    for address in [GFAM, HOLE, LD_LOST, 0, u64::MAX] {
        let request = with_prefix(at(Kind::UioRequest, address), 0x102);
        for role in [Role::Usp, Role::Dsp] {
            assert_eq!(decide(role, request), to(role, 0x102, true), "{role:?} {address:#x}");
        }
    }
}

/// Step 1; CXL 3.1 section 7.7.3.3, ingress: a port that may not, or a PID that is not in VTV, is a UR.
#[test]
fn prefix_of_a_uio_request_needs_port_and_vtv() {
    let request = |bits| with_prefix(at(Kind::UioRequest, GFAM), bits);
    let mut port = port(Role::Usp);
    for bits in 0..4 {
        port.prefixes = Prefixes::from_bits(bits);
        let want = match bits & 2 {
            0 => unsupported(Refusal::PrefixNotEnabled),
            _ => to(Role::Usp, 0x101, true),
        };
        assert_eq!(ingress(&port, Some(&vcs()), &request(0x101)), want, "{bits}");
    }
    for bits in [0x001, 0x10E, 0x201, 0xFFF] {
        assert_eq!(
            decide(Role::Usp, request(bits)),
            unsupported(Refusal::PrefixNotInVtv),
            "{bits:x}"
        );
    }
}

/// Step 1: on any request but UIO a prefix is a UR, wherever it would have gone.
#[test]
fn prefix_on_any_other_request_is_unsupported() {
    for kind in [Kind::MemoryRequest, Kind::Other, Kind::Gam] {
        for address in [GFAM, 0] {
            let verdict = decide(Role::Dsp, with_prefix(at(kind, address), 0x101));
            assert_eq!(verdict, unsupported(Refusal::PrefixNeedsUio), "{kind:?}");
        }
    }
    let other = decide(Role::Dsp, with_prefix(completion(Kind::Completion, 7, None), 0x101));
    assert_eq!(other, Verdict::UnexpectedCompletion(Refusal::PrefixNeedsUio));
}

/// Step 1; docs/spec/wire-formats.md §3.7: a completion with a prefix goes to that PID, PIF clear, before the
/// re-router.
#[test]
fn prefix_of_a_uio_completion_is_its_dpid_or_it_is_unexpected() {
    let request = |bits| with_prefix(completion(Kind::UioCompletion, 7, None), bits);
    let mut port = port(Role::Dsp);
    for bits in 0..4 {
        port.prefixes = Prefixes::from_bits(bits);
        let want = match bits & 1 {
            0 => Verdict::UnexpectedCompletion(Refusal::PrefixNotEnabled),
            _ => to(Role::Dsp, 0x101, false),
        };
        assert_eq!(ingress(&port, Some(&vcs()), &request(0x101)), want, "{bits}");
    }
    let want = Verdict::UnexpectedCompletion(Refusal::PrefixNotInVtv);
    assert_eq!(decide(Role::Dsp, request(0x10E)), want);
}

/// Step 2; CXL 3.1 section 7.7.2.4: FAST, and IDT by way, for UIO and plain memory requests; PIF clear for G-FAM.
#[test]
fn fast_hit_of_gfam_goes_to_the_gfd_of_its_way() {
    for role in [Role::Usp, Role::Dsp] {
        for kind in [Kind::UioRequest, Kind::MemoryRequest] {
            assert_eq!(decide(role, at(kind, GFAM + 77)), to(role, 1, false), "{kind:?}");
            assert_eq!(decide(role, at(kind, WAYS)), to(role, 1, false), "{kind:?}");
            assert_eq!(decide(role, at(kind, WAYS + 256)), to(role, 2, false), "{kind:?}");
        }
    }
}

/// Step 2: an address of the window without a valid entry is a UR, even where the virtual switch would route it.
#[test]
fn fast_entry_that_is_not_valid_is_unsupported() {
    for kind in [Kind::UioRequest, Kind::MemoryRequest] {
        for address in [HOLE, TIB + 7 * SEGMENT, TIB + 8 * SEGMENT] {
            let verdict = decide(Role::Usp, at(kind, address));
            assert_eq!(verdict, unsupported(Refusal::NoFastEntry), "{address:#x}");
        }
    }
}

/// Step 2; CXL 3.1 section 7.7.3.3, flow one: UIO that hits GIM goes with PIF set.
#[test]
fn fast_hit_of_gim_sets_pif() {
    for role in [Role::Usp, Role::Dsp] {
        assert_eq!(decide(role, at(Kind::UioRequest, GIM)), to(role, 0x101, true));
    }
}

/// Step 2; CXL 3.1 section 7.7.3: GIM is for UIO alone.
#[test]
fn gim_by_anything_but_uio_is_unsupported() {
    let verdict = decide(Role::Usp, at(Kind::MemoryRequest, GIM));
    assert_eq!(verdict, unsupported(Refusal::GimNeedsUio));
}

/// Step 2; CXL 3.1 sections 7.7.2.5, 7.7.2.6: a target that the FM has revoked is refused, though its entry is still
/// there.
#[test]
fn target_that_gmv_or_vtv_lost_is_unsupported() {
    for kind in [Kind::UioRequest, Kind::MemoryRequest] {
        assert_eq!(decide(Role::Usp, at(kind, GFAM_LOST)), unsupported(Refusal::NotInGmv));
    }
    let gim = decide(Role::Usp, at(Kind::UioRequest, GIM_LOST));
    assert_eq!(gim, unsupported(Refusal::GimNotInVtv));
}

/// Step 3; CXL 3.1 section 7.7.9: UIO to LD-FAM goes straight to its port, with the segment where the entry says so.
#[test]
fn ldst_hit_goes_to_the_ld_fam_port_and_inserts_the_segment() {
    for role in [Role::Usp, Role::Dsp] {
        assert_eq!(decide(role, at(Kind::UioRequest, LD)), to(role, 0x201, false));
        match decide(role, at(Kind::UioRequest, LD_ACROSS)) {
            Verdict::Fabric { header, segment: Some(0x5A), type1_to_0: false } => {
                assert_eq!((header.dpid, header.pif, header.hie), (pid(0x202), false, false));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Step 3; CXL 3.1 section 7.7.9: the target must be in LAV.
#[test]
fn ldst_target_that_lav_lost_is_unsupported() {
    assert_eq!(decide(Role::Dsp, at(Kind::UioRequest, LD_LOST)), unsupported(Refusal::LavClear));
}

/// Steps 3 and 5: LDST is for UIO alone, and requests that do not hit it are hierarchical.
#[test]
fn what_ldst_does_not_hit_is_hierarchical() {
    for (kind, address) in [(Kind::MemoryRequest, LD), (Kind::UioRequest, LD_HOLE)] {
        assert_eq!(decide(Role::Dsp, at(kind, address)), TO_ROOT, "{kind:?} {address:#x}");
        let down = decide(Role::Usp, at(kind, address));
        assert_eq!(down, unsupported(Refusal::UpstreamClaimsNot), "{kind:?} {address:#x}");
    }
}

/// Step 4; CXL 3.1 section 7.7.9: a UIO completion goes back by the requester's id, else hierarchically.
#[test]
fn rerouter_sends_uio_completions_straight_back() {
    #[rustfmt::skip] // columns: kind, bus, segment, want
    let cases = [
        (Kind::UioCompletion, 7,  None,    to(Role::Dsp, 0x201, false)),
        (Kind::UioCompletion, 7,  Some(9), to(Role::Dsp, 0x201, false)),
        (Kind::UioCompletion, 8,  Some(3), to(Role::Dsp, 0x202, false)),
        (Kind::UioCompletion, 80, None,    TO_ROOT),
        (Kind::UioCompletion, 8,  None,    Verdict::UnexpectedCompletion(Refusal::OwnRange)),
        (Kind::UioCompletion, 9,  None,    Verdict::UnexpectedCompletion(Refusal::OwnRange)), // LAV lost it
        (Kind::Completion,    7,  None,    Verdict::UnexpectedCompletion(Refusal::OwnRange)),
        (Kind::Completion,    80, None,    TO_ROOT),
    ];
    for (kind, bus, segment, want) in cases {
        let verdict = decide(Role::Dsp, completion(kind, bus, segment));
        assert_eq!(verdict, want, "{kind:?} bus {bus} {segment:?}");
    }
}

/// Step 5: everything else is hierarchical. Without a bridge that claims it, a request is a UR, and a completion is
/// dropped.
#[test]
fn everything_else_is_hierarchical() {
    let config = |bus| request(Kind::Other, Route::Config1(Bdf::new(bus, 0, 0)));
    #[rustfmt::skip] // columns: role, request, want
    let cases = [
        (Role::Usp, at(Kind::MemoryRequest, 0x1000),         PORT_3),
        (Role::Usp, at(Kind::UioRequest, 0x1000),            PORT_3),
        (Role::Usp, completion(Kind::Completion, 5, None),   PORT_3),
        (Role::Usp, config(5),                               PORT_3),
        (Role::Usp, config(2), Verdict::Port { port: PortId::from_low_bits(3), ld: None, type1_to_0: true }),
        (Role::Usp, config(1),                               Verdict::Internal(Function::Below(0))),
        (Role::Usp, at(Kind::MemoryRequest, 1 << 32),        unsupported(Refusal::UpstreamClaimsNot)),
        (Role::Usp, completion(Kind::Completion, 77, None),  Verdict::UnexpectedCompletion(Refusal::UpstreamClaimsNot)),
        (Role::Dsp, at(Kind::MemoryRequest, 1 << 32),        TO_ROOT),
        (Role::Dsp, config(5),                               unsupported(Refusal::ConfigFromBelow)),
    ];
    for (role, request, want) in cases {
        assert_eq!(decide(role, request), want, "{role:?} {request:?}");
    }
    let nowhere = |kind| ingress(&port(Role::Usp), None, &at(kind, 0));
    assert_eq!(nowhere(Kind::MemoryRequest), unsupported(Refusal::NoVcs));
    assert_eq!(nowhere(Kind::Completion), Verdict::UnexpectedCompletion(Refusal::NoVcs));
}

/// Step 5, docs/spec/wire-formats.md §3.7: a bound vDSP or vUSP has its binding's PIDs, Hie set, and DSAR on the way
/// down.
#[test]
fn bound_vppbs_send_hie_with_the_pids_of_their_binding() {
    let fabric = Binding::Fabric { spid: pid(0x10), dpid: pid(0x20) };
    let want = |dsar| {
        let header = Header { spid: pid(0x10), dpid: pid(0x20), pif: false, hie: true, dsar };
        Verdict::Fabric { header, segment: None, type1_to_0: false }
    };
    let whole = vcs();
    let below = Vppb { binding: fabric, ..whole.below()[0] };
    let host = Vcs::new(*whole.upstream(), None, &[below]).unwrap();
    let down = ingress(&port(Role::Usp), Some(&host), &at(Kind::MemoryRequest, 0x1000));
    assert_eq!(down, want(true), "vDSP");
    let far = Vcs::new(Vppb { binding: fabric, ..*whole.upstream() }, None, whole.below()).unwrap();
    let up = ingress(&port(Role::Dsp), Some(&far), &at(Kind::MemoryRequest, 1 << 32));
    assert_eq!(up, want(false), "vUSP");
    let peer = Vppb { bridge: Bridge { command: 7, ..Bridge::default() }, ..whole.below()[0] };
    let host = Vcs::new(*whole.upstream(), None, &[peer, below]).unwrap();
    let across = ingress(&port(Role::Dsp), Some(&host), &at(Kind::MemoryRequest, 0x1000));
    assert_eq!(across, want(true), "peer to vDSP of the host's edge");
    let ld = out(Binding::Ld { port: PortId::from_low_bits(6), ld: 2 }, true, true);
    let six = PortId::from_low_bits(6);
    assert_eq!(ld, Verdict::Port { port: six, ld: Some(2), type1_to_0: true });
    assert_eq!(out(Binding::Unbound, true, false), unsupported(Refusal::Unbound));
}

/// A GFD's link carries PBR TLPs: a TLP that comes in there without PTH is refused.
#[test]
fn a_gfd_port_takes_nothing_without_pth() {
    let verdict = decide(Role::Gfd, at(Kind::UioRequest, GFAM));
    assert_eq!(verdict, unsupported(Refusal::WrongRole));
}

/// docs/spec/cxl-fabric.md: the virtual switch decides whether a message ends here, goes to all, or is gathered.
#[test]
fn messages_are_what_the_virtual_switch_says() {
    use crate::pbr::Implicit::{Broadcast, Gather, Local, ToRoot};
    #[rustfmt::skip] // columns: role, message, want
    let cases = [
        (Role::Dsp, ToRoot,    TO_ROOT),
        (Role::Usp, Broadcast, Verdict::Broadcast),
        (Role::Dsp, Gather,    Verdict::Gather),
        (Role::Dsp, Local,     Verdict::Here),
        (Role::Dsp, Broadcast, unsupported(Refusal::MessageDirection)),
    ];
    for (role, message, want) in cases {
        let verdict = decide(role, request(Kind::Other, Route::Implicit(message)));
        assert_eq!(verdict, want, "{message:?}");
    }
}

/// CXL.mem of a host goes by LDST where FAST has nothing, without a segment; plain memory requests do not.
#[test]
fn cxl_mem_of_a_host_goes_by_ldst() {
    let kind = Kind::CxlMemRequest;
    for (address, dpid) in [(LD, 0x201), (LD_ACROSS, 0x202)] {
        assert_eq!(decide(Role::Usp, at(kind, address)), to(Role::Usp, dpid, false));
        assert_ne!(decide(Role::Usp, at(Kind::MemoryRequest, address)), to(Role::Usp, dpid, false));
    }
    assert_eq!(decide(Role::Usp, at(kind, LD_LOST)), unsupported(Refusal::LavClear));
    for address in [LD_HOLE, 4 * TIB] {
        assert_eq!(decide(Role::Usp, at(kind, address)), unsupported(Refusal::NoHdmDecoder));
    }
    assert_eq!(decide(Role::Dsp, at(kind, LD)), unsupported(Refusal::WrongRole), "a device");
}

/// A memory device is asked by its own host, and answers it, as far as LAV has that host.
#[test]
fn a_memory_device_knows_its_host_alone() {
    let port = port(Role::Dsp);
    let [host, lost, other] = [0x201, 0x20E, 0x300].map(pid);
    #[rustfmt::skip] // columns: who asks, whose device it is, why not
    let cases = [
        (host, Some(host),  Ok(())),
        (lost, Some(lost),  Err(Refusal::LavClear)),
        (host, Some(other), Err(Refusal::ForeignHost)),
        (host, None,        Err(Refusal::ForeignHost)),
    ];
    for (spid, owner, want) in cases {
        assert_eq!(may_ask(&port, spid, owner), want, "{spid} {owner:?}");
    }
    for kind in [Kind::CxlMemStatus, Kind::CxlMemResponse] {
        assert_eq!(answer(&port, kind, Some(host)), to(Role::Dsp, 0x201, false));
        let refused = |refusal| Verdict::UnexpectedCompletion(refusal);
        assert_eq!(answer(&port, kind, Some(lost)), refused(Refusal::LavClear));
        assert_eq!(answer(&port, kind, None), refused(Refusal::Unbound));
    }
}

/// The completion goes to the requester that the request names, so a device may only name itself. A host is above all
/// bridges and not checked.
#[test]
fn nobody_reads_a_memory_device_for_another() {
    let named = |bus, address| {
        let requester = Some(Bdf::new(bus, 0, 0));
        Request { requester, ..at(Kind::UioRequest, address) }
    };
    for bus in [2, 5, 9] {
        assert_eq!(decide(Role::Dsp, named(bus, LD)), to(Role::Dsp, 0x201, false), "{bus}");
    }
    for bus in [0, 1, 10, 255] {
        let verdict = decide(Role::Dsp, named(bus, LD));
        assert_eq!(verdict, unsupported(Refusal::ForeignId), "{bus}");
        assert_eq!(decide(Role::Usp, named(bus, LD)), to(Role::Usp, 0x201, false), "{bus}");
        assert_eq!(decide(Role::Dsp, named(bus, GFAM)), to(Role::Dsp, 1, false), "{bus}: by SPID");
    }
}
