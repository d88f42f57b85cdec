//! Fast path: when frames may pass the pipeline by, and when it is done with those that did not.
//!
//! Shape: per output a gate of priorities; per input what was received up to a mark, until each output
//! that it went to has sent all that it had taken by then.
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::{AtomicU64, Ordering, fence};

use super::{Core, Lane, Step};
use crate::pipeline::egress::OutputLane;
use crate::port::{FastPath, Port};
use crate::stats::WorkerStats;
use crate::types::{PerPort, PortId, PortSet, PriSet};

/// What is shared of outputs that have a fast path.
pub struct FastCore {
    /// Outputs that surely have none.
    without: AtomicU64,
    /// By output: frames taken off its queues that have left since, or were dropped.
    ended: PerPort<AtomicU64>,
    /// What went past the pipeline, as its owner counts it.
    pub stats: WorkerStats,
}

impl FastCore {
    pub(super) fn new() -> Self {
        Self {
            without: AtomicU64::new(0),
            ended: PerPort::from_fn(|_| AtomicU64::new(0)),
            stats: WorkerStats::default(),
        }
    }
}

/// What an input that hands over to the fast path waits for: frames that it received and that have not left.
#[derive(Default)]
pub(super) struct Draining {
    /// Frames were received since the last mark, and where they were queued.
    received: bool,
    outputs: PortSet,
    pris: PerPort<PriSet>,
    /// The same of those before the mark, as long as they may be queued.
    is_marked: bool,
    queued: PortSet,
    queued_pris: PerPort<PriSet>,
    /// Outputs that had taken all of them, and what they had taken then.
    sending: PortSet,
    taken: PerPort<u64>,
}

impl Draining {
    /// A burst was received.
    pub const fn receive(&mut self) {
        self.received = true;
    }

    /// Frames of a burst were queued.
    #[inline]
    pub fn queue(&mut self, output: PortId, pri: crate::types::Pri) {
        self.outputs.insert(output);
        self.pris[output].insert(pri);
    }

    /// Begins with what was received until now.
    fn mark(&mut self) {
        self.is_marked = true;
        self.received = false;
        self.queued = core::mem::take(&mut self.outputs);
        for output in self.queued.iter() {
            self.queued_pris[output] = core::mem::take(&mut self.pris[output]);
        }
    }

    /// Whether all frames from before the mark have left.
    fn is_drained(&mut self, core: &Core) -> bool {
        let without = PortSet::from_bits(core.fast.without.load(Ordering::Relaxed));
        for output in self.queued.iter() {
            // Nothing overtakes where nothing passes by.
            if without.contains(output) {
                self.queued.remove(output);
                continue;
            }
            let is_queued = |pri| core.buffer.depth(output, pri) > 0;
            if self.queued_pris[output].iter().any(is_queued) {
                continue;
            }
            fence(Ordering::Acquire); // pairs with `OutputLane::take`
            self.queued.remove(output);
            self.sending.insert(output);
            self.taken[output] = core.taken(output);
        }
        for output in self.sending.iter() {
            let ended = core.fast.ended[output].load(Ordering::Acquire); // pairs with `tell`
            if ended.wrapping_sub(self.taken[output]).cast_signed() >= 0 {
                self.sending.remove(output);
            }
        }
        self.is_marked = !(self.queued.is_empty() && self.sending.is_empty());
        !self.is_marked
    }
}

impl Core {
    /// Frames that `output` took off its queues.
    fn taken(&self, output: PortId) -> u64 {
        let of = |stats: &WorkerStats| taken(stats, output);
        self.stats.iter().fold(0, |sum, stats| sum.wrapping_add(of(stats)))
    }
}

fn taken(stats: &WorkerStats, output: PortId) -> u64 {
    let queues = &stats.port[output].pri;
    crate::types::Pri::ALL.iter().fold(0, |sum, &pri| sum.wrapping_add(queues[pri].dequeued.get()))
}

impl Lane {
    /// Sets the gates of this lane's outputs, tells what they have sent, and lets inputs know that
    /// what they received has left.
    pub(super) fn steer(&mut self, ports: &mut [Box<dyn Port>], step: &mut Step) {
        let any = *self
            .has_fast_path
            .get_or_insert_with(|| any_fast(&self.ctx.core, &self.outputs, ports));
        if !any {
            return;
        }
        let Self { ctx, inputs, outputs, .. } = self;
        for (lane, port) in outputs.iter_mut().zip(ports.iter_mut()) {
            let Some(fast) = port.fast_path() else { continue };
            lane.tell(&ctx.core, &ctx.stats, fast);
            let gate = lane.gate(&ctx.core, ctx.snapshot.unshaped[lane.port]);
            if gate != lane.gate {
                lane.gate = gate;
                fast.set_gate(gate);
            }
        }
        for (lane, port) in inputs.iter_mut().zip(ports) {
            let Some(fast) = port.fast_path() else { continue };
            let draining = &mut lane.draining;
            if !draining.is_marked && draining.received {
                fast.mark();
                draining.mark();
            }
            if draining.is_marked && draining.is_drained(&ctx.core) {
                fast.drained();
            }
            step.blocked |= draining.is_marked || draining.received;
        }
    }
}

/// Notes which outputs have no fast path; whether any has one.
fn any_fast(core: &Core, outputs: &[OutputLane], ports: &mut [Box<dyn Port>]) -> bool {
    let mut without = PortSet::EMPTY;
    for (lane, port) in outputs.iter().zip(ports) {
        if port.fast_path().is_none() {
            without.insert(lane.port);
        }
    }
    core.fast.without.fetch_or(without.bits(), Ordering::Relaxed);
    without.len() < outputs.len()
}

impl OutputLane {
    /// Tells how many of the frames that were taken off the queues have left.
    fn tell(&self, core: &Core, stats: &WorkerStats, fast: &dyn FastPath) {
        let under_way = self.unsent() + fast.sending();
        let ended = taken(stats, self.port).wrapping_sub(under_way as u64);
        core.fast.ended[self.port].store(ended, Ordering::Release); // pairs with `is_drained`
    }

    /// Priorities of `unshaped` whose frames may be sent at once: none is paused, or has a frame queued, and
    /// the port is not blocked.
    fn gate(&self, core: &Core, unshaped: PriSet) -> PriSet {
        if !self.up || self.unsent() > 0 || core.blocked().contains(self.port) {
            return PriSet::EMPTY;
        }
        let held = core.paused(self.port).or(core.storming(self.port));
        let open = unshaped.without(held);
        open.iter().filter(|&pri| core.buffer.depth(self.port, pri) == 0).collect()
    }
}
