//! Lays out a topology: gives each component its ports, and each host its virtual switches.
//!
//! A [`LayoutBuilder`] turns a [`Topology`] into a [`Layout`] step by step. Ports and vPPBs are numbers.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding"; CXL 3.1 sections 7.7.5, 7.7.6.1.

use std::collections::{BTreeMap, BTreeSet};

use weft_fm::model::rules::{self, Forbidden};
use weft_fm::model::text;

use super::super::topology::{self, Topology};
use super::{
    End, Gfd, HBR_PORTS_MAX, Hbr, Layout, LayoutError, PORTS_MAX, Part, Port, PortRole, Switch,
    Vcs, VppbBinding,
};

/// Largest cache of a host and largest snoop filter of a GFD, in lines.
pub(super) const LINES_MAX: u32 = 1 << 20;
/// Longest time limit for a host to answer a coherent GFD's snoop.
const SNOOP_MS_MAX: u32 = 60_000;

/// Lines that Lightweight Notification can watch; the host keeps an entry for each.
const LN_LINES_MAX: usize = 1 << 20;

/// A serial number that is the same in each run, made from the kind of component and its index in the file.
fn serial(kind: u8, index: usize) -> u64 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    u64::from(u32::from_be_bytes(*b"weft")) << 32 | u64::from(kind) << 24 | u64::from(index + 1)
}

/// Kinds of components in serial numbers.
const SWITCH: u8 = b's';
const GFD: u8 = b'g';

/// The layout under construction.
pub(super) struct LayoutBuilder<'a> {
    pub(super) topology: &'a Topology,
    parts: BTreeMap<String, Part>,
    pub(super) layout: Layout,
    /// The end above each component.
    pub(super) at: BTreeMap<Part, End>,
}

impl Layout {
    /// Lays a topology out.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn new(topology: &Topology) -> Result<Self, LayoutError> {
        // The order matters: LDs need the wires, virtual switches need ports, and GIM and P2P need both.
        let mut builder = LayoutBuilder::new(topology)?;
        builder.attach_all()?;
        builder.check_file_names()?;
        builder.check_memory_names()?;
        builder.check_circles()?;
        builder.check_lds()?;
        builder.link_switches()?;
        builder.virtual_switches()?;
        builder.layout.non_flit = builder.non_flit();
        builder.check_memory()?;
        builder.layout.gim = builder.shown()?;
        builder.layout.p2p = builder.direct()?;
        builder.check_modes()?;
        builder.check_transfers()?;
        builder.check_start()?;
        builder.check_switches()?;
        builder.check_hosts()?;
        Ok(builder.layout)
    }
}

impl<'a> LayoutBuilder<'a> {
    fn new(topology: &'a Topology) -> Result<Self, LayoutError> {
        let switch = |(at, switch): (usize, &topology::TopologySwitch)| Switch {
            name: switch.name.clone(),
            serial: serial(SWITCH, at),
            ports: Vec::new(),
            vcses: Vec::new(),
        };
        let hbr = |hbr: &topology::Hbr| Hbr { name: hbr.name.clone(), below: Vec::new() };
        let layout = Layout {
            switches: topology.switches.iter().enumerate().map(switch).collect(),
            hbrs: topology.hbrs.iter().map(hbr).collect(),
            gfds: Vec::new(),
            hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
            devices: topology.devices.iter().map(|device| device.name.clone()).collect(),
            wires: Vec::new(),
            gim: Vec::new(),
            p2p: Vec::new(),
            non_flit: BTreeSet::new(),
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

    pub(super) fn find(
        &self,
        by: &str,
        name: &str,
        what: &'static str,
    ) -> Result<Part, LayoutError> {
        self.parts.get(name).copied().ok_or_else(|| LayoutError::NoSuch {
            by: by.to_owned(),
            what,
            name: name.to_owned(),
        })
    }

    /// Adds a port to `part`, with `far` at its other end. Devices, hosts and GFDs have one port, number 0.
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
                // Parallel links to one neighbour: port names must differ, as the switch's configuration keys are
                // names.
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
                // Their one port is taken once a wire ends there.
                if self.layout.wires.iter().any(|wire| wire.contains(&place)) {
                    return Err(many("1", 2));
                }
                0
            }
        };
        Ok(End { part, port: u8::try_from(number).unwrap_or(u8::MAX) })
    }

    /// Connects `below` to the component called `at`.
    fn attach(&mut self, below: Part, at: &str, role: PortRole) -> Result<(), LayoutError> {
        let name = self.layout.name(below).to_owned();
        let above = self.find(&name, at, "switch or host")?;
        let far = End { part: below, port: 0 };
        let near = self.port(above, role, far)?;
        let (a, b) = (self.layout.kind(near), self.layout.kind(far));
        // The same rules as the manager's, so that it later accepts every connection of the layout.
        rules::check(a, b).map_err(|source| LayoutError::Forbidden {
            a: at.to_owned(),
            b: name,
            source,
        })?;
        self.at.insert(below, near);
        self.layout.wires.push([near, far]);
        Ok(())
    }

    fn attach_all(&mut self) -> Result<(), LayoutError> {
        let topology = self.topology;
        for (index, host) in topology.hosts.iter().enumerate() {
            check_host(host)?;
            // A host with a device at its root port is attached by that device.
            if !host.at.is_empty() {
                self.attach(Part::Host(index), &host.at, PortRole::Usp)?;
            }
        }
        for (index, device) in topology.devices.iter().enumerate() {
            self.attach(Part::Device(index), &device.at, PortRole::Dsp)?;
        }
        for (index, hbr) in topology.hbrs.iter().enumerate() {
            self.attach(Part::Hbr(index), &hbr.at, PortRole::Dsp)?;
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
            check_coherence(gfd)?;
            let capacity_mib = super::capacity::capacity_mib(gfd)?;
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
                self.layout.gfds.push(Gfd {
                    name,
                    serial,
                    capacity_mib,
                    partitions: gfd.partitions.clone(),
                    coherent: gfd.coherent,
                    filter_lines: gfd.filter_lines,
                    snoop_ms: gfd.snoop_ms,
                    gbps: gfd.gbps,
                });
                self.attach(Part::Gfd(index), at, PortRole::Dsp)?;
            }
        }
        Ok(())
    }

    /// Refuses HBR switches that form a circle, without a switch or host above.
    fn check_circles(&self) -> Result<(), LayoutError> {
        for (index, hbr) in self.layout.hbrs.iter().enumerate() {
            let above = |part: &Part| self.at.get(part).map(|end| end.part);
            // The chain upwards has at most as many HBR switches as there are.
            let all = std::iter::successors(above(&Part::Hbr(index)), above);
            if all.take(self.layout.hbrs.len()).any(|part| part == Part::Hbr(index)) {
                return Err(LayoutError::Circle(hbr.name.clone()));
            }
        }
        Ok(())
    }

    /// Requires a first switch for the manager to connect to, and a port at each switch.
    fn check_switches(&self) -> Result<(), LayoutError> {
        if self.layout.switches.is_empty() {
            let (name, what, want) = ("a fabric".to_owned(), "[[switch]]", "1 or more");
            return Err(LayoutError::Count { name, what, want, had: 0 });
        }
        if let Some(bare) = self.layout.switches.iter().find(|switch| switch.ports.is_empty()) {
            let (name, what) = (bare.name.clone(), "ports");
            let want = "1 or more (give it a host, a device, a GFD or a [[link]], or take it out)";
            return Err(LayoutError::Count { name, what, want, had: 0 });
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
                // The far port does not exist yet; its number is filled in below.
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
        let mut bound: BTreeMap<(Part, Option<u8>), usize> = BTreeMap::new();
        let mut spare_switches = Vec::new();
        for (index, host) in self.topology.hosts.iter().enumerate() {
            let Some(End { part: Part::Switch(edge), port: usp }) =
                self.at.get(&Part::Host(index)).copied()
            // A host without a PBR switch has no virtual switch, so it cannot bind.
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
                let (at, binding) = self.bindable(index, host, name, &mut bound)?;
                let list = further.iter_mut().find(|(other, _)| *other == at);
                match (at == edge, list) {
                    (true, _) => shown.push(binding),
                    (false, Some((_, list))) if !host.link_per_device => list.push(binding),
                    (false, _) => further.push((at, vec![binding])),
                }
            }
            self.check_links(&host.name, &further)?;
            let spare = || (0..host.spare_vppbs).map(|_| VppbBinding::Spare);
            // A manager cannot create virtual switches. So for a host that may get more at run time each other switch
            // has a spare one, numbered after those of the file's own bindings.
            let others = (0..self.layout.switches.len())
                .filter(|at| *at != edge && !further.iter().any(|(other, _)| other == at));
            spare_switches.extend(
                others
                    .filter(|_| host.spare_vppbs > 0)
                    .map(|at| (at, Vcs { host: index, usp: None, vppbs: spare().collect() })),
            );
            for (at, mut vppbs) in further {
                vppbs.extend(spare());
                let vcs = self.add_vcs(at, Vcs { host: index, usp: None, vppbs })?;
                shown.push(VppbBinding::Below { switch: at, vcs });
            }
            shown.extend(spare());
            let (usp, vppbs) = (Some(usp), shown);
            self.add_vcs(edge, Vcs { host: index, usp, vppbs })?;
        }
        // Last, so that the numbers of bound virtual switches do not depend on `spare_vppbs` of other hosts.
        for (at, vcs) in spare_switches {
            self.add_vcs(at, vcs)?;
        }
        Ok(())
    }

    /// Checks the number of virtual links from one host to one switch: each needs its own PID of a fabric port there.
    fn check_links(
        &self,
        host: &str,
        further: &[(usize, Vec<VppbBinding>)],
    ) -> Result<(), LayoutError> {
        for (at, switch) in self.layout.switches.iter().enumerate() {
            let links = further.iter().filter(|(other, _)| *other == at).count();
            let fabric = |port: &&Port| port.role == PortRole::Fabric;
            if links > switch.ports.iter().filter(fabric).count().max(1) {
                return Err(LayoutError::Count {
                    name: format!("host {host:?}"),
                    what: "virtual links to one switch, of link_per_device",
                    want: "at most as many as that switch has links to others",
                    had: u64::try_from(links).unwrap_or(u64::MAX),
                });
            }
        }
        Ok(())
    }

    /// Looks up the part that `host` binds by `name`: its PBR switch, and the binding of the bridge there.
    fn bindable(
        &self,
        index: usize,
        host: &topology::Host,
        name: &str,
        bound: &mut BTreeMap<(Part, Option<u8>), usize>,
    ) -> Result<(usize, VppbBinding), LayoutError> {
        let (part, ld) = self.bound_part(&host.name, name)?;
        // LDs of one device may have different hosts; everything else has one.
        if let Some(first) = bound.insert((part, ld), index) {
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
            let binding = ld.map_or(VppbBinding::Port(port), |ld| VppbBinding::Ld(port, ld));
            return Ok((at, binding));
        }
        let at = place.map_or("nothing", |place| self.layout.name(place.part)).to_owned();
        Err(LayoutError::Unbindable { host: host.name.clone(), device: name.to_owned(), at })
    }

    fn add_vcs(&mut self, at: usize, vcs: Vcs) -> Result<u8, LayoutError> {
        let Some(switch) = self.layout.switches.get_mut(at) else { return Ok(0) };
        let (vcses, vppbs) = (switch.vcses.len(), vcs.vppbs.len());
        // The limits of a switch's configuration (`weft_pbr_switch::ConfigError::Count`).
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
}

/// Refuses coherence settings that are out of range, or of a GFD that is not coherent.
fn check_coherence(gfd: &topology::Gfd) -> Result<(), LayoutError> {
    let settings = [
        ("filter_lines", gfd.filter_lines, LINES_MAX, "1 to 1048576"),
        ("snoop_ms", gfd.snoop_ms, SNOOP_MS_MAX, "1 to 60000"),
    ];
    for (what, given, most, range) in settings {
        if let Some(had) = given.filter(|had| !gfd.coherent || !(1..=most).contains(had)) {
            let want = if gfd.coherent { range } else { "coherent = true" };
            return Err(LayoutError::Count { name: gfd.name.clone(), what, want, had: had.into() });
        }
    }
    Ok(())
}

/// Refuses numbers and texts of a host that are out of range or without effect.
fn check_host(host: &topology::Host) -> Result<(), LayoutError> {
    let count =
        |what, want, had| Err(LayoutError::Count { name: host.name.clone(), what, want, had });
    if host.cache_lines > LINES_MAX {
        return count("cache_lines", "0 to 1048576", host.cache_lines.into());
    }
    if let Some(ms) = host.snoop_ms.filter(|ms| !(1..=SNOOP_MS_MAX).contains(ms)) {
        return count("snoop_ms", "1 to 60000", ms.into());
    }
    if let Some(lines) = host.ln_lines.filter(|lines| !(1..=LN_LINES_MAX).contains(lines)) {
        let had = u64::try_from(lines).unwrap_or(u64::MAX);
        return count("ln_lines", "1 to 1048576, or no such key", had);
    }
    if let Some(domain) = host.domain.as_ref().filter(|domain| text::tag(domain).is_err()) {
        let had = u64::try_from(domain.len()).unwrap_or(u64::MAX);
        return count("bytes of its domain", "1 to 16, none of them 0", had);
    }
    Ok(())
}
