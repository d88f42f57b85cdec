//! One end of a binding: reading its bridge, and changing it with a check.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5201h, 5202h, 5705h, 5706h).

use weft_parsers::cci::Request;
use weft_parsers::cci::pbr::{self, BindOp, BindPid, Chosen, PathCost, PidBinding};
use weft_parsers::cci::vcs::{UnbindOption, UnbindVppb};
use weft_parsers::fabric::Pid;

use super::{Bridge, BridgeState, LinkEnd};
use crate::cci::switch_state::virtual_switches;
use crate::cci::{CallError, CciSession, Way};
use crate::model::inventory::{DiscoveredSwitch, Inventory, Target, TargetKind};

/// Status of a vPPB in 5200h: no binding.
const UNBOUND: u8 = 0;
/// Status: bound to a port.
const BOUND_TO_PORT: u8 = 2;
/// Status: bound to a logical device.
const BOUND_TO_LD: u8 = 3;

/// The way to the switch of a bridge.
pub fn way(inventory: &Inventory, bridge: Bridge) -> Way {
    inventory.switch(bridge.switch).map_or(Way::Entry, DiscoveredSwitch::way)
}

/// Reads the binding of a bridge.
///
/// # Errors
/// The switch does not answer.
pub fn read_bridge(
    fabric: &mut CciSession,
    way: Way,
    bridge: Bridge,
) -> Result<BridgeState, CallError> {
    let vcss = virtual_switches(fabric, way, &[bridge.vcs])?;
    let vppbs = vcss.first().map(|vcs| vcs.vppbs.as_slice()).unwrap_or_default();
    let Some(vppb) = vppbs.get(usize::from(bridge.vppb)) else { return Ok(BridgeState::Nothing) };
    Ok(match vppb.status {
        UNBOUND => BridgeState::Nothing,
        BOUND_TO_PORT => BridgeState::Port(vppb.port, None),
        BOUND_TO_LD => BridgeState::Port(vppb.port, Some(vppb.ld)),
        1 => BridgeState::InBetween,
        _ => {
            let at = pbr::Vppb { vcs: bridge.vcs, vppb: bridge.vppb };
            let answer = fabric.call(way, &Request::GetPidBinding(at))?;
            BridgeState::Pid(answer.read::<PidBinding>()?.pid)
        }
    })
}

/// Sends a command that changes a bridge, and reads the bridge afterwards: that decides, also when the answer was lost.
/// A bridge that shows another binding after a successful command is an error, too.
pub(super) fn apply(
    fabric: &mut CciSession,
    way: Way,
    bridge: Bridge,
    request: &Request<'_>,
    done: impl Fn(BridgeState) -> bool,
) -> Result<(), CallError> {
    let answer = fabric.call(way, request).map(drop);
    if let Err(error) = &answer
        && error.is_refusal()
    {
        return answer;
    }
    let shows = read_bridge(fabric, way, bridge)?;
    if done(shows) {
        return Ok(());
    }
    let (opcode, what) =
        (request.opcode(), "the command succeeded, but the vPPB shows another binding");
    answer.and(Err(CallError::Unexpected { way, opcode, what }))
}

/// Failure to bind an end; `undo` is set if the end may be bound nevertheless.
pub(super) struct EndError {
    pub source: CallError,
    pub undo: Option<Box<CallError>>,
}

/// The end's own PID as named to its switch (5706h); nothing if that is the one that every switch chooses by itself.
fn own_of(inventory: &Inventory, end: LinkEnd) -> Chosen {
    let targets = inventory.targets(end.bridge.switch);
    let kind = targets.iter().find(|target| target.pid == end.pid).map(|target| target.kind);
    let is_one = |target: &&Target| {
        let here = target.kind != TargetKind::Host || target.vcs == end.bridge.vcs;
        Some(target.kind) == kind && here && !target.pid.is_none()
    };
    // A switch chooses the first PID of the host port, or of the fabric ports. Naming it only where it is another keeps
    // switches that do not know the field working.
    let first = targets.iter().find(is_one).map(|target| target.pid);
    Chosen((first != Some(end.pid)).then_some(end.pid))
}

pub(super) fn bind_end(
    fabric: &mut CciSession,
    inventory: &Inventory,
    end: LinkEnd,
    pid: Pid,
    cost: PathCost,
) -> Result<(), EndError> {
    bind_pid(fabric, inventory, end, pid, cost).map_err(|source| {
        // It may be bound after all, with the answer lost: it is unbound, so that a failure leaves nothing bound.
        let undo = (!source.is_refusal()).then(|| unbind_end(fabric, inventory, end.bridge).err());
        EndError { source, undo: undo.flatten().map(Box::new) }
    })
}

/// Binds one end to the PID of the other, and tells it the cost of the path.
fn bind_pid(
    fabric: &mut CciSession,
    inventory: &Inventory,
    end: LinkEnd,
    pid: Pid,
    cost: PathCost,
) -> Result<(), CallError> {
    let (bridge, own) = (end.bridge, own_of(inventory, end));
    let Bridge { vcs, vppb, .. } = bridge;
    let bind = Request::BindPid(BindPid { op: BindOp::Bind, vcs, vppb, pid, own, cost });
    apply(fabric, way(inventory, bridge), bridge, &bind, |now| now == BridgeState::Pid(pid))
}

/// Tells the switch of one end of a virtual link the cost of its path, unless it knows that. An end that shows another
/// PID is left alone.
pub(super) fn tell_cost(
    fabric: &mut CciSession,
    inventory: &Inventory,
    end: LinkEnd,
    pid: Pid,
    cost: PathCost,
) -> Result<(), CallError> {
    let (way, Bridge { vcs, vppb, .. }) = (way(inventory, end.bridge), end.bridge);
    let answer = fabric.call(way, &Request::GetPidBinding(pbr::Vppb { vcs, vppb }))?;
    let shown = answer.read::<PidBinding>()?;
    if shown.pid != pid || shown.cost == cost {
        return Ok(());
    }
    // Bind with the same PID only updates the figures; hosts see no change.
    bind_pid(fabric, inventory, end, pid, cost)
}

/// Removes the binding of a bridge; returns whether it had one.
///
/// # Errors
/// The switch refused, or does not answer.
pub fn free(
    fabric: &mut CciSession,
    inventory: &Inventory,
    bridge: Bridge,
) -> Result<bool, CallError> {
    let way = way(inventory, bridge);
    match read_bridge(fabric, way, bridge)? {
        BridgeState::Nothing => return Ok(false),
        BridgeState::Pid(_) => unbind_end(fabric, inventory, bridge)?,
        BridgeState::Port(..) | BridgeState::InBetween => {
            let (Bridge { vcs, vppb, .. }, option) = (bridge, UnbindOption::Managed);
            let unbind = Request::UnbindVppb(UnbindVppb { vcs, vppb, option });
            apply(fabric, way, bridge, &unbind, |now| now == BridgeState::Nothing)?;
        }
    }
    Ok(true)
}

pub(super) fn unbind_end(
    fabric: &mut CciSession,
    inventory: &Inventory,
    bridge: Bridge,
) -> Result<(), CallError> {
    let way = way(inventory, bridge);
    let mut last = Ok(());
    // Worth several tries: an end that is left bound has to be reported to people.
    for _ in 0..3 {
        last = read_bridge(fabric, way, bridge).and_then(|shows| {
            if shows == BridgeState::Nothing {
                return Ok(());
            }
            let Bridge { vcs, vppb, .. } = bridge;
            let cost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
            let pid = Pid::NONE;
            let (op, own) = (BindOp::Unbind, Chosen(None));
            let unbind = Request::BindPid(BindPid { op, vcs, vppb, pid, own, cost });
            apply(fabric, way, bridge, &unbind, |now| now == BridgeState::Nothing)
        });
        if last.is_ok() {
            break;
        }
    }
    last
}
