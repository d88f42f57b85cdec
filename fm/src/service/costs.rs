//! Costs of paths: latency and bandwidth, which edges are told for their hosts' CDATs.
//!
//! [`PathCosts`] remembers what was told, so that hosts are notified of changes alone.
//!
//! Source: docs/spec/wire-formats.md §4.6 (5902h).

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::Request as Command;
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::tables::PidOp;
use weft_parsers::fabric::Pid;

use crate::cci::{CallError, CciSession, Way};
use crate::components::bind::{Bindings, Bridge};
use crate::components::cdat::{self, Figures};
use crate::components::edge::{AccessBit, EdgeContext};
use crate::discover::change::Running;
use crate::model::graph::SwitchId;
use crate::model::inventory::DiscoveredSwitch;

/// Cost of an unknown path.
pub(super) const NO_COST: PathCost =
    PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };

/// Costs that edges and the lower ends of virtual links were told.
#[derive(Debug, Default)]
pub(super) struct PathCosts {
    /// By the bit that opens the path.
    told: BTreeMap<AccessBit, PathCost>,
    /// By the lower end of the virtual link.
    links: BTreeMap<Bridge, PathCost>,
}

impl PathCosts {
    /// Tells a host's edge the cost of the path to a component, whatever it knows; does nothing without a path.
    pub fn tell(
        &mut self,
        cci: &mut CciSession,
        running: &Running,
        figures: Figures,
        bit: AccessBit,
    ) -> Result<(), CallError> {
        let Some((set, way)) = cost_of(running, figures, bit) else { return Ok(()) };
        cci.call(way, &Command::ConfigureAccess(set))?;
        self.told.insert(bit, set.cost);
        Ok(())
    }

    /// Tells edges the costs that have changed: hosts read them in CDATs, and are notified of the change.
    pub fn tell_changed(
        &mut self,
        cci: &mut CciSession,
        running: &Running,
        figures: Figures,
        wanted: &BTreeSet<AccessBit>,
    ) {
        self.told.retain(|bit, _| wanted.contains(bit));
        for &bit in wanted {
            let told = self.told.get(&bit);
            let now = cost_of(running, figures, bit).map(|(set, _)| set.cost);
            // Silent switches are handled elsewhere; the costs are told at the next look.
            if now.is_some_and(|cost| told != Some(&cost))
                && self.tell(cci, running, figures, bit).is_err()
            {
                return;
            }
        }
        self.tell_links(cci, running, figures);
    }

    /// The same for virtual links: the switch at the lower end tells its host.
    fn tell_links(&mut self, cci: &mut CciSession, running: &Running, figures: Figures) {
        let (inventory, links) = (&running.inventory, &running.bindings.remote);
        self.links.retain(|at, _| links.iter().any(|link| link.below.bridge == *at));
        for link in links {
            let at = link.below.bridge;
            let (from, to) = (link.host.bridge.switch, link.below.pid);
            let cost = cdat::link_cost(inventory, &running.plan, from, to, figures);
            let Some(cost) = cost.filter(|cost| self.links.get(&at) != Some(cost)) else {
                continue;
            };
            if Bindings::tell_cost(cci, inventory, link, cost).is_err() {
                return;
            }
            self.links.insert(at, cost);
        }
    }
}

/// The command that tells the cost of the path that a bit of GMV or VTV opens, and the way to its switch.
fn cost_of(running: &Running, figures: Figures, bit: AccessBit) -> Option<(ConfigureAccess, Way)> {
    let (AccessBit::Gmv(from, vcs, pid) | AccessBit::Vtv(from, vcs, pid)) = bit else {
        return None;
    };
    let inventory = &running.inventory;
    let cost = cdat::cost(inventory, &running.plan, from, pid, figures)?;
    let access = PidOp { pid, op: AccessOp::UpdateCost };
    let way = inventory.switch(from).map_or(Way::Entry, DiscoveredSwitch::way);
    Some((ConfigureAccess { vcs, access, cost }, way))
}

/// Calls `f` with the means to change rights at edges: figures for costs, and the wait for packets under way.
pub(super) fn at_edges<R>(
    fabric: &mut CciSession,
    running: &Running,
    figures: Figures,
    f: impl FnOnce(&mut EdgeContext<'_>) -> R,
) -> R {
    let (inventory, plan, drain) = (&running.inventory, &running.plan, running.drain);
    let cost =
        |at: SwitchId, pid: Pid| cdat::cost(inventory, plan, at, pid, figures).unwrap_or(NO_COST);
    f(&mut EdgeContext { fabric, inventory, cost: &cost, drain })
}
