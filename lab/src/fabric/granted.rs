//! The GIM and P2P that the fabric manager has given, as parts of a layout.
//!
//! [`Granted`] is made from rows of the manager: entries that hosts can map, and messages about those they cannot.
//!
//! Source: docs/fabric.md "Memory"; CXL 3.1 sections 7.7.3, 7.7.9.

use weft_fm::model::text::is_name;
use weft_fm::service::request::{GimRow, NamedPid, P2pRow, P2pState};
use weft_parsers::fabric::Pid;

use super::layout::{Layout, Part};
use super::topology::Topology;

/// The component at a bridge: a part, or a logical device of it.
pub type Target = (Part, Option<u8>);

/// Memory of a host or device that others access.
#[derive(Clone, Debug)]
pub struct GrantedGim {
    pub of: Part,
    /// PID of the owner's port.
    pub pid: Pid,
    /// Parts of the topology file that access it.
    pub from: Vec<Part>,
    /// PIDs of all that access it, whether in the file or not.
    pub pids: Vec<u16>,
    /// Whether requesters name the target by `VendPrefixL0`.
    pub prefix: bool,
    /// Address at which all of them see it.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
}

/// A memory device that others access directly.
#[derive(Clone, Debug)]
pub struct GrantedP2p {
    /// The component at the PBR switch that leads to it.
    pub to: Target,
    /// PID of that port.
    pub pid: Pid,
    /// Parts that access it, with their PIDs.
    pub from: Vec<(Part, Pid)>,
    /// Address at which all of them see it.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Everything that is given at present.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    pub gim: Vec<GrantedGim>,
    /// Direct access in force; rows that wait for a domain are left out.
    pub p2p: Vec<GrantedP2p>,
    /// Rows that hosts cannot map, with advice.
    pub left: Vec<String>,
}

/// A topology and its layout.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    pub topology: &'a Topology,
    pub layout: &'a Layout,
}

impl Granted {
    /// Matches the manager's rows with the parts of a fabric.
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
    /// Looks up a requester: a host, or a device at a bridge of a host.
    fn requester(self, who: &NamedPid) -> Result<Part, String> {
        let part = self.layout.part_called(&who.name).ok_or_else(|| unknown(who))?;
        let unbound = || format!("no host binds {} in the topology file", who.name);
        self.layout.place(part).map(|_| part).ok_or_else(unbound)
    }

    /// Looks up all requesters; unknown ones become messages in `left`.
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
        // A host shows its memory from its first address on, wherever others see it. A device has a fixed place.
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
        // Completions are routed by id, with the segment if there are two hierarchies.
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

    /// Looks up a target: a memory device, the HBR switch above it, or a logical device.
    fn target(self, name: &str) -> Option<Target> {
        if let Some(part) = self.layout.part_called(name) {
            return Some((part, None));
        }
        // Last, because names may have dots themselves.
        let (device, ld) = name.rsplit_once('.')?;
        Some((self.layout.part_called(device)?, Some(ld.parse().ok()?)))
    }

    /// Address and length of a device's memory for other domains.
    fn shown_of(self, of: Part) -> Option<(u64, u64)> {
        let own = self.layout.gim.iter().filter(|gim| gim.of == of);
        // All ranges of one owner begin at the same address; the device was started with the longest.
        own.map(|gim| (gim.hpa, gim.len)).max_by_key(|(_, len)| *len)
    }

    /// Address and length of a target's HDM; for an HBR switch that of the device below it.
    fn hdm_of(self, to: Target) -> Option<(u64, u64)> {
        // The size is that of `hdm_bytes`: a device may have more than the file's `[[p2p]]` shows.
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

/// Checks that a range agrees with the device's memory, whose address was fixed when the device was started.
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
    /// The host, device or HBR switch with the manager's name; the manager uses PIDs for parts without a valid name.
    fn part_called(&self, name: &str) -> Option<Part> {
        let is_it = |other: &String| is_name(name) && other == name;
        let host = self.hosts.iter().position(is_it).map(Part::Host);
        let device = || self.devices.iter().position(is_it).map(Part::Device);
        let hbr = || self.hbrs.iter().position(|hbr| is_it(&hbr.name)).map(Part::Hbr);
        host.or_else(device).or_else(hbr)
    }
}

impl Topology {
    /// Another host of the same domain with the same PCIe segment, if there is one.
    #[must_use]
    pub fn same_segment(&self, host: usize) -> Option<&str> {
        let one = self.hosts.get(host)?;
        let mut others = self.hosts.iter().enumerate().filter(|(at, _)| *at != host);
        let alike = others.find(|(_, it)| it.domain == one.domain && it.segment == one.segment);
        alike.map(|(_, other)| other.name.as_str())
    }
}
