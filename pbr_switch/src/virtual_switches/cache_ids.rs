//! `CacheID`s of all virtual switches. Each change of the routes in force marks the virtual switch for a rebuild.
//!
//! Source: CXL 3.1 section 7.7.12.5; docs/spec/cxl-fabric.md "CacheID".

use weft_cxl::vdm::Vdm;
use weft_dataplane::pbr::Function;
use weft_dataplane::time::Instant;
use weft_parsers::fabric::{Hpa, Pid};

use super::VirtualSwitches;
use crate::ports::Ports;
use crate::vcs::VcsState;

impl VirtualSwitches {
    /// Writes component registers of a bridge; false if the address is not one of them. A commit that the write
    /// requests has been judged, or has begun, on return.
    pub fn component_write(
        &mut self,
        ports: &Ports,
        vcs: u8,
        function: Function,
        address: Hpa,
        bytes: &[u8],
    ) -> bool {
        let Some(state) = self.get_mut(vcs) else { return false };
        if !state.component_write(function, address, bytes) {
            return false;
        }
        // The write may have set a Commit bit; without one there is nothing to judge.
        if state.commit_cache_ids(ports) {
            self.touch(vcs);
        }
        true
    }

    /// Accepts an `RTUpdate` of a downstream edge, or none of it; returns the answer for that edge.
    pub fn receive_cache_ids(&mut self, vcs: u8, vdm: &Vdm) -> Option<Vdm> {
        let state = self.get_mut(vcs)?;
        let before = state.cache_ids.clone();
        let answer = state.receive_cache_ids(vdm);
        // A repeated update changes nothing, and must not make the driver publish the tables again.
        if !before.iter().eq(state.cache_ids.iter()) {
            self.touch(vcs);
        }
        answer
    }

    /// Drops the routes that the edge below a virtual link reported: its registers were reset, or the link is gone.
    pub fn forget_cache_ids(&mut self, vcs: u8, edge: Pid) {
        if let Some(state) = self.get_mut(vcs) {
            state.cache_ids.forget(edge);
            self.touch(vcs);
        }
    }

    /// See [`CacheIds::repeat`](crate::cache_ids::CacheIds::repeat).
    pub fn repeat_cache_ids(&mut self, vcs: u8) {
        if let Some(state) = self.get_mut(vcs) {
            state.cache_ids.repeat();
        }
    }

    /// Takes the messages to hosts' edges that are due.
    pub fn poll_cache_ids(&mut self, now: Instant, ports: &Ports) -> Vec<Vdm> {
        let mut due = Vec::new();
        for vcs in self.numbers() {
            let state = self.get_mut(vcs);
            if state.is_some_and(|state| state.poll_cache_ids(now, ports, &mut due)) {
                self.touch(vcs);
            }
        }
        due
    }

    /// Withdraws routes to ports whose PID has changed since their commit.
    pub fn drop_stale_cache_ids(&mut self, ports: &Ports) {
        for vcs in self.numbers() {
            if self.get_mut(vcs).is_some_and(|state| state.drop_stale_cache_ids(ports)) {
                self.touch(vcs);
            }
        }
    }

    /// When the next message or time limit is due.
    pub fn cache_ids_due(&self) -> Option<Instant> {
        self.iter().filter_map(|(_, state)| state.cache_ids.next_due()).min()
    }

    /// Accepts an answer to an update, identified by its virtual link; false if no update waits for it.
    pub fn answered_cache_ids(&mut self, vdm: &Vdm) -> bool {
        // The answer comes from the far end, so source and destination are swapped.
        let ends = Some((vdm.pth.dpid, vdm.pth.spid));
        let by_link = |state: &VcsState| state.link_above() == ends;
        let Some(vcs) = self.iter().find(|(_, state)| by_link(state)).map(|(vcs, _)| vcs) else {
            return false;
        };
        let answered = self.get_mut(vcs).and_then(|state| state.answered_cache_ids(vdm));
        if answered == Some(true) {
            self.touch(vcs);
        }
        answered.is_some()
    }
}
