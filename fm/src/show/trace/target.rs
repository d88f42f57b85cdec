//! Trace at the edge of GIM's owner: the prefix of the request, and the completion's way back.
//!
//! Source: CXL 3.1 section 7.7.3.3; docs/spec/wire-formats.md §3.6, §4.6 (5901h, 5903h).

use weft_parsers::fabric::Pid;

use super::{End, Stop, TraceWalk, refused};
use crate::components::edge::{has_vtv, prefixes};
use crate::model::graph::SwitchId;
use crate::state::names::hosts;

impl TraceWalk<'_> {
    /// Traces a GIM request at the edge of `pid`.
    pub(super) fn target(&mut self, pid: Pid) -> Result<End, Stop> {
        let Some((at, vcs)) = self.virtual_switch(pid) else {
            let text = format!("no host has PID {pid}, and no memory of it was granted");
            return Err(Stop::End(End::Unknown(text)));
        };
        let (fabric, inventory) = (&mut *self.asked.fabric, self.asked.inventory);
        // `out` covers both: a prefix on requests that leave here, and on completions that enter.
        let on = prefixes(fabric, inventory, at, vcs)?.out;
        let back = has_vtv(fabric, inventory, at, vcs, self.host.pid)?;
        let said = if on { "on" } else { "off" };
        self.say(at, "VendPrefixL0", format!("VCS {vcs}, requests that leave: {said}"));
        if !on {
            return refused(format!("UR at {at}: no VendPrefixL0 may be put in front there"));
        }
        let (spid, said) = (self.host.pid, if back { "set" } else { "not set" });
        self.say(at, "VTV", format!("VCS {vcs}, PID {spid}, for the completion: {said}"));
        if !back {
            return refused(format!("the completion is dropped at {at}: VTV does not have {spid}"));
        }
        Ok(End::Host)
    }

    /// The virtual switch of a PID: a host's, or that of a device whose memory was granted.
    fn virtual_switch(&self, pid: Pid) -> Option<(SwitchId, u8)> {
        let host = hosts(self.asked.inventory).into_iter().find(|host| host.pid == pid);
        let given = || {
            let edges = self.asked.gim.grants.iter().map(|grant| grant.owner);
            edges.into_iter().find(|edge| edge.pid == pid)
        };
        host.or_else(given).map(|edge| (edge.switch, edge.vcs))
    }
}
