//! Bindings: the devices that a host sees, below its own edge switch and below others.
//!
//! A [`Local`] binding (5201h, 5202h) shows a device at a port of the same switch. A [`Remote`] one (5706h) joins two
//! bridges to a virtual link. [`Bindings`] knows all of them and checks new ones. Costs are a value times a base, as in
//! CDAT.
//!
//! A host sees its own edge switch and one level of edge switches below. Virtual links between two edge switches differ
//! in one PID at least. A remote binding is made from the far end: the host sees the hot-add when its own bridge is
//! bound, and by then all behind it is there. It is undone from the near end. When the second end fails, the first is
//! undone; when that fails, too, the error says which end is left.
//!
//! Source: CXL 3.1 sections 7.7.6.1, 7.7.6.4, 7.7.12.3; docs/spec/cxl-fabric.md "The fabric manager".

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Request;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::vcs::{BindVppb, UnbindOption, UnbindVppb};
use weft_parsers::fabric::Pid;

pub use ends::read_bridge;
use ends::{EndError, apply, bind_end, unbind_end};
pub(crate) use ends::{free, way};

use super::ld_capacity::{BlockWanted, CapacityWanted};
use super::lds::{LdWanted, NoLd};
use crate::cci::{CallError, CciSession};
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::{Inventory, Partner, Role, pid_number};

/// LD number that stands for a whole device (5201h).
const WHOLE_DEVICE: u16 = 0xFFFF;

/// A bridge (vPPB) of a virtual switch, by switch, virtual switch and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bridge {
    pub switch: SwitchId,
    pub vcs: u8,
    pub vppb: u8,
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} VCS {} vPPB {}", self.switch, self.vcs, self.vppb)
    }
}

/// A binding within one switch: a bridge shows a device at a port of the same switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    pub bridge: Bridge,
    /// Port of the device, at the same switch.
    pub port: u8,
    /// Logical device; `None` for a whole device.
    pub ld: Option<u16>,
}

/// One end of a virtual link: a bridge and its PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// vDSP at the host, vUSP at the switch below.
    pub bridge: Bridge,
    /// PID that the other end sends to: that of the host edge, or of a fabric port below.
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

/// A binding across the fabric: a virtual link between a host's edge switch and one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// End at the host's edge switch.
    pub host: LinkEnd,
    /// End at the switch below.
    pub below: LinkEnd,
}

impl Remote {
    #[must_use]
    pub fn has_pids(&self, host: Pid, below: Pid) -> bool {
        (self.host.pid, self.below.pid) == (host, below)
    }

    #[must_use]
    pub fn is_between(&self, host: Bridge, below: Bridge) -> bool {
        (self.host.bridge, self.below.bridge) == (host, below)
    }
}

/// Why a bridge was not bound or unbound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("there is no {0}")]
    NoBridge(Bridge),
    /// The bridge has another binding.
    #[error("{0} is bound already")]
    Taken(Bridge),
    /// The bridge has no binding.
    #[error("{0} is not bound")]
    NotBound(Bridge),
    /// The port is no downstream edge port with a device other than a GFD.
    #[error("{0} has no device that can be bound")]
    NoDevice(PortRef),
    /// The device has no such logical device.
    #[error(transparent)]
    Ld(#[from] NoLd),
    /// Another bridge shows the device.
    #[error("the device at {port} is bound to {by} already")]
    DeviceTaken { port: PortRef, by: Bridge },
    /// The PID belongs to another switch, or is unassigned.
    #[error("PID {pid} is not at {at}")]
    WrongPid {
        pid: Pid,
        /// Switch that would have to have it.
        at: SwitchId,
    },
    /// There is a virtual link between these two PIDs already.
    #[error("the virtual link at {by} has PIDs {host} and {below}, and no other PID is left below")]
    PidsTaken {
        host: Pid,
        below: Pid,
        /// Bridge of that virtual link at its host.
        by: Bridge,
    },
    /// Both ends are at one switch, or a switch below would have another one below it.
    #[error(
        "{0} cannot be below: a host sees only its edge switch and one level of switches below it"
    )]
    TooDeep(SwitchId),
    /// The first end failed; nothing is bound.
    #[error("{0}: nothing was changed")]
    Failed(Bridge, #[source] CallError),
    /// The second end failed, and the first was undone.
    #[error("{0}: the other end was undone")]
    Undone(Bridge, #[source] CallError),
    /// An end failed, and undoing failed too, or its state could not be read.
    #[error("{failed}; {left} may be only partly changed")]
    Left {
        failed: Bridge,
        /// The end that may be half-way.
        left: Bridge,
        /// Cause of the failure.
        source: CallError,
        /// Why it could not be undone.
        undo: Option<Box<CallError>>,
    },
}

/// Binding of a bridge, as its switch reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeState {
    Nothing,
    /// A port, and perhaps one LD of it.
    Port(u8, Option<u8>),
    Pid(Pid),
    /// A binding is being made or removed.
    InBetween,
}

/// All bindings of a fabric, and settings of logical devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// Devices at hosts' own edge switches, sorted by bridge.
    pub local: Vec<Local>,
    /// Virtual links, sorted by the host's bridge.
    pub remote: Vec<Remote>,
    /// Virtual links that were unbound for lack of a path; they are bound again when there is one.
    #[serde(default)]
    pub cut: Vec<Remote>,
    /// Local bindings that their switch has lost, and that could not be made again yet.
    #[serde(default)]
    pub lost: Vec<Local>,
    /// Wanted memory and bandwidth of logical devices, by command or from the wanted state.
    #[serde(default)]
    pub lds: Vec<LdWanted>,
    /// Wanted dynamic capacity of logical devices, by command.
    #[serde(default)]
    pub capacity: Vec<CapacityWanted>,
    /// Wanted block sizes of dynamic capacity, by command.
    #[serde(default)]
    pub blocks: Vec<BlockWanted>,
}

impl Bindings {
    /// Virtual links that exist, and those that are to come back.
    pub fn links(&self) -> impl Iterator<Item = &Remote> {
        self.remote.iter().chain(&self.cut)
    }

    pub(crate) fn is_taken(&self, bridge: Bridge) -> bool {
        let ends = self.remote.iter().flat_map(|link| [link.host.bridge, link.below.bridge]);
        self.local.iter().map(|local| local.bridge).chain(ends).any(|taken| taken == bridge)
    }

    fn check_bridge(&self, inventory: &Inventory, bridge: Bridge) -> Result<(), BindError> {
        let vcss = inventory.switch(bridge.switch).map(|switch| switch.vcss.as_slice());
        let vcs = vcss.unwrap_or_default().iter().find(|vcs| vcs.id == bridge.vcs);
        match vcs.and_then(|vcs| vcs.vppbs.get(usize::from(bridge.vppb))) {
            None => Err(BindError::NoBridge(bridge)),
            Some(_) if self.is_taken(bridge) => Err(BindError::Taken(bridge)),
            Some(_) => Ok(()),
        }
    }

    /// Checks whether a local binding may be made.
    ///
    /// # Errors
    /// The obstacle.
    pub fn check_local(&self, inventory: &Inventory, wanted: Local) -> Result<(), BindError> {
        self.check_bridge(inventory, wanted.bridge)?;
        let at = PortRef::new(wanted.bridge.switch, wanted.port);
        let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
        if !port.is_some_and(|p| p.role == Role::Dsp && matches!(p.partner, Partner::Device(_))) {
            return Err(BindError::NoDevice(at));
        }
        NoLd::check(at, port.map_or(0, |port| port.lds), wanted.ld)?;
        // Two LDs of one device may be bound to different bridges; a whole device excludes any other binding.
        let same = |local: &&Local| {
            PortRef::new(local.bridge.switch, local.port) == at
                && (local.ld == wanted.ld || local.ld.is_none() || wanted.ld.is_none())
        };
        match self.local.iter().find(same) {
            Some(local) => Err(BindError::DeviceTaken { port: at, by: local.bridge }),
            None => Ok(()),
        }
    }

    /// Checks whether a virtual link may be made.
    ///
    /// # Errors
    /// The obstacle.
    pub fn check_remote(&self, inventory: &Inventory, wanted: &Remote) -> Result<(), BindError> {
        let (host, below) = (wanted.host.bridge, wanted.below.bridge);
        if host.switch == below.switch {
            return Err(BindError::TooDeep(below.switch));
        }
        for end in [wanted.host, wanted.below] {
            self.check_bridge(inventory, end.bridge)?;
            let at = end.bridge.switch;
            if !inventory.pids().any(|(pid, port)| pid == end.pid && port.switch == at) {
                return Err(BindError::WrongPid { pid: end.pid, at });
            }
        }
        for link in &self.remote {
            let (other_host, other_below) = (link.host.bridge, link.below.bridge);
            // Switches tell links apart by their pair of PIDs only.
            if link.has_pids(wanted.host.pid, wanted.below.pid) {
                let (host, below) = (wanted.host.pid, wanted.below.pid);
                return Err(BindError::PidsTaken { host, below, by: other_host });
            }
            // A host sees one level of switches below its own (CXL 3.1, 7.7.6.1): a virtual switch is at one end only.
            let chained = (other_below.switch, other_below.vcs) == (host.switch, host.vcs)
                || (other_host.switch, other_host.vcs) == (below.switch, below.vcs);
            if chained {
                return Err(BindError::TooDeep(below.switch));
            }
        }
        Ok(())
    }

    /// Binds a device to a bridge of its own switch.
    ///
    /// # Errors
    /// The binding is not allowed, or the switch refused. Nothing has changed then, or the error says what is left.
    pub fn bind_local(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        wanted: Local,
    ) -> Result<(), BindError> {
        self.check_local(inventory, wanted)?;
        let way = way(inventory, wanted.bridge);
        let Bridge { vcs, vppb, .. } = wanted.bridge;
        let number = wanted.ld.unwrap_or(WHOLE_DEVICE);
        let bind = Request::BindVppb(BindVppb { vcs, vppb, port: wanted.port, ld: number });
        let ld = wanted.ld.and_then(|ld| u8::try_from(ld).ok());
        let shows = |shows| shows == BridgeState::Port(wanted.port, ld);
        apply(fabric, way, wanted.bridge, &bind, shows)
            .map_err(|error| BindError::Failed(wanted.bridge, error))?;
        // A binding that its switch had lost is superseded, whichever device it was.
        self.lost.retain(|local| local.bridge != wanted.bridge);
        self.local.push(wanted);
        self.local.sort_by_key(|local| local.bridge);
        Ok(())
    }

    /// Unbinds a device from its bridge.
    ///
    /// # Errors
    /// The bridge has no binding, or the switch did not remove it.
    pub fn unbind_local(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        bridge: Bridge,
        option: UnbindOption,
    ) -> Result<Local, BindError> {
        let place = self.local.iter().position(|local| local.bridge == bridge);
        let place = place.ok_or(BindError::NotBound(bridge))?;
        let Bridge { vcs, vppb, .. } = bridge;
        let unbind = Request::UnbindVppb(UnbindVppb { vcs, vppb, option });
        apply(fabric, way(inventory, bridge), bridge, &unbind, |shows| {
            shows == BridgeState::Nothing
        })
        .map_err(|error| BindError::Failed(bridge, error))?;
        Ok(self.local.remove(place))
    }

    /// Makes a virtual link; `cost` is that of its path.
    ///
    /// # Errors
    /// The link is not allowed, or an end failed. Changes are undone then, or the error says what is left.
    pub fn bind_remote(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        wanted: Remote,
        cost: PathCost,
    ) -> Result<(), BindError> {
        self.check_remote(inventory, &wanted)?;
        let (host, below) = (wanted.host, wanted.below);
        // The far end first: the host is told of a hot-add by the near one, behind which all must be there.
        if let Err(EndError { source, undo }) = bind_end(fabric, inventory, below, host.pid, cost) {
            let (failed, left) = (below.bridge, below.bridge);
            return Err(match undo {
                None => BindError::Failed(failed, source),
                undo => BindError::Left { failed, left, source, undo },
            });
        }
        if let Err(EndError { source, undo }) = bind_end(fabric, inventory, host, below.pid, cost) {
            let failed = host.bridge;
            return Err(match (unbind_end(fabric, inventory, below.bridge), undo) {
                (Ok(()), None) => BindError::Undone(failed, source),
                (Ok(()), undo) => BindError::Left { failed, left: failed, source, undo },
                (Err(undo), _) => BindError::Left {
                    failed,
                    left: below.bridge,
                    source,
                    undo: Some(Box::new(undo)),
                },
            });
        }
        // Links that were to come back at one of these ends are superseded.
        self.cut.retain(|link| {
            let ends = [link.host.bridge, link.below.bridge];
            !ends.contains(&host.bridge) && !ends.contains(&below.bridge)
        });
        self.remote.push(wanted);
        self.remote.sort_by_key(|link| link.host.bridge);
        Ok(())
    }

    /// Tells both ends of a virtual link the cost of its path, unless they know it.
    ///
    /// # Errors
    /// A switch refuses, or does not answer.
    pub fn tell_cost(
        fabric: &mut CciSession,
        inventory: &Inventory,
        link: &Remote,
        cost: PathCost,
    ) -> Result<(), CallError> {
        let Remote { host, below } = *link;
        ends::tell_cost(fabric, inventory, below, host.pid, cost)?;
        ends::tell_cost(fabric, inventory, host, below.pid, cost)
    }

    /// Removes a virtual link, the host's end first.
    ///
    /// # Errors
    /// There is none, or an end could not be unbound. The host's end is bound again then, or the error says what is
    /// left.
    pub fn unbind_remote(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        host: Bridge,
        cost: PathCost,
    ) -> Result<Remote, BindError> {
        let place = self.remote.iter().position(|link| link.host.bridge == host);
        let place = place.ok_or(BindError::NotBound(host))?;
        let Some(&link) = self.remote.get(place) else { return Err(BindError::NotBound(host)) };
        // The near end first: the host sees the hot-remove before its device is cut off.
        if let Err(source) = unbind_end(fabric, inventory, host) {
            return Err(if source.is_refusal() {
                BindError::Failed(host, source)
            } else {
                BindError::Left { failed: host, left: host, source, undo: None }
            });
        }
        let below = link.below.bridge;
        if let Err(source) = unbind_end(fabric, inventory, below) {
            return Err(match bind_end(fabric, inventory, link.host, link.below.pid, cost) {
                Ok(()) if source.is_refusal() => BindError::Undone(below, source),
                Ok(()) => BindError::Left { failed: below, left: below, source, undo: None },
                Err(EndError { source: undo, .. }) => BindError::Left {
                    failed: below,
                    left: host,
                    source,
                    undo: Some(Box::new(undo)),
                },
            });
        }
        Ok(self.remote.remove(place))
    }

    /// Unbinds the virtual links for which `lost` is true, at the ends that still answer.
    ///
    /// Returns them, and the ends that did not answer: those are found bound when they come back.
    pub fn sever(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        lost: impl Fn(&Remote) -> bool,
    ) -> (Vec<Remote>, Vec<Bridge>) {
        let (gone, kept): (Vec<Remote>, Vec<Remote>) = self.remote.iter().partition(|r| lost(r));
        let ends = gone.iter().flat_map(|link| [link.host.bridge, link.below.bridge]);
        let left = ends.filter(|&end| unbind_end(fabric, inventory, end).is_err()).collect();
        self.remote = kept;
        // Kept, so that they are bound again when there is a path.
        self.cut.extend(&gone);
        (gone, left)
    }

    /// Makes a lost binding again: binds each end that shows nothing, the far one first. An end that still shows the
    /// binding is left as it is.
    ///
    /// # Errors
    /// An end has another binding, or its switch failed. The other end stays as it was made.
    pub fn restore(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        link: Remote,
        cost: PathCost,
    ) -> Result<(), BindError> {
        for (end, pid) in [(link.below, link.host.pid), (link.host, link.below.pid)] {
            let at = end.bridge;
            let failed = |source| BindError::Failed(at, source);
            match read_bridge(fabric, way(inventory, at), at).map_err(failed)? {
                BridgeState::Pid(shown) if shown == pid => {}
                BridgeState::Nothing => bind_end(fabric, inventory, end, pid, cost)
                    .map_err(|EndError { source, .. }| failed(source))?,
                _ => return Err(BindError::Taken(at)),
            }
        }
        self.cut.retain(|other| *other != link);
        if !self.remote.contains(&link) {
            self.remote.push(link);
            self.remote.sort_by_key(|link| link.host.bridge);
        }
        Ok(())
    }

    /// Compares the bindings that switches report with the known ones; returns bridges that differ.
    ///
    /// # Errors
    /// A switch does not answer.
    pub fn compare(
        &self,
        fabric: &mut CciSession,
        inventory: &Inventory,
    ) -> Result<Vec<(Bridge, BridgeState)>, CallError> {
        let mut wanted: BTreeMap<Bridge, BridgeState> = BTreeMap::new();
        for local in &self.local {
            let ld = local.ld.and_then(|ld| u8::try_from(ld).ok());
            wanted.insert(local.bridge, BridgeState::Port(local.port, ld));
        }
        for link in &self.remote {
            wanted.insert(link.host.bridge, BridgeState::Pid(link.below.pid));
            wanted.insert(link.below.bridge, BridgeState::Pid(link.host.pid));
        }
        let mut all: BTreeSet<Bridge> = wanted.keys().copied().collect();
        // The upstream bridge of a host's own edge shows the host's port, without any binding.
        let mut own: BTreeMap<Bridge, BridgeState> = BTreeMap::new();
        for (switch, found) in inventory.by_id().filter(|(_, switch)| switch.whole) {
            for vcs in &found.vcss {
                let upstream = Bridge { switch, vcs: vcs.id, vppb: 0 };
                own.insert(upstream, BridgeState::Port(vcs.usp, None));
                let count = u8::try_from(vcs.vppbs.len()).unwrap_or(u8::MAX);
                all.extend((0..count).map(|vppb| Bridge { switch, vcs: vcs.id, vppb }));
            }
        }
        let mut differ = Vec::new();
        for bridge in all {
            let now = read_bridge(fabric, way(inventory, bridge), bridge)?;
            let known = wanted.get(&bridge).copied().unwrap_or(BridgeState::Nothing);
            if now != known && own.get(&bridge) != Some(&now) {
                differ.push((bridge, now));
            }
        }
        Ok(differ)
    }
}
