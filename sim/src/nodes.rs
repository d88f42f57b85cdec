//! Nodes: the switches of a network and what is at its edge, on the engine.
//!
//! [`Edge`] is what a kind of network has at its edge; [`Nodes`] steps switches and edges, and reads them.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §1.

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::PortError;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortSet;

use crate::engine::{Component, Engine, Schedule};
use crate::switch::Switch;
use crate::switch_watch::SwitchWatch;

/// What is at the edge of a network.
pub(crate) trait Edge: Send {
    /// As [`Component::step`].
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError>;
}

/// A component of a network.
pub(crate) enum Node<E> {
    /// A switch, and who hears it, if anybody does.
    Switch(Box<Switch>, Option<Box<SwitchWatch>>),
    /// Somebody at the edge, and why its port has failed, if it has.
    Edge(Box<E>, Option<PortError>),
}

impl<E> From<Switch> for Node<E> {
    fn from(switch: Switch) -> Self {
        Self::Switch(Box::new(switch), None)
    }
}

impl<E: Edge> Node<E> {
    /// Somebody at the edge.
    pub fn edge(edge: E) -> Self {
        Self::Edge(Box::new(edge), None)
    }
}

impl<E: Edge> Component for Node<E> {
    fn step(&mut self, now: Instant, arrived: PortSet) -> Option<Instant> {
        match self {
            Self::Switch(switch, None) => switch.step_at(now, arrived, &mut NoTrace).next,
            Self::Switch(switch, Some(watch)) => {
                let next = switch.step_at(now, arrived, &mut **watch).next;
                watch.follow(now, switch.core());
                next
            }
            Self::Edge(edge, failure) => edge.step(now).unwrap_or_else(|error| {
                *failure = Some(error);
                None
            }),
        }
    }
}

/// All nodes of a network.
pub(crate) struct Nodes<E>(Engine<Node<E>>);

impl<E: Edge> Nodes<E> {
    /// As [`Engine::new`].
    pub fn new(nodes: Vec<Node<E>>, schedule: Schedule) -> Self {
        Self(Engine::new(nodes, schedule))
    }

    /// Those at the edge, in the order of their numbers.
    pub fn edges(&self) -> impl Iterator<Item = &E> {
        self.0.components().iter().filter_map(|node| match node {
            Node::Edge(edge, _) => Some(&**edge),
            Node::Switch(..) => None,
        })
    }

    /// Switches, in the order of their numbers.
    pub fn switches(&self) -> impl Iterator<Item = &Switch> {
        self.0.components().iter().filter_map(|node| match node {
            Node::Switch(switch, _) => Some(&**switch),
            Node::Edge(..) => None,
        })
    }

    /// By node: who hears it, with the switch.
    pub fn watches(&self) -> impl Iterator<Item = Option<(&Switch, &SwitchWatch)>> {
        self.0.components().iter().map(|node| match node {
            Node::Switch(switch, watch) => Some((&**switch, &**watch.as_ref()?)),
            Node::Edge(..) => None,
        })
    }

    /// The books of each switch.
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.switches().map(|switch| Ledger::read(switch.core())).collect()
    }

    /// Somebody at the edge, by the component's number, who is going to be changed.
    pub fn change(&mut self, component: usize) -> Option<&mut E> {
        match self.0.change(component)? {
            Node::Edge(edge, _) => Some(&mut **edge),
            Node::Switch(..) => None,
        }
    }

    /// Has switches step once more at this instant for which `which` is true: what they count over time is exact then.
    pub fn settle(&mut self, which: impl Fn(&Switch) -> bool) {
        for component in 0..self.len() {
            let is_one = self.0.components().get(component).is_some_and(|node| match node {
                Node::Switch(switch, _) => which(switch),
                Node::Edge(..) => false,
            });
            if is_one {
                self.0.change(component);
            }
        }
        self.0.run(self.now(), 1);
    }

    /// Nodes there are.
    pub fn len(&self) -> usize {
        self.0.components().len()
    }

    /// Where the run has come to.
    pub const fn now(&self) -> Instant {
        self.0.now()
    }

    /// Runs until `end` on so many threads; the first failure of a port at the edge.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.0.run(end, threads);
        let mut failures = self.0.components().iter().filter_map(|node| match node {
            Node::Edge(_, failure) => failure.as_ref(),
            Node::Switch(..) => None,
        });
        failures.next().map_or(Ok(()), Err)
    }
}
