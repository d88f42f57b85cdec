//! Rights of a host as commands read them, and its GAE: 5714h, 5715h, 5800h to 5802h, 580Ah, 5900h, 5901h, 5903h,
//! 0109h and 010Ah.
//!
//! Commands that change rights are those of [`VirtualSwitches`](crate::virtual_switches::VirtualSwitches), as hosts are
//! interrupted.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.4; CXL 3.1 sections 7.7.2.6, 7.7.2.7, 7.7.9.

use weft_cxl::cci::{Done, NO_UUID, Reply};
use weft_dataplane::pbr::{Access, AccessVector, Prefixes};
use weft_parsers::cci::gae::{
    GaeCaps, GaeIdentity, GaeRange, GetInterrupts, PrefixFlags, ProxyStatus, ProxyThread, VppbFast,
};
use weft_parsers::cci::notify::GamBuffer;
use weft_parsers::cci::tables::{Vector, VectorRange};
use weft_parsers::cci::{List, Response, ReturnCode, Wire};
use weft_parsers::fabric::Pid;

use super::{VcsState, VppbState};
use crate::cci::{DONE, listed, whole};

/// A GAE of weft supports both directions of `VendPrefixL0`, and GIM.
const CAPS: GaeCaps = GaeCaps { pids_max: 0xFFF, prefix_out: true, prefix_in: true, gim: true };

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

impl VcsState {
    pub(crate) fn vcs_lav(&self, range: VectorRange, reply: &mut Reply) -> Done {
        let lav = bytes_of(&self.access.lav);
        reply.send(&Response::GetVcsLav(Vector { data: List::of(part(&lav, range)?) }))
    }

    pub(crate) fn host_lav(&self, range: VectorRange, reply: &mut Reply) -> Done {
        let lav = bytes_of(&self.access.lav);
        reply.send(&Response::GetLav(Vector { data: List::of(part(&lav, range)?) }))
    }

    pub(crate) fn vcs_access(&self, range: VectorRange, reply: &mut Reply) -> Done {
        let vectors = both(&self.access);
        reply.send(&Response::GetVcsAccess(Vector { data: List::of(part(&vectors, range)?) }))
    }

    pub(crate) fn host_access(&self, range: VectorRange, reply: &mut Reply) -> Done {
        let vectors = both(&self.access);
        reply.send(&Response::GetPidAccess(Vector { data: List::of(part(&vectors, range)?) }))
    }

    pub(crate) fn get_prefix(&self, reply: &mut Reply) -> Done {
        let Prefixes { egress_request: out, ingress_request: into } = self.prefixes;
        reply.send(&Response::GetPrefix(PrefixFlags { out, into }))
    }

    pub(crate) fn identify_gae(&self, range: GaeRange, reply: &mut Reply) -> Done {
        let entries = |vppb: &VppbState| {
            let segments = vppb.tables.fast().segments().len();
            VppbFast { segments: u16::try_from(segments).unwrap_or(u16::MAX) }
        };
        let all: Vec<VppbFast> = self.vppbs.iter().map(entries).collect();
        let span = listed(range.start.into(), range.count.into(), all.len())?;
        let identity = GaeIdentity {
            caps: CAPS,
            threads: self.threads.max(),
            free: self.threads.free(),
            start: range.start,
            vppbs: List::of(all.get(span).unwrap_or_default()),
        };
        reply.send(&Response::IdentifyGae(identity))
    }

    pub(crate) fn pid_interrupts(&mut self, request: &GetInterrupts, reply: &mut Reply) -> Done {
        let changed = bytes_of(&self.changed);
        let data = part(&changed, request.range)?;
        // Clear after the reply was accepted: an error response would lose the bits for the host.
        let done = reply.send(&Response::GetPidInterrupts(Vector { data: List::of(data) }))?;
        if request.clear {
            // The range counts bytes, and each byte is eight PIDs.
            let first = request.range.start.saturating_mul(8);
            let bits = first..first.saturating_add(request.range.len.saturating_mul(8));
            let pids = bits.filter_map(|bit| u16::try_from(bit).ok()).map(Pid::from_low_bits);
            pids.for_each(|pid| self.changed.forbid(pid));
        }
        Ok(done)
    }

    pub(crate) fn gam_buffer(&self, reply: &mut Reply) -> Done {
        let bits = self.gam.get().to_le_bytes();
        let buffer = GamBuffer::read(&bits).map_err(|_| ReturnCode::InternalError)?;
        reply.send(&Response::GetGamBuffer(buffer))
    }

    pub(crate) fn set_gam_buffer(&mut self, buffer: &GamBuffer) -> Done {
        let mut bits = [0; 8];
        buffer.write(&mut bits);
        let set = self.gam.set(u64::from_le_bytes(bits));
        set.map_err(|code| ReturnCode::from_bits(code.number()))?;
        DONE
    }

    pub(crate) fn proxy_status(&self, named: ProxyThread, reply: &mut Reply) -> Done {
        let running = self.threads.named(named)?.running;
        let free = self.threads.free();
        reply.send(&Response::GetProxyStatus(ProxyStatus { running, free }))
    }

    /// Whether the host's domain validation secret is set.
    pub(crate) fn sv_state(&self, reply: &mut Reply) -> Done {
        reply.send(&Response::GetVcsSvState(self.secret.is_some().into()))
    }

    pub(crate) fn sv(&self, reply: &mut Reply) -> Done {
        reply.send(&Response::GetSv(self.secret.unwrap_or(NO_UUID)))
    }
}
