//! Commands of the fabric manager and the host that set and clear the protecting tables.
//!
//! Each table has a method.
//!
//! Source: docs/spec/wire-formats.md §4.5 (570Dh to 5716h), §4.6 (5801h to 5904h), §4.7 (4907h, 4908h, 490Dh, 4914h).

use weft_parsers::cci::dcd::{AddPolicy, Extent, ReleaseFlags, ReleasePolicy};
use weft_parsers::cci::gae::{
    AccessOp, ConfigureAccess, GetInterrupts, PrefixFlags, SetFast, SetPrefix,
};
use weft_parsers::cci::gfd::{DcAdd, DcRelease};
use weft_parsers::cci::gfd_access::{GdtDecoder, GdtEntry, SatUpdate, SetGdt, SetSat};
use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::cci::tables::{
    ConfigureLdstAccess, LdstAccess, PidOp, SetEdge, SetLdst, Vector, VectorRange,
};
use weft_parsers::cci::{List, Payload, Request, ReturnCode};
use weft_parsers::fabric::{
    Bdf, Dpa, FastEntry, Hpa, Interleave, LdstEntry, Pid, ReRouterEntry, Target,
};

use super::super::agent_rig::manager::{FREE, GFD_PID, HOST_EDGE, NEAR_VPPB, TO_GFD};
use super::super::agent_rig::{BLOCK, pid};
use super::{Guarded, LD_WINDOW, NEAR_EDGE, OFF, PEER_EDGE, SEGMENT, WINDOW};
use weft_dataplane::time::Span;

/// Change of the GFD's first block of capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Add,
    Release,
}

const fn fast(gim: bool, to: u16) -> FastEntry {
    let target = Target::Direct(Pid::from_low_bits(to));
    FastEntry { gim, interleave: Interleave::NONE, target }
}

/// A segment that leads to the GFD.
pub(crate) const fn gfam() -> FastEntry {
    fast(false, GFD_PID)
}

/// A segment that leads to the second host.
pub(crate) const fn gim() -> FastEntry {
    fast(true, PEER_EDGE)
}

/// A segment that is interleaved in granules of 256 bytes, over the first entries of the IDT.
pub(crate) fn dealt() -> FastEntry {
    let interleave = Interleave::from_codes(1, 0).unwrap();
    FastEntry { gim: false, interleave, target: Target::Interleaved(0) }
}

/// A segment that leads to the near device.
pub(crate) const fn ldfam() -> LdstEntry {
    let target = Target::Direct(Pid::from_low_bits(NEAR_EDGE));
    LdstEntry { segment: false, interleave: Interleave::NONE, target }
}

/// A decoder of two blocks.
pub(crate) const fn decoder(hpa: u64, dpa: u64) -> GdtDecoder {
    GdtDecoder {
        coherent: false,
        hpa: Hpa(hpa),
        dpa: Dpa(dpa),
        dpa_len: 2 * BLOCK,
        interleave: Interleave::NONE,
        way: 0,
    }
}

/// A request that sets no decoder of a requester.
pub(crate) const fn no_decoders(rpid: Pid) -> SetGdt<'static> {
    SetGdt { rpid, start: 0, entries: List::of(&[]) }
}

impl Guarded {
    /// Set FAST Segment (5806h).
    pub(crate) fn put_fast(&mut self, start: u16, entry: Option<FastEntry>) {
        let entries = [entry];
        let entries = List::of(&entries);
        self.done(&Request::SetFastSegments(SetEdge { vppb: 0, start, entries }));
    }

    /// Sets the window of a bridge below with one segment: 5804h and 5806h.
    pub(crate) fn put_fast_at(&mut self, vppb: u8, entry: FastEntry) {
        let (prefix, base, limit) = (OFF, Hpa(WINDOW), Hpa(WINDOW + 4 * SEGMENT));
        self.done(&Request::SetFast(SetFast { vppb, segment_size: 0, prefix, base, limit }));
        let entries = [Some(entry)];
        let entries = List::of(&entries);
        self.done(&Request::SetFastSegments(SetEdge { vppb, start: 0, entries }));
    }

    /// Set IDT DPID (5808h) for the first entries.
    pub(crate) fn put_idt(&mut self, pids: [Pid; 2]) {
        let entries = List::of(&pids);
        self.done(&Request::SetIdt(SetEdge { vppb: 0, start: 0, entries }));
    }

    /// Set FAST/IDT Configuration (5804h).
    pub(crate) fn set_window(&mut self, prefix: PrefixFlags) {
        let (base, limit) = (Hpa(WINDOW), Hpa(WINDOW + 4 * SEGMENT));
        self.done(&Request::SetFast(SetFast { vppb: 0, segment_size: 0, prefix, base, limit }));
    }

    /// Set LDST Configuration and Segment (570Dh, 570Fh).
    pub(crate) fn put_ldst(&mut self, entry: Option<LdstEntry>) {
        let (base, limit) = (Hpa(LD_WINDOW), Hpa(LD_WINDOW + SEGMENT));
        self.done(&Request::SetLdst(SetLdst { vppb: 0, segment_size: 0, base, limit }));
        let entries = [entry];
        let entries = List::of(&entries);
        self.done(&Request::SetLdstSegments(SetEdge { vppb: 0, start: 0, entries }));
    }

    /// Set Completer ID-Based Re-Router (5713h) for the first entry.
    pub(crate) fn put_re_router(&mut self, vppb: u8, entry: ReRouterEntry) {
        let entries = [entry];
        let entries = List::of(&entries);
        self.done(&Request::SetReRouter(SetEdge { vppb, start: 0, entries }));
    }

    /// Configure VCS PID Access (5902h).
    pub(crate) fn access(&mut self, way: &[CrawlTarget], bits: u16, op: AccessOp) {
        let access = PidOp { pid: pid(bits), op };
        self.ok(way, &Request::ConfigureAccess(ConfigureAccess { vcs: 0, access, cost: FREE }));
    }

    /// Configure VCS LDST Access (5716h).
    pub(crate) fn lav(&mut self, bits: u16, op: LdstAccess) {
        let access = PidOp { pid: pid(bits), op };
        self.ok(&[], &Request::ConfigureLdstAccess(ConfigureLdstAccess { vcs: 0, access }));
    }

    /// Set `VendPrefixL0` State (5904h).
    pub(crate) fn prefixes(&mut self, way: &[CrawlTarget], prefix: PrefixFlags) {
        self.ok(way, &Request::SetPrefix(SetPrefix { vcs: 0, prefix }));
    }

    /// Set GDT Configuration (4914h) for one decoder.
    pub(crate) fn decoder_of(&mut self, rpid: u16, index: u8, decoder: Option<GdtDecoder>) {
        let entries = [GdtEntry { index, decoder }];
        let entries = List::of(&entries);
        self.ok(&TO_GFD, &Request::SetGdt(SetGdt { rpid: pid(rpid), start: index, entries }));
    }

    pub(crate) fn put_decoder(&mut self, index: u8, decoder: Option<GdtDecoder>) {
        self.decoder_of(HOST_EDGE, index, decoder);
    }

    /// Set SAT Entry (490Dh).
    pub(crate) fn sat_of(&mut self, rpid: u16, vector: u32) {
        let updates = [SatUpdate { rpid: pid(rpid), vector }];
        self.ok(&TO_GFD, &Request::SetSat(SetSat { updates: List::of(&updates) }));
    }

    pub(crate) fn put_sat(&mut self, vector: u32) {
        self.sat_of(HOST_EDGE, vector);
    }

    /// Dynamic Capacity Add and Release (4907h, 4908h) of the first block.
    pub(crate) fn capacity(&mut self, order: Order) {
        let extents = [Extent { start: Dpa(0), len: BLOCK, tag: [0; 16], shared_seq: 0 }];
        let (extents, tag, response_max) = (List::of(&extents), [0; 16], 0);
        let request = match order {
            Order::Add => {
                let (policy, region, len) = (AddPolicy::Prescriptive, 0, 0);
                let group = 0;
                Request::DcAdd(DcAdd { group, policy, region, len, tag, response_max, extents })
            }
            Order::Release => {
                let policy = ReleasePolicy::Prescriptive;
                let flags = ReleaseFlags { policy, forced: false, sanitize: false };
                let (group, len) = (0, 0);
                Request::DcRelease(DcRelease { group, flags, len, tag, response_max, extents })
            }
        };
        self.ok(&TO_GFD, &request);
    }

    /// Sends a request that the GFD must refuse.
    pub(crate) fn bad_at_gfd(&mut self, request: &Request<'_>) {
        let (code, _) = self.ask(&TO_GFD, request);
        assert_eq!(code, ReturnCode::InvalidInput, "{request:?}");
    }

    /// Checks that the edge refuses commands of the host that name targets it may not reach, and keeps its tables.
    pub(crate) fn bad_tables(&mut self) {
        let (fast, gim, ldst) = ([Some(gfam())], [Some(gim())], [Some(ldfam())]);
        let idt = [pid(GFD_PID)];
        let route =
            [ReRouterEntry { dpid: pid(NEAR_EDGE), segment: None, requester: Bdf::default() }];
        let (vppb, start) = (0, 3);
        let prefix = PrefixFlags { out: false, into: true };
        let (base, limit) = (Hpa(WINDOW), Hpa(WINDOW + 4 * SEGMENT));
        for request in [
            Request::SetFastSegments(SetEdge { vppb, start, entries: List::of(&fast) }),
            Request::SetFastSegments(SetEdge { vppb, start, entries: List::of(&gim) }),
            Request::SetIdt(SetEdge { vppb, start, entries: List::of(&idt) }),
            Request::SetLdstSegments(SetEdge { vppb, start, entries: List::of(&ldst) }),
            Request::SetReRouter(SetEdge { vppb: NEAR_VPPB, start, entries: List::of(&route) }),
            Request::SetFast(SetFast { vppb, segment_size: 0, prefix, base, limit }),
        ] {
            let refused = self.command(&request);
            assert_eq!(refused.code, ReturnCode::InvalidInput.bits(), "{request:?}");
        }
    }

    /// Number of interrupts that `change` causes at the host, and the PIDs that its GAE then reports as changed
    /// (5801h).
    pub(crate) fn interrupts_by(&mut self, change: impl FnOnce(&mut Self)) -> (u64, Vec<usize>) {
        self.changed_pids();
        let interrupts = |it: &Self| it.net.hosts[0].0.counts().0.interrupts;
        let before = interrupts(self);
        change(self);
        self.rest(Span::from_ms(1));
        (interrupts(self) - before, self.changed_pids())
    }

    fn changed_pids(&mut self) -> Vec<usize> {
        let range = VectorRange { start: 0, len: 512 };
        let payload = self.done(&Request::GetPidInterrupts(GetInterrupts { range, clear: true }));
        let bytes = Vector::parse(&payload).unwrap().data.bytes();
        (0..4_096).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 != 0).collect()
    }
}
