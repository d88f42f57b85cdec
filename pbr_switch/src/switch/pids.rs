//! PID assignment: targets (5703h) and assignments (5704h).
//!
//! A target is a port; its id is the port's index among all ports. Each port has the number of PIDs in its
//! configuration. A PID that a binding uses as its own end is neither cleared nor replaced until the binding is gone.
//!
//! Source: docs/spec/wire-formats.md §4.5; CXL 3.1 section 7.7.6.5.

use weft_cxl::cci::{Done, Reply};
use weft_parsers::cci::pbr::{AssignPids, GetPidTargets, PidTarget, PidTargetKind, PidTargets};
use weft_parsers::cci::{List, Response};

use super::Switch;
use crate::cci::{DONE, listed};
use crate::config::Role;

impl Switch {
    pub(super) fn pid_targets(&self, range: GetPidTargets, reply: &mut Reply) -> Done {
        let mut all = Vec::new();
        for (id, port) in (0..=u16::MAX).zip(self.ports.all()) {
            let vcs = self.vcses.iter().find(|(_, vcs)| vcs.usp == Some(port.id));
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
        let (mut ports, mut routing) = (self.ports.clone(), self.routing.clone());
        for assignment in request.assignments.iter() {
            let is_used = |pid| self.vcses.is_bound_by(pid);
            routing.assign(&mut ports, request.op, assignment, is_used)?;
        }
        (self.ports, self.routing) = (ports, routing);
        // A port's edge compares sources with its PIDs.
        self.ports.ids().iter().for_each(|port| self.vcses.touch_port(port));
        // Links that waited for a PID come up in the same command, before its response is sent.
        self.vcses.find_own_pids(&self.ports);
        // Routes of CacheIDs name a port by its first PID, which may be another one now.
        self.vcses.drop_stale_cache_ids(&self.ports);
        DONE
    }
}
