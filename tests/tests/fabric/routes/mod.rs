//! Routes of a fabric, judged by those who did not make them: own walk, own search for circles, own simulation.
//!
//! Random topologies from a seed (`WEFT_SEED`), links that come and go -> all pairs arrive, no circle of waiting.
//!
//! Units: switches, hops, cycles of the simulation.
//! Source: docs/spec/cxl-fabric.md "Routes"; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod check;
mod orders;
mod pulled;
mod sim;

use std::collections::{BTreeMap, BTreeSet};

use check::{Dependencies, arrivals, circle, shortest};
use sim::{Sim, SimEnd};
use weft_base::rng::Rng;
use weft_fm::model::graph::generate::{self, join};
use weft_fm::model::graph::{Graph, GraphError, LinkId, PortRef, SwitchId};
use weft_fm::plan::proof::{Fault, Proof, Traffic};
use weft_fm::plan::routes::transit::Steps;
use weft_fm::plan::routes::{Known, Options, Routed, Transit, route};
use weft_fm::plan::tables::{Change, Tables};
use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

fn seed() -> u64 {
    let seed = std::env::var("WEFT_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_122);
    println!("seed {seed} (WEFT_SEED sets another)");
    seed
}

fn traffic() -> Traffic {
    Traffic::new(3, 4, 2)
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

/// A number of switches, 2 to `most`, small ones more often.
fn size(rng: &mut Rng, most: usize) -> usize {
    let bound = 2 + below(rng, most - 1);
    2 + below(rng, bound - 1)
}

/// A topology of any kind, 2 to 200 switches, with up to four hosts at each, and perhaps a PID for each switch.
fn any_graph(rng: &mut Rng) -> (String, Graph) {
    let hosts = 1 + below(rng, 2);
    let (name, graph): (String, Result<Graph, GraphError>) = match below(rng, 8) {
        0 => {
            let n = size(rng, 60);
            (format!("ring of {n}"), generate::ring(n, hosts))
        }
        1 => {
            let n = size(rng, 16);
            (format!("mesh of {n}"), generate::mesh(n, hosts))
        }
        2 => {
            let (a, b) = (2 + below(rng, 8), 2 + below(rng, 8));
            (format!("torus {a}x{b}"), generate::torus(&[a, b], hosts))
        }
        3 => {
            let (a, b, c) = (2 + below(rng, 3), 2 + below(rng, 4), 2 + below(rng, 4));
            (format!("torus {a}x{b}x{c}"), generate::torus(&[a, b, c], hosts))
        }
        4 => {
            let k = [2, 4, 4, 6][below(rng, 4)];
            (format!("fat tree {k}"), generate::fat_tree(k))
        }
        5 => {
            let (leaves, spines) = (2 + below(rng, 20), 1 + below(rng, 12));
            (format!("leaf-spine {leaves}/{spines}"), generate::leaf_spine(leaves, spines, hosts))
        }
        6 => {
            let n = size(rng, 60);
            (format!("line of {n}"), generate::line(n, hosts))
        }
        _ => {
            let n = size(rng, 200);
            let extra = below(rng, 3 * n);
            (format!("random, {n} and {extra} more"), generate::random(rng, n, extra, 1))
        }
    };
    let mut graph = graph.unwrap();
    // Some links twice, or three times.
    if rng.chance(1, 3) {
        for _ in 0..=below(rng, 5) {
            let links: Vec<_> = graph.links().map(|(_, link)| link.ends).collect();
            let [a, b] = links[below(rng, links.len())];
            join(&mut graph, a.switch, b.switch).unwrap();
        }
    }
    if rng.chance(1, 3) {
        graph = generate::own_pids(graph).unwrap();
    }
    (name, graph)
}

fn any_options(rng: &mut Rng) -> Options {
    let mode = [RgtMode::Random, RgtMode::CongestionAvoiding][below(rng, 2)];
    let groups = [256, 256, 7, 0][below(rng, 4)];
    Options { mode, mix: 7, detours: rng.chance(1, 2), groups }
}

/// What must hold for routes, by this file's own means and then by the proof.
fn judge(name: &str, graph: &Graph, routed: &Routed) -> Proof {
    let mut dependencies = Dependencies::new(graph);
    let hops = arrivals(graph, &routed.tables, &mut dependencies)
        .unwrap_or_else(|why| panic!("{name}: {why}"));
    assert_eq!(circle(&dependencies.endpoints(graph, &traffic())), None, "{name}");
    let proof =
        Proof::find(graph, &routed.tables, &traffic()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let facts = proof.check(graph, &routed.tables).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(facts.counts.hops_max, hops, "{name}");
    proof
}

fn random_topologies(rng: &mut Rng, count: usize) {
    let mut with_groups = 0;
    for number in 0..count {
        let (name, graph) = any_graph(rng);
        let options = any_options(rng);
        let routed = route(&graph, &options, None);
        let name = format!("{number}: {name}, {options:?}");
        assert_eq!(routed.partition, None, "{name}");
        judge(&name, &graph, &routed);
        let has = |s: SwitchId| routed.tables.get(s).unwrap().groups().next().is_some();
        with_groups += usize::from(graph.switches().any(has));
    }
    assert!(with_groups > count / 4, "{with_groups} of {count} use groups");
}

/// [`soak_of_topologies_and_losses`] has many more.
#[test]
fn random_topologies_deliver_all_and_never_wait_in_a_circle() {
    random_topologies(&mut Rng::new(seed()), 250);
}

/// `WEFT_TOPOLOGIES` of them, or 20,000.
#[test]
#[ignore = "soak: minutes"]
fn soak_of_topologies_and_losses() {
    let count =
        std::env::var("WEFT_TOPOLOGIES").ok().and_then(|s| s.parse().ok()).unwrap_or(20_000);
    let mut rng = Rng::new(seed());
    random_topologies(&mut rng, count);
    changes(&mut rng, count / 10, 12);
}

/// Links and switches come and go; every state between is judged, and every way from one to the next.
fn changes(rng: &mut Rng, fabrics: usize, steps: usize) {
    let (mut transits, mut quiet, mut partitions, mut kept, mut withdrawn, mut pids) =
        (0, 0, 0, 0, 0, 0);
    let mut legs = 0;
    for number in 0..fabrics {
        let (name, mut graph) = any_graph(rng);
        let options = any_options(rng);
        let mut routed = route(&graph, &options, None);
        judge(&name, &graph, &routed);
        for step in 0..steps {
            change(rng, &mut graph);
            let next = route(&graph, &options, Some(&routed));
            let name = format!("{number}.{step}: {name}, {options:?}");
            judge(&name, &graph, &next);
            kept += usize::from(next.order == routed.order);
            partitions += usize::from(next.partition.is_some());
            let transit = planned(&graph, &routed, &next, &options);
            transits += 1;
            quiet += usize::from(transit.withdrawn.is_empty());
            withdrawn += transit.withdrawn.len();
            pids += graph.endpoint_count();
            legs += usize::from(transit.legs.len() > 1);
            mixtures(rng, &name, &graph, &routed.tables, &next.tables, &transit);
            routed = next;
        }
    }
    println!(
        "{transits} changes, {quiet} without withdrawing ({withdrawn} of {pids} PIDs withdrawn)"
    );
    println!("{kept} by the same order, {partitions} in parts, {legs} over others in between");
    assert!(partitions > 0 && kept > transits / 4 && legs > 0);
    assert_eq!((quiet, withdrawn), (transits, 0), "of {pids} PIDs");
}

/// How to come from the tables that stand to others.
fn planned(graph: &Graph, old: &Routed, new: &Routed, options: &Options) -> Transit {
    let (apart, orders) = (BTreeSet::new(), [&old.order]);
    Transit::plan(graph, &old.tables, new, &Known { options, apart: &apart, orders: &orders })
        .unwrap()
}

/// A link or a switch fails or comes back, or a new link is there.
fn change(rng: &mut Rng, graph: &mut Graph) {
    let links = graph.links().count();
    let link = LinkId(u32::try_from(below(rng, links)).unwrap());
    let switch = SwitchId(u16::try_from(below(rng, graph.switch_count())).unwrap());
    match below(rng, 8) {
        0 => graph.set_switch(switch, !graph.is_up(switch)).unwrap(),
        1 => {
            let other = SwitchId(u16::try_from(below(rng, graph.switch_count())).unwrap());
            join(graph, switch, other).unwrap();
        }
        2 => {
            for (id, _) in graph.clone().links().filter(|(_, link)| !link.up) {
                graph.set_link(id, true).unwrap();
            }
        }
        _ => graph.set_link(link, !graph.works(link)).unwrap(),
    }
}

/// Entries sent in a random order within each list: at some moments in between, what stands is judged, with all packets
/// on their way that were sent before. Who had a way that works keeps one, but to PIDs that are withdrawn.
fn mixtures(
    rng: &mut Rng,
    name: &str,
    graph: &Graph,
    old: &Tables,
    new: &Tables,
    transit: &Transit,
) {
    let mut standing = old.clone();
    let mut flying = BTreeMap::new();
    let mut seen = Dependencies::new(graph);
    let all = transit.legs.iter().flat_map(|leg| leg.rounds.iter().flatten().chain([&leg.park]));
    let moved = all.flatten().filter_map(|change| match change {
        Change::Route { to, .. } => Some(*to),
        Change::Group { .. } => None,
    });
    let moved = moved.filter(|to| transit.withdrawn.binary_search(to).is_err()).collect();
    let had = check::with_way(graph, old, &moved);
    let look = |standing: &Tables, flying: &mut BTreeMap<_, _>, seen: &mut Dependencies| {
        seen.stand(graph, standing, flying).unwrap_or_else(|why| panic!("{name}: {why}"));
        let has = check::with_way(graph, standing, &moved);
        let lost: Vec<_> = had.difference(&has).collect();
        assert!(lost.is_empty(), "{name}: {lost:?} have no way");
    };
    look(&standing, &mut flying, &mut seen);
    send(rng, &transit.withdraw, &mut standing, |now| look(now, &mut flying, &mut seen));
    assert_eq!(circle(&seen.alone()), None, "{name}: while withdrawing");
    let mut is_drained = transit.withdrawn.is_empty();
    for Steps { park, come, rounds } in &transit.legs {
        let mut seen = Dependencies::new(graph);
        for list in [park, come] {
            send(rng, list, &mut standing, |now| look(now, &mut flying, &mut seen));
        }
        assert_eq!(circle(&seen.alone()), None, "{name}: while groups change");
        for round in rounds {
            if !std::mem::replace(&mut is_drained, false) {
                flying.clear(); // packets of before are nowhere any more
            }
            let mut seen = Dependencies::new(graph);
            look(&standing, &mut flying, &mut seen);
            for layer in round {
                send(rng, layer, &mut standing, |now| look(now, &mut flying, &mut seen));
            }
            look(&standing, &mut flying, &mut seen);
            assert_eq!(circle(&seen.alone()), None, "{name}: while setting");
        }
    }
    let left = standing.diff(new);
    // Groups that nothing points at may stay.
    assert_eq!([left.come, left.routes], [vec![], vec![]], "{name}: all was sent");
}

/// Sends entries in a random order; `look` sees what stands after half of them.
fn send(rng: &mut Rng, changes: &[Change], standing: &mut Tables, mut look: impl FnMut(&Tables)) {
    let mut changes = changes.to_vec();
    for at in (1..changes.len()).rev() {
        changes.swap(at, below(rng, at + 1));
    }
    let half = changes.len() / 2;
    for (at, change) in changes.into_iter().enumerate() {
        if at == half {
            look(standing);
        }
        standing.apply(change);
    }
}

#[test]
fn fabrics_that_lose_and_find_links_stay_sound_at_every_step() {
    changes(&mut Rng::new(seed()), 20, 8);
}

/// Shortest paths on a ring wait in a circle; both judges must see it, or they see nothing.
#[test]
fn shortest_paths_on_a_ring_are_found_out() {
    for switches in [5, 6, 9, 16] {
        let graph = generate::ring(switches, 1).unwrap();
        let tables = shortest(&graph);
        let mut dependencies = Dependencies::new(&graph);
        let hops = arrivals(&graph, &tables, &mut dependencies).unwrap();
        assert_eq!(hops as usize, switches / 2);
        assert!(circle(&dependencies.alone()).is_some(), "ring of {switches}: own search");
        match Proof::find(&graph, &tables, &traffic()) {
            Err(Fault::Circle(channels)) => assert_eq!(channels.len(), switches, "{channels:?}"),
            other => panic!("ring of {switches}: {other:?}"),
        }
        // A proof for other tables does not hold for these.
        let proof = judge("ring", &graph, &route(&graph, &Options::default(), None));
        assert!(matches!(proof.check(&graph, &tables), Err(Fault::Backwards { .. })));
    }
}

/// Each fault by the smallest change to good tables that makes it.
#[test]
fn broken_tables_are_refused_by_name() {
    let graph = generate::ring(5, 1).unwrap();
    let good = route(&graph, &Options::default(), None).tables;
    let proof = Proof::find(&graph, &good, &traffic()).unwrap();
    let (to, at) = (Pid::from_low_bits(2), SwitchId(0));
    let port = good.get(at).unwrap().static_port(to).unwrap();
    let next = graph.far(PortRef::new(at, port)).unwrap();
    let with = |at: SwitchId, to: Pid, entry: DrtEntry| {
        let mut tables = good.clone();
        tables.get_mut(at).set_drt(to, entry);
        let found = Proof::find(&graph, &tables, &traffic()).map(|_| ());
        assert_eq!(proof.check(&graph, &tables).map(|_| ()), found, "both see the same");
        found
    };
    let nobody = Pid::from_low_bits(77);
    assert_eq!(with(at, to, DrtEntry::Invalid), Err(Fault::Lost { to, at }));
    assert_eq!(with(at, nobody, DrtEntry::Port(port)), Err(Fault::Stray { to: nobody, at }));
    assert_eq!(with(at, to, DrtEntry::Group(200)), Err(Fault::NoGroup { to, at }));
    let host = graph.endpoint(Pid::from_low_bits(0)).unwrap().at;
    assert_eq!(with(at, to, DrtEntry::Port(host.port)), Err(Fault::Misled { to, at: host }));
    assert_eq!(
        with(at, to, DrtEntry::Port(99)),
        Err(Fault::Misled { to, at: PortRef::new(at, 99) })
    );
    assert!(matches!(with(next.switch, to, DrtEntry::Port(next.port)), Err(Fault::Loop { .. })));
    let mut short = proof.clone();
    short.channels.pop();
    assert!(matches!(short.check(&graph, &good), Err(Fault::Order(_))));
    let mut hasty = proof.clone();
    hasty.hops_max -= 1;
    assert!(matches!(hasty.check(&graph, &good), Err(Fault::Hops { .. })));
    let mut turned = proof;
    turned.channels.reverse();
    assert!(matches!(turned.check(&graph, &good), Err(Fault::Backwards { .. })));
}

/// Requests that wait for answers in their own priority are a circle, whatever the routes.
#[test]
fn answers_in_the_priority_of_their_requests_are_refused() {
    let graph = generate::line(2, 1).unwrap();
    let tables = route(&graph, &Options::default(), None).tables;
    let same = Traffic::new(3, 3, 2);
    assert_eq!(Proof::find(&graph, &tables, &same), Err(Fault::Answers(3)));
    let mut dependencies = Dependencies::new(&graph);
    arrivals(&graph, &tables, &mut dependencies).unwrap();
    assert!(circle(&dependencies.endpoints(&graph, &same)).is_some());
    // Hierarchical requests with their completions in the same FIFO hold only if endpoints always take them.
    let mut strict = traffic();
    strict.classes[0].answered_in = Some(2);
    assert_eq!(Proof::find(&graph, &tables, &strict), Err(Fault::Answers(2)));
}

fn length(graph: &Graph, tables: &Tables) -> u32 {
    arrivals(graph, tables, &mut Dependencies::new(graph)).unwrap()
}

/// Fat trees and leaf-spine fabrics: shortest paths between all hosts, and all equal ways in the groups.
#[test]
fn trees_go_the_shortest_way_by_all_ways_there_are() {
    let trees = [
        ("fat tree 4", generate::fat_tree(4).unwrap(), 4, 20 - 8, 2),
        ("fat tree 8", generate::fat_tree(8).unwrap(), 4, 80 - 32, 4),
        ("leaf-spine", generate::leaf_spine(12, 6, 4).unwrap(), 2, 6, 6),
    ];
    for (name, graph, hops, first_edge, ways) in trees {
        for graph in [graph.clone(), generate::own_pids(graph).unwrap()] {
            let routed = route(&graph, &Options::default(), None);
            judge(name, &graph, &routed);
            let hosts: Vec<_> = graph
                .endpoints()
                .filter(|end| {
                    graph.endpoints().filter(|o| o.at.switch == end.at.switch).count() > 1
                })
                .collect();
            for to in &hosts {
                for from in &hosts {
                    let walked =
                        check::walk_static(&graph, &routed.tables, from.at.switch, to.pid).unwrap();
                    let least =
                        check::hops_from(&graph, from.at.switch)[usize::from(to.at.switch.0)];
                    assert_eq!(Some(walked), least, "{name}: {} to {}", from.pid, to.pid);
                    assert!(walked <= hops);
                    if least == Some(hops) {
                        let ports =
                            routed.tables.get(from.at.switch).unwrap().ports(to.pid).unwrap();
                        assert_eq!(ports.count(), ways, "{name}: {} to {}", from.at.switch, to.pid);
                    }
                }
            }
            assert!(
                usize::from(hosts[0].at.switch.0) <= first_edge + ways,
                "{name}: hosts are at the edge"
            );
        }
    }
}

/// Figures 7-43 and 7-44: four switches, each linked to each. Everybody has the direct way; some have one by a third too,
/// and none by all: what would close a circle is left out.
#[test]
fn a_mesh_of_four_has_direct_ways_and_some_detours() {
    let graph = generate::mesh(4, 2).unwrap();
    let routed = route(&graph, &Options::default(), None);
    let proof = judge("mesh of 4", &graph, &routed);
    let mut detours = 0;
    for to in graph.endpoints() {
        for from in graph.switches().filter(|&from| from != to.at.switch) {
            let tables = routed.tables.get(from).unwrap();
            let first = tables.static_port(to.pid).unwrap();
            assert_eq!(graph.far(PortRef::new(from, first)).unwrap().switch, to.at.switch);
            if let DrtEntry::Group(index) = tables.drt(to.pid) {
                let group = tables.rgt(index).unwrap();
                assert_eq!(
                    (group.primary, group.mode, group.mix),
                    (0, RgtMode::CongestionAvoiding, 7)
                );
                detours += usize::from(group.highest);
            }
        }
    }
    // By rank: 0 has none; 1 by way of 0; 2 by way of 0 or 1; 3 by way of all; two hosts each.
    assert_eq!(detours, 2 * (2 + 4 + 6));
    assert!(proof.hops_max <= 3);
    let without = route(&graph, &Options { detours: false, ..Options::default() }, None);
    assert_eq!(length(&graph, &without.tables), 1);
    assert!(proof.to_string().contains("3: UIO requests, answered in 4"));
}

/// Links side by side become one group; losing one leaves the others; losing all but one leaves a port.
#[test]
fn multiple_links_are_one_group() {
    let mut graph = generate::switches(2).unwrap();
    let links: Vec<_> =
        (0..3).map(|_| join(&mut graph, SwitchId(0), SwitchId(1)).unwrap()).collect();
    join(&mut graph, SwitchId(0), SwitchId(0)).unwrap();
    let near = generate::host(&mut graph, SwitchId(0)).unwrap();
    let far = generate::host(&mut graph, SwitchId(1)).unwrap();
    let mut routed = route(&graph, &Options::default(), None);
    for left in [3, 2, 1] {
        judge("two switches", &graph, &routed);
        assert_eq!(routed.tables.get(SwitchId(0)).unwrap().ports(far).unwrap().count(), left);
        graph.set_link(links[left - 1], false).unwrap();
        routed = route(&graph, &Options::default(), Some(&routed));
    }
    let partition = routed.whole().unwrap_err();
    assert_eq!((partition.islands.len(), partition.lost.len()), (2, 0));
    assert_eq!(
        partition.to_string(),
        format!("the fabric is split into 2 parts; cut off from the largest: {far}")
    );
    judge("parted", &graph, &routed);
    assert_eq!(routed.tables.get(SwitchId(0)).unwrap().drt(far), DrtEntry::Invalid);
    assert_ne!(routed.tables.get(SwitchId(0)).unwrap().drt(near), DrtEntry::Invalid);
}

/// A lost link changes what led over it and little else.
#[test]
fn a_lost_link_changes_few_entries() {
    let mut graph = generate::fat_tree(8).unwrap();
    let before = route(&graph, &Options::default(), None);
    graph.set_link(LinkId(0), false).unwrap();
    let after = route(&graph, &Options::default(), Some(&before));
    let diff = before.tables.diff(&after.tables);
    let all = graph.switch_count() * graph.endpoint_count();
    println!("{} of {all} entries", diff.len());
    assert!(!diff.is_empty() && diff.len() < all / 4, "{} of {all}", diff.len());
    assert_eq!(
        route(&graph, &Options::default(), Some(&after)),
        after,
        "nothing changed, nothing changes"
    );
}

/// The same fabric gives the same routes.
#[test]
fn routes_are_a_function_of_the_fabric() {
    let graph = generate::random(&mut Rng::new(7), 60, 90, 2).unwrap();
    let once = route(&graph, &Options::default(), None);
    assert_eq!(once, route(&graph, &Options::default(), None));
}

/// Saturated buffers of two packets: shortest paths on a ring lock up, and these routes never do. There are more in
/// [`soak_of_saturated_fabrics`].
#[test]
fn a_saturated_fabric_keeps_moving_and_a_bad_one_stops() {
    let mut rng = Rng::new(seed());
    for switches in [5, 8, 12] {
        let graph = generate::ring(switches, 1).unwrap();
        let stuck = Sim::new(&graph, &shortest(&graph), &traffic(), 2).run(&mut rng, 20_000);
        assert!(matches!(stuck, SimEnd::Stuck { .. }), "ring of {switches}: {stuck:?}");
    }
    let fabrics = [generate::ring(5, 1), generate::mesh(6, 1), generate::torus(&[4, 4], 1)];
    saturate(&mut rng, fabrics.map(Result::unwrap));
}

#[test]
#[ignore = "soak: larger fabrics"]
fn soak_of_saturated_fabrics() {
    let mut rng = Rng::new(seed());
    let fabrics = [
        generate::ring(12, 2),
        generate::torus(&[3, 3, 3], 1),
        generate::fat_tree(4),
        generate::random(&mut rng, 30, 40, 1),
    ];
    saturate(&mut rng, fabrics.map(Result::unwrap));
}

fn saturate<const N: usize>(rng: &mut Rng, fabrics: [Graph; N]) {
    for graph in fabrics {
        let routed = route(&graph, &Options::default(), None);
        let end = Sim::new(&graph, &routed.tables, &traffic(), 2).run(rng, 3_000);
        assert!(matches!(end, SimEnd::Drained { delivered } if delivered > 1_000), "{end:?}");
        // Answers in the priority of requests: the same routes lock up.
        let shared = Traffic::new(3, 3, 2);
        let end = Sim::new(&graph, &routed.tables, &shared, 2).run(rng, 20_000);
        assert!(matches!(end, SimEnd::Stuck { .. }), "{end:?}");
    }
}
