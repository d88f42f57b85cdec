//! Which PIDs there are, and which tables every switch is to hold.
//!
//! Shape: [`Inventory`] -> [`number`] -> inventory with PIDs and [`Assignment`]s -> [`make`] -> [`Plan`] -> [`send::send`].
//! Units: none.
//! Source: fabric.md, "FM module"; CXL 3.1 sections 7.7.6.5, 7.7.12.3; wire-formats.md 4.5.

pub mod send;
pub mod wires;

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::fabric::{DrtEntry, Pid, RgtMode};

use super::graph::{Graph, GraphError, Key, SwitchId};
use super::inventory::{Inventory, Partner, TargetKind};
use super::proof::{Fault, Proof, Traffic};
use super::routes::{self, Routed, Tables, route};

/// Bits of the modes of a switch (5700h octet 11).
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

/// Why there is no plan.
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
    #[error("the inventory contradicts itself")]
    Graph(#[from] GraphError),
    /// The routes lose packets or lock up.
    #[error("the routes do not hold")]
    Routes(#[from] Fault),
}

/// Gives PIDs to all targets that need one; those that have one keep it.
///
/// Every host edge has one, every downstream edge that leads to no GFD, and one fabric port of every switch with
/// downstream edges, for its virtual upstream ports.
///
/// # Errors
/// They do not suffice.
pub fn number(
    inventory: &Inventory,
    options: &Options,
) -> Result<(Inventory, Vec<Assignment>), PlanError> {
    let mut numbered = inventory.clone();
    // Components keep theirs; targets come after them.
    let mut taken: BTreeSet<Pid> = inventory.gfds.iter().map(|gfd| gfd.pid).collect();
    taken.insert(inventory.manager.pid);
    taken.extend(inventory.switches.iter().map(|switch| switch.pid));
    let mut twice = BTreeSet::new();
    for (at, switch) in inventory.by_id() {
        for (place, target) in switch.targets.iter().enumerate() {
            if !target.pid.is_none() && !taken.insert(target.pid) {
                twice.insert((at, place));
            }
        }
    }
    let mut free = (0..).map_while(Pid::assignable).filter(|pid| !taken.contains(pid));
    let mut assignments = Vec::new();
    for (at, switch) in inventory.by_id() {
        let gfd_at = |port| switch.port(port).is_some_and(|p| matches!(p.partner, Partner::Gfd(_)));
        let has_edges = switch.targets.iter().any(|t| t.kind == TargetKind::Downstream);
        let first_fabric = switch.targets.iter().find(|t| t.kind == TargetKind::Fabric);
        for (place, target) in switch.targets.iter().enumerate() {
            let by_default = match target.kind {
                TargetKind::Host => 1,
                TargetKind::Downstream => u8::from(!gfd_at(target.port)),
                TargetKind::Fabric => {
                    u8::from(has_edges && first_fabric.is_some_and(|first| first.id == target.id))
                }
            };
            let wanted = options.pids.get(&(at, target.id)).copied().unwrap_or(by_default);
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

/// Tables of a fabric, and why they hold.
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
    let graph = inventory.graph()?;
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
    let mut management: BTreeSet<Pid> =
        inventory.switches.iter().map(|switch| switch.pid).collect();
    management.insert(inventory.manager.pid);
    let mut routed = route(&graph, &how, before.map(|before| &before.routed));
    pin(&graph, &mut routed.tables, &management);
    let proof = Proof::find(&graph, &routed.tables, &options.traffic)?;
    proof.check(&graph, &routed.tables)?;
    Ok(Plan { graph, routed, proof, management })
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
