//! Setters of the host's tables of a vPPB: LDST and re-router (570Dh to 5713h), FAST (5804h to 5808h).
//!
//! Targets are checked against the access that the FM allows. Every command changes its table completely or not at all.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.1; docs/spec/cxl-fabric.md "Tables of an edge and who may write
//! them".

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::{EdgePort, Prefixes, TableError};
use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::gae::SetFast;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::tables::{SetEntries, SetIdt, SetLdst};
use weft_parsers::fabric::{FastEntry, LdstEntry, Pid, ReRouterEntry};

use super::VirtualSwitches;
use crate::cci::{DONE, NONE_SUCH, invalid, whole};
use crate::ports::Ports;
use crate::vcs::host_tables::{NO_ROUTE, re_routers};

impl VirtualSwitches {
    fn change_tables(
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

    pub fn set_ldst(&mut self, vcs: u8, set: &SetLdst) -> Done {
        self.change_tables(Vppb { vcs, vppb: set.vppb }, |it| {
            it.configure_ldst(set.segment_size, set.base, set.limit)
        })
    }

    pub fn set_ldst_segments(&mut self, vcs: u8, set: &SetEntries<'_, Option<LdstEntry>>) -> Done {
        let entries: Vec<_> = set.entries.iter().collect();
        let at = Vppb { vcs, vppb: set.vppb };
        self.change_tables(at, |it| it.set_ldst(set.start.into(), &entries))
    }

    pub fn set_ldst_idt(&mut self, vcs: u8, set: &SetIdt<'_>) -> Done {
        let pids: Vec<Pid> = set.entries.iter().collect();
        let at = Vppb { vcs, vppb: set.vppb };
        self.change_tables(at, |it| it.set_ldst_idt(set.start.into(), &pids))
    }

    pub fn set_re_router(&mut self, vcs: u8, set: &SetEntries<'_, ReRouterEntry>) -> Done {
        whole(set.start.into(), set.entries.len(), re_routers(set.vppb))?;
        // As an entry of the dataplane, zeros would route completions for requester 00:00.0 to PID 0.
        let entries = set.entries.iter().map(|entry| (entry != NO_ROUTE).then_some(entry));
        let entries: Vec<_> = entries.collect();
        let at = Vppb { vcs, vppb: set.vppb };
        self.change_tables(at, |it| it.set_rerouter(set.start.into(), &entries))
    }

    /// Set FAST/IDT Config (5804h): the host may turn `VendPrefixL0` on only where the FM allows it.
    pub fn set_fast(&mut self, vcs: u8, set: &SetFast) -> Done {
        let allowed = self.named(vcs)?.prefixes;
        let wanted = Prefixes { egress_request: set.prefix.out, ingress_request: set.prefix.into };
        // Refuse instead of masking: the host would believe that its prefix is on.
        if wanted.bits() & !allowed.bits() != 0 {
            return Err(ReturnCode::InvalidInput);
        }
        let at = Vppb { vcs, vppb: set.vppb };
        let (size, base, limit) = (set.segment_size, set.base, set.limit);
        let done = self.change_tables(at, |it| it.configure_fast(size, base, limit))?;
        // After the change, which can be refused and then must leave the prefixes alone.
        if let Some(state) = self.vppb_mut(at) {
            state.prefixes = Some(wanted);
        }
        Ok(done)
    }

    /// Get FAST/IDT Capabilities (5803h).
    pub fn fast_caps(&self, at: Vppb, ports: &Ports, reply: &mut Reply) -> Done {
        let state = self.vppb(at)?;
        let prefixes = self.named(at.vcs)?.prefixes_at(state);
        state.fast_caps(at.vppb, prefixes, ports, reply)
    }

    pub fn set_fast_segments(&mut self, vcs: u8, set: &SetEntries<'_, Option<FastEntry>>) -> Done {
        let entries: Vec<_> = set.entries.iter().collect();
        let at = Vppb { vcs, vppb: set.vppb };
        self.change_tables(at, |it| it.set_fast(set.start.into(), &entries))
    }

    pub fn set_fast_idt(&mut self, vcs: u8, set: &SetIdt<'_>) -> Done {
        let pids: Vec<Pid> = set.entries.iter().collect();
        let at = Vppb { vcs, vppb: set.vppb };
        self.change_tables(at, |it| it.set_fast_idt(set.start.into(), &pids))
    }
}
