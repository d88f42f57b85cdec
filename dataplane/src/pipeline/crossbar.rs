//! Crossbar: moves frames from VOQs to egress queues, as iSLIP matches them.
//!
//! Slots follow each other within a step until no input has a request. Live, requests are kept up
//! to date from slot to slot. In virtual time only free ports take part, and a frame holds its
//! input and its output for its wire time over the speedup, each at its own rate.
//!
//! Units: frames, slots, picoseconds.
//! Source: docs/spec/pipeline.md §6; docs/spec/model.md.

use weft_base::ring::Rx;

use super::context::{Context, ToCrossbar};
use super::downlink::{DownlinkTx, Feed};
use super::timing::Timing;
use super::uplink::QueuedDesc;
use crate::desc::Desc;
use crate::islip::{Islip, Match, Matches, Requests};
use crate::queues::QueueId;
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span, WireTimes};
use crate::trace::Tracer;
use crate::types::{PerPort, PerPri, PortId, PortSet, Pri, QueueKey};

/// State of the crossbar, which belongs to one worker.
pub(super) struct Crossbar {
    pub(super) islip: Islip,
    pub(super) requests: Requests,
    pub(super) matches: Matches,
    /// By (output, pri): the way to its egress queue.
    feeds: PerPort<PerPri<Feed>>,
    links: Links,
    limit: usize,
    burst: usize,
    /// Frames moved to each output in this step; live, bounded.
    moved: PerPort<usize>,
    budget: usize,
    /// Some output has got all frames that a step may move to it.
    is_spent: bool,
    /// `Some` in virtual time only.
    pub(super) holds: Option<Holds>,
}

/// Rings between the crossbar's owner and the workers without a crossbar.
#[derive(Default)]
pub(super) struct Links {
    /// Frames that they have admitted, a ring for each worker.
    pub from: Vec<Rx<QueuedDesc>>,
    /// Ways to their egress queues, one for each worker.
    pub ways: Vec<DownlinkTx>,
}

/// In virtual time, until when frames in transfer hold their ports.
///
/// No frame is rounded up to a cell, and a fast port is held at its own rate when it exchanges
/// frames with a slow one: otherwise a port could not carry the full rate of its link.
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

impl Crossbar {
    pub fn new(
        feeds: PerPort<PerPri<Feed>>,
        links: Links,
        snapshot: &Snapshot,
        timing: Timing,
    ) -> Self {
        let config = &snapshot.config.crossbar;
        let mut crossbar = Self {
            islip: Islip::new(
                snapshot.config.ports.len(),
                snapshot.config.pris,
                config.iterations,
                config.discipline,
            ),
            requests: Requests::new(),
            matches: Matches::new(),
            feeds,
            links,
            limit: config.egress_queue_frames,
            burst: 1,
            moved: PerPort::default(),
            budget: 0,
            is_spent: false,
            holds: (timing == Timing::Virtual).then(|| Holds {
                full: false,
                drained: false,
                until: None,
                is_settled: false,
                busy: PortSet::EMPTY,
                times: None,
                speedup: 1,
                input: PerPort::default(),
                output: PerPort::default(),
            }),
        };
        crossbar.reconfigure(snapshot);
        crossbar
    }

    pub fn reconfigure(&mut self, snapshot: &Snapshot) {
        let config = &snapshot.config.crossbar;
        self.islip.set_iterations(config.iterations);
        self.islip.set_discipline(config.discipline);
        self.burst = if self.holds.is_some() { 1 } else { config.burst.max(1) };
        if let Some(holds) = &mut self.holds {
            holds.speedup = u64::from(config.speedup.max(1));
        }
        // Bounds a live step, so that ports are serviced in time however much traffic one output
        // has.
        self.budget = 2 * self.burst;
    }

    /// Whether some output has got all frames that a step may move to it.
    pub const fn spent(&self) -> bool {
        self.is_spent
    }

    /// Begins a new step.
    pub fn rewind(&mut self) {
        for output in PortSet::first(self.islip.ports()).iter() {
            self.moved[output] = 0;
        }
        self.is_spent = false;
    }

    /// In virtual time: when frames may move although no port is due.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let holds = self.holds.as_ref()?;
        // A full egress queue that has sent a frame wakes nothing else, and with one frame an
        // egress queue no further slot would come.
        if holds.drained { Some(now) } else { holds.until }
    }

    /// Notes that egress queues, which may have been full, sent or dropped frames.
    pub fn drained(&mut self) {
        if let Some(holds) = &mut self.holds {
            holds.drained = holds.full;
        }
    }

    /// In virtual time: whether there can be no request yet, unless the inputs that `ctx` tracks
    /// have changed.
    #[inline]
    pub(super) fn is_settled(&self, now: Instant, ctx: &Context) -> bool {
        let waits = |holds: &Holds| {
            holds.is_settled && !holds.drained && holds.until.is_none_or(|until| now < until)
        };
        !ctx.crossbar_dirty && self.holds.as_ref().is_some_and(waits)
    }

    /// Whether neither `input` nor `output` is held by a frame in transfer.
    pub fn is_free(&self, now: Instant, input: PortId, output: PortId) -> bool {
        let is_free = |holds: &Holds| holds.input[input] <= now && holds.output[output] <= now;
        self.holds.as_ref().is_none_or(is_free)
    }

    /// In virtual time: the only VOQ that holds frames, if there is just one, and outputs don't
    /// serve in rounds.
    #[inline]
    pub(super) fn only_one(&self, ctx: &Context) -> Option<QueueKey> {
        let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return None };
        let output = voqs.outputs().sole()?;
        let pri = voqs.waiting_pris(output).sole()?;
        let input = voqs.waiting(output, pri).sole()?;
        // A weighted output counts its round in `Islip::slot`, which the short way does not call.
        self.islip.is_strict().then_some(QueueKey { input, output, pri })
    }

    /// In virtual time, where a single VOQ holds frames ([`Self::only_one`]): does the work of
    /// [`Self::collect`] and returns the match of the slot.
    #[inline]
    pub(super) fn collect_one(
        &mut self,
        now: Instant,
        ctx: &Context,
        QueueKey { input, output, pri }: QueueKey,
    ) -> Option<Match> {
        self.requests.clear();
        let has_room = self.has_room_for(output, pri);
        let holds = self.holds.as_mut()?;
        (holds.until, holds.full, holds.drained) = (None, false, false);
        // The answer of each early return below: nothing can move until `until`, or until the queue
        // that is full or paused changes, of which `drained` or `crossbar_dirty` tell.
        holds.is_settled = true;
        if ctx.core.closed(output).contains(pri) || !ctx.core.up().contains(output) {
            return None;
        }
        if !has_room {
            holds.full = true;
            return None;
        }
        let free = holds.input[input].max(holds.output[output]);
        if now < free {
            holds.until = Some(free);
            return None;
        }
        holds.is_settled = false;
        self.islip.slot_of_one(input, output, pri)
    }

    /// Whether the egress queue of (`output`, `pri`) takes one more frame.
    #[inline]
    pub(super) fn has_room_for(&self, output: PortId, pri: Pri) -> bool {
        match &self.feeds[output][pri] {
            Feed::Local(queue) => queue.len_seen() < self.limit,
            Feed::Absent | Feed::Remote { .. } => false,
        }
    }

    /// Lets a frame of `len` bytes hold its ports from `now` on.
    #[inline]
    pub(super) fn hold(
        &mut self,
        now: Instant,
        input: PortId,
        output: PortId,
        len: usize,
        of: &Snapshot,
    ) {
        if let Some(holds) = &mut self.holds {
            holds.hold(now, input, output, len, of);
        }
    }

    /// Puts a frame into an egress queue that takes it ([`Self::has_room_for`]).
    #[inline]
    pub(super) fn feed(&mut self, output: PortId, pri: Pri, desc: Desc) {
        let id = QueueId::new(output, pri);
        self.feeds[output][pri].push(&mut self.links.ways, id, &[desc.pack()]);
    }

    /// Collects the requests of the next slot.
    pub(super) fn collect(&mut self, now: Instant, ctx: &mut Context) {
        let Context { core, to_crossbar, .. } = ctx;
        self.requests.clear();
        let ToCrossbar::Local(voqs) = to_crossbar else { return };
        let (mut until, mut full) = (None, false);
        let waiting = voqs.outputs().and(core.up());
        let busy = match &mut self.holds {
            Some(holds) if !waiting.is_empty() => holds.busy(now),
            _ => PortSet::EMPTY,
        };
        for output in waiting.iter() {
            if let Some(holds) = &self.holds
                && now < holds.output[output]
            {
                // No input can send there before that.
                until = Instant::earlier(until, Some(holds.output[output]));
                continue;
            }
            for pri in voqs.waiting_pris(output).without(core.closed(output)).iter() {
                let inputs = voqs.waiting(output, pri);
                let limit = self.limit;
                if self.feeds[output][pri].len(&self.links.ways) >= limit {
                    full = true;
                    continue;
                }
                let mut free = inputs.without(busy);
                if let Some(holds) = &self.holds {
                    // The inputs that wait may all be held: then the pair is free when the first of
                    // them is.
                    let from = holds.pair_free(output, inputs, free);
                    if now < from {
                        until = Instant::earlier(until, Some(from));
                        free = PortSet::EMPTY;
                    }
                }
                if !free.is_empty() {
                    self.requests.set(output, pri, free);
                }
            }
        }
        if let Some(holds) = &mut self.holds {
            (holds.until, holds.full, holds.drained) = (until, full, false);
            holds.is_settled = self.requests.is_empty();
        }
    }
}

impl Holds {
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

    /// Lets a frame of `len` bytes hold its ports from `now` on.
    fn hold(&mut self, now: Instant, input: PortId, output: PortId, len: usize, of: &Snapshot) {
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

impl Crossbar {
    /// Puts frames that other workers sent up into the VOQs; returns how many.
    pub(super) fn gather<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        tracer: &mut T,
    ) -> usize {
        let mut count = 0;
        for frames in &mut self.links.from {
            // Only those that are there now: a worker that goes on sending must not keep the
            // crossbar here.
            let most = frames.len();
            count += frames.pop_each(most, |QueuedDesc { desc, queue }| {
                let input = desc.input();
                let pushed = match &mut ctx.to_crossbar {
                    ToCrossbar::Local(voqs) => voqs.push(input, queue, desc),
                    ToCrossbar::Remote(_) => Err(desc),
                };
                if let Err(desc) = pushed {
                    ctx.purge(now, desc, queue.output(), DropReason::Pool, tracer);
                }
            });
        }
        count
    }

    /// Whether another worker has sent frames up since the last [`Self::gather`].
    pub(super) fn has_arrivals(&mut self) -> bool {
        self.links.from.iter_mut().any(|frames| !frames.is_empty())
    }

    /// Whether frames wait in VOQs that can move as soon as another worker has made room in an
    /// egress queue.
    pub fn waits(&self, ctx: &Context) -> bool {
        // No wake-up tells of that room: the owner has to look again soon. A lone worker empties
        // its egress queues itself.
        !self.links.ways.is_empty()
            && matches!(&ctx.to_crossbar, ToCrossbar::Local(voqs) if !voqs.outputs().is_empty())
    }

    /// In virtual time: takes the frame of one match, where its egress queue has room.
    #[inline]
    pub(super) fn take(
        &self,
        ctx: &mut Context,
        QueueKey { input, output, pri }: QueueKey,
    ) -> Option<Desc> {
        let ToCrossbar::Local(voqs) = &mut ctx.to_crossbar else { return None };
        if !self.has_room_for(output, pri) {
            return None;
        }
        voqs.pop(input, QueueId::new(output, pri))
    }

    /// Resets the state of waiting frames when all VOQs are empty.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.requests.clear();
        if let Some(holds) = &mut self.holds {
            (holds.until, holds.full, holds.drained) = (None, false, false);
        }
    }

    /// Moves the frames of one match; returns how many.
    #[inline(never)] // on its own it keeps its state in registers
    pub(super) fn transfer(
        &mut self,
        ctx: &mut Context,
        QueueKey { input, output, pri }: QueueKey,
    ) -> usize {
        let Self { feeds, links, .. } = self;
        let feed = &mut feeds[output][pri];
        let Context { to_crossbar, .. } = ctx;
        let queue = match to_crossbar {
            ToCrossbar::Local(voqs) => voqs.queue(input, QueueId::new(output, pri)),
            ToCrossbar::Remote(_) => None,
        };
        let Some(mut voq) = queue.filter(|_| !matches!(feed, Feed::Absent)) else {
            self.requests.remove(input, output, pri); // a request that cannot be served
            return 0;
        };
        let room = self.limit.saturating_sub(feed.len(&links.ways));
        let most = room.min(self.burst);
        let mut moved = 0;
        // A run lies within one line of the VOQ, so it takes several for a burst.
        while moved < most {
            let run = voq.run(most - moved);
            if run.is_empty() {
                break;
            }
            moved += run.len();
            feed.push(&mut links.ways, QueueId::new(output, pri), run);
        }
        let empty = voq.settle();
        self.moved[output] += moved;
        self.is_spent |= self.moved[output] >= self.budget;
        // The egress queue is full, for every input: all requests to it are withdrawn. It has room
        // again only after this port has sent, and `collect` starts over then.
        if moved == room {
            self.requests.set(output, pri, PortSet::EMPTY);
        } else if empty {
            self.requests.remove(input, output, pri);
        }
        moved
    }
}
