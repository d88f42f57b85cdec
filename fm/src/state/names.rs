//! Names: resolves text of requests and of the wanted state to switches, GFDs, hosts and bridges.
//!
//! Components are found by name, UUID, PID or place; `docs/fm.md` lists the forms.

use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::fabric::Pid;

use super::desired::DesiredState;
use crate::cci::Way;
use crate::components::bind::{Bindings, Bridge, LinkEnd, Local, Remote};
use crate::components::memory::Host;
use crate::components::memory::map::LocalRange;
use crate::discover::change::Running;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{Inventory, Target, TargetKind};
use crate::model::text::{parse_pid, parse_uuid};

/// Resolver of names in a fabric.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    pub desired: &'a DesiredState,
    pub inventory: &'a Inventory,
    pub bindings: &'a Bindings,
}

/// A host or bound device that makes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// Its edge switch, virtual switch and PID.
    pub edge: Host,
    /// Port of the edge switch.
    pub port: u8,
    /// Bridge whose segment tables apply to its requests.
    pub vppb: u8,
}

/// A binding to be made, within one switch or across the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A device at a port of the same switch.
    Local(Local),
    /// A virtual link to another switch.
    Remote(Remote),
}

impl<'a> Names<'a> {
    /// A resolver for a running fabric.
    #[must_use]
    pub const fn new(desired: &'a DesiredState, running: &'a Running) -> Self {
        Self { desired, inventory: &running.inventory, bindings: &running.bindings }
    }
}

impl Names<'_> {
    /// Finds a switch by `entry`, name, `s0`, UUID or `pid:P`.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn switch(&self, text: &str) -> Result<SwitchId, String> {
        let none = || format!("there is no switch {text:?}");
        if text == "entry" || self.desired.fm.entry.as_deref() == Some(text) {
            return self.desired.fm.entry_in(self.inventory).ok_or_else(none);
        }
        // Before names: `text::is_name` refuses those of the form `s0`.
        let number = text.strip_prefix('s').and_then(|digits| digits.parse::<u16>().ok());
        if let Some(id) = number.map(SwitchId) {
            return self.inventory.switch(id).map(|_| id).ok_or_else(none);
        }
        if let Some(pid) = text.strip_prefix("pid:") {
            let pid = parse_pid(pid)?;
            let mut all = self.inventory.by_id();
            return all.find(|(_, switch)| switch.pid == pid).map(|(id, _)| id).ok_or_else(none);
        }
        let named = self.desired.switches.iter().find(|named| named.name == text);
        let uuid = named.map(|named| named.uuid).or_else(|| parse_uuid(text).ok());
        self.inventory.find(&uuid.ok_or_else(none)?).ok_or_else(none)
    }

    /// Finds a GFD by name, UUID or PID.
    ///
    /// # Errors
    /// There is no such GFD.
    pub fn gfd(&self, text: &str) -> Result<Pid, String> {
        let named = self.desired.gfds.iter().find(|named| named.name == text);
        let uuid = named.map(|named| named.uuid).or_else(|| parse_uuid(text).ok());
        let pid = parse_pid(text).ok();
        let is_it = |gfd: &&crate::model::inventory::Gfd| match uuid {
            Some(uuid) => gfd.uuid == uuid,
            None => pid == Some(gfd.pid),
        };
        let found = self.inventory.gfds.iter().find(is_it);
        found.map(|gfd| gfd.pid).ok_or_else(|| format!("there is no GFD {text:?}"))
    }

    /// Names of hosts and devices, with switch and port.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&String, &String, u8)> {
        let hosts = self.desired.hosts.iter().map(|one| (&one.name, &one.switch, one.port));
        hosts.chain(self.desired.devices.iter().map(|one| (&one.name, &one.switch, one.port)))
    }

    /// Finds a port by `s0.3`, or with a switch's name.
    fn port(&self, text: &str) -> Option<PortRef> {
        let (switch, port) = text.rsplit_once('.')?;
        Some(PortRef::new(self.switch(switch).ok()?, port.parse().ok()?))
    }

    /// Finds the port of a device by name, `s0.3`, or `SWITCH/port:3`.
    ///
    /// # Errors
    /// There is no such device.
    pub fn device(&self, text: &str) -> Result<PortRef, String> {
        if let Some(named) = self.desired.devices.iter().find(|named| named.name == text) {
            return Ok(PortRef::new(self.switch(&named.switch)?, named.port));
        }
        if let Some((switch, number)) = text.split_once("/port:") {
            let bad = |_| format!("expected SWITCH/port:N, found {text:?}");
            return Ok(PortRef::new(self.switch(switch)?, number.parse().map_err(bad)?));
        }
        self.port(text).ok_or_else(|| format!("there is no device {text:?}"))
    }

    /// Bytes of HDM behind an edge, if the wanted state tells; 0 for a host.
    #[must_use]
    pub fn device_memory(&self, edge: Host) -> Option<u64> {
        let targets = self.inventory.targets(edge.switch);
        let target = targets.iter().find(|target| target.pid == edge.pid)?;
        let port = target.port;
        if target.kind == TargetKind::Host {
            return Some(0);
        }
        let is_it = |one: &&super::desired::DeviceName| {
            one.port == port && self.switch(&one.switch) == Ok(edge.switch)
        };
        self.desired.devices.iter().find(is_it)?.memory
    }

    /// Finds the port of a device, as [`Self::device`], or of a GFD by name, UUID or PID.
    ///
    /// # Errors
    /// There is no such component.
    pub fn end_port(&self, text: &str) -> Result<PortRef, String> {
        // A GFD first: its name goes with its UUID, wherever it is plugged in.
        let gfd = self.gfd(text).ok();
        match self.inventory.gfds.iter().find(|known| Some(known.pid) == gfd) {
            Some(gfd) => Ok(gfd.at),
            None => self.device(text),
        }
    }

    /// Finds a requester, a host or a device bound at its edge switch, by name, by port (`SWITCH.3` or
    /// `SWITCH/port:3`), or by PID.
    ///
    /// # Errors
    /// There is none, or it has no PID.
    pub fn requester(&self, text: &str) -> Result<Requester, String> {
        let none =
            || format!("there is no host {text:?}, and no device of that name that is bound");
        let place =
            match (self.places().find(|(name, ..)| *name == text), text.split_once("/port:")) {
                (Some((_, switch, number)), _) => Some(PortRef::new(self.switch(switch)?, number)),
                (None, Some((switch, number))) => {
                    let bad = |_| format!("expected SWITCH/port:N, found {text:?}");
                    Some(PortRef::new(self.switch(switch)?, number.parse().map_err(bad)?))
                }
                (None, None) => self.port(text),
            };
        let pid = parse_pid(text).ok().filter(|_| place.is_none());
        let is_it = |one: &Requester| match place {
            Some(at) => (one.edge.switch, one.port) == (at.switch, at.port),
            None => Some(one.edge.pid) == pid,
        };
        requesters(self.inventory, self.bindings).into_iter().find(is_it).ok_or_else(none)
    }

    /// Finds the edge of a host or device; see [`Self::requester`].
    ///
    /// # Errors
    /// There is none, or it has no PID.
    pub fn host(&self, text: &str) -> Result<Host, String> {
        self.requester(text).map(|requester| requester.edge)
    }

    /// Finds a bound logical device by `mld0.2` or `SWITCH/port:3.2`; returns the port of the device, in the virtual
    /// switch that the logical device is in, and its number. `None` if the text names no logical device.
    ///
    /// # Errors
    /// No host has it bound.
    pub fn logical_device(&self, text: &str) -> Result<Option<(Host, u16)>, String> {
        let has_lds = |at: PortRef| {
            let port = self.inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
            port.is_some_and(|port| port.lds > 0)
        };
        // A device's whole name is checked first, as it may end like a number (`acc.1`).
        if self.desired.devices.iter().any(|named| named.name == text) {
            if has_lds(self.device(text)?) {
                return Err(format!("{text} has logical devices: name one, as {text}.0"));
            }
            return Ok(None);
        }
        let Some((at, ld)) = self.port_and_ld(text) else { return Ok(None) };
        if !has_lds(at) {
            return Ok(None);
        }
        let shows = |local: &&Local| {
            (local.bridge.switch, local.port, local.ld) == (at.switch, at.port, Some(ld))
        };
        let bound = self.bindings.local.iter().find(shows);
        let pid = self.inventory.targets(at.switch).iter().find(|it| it.port == at.port);
        match (bound, pid.map(|target| target.pid).filter(|pid| !pid.is_none())) {
            (Some(local), Some(pid)) => {
                Ok(Some((Host { switch: at.switch, vcs: local.bridge.vcs, pid }, ld)))
            }
            _ => Err(format!("p2p-bound: no host binds {text}: bind it first")),
        }
    }

    /// Reads `DEVICE.LD`: the port of the device, and the number.
    pub(crate) fn port_and_ld(&self, text: &str) -> Option<(PortRef, u16)> {
        let (device, ld) = text.rsplit_once('.')?;
        Some((self.device(device).ok()?, ld.parse().ok()?))
    }

    /// Name of a logical device of the device at an edge.
    #[must_use]
    pub fn name_of_ld(&self, edge: Host, ld: u16) -> String {
        let targets = self.inventory.targets(edge.switch).iter();
        let at = targets.filter(|it| it.pid == edge.pid).map(|it| it.port).next();
        let is_it = |one: &&super::desired::DeviceName| {
            Some(one.port) == at && self.switch(&one.switch) == Ok(edge.switch)
        };
        let named = self.desired.devices.iter().find(is_it).map(|one| one.name.clone());
        format!("{}.{ld}", named.unwrap_or_else(|| edge.pid.to_string()))
    }

    /// Name of an edge: that of its host or device, or its PID.
    #[must_use]
    pub fn name_of(&self, edge: Host) -> String {
        let all = requesters(self.inventory, self.bindings);
        let at = all.into_iter().find(|one| one.edge == edge).map(|one| one.port);
        let is_it = |(_, switch, port): &(&String, &String, u8)| {
            Some(*port) == at && self.switch(switch) == Ok(edge.switch)
        };
        let named = self.places().find(is_it).map(|(name, ..)| name.clone());
        named.unwrap_or_else(|| edge.pid.to_string())
    }

    #[must_use]
    pub fn hosts(&self) -> Vec<Host> {
        hosts(self.inventory)
    }

    /// Name of the host in whose virtual switch an edge is, which identifies its GAE; `None` if it has no name.
    #[must_use]
    pub fn gae(&self, edge: Host) -> Option<&str> {
        self.host_of(edge).map(|host| host.name.as_str())
    }

    /// The `[[host]]` section of the host in whose virtual switch an edge is.
    fn host_of(&self, edge: Host) -> Option<&super::desired::HostName> {
        self.named_host((edge.switch, edge.vcs))
    }

    fn named_host(&self, at: (SwitchId, u8)) -> Option<&super::desired::HostName> {
        let is_it = |name: &&super::desired::HostName| {
            self.host(&name.name).is_ok_and(|host| (host.switch, host.vcs) == at)
        };
        self.desired.hosts.iter().find(is_it)
    }

    /// Virtual switch of the host in whose hierarchy an edge is: its own, or that at the upper end of a virtual link.
    #[must_use]
    pub fn virtual_hierarchy(&self, edge: Host) -> Option<(SwitchId, u8)> {
        self.hierarchy_of((edge.switch, edge.vcs))
    }

    /// Like [`Self::virtual_hierarchy`], for a virtual switch.
    pub(crate) fn hierarchy_of(&self, at: (SwitchId, u8)) -> Option<(SwitchId, u8)> {
        if self.hosts().iter().any(|host| (host.switch, host.vcs) == at) {
            return Some(at);
        }
        let below = |link: &&Remote| (link.below.bridge.switch, link.below.bridge.vcs) == at;
        // Links without a path count, too: the devices below still belong to that host.
        let link = self.bindings.links().find(below)?;
        Some((link.host.bridge.switch, link.host.bridge.vcs))
    }

    /// Name of the host of a virtual switch.
    #[must_use]
    pub fn host_at(&self, at: (SwitchId, u8)) -> String {
        let host = self.hosts().into_iter().find(|host| (host.switch, host.vcs) == at);
        host.map_or_else(|| format!("VCS {} of {}", at.1, at.0), |host| self.name_of(host))
    }

    /// Addresses that the host of an edge uses itself, by the wanted state or as weft's hosts have them.
    #[must_use]
    pub fn own(&self, edge: Host) -> Vec<LocalRange> {
        self.virtual_hierarchy(edge)
            .and_then(|at| self.named_host(at))
            .map_or_else(|| LocalRange::WEFT_HOST.to_vec(), super::desired::HostName::own)
    }

    /// Finds a bridge by SWITCH/VCS/VPPB.
    ///
    /// # Errors
    /// The text is no bridge.
    pub fn bridge(&self, text: &str) -> Result<Bridge, String> {
        let bad = || format!("expected SWITCH/VCS/VPPB, found {text:?}");
        let mut parts = text.split('/');
        let (Some(switch), Some(vcs), Some(vppb), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        let number = |text: &str| text.parse::<u8>().map_err(|_| bad());
        Ok(Bridge { switch: self.switch(switch)?, vcs: number(vcs)?, vppb: number(vppb)? })
    }

    /// The binding for a bridge and `to`: `port:N`, `port:N.LD`, or the bridge at the other end of a virtual link. An
    /// existing link keeps its PIDs; a new one gets the first PID of a fabric port below that has no link to the same
    /// host.
    ///
    /// # Errors
    /// The text has no meaning, or an end of the link has no PID.
    pub fn binding(&self, bridge: &str, to: &str) -> Result<Binding, String> {
        let bridge = self.bridge(bridge)?;
        if let Some(text) = to.strip_prefix("port:") {
            let bad = || format!("expected port:N or port:N.LD, found {to:?}");
            let (port, ld) = match text.split_once('.') {
                Some((port, ld)) => (port, Some(ld.parse::<u16>().map_err(|_| bad())?)),
                None => (text, None),
            };
            let port = port.parse::<u8>().map_err(|_| bad())?;
            return Ok(Binding::Local(Local { bridge, port, ld }));
        }
        let below = self.bridge(to)?;
        let host_pid = self.hosts().into_iter();
        let host_pid =
            host_pid.filter(|host| (host.switch, host.vcs) == (bridge.switch, bridge.vcs));
        let Some(host) = host_pid.map(|host| host.pid).next() else {
            return Err(format!("VCS {} of {} has no host with a PID", bridge.vcs, bridge.switch));
        };
        if let Some(known) = self.bindings.links().find(|link| link.is_between(bridge, below)) {
            return Ok(Binding::Remote(*known));
        }
        let targets = self.inventory.targets(below.switch).iter();
        let mut pids = targets.filter(|t| t.kind == TargetKind::Fabric && !t.pid.is_none());
        let Some(first) = pids.clone().next() else {
            return Err(format!("no fabric port of {} has a PID", below.switch));
        };
        let is_free = |pid: Pid| !self.bindings.links().any(|link| link.has_pids(host, pid));
        // With none free the first one is named, so that the check refuses with the link that has it.
        let pid = pids.find(|target| is_free(target.pid)).unwrap_or(first).pid;
        let host = LinkEnd { bridge, pid: host };
        Ok(Binding::Remote(Remote { host, below: LinkEnd { bridge: below, pid } }))
    }
}

/// All host edges with a PID.
#[must_use]
pub fn hosts(inventory: &Inventory) -> Vec<Host> {
    let of = |(switch, found): (SwitchId, &crate::model::inventory::DiscoveredSwitch)| {
        let targets = found
            .targets
            .iter()
            .filter(|target| target.kind == TargetKind::Host && !target.pid.is_none());
        targets.map(|target| Host { switch, vcs: target.vcs, pid: target.pid }).collect::<Vec<_>>()
    };
    inventory.by_id().flat_map(of).collect()
}

/// All requesters: hosts, and devices that are bound to a virtual switch.
#[must_use]
pub fn requesters(inventory: &Inventory, bindings: &Bindings) -> Vec<Requester> {
    let mut all = Vec::new();
    for (at, switch) in inventory.by_id() {
        for target in switch.targets.iter().filter(|target| !target.pid.is_none()) {
            let Target { vcs, pid, port, .. } = *target;
            // Whole devices only: logical devices make no requests.
            let bound =
                |local: &&Local| (local.bridge.switch, local.port, local.ld) == (at, port, None);
            let shown = match target.kind {
                TargetKind::Fabric => None,
                TargetKind::Host => Some((vcs, 0)),
                TargetKind::Downstream => {
                    bindings.local.iter().find(bound).map(|it| (it.bridge.vcs, it.bridge.vppb))
                }
            };
            if let Some((vcs, vppb)) = shown {
                all.push(Requester { edge: Host { switch: at, vcs, pid }, port, vppb });
            }
        }
    }
    all
}

/// Bound logical devices, with their numbers; they make no requests.
#[must_use]
pub fn logical_devices(inventory: &Inventory, bindings: &Bindings) -> Vec<(Requester, u16)> {
    let of = |local: &Local| {
        let (switch, port) = (local.bridge.switch, local.port);
        let is_it = |it: &&Target| it.port == port && it.kind == TargetKind::Downstream;
        let pid = inventory.targets(switch).iter().find(is_it)?.pid;
        let edge = Host { switch, vcs: local.bridge.vcs, pid };
        let at = Requester { edge, port, vppb: local.bridge.vppb };
        local.ld.filter(|_| !pid.is_none()).map(|ld| (at, ld))
    };
    bindings.local.iter().filter_map(of).collect()
}

/// Reads the way to a component: `entry`, `port:N`, `pid:P` or `pid:P/port:N`.
///
/// # Errors
/// The text is none of these.
pub fn way(text: &str) -> Result<Way, String> {
    let bad = || format!("expected entry, port:N, pid:P or pid:P/port:N, found {text:?}");
    let one = |part: &str| -> Result<CrawlTarget, String> {
        match part.split_once(':') {
            Some(("port", number)) => number.parse().map(CrawlTarget::Port).map_err(|_| bad()),
            Some(("pid", pid)) => parse_pid(pid).map(CrawlTarget::Pid),
            _ => Err(bad()),
        }
    };
    match text.split_once('/') {
        None if text == "entry" => Ok(Way::Entry),
        None => Ok(match one(text)? {
            CrawlTarget::Port(port) => Way::Port(port),
            CrawlTarget::Pid(pid) => Way::Pid(pid),
        }),
        Some((first, second)) => match (one(first)?, one(second)?) {
            (CrawlTarget::Pid(pid), CrawlTarget::Port(port)) => Ok(Way::Behind(pid, port)),
            _ => Err(bad()),
        },
    }
}
