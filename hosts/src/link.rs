//! What a host sends by and receives from: a port with a pool, or a wire, which needs none.
//!
//! [`Link`], of [`PortLink`] and [`WireLink`].
//!
//! Units: bytes without FCS.
//! Source: docs/spec/model.md §4, §7.

use std::collections::VecDeque;

use weft_dataplane::batch::{BURST, Batch};
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::{Bufs, FRONT_LEN};
use weft_dataplane::port::wire::Wire;
use weft_dataplane::port::{Port, csum};
use weft_dataplane::time::{Instant, LinkRate};

/// Most bursts that one poll takes in, so that sending is not starved.
pub(crate) const RX_BURSTS: usize = 16;

/// A way to other hosts.
pub(crate) trait Link {
    /// Of the link.
    fn rate(&self) -> LinkRate;

    /// Hands frames over, each with what is kept of it and its length; returns how many, and whether there may be more.
    fn take_in(&mut self, now: Instant, take: impl FnMut(&[u8], usize)) -> (usize, bool);

    /// Frames that can be sent now, at most a burst.
    fn room(&mut self, now: Instant) -> usize;

    /// Whether frames were made and not taken.
    fn has_pending(&self) -> bool;

    /// Frames that were made and not taken, which are now to be sent first: how many of them, up to `most`.
    fn again(&mut self, most: usize) -> usize;

    /// Whether one more can be made.
    fn reserve(&mut self) -> bool;

    /// What was reserved is not needed.
    fn unreserve(&mut self);

    /// Sends a frame of `len` bytes, for which there is room and which was reserved: `fill` writes all that is kept of it.
    fn send(&mut self, now: Instant, len: usize, fill: impl FnOnce(&mut [u8]));

    /// Ends a burst; returns how many frames of it are sent, and whether others were not taken.
    fn flush(&mut self, now: Instant) -> (usize, bool);

    /// When something happens at the link, as far as it knows.
    fn next_event(&mut self) -> Option<Instant>;

    /// When what is being sent is over.
    fn idle_at(&self) -> Option<Instant>;
}

/// Memory of a [`PortLink`].
#[derive(Default)]
pub(crate) struct Outbox {
    batch: Batch,
    /// Frames that the port did not take.
    pending: VecDeque<Desc>,
}

impl Outbox {
    /// Whether all that was made has been sent.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Gives chunks back.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.pending.drain(..) {
            bufs.free(desc);
        }
    }

    /// Bytes on the heap.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Desc>()
    }
}

/// Any port.
pub(crate) struct PortLink<'a> {
    pub port: &'a mut dyn Port,
    pub bufs: &'a mut Bufs,
    pub outbox: &'a mut Outbox,
    /// Memory of the frame that is made next.
    pub reserved: Option<Desc>,
}

impl Link for PortLink<'_> {
    fn rate(&self) -> LinkRate {
        self.port.caps().rate
    }

    fn take_in(&mut self, now: Instant, mut take: impl FnMut(&[u8], usize)) -> (usize, bool) {
        let Self { port, bufs, outbox, .. } = self;
        let mut received = 0;
        for _ in 0..RX_BURSTS {
            let had = port.rx(now, bufs, &mut outbox.batch);
            for desc in outbox.batch.drain(..) {
                // What a kernel on this machine sends may come with a checksum that is left to a device (veth).
                let desc = csum::complete(bufs, desc).unwrap_or_else(|desc| desc);
                take(bufs.bytes(&desc), desc.len());
                bufs.free(desc);
            }
            received += had;
            if had == 0 {
                return (received, false);
            }
        }
        (received, true)
    }

    fn room(&mut self, now: Instant) -> usize {
        self.port.tx_room(now).min(BURST)
    }

    fn has_pending(&self) -> bool {
        !self.outbox.is_empty()
    }

    fn again(&mut self, most: usize) -> usize {
        let Outbox { batch, pending, .. } = &mut *self.outbox;
        let count = pending.len().min(most);
        for desc in pending.drain(..count) {
            batch.push(desc);
        }
        count
    }

    fn reserve(&mut self) -> bool {
        if self.reserved.is_none() {
            self.reserved = self.bufs.alloc();
        }
        self.reserved.is_some()
    }

    fn unreserve(&mut self) {
        if let Some(desc) = self.reserved.take() {
            self.bufs.free(desc);
        }
    }

    fn send(&mut self, _now: Instant, len: usize, fill: impl FnOnce(&mut [u8])) {
        let Some(mut desc) = self.reserved.take() else { return };
        self.bufs.set_len(&mut desc, len);
        if let Some(out) = self.bufs.bytes_mut(&mut desc) {
            fill(out);
        }
        self.outbox.batch.push(desc);
    }

    fn flush(&mut self, now: Instant) -> (usize, bool) {
        let Outbox { batch, pending, .. } = &mut *self.outbox;
        let built = batch.len();
        if built > 0 {
            self.port.tx(now, self.bufs, batch);
        }
        let sent = built - batch.len();
        let is_refused = !batch.is_empty();
        pending.extend(batch.drain(..));
        (sent, is_refused)
    }

    fn next_event(&mut self) -> Option<Instant> {
        self.port.next_event()
    }

    fn idle_at(&self) -> Option<Instant> {
        self.port.idle_at()
    }
}

/// A wire in virtual time.
pub(crate) struct WireLink<'a> {
    pub wire: &'a mut Wire,
    /// Whether of each frame only the front is kept.
    pub fronts: bool,
    /// Frames sent that were not flushed.
    pub sent: usize,
}

impl Link for WireLink<'_> {
    #[inline]
    fn rate(&self) -> LinkRate {
        self.wire.caps().rate
    }

    #[inline]
    fn take_in(&mut self, now: Instant, take: impl FnMut(&[u8], usize)) -> (usize, bool) {
        if !self.wire.is_due(now) {
            return (0, false);
        }
        let received = self.wire.take_each(now, RX_BURSTS, take);
        (received, received == RX_BURSTS)
    }

    #[inline]
    fn room(&mut self, now: Instant) -> usize {
        usize::from(self.wire.has_room(now))
    }

    #[inline]
    fn has_pending(&self) -> bool {
        false
    }

    #[inline]
    fn again(&mut self, _most: usize) -> usize {
        0
    }

    #[inline]
    fn reserve(&mut self) -> bool {
        true
    }

    #[inline]
    fn unreserve(&mut self) {}

    #[inline]
    fn send(&mut self, now: Instant, len: usize, fill: impl FnOnce(&mut [u8])) {
        let kept = if self.fronts { len.min(FRONT_LEN) } else { len };
        self.sent += usize::from(self.wire.put(now, len, kept, fill));
    }

    #[inline]
    fn flush(&mut self, _now: Instant) -> (usize, bool) {
        (core::mem::take(&mut self.sent), false)
    }

    #[inline]
    fn next_event(&mut self) -> Option<Instant> {
        self.wire.next_due()
    }

    #[inline]
    fn idle_at(&self) -> Option<Instant> {
        self.wire.busy_until()
    }
}
