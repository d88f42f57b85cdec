//! What the fabric manager has given of hosts' and devices' memory (GIM) and of memory devices (P2P), as parts of a layout.
//!
//! Rows of the manager and the layout -> [`Granted`]: what hosts can map, and lines for what they cannot.
//!
//! Units: bytes.
//! Source: docs/fabric.md "Memory"; CXL 3.1 sections 7.7.3, 7.7.9.

use weft_fm::service::request::{GimRow, NamedPid, P2pRow, P2pState};
use weft_fm::text::is_name;
use weft_parsers::fabric::Pid;

use super::layout::{Layout, Part};
use super::topology::Topology;

/// What a bridge leads to: a part, or a logical device of it.
pub type Target = (Part, Option<u8>);

/// Memory of a host or device that others reach.
#[derive(Clone, Debug)]
pub struct GrantedGim {
    /// Whose.
    pub of: Part,
    /// Its PID.
    pub pid: Pid,
    /// Who reaches it, of those that the file has.
    pub from: Vec<Part>,
    /// PIDs of all who reach it.
    pub pids: Vec<u16>,
    /// They name the target themselves.
    pub prefix: bool,
    /// Where all of them see it.
    pub hpa: u64,
    /// How much.
    pub len: u64,
}

/// A memory device that is accessed directly.
#[derive(Clone, Debug)]
pub struct GrantedP2p {
    /// What leads to it.
    pub to: Target,
    /// Its PID.
    pub pid: Pid,
    /// Who accesses it, with their PIDs.
    pub from: Vec<(Part, Pid)>,
    /// Where all of them see it.
    pub hpa: u64,
    /// How much.
    pub len: u64,
}

/// All that is given now.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    /// GIM.
    pub gim: Vec<GrantedGim>,
    /// Direct access; what waits for a domain is not here.
    pub p2p: Vec<GrantedP2p>,
    /// What hosts cannot map, by name, and what to do.
    pub left: Vec<String>,
}

/// A topology, and the layout that was worked out from it.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// As the file has it.
    pub topology: &'a Topology,
    /// What it comes to.
    pub layout: &'a Layout,
}

impl Granted {
    /// What the manager's rows mean in a fabric.
    #[must_use]
    pub fn new(plan: Plan<'_>, gim: &[GimRow], p2p: &[P2pRow]) -> Self {
        let mut all = Self::default();
        for row in gim {
            match plan.gim(row, &mut all.left) {
                Ok(gim) => all.gim.push(gim),
                Err(why) => all.left.push(format!("GIM {:?}: {why}", row.name)),
            }
        }
        for row in p2p.iter().filter(|row| row.state == P2pState::Given) {
            match plan.p2p(row, &mut all.left) {
                Ok(p2p) => all.p2p.push(p2p),
                Err(why) => all.left.push(format!("P2P {:?}: {why}", row.name)),
            }
        }
        all
    }
}

fn unknown(who: &NamedPid) -> String {
    format!("the topology file has no host or device {} (PID {:03x})", who.name, who.pid)
}

impl Plan<'_> {
    /// A host or device that makes requests at a bridge of a host.
    fn requester(self, who: &NamedPid) -> Result<Part, String> {
        let part = self.layout.part_called(&who.name).ok_or_else(|| unknown(who))?;
        let unbound = || format!("no host binds {} in the topology file", who.name);
        self.layout.place(part).map(|_| part).ok_or_else(unbound)
    }

    /// Those of whom the file has, the others as lines.
    fn requesters(self, what: &str, from: &[NamedPid], left: &mut Vec<String>) -> Vec<(Part, Pid)> {
        let mut all = Vec::new();
        for who in from {
            match self.requester(who) {
                Ok(part) => all.push((part, Pid::from_low_bits(who.pid))),
                Err(why) => left.push(format!("{what}: {why}")),
            }
        }
        all
    }

    fn gim(self, row: &GimRow, left: &mut Vec<String>) -> Result<GrantedGim, String> {
        let of = self.layout.part_called(&row.of.name).ok_or_else(|| unknown(&row.of))?;
        match of {
            Part::Host(at) => {
                let mib = self.topology.hosts.get(at).map_or(0, |host| host.memory_mib);
                if row.size > u64::from(mib) << 20 {
                    let name = &row.of.name;
                    return Err(format!("{name} has {mib} MiB: release it, and give at most that"));
                }
            }
            _ => check_place(row.of.name.as_str(), self.shown_of(of), row.hpa, row.size, "gim")?,
        }
        let what = format!("GIM {:?}", row.name);
        let from = self.requesters(&what, &row.from, left);
        Ok(GrantedGim {
            of,
            pid: Pid::from_low_bits(row.of.pid),
            from: from.into_iter().map(|(part, _)| part).collect(),
            pids: row.from.iter().map(|who| who.pid).collect(),
            prefix: row.prefix,
            hpa: row.hpa,
            len: row.size,
        })
    }

    fn p2p(self, row: &P2pRow, left: &mut Vec<String>) -> Result<GrantedP2p, String> {
        let name = row.to.name.as_str();
        let to = self.target(name).ok_or_else(|| unknown(&row.to))?;
        let place = self.layout.place_of(to.0, to.1);
        let place = place.ok_or_else(|| format!("no host binds {name} in the topology file"))?;
        check_place(name, self.hdm_of(to), row.hpa, row.size, "p2p")?;
        let what = format!("P2P {:?}", row.name);
        let mut from = self.requesters(&what, &row.from, left);
        // Completions find back by the id, with the segment where there are two hierarchies.
        from.retain(|(part, _)| {
            let host = self.layout.place(*part).map(|own| own.host);
            let is_far = host.is_some_and(|host| host != place.host);
            let alike = host.filter(|_| is_far).and_then(|host| self.topology.same_segment(host));
            if let Some(other) = alike {
                let who = self.layout.name(*part);
                left.push(format!(
                    "{what}: p2p-own-pcie-segment: the host of {who} has the PCIe segment of {other}: give each a \
                     `segment` of its own in the topology file"
                ));
            }
            alike.is_none()
        });
        let pid = Pid::from_low_bits(row.to.pid);
        Ok(GrantedP2p { to, pid, from, hpa: row.hpa, len: row.size })
    }

    /// A memory device, what leads to it, or a logical device.
    fn target(self, name: &str) -> Option<Target> {
        if let Some(part) = self.layout.part_called(name) {
            return Some((part, None));
        }
        let (device, ld) = name.rsplit_once('.')?;
        Some((self.layout.part_called(device)?, Some(ld.parse().ok()?)))
    }

    /// Memory of a device for other domains.
    fn shown_of(self, of: Part) -> Option<(u64, u64)> {
        let own = self.layout.gim.iter().filter(|gim| gim.of == of);
        own.map(|gim| (gim.hpa, gim.len)).max_by_key(|(_, len)| *len)
    }

    /// HDM of a memory device, or of the one below an HBR switch.
    fn hdm_of(self, to: Target) -> Option<(u64, u64)> {
        let own = self.layout.p2p.iter().filter(|range| range.target() == to);
        let has = |device: Part| match device {
            Part::Device(at) => {
                let mib = self.topology.devices.get(at).and_then(|device| device.capacity_mib);
                u64::from(mib.unwrap_or(0)) << 20
            }
            _ => 0,
        };
        own.map(|range| (range.hpa, range.len.max(has(range.to)))).max_by_key(|(_, len)| *len)
    }
}

/// Where devices have their memory is set when they are started.
fn check_place(
    name: &str,
    own: Option<(u64, u64)>,
    hpa: u64,
    len: u64,
    table: &str,
) -> Result<(), String> {
    match own {
        Some((base, size)) if base == hpa && len <= size => Ok(()),
        Some((base, size)) => Err(format!(
            "{name} has its {} MiB at {base:#x} since it was started: give no more than that, and there",
            size >> 20
        )),
        None => Err(format!(
            "{name} has no memory at fabric addresses: it has some when the fabric is started with a [[{table}]] of it \
             in the topology file"
        )),
    }
}

impl Layout {
    /// The host, device or HBR switch that the manager calls so; what it has no name for, it calls by its PID.
    fn part_called(&self, name: &str) -> Option<Part> {
        let is_it = |other: &String| is_name(name) && other == name;
        let host = self.hosts.iter().position(is_it).map(Part::Host);
        let device = || self.devices.iter().position(is_it).map(Part::Device);
        let hbr = || self.hbrs.iter().position(|hbr| is_it(&hbr.name)).map(Part::Hbr);
        host.or_else(device).or_else(hbr)
    }
}

impl Topology {
    /// Another host of the domain of a host that has the same PCIe segment.
    #[must_use]
    pub fn same_segment(&self, host: usize) -> Option<&str> {
        let one = self.hosts.get(host)?;
        let mut others = self.hosts.iter().enumerate().filter(|(at, _)| *at != host);
        let alike = others.find(|(_, it)| it.domain == one.domain && it.segment == one.segment);
        alike.map(|(_, other)| other.name.as_str())
    }
}
