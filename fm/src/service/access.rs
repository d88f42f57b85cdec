//! Access rights at a host's edge by command: single bits of GMV, VTV and LAV.
//!
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; docs/spec/wire-formats.md §4.6.

use weft_parsers::cci::Request as Command;
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess};
use weft_parsers::cci::tables::{ConfigureLdstAccess, LdstAccess, PidOp};
use weft_rpc::Refused;

use super::costs::NO_COST;
use super::memory::MemoryRequests;
use super::refuse;
use super::request::Vector;
use crate::cci::Way;
use crate::components::cdat;
use crate::model::inventory::DiscoveredSwitch;
use crate::model::text::parse_pid;

impl MemoryRequests<'_> {
    /// Sets or clears a bit of a vector at a host's edge, by a client's command.
    pub fn set_access(
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
        let running = &*self.running;
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
        self.cci.call(way, &command).map_err(refuse)?;
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
