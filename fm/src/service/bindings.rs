//! Bridges and ports by command: bindings, reported errors and resets.
//!
//! After a change the virtual switches at its ends are read again.
//!
//! Source: docs/spec/cxl-fabric.md "Binding"; CXL 3.1 section 7.6.7.2.4 (Generate AER Event); docs/fm.md.

use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::pbr::{PathCost, Vppb};
use weft_parsers::cci::vcs::UnbindOption;
use weft_rpc::Refused;

use super::costs::NO_COST;
use super::refuse;
use crate::cci::switch_state::{ports_seen, virtual_switches};
use crate::cci::{CallError, CciSession};
use crate::components::aer::{AerError, tlp_header};
use crate::components::bind::{BindError, Bridge, Remote, way};
use crate::components::cdat::{self, Figures};
use crate::components::grants::Grants;
use crate::components::memory::Host;
use crate::components::port_reset::PortReset;
use crate::discover::change::Running;
use crate::model::graph::Key;
use crate::model::inventory::{DiscoveredSwitch, Inventory};
use crate::model::text::name_of;
use crate::plan::Plan;
use crate::state::desired::DesiredState;
use crate::state::names::{Binding, Names, requesters};

/// A refusal; `what` explains Invalid Input, which comes without a reason.
fn invalid(error: &CallError, what: &str) -> Refused {
    match error {
        CallError::Refused { code: ReturnCode::InvalidInput, .. } => {
            Refused::because(format!("{error}: {what}"))
        }
        _ => refuse(error),
    }
}

/// Requests about bridges and ports of a fabric that is up.
pub(super) struct BindingRequests<'a> {
    pub cci: &'a mut CciSession,
    pub desired: &'a DesiredState,
    pub running: &'a mut Running,
}

impl BindingRequests<'_> {
    fn names<T>(&self, of: impl FnOnce(Names<'_>) -> Result<T, String>) -> Result<T, Refused> {
        of(Names::new(self.desired, self.running)).map_err(Refused::bad_request)
    }

    /// Makes a binding, and reads the virtual switches again.
    pub fn bind(&mut self, binding: Binding) -> Result<(), BindError> {
        let bridges = match binding {
            Binding::Local(local) => vec![local.bridge],
            Binding::Remote(link) => vec![link.host.bridge, link.below.bridge],
        };
        let done = self.bind_it(binding);
        // Also after a failure: an end may be bound nevertheless.
        self.refresh(&bridges);
        done
    }

    /// Removes a binding, and reads the virtual switches again.
    pub fn unbind(&mut self, bridge: Bridge) -> Result<(), BindError> {
        let mut links = self.running.bindings.remote.iter();
        let link = links.find(|l| l.host.bridge == bridge || l.below.bridge == bridge);
        let bridges = link.map_or(vec![bridge], |link| vec![link.host.bridge, link.below.bridge]);
        let done = self.unbind_it(bridge);
        self.refresh(&bridges);
        done
    }

    /// Reads the virtual switches of bridges that were bound or unbound; if one does not answer, the known state stays.
    pub fn refresh(&mut self, bridges: &[Bridge]) {
        for bridge in bridges {
            let Some(switch) = self.running.inventory.switches.get_mut(bridge.switch.index())
            else {
                continue;
            };
            let read = virtual_switches(self.cci, switch.way(), &[bridge.vcs]);
            for new in read.unwrap_or_default() {
                let known = switch.vcss.iter_mut().find(|vcs| vcs.id == new.id);
                if let Some(known) = known {
                    *known = new;
                }
            }
        }
    }

    /// Has a bridge report an error; returns the text of the answer.
    pub fn generate_aer(
        &mut self,
        bridge: &str,
        error: &str,
        tlp: Option<&str>,
    ) -> Result<String, Refused> {
        let place = self.names(|names| names.bridge(bridge))?;
        let error: AerError = error.parse().map_err(Refused::bad_request)?;
        let tlp = tlp_header(tlp).map_err(Refused::bad_request)?;
        let way = way(&self.running.inventory, place);
        let at = Vppb { vcs: place.vcs, vppb: place.vppb };
        let request = error.request(at, tlp);
        let name = error.name();
        self.cci.call(way, &request).map_err(|refused| {
            let why = "it has no such bridge, or one that does not report";
            invalid(&refused, &format!("{why} {name} (weft's report surprise-down, poisoned-tlp, completion-timeout, completer-abort, unexpected-completion, malformed-tlp and unsupported-request)"))
        })?;
        Ok(format!("{bridge} reports the error {name}"))
    }

    /// Resets the component at a port (5102h); returns the text of the answer.
    pub fn control_port(&mut self, text: &str, reset: PortReset) -> Result<String, Refused> {
        let place = self.names(|names| names.end_port(text))?;
        let inventory = &self.running.inventory;
        let switch = inventory.switches.get(place.switch.index());
        let way =
            switch.map(DiscoveredSwitch::way).ok_or_else(|| Refused::because("no such switch"))?;
        // Read before: the switch answers both cases with Invalid Input, which would not tell why.
        let seen = ports_seen(self.cci, way, &[place.port]).map_err(refuse)?;
        let is_held = seen.iter().any(|seen| seen.port == place.port && seen.perst);
        match (reset, is_held) {
            (PortReset::Reset, true) => {
                return Err(Refused::because(format!(
                    "what is at {text} is held in reset, as PERST# is asserted: `weft fm port {text} deassert-perst` ends that"
                )));
            }
            (PortReset::DeassertPerst, false) => {
                let why =
                    format!("PERST# is not asserted at {text}: nothing is held in reset there");
                return Err(Refused::because(why));
            }
            _ => {}
        }
        self.cci.call(way, &reset.request(place.port)).map_err(|refused| {
            invalid(&refused, "it is no port for devices and HBR switches, or its link is down: what is at such a port is reset")
        })?;
        Ok(format!("what is at {text} {}", reset.done()))
    }

    fn bind_it(&mut self, binding: Binding) -> Result<(), BindError> {
        let figures = self.desired.figures();
        let running = &mut *self.running;
        let (inventory, plan) = (&running.inventory, &running.plan);
        match binding {
            Binding::Local(local) => running.bindings.bind_local(self.cci, inventory, local),
            Binding::Remote(link) => {
                let cost = cost_of(inventory, plan, &link, figures);
                running.bindings.bind_remote(self.cci, inventory, link, cost)
            }
        }
    }

    fn unbind_it(&mut self, bridge: Bridge) -> Result<(), BindError> {
        let figures = self.desired.figures();
        let running = &mut *self.running;
        let (inventory, plan) = (&running.inventory, &running.plan);
        let links = &running.bindings.remote;
        let link =
            links.iter().find(|l| l.host.bridge == bridge || l.below.bridge == bridge).copied();
        let Some(link) = link else {
            let option = UnbindOption::Managed;
            let unbound = running.bindings.unbind_local(self.cci, inventory, bridge, option);
            return unbound.map(drop);
        };
        let host = link.host.bridge;
        let cost = cost_of(inventory, plan, &link, figures);
        running.bindings.unbind_remote(self.cci, inventory, host, cost).map(drop)
    }

    /// Makes a binding that its switch has lost; where that fails it is kept, so that it is tried again.
    pub fn bind_again(&mut self, binding: Binding) -> Result<(), BindError> {
        let figures = self.desired.figures();
        let running = &mut *self.running;
        let (inventory, bindings) = (&running.inventory, &mut running.bindings);
        match binding {
            Binding::Local(local) => {
                let bound = bindings.bind_local(self.cci, inventory, local);
                // Kept, so that it is tried again at the next discovery.
                if bound.is_err() && !bindings.lost.contains(&local) {
                    bindings.lost.push(local);
                }
                bound
            }
            Binding::Remote(link) => {
                let cost = cost_of(inventory, &running.plan, &link, figures);
                let bound = bindings.restore(self.cci, inventory, link, cost);
                if bound.is_err() && !bindings.cut.contains(&link) {
                    bindings.cut.push(link);
                }
                bound
            }
        }
    }
}

/// What a virtual link costs; nothing is known of a path that the tables do not have.
fn cost_of(inventory: &Inventory, plan: &Plan, link: &Remote, figures: Figures) -> PathCost {
    let cost = cdat::link_cost(inventory, plan, link.host.bridge.switch, link.below.pid, figures);
    cost.unwrap_or(NO_COST)
}

/// Memory that devices of the bridge's host can now access and the host itself cannot: it may have been given to
/// them as another host's.
pub(super) fn reached_by_devices(
    desired: &DesiredState,
    running: &Running,
    grants: &Grants,
    bridge: Bridge,
) -> Vec<String> {
    let names = Names::new(desired, running);
    let own = (bridge.switch, bridge.vcs);
    let all = requesters(&running.inventory, &running.bindings);
    let (hosts, devices): (Vec<_>, Vec<_>) = all
        .into_iter()
        .map(|one| one.edge)
        .filter(|edge| names.virtual_hierarchy(*edge) == Some(own))
        .partition(|edge| (edge.switch, edge.vcs) == own && names.hosts().contains(edge));
    let shares = grants.memory.shares.iter().map(|share| (name_of(&share.tag), &share.hosts));
    let gim = grants.gim.grants.iter().map(|grant| (grant.name.clone(), &grant.members));
    let mut said = Vec::new();
    for (name, given) in shares.chain(gim) {
        // Rights go by the PID of the device's port, which stays when another host binds the device.
        let has = |edge: &Host| given.iter().any(|one| one.pid == edge.pid);
        let reached = devices.iter().filter(|edge| has(edge) && !hosts.iter().any(has));
        said.extend(reached.map(|edge| {
                let (device, host) = (names.name_of(*edge), names.host_at(own));
                format!(
                    "{device} has access to memory {name:?}, which {host} was not given: weft fm revoke takes it"
                )
            }));
    }
    said
}
