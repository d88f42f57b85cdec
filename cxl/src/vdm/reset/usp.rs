//! The end of a virtual link at the edge of the device (`vUSP`): sends Link Up and obeys resets.
//!
//! Its owner reports the state of the devices below, and passes messages in; it returns messages and
//! [`LinkEvent`]s.
//!
//! Source: docs/spec/wire-formats.md §3.7, §3.8; CXL 3.1 sections 7.7.6.4, 7.7.11.1.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::VdmOp;

use super::link::{Binding, LinkCounts, LinkEvent, LinkState, Reset};
use crate::vdm::{Due, Retry, Vdm};

/// Range of the 3-bit count in Link Up.
const COUNTS: u8 = 8;

/// The `vUSP` of a virtual link: its end at the edge switch of the device.
#[derive(Clone, Debug)]
pub struct VirtualUsp {
    binding: Binding,
    state: LinkState,
    lost: bool,
    /// Number of times that the devices below lost their state, modulo 8.
    count: u8,
    /// The other end may not know that the link was down, so its TLPs do not confirm Link Up.
    unknown: bool,
    retry: Retry,
    counts: LinkCounts,
}

impl VirtualUsp {
    /// A new binding; the devices below are not ready yet.
    #[must_use]
    pub fn bind(binding: Binding) -> Self {
        let (retry, counts) = (Retry::default(), LinkCounts::default());
        let state = LinkState::Down;
        Self { binding, state, lost: false, count: 0, unknown: false, retry, counts }
    }

    /// State of the virtual link.
    #[must_use]
    pub const fn state(&self) -> LinkState {
        self.state
    }

    #[must_use]
    pub const fn counts(&self) -> LinkCounts {
        self.counts
    }

    /// The devices below are ready: sends Link Up, unless a reset holds.
    pub fn ready(&mut self, now: Instant) {
        if self.state == LinkState::Down && !self.lost {
            self.state = LinkState::Up;
            self.retry.start(now);
        }
    }

    /// A TLP of the binding, other than these messages, came from the other end: it has received Link Up, unless it
    /// may have missed that the link was down.
    pub fn heard(&mut self) {
        if !self.unknown {
            self.retry.stop();
        }
    }

    /// The devices below are gone: the link is down until [`Self::ready`].
    ///
    /// The standard has no message for this; the fabric manager informs the host's edge.
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

    /// A link under the virtual one was lost: the devices below see their link go down. A reset continues.
    pub fn path_lost(&mut self) -> Option<LinkEvent> {
        self.lost = true;
        self.device_lost()
    }

    /// There is a path again; the owner may call [`Self::ready`].
    pub fn path_back(&mut self) {
        self.lost = false;
    }

    /// Receives a message. The same message twice changes nothing the second time.
    pub fn receive(&mut self, now: Instant, vdm: &Vdm) -> Option<LinkEvent> {
        if !self.binding.matches(vdm) {
            self.counts.foreign += 1;
            return None;
        }
        match (vdm.op, self.state) {
            // Sent before the loss of the path; the other end repeats what still holds.
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
                // The other end asks: Link Up was lost, or was sent before the other end was bound.
                self.retry.start(now);
                None
            }
            // `ready` will send Link Up anyway.
            (VdmOp::DeassertReset, LinkState::Down) => None,
            _ => {
                self.counts.unexpected += 1;
                None
            }
        }
    }

    /// The next message to send; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Vdm> {
        match self.retry.tick(now) {
            Due::Send => {
                self.counts.sent += 1;
                let link_up = self.binding.message(VdmOp::LinkUp);
                Some(Vdm { cmd_seq: self.count, ..link_up })
            }
            Due::GaveUp => {
                // All ten were sent: if one arrived, the other end has compared the count; if not, it asks.
                self.unknown = false;
                None
            }
            Due::Nothing => None,
        }
    }

    /// Time of the next poll; `None` without a message to repeat.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        self.retry.at
    }

    fn assert(&mut self, reset: Reset) -> Option<LinkEvent> {
        self.retry.stop();
        // A hot reset within a fundamental one changes nothing; a repeated order neither.
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
