//! PID assignment: targets (5703h), assignments (5704h), and bindings by PID (5705h).
//!
//! A target is a port; its id is the port's index among all ports. Each port has the number of PIDs in its
//! configuration. A PID that a binding uses as its own end is neither cleared nor replaced until the binding is gone.
//!
//! Source: docs/spec/wire-formats.md §4.5; CXL 3.1 section 7.7.6.5.

use weft_cxl::cci::{Done, Reply};
use weft_dataplane::pbr::tables::Assigned;
use weft_parsers::cci::pbr::{
    AssignOp, AssignPids, GetPidTargets, PathCost, PidAssignment, PidBinding, PidTarget,
    PidTargetKind, PidTargets, Vppb,
};
use weft_parsers::cci::{List, Response, ReturnCode};
use weft_parsers::fabric::Pid;

use super::{DONE, NONE_SUCH, invalid, listed};
use crate::config::Role;
use crate::port::Port;
use crate::switch::Switch;
use crate::vcs::{Bound, PidBound};

impl Switch {
    pub(super) fn pid_targets(&self, range: GetPidTargets, reply: &mut Reply) -> Done {
        let mut all = Vec::new();
        for (id, port) in (0..=u16::MAX).zip(&self.ports) {
            let vcs = (0..=u8::MAX).zip(&self.vcses).find(|(_, vcs)| vcs.usp == Some(port.id));
            let kind = match port.role {
                Role::Fabric => PidTargetKind::FabricPort,
                Role::Usp => PidTargetKind::HostEdge,
                Role::Dsp => PidTargetKind::DownstreamEdge,
            };
            for (instance, &pid) in (0..=u8::MAX).zip(&port.pids) {
                let vcs = vcs.map_or(0, |(index, _)| index);
                all.push(PidTarget { id, kind, instance, vcs, port: port.id.get(), pid });
            }
        }
        let span = listed(range.start.into(), range.count.into(), all.len())?;
        let targets = PidTargets {
            total: u16::try_from(all.len()).unwrap_or(u16::MAX),
            targets: List::of(all.get(span).unwrap_or_default()),
        };
        reply.send(&Response::GetPidTargets(targets))
    }

    pub(crate) fn assign_pids(&mut self, request: &AssignPids<'_>) -> Done {
        // Work on copies: the list applies completely or not at all.
        let mut ports = self.ports.clone();
        let mut tables = self.tables.clone();
        for assignment in request.assignments.iter() {
            let PidAssignment { pid, target, instance } = assignment;
            let port = ports.get_mut(usize::from(target)).ok_or(NONE_SUCH)?;
            let id = port.id;
            let place = port.pids.get_mut(usize::from(instance)).ok_or(NONE_SUCH)?;
            // A manager that clears a PID must name the current one, or it works from an old picture.
            if pid.is_none() || (request.op == AssignOp::Clear && *place != pid) {
                return Err(ReturnCode::InvalidInput);
            }
            let old = core::mem::replace(place, Pid::NONE);
            // Assigning the same PID again changes nothing, even while a binding uses it.
            let keeps = request.op == AssignOp::Assign && old == pid;
            if !old.is_none() && !keeps {
                if self.is_bound_by(old) {
                    return Err(ReturnCode::InvalidInput);
                }
                invalid(tables.clear(old))?;
            }
            if request.op == AssignOp::Assign {
                // `tables` holds the assignments made so far, so duplicates within one command are found, too.
                if !keeps && tables.assigned().any(|(taken, _)| taken == pid) {
                    return Err(ReturnCode::InvalidInput);
                }
                invalid(tables.assign(pid, Assigned::Port(id)))?;
                *place = pid;
            }
        }
        self.ports = ports;
        self.tables = tables;
        // A port's edge compares sources with its PIDs.
        let touched: Vec<_> = self.ports.iter().map(|port| port.id).collect();
        for port in touched {
            self.touch_port(port);
        }
        // Links that waited for a PID come up in the same command, before its response is sent.
        self.find_own_pids();
        // Routes of CacheIDs name a port by its first PID, which may be another one now.
        for vcs in (0..=u8::MAX).take(self.vcses.len()) {
            self.drop_stale_cache_ids(vcs);
        }
        DONE
    }

    /// Whether a binding uses this PID as its own end.
    fn is_bound_by(&self, pid: Pid) -> bool {
        self.pid_bounds().any(|bound| bound.own == Some(pid))
    }

    /// All virtual links that end at this switch.
    fn pid_bounds(&self) -> impl Iterator<Item = PidBound> {
        self.vcses.iter().flat_map(|vcs| &vcs.vppbs).filter_map(|vppb| match vppb.bound {
            Bound::Pid(bound) => Some(bound),
            _ => None,
        })
    }

    /// The PID of this end of a virtual link from a vPPB of `vcs` to `far`: one of the host's port at a host's edge,
    /// one of a fabric port at a vUSP. Takes the first PID without a link to `far`, since two links must differ in at
    /// least one end.
    pub(super) fn own_pid(&self, vcs: u8, far: Pid) -> Option<Pid> {
        self.own_pids(vcs, far).next()
    }

    /// All PIDs that this end of such a link may use.
    pub(super) fn own_pids(&self, vcs: u8, far: Pid) -> impl Iterator<Item = Pid> {
        let owner = self.vcs(vcs);
        let mine = move |port: &&Port| match owner.map(|owner| owner.usp) {
            Some(Some(usp)) => port.id == usp,
            Some(None) => port.role == Role::Fabric,
            None => false,
        };
        let all = self.ports.iter().filter(mine).flat_map(|port| port.pids.iter().copied());
        let taken = move |own| self.pid_bounds().any(|it| it.own == Some(own) && it.far == far);
        all.filter(move |&own| !own.is_none() && !taken(own))
    }

    /// Names the virtual links that had no own PID, if one is free now.
    fn find_own_pids(&mut self) {
        let vcses = (0..=u8::MAX).zip(&self.vcses);
        let waiting: Vec<(Vppb, Pid)> = vcses
            .flat_map(|(vcs, state)| {
                (0..=u8::MAX).zip(&state.vppbs).filter_map(move |(vppb, state)| match state.bound {
                    Bound::Pid(PidBound { own: None, far, .. }) => Some((Vppb { vcs, vppb }, far)),
                    _ => None,
                })
            })
            .collect();
        for (at, far) in waiting {
            if let Some(own) = self.own_pid(at.vcs, far) {
                self.name_end(at, own);
            }
        }
    }

    pub(super) fn pid_binding(&self, at: Vppb, reply: &mut Reply) -> Done {
        let vcs = self.vcs_of(at.vcs)?;
        let free = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
        let (pid, cost) = match self.vppb_of(at)?.bound {
            Bound::Pid(bound) => (bound.far, bound.cost),
            _ => (Pid::NONE, free),
        };
        let own = self.common.ownership.pid();
        // At the host's own edge the managing PID is this switch; below a link the manager sets it (`set_host_edge`).
        let host_edge = if vcs.usp.is_some() { own } else { vcs.host_edge };
        reply.send(&Response::GetPidBinding(PidBinding { pid, host_edge, cost }))
    }
}
