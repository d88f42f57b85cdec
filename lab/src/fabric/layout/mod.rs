//! What each component of a fabric is made of, and which ends of it are joined.
//!
//! A [`Topology`](super::topology::Topology) -> [`Layout`], or the first thing in it that cannot be.
//!
//! Units: ports and vPPBs by number.
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding"; CXL 3.1 sections 7.7.5, 7.7.6.1.
//!
//! Ports are numbered in the order of the file: hosts, devices, HBR switches, GFDs, then links. A host has a virtual
//! switch at its edge, with a vPPB for each of its devices there and one for each switch further out that has some; each
//! of those has a virtual switch for it, whose vPPB 0 is the far end of the virtual link.

mod build;
mod capacity;
mod error;
pub mod gim;
mod hosts;
mod lds;
mod media;
mod memory;
mod modes;
mod names;
pub mod p2p;

use std::collections::{BTreeMap, BTreeSet};

use weft_fm::media::Partition;
use weft_fm::rules;
use weft_parsers::cci::Uuid;

pub use error::LayoutError;
pub use names::MANAGER;

/// Most ports of a switch: one of 64 is its agent's.
pub const PORTS_MAX: usize = 63;
/// Most downstream ports of an HBR switch.
pub const HBR_PORTS_MAX: usize = 31;

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

/// A bridge whose tables a host sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The bridge of the host's own virtual switch that leads to the one that has it; none where that has it itself.
    pub below: Option<u8>,
    /// Its number there.
    pub vppb: u8,
    /// What is at its port; none where it has none yet.
    pub part: Option<Part>,
    /// The logical device of that; none where it is all of it.
    pub ld: Option<u8>,
}

/// What a downstream vPPB is to be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VppbBinding {
    /// A port of the same switch.
    Port(u8),
    /// A logical device at a port of the same switch.
    Ld(u8, u8),
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

/// A virtual switch of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcs {
    /// Whose.
    pub host: usize,
    /// The host's port; `None` where it is further out.
    pub usp: Option<u8>,
    /// Downstream vPPBs, from number 1 on.
    pub vppbs: Vec<VppbBinding>,
}

/// A PBR switch of a layout.
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

/// An HBR switch of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hbr {
    /// What it is called.
    pub name: String,
    /// What hangs on its downstream ports, from port 1 on.
    pub below: Vec<End>,
}

/// A GFD of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gfd {
    /// What it is called.
    pub name: String,
    /// Its serial number; others know it by [`uuid`] of that.
    pub serial: u64,
    /// Its memory, MiB.
    pub capacity_mib: u32,
    /// Media partitions that the manager sets.
    pub partitions: Option<Vec<Partition>>,
    /// It keeps its lines coherent in hosts' caches.
    pub coherent: bool,
    /// How many at once, where that is said.
    pub filter_lines: Option<u32>,
    /// How long a host may take to answer a snoop, in milliseconds, where that is said.
    pub snoop_ms: Option<u32>,
    /// Rate of its link, Gbit/s, where that is said.
    pub gbps: Option<u64>,
}

/// A topology worked out: all components with numbers and ports, and the wires between them.
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
    /// Memory devices that accelerators access directly.
    pub p2p: Vec<p2p::P2pRange>,
    /// Parts with links in non-flit mode.
    non_flit: BTreeSet<Part>,
    /// GFDs, by what a file may call them: each by its name, and those of a count by theirs together.
    sets: BTreeMap<String, Vec<usize>>,
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

impl Layout {
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

    /// Whether the links of a part that is no PBR switch are in flit mode.
    #[must_use]
    pub fn is_flit(&self, part: Part) -> bool {
        !self.non_flit.contains(&part)
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

    /// The vPPBs of a host's virtual switches that have a port of their switch, or will have one: at its own switch, the host
    /// itself at vPPB 0, and at those below.
    #[must_use]
    pub fn edges(&self, host: usize) -> Vec<Edge> {
        let own = |vcs: &&Vcs| vcs.host == host && vcs.usp.is_some();
        let Some((at, vcs)) = self.vcses().find(|(_, vcs)| own(vcs)) else { return Vec::new() };
        let itself = Edge { below: None, vppb: 0, part: Some(Part::Host(host)), ld: None };
        let mut edges = vec![itself];
        edges.extend(self.shown(at, vcs, None));
        for (vppb, shown) in (1_u8..).zip(&vcs.vppbs) {
            let VppbBinding::Below { switch, vcs } = *shown else { continue };
            let vcses = self.switches.get(switch).map(|switch| switch.vcses.as_slice());
            let vcs = vcses.unwrap_or_default().get(usize::from(vcs));
            edges.extend(vcs.into_iter().flat_map(|vcs| self.shown(switch, vcs, Some(vppb))));
        }
        edges
    }

    fn vcses(&self) -> impl Iterator<Item = (usize, &Vcs)> {
        let all = self.switches.iter().enumerate();
        all.flat_map(|(at, switch)| switch.vcses.iter().map(move |vcs| (at, vcs)))
    }

    fn shown<'a>(
        &'a self,
        at: usize,
        vcs: &'a Vcs,
        below: Option<u8>,
    ) -> impl Iterator<Item = Edge> + 'a {
        let ports = self.switches.get(at).map(|switch| switch.ports.as_slice());
        let ports = ports.unwrap_or_default();
        let far = |port: u8| ports.get(usize::from(port)).map(|port| port.far.part);
        (1_u8..).zip(&vcs.vppbs).filter_map(move |(vppb, shown)| {
            let (part, ld) = match *shown {
                VppbBinding::Port(port) => (far(port), None),
                VppbBinding::Ld(port, ld) => (far(port), Some(ld)),
                VppbBinding::Spare => (None, None),
                VppbBinding::Below { .. } => return None,
            };
            Some(Edge { below, vppb, part, ld })
        })
    }

    /// Whether a host has a virtual switch, and so tables of its own.
    #[must_use]
    pub fn has_edge(&self, host: usize) -> bool {
        let mut all = self.switches.iter().flat_map(|switch| &switch.vcses);
        all.any(|vcs| vcs.host == host && vcs.usp.is_some())
    }

    /// Memory of a device for other domains (GIM), as `BASE:SIZE`.
    #[must_use]
    pub fn device_gim(&self, device: usize) -> Option<String> {
        let own = self.gim.iter().filter(|gim| gim.of == Part::Device(device));
        let (hpa, len) = own.map(|gim| (gim.hpa, gim.len)).max_by_key(|(_, len)| *len)?;
        Some(format!("{hpa:#x}:{len}"))
    }

    /// Where memory of a device that its host manages (HDM) is to be, and how much others are given of it.
    #[must_use]
    pub fn device_hdm(&self, device: usize) -> Option<(u64, u64)> {
        let own = self.p2p.iter().filter(|p2p| p2p.to == Part::Device(device) && p2p.ld.is_none());
        own.map(|p2p| (p2p.hpa, p2p.len)).max_by_key(|(_, len)| *len)
    }

    /// Where memory of logical devices of a device is to be, as `LD=BASE`, each once.
    #[must_use]
    pub fn device_lds(&self, device: usize) -> Vec<String> {
        let own = self.p2p.iter().filter(|p2p| p2p.to == Part::Device(device));
        let places: BTreeSet<(u8, u64)> = own.filter_map(|it| Some((it.ld?, it.hpa))).collect();
        places.into_iter().map(|(ld, hpa)| format!("{ld}={hpa:#x}")).collect()
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

#[cfg(test)]
mod tests;
