//! The fabric manager against real components: switches as they answer CCI, joined by links that carry their tunnels.
//!
//! A graph → a `weft_pbr_switch::Switch` each → discovery, PIDs and routes by `weft_fm` over the entry switch alone →
//! what the switches' own tables do with every PID.
//!
//! Units: hops.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12; docs/spec/wire-formats.md §4.5 (Fabric
//! Crawl Out).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weft_base::rng::Rng;
use weft_dataplane::pbr::Binding;
use weft_dataplane::types::PortId;
use weft_fm::cci::send::send;
use weft_fm::cci::wires::read_all;
use weft_fm::components::bind::{Bindings, Bridge, LinkEnd, Local, Remote};
use weft_fm::discover::{Discovered, Finding, Options, discover};
use weft_fm::model::graph::{Graph, PortRef, SwitchId, generate};
use weft_fm::model::inventory::{Inventory, OWN_PORT, TargetKind};
use weft_fm::model::rules::Rule;
use weft_fm::plan;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::fabric::Pid;
use weft_pbr_switch::config::Role;
use weft_tests::crowd::{DEVICE, World, fabric, manager, number};

const COST: PathCost =
    PathCost { latency_base: 1_000, latency: 250, bandwidth_base: 1_000, bandwidth: 64 };

fn discovered(world: &Arc<Mutex<World>>) -> Discovered {
    discover(&mut fabric(world), &Options::new(manager())).unwrap()
}

/// Each switch once, each link of two switches once, by their numbers in `graph`; both ends of a link of a switch to
/// itself are told to be against the rules.
fn check(name: &str, graph: &Graph, found: &Discovered) {
    let forbidden = |finding: &Finding| matches!(finding, Finding::Forbidden { .. });
    assert!(found.findings.iter().all(forbidden), "{name}: {:?}", found.findings);
    let itself = graph.links().filter(|(_, link)| link.ends[0].switch == link.ends[1].switch);
    assert_eq!(found.findings.len(), 2 * itself.count(), "{name}: {:?}", found.findings);
    let inventory = &found.inventory;
    let own = |id: SwitchId| inventory.switch(id).unwrap().uuid.map_or(0, |uuid| number(&uuid));
    let numbers: BTreeSet<usize> = inventory.by_id().map(|(id, _)| own(id)).collect();
    assert_eq!(numbers, (0..graph.switch_count()).collect(), "{name}");
    let sorted = |mut ends: [(usize, u8); 2]| {
        ends.sort_unstable();
        ends
    };
    let links: BTreeSet<_> = inventory
        .links
        .iter()
        .map(|ends| sorted(ends.map(|end: PortRef| (own(end.switch), end.port))))
        .collect();
    let want: BTreeSet<_> = graph
        .links()
        .filter(|(_, link)| link.ends[0].switch != link.ends[1].switch)
        .map(|(_, link)| sorted(link.ends.map(|end| (usize::from(end.switch.0), end.port))))
        .collect();
    assert_eq!(links, want, "{name}");
}

/// Every PID of an edge is reached from every switch by the tables that the switches hold themselves.
fn all_reach_all(name: &str, world: &World, inventory: &Inventory) {
    let own = |id: SwitchId| inventory.switch(id).unwrap().uuid.map_or(0, |uuid| number(&uuid));
    let edges: Vec<_> = inventory.pids().filter(|(_, at)| at.port != OWN_PORT).collect();
    assert!(!edges.is_empty(), "{name}");
    for from in 0..world.switches.len() {
        for &(pid, at) in &edges {
            assert_eq!(world.follow(from, pid), Some(own(at.switch)), "{name}: {pid} from {from}");
        }
    }
}

/// Gives PIDs and routes to what was found; the inventory with its PIDs, and how many commands that took.
fn route(name: &str, world: &Arc<Mutex<World>>, inventory: &Inventory) -> (Inventory, u64) {
    let options = plan::Options::default();
    let (numbered, assignments) = plan::number(inventory, &options).unwrap();
    let plan = plan::make(&numbered, &options, None).unwrap();
    let mut through = fabric(world);
    let (mut standing, silent) = read_all(&mut through, inventory);
    assert!(silent.is_empty(), "{name}: {silent:?}");
    send(&mut through, &numbered, &assignments, &plan, &mut standing, || {}).unwrap();
    (numbered, through.calls())
}

#[test]
fn real_switches_are_found_numbered_and_routed() {
    let mut rng = Rng::new(11);
    let fabrics = [
        ("one", generate::line(1, 2)),
        ("line", generate::line(4, 1)),
        ("ring", generate::ring(6, 2)),
        ("mesh of figure 7-43", generate::mesh(4, 2)),
        ("fat tree", generate::fat_tree(4)),
        ("random", generate::random(&mut rng, 20, 12, 2)),
    ];
    for (name, graph) in fabrics {
        let graph = graph.unwrap();
        let world = Arc::new(Mutex::new(World::of(&graph)));
        let found = discovered(&world);
        check(name, &graph, &found);
        let (numbered, calls) = route(name, &world, &found.inventory);
        let world = world.lock().unwrap();
        all_reach_all(name, &world, &numbered);
        println!("{name}: {} commands, {} tunnels", calls, world.tunnelled);
    }
}

/// CXL 3.1 section 7.7.5: real switches, one link of which is cabled against the rules: the manager names the rule and
/// both ends, has no such link, and routes over the others.
#[test]
fn a_fabric_that_is_wired_against_the_rules_is_found_out() {
    let graph = generate::mesh(4, 1).unwrap();
    let between = |ends: &[PortRef; 2]| ends.iter().all(|end| [2, 3].contains(&end.switch.0));
    let ends = graph.links().map(|(_, link)| link.ends).find(between).unwrap();
    let [a, b] = ends.map(|end| (usize::from(end.switch.0), end.port));
    #[rustfmt::skip] // columns: roles of both ends, the rule against each end that is none of a fabric
    let cases = [
        ([Role::Dsp, Role::Fabric], [Some(Rule::FportToFport), None]),
        ([Role::Usp, Role::Fabric], [Some(Rule::PbrUspToHost), None]),
        ([Role::Dsp, Role::Dsp],    [Some(Rule::FportToFport); 2]),
        ([Role::Usp, Role::Dsp],    [Some(Rule::PbrUspToHost), Some(Rule::FportToFport)]),
        ([Role::Usp, Role::Usp],    [Some(Rule::PbrUspToHost); 2]),
    ];
    for (roles, rules) in cases {
        let wrong = [(a, roles[0]), (b, roles[1])];
        let world = Arc::new(Mutex::new(World::miswired(&graph, &wrong)));
        let found = discovered(&world);
        let own = |id: SwitchId| number(&found.inventory.switch(id).unwrap().uuid.unwrap());
        let named: BTreeMap<(usize, u8), Rule> = found
            .findings
            .iter()
            .filter_map(|finding| match finding {
                Finding::Forbidden { at, what } => Some(((own(at.switch), at.port), what.rule)),
                _ => None,
            })
            .collect();
        let ends = [a, b].into_iter().zip(rules);
        let want: BTreeMap<_, _> = ends.filter_map(|(end, rule)| Some((end, rule?))).collect();
        assert_eq!(named, want, "{roles:?}: {:?}", found.findings);
        assert_eq!(found.inventory.links.len(), 5, "{roles:?}: the other links are there");
        let (numbered, _) = route("miswired", &world, &found.inventory);
        let world = world.lock().unwrap();
        let place = |id: SwitchId| number(&numbered.switch(id).unwrap().uuid.unwrap());
        let own = numbered.pids().map(|(pid, at)| (pid, (place(at.switch), at.port)));
        // Hosts reach each other by the five links that are left.
        let hosts: Vec<_> =
            own.filter(|(_, at)| at.1 != OWN_PORT && *at != a && *at != b).collect();
        assert!(hosts.len() >= 4, "{hosts:?}");
        for (from, (pid, at)) in (0..4).flat_map(|from| hosts.iter().map(move |it| (from, it))) {
            assert_eq!(world.follow(from, *pid), Some(at.0), "{roles:?}: {pid} from {from}");
        }
    }
}

/// What the switches are called in the inventory: ids there go by the order of discovery.
struct Named {
    inventory: Inventory,
}

impl Named {
    fn id(&self, at: usize) -> SwitchId {
        let is = |uuid: Option<Uuid>| uuid.is_some_and(|uuid| number(&uuid) == at);
        self.inventory.by_id().find(|(_, switch)| is(switch.uuid)).unwrap().0
    }

    fn pid(&self, at: usize, kind: TargetKind) -> Pid {
        let targets = &self.inventory.switch(self.id(at)).unwrap().targets;
        targets.iter().find(|t| t.kind == kind && !t.pid.is_none()).unwrap().pid
    }

    fn bridge(&self, at: usize, vcs: u8, vppb: u8) -> Bridge {
        Bridge { switch: self.id(at), vcs, vppb }
    }

    /// vPPB `host.1` of the host at switch `host.0` to virtual switch `below.1` of switch `below.0`.
    fn link(&self, host: (usize, u8), below: (usize, u8)) -> Remote {
        Remote {
            host: LinkEnd {
                bridge: self.bridge(host.0, 0, host.1),
                pid: self.pid(host.0, TargetKind::Host),
            },
            below: LinkEnd {
                bridge: self.bridge(below.0, below.1, 0),
                pid: self.pid(below.0, TargetKind::Fabric),
            },
        }
    }

    /// vPPB 1 of virtual switch `vcs` to the switch's device.
    fn local(&self, at: usize, vcs: u8) -> Local {
        Local { bridge: self.bridge(at, vcs, 1), port: DEVICE, ld: None }
    }
}

/// The bindings of a switch's virtual switch: upstream, and those below.
type Bound = (Binding, Vec<Binding>);

/// What is bound in the tables, by switch and virtual switch.
fn bound(world: &Arc<Mutex<World>>) -> BTreeMap<(usize, u8), Bound> {
    let world = world.lock().unwrap();
    let of = |(at, id): (usize, u8)| {
        let vcs = world.switches[at].tables().vcs(id).unwrap().clone();
        let below = vcs.below().iter().map(|vppb| vppb.binding).collect();
        ((at, id), (vcs.upstream().binding, below))
    };
    [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)].map(of).into()
}

/// Four switches with a device each, hosts at the first and the last, PIDs and routes.
fn four_switches() -> (Arc<Mutex<World>>, Named) {
    let mut graph = generate::ring(4, 0).unwrap();
    for at in [0, 3] {
        generate::host(&mut graph, SwitchId(at)).unwrap();
    }
    let world = Arc::new(Mutex::new(World::with(&graph, &[0, 1, 2, 3], &[1, 2, 3])));
    let found = discovered(&world);
    assert!(found.findings.is_empty(), "{:?}", found.findings);
    let (inventory, _) = route("7-45", &world, &found.inventory);
    (world, Named { inventory })
}

/// Figure 7-45: host 0 at switch 0 sees EP0, and by virtual links switches 1 and 3, each with its device; host 1 at
/// switch 3 sees switch 2 with its own. What the switches' tables then say, and that unbinding leaves nothing.
#[test]
fn virtual_hierarchies_of_figure_7_45_are_bound_in_real_switches() {
    let (world, named) = four_switches();
    let before = bound(&world);
    let mut through = fabric(&world);
    let mut bindings = Bindings::default();
    let links = [
        named.link((0, 2), (1, 0)), // host 0: switch 1
        named.link((0, 3), (3, 1)), // host 0: the second virtual switch of switch 3
        named.link((3, 2), (2, 0)), // host 1: switch 2
    ];
    for wanted in links {
        bindings.bind_remote(&mut through, &named.inventory, wanted, COST).unwrap();
    }
    let locals = [(0, 0), (1, 0), (2, 0), (3, 1)].map(|(at, vcs)| named.local(at, vcs));
    for wanted in locals {
        bindings.bind_local(&mut through, &named.inventory, wanted).unwrap();
    }
    assert_eq!(bindings.compare(&mut through, &named.inventory).unwrap(), []);

    let device = Binding::Port(PortId::new(DEVICE.into()).unwrap());
    let [host0, host1] = [0, 3].map(|at| named.pid(at, TargetKind::Host));
    let [one, two, three] = [1, 2, 3].map(|at| named.pid(at, TargetKind::Fabric));
    let to = |spid, dpid| Binding::Fabric { spid, dpid };
    let now = bound(&world);
    assert_eq!(now[&(0, 0)].1, [device, to(host0, one), to(host0, three), Binding::Unbound]);
    assert_eq!(now[&(1, 0)], (to(one, host0), vec![device, Binding::Unbound]));
    assert_eq!(now[&(3, 1)], (to(three, host0), vec![device, Binding::Unbound]));
    assert_eq!(now[&(3, 0)].1[1], to(host1, two), "host 1 sees switch 2");
    assert_eq!(now[&(2, 0)], (to(two, host1), vec![device, Binding::Unbound]));

    for wanted in locals {
        let option = UnbindOption::Managed;
        bindings.unbind_local(&mut through, &named.inventory, wanted.bridge, option).unwrap();
    }
    for wanted in links {
        let host = wanted.host.bridge;
        bindings.unbind_remote(&mut through, &named.inventory, host, COST).unwrap();
    }
    assert_eq!(bound(&world), before, "nothing is left");
}
