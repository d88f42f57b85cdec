//! New routes for a fabric with traffic: a PID that a change does not concern always has a route.
//!
//! A manager ends, a link may go, and another manager starts: after each of its commands all routes are followed.
//!
//! Source: docs/spec/cxl-fabric.md "Change of routes"; "Dynamic change".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use weft_base::rng::Rng;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::discovery::number;
use super::fake::{End, Fake, Kind, Node, Shared, follow};
use super::fake_gfd::GfdState;
use super::service::{manager, status};
use crate::model::graph::{Graph, PortRef, SwitchId, generate};
use crate::model::inventory::{Inventory, OWN_PORT, Partner};
use crate::plan::order::{Arc, Net};
use crate::service::Fm;
use crate::service::status::StartMode;
use crate::state::desired::DesiredState;
use crate::state::store::{State, Store};

fn want() -> DesiredState {
    DesiredState::parse(&format!("[fm]\nuuid = \"{}\"\n", "f1".repeat(16))).unwrap()
}

fn started(shared: &Shared, store: Option<Store>) -> Fm {
    let mut fm = manager(shared, want(), StartMode::FmFirst, store);
    fm.start().unwrap();
    fm
}

/// DRT and RGT groups in use of a switch.
type Tables = (BTreeMap<Pid, DrtEntry>, BTreeMap<u8, RgtEntry>);

/// Tables of all components; those of GFDs are empty.
fn tables(nodes: &[Node]) -> Vec<Tables> {
    let of = |node: &Node| match &node.kind {
        Kind::Gfd(_) => Tables::default(),
        Kind::Switch(state) => {
            let valid =
                state.drt.iter().filter(|(_, e)| **e != DrtEntry::Invalid).map(|(p, e)| (*p, *e));
            let drt: BTreeMap<Pid, DrtEntry> = valid.collect();
            let used = |at: &u8| drt.values().any(|entry| *entry == DrtEntry::Group(*at));
            let rgt = state.rgt.iter().filter(|(at, _)| used(at)).map(|(at, e)| (*at, *e));
            let rgt = rgt.collect();
            (drt, rgt)
        }
    };
    nodes.iter().map(of).collect()
}

/// All pairs of a switch and an edge PID that it reaches.
fn ways(shared: &Shared, inventory: &Inventory) -> Vec<(usize, Pid)> {
    shared.with(|fake| {
        let switches = inventory.by_id().map(|(id, _)| number(inventory, id));
        let pids: Vec<Pid> =
            inventory.pids().filter(|(_, at)| at.port != OWN_PORT).map(|(pid, _)| pid).collect();
        let all = switches.flat_map(|from| pids.iter().map(move |pid| (from, *pid)));
        all.filter(|(from, pid)| fake.follow(*from, *pid).is_some()).collect()
    })
}

/// Follows all `ways` after each command; collects the PIDs to which one did not lead.
fn guarded(shared: &Shared, ways: Vec<(usize, Pid)>) -> std::sync::Arc<Mutex<BTreeSet<Pid>>> {
    let lost = std::sync::Arc::new(Mutex::new(BTreeSet::new()));
    let count = lost.clone();
    shared.with(|fake| {
        let mut sets = fake.sets;
        fake.after = Some(Box::new(move |nodes, now| {
            if std::mem::replace(&mut sets, now) != now {
                let gone = ways.iter().filter(|(from, pid)| follow(nodes, *from, *pid).is_none());
                count.lock().unwrap().extend(gone.map(|(_, pid)| *pid));
            }
        }));
    });
    lost
}

/// Asserts that events name all PIDs that had no route, with the reason: no order of changes is free of deadlock.
/// Returns the number of these PIDs.
fn only_those_that_are_told(fm: &Fm, lost: &Mutex<BTreeSet<Pid>>, name: &str) -> usize {
    let told: Vec<String> = fm.board().events(0).into_iter().map(|event| event.what).collect();
    let why = |what: &&String| what.contains("no route for a moment") && what.contains("deadlock");
    let told: Vec<&String> = told.iter().filter(why).collect();
    let lost = lost.lock().unwrap();
    for pid in lost.iter() {
        let pid = pid.to_string();
        assert!(told.iter().any(|what| what.contains(&pid)), "{name}: {pid}, {told:?}");
    }
    lost.len()
}

fn set_link(shared: &Shared, at: usize, port: u8, up: bool) {
    shared.with(|fake| {
        let far = fake.switch(at).ports[&port].end;
        fake.switch(at).ports.get_mut(&port).unwrap().up = up;
        let End::Node(far, far_port) = far else { panic!("a link") };
        fake.switch(far).ports.get_mut(&far_port).unwrap().up = up;
    });
}

/// A manager ends, a link may go, and another manager starts, with the store or without. All ways that are whole stay
/// so, except to PIDs that an event names; with the store, all tables are as before when the link is back.
#[test]
fn a_manager_that_starts_again_takes_no_way_from_anybody() {
    let mut rng = Rng::new(0x26);
    let mut rounds_with_a_cut = 0;
    for round in 0..24 {
        let graph: Graph = match round % 4 {
            0 => generate::ring(4, 1),
            1 => generate::mesh(5, 1),
            2 => generate::fat_tree(4),
            _ => generate::random(&mut rng, 10, 14, 1),
        }
        .unwrap();
        let mut fake = Fake::of(&graph);
        fake.add(SwitchId(1), Some(GfdState::new(16)));
        let shared = Shared::new(fake);
        let first = started(&shared, Some(Store::in_memory().unwrap()));
        let inventory = first.state().unwrap().inventory;
        let errors = status(&first).errors; // drawn topologies have cables from a switch to itself
        let before = shared.with(|fake| tables(&fake.nodes));
        let links: Vec<[PortRef; 2]> = inventory.links.iter().copied().collect();
        let [end, _] = links[usize::try_from(rng.below(links.len() as u64)).unwrap()];
        let (at, port) = (number(&inventory, end.switch), end.port);
        let (keeps, cuts) = (round % 8 < 4, round % 3 > 0);
        let store = first.into_store().filter(|_| keeps);
        if cuts {
            set_link(&shared, at, port, false);
        }
        let whole = ways(&shared, &inventory);
        let lost = guarded(&shared, whole);
        let mut second = started(&shared, store);
        let name = format!("round {round}: kept {keeps}, cut {cuts}");
        only_those_that_are_told(&second, &lost, &name);
        rounds_with_a_cut += u64::from(cuts);
        if cuts {
            let told = second.board().events(0);
            let said = told.iter().any(|event| event.what.contains("is down"));
            assert_eq!(said, keeps, "{name}: {told:?}");
            set_link(&shared, at, port, true);
            (0..3).for_each(|_| second.watch());
            only_those_that_are_told(&second, &lost, &name);
        }
        assert_eq!(status(&second).errors, errors, "{name}");
        if keeps || !cuts {
            let after = shared.with(|fake| tables(&fake.nodes));
            assert_eq!(after, before, "{name}");
        }
    }
    assert!(rounds_with_a_cut > 10);
}

/// When a link comes back, its former routes come back; an event names PIDs that had no route meanwhile.
#[test]
fn who_has_no_route_while_a_link_comes_back_is_told() {
    let (mut rng, mut without) = (Rng::new(0x260), 0);
    for round in 0..40 {
        let graph = match round % 3 {
            0 => generate::ring(5 + round % 4, 1),
            1 => generate::torus(&[3, 3], 1),
            _ => generate::random(&mut rng, 10, 5, 1),
        };
        let shared = Shared::new(Fake::of(&graph.unwrap()));
        let mut fm = started(&shared, None);
        let before = shared.with(|fake| tables(&fake.nodes));
        let inventory = fm.state().unwrap().inventory;
        let links: Vec<[PortRef; 2]> = inventory.links.iter().copied().collect();
        let some = |rng: &mut Rng| {
            let [end, _] = links[usize::try_from(rng.below(links.len() as u64)).unwrap()];
            (number(&inventory, end.switch), end.port)
        };
        let cut = [some(&mut rng), some(&mut rng)];
        let cut = if cut[0] == cut[1] { &cut[..1] } else { &cut[..] };
        for &(at, port) in cut {
            set_link(&shared, at, port, false);
        }
        (0..3).for_each(|_| fm.watch());
        let lost = guarded(&shared, ways(&shared, &inventory));
        for &(at, port) in cut {
            set_link(&shared, at, port, true);
        }
        (0..3).for_each(|_| fm.watch());
        let name = format!("round {round}");
        without += only_those_that_are_told(&fm, &lost, &name);
        assert_eq!(shared.with(|fake| tables(&fake.nodes)), before, "{name}");
    }
    println!("{without} PIDs had no route for a moment");
}

/// The routes in the switches already wait for each other in a circle, so some are withdrawn first. A manager without a
/// store reports that, too.
#[test]
fn who_has_no_route_while_a_manager_without_a_store_starts_is_told() {
    let shared = Shared::new(Fake::of(&generate::ring(5, 1).unwrap()));
    let first = started(&shared, None);
    let inventory = first.state().unwrap().inventory;
    drop(first);
    // All shortest ways of a ring: together their packets wait for each other in a circle.
    let graph = inventory.graph().unwrap();
    let ends: Vec<(Pid, PortRef)> =
        inventory.pids().filter(|(_, at)| at.port != OWN_PORT).collect();
    for (from, _) in inventory.by_id() {
        let real = number(&inventory, from);
        for (to, at) in ends.iter().filter(|(_, at)| at.switch != from) {
            let net = Net::new(&graph);
            let hops = net.hops(&[at.switch]);
            let near = |arc: &&Arc| hops[arc.far] < hops[from];
            let port = net.arcs(from).iter().find(near).unwrap().port;
            shared.with(|fake| fake.switch(real).drt.insert(*to, DrtEntry::Port(port)));
        }
    }
    let lost = guarded(&shared, ways(&shared, &inventory));
    let second = started(&shared, None);
    let without = only_those_that_are_told(&second, &lost, "a ring of five");
    assert!(without > 0 && without < ends.len(), "{without}: {:?}", second.board().events(0));
    assert_eq!(status(&second).errors, Vec::<String>::new());
}

/// Asserts that partners of ports are the components that are there.
fn partners_are_right(state: &State) {
    let inventory = &state.inventory;
    for (id, switch) in inventory.by_id() {
        for port in &switch.ports {
            let at = PortRef::new(id, port.number);
            match port.partner {
                Partner::Gfd(place) => assert_eq!(inventory.gfds[place].at, at),
                Partner::Switch(far) => {
                    assert!(inventory.link_at(at).unwrap().contains(&far), "{at} {far}");
                }
                _ => {}
            }
        }
    }
}

/// A switch falls silent with all its links: events name the switch and each link, and the manager hardly waits. The
/// inventory keeps its references, and when the switch is back, no error is left.
#[test]
fn a_switch_that_goes_with_all_its_links_is_told_whole_and_at_once() {
    let mut fake = Fake::of(&generate::ring(5, 1).unwrap());
    for at in [1, 2, 4] {
        fake.add(SwitchId(at), Some(GfdState::new(16)));
    }
    let shared = Shared::new(fake);
    let mut fm = started(&shared, None);
    let before = fm.state().unwrap();
    let at = 1; // next to the entry switch: the manager's own way crosses it
    let ports: Vec<u8> = shared.with(|fake| {
        let ports = fake.switch(at).ports.iter();
        let links = ports.filter(|(_, port)| matches!(port.end, End::Node(far, _) if far < 5));
        links.map(|(number, _)| *number).collect()
    });
    assert_eq!(ports.len(), 2);
    for port in &ports {
        set_link(&shared, at, *port, false);
    }
    let (unanswered, after) = (shared.with(|fake| fake.unanswered), fm.board().status().events);
    fm.watch();
    let waited = shared.with(|fake| fake.unanswered) - unanswered;
    assert!(waited <= 2, "each is a quarter of a second: {waited}");
    let told: Vec<String> = fm.board().events(after).into_iter().map(|event| event.what).collect();
    let all = told.join("\n");
    assert_eq!(all.matches("is down").count(), 2, "{all}");
    assert!(all.contains("s1 does not answer: no way leads to it"), "{all}");
    assert!(!all.contains("bound"), "{all}");
    let now = status(&fm);
    assert!(now.errors.iter().any(|line| line.contains("is not there any more")), "{now:?}");
    assert_eq!((now.counts.silent, now.counts.down), (1, 2));
    // A discovery keeps the numbers of components.
    fm.rediscover().unwrap();
    partners_are_right(&fm.state().unwrap());
    let ids = |state: &State| -> Vec<Pid> {
        state.inventory.switches.iter().map(|switch| switch.pid).collect()
    };
    assert_eq!(ids(&fm.state().unwrap()), ids(&before), "numbers stay");
    for port in &ports {
        set_link(&shared, at, *port, true);
    }
    (0..3).for_each(|_| fm.watch());
    assert_eq!(status(&fm).errors, Vec::<String>::new(), "{:#?}", fm.board().events(after));
    assert_eq!(fm.state().unwrap(), before);
}

/// A loss that a discovery finds before any look does is an event, too.
#[test]
fn a_loss_that_a_discovery_finds_is_told() {
    let mut fake = Fake::of(&generate::ring(4, 1).unwrap());
    fake.add(SwitchId(2), Some(GfdState::new(16)));
    let shared = Shared::new(fake);
    let mut fm = started(&shared, None);
    let inventory = fm.state().unwrap().inventory;
    let [end, _] = *inventory.links.first().unwrap();
    set_link(&shared, number(&inventory, end.switch), end.port, false);
    let after = fm.board().status().events;
    fm.rediscover().unwrap();
    let told = fm.board().events(after);
    let said = |part: &str| told.iter().any(|event| event.what.contains(part));
    assert!(said("is down") && said("entries of tables"), "{told:?}");
}

/// RGT groups that a change leaves behind, and entries that a switch forgets at a restart, are not reported as changes
/// by others.
#[test]
fn what_routes_leave_and_a_restart_forgets_is_not_told_as_somebody_elses() {
    let graph = generate::mesh(6, 1).unwrap();
    let shared = Shared::new(Fake::of(&graph));
    let mut fm = started(&shared, None);
    let inventory = fm.state().unwrap().inventory;
    let look = |fm: &mut Fm, what: &dyn std::fmt::Debug| {
        fm.watch();
        fm.watch();
        let told = status(fm).errors;
        assert!(!told.iter().any(|line| line.contains("somebody else")), "{what:?}: {told:?}");
    };
    for ends in inventory.links.iter().copied() {
        let (at, port) = (number(&inventory, ends[0].switch), ends[0].port);
        for up in [false, true] {
            set_link(&shared, at, port, up);
            look(&mut fm, &(ends, up));
        }
    }
    for (id, _) in inventory.by_id().skip(1) {
        let at = number(&inventory, id);
        let ends = inventory.links.iter().flatten().filter(|end| end.switch == id);
        let ports: Vec<u8> = ends.map(|end| end.port).collect();
        let set_all = |up| ports.iter().for_each(|&port| set_link(&shared, at, port, up));
        set_all(false);
        look(&mut fm, &(id, "off"));
        shared.with(|fake| fake.nodes[at] = Fake::of(&graph).nodes.swap_remove(at));
        set_all(true);
        look(&mut fm, &(id, "on again"));
        look(&mut fm, &(id, "later"));
        assert_eq!(status(&fm).errors, Vec::<String>::new(), "{id}");
    }
}
