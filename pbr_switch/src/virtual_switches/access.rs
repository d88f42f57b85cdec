//! Commands that change what hosts may reach, and commands that their GAEs forward: 5716h, 5809h, 580Bh, 5902h, 5904h.
//!
//! The FM sets bits of GMV, VTV and LAV; the host reads them and is interrupted when they change.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.4; CXL 3.1 sections 7.7.2.6, 7.7.2.7, 7.7.9.

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::{Access, AccessVector, Prefixes};
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, PrefixFlags, ProxyCommand, ProxyStarted, ProxyThread, SetPrefix,
};
use weft_parsers::cci::tables::{ConfigureLdstAccess, LdstAccess};
use weft_parsers::cci::{Bits, Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::VirtualSwitches;
use crate::cci::{DONE, invalid};
use crate::event::Event;

/// Longest command in bytes that is forwarded to a GFD.
const PROXY_MAX: u16 = 1_024;

fn set_bit(vector: &mut AccessVector, pid: Pid, on: bool) -> Result<(), ReturnCode> {
    if on {
        return invalid(vector.allow(pid));
    }
    vector.forbid(pid);
    Ok(())
}

impl VirtualSwitches {
    pub fn configure_lav(&mut self, request: ConfigureLdstAccess) -> Done {
        let pid = request.access.pid;
        let state = self.named(request.vcs)?;
        // Refuse FFFh here: `forbid` would accept it silently.
        if pid.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        let mut access = Access::clone(&state.access);
        set_bit(&mut access.lav, pid, request.access.op == LdstAccess::Enable)?;
        self.give(request.vcs, pid, access);
        DONE
    }

    /// Gives a host new access vectors, and interrupts it if those that it can see have changed.
    fn give(&mut self, vcs: u8, pid: Pid, access: Access) {
        let Some(state) = self.get_mut(vcs) else { return };
        // Setting a bit that is set already must neither interrupt the host nor rebuild tables.
        if *state.access == access {
            return;
        }
        // LAV is not in the vector of 5802h, so a host that is interrupted for it would find nothing changed.
        let seen = state.access.gmv != access.gmv || state.access.vtv != access.vtv;
        state.set_access(access);
        if seen {
            self.hear_of(vcs, pid);
        }
        self.touch(vcs);
    }

    /// Interrupts a host because its access to a component, or the cost of the path there, has changed (5801h), or
    /// because a command to that component is done.
    fn hear_of(&mut self, vcs: u8, pid: Pid) {
        if self.get_mut(vcs).is_some_and(|state| state.changed.allow(pid).is_ok()) {
            self.events.push_back(Event::AccessChanged { vcs });
        }
    }

    pub fn configure_access(&mut self, request: &ConfigureAccess) -> Done {
        let ConfigureAccess { vcs, access, cost } = *request;
        let pid = access.pid;
        let state = self.with_gae(vcs)?;
        if pid.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        // Change a copy: a vector that refuses the PID must leave the host's access as it was.
        let mut vectors = Access::clone(&state.access);
        match access.op {
            AccessOp::EnableGmv => set_bit(&mut vectors.gmv, pid, true)?,
            AccessOp::DisableGmv => set_bit(&mut vectors.gmv, pid, false)?,
            AccessOp::EnableVtv => set_bit(&mut vectors.vtv, pid, true)?,
            AccessOp::DisableVtv => set_bit(&mut vectors.vtv, pid, false)?,
            AccessOp::UpdateCost => {}
        }
        let takes_cost =
            matches!(access.op, AccessOp::EnableGmv | AccessOp::EnableVtv | AccessOp::UpdateCost);
        if takes_cost {
            // A first cost comes with a new bit, for which `give` interrupts.
            let before = self.named_mut(vcs)?.costs.insert(pid, cost);
            if before.is_some_and(|before| before != cost) {
                self.hear_of(vcs, pid);
            }
        }
        // Without a bit in GMV and VTV the host reads no CDAT of the target (0702h), so its cost is not kept.
        let is_reached = vectors.gmv.contains(pid) || vectors.vtv.contains(pid);
        self.give(vcs, pid, vectors);
        if !is_reached {
            self.named_mut(vcs)?.costs.remove(&pid);
        }
        DONE
    }

    pub fn set_prefix(&mut self, request: SetPrefix) -> Done {
        self.with_gae(request.vcs)?;
        let PrefixFlags { out, into } = request.prefix;
        self.named_mut(request.vcs)?.prefixes =
            Prefixes { egress_request: out, ingress_request: into };
        self.touch(request.vcs);
        DONE
    }

    pub fn proxy(&mut self, vcs: u8, request: &ProxyCommand, reply: &mut Reply) -> Done {
        let ProxyCommand { pid, request: from, len, response, response_max } = *request;
        let state = self.with_gae(vcs)?;
        let header = weft_parsers::cci::header::LEN;
        // A host commands only GFDs in its GMV; a command shorter than a CCI header cannot be one.
        if !state.access.gmv.contains(pid) || usize::from(len) < header || len > PROXY_MAX {
            return Err(ReturnCode::InvalidInput);
        }
        let threads = &mut self.named_mut(vcs)?.threads;
        let seq = threads.start(pid)?;
        let started = ProxyStarted { seq: Bits::from_low_bits(seq), free: threads.free() };
        // The event makes the agent fetch the command; `proxy_ended` frees the thread.
        let event = Event::Proxy { vcs, pid, seq, request: from, len, response, response_max };
        self.events.push_back(event);
        reply.send(&Response::Proxy(started))
    }

    pub fn cancel_proxy(&mut self, vcs: u8, named: ProxyThread, reply: &mut Reply) -> Done {
        let threads = &mut self.named_mut(vcs)?.threads;
        let thread = threads.named(named)?;
        if !thread.running {
            return Err(ReturnCode::InvalidInput);
        }
        // Free the thread now: the GFD may never answer the cancel that the event sends.
        threads.end(thread.pid, thread.seq);
        let free = threads.free();
        self.events.push_back(Event::CancelProxy { vcs, pid: thread.pid, seq: thread.seq });
        reply.send(&Response::CancelProxy(free))
    }

    /// Frees the thread of a command that was answered or given up, and interrupts the host, which polls for results
    /// when it sees its bit change.
    pub fn proxy_ended(&mut self, vcs: u8, pid: Pid, seq: u8) {
        if let Some(state) = self.get_mut(vcs) {
            state.threads.end(pid, seq);
        }
        self.hear_of(vcs, pid);
    }
}
