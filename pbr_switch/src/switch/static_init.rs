//! Sets a switch up from its configuration, with the checks of the equivalent commands.
//!
//! `Switch::start_static` applies a [`StaticInit`]; [`StaticInit::of`] reads one off a switch. A switch set up this way
//! offers none of the commands that would change the set-up: [`STATIC_COMMANDS`].
//!
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/spec/cxl-fabric.md "Start-up".

use std::sync::LazyLock;

use weft_cxl::cci::{Command, Component};
use weft_parsers::cci::pbr::{AssignOp, AssignPids, PidAssignment, Vppb};
use weft_parsers::cci::tables::{Rgt, SetDrt};
use weft_parsers::cci::{List, Opcode};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::Switch;
use crate::static_init::{BindingEnd, StaticBinding, StaticInit, StaticInitError, StaticPid};
use crate::vcs::{Bound, PidBound};
use crate::work::Work;

/// Commands that change the set-up. Access rights are among them, so G-FAM and GIM are not available either.
const CHANGE: [Opcode; 9] = [
    Opcode::BIND_VPPB,
    Opcode::UNBIND_VPPB,
    Opcode::ASSIGN_PIDS,
    Opcode::BIND_PID,
    Opcode::SET_DRT,
    Opcode::SET_RGT,
    Opcode::CONFIGURE_ACCESS,
    Opcode::CONFIGURE_LDST_ACCESS,
    Opcode::SET_PREFIX,
];

/// Commands of a statically configured switch beside those that every component has.
pub(super) static STATIC_COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(|| {
    Switch::COMMANDS.iter().filter(|command| !CHANGE.contains(&command.opcode)).copied().collect()
});

impl StaticInit {
    /// Reads the set-up off a switch in its current state, without the routes to its manager.
    #[must_use]
    pub fn of(switch: &Switch) -> Self {
        let ports = switch.ports.all().iter().flat_map(|port| {
            let pids = (0..=u8::MAX).zip(&port.pids).filter(|(_, pid)| !pid.is_none());
            pids.map(|(instance, &pid)| StaticPid { port: port.id, instance, pid })
        });
        let ownership = &switch.common.ownership;
        let manager = ownership.primary().map(|fm| fm.pid);
        let table = switch.tables().routes();
        let routes = (0..).map_while(Pid::assignable).map(|to| (to, table.drt(to)));
        let groups = (0..=u8::MAX).take(table.groups());
        let groups = groups.filter_map(|at| Some((at, table.rgt(at.into())?)));
        let mut binds = Vec::new();
        for (vcs, state) in switch.vcses.iter() {
            for (vppb, bridge) in (0..=u8::MAX).zip(&state.vppbs) {
                let to = match bridge.bound {
                    Bound::Port(port) if vppb > 0 => BindingEnd::Port(port),
                    Bound::Pid(PidBound { far, own: Some(own), cost, .. }) => {
                        BindingEnd::Link { own, far, cost }
                    }
                    // vPPB 0 of a host needs no entry, LDs are not part of a static set-up, and half a virtual link
                    // leads nowhere.
                    _ => continue,
                };
                binds.push(StaticBinding { vcs, vppb, to });
            }
        }
        Self {
            pid: ownership.pid(),
            targets: ports.collect(),
            // Groups are a table of fixed size; an entry of zeros was never set.
            groups: groups.filter(|(_, group)| group.emit() != [0; RgtEntry::LEN]).collect(),
            routes: routes
                .filter(|&(to, entry)| entry != DrtEntry::Invalid && Some(to) != manager)
                .collect(),
            binds,
        }
    }
}

impl Switch {
    /// Applies the set-up to a switch that has none.
    pub(super) fn start_static(&mut self, static_init: &StaticInit) -> Result<(), StaticInitError> {
        if static_init.pid.is_none() || !self.can_be(static_init.pid) {
            return Err(StaticInitError::Own(static_init.pid));
        }
        // The PID before the rest: `owned` assigns it, so that no port can take it below.
        self.common.ownership.set_pid(static_init.pid);
        self.owned();
        for &StaticPid { port, instance, pid } in &static_init.targets {
            let refused = StaticInitError::Target { port: port.get(), instance, pid };
            let target = self.ports.all().iter().position(|other| other.id == port);
            let target = target.and_then(|at| u16::try_from(at).ok()).ok_or(refused)?;
            // `assign_pids` would replace a PID that an earlier entry has set; two entries for one place are a mistake.
            let has = self.port(port).and_then(|port| port.pids.get(usize::from(instance)));
            if has.is_none_or(|has| !has.is_none()) {
                return Err(refused);
            }
            let assignment = [PidAssignment { pid, target, instance }];
            let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&assignment) };
            self.assign_pids(&assign).map_err(|_| refused)?;
        }
        for &(at, group) in &static_init.groups {
            let entry = [group];
            let set = Rgt { table: 0, start: at.into(), entries: List::of(&entry) };
            self.routing.set_rgt(&set).map_err(|_| StaticInitError::Group(at))?;
        }
        for &(to, entry) in &static_init.routes {
            let entry = [entry];
            let set = SetDrt { table: 0, start: to.bits(), entries: List::of(&entry) };
            self.routing.set_drt(&set).map_err(|_| StaticInitError::Route(to))?;
        }
        // Bindings last: a virtual link needs the PID of its end here.
        for bind in &static_init.binds {
            self.bind_static(bind)
                .ok_or(StaticInitError::Bind { vcs: bind.vcs, vppb: bind.vppb })?;
        }
        self.refresh();
        Ok(())
    }

    fn bind_static(&mut self, bind: &StaticBinding) -> Option<()> {
        let StaticBinding { vcs, vppb, to } = *bind;
        // `check` accepts a second bind to the same end as a new cost; here it is a duplicate entry.
        if self.vcses.vppb(Vppb { vcs, vppb }).ok()?.bound != Bound::No {
            return None;
        }
        match to {
            BindingEnd::Port(port) => self.do_now(&Work::Bind { vcs, vppb, port, ld: None }),
            BindingEnd::Link { own, far, cost } => {
                self.do_now(&Work::BindPid { vcs, vppb, far, own: Some(own), cost })
            }
        }
    }
}
