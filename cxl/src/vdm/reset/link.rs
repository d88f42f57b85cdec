//! Types that both ends of a virtual link share: binding, state, events, counts.
//!
//! Source: docs/spec/wire-formats.md §3.7, §3.8.

use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;

use crate::vdm::Vdm;

/// The two PIDs of a binding, as seen by one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// PID of this end's port.
    pub own: Pid,
    /// PID of the other end's port.
    pub far: Pid,
}

impl Binding {
    /// Whether a message is from the other end to this one, with Hie = 1.
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

/// Kind of reset that a host holds a port in, the stronger one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reset {
    /// Hot reset, by Assert Reset.
    Hot,
    /// Fundamental reset, by Assert PERST#.
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
    /// No link, or none yet after a reset.
    Down,
    /// The host holds the link in reset.
    Reset(Reset),
    /// The link is up: TLPs pass.
    Up,
}

/// An event of a virtual link, for its owner to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The link came up.
    Up,
    /// The link went down without an order.
    SurpriseDown,
    /// At the `vDSP`: the link went down and up at the other end; the devices below are as after power-on.
    Anew,
    /// No Link Up came for a Deassert Reset.
    NoAnswer,
    /// At the `vUSP`: reset the devices below.
    Asserted(Reset),
    /// At the `vUSP`: release the devices below from reset; the owner calls [`super::VirtualUsp::ready`] when they
    /// are back.
    Deasserted,
}

/// Counts of messages at one end of a virtual link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Messages sent, tries included.
    pub sent: u64,
    /// Messages of another binding.
    pub foreign: u64,
    /// Messages of this binding that this end, or its state, does not accept.
    pub unexpected: u64,
}
