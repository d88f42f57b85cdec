//! Bindings: ends that may be bound, and their state after failures.
//!
//! A line of three edge switches, the first with a host.
//!
//! Source: CXL 3.1 sections 7.7.6.1, 7.7.6.4.

use weft_base::rng::Rng;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::fabric::Pid;

use super::discovery::{US, number};
use super::fake::{Fake, Faults, Shared};
use super::plan::set_up;
use crate::components::bind::{BindError, Bindings, Bridge, LinkEnd, Local, Remote};
use crate::model::graph::{SwitchId, generate};
use crate::model::inventory::{Inventory, Target, TargetKind};

pub const COST: PathCost =
    PathCost { latency_base: 1_000, latency: 250, bandwidth_base: 1_000, bandwidth: 64 };

fn bridge(switch: u16, vcs: u8, vppb: u8) -> Bridge {
    Bridge { switch: SwitchId(switch), vcs, vppb }
}

fn pid(inventory: &Inventory, at: u16, kind: TargetKind) -> Pid {
    let targets = &inventory.switches[usize::from(at)].targets;
    targets.iter().find(|t| t.kind == kind && !t.pid.is_none()).unwrap().pid
}

/// Three switches in a row, two hosts and a device at each.
pub fn fabric() -> (Shared, Inventory) {
    let mut fake = Fake::of(&generate::line(3, 2).unwrap());
    for at in 0..3 {
        fake.add(SwitchId(at), None);
    }
    let shared = Shared::new(fake);
    let (inventory, ..) = set_up(&shared);
    for (id, _) in inventory.by_id() {
        assert_eq!(number(&inventory, id), usize::from(id.0), "found in the order of the line");
    }
    (shared, inventory)
}

pub fn link(inventory: &Inventory, host: Bridge, below: Bridge) -> Remote {
    let host = LinkEnd { bridge: host, pid: pid(inventory, host.switch.0, TargetKind::Host) };
    let below = LinkEnd { bridge: below, pid: pid(inventory, below.switch.0, TargetKind::Fabric) };
    Remote { host, below }
}

fn shown(shared: &Shared, at: Bridge) -> (u8, Pid) {
    shared.with(|fake| {
        let vppb = fake.switch(usize::from(at.switch.0)).vcss[usize::from(at.vcs)].vppbs
            [usize::from(at.vppb)];
        (vppb.0, vppb.3)
    })
}

#[test]
fn a_virtual_link_is_bound_at_both_ends_and_unbound_again() {
    let (shared, inventory) = fabric();
    let mut fabric = shared.fabric(US);
    let mut bindings = Bindings::default();
    let wanted = link(&inventory, bridge(0, 0, 1), bridge(2, 2, 0));
    bindings.bind_remote(&mut fabric, &inventory, wanted, COST).unwrap();
    assert_eq!(shown(&shared, wanted.host.bridge), (4, wanted.below.pid));
    assert_eq!(shown(&shared, wanted.below.bridge), (4, wanted.host.pid));
    let cost = shared.with(|fake| fake.switch(2).vcss[2].vppbs[0].4);
    assert_eq!(cost, Some(COST), "the path's cost is told");
    assert_eq!(bindings.compare(&mut fabric, &inventory).unwrap(), []);
    bindings.unbind_remote(&mut fabric, &inventory, wanted.host.bridge, COST).unwrap();
    assert_eq!(shown(&shared, wanted.host.bridge).0, 0);
    assert_eq!(shown(&shared, wanted.below.bridge).0, 0);
    assert_eq!(bindings, Bindings::default());
}

#[test]
fn a_device_is_bound_to_one_bridge_of_its_switch() {
    let (shared, inventory) = fabric();
    let mut fabric = shared.fabric(US);
    let mut bindings = Bindings::default();
    let port = inventory.switches[0].ports.last().unwrap().number;
    let wanted = Local { bridge: bridge(0, 0, 1), port, ld: None };
    bindings.bind_local(&mut fabric, &inventory, wanted).unwrap();
    assert_eq!(shown(&shared, wanted.bridge).0, 2);
    let second = Local { bridge: bridge(0, 1, 1), ..wanted };
    let refused = bindings.bind_local(&mut fabric, &inventory, second);
    assert!(matches!(refused, Err(BindError::DeviceTaken { .. })), "{refused:?}");
    let host_port = inventory.switches[0]
        .ports
        .iter()
        .find(|p| p.role == crate::model::inventory::Role::Usp)
        .unwrap();
    let no_device = Local { bridge: bridge(0, 0, 2), port: host_port.number, ld: None };
    let refused = bindings.bind_local(&mut fabric, &inventory, no_device);
    assert!(matches!(refused, Err(BindError::NoDevice(_))), "{refused:?}");
    bindings.unbind_local(&mut fabric, &inventory, wanted.bridge, UnbindOption::Managed).unwrap();
    assert_eq!(shown(&shared, wanted.bridge).0, 0);
}

type Case = (&'static str, Remote, fn(&BindError) -> bool);

#[test]
fn a_host_sees_one_level_and_links_differ_in_pids() {
    let (shared, inventory) = fabric();
    let mut fabric = shared.fabric(US);
    let mut bindings = Bindings::default();
    let first = link(&inventory, bridge(0, 0, 1), bridge(1, 2, 0));
    bindings.bind_remote(&mut fabric, &inventory, first, COST).unwrap();
    let mut strange = link(&inventory, bridge(0, 0, 2), bridge(2, 2, 0));
    strange.below.pid = Pid::from_low_bits(0xABC);
    #[rustfmt::skip] // columns: name, wanted, test of the error
    let cases: [Case; 6] = [
        ("the same PIDs", link(&inventory, bridge(0, 0, 2), bridge(1, 3, 0)), |e| matches!(e, BindError::PidsTaken { .. })),
        ("below itself", link(&inventory, bridge(0, 0, 2), bridge(0, 2, 0)), |e| matches!(e, BindError::TooDeep(_))),
        ("third level",  link(&inventory, bridge(1, 2, 1), bridge(2, 2, 0)), |e| matches!(e, BindError::TooDeep(_))),
        ("taken",        link(&inventory, bridge(0, 0, 1), bridge(2, 2, 0)), |e| matches!(e, BindError::Taken(_))),
        ("no bridge",    link(&inventory, bridge(0, 0, 9), bridge(2, 2, 0)), |e| matches!(e, BindError::NoBridge(_))),
        ("no such PID",  strange,                                            |e| matches!(e, BindError::WrongPid { .. })),
    ];
    let before = shared.with(|fake| fake.sets);
    for (name, wanted, expected) in cases {
        let refused = bindings.bind_remote(&mut fabric, &inventory, wanted, COST).unwrap_err();
        assert!(expected(&refused), "{name}: {refused:?}");
    }
    assert_eq!(shared.with(|fake| fake.sets), before, "nothing was sent");
    // A link of another host has that host's PID, so its PIDs differ.
    let mut other = link(&inventory, bridge(0, 1, 1), bridge(1, 3, 0));
    let is_host = |t: &&Target| t.kind == TargetKind::Host && t.vcs == 1 && !t.pid.is_none();
    let targets = &inventory.switch(SwitchId(0)).unwrap().targets;
    other.host.pid = targets.iter().find(is_host).unwrap().pid;
    bindings.bind_remote(&mut fabric, &inventory, other, COST).unwrap();
}

#[test]
fn when_the_hosts_end_fails_the_other_is_undone() {
    let (shared, inventory) = fabric();
    let mut fabric = shared.fabric(US);
    let mut bindings = Bindings::default();
    let wanted = link(&inventory, bridge(0, 0, 1), bridge(2, 2, 0));
    shared.with(|fake| fake.switch(0).fail_background = true);
    let failed = bindings.bind_remote(&mut fabric, &inventory, wanted, COST);
    assert!(
        matches!(failed, Err(BindError::Undone(at, _)) if at == wanted.host.bridge),
        "{failed:?}"
    );
    assert_eq!(shown(&shared, wanted.below.bridge).0, 0);
    assert_eq!(bindings, Bindings::default());
    bindings.bind_remote(&mut fabric, &inventory, wanted, COST).unwrap();
}

/// Whichever messages get lost, both ends are bound, or neither is, or the error names the rest.
#[test]
fn lost_answers_leave_no_half_link_silently() {
    let (mut bound, mut undone, mut left) = (0, 0, 0);
    for seed in 0..400 {
        let (shared, inventory) = fabric();
        let mut fabric = shared.fabric(US);
        let mut bindings = Bindings::default();
        let wanted = link(&inventory, bridge(0, 0, 1), bridge(2, 2, 0));
        shared.with(|fake| fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 250 }));
        let outcome = bindings.bind_remote(&mut fabric, &inventory, wanted, COST);
        shared.with(|fake| fake.faults = None);
        let ends = (shown(&shared, wanted.host.bridge).0, shown(&shared, wanted.below.bridge).0);
        match outcome {
            Ok(()) => {
                assert_eq!(ends, (4, 4), "seed {seed}");
                bound += 1;
            }
            Err(BindError::Left { .. }) => {
                let differ = bindings.compare(&mut fabric, &inventory).unwrap();
                assert_eq!(differ.is_empty(), ends == (0, 0), "seed {seed}: it can be found");
                left += 1;
            }
            Err(_) => {
                assert_eq!(ends, (0, 0), "seed {seed}");
                undone += 1;
            }
        }
    }
    assert!(bound > 50 && undone > 50, "{bound} bound, {undone} undone, {left} left");
}
