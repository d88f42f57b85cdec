//! What a switch is started with where no fabric manager does it: PIDs, routing tables, bindings.
//!
//! Shape: [`StaticInit`] in [`super::SwitchConfig`], or [`StaticInit::of`] a switch that a manager has set up. Such a switch has none
//! of the commands that would change it.
//! Units: PIDs of 12 bits.
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/spec/cxl-fabric.md "Start-up".

use std::sync::LazyLock;

use weft_cxl::cci::{Command, Component};
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::{AssignOp, AssignPids, PathCost, PidAssignment};
use weft_parsers::cci::tables::{Rgt, SetDrt};
use weft_parsers::cci::{List, Opcode};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::commands::Work;
use super::switch::Switch;
use super::vcs::{Bound, PidBound};

/// All that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticInit {
    /// The switch's own PID.
    pub pid: Pid,
    /// PIDs of its ports.
    pub targets: Vec<StaticPid>,
    /// Routing groups, by number.
    pub groups: Vec<(u8, RgtEntry)>,
    /// Routes.
    pub routes: Vec<(Pid, DrtEntry)>,
    /// What vPPBs are bound to.
    pub binds: Vec<StaticBinding>,
}

/// A PID of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPid {
    /// The port.
    pub port: PortId,
    /// Which of its PIDs.
    pub instance: u8,
    /// The PID.
    pub pid: Pid,
}

/// What a vPPB is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    /// The virtual switch.
    pub vcs: u8,
    /// The bridge.
    pub vppb: u8,
    /// To what.
    pub to: BindingEnd,
}

/// The other side of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingEnd {
    /// A port of this switch.
    Port(PortId),
    /// A virtual link.
    Link {
        /// PID of this end.
        own: Pid,
        /// PID of the other end.
        far: Pid,
        /// What the path adds.
        cost: PathCost,
    },
}

/// Why a switch cannot be set up so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticInitError {
    /// The switch's own PID.
    #[error("the switch cannot have PID {0}")]
    Own(Pid),
    /// No such port or instance, or the PID is none or another's.
    #[error("port {port} cannot have PID {pid} as its number {instance}")]
    Target {
        /// The port.
        port: u8,
        /// Which of its PIDs.
        instance: u8,
        /// The PID.
        pid: Pid,
    },
    /// There is no room for it, or one of its ports is not there.
    #[error("there cannot be such a routing group {0}")]
    Group(u8),
    /// The port or group is not there, or the PID is none.
    #[error("there cannot be such a route to PID {0}")]
    Route(Pid),
    /// No such bridge, port or PID, or one that is bound already.
    #[error("virtual switch {vcs}: vPPB {vppb} cannot be bound to that")]
    Bind {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
    },
}

/// Commands that change what is set up; G-FAM and GIM begin with rights, which are among it.
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

/// Commands that a switch has besides those of every component, when it is set up from the start.
pub(super) static STATIC_COMMANDS: LazyLock<Vec<Command>> = LazyLock::new(|| {
    Switch::COMMANDS.iter().filter(|command| !CHANGE.contains(&command.opcode)).copied().collect()
});

impl StaticInit {
    /// What a switch has been set up with, but for routes to its manager.
    #[must_use]
    pub fn of(switch: &Switch) -> Self {
        let ports = switch.ports.iter().flat_map(|port| {
            let pids = (0..=u8::MAX).zip(&port.pids).filter(|(_, pid)| !pid.is_none());
            pids.map(|(instance, &pid)| StaticPid { port: port.id, instance, pid })
        });
        let ownership = &switch.common.ownership;
        let manager = ownership.primary().map(|fm| fm.pid);
        let table = switch.tables.routes();
        let routes = (0..).map_while(Pid::assignable).map(|to| (to, table.drt(to)));
        let groups = (0..=u8::MAX).take(table.groups());
        let groups = groups.filter_map(|at| Some((at, table.rgt(at.into())?)));
        let mut binds = Vec::new();
        for (vcs, state) in (0..=u8::MAX).zip(&switch.vcses) {
            for (vppb, bridge) in (0..=u8::MAX).zip(&state.vppbs) {
                let to = match bridge.bound {
                    Bound::Port(port) if vppb > 0 => BindingEnd::Port(port),
                    Bound::Pid(PidBound { far, own: Some(own), cost, .. }) => {
                        BindingEnd::Link { own, far, cost }
                    }
                    // The host's port is the host's; there are no logical devices, and half a link is none.
                    _ => continue,
                };
                binds.push(StaticBinding { vcs, vppb, to });
            }
        }
        Self {
            pid: ownership.pid(),
            targets: ports.collect(),
            groups: groups.filter(|(_, group)| group.emit() != [0; RgtEntry::LEN]).collect(),
            routes: routes
                .filter(|&(to, entry)| entry != DrtEntry::Invalid && Some(to) != manager)
                .collect(),
            binds,
        }
    }
}

impl Switch {
    /// Sets it up; it has nothing yet.
    pub(super) fn start_static(&mut self, static_init: &StaticInit) -> Result<(), StaticInitError> {
        if static_init.pid.is_none() || !self.can_be(static_init.pid) {
            return Err(StaticInitError::Own(static_init.pid));
        }
        self.common.ownership.set_pid(static_init.pid);
        self.owned();
        for &StaticPid { port, instance, pid } in &static_init.targets {
            let refused = StaticInitError::Target { port: port.get(), instance, pid };
            let target = self.ports.iter().position(|other| other.id == port);
            let target = target.and_then(|at| u16::try_from(at).ok()).ok_or(refused)?;
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
            self.set_rgt(&set).map_err(|_| StaticInitError::Group(at))?;
        }
        for &(to, entry) in &static_init.routes {
            let entry = [entry];
            let set = SetDrt { table: 0, start: to.bits(), entries: List::of(&entry) };
            self.set_drt(&set).map_err(|_| StaticInitError::Route(to))?;
        }
        for bind in &static_init.binds {
            self.bind_static(bind)
                .ok_or(StaticInitError::Bind { vcs: bind.vcs, vppb: bind.vppb })?;
        }
        self.refresh();
        Ok(())
    }

    fn bind_static(&mut self, bind: &StaticBinding) -> Option<()> {
        let StaticBinding { vcs, vppb, to } = *bind;
        if self.vcs(vcs)?.vppbs.get(usize::from(vppb))?.bound != Bound::No {
            return None;
        }
        match to {
            BindingEnd::Port(port) => self.do_now(&Work::Bind { vcs, vppb, port, ld: None }),
            BindingEnd::Link { own, far, cost } => {
                let is_free = self.own_pids(vcs, far).any(|pid| pid == own);
                is_free.then_some(())?;
                self.do_now(&Work::BindPid { vcs, vppb, far, own: Some(own), cost })
            }
        }
    }
}
