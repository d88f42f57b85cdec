//! Making a component the FM's: who owns it, and what PID it gets.
//!
//! [`Way`] -> [`Claimed`].
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.8; CXL 3.1 section 7.7.13.1.

use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, Owners, PbrIdentity};
use weft_parsers::cci::{Opcode, Request, Uuid};
use weft_parsers::fabric::Pid;

use super::{Finding, Search};
use crate::cci::{CallError, Fabric, Way};
use crate::graph::{Key, PortRef, SwitchId};
use crate::ha::identity::Lineage;
use crate::inventory::{Manager, Target, TargetKind};
use crate::plan::{Assignment, wires};

/// A component that is the FM's now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// Its PID.
    pub pid: Pid,
    /// A switch that was found before by another way.
    pub known: Option<SwitchId>,
    /// It was the FM's already, and kept its PID.
    pub ours_before: bool,
}

/// Asks a component who it is and whose.
///
/// # Errors
/// It does not answer.
pub fn identify(fabric: &mut Fabric, way: Way) -> Result<PbrIdentity, CallError> {
    fabric.call(way, &Request::IdentifyPbrComponent)?.read()
}

/// Sends Claim Ownership, and sees that `manager` is the primary one after.
///
/// # Errors
/// It was refused, or another is.
pub fn claim_as(
    fabric: &mut Fabric,
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
    /// Makes the component at `way`, found behind `at`, the FM's. The port of a GFD is given the GFD's PID before the GFD
    /// is: its edge lets it speak with no other.
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
            let pid = self.pid_for(uuid, now.pid, at)?;
            if is_gfd {
                self.give(at, pid).map_err(silent)?;
            }
            claim_as(self.fabric, way, manager, ClaimOp::RegisterPrimary, pid).map_err(silent)?;
            self.fresh.insert(pid);
            return Ok(Claimed { pid, known: None, ours_before: false });
        }
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

    /// Takes a component over from a manager that led before, by the UUID that it registered for whoever would lead next. Where
    /// it did not come so far, or who was next did not, the steps that are missing are taken in its name.
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
            return Err(owned(now.primary_uuid));
        }
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

    /// The PID of a component: the one it has, the one it had, or the next that is free.
    fn pid_for(&mut self, uuid: Option<Uuid>, has: Pid, at: PortRef) -> Result<Pid, Finding> {
        let had = uuid.map_or(self.entry_had, |uuid| self.options.known.get(&uuid).copied());
        if let Some(had) = had.filter(|&had| !self.is_elsewhere(had, at)) {
            return Ok(had);
        }
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

    /// Whether something else than what is behind a port has this PID.
    fn is_elsewhere(&self, pid: Pid, behind: PortRef) -> bool {
        self.found.pids().any(|(taken, at)| taken == pid && at != behind)
    }

    /// Gives a downstream port the PID of the GFD behind it.
    fn give(&mut self, at: PortRef, pid: Pid) -> Result<(), CallError> {
        let Some(switch) = self.found.switch(at.switch) else { return Ok(()) };
        let of_port = |t: &&Target| t.kind == TargetKind::Downstream && t.port == at.port;
        let Some(target) = switch.targets.iter().find(of_port).copied() else { return Ok(()) };
        if switch.targets.iter().filter(of_port).any(|target| target.pid == pid) {
            return Ok(());
        }
        let instead_of = (!target.pid.is_none()).then_some(target.pid);
        let (way, instance) = (switch.way(), target.instance);
        let one = Assignment { at: at.switch, target: target.id, instance, pid, instead_of };
        wires::assign(self.fabric, way, &[one])?;
        let targets = self.found.switches.get_mut(at.switch.index()).map(|s| &mut s.targets);
        for place in targets.into_iter().flatten() {
            if (place.id, place.instance) == (target.id, instance) {
                place.pid = pid;
            }
        }
        Ok(())
    }

    /// Whether a component of this PID answers by it, and is the FM's.
    pub(super) fn answers(&mut self, pid: Pid) -> bool {
        identify(self.fabric, Way::Pid(pid))
            .is_ok_and(|now| now.pid == pid && now.primary_uuid == self.options.manager.uuid)
    }
}
