//! What each component of a fabric is made of, and which ends of it are joined.
//!
//! Shape: a [`Topology`] -> [`Layout`], or the first thing in it that cannot be.
//! Units: ports and vPPBs by number.
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding"; CXL 3.1 sections 7.7.5, 7.7.6.1.
//!
//! Ports are numbered in the order of the file: hosts, devices, HBR switches, GFDs, then links. A host has a virtual
//! switch at its edge, with a vPPB for each of its devices there and one for each switch further out that has some; each
//! of those has a virtual switch for it, whose vPPB 0 is the far end of the virtual link.

pub mod gim;

use std::collections::{BTreeMap, BTreeSet};

use weft_fm::memory::map::{self, Conflict, Kind, Range};
use weft_fm::rules::{self, Forbidden};
use weft_parsers::cci::Uuid;

use super::topology::{Start, Topology};

/// Most ports of a switch: one of 64 is its agent's.
pub const PORTS_MAX: usize = 63;
/// Most downstream ports of an HBR switch.
pub const HBR_PORTS_MAX: usize = 31;

/// Why a topology cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A name is there twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// Nothing is called so.
    #[error("{by}: there is no {what} {name:?}")]
    NoSuch {
        /// Who names it.
        by: String,
        /// What it would have to be.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A connection that no rule allows.
    #[error("{a} to {b}: {source}")]
    Forbidden {
        /// One end.
        a: String,
        /// The other.
        b: String,
        /// The rule.
        source: Forbidden,
    },
    /// A count that cannot be.
    #[error("{name}: {what}: expected {want}, found {had}")]
    Count {
        /// Whose.
        name: String,
        /// Of what.
        what: &'static str,
        /// What is allowed.
        want: &'static str,
        /// What the file says.
        had: u64,
    },
    /// Memory of hosts and devices for others (GIM) that no rule allows.
    #[error("gim {name}: {who}: {source}")]
    Gim {
        /// What it is called.
        name: String,
        /// Whose part in it cannot be.
        who: String,
        /// The rule.
        source: gim::Rule,
    },
    /// Memory that cannot be dealt out so.
    #[error("memory {name}: {why}")]
    Misfit {
        /// What it is called.
        name: String,
        /// Why not.
        why: String,
    },
    /// Memory where a requester has something else.
    #[error("memory {name}: {who}: {source}")]
    Taken {
        /// What it is called.
        name: String,
        /// Whose addresses they are.
        who: String,
        /// The rule, and what is there.
        source: Conflict,
    },
    /// What a fabric without a manager cannot have.
    #[error("{0:?}: a static fabric has no G-FAM and no GIM")]
    Static(String),
    /// A device has two hosts.
    #[error("{device}: {first} and {second} both bind it")]
    BoundTwice {
        /// The device.
        device: String,
        /// One host.
        first: String,
        /// The other.
        second: String,
    },
    /// A device is to reach memory, but no host can set the tables of its port.
    #[error("{by}: {device} is not bound to a host at that host's own switch")]
    NoTables {
        /// Which memory.
        by: String,
        /// The device.
        device: String,
    },
    /// What a host binds hangs on no PBR switch directly.
    #[error("{host}: {device} cannot be bound: it is at {at}, which is no PBR switch")]
    Unbindable {
        /// Who binds.
        host: String,
        /// What.
        device: String,
        /// Where it is.
        at: String,
    },
}

/// A component, by its place in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A PBR switch.
    Switch(usize),
    /// A host.
    Host(usize),
    /// A device.
    Device(usize),
    /// An HBR switch.
    Hbr(usize),
    /// A GFD.
    Gfd(usize),
}

/// One end of a wire: a component and its port there; hosts, devices and GFDs have port 0 only, and port 0 of a
/// HBR switch is its upstream one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The component.
    pub part: Part,
    /// Its port.
    pub port: u8,
}

/// What a port of a PBR switch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// A host's.
    Usp,
    /// A device's, an HBR switch's or a GFD's.
    Dsp,
    /// Another PBR switch's.
    Fabric,
}

/// A port of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub role: PortRole,
    /// What is at its other end.
    pub far: End,
}

/// What a downstream vPPB is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VppbBinding {
    /// A port of the same switch.
    Port(u8),
    /// The virtual switch of this number at another switch.
    Below {
        /// The switch.
        switch: usize,
        /// The virtual switch there.
        vcs: u8,
    },
    /// Nothing for now.
    Spare,
}

/// A virtual switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcs {
    /// Whose.
    pub host: usize,
    /// The host's port; `None` where it is further out.
    pub usp: Option<u8>,
    /// Downstream vPPBs, from number 1 on.
    pub vppbs: Vec<VppbBinding>,
}

/// A PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// What it is called.
    pub name: String,
    /// Its serial number; others know it by [`uuid`] of that.
    pub serial: u64,
    /// Its ports, by number.
    pub ports: Vec<Port>,
    /// Its virtual switches, by number.
    pub vcses: Vec<Vcs>,
}

/// An HBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hbr {
    /// What it is called.
    pub name: String,
    /// What hangs on its downstream ports, from port 1 on.
    pub below: Vec<End>,
}

/// A GFD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gfd {
    /// What it is called.
    pub name: String,
    /// Its serial number; others know it by [`uuid`] of that.
    pub serial: u64,
    /// Its memory, MiB.
    pub capacity_mib: u32,
}

/// All components, and what is joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// PBR switches.
    pub switches: Vec<Switch>,
    /// Hbr switches.
    pub hbrs: Vec<Hbr>,
    /// GFDs, each by itself.
    pub gfds: Vec<Gfd>,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of devices.
    pub devices: Vec<String>,
    /// Both ends of each wire.
    pub wires: Vec<[End; 2]>,
    /// Memory that hosts and devices show others.
    pub gim: Vec<gim::GimRange>,
    /// GFDs, by what a file may call them: each by its name, and those of a count by theirs together.
    sets: BTreeMap<String, Vec<usize>>,
}

/// A serial number that is the same in each run: what kind of component, and its place in the file.
fn serial(kind: u8, index: usize) -> u64 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    u64::from(u32::from_be_bytes(*b"weft")) << 32 | u64::from(kind) << 24 | u64::from(index + 1)
}

/// The UUID of a component of that serial number.
#[must_use]
pub fn uuid(serial: u64) -> Uuid {
    let mut uuid = [0; 16];
    for (to, byte) in uuid.iter_mut().zip(serial.to_be_bytes()) {
        *to = byte;
    }
    uuid
}

/// Kinds of components in serial numbers.
const SWITCH: u8 = b's';
const GFD: u8 = b'g';

/// What is being put together.
struct Builder<'a> {
    topology: &'a Topology,
    parts: BTreeMap<String, Part>,
    layout: Layout,
    /// Where each component hangs.
    at: BTreeMap<Part, End>,
}

impl Layout {
    /// Lays a topology out.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn new(topology: &Topology) -> Result<Self, LayoutError> {
        let mut builder = Builder::new(topology)?;
        builder.hang_all()?;
        builder.link_switches()?;
        builder.virtual_switches()?;
        builder.check_memory()?;
        builder.layout.gim = builder.shown()?;
        builder.check_start()?;
        Ok(builder.layout)
    }

    /// What a component is called.
    #[must_use]
    pub fn name(&self, part: Part) -> &str {
        let name = match part {
            Part::Switch(at) => self.switches.get(at).map(|switch| &switch.name),
            Part::Host(at) => self.hosts.get(at),
            Part::Device(at) => self.devices.get(at),
            Part::Hbr(at) => self.hbrs.get(at).map(|hbr| &hbr.name),
            Part::Gfd(at) => self.gfds.get(at).map(|gfd| &gfd.name),
        };
        name.map_or("?", String::as_str)
    }

    /// All parts that are no PBR switches.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Part> {
        let mut all: Vec<Part> = (0..self.hosts.len()).map(Part::Host).collect();
        all.extend((0..self.devices.len()).map(Part::Device));
        all.extend((0..self.hbrs.len()).map(Part::Hbr));
        all.extend((0..self.gfds.len()).map(Part::Gfd));
        all
    }

    /// Links of a part.
    #[must_use]
    pub fn link_count(&self, part: Part) -> u8 {
        let links = match part {
            Part::Switch(at) => self.switches.get(at).map_or(0, |switch| switch.ports.len()),
            Part::Hbr(at) => self.hbrs.get(at).map_or(1, |hbr| hbr.below.len() + 1),
            Part::Host(_) | Part::Device(_) | Part::Gfd(_) => 1,
        };
        u8::try_from(links).unwrap_or(u8::MAX)
    }

    /// GFDs by their names, or by that of several; `None` when a name is no GFD's.
    #[must_use]
    pub fn gfds(&self, names: &[String]) -> Option<Vec<usize>> {
        let lists = names.iter().map(|name| self.sets.get(name));
        Some(lists.collect::<Option<Vec<_>>>()?.into_iter().flatten().copied().collect())
    }

    /// vPPBs of a host's virtual switch at its edge that have a port of the same switch, or will have one, and what is
    /// at that port: the host itself at vPPB 0.
    #[must_use]
    pub fn vppbs(&self, host: usize) -> Vec<(u8, Option<Part>)> {
        let own =
            |switch: &&Switch| switch.vcses.iter().any(|vcs| vcs.host == host && vcs.usp.is_some());
        let Some(switch) = self.switches.iter().find(own) else { return Vec::new() };
        let vcs = switch.vcses.iter().find(|vcs| vcs.host == host && vcs.usp.is_some());
        let shown = vcs.map(|vcs| vcs.vppbs.as_slice()).unwrap_or_default();
        let below = (1_u8..).zip(shown).filter_map(|(vppb, shown)| match shown {
            VppbBinding::Port(port) => {
                let far = switch.ports.get(usize::from(*port)).map(|port| port.far.part);
                Some((vppb, far))
            }
            VppbBinding::Spare => Some((vppb, None)),
            VppbBinding::Below { .. } => None,
        });
        [(0, Some(Part::Host(host)))].into_iter().chain(below).collect()
    }

    /// Whether a host has a virtual switch, and so tables of its own.
    #[must_use]
    pub fn has_edge(&self, host: usize) -> bool {
        let mut all = self.switches.iter().flat_map(|switch| &switch.vcses);
        all.any(|vcs| vcs.host == host && vcs.usp.is_some())
    }

    /// Memory of a device that others reach, as `BASE:SIZE`.
    #[must_use]
    pub fn device_memory(&self, device: usize) -> Option<String> {
        let own = self.gim.iter().filter(|gim| gim.of == Part::Device(device));
        let longest = own.max_by_key(|gim| gim.len)?;
        Some(format!("{:#x}:{}", longest.hpa, longest.len))
    }

    /// What an end is, for the rules of connection.
    fn kind(&self, end: End) -> rules::End {
        match end.part {
            Part::Host(_) => rules::End::HostPort,
            Part::Device(_) => rules::End::Device,
            Part::Gfd(_) => rules::End::Gfd,
            Part::Hbr(_) if end.port == 0 => rules::End::HbrUsp,
            Part::Hbr(_) => rules::End::HbrDsp,
            Part::Switch(at) => {
                let ports = self.switches.get(at).map(|switch| &switch.ports);
                match ports.and_then(|ports| ports.get(usize::from(end.port))).map(|port| port.role)
                {
                    Some(PortRole::Usp) => rules::End::PbrUsp,
                    Some(PortRole::Fabric) => rules::End::Fport,
                    Some(PortRole::Dsp) | None => rules::End::PbrDsp,
                }
            }
        }
    }
}

impl<'a> Builder<'a> {
    fn new(topology: &'a Topology) -> Result<Self, LayoutError> {
        let switch = |(at, switch): (usize, &super::topology::Switch)| Switch {
            name: switch.name.clone(),
            serial: serial(SWITCH, at),
            ports: Vec::new(),
            vcses: Vec::new(),
        };
        let hbr = |hbr: &super::topology::Hbr| Hbr { name: hbr.name.clone(), below: Vec::new() };
        let layout = Layout {
            switches: topology.switches.iter().enumerate().map(switch).collect(),
            hbrs: topology.hbrs.iter().map(hbr).collect(),
            gfds: Vec::new(),
            hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
            devices: topology.devices.iter().map(|device| device.name.clone()).collect(),
            wires: Vec::new(),
            gim: Vec::new(),
            sets: BTreeMap::new(),
        };
        let mut builder = Self { topology, parts: BTreeMap::new(), layout, at: BTreeMap::new() };
        for (at, switch) in topology.switches.iter().enumerate() {
            builder.name(&switch.name, Part::Switch(at))?;
        }
        for (at, host) in topology.hosts.iter().enumerate() {
            builder.name(&host.name, Part::Host(at))?;
        }
        for (at, device) in topology.devices.iter().enumerate() {
            builder.name(&device.name, Part::Device(at))?;
        }
        for (at, hbr) in topology.hbrs.iter().enumerate() {
            builder.name(&hbr.name, Part::Hbr(at))?;
        }
        Ok(builder)
    }

    fn name(&mut self, name: &str, part: Part) -> Result<(), LayoutError> {
        if self.parts.insert(name.to_owned(), part).is_some() {
            return Err(LayoutError::Twice(name.to_owned()));
        }
        Ok(())
    }

    fn find(&self, by: &str, name: &str, what: &'static str) -> Result<Part, LayoutError> {
        self.parts.get(name).copied().ok_or_else(|| LayoutError::NoSuch {
            by: by.to_owned(),
            what,
            name: name.to_owned(),
        })
    }

    /// A new port of `part`, for what `far` is; a device and a host have one, which is port 0.
    fn port(&mut self, part: Part, role: PortRole, far: End) -> Result<End, LayoutError> {
        let name = self.layout.name(part).to_owned();
        let many = |want, had: usize| LayoutError::Count {
            name,
            what: "ports",
            want,
            had: u64::try_from(had).unwrap_or(u64::MAX),
        };
        let far_name = self.layout.name(far.part).to_owned();
        let number = match part {
            Part::Switch(at) => {
                let Some(switch) = self.layout.switches.get_mut(at) else {
                    return Ok(End { part, port: 0 });
                };
                let taken = switch.ports.len();
                if taken >= PORTS_MAX {
                    return Err(many("at most 63", taken + 1));
                }
                let same = switch.ports.iter().filter(|port| port.far.part == far.part).count();
                let suffix = if same == 0 { String::new() } else { format!(".{same}") };
                switch.ports.push(Port { name: format!("{far_name}{suffix}"), role, far });
                taken
            }
            Part::Hbr(at) => {
                let Some(hbr) = self.layout.hbrs.get_mut(at) else {
                    return Ok(End { part, port: 0 });
                };
                if hbr.below.len() >= HBR_PORTS_MAX {
                    return Err(many("at most 31 downstream", hbr.below.len() + 1));
                }
                hbr.below.push(far);
                hbr.below.len()
            }
            Part::Host(_) | Part::Device(_) | Part::Gfd(_) => {
                let place = End { part, port: 0 };
                if self.layout.wires.iter().any(|wire| wire.contains(&place)) {
                    return Err(many("1", 2));
                }
                0
            }
        };
        Ok(End { part, port: u8::try_from(number).unwrap_or(u8::MAX) })
    }

    /// Hangs `below` on the component called `at`.
    fn hang(&mut self, below: Part, at: &str, role: PortRole) -> Result<(), LayoutError> {
        let name = self.layout.name(below).to_owned();
        let above = self.find(&name, at, "switch or host")?;
        let far = End { part: below, port: 0 };
        let near = self.port(above, role, far)?;
        let (a, b) = (self.layout.kind(near), self.layout.kind(far));
        rules::check(a, b).map_err(|source| LayoutError::Forbidden {
            a: at.to_owned(),
            b: name,
            source,
        })?;
        self.at.insert(below, near);
        self.layout.wires.push([near, far]);
        Ok(())
    }

    fn hang_all(&mut self) -> Result<(), LayoutError> {
        let topology = self.topology;
        for (index, host) in topology.hosts.iter().enumerate() {
            // The device of a host that has one at its root port says so itself.
            if !host.at.is_empty() {
                self.hang(Part::Host(index), &host.at, PortRole::Usp)?;
            }
        }
        for (index, device) in topology.devices.iter().enumerate() {
            self.hang(Part::Device(index), &device.at, PortRole::Dsp)?;
        }
        for (index, hbr) in topology.hbrs.iter().enumerate() {
            self.hang(Part::Hbr(index), &hbr.at, PortRole::Dsp)?;
        }
        for gfd in &topology.gfds {
            let count = usize::from(gfd.count.unwrap_or(1));
            if count == 0 || gfd.at.all().is_empty() {
                let (want, had) = ("1 or more", 0);
                let name = gfd.name.clone();
                return Err(LayoutError::Count {
                    name,
                    what: "GFDs and their switches",
                    want,
                    had,
                });
            }
            let places = gfd.at.all().iter().cycle().take(count);
            for (nth, at) in places.enumerate() {
                let index = self.layout.gfds.len();
                let name = match gfd.count {
                    Some(_) => format!("{}{nth}", gfd.name),
                    None => gfd.name.clone(),
                };
                self.name(&name, Part::Gfd(index))?;
                self.layout.sets.entry(name.clone()).or_default().push(index);
                if gfd.count.is_some() {
                    self.layout.sets.entry(gfd.name.clone()).or_default().push(index);
                }
                let serial = serial(GFD, index);
                self.layout.gfds.push(Gfd { name, serial, capacity_mib: gfd.capacity_mib });
                self.hang(Part::Gfd(index), at, PortRole::Dsp)?;
            }
        }
        Ok(())
    }

    fn link_switches(&mut self) -> Result<(), LayoutError> {
        for link in &self.topology.links {
            let [a, b] = &link.ends;
            let by = format!("link {a} to {b}");
            let mut ends = [Part::Switch(0); 2];
            for (end, name) in ends.iter_mut().zip(&link.ends) {
                *end = self.find(&by, name, "switch")?;
            }
            let [near, far] = ends;
            if near == far {
                let source = Forbidden::ITSELF;
                return Err(LayoutError::Forbidden { a: a.clone(), b: b.clone(), source });
            }
            if link.count == 0 {
                let (what, want) = ("links between two switches", "1 or more");
                return Err(LayoutError::Count { name: by, what, want, had: 0 });
            }
            for _ in 0..link.count {
                let one = self.port(near, PortRole::Fabric, End { part: far, port: 0 })?;
                let two = self.port(far, PortRole::Fabric, one)?;
                if let Part::Switch(at) = near
                    && let Some(switch) = self.layout.switches.get_mut(at)
                    && let Some(port) = switch.ports.get_mut(usize::from(one.port))
                {
                    port.far = two;
                }
                rules::check(self.layout.kind(one), self.layout.kind(two)).map_err(|source| {
                    LayoutError::Forbidden { a: a.clone(), b: b.clone(), source }
                })?;
                self.layout.wires.push([one, two]);
            }
        }
        Ok(())
    }

    fn virtual_switches(&mut self) -> Result<(), LayoutError> {
        let mut bound: BTreeMap<Part, usize> = BTreeMap::new();
        for (index, host) in self.topology.hosts.iter().enumerate() {
            let Some(End { part: Part::Switch(edge), port: usp }) =
                self.at.get(&Part::Host(index)).copied()
            else {
                if let Some(device) = host.bind.first() {
                    let (device, at) = (device.clone(), host.at.clone());
                    return Err(LayoutError::Unbindable { host: host.name.clone(), device, at });
                }
                continue;
            };
            let mut shown = Vec::new();
            let mut further: Vec<(usize, Vec<VppbBinding>)> = Vec::new();
            for name in &host.bind {
                let (at, port) = self.bindable(index, host, name, &mut bound)?;
                let list = further.iter_mut().find(|(other, _)| *other == at);
                match (at == edge, list) {
                    (true, _) => shown.push(VppbBinding::Port(port)),
                    (false, Some((_, list))) => list.push(VppbBinding::Port(port)),
                    (false, None) => further.push((at, vec![VppbBinding::Port(port)])),
                }
            }
            for (at, vppbs) in further {
                let vcs = self.add_vcs(at, Vcs { host: index, usp: None, vppbs })?;
                shown.push(VppbBinding::Below { switch: at, vcs });
            }
            shown.extend((0..host.spare_vppbs).map(|_| VppbBinding::Spare));
            self.add_vcs(edge, Vcs { host: index, usp: Some(usp), vppbs: shown })?;
        }
        Ok(())
    }

    /// The PBR switch, and its port there, of what `host` binds by `name`.
    fn bindable(
        &self,
        index: usize,
        host: &super::topology::Host,
        name: &str,
        bound: &mut BTreeMap<Part, usize>,
    ) -> Result<(usize, u8), LayoutError> {
        let part = self.find(&host.name, name, "device")?;
        if let Some(first) = bound.insert(part, index) {
            return Err(LayoutError::BoundTwice {
                device: name.to_owned(),
                first: self.layout.name(Part::Host(first)).to_owned(),
                second: host.name.clone(),
            });
        }
        let place = self.at.get(&part).copied();
        if let (Part::Device(_) | Part::Hbr(_), Some(End { part: Part::Switch(at), port })) =
            (part, place)
        {
            return Ok((at, port));
        }
        let at = place.map_or("nothing", |place| self.layout.name(place.part)).to_owned();
        Err(LayoutError::Unbindable { host: host.name.clone(), device: name.to_owned(), at })
    }

    fn add_vcs(&mut self, at: usize, vcs: Vcs) -> Result<u8, LayoutError> {
        let Some(switch) = self.layout.switches.get_mut(at) else { return Ok(0) };
        let (vcses, vppbs) = (switch.vcses.len(), vcs.vppbs.len());
        if vppbs > 254 || vcses >= 255 {
            return Err(LayoutError::Count {
                name: switch.name.clone(),
                what: "virtual switches, or vPPBs of one",
                want: "at most 254",
                had: u64::try_from(vppbs.max(vcses)).unwrap_or(u64::MAX),
            });
        }
        switch.vcses.push(vcs);
        Ok(u8::try_from(vcses).unwrap_or(u8::MAX))
    }

    /// A static fabric has no memory to give (CXL 3.1 section 7.7.12.1).
    fn check_start(&self) -> Result<(), LayoutError> {
        let gfds = self.layout.gfds.iter().map(|gfd| &gfd.name);
        let memory = self.topology.memory.iter().map(|memory| &memory.name);
        let mut given = gfds.chain(memory).chain(self.layout.gim.iter().map(|gim| &gim.name));
        match given.next() {
            Some(name) if self.topology.start == Start::Static => {
                Err(LayoutError::Static(name.clone()))
            }
            _ => Ok(()),
        }
    }

    fn check_memory(&self) -> Result<(), LayoutError> {
        let mut names = BTreeSet::new();
        for memory in &self.topology.memory {
            let by = format!("memory {}", memory.name);
            if !names.insert(&memory.name) {
                return Err(LayoutError::Twice(by));
            }
            let no_such = |what, name: &str| {
                let (by, name) = (by.clone(), name.to_owned());
                LayoutError::NoSuch { by, what, name }
            };
            for name in &memory.hosts {
                if !matches!(self.find(&by, name, "host")?, Part::Host(_)) {
                    return Err(no_such("host", name));
                }
            }
            for name in &memory.devices {
                let Part::Device(device) = self.find(&by, name, "device")? else {
                    return Err(no_such("device", name));
                };
                let mut hosts = 0..self.layout.hosts.len();
                let own = Some(Part::Device(device));
                if !hosts.any(|host| self.layout.vppbs(host).iter().any(|one| one.1 == own)) {
                    return Err(LayoutError::NoTables { by, device: name.clone() });
                }
            }
            for name in &memory.gfds {
                if !self.layout.sets.contains_key(name) {
                    return Err(no_such("GFD", name));
                }
            }
        }
        self.check_addresses()
    }

    /// Whether those who have memory have room for all of it.
    fn check_addresses(&self) -> Result<(), LayoutError> {
        let mut all: Vec<(&super::topology::Memory, Range<usize>)> = Vec::new();
        for memory in &self.topology.memory {
            let super::topology::Memory { name, len, granularity, hpa, .. } = memory;
            let (len, granularity, hpa) = (*len, *granularity, *hpa);
            let targets = self.layout.gfds(&memory.gfds).unwrap_or_default();
            if let Some(why) = map::misfit(targets.len(), granularity, hpa, len) {
                return Err(LayoutError::Misfit { name: name.clone(), why });
            }
            if let Some(at) = targets
                .iter()
                .enumerate()
                .find_map(|(n, at)| targets.iter().take(n).any(|other| other == at).then_some(*at))
            {
                let gfd = self.layout.name(Part::Gfd(at));
                return Err(LayoutError::Twice(format!("memory {name}: {gfd}")));
            }
            let (kind, called) = (Kind::Memory, format!("memory {name}"));
            let new = Range { name: called, hpa, len, targets, granularity, kind };
            for who in memory.hosts.iter().chain(&memory.devices) {
                let has = |other: &&(&super::topology::Memory, _)| {
                    other.0.hosts.contains(who) || other.0.devices.contains(who)
                };
                let others: Vec<_> = all.iter().filter(has).map(|one| one.1.clone()).collect();
                map::fits(&new, &others, &gim::OWN).map_err(|source| LayoutError::Taken {
                    name: name.clone(),
                    who: who.clone(),
                    source,
                })?;
            }
            all.push((memory, new));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
