//! Plans: which PID each target gets, and the routing tables that every switch is to hold.
//!
//! [`number`] adds [`Assignment`]s to an [`Inventory`], and [`make`] turns the result into a [`Plan`], which
//! [`crate::cci::send::send`] brings into the switches.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 sections 7.7.6.5, 7.7.12.3; docs/spec/wire-formats.md
//! §4.5.

pub mod order;
pub mod proof;
pub mod routes;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

use self::order::Order;
use self::proof::{Fault, Proof, Traffic};
use self::routes::{Basis, Routed, route_from};
use self::tables::Tables;
use crate::model::graph::{Graph, GraphError, Key, PortRef, SwitchId};
use crate::model::inventory::{DiscoveredSwitch, Inventory, Partner, Target, TargetKind};

/// Bits of the modes of a switch (5700h byte Bh).
const RANDOM: u8 = 1 << 0;
const CONGESTION_AVOIDING: u8 = 1 << 1;

/// Parameters of a plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of PIDs of a target, by switch and target, where the default does not do.
    pub pids: BTreeMap<(SwitchId, u16), u8>,
    /// Priorities of the classes of messages.
    pub traffic: Traffic,
    pub routes: routes::Options,
}

impl Default for Options {
    fn default() -> Self {
        // Defaults of switches with 8 priorities (docs/configuration.md): `uio_req_pri` 3, `uio_cpl_pri` 4, and
        // `tc_to_pri` 2 for hierarchical TLPs of TCs 4 to 7; those of TCs 0 to 3 have 1.
        let (pids, traffic) = (BTreeMap::new(), Traffic::new(3, 4, 2));
        Self { pids, traffic, routes: routes::Options::default() }
    }
}

/// A PID to be given to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub at: SwitchId,
    /// Id of the target at its switch.
    pub target: u16,
    /// Which of the target's PIDs this is.
    pub instance: u8,
    pub pid: Pid,
    /// PID that the target loses first, because it is in use elsewhere.
    pub instead_of: Option<Pid>,
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// All 4,095 PIDs are in use.
    #[error("no PID is left for target {target} of {at}")]
    NoPid { at: SwitchId, target: u16 },
    /// The inventory is inconsistent: it makes no graph.
    #[error("the inventory is inconsistent")]
    Graph(#[from] GraphError),
    /// The routes lose packets or can deadlock.
    #[error("the routes failed verification")]
    Routes(#[from] Fault),
}

/// Plans PIDs for all targets that need one; targets that have one keep it.
///
/// Every host edge gets one, and every downstream edge, unless it leads to a GFD: then it has the GFD's. In every
/// switch with downstream edges one fabric port gets a PID, for the virtual upstream ports.
///
/// # Errors
/// There are too few PIDs.
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
                // A PID that is in use is never changed: bindings, memory and packets under way name it.
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

/// PIDs in use, and targets whose PID something else has, too.
fn taken_pids(inventory: &Inventory) -> (BTreeSet<Pid>, BTreeSet<(SwitchId, usize)>) {
    // Components keep theirs; targets come after them.
    let mut taken: BTreeSet<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    taken.insert(inventory.manager.pid);
    taken.extend(inventory.switches.iter().map(|switch| switch.pid));
    let mut twice = BTreeSet::new();
    for (at, switch) in inventory.by_id() {
        for (place, target) in switch.targets.iter().enumerate() {
            // A port has the PID of its GFD until another device is plugged in.
            let is_gfds = inventory.is_gfds(PortRef::new(at, target.port), target.pid)
                && !has_device(switch, target.port);
            if !target.pid.is_none() && !is_gfds && !taken.insert(target.pid) {
                twice.insert((at, place));
            }
        }
    }
    (taken, twice)
}

/// Whether a device other than a GFD is at a port.
fn has_device(switch: &DiscoveredSwitch, port: u8) -> bool {
    let partner = switch.port(port).map(|port| port.partner);
    matches!(partner, Some(Partner::Device(kind)) if kind != 0)
}

/// Number of PIDs of a target for which the options have none.
fn pids_by_default(
    inventory: &Inventory,
    at: SwitchId,
    switch: &DiscoveredSwitch,
    target: Target,
) -> u8 {
    match target.kind {
        TargetKind::Host => 1,
        TargetKind::Downstream => {
            let (port, here) = (target.port, PortRef::new(at, target.port));
            let waits =
                inventory.gfds.iter().any(|gfd| gfd.at == here) && !has_device(switch, port);
            // A GFD that is known but silent keeps its port: a PID of the port's own would shut it out when it is back.
            let is_gfd =
                waits || switch.port(port).is_some_and(|p| matches!(p.partner, Partner::Gfd(_)));
            u8::from(!is_gfd)
        }
        TargetKind::Fabric => {
            let has_edges = switch.targets.iter().any(|t| t.kind == TargetKind::Downstream);
            // One fabric port is enough: vUSPs of a switch share the PIDs of its fabric ports (5706h).
            let first = switch.targets.iter().find(|t| t.kind == TargetKind::Fabric);
            u8::from(has_edges && first.is_some_and(|first| first.id == target.id))
        }
    }
}

/// Routing tables of a fabric, with a proof that they are free of loops and deadlocks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The graph that they were made for.
    pub graph: Graph,
    pub routed: Routed,
    pub proof: Proof,
    /// PIDs of switches and of the manager: routed by one port, never a group, and never withdrawn.
    pub management: BTreeSet<Pid>,
    /// Tables for when all links work, so that a link that comes back gets its old routes.
    pub home: Arc<Baseline>,
    /// Orders that the tables sent before may go by.
    pub before: Vec<Order>,
}

/// Routing tables for when all known links work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The graph that they were made for.
    pub graph: Graph,
    /// The options that they were made with.
    pub options: routes::Options,
    pub routed: Routed,
}

/// Earlier tables that new ones should resemble.
#[derive(Clone, Debug, Default)]
pub struct PreviousRoutes {
    /// Earlier tables for when all links work.
    pub home: Option<Arc<Baseline>>,
    /// Tables that the switches hold; only differences to them are sent.
    pub standing: Option<Tables>,
    /// Order of `standing`, if the switches hold the tables that were sent last.
    pub order: Option<Order>,
    /// Components that were just claimed: routes to them are those that discovery set, which go by no order.
    pub fresh: BTreeSet<Pid>,
}

/// Makes the tables of a numbered fabric, and proves them.
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

/// Like [`make`], from the tables that switches hold and those for when all links work.
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
    // With all links up, whatever is down now.
    let whole = Inventory { down: BTreeSet::new(), ..inventory.clone() }.graph()?;
    let same = |home: &&Arc<Baseline>| home.graph == whole && home.options == how;
    let home = if let Some(home) = before.home.as_ref().filter(same) {
        home.clone()
    } else {
        let old = before.home.as_ref().map(|home| &home.routed);
        let but = management.union(&before.fresh).copied().collect();
        // No baseline is known, as after a first start without a store: the order is read off the tables in the
        // switches.
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
        // The baseline's order may not serve without the links that are down; one that the present tables go by then
        // saves steps between the two.
        let old = &home.routed;
        let shown = standing.filter(|_| !old.order.serves(&graph));
        let but = management.union(&before.fresh).copied().collect();
        let shown = shown.and_then(|tables| Order::of(&graph, tables, &but, &orders));
        let order = shown.as_ref().or(Some(&old.order));
        make(&graph, Basis { order, home: Some(&old.tables), standing })
    };
    // Found and checked from the tables alone, without the code that made them.
    let proof = Proof::find(&graph, &routed.tables, &options.traffic)?;
    proof.check(&graph, &routed.tables)?;
    let before = orders.into_iter().cloned().collect();
    Ok(Plan { graph, routed, proof, management, home, before })
}

/// Options of routes, reduced to what all switches support.
#[must_use]
pub fn how(inventory: &Inventory, options: &Options) -> routes::Options {
    let all_have = |mode| inventory.switches.iter().all(|switch| switch.modes & mode != 0);
    let mut how = options.routes;
    if inventory.switches.iter().any(|switch| switch.rgts == 0) {
        how.groups = 0;
    } else if how.mode != RgtMode::Random && !all_have(CONGESTION_AVOIDING) {
        // One mode for all: a switch without it makes the others use the plainer one.
        how.mode = RgtMode::Random;
    }
    // No mode in common: routes go without groups.
    if how.mode == RgtMode::Random && !all_have(RANDOM) {
        how.groups = 0;
    }
    how
}

/// Routes to management PIDs take the first port of their group: a single port, so that no group that changes can
/// mislead the manager's own commands.
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

/// Both ends of each link on the path of static messages from a switch to a PID; `None` when they do not arrive.
pub(crate) fn way(graph: &Graph, tables: &Tables, from: SwitchId, to: Pid) -> Option<Vec<PortRef>> {
    let (mut at, mut way) = (from, Vec::new());
    for _ in 0..=graph.switch_count() {
        let port = tables.get(at)?.static_port(to)?;
        let here = PortRef::new(at, port);
        match graph.far(here) {
            Some(far) => {
                way.extend([here, far]);
                at = far.switch;
            }
            // An edge port of the PID's own switch, or a link that is lost.
            None => return graph.endpoint(to).filter(|end| end.at == here).map(|_| way),
        }
    }
    None
}
