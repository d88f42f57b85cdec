//! Which PIDs there are, and which tables every switch is to hold.
//!
//! [`Inventory`] -> [`number`] -> inventory with PIDs and [`Assignment`]s -> [`make`] -> [`Plan`] -> [`send::send`].
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 sections 7.7.6.5, 7.7.12.3; docs/spec/wire-formats.md
//! §4.5.

pub mod send;
pub mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

use super::graph::{Graph, GraphError, Key, PortRef, SwitchId};
use super::inventory::{Inventory, Partner, Switch, Target, TargetKind};
use super::proof::{Fault, Proof, Traffic};
use super::routes::{self, Basis, Order, Routed, Tables, route_from};

/// Bits of the modes of a switch (5700h byte 11).
const RANDOM: u8 = 1 << 0;
const CONGESTION_AVOIDING: u8 = 1 << 1;

/// How PIDs and routes are planned.
#[derive(Clone, Debug)]
pub struct Options {
    /// PIDs of a target, where it is to have more than one: by switch and target.
    pub pids: BTreeMap<(SwitchId, u16), u8>,
    /// Which messages go in which priorities.
    pub traffic: Traffic,
    /// How routes are made.
    pub routes: routes::Options,
}

impl Default for Options {
    fn default() -> Self {
        let (pids, traffic) = (BTreeMap::new(), Traffic::new(3, 4, 2));
        Self { pids, traffic, routes: routes::Options::default() }
    }
}

/// A PID that is to be given to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Whose target.
    pub at: SwitchId,
    /// Its id.
    pub target: u16,
    /// Which of its PIDs.
    pub instance: u8,
    /// The PID.
    pub pid: Pid,
    /// The PID it has and is to lose first, because another has it too.
    pub instead_of: Option<Pid>,
}

/// Why a fabric gets no PIDs or no routing tables.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// All 4,095 are in use.
    #[error("no PID is left for target {target} of {at}")]
    NoPid {
        /// Whose target.
        at: SwitchId,
        /// Its id.
        target: u16,
    },
    /// The inventory makes no graph.
    #[error("the inventory is inconsistent")]
    Graph(#[from] GraphError),
    /// The routes lose packets or lock up.
    #[error("the routes failed verification")]
    Routes(#[from] Fault),
}

/// Gives PIDs to all targets that need one; those that have one keep it.
///
/// Every host edge has one, every downstream edge (one that leads to a GFD has the GFD's), and one fabric port of every switch with
/// downstream edges, for its virtual upstream ports.
///
/// # Errors
/// They do not suffice.
pub fn number(
    inventory: &Inventory,
    options: &Options,
) -> Result<(Inventory, Vec<Assignment>), PlanError> {
    let mut numbered = inventory.clone();
    let (taken, twice) = taken_pids(inventory);
    let mut free = (0..).map_while(Pid::assignable).filter(|pid| !taken.contains(pid));
    let mut assignments = Vec::new();
    for (at, switch) in inventory.by_id() {
        for (place, target) in switch.targets.iter().enumerate() {
            let wanted = options.pids.get(&(at, target.id)).copied();
            let wanted = wanted.unwrap_or_else(|| pids_by_default(inventory, at, switch, *target));
            let is_double = twice.contains(&(at, place));
            if !is_double && (!target.pid.is_none() || target.instance >= wanted) {
                continue;
            }
            let pid = free.next().ok_or(PlanError::NoPid { at, target: target.id })?;
            let instead_of = is_double.then_some(target.pid);
            let (instance, id) = (target.instance, target.id);
            assignments.push(Assignment { at, target: id, instance, pid, instead_of });
            let switch = numbered.switches.get_mut(at.index());
            if let Some(place) = switch.and_then(|switch| switch.targets.get_mut(place)) {
                place.pid = pid;
            }
        }
    }
    Ok((numbered, assignments))
}

/// The PIDs that are in use, and the targets whose PID is another's.
fn taken_pids(inventory: &Inventory) -> (BTreeSet<Pid>, BTreeSet<(SwitchId, usize)>) {
    // Components keep theirs; targets come after them.
    let mut taken: BTreeSet<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    taken.insert(inventory.manager.pid);
    taken.extend(inventory.switches.iter().map(|switch| switch.pid));
    let mut twice = BTreeSet::new();
    for (at, switch) in inventory.by_id() {
        for (place, target) in switch.targets.iter().enumerate() {
            // A port has the PID of its GFD as long as nobody else is there.
            let is_gfds = inventory.is_gfds(PortRef::new(at, target.port), target.pid)
                && !has_device(switch, target.port);
            if !target.pid.is_none() && !is_gfds && !taken.insert(target.pid) {
                twice.insert((at, place));
            }
        }
    }
    (taken, twice)
}

/// Whether a device that is no GFD is at a port.
fn has_device(switch: &Switch, port: u8) -> bool {
    let partner = switch.port(port).map(|port| port.partner);
    matches!(partner, Some(Partner::Device(kind)) if kind != 0)
}

/// How many PIDs a target has where nobody has said otherwise.
fn pids_by_default(inventory: &Inventory, at: SwitchId, switch: &Switch, target: Target) -> u8 {
    match target.kind {
        TargetKind::Host => 1,
        TargetKind::Downstream => {
            let (port, here) = (target.port, PortRef::new(at, target.port));
            let waits =
                inventory.gfds.iter().any(|gfd| gfd.at == here) && !has_device(switch, port);
            let is_gfd =
                waits || switch.port(port).is_some_and(|p| matches!(p.partner, Partner::Gfd(_)));
            u8::from(!is_gfd)
        }
        TargetKind::Fabric => {
            let has_edges = switch.targets.iter().any(|t| t.kind == TargetKind::Downstream);
            let first = switch.targets.iter().find(|t| t.kind == TargetKind::Fabric);
            u8::from(has_edges && first.is_some_and(|first| first.id == target.id))
        }
    }
}

/// The routing tables of a fabric, with the proof that they are free of loops and deadlocks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What they were made for.
    pub graph: Graph,
    /// The tables.
    pub routed: Routed,
    /// Why they hold.
    pub proof: Proof,
    /// PIDs of switches and of the FM: they have one port, never a group, and are never withdrawn.
    pub management: BTreeSet<Pid>,
    /// Those for when all links work: what goes away for a while comes back to the same tables.
    pub home: Arc<Baseline>,
    /// Orders that the tables of before may go by.
    pub before: Vec<Order>,
}

/// The routing tables of a fabric for when all links that are known work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// What they were made for.
    pub graph: Graph,
    /// How they were made.
    pub options: routes::Options,
    /// The tables.
    pub routed: Routed,
}

/// Tables of before, which new ones are to stay like.
#[derive(Clone, Debug, Default)]
pub struct PreviousRoutes {
    /// Tables for when all links work, of before.
    pub home: Option<Arc<Baseline>>,
    /// What the switches hold; only of what differs anything is sent.
    pub standing: Option<Tables>,
    /// The order that this goes by, if the switches hold what they were sent last.
    pub order: Option<Order>,
    /// Components that have just been claimed: the routes to them are those of the search.
    pub fresh: BTreeSet<Pid>,
}

/// Makes and proves the tables of a numbered fabric.
///
/// # Errors
/// See [`PlanError`].
pub fn make(
    inventory: &Inventory,
    options: &Options,
    before: Option<&Plan>,
) -> Result<Plan, PlanError> {
    let known = before.map(|plan| PreviousRoutes {
        home: Some(plan.home.clone()),
        standing: Some(plan.routed.tables.clone()),
        order: Some(plan.routed.order.clone()),
        fresh: BTreeSet::new(),
    });
    make_from(inventory, options, &known.unwrap_or_default())
}

/// As [`make`], from what switches hold and what they held when all was well.
///
/// # Errors
/// See [`PlanError`].
pub fn make_from(
    inventory: &Inventory,
    options: &Options,
    before: &PreviousRoutes,
) -> Result<Plan, PlanError> {
    let graph = inventory.graph()?;
    let how = how(inventory, options);
    let mut management: BTreeSet<Pid> =
        inventory.switches.iter().map(|switch| switch.pid).collect();
    management.insert(inventory.manager.pid);
    let standing = before.standing.as_ref();
    let had = before.home.as_ref().map(|home| &home.routed.order);
    let orders: Vec<&Order> = before.order.iter().chain(had).collect();
    let make = |graph: &Graph, basis: Basis<'_>| {
        let mut routed = route_from(graph, &how, basis);
        pin(graph, &mut routed.tables, &management);
        routed
    };
    let whole = Inventory { down: BTreeSet::new(), ..inventory.clone() }.graph()?;
    let same = |home: &&Arc<Baseline>| home.graph == whole && home.options == how;
    let home = if let Some(home) = before.home.as_ref().filter(same) {
        home.clone()
    } else {
        let old = before.home.as_ref().map(|home| &home.routed);
        let but = management.union(&before.fresh).copied().collect();
        let shown = standing.filter(|_| old.is_none());
        let shown = shown.and_then(|tables| Order::of(&graph, tables, &but, &orders));
        let order = old.map(|old| &old.order).or(shown.as_ref());
        let home = old.map(|old| &old.tables);
        let routed = make(&whole, Basis { order, home, standing });
        Arc::new(Baseline { graph: whole, options: how, routed })
    };
    let routed = if inventory.down.is_empty() {
        home.routed.clone()
    } else {
        let old = &home.routed;
        let shown = standing.filter(|_| !old.order.serves(&graph));
        let but = management.union(&before.fresh).copied().collect();
        let shown = shown.and_then(|tables| Order::of(&graph, tables, &but, &orders));
        let order = shown.as_ref().or(Some(&old.order));
        make(&graph, Basis { order, home: Some(&old.tables), standing })
    };
    let proof = Proof::find(&graph, &routed.tables, &options.traffic)?;
    proof.check(&graph, &routed.tables)?;
    let before = orders.into_iter().cloned().collect();
    Ok(Plan { graph, routed, proof, management, home, before })
}

/// The options of routes, as far as all switches can do what is asked for.
#[must_use]
pub fn how(inventory: &Inventory, options: &Options) -> routes::Options {
    let all_have = |mode| inventory.switches.iter().all(|switch| switch.modes & mode != 0);
    let mut how = options.routes;
    if inventory.switches.iter().any(|switch| switch.rgts == 0) {
        how.groups = 0;
    } else if how.mode != RgtMode::Random && !all_have(CONGESTION_AVOIDING) {
        how.mode = RgtMode::Random;
    }
    if how.mode == RgtMode::Random && !all_have(RANDOM) {
        how.groups = 0;
    }
    how
}

/// Routes of management take the first port of their group: one port, so that a group that changes does not mislead them.
fn pin(graph: &Graph, tables: &mut Tables, management: &BTreeSet<Pid>) {
    for at in graph.switches() {
        for &to in management {
            let tables = tables.get_mut(at);
            if let (DrtEntry::Group(_), Some(port)) = (tables.drt(to), tables.static_port(to)) {
                tables.set_drt(to, DrtEntry::Port(port));
            }
        }
    }
}
