//! The host's tables of a vPPB as commands read them: LDST and re-router (570Ch to 5713h), FAST (5803h to 5808h).
//!
//! Each vPPB has its own tables, whatever it is bound to. Their setters are those of
//! [`VirtualSwitches`](crate::virtual_switches::VirtualSwitches).
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.1; docs/spec/cxl-fabric.md "Tables of an edge and who may write
//! them".

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::segments::{Entry, Table};
use weft_dataplane::pbr::{Prefixes, ReRouter};
use weft_parsers::cci::gae::{FastCaps, PrefixFlags};
use weft_parsers::cci::tables::{EdgeRange, Entries, LdstCaps};
use weft_parsers::cci::{List, Response, ReturnCode};
use weft_parsers::fabric::{Bdf, FastEntry, LdstEntry, Pid, ReRouterEntry};

use super::VppbState;
use crate::cci::whole;
use crate::ports::Ports;

/// An unused re-router entry has no valid bit: it is all zeros, and reads as zeros.
pub(crate) const NO_ROUTE: ReRouterEntry =
    ReRouterEntry { dpid: Pid::from_low_bits(0), segment: None, requester: Bdf::from_bits(0) };

impl VppbState {
    /// PIDs of the port that it is bound to.
    fn pids(&self, ports: &Ports) -> Vec<Pid> {
        let port = self.bound.port().and_then(|port| ports.get(port));
        let pids = port.map_or(&[][..], |port| &port.pids);
        pids.iter().copied().filter(|pid| !pid.is_none()).collect()
    }

    pub(crate) fn ldst_caps(&self, vppb: u8, ports: &Ports, reply: &mut Reply) -> Done {
        let segments = self.tables.ldst().segments();
        let (segment_size, base, limit) = segments.config();
        reply.send(&Response::GetLdstCaps(LdstCaps {
            vppb,
            segments: count(segments.len()),
            segment_size,
            idt: count(segments.idt_len()),
            re_routers: count(re_routers(vppb)),
            pid: self.pids(ports).first().copied().unwrap_or(Pid::NONE),
            base,
            limit,
        }))
    }

    pub(crate) fn ldst_segments(&self, range: EdgeRange, reply: &mut Reply) -> Done {
        let entries: Vec<Option<LdstEntry>> = segments(self.tables.ldst(), range)?;
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetLdstSegments(Entries { start, entries }))
    }

    pub(crate) fn ldst_idt(&self, range: EdgeRange, reply: &mut Reply) -> Done {
        let pids = idt(self.tables.ldst(), range)?;
        let (start, entries) = (range.start, List::of(&pids));
        reply.send(&Response::GetLdstIdt(Entries { start, entries }))
    }

    pub(crate) fn re_router(&self, range: EdgeRange, reply: &mut Reply) -> Done {
        let span = whole(range.start.into(), range.count.into(), re_routers(range.vppb))?;
        let one = |at| self.tables.rerouter().and_then(|it| it.get(at)).unwrap_or(NO_ROUTE);
        let entries: Vec<ReRouterEntry> = span.map(one).collect();
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetReRouter(Entries { start, entries }))
    }

    /// Get FAST/IDT Capabilities (5803h); `prefixes` are those that are on.
    pub(crate) fn fast_caps(
        &self,
        vppb: u8,
        prefixes: Prefixes,
        ports: &Ports,
        reply: &mut Reply,
    ) -> Done {
        let segments = self.tables.fast().segments();
        let (segment_size, base, limit) = segments.config();
        reply.send(&Response::GetFastCaps(FastCaps {
            vppb,
            segments: count(segments.len()),
            segment_size,
            idt: count(segments.idt_len()),
            prefix: PrefixFlags { out: prefixes.egress_request, into: prefixes.ingress_request },
            base,
            limit,
            pids: List::of(&self.pids(ports)),
        }))
    }

    pub(crate) fn fast_segments(&self, range: EdgeRange, reply: &mut Reply) -> Done {
        let entries: Vec<Option<FastEntry>> = segments(self.tables.fast(), range)?;
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetFastSegments(Entries { start, entries }))
    }

    pub(crate) fn fast_idt(&self, range: EdgeRange, reply: &mut Reply) -> Done {
        let pids = idt(self.tables.fast(), range)?;
        let (start, entries) = (range.start, List::of(&pids));
        reply.send(&Response::GetIdt(Entries { start, entries }))
    }
}

/// Re-router entries of a vPPB: only completions of memory devices use them, which arrive at downstream vPPBs.
pub(crate) const fn re_routers(vppb: u8) -> usize {
    if vppb == 0 { 0 } else { ReRouter::LEN }
}

fn count(entries: usize) -> u16 {
    u16::try_from(entries).unwrap_or(u16::MAX)
}

fn segments<E: Entry>(table: &Table<E>, range: EdgeRange) -> Result<Vec<Option<E>>, ReturnCode> {
    let span = whole(range.start.into(), range.count.into(), table.segments().len())?;
    Ok(span.map(|at| table.get(at)).collect())
}

fn idt<E: Entry>(table: &Table<E>, range: EdgeRange) -> Result<Vec<Pid>, ReturnCode> {
    let segments = table.segments();
    let span = whole(range.start.into(), range.count.into(), segments.idt_len())?;
    Ok(span.map(|at| segments.idt(at).unwrap_or(Pid::NONE)).collect())
}
