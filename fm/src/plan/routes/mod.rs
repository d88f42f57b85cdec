//! Routes for any fabric, free of loops and deadlocks.
//!
//! [`route`] makes the [`Tables`] of every switch from a [`Graph`], [`Options`] and earlier routes, and returns them as
//! [`Routed`] with the [`Order`] they follow and the PIDs that cannot be reached. [`tree`] has the rule and why it
//! holds; [`crate::plan::proof`] proves each result again.
//!
//! Source: docs/spec/cxl-fabric.md "Routes"; CXL 3.1 sections 7.7.5 (figures 7-43, 7-44), 7.7.6.2.

mod choose;
mod groups;
mod legs;
mod reorder;
mod rounds;
mod stored;
pub mod transit;
pub mod tree;
mod updown;

use std::fmt;

use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

use self::groups::{Choice, Plan, PortSets};
pub use self::stored::StoredRoutes;
pub use self::transit::{Known, Transit};
use self::tree::Tree;
use super::order::{Net, Order};
use super::tables::{GROUPS_MAX, SwitchTables, Tables};
use crate::model::graph::{Endpoint, Graph, Per, SwitchId};

/// Ports in a routing group.
pub const PORTS_MAX: usize = 8;

/// Parameters of routing tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How dynamic messages choose among ports of a group.
    pub mode: RgtMode,
    /// Share of the primary ports where a group has others, 0..=7.
    ///
    /// By default 7: a detour costs a hop, so it is taken only when the ports that lead nearer are full.
    pub mix: u8,
    /// Whether groups have secondary ports, to switches that are just as far and above.
    pub detours: bool,
    /// Groups that a switch may use, 256 at most; 0 for none.
    pub groups: usize,
}

impl Default for Options {
    fn default() -> Self {
        let mode = RgtMode::CongestionAvoiding;
        Self { mode, mix: 7, detours: true, groups: GROUPS_MAX }
    }
}

/// Groups of PIDs that cannot reach each other, because the fabric has fallen apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Partition {
    /// PIDs that reach each other, island by island; the largest first.
    pub islands: Vec<Vec<Pid>>,
    /// PIDs at switches that are lost.
    pub lost: Vec<Pid>,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, pids: &[Pid]| {
            for (at, pid) in pids.iter().take(16).enumerate() {
                write!(f, "{}{pid}", if at == 0 { "" } else { ", " })?;
            }
            if pids.len() > 16 { write!(f, " and {} more", pids.len() - 16) } else { Ok(()) }
        };
        let rest = self.islands.get(1..).unwrap_or_default();
        write!(f, "the fabric is split into {} parts", self.islands.len())?;
        for island in rest {
            write!(f, "; cut off from the largest: ")?;
            list(f, island)?;
        }
        if !self.lost.is_empty() {
            write!(f, "; at unreachable switches: ")?;
            list(f, &self.lost)?;
        }
        Ok(())
    }
}

/// Routing tables of a fabric, and the order that they follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// Tables of every switch. Even in a partition, a PID that can be reached from a switch has an entry there.
    pub tables: Tables,
    /// Ranks of the switches, which say which links lead up.
    pub order: Order,
    /// Set if not every PID reaches every other.
    pub partition: Option<Partition>,
    /// Number of entries with fewer ports than possible, because a switch has too few groups.
    pub short: usize,
}

impl Routed {
    /// The tables, if every PID reaches every other.
    ///
    /// # Errors
    /// The partition; routes within its islands are in [`tables`](Self::tables) nevertheless.
    pub const fn whole(&self) -> Result<&Tables, &Partition> {
        match &self.partition {
            None => Ok(&self.tables),
            Some(partition) => Err(partition),
        }
    }
}

/// Makes the routes of `graph`.
///
/// With earlier routes `before`, ranks, groups and the ports of static messages stay as they were where possible, so
/// that few entries have to be sent. Without them the routes are the best ones.
#[must_use]
pub fn route(graph: &Graph, options: &Options, before: Option<&Routed>) -> Routed {
    let order = before.map(|before| &before.order);
    let home = before.map(|before| &before.tables);
    route_from(graph, options, Basis { order, home, standing: None })
}

/// Earlier tables that new ones should resemble.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basis<'a> {
    /// Ranks, kept if they still serve.
    pub order: Option<&'a Order>,
    /// Tables for when all links work. An entry of them is kept while it leads nearer, and places of their groups are
    /// not reused, so that the same tables come back with the links.
    pub home: Option<&'a Tables>,
    /// Tables that the switches hold, followed where `home` cannot be. Groups in use keep their places.
    pub standing: Option<&'a Tables>,
}

/// Makes the routes of `graph`, as similar to `basis` as possible.
#[must_use]
pub fn route_from(graph: &Graph, options: &Options, basis: Basis<'_>) -> Routed {
    let net = Net::new(graph);
    let order = Order::new(&net, basis.order);
    let Basis { home, standing, .. } = basis;
    let mut ends: Per<SwitchId, Vec<Endpoint>> = Per::new(graph.switch_count(), Vec::new());
    for end in graph.endpoints().filter(|end| graph.is_up(end.at.switch)) {
        ends[end.at.switch].push(end);
    }
    let mut build = Build::new(&net, &order, [home, standing]);
    for (to, ends) in ends.iter().filter(|(_, ends)| !ends.is_empty()) {
        build.routes_to(to, ends);
    }
    let mut tables = Tables::default();
    let mut short = 0;
    for (switch, plan) in build.plans.iter() {
        let before = [home, standing].map(|tables| tables.and_then(|tables| tables.get(switch)));
        let (made, lacking) = plan.tables(before, options);
        tables.push(made);
        short += lacking;
    }
    let partition = partition(graph, &net, &ends);
    Routed { tables, order, partition, short }
}

fn partition(graph: &Graph, net: &Net, ends: &Per<SwitchId, Vec<Endpoint>>) -> Option<Partition> {
    let pids = |part: &Vec<SwitchId>| {
        let mut pids: Vec<Pid> = part.iter().flat_map(|&s| &ends[s]).map(|end| end.pid).collect();
        pids.sort_unstable();
        pids
    };
    // Islands without PIDs, such as a lone switch, cut nothing off.
    let mut islands: Vec<Vec<Pid>> =
        net.parts().iter().map(pids).filter(|pids| !pids.is_empty()).collect();
    islands.sort_by_key(|pids| (usize::MAX - pids.len(), pids.first().copied()));
    let lost = graph.endpoints().filter(|end| !graph.is_up(end.at.switch));
    let lost: Vec<Pid> = lost.map(|end| end.pid).collect();
    (islands.len() > 1 || !lost.is_empty()).then_some(Partition { islands, lost })
}

/// A port that leads nearer to the destination, so that static messages may take it.
#[derive(Clone, Copy, Debug)]
struct NextHop {
    /// Number among all arcs, to count its load.
    arc: usize,
    port: u8,
    far: SwitchId,
}

struct Build<'a> {
    net: &'a Net,
    order: &'a Order,
    /// Earlier tables to follow, in order of precedence.
    before: [Option<&'a Tables>; 2],
    plans: Per<SwitchId, Plan>,
    /// Number of pairs of PIDs whose static route uses an arc, so far.
    load: Vec<u64>,
    tree: Tree,
    /// Sources whose static route to the current PID passes through a switch.
    through: Per<SwitchId, u64>,
    /// Number of a switch's port set, and its range in `near`.
    sets: Per<SwitchId, (u16, usize, usize)>,
    near: Vec<NextHop>,
}

impl<'a> Build<'a> {
    fn new(net: &'a Net, order: &'a Order, before: [Option<&'a Tables>; 2]) -> Self {
        let count = net.switch_count();
        Self {
            net,
            order,
            before,
            plans: Per::new(count, Plan::default()),
            load: vec![0; net.arc_count()],
            tree: Tree::new(count),
            through: Per::new(count, 0),
            sets: Per::new(count, (0, 0, 0)),
            near: Vec::new(),
        }
    }

    /// Chooses the routes of all switches to the PIDs `ends` at `to`.
    fn routes_to(&mut self, to: SwitchId, ends: &[Endpoint]) {
        self.tree.grow(self.net, self.order, to);
        self.near.clear();
        for &from in self.tree.settled() {
            let begin = self.near.len();
            let mut ways = PortSets::default();
            for (arc, way) in self.tree.primaries(self.net, self.order, from) {
                ways.near.insert(way.port);
                self.near.push(NextHop { arc, port: way.port, far: way.far });
            }
            for way in self.tree.detours(self.net, self.order, from) {
                ways.detours.insert(way.port);
            }
            if from != to {
                self.sets[from] = (self.plans[from].set(ways), begin, self.near.len());
            }
        }
        for end in ends {
            self.routes_to_pid(to, *end);
        }
    }

    /// Farthest switches first, so that the traffic through a switch is known when its port is chosen: its earlier
    /// port, or the least loaded one.
    fn routes_to_pid(&mut self, to: SwitchId, end: Endpoint) {
        self.plans[to].choose(end.pid, Choice::Here(end.at.port));
        for &switch in self.tree.settled() {
            self.through[switch] = u64::from(self.net.pids[switch]);
        }
        // The first one settled is `to` itself, which has its entry already.
        for &from in self.tree.settled().iter().skip(1).rev() {
            let (set, begin, last) = self.sets[from];
            let ways = self.near.get(begin..last).unwrap_or_default();
            let kept = self.kept(from, end.pid, ways);
            let load = |way: &&NextHop| self.load.get(way.arc).copied();
            let Some(&way) = kept.or_else(|| ways.iter().min_by_key(load)) else { continue };
            let through = self.through[from];
            if let Some(load) = self.load.get_mut(way.arc) {
                *load += through;
            }
            self.through[way.far] += through;
            self.plans[from].choose(end.pid, Choice::PortSets { set, first: way.port });
        }
    }

    /// The earlier port of static messages, if it still leads nearer and the number of ports has not grown.
    fn kept<'n>(&self, from: SwitchId, to: Pid, ways: &'n [NextHop]) -> Option<&'n NextHop> {
        let mut before = self.before.iter().flatten();
        before.find_map(|tables| Self::kept_of(tables, from, to, ways))
    }

    fn kept_of<'n>(
        tables: &Tables,
        from: SwitchId,
        to: Pid,
        ways: &'n [NextHop],
    ) -> Option<&'n NextHop> {
        let tables = tables.get(from)?;
        let (first, had) = match tables.drt(to) {
            DrtEntry::Invalid => return None,
            DrtEntry::Port(port) => (port, 1),
            DrtEntry::Group(index) => {
                let group = tables.rgt(index)?;
                (*group.ports().first()?, usize::from(group.primary) + 1)
            }
        };
        if ways.len().min(PORTS_MAX) > had {
            // With more ports than before, as after a repair, the load is spread anew.
            return None;
        }
        ways.iter().find(|way| way.port == first)
    }
}
