//! What a switch is started with where no fabric manager does it: PIDs, routing tables, bindings.
//!
//! [`StaticInit`] in [`super::SwitchConfig`], or [`StaticInit::of`] a switch that a manager has set up; what is
//! wrong with one is a [`StaticInitError`].
//!
//! Units: PIDs of 12 bits.
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/spec/cxl-fabric.md "Start-up".

use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

/// What a switch is set up with from the start: PIDs, routes and bindings.
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

/// A PID that a port has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPid {
    /// The port.
    pub port: PortId,
    /// Which of its PIDs.
    pub instance: u8,
    /// The PID.
    pub pid: Pid,
}

/// A binding that a vPPB has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    /// The virtual switch.
    pub vcs: u8,
    /// The bridge.
    pub vppb: u8,
    /// To what.
    pub to: BindingEnd,
}

/// The other side of a static binding.
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
    #[error("routing group {0} is not valid")]
    Group(u8),
    /// The port or group is not there, or the PID is none.
    #[error("the route to PID {0} is not valid")]
    Route(Pid),
    /// No such bridge, port or PID, or one that is bound already.
    #[error("virtual switch {vcs}: vPPB {vppb} cannot be bound to that target")]
    Bind {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
    },
}
