//! Access rights at a host's edge by command, and the costs of paths that edges are told.
//!
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; docs/spec/wire-formats.md §4.6.

use weft_parsers::cci::Request as Command;
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::tables::{ConfigureLdstAccess, LdstAccess, PidOp};
use weft_parsers::fabric::Pid;
use weft_rpc::Refused;

use super::request::Vector;
use super::{Fm, NO_COST, refuse};
use crate::cci::{CallError, CciSession, Way};
use crate::components::bind::Bindings;
use crate::components::cdat::{self, Figures};
use crate::components::edge::{AccessBit, EdgeContext};
use crate::discover::change::Running;
use crate::model::graph::SwitchId;
use crate::model::inventory::DiscoveredSwitch;
use crate::model::text::parse_pid;

/// Calls `f` with the means to change rights at edges: figures for costs, and the wait for packets under way.
pub(super) fn at_edges<R>(
    fabric: &mut CciSession,
    running: &Running,
    figures: Figures,
    drain: fn(),
    f: impl FnOnce(&mut EdgeContext<'_>) -> R,
) -> R {
    let (inventory, plan) = (&running.inventory, &running.plan);
    let cost =
        |at: SwitchId, pid: Pid| cdat::cost(inventory, plan, at, pid, figures).unwrap_or(NO_COST);
    f(&mut EdgeContext { fabric, inventory, cost: &cost, drain })
}

impl Fm {
    /// Tells a host's edge the cost of the path to a component, whatever it knows; does nothing without a path.
    pub(super) fn tell_cost(&mut self, bit: AccessBit) -> Result<(), CallError> {
        let Some((set, way, cost)) = self.cost_of(bit) else { return Ok(()) };
        self.fabric.call(way, &Command::ConfigureAccess(set))?;
        self.told_costs.insert(bit, cost);
        Ok(())
    }

    /// The cost of the path that a bit of GMV or VTV opens, with the command that tells it.
    fn cost_of(&self, bit: AccessBit) -> Option<(ConfigureAccess, Way, PathCost)> {
        let (AccessBit::Gmv(from, vcs, pid) | AccessBit::Vtv(from, vcs, pid)) = bit else {
            return None;
        };
        let running = self.running.as_ref()?;
        let inventory = &running.inventory;
        let cost = cdat::cost(inventory, &running.plan, from, pid, self.desired.figures())?;
        let access = PidOp { pid, op: AccessOp::UpdateCost };
        let way = inventory.switch(from).map_or(Way::Entry, DiscoveredSwitch::way);
        Some((ConfigureAccess { vcs, access, cost }, way, cost))
    }

    /// Tells edges the costs that have changed: hosts read them in CDATs, and are notified of the change.
    pub(super) fn tell_costs(&mut self) {
        let wanted = self.grants.access_bits();
        self.told_costs.retain(|bit, _| wanted.contains(bit));
        for bit in wanted {
            let told = self.told_costs.get(&bit);
            let is_news = self.cost_of(bit).is_some_and(|(.., cost)| told != Some(&cost));
            // Silent switches are handled elsewhere; the costs are told at the next look.
            if is_news && self.tell_cost(bit).is_err() {
                return;
            }
        }
        self.tell_link_costs();
    }

    /// The same for virtual links: the switch at the lower end tells its host.
    fn tell_link_costs(&mut self) {
        let figures = self.desired.figures();
        let Some(running) = &self.running else { return };
        let (inventory, links) = (&running.inventory, &running.bindings.remote);
        self.told_links.retain(|at, _| links.iter().any(|link| link.below.bridge == *at));
        for link in links {
            let at = link.below.bridge;
            let (from, to) = (link.host.bridge.switch, link.below.pid);
            let cost = cdat::link_cost(inventory, &running.plan, from, to, figures);
            let Some(cost) = cost.filter(|cost| self.told_links.get(&at) != Some(cost)) else {
                continue;
            };
            if Bindings::tell_cost(&mut self.fabric, inventory, link, cost).is_err() {
                return;
            }
            self.told_links.insert(at, cost);
        }
    }

    /// Sets or clears a bit of a vector at a host's edge, by a client's command.
    pub(super) fn set_access(
        &mut self,
        host: &str,
        vector: Vector,
        pid: &str,
        on: bool,
    ) -> Result<String, Refused> {
        let host = self.names(|names| names.host(host))?;
        let pid = self.names(|names| names.gfd(pid).or_else(|_| parse_pid(pid)))?;
        let bit = vector.bit(host, pid);
        // A bit that memory, GIM or P2P needs would be set again at the next comparison; refused with its name instead.
        if let Some(user) = self.grants.user_of_bit(host, bit).filter(|_| !on) {
            return Err(Refused::because(format!("{user} needs it: revoke that first")));
        }
        let running = self.up()?;
        let way = running.inventory.switch(host.switch).map_or(Way::Entry, DiscoveredSwitch::way);
        let op = match (vector, on) {
            (Vector::Gmv, true) => Some(AccessOp::EnableGmv),
            (Vector::Gmv, false) => Some(AccessOp::DisableGmv),
            (Vector::Vtv, true) => Some(AccessOp::EnableVtv),
            (Vector::Vtv, false) => Some(AccessOp::DisableVtv),
            (Vector::Lav, _) => None,
        };
        let figures = self.desired.figures();
        let cost = cdat::cost(&running.inventory, &running.plan, host.switch, pid, figures);
        let cost = cost.unwrap_or(NO_COST);
        let vcs = host.vcs;
        let command = if let Some(op) = op {
            let access = PidOp { pid, op };
            Command::ConfigureAccess(ConfigureAccess { vcs, access, cost })
        } else {
            let op = if on { LdstAccess::Enable } else { LdstAccess::Disable };
            Command::ConfigureLdstAccess(ConfigureLdstAccess { vcs, access: PidOp { pid, op } })
        };
        self.fabric.call(way, &command).map_err(refuse)?;
        // Remembered, so that a restarted edge gets it back; memory, GIM and P2P account for their own bits.
        let _ = if on { self.grants.access.insert(bit) } else { self.grants.access.remove(&bit) };
        let vector = match vector {
            Vector::Gmv => "GMV",
            Vector::Vtv => "VTV",
            Vector::Lav => "LAV",
        };
        let says = if on { "may" } else { "may not" };
        Ok(format!("host {} {says} reach {pid} ({vector})", host.pid))
    }
}
