//! Crossbar: moves frames from VOQs to egress queues, as iSLIP matches them.
//!
//! Slots follow each other within a step until no input has a request, and requests are kept up to
//! date from slot to slot.
//!
//! Units: frames, slots.
//! Source: docs/spec/pipeline.md §6.

use weft_base::ring::Rx;

use super::context::{Context, ToCrossbar};
use super::downlink::{DownlinkTx, Feed};
use super::uplink::QueuedDesc;
use crate::desc::Desc;
use crate::islip::{Islip, Matches, Requests};
use crate::queues::QueueId;
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::time::Instant;
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
    /// Frames moved to each output in this step, which `budget` bounds.
    moved: PerPort<usize>,
    budget: usize,
    /// Some output has got all frames that a step may move to it.
    is_spent: bool,
}

/// Rings between the crossbar's owner and the workers without a crossbar.
#[derive(Default)]
pub(super) struct Links {
    /// Frames that they have admitted, a ring for each worker.
    pub from: Vec<Rx<QueuedDesc>>,
    /// Ways to their egress queues, one for each worker.
    pub ways: Vec<DownlinkTx>,
}

impl Crossbar {
    pub fn new(feeds: PerPort<PerPri<Feed>>, links: Links, snapshot: &Snapshot) -> Self {
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
        };
        crossbar.reconfigure(snapshot);
        crossbar
    }

    pub fn reconfigure(&mut self, snapshot: &Snapshot) {
        let config = &snapshot.config.crossbar;
        self.islip.set_iterations(config.iterations);
        self.islip.set_discipline(config.discipline);
        self.burst = config.burst.max(1);
        // Bounds a step, so that ports are serviced in time however much traffic one output
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

    /// Whether the egress queue of (`output`, `pri`) takes one more frame.
    #[inline]
    pub(super) fn has_room_for(&self, output: PortId, pri: Pri) -> bool {
        match &self.feeds[output][pri] {
            Feed::Local(queue) => queue.len_seen() < self.limit,
            Feed::Absent | Feed::Remote { .. } => false,
        }
    }

    /// Whether the egress queue of (`output`, `pri`) holds all frames that it may.
    #[inline]
    pub(super) fn is_full(&mut self, output: PortId, pri: Pri) -> bool {
        self.feeds[output][pri].len(&self.links.ways) >= self.limit
    }

    /// Puts a frame into an egress queue that takes it ([`Self::has_room_for`]).
    #[inline]
    pub(super) fn feed(&mut self, output: PortId, pri: Pri, desc: Desc) {
        let id = QueueId::new(output, pri);
        self.feeds[output][pri].push(&mut self.links.ways, id, &[desc.pack()]);
    }

    /// Collects the requests of the next slot.
    pub(super) fn collect(&mut self, ctx: &Context) {
        self.requests.clear();
        let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return };
        for output in voqs.outputs().and(ctx.core.up()).iter() {
            for pri in voqs.waiting_pris(output).without(ctx.core.closed(output)).iter() {
                if !self.is_full(output, pri) {
                    self.requests.set(output, pri, voqs.waiting(output, pri));
                }
            }
        }
    }

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

    /// Moves the frames of one match; returns how many.
    #[inline(never)] // on its own it keeps its state in registers
    pub(super) fn transfer(&mut self, ctx: &mut Context, key: QueueKey) -> usize {
        let QueueKey { input, output, pri } = key;
        let Self { feeds, links, .. } = self;
        let feed = &mut feeds[output][pri];
        let Context { to_crossbar, .. } = ctx;
        let queue = match to_crossbar {
            ToCrossbar::Local(voqs) => voqs.queue(input, QueueId::new(output, pri)),
            ToCrossbar::Remote(_) => None,
        };
        let Some(mut voq) = queue.filter(|_| !matches!(feed, Feed::Absent)) else {
            self.requests.remove(key); // a request that cannot be served
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
            self.requests.remove(key);
        }
        moved
    }
}
