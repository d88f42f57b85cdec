//! The short way of an endpoint on a wire in virtual time, where most polls take one frame or send one.
//!
//! [`Endpoint::poll_wire`] has the effect of a poll at a port. While nothing is paused, limited or late it skips all
//! else: a frame in, an answer or a request out, and the time of the next poll.
//!
//! Source: docs/spec/model.md §4.

use weft_dataplane::port::Port;
use weft_dataplane::port::wire::Wire;
use weft_dataplane::time::{Instant, Span};

use super::{Calm, Endpoint};
use crate::link::{Link, RX_BURSTS, WireLink};

impl Endpoint {
    /// Like [`Self::poll`] on a wire in virtual time, without buffers in between; returns when to poll next. With
    /// `fronts` only the first [`FRONT_LEN`](weft_dataplane::pool::FRONT_LEN) bytes of each frame are written.
    pub fn poll_wire(&mut self, now: Instant, wire: &mut Wire, fronts: bool) -> Option<Instant> {
        let mut more = false;
        if wire.is_due(now) {
            let rate = wire.caps().rate;
            let taken = wire.take_each(now, RX_BURSTS, |frame, len| {
                self.take_frame(now, rate, frame, len);
            });
            more = taken == RX_BURSTS;
        }
        // CNPs may have a delay, and late timers have frames sent again: both take the long way.
        let is_usual =
            self.calm == Calm::Yes && !more && self.cnps.is_empty() && !self.slots.is_late(now);
        let mut link = WireLink { wire, fronts, sent: 0 };
        if !is_usual {
            return self.rest(now, &mut link, 0, more).next;
        }
        let is_busy = link.wire.busy_until().is_some_and(|until| now < until);
        if !is_busy && !self.send_usual(now, &mut link) {
            return self.rest(now, &mut link, 0, false).next;
        }
        // Frames are put into slots when they can be sent, or before the next message comes.
        self.is_to_fill = true;
        let is_blocked = self.slots.has_ready() || !self.acks.is_empty() || self.fills();
        let mut wait = u64::MAX;
        if let Some(at) = link.wire.next_due() {
            wait = at.since(now).as_ps();
        }
        if is_blocked && let Some(at) = link.wire.busy_until() {
            wait = wait.min(at.since(now).as_ps());
        }
        if let Some(at) = self.slots.timer() {
            wait = wait.min(at.since(now).as_ps());
        }
        (wait < u64::MAX).then(|| now + Span::from_ps(wait))
    }

    /// Sends the next ACK or request on an idle wire; false if there is none.
    #[inline]
    fn send_usual(&mut self, now: Instant, link: &mut WireLink<'_>) -> bool {
        if link.room(now) == 0 {
            return false;
        }
        // ACKs go strictly before requests (docs/spec/model.md §4, "Slots"); CNPs are handled by the long way.
        if self.acks.is_empty() {
            self.fill_slots();
            let Some(granted) = self.slots.grant(now, u8::MAX) else { return false };
            self.make_request(now, &granted, link);
        } else {
            self.send_ack(now, 0, link);
        }
        true
    }

    /// Fills the slots while no frame is ready; returns whether one is ready after that.
    fn fills(&mut self) -> bool {
        self.fill_slots();
        self.slots.has_ready()
    }
}
