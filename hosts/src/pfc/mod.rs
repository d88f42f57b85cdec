//! Both directions of PFC at a host: being paused, and pausing the other side.
//!
//! [`Pauses`] turns received frames and `now` into the set of stopped priorities;
//! [`SlowReceiver`] turns received bytes and `now` into the frames that stop the sender.
//!
//! Units: quanta of 512 bit times at the port's rate; bytes without FCS; picoseconds.
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
    /// Priority by class.
    classes: [Pri; 8],
    ends: [Option<Instant>; 8],
    /// Of which there is an end.
    paused: PriSet,
    since: PerPri<Option<Instant>>,
    /// Time that each priority was stopped, in pauses that are over.
    spent: PerPri<Span>,
}

impl Pauses {
    /// Nothing is stopped.
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

    /// Takes in a PFC frame that arrived at `now`: of the classes that it names, the timer is
    /// replaced, and 0 ends it.
    pub fn receive(&mut self, now: Instant, pfc: &Pfc, rate: LinkRate) {
        self.tick(now);
        for (class, end) in (0u8..).zip(&mut self.ends) {
            if let Some(quanta) = pfc.class(class) {
                *end = (quanta > 0).then(|| now + rate.quanta(quanta));
            }
        }
        self.settle(now);
    }

    /// Ends the pauses that are over at `now`; returns when the next one ends.
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

    /// Priorities that are stopped; call [`Self::tick`] first.
    #[must_use]
    pub const fn paused(&self) -> PriSet {
        self.paused
    }

    /// Time that `pri` was stopped until `now`.
    #[must_use]
    pub fn spent(&self, pri: Pri, now: Instant) -> Span {
        let running = self.since[pri].map_or(Span::ZERO, |since| now.since(since));
        self.spent[pri] + running
    }

    /// Notes at `at` which priorities went on or stopped.
    fn settle(&mut self, at: Instant) {
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

/// A receiver that takes frames off its buffer slower than they may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowSpec {
    /// How fast the buffer drains: bits of frames a second, FCS not counted.
    pub drain: LinkRate,
    /// Bytes of one priority above which it is paused.
    pub xoff_bytes: usize,
    /// Bytes of one priority at or below which it goes on.
    pub xon_bytes: usize,
    /// Bytes of one priority that find room; a frame beyond them is lost and counted.
    pub capacity_bytes: usize,
    /// Priorities that are paused at all.
    pub lossless: PriSet,
    /// Pause time that each frame asks for, at least 1; refreshed at half of it.
    pub quanta: u16,
}

impl SlowSpec {
    /// Watermarks by the bytes that come in a round trip, `trip_bytes`: XOFF at 32 of the longest frames and that (8 for
    /// multicast), XON at that, room for one more. All priorities are paused, for as long as can be said.
    #[must_use]
    pub const fn by_round_trip(
        drain: LinkRate,
        trip_bytes: usize,
        frame_len_max: usize,
        is_multicast: bool,
    ) -> Self {
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

/// The buffer of a slow receiver, and what its PAUSE frames said.
#[derive(Clone, Debug)]
pub struct SlowReceiver {
    spec: SlowSpec,
    map: PriMap,
    pacer: Pacer,
    fifo: VecDeque<(Pri, usize)>,
    /// When the frame at the front is taken off.
    front_out: Instant,
    used: PerPri<usize>,
    watermark: PerPri<usize>,
    overruns: PerPri<u64>,
    /// Priorities that are to be stopped.
    held: PriSet,
    /// Priorities that the last frame sent has stopped.
    said: PriSet,
    refresh: Option<Instant>,
}

impl SlowReceiver {
    /// An empty buffer. A priority without a PFC class cannot be paused, whatever `spec` says.
    #[must_use]
    pub fn new(mut spec: SlowSpec, map: PriMap) -> Self {
        spec.lossless = spec.lossless.and(map.pcp.into_iter().collect());
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

    /// The same with a rate of the wire: FCS, the least length, preamble and gap are counted.
    #[must_use]
    pub fn of_wire(spec: SlowSpec, map: PriMap) -> Self {
        let pacer = Pacer::new(Rate::WireBps(spec.drain.as_bps()));
        Self { pacer, ..Self::new(spec, map) }
    }

    /// Most bytes of `pri` that were in the buffer at once.
    #[must_use]
    pub fn watermark(&self, pri: Pri) -> usize {
        self.watermark[pri]
    }

    /// Frames of `pri` that found no room.
    #[must_use]
    pub fn overruns(&self, pri: Pri) -> u64 {
        self.overruns[pri]
    }

    /// Bytes in the buffer.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.0.iter().sum()
    }

    /// Puts a frame of `len` bytes into the buffer; false when there is no room.
    pub fn push(&mut self, now: Instant, pri: Pri, len: usize) -> bool {
        self.tick(now);
        if self.used[pri] + len > self.spec.capacity_bytes {
            self.overruns[pri] += 1;
            return false;
        }
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

    /// Takes off what is drained by `now`; returns when something happens next.
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

    /// The frame that is to be sent at `now`, if one is. Call [`Self::sent`] once it is.
    #[must_use]
    pub fn to_send(&self, now: Instant) -> Option<Pfc> {
        let refresh = self.refresh.is_some_and(|at| at <= now);
        if self.held == self.said && !refresh {
            return None;
        }
        let stop = self.map.classes_of(self.held);
        let go = self.map.classes_of(self.said.without(self.held));
        let all = (0..8u8).filter(|class| (stop | go) >> class & 1 != 0);
        Some(all.fold(Pfc { enable: 0, quanta: [0; 8] }, |pfc, class| {
            pfc.with(class, if stop >> class & 1 != 0 { self.spec.quanta } else { 0 })
        }))
    }

    /// Notes that [`Self::to_send`] went out at `now`, at a port of `rate`.
    pub fn sent(&mut self, now: Instant, rate: LinkRate) {
        self.said = self.held;
        let half = Span::from_ps(rate.quanta(self.spec.quanta).as_ps() / 2);
        self.refresh = (!self.held.is_empty()).then(|| now + half);
    }
}

#[cfg(test)]
mod tests;
