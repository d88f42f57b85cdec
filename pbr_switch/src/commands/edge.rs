//! The host's tables of a vPPB: LDST and re-router (570Ch to 5713h), FAST (5803h to 5808h).
//!
//! Each vPPB has its own tables, whatever it is bound to. Targets are checked against the access that the FM allows. A
//! re-router entry has no valid bit: an entry of all zeros is unused, and an unused entry reads as zeros.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.1; docs/spec/cxl-fabric.md "Tables of an edge and who may write
//! them".

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::segments::{Entry, Table};
use weft_dataplane::pbr::{EdgePort, Prefixes, ReRouter, TableError};
use weft_parsers::cci::gae::{FastCaps, PrefixFlags, SetFast};
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::tables::{EdgeRange, Entries, LdstCaps, SetEntries, SetIdt, SetLdst};
use weft_parsers::cci::{List, Response, ReturnCode};
use weft_parsers::fabric::{Bdf, FastEntry, LdstEntry, Pid, ReRouterEntry};

use super::{DONE, NONE_SUCH, invalid, whole};
use crate::switch::Switch;

/// An unused re-router entry: all zeros.
const NO_ROUTE: ReRouterEntry =
    ReRouterEntry { dpid: Pid::from_low_bits(0), segment: None, requester: Bdf::from_bits(0) };

impl Switch {
    /// Changes the tables of a vPPB, completely or not at all.
    fn change(
        &mut self,
        at: Vppb,
        change: impl FnOnce(&mut EdgePort) -> Result<(), TableError>,
    ) -> Done {
        let state = self.vppb_mut(at).ok_or(NONE_SUCH)?;
        // On a copy: a list of entries may fail in the middle.
        let mut tables = state.tables.clone();
        invalid(change(&mut tables))?;
        state.tables = tables;
        // An unbound vPPB, or a virtual link, has no edge here whose tables must be rebuilt.
        if let Some(port) = state.bound.port() {
            self.touch_port(port);
        }
        DONE
    }

    /// PIDs of the port that a vPPB is bound to.
    fn pids_of(&self, at: Vppb) -> Result<Vec<Pid>, ReturnCode> {
        let port = self.vppb_of(at)?.bound.port().and_then(|port| self.port(port));
        let pids = port.map_or(&[][..], |port| &port.pids);
        Ok(pids.iter().copied().filter(|pid| !pid.is_none()).collect())
    }

    pub(super) fn ldst_caps(&self, at: Vppb, reply: &mut Reply) -> Done {
        let state = self.vppb_of(at)?;
        let segments = state.tables.ldst().segments();
        let (segment_size, base, limit) = segments.config();
        let pid = self.pids_of(at)?.first().copied().unwrap_or(Pid::NONE);
        reply.send(&Response::GetLdstCaps(LdstCaps {
            vppb: at.vppb,
            segments: count(segments.len()),
            segment_size,
            idt: count(segments.idt_len()),
            re_routers: count(re_routers(at.vppb)),
            pid,
            base,
            limit,
        }))
    }

    pub(super) fn set_ldst(&mut self, vcs: u8, set: &SetLdst) -> Done {
        self.change(Vppb { vcs, vppb: set.vppb }, |it| {
            it.configure_ldst(set.segment_size, set.base, set.limit)
        })
    }

    pub(super) fn ldst_segments(&self, vcs: u8, range: EdgeRange, reply: &mut Reply) -> Done {
        let entries: Vec<Option<LdstEntry>> =
            segments(self.vppb_of(Vppb { vcs, vppb: range.vppb })?.tables.ldst(), range)?;
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetLdstSegments(Entries { start, entries }))
    }

    pub(super) fn set_ldst_segments(
        &mut self,
        vcs: u8,
        set: &SetEntries<'_, Option<LdstEntry>>,
    ) -> Done {
        let entries: Vec<_> = set.entries.iter().collect();
        self.change(Vppb { vcs, vppb: set.vppb }, |it| it.set_ldst(set.start.into(), &entries))
    }

    pub(super) fn ldst_idt(&self, vcs: u8, range: EdgeRange, reply: &mut Reply) -> Done {
        let pids = idt(self.vppb_of(Vppb { vcs, vppb: range.vppb })?.tables.ldst(), range)?;
        let (start, entries) = (range.start, List::of(&pids));
        reply.send(&Response::GetLdstIdt(Entries { start, entries }))
    }

    pub(super) fn set_ldst_idt(&mut self, vcs: u8, set: &SetIdt<'_>) -> Done {
        let pids: Vec<Pid> = set.entries.iter().collect();
        self.change(Vppb { vcs, vppb: set.vppb }, |it| it.set_ldst_idt(set.start.into(), &pids))
    }

    pub(super) fn re_router(&self, vcs: u8, range: EdgeRange, reply: &mut Reply) -> Done {
        let tables = &self.vppb_of(Vppb { vcs, vppb: range.vppb })?.tables;
        let span = whole(range.start.into(), range.count.into(), re_routers(range.vppb))?;
        let one = |at| tables.rerouter().and_then(|it| it.get(at)).unwrap_or(NO_ROUTE);
        let entries: Vec<ReRouterEntry> = span.map(one).collect();
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetReRouter(Entries { start, entries }))
    }

    pub(super) fn set_re_router(&mut self, vcs: u8, set: &SetEntries<'_, ReRouterEntry>) -> Done {
        whole(set.start.into(), set.entries.len(), re_routers(set.vppb))?;
        let entries: Vec<_> =
            // As an entry of the dataplane it would route completions for requester 00:00.0 to PID 0.
            set.entries.iter().map(|entry| (entry != NO_ROUTE).then_some(entry)).collect();
        self.change(Vppb { vcs, vppb: set.vppb }, |it| it.set_rerouter(set.start.into(), &entries))
    }

    pub(super) fn fast_caps(&self, at: Vppb, reply: &mut Reply) -> Done {
        let state = self.vppb_of(at)?;
        let segments = state.tables.fast().segments();
        let (segment_size, base, limit) = segments.config();
        let prefixes = self.vcs_of(at.vcs)?.prefixes_at(state);
        let pids = self.pids_of(at)?;
        reply.send(&Response::GetFastCaps(FastCaps {
            vppb: at.vppb,
            segments: count(segments.len()),
            segment_size,
            idt: count(segments.idt_len()),
            prefix: PrefixFlags { out: prefixes.egress_request, into: prefixes.ingress_request },
            base,
            limit,
            pids: List::of(&pids),
        }))
    }

    /// Set FAST/IDT Config (5804h): the host may turn `VendPrefixL0` on only where the FM allows it.
    pub(super) fn set_fast(&mut self, vcs: u8, set: &SetFast) -> Done {
        let allowed = self.vcs_of(vcs)?.prefixes;
        let wanted = Prefixes { egress_request: set.prefix.out, ingress_request: set.prefix.into };
        // Refuse instead of masking: the host would believe that its prefix is on.
        if wanted.bits() & !allowed.bits() != 0 {
            return Err(ReturnCode::InvalidInput);
        }
        let (size, base, limit) = (set.segment_size, set.base, set.limit);
        let done =
            self.change(Vppb { vcs, vppb: set.vppb }, |it| it.configure_fast(size, base, limit))?;
        // After the change, which can be refused and then must leave the prefixes alone.
        if let Some(state) = self.vppb_mut(Vppb { vcs, vppb: set.vppb }) {
            state.prefixes = Some(wanted);
        }
        Ok(done)
    }

    pub(super) fn fast_segments(&self, vcs: u8, range: EdgeRange, reply: &mut Reply) -> Done {
        let entries: Vec<Option<FastEntry>> =
            segments(self.vppb_of(Vppb { vcs, vppb: range.vppb })?.tables.fast(), range)?;
        let (start, entries) = (range.start, List::of(&entries));
        reply.send(&Response::GetFastSegments(Entries { start, entries }))
    }

    pub(super) fn set_fast_segments(
        &mut self,
        vcs: u8,
        set: &SetEntries<'_, Option<FastEntry>>,
    ) -> Done {
        let entries: Vec<_> = set.entries.iter().collect();
        self.change(Vppb { vcs, vppb: set.vppb }, |it| it.set_fast(set.start.into(), &entries))
    }

    pub(super) fn fast_idt(&self, vcs: u8, range: EdgeRange, reply: &mut Reply) -> Done {
        let pids = idt(self.vppb_of(Vppb { vcs, vppb: range.vppb })?.tables.fast(), range)?;
        let (start, entries) = (range.start, List::of(&pids));
        reply.send(&Response::GetIdt(Entries { start, entries }))
    }

    pub(super) fn set_fast_idt(&mut self, vcs: u8, set: &SetIdt<'_>) -> Done {
        let pids: Vec<Pid> = set.entries.iter().collect();
        self.change(Vppb { vcs, vppb: set.vppb }, |it| it.set_fast_idt(set.start.into(), &pids))
    }
}

/// Re-router entries of a vPPB: only completions of memory devices use them, which arrive at downstream vPPBs.
const fn re_routers(vppb: u8) -> usize {
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
