//! Discovery of all sorts of fabrics, healthy and not.
//!
//! Each test compares the findings in a fake fabric with the graph behind it.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use std::collections::BTreeSet;

use weft_base::rng::Rng;
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

use super::fake::{End, Fake, FakePort, Faults, Shared};
use super::fake_gfd::GfdState;
use crate::discover::{Discovered, Finding, Options, discover};
use crate::model::graph::{Graph, Key, PortRef, SwitchId, generate};
use crate::model::inventory::{Inventory, Manager, Partner, Role};
use crate::model::rules::{Forbidden, Rule};

pub const US: Uuid = [0xF1; 16];

pub fn manager() -> Manager {
    Manager { uuid: US, pid: Pid::from_low_bits(0xFFE) }
}

pub fn found(shared: &Shared) -> Discovered {
    discover(&mut shared.fabric(US), &Options::new(manager())).unwrap()
}

/// The number in the fake fabric of a switch that was found.
pub fn number(inventory: &Inventory, id: SwitchId) -> usize {
    let uuid = inventory.switch(id).unwrap().uuid;
    uuid.map_or(0, |uuid| {
        usize::try_from(u64::from_be_bytes(uuid[8..].try_into().unwrap())).unwrap()
    })
}

/// Links as the fake fabric numbers switches.
fn links(inventory: &Inventory) -> BTreeSet<[PortRef; 2]> {
    let real = |end: PortRef| PortRef::new(SwitchId::at(number(inventory, end.switch)), end.port);
    let sorted = |mut ends: [PortRef; 2]| {
        ends.sort_unstable();
        ends
    };
    inventory.links.iter().map(|ends| sorted(ends.map(real))).collect()
}

/// Links of two switches; those of a switch to itself are against the rules.
fn true_links(graph: &Graph) -> BTreeSet<[PortRef; 2]> {
    let sorted = |mut ends: [PortRef; 2]| {
        ends.sort_unstable();
        ends
    };
    let two = graph.links().filter(|(_, link)| link.ends[0].switch != link.ends[1].switch);
    two.map(|(_, link)| sorted(link.ends)).collect()
}

fn is_complete(name: &str, graph: &Graph, found: &Discovered) {
    let inventory = &found.inventory;
    let itself = |finding: &Finding| matches!(finding, Finding::Forbidden { what, .. } if *what == Forbidden::ITSELF);
    assert!(found.findings.iter().all(itself), "{name}: {:?}", found.findings);
    let loops = graph.links().count() - true_links(graph).len();
    assert_eq!(found.findings.len(), 2 * loops, "{name}: both ends of each");
    let numbers: BTreeSet<usize> = inventory.by_id().map(|(id, _)| number(inventory, id)).collect();
    assert_eq!(numbers.len(), graph.switch_count(), "{name}");
    assert_eq!(inventory.switches.len(), graph.switch_count(), "{name}");
    assert_eq!(links(inventory), true_links(graph), "{name}");
    let pids: Vec<Pid> = inventory.pids().map(|(pid, _)| pid).collect();
    let different: BTreeSet<Pid> = pids.iter().copied().collect();
    assert_eq!((pids.len(), pids.contains(&Pid::NONE)), (different.len(), false), "{name}");
    let hosts = inventory.switches.iter().flat_map(|switch| &switch.ports);
    let hosts = hosts.filter(|port| port.partner == Partner::Host).count();
    assert_eq!(hosts, graph.endpoint_count(), "{name}");
}

#[test]
fn random_fabrics_are_found_whole() {
    let mut rng = Rng::new(0xD15C);
    for round in 0..40 {
        let count = 1 + usize::try_from(rng.below(60)).unwrap();
        let extra = usize::try_from(rng.below(80)).unwrap();
        let graph = generate::random(&mut rng, count, extra, 2).unwrap();
        let shared = Shared::new(Fake::of(&graph));
        is_complete(&format!("round {round}: {count} switches"), &graph, &found(&shared));
    }
}

#[test]
fn shapes_of_every_kind_are_found_whole() {
    let shapes = [
        ("one", generate::line(1, 2)),
        ("one with a loop", generate::ring(1, 2)),
        ("two with two links", generate::ring(2, 1)),
        ("mesh of figure 7-43", generate::mesh(4, 2)),
        ("torus", generate::torus(&[3, 3], 1)),
        ("fat tree", generate::fat_tree(4)),
    ];
    for (name, graph) in shapes {
        let graph = graph.unwrap();
        is_complete(name, &graph, &found(&Shared::new(Fake::of(&graph))));
    }
}

#[test]
fn gfds_and_devices_are_found_at_their_ports() {
    let mut fake = Fake::of(&generate::line(3, 1).unwrap());
    let gfd = fake.add(SwitchId(2), Some(GfdState::new(64)));
    let device = fake.add(SwitchId(1), None);
    let shared = Shared::new(fake);
    let found = found(&shared);
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let inventory = found.inventory;
    let [one] = inventory.gfds[..] else { panic!("{:?}", inventory.gfds) };
    assert_eq!((number(&inventory, one.at.switch), one.at.port, one.capacity), (2, gfd, 64));
    assert!(shared.with(|fake| fake.nodes[3].base.pid == one.pid));
    let (_, second) = inventory.by_id().find(|(id, _)| number(&inventory, *id) == 1).unwrap();
    let port = second.port(device).unwrap();
    assert_eq!((port.role, port.partner), (Role::Dsp, Partner::Device(4)));
}

/// An edge port passes requests of a GFD with the port's PID only, so the manager assigns the PID to the port first. It
/// does not manage a GFD that gives another PID.
#[test]
fn a_gfd_has_the_pid_of_its_port() {
    let mut fake = Fake::of(&generate::line(3, 1).unwrap());
    let port = fake.add(SwitchId(2), Some(GfdState::new(64)));
    let shared = Shared::new(fake);
    let pid_of_port = |shared: &Shared| {
        shared.with(|fake| {
            let of_port = |target: &&(_, _, _, _, u8, Pid)| target.4 == port;
            fake.switch(2).targets.iter().find(of_port).unwrap().5
        })
    };
    for round in 0..2 {
        let found = found(&shared);
        assert!(found.findings.is_empty(), "{:?}", found.findings);
        let [gfd] = found.inventory.gfds[..] else { panic!("{:?}", found.inventory.gfds) };
        assert_eq!(pid_of_port(&shared), gfd.pid, "{round}");
        let at_port = found.inventory.pids().filter(|(pid, _)| *pid == gfd.pid);
        assert_eq!(at_port.map(|(_, at)| at).collect::<Vec<_>>(), [gfd.at], "once");
    }
    let given = pid_of_port(&shared);
    let other = Pid::from_low_bits(given.bits() + 0x111);
    shared.with(|fake| fake.nodes[3].base.pid = other);
    let found = found(&shared);
    let [Finding::Stranger { pid, .. }] = found.findings[..] else {
        panic!("{:?}", found.findings)
    };
    assert_eq!((pid, found.inventory.gfds.len(), pid_of_port(&shared)), (other, 0, given));
}

type Case = (&'static str, fn(&mut Fake), fn(&Finding) -> bool);

#[test]
fn what_is_wrong_is_reported_and_the_rest_is_found() {
    let graph = generate::mesh(5, 1).unwrap();
    let cases: [Case; 4] = [
        ("garbage", |f| f.nodes[3].base.garbage = true, |f| matches!(f, Finding::Silent { .. })),
        ("gone", |f| f.nodes[3].base.gone = true, |f| matches!(f, Finding::Silent { .. })),
        (
            "owned",
            |f| f.nodes[3].base.primary = Some((Pid::from_low_bits(9), [9; 16])),
            |f| matches!(f, Finding::Owned { owner, .. } if *owner == [9; 16]),
        ),
        (
            "fabric port to a downstream port",
            |f| f.switch(3).ports.values_mut().for_each(|port| port.config = 3),
            |f| matches!(f, Finding::Forbidden { .. }),
        ),
    ];
    for (name, damage, expected) in cases {
        let mut fake = Fake::of(&graph);
        damage(&mut fake);
        let found = found(&Shared::new(fake));
        assert!(found.findings.iter().any(expected), "{name}: {:?}", found.findings);
        let whole: BTreeSet<_> = true_links(&graph)
            .into_iter()
            .filter(|ends| ends.iter().all(|end| end.switch != SwitchId(3)))
            .collect();
        assert_eq!(links(&found.inventory), whole, "{name}");
    }
}

/// CXL 3.1 section 7.7.5: the manager refuses each of these by the name of its rule, and records no link.
#[test]
fn connections_against_the_rules_are_refused_by_name() {
    type Broken<'a> = (&'static str, &'a dyn Fn(&mut Fake), Rule, usize);
    let graph = generate::ring(4, 1).unwrap();
    let gfd = |fake: &mut Fake, config| {
        let port = fake.add(SwitchId(3), Some(GfdState::new(16)));
        fake.switch(3).ports.get_mut(&port).unwrap().config = config;
    };
    let itself = |fake: &mut Fake| {
        for (port, far) in [(50, 51), (51, 50)] {
            let link = FakePort { config: 5, end: End::Node(3, far), up: true };
            fake.switch(3).ports.insert(port, link);
        }
    };
    let is = |rule| move |finding: &Finding| matches!(finding, Finding::Forbidden { what, .. } if what.rule == rule);
    let cases: [Broken<'_>; 3] = [
        ("a GFD at a fabric port", &|fake| gfd(fake, 5), Rule::FportToFport, 1),
        ("a GFD at an upstream port", &|fake| gfd(fake, 4), Rule::PbrUspToHost, 1),
        ("a switch to itself", &itself, Rule::FportToFport, 2),
    ];
    for (name, damage, rule, count) in cases {
        let mut fake = Fake::of(&graph);
        damage(&mut fake);
        let found = found(&Shared::new(fake));
        let named = found.findings.iter().filter(|finding| is(rule)(finding)).count();
        assert_eq!((named, found.findings.len()), (count, count), "{name}: {:?}", found.findings);
        assert_eq!(links(&found.inventory), true_links(&graph), "{name}");
        assert!(found.inventory.gfds.is_empty(), "{name}");
    }
}

#[test]
fn an_entry_switch_of_another_manager_is_an_error() {
    let mut fake = Fake::of(&generate::line(2, 1).unwrap());
    fake.nodes[0].base.primary = Some((Pid::from_low_bits(9), [9; 16]));
    let shared = Shared::new(fake);
    let failed = discover(&mut shared.fabric(US), &Options::new(manager()));
    assert!(matches!(failed, Err(Finding::Owned { .. })), "{failed:?}");
}

#[test]
fn a_link_that_one_end_denies_is_no_link() {
    let graph = generate::ring(3, 1).unwrap();
    let mut fake = Fake::of(&graph);
    let (&port, _) = fake
        .switch(1)
        .ports
        .iter()
        .find(|(_, p)| p.end == End::Node(2, 0) || matches!(p.end, End::Node(2, _)))
        .unwrap();
    fake.switch(1).ports.get_mut(&port).unwrap().up = false;
    let found = found(&Shared::new(fake));
    assert_eq!(found.inventory.links.len(), 2);
    assert!(matches!(found.findings[..], [Finding::OneSided { .. }]), "{:?}", found.findings);
}

/// A manager that comes back finds the same PIDs and sends nothing that changes anything.
#[test]
fn a_second_discovery_changes_nothing() {
    let graph = generate::torus(&[3, 4], 1).unwrap();
    let mut fake = Fake::of(&graph);
    fake.add(SwitchId(7), Some(GfdState::new(16)));
    let shared = Shared::new(fake);
    let first = found(&shared).inventory;
    let before = shared.with(|fake| fake.sets);
    let options = Options { known: first.known(), ..Options::new(manager()) };
    let again = discover(&mut shared.fabric(US), &options).unwrap();
    assert_eq!((&again.inventory, again.findings.len()), (&first, 0));
    // The one command is the claim by which the entry switch learns that this connection is the manager's.
    assert_eq!(shared.with(|fake| fake.sets), before + 1);
}

#[test]
fn a_secondary_manager_takes_over_when_told_to() {
    let graph = generate::mesh(4, 1).unwrap();
    let shared = Shared::new(Fake::of(&graph));
    let first = found(&shared).inventory;
    let second = Manager { uuid: [0xF2; 16], pid: Pid::from_low_bits(0xFFD) };
    shared.with(|fake| {
        for node in &mut fake.nodes {
            node.base.secondary = Some((second.pid, second.uuid));
        }
    });
    let mut options = Options { known: first.known(), ..Options::new(second) };
    let refused = discover(&mut shared.fabric(second.uuid), &options);
    assert!(matches!(refused, Err(Finding::Owned { .. })), "not before it is told to");
    options.promote = true;
    let taken = discover(&mut shared.fabric(second.uuid), &options).unwrap();
    assert!(taken.findings.is_empty(), "{:?}", taken.findings);
    assert_eq!(taken.inventory.switches, first.switches);
    let owners = shared.with(|fake| {
        fake.nodes.iter().map(|node| (node.base.primary, node.base.secondary)).collect::<Vec<_>>()
    });
    assert_eq!(owners, vec![(Some((second.pid, second.uuid)), None); 4]);
}

/// With one call in ten lost, all links found are right, and findings tell of those missed.
#[test]
fn lost_answers_are_told() {
    let mut incomplete = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let graph = generate::random(&mut rng, 12, 10, 1).unwrap();
        let mut fake = Fake::of(&graph);
        fake.faults = Some(Faults { rng: Rng::new(seed + 1_000), per_mille: 50 });
        let shared = Shared::new(fake);
        let Ok(found) = discover(&mut shared.fabric(US), &Options::new(manager())) else {
            continue;
        };
        let all = true_links(&graph);
        let some = links(&found.inventory);
        assert!(some.is_subset(&all), "seed {seed}");
        if some != all {
            incomplete += 1;
            assert!(!found.findings.is_empty(), "seed {seed}: something is missing silently");
        }
    }
    assert!(incomplete > 5, "the faults bite: {incomplete}");
}
