//! Session: the connections to a fabric, by which its components are asked and told.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.4 (5700h, 5701h).

use std::collections::BTreeMap;

use weft_parsers::cci::component::{ClaimOp, ClaimOwnership};
use weft_parsers::cci::{Header, Request};
use weft_parsers::fabric::Pid;
use weft_rpc::Refused;

use super::query::cci_answer;
use super::reconcile::is_there;
use super::request::CciAnswer;
use crate::cci::{CciSession, Way};
use crate::discover::identify;
use crate::model::inventory::{Inventory, Manager};
use crate::model::text::bytes;
use crate::state::desired::Secondary;
use crate::state::names::way;

/// Connections to the entry switch and to hosts.
pub(super) struct Session {
    /// With the entry switch, which passes commands on to all components.
    pub cci: CciSession,
    /// Sessions with hosts' GAEs, by the host's name.
    pub gaes: BTreeMap<String, CciSession>,
    /// Waits until packets on old routes have left the fabric.
    pub drain: fn(),
}

impl Session {
    /// Has each new connection to the entry switch begin with the manager's claim.
    pub fn claim_on_connect(&mut self, manager: Manager, inventory: &Inventory) {
        let Some(entry) = inventory.switches.first() else { return };
        let (op, fm, fm_uuid) = (ClaimOp::UpdatePid, manager.pid, manager.uuid);
        let claim = ClaimOwnership { op, fm, fm_uuid, pid: entry.pid };
        self.cci.on_connect(&Request::ClaimOwnership(claim));
    }

    /// Registers the secondary manager at all components; returns errors.
    pub fn register_secondary(
        &mut self,
        secondary: Secondary,
        inventory: &Inventory,
    ) -> Vec<String> {
        let switches = inventory.switches.iter().filter(|switch| switch.whole);
        let mut all: Vec<(Way, Pid)> = switches.map(|switch| (switch.way(), switch.pid)).collect();
        let gfds = inventory.gfds.iter().filter(|gfd| is_there(inventory, gfd.at));
        all.extend(gfds.map(|gfd| (Way::Pid(gfd.pid), gfd.pid)));
        let mut said = Vec::new();
        for (way, pid) in all {
            let done = identify(&mut self.cci, way).and_then(|now| {
                if now.secondary_uuid == secondary.uuid {
                    // Registering it again would be refused, as the place is taken.
                    return Ok(());
                }
                let (fm, fm_uuid) = (secondary.pid, secondary.uuid);
                let claim = ClaimOwnership { op: ClaimOp::RegisterSecondary, fm, fm_uuid, pid };
                self.cci.call(way, &Request::ClaimOwnership(claim)).map(drop)
            });
            if let Err(error) = done {
                said.push(format!(
                    "the secondary fabric manager could not be registered: {}",
                    error.with_causes()
                ));
            }
        }
        said
    }

    /// Sends raw bytes to a component, and returns its response.
    pub fn send_raw(
        &mut self,
        inventory: Option<&Inventory>,
        to: &str,
        message: &str,
    ) -> Result<CciAnswer, Refused> {
        let way = way(to).map_err(Refused::bad_request)?;
        let way = of_entry(inventory, way);
        let bytes = bytes(message).map_err(Refused::bad_request)?;
        Header::cut(&bytes)
            .map_err(|error| Refused::bad_request(format!("expected a CCI message: {error}")))?;
        cci_answer(self.cci.raw(way, &bytes))
    }
}

/// Replaces the entry switch's own PID by the direct way: a switch refuses a Fabric Crawl Out to its own PID.
fn of_entry(inventory: Option<&Inventory>, way: Way) -> Way {
    let entry = inventory.and_then(|inventory| inventory.switches.first());
    let is_entry = |pid: Pid| entry.is_some_and(|entry| entry.pid == pid);
    match way {
        Way::Pid(pid) if is_entry(pid) => Way::Entry,
        Way::Behind(pid, port) if is_entry(pid) => Way::Port(port),
        way => way,
    }
}
