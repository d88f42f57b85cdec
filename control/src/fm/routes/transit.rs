//! From the tables that stand in the switches to new ones, while packets are on their way.
//!
//! Shape: graph, tables that stand, tables wanted -> [`Transit`]: entries to withdraw first, if any, then what to send.
//! Units: hops, for the layers.
//! Source: own construction; fabric.md, "Routes": the old table is kept until the new one is whole.
//!
//! # What holds meanwhile
//! Switches change one entry at a time, and no two of them together. Routes to a PID are set in layers: a switch gets its
//! new entry when all switches that this entry leads to have theirs. So a packet goes by old entries until it comes to a
//! switch with a new one, and by new ones from there: neither part has a loop, so it comes nowhere twice.
//!
//! What came by a channel of the old routes may wait for old or new ones, wherever the packet was when entries changed;
//! what came by a channel that only the new routes use waits for new ones. If all these waits, of all PIDs together, have
//! no circle, then no state that can come about locks up, with packets of before still on their way.
//!
//! PIDs for which that does not hold are withdrawn first: their entries become invalid, what is on the way to them drains
//! (packets to them are dropped or refused meanwhile, as without a route), and only then their new routes are set. All
//! others keep a way throughout, if they had one that works: packets whose old entry leads over a lost link are lost until
//! the switch has its new entry.

use weft_parsers::fabric::{DrtEntry, Pid};

use super::Routed;
use super::tables::{Change, Tables, pid_at};
use crate::fm::graph::{Graph, SwitchId};
use crate::fm::proof::Fault;
use crate::fm::proof::walk::{Channels, Ups, Walk};

/// How often sets of PIDs are tried before the rest is withdrawn.
const TRIES_MAX: usize = 256;

/// What to send, in this order.
///
/// Each list is sent in any order; the next one when all of it has been answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transit {
    /// PIDs whose routes are taken away for a moment.
    pub withdrawn: Vec<Pid>,
    /// Their entries become invalid. Then wait until no packet to them is left in the fabric.
    pub withdraw: Vec<Change>,
    /// Groups that come.
    pub come: Vec<Change>,
    /// Routes, by layers.
    pub layers: Vec<Vec<Change>>,
    /// Groups that nothing points at any more.
    pub go: Vec<Change>,
}

impl Transit {
    /// Plans the way from `old`, which stands in the switches of `graph`, to `new`.
    ///
    /// `old` was proved when it was set; links and switches of it may be lost since.
    ///
    /// # Errors
    /// `new` lets packets come back or loses them.
    pub fn plan(graph: &Graph, old: &Routed, new: &Routed) -> Result<Self, Fault> {
        let ups = Ups::new(graph, &new.order);
        let (old, new) = (&old.tables, &new.tables);
        let channels = Channels::new(graph);
        let mut fit = Fit::new(graph, &channels, &ups, old, new);
        let mut scratch = Walk::new(graph, &channels);
        let (mut legal, mut others, mut withdrawn) = (Vec::new(), Vec::new(), Vec::new());
        for to in (0..Pid::COUNT).map(pid_at) {
            fit.stay(to);
            match fate(graph, old, new, to) {
                Fate::Same => {}
                Fate::Regrouped => withdrawn.push(to),
                Fate::Changed if scratch.mix(old, new, &ups, to) => legal.push(to),
                Fate::Changed => others.push(to),
            }
        }
        // Those that never go up after down fit together, if the old order is the new one; they are tried first.
        let mut open = vec![others, legal];
        let mut tries = 0;
        while let Some(mut list) = open.pop() {
            if list.is_empty() {
                continue;
            }
            tries += 1;
            if tries <= TRIES_MAX && fit.take(&list) {
                continue;
            }
            if list.len() == 1 || tries > TRIES_MAX {
                withdrawn.append(&mut list);
            } else {
                let half = list.split_off(list.len() / 2);
                open.extend([half, list]);
            }
        }
        withdrawn.sort_unstable();
        let mut standing = old.clone();
        let mut withdraw = Vec::new();
        for &to in &withdrawn {
            for at in graph.switches() {
                if route(old, at, to) != DrtEntry::Invalid {
                    let change = Change::Route { at, to, entry: DrtEntry::Invalid };
                    standing.apply(change);
                    withdraw.push(change);
                }
            }
        }
        let diff = standing.diff(new);
        let layers = layers(&mut Walk::new(graph, &channels), new, diff.routes)?;
        Ok(Self { withdrawn, withdraw, come: diff.come, layers, go: diff.go })
    }
}

/// Routes by most hops that are left behind them.
fn layers(
    walk: &mut Walk,
    new: &Tables,
    mut routes: Vec<Change>,
) -> Result<Vec<Vec<Change>>, Fault> {
    let key = |change: &Change| match *change {
        Change::Route { at, to, .. } => (Some(to), at),
        Change::Group { at, .. } => (None, at),
    };
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

/// What becomes of the routes to a PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Same,
    Changed,
    /// A group that its old routes use becomes another before they change.
    Regrouped,
}

fn fate(graph: &Graph, old: &Tables, new: &Tables, to: Pid) -> Fate {
    let mut fate = Fate::Same;
    for at in graph.switches() {
        let (before, after) = (old.get(at), new.get(at));
        let route = route(old, at, to);
        if let DrtEntry::Group(index) = route {
            let set_anew = after.and_then(|tables| tables.rgt(index));
            if set_anew.is_some() && set_anew != before.and_then(|tables| tables.rgt(index)) {
                return Fate::Regrouped;
            }
        }
        let ports =
            |tables: Option<&super::SwitchTables>| tables.and_then(|tables| tables.ports(to));
        if ports(before).unwrap_or_default() != ports(after).unwrap_or_default() {
            fate = Fate::Changed;
        }
    }
    fate
}

/// What PIDs are tried against: all waits by old entries, and all by new ones, with those of a change for who is taken.
struct Fit<'a> {
    before: Walk<'a>,
    after: Walk<'a>,
    ups: &'a Ups,
    old: &'a Tables,
    new: &'a Tables,
}

impl<'a> Fit<'a> {
    fn new(
        graph: &'a Graph,
        channels: &'a Channels,
        ups: &'a Ups,
        old: &'a Tables,
        new: &'a Tables,
    ) -> Self {
        let walk = Walk::new(graph, channels);
        Self { before: walk.clone(), after: walk, ups, old, new }
    }

    /// Notes how packets to a PID go before and after.
    fn stay(&mut self, to: Pid) {
        self.before.mix(self.old, self.old, self.ups, to);
        self.after.mix(self.new, self.new, self.ups, to);
    }

    /// Takes `list` among those that change while packets are on their way, unless a circle came about: while the others
    /// stand as before, or while they are as after.
    fn take(&mut self, list: &[Pid]) -> bool {
        let with = |walk: &Walk<'a>| {
            let mut walk = walk.clone();
            for &to in list {
                walk.mix(self.old, self.new, self.ups, to);
            }
            walk.order().is_ok().then_some(walk)
        };
        let (Some(before), Some(after)) = (with(&self.before), with(&self.after)) else {
            return false;
        };
        (self.before, self.after) = (before, after);
        true
    }
}
