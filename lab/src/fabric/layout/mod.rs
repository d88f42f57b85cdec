//! The parts of each component of a fabric, and the wires between them.
//!
//! A [`Layout`] is made from a [`Topology`](super::topology::Topology). Ports are numbered in the order of the file:
//! hosts, devices, HBR switches, GFDs, then links. A host has a virtual switch at its edge, with a vPPB for each of its
//! devices there and one for each further switch with devices of it. That switch has a virtual switch for the host,
//! whose vPPB 0 is the far end of the virtual link.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding"; CXL 3.1 sections 7.7.5, 7.7.6.1.

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

use weft_fm::components::media::Partition;
use weft_fm::model::rules;
use weft_parsers::cci::Uuid;

pub use error::LayoutError;
pub use names::MANAGER;

/// Ports of a switch at most: the dataplane has 64, one of which is the agent's.
pub const PORTS_MAX: usize = 63;
/// Downstream ports of an HBR switch at most.
pub const HBR_PORTS_MAX: usize = 31;

/// A component, by its index in the list of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Switch(usize),
    Host(usize),
    Device(usize),
    Hbr(usize),
    Gfd(usize),
}

/// One end of a wire: a component and its port. Hosts, devices and GFDs have port 0 only; port 0 of an HBR switch is
/// its upstream port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    pub part: Part,
    pub port: u8,
}

/// The kind of component that a port of a PBR switch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// A host.
    Usp,
    /// A device, an HBR switch or a GFD.
    Dsp,
    /// Another PBR switch.
    Fabric,
}

/// A port of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name in the switch's configuration, after its neighbour.
    pub name: String,
    pub role: PortRole,
    /// The other end of its wire.
    pub far: End,
}

/// A bridge whose tables a host sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Bridge of the host's own virtual switch that leads to the one with this bridge; `None` if this bridge is there
    /// itself.
    pub below: Option<u8>,
    /// Number in its virtual switch.
    pub vppb: u8,
    /// The part at its port; `None` while it is spare.
    pub part: Option<Part>,
    /// Logical device of that part; `None` for the whole part.
    pub ld: Option<u8>,
}

/// Intended binding of a downstream vPPB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VppbBinding {
    /// A whole port of the same switch.
    Port(u8),
    /// A logical device (port, LD) at the same switch.
    Ld(u8, u8),
    /// The virtual switch that continues the hierarchy at another switch.
    Below {
        /// Index of that switch.
        switch: usize,
        /// Index of the virtual switch there.
        vcs: u8,
    },
    /// Unbound; the manager may use it later.
    Spare,
}

/// A virtual switch of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcs {
    /// Index of its host.
    pub host: usize,
    /// The host's port; `None` at a further switch.
    pub usp: Option<u8>,
    /// Bindings of the downstream vPPBs, from number 1 on.
    pub vppbs: Vec<VppbBinding>,
}

/// A PBR switch of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    pub name: String,
    /// Serial number; [`uuid`] makes the UUID of it that others see.
    pub serial: u64,
    /// Ports by number.
    pub ports: Vec<Port>,
    /// Virtual switches by number.
    pub vcses: Vec<Vcs>,
}

/// An HBR switch of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hbr {
    pub name: String,
    /// Ends at its downstream ports, from port 1 on.
    pub below: Vec<End>,
}

/// A GFD of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gfd {
    pub name: String,
    /// Serial number; [`uuid`] makes the UUID of it that others see.
    pub serial: u64,
    /// Size of its memory in MiB.
    pub capacity_mib: u32,
    /// Media partitions for the manager to set.
    pub partitions: Option<Vec<Partition>>,
    /// Whether it keeps its lines coherent in hosts' caches.
    pub coherent: bool,
    /// Lines in its snoop filter; `None` for the default.
    pub filter_lines: Option<u32>,
    /// Time limit for a host to answer a snoop, in milliseconds; `None` for the default.
    pub snoop_ms: Option<u32>,
    /// Rate of its link in Gbit/s; `None` for the default.
    pub gbps: Option<u64>,
}

/// A topology laid out: all components with numbers and ports, and the wires between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub switches: Vec<Switch>,
    pub hbrs: Vec<Hbr>,
    /// GFDs one by one; those with a count are expanded.
    pub gfds: Vec<Gfd>,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of devices.
    pub devices: Vec<String>,
    /// Both ends of each wire.
    pub wires: Vec<[End; 2]>,
    /// Memory that hosts and devices show to others.
    pub gim: Vec<gim::GimRange>,
    /// Memory devices that accelerators access directly.
    pub p2p: Vec<p2p::P2pRange>,
    /// Parts with links in non-flit mode.
    non_flit: BTreeSet<Part>,
    /// GFDs by the names that a file may use: each one's own, and the common name of a count.
    sets: BTreeMap<String, Vec<usize>>,
}

/// The UUID of the component with this serial number.
#[must_use]
pub fn uuid(serial: u64) -> Uuid {
    let mut uuid = [0; 16];
    for (to, byte) in uuid.iter_mut().zip(serial.to_be_bytes()) {
        *to = byte;
    }
    uuid
}

impl Layout {
    /// Name of a component.
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

    /// Whether the links of a part other than a PBR switch are in flit mode.
    #[must_use]
    pub fn is_flit(&self, part: Part) -> bool {
        !self.non_flit.contains(&part)
    }

    /// All parts other than PBR switches.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Part> {
        let mut all: Vec<Part> = (0..self.hosts.len()).map(Part::Host).collect();
        all.extend((0..self.devices.len()).map(Part::Device));
        all.extend((0..self.hbrs.len()).map(Part::Hbr));
        all.extend((0..self.gfds.len()).map(Part::Gfd));
        all
    }

    /// Number of links of a part.
    #[must_use]
    pub fn link_count(&self, part: Part) -> u8 {
        let links = match part {
            Part::Switch(at) => self.switches.get(at).map_or(0, |switch| switch.ports.len()),
            // One more for the upstream port.
            Part::Hbr(at) => self.hbrs.get(at).map_or(1, |hbr| hbr.below.len() + 1),
            Part::Host(_) | Part::Device(_) | Part::Gfd(_) => 1,
        };
        u8::try_from(links).unwrap_or(u8::MAX)
    }

    /// GFDs by their own or common names; `None` if a name is not a GFD's.
    #[must_use]
    pub fn gfds(&self, names: &[String]) -> Option<Vec<usize>> {
        let lists = names.iter().map(|name| self.sets.get(name));
        Some(lists.collect::<Option<Vec<_>>>()?.into_iter().flatten().copied().collect())
    }

    /// The vPPBs of a host's virtual switches that lead to a port, or are spare: at its own switch, with the host
    /// itself as vPPB 0, and at the switches below.
    #[must_use]
    pub fn edges(&self, host: usize) -> Vec<Edge> {
        let own = |vcs: &&Vcs| vcs.host == host && vcs.usp.is_some();
        let Some((at, vcs)) = self.vcses().find(|(_, vcs)| own(vcs)) else { return Vec::new() };
        let itself = Edge { below: None, vppb: 0, part: Some(Part::Host(host)), ld: None };
        let mut edges = vec![itself];
        edges.extend(self.shown(at, vcs, None));
        // One level is enough: every further switch of a host is directly below its own.
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
                // Its devices are at bridges of the virtual switch there.
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
        // The device has one such range; shorter ones begin at the same address.
        let (hpa, len) = own.map(|gim| (gim.hpa, gim.len)).max_by_key(|(_, len)| *len)?;
        Some(format!("{hpa:#x}:{len}"))
    }

    /// Address of a device's host-managed memory (HDM), and the most that others access of it.
    #[must_use]
    pub fn device_hdm(&self, device: usize) -> Option<(u64, u64)> {
        let own = self.p2p.iter().filter(|p2p| p2p.to == Part::Device(device) && p2p.ld.is_none());
        own.map(|p2p| (p2p.hpa, p2p.len)).max_by_key(|(_, len)| *len)
    }

    /// Addresses of a device's logical devices as `LD=BASE`, each once.
    #[must_use]
    pub fn device_lds(&self, device: usize) -> Vec<String> {
        let own = self.p2p.iter().filter(|p2p| p2p.to == Part::Device(device));
        let places: BTreeSet<(u8, u64)> = own.filter_map(|it| Some((it.ld?, it.hpa))).collect();
        places.into_iter().map(|(ld, hpa)| format!("{ld}={hpa:#x}")).collect()
    }

    /// Kind of an end in the rules of connection.
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
