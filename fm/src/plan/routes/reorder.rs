//! Steps between orders of switches: a repair with few moves, and the orders between two that go with both.
//!
//! [`Order::repaired`] makes an earlier order serve the links that work now. [`Moves`] are all orders on the way from
//! one to another.
//!
//! Source: own construction, proved below; the orders are the words of a search from a root (Björner and Ziegler,
//! "Introduction to greedoids", 1992).
//!
//! # Orders on the way
//! An order serves if every switch but the first has a neighbour before it. Between two orders that serve there is a
//! sequence of orders that all serve, each made by swapping two adjacent switches: the first switch of the wanted order
//! is moved to the front, then the second one behind it, and so on. A switch that moves to the front has a neighbour
//! among the switches already there; for all others only the set before them grows. To exchange the first switch of
//! all, a neighbour takes its place, then a neighbour of that one, and so on to the wanted first switch.
//!
//! Swapping two linked switches a and b turns the links between them, and no others. Each of the two has another link
//! that leads up, because both orders serve, unless they are the first two: then no packet that follows the old order
//! goes up after down by the new one. So the fabric without the turned links is served by both orders, and routes in it
//! are legal in both.

use std::collections::{BTreeMap, BTreeSet};

use super::choose::count_of;
use crate::model::graph::{Graph, SwitchId};
use crate::plan::order::{Net, Order};

impl Order {
    /// These ranks for another `net`, with few switches moved: where a switch has lost its last link that leads up, the
    /// switches of a shortest way to it, from switches before it, are put in front of it.
    pub(super) fn repaired(&self, net: &Net, parts: &[Vec<SwitchId>]) -> Option<Self> {
        if self.rank.len() != net.switch_count() {
            return None;
        }
        let (mut repaired, mut first) = (self.clone(), 0);
        for part in parts {
            let mut ranked = part.clone();
            ranked.sort_by_key(|&switch| (self.rank[switch], switch));
            // The root stays in any case: it needs no link that leads up.
            let mut at = 1;
            let mut before: BTreeSet<SwitchId> = ranked.iter().take(1).copied().collect();
            while let Some(&switch) = ranked.get(at) {
                let way = way_from(net, &before, switch)?;
                // Its own neighbour is there already in most cases: then it stays where it is.
                ranked.retain(|other| !way.contains(other));
                before.extend(way.iter().copied());
                let count = way.len();
                ranked.splice(at..at, way);
                at += count;
            }
            repaired.set(first, &ranked);
            first += count_of(&ranked);
        }
        Some(repaired)
    }
}

/// The switches of a shortest way from one of `from` to `to`, without the first, including `to`.
fn way_from(net: &Net, from: &BTreeSet<SwitchId>, to: SwitchId) -> Option<Vec<SwitchId>> {
    let mut next = BTreeMap::from([(to, None)]);
    let mut open = vec![to];
    let mut at = 0;
    while let Some(&switch) = open.get(at) {
        at += 1;
        for arc in net.arcs(switch) {
            if from.contains(&arc.far) {
                let mut way = vec![switch];
                let mut here = switch;
                while let Some(Some(nearer)) = next.get(&here).copied() {
                    way.push(nearer);
                    here = nearer;
                }
                return Some(way);
            }
            if let std::collections::btree_map::Entry::Vacant(place) = next.entry(arc.far) {
                place.insert(Some(switch));
                open.push(arc.far);
            }
        }
    }
    None
}

/// The orders on the way from one to another.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    start: Order,
    /// For each part: its switches in the initial order, and the moves, one after the other.
    parts: Vec<(Vec<SwitchId>, Vec<Move>)>,
}

/// Moves a switch forwards to a place, by swaps of neighbours.
#[derive(Clone, Copy, Debug)]
struct Move {
    switch: SwitchId,
    to: usize,
}

impl Moves {
    /// The orders from `start` to `end`, which both serve `net`.
    pub fn new(net: &Net, start: &Order, end: &Order) -> Self {
        let of = |part: Vec<SwitchId>| {
            let mut ranked = part.clone();
            ranked.sort_by_key(|&switch| start.rank[switch]);
            let mut wanted = part;
            wanted.sort_by_key(|&switch| end.rank[switch]);
            let mut moves = Vec::new();
            if let (Some(&root), Some(&first)) = (ranked.first(), wanted.first())
                && let Some(way) =
                    way_from(net, &BTreeSet::from([root]), first).filter(|_| root != first)
            {
                for switch in way {
                    // To the second place, where it has the root as its neighbour, and then before the root, by one
                    // swap.
                    moves.extend([Move { switch, to: 1 }, Move { switch, to: 0 }]);
                }
            }
            moves.extend((0..).zip(wanted).map(|(to, switch)| Move { switch, to }));
            (ranked, moves)
        };
        Self { start: start.clone(), parts: net.parts().into_iter().map(of).collect() }
    }

    /// Number of swaps in all.
    pub fn count(&self) -> usize {
        self.walk(usize::MAX).1
    }

    /// The order after a number of swaps.
    pub fn after(&self, swaps: usize) -> Order {
        self.walk(swaps).0
    }

    fn walk(&self, most: usize) -> (Order, usize) {
        let (mut order, mut swaps, mut first) = (self.start.clone(), 0, 0);
        for (ranked, moves) in &self.parts {
            let mut ranked = ranked.clone();
            for &Move { switch, to } in moves {
                let from = ranked.iter().position(|&at| at == switch).unwrap_or(to);
                // `most - swaps` cuts the move that is under way when the number is reached.
                let steps = from.saturating_sub(to).min(most - swaps);
                swaps += steps;
                if let Some(run) = ranked.get_mut(from - steps..=from) {
                    run.rotate_right(1);
                }
            }
            order.set(first, &ranked);
            first += count_of(&ranked);
        }
        (order, swaps)
    }
}

/// The graph without the links that lead up by one order and down by the other.
pub(super) fn without_turned(graph: &Graph, one: &Order, other: &Order) -> Graph {
    let mut left = graph.clone();
    for (link, ends) in graph.links() {
        let [a, b] = ends.ends.map(|end| end.switch);
        if one.leads_up(a, b) != other.leads_up(a, b) {
            let known = left.set_link(link, false);
            debug_assert!(known.is_ok(), "a link of this graph");
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use crate::model::graph::{Key, LinkId, Per, generate};

    fn below(rng: &mut Rng, bound: usize) -> usize {
        usize::try_from(rng.below(bound as u64)).unwrap()
    }

    /// An order of a connected net, found by a random search.
    fn any_order(rng: &mut Rng, net: &Net) -> Order {
        let count = net.switch_count();
        let mut ranked = vec![SwitchId::at(below(rng, count))];
        while ranked.len() < count {
            let next: BTreeSet<SwitchId> = ranked
                .iter()
                .flat_map(|&at| net.arcs(at))
                .map(|arc| arc.far)
                .filter(|far| !ranked.contains(far))
                .collect();
            ranked.push(*next.iter().nth(below(rng, next.len())).unwrap());
        }
        let mut order = Order { rank: Per::new(count, 0), root: Per::new(count, ranked[0]) };
        order.set(0, &ranked);
        order
    }

    #[test]
    fn all_orders_on_the_way_serve_and_two_in_a_row_leave_a_whole_fabric() {
        let mut rng = Rng::new(5);
        for _ in 0..60 {
            let graph = generate::random(&mut rng, 9, 8, 1).unwrap();
            let net = Net::new(&graph);
            let (start, end) = (any_order(&mut rng, &net), any_order(&mut rng, &net));
            let moves = Moves::new(&net, &start, &end);
            assert_eq!(moves.after(0), start);
            assert_eq!(moves.after(moves.count()), end);
            for at in 0..moves.count() {
                let [one, other] = [at, at + 1].map(|swaps| moves.after(swaps));
                assert!(one.serves(&graph) && other.serves(&graph), "{at} of {}", moves.count());
                let differ: Vec<SwitchId> =
                    graph.switches().filter(|&s| one.rank[s] != other.rank[s]).collect();
                assert_eq!(differ.len(), 2, "two switches are swapped");
                let are_first = differ.iter().all(|&s| one.rank[s] < 2);
                let left = without_turned(&graph, &one, &other);
                assert!(are_first || one.serves(&left) && other.serves(&left), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn an_order_is_repaired_by_few_moves_and_serves_again() {
        let mut rng = Rng::new(6);
        let mut moved = 0;
        for _ in 0..200 {
            let mut graph = generate::random(&mut rng, 12, 9, 1).unwrap();
            let order = Order::new(&Net::new(&graph), None);
            let link = LinkId::at(below(&mut rng, graph.links().count()));
            graph.set_link(link, false).unwrap();
            let net = Net::new(&graph);
            let repaired = order.repaired(&net, &net.parts()).unwrap();
            assert!(repaired.serves(&graph));
            if order.serves(&graph) && net.parts().len() == 1 {
                assert_eq!(repaired.rank, order.rank);
            } else if !order.serves(&graph) {
                moved += 1;
            }
        }
        assert!(moved > 20, "{moved}");
    }
}
