//! A bind or unbind that has been commanded and is not done yet.
//!
//! [`Work`], at most one at a time; `commands::bind` starts and finishes it.
//!
//! Units: PIDs of 12 bits.
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding".

use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::fabric::Pid;

/// A bind or unbind, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bind vPPB (5201h).
    Bind {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
        /// The port.
        port: PortId,
        /// The logical device; `None` for all of the device.
        ld: Option<u16>,
    },
    /// Unbind vPPB (5202h).
    Unbind {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
        /// How.
        option: UnbindOption,
    },
    /// Configure PID Binding (5706h), bind.
    BindPid {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
        /// PID of the other end.
        far: Pid,
        /// PID of this end; none where the switch finds one.
        own: Option<Pid>,
        /// What the path adds.
        cost: PathCost,
    },
    /// Configure PID Binding (5706h), unbind.
    UnbindPid {
        /// The virtual switch.
        vcs: u8,
        /// The bridge.
        vppb: u8,
    },
}

impl Work {
    /// The virtual switch and the bridge that it is about.
    pub const fn at(&self) -> (u8, u8) {
        match *self {
            Self::Bind { vcs, vppb, .. }
            | Self::Unbind { vcs, vppb, .. }
            | Self::BindPid { vcs, vppb, .. }
            | Self::UnbindPid { vcs, vppb } => (vcs, vppb),
        }
    }
}
