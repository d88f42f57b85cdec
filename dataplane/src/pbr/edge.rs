//! One edge port of a switch: its role, its PIDs and the tables for its TLPs.
//!
//! Commands change an [`EdgePort`], each checked against the access that the fabric manager allows; workers only read
//! it.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Tables of an edge and who may write them"; docs/spec/wire-formats.md
//! §4.5, §4.6.

use std::sync::Arc;

use weft_parsers::fabric::{FastEntry, Hpa, LdstEntry, Pid, ReRouterEntry, Target};

use super::access::{Access, AccessVector};
use super::cache_ids::CacheDecoding;
use super::error::TableError;
use super::fast::Fast;
use super::ldst::Ldst;
use super::rerouter::ReRouter;
use super::vcs::Side;

/// Kind of component at an edge port's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A host's root port.
    Usp,
    /// A device that is not a GFD, or an HBR switch.
    Dsp,
    /// A GFD: TLPs keep their PTH on this link.
    Gfd,
}

/// Where `VendPrefixL0` may be used: the flags of commands 5903h and 5904h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Bit 0: on requests that leave, and on completions that come in.
    pub egress_request: bool,
    /// Bit 1: on requests that come in.
    pub ingress_request: bool,
}

impl Prefixes {
    /// Reads the byte of the commands.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self { egress_request: bits & 1 != 0, ingress_request: bits & 2 != 0 }
    }

    /// Makes the byte of the commands.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.egress_request as u8 | (self.ingress_request as u8) << 1
    }
}

/// An edge port. Clones share tables until one of them changes its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgePort {
    /// Kind of component at the link.
    pub role: Role,
    /// SPID of TLPs that come in here and go from edge to edge; a GFD's own PID at a GFD's port.
    pub pid: Pid,
    /// Further PIDs of a GFD.
    pub more_pids: Arc<[Pid]>,
    /// PID by which a GFD calls itself: valid in answers to its link partner, which go no further.
    pub announced: Pid,
    /// The component is being reset: nothing is sent to it until it has answered the end of the reset.
    pub resetting: bool,
    /// PCIe segment of its host, for requests that leave the hierarchy.
    pub segment: u8,
    /// Index of its virtual switch, and the port's place in it; `None` while it is unbound.
    pub vcs: Option<(u8, Side)>,
    /// Where `VendPrefixL0` may be used.
    pub prefixes: Prefixes,
    /// `CacheID`s that devices below the port may use.
    pub cache_ids: CacheDecoding,
    access: Arc<Access>,
    fast: Fast,
    ldst: Ldst,
    rerouter: Option<ReRouter>,
    /// Logical devices by LD-ID: each has its own host, and so its own tables.
    lds: Arc<[Option<Arc<Self>>]>,
}

impl EdgePort {
    /// Maximum number of logical devices of a port.
    pub const LDS_MAX: u16 = 16;

    /// A port with these tables and without any access.
    #[must_use]
    pub fn new(role: Role, pid: Pid, fast: Fast, ldst: Ldst) -> Self {
        Self {
            role,
            pid,
            more_pids: Arc::new([]),
            announced: Pid::NONE,
            resetting: false,
            segment: 0,
            vcs: None,
            prefixes: Prefixes::default(),
            cache_ids: CacheDecoding::default(),
            access: Arc::default(),
            fast,
            ldst,
            rerouter: None,
            lds: Arc::new([]),
        }
    }

    /// The tables for a TLP with this LD-ID, or without one: those of the logical device, or of the port itself.
    #[inline]
    #[must_use]
    pub fn part(&self, ld: Option<u16>) -> Option<&Self> {
        match ld {
            None => Some(self),
            Some(ld) => self.lds.get(usize::from(ld))?.as_deref(),
        }
    }

    /// Whether TLPs on this link name a logical device.
    #[inline]
    #[must_use]
    pub fn has_lds(&self) -> bool {
        !self.lds.is_empty()
    }

    /// Logical devices that have a host, by LD-ID.
    pub fn lds(&self) -> impl Iterator<Item = (u16, &Self)> {
        (0_u16..).zip(&*self.lds).filter_map(|(ld, part)| Some((ld, part.as_deref()?)))
    }

    /// Sets a logical device, or removes it.
    ///
    /// # Errors
    /// An LD-ID from [`Self::LDS_MAX`] on.
    pub fn set_ld(&mut self, ld: u16, part: Option<Self>) -> Result<(), TableError> {
        if ld >= Self::LDS_MAX {
            return Err(TableError::Ld(ld));
        }
        // Copied, as clones of this port share the list.
        let mut all = self.lds.to_vec();
        all.resize(all.len().max(usize::from(ld) + 1), None);
        if let Some(place) = all.get_mut(usize::from(ld)) {
            *place = part.map(Arc::new);
        }
        self.lds = all.into();
        Ok(())
    }

    /// Calls `change` with the port, and with each logical device, that belongs to virtual switch `vcs`.
    pub(super) fn each_of(&mut self, vcs: u8, change: &impl Fn(&mut Self)) {
        if self.vcs.is_some_and(|(index, _)| index == vcs) {
            change(self);
        }
        let mut lds = self.lds.to_vec();
        for part in lds.iter_mut().flatten() {
            Arc::make_mut(part).each_of(vcs, change);
        }
        self.lds = lds.into();
    }

    /// Targets that the port's host may reach.
    #[inline]
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// The fabric address segment table.
    #[inline]
    #[must_use]
    pub const fn fast(&self) -> &Fast {
        &self.fast
    }

    /// The LD-FAM segment table.
    #[inline]
    #[must_use]
    pub const fn ldst(&self) -> &Ldst {
        &self.ldst
    }

    /// The re-router of completions; only at a memory device's edge.
    #[inline]
    #[must_use]
    pub const fn rerouter(&self) -> Option<&ReRouter> {
        self.rerouter.as_ref()
    }

    /// Sets the targets that the port's host may reach. Table entries stay; lookups refuse targets that are not
    /// allowed.
    pub fn set_access(&mut self, access: Arc<Access>) {
        self.access = access;
    }

    /// Set FAST/IDT Config.
    ///
    /// # Errors
    /// See [`super::segments::Segments::configure`].
    pub fn configure_fast(&mut self, size: u8, base: Hpa, limit: Hpa) -> Result<(), TableError> {
        self.fast.configure(size, base, limit)
    }

    /// Set FAST Segment: GIM targets must be in VTV, all others in GMV.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set_fast(
        &mut self,
        start: usize,
        entries: &[Option<FastEntry>],
    ) -> Result<(), TableError> {
        for entry in entries.iter().flatten() {
            // Targets of interleaved entries stand in the IDT, whose own command checks them.
            if let Target::Direct(pid) = entry.target {
                if entry.gim {
                    allowed("VTV", &self.access.vtv, pid)?;
                } else {
                    allowed("GMV", &self.access.gmv, pid)?;
                }
            }
        }
        self.fast.set(start, entries)
    }

    /// Set IDT DPID: each in GMV or VTV; a lookup checks the vector that its segment needs.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set_fast_idt(&mut self, start: usize, pids: &[Pid]) -> Result<(), TableError> {
        // FFFh clears an entry, which needs no access.
        for &pid in pids.iter().filter(|pid| !pid.is_none()) {
            if !self.access.vtv.contains(pid) {
                allowed("GMV", &self.access.gmv, pid)?;
            }
        }
        self.fast.set_idt(start, pids)
    }

    /// Set LDST/IDT Config.
    ///
    /// # Errors
    /// See [`super::segments::Segments::configure`].
    pub fn configure_ldst(&mut self, size: u8, base: Hpa, limit: Hpa) -> Result<(), TableError> {
        self.ldst.configure(size, base, limit)
    }

    /// Set LDST Segment: targets must be in LAV.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set_ldst(
        &mut self,
        start: usize,
        entries: &[Option<LdstEntry>],
    ) -> Result<(), TableError> {
        for entry in entries.iter().flatten() {
            if let Target::Direct(pid) = entry.target {
                allowed("LAV", &self.access.lav, pid)?;
            }
        }
        self.ldst.set(start, entries)
    }

    /// Set LDST IDT DPID: each in LAV.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set_ldst_idt(&mut self, start: usize, pids: &[Pid]) -> Result<(), TableError> {
        for &pid in pids.iter().filter(|pid| !pid.is_none()) {
            allowed("LAV", &self.access.lav, pid)?;
        }
        self.ldst.set_idt(start, pids)
    }

    /// Set Completer ID Re-Router: each DPID in LAV.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set_rerouter(
        &mut self,
        start: usize,
        entries: &[Option<ReRouterEntry>],
    ) -> Result<(), TableError> {
        for entry in entries.iter().flatten().filter(|entry| !entry.dpid.is_none()) {
            allowed("LAV", &self.access.lav, entry.dpid)?;
        }
        // Made on first use: only the edges of memory devices need one.
        self.rerouter.get_or_insert_default().set(start, entries)
    }

    /// Whether the fabric manager gave `pid` to this port. False for `0xFFF`.
    #[inline]
    #[must_use]
    pub fn has_pid(&self, pid: Pid) -> bool {
        !pid.is_none() && (self.pid == pid || self.more_pids.contains(&pid))
    }
}

fn allowed(name: &'static str, vector: &AccessVector, pid: Pid) -> Result<(), TableError> {
    if vector.contains(pid) {
        return Ok(());
    }
    Err(TableError::NotAllowed { vector: name, pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::fabric::{Bdf, Interleave};

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    /// A port that may reach 1 as G-FAM, 2 as GIM and 3 as LD-FAM.
    fn port() -> EdgePort {
        let tables = (Fast::new(16, 8).unwrap(), Ldst::new(16, 8).unwrap());
        let mut port = EdgePort::new(Role::Usp, pid(9), tables.0, tables.1);
        let mut access = Access::default();
        access.gmv.allow(pid(1)).unwrap();
        access.vtv.allow(pid(2)).unwrap();
        access.lav.allow(pid(3)).unwrap();
        port.set_access(access.into());
        port.configure_fast(0, Hpa(1 << 40), Hpa(2 << 40)).unwrap();
        port.configure_ldst(0, Hpa(1 << 40), Hpa(2 << 40)).unwrap();
        port
    }

    /// docs/spec/cxl-fabric.md: the host writes FAST, IDT, LDST and re-router, checked against what the FM allowed.
    #[test]
    fn targets_that_the_fm_did_not_allow_are_refused_and_change_nothing() {
        let (interleave, target) = (Interleave::NONE, |n| Target::Direct(pid(n)));
        let fast = |n, gim| Some(FastEntry { gim, interleave, target: target(n) });
        let ldst = |n| Some(LdstEntry { segment: false, interleave, target: target(n) });
        let requester = Bdf::from_bits(0x0100);
        let reroute = |n| Some(ReRouterEntry { dpid: pid(n), segment: None, requester });
        for n in 0..5 {
            let no = |vector| Err(TableError::NotAllowed { vector, pid: pid(n) });
            let want = |yes: bool, vector| if yes { Ok(()) } else { no(vector) };
            let mut port = port();
            let before = port.clone();
            assert_eq!(port.set_fast(0, &[fast(1, false), fast(n, false)]), want(n == 1, "GMV"));
            assert_eq!(port.set_fast(0, &[fast(n, true)]), want(n == 2, "VTV"));
            assert_eq!(port.set_fast_idt(0, &[pid(n)]), want(n == 1 || n == 2, "GMV"));
            assert_eq!(port.set_ldst(0, &[ldst(n)]), want(n == 3, "LAV"));
            assert_eq!(port.set_ldst_idt(0, &[pid(n)]), want(n == 3, "LAV"));
            assert_eq!(port.set_rerouter(0, &[reroute(n)]), want(n == 3, "LAV"));
            assert_eq!(port == before, n == 0 || n == 4, "{n}");
        }
        let mut port = port();
        port.set_fast_idt(0, &[Pid::NONE]).unwrap();
        port.set_ldst_idt(0, &[Pid::NONE]).unwrap();
    }

    #[test]
    fn prefix_flags_are_those_of_the_commands() {
        for bits in 0..4 {
            assert_eq!(Prefixes::from_bits(bits).bits(), bits);
        }
        assert!(Prefixes::from_bits(1).egress_request && Prefixes::from_bits(2).ingress_request);
    }
}
