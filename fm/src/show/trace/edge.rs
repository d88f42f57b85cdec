//! Trace at the host's edge: `FabricBase`, FAST, way, IDT; GMV or VTV; LDST and LAV.
//!
//! Finds the [`Target`] of an address, or that the hierarchy routes it. Segments have 64 GiB << n.
//!
//! Source: docs/spec/wire-formats.md §4.5 (570Ch to 5711h, 5715h), §4.6 (5803h, 5805h, 5807h, 5901h), §5.1.

use weft_parsers::cci::Request;
use weft_parsers::cci::gfd_access::{Gdt, GdtRange};
use weft_parsers::cci::tables::{EdgeRange, VcsVectorRange, Vector, VectorRange};
use weft_parsers::fabric::{Interleave, Pid, Target as To};

use super::{End, Reached, Stop, Target, TraceWalk, Via, refused};
use crate::cci::segment_tables::Kind;
use crate::cci::{CciSession, Way};
use crate::components::edge::prefixes;
use crate::components::gim::Grant;
use crate::components::memory::{DECODERS, Part};
use crate::model::inventory::DiscoveredSwitch;

/// Offset of VTV in the vectors of a VCS: GMV has 512 bytes.
const VTV_AT: u32 = 512;

impl TraceWalk<'_> {
    /// The target that the edge sends the request to; `None` if the host's hierarchy routes it.
    pub(super) fn edge(&mut self) -> Result<Option<Target>, Stop> {
        let name = self.asked.gae.clone();
        // Taken out for the lookup, as `self` is borrowed meanwhile, and put back below.
        let Some((name, gae)) = name.and_then(|name| self.asked.gaes.remove_entry(&name)) else {
            return self.by_share();
        };
        if self.via == Via::CxlMem {
            let target = self.by_tables_alone(gae);
            self.asked.gaes.insert(name, gae);
            return target.map(Some);
        }
        // In the order of the edge: FAST comes before LDST, and a match of FAST is final.
        let found = match self.segment(gae, Kind::Fast)? {
            Some((dpid, gim)) => Some((dpid, gim, Kind::Fast)),
            None => self.segment(gae, Kind::Ldst)?.map(|(dpid, gim)| (dpid, gim, Kind::Ldst)),
        };
        self.asked.gaes.insert(name, gae);
        let Some((dpid, gim, kind)) = found else {
            if let Some(target) = self.by_prefix()? {
                return Ok(Some(target));
            }
            let text = "no segment table matches it: the virtual switch routes it by its windows";
            self.say(self.host.switch, "bridges", text);
            return Ok(None);
        };
        match (kind, gim) {
            (Kind::Fast, false) => self.may("GMV", dpid, 0)?,
            (Kind::Fast, true) => self.may("VTV", dpid, VTV_AT)?,
            (Kind::Ldst, _) => self.may_ldst(dpid)?,
        }
        let kind = match (kind, gim) {
            (Kind::Fast, false) => Reached::Gfd,
            (Kind::Fast, true) => Reached::Owner,
            (Kind::Ldst, _) => Reached::MemoryDevice,
        };
        Ok(Some(Target { dpid, kind }))
    }

    /// The target of a CXL.mem request: FAST and LDST decide alone, as an edge has no HDM decoders.
    fn by_tables_alone(&mut self, gae: &mut CciSession) -> Result<Target, Stop> {
        match self.segment(gae, Kind::Fast)? {
            Some((dpid, false)) => {
                self.may("GMV", dpid, 0)?;
                return Ok(Target { dpid, kind: Reached::Gfd });
            }
            Some((_, true)) => return self.unsupported("the edge", "GIM takes UIO only"),
            None => {}
        }
        if let Some((dpid, _)) = self.segment(gae, Kind::Ldst)? {
            self.may_ldst(dpid)?;
            return Ok(Target { dpid, kind: Reached::MemoryDevice });
        }
        let text = "there are none: only FAST and LDST take CXL.mem";
        self.say(self.host.switch, "HDM decoders", text);
        self.unsupported("the edge", "no FAST or LDST entry, and no HDM decoder")
    }

    /// Looks the address up in one table: window, entry, way and IDT. Returns the DPID, and whether it is GIM.
    fn segment(&mut self, gae: &mut CciSession, kind: Kind) -> Result<Option<(Pid, bool)>, Stop> {
        let (hpa, at, name, vppb) = (self.hpa, self.host.switch, kind.name(), self.asked.vppb);
        let window = kind.window(gae, vppb)?;
        let bounds = format!("{:#x} to {:#x}", window.base, window.limit);
        let head = if kind == Kind::Fast { "FabricBase" } else { "LDST window" };
        if window.is_off() {
            self.say(at, head, format!("{name} is off"));
            return Ok(None);
        }
        if !window.takes(hpa) {
            self.say(at, head, format!("{bounds}: it lies outside"));
            return Ok(None);
        }
        self.say(at, head, format!("{bounds}: it lies within"));
        let Some((index, hardware)) = window.place(hpa) else {
            return self.unsupported("the edge", "the window is larger than the table");
        };
        let place =
            format!("segment {index} (entry {hardware}) of {} GiB", 1_u64 << (window.shift - 30));
        let range = EdgeRange { vppb, count: 1, start: index };
        let Some(segment) = kind.segments(gae, range)?.first().copied().flatten() else {
            self.say(at, name, format!("{place}: not valid"));
            // Where LDST has no entry, the virtual switch routes as usual.
            if kind == Kind::Ldst {
                return Ok(None);
            }
            return self.unsupported("the edge", format!("the {name} entry is not valid"));
        };
        let what = if segment.gim { "GIM" } else { "memory" };
        let (ways, granule) = (segment.interleave.ways(), segment.interleave.granularity());
        let dpid = match segment.to {
            To::Direct(pid) => {
                self.say(at, name, format!("{place}: {what}, one way, DPID {pid}"));
                pid
            }
            To::Interleaved(first) => {
                let text = format!(
                    "{place}: {what}, {ways} ways of {granule} bytes, IDT from {first:#05x} on"
                );
                self.say(at, name, text);
                let way = u16::from(segment.interleave.way(hpa.0));
                self.say(at, "way", format!("{way}, by the address"));
                let index = first.saturating_add(way);
                let range = EdgeRange { vppb, count: 1, start: index };
                let pid = kind.dpids(gae, range)?.first().copied().unwrap_or(Pid::NONE);
                self.say(at, &format!("{name} IDT"), format!("[{index:#05x}]: DPID {pid}"));
                pid
            }
        };
        if dpid.is_none() {
            return self.unsupported("the edge", "there is no DPID");
        }
        Ok(Some((dpid, segment.gim)))
    }

    /// The target by the manager's records, where FAST cannot be read: from the share, and a decoder of one of its
    /// GFDs.
    fn by_share(&mut self) -> Result<Option<Target>, Stop> {
        let (host, hpa, at) = (self.host, self.hpa, self.host.switch);
        let has = |share: &&crate::components::memory::Share| {
            share.hosts.contains(&host) && hpa.0.wrapping_sub(share.hpa) < share.len
        };
        let Some(share) = self.asked.memory.shares.iter().find(has) else {
            if let Some(target) = self.by_grant()? {
                return Ok(Some(target));
            }
            if let Some(target) = self.by_direct()? {
                return Ok(Some(target));
            }
            let text = "only the host's GAE reports it; the FM granted the host no memory there";
            self.note(at, "FAST", false, text);
            return Err(Stop::End(End::Unknown(text.to_owned())));
        };
        let parts = share.parts.clone();
        let Some(first) = parts.first().copied() else { return refused("the share has no parts") };
        // Each of its GFDs has the interleaving in its decoder; one may be silent.
        let mut dealt = Err(Stop::End(End::Unknown("the share has no parts".to_owned())));
        for part in &parts {
            dealt = self.interleave(part);
            if dealt.is_ok() {
                break;
            }
        }
        let interleave = dealt?;
        let way = interleave.way(hpa.0);
        let part = parts.get(usize::from(way)).copied().unwrap_or(first);
        let (ways, granule) = (interleave.ways(), interleave.granularity());
        let text = format!(
            "only the host's GAE reports it; by the FM's share: way {way} of {ways} in granules of {granule} bytes, DPID {}",
            part.gfd
        );
        self.note(at, "FAST", false, text);
        self.may("GMV", part.gfd, 0)?;
        Ok(Some(Target { dpid: part.gfd, kind: Reached::Gfd }))
    }

    /// A GIM grant that covers the address, for this requester.
    fn grant(&self, by_prefix: bool) -> Option<&Grant> {
        let (host, hpa) = (self.host, self.hpa);
        self.asked.gim.grants.iter().find(|grant| {
            grant.policy.by_prefix == by_prefix
                && grant.members.contains(&host)
                && hpa.0.wrapping_sub(grant.hpa) < grant.len
        })
    }

    /// The target by the manager's GIM, where FAST cannot be read.
    fn by_grant(&mut self) -> Result<Option<Target>, Stop> {
        let uio = self.via == Via::Uio;
        let Some(grant) = self.grant(false) else {
            return if uio { self.by_prefix() } else { Ok(None) };
        };
        let (dpid, name) = (grant.owner.pid, grant.name.clone());
        let text = format!("only the host's GAE reports it; by the FM's GIM {name:?}: DPID {dpid}");
        self.note(self.host.switch, "FAST", false, text);
        if !uio {
            return self.unsupported("the edge", "GIM takes UIO only");
        }
        self.may("VTV", dpid, VTV_AT)?;
        Ok(Some(Target { dpid, kind: Reached::Owner }))
    }

    /// The target of GIM that the requester names itself.
    fn by_prefix(&mut self) -> Result<Option<Target>, Stop> {
        let Some(grant) = self.grant(true) else { return Ok(None) };
        let (dpid, name) = (grant.owner.pid, grant.name.clone());
        let (at, vcs) = (self.host.switch, self.host.vcs);
        let into = prefixes(self.asked.fabric, self.asked.inventory, at, vcs)?.into;
        let said = if into { "on" } else { "off" };
        let text =
            format!("GIM {name:?}, PID {dpid} in the request; VCS {vcs}, requests in: {said}");
        self.say(at, "VendPrefixL0", text);
        if !into {
            return refused(format!("UR at {at}: requests may not have a VendPrefixL0"));
        }
        self.may("VTV", dpid, VTV_AT)?;
        Ok(Some(Target { dpid, kind: Reached::Owner }))
    }

    /// Interleaving of a share, from a decoder of one of its GFDs.
    fn interleave(&mut self, part: &Part) -> Result<Interleave, Stop> {
        let range = GdtRange { rpid: self.host.pid, count: DECODERS, start: 0 };
        let answer = self.asked.fabric.call(Way::Pid(part.gfd), &Request::GetGdt(range))?;
        let entries = answer.read::<Gdt<'_>>()?.entries;
        let entry = entries.iter().find(|entry| entry.index == part.decoder);
        match entry.and_then(|entry| entry.decoder) {
            Some(decoder) => Ok(decoder.interleave),
            None => refused(format!("GFD {} has no decoder {} for it", part.gfd, part.decoder)),
        }
    }

    fn edge_way(&self) -> Way {
        self.asked.inventory.switch(self.host.switch).map_or(Way::Entry, DiscoveredSwitch::way)
    }

    /// Checks a DPID's bit in GMV (`first` 0) or VTV.
    fn may(&mut self, name: &'static str, dpid: Pid, first: u32) -> Result<(), Stop> {
        let start = first + u32::from(dpid.bits() / 8);
        let range = VcsVectorRange { vcs: self.host.vcs, range: VectorRange { start, len: 1 } };
        let way = self.edge_way();
        let answer = self.asked.fabric.call(way, &Request::GetVcsAccess(range))?;
        self.bit(name, dpid, answer.read::<Vector<'_>>()?.data.get(0))
    }

    pub(super) fn may_ldst(&mut self, dpid: Pid) -> Result<(), Stop> {
        let start = u32::from(dpid.bits() / 8);
        let range = VcsVectorRange { vcs: self.host.vcs, range: VectorRange { start, len: 1 } };
        let way = self.edge_way();
        let answer = self.asked.fabric.call(way, &Request::GetVcsLav(range))?;
        self.bit("LAV", dpid, answer.read::<Vector<'_>>()?.data.get(0))
    }

    fn bit(&mut self, name: &'static str, dpid: Pid, byte: Option<u8>) -> Result<(), Stop> {
        let is_set = byte.is_some_and(|byte| byte & (1 << (dpid.bits() % 8)) != 0);
        let said = if is_set { "set" } else { "not set" };
        self.say(self.host.switch, name, format!("VCS {}, PID {dpid}: {said}", self.host.vcs));
        if is_set {
            return Ok(());
        }
        self.unsupported("the edge", format!("{name} does not have {dpid}"))
    }
}
