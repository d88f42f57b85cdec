//! Nodes of a network on the engine: its switches, and the hosts or other components at its edge.
//!
//! An [`Edge`] is the kind of component at a network's edge; [`Nodes`] steps switches and edges, and gives access to
//! them.
//!
//! Source: docs/spec/model.md §1.

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::port::PortError;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortSet;

use crate::engine::{Component, Engine, Schedule};
use crate::switch::Switch;
use crate::switch_watch::SwitchWatch;

/// A component at the edge of a network, such as a host.
pub(crate) trait Edge: Send {
    /// Like [`Component::step`], but may fail with its port.
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError>;
}

/// A component of a network.
pub(crate) enum Node<E> {
    /// A switch, and its watch, if it has one.
    Switch(Box<Switch>, Option<Box<SwitchWatch>>),
    /// A component at the edge, and the failure of its port, if it has failed.
    Edge(Box<E>, Option<PortError>),
}

impl<E> From<Switch> for Node<E> {
    fn from(switch: Switch) -> Self {
        Self::Switch(Box::new(switch), None)
    }
}

impl<E: Edge> Node<E> {
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
                // A step of the engine cannot fail: `Nodes::run` reports it.
                *failure = Some(error);
                None
            }),
        }
    }
}

/// All nodes of a network.
pub(crate) struct Nodes<E>(Engine<Node<E>>);

impl<E: Edge> Nodes<E> {
    pub fn new(nodes: Vec<Node<E>>, schedule: Schedule) -> Self {
        Self(Engine::new(nodes, schedule))
    }

    /// Components at the edge, in the order of their numbers.
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

    /// For each node, its watch with the switch; `None` for edges and switches without one.
    pub fn watches(&self) -> impl Iterator<Item = Option<(&Switch, &SwitchWatch)>> {
        self.0.components().iter().map(|node| match node {
            Node::Switch(switch, watch) => Some((&**switch, &**watch.as_ref()?)),
            Node::Edge(..) => None,
        })
    }

    /// The ledger of each switch.
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.switches().map(|switch| Ledger::read(switch.core())).collect()
    }

    /// The component at the edge with this number, for a change; it is due at once.
    pub fn change(&mut self, component: usize) -> Option<&mut E> {
        match self.0.change(component)? {
            Node::Edge(edge, _) => Some(&mut **edge),
            Node::Switch(..) => None,
        }
    }

    /// Steps the switches for which `which` is true once more at this instant, which brings their counters over time up
    /// to date.
    pub fn settle(&mut self, which: impl Fn(&Switch) -> bool) {
        for component in 0..self.len() {
            let is_one = self.0.components().get(component).is_some_and(|node| match node {
                Node::Switch(switch, _) => which(switch),
                Node::Edge(..) => false,
            });
            if is_one {
                // A change marks the component as due now, and nothing else of it changes.
                self.0.change(component);
            }
        }
        self.0.run(self.now(), 1);
    }

    /// Number of nodes, switches and edges together.
    pub fn len(&self) -> usize {
        self.0.components().len()
    }

    pub const fn now(&self) -> Instant {
        self.0.now()
    }

    /// Runs until `end` on `threads` threads; returns the first failure of a port at the edge.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.0.run(end, threads);
        let mut failures = self.0.components().iter().filter_map(|node| match node {
            Node::Edge(_, failure) => failure.as_ref(),
            Node::Switch(..) => None,
        });
        failures.next().map_or(Ok(()), Err)
    }
}
