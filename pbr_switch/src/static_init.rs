//! Start-up configuration of a switch without a fabric manager: PIDs, routing tables, bindings.
//!
//! A [`StaticInit`] is part of [`super::SwitchConfig`]; [`StaticInit::of`] reads it off a switch that a manager has set
//! up. A [`StaticInitError`] says which entry does not fit.
//!
//! Source: CXL 3.1 section 7.7.12.1 (static fabric initialization); docs/spec/cxl-fabric.md "Start-up".

use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

/// PIDs, routes and bindings that a switch has from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticInit {
    /// The switch's own PID.
    pub pid: Pid,
    pub targets: Vec<StaticPid>,
    /// Routing groups, by number.
    pub groups: Vec<(u8, RgtEntry)>,
    /// DRT entries, by destination PID.
    pub routes: Vec<(Pid, DrtEntry)>,
    pub binds: Vec<StaticBinding>,
}

/// A PID that a port has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPid {
    pub port: PortId,
    /// Index among the port's PIDs.
    pub instance: u8,
    pub pid: Pid,
}

/// A binding that a vPPB has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBinding {
    pub vcs: u8,
    pub vppb: u8,
    pub to: BindingEnd,
}

/// The other side of a static binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingEnd {
    /// A whole port of this switch.
    Port(PortId),
    /// The far end of a virtual link.
    Link {
        /// PID of this end.
        own: Pid,
        /// PID of the other end.
        far: Pid,
        /// Latency and bandwidth that the path adds.
        cost: PathCost,
    },
}

/// The entry of a static set-up that does not fit the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticInitError {
    /// The switch cannot have this PID itself.
    #[error("the switch cannot have PID {0}")]
    Own(Pid),
    /// No such port or instance, or the PID is `FFF` or assigned already.
    #[error("port {port} cannot have PID {pid} as its number {instance}")]
    Target {
        port: u8,
        /// Index among the port's PIDs.
        instance: u8,
        pid: Pid,
    },
    /// No such group, or one of its ports does not exist.
    #[error("routing group {0} is not valid")]
    Group(u8),
    /// The port or group does not exist, or the PID is `FFF`.
    #[error("the route to PID {0} is not valid")]
    Route(Pid),
    /// No such bridge, port or PID, or the bridge is bound already.
    #[error("virtual switch {vcs}: vPPB {vppb} cannot be bound to that target")]
    Bind { vcs: u8, vppb: u8 },
}
