//! Chooses the order of switches for up*/down*: the best for a fabric as it is, or one that its tables already follow.
//!
//! Candidates for an [`Order`] of a [`Net`] are judged by the routes of a [`Tree`].
//!
//! Source: Schroeder et al., "Autonet", IEEE JSAC 9(8), 1991 (up*/down*); docs/spec/cxl-fabric.md "Routes".

use std::cmp::Reverse;
use std::collections::BTreeSet;

use weft_parsers::fabric::Pid;

use super::tree::Tree;
use super::updown::UpDown;
use crate::model::graph::{Graph, Key, Per, PortRef, SwitchId};
use crate::plan::order::{Net, Order};
use crate::plan::tables::Tables;

/// Number of roots tried among the most central switches, and as many among the farthest.
const ROOTS_EACH: usize = 3;
/// Number of destinations by which an order is judged, at most; each costs a whole [`Tree`].
const JUDGED_MAX: usize = 64;

impl Order {
    /// The order for `net`. With an order of before: that one, with as few switches moved as it takes to serve, so that
    /// old and new routes go together. Without one: the best of several candidates.
    #[must_use]
    pub fn new(net: &Net, before: Option<&Self>) -> Self {
        let parts = net.parts();
        let kept = before.and_then(|before| before.kept(net, &parts));
        if let Some(kept) = kept.or_else(|| before?.repaired(net, &parts)) {
            return kept;
        }
        let count = net.switch_count();
        let mut chosen = Self { rank: Per::new(count, 0), root: first_of(count) };
        let (mut tree, mut first) = (Tree::new(count), 0);
        for part in &parts {
            // Parts that no link joins are ranked one after the other, each by its own best candidate.
            let mut best = None;
            for (place, ranked) in candidates(net, part).into_iter().enumerate() {
                chosen.set(first, &ranked);
                let score = (chosen.score(net, part, &mut tree), place);
                if best.as_ref().is_none_or(|(least, _)| score < *least) {
                    best = Some((score, ranked));
                }
            }
            if let Some((_, ranked)) = best {
                chosen.set(first, &ranked);
                first += count_of(&ranked);
            }
        }
        chosen
    }

    /// The first of `orders`, each repaired to serve `graph`, that the routes of `tables` follow over the links that
    /// work; failing these, any order that they follow ([`Self::of_tables`]).
    #[must_use]
    pub fn of(
        graph: &Graph,
        tables: &Tables,
        but: &BTreeSet<Pid>,
        orders: &[&Self],
    ) -> Option<Self> {
        let net = Net::new(graph);
        let parts = net.parts();
        let mut fitted = orders
            .iter()
            .filter_map(|order| order.kept(&net, &parts).or_else(|| order.repaired(&net, &parts)));
        let is_of = |order: &Self| UpDown::new(graph, order).illegal(tables, but).is_empty();
        fitted.find(is_of).or_else(|| Self::of_tables(graph, tables, but))
    }

    /// An order that the routes of `tables` follow over the links that work, so that none of them leads up after it led
    /// down. PIDs of `but` are ignored. `None` if there is no such order.
    ///
    /// The lowest switch of a part (highest rank) is one that no route passes through between two others, and without
    /// which the others stay connected. So the order is found from its lowest switch upwards.
    #[must_use]
    pub fn of_tables(graph: &Graph, tables: &Tables, but: &BTreeSet<Pid>) -> Option<Self> {
        let net = Net::new(graph);
        let best = Self::new(&net, None);
        let turns = turns(graph, tables, but);
        let is_valley =
            |&[from, at, to]: &[SwitchId; 3]| best.leads_up(at, from) && best.leads_up(at, to);
        // The tables follow the best order: no other one is needed.
        if !turns.iter().any(is_valley) {
            return Some(best);
        }
        let mut through = Per::new(net.switch_count(), 0_u32);
        for &[_, at, _] in &turns {
            through[at] += 1;
        }
        let (mut found, mut first) = (best.clone(), 0);
        for part in net.parts() {
            let mut left = part;
            left.sort_by_key(|&switch| best.rank[switch]);
            let mut ranked = Vec::with_capacity(left.len());
            while !left.is_empty() {
                // A switch that routes pass through must stand above one of their ends: it becomes lowest only after
                // that end.
                let may = |place: &usize| {
                    left.get(*place).is_some_and(|&s| through[s] == 0)
                        && stays_one(&net, &left, *place)
                };
                // From the back: among switches that may come last, the one that the best order has lowest.
                let place = (0..left.len()).rev().find(may)?;
                let lowest = left.remove(place);
                let freed = |turn: &&[SwitchId; 3]| {
                    let [from, at, to] = **turn;
                    // Each turn counts until the first of its two ends is found.
                    let other = if from == lowest { to } else { from };
                    at != lowest && (from == lowest || to == lowest) && left.contains(&other)
                };
                turns.iter().filter(freed).for_each(|&[_, at, _]| through[at] -= 1);
                ranked.push(lowest);
            }
            ranked.reverse();
            found.set(first, &ranked);
            first += count_of(&ranked);
        }
        Some(found)
    }

    /// Score of an order, lowest is best: hops between all pairs of PIDs, then the number of alternative ways, more is
    /// better.
    fn score(&self, net: &Net, part: &[SwitchId], tree: &mut Tree) -> (u64, Reverse<u64>) {
        let ends: Vec<SwitchId> = part.iter().copied().filter(|&s| net.pids[s] > 0).collect();
        // Destinations are sampled evenly, `JUDGED_MAX` at most, as each takes a whole tree.
        let step = ends.len().div_ceil(JUDGED_MAX).max(1);
        let (mut hops, mut ways) = (0, 0);
        for &to in ends.iter().step_by(step) {
            tree.grow(net, self, to);
            for &from in &ends {
                let pairs = u64::from(net.pids[from]) * u64::from(net.pids[to]);
                hops += pairs * u64::from(tree.hops(from));
                // More than 8 ways do not count: a routing group holds no more ports.
                ways += pairs * (tree.primaries(net, self, from).count().min(8) as u64);
            }
        }
        (hops, Reverse(ways))
    }
}

/// All turns of routes of `tables`, from one switch through a second to a third, each once.
fn turns(graph: &Graph, tables: &Tables, but: &BTreeSet<Pid>) -> BTreeSet<[SwitchId; 3]> {
    let mut turns = BTreeSet::new();
    // Many PIDs have the same ports: each pair of ports of two switches is looked at once.
    let mut seen = BTreeSet::new();
    for end in graph.endpoints().filter(|end| !but.contains(&end.pid)) {
        for from in graph.switches() {
            let out = tables.get(from).and_then(|tables| tables.ports(end.pid));
            for port in out.unwrap_or_default().iter() {
                let Some(at) = graph.far(PortRef::new(from, port)).map(|far| far.switch) else {
                    continue;
                };
                let onward = tables.get(at).and_then(|tables| tables.ports(end.pid));
                for next in onward.unwrap_or_default().iter() {
                    if seen.insert((from, port, next))
                        && let Some(to) = graph.far(PortRef::new(at, next))
                    {
                        turns.insert([from, at, to.switch]);
                    }
                }
            }
        }
    }
    turns
}

/// Whether the switches of `left` stay connected without the one at `place`.
fn stays_one(net: &Net, left: &[SwitchId], place: usize) -> bool {
    let Some(&without) = left.get(place) else { return false };
    let mut open: BTreeSet<SwitchId> = left.iter().copied().filter(|&s| s != without).collect();
    let Some(first) = open.pop_first() else { return true };
    let mut found = vec![first];
    while let Some(switch) = found.pop() {
        found.extend(net.arcs(switch).iter().map(|arc| arc.far).filter(|far| open.remove(far)));
    }
    open.is_empty()
}

pub(super) fn count_of(ranked: &[SwitchId]) -> u32 {
    u32::try_from(ranked.len()).expect("a graph holds at most 1,024 switches")
}

fn first_of(count: usize) -> Per<SwitchId, SwitchId> {
    (0..count).map(SwitchId::at).collect()
}

/// Candidates for the order: by levels from several roots, and by height above the edge.
fn candidates(net: &Net, part: &[SwitchId]) -> Vec<Vec<SwitchId>> {
    let mut by_distance: Vec<(u64, SwitchId)> = part
        .iter()
        .map(|&root| {
            let hops = net.hops(&[root]);
            let to = |&s: &SwitchId| u64::from(hops[s].unwrap_or(0)) * u64::from(net.pids[s]);
            (part.iter().map(to).sum(), root)
        })
        .collect();
    by_distance.sort_unstable();
    let near = by_distance.iter().take(ROOTS_EACH);
    let far = by_distance.iter().rev().take(ROOTS_EACH);
    let mut roots: Vec<SwitchId> = near.chain(far).map(|&(_, root)| root).collect();
    roots.extend(part.first());
    let mut tried = BTreeSet::new();
    roots.retain(|&root| tried.insert(root));
    let mut orders: Vec<Vec<SwitchId>> = by_heights(net, part).into_iter().collect();
    orders.extend(roots.into_iter().map(|root| by_levels(net, part, root)));
    orders
}

/// Orders switches by their distance from `root`.
fn by_levels(net: &Net, part: &[SwitchId], root: SwitchId) -> Vec<SwitchId> {
    let hops = net.hops(&[root]);
    let mut ranked = part.to_vec();
    ranked.sort_by_key(|&switch| (hops[switch], switch));
    ranked
}

/// Orders switches by height above the edge, highest first, each behind some neighbour; `None` where all are at the
/// edge.
///
/// Fat trees and leaf-spine fabrics have many tops. Joining them one after the other, each by its own lowest detour,
/// keeps every shortest path between edges: no switch between the two edges stands behind both its neighbours.
fn by_heights(net: &Net, part: &[SwitchId]) -> Option<Vec<SwitchId>> {
    let degree = |&s: &SwitchId| (net.pids[s], s);
    // A switch with one PID may have it for itself; hosts are where the PIDs are.
    let most = part.iter().map(degree).max()?.0;
    let edges: Vec<SwitchId> =
        part.iter().copied().filter(|&s| net.pids[s] > u32::from(most > 1)).collect();
    let height = net.hops(&edges);
    let &root = part.iter().max_by_key(|&&s| (height[s], Reverse(s)))?;
    if height[root].is_none_or(|height| height == 0) {
        return None;
    }
    let mut ranked = Vec::with_capacity(part.len());
    let mut known = Per::new(net.switch_count(), false);
    let mut next = BTreeSet::from([(Reverse(height[root]), root)]);
    known[root] = true;
    while let Some((_, switch)) = next.pop_first() {
        ranked.push(switch);
        for arc in net.arcs(switch) {
            if !known[arc.far] {
                known[arc.far] = true;
                next.insert((Reverse(height[arc.far]), arc.far));
            }
        }
    }
    Some(ranked)
}
