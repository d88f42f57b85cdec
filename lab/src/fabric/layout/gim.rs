//! Memory of hosts and devices that others access (GIM).
//!
//! `[[gim]]` and `gim = true` become a [`GimRange`], or break a `GimRule`. By default memory lies in segments behind
//! all G-FAM (figure 7-37), one for each host or device that owns some, in the order of the file.
//!
//! Source: CXL 3.1 sections 7.7.3.1 to 7.7.3.3, 7.7.2.6; docs/fabric.md.

use std::collections::BTreeMap;

use weft_fm::components::memory::map::{LocalRange, SEGMENT};

use super::super::topology::{DeviceKind, Flow, Gim};
use super::build::LayoutBuilder;
use super::error::GimRule;
use super::{End, LayoutError, Part, VppbBinding};

/// First address of the fabric in hosts' addresses, and its length in segments.
pub const WINDOW: (u64, u64) = (1 << 40, 4_096);
/// All other addresses are the hosts' own.
pub const OWN: [LocalRange; 2] = {
    let end = WINDOW.0 + WINDOW.1 * SEGMENT;
    [LocalRange { base: 0, len: WINDOW.0 }, LocalRange { base: end, len: u64::MAX - end }]
};
/// Memory that a device shows.
const DEVICE_LEN: u64 = 16 << 20;

/// A range of GIM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GimRange {
    pub name: String,
    /// Owner of the memory: a host or a device.
    pub of: Part,
    /// Hosts and devices that may access it.
    pub from: Vec<Part>,
    pub by: Flow,
    /// Address at which all of them see it.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
}

impl LayoutBuilder<'_> {
    /// All ranges of GIM.
    pub(super) fn shown(&self) -> Result<Vec<GimRange>, LayoutError> {
        let mut all: Vec<GimRange> = Vec::new();
        let mut places: BTreeMap<Part, u64> = BTreeMap::new();
        for wanted in self.requested() {
            let name = wanted.name.clone().unwrap_or_else(|| wanted.of.clone());
            let by = format!("gim {name}");
            let is_share = self.topology.memory.iter().any(|memory| memory.name == name);
            if is_share || all.iter().any(|other| other.name == name) {
                return Err(LayoutError::Twice(by));
            }
            let refuse = |who: &str, source| LayoutError::Gim {
                name: name.clone(),
                who: who.to_owned(),
                source,
            };
            let refuse_of = |rule| refuse(&wanted.of, rule);
            let of = self.find(&by, &wanted.of, "host or device")?;
            if self.kind_of(of) == Some(DeviceKind::Memory) {
                return Err(refuse_of(GimRule::TakesPrefix));
            }
            let domain = self.domain(of).map_err(refuse_of)?;
            let from = match &wanted.from {
                None => self.others(domain),
                Some(names) => {
                    let mut from = Vec::new();
                    for who in names {
                        let part = self.find(&by, who, "host or device")?;
                        self.may(part, domain).map_err(|rule| refuse(who, rule))?;
                        if from.contains(&part) {
                            return Err(LayoutError::Twice(format!("{by}: {who}")));
                        }
                        from.push(part);
                    }
                    from
                }
            };
            if from.is_empty() {
                let (what, want) = ("who reaches it", "1 or more");
                return Err(LayoutError::Count { name: by, what, want, had: 0 });
            }
            let (hpa, len) = self.place(of, &wanted, &mut places).map_err(refuse_of)?;
            all.push(GimRange { name, of, from, by: wanted.by, hpa, len });
        }
        Ok(all)
    }

    /// The `[[gim]]` entries, and one for each `gim = true`.
    fn requested(&self) -> impl Iterator<Item = Gim> + '_ {
        let topology = self.topology;
        let hosts = topology.hosts.iter().filter(|host| host.gim).map(|host| &host.name);
        let devices = topology.devices.iter().filter(|device| device.gim).map(|it| &it.name);
        let whole = |name: &String| Gim { of: name.clone(), ..Gim::default() };
        hosts.chain(devices).map(whole).chain(topology.gim.iter().cloned())
    }

    fn kind_of(&self, part: Part) -> Option<DeviceKind> {
        match part {
            Part::Device(at) => self.topology.devices.get(at).map(|device| device.kind),
            _ => None,
        }
    }

    /// The host whose domain a host or device belongs to; it must be at an edge port of its own.
    fn domain(&self, part: Part) -> Result<usize, GimRule> {
        if !matches!(part, Part::Host(_) | Part::Device(_)) {
            return Err(GimRule::EdgeOnly);
        }
        let Some(End { part: Part::Switch(at), port }) = self.at.get(&part).copied() else {
            return Err(GimRule::EdgeOnly);
        };
        if let Part::Host(host) = part {
            return Ok(host);
        }
        // A device belongs to the host whose virtual switch binds its port.
        let vcses = self.layout.switches.get(at).map(|switch| switch.vcses.as_slice());
        let mut all = vcses.unwrap_or_default().iter();
        let owner = all.find(|vcs| vcs.vppbs.contains(&VppbBinding::Port(port)));
        owner.map(|vcs| vcs.host).ok_or(GimRule::ByGae)
    }

    /// Checks that a part may access memory of that domain.
    fn may(&self, part: Part, domain: usize) -> Result<(), GimRule> {
        if self.kind_of(part) == Some(DeviceKind::Memory) {
            return Err(GimRule::UioOnly);
        }
        if self.domain(part)? == domain { Err(GimRule::OtherDomain) } else { Ok(()) }
    }

    /// All parts that may.
    fn others(&self, domain: usize) -> Vec<Part> {
        let hosts = (0..self.topology.hosts.len()).map(Part::Host);
        let all = hosts.chain((0..self.topology.devices.len()).map(Part::Device));
        all.filter(|&part| self.may(part, domain).is_ok()).collect()
    }

    /// Address and length of a range; records the address in `places`.
    fn place(
        &self,
        of: Part,
        wanted: &Gim,
        places: &mut BTreeMap<Part, u64>,
    ) -> Result<(u64, u64), GimRule> {
        let has = match of {
            Part::Host(at) => {
                let host = self.topology.hosts.get(at);
                host.map_or(0, |host| u64::from(host.memory_mib) << 20)
            }
            _ => DEVICE_LEN,
        };
        let len = wanted.len.unwrap_or(has);
        if len == 0 || len > has {
            return Err(GimRule::WithinMemory);
        }
        let shares = self.topology.memory.iter().map(|memory| (memory.hpa, memory.len));
        let shares: Vec<(u64, u64)> = shares.collect();
        let first = shares.iter().map(|(hpa, len)| hpa.saturating_add(*len)).max();
        // Behind all G-FAM, at a whole segment: a segment of FAST has one target.
        let first = first.unwrap_or(0).max(WINDOW.0).div_ceil(SEGMENT);
        let taken = |segment: u64| {
            let share = |(hpa, len): &(u64, u64)| {
                let last = hpa.saturating_add(len.saturating_sub(1));
                (hpa / SEGMENT..=last / SEGMENT).contains(&segment)
            };
            shares.iter().any(share)
                || places.iter().any(|(part, hpa)| *part != of && hpa / SEGMENT == segment)
        };
        // Several ranges of one owner share its address.
        let known = places.get(&of).copied();
        let free = || (first..first + WINDOW.1).find(|at| !taken(*at)).map(|at| at * SEGMENT);
        let hpa = wanted.hpa.or(known).or_else(free).ok_or(GimRule::OwnSegment)?;
        // An address from the file may be anywhere, so it is checked like the others.
        let inside = hpa >= WINDOW.0 && hpa / SEGMENT - WINDOW.0 / SEGMENT < WINDOW.1;
        let same = known.is_none_or(|known| known == hpa);
        if !inside || !same || hpa % SEGMENT + len > SEGMENT || taken(hpa / SEGMENT) {
            return Err(GimRule::OwnSegment);
        }
        places.insert(of, hpa);
        Ok((hpa, len))
    }
}
