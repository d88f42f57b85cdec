//! Holds: the crossbar in virtual time, where a frame in transfer holds its input and its output.
//!
//! Only free ports take part in a slot. A frame holds its ports for its wire time over the speedup,
//! each at its own rate: it is not rounded up to a cell, and a fast port that exchanges frames with
//! a slow one is free again after its own wire time. Otherwise a port could not carry the full rate
//! of its link.
//!
//! Units: picoseconds.
//! Source: docs/spec/pipeline.md §6; docs/spec/model.md.

use crate::desc::Desc;
use crate::islip::Match;
use crate::pipeline::context::{Context, ToCrossbar};
use crate::pipeline::crossbar::Crossbar;
use crate::snapshot::Snapshot;
use crate::time::{Instant, LinkRate, Span, WireTimes};
use crate::types::{PerPort, PortId, PortSet, QueueKey};

/// Until when frames in transfer hold their ports, and when the next slot can move a frame.
pub(super) struct Holds {
    /// A full egress queue kept frames back at the last look.
    full: bool,
    /// That queue may have sent a frame since.
    drained: bool,
    /// When the first pair of ports falls free for which frames wait.
    until: Option<Instant>,
    /// There was no request at the last look.
    is_settled: bool,
    /// Inputs that were held when last looked at.
    busy: PortSet,
    /// Wire times at the rate that was asked for last.
    times: Option<WireTimes>,
    speedup: u64,
    input: PerPort<Instant>,
    output: PerPort<Instant>,
}

impl Holds {
    pub fn new(snapshot: &Snapshot) -> Self {
        let mut holds = Self {
            full: false,
            drained: false,
            until: None,
            is_settled: false,
            busy: PortSet::EMPTY,
            times: None,
            speedup: 1,
            input: PerPort::default(),
            output: PerPort::default(),
        };
        holds.reconfigure(snapshot);
        holds
    }

    pub fn reconfigure(&mut self, snapshot: &Snapshot) {
        self.speedup = u64::from(snapshot.config.crossbar.speedup.max(1));
    }

    /// When frames may move although no port is due.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        // A full egress queue that has sent a frame wakes nothing else, and with one frame an
        // egress queue no further slot would come.
        if self.drained { Some(now) } else { self.until }
    }

    /// Notes that egress queues, which may have been full, sent or dropped frames.
    pub fn drained(&mut self) {
        self.drained = self.full;
    }

    /// Whether there can be no request yet, unless `Context::crossbar_dirty` is set.
    #[inline]
    pub fn is_settled(&self, now: Instant) -> bool {
        self.is_settled && !self.drained && self.until.is_none_or(|until| now < until)
    }

    /// Whether neither `input` nor `output` is held by a frame in transfer.
    #[inline]
    pub fn is_free(&self, now: Instant, QueueKey { input, output, .. }: QueueKey) -> bool {
        self.input[input] <= now && self.output[output] <= now
    }

    /// Resets the state of waiting frames when all VOQs are empty.
    #[inline]
    pub fn rest(&mut self) {
        (self.until, self.full, self.drained) = (None, false, false);
    }

    /// Where a single VOQ holds frames ([`only_one`]): does the work of [`Self::collect`] and
    /// returns the match of the slot.
    #[inline]
    pub fn collect_one(
        &mut self,
        now: Instant,
        crossbar: &mut Crossbar,
        ctx: &Context,
        voq: QueueKey,
    ) -> Option<Match> {
        let QueueKey { input, output, pri } = voq;
        crossbar.requests.clear();
        let has_room = crossbar.has_room_for(output, pri);
        (self.until, self.full, self.drained) = (None, false, false);
        // The answer of each early return below: nothing can move until `until`, or until the queue
        // that is full or paused changes, of which `drained` or `crossbar_dirty` tell.
        self.is_settled = true;
        if ctx.core.closed(output).contains(pri) || !ctx.core.up().contains(output) {
            return None;
        }
        if !has_room {
            self.full = true;
            return None;
        }
        let free = self.input[input].max(self.output[output]);
        if now < free {
            self.until = Some(free);
            return None;
        }
        self.is_settled = false;
        crossbar.islip.slot_of_one(voq)
    }

    /// Collects the requests of the next slot, of inputs and outputs that are free.
    pub fn collect(&mut self, now: Instant, crossbar: &mut Crossbar, ctx: &Context) {
        let Context { core, to_crossbar, .. } = ctx;
        crossbar.requests.clear();
        let ToCrossbar::Local(voqs) = to_crossbar else { return };
        let (mut until, mut full) = (None, false);
        let waiting = voqs.outputs().and(core.up());
        let busy = if waiting.is_empty() { PortSet::EMPTY } else { self.busy(now) };
        for output in waiting.iter() {
            if now < self.output[output] {
                // No input can send there before that.
                until = Instant::earlier(until, Some(self.output[output]));
                continue;
            }
            for pri in voqs.waiting_pris(output).without(core.closed(output)).iter() {
                let inputs = voqs.waiting(output, pri);
                if crossbar.is_full(output, pri) {
                    full = true;
                    continue;
                }
                let mut free = inputs.without(busy);
                // The inputs that wait may all be held: then the pair is free when the first of
                // them is.
                let from = self.pair_free(output, inputs, free);
                if now < from {
                    until = Instant::earlier(until, Some(from));
                    free = PortSet::EMPTY;
                }
                if !free.is_empty() {
                    crossbar.requests.set(output, pri, free);
                }
            }
        }
        (self.until, self.full, self.drained) = (until, full, false);
        self.is_settled = crossbar.requests.is_empty();
    }

    /// Inputs that frames in transfer hold at `now`.
    #[inline]
    fn busy(&mut self, now: Instant) -> PortSet {
        for input in self.busy.iter() {
            if self.input[input] <= now {
                self.busy.remove(input);
            }
        }
        self.busy
    }

    /// When `output` and the first of `inputs` are both free, where `free` are the inputs that are
    /// free now.
    fn pair_free(&self, output: PortId, inputs: PortSet, free: PortSet) -> Instant {
        let output = self.output[output];
        let first = inputs.iter().map(|input| self.input[input]).reduce(Instant::min);
        match first {
            Some(first) if free.is_empty() => output.max(first),
            _ => output,
        }
    }

    /// Lets a frame that goes to `output` hold its ports from `now` on.
    #[inline]
    pub fn hold(&mut self, now: Instant, desc: &Desc, output: PortId, of: &Snapshot) {
        let (input, len) = (desc.input(), desc.len());
        let crossbar = &of.config.crossbar;
        let rate = |port: PortId| of.config.ports.get(port.index()).map(|port| port.rate);
        let (overhead, speedup) = (crossbar.wire_overhead, self.speedup);
        let mut until = |rate: LinkRate| {
            let known = self.times.as_mut().filter(|times| times.is_of(rate, overhead));
            let wire = match known {
                Some(times) => times.of(len),
                None => self.times.insert(WireTimes::new(rate, overhead)).of(len),
            };
            let wire = if speedup == 1 { wire.as_ps() } else { wire.as_ps() / speedup };
            // At least a picosecond: a hold of none would allow any number of matches at one
            // instant.
            now + Span::from_ps(wire.max(1))
        };
        let (Some(from), Some(to)) = (rate(input), rate(output)) else { return };
        self.input[input] = until(from);
        self.output[output] = if to == from { self.input[input] } else { until(to) };
        self.busy.insert(input);
    }
}

/// The only VOQ that holds frames, if there is just one, and outputs don't serve in rounds.
#[inline]
pub(super) fn only_one(crossbar: &Crossbar, ctx: &Context) -> Option<QueueKey> {
    let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return None };
    let output = voqs.outputs().sole()?;
    let pri = voqs.waiting_pris(output).sole()?;
    let input = voqs.waiting(output, pri).sole()?;
    // A weighted output counts its round in `Islip::slot`, which the short way does not call.
    crossbar.islip.is_strict().then_some(QueueKey { input, output, pri })
}
