//! Memory devices that accelerators access directly, by UIO (direct P2P to HDM), as a topology wants it.
//!
//! `[[p2p]]` -> [`P2pRange`], or the `P2pRule` that forbids it.
//!
//! Units: bytes; segments of 64 GiB.
//! Source: CXL 3.1 section 7.7.9; docs/fabric.md.
//!
//! Where a file says no address, a memory device lies in segments of its own, behind all that G-FAM and GIM have and the
//! byte at their `FabricLimit`, at the same address for all.

use weft_cxl::mld::{GRANULE, Mld};
use weft_cxl::pci::component::hdm::UNIT;
use weft_fm::memory::map::{self, Kind, Range, SEGMENT};
use weft_fm::service::status::StartMode;
use weft_fm::text::is_name;

use super::super::topology::{DeviceKind, P2p};
use super::build::Builder;
use super::error::P2pRule;
use super::gim::{OWN, WINDOW};
use super::lds::{GRANULE_MIB, LDS_MAX};
use super::{LayoutError, Part};

/// Memory of a device, where the file does not say how much.
const DEVICE_LEN: u64 = UNIT;

/// Hosts' own memory devices begin in the middle of the fabric's addresses, so that a manager can give the host more memory
/// later: FAST comes before LDST, and no memory of LDST may lie between segments of FAST.
const OWN_MEMORY: u64 = WINDOW.0 + WINDOW.1 / 2 * SEGMENT;

/// Direct access that a topology asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2pRange {
    /// What it is called.
    pub name: String,
    /// The accelerators and NICs that access it, and the host that binds it.
    pub from: Vec<Part>,
    /// The memory device.
    pub to: Part,
    /// Which logical device of it; none where it is all of it.
    pub ld: Option<u8>,
    /// What is at the PBR switch: the device itself, or the HBR switch that it is below.
    pub edge: Part,
    /// Where all of them see it.
    pub hpa: u64,
    /// How much.
    pub len: u64,
}

impl P2pRange {
    /// What leads there, and the logical device of that.
    #[must_use]
    pub const fn target(&self) -> (Part, Option<u8>) {
        (self.edge, self.ld)
    }
}

/// A device at a port of a PBR switch, as its host sees it; or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its host.
    pub host: usize,
    /// The bridge of the host's own virtual switch that leads to the switch that it is at; none where it is there itself.
    pub below: Option<u8>,
    /// The bridge that it is below, in the virtual switch at its switch; the host is above bridge 0.
    pub vppb: u8,
}

impl super::Layout {
    /// What leads to a part: itself, or the HBR switch above all HBR switches that it is below.
    #[must_use]
    pub fn edge_of(&self, part: Part) -> Part {
        let mut edge = part;
        for _ in &self.hbrs {
            let is_above = |hbr: &super::Hbr| hbr.below.iter().any(|end| end.part == edge);
            match self.hbrs.iter().position(is_above) {
                Some(hbr) => edge = Part::Hbr(hbr),
                None => break,
            }
        }
        edge
    }

    /// Where a device is in the hierarchy of its host; none where none binds it, or not at a PBR switch. A host is above all.
    #[must_use]
    pub fn place(&self, device: Part) -> Option<Place> {
        self.place_of(device, None)
    }

    /// As [`Self::place`], of a logical device of a device, where one is named.
    #[must_use]
    pub fn place_of(&self, device: Part, ld: Option<u8>) -> Option<Place> {
        if let Part::Host(host) = device {
            return self.has_edge(host).then_some(Place { host, below: None, vppb: 0 });
        }
        let edges = (0..self.hosts.len()).map(|host| (host, self.edges(host)));
        let mut all =
            edges.flat_map(|(host, edges)| edges.into_iter().map(move |edge| (host, edge)));
        let (host, edge) = all.find(|(_, edge)| edge.part == Some(device) && edge.ld == ld)?;
        Some(Place { host, below: edge.below, vppb: edge.vppb })
    }
}

impl Builder<'_> {
    /// All direct access that is wanted, and that of hosts to their own memory devices.
    pub(super) fn direct(&self) -> Result<Vec<P2pRange>, LayoutError> {
        let mut all: Vec<P2pRange> = Vec::new();
        for wanted in &self.topology.p2p {
            let new = self.wanted(wanted, &all)?;
            all.push(new);
        }
        self.own_memory(&mut all);
        Ok(all)
    }

    /// One `[[p2p]]`, behind `all` others.
    fn wanted(&self, wanted: &P2p, all: &[P2pRange]) -> Result<P2pRange, LayoutError> {
        let name = wanted.name.clone().unwrap_or_else(|| wanted.to.clone());
        let by = format!("p2p {name}");
        if self.is_name_taken(&name, all) {
            return Err(LayoutError::Twice(by));
        }
        let refuse = |who: &str, source| LayoutError::P2p {
            name: name.clone(),
            who: who.to_owned(),
            source,
        };
        let (to, ld) = self.bound_part(&by, &wanted.to)?;
        let target = self.bound(to, ld, DeviceKind::Memory, P2pRule::MemoryDevice);
        let target = target.map_err(|rule| refuse(&wanted.to, rule))?;
        let (mut from, edge) = (Vec::new(), self.layout.edge_of(to));
        if all.iter().any(|it| it.edge == edge && it.to != to) {
            return Err(refuse(&wanted.to, P2pRule::OneBelowHbr));
        }
        for who in &wanted.from {
            let part = self.find(&by, who, "accelerator or NIC")?;
            self.may_access(part, target).map_err(|rule| refuse(who, rule))?;
            let other = |it: &&P2pRange| it.to == to && it.ld != ld && it.from.contains(&part);
            if all.iter().any(|it| other(&it)) {
                return Err(refuse(who, P2pRule::OneLd));
            }
            if from.contains(&part) {
                return Err(LayoutError::Twice(format!("{by}: {who}")));
            }
            from.push(part);
        }
        if from.is_empty() {
            let (what, want) = ("who accesses it", "1 or more");
            return Err(LayoutError::Count { name: by, what, want, had: 0 });
        }
        let (hpa, len) =
            self.hdm_of(to, ld, wanted, all).map_err(|rule| refuse(&wanted.to, rule))?;
        let new = P2pRange { name, from, to, ld, edge, hpa, len };
        self.has_room(&new, all)?;
        Ok(new)
    }

    fn is_name_taken(&self, name: &str, all: &[P2pRange]) -> bool {
        self.topology.memory.iter().any(|memory| memory.name == name)
            || self.layout.gim.iter().any(|gim| gim.name == name)
            || all.iter().any(|other| other.name == name)
    }

    /// Adds the access of each host to the memory devices and logical devices that it binds: an edge has no HDM decoders, so
    /// the host's LDST has to lead there. A rule that forbids it (several logical devices at one port, several memory devices
    /// below one HBR switch, no room) leaves that device without; `weft endpoint ctl HOST tree` says so.
    fn own_memory(&self, all: &mut Vec<P2pRange>) {
        if self.topology.start == StartMode::Static {
            return; // no manager sets LAV
        }
        for (at, device) in self.topology.devices.iter().enumerate() {
            if device.kind != DeviceKind::Memory {
                continue;
            }
            let lds = device.lds.map_or_else(|| vec![None], |lds| (0..lds).map(Some).collect());
            for ld in lds {
                self.own_memory_of(Part::Device(at), ld, all);
            }
        }
    }

    fn own_memory_of(&self, to: Part, ld: Option<u8>, all: &mut Vec<P2pRange>) {
        let owner = |ld| self.bound(to, ld, DeviceKind::Memory, P2pRule::MemoryDevice).ok();
        let Some(host) = owner(ld) else { return };
        let own = Part::Host(host);
        // The edge takes CXL.mem for the one logical device that the host has at that port.
        let has_other = |other: u8| Some(other) != ld && owner(Some(other)) == Some(host);
        let is_one_of_several = ld.is_some() && (0..LDS_MAX).any(has_other);
        let is_flit = self.layout.is_flit(own) && self.layout.is_flit(to);
        let edge = self.layout.edge_of(to);
        if is_one_of_several || !is_flit || !is_name(self.layout.name(edge)) {
            return;
        }
        let is_same = |it: &P2pRange| (it.to, it.ld) == (to, ld);
        if let Some(first) = all.iter().position(is_same) {
            if all.iter().any(|it| is_same(it) && it.from.contains(&own)) {
                return;
            }
            let with_host = all.get(first).map(|it| P2pRange { from: vec![own], ..it.clone() });
            if with_host.is_some_and(|range| self.has_room(&range, all).is_ok())
                && let Some(range) = all.get_mut(first)
            {
                range.from.push(own);
            }
            return;
        }
        let len = self.initial_memory(to, ld);
        if len == 0 {
            return;
        }
        let device = self.layout.name(to);
        let to = ld.map_or_else(|| device.to_owned(), |ld| format!("{device}.{ld}"));
        let is_free = !self.is_name_taken(&to, all);
        let name = if is_free { to.clone() } else { format!("{to}.hdm") };
        let from = vec![self.layout.name(own).to_owned()];
        let hpa = Some(self.behind_all(all).max(OWN_MEMORY));
        let wanted = P2p { name: Some(name), from, to, len: Some(len), hpa };
        all.extend(self.wanted(&wanted, all).ok());
    }

    /// Bytes of memory that a device, or a logical device of it, begins with.
    fn initial_memory(&self, to: Part, ld: Option<u8>) -> u64 {
        let Part::Device(at) = to else { return 0 };
        let Some(device) = self.topology.devices.get(at) else { return 0 };
        let all = self.memory_of(to);
        let Some((ld, lds)) = ld.zip(device.lds) else { return all };
        if let Some(each) = &device.ld_mib {
            return u64::from(each.get(usize::from(ld)).copied().unwrap_or(0)) << 20;
        }
        let fixed = all.saturating_sub(u64::from(device.dynamic_mib.unwrap_or(0)) << 20);
        fixed / u64::from(lds.max(1)) / GRANULE * GRANULE
    }

    /// The host of a device of this kind (or, for accelerators, a NIC) at a PBR switch.
    fn bound(
        &self,
        part: Part,
        ld: Option<u8>,
        kind: DeviceKind,
        rule: P2pRule,
    ) -> Result<usize, P2pRule> {
        let Part::Device(at) = part else { return Err(rule) };
        let is = self.topology.devices.get(at).map(|device| device.kind);
        let memory = is == Some(DeviceKind::Memory);
        if memory != (kind == DeviceKind::Memory) {
            return Err(rule);
        }
        let at = if memory { self.layout.edge_of(part) } else { part };
        self.layout.place_of(at, ld).map(|place| place.host).ok_or(P2pRule::Bound)
    }

    /// Whether a part may access a memory device of `target`.
    fn may_access(&self, part: Part, target: usize) -> Result<(), P2pRule> {
        if part == Part::Host(target) {
            return Ok(()); // its own memory device, by CXL.mem, too
        }
        let host = self.bound(part, None, DeviceKind::Accelerator, P2pRule::Requester)?;
        if host == target {
            return Ok(());
        }
        let both = [host, target].map(|at| self.topology.hosts.get(at));
        let [Some(one), Some(other)] = both else { return Err(P2pRule::Bound) };
        if one.domain.is_none() || one.domain != other.domain {
            return Err(P2pRule::SameDomain);
        }
        if self.topology.same_segment(host).is_some() {
            return Err(P2pRule::OwnPcieSegment);
        }
        Ok(())
    }

    /// Where a memory device lies, and how much of it.
    fn hdm_of(
        &self,
        to: Part,
        ld: Option<u8>,
        wanted: &P2p,
        all: &[P2pRange],
    ) -> Result<(u64, u64), P2pRule> {
        let len = wanted.len.unwrap_or(DEVICE_LEN);
        let known = all.iter().find(|other| (other.to, other.ld) == (to, ld));
        let hpa = match (wanted.hpa, known) {
            (Some(hpa), Some(known)) if hpa != known.hpa => return Err(P2pRule::OneAddress),
            (Some(hpa), _) => hpa,
            (None, Some(known)) => known.hpa,
            (None, None) => self.behind_all(all),
        };
        let inside = hpa >= WINDOW.0 && (hpa - WINDOW.0) / SEGMENT < WINDOW.1;
        let whole = hpa.is_multiple_of(UNIT) && len.is_multiple_of(UNIT);
        if !inside || !whole || len == 0 || hpa.checked_add(len).is_none() {
            return Err(P2pRule::FabricAddresses);
        }
        if ld.is_some() && len > self.memory_of(to) {
            return Err(P2pRule::WithinDevice);
        }
        Ok((hpa, len))
    }

    /// Bytes of memory that a device has, with all of its logical devices.
    fn memory_of(&self, part: Part) -> u64 {
        let Part::Device(at) = part else { return 0 };
        let device = self.topology.devices.get(at);
        let mib = device.and_then(|it| {
            it.capacity_mib.or_else(|| Some(u32::from(it.lds?).saturating_mul(GRANULE_MIB)))
        });
        u64::from(mib.unwrap_or(0)) << 20
    }

    /// The first segment behind all others, and the one that begins at their `FabricLimit`.
    fn behind_all(&self, all: &[P2pRange]) -> u64 {
        let memory = self.topology.memory.iter().map(|it| (it.hpa, it.len));
        let gim = self.layout.gim.iter().map(|it| (it.hpa, it.len));
        let last = |(hpa, len): (u64, u64)| hpa.saturating_add(len.saturating_sub(1)) / SEGMENT;
        let fast = memory.chain(gim).map(last).max().map(|last| last + 2);
        // A logical device shows as much as all memory may become its own.
        let shown = |it: &P2pRange| match it.ld {
            Some(_) => it.len.max(Mld::bar_size(self.memory_of(it.to))),
            None => it.len,
        };
        let own = all.iter().map(|it| last((it.hpa, shown(it))) + 1).max();
        let first = fast.max(own).unwrap_or(WINDOW.0 / SEGMENT);
        first.max(WINDOW.0 / SEGMENT).saturating_mul(SEGMENT)
    }

    /// Whether those who access it have room for it.
    fn has_room(&self, new: &P2pRange, all: &[P2pRange]) -> Result<(), LayoutError> {
        let range = |one: &P2pRange| Range {
            name: format!("p2p {}", one.name),
            hpa: one.hpa,
            len: one.len,
            targets: vec![one.to],
            granularity: 0,
            kind: Kind::P2p,
        };
        for part in &new.from {
            let who = self.layout.name(*part);
            let mut others: Vec<Range<Part>> =
                all.iter().filter(|other| other.from.contains(part)).map(range).collect();
            let has = |list: &[String]| list.iter().any(|name| name == who);
            let memory = self.topology.memory.iter();
            for memory in memory.filter(|it| has(&it.devices) || has(&it.hosts)) {
                others.push(Range {
                    name: format!("memory {}", memory.name),
                    hpa: memory.hpa,
                    len: memory.len,
                    targets: Vec::new(),
                    granularity: memory.granularity,
                    kind: Kind::Memory,
                });
            }
            for gim in self.layout.gim.iter().filter(|gim| gim.from.contains(part)) {
                others.push(Range {
                    name: format!("gim {}", gim.name),
                    hpa: gim.hpa,
                    len: gim.len,
                    targets: vec![gim.of],
                    granularity: 0,
                    kind: Kind::Gim,
                });
            }
            map::fits(&range(new), &others, &OWN).map_err(|conflict| LayoutError::P2p {
                name: new.name.clone(),
                who: who.to_owned(),
                source: P2pRule::Taken(conflict),
            })?;
        }
        Ok(())
    }
}
