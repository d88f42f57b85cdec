//! Circles of PFC: inputs of switches that may wait for each other for ever.
//!
//! An input that has paused its peer waits for the outputs that its frames go to, and each of these for the input at
//! the other end of its cable. A circle of such waits is a deadlock that may happen.
//!
//! Source: docs/spec/model.md §3; Dally and Seitz, IEEE Transactions on Computers C-36(5), 1987 (dependencies of
//! channels).

use std::collections::BTreeMap;

use weft_dataplane::types::{PortId, PortSet};

use crate::topology::{NodeId, NodeKind, Routes, Topology};

/// An input of a switch: its node and port.
pub type Input = (NodeId, PortId);

/// A circle of inputs over `routes`, if there is one. `pfc` says of each switch, in the order of the topology, whether
/// PFC is on. The first input is not repeated at the end.
#[must_use]
pub fn circle(topology: &Topology, routes: &Routes, pfc: &[bool]) -> Option<Vec<Input>> {
    let switches: BTreeMap<NodeId, usize> =
        topology.switches().enumerate().map(|(place, node)| (node, place)).collect();
    let on = |node: NodeId| switches.get(&node).and_then(|&place| pfc.get(place)) == Some(&true);
    let mut waits: BTreeMap<Input, PortSet> = BTreeMap::new();
    for (&node, &place) in switches.iter().filter(|&(&node, _)| on(node)) {
        let Some(out) = routes.get(place) else { continue };
        for (input, from, back) in neighbours(topology, node) {
            // A host's frames go on to a switch, but no host is part of a circle.
            let Some(upstream) = switches.get(&from).and_then(|&place| routes.get(place)) else {
                continue;
            };
            // Only outputs count that frames from this input can go to: towards hosts for which the upstream switch
            // uses this link.
            let outputs = upstream.iter().zip(out).filter(|(comes, _)| comes.contains(back));
            let outputs = outputs.fold(PortSet::EMPTY, |all, (_, goes)| all.or(*goes));
            waits.insert((node, input), outputs);
        }
    }
    let next = |(node, port): Input| {
        let outputs = waits.get(&(node, port)).copied().unwrap_or_default();
        neighbours(topology, node)
            .filter(move |&(output, far, _)| outputs.contains(output) && on(far))
            .map(|(_, far, input)| (far, input))
            .collect::<Vec<Input>>()
    };
    find(waits.keys().copied(), next)
}

/// The neighbouring switches of a switch: its port, the neighbour, and the neighbour's port.
fn neighbours(
    topology: &Topology,
    node: NodeId,
) -> impl Iterator<Item = (PortId, NodeId, PortId)> + '_ {
    let ports = topology.nodes().get(node).map(|node| node.ports.as_slice()).unwrap_or_default();
    let ports = (0..).map_while(PortId::new).zip(ports);
    ports.filter_map(move |(port, &link)| {
        let (far, there) = topology.links().get(link)?.far(node);
        let is_switch = topology.nodes().get(far)?.kind == NodeKind::Switch;
        is_switch.then_some((port, far, there))
    })
}

/// A circle of elements of `all`, each of which leads to those that `next` gives, found by a search in depth.
pub(crate) fn find<T: Copy + Ord>(
    all: impl Iterator<Item = T>,
    next: impl Fn(T) -> Vec<T>,
) -> Option<Vec<T>> {
    /// State of an element in the search: on the path that is being searched, or done.
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        OnWay,
        Done,
    }
    let mut marks: BTreeMap<T, Mark> = BTreeMap::new();
    for start in all {
        if marks.contains_key(&start) {
            continue;
        }
        let mut way: Vec<(T, Vec<T>)> = vec![(start, next(start))];
        marks.insert(start, Mark::OnWay);
        while let Some((at, left)) = way.last_mut() {
            let at = *at;
            match left.pop() {
                None => {
                    marks.insert(at, Mark::Done);
                    way.pop();
                }
                Some(to) => match marks.get(&to) {
                    Some(Mark::Done) => {}
                    Some(Mark::OnWay) => {
                        let circle = way.iter().map(|&(at, _)| at).skip_while(|&at| at != to);
                        return Some(circle.collect());
                    }
                    None => {
                        marks.insert(to, Mark::OnWay);
                        way.push((to, next(to)));
                    }
                },
            }
        }
    }
    None
}

/// A circle as text: `sw0 port 1, sw1 port 2`.
#[must_use]
pub fn words(topology: &Topology, circle: &[Input]) -> String {
    let name = |node: NodeId| topology.nodes().get(node).map_or("?", |node| node.name.as_str());
    let inputs = circle.iter().map(|&(node, port)| format!("{} port {}", name(node), port.index()));
    inputs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_have_circles_and_trees_have_none() {
        #[rustfmt::skip] // columns: name, net, inputs in a circle
        let cases = [
            ("single",      Topology::single(8),            None),
            ("leaf-spine",  Topology::leaf_spine(16, 4, 2), None),
            ("fat tree",    Topology::fat_tree(16),         None),
            ("mesh",        Topology::mesh(8, 4),           None),
            ("ring of 3",   Topology::ring(6, 3),           None), // no path has two hops
            ("ring of 5",   Topology::ring(5, 5),           Some(5)),
            ("torus",       Topology::torus(25, &[5, 5]),   Some(5)),
        ];
        for (name, net, want) in cases {
            let net = net.unwrap();
            let routes = net.routes().unwrap();
            let count = net.switches().count();
            let had = circle(&net, &routes, &vec![true; count]);
            assert_eq!(had.as_ref().map(Vec::len).is_some(), want.is_some(), "{name}: {had:?}");
            if name == "ring of 5" {
                assert_eq!(had.map(|inputs| inputs.len()), want, "{name}");
            }
            assert_eq!(circle(&net, &routes, &vec![false; count]), None, "{name} without PFC");
        }
        let net = Topology::ring(5, 5).unwrap();
        let routes = net.routes().unwrap();
        let mut pfc = vec![true; 5];
        pfc[3] = false;
        assert_eq!(circle(&net, &routes, &pfc), None, "one of the ring has no PFC");
        let found = circle(&net, &routes, &[true; 5]).unwrap();
        assert_eq!(words(&net, &found).matches("sw").count(), 5);
    }
}
