//! Direct access of accelerators to memory devices by UIO (direct P2P to HDM).
//!
//! A `[[p2p]]` becomes a [`P2pRange`], or breaks a `P2pRule`. By default a memory device gets segments of its own,
//! behind all G-FAM and GIM and the byte at their `FabricLimit`, at the same address for all.
//!
//! Source: CXL 3.1 section 7.7.9; docs/fabric.md.

use weft_cxl::mld::{GRANULE, Mld};
use weft_cxl::pci::component::hdm::UNIT;
use weft_fm::components::memory::map::{self, Kind, Range, SEGMENT};
use weft_fm::model::text::is_name;
use weft_fm::service::status::StartMode;

use super::super::topology::{DeviceKind, P2p};
use super::build::LayoutBuilder;
use super::error::P2pRule;
use super::gim::{OWN, WINDOW};
use super::lds::{GRANULE_MIB, LDS_MAX};
use super::{LayoutError, Part};

/// Default length of the accessed memory.
const DEVICE_LEN: u64 = UNIT;

/// Hosts' own memory devices begin in the middle of the fabric's addresses, so that a manager can give the host more
/// memory later: FAST comes before LDST, and no memory of LDST may lie between segments of FAST.
const OWN_MEMORY: u64 = WINDOW.0 + WINDOW.1 / 2 * SEGMENT;

/// A range of direct access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P2pRange {
    pub name: String,
    /// The accelerators and NICs that access it, and the host that binds it.
    pub from: Vec<Part>,
    pub to: Part,
    /// Logical device of it; `None` for the whole device.
    pub ld: Option<u8>,
    /// The part at the PBR switch: the device itself, or the topmost HBR switch above it.
    pub edge: Part,
    /// Address at which all of them see it.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
}

impl P2pRange {
    /// The part at the PBR switch, and the logical device: the target of LDST entries.
    #[must_use]
    pub const fn target(&self) -> (Part, Option<u8>) {
        (self.edge, self.ld)
    }
}

/// Position of a device in its host's hierarchy, or of the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of its host.
    pub host: usize,
    /// Bridge of the host's own virtual switch that leads to the device's switch; `None` if the device is at the host's
    /// switch.
    pub below: Option<u8>,
    /// Bridge above it in the virtual switch there; for a host bridge 0, which is below it.
    pub vppb: u8,
}

impl super::Layout {
    /// The part at the PBR switch that leads to `part`: itself, or the topmost HBR switch above it.
    #[must_use]
    pub fn edge_of(&self, part: Part) -> Part {
        let mut edge = part;
        // As many steps as there are HBR switches: `check_circles` has excluded circles.
        for _ in &self.hbrs {
            let is_above = |hbr: &super::Hbr| hbr.below.iter().any(|end| end.part == edge);
            match self.hbrs.iter().position(is_above) {
                Some(hbr) => edge = Part::Hbr(hbr),
                None => break,
            }
        }
        edge
    }

    /// Position of a device in its host's hierarchy; `None` if no host binds it at a PBR switch. A host is above its
    /// bridge 0.
    #[must_use]
    pub fn place(&self, device: Part) -> Option<Place> {
        self.place_of(device, None)
    }

    /// Like [`Self::place`], for one logical device if `ld` names it.
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

impl LayoutBuilder<'_> {
    /// All `[[p2p]]` ranges, and those for hosts' access to their own memory devices.
    pub(super) fn direct(&self) -> Result<Vec<P2pRange>, LayoutError> {
        let mut all: Vec<P2pRange> = Vec::new();
        for wanted in &self.topology.p2p {
            let new = self.wanted(wanted, &all)?;
            all.push(new);
        }
        // Last: a `[[p2p]]` of the file may have placed the device already.
        self.own_memory(&mut all);
        Ok(all)
    }

    /// Checks one `[[p2p]]` against `all` others before it.
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

    /// Adds each host's access to the memory devices and logical devices that it binds: an edge has no HDM decoders, so
    /// the host's LDST must lead there. If a rule forbids it (several logical devices at one port, several memory
    /// devices below one HBR switch, no room) the host goes without; `weft endpoint ctl HOST tree` reports that.
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
            // The host joins the requesters of the file's own range, at the same address.
            let with_host = all.get(first).map(|it| P2pRange { from: vec![own], ..it.clone() });
            if with_host.is_some_and(|range| self.has_room(&range, all).is_ok())
                && let Some(range) = all.get_mut(first)
            {
                range.from.push(own);
            }
            return;
        }
        // Without memory at the start there is nothing to lead to.
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
        // A broken rule leaves the device without a range: the file has not asked for one.
        all.extend(self.wanted(&wanted, all).ok());
    }

    /// Memory in bytes that a device, or a logical device of it, has at the start.
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

    /// The host of a device of this kind at a PBR switch; a NIC counts as an accelerator.
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
        // A memory device may be below HBR switches, which its host has bound as a whole.
        let at = if memory { self.layout.edge_of(part) } else { part };
        self.layout.place_of(at, ld).map(|place| place.host).ok_or(P2pRule::Bound)
    }

    /// Checks that a part may access a memory device of host `target`.
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
        // Across hierarchies completions are routed by segment and id, so segments must differ.
        if self.topology.same_segment(host).is_some() {
            return Err(P2pRule::OwnPcieSegment);
        }
        Ok(())
    }

    /// Address and length of a memory device's range.
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
            // A device decodes one address for all requesters.
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

    /// Memory of a device in bytes, all of its logical devices included.
    fn memory_of(&self, part: Part) -> u64 {
        let Part::Device(at) = part else { return 0 };
        let device = self.topology.devices.get(at);
        let mib = device.and_then(|it| {
            it.capacity_mib.or_else(|| Some(u32::from(it.lds?).saturating_mul(GRANULE_MIB)))
        });
        u64::from(mib.unwrap_or(0)) << 20
    }

    /// The first segment behind all others, and behind the one that begins at their `FabricLimit`.
    fn behind_all(&self, all: &[P2pRange]) -> u64 {
        let memory = self.topology.memory.iter().map(|it| (it.hpa, it.len));
        let gim = self.layout.gim.iter().map(|it| (it.hpa, it.len));
        let last = |(hpa, len): (u64, u64)| hpa.saturating_add(len.saturating_sub(1)) / SEGMENT;
        let fast = memory.chain(gim).map(last).max().map(|last| last + 2);
        // A logical device shows the whole capacity, because all of it may become its own.
        let shown = |it: &P2pRange| match it.ld {
            Some(_) => it.len.max(Mld::bar_size(self.memory_of(it.to))),
            None => it.len,
        };
        let own = all.iter().map(|it| last((it.hpa, shown(it))) + 1).max();
        let first = fast.max(own).unwrap_or(WINDOW.0 / SEGMENT);
        first.max(WINDOW.0 / SEGMENT).saturating_mul(SEGMENT)
    }

    /// Checks that each requester has room for the range among its other memory.
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
