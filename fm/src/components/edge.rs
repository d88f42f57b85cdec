//! Access rights at edges: bits of GMV, VTV and LAV, and where `VendPrefixL0` is allowed.
//!
//! [`lacks`] finds which wanted [`AccessBit`]s the switches lack, [`set`] sets or clears one.
//!
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; docs/spec/wire-formats.md §4.6 (5901h to
//! 5906h).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::gae::{AccessOp, ConfigureAccess, PrefixFlags, SetPrefix};
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::tables::{
    ConfigureLdstAccess, LdstAccess, PidOp, VcsVectorRange, Vector, VectorRange,
};
use weft_parsers::cci::{Opcode, Request};
use weft_parsers::fabric::Pid;

use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::SwitchId;
use crate::model::inventory::{DiscoveredSwitch, Inventory, pid_number};

/// Bytes of a vector with a bit for each of the 4,096 PIDs. 5901h answers GMV, and VTV behind it.
const VECTOR: u32 = 512;

/// A right at the edge of a host or device: a bit of GMV, VTV or LAV, or `VendPrefixL0` in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AccessBit {
    /// The PID may be a target or requester of GIM.
    Vtv(SwitchId, u8, #[serde(with = "pid_number")] Pid),
    /// Requests that leave the fabric here, and completions that enter it here, carry a prefix.
    Out(SwitchId, u8),
    /// Requests that enter the fabric here may carry a prefix.
    Into(SwitchId, u8),
    /// The PID may be a G-FAM target.
    Gmv(SwitchId, u8, #[serde(with = "pid_number")] Pid),
    /// The PID may be a target or requester of LD-FAM.
    Lav(SwitchId, u8, #[serde(with = "pid_number")] Pid),
}

impl fmt::Display for AccessBit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gmv(at, vcs, pid) => write!(f, "PID {pid} in GMV of VCS {vcs} of {at}"),
            Self::Vtv(at, vcs, pid) => write!(f, "PID {pid} in VTV of VCS {vcs} of {at}"),
            Self::Lav(at, vcs, pid) => write!(f, "PID {pid} in LAV of VCS {vcs} of {at}"),
            Self::Out(at, vcs) => write!(f, "prefixes of requests out of VCS {vcs} of {at}"),
            Self::Into(at, vcs) => write!(f, "prefixes of requests into VCS {vcs} of {at}"),
        }
    }
}

impl AccessBit {
    #[must_use]
    pub const fn place(self) -> (SwitchId, u8) {
        match self {
            Self::Vtv(at, vcs, _)
            | Self::Out(at, vcs)
            | Self::Into(at, vcs)
            | Self::Gmv(at, vcs, _)
            | Self::Lav(at, vcs, _) => (at, vcs),
        }
    }

    /// The same right at a switch of another number.
    #[must_use]
    pub fn moved(self, to: impl FnOnce(SwitchId) -> SwitchId) -> Self {
        match self {
            Self::Vtv(at, vcs, pid) => Self::Vtv(to(at), vcs, pid),
            Self::Out(at, vcs) => Self::Out(to(at), vcs),
            Self::Into(at, vcs) => Self::Into(to(at), vcs),
            Self::Gmv(at, vcs, pid) => Self::Gmv(to(at), vcs, pid),
            Self::Lav(at, vcs, pid) => Self::Lav(to(at), vcs, pid),
        }
    }
}

/// The fabric, its inventory and the two functions that [`set`] needs to change rights.
pub struct EdgeContext<'a> {
    pub fabric: &'a mut CciSession,
    pub inventory: &'a Inventory,
    /// Latency and bandwidth of the path from a switch to a PID, told to the host along with a right (5902h).
    pub cost: &'a dyn Fn(SwitchId, Pid) -> PathCost,
    /// Waits until requests under way have been answered.
    pub drain: fn(),
}

/// Finds the rights of `wanted` that the switches lack. Each virtual switch is asked once; rights at a switch that
/// cannot be reached are skipped.
///
/// # Errors
/// A switch that was reachable does not answer.
pub fn lacks(
    fabric: &mut CciSession,
    inventory: &Inventory,
    wanted: &BTreeSet<AccessBit>,
) -> Result<Vec<AccessBit>, CallError> {
    let mut asked: BTreeMap<(SwitchId, u8), Held> = BTreeMap::new();
    let mut lacking = Vec::new();
    for &bit in wanted {
        let place = bit.place();
        if inventory.switch(place.0).is_none_or(|switch| !switch.whole) {
            // Not read to the end: it is silent, and asking would cost a time limit for each of its rights.
            continue;
        }
        let held = asked.entry(place).or_default();
        held.ask(fabric, inventory, bit)?;
        if !held.has(bit) {
            lacking.push(bit);
        }
    }
    Ok(lacking)
}

/// The vectors of a virtual switch, as far as they were read: one without a GAE has LAV alone.
#[derive(Default)]
struct Held {
    /// GMV followed by VTV, as 5901h answers them.
    access: Option<Vec<u8>>,
    lav: Option<Vec<u8>>,
    prefix: Option<PrefixFlags>,
}

impl Held {
    /// Reads the vector that has `bit`, if it was not read before.
    fn ask(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        bit: AccessBit,
    ) -> Result<(), CallError> {
        let (at, vcs) = bit.place();
        let way = way(inventory, at);
        let mut vector = |request: Request<'_>| {
            let answer = fabric.call(way, &request)?;
            Ok::<Vec<u8>, CallError>(answer.read::<Vector<'_>>()?.data.iter().collect())
        };
        let range = |len| VcsVectorRange { vcs, range: VectorRange { start: 0, len } };
        match bit {
            // One request for both: VTV follows GMV in the answer (5901h).
            AccessBit::Gmv(..) | AccessBit::Vtv(..) if self.access.is_none() => {
                self.access = Some(vector(Request::GetVcsAccess(range(2 * VECTOR)))?);
            }
            AccessBit::Lav(..) if self.lav.is_none() => {
                self.lav = Some(vector(Request::GetVcsLav(range(VECTOR)))?);
            }
            AccessBit::Out(..) | AccessBit::Into(..) if self.prefix.is_none() => {
                self.prefix = Some(prefixes(fabric, inventory, at, vcs)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn has(&self, bit: AccessBit) -> bool {
        let is_set = |bytes: &Option<Vec<u8>>, start: u32, pid: Pid| {
            let at = usize::try_from(start).unwrap_or(usize::MAX) + pid.index() / 8;
            let byte = bytes.as_ref().and_then(|bytes| bytes.get(at));
            byte.is_some_and(|byte| byte & (1 << (pid.bits() % 8)) != 0)
        };
        match bit {
            AccessBit::Gmv(_, _, pid) => is_set(&self.access, 0, pid),
            AccessBit::Vtv(_, _, pid) => is_set(&self.access, VECTOR, pid),
            AccessBit::Lav(_, _, pid) => is_set(&self.lav, 0, pid),
            AccessBit::Out(..) => self.prefix.is_some_and(|prefix| prefix.out),
            AccessBit::Into(..) => self.prefix.is_some_and(|prefix| prefix.into),
        }
    }
}

fn way(inventory: &Inventory, at: SwitchId) -> Way {
    inventory.switch(at).map_or(Way::Entry, DiscoveredSwitch::way)
}

/// Reads whether a PID is in VTV of a virtual switch.
///
/// # Errors
/// The switch does not answer.
pub fn has_vtv(
    fabric: &mut CciSession,
    inventory: &Inventory,
    at: SwitchId,
    vcs: u8,
    pid: Pid,
) -> Result<bool, CallError> {
    has(fabric, inventory, at, vcs, VECTOR, pid)
}

/// Whether GMV (`vector` 0) or VTV (`vector` [`VECTOR`]) has a PID.
fn has(
    fabric: &mut CciSession,
    inventory: &Inventory,
    at: SwitchId,
    vcs: u8,
    vector: u32,
    pid: Pid,
) -> Result<bool, CallError> {
    let range = VectorRange { start: vector + u32::from(pid.bits() / 8), len: 1 };
    let get = Request::GetVcsAccess(VcsVectorRange { vcs, range });
    let answer = fabric.call(way(inventory, at), &get)?;
    let byte = answer.read::<Vector<'_>>()?.data.get(0);
    Ok(byte.is_some_and(|byte| byte & (1 << (pid.bits() % 8)) != 0))
}

/// Reads whether a PID is in LAV of a virtual switch.
///
/// # Errors
/// The switch does not answer.
pub fn has_lav(
    fabric: &mut CciSession,
    inventory: &Inventory,
    at: SwitchId,
    vcs: u8,
    pid: Pid,
) -> Result<bool, CallError> {
    let range = VectorRange { start: u32::from(pid.bits() / 8), len: 1 };
    let get = Request::GetVcsLav(VcsVectorRange { vcs, range });
    let answer = fabric.call(way(inventory, at), &get)?;
    let byte = answer.read::<Vector<'_>>()?.data.get(0);
    Ok(byte.is_some_and(|byte| byte & (1 << (pid.bits() % 8)) != 0))
}

/// Directions in which `VendPrefixL0` is allowed at a virtual switch.
///
/// # Errors
/// The switch does not answer.
pub fn prefixes(
    fabric: &mut CciSession,
    inventory: &Inventory,
    at: SwitchId,
    vcs: u8,
) -> Result<PrefixFlags, CallError> {
    fabric.call(way(inventory, at), &Request::GetPrefix(vcs))?.read::<PrefixFlags>()
}

/// Reads whether a right is set at its switch.
///
/// # Errors
/// The switch does not answer.
pub fn is_set(
    fabric: &mut CciSession,
    inventory: &Inventory,
    bit: AccessBit,
) -> Result<bool, CallError> {
    let (at, vcs) = bit.place();
    Ok(match bit {
        AccessBit::Vtv(_, _, pid) => has_vtv(fabric, inventory, at, vcs, pid)?,
        AccessBit::Gmv(_, _, pid) => has(fabric, inventory, at, vcs, 0, pid)?,
        AccessBit::Lav(_, _, pid) => has_lav(fabric, inventory, at, vcs, pid)?,
        AccessBit::Out(..) => prefixes(fabric, inventory, at, vcs)?.out,
        AccessBit::Into(..) => prefixes(fabric, inventory, at, vcs)?.into,
    })
}

/// Sets or clears a right, and reads it back.
///
/// # Errors
/// The switch refuses, does not answer, or has another value afterwards.
pub fn set(means: &mut EdgeContext<'_>, bit: AccessBit, on: bool) -> Result<(), CallError> {
    let ((at, vcs), inventory) = (bit.place(), means.inventory);
    let way = way(inventory, at);
    let access = |op: AccessOp, pid: Pid| {
        let cost = (means.cost)(at, pid);
        let set = ConfigureAccess { vcs, access: PidOp { pid, op }, cost };
        (Request::ConfigureAccess(set), Opcode::CONFIGURE_ACCESS)
    };
    let (request, opcode) = match bit {
        AccessBit::Gmv(_, _, pid) if on => access(AccessOp::EnableGmv, pid),
        AccessBit::Gmv(_, _, pid) => access(AccessOp::DisableGmv, pid),
        AccessBit::Vtv(_, _, pid) if on => access(AccessOp::EnableVtv, pid),
        AccessBit::Vtv(_, _, pid) => access(AccessOp::DisableVtv, pid),
        AccessBit::Lav(_, _, pid) => {
            let op = if on { LdstAccess::Enable } else { LdstAccess::Disable };
            let request = Request::ConfigureLdstAccess(ConfigureLdstAccess {
                vcs,
                access: PidOp { pid, op },
            });
            let opcode = request.opcode();
            (request, opcode)
        }
        AccessBit::Out(..) | AccessBit::Into(..) => {
            // One byte has the flags of both directions: the other one must be written as it is.
            let mut prefix = prefixes(means.fabric, inventory, at, vcs)?;
            match bit {
                AccessBit::Out(..) => prefix.out = on,
                _ => prefix.into = on,
            }
            (Request::SetPrefix(SetPrefix { vcs, prefix }), Opcode::SET_PREFIX)
        }
    };
    means.fabric.call(way, &request)?;
    // Set commands are complete or refused, but a manager must not report a revoked right that is still set.
    if is_set(means.fabric, inventory, bit)? == on {
        return Ok(());
    }
    let what = "the edge does not have the value that was set";
    Err(CallError::Unexpected { way, opcode, what })
}
