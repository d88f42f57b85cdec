//! Access of hosts to targets, and commands of a GAE: 5714h to 5716h, 5800h to 5802h, 5809h to 580Bh, 59xxh, 0109h,
//! 010Ah.
//!
//! The FM sets bits of GMV, VTV and LAV; the host reads them and is interrupted when they change.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.4; CXL 3.1 sections 7.7.2.6, 7.7.2.7, 7.7.9.

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::{Access, AccessVector, Prefixes};
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, GaeCaps, GaeIdentity, GaeRange, GetInterrupts, PrefixFlags,
    ProxyCommand, ProxyStarted, ProxyStatus, ProxyThread, SetPrefix, VppbFast,
};
use weft_parsers::cci::notify::GamBuffer;
use weft_parsers::cci::tables::{
    ConfigureLdstAccess, LdstAccess, VcsVectorRange, Vector, VectorRange,
};
use weft_parsers::cci::{Bits, List, Response, ReturnCode, Wire};
use weft_parsers::fabric::Pid;

use super::{DONE, invalid, listed, whole};
use crate::switch::{Event, Switch};
use crate::vcs::{Thread, VcsState};

/// A GAE of weft supports both directions of `VendPrefixL0`, and GIM.
const CAPS: GaeCaps = GaeCaps { pids_max: 0xFFF, prefix_out: true, prefix_in: true, gim: true };
/// Longest command in bytes that is forwarded to a GFD.
const PROXY_MAX: u16 = 1_024;

/// Cuts the requested bytes out of a vector.
fn part(bytes: &[u8], range: VectorRange) -> Result<&[u8], ReturnCode> {
    let place = |value| usize::try_from(value).map_err(|_| ReturnCode::InvalidInput);
    let span = whole(place(range.start)?, place(range.len)?, bytes.len())?;
    bytes.get(span).ok_or(ReturnCode::InvalidInput)
}

fn bytes_of(vector: &AccessVector) -> Vec<u8> {
    vector.bytes().collect()
}

/// GMV followed by VTV, as 5802h and 5901h lay them out.
fn both(access: &Access) -> Vec<u8> {
    access.gmv.bytes().chain(access.vtv.bytes()).collect()
}

fn set_bit(vector: &mut AccessVector, pid: Pid, on: bool) -> Result<(), ReturnCode> {
    if on {
        return invalid(vector.allow(pid));
    }
    vector.forbid(pid);
    Ok(())
}

impl Switch {
    /// A virtual switch that has a GAE.
    fn gae_of(&self, vcs: u8) -> Result<&VcsState, ReturnCode> {
        let state = self.vcs_of(vcs)?;
        if state.gae.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        Ok(state)
    }

    pub(super) fn vcs_lav(&self, range: &VcsVectorRange, reply: &mut Reply) -> Done {
        let lav = bytes_of(&self.vcs_of(range.vcs)?.access.lav);
        let data = List::of(part(&lav, range.range)?);
        reply.send(&Response::GetVcsLav(Vector { data }))
    }

    pub(super) fn host_lav(&self, vcs: u8, range: VectorRange, reply: &mut Reply) -> Done {
        let lav = bytes_of(&self.vcs_of(vcs)?.access.lav);
        reply.send(&Response::GetLav(Vector { data: List::of(part(&lav, range)?) }))
    }

    pub(super) fn configure_lav(&mut self, request: ConfigureLdstAccess) -> Done {
        let pid = request.access.pid;
        let state = self.vcs_of_mut(request.vcs)?;
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
        let Ok(state) = self.vcs_of_mut(vcs) else { return };
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

    /// Interrupts a host because its access to a component, or the cost of the path there, has changed (5801h).
    fn hear_of(&mut self, vcs: u8, pid: Pid) {
        if self.vcs_of_mut(vcs).is_ok_and(|state| state.changed.allow(pid).is_ok()) {
            self.events.push_back(Event::AccessChanged { vcs });
        }
    }

    pub(super) fn vcs_access(&self, range: &VcsVectorRange, reply: &mut Reply) -> Done {
        let vectors = both(&self.gae_of(range.vcs)?.access);
        let data = List::of(part(&vectors, range.range)?);
        reply.send(&Response::GetVcsAccess(Vector { data }))
    }

    pub(super) fn host_access(&self, vcs: u8, range: VectorRange, reply: &mut Reply) -> Done {
        let vectors = both(&self.vcs_of(vcs)?.access);
        reply.send(&Response::GetPidAccess(Vector { data: List::of(part(&vectors, range)?) }))
    }

    pub(super) fn configure_access(&mut self, request: &ConfigureAccess) -> Done {
        let ConfigureAccess { vcs, access, cost } = *request;
        let pid = access.pid;
        let state = self.gae_of(vcs)?;
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
            let before = self.vcs_of_mut(vcs)?.costs.insert(pid, cost);
            if before.is_some_and(|before| before != cost) {
                self.hear_of(vcs, pid);
            }
        }
        // Without a bit in GMV and VTV the host reads no CDAT of the target (0702h), so its cost is not kept.
        let is_reached = vectors.gmv.contains(pid) || vectors.vtv.contains(pid);
        self.give(vcs, pid, vectors);
        if !is_reached {
            self.vcs_of_mut(vcs)?.costs.remove(&pid);
        }
        DONE
    }

    pub(super) fn get_prefix(&self, vcs: u8, reply: &mut Reply) -> Done {
        let Prefixes { egress_request: out, ingress_request: into } = self.gae_of(vcs)?.prefixes;
        reply.send(&Response::GetPrefix(PrefixFlags { out, into }))
    }

    pub(super) fn set_prefix(&mut self, request: SetPrefix) -> Done {
        self.gae_of(request.vcs)?;
        let PrefixFlags { out, into } = request.prefix;
        self.vcs_of_mut(request.vcs)?.prefixes =
            Prefixes { egress_request: out, ingress_request: into };
        self.touch(request.vcs);
        DONE
    }

    pub(super) fn identify_gae(&self, vcs: u8, range: GaeRange, reply: &mut Reply) -> Done {
        let state = self.gae_of(vcs)?;
        let entries = |vppb: &crate::VppbState| {
            let segments = vppb.tables.fast().segments().len();
            VppbFast { segments: u16::try_from(segments).unwrap_or(u16::MAX) }
        };
        let all: Vec<VppbFast> = state.vppbs.iter().map(entries).collect();
        let span = listed(range.start.into(), range.count.into(), all.len())?;
        let identity = GaeIdentity {
            caps: CAPS,
            threads: self.config.threads,
            free: self.free_threads(state),
            start: range.start,
            vppbs: List::of(all.get(span).unwrap_or_default()),
        };
        reply.send(&Response::IdentifyGae(identity))
    }

    pub(super) fn pid_interrupts(
        &mut self,
        vcs: u8,
        request: &GetInterrupts,
        reply: &mut Reply,
    ) -> Done {
        let state = self.vcs_of_mut(vcs)?;
        let changed = bytes_of(&state.changed);
        let data = part(&changed, request.range)?;
        // Clear after the reply was accepted: an error response would lose the bits for the host.
        let done = reply.send(&Response::GetPidInterrupts(Vector { data: List::of(data) }))?;
        if request.clear {
            // The range counts bytes, and each byte is eight PIDs.
            let first = request.range.start.saturating_mul(8);
            let bits = first..first.saturating_add(request.range.len.saturating_mul(8));
            let pids = bits.filter_map(|bit| u16::try_from(bit).ok()).map(Pid::from_low_bits);
            pids.for_each(|pid| state.changed.forbid(pid));
        }
        Ok(done)
    }

    pub(super) fn gam_buffer(&self, vcs: u8, reply: &mut Reply) -> Done {
        let bits = self.vcs_of(vcs)?.gam.get().to_le_bytes();
        let buffer = GamBuffer::read(&bits).map_err(|_| ReturnCode::InternalError)?;
        reply.send(&Response::GetGamBuffer(buffer))
    }

    pub(super) fn set_gam_buffer(&mut self, vcs: u8, buffer: &GamBuffer) -> Done {
        let mut bits = [0; 8];
        buffer.write(&mut bits);
        let set = self.vcs_of_mut(vcs)?.gam.set(u64::from_le_bytes(bits));
        set.map_err(|code| ReturnCode::from_bits(code.number()))?;
        DONE
    }

    fn free_threads(&self, vcs: &VcsState) -> u16 {
        // Finished threads stay in the list for Get Proxy Thread Status, and take no room.
        let running = vcs.threads.iter().filter(|thread| thread.running).count();
        self.config.threads.saturating_sub(u16::try_from(running).unwrap_or(u16::MAX))
    }

    //= docs/spec/wire-formats.md §4.6: one active 5809 per target PID; no thread left: Resources Exhausted
    pub(super) fn proxy(&mut self, vcs: u8, request: &ProxyCommand, reply: &mut Reply) -> Done {
        let ProxyCommand { pid, request: from, len, response, response_max } = *request;
        let state = self.gae_of(vcs)?;
        // The list keeps the last command of each GFD, so that its sequence number goes on.
        let last = state.threads.iter().find(|thread| thread.pid == pid).copied();
        let header = weft_parsers::cci::header::LEN;
        // A host commands only GFDs in its GMV; a command shorter than a CCI header cannot be one.
        if !state.access.gmv.contains(pid) || usize::from(len) < header || len > PROXY_MAX {
            return Err(ReturnCode::InvalidInput);
        }
        if last.is_some_and(|thread| thread.running) {
            return Err(ReturnCode::Busy);
        }
        if self.free_threads(state) == 0 {
            return Err(ReturnCode::ResourcesExhausted);
        }
        let seq = last.map_or(0, |thread| thread.seq.wrapping_add(1) & 7);
        // The event makes the agent fetch the command; `proxy_done` clears `running`.
        let state = self.vcs_of_mut(vcs)?;
        state.threads.retain(|thread| thread.pid != pid);
        state.threads.push(Thread { pid, seq, running: true });
        let event = Event::Proxy { vcs, pid, seq, request: from, len, response, response_max };
        self.events.push_back(event);
        let free = self.free_threads(self.vcs_of(vcs)?);
        let started = ProxyStarted { seq: Bits::from_low_bits(seq), free };
        reply.send(&Response::Proxy(started))
    }

    /// The last thread of a GFD, if its sequence number matches.
    fn thread(&self, vcs: u8, named: ProxyThread) -> Result<Thread, ReturnCode> {
        let same = |it: &&Thread| it.pid == named.pid && it.seq == named.op.get();
        self.vcs_of(vcs)?.threads.iter().find(same).copied().ok_or(ReturnCode::InvalidInput)
    }

    pub(super) fn proxy_status(&self, vcs: u8, named: ProxyThread, reply: &mut Reply) -> Done {
        let running = self.thread(vcs, named)?.running;
        let free = self.free_threads(self.vcs_of(vcs)?);
        reply.send(&Response::GetProxyStatus(ProxyStatus { running, free }))
    }

    pub(super) fn cancel_proxy(&mut self, vcs: u8, named: ProxyThread, reply: &mut Reply) -> Done {
        let thread = self.thread(vcs, named)?;
        if !thread.running {
            return Err(ReturnCode::InvalidInput);
        }
        // Free the thread now: the GFD may never answer the cancel that the event sends.
        self.proxy_done(vcs, thread.pid, thread.seq);
        self.events.push_back(Event::CancelProxy { vcs, pid: thread.pid, seq: thread.seq });
        reply.send(&Response::CancelProxy(self.free_threads(self.vcs_of(vcs)?)))
    }
}
