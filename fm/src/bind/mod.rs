//! Binding: which devices a host sees, below its own edge switch and below others.
//!
//! [`Local`] (5201h, 5202h) binds a port of the same switch; [`Remote`] (5706h) binds two bridges, one at each end,
//! as one virtual link; [`Bindings`] knows what is bound and what may be.
//!
//! Costs are a value times a base, as CDAT has them.
//! Source: CXL 3.1 sections 7.7.6.1, 7.7.6.4, 7.7.12.3; docs/spec/cxl-fabric.md "The fabric manager".
//!
//! A host sees at most its own edge switch and, below that, downstream edge switches. Virtual links between two edge switches
//! differ in one PID at least. Remote bindings are made from the far end on: the host is told of a hot-add when its own bridge is bound, and by then
//! all behind it is there. They are undone from the near end on. When the second end fails, the first is undone; when that
//! fails too, the error says which end is left.

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
pub(super) use ends::{free, way};

use super::cci::{CallError, Fabric};
use super::graph::{PortRef, SwitchId};
use super::inventory::{Inventory, Partner, Role, pid_number};
use super::ld_capacity::{BlockWanted, CapacityWanted};
use super::lds::{LdWanted, NoLd};

/// LD number that stands for a whole device.
const WHOLE_DEVICE: u16 = 0xFFFF;

/// A bridge (vPPB) of a virtual switch, by switch, virtual switch and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bridge {
    /// The switch.
    pub switch: SwitchId,
    /// Its virtual switch.
    pub vcs: u8,
    /// The bridge.
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
    /// The bridge that shows it.
    pub bridge: Bridge,
    /// Its port.
    pub port: u8,
    /// The LD of a device with several.
    pub ld: Option<u16>,
}

/// One end of a virtual link: a bridge and the PID that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The bridge: vDSP at the host, vUSP below.
    pub bridge: Bridge,
    /// The PID that the other end sends to: of the host edge, of the fabric port.
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

/// A binding across the fabric: a virtual link between a host's edge switch and one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// At the host.
    pub host: LinkEnd,
    /// Below.
    pub below: LinkEnd,
}

impl Remote {
    /// Whether its ends have these PIDs.
    #[must_use]
    pub fn has_pids(&self, host: Pid, below: Pid) -> bool {
        (self.host.pid, self.below.pid) == (host, below)
    }

    /// Whether it is between these bridges.
    #[must_use]
    pub fn is_between(&self, host: Bridge, below: Bridge) -> bool {
        (self.host.bridge, self.below.bridge) == (host, below)
    }
}

/// Why a bridge is not bound or unbound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The bridge is not there.
    #[error("there is no {0}")]
    NoBridge(Bridge),
    /// The bridge shows something else already.
    #[error("{0} is bound already")]
    Taken(Bridge),
    /// The bridge shows nothing.
    #[error("{0} is not bound")]
    NotBound(Bridge),
    /// The port is no downstream edge port with a device that is no GFD.
    #[error("{0} has no device that can be bound")]
    NoDevice(PortRef),
    /// The device has other logical devices, or none.
    #[error(transparent)]
    Ld(#[from] NoLd),
    /// Another bridge shows the device.
    #[error("the device at {port} is bound to {by} already")]
    DeviceTaken {
        /// Its port.
        port: PortRef,
        /// Where it is bound.
        by: Bridge,
    },
    /// The PID belongs to another switch, or to none.
    #[error("PID {pid} is not at {at}")]
    WrongPid {
        /// The PID.
        pid: Pid,
        /// Where it would have to be.
        at: SwitchId,
    },
    /// There is a virtual link between these two PIDs.
    #[error("the virtual link at {by} has PIDs {host} and {below}, and no other PID is left below")]
    PidsTaken {
        /// Of the host.
        host: Pid,
        /// Of the switch below.
        below: Pid,
        /// Where it is bound.
        by: Bridge,
    },
    /// Both ends are one switch, or an edge switch below would have another one below.
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
    /// An end failed, and undoing failed too, or what became of it could not be seen.
    #[error("{failed}; {left} may be only partly changed")]
    Left {
        /// The end that failed.
        failed: Bridge,
        /// The end that is half-way.
        left: Bridge,
        /// What happened at first.
        source: CallError,
        /// What happened when it was to be undone.
        undo: Option<Box<CallError>>,
    },
}

/// What a bridge is bound to, as its switch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeState {
    /// Nothing.
    Nothing,
    /// A port, and perhaps one LD of it.
    Port(u8, Option<u8>),
    /// The other end of a virtual link.
    Pid(Pid),
    /// Something that is coming or going.
    InBetween,
}

/// All bindings of a fabric: which bridge shows which device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bindings {
    /// Devices at hosts' own edge switches, by bridge.
    pub local: Vec<Local>,
    /// Virtual links, by the host's bridge.
    pub remote: Vec<Remote>,
    /// Virtual links that were unbound because no way was left: they are bound again when there is one.
    #[serde(default)]
    pub cut: Vec<Remote>,
    /// Devices whose switch has forgotten that it shows them, and could not be told yet.
    #[serde(default)]
    pub lost: Vec<Local>,
    /// What logical devices are to have, by command or as the wanted state says.
    #[serde(default)]
    pub lds: Vec<LdWanted>,
    /// What logical devices are to have of dynamic capacity, by command.
    #[serde(default)]
    pub capacity: Vec<CapacityWanted>,
    /// Blocks that devices are to deal it out in, by command.
    #[serde(default)]
    pub blocks: Vec<BlockWanted>,
}

impl Bindings {
    /// Virtual links that there are, and those that are to come back.
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

    /// Checks a local binding.
    ///
    /// # Errors
    /// What is in its way.
    pub fn check_local(&self, inventory: &Inventory, wanted: Local) -> Result<(), BindError> {
        self.check_bridge(inventory, wanted.bridge)?;
        let at = PortRef::new(wanted.bridge.switch, wanted.port);
        let port = inventory.switch(at.switch).and_then(|switch| switch.port(at.port));
        if !port.is_some_and(|p| p.role == Role::Dsp && matches!(p.partner, Partner::Device(_))) {
            return Err(BindError::NoDevice(at));
        }
        NoLd::check(at, port.map_or(0, |port| port.lds), wanted.ld)?;
        let same = |local: &&Local| {
            PortRef::new(local.bridge.switch, local.port) == at
                && (local.ld == wanted.ld || local.ld.is_none() || wanted.ld.is_none())
        };
        match self.local.iter().find(same) {
            Some(local) => Err(BindError::DeviceTaken { port: at, by: local.bridge }),
            None => Ok(()),
        }
    }

    /// Checks a virtual link.
    ///
    /// # Errors
    /// What is in its way.
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
            if link.has_pids(wanted.host.pid, wanted.below.pid) {
                let (host, below) = (wanted.host.pid, wanted.below.pid);
                return Err(BindError::PidsTaken { host, below, by: other_host });
            }
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
    /// It may not be, or the switch did not; nothing has changed then, or the error says what is left.
    pub fn bind_local(
        &mut self,
        fabric: &mut Fabric,
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
        self.lost.retain(|local| local.bridge != wanted.bridge);
        self.local.push(wanted);
        self.local.sort_by_key(|local| local.bridge);
        Ok(())
    }

    /// Takes a device away from its bridge.
    ///
    /// # Errors
    /// Nothing is bound there, or the switch did not take it away.
    pub fn unbind_local(
        &mut self,
        fabric: &mut Fabric,
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

    /// Makes a virtual link, of which `cost` tells what its path adds.
    ///
    /// # Errors
    /// It may not be, or an end did not; what was done is undone then, or the error says what is left.
    pub fn bind_remote(
        &mut self,
        fabric: &mut Fabric,
        inventory: &Inventory,
        wanted: Remote,
        cost: PathCost,
    ) -> Result<(), BindError> {
        self.check_remote(inventory, &wanted)?;
        let (host, below) = (wanted.host, wanted.below);
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
        self.cut.retain(|link| {
            let ends = [link.host.bridge, link.below.bridge];
            !ends.contains(&host.bridge) && !ends.contains(&below.bridge)
        });
        self.remote.push(wanted);
        self.remote.sort_by_key(|link| link.host.bridge);
        Ok(())
    }

    /// Tells both ends of a virtual link what its path adds, as far as they do not know.
    ///
    /// # Errors
    /// A switch does not answer, or refuses.
    pub fn tell_cost(
        fabric: &mut Fabric,
        inventory: &Inventory,
        link: &Remote,
        cost: PathCost,
    ) -> Result<(), CallError> {
        let Remote { host, below } = *link;
        ends::tell_cost(fabric, inventory, below, host.pid, cost)?;
        ends::tell_cost(fabric, inventory, host, below.pid, cost)
    }

    /// Takes a virtual link away, the host's end first.
    ///
    /// # Errors
    /// There is none, or an end did not let go: the host's is bound again if it was undone, or the error says what is left.
    pub fn unbind_remote(
        &mut self,
        fabric: &mut Fabric,
        inventory: &Inventory,
        host: Bridge,
        cost: PathCost,
    ) -> Result<Remote, BindError> {
        let place = self.remote.iter().position(|link| link.host.bridge == host);
        let place = place.ok_or(BindError::NotBound(host))?;
        let Some(&link) = self.remote.get(place) else { return Err(BindError::NotBound(host)) };
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

    /// Takes away the virtual links of which `lost` says so, at the ends that still answer.
    ///
    /// Returns them, and the ends that did not: what is bound there is found when they come back.
    pub fn sever(
        &mut self,
        fabric: &mut Fabric,
        inventory: &Inventory,
        lost: impl Fn(&Remote) -> bool,
    ) -> (Vec<Remote>, Vec<Bridge>) {
        let (gone, kept): (Vec<Remote>, Vec<Remote>) = self.remote.iter().partition(|r| lost(r));
        let ends = gone.iter().flat_map(|link| [link.host.bridge, link.below.bridge]);
        let left = ends.filter(|&end| unbind_end(fabric, inventory, end).is_err()).collect();
        self.remote = kept;
        self.cut.extend(&gone);
        (gone, left)
    }

    /// Binds again what was bound and is not: at each end that shows nothing, the far one first. An end that shows it
    /// still is left as it is.
    ///
    /// # Errors
    /// An end shows something else, or its switch did not; what was done at the other end stays.
    pub fn restore(
        &mut self,
        fabric: &mut Fabric,
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

    /// Holds what switches show of bindings against what is known; returns bridges that show something else.
    ///
    /// # Errors
    /// A switch does not answer.
    pub fn compare(
        &self,
        fabric: &mut Fabric,
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
        // The upstream bridge of a host's own edge shows the host's port, which nobody has bound.
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
