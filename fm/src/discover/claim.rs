//! Ownership: makes a component the manager's, and gives it a PID.
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.8; CXL 3.1 section 7.7.13.1.

use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, Owners, PbrIdentity};
use weft_parsers::cci::{Opcode, Request, Uuid};
use weft_parsers::fabric::Pid;

use super::{Finding, Search};
use crate::cci::wires;
use crate::cci::{CallError, CciSession, Way};
use crate::model::graph::{Key, PortRef, SwitchId};
use crate::model::inventory::{Manager, Target, TargetKind};
use crate::model::lineage::Lineage;
use crate::plan::Assignment;

/// A component that now belongs to the manager.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub pid: Pid,
    /// The entry switch, if this is it: found again by another way.
    pub known: Option<SwitchId>,
    /// It belonged to the manager before, and kept its PID.
    pub ours_before: bool,
}

/// Asks a component for its PID and its managers.
///
/// # Errors
/// The component does not answer.
pub fn identify(fabric: &mut CciSession, way: Way) -> Result<PbrIdentity, CallError> {
    fabric.call(way, &Request::IdentifyPbrComponent)?.read()
}

/// Sends Claim Ownership, and checks that `manager` is the primary manager afterwards.
///
/// # Errors
/// The component refused, or has another primary manager.
pub fn claim_as(
    fabric: &mut CciSession,
    way: Way,
    manager: Manager,
    op: ClaimOp,
    pid: Pid,
) -> Result<(), CallError> {
    let claim = ClaimOwnership { op, fm: manager.pid, fm_uuid: manager.uuid, pid };
    let owners = fabric.call(way, &Request::ClaimOwnership(claim));
    // An answer that was lost says nothing about the claim: the component does.
    let primary = match owners {
        Ok(answer) => answer.read::<Owners>()?.primary_uuid,
        Err(error) if error.is_refusal() => return Err(error),
        Err(error) => {
            let now = identify(fabric, way)?;
            if now.pid != pid || now.primary.is_none() {
                // Unclaimed, or without the PID that was to be given: the claim did not get through.
                return Err(error);
            }
            now.primary_uuid
        }
    };
    if primary == manager.uuid {
        return Ok(());
    }
    let what = "another fabric manager has become the primary one meanwhile";
    Err(CallError::Unexpected { way, opcode: Opcode::CLAIM_OWNERSHIP, what })
}

impl Search<'_> {
    /// Makes the component at `way`, found behind `at`, the manager's. Before a GFD gets its PID, its port at the edge
    /// gets the same: the edge lets a GFD send by no other.
    pub(super) fn claim(
        &mut self,
        way: Way,
        at: PortRef,
        uuid: Option<Uuid>,
        is_gfd: bool,
    ) -> Result<Claimed, Finding> {
        let manager = self.options.manager;
        let silent = |error| Finding::Silent { at, error };
        let now = identify(self.fabric, way).map_err(silent)?;
        if now.primary.is_none() {
            // No owner: it was never claimed, or was restarted. `fresh` has its settings restored later.
            let pid = self.pid_for(uuid, now.pid, at)?;
            if is_gfd {
                self.give(at, pid).map_err(silent)?;
            }
            claim_as(self.fabric, way, manager, ClaimOp::RegisterPrimary, pid).map_err(silent)?;
            self.fresh.insert(pid);
            return Ok(Claimed { pid, known: None, ours_before: false });
        }
        // Several managers: the owner may be the leader of an earlier term, whose successor this one is.
        if now.primary_uuid != manager.uuid
            && let Some(lineage) = self.options.lineage
        {
            self.succeed(way, &now, lineage, at, uuid)?;
        } else if now.primary_uuid != manager.uuid {
            if !(self.options.promote && now.secondary_uuid == manager.uuid) {
                return Err(Finding::Owned { at, uuid, owner: now.primary_uuid });
            }
            claim_as(self.fabric, way, manager, ClaimOp::PromoteSecondary, now.pid)
                .map_err(silent)?;
        }
        let known =
            // Only the entry switch has no UUID yet. A circle leads back to it, and its PID gives it away.
            self.found.by_id().find(|(_, switch)| switch.pid == now.pid && switch.uuid.is_none());
        if let Some((id, _)) = known {
            return Ok(Claimed { pid: now.pid, known: Some(id), ours_before: true });
        }
        let pid = self.pid_for(uuid, now.pid, at)?;
        if is_gfd {
            self.give(at, pid).map_err(silent)?;
        }
        let ours_before = pid == now.pid;
        // The entry switch does not know by whose connection this comes before it has been told.
        if !ours_before || way == Way::Entry {
            claim_as(self.fabric, way, manager, ClaimOp::UpdatePid, pid).map_err(silent)?;
        }
        Ok(Claimed { pid, known: None, ours_before })
    }

    /// Takes a component over from the leader of an earlier term, by the UUID that it registered for its successor. If
    /// that leader did not get so far, or its successor did not, the missing steps are taken in their names.
    fn succeed(
        &mut self,
        way: Way,
        now: &PbrIdentity,
        lineage: Lineage,
        at: PortRef,
        uuid: Option<Uuid>,
    ) -> Result<(), Finding> {
        let (manager, pid) = (self.options.manager, now.pid);
        let owned = |owner| Finding::Owned { at, uuid, owner };
        let silent = |error| Finding::Silent { at, error };
        if lineage.term_of(now.primary_uuid).is_none() {
            // Neither ours nor of an earlier term: another group of managers, or one with its own `fm.uuid`.
            return Err(owned(now.primary_uuid));
        }
        // Another term's UUID, or none, is registered as the secondary one.
        if now.secondary_uuid != manager.uuid || now.secondary.is_none() {
            let (op, before) = match lineage.term_of(now.secondary_uuid) {
                _ if now.secondary.is_none() => (ClaimOp::UpdatePid, now.primary_uuid),
                Some(_) => (ClaimOp::PromoteSecondary, now.secondary_uuid),
                None => return Err(owned(now.secondary_uuid)),
            };
            let before = Manager { uuid: before, ..manager };
            claim_as(self.fabric, way, before, op, pid).map_err(silent)?;
            let (op, fm, fm_uuid) = (ClaimOp::RegisterSecondary, manager.pid, manager.uuid);
            let claim = Request::ClaimOwnership(ClaimOwnership { op, fm, fm_uuid, pid });
            self.fabric.call(way, &claim).map_err(silent)?;
        }
        claim_as(self.fabric, way, manager, ClaimOp::PromoteSecondary, pid).map_err(silent)
    }

    /// The PID for a component: the one it had under this manager, the one it has, or the next that is free.
    fn pid_for(&mut self, uuid: Option<Uuid>, has: Pid, at: PortRef) -> Result<Pid, Finding> {
        let had = uuid.map_or(self.entry_had, |uuid| self.options.known.get(&uuid).copied());
        if let Some(had) = had.filter(|&had| !self.is_elsewhere(had, at)) {
            return Ok(had);
        }
        // Its own PID is not kept if another known component, silent now, is to get it back.
        let others = self.options.known.values().any(|&pid| pid == has) && uuid.is_some();
        let kept = self.options.reserved.contains(&has) || has == self.options.manager.pid;
        if !has.is_none() && !others && !kept && !self.is_elsewhere(has, at) {
            return Ok(has);
        }
        while let Some(pid) = Pid::assignable(self.next) {
            self.next += 1;
            if !self.taken.contains(&pid) {
                return Ok(pid);
            }
        }
        Err(Finding::Full { at, what: "PIDs" })
    }

    /// Whether a PID is in use elsewhere than behind this port.
    fn is_elsewhere(&self, pid: Pid, behind: PortRef) -> bool {
        self.found.pids().any(|(taken, at)| taken == pid && at != behind)
    }

    /// Assigns the PID of a GFD to the downstream port in front of it.
    fn give(&mut self, at: PortRef, pid: Pid) -> Result<(), CallError> {
        let Some(switch) = self.found.switch(at.switch) else { return Ok(()) };
        let of_port = |t: &&Target| t.kind == TargetKind::Downstream && t.port == at.port;
        let Some(target) = switch.targets.iter().find(of_port).copied() else { return Ok(()) };
        if switch.targets.iter().filter(of_port).any(|target| target.pid == pid) {
            return Ok(());
        }
        // The old PID is cleared first, so that nothing depends on a switch replacing it.
        let instead_of = (!target.pid.is_none()).then_some(target.pid);
        let (way, instance) = (switch.way(), target.instance);
        let one = Assignment { at: at.switch, target: target.id, instance, pid, instead_of };
        wires::assign(self.fabric, way, &[one])?;
        // The inventory is read before GFDs are claimed; targets must show the new PID when routes are planned.
        let targets = self.found.switches.get_mut(at.switch.index()).map(|s| &mut s.targets);
        for place in targets.into_iter().flatten() {
            if (place.id, place.instance) == (target.id, instance) {
                place.pid = pid;
            }
        }
        Ok(())
    }

    /// Whether the component that answers at this PID has it, and belongs to the manager.
    pub(super) fn answers(&mut self, pid: Pid) -> bool {
        identify(self.fabric, Way::Pid(pid))
            .is_ok_and(|now| now.pid == pid && now.primary_uuid == self.options.manager.uuid)
    }
}
