//! PIDs and routes brought into fabrics, undisturbed and disturbed.
//!
//! The manager discovers a fabric, numbers it, and sends routes, which are followed hop by hop in the fake switches.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.6.5.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_parsers::fabric::Pid;

use super::discovery::{US, found, number};
use super::fake::{Fake, Faults, Kind, Shared};
use super::fake_gfd::GfdState;
use crate::cci::send::{SendError, Sent, send};
use crate::cci::wires::read_all;
use crate::model::graph::{Graph, SwitchId, generate};
use crate::model::inventory::{Inventory, OWN_PORT};
use crate::plan::{self, Options, Plan};

/// Discovers, numbers, routes and sends.
pub fn set_up(shared: &Shared) -> (Inventory, Plan, Sent) {
    let inventory = found(shared).inventory;
    let options = Options::default();
    let (numbered, assignments) = plan::number(&inventory, &options).unwrap();
    let plan = plan::make(&numbered, &options, None).unwrap();
    let mut fabric = shared.fabric(US);
    let (mut standing, silent) = read_all(&mut fabric, &inventory);
    assert!(silent.is_empty(), "{silent:?}");
    let sent = send(&mut fabric, &numbered, &assignments, &plan, &mut standing, || {}).unwrap();
    (numbered, plan, sent)
}

/// Every edge PID and GFD is reached from every switch, in the fake's own tables.
pub fn all_reach_all(shared: &Shared, inventory: &Inventory) {
    shared.with(|fake| {
        for (from, _) in inventory.by_id() {
            for (pid, at) in inventory.pids().filter(|(_, at)| at.port != OWN_PORT) {
                let got = fake.follow(number(inventory, from), pid);
                let want = fake.nodes.iter().position(|node| node.base.pid == pid);
                let want = want.unwrap_or_else(|| number(inventory, at.switch));
                assert_eq!(got, Some(want), "{pid} from {from}");
            }
        }
    });
}

#[test]
fn every_pid_is_reached_from_everywhere() {
    let mut rng = Rng::new(0x0009);
    let mut shapes: Vec<Graph> = vec![
        generate::fat_tree(4).unwrap(),
        generate::ring(6, 2).unwrap(),
        generate::mesh(5, 1).unwrap(),
    ];
    for _ in 0..12 {
        shapes.push(generate::random(&mut rng, 25, 20, 2).unwrap());
    }
    for graph in shapes {
        let mut fake = Fake::of(&graph);
        fake.add(SwitchId(0), Some(GfdState::new(4)));
        fake.add(SwitchId(1), None);
        let shared = Shared::new(fake);
        let (inventory, _, _) = set_up(&shared);
        all_reach_all(&shared, &inventory);
        let again = set_up(&shared).2;
        assert_eq!((again.pids, again.entries), (0, 0), "nothing is left to send");
    }
}

#[test]
fn targets_keep_their_pids_and_doubles_lose_them() {
    let graph = generate::line(2, 2).unwrap();
    let mut fake = Fake::of(&graph);
    let same = Pid::from_low_bits(0x123);
    for at in 0..2 {
        let target = fake.switch(at).targets.iter_mut().find(|target| target.1 as u8 == 1).unwrap();
        target.5 = same;
    }
    let shared = Shared::new(fake);
    let (inventory, ..) = set_up(&shared);
    assert_eq!(inventory.pids().filter(|(pid, _)| *pid == same).count(), 1);
    all_reach_all(&shared, &inventory);
}

#[test]
fn a_target_has_as_many_pids_as_asked_for() {
    let graph = generate::line(2, 1).unwrap();
    let shared = Shared::new(Fake::of(&graph));
    let inventory = found(&shared).inventory;
    let host = inventory.switches[0]
        .targets
        .iter()
        .find(|t| t.vcs == 0 && t.kind == crate::model::inventory::TargetKind::Host)
        .unwrap()
        .id;
    let pids = BTreeMap::from([((SwitchId(0), host), 2)]);
    let (numbered, assignments) =
        plan::number(&inventory, &Options { pids, ..Options::default() }).unwrap();
    assert_eq!(assignments.iter().filter(|a| (a.at, a.target) == (SwitchId(0), host)).count(), 2);
    assert_eq!(assignments.len(), 3, "two here, one at the other host");
    assert!(plan::make(&numbered, &Options::default(), None).is_ok());
}

/// When answers get lost, each failure is an error, and a manager that sends again until it works has sent everything.
#[test]
fn lost_answers_leave_nothing_half_done_silently() {
    let mut failures = 0;
    for seed in 0..20 {
        let graph = generate::random(&mut Rng::new(seed), 8, 6, 2).unwrap();
        let shared = Shared::new(Fake::of(&graph));
        let inventory = found(&shared).inventory;
        shared.with(|fake| fake.faults = Some(Faults { rng: Rng::new(seed), per_mille: 120 }));
        let mut done = false;
        for _ in 0..200 {
            let options = Options::default();
            let mut fabric = shared.fabric(US);
            let mut now = inventory.clone();
            let mut read = true;
            for switch in &mut now.switches {
                match crate::cci::switch_state::targets(&mut fabric, switch.way()) {
                    Ok(targets) => switch.targets = targets,
                    Err(_) => read = false,
                }
            }
            let (mut standing, silent) = read_all(&mut fabric, &now);
            if !read || !silent.is_empty() {
                continue;
            }
            let (numbered, assignments) = plan::number(&now, &options).unwrap();
            let plan = plan::make(&numbered, &options, None).unwrap();
            match send(&mut fabric, &numbered, &assignments, &plan, &mut standing, || {}) {
                Ok(_) => {
                    shared.with(|fake| fake.faults = None);
                    all_reach_all(&shared, &numbered);
                    done = true;
                    break;
                }
                Err(SendError::Stopped { .. }) => failures += 1,
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        assert!(done, "seed {seed}");
    }
    assert!(failures > 10, "the faults bite: {failures}");
}

/// The read-back finds a switch that accepts a command, but does not keep the entry.
#[test]
fn a_switch_that_forgets_is_found_out() {
    let graph = generate::ring(4, 1).unwrap();
    let shared = Shared::new(Fake::of(&graph));
    let inventory = found(&shared).inventory;
    let options = Options::default();
    let (numbered, assignments) = plan::number(&inventory, &options).unwrap();
    let plan = plan::make(&numbered, &options, None).unwrap();
    let mut fabric = shared.fabric(US);
    let (mut standing, _) = read_all(&mut fabric, &inventory);
    let victim = numbered.switches[2].targets.iter().find(|t| !t.pid.is_none()).unwrap().pid;
    shared.with(|fake| {
        fake.after = Some(Box::new(move |nodes, _| {
            if let Kind::Switch(state) = &mut nodes[0].kind {
                state.drt.remove(&victim);
            }
        }));
    });
    let sent = send(&mut fabric, &numbered, &assignments, &plan, &mut standing, || {});
    assert!(matches!(sent, Err(SendError::ReadBack { differences: 1, .. })), "{sent:?}");
}

/// 320 switches and 1,024 hosts, all of whose tables are sent.
#[test]
fn a_fat_tree_of_sixteen_pods() {
    let graph = generate::fat_tree(16).unwrap();
    let shared = Shared::new(Fake::of(&graph));
    let (inventory, plan, sent) = set_up(&shared);
    assert_eq!((inventory.switches.len(), inventory.links.len()), (320, 2_048));
    assert_eq!(sent.pids, 1_024);
    assert_eq!(sent.withdrawn.len(), 0);
    assert_eq!(plan.proof.hops_max, 6, "up two tiers and down two, with the hosts' links");
}
