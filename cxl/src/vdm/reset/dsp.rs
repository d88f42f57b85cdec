//! The end of a virtual link at the host's edge (`vDSP`): sends resets until the other end has answered.
//!
//! Its owner passes in the host's orders and received messages; it returns messages and [`LinkEvent`]s.
//!
//! Units: picoseconds.
//! Source: docs/spec/wire-formats.md §3.7, §3.8; CXL 3.1 section 7.7.6.4.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::VdmOp;

use super::link::{Binding, LinkCounts, LinkEvent, LinkState, Reset};
use crate::vdm::{Due, Retry, TRIES_MAX, Vdm};

/// The `vDSP` of a virtual link: its end at the edge switch of the host.
#[derive(Clone, Debug)]
pub struct VirtualDsp {
    binding: Binding,
    state: LinkState,
    lost: bool,
    sending: Option<VdmOp>,
    /// Count in the last Link Up.
    count: u8,
    /// The reset that is still to be sent has ended already; a Deassert follows it.
    ends: bool,
    retry: Retry,
    counts: LinkCounts,
}

impl VirtualDsp {
    /// A new binding. With `held` the host holds the port in reset; otherwise asks the other end for Link Up.
    #[must_use]
    pub fn bind(now: Instant, binding: Binding, held: Option<Reset>) -> Self {
        let (retry, counts) = (Retry::default(), LinkCounts::default());
        let state = LinkState::Down;
        let mut end = Self {
            binding,
            state,
            lost: false,
            sending: None,
            count: 0,
            ends: false,
            retry,
            counts,
        };
        match held {
            Some(reset) => end.assert(now, reset),
            None => end.deassert(now),
        }
        end
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

    /// The host resets the devices below. A hot reset within a fundamental one changes nothing.
    pub fn assert(&mut self, now: Instant, reset: Reset) {
        if let LinkState::Reset(held) = self.state
            && held >= reset
        {
            return;
        }
        self.state = LinkState::Reset(reset);
        self.order(now, reset.op());
    }

    /// The host ends the reset; the link is down until Link Up comes.
    pub fn deassert(&mut self, now: Instant) {
        if self.state == LinkState::Up {
            return;
        }
        // No try of the Assert has been sent yet, so a Deassert now would make the other end miss the reset.
        let unsaid = matches!(self.state, LinkState::Reset(_)) && self.retry.left == TRIES_MAX;
        self.state = LinkState::Down;
        if unsaid && !self.lost {
            self.ends = true; // once the other end has been told that it began
            return;
        }
        self.order(now, VdmOp::DeassertReset);
    }

    /// A link under the virtual one was lost: nothing is sent or accepted until [`Self::path_back`].
    pub fn path_lost(&mut self) -> Option<LinkEvent> {
        (self.lost, self.ends) = (true, false);
        self.retry.stop();
        match self.state {
            LinkState::Up => {
                self.state = LinkState::Down;
                Some(LinkEvent::SurpriseDown)
            }
            LinkState::Reset(_) | LinkState::Down => None,
        }
    }

    /// There is a path again: sends the order that holds.
    pub fn path_back(&mut self, now: Instant) {
        if !core::mem::take(&mut self.lost) {
            return;
        }
        match self.state {
            LinkState::Reset(reset) => self.order(now, reset.op()),
            LinkState::Down | LinkState::Up => self.order(now, VdmOp::DeassertReset),
        }
    }

    /// Receives a message of the other end.
    pub fn receive(&mut self, vdm: &Vdm) -> Option<LinkEvent> {
        if !self.binding.matches(vdm) {
            self.counts.foreign += 1;
            return None;
        }
        match (vdm.op, self.state) {
            // While a reset is still to be sent, a Link Up belongs to the time before it.
            (VdmOp::LinkUp, LinkState::Down) if !self.lost && !self.ends => {
                self.state = LinkState::Up;
                self.count = vdm.cmd_seq;
                self.retry.stop();
                Some(LinkEvent::Up)
            }
            // A repeated Link Up; another count means that the devices below lost their state, unnoticed by this
            // end.
            (VdmOp::LinkUp, LinkState::Up) if !self.lost => {
                let was = core::mem::replace(&mut self.count, vdm.cmd_seq);
                (was != vdm.cmd_seq).then_some(LinkEvent::Anew)
            }
            _ => {
                self.counts.unexpected += 1;
                None
            }
        }
    }

    /// A message or an event that is due; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Result<Vdm, LinkEvent>> {
        match (self.retry.tick(now), self.sending) {
            (Due::Send, Some(op)) => {
                self.counts.sent += 1;
                // The Assert goes out once now, and the Deassert replaces its further tries.
                if core::mem::take(&mut self.ends) {
                    self.order(now, VdmOp::DeassertReset);
                }
                Some(Ok(self.binding.message(op)))
            }
            // An Assert that runs out of tries is no event: nothing answers it.
            (Due::GaveUp, Some(VdmOp::DeassertReset)) => Some(Err(LinkEvent::NoAnswer)),
            _ => None,
        }
    }

    /// Time of the next poll; `None` without an order to repeat.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        self.retry.at
    }

    fn order(&mut self, now: Instant, op: VdmOp) {
        (self.sending, self.ends) = (Some(op), false);
        // Without a path the order waits for `path_back`.
        if !self.lost {
            self.retry.start(now);
        }
    }
}
