//! Whose routes are withdrawn: nobody's where both tables are made by orders of switches, whichever; else nobody's for whom
//! there is an order of changes without deadlock.
//!
//! Two tables of one small fabric, made without each other -> where the old ones go by no order of switches, all orders
//! of PIDs are tried one by one, by the means of [`check`](super::check) alone -> as many are withdrawn as must be.
//!
//! Units: PIDs.
//! Source: docs/spec/cxl-fabric.md "Routes"; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987.

use std::collections::{BTreeMap, BTreeSet};

use weft_base::rng::Rng;
use weft_fm::model::graph::{Graph, LinkId, PortRef, SwitchId, generate};
use weft_fm::plan::order::Order;
use weft_fm::plan::routes::{Known, Options, Routed, Transit, route};
use weft_fm::plan::tables::Tables;
use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

use super::check::{Dependencies, circle, walk_static};
use super::{below, mixtures, seed};

const NO_GROUPS: Options =
    Options { mode: RgtMode::CongestionAvoiding, mix: 7, detours: true, groups: 0 };

/// Tables without groups, made as if some of the links were not there: a careful manager's, of another day.
fn made(graph: &Graph, without: &[LinkId]) -> Routed {
    let mut graph = graph.clone();
    for &link in without {
        graph.set_link(link, false).unwrap();
    }
    route(&graph, &NO_GROUPS, None)
}

/// Tables of ways that chance has drawn, which never wait in a circle: those of no manager of this kind. None where a PID got no
/// such ways in many tries.
fn drawn(rng: &mut Rng, graph: &Graph) -> Option<Tables> {
    let mut tables = Tables::new(graph.switch_count());
    for end in graph.endpoints() {
        let fits = (0..200).any(|_| {
            let mut tried = tables.clone();
            let mut open = vec![end.at.switch];
            tried.get_mut(end.at.switch).set_drt(end.pid, DrtEntry::Port(end.at.port));
            while !open.is_empty() {
                let at = open.swap_remove(below(rng, open.len()));
                for (port, _) in graph.ports(at) {
                    let Some(far) = graph.far(PortRef::new(at, port)) else { continue };
                    let tables = tried.get_mut(far.switch);
                    if tables.drt(end.pid) == DrtEntry::Invalid {
                        tables.set_drt(end.pid, DrtEntry::Port(far.port));
                        open.push(far.switch);
                    }
                }
            }
            let mut seen = Dependencies::new(graph);
            seen.stand(graph, &tried, &mut BTreeMap::new()).unwrap();
            let fits = circle(&seen.alone()).is_none();
            if fits {
                tables = tried;
            }
            fits
        });
        if !fits {
            return None;
        }
    }
    Some(tables)
}

/// Where the entries for a PID are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Old,
    New,
    /// Those that are the same in both.
    Kept,
}

struct Orders<'a> {
    graph: &'a Graph,
    old: &'a Tables,
    new: &'a Tables,
    pids: Vec<Pid>,
    known: BTreeMap<(Vec<u8>, usize), bool>,
}

impl Orders<'_> {
    fn tables(&self, now: &[At]) -> Tables {
        let mut tables = Tables::new(self.graph.switch_count());
        for (&to, at) in self.pids.iter().zip(now) {
            for switch in self.graph.switches() {
                let [old, new] = [self.old, self.new].map(|t| t.get(switch).unwrap().drt(to));
                let entry = match at {
                    At::Old => old,
                    At::New => new,
                    At::Kept if old == new => old,
                    At::Kept => continue,
                };
                tables.get_mut(switch).set_drt(to, entry);
            }
        }
        tables
    }

    /// Whether one PID can change while the others stand: switches one after the other, nearest to it first, with all
    /// packets on their way that were sent before.
    fn can_change(&mut self, now: &[At], which: usize) -> bool {
        let key = (now.iter().map(|at| *at as u8).collect(), which);
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let (to, mut standing) = (self.pids[which], self.tables(now));
        let mut switches: Vec<(u32, SwitchId)> = self
            .graph
            .switches()
            .map(|at| (walk_static(self.graph, self.new, at, to).unwrap(), at))
            .collect();
        switches.sort_unstable();
        let (mut flying, mut seen) = (BTreeMap::new(), Dependencies::new(self.graph));
        let mut stand = |tables: &Tables| seen.stand(self.graph, tables, &mut flying).unwrap();
        stand(&standing);
        for (_, at) in switches {
            standing.get_mut(at).set_drt(to, self.new.get(at).unwrap().drt(to));
            stand(&standing);
        }
        let can = circle(&seen.alone()).is_none();
        self.known.insert(key, can);
        can
    }

    /// Whether all that have old entries can change, in any order.
    fn can_all(&mut self, now: &mut Vec<At>) -> bool {
        let open: Vec<usize> = (0..now.len()).filter(|&at| now[at] == At::Old).collect();
        open.is_empty()
            || open.into_iter().any(|at| {
                self.can_change(now, at) && {
                    now[at] = At::New;
                    let can = self.can_all(now);
                    now[at] = At::Old;
                    can
                }
            })
    }

    /// How many have to be withdrawn at least.
    fn must(&mut self) -> u32 {
        let count = self.pids.len();
        let fits = |set: u32, orders: &mut Self| {
            [At::New, At::Kept].into_iter().any(|meanwhile| {
                let of = |at| if set & 1_u32 << at == 0 { At::Old } else { meanwhile };
                orders.can_all(&mut (0..count).map(of).collect())
            })
        };
        let sets = (0..1_u32 << count).filter(|&set| fits(set, self));
        sets.map(u32::count_ones).min().unwrap()
    }
}

#[test]
fn nobody_is_withdrawn_for_whom_there_is_an_order_without_deadlock() {
    let mut rng = Rng::new(seed());
    let (mut by_orders, mut at_once, mut in_rounds, mut withdrawn) = (0, 0, 0, 0);
    for number in 0..500 {
        let (name, graph) = match number % 4 {
            0 => ("ring", generate::ring(3 + below(&mut rng, 4), 1)),
            1 => ("mesh", generate::mesh(4 + below(&mut rng, 2), 1)),
            2 => ("torus", generate::grid(&[2, 3], true, 1)),
            _ => ("random", generate::random(&mut rng, 6, 4, 1)),
        };
        let graph = graph.unwrap();
        let links = graph.links().count();
        let some = |rng: &mut Rng| {
            let of = |_| LinkId(u32::try_from(below(rng, links)).unwrap());
            made(&graph, &(0..=links / 4).map(of).collect::<Vec<_>>())
        };
        let new = some(&mut rng);
        let of_orders = some(&mut rng).tables;
        let old = if number % 3 > 0 { drawn(&mut rng, &graph) } else { Some(of_orders) };
        let Some(old) = old else { continue };
        let entry = |tables: &Tables, at, to| tables.get(at).unwrap().drt(to);
        let pids: Vec<Pid> = graph.endpoints().map(|end| end.pid).collect();
        let reach =
            |tables| pids.iter().all(|&to| entry(tables, SwitchId(0), to) != DrtEntry::Invalid);
        if new.partition.is_some() || !reach(&old) {
            continue;
        }
        let name = format!("{number}: {name}");
        let known = Known { options: &NO_GROUPS, apart: &BTreeSet::new(), orders: &[] };
        let transit = Transit::plan(&graph, &old, &new, &known).unwrap();
        mixtures(&mut rng, &name, &graph, &old, &new.tables, &transit);
        if Order::of_tables(&graph, &old, &BTreeSet::new()).is_some() {
            assert!(transit.withdrawn.is_empty(), "{name}: {transit:?}");
            by_orders += 1;
            continue;
        }
        let (old, new) = (&old, &new.tables);
        let mut orders = Orders { graph: &graph, old, new, pids, known: BTreeMap::new() };
        assert_eq!(transit.withdrawn.len(), orders.must() as usize, "{name}: {transit:?}");
        let rounds: usize = transit.legs.iter().map(|leg| leg.rounds.len()).sum();
        match (transit.withdrawn.len(), rounds) {
            (0, 0 | 1) => at_once += 1,
            (0, _) => in_rounds += 1,
            _ => withdrawn += 1,
        }
    }
    println!(
        "{by_orders} by orders; {at_once} at once, {in_rounds} in rounds, {withdrawn} with PIDs withdrawn"
    );
    assert!(by_orders > 100 && at_once > 0 && in_rounds > 10 && withdrawn > 0);
}
