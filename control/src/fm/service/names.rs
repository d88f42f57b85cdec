//! What people call switches, GFDs, hosts and bridges.
//!
//! Shape: text -> id, by the names of the wanted state, by UUID, by PID or by place.
//! Units: none.
//! Source: none; `docs/fm.md` says what is understood.

use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::fabric::Pid;

use super::want::{Want, parse_pid, parse_uuid};
use crate::fm::bind::{Bindings, Bridge, LinkEnd, Local, Remote};
use crate::fm::cci::Way;
use crate::fm::graph::{PortRef, SwitchId};
use crate::fm::inventory::{Inventory, TargetKind};
use crate::fm::memory::Host;

/// What names mean in a fabric.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The names.
    pub want: &'a Want,
    /// The fabric.
    pub inventory: &'a Inventory,
}

/// What is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A device.
    Local(Local),
    /// A virtual link.
    Remote(Remote),
}

impl Names<'_> {
    /// A switch: `entry`, `s0`, its name, its UUID, or `pid:P`.
    ///
    /// # Errors
    /// There is none.
    pub fn switch(&self, text: &str) -> Result<SwitchId, String> {
        let none = || format!("there is no switch {text:?}");
        if text == "entry" {
            return Ok(SwitchId(0));
        }
        let number = text.strip_prefix('s').and_then(|digits| digits.parse::<u16>().ok());
        if let Some(id) = number.map(SwitchId) {
            return self.inventory.switch(id).map(|_| id).ok_or_else(none);
        }
        if let Some(pid) = text.strip_prefix("pid:") {
            let pid = parse_pid(pid)?;
            let mut all = self.inventory.by_id();
            return all.find(|(_, switch)| switch.pid == pid).map(|(id, _)| id).ok_or_else(none);
        }
        let named = self.want.switches.iter().find(|named| named.name == text);
        let uuid = named.map(|named| named.uuid).or_else(|| parse_uuid(text).ok());
        self.inventory.find(&uuid.ok_or_else(none)?).ok_or_else(none)
    }

    /// A GFD: its name, its UUID, or its PID.
    ///
    /// # Errors
    /// There is none.
    pub fn gfd(&self, text: &str) -> Result<Pid, String> {
        let named = self.want.gfds.iter().find(|named| named.name == text);
        let uuid = named.map(|named| named.uuid).or_else(|| parse_uuid(text).ok());
        let pid = parse_pid(text).ok();
        let is_it = |gfd: &&crate::fm::inventory::Gfd| match uuid {
            Some(uuid) => gfd.uuid == uuid,
            None => pid == Some(gfd.pid),
        };
        let found = self.inventory.gfds.iter().find(is_it);
        found.map(|gfd| gfd.pid).ok_or_else(|| format!("there is no GFD {text:?}"))
    }

    /// A host: its name, the place of its port (`s0.3`), or its PID.
    ///
    /// # Errors
    /// There is none, or it has no PID.
    pub fn host(&self, text: &str) -> Result<Host, String> {
        let none = || format!("there is no host {text:?}");
        let named = self.want.hosts.iter().find(|host| host.name == text);
        let place = match named {
            Some(host) => Some(PortRef::new(self.switch(&host.switch)?, host.port)),
            None => port(text),
        };
        if let Some(at) = place {
            let targets = self.inventory.switch(at.switch).map(|switch| switch.targets.as_slice());
            let is_it = |target: &&crate::fm::inventory::Target| {
                target.kind == TargetKind::Host && target.port == at.port && !target.pid.is_none()
            };
            let target = targets.unwrap_or_default().iter().find(is_it).ok_or_else(none)?;
            return Ok(Host { switch: at.switch, vcs: target.vcs, pid: target.pid });
        }
        let pid = parse_pid(text).map_err(|_| none())?;
        self.hosts().into_iter().find(|host| host.pid == pid).ok_or_else(none)
    }

    /// Who has memory for others, or reaches that of others: a host, or a device by its name, by `SWITCH/port:N` or by its
    /// PID. A device has to be bound at its own switch: that virtual switch is the one that lets it through.
    ///
    /// # Errors
    /// There is none, or it is not bound.
    pub fn edge(&self, text: &str, bindings: &Bindings) -> Result<Host, String> {
        let no_host = match self.host(text) {
            Ok(host) => return Ok(host),
            Err(why) => why,
        };
        let named = self.want.devices.iter().find(|device| device.name == text);
        let place = match (named, text.split_once("/port:")) {
            (Some(device), _) => Some(PortRef::new(self.switch(&device.switch)?, device.port)),
            (None, Some((switch, number))) => {
                let bad = |_| format!("expected SWITCH/port:N, found {text:?}");
                Some(PortRef::new(self.switch(switch)?, number.parse().map_err(bad)?))
            }
            (None, None) => None,
        };
        let pid = parse_pid(text).ok();
        let edges = self.downstream();
        let is_it = |(at, own): &&(PortRef, Pid)| match place {
            Some(place) => *at == place,
            None => pid == Some(*own),
        };
        let none = || match place {
            Some(at) => format!("no device at {at} has a PID"),
            None => format!("{no_host}, nor a device"),
        };
        let (at, pid) = edges.iter().find(is_it).copied().ok_or_else(none)?;
        let binds = |local: &&Local| (local.bridge.switch, local.port) == (at.switch, at.port);
        let local = bindings.local.iter().find(binds);
        let local = local.ok_or_else(|| format!("the device at {at} is bound to no host"))?;
        Ok(Host { switch: at.switch, vcs: local.bridge.vcs, pid })
    }

    /// Downstream edges with a PID.
    fn downstream(&self) -> Vec<(PortRef, Pid)> {
        let of = |(id, switch): (SwitchId, &crate::fm::inventory::Switch)| {
            let targets = switch.targets.iter();
            let own = targets.filter(|t| t.kind == TargetKind::Downstream && !t.pid.is_none());
            own.map(|t| (PortRef::new(id, t.port), t.pid)).collect::<Vec<_>>()
        };
        self.inventory.by_id().flat_map(of).collect()
    }

    /// What an edge is called: the name of its host or device, else its PID.
    #[must_use]
    pub fn name_of(&self, edge: Host) -> String {
        if let Some(name) = self.gae(edge) {
            return name.to_owned();
        }
        let edges = self.downstream();
        let at = edges.iter().find(|(_, pid)| *pid == edge.pid).map(|(at, _)| *at);
        let named = self.want.devices.iter().find(|device| {
            let place = self.switch(&device.switch).map(|id| PortRef::new(id, device.port));
            place.ok() == at && at.is_some()
        });
        named.map_or_else(|| edge.pid.to_string(), |device| device.name.clone())
    }

    /// All host edges with a PID.
    #[must_use]
    pub fn hosts(&self) -> Vec<Host> {
        hosts(self.inventory)
    }

    /// The name of a host that has one and whose GAE can be asked.
    #[must_use]
    pub fn gae(&self, host: Host) -> Option<&str> {
        let is_it = |name: &&super::want::HostName| self.host(&name.name) == Ok(host);
        self.want.hosts.iter().find(is_it).map(|name| name.name.as_str())
    }

    /// A bridge: SWITCH/VCS/VPPB.
    ///
    /// # Errors
    /// It is none.
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

    /// What a bridge is to show: `port:N`, `port:N.LD`, or the bridge at the other end of a virtual link.
    ///
    /// # Errors
    /// It means nothing, or an end of the link has no PID.
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
        let targets = self.inventory.switch(below.switch).map(|switch| switch.targets.as_slice());
        let is_fabric =
            |t: &&crate::fm::inventory::Target| t.kind == TargetKind::Fabric && !t.pid.is_none();
        let Some(target) = targets.unwrap_or_default().iter().find(is_fabric) else {
            return Err(format!("no fabric port of {} has a PID", below.switch));
        };
        let host = LinkEnd { bridge, pid: host };
        Ok(Binding::Remote(Remote { host, below: LinkEnd { bridge: below, pid: target.pid } }))
    }
}

/// All host edges with a PID, each once.
#[must_use]
pub fn hosts(inventory: &Inventory) -> Vec<Host> {
    let of = |(switch, found): (SwitchId, &crate::fm::inventory::Switch)| {
        let targets = found
            .targets
            .iter()
            .filter(|target| target.kind == TargetKind::Host && !target.pid.is_none());
        targets.map(|target| Host { switch, vcs: target.vcs, pid: target.pid }).collect::<Vec<_>>()
    };
    inventory.by_id().flat_map(of).collect()
}

/// A port: `s0.3`.
fn port(text: &str) -> Option<PortRef> {
    let (switch, port) = text.strip_prefix('s')?.split_once('.')?;
    Some(PortRef::new(SwitchId(switch.parse().ok()?), port.parse().ok()?))
}

/// The way to a component: `entry`, `port:N`, `pid:P` or `pid:P/port:N`.
///
/// # Errors
/// It is none of these.
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
