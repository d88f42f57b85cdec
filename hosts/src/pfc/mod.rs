//! PFC at a host, both ways: priorities that the link partner pauses, and pausing the partner.
//!
//! [`Pauses`] turns received PFC frames into the set of priorities that are paused now; [`SlowReceiver`] turns received
//! bytes into the PFC frames that stop the sender. Quanta are 512 bit times at the port's rate; lengths are bytes
//! without FCS.
//!
//! Source: IEEE 802.1Q-2022 clause 36; docs/spec/pipeline.md §2 (classes), §9.

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{PerPri, Pri, PriSet};
use weft_parsers::Pfc;

use crate::classes::PriMap;
use crate::pace::{Pacer, Rate};

/// Priorities that the link partner has paused by PFC, with the ends of the pauses.
#[derive(Clone, Debug)]
pub struct Pauses {
    /// The priority that each PFC class pauses.
    classes: [Pri; 8],
    ends: [Option<Instant>; 8],
    /// Priorities for which a pause is running.
    paused: PriSet,
    since: PerPri<Option<Instant>>,
    /// Time for which each priority was paused, in pauses that have ended.
    spent: PerPri<Span>,
}

impl Pauses {
    /// No priority is paused; `map` says which one each class stops.
    #[must_use]
    pub const fn new(map: &PriMap) -> Self {
        Self {
            classes: map.pcp,
            ends: [None; 8],
            paused: PriSet::EMPTY,
            since: PerPri([None; 8]),
            spent: PerPri([Span::ZERO; 8]),
        }
    }

    /// Takes in a PFC frame received at `now`: a class that it enables gets a new timer in place of the old one, and 0
    /// quanta end the pause.
    pub fn receive(&mut self, now: Instant, pfc: &Pfc, rate: LinkRate) {
        // First end the pauses that ran out before this frame: its timers must not hide when.
        self.tick(now);
        for (class, end) in (0u8..).zip(&mut self.ends) {
            if let Some(quanta) = pfc.class(class) {
                *end = (quanta > 0).then(|| now + rate.quanta(quanta));
            }
        }
        self.settle(now);
    }

    /// Ends the pauses that have run out by `now`; returns when the next one ends.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        if self.paused.is_empty() {
            return None;
        }
        // A late tick must not count the time after a pause as paused: settle at each end, in order.
        while let Some(end) = self.next_end().filter(|end| *end <= now) {
            for slot in &mut self.ends {
                *slot = slot.filter(|other| *other > end);
            }
            self.settle(end);
        }
        self.next_end()
    }

    fn next_end(&self) -> Option<Instant> {
        self.ends.iter().flatten().min().copied()
    }

    /// Priorities that are paused as of the last [`Self::tick`], which callers call first.
    #[must_use]
    pub const fn paused(&self) -> PriSet {
        self.paused
    }

    /// Time for which `pri` has been paused until `now`, a running pause included.
    #[must_use]
    pub fn spent(&self, pri: Pri, now: Instant) -> Span {
        let running = self.since[pri].map_or(Span::ZERO, |since| now.since(since));
        self.spent[pri] + running
    }

    /// Recomputes at `at` which priorities are paused, and books the time of pauses that ended.
    fn settle(&mut self, at: Instant) {
        // Several classes may stop one priority: it goes on when none of them does (docs/spec/pipeline.md §2).
        let open_ends = self.classes.iter().zip(self.ends);
        let paused: PriSet =
            open_ends.filter(|(_, end)| end.is_some()).map(|(pri, _)| *pri).collect();
        self.paused = paused;
        for pri in Pri::ALL {
            match (self.since[pri], paused.contains(pri)) {
                (None, true) => self.since[pri] = Some(at),
                (Some(since), false) => {
                    self.spent[pri] = self.spent[pri] + at.since(since);
                    self.since[pri] = None;
                }
                _ => {}
            }
        }
    }
}

/// Rate, buffer and thresholds of a receiver that drains its buffer slower than frames may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowSpec {
    /// Rate at which the buffer drains: bits of frames a second, FCS not counted.
    pub drain: LinkRate,
    /// Bytes of one priority above which it is paused (XOFF).
    pub xoff_bytes: usize,
    /// Bytes of one priority at or below which it is released (XON).
    pub xon_bytes: usize,
    /// Bytes of one priority that fit; a frame that does not is lost and counted.
    pub capacity_bytes: usize,
    /// Priorities that the receiver pauses; the others lose frames.
    pub lossless: PriSet,
    /// Pause time that each frame asks for, at least 1; refreshed at half of it.
    pub quanta: u16,
}

impl SlowSpec {
    /// Watermarks from `trip_bytes`, the bytes that arrive in a round trip: XOFF at 32 frames of the longest kind and
    /// one round trip (8 frames for multicast), XON at one round trip, and room for one round trip beyond XOFF. All
    /// priorities are lossless, and are paused for the longest time.
    #[must_use]
    pub const fn by_round_trip(
        drain: LinkRate,
        trip_bytes: usize,
        frame_len_max: usize,
        is_multicast: bool,
    ) -> Self {
        // Watermarks of RC Link's receive buffers: REQ and RSP 32 frames, MUL 8 (docs/spec/model.md §4).
        let frames = frame_len_max * if is_multicast { 8 } else { 32 };
        Self {
            drain,
            xoff_bytes: frames + trip_bytes,
            xon_bytes: trip_bytes,
            capacity_bytes: frames + 2 * trip_bytes,
            lossless: PriSet::from_bits(0xFF),
            quanta: u16::MAX,
        }
    }
}

/// The buffer of a slow receiver, with the state that its PFC frames have told the sender.
#[derive(Clone, Debug)]
pub struct SlowReceiver {
    spec: SlowSpec,
    map: PriMap,
    pacer: Pacer,
    fifo: VecDeque<(Pri, usize)>,
    /// When the frame at the front has been drained.
    front_out: Instant,
    used: PerPri<usize>,
    watermark: PerPri<usize>,
    overruns: PerPri<u64>,
    /// Priorities above XOFF, until they fall to XON.
    held: PriSet,
    /// Priorities that the last PFC frame sent has paused.
    said: PriSet,
    refresh: Option<Instant>,
}

impl SlowReceiver {
    /// An empty buffer. A priority without a PFC class cannot be paused, whatever `spec` says.
    #[must_use]
    pub fn new(mut spec: SlowSpec, map: PriMap) -> Self {
        // No class stops such a priority, so a PFC frame about it would enable no class.
        spec.lossless = spec.lossless.and(map.pcp.into_iter().collect());
        // 0 quanta would release a class instead of pausing it.
        spec.quanta = spec.quanta.max(1);
        Self {
            pacer: Pacer::new(Rate::FrameBps(spec.drain.as_bps())),
            spec,
            map,
            fifo: VecDeque::new(),
            front_out: Instant::ZERO,
            used: PerPri::default(),
            watermark: PerPri::default(),
            overruns: PerPri::default(),
            held: PriSet::EMPTY,
            said: PriSet::EMPTY,
            refresh: None,
        }
    }

    /// The same with `drain` as a rate of the wire: FCS, least length, preamble and gap count.
    #[must_use]
    pub fn of_wire(spec: SlowSpec, map: PriMap) -> Self {
        let pacer = Pacer::new(Rate::WireBps(spec.drain.as_bps()));
        Self { pacer, ..Self::new(spec, map) }
    }

    /// Most bytes of `pri` that were in the buffer at the same time.
    #[must_use]
    pub fn watermark(&self, pri: Pri) -> usize {
        self.watermark[pri]
    }

    /// Frames of `pri` that were lost for want of room.
    #[must_use]
    pub fn overruns(&self, pri: Pri) -> u64 {
        self.overruns[pri]
    }

    /// Bytes in the buffer, of all priorities.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.0.iter().sum()
    }

    /// Puts a frame of `len` bytes into the buffer; false if it is lost for want of room.
    pub fn push(&mut self, now: Instant, pri: Pri, len: usize) -> bool {
        // What has drained by now makes room, and may release a priority.
        self.tick(now);
        if self.used[pri] + len > self.spec.capacity_bytes {
            self.overruns[pri] += 1;
            return false;
        }
        // An idle buffer begins to drain the frame now; otherwise it follows the one before it.
        if self.fifo.is_empty() {
            self.front_out = now + self.pacer.gap(len);
        }
        self.fifo.push_back((pri, len));
        self.used[pri] += len;
        self.watermark[pri] = self.watermark[pri].max(self.used[pri]);
        if self.used[pri] > self.spec.xoff_bytes && self.spec.lossless.contains(pri) {
            self.held.insert(pri);
        }
        true
    }

    /// Removes the frames that have drained by `now`; returns when the next frame drains or a pause is due again.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        while self.front_out <= now {
            let Some((pri, len)) = self.fifo.pop_front() else { break };
            self.used[pri] -= len;
            if self.used[pri] <= self.spec.xon_bytes {
                self.held.remove(pri);
            }
            if let Some((_, next_len)) = self.fifo.front() {
                self.front_out += self.pacer.gap(*next_len);
            }
        }
        let drained = (!self.fifo.is_empty()).then_some(self.front_out);
        Instant::earlier(drained, self.refresh)
    }

    /// The PFC frame that is due at `now`, if one is. The caller calls [`Self::sent`] once it is sent.
    #[must_use]
    pub fn to_send(&self, now: Instant) -> Option<Pfc> {
        let refresh = self.refresh.is_some_and(|at| at <= now);
        if self.held == self.said && !refresh {
            return None;
        }
        let stop = self.map.classes_of(self.held);
        // Priorities released since the last frame are named with 0 quanta: their pause would run on otherwise.
        let go = self.map.classes_of(self.said.without(self.held));
        let all = (0..8u8).filter(|class| (stop | go) >> class & 1 != 0);
        Some(all.fold(Pfc { enable: 0, quanta: [0; 8] }, |pfc, class| {
            pfc.with(class, if stop >> class & 1 != 0 { self.spec.quanta } else { 0 })
        }))
    }

    /// Notes that the frame of [`Self::to_send`] left at `now`, by a port of `rate`.
    pub fn sent(&mut self, now: Instant, rate: LinkRate) {
        self.said = self.held;
        // Again after half the time, so that a pause does not run out on the way (docs/spec/pipeline.md §9).
        let half = Span::from_ps(rate.quanta(self.spec.quanta).as_ps() / 2);
        self.refresh = (!self.held.is_empty()).then(|| now + half);
    }
}

#[cfg(test)]
mod tests;
