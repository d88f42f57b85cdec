//! Transit: the steps from the tables that switches hold to new ones, while packets are on their way.
//!
//! [`Transit::plan`] says which entries to withdraw first, if any, and then what to send, in which order.
//!
//! Source: own construction; docs/spec/cxl-fabric.md "Change of routes".
//!
//! # Why nothing loops or deadlocks meanwhile
//! Switches change one entry at a time, and never two together. Routes to a PID are set in layers: a switch gets its
//! new entry when all switches that this entry leads to have theirs. So a packet follows old entries until it reaches a
//! switch with a new one, and new entries from there on. Neither part has a loop, so no packet circulates.
//!
//! A packet in a channel of the old routes may wait for old or new ones, wherever it was when entries changed. A packet
//! in a channel that only new routes use waits for new ones. If all these waits, of all PIDs together, have no cycle,
//! then no reachable state deadlocks, even with packets under way on old routes.
//!
//! There is no cycle if all routes follow one order of switches and no packet goes up after it went down (`updown.rs`).
//! If old and new routes follow different orders, intermediate routes that follow both come between them (`legs.rs`).
//! Every destination that had a working route keeps one throughout. Packets whose old entry leads over a lost link are
//! lost or refused until the switch has its new entry.
//!
//! If no order is known that the old routes follow, or too many intermediate routes would be needed, the changes go in
//! rounds (`rounds.rs`): packets on old routes have left the fabric before the next round begins. Where no sequence of
//! rounds works for a PID, its changing entries are withdrawn first: they become invalid, packets that used them drain,
//! and only then the new entries are set. Packets that meet a missing entry meanwhile are dropped or refused, as
//! without a route.
//!
//! If a group is about to gain ports, the entries that name it first name one port of the old group instead. That is
//! part of their old routes and needs no proof of its own. A group that only loses ports is set directly.

use std::collections::BTreeSet;

use weft_parsers::fabric::{DrtEntry, Pid};

use super::legs::{Leg, Trip};
use super::rounds::{self, TableChange, UpdateRounds};
use super::updown::{Stages, UpDown, ports};
use super::{Options, Order, Routed};
use crate::model::graph::{Graph, PortRef, SwitchId};
use crate::plan::proof::Fault;
use crate::plan::proof::walk::{Channels, UpPorts, Walk};
use crate::plan::tables::{Change, Tables, pid_at};

/// The steps from the tables that switches hold to new ones, in this order.
///
/// The changes of a list may be sent in any order, the next list when all of it has been answered. Groups that no route
/// names any more stay in the switches until their place is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transit {
    /// PIDs some of whose entries are missing for a moment.
    pub withdrawn: Vec<Pid>,
    /// Those entries, which become invalid. Afterwards wait until packets that used them have left the fabric.
    pub withdraw: Vec<Change>,
    /// The legs, one after the other.
    pub legs: Vec<Steps>,
}

/// The steps of one leg, to the new tables or to intermediate ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Entries that leave a group before its ports change.
    pub park: Vec<Change>,
    /// Groups to be set.
    pub come: Vec<Change>,
    /// Routes, in rounds of layers. Between two rounds wait until packets on old routes have left the fabric.
    pub rounds: Vec<Vec<Vec<Change>>>,
}

/// Facts about a change of tables, beside the tables.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Options that the routes were made with.
    pub options: &'a Options,
    /// PIDs whose routes are ignored: at most one packet to them is under way.
    pub apart: &'a BTreeSet<Pid>,
    /// Orders that the tables in the switches may follow.
    pub orders: &'a [&'a Order],
}

impl Transit {
    /// Plans the way from `old`, the tables in the switches of `graph`, to `new`.
    ///
    /// `old` was proved when it was set; links and switches of it may have failed since.
    ///
    /// # Errors
    /// `new` loses packets or lets them loop.
    pub fn plan(
        graph: &Graph,
        old: &Tables,
        new: &Routed,
        known: &Known<'_>,
    ) -> Result<Self, Fault> {
        let &Known { options, apart, orders } = known;
        let trip = Trip { graph, options, apart, orders };
        let legs = trip.legs(old, new);
        let staged = legs.map(|legs| Self::staged(graph, old, &legs, apart)).transpose()?;
        match staged.flatten() {
            Some(transit) => Ok(transit),
            None => Self::in_rounds(graph, old, new),
        }
    }

    /// The steps over `legs`; `None` if the switches cannot change in stages.
    fn staged(
        graph: &Graph,
        old: &Tables,
        legs: &[Leg<'_>],
        apart: &BTreeSet<Pid>,
    ) -> Result<Option<Self>, Fault> {
        let mut transit = Self::default();
        let mut standing = old.clone();
        for leg in legs {
            let park = park(graph, &standing, &leg.tables);
            for &change in &park {
                standing.apply(change);
            }
            let diff = standing.diff(&leg.tables);
            let by = UpDown::new(graph, &leg.order);
            let mut stages = Stages::new(&by, &standing, &leg.tables, apart);
            let Some(rounds) = staged_rounds(&mut stages, diff.routes)? else { return Ok(None) };
            transit.legs.push(Steps { park, come: diff.come, rounds });
            standing = leg.tables.clone().into_owned();
        }
        Ok(Some(transit))
    }

    /// Steps where no orders are known that old and new routes follow: rounds are searched by PID, and entries to PIDs
    /// without one are withdrawn for a moment.
    fn in_rounds(graph: &Graph, old: &Tables, new: &Routed) -> Result<Self, Fault> {
        let channels = Channels::new(graph);
        let ups = &UpPorts::new(graph, &new.order);
        let new = &new.tables;
        let park = park(graph, old, new);
        let mut standing = old.clone();
        for &change in &park {
            standing.apply(change);
        }
        let mut rest = Walk::new(graph, &channels);
        let mut changed = Vec::new();
        for to in (0..Pid::COUNT).map(pid_at) {
            if is_same(graph, &standing, new, to) {
                // Its packets take the same ports before and after, so their waits are there throughout.
                rest.mix(new, new, ups, to);
            } else {
                changed.push(to);
            }
        }
        let mut kept = standing.clone();
        for &to in &changed {
            // Entries that stay are not withdrawn: traffic that uses only those must not notice.
            for at in graph.switches().filter(|&at| ports(&standing, at, to) != ports(new, at, to))
            {
                kept.apply(Change::Route { at, to, entry: DrtEntry::Invalid });
            }
        }
        let change = TableChange { graph, ups, old: &standing, new, kept: &kept };
        let UpdateRounds { rounds, withdrawn } = rounds::plan(change, &rest, &changed);
        let mut withdraw = Vec::new();
        for &to in &withdrawn {
            for at in graph.switches() {
                let entry = route(old, at, to);
                if entry != DrtEntry::Invalid && ports(old, at, to) != ports(new, at, to) {
                    let change = Change::Route { at, to, entry: DrtEntry::Invalid };
                    standing.apply(change);
                    withdraw.push(change);
                }
            }
        }
        // An entry that is withdrawn is not parked as well: it would come back for a moment.
        let is_withdrawn = |change: &Change| match *change {
            Change::Route { at, to, .. } => {
                withdrawn.binary_search(&to).is_ok()
                    && route(&standing, at, to) == DrtEntry::Invalid
            }
            Change::Group { .. } => false,
        };
        let park = park.into_iter().filter(|change| !is_withdrawn(change)).collect();
        let diff = standing.diff(new);
        let mut walk = Walk::new(graph, &channels);
        let mut left = diff.routes;
        let mut layered = Vec::with_capacity(rounds.len());
        for round in &rounds {
            let is_of = |change: &Change| match change {
                Change::Route { to, .. } => round.binary_search(to).is_ok(),
                Change::Group { .. } => false,
            };
            let (now, later) = left.into_iter().partition(is_of);
            left = later;
            layered.push(layers(&mut walk, new, now)?);
        }
        // Entries that lead where they did, by a group instead of a port or the other way round.
        if !left.is_empty() {
            let more = layers(&mut walk, new, left)?;
            match layered.first_mut() {
                Some(first) => join(first, more),
                None => layered.push(more),
            }
        }
        let steps = Steps { park, come: diff.come, rounds: layered };
        Ok(Self { withdrawn, withdraw, legs: vec![steps] })
    }
}

/// Routes by stage, and within a stage by the most hops behind them; `None` if there are no stages.
fn staged_rounds(
    stages: &mut Stages<'_>,
    mut routes: Vec<Change>,
) -> Result<Option<Vec<Vec<Vec<Change>>>>, Fault> {
    routes.sort_by_key(key);
    let mut rounds: Vec<Vec<Vec<Change>>> = Vec::new();
    for of_one in routes.chunk_by(|a, b| key(a).0 == key(b).0) {
        let Some(to) = of_one.first().and_then(|change| key(change).0) else { continue };
        let changed: Vec<SwitchId> = of_one.iter().map(|change| key(change).1).collect();
        let Some(places) = stages.of(to, &changed)? else { return Ok(None) };
        for (&change, (stage, layer)) in of_one.iter().zip(places) {
            if rounds.len() <= stage {
                rounds.resize(stage + 1, Vec::new());
            }
            let round = rounds.get_mut(stage).expect("just made");
            if round.len() <= layer {
                round.resize(layer + 1, Vec::new());
            }
            round.get_mut(layer).expect("just made").push(change);
        }
    }
    Ok(Some(rounds))
}

/// Sort key of a change: the PID, then the switch.
const fn key(change: &Change) -> (Option<Pid>, SwitchId) {
    match *change {
        Change::Route { at, to, .. } => (Some(to), at),
        Change::Group { at, .. } => (None, at),
    }
}

/// Merges two lists of layers, hop by hop.
fn join(layers: &mut Vec<Vec<Change>>, more: Vec<Vec<Change>>) {
    layers.resize(layers.len().max(more.len()), Vec::new());
    layers.iter_mut().zip(more).for_each(|(layer, mut more)| layer.append(&mut more));
}

/// Changes for entries that name a group which is to gain ports: each becomes one port of the old group, the first that
/// works, so that static messages keep their way if they have one.
fn park(graph: &Graph, old: &Tables, new: &Tables) -> Vec<Change> {
    let mut changes = Vec::new();
    for at in graph.switches() {
        let (Some(before), Some(after)) = (old.get(at), new.get(at)) else { continue };
        let grows = |index: u8| {
            let (Some(old), Some(new)) = (before.rgt(index), after.rgt(index)) else {
                return false;
            };
            // Only a group that gains ports must be left: losing some takes away choices, but adds no wait.
            new.ports().iter().any(|port| !old.ports().contains(port))
        };
        let grows: Vec<bool> = (0..=u8::MAX).map(grows).collect();
        for to in (0..Pid::COUNT).map(pid_at) {
            let DrtEntry::Group(index) = before.drt(to) else { continue };
            let Some(group) =
                before.rgt(index).filter(|_| grows.get(usize::from(index)) == Some(&true))
            else {
                continue;
            };
            let works = |port: &&u8| graph.far(PortRef::new(at, **port)).is_some();
            let port = group.ports().iter().find(works).or(group.ports().first());
            changes.extend(port.map(|&port| Change::Route { at, to, entry: DrtEntry::Port(port) }));
        }
    }
    changes
}

/// Routes by the most hops behind them.
fn layers(
    walk: &mut Walk,
    new: &Tables,
    mut routes: Vec<Change>,
) -> Result<Vec<Vec<Change>>, Fault> {
    routes.sort_by_key(key);
    let mut layers: Vec<Vec<Change>> = Vec::new();
    for of_one in routes.chunk_by(|a, b| key(a).0 == key(b).0) {
        let Some(to) = of_one.first().and_then(|change| key(change).0) else { continue };
        let hops = walk.hops(new, to)?;
        for &change in of_one {
            let layer = hops[key(&change).1] as usize;
            if layers.len() <= layer {
                layers.resize(layer + 1, Vec::new());
            }
            layers.get_mut(layer).expect("just made").push(change);
        }
    }
    Ok(layers)
}

fn route(tables: &Tables, at: SwitchId, to: Pid) -> DrtEntry {
    tables.get(at).map(|tables| tables.drt(to)).unwrap_or_default()
}

/// Whether packets to a PID take the same ports before and after.
fn is_same(graph: &Graph, old: &Tables, new: &Tables, to: Pid) -> bool {
    graph.switches().all(|at| ports(old, at, to) == ports(new, at, to))
}
