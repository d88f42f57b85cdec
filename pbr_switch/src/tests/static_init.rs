//! A switch with a static configuration has the same tables as after commands, and refuses commands that change them.

use weft_parsers::cci::pbr::{BindOp, BindPid, Chosen};
use weft_parsers::cci::tables::{Rgt, SetDrt};
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::fabric::{DrtEntry, RgtEntry, RgtMode};

use super::*;

/// A switch after commands of a manager. PIDs: host port, a device, and both ports to other switches, which form a
/// group. Routes by a port and by the group. Bindings: a device of the host, and a virtual link down and one up.
fn managed() -> Switch {
    let mut bench = Bench::new();
    let entry = |bits, target, instance| PidAssignment { pid: pid(bits), target, instance };
    let list = [
        entry(0x20, 0, 0),
        entry(0x21, 1, 0),
        entry(0x24, 4, 0),
        entry(0x34, 4, 1),
        entry(0x25, 5, 0),
    ];
    let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&list) };
    bench.ok(FM, &Request::AssignPids(assign));
    let (mode, ports) = (RgtMode::CongestionAvoiding, [4, 5, 0, 0, 0, 0, 0, 0]);
    let group = RgtEntry { ports, highest: 1, primary: 0, mode, mix: 3 };
    bench.ok(FM, &Request::SetRgt(Rgt { table: 0, start: 2, entries: List::of(&[group]) }));
    let routes = [DrtEntry::Port(5), DrtEntry::Group(2)];
    let set = SetDrt { table: 0, start: 0x40, entries: List::of(&routes) };
    bench.ok(FM, &Request::SetDrt(set));
    let to_manager = SetDrt { table: 0, start: 1, entries: List::of(&[DrtEntry::Port(4)]) };
    bench.ok(FM, &Request::SetDrt(to_manager));
    let cost = PathCost { latency_base: 1_000, latency: 7, bandwidth_base: 16, bandwidth: 9 };
    let bind = BindOp::Bind;
    for request in [
        Request::BindVppb(BindVppb { vcs: 0, vppb: 2, port: 1, ld: 0xFFFF }),
        Request::BindPid(BindPid {
            op: bind,
            vcs: 0,
            vppb: 3,
            pid: pid(0x40),
            own: Chosen(None),
            cost,
        }),
        Request::BindPid(BindPid {
            op: bind,
            vcs: 1,
            vppb: 0,
            pid: pid(0x41),
            own: Chosen(None),
            cost: FREE,
        }),
    ] {
        assert_eq!(bench.background(&request), ReturnCode::Success, "{request:?}");
    }
    bench.switch
}

fn set_up() -> StaticInit {
    StaticInit::of(&managed())
}

fn with(static_init: StaticInit) -> Result<Switch, ConfigError> {
    Switch::new(SwitchConfig { static_init: Some(static_init), ..config() })
}

#[test]
fn what_a_manager_has_set_up_is_there_from_the_start() {
    let (before, static_init) = (managed(), set_up());
    assert_eq!(
        (static_init.pid, static_init.targets.len(), static_init.binds.len()),
        (pid(0x10), 5, 3)
    );
    assert!(
        !static_init.routes.iter().any(|(to, _)| *to == pid(1)),
        "the way to its manager is its own"
    );
    let switch = with(static_init.clone()).expect("a switch");
    assert_eq!(StaticInit::of(&switch), static_init);
    let own = |switch: &Switch| -> Vec<_> {
        switch.tables().assigned().filter(|(taken, _)| *taken != pid(1)).collect()
    };
    assert_eq!(own(&switch), own(&before));
    for to in (0..).map_while(Pid::assignable).filter(|to| *to != pid(1)) {
        let routes = |switch: &Switch| switch.tables().routes().drt(to);
        assert_eq!(routes(&switch), routes(&before), "{to}");
    }
    assert_eq!(switch.tables().routes().rgt(2), before.tables().routes().rgt(2));
    for vcs in [0, 1] {
        let bound = |switch: &Switch| -> Vec<_> {
            switch.vcs(vcs).expect("there").vppbs.iter().map(|vppb| vppb.bound).collect()
        };
        assert_eq!(bound(&switch), bound(&before), "virtual switch {vcs}");
        let placed = |switch: &Switch| -> Vec<_> {
            let below = switch.tables().vcs(vcs).expect("there").below();
            below.iter().map(|vppb| vppb.binding).collect()
        };
        assert_eq!(placed(&switch), placed(&before), "virtual switch {vcs}");
    }
    // Virtual links of the static configuration raise the same events as those that a manager binds.
    let mut switch = switch;
    let ends: Vec<_> = switch
        .events()
        .filter_map(|event| match event {
            Event::PidBinding { vcs, vppb, bound, own, far } => Some((vcs, vppb, bound, own, far)),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(0, 3, true, pid(0x20), pid(0x40)), (1, 0, true, pid(0x24), pid(0x41))]);
}

#[test]
fn nothing_of_it_can_be_changed_by_a_command() {
    let mut bench = Bench { switch: with(set_up()).expect("a switch"), now: Instant::ZERO };
    let claim = |own| {
        let (op, fm) = (ClaimOp::RegisterPrimary, pid(1));
        Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid: [1; 16], pid: pid(own) })
    };
    bench.bad(FM, &claim(0x11), BAD); // the others' routes already lead to its own PID 010h
    bench.ok(FM, &claim(0x10));
    let entry = [PidAssignment { pid: pid(0x50), target: 2, instance: 0 }];
    let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&entry) };
    let drt = [DrtEntry::Port(4)];
    let set = SetDrt { table: 0, start: 0x50, entries: List::of(&drt) };
    let rgt = [RgtEntry::default()];
    let group = Rgt { table: 0, start: 0, entries: List::of(&rgt) };
    let port = BindVppb { vcs: 0, vppb: 1, port: 2, ld: 0xFFFF };
    let away = UnbindVppb { vcs: 0, vppb: 2, option: UnbindOption::WaitLinkDown };
    for request in [
        Request::AssignPids(assign),
        Request::SetDrt(set),
        Request::SetRgt(group),
        Request::BindVppb(port),
        Request::UnbindVppb(away),
        bind(0, 1, 0x42),
    ] {
        bench.bad(FM, &request, ReturnCode::Unsupported);
    }
    for opcode in [Opcode::CONFIGURE_ACCESS, Opcode::CONFIGURE_LDST_ACCESS, Opcode::SET_PREFIX] {
        assert!(!bench.switch.commands().iter().any(|command| command.opcode == opcode));
    }
    // Commands that only read are answered.
    bench.ok(FM, &Request::IdentifyPbrSwitch);
    assert_eq!(StaticInit::of(&bench.switch), set_up());
}

#[test]
fn what_cannot_be_is_refused_by_its_place() {
    let other = |change: fn(&mut StaticInit)| {
        let mut static_init = set_up();
        change(&mut static_init);
        match with(static_init) {
            Err(ConfigError::StaticInit(error)) => error,
            result => panic!("{:?}", result.map(|_| "a switch")),
        }
    };
    let target = |pid, instance| StaticInitError::Target { port: 0, instance, pid };
    let bind = |vcs, vppb| StaticInitError::Bind { vcs, vppb };
    assert_eq!(other(|it| it.pid = Pid::NONE), StaticInitError::Own(Pid::NONE));
    assert_eq!(other(|it| it.targets[0].pid = pid(0x10)), target(pid(0x10), 0));
    assert_eq!(other(|it| it.targets[0].instance = 2), target(pid(0x20), 2));
    assert_eq!(
        other(|it| it.targets.push(StaticPid { pid: pid(0x77), ..it.targets[0] })),
        target(pid(0x77), 0)
    );
    assert_eq!(other(|it| it.groups[0].0 = 4), StaticInitError::Group(4));
    assert_eq!(other(|it| it.groups[0].1.ports[0] = 60), StaticInitError::Group(2));
    assert_eq!(other(|it| it.routes[0].1 = DrtEntry::Port(60)), StaticInitError::Route(pid(0x40)));
    assert_eq!(other(|it| it.binds[0].vppb = 9), bind(0, 9));
    assert_eq!(other(|it| it.binds[0].vppb = 3), bind(0, 3)); // vPPB 3 has the virtual link already
    assert_eq!(other(|it| it.binds[0].to = BindingEnd::Port(port(4))), bind(0, 2));
    let own = |own| BindingEnd::Link { own, far: pid(0x40), cost: FREE };
    assert_eq!(StaticBinding { to: own(pid(0x20)), ..set_up().binds[1] }.vppb, 3);
    assert_eq!(
        other(|it| {
            let BindingEnd::Link { far, cost, .. } = it.binds[1].to else { panic!("a link") };
            it.binds[1].to = BindingEnd::Link { own: Pid::from_low_bits(0x24), far, cost };
        }),
        bind(0, 3),
        "a host's link begins at the host's port"
    );
}
