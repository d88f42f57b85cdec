//! The end of a virtual link at the edge that the device hangs on: it says Link Up and obeys resets.
//!
//! The state of what is below and the messages that come, in; messages and [`LinkEvent`]s out.
//!
//! Units: picoseconds.
//! Source: docs/spec/wire-formats.md §3.7, §3.8; CXL 3.1 sections 7.7.6.4, 7.7.11.1.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::VdmOp;

use super::link::{Binding, LinkCounts, LinkEvent, LinkState, Reset};
use crate::vdm::{Due, Retry, Vdm};

/// Values of the count in a message, 3 bits.
const COUNTS: u8 = 8;

/// The `vUSP` of a virtual link: its end at the edge switch of the device.
#[derive(Clone, Debug)]
pub struct VirtualUsp {
    binding: Binding,
    state: LinkState,
    lost: bool,
    /// How often what is below has begun anew, modulo 8.
    count: u8,
    /// The other end may not know that it has: what it sends tells nothing.
    unknown: bool,
    retry: Retry,
    counts: LinkCounts,
}

impl VirtualUsp {
    /// A new binding; what is below is not ready yet.
    #[must_use]
    pub fn bind(binding: Binding) -> Self {
        let (retry, counts) = (Retry::default(), LinkCounts::default());
        let state = LinkState::Down;
        Self { binding, state, lost: false, count: 0, unknown: false, retry, counts }
    }

    /// State of the link.
    #[must_use]
    pub const fn state(&self) -> LinkState {
        self.state
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// What is below is ready: says Link Up, unless a reset holds.
    pub fn ready(&mut self, now: Instant) {
        if self.state == LinkState::Down && !self.lost {
            self.state = LinkState::Up;
            self.retry.start(now);
        }
    }

    /// A TLP of the binding came from the other end, other than these messages: it has heard Link Up, unless it may have missed
    /// that the link was down.
    pub fn heard(&mut self) {
        if !self.unknown {
            self.retry.stop();
        }
    }

    /// What is below went away: the link is down until it is [`Self::ready`] again.
    ///
    /// The page has no message for it; the host's edge is told by the fabric manager.
    pub fn device_lost(&mut self) -> Option<LinkEvent> {
        self.retry.stop();
        if self.state != LinkState::Up {
            return None;
        }
        self.state = LinkState::Down;
        self.unknown = true;
        self.begin_anew();
        Some(LinkEvent::SurpriseDown)
    }

    /// A link under the virtual one was lost: what is below sees its link go down. A reset goes on.
    pub fn path_lost(&mut self) -> Option<LinkEvent> {
        self.lost = true;
        self.device_lost()
    }

    /// There is a path again; [`Self::ready`] may follow.
    pub fn path_back(&mut self) {
        self.lost = false;
    }

    /// Takes a message in. The same one twice changes nothing the second time.
    pub fn receive(&mut self, now: Instant, vdm: &Vdm) -> Option<LinkEvent> {
        if !self.binding.matches(vdm) {
            self.counts.foreign += 1;
            return None;
        }
        match (vdm.op, self.state) {
            _ if self.lost => {
                self.counts.unexpected += 1;
                None
            }
            (VdmOp::AssertPerst, _) => self.assert(Reset::Fundamental),
            (VdmOp::AssertReset, _) => self.assert(Reset::Hot),
            (VdmOp::DeassertReset, LinkState::Reset(_)) => {
                self.state = LinkState::Down;
                Some(LinkEvent::Deasserted)
            }
            (VdmOp::DeassertReset, LinkState::Up) => {
                self.retry.start(now); // it asks: Link Up was lost, or came before it was bound
                None
            }
            (VdmOp::DeassertReset, LinkState::Down) => None,
            _ => {
                self.counts.unexpected += 1;
                None
            }
        }
    }

    /// The next message to be sent; to be called until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Vdm> {
        match self.retry.tick(now) {
            Due::Send => {
                self.counts.sent += 1;
                let link_up = self.binding.message(VdmOp::LinkUp);
                Some(Vdm { cmd_seq: self.count, ..link_up })
            }
            Due::GaveUp => {
                self.unknown = false;
                None
            }
            Due::Nothing => None,
        }
    }

    /// When to poll next.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        self.retry.at
    }

    fn assert(&mut self, reset: Reset) -> Option<LinkEvent> {
        self.retry.stop();
        if let LinkState::Reset(held) = self.state
            && held >= reset
        {
            return None;
        }
        self.state = LinkState::Reset(reset);
        self.begin_anew();
        Some(LinkEvent::Asserted(reset))
    }

    const fn begin_anew(&mut self) {
        self.count = (self.count + 1) % COUNTS;
    }
}
