//! What both ends of a virtual link share: the binding, the state, what is to be acted on, counts.
//!
//! Plain data.
//!
//! Units: messages.
//! Source: docs/spec/wire-formats.md §3.7, §3.8.

use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use crate::vdm::Vdm;

/// The two PIDs of a binding, as one end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// PID of this end's port.
    pub own: Pid,
    /// PID of the other end's.
    pub far: Pid,
}

impl Binding {
    /// Whether a message is from the other end to this one, hierarchically routed.
    #[must_use]
    pub fn matches(self, vdm: &Vdm) -> bool {
        vdm.pth.spid == self.far && vdm.pth.dpid == self.own && vdm.pth.hie
    }

    pub(super) fn message(self, op: VdmOp) -> Vdm {
        let mut vdm = Vdm::new(self.own, self.far, op);
        vdm.pth.hie = true;
        vdm
    }
}

/// Kinds of reset that a host can hold a port in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reset {
    /// Assert Reset.
    Hot,
    /// Assert PERST#.
    Fundamental,
}

impl Reset {
    pub(super) const fn op(self) -> VdmOp {
        match self {
            Self::Hot => VdmOp::AssertReset,
            Self::Fundamental => VdmOp::AssertPerst,
        }
    }
}

/// State of a virtual link at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// No link; or none yet, after a reset.
    Down,
    /// Held in reset.
    Reset(Reset),
    /// TLPs pass.
    Up,
}

/// What happened on a virtual link, for its owner to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link came up.
    Up,
    /// The link went down though nobody asked for it.
    SurpriseDown,
    /// At the `vDSP`: the link was down at the other end, and is up again; what is below is as after power-on.
    Anew,
    /// No Link Up came for a Deassert Reset.
    NoAnswer,
    /// At the `vUSP`: reset what is below.
    Asserted(Reset),
    /// At the `vUSP`: let what is below out of reset; [`super::VirtualUsp::ready`] says when it is back.
    Deasserted,
}

/// Counts of messages at one end of a virtual link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages sent.
    pub sent: u64,
    /// Messages of another binding.
    pub foreign: u64,
    /// Messages of this binding that are not for an end of this kind, or not in this state.
    pub unexpected: u64,
}
