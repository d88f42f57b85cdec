//! The two ways in which a host is connected: a port with a pool, or a wire of virtual time, which needs no pool.
//!
//! [`Link`] lets hosts, RC Link endpoints and TCP hosts send and receive over either; [`PortLink`] and [`WireLink`]
//! implement it. Lengths are bytes without FCS.
//!
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

/// A host's connection to the others.
pub(crate) trait Link {
    fn rate(&self) -> LinkRate;

    /// Hands each received frame to `take`, as the bytes that are kept of it and its length; returns how many frames
    /// came, and whether more may wait.
    fn take_in(&mut self, now: Instant, take: impl FnMut(&[u8], usize)) -> (usize, bool);

    /// Frames that can be sent now, at most a burst.
    fn room(&mut self, now: Instant) -> usize;

    /// Whether frames were built that the port has not taken.
    fn has_pending(&self) -> bool;

    /// Puts up to `most` frames that the port did not take before into this burst, ahead of new ones; returns how many.
    fn again(&mut self, most: usize) -> usize;

    /// Reserves memory for one more frame; false if there is none.
    fn reserve(&mut self) -> bool;

    /// Returns the reservation unused.
    fn unreserve(&mut self);

    /// Sends a frame of `len` bytes, for which there is room and memory reserved: `fill` writes all bytes that are kept
    /// of it.
    fn send(&mut self, now: Instant, len: usize, fill: impl FnOnce(&mut [u8]));

    /// Ends a burst; returns how many of its frames were sent, and whether the port left some.
    fn flush(&mut self, now: Instant) -> (usize, bool);

    /// Next time at which the link itself has work to do, if it knows.
    fn next_event(&mut self) -> Option<Instant>;

    /// When the transmission under way ends, if the link knows.
    fn idle_at(&self) -> Option<Instant>;
}

/// A [`PortLink`]'s state between polls.
#[derive(Default)]
pub(crate) struct Outbox {
    batch: Batch,
    /// Frames that the port did not take; sent first in the next burst.
    pending: VecDeque<Desc>,
}

impl Outbox {
    /// Whether every frame built has been taken by the port.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Gives chunks back to the pool.
    pub fn release(&mut self, bufs: &mut Bufs) {
        for desc in self.pending.drain(..) {
            bufs.free(desc);
        }
    }

    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Desc>()
    }
}

/// A link over any port: frames lie in chunks of a pool.
pub(crate) struct PortLink<'a> {
    pub port: &'a mut dyn Port,
    pub bufs: &'a mut Bufs,
    pub outbox: &'a mut Outbox,
    /// Chunk for the next frame to be built.
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
                // Frames from a kernel on this machine may arrive with the checksum left to a device (veth).
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
        // `flush` sends one batch, which holds a burst.
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
        // A host may find nothing to send after it has reserved; the chunk then serves its next frame.
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

    // `reserve` was true before, so a chunk is here; without one there is nothing to write into.
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
        // The port keeps no rest: it is sent before anything new, which keeps the order of each stream.
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

/// A link over a wire in virtual time: frames are written straight onto it.
pub(crate) struct WireLink<'a> {
    pub wire: &'a mut Wire,
    /// Whether only the front of each frame is kept.
    pub fronts: bool,
    /// Frames sent since the last flush.
    pub sent: usize,
}

impl Link for WireLink<'_> {
    #[inline]
    fn rate(&self) -> LinkRate {
        self.wire.caps().rate
    }

    #[inline]
    fn take_in(&mut self, now: Instant, take: impl FnMut(&[u8], usize)) -> (usize, bool) {
        // Many steps of a host are for frames of its own: an empty wire need not be looked at.
        if !self.wire.is_due(now) {
            return (0, false);
        }
        let received = self.wire.take_each(now, RX_BURSTS, take);
        (received, received == RX_BURSTS)
    }

    #[inline]
    fn room(&mut self, now: Instant) -> usize {
        // One at a time: the next frame is chosen when the wire is idle, so that no queue forms at a host.
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
        // A frame that is kept by its front carries the mark of its payload and all headers in it.
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
