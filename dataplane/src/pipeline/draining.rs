//! Draining: what an input that hands over to the fast path waits for.
//!
//! What was received up to a mark, until each output that it went to has sent all that it had taken by then.
//!
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::{Ordering, fence};

use super::switch_core::Core;
use crate::stats::WorkerStats;
use crate::types::{PerPort, PortId, PortSet, PriSet};

/// What an input that hands over to the fast path waits for: frames that it received and that have not left.
#[derive(Default)]
pub(super) struct Draining {
    /// Frames were received since the last mark, and where they were queued.
    pub(super) received: bool,
    outputs: PortSet,
    pris: PerPort<PriSet>,
    /// The same of those before the mark, as long as they may be queued.
    pub(super) is_marked: bool,
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
    pub(super) fn mark(&mut self) {
        self.is_marked = true;
        self.received = false;
        self.queued = core::mem::take(&mut self.outputs);
        for output in self.queued.iter() {
            self.queued_pris[output] = core::mem::take(&mut self.pris[output]);
        }
    }

    /// Frames from before the mark are queued only now: there is to be another mark behind them.
    #[cold]
    pub fn begin_again(&mut self) {
        for output in self.queued.iter() {
            self.outputs.insert(output);
            self.pris[output] = self.pris[output].or(self.queued_pris[output]);
        }
        self.queued = PortSet::EMPTY;
        (self.is_marked, self.received) = (false, true);
    }

    /// Whether all frames from before the mark have left.
    pub(super) fn is_drained(&mut self, core: &Core) -> bool {
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
    pub(super) fn taken(&self, output: PortId) -> u64 {
        let of = |stats: &WorkerStats| taken(stats, output);
        self.stats.iter().fold(0, |sum, stats| sum.wrapping_add(of(stats)))
    }
}

pub(super) fn taken(stats: &WorkerStats, output: PortId) -> u64 {
    let queues = &stats.port[output].pri;
    crate::types::Pri::ALL.iter().fold(0, |sum, &pri| sum.wrapping_add(queues[pri].dequeued.get()))
}
