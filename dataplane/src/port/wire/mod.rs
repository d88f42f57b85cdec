//! Wire: a port in virtual time, and the cable that joins it to the component at the other end.
//!
//! [`Wire`] is a [`Port`] over one of the two [`WireEnd`]s of a [`cable`]. A burst is one frame, so that replay is
//! exact.
//!
//! Source: docs/spec/pipeline.md §3, §13; docs/spec/model.md §2; IEEE 802.3 clause 4A.4.2 (gap).

mod direct;
mod end;

use core::cell::Cell;

use self::end::Early;
pub use self::end::{Departures, HEADER_LEN, WireEnd, WireFrame, cable};
use crate::batch::Batch;
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::port::flaw::Flaw;
use crate::port::{Port, PortCaps, PortCounters, PortError, TimedPort};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span, WireTimes};

/// Shortest frame in bytes without FCS: 64 bytes on the wire.
pub const FRAME_LEN_MIN: usize = 60;

/// Settings of a simulated wire: rate, delays, framing.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// Name of the port in reports.
    pub name: String,
    /// Rate of the link; with `overhead` it gives the time of a frame.
    pub rate: LinkRate,
    /// Time from sending the last bit here to its arrival at the far end.
    pub propagation: Span,
    /// Time that the switch takes per frame besides queueing: `fixed_latency_ns` (docs/spec/model.md).
    pub latency: Span,
    /// Whether the 64-byte minimum, preamble and gap take time besides the FCS, as on a real wire. Without it, short
    /// frames are not padded either.
    pub overhead: bool,
    /// Whether received frames under 64 bytes (with FCS) are dropped as runts; otherwise they count as captured before
    /// padding.
    pub drop_runts: bool,
    /// Whether frames are handed over when their header ([`HEADER_LEN`]) has arrived, not their last bit. A damaged
    /// frame then leaves damaged if it is sent by another such wire.
    pub cut_through: bool,
}

impl WireConfig {
    /// A real wire of `rate` without length and latency.
    #[must_use]
    pub fn new(name: &str, rate: LinkRate) -> Self {
        Self {
            name: name.to_owned(),
            rate,
            propagation: Span::ZERO,
            latency: Span::ZERO,
            overhead: true,
            drop_runts: true,
            cut_through: false,
        }
    }

    /// How much earlier than its last bit arrives a frame of `len` bytes is handed over.
    #[inline]
    #[must_use]
    pub const fn lead(&self, len: usize) -> Span {
        let Self { rate, overhead, .. } = *self;
        if self.cut_through { Early { rate, overhead }.lead(len) } else { Span::ZERO }
    }

    /// Shortest frame that is sent, in bytes without FCS: shorter ones are padded with zeros.
    #[inline]
    const fn len_least(&self) -> usize {
        if self.overhead { FRAME_LEN_MIN } else { 0 }
    }

    /// Time of a frame of `len` bytes on this wire.
    #[inline]
    #[must_use]
    pub const fn frame_time(&self, len: usize) -> Span {
        self.rate.wire_time(len, self.overhead)
    }
}

/// A port over one end of a cable.
pub struct Wire {
    config: WireConfig,
    caps: PortCaps,
    end: WireEnd,
    /// End of the current transmission; cleared when the transmitter is next seen idle.
    busy_until: Option<Instant>,
    /// Time at which the next frame seen is handed over.
    due: Option<Instant>,
    /// Time at which the frame handed over last is whole.
    whole_at: Option<Instant>,
    /// Set if the link has outages.
    outage: Option<Outage>,
    /// Wire times of lengths sent before, as each costs a division.
    times: WireTimes,
    counters: PortCounters,
    /// `counters` have changed since they were last asked for.
    has_news: bool,
    /// Frames sent, and their bytes on the wire, without FCS.
    carried: (u64, u64),
}

/// State of a link with outages, as the port last saw it.
#[derive(Debug)]
struct Outage {
    is_up: bool,
    /// State that `link_up` last returned.
    told: Cell<bool>,
    /// Time at which the link next goes down or up.
    next: Option<Instant>,
    /// Time of the last look.
    seen: Instant,
}

impl Wire {
    /// A port that sends and receives through `end` frames of up to `frame_len_max` bytes.
    #[must_use]
    pub fn new(config: WireConfig, frame_len_max: usize, end: WireEnd) -> Self {
        let caps = PortCaps {
            kind: "wire",
            device: config.name.clone(),
            frame_len_max,
            rate: config.rate,
            tx_partial_csum: false,
            virtual_time: true,
        };
        let outage = end.outages.is_some().then(|| Outage {
            is_up: true,
            told: Cell::new(true),
            next: Some(Instant::ZERO),
            seen: Instant::ZERO,
        });
        let counters = PortCounters::default();
        let carried = (0, 0);
        let (busy_until, due, whole_at) = (None, None, None);
        let times = WireTimes::new(config.rate, config.overhead);
        Self {
            config,
            caps,
            end,
            busy_until,
            due,
            whole_at,
            outage,
            times,
            counters,
            has_news: false,
            carried,
        }
    }

    /// The end of the cable, for settings.
    pub const fn end(&mut self) -> &mut WireEnd {
        &mut self.end
    }

    /// Frames sent, and their bytes on the wire, without FCS.
    #[must_use]
    pub const fn carried(&self) -> (u64, u64) {
        self.carried
    }

    /// Time at which the next frame will be handed over, as the cable is now.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Instant> {
        let Self { config, end, whole_at, due, .. } = self;
        *due = match end.rx.front() {
            None => None,
            Some(frame) if !config.cut_through => Some(frame.at + config.latency),
            Some(frame) => {
                let at = frame.at + config.latency - config.lead(frame.len());
                // A header arrives only after the frame in front of it is whole.
                Some(whole_at.map_or(at, |whole| at.max(whole)))
            }
        };
        *due
    }

    /// Updates the state of the link to `now`.
    fn look(&mut self, now: Instant) {
        if let (Some(outage), Some(outages)) = (&mut self.outage, &mut self.end.outages) {
            outage.is_up = outages.tick(now);
            outage.next = outages.next(now);
            outage.seen = now;
        }
    }

    /// Prepares to take frames at `now`: updates the state of the link and the time of the first frame.
    #[inline]
    fn begin(&mut self, now: Instant) {
        if !self.end.link_up() {
            // A pulled cable loses all that is on it, also frames that would have arrived later.
            self.end.lose();
            self.due = None;
            return;
        }
        if self.outage.is_some() {
            self.look(now);
        }
        if self.due.is_none() {
            self.next_arrival();
        }
    }

    /// Drops frames that are lost or refused, and returns whether one that fits `room` bytes is due by `now`. It is
    /// then the first on the cable, and [`Self::taken`] must follow.
    #[inline]
    fn see(&mut self, now: Instant, room: usize) -> bool {
        while self.due.is_some_and(|due| due <= now) {
            match self.fate(room) {
                None => return false,
                Some(Fate::Taken) => return true,
                Some(Fate::Lost) => {}
                Some(Fate::Refused(reason)) => self.drop_frame(reason),
            }
            self.taken();
        }
        false
    }

    /// Decides about the first frame on the cable.
    #[inline]
    fn fate(&mut self, room: usize) -> Option<Fate> {
        let Self { config, end: WireEnd { rx, outages, .. }, .. } = self;
        let frame = rx.front()?;
        let is_lost = outages
            .as_mut()
            .is_some_and(|outages| outages.lose(frame.at, config.frame_time(frame.len())));
        Some(match refuse(config, frame, room) {
            // Lost on the cable, which counts it. It never reached this port, so it is not a drop of the port.
            _ if is_lost => Fate::Lost,
            Some(reason) => Fate::Refused(reason),
            None => Fate::Taken,
        })
    }

    /// Removes the first frame from the cable.
    #[inline]
    fn taken(&mut self) {
        self.end.rx.skip();
        self.next_arrival();
    }

    /// Counts a dropped frame.
    #[cold]
    fn drop_frame(&mut self, reason: DropReason) {
        self.counters.rx_drop(reason);
        self.has_news = true;
    }
}

/// Decision about a frame that has arrived.
enum Fate {
    Taken,
    /// The link was down while it was on it.
    Lost,
    Refused(DropReason),
}

/// Reason for which a frame is dropped at this wire, if any.
#[inline]
const fn refuse(config: &WireConfig, frame: &WireFrame, room: usize) -> Option<DropReason> {
    match frame.flaw {
        // With cut-through the frame has left before its FCS arrives.
        Flaw::Fcs if !config.cut_through => Some(DropReason::Fcs),
        Flaw::Truncated | Flaw::Runt => frame.flaw.reason(),
        _ if config.drop_runts && frame.len() < FRAME_LEN_MIN => Some(DropReason::Runt),
        _ if frame.len() > room => Some(DropReason::TooLong),
        _ => None,
    }
}

impl Port for Wire {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        if batch.is_full() {
            return 0;
        }
        let Some(desc) = self.rx_one(now, bufs) else { return 0 };
        batch.push(desc);
        1
    }

    fn tx_room(&mut self, now: Instant) -> usize {
        if self.busy_until.is_some_and(|until| now < until) {
            return 0;
        }
        self.busy_until = None;
        usize::from(self.end.has_room())
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        if self.tx_room(now) == 0 {
            return 0;
        }
        let Some(desc) = batch.pop_at(0) else { return 0 };
        self.tx_one(now, bufs, desc);
        1
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn link_up(&self) -> bool {
        let is_up = self.outage.as_ref().is_none_or(|outage| {
            outage.told.set(outage.is_up);
            outage.is_up
        });
        is_up && self.end.link_up()
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn next_event(&self) -> Option<Instant> {
        let change = self.outage.as_ref().and_then(|outage| {
            // A change that `link_up` has not returned yet is due at once.
            let is_told = outage.told.get() == outage.is_up;
            if is_told { outage.next } else { Some(outage.seen) }
        });
        Instant::earlier(self.due, change)
    }

    fn idle_at(&self) -> Option<Instant> {
        self.busy_until
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

impl TimedPort for Wire {
    fn rx_one(&mut self, now: Instant, bufs: &mut Bufs) -> Option<Desc> {
        self.begin(now);
        while self.see(now, bufs.room()) {
            let frame = self.end.rx.front()?;
            let desc = bufs.alloc_front(frame.bytes(), frame.len());
            let (whole, is_damaged) = (frame.at + self.config.latency, frame.flaw != Flaw::None);
            self.taken();
            let Some(mut desc) = desc else {
                self.drop_frame(DropReason::Pool);
                continue;
            };
            if self.config.cut_through {
                bufs.set_damaged(&mut desc, is_damaged);
                self.whole_at = Some(whole);
            }
            return Some(desc);
        }
        None
    }

    fn tx_one(&mut self, now: Instant, bufs: &mut Bufs, desc: Desc) {
        let (bytes, len) = (bufs.bytes(&desc), desc.len());
        let idle = now + self.times.of(len);
        // The wire time includes the gap, so the next transmission can follow at once.
        let at = idle + self.config.propagation;
        let is_damaged = self.config.cut_through && bufs.is_damaged(&desc);
        let flaw = if is_damaged { Flaw::Fcs } else { Flaw::None };
        let least = self.config.len_least();
        let sent = if len < least {
            let mut padded = [0; FRAME_LEN_MIN];
            for (to, from) in padded.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.end.send(at, flaw, &padded)
        } else {
            self.end.send_front(at, flaw, bytes, len)
        };
        debug_assert!(sent, "room was asked for");
        self.carried.0 += 1;
        self.carried.1 += len.max(least) as u64;
        bufs.free(desc);
        self.busy_until = Some(idle);
    }

    fn look_ahead(&mut self) -> Option<Instant> {
        self.next_arrival();
        self.next_event()
    }

    fn whole_at(&self) -> Option<Instant> {
        self.whole_at
    }

    fn has_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    fn is_steady(&self) -> bool {
        !self.has_outages()
    }
}

#[cfg(test)]
mod tests;
