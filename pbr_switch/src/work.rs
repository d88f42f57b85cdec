//! The bind or unbind in progress.
//!
//! At most one [`Work`] exists at a time; `switch::bind` starts and finishes it.
//!
//! Source: docs/spec/wire-formats.md §4.3, §4.5; docs/spec/cxl-fabric.md "Binding".

use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::{PathCost, Vppb};
use weft_parsers::cci::vcs::UnbindOption;
use weft_parsers::fabric::Pid;

/// A bind or unbind with its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bind vPPB (5201h).
    Bind {
        vcs: u8,
        vppb: u8,
        port: PortId,
        /// LD-ID; `None` for the whole device.
        ld: Option<u16>,
    },
    /// Unbind vPPB (5202h).
    Unbind { vcs: u8, vppb: u8, option: UnbindOption },
    /// Configure PID Binding (5706h), bind.
    BindPid {
        vcs: u8,
        vppb: u8,
        /// PID of the other end.
        far: Pid,
        /// PID of this end; `None` lets the switch choose one.
        own: Option<Pid>,
        /// Latency and bandwidth that the path adds.
        cost: PathCost,
    },
    /// Configure PID Binding (5706h), unbind.
    UnbindPid { vcs: u8, vppb: u8 },
}

impl Work {
    /// The vPPB that it concerns.
    pub const fn at(&self) -> Vppb {
        match *self {
            Self::Bind { vcs, vppb, .. }
            | Self::Unbind { vcs, vppb, .. }
            | Self::BindPid { vcs, vppb, .. }
            | Self::UnbindPid { vcs, vppb } => Vppb { vcs, vppb },
        }
    }
}
