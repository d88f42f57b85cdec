//! PIDs and bindings: 5703h to 5706h, 5201h and 5202h one by one, and the routes that follow.

use super::*;
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{Binding, EdgePort, Side};
use weft_parsers::cci::pbr::{
    BindOp, BindPid, Chosen, GetPidTargets, PidBinding, PidTargetKind, PidTargets, Vppb,
};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};

fn entry(bits: u16, target: u16, instance: u8) -> PidAssignment {
    PidAssignment { pid: pid(bits), target, instance }
}

fn assign(op: AssignOp, list: &[PidAssignment]) -> Request<'_> {
    Request::AssignPids(AssignPids { op, assignments: List::of(list) })
}

fn unbind(vcs: u8, vppb: u8) -> Request<'static> {
    Request::BindPid(BindPid {
        op: BindOp::Unbind,
        vcs,
        vppb,
        pid: pid(0),
        own: Chosen(None),
        cost: FREE,
    })
}

fn bind_port(vcs: u8, vppb: u8, port: u8, ld: u16) -> Request<'static> {
    Request::BindVppb(BindVppb { vcs, vppb, port, ld })
}

fn unbind_port(vcs: u8, vppb: u8, option: UnbindOption) -> Request<'static> {
    Request::UnbindVppb(UnbindVppb { vcs, vppb, option })
}

impl Bench {
    fn below(&self, vcs: u8, vppb: usize) -> Binding {
        self.switch.tables().vcs(vcs).expect("there").below()[vppb - 1].binding
    }
}

#[test]
fn get_pid_target_list_has_each_place_for_a_pid() {
    let mut bench = Bench::new();
    let list = |start, count| Request::GetPidTargets(GetPidTargets { start, count });
    let payload = bench.ok(FM, &list(0, 255));
    let all: PidTargets<'_> = read(&payload);
    let first = all.targets.get(0).expect("a host's port");
    assert_eq!((all.total, all.targets.len()), (12, 12));
    assert_eq!((first.id, first.kind, first.port), (0, PidTargetKind::HostEdge, 0));
    let last = all.targets.get(11).expect("a fabric port");
    assert_eq!(
        (last.id, last.kind, last.instance, last.pid),
        (5, PidTargetKind::FabricPort, 1, Pid::NONE)
    );
    let payload = bench.ok(FM, &list(3, 2));
    let part: PidTargets<'_> = read(&payload);
    assert_eq!(
        (part.total, part.targets.len(), part.targets.get(0).map(|it| it.id)),
        (12, 2, Some(1))
    );
    bench.bad(FM, &list(13, 1), BAD);
}

#[test]
fn configure_pid_assignment_is_whole_or_nothing() {
    let mut bench = Bench::new();
    bench.ok(FM, &assign(AssignOp::Assign, &[entry(0x20, 0, 0), entry(0x21, 4, 1)]));
    let assigned: Vec<_> = bench.switch.tables().assigned().collect();
    assert_eq!(
        assigned,
        [
            (pid(0x01), Assigned::Switch), // the manager, which has a connection to this switch
            (pid(0x10), Assigned::Switch),
            (pid(0x20), Assigned::Port(port(0))),
            (pid(0x21), Assigned::Port(port(4))),
        ]
    );
    assert_eq!(bench.switch.tables().edge(port(0)).expect("an edge").pid, pid(0x20));
    let good = entry(0x30, 1, 0);
    for (name, op, list) in [
        ("PID of another target", AssignOp::Assign, [good, entry(0x20, 2, 0)]),
        ("PID of another instance", AssignOp::Assign, [good, entry(0x20, 0, 1)]),
        ("PID of the switch", AssignOp::Assign, [good, entry(0x10, 2, 0)]),
        ("one PID twice", AssignOp::Assign, [good, entry(0x30, 2, 0)]),
        ("PID FFF", AssignOp::Assign, [good, entry(0xFFF, 2, 0)]),
        ("no such target", AssignOp::Assign, [good, entry(0x31, 6, 0)]),
        ("no such instance", AssignOp::Assign, [good, entry(0x31, 2, 2)]),
        ("clear what is not assigned", AssignOp::Clear, [entry(0x20, 0, 0), entry(0x21, 3, 0)]),
        ("clear another PID", AssignOp::Clear, [entry(0x20, 0, 0), entry(0x22, 4, 1)]),
        ("clear FFF", AssignOp::Clear, [entry(0x20, 0, 0), entry(0xFFF, 1, 0)]),
    ] {
        println!("{name}");
        bench.bad(FM, &assign(op, &list), BAD);
    }
    bench.ok(FM, &assign(AssignOp::Assign, &[entry(0x22, 0, 0)]));
    assert_eq!(bench.switch.tables().edge(port(0)).expect("an edge").pid, pid(0x22), "another one");
    bench.ok(FM, &assign(AssignOp::Clear, &[entry(0x22, 0, 0), entry(0x21, 4, 1)]));
    assert_eq!(bench.switch.tables().assigned().count(), 2);
    let update =
        ClaimOwnership { op: ClaimOp::UpdatePid, fm: pid(1), fm_uuid: [1; 16], pid: pid(0x11) };
    bench.assign(0, 0, 0x11);
    bench.bad(FM, &Request::ClaimOwnership(update), BAD);
    bench.ok(FM, &assign(AssignOp::Clear, &[entry(0x11, 0, 0)]));
    bench.ok(FM, &Request::ClaimOwnership(update));
    assert_eq!(
        bench.switch.tables().assigned().collect::<Vec<_>>(),
        [(pid(0x01), Assigned::Switch), (pid(0x11), Assigned::Switch)]
    );
}

#[test]
fn bind_and_unbind_vppb_lead_to_a_port_and_back() {
    let mut bench = Bench::new();
    bench.up(1);
    assert_eq!(bench.background(&bind_port(0, 2, 1, 0xFFFF)), ReturnCode::Success);
    assert_eq!(bench.below(0, 2), Binding::Port(port(1)));
    let edge = bench.switch.tables().edge(port(1)).expect("an edge");
    assert_eq!(edge.vcs, Some((0, Side::Below(1))));
    let bridge = &bench.switch.vcs(0).expect("there").vppbs[2].bridge;
    assert!(bridge.is_present() && bridge.link().is_some(), "the host sees it");
    for (name, request) in [
        ("bound already", bind_port(0, 2, 2, 0xFFFF)),
        ("port taken", bind_port(0, 3, 1, 0xFFFF)),
        ("one LD of it", bind_port(0, 3, 1, 0)),
        ("no LD there", bind_port(0, 3, 2, 0)),
        ("a host's port", bind_port(0, 3, 0, 0xFFFF)),
        ("a fabric port", bind_port(0, 3, 4, 0xFFFF)),
        ("no such port", bind_port(0, 3, 9, 0xFFFF)),
        ("no such vPPB", bind_port(0, 5, 2, 0xFFFF)),
        ("no such VCS", bind_port(2, 1, 2, 0xFFFF)),
        ("upstream", bind_port(0, 0, 2, 0xFFFF)),
        ("a vUSP", bind_port(1, 0, 2, 0xFFFF)),
        ("nothing bound", unbind_port(0, 1, UnbindOption::Managed)),
        ("upstream", unbind_port(0, 0, UnbindOption::Surprise)),
        ("no such vPPB", unbind_port(0, 5, UnbindOption::Surprise)),
        ("by port, not by PID", unbind(0, 2)),
    ] {
        println!("{name}");
        bench.bad(FM, &request, BAD);
    }
    assert_eq!(bench.background(&unbind_port(0, 2, UnbindOption::Managed)), ReturnCode::Success);
    assert_eq!(bench.below(0, 2), Binding::Unbound);
    assert_eq!(bench.switch.tables().edge(port(1)).expect("an edge").vcs, None);
    assert!(!bench.switch.vcs(0).expect("there").vppbs[2].bridge.is_present());
}

#[test]
fn lds_of_one_port_are_bound_each_to_its_host() {
    let mut bench = Bench::new();
    bench.up(1);
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    assert_eq!(bench.background(&bind_port(0, 1, 1, 0)), ReturnCode::Success);
    assert_eq!(bench.background(&bind_port(1, 2, 1, 1)), ReturnCode::Success);
    bench.bad(FM, &bind_port(0, 2, 1, 1), BAD);
    bench.bad(FM, &bind_port(0, 2, 1, 2), BAD);
    bench.bad(FM, &bind_port(0, 2, 1, 0xFFFF), BAD);
    assert_eq!(bench.below(1, 2), Binding::Ld { port: port(1), ld: 1 });
    let edge = bench.switch.tables().edge(port(1)).expect("an edge");
    assert_eq!(edge.part(Some(0)).expect("LD 0").vcs, Some((0, Side::Below(0))));
    assert_eq!(edge.part(Some(1)).expect("LD 1").vcs, Some((1, Side::Below(1))));
}

/// A device with LDs is bound only by LD, and one without only as a whole. An unbound LD is reset before another host
/// has it. A binding to an LD that the device does not have any more leads nowhere.
#[test]
fn a_device_with_lds_is_bound_by_ld_alone() {
    let mut bench = Bench::new();
    bench.up(1);
    bench.switch.set_partner(port(1), Partner::Device { lds: 0 });
    bench.bad(FM, &bind_port(0, 1, 1, 0), BAD);
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    let named = |bench: &Bench| bench.switch.tables().edge(port(1)).is_some_and(EdgePort::has_lds);
    assert!(named(&bench), "TLPs name an LD, also while none is bound");
    bench.bad(FM, &bind_port(0, 1, 1, 0xFFFF), BAD);
    assert_eq!(bench.background(&bind_port(0, 1, 1, 1)), ReturnCode::Success);
    assert!(!bench.switch.events().any(|event| matches!(event, Event::LdReset { .. })));
    // The host sees a link only while LD 1 exists, also after another device has come to the port.
    let seen = |bench: &Bench, lds: u8| {
        let edge = bench.switch.tables().edge(port(1)).expect("an edge");
        assert!(edge.has_lds(), "{lds}: TLPs name an LD as long as one is bound");
        let is_up = bench.switch.vcs(0).expect("there").vppbs[1].bridge.link().is_some();
        (edge.part(Some(1)).is_some(), is_up)
    };
    assert_eq!(seen(&bench, 2), (true, true));
    for lds in [1, 0] {
        bench.switch.set_link(port(1), None);
        bench.switch.set_link(port(1), Some(Link::default()));
        assert_eq!(seen(&bench, 0), (false, false), "nobody knows yet");
        bench.switch.set_partner(port(1), Partner::Device { lds });
        assert_eq!(seen(&bench, lds), (false, false), "there is no LD 1 any more");
    }
    bench.switch.set_partner(port(1), Partner::Device { lds: 2 });
    assert_eq!(seen(&bench, 2), (true, true), "it is back");
    assert_eq!(bench.background(&unbind_port(0, 1, UnbindOption::Managed)), ReturnCode::Success);
    let resets: Vec<Event> = bench.switch.events().collect();
    assert!(resets.contains(&Event::LdReset { port: port(1), ld: 1 }), "{resets:?}");
}

#[test]
fn one_bind_goes_on_at_a_time_and_is_looked_at_again_when_it_ends() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(FM, &bind_port(0, 1, 1, 0xFFFF)).0, ReturnCode::BackgroundStarted);
    assert_eq!(bench.below(0, 1), Binding::Unbound, "not yet");
    bench.bad(FM, &bind(0, 2, 0x99), ReturnCode::Busy);
    bench.bad(FM, &bind_port(0, 2, 2, 0xFFFF), ReturnCode::Busy);
    bench.switch.set_partner(port(1), told(0, PidAndKind::GFD));
    bench.wait(Span::from_ms(2));
    let status = bench.switch.common().background.status(bench.now);
    assert_eq!(status.return_code, BAD.bits(), "a GFD is bound to nobody");
    assert_eq!(bench.below(0, 1), Binding::Unbound);
}

#[test]
fn an_unbind_that_waits_for_the_link_ends_with_it_or_gives_up() {
    let mut bench = Bench::new();
    bench.up(1);
    bench.background(&bind_port(0, 1, 1, 0xFFFF));
    let unbind = unbind_port(0, 1, UnbindOption::WaitLinkDown);
    assert_eq!(bench.ask(FM, &unbind).0, ReturnCode::BackgroundStarted);
    bench.wait(Span::from_ms(9_999));
    assert_eq!(bench.below(0, 1), Binding::Port(port(1)));
    bench.wait(Span::from_ms(2));
    let status = bench.switch.common().background.status(bench.now);
    assert_eq!(status.return_code, ReturnCode::Aborted.bits());
    assert_eq!(bench.below(0, 1), Binding::Port(port(1)));
    assert_eq!(bench.ask(FM, &unbind).0, ReturnCode::BackgroundStarted);
    bench.switch.set_link(port(1), None);
    bench.wait(Span::from_ms(1));
    assert_eq!(bench.below(0, 1), Binding::Unbound);
}

//= docs/spec/wire-formats.md §4.5 (5705h, 5706h); CXL 3.1 section 7.7.6.4
#[test]
fn configure_pid_binding_ends_a_virtual_link_at_both_kinds_of_switch() {
    let mut bench = Bench::new();
    bench.assign(0, 0, 0x20);
    bench.assign(4, 0, 0x40);
    let cost = PathCost { latency_base: 1_000, latency: 3, bandwidth_base: 1, bandwidth: 9 };
    let costly =
        BindPid { op: BindOp::Bind, vcs: 0, vppb: 3, pid: pid(0x99), own: Chosen(None), cost };
    assert_eq!(bench.background(&Request::BindPid(costly)), ReturnCode::Success);
    assert_eq!(bench.below(0, 3), Binding::Fabric { spid: pid(0x20), dpid: pid(0x99) });
    let get = |bench: &mut Bench, vcs, vppb| -> PidBinding {
        read(&bench.ok(FM, &Request::GetPidBinding(Vppb { vcs, vppb })))
    };
    let it = get(&mut bench, 0, 3);
    assert_eq!((it.pid, it.host_edge, it.cost), (pid(0x99), pid(0x10), cost));
    assert_eq!(get(&mut bench, 0, 1).pid, Pid::NONE);

    assert_eq!(bench.background(&bind(1, 0, 0x98)), ReturnCode::Success);
    let vcs = bench.switch.tables().vcs(1).expect("there");
    assert_eq!(vcs.upstream().binding, Binding::Fabric { spid: pid(0x40), dpid: pid(0x98) });
    let it = get(&mut bench, 1, 0);
    assert_eq!((it.pid, it.host_edge), (pid(0x98), Pid::NONE));
    for (name, request) in [
        ("bound to another", bind(0, 3, 0x97)),
        ("upstream of a host", bind(0, 0, 0x97)),
        ("PID FFF", bind(0, 1, 0xFFF)),
        ("own PID", bind(0, 1, 0x20)),
        ("the switch itself", bind(0, 1, 0x10)),
        ("no such vPPB", bind(0, 5, 0x97)),
        ("no such VCS", bind(2, 0, 0x97)),
        ("unbound", unbind(0, 1)),
        ("by PID, not by port", unbind_port(0, 3, UnbindOption::Managed)),
        ("its own end is in use", assign(AssignOp::Clear, &[entry(0x20, 0, 0)])),
        ("and is not replaced", assign(AssignOp::Assign, &[entry(0x23, 0, 0)])),
        ("no such vPPB", Request::GetPidBinding(Vppb { vcs: 0, vppb: 5 })),
        ("no such VCS", Request::GetPidBinding(Vppb { vcs: 2, vppb: 0 })),
    ] {
        println!("{name}");
        bench.bad(FM, &request, BAD);
    }
    assert_eq!(bench.background(&bind(0, 3, 0x99)), ReturnCode::Success, "another cost");
    assert_eq!(get(&mut bench, 0, 3).cost, FREE);
    assert_eq!(bench.background(&unbind(0, 3)), ReturnCode::Success);
    assert_eq!(bench.below(0, 3), Binding::Unbound);
    bench.ok(FM, &assign(AssignOp::Clear, &[entry(0x20, 0, 0)]));
}

//= docs/spec/wire-formats.md §4.5 (5706h)
#[test]
fn a_link_has_the_own_pid_that_is_said() {
    let mut bench = Bench::new();
    for (instance, own) in [(0, 0x20), (1, 0x21)] {
        bench.assign(0, instance, own);
    }
    bench.assign(4, 0, 0x40);
    let bind = |vppb, far, own| {
        let own = Chosen(Some(pid(own)));
        let op = BindOp::Bind;
        Request::BindPid(BindPid { op, vcs: 0, vppb, pid: pid(far), own, cost: FREE })
    };
    for (name, own) in
        [("of a fabric port", 0x40), ("nobody's", 0x23), ("far", 0x99), ("none", 0xFFF)]
    {
        println!("{name}");
        bench.bad(FM, &bind(1, 0x99, own), BAD);
    }
    assert_eq!(bench.background(&bind(1, 0x99, 0x21)), ReturnCode::Success);
    assert_eq!(bench.below(0, 1), Binding::Fabric { spid: pid(0x21), dpid: pid(0x99) });
    bench.bad(FM, &bind(2, 0x99, 0x21), BAD); // a second link between the same two ends
    bench.bad(FM, &bind(1, 0x99, 0x20), BAD); // a binding may change its cost, but not its ends
    assert_eq!(bench.background(&bind(1, 0x99, 0x21)), ReturnCode::Success);
    assert_eq!(bench.background(&bind(2, 0x99, 0x20)), ReturnCode::Success);
    assert_eq!(bench.background(&bind(3, 0x98, 0x21)), ReturnCode::Success);
    assert_eq!(bench.below(0, 2), Binding::Fabric { spid: pid(0x20), dpid: pid(0x99) });
    assert_eq!(bench.below(0, 3), Binding::Fabric { spid: pid(0x21), dpid: pid(0x98) });
}

#[test]
fn two_links_to_one_other_end_take_two_pids() {
    let mut bench = Bench::new();
    bench.assign(0, 1, 0x21);
    assert_eq!(bench.background(&bind(0, 1, 0x99)), ReturnCode::Success);
    assert_eq!(bench.background(&bind(0, 2, 0x99)), ReturnCode::Success);
    assert_eq!(bench.below(0, 1), Binding::Fabric { spid: pid(0x21), dpid: pid(0x99) });
    assert_eq!(bench.below(0, 2), Binding::Unbound, "no PID is left for it");
    bench.assign(0, 0, 0x20);
    assert_eq!(bench.below(0, 2), Binding::Fabric { spid: pid(0x20), dpid: pid(0x99) });
    assert_eq!(bench.below(0, 1), Binding::Fabric { spid: pid(0x21), dpid: pid(0x99) });
}
