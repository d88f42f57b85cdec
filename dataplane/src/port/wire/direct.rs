//! Takes frames off a wire and puts them on it without a pool, for an end that reads and writes each one at once.
//!
//! [`Wire::take_each`], [`Wire::offer_each`] and [`Wire::put`] do the same as `rx` and `tx` of a [`Port`], except for
//! cut-through.
//!
//! Source: docs/spec/model.md §2.

use super::{Wire, WireFrame};
use crate::port::Port;
use crate::port::flaw::Flaw;
use crate::time::Instant;

impl Wire {
    /// Whether [`Self::take_each`] may have work to do at `now`.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        // With outages or a pulled cable, frames may have to be dropped before they are due.
        if self.outage.is_some() || !self.end.link_up() {
            return true;
        }
        if self.due.is_none() {
            self.next_arrival();
        }
        self.due.is_some_and(|due| due <= now)
    }

    /// Whether a frame can be sent at `now`.
    #[inline]
    pub fn has_room(&mut self, now: Instant) -> bool {
        self.busy_until.is_none_or(|until| until <= now) && self.end.has_room()
    }

    /// Time of the next event here, like [`Port::next_event`].
    #[inline]
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        if self.outage.is_none() { self.due } else { self.next_event() }
    }

    /// Whether the link has outages.
    #[inline]
    #[must_use]
    pub const fn has_outages(&self) -> bool {
        self.outage.is_some()
    }

    /// End of the current transmission; it may lie before `now`.
    #[inline]
    #[must_use]
    pub const fn busy_until(&self) -> Option<Instant> {
        self.busy_until
    }

    /// Passes the frames that are due by `now` to `take`, at most `most`, each with its carried bytes and its length;
    /// returns how many.
    pub fn take_each(
        &mut self,
        now: Instant,
        most: usize,
        mut take: impl FnMut(&[u8], usize),
    ) -> usize {
        self.offer_each(now, most, |frame, len| {
            take(frame, len);
            true
        })
    }

    /// Like [`Self::take_each`], up to the first frame for which `take` returns false; that frame stays on the wire.
    pub fn offer_each(
        &mut self,
        now: Instant,
        most: usize,
        mut take: impl FnMut(&[u8], usize) -> bool,
    ) -> usize {
        debug_assert!(!self.config.cut_through, "a frame is whole when it is taken");
        self.begin(now);
        let mut taken = 0;
        while taken < most
            && self.see(now, self.caps.frame_len_max)
            && let Some(frame) = self.end.rx.front()
            && take(frame.bytes(), frame.len())
        {
            taken += 1;
            self.taken();
        }
        taken
    }

    /// Sends a frame of `len` bytes at `now`, the first `kept` of which `fill` writes. Returns false, and sends
    /// nothing, if there is no room.
    #[inline]
    pub fn put(
        &mut self,
        now: Instant,
        len: usize,
        kept: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        if !self.has_room(now) {
            return false;
        }
        let idle = now + self.times.of(len);
        let at = idle + self.config.propagation;
        let least = self.config.len_least();
        let carried = len.max(least);
        let flaw = self.end.leaves(at, carried, Flaw::None);
        let frame = WireFrame::filled(at, flaw, kept.max(least), carried, |bytes| {
            if let Some(bytes) = bytes.get_mut(..kept) {
                fill(bytes);
            }
        });
        let is_sent = self.end.tx.push(frame).is_ok();
        debug_assert!(is_sent, "room was asked for");
        self.carried.0 += 1;
        self.carried.1 += carried as u64;
        self.busy_until = Some(idle);
        true
    }
}
