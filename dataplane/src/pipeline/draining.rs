//! Draining: tracks when the frames that an input has received have left the switch.
//!
//! It notes the queues that frames before a mark went to. They have left when each of these outputs
//! has sent all frames that it had taken off its queues by then.
//!
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::{Ordering, fence};

use super::switch_core::Core;
use crate::stats::WorkerStats;
use crate::types::{PerPort, PortId, PortSet, PriSet};

/// Frames that an input received and that may not have left. The kernel's fast path takes over an
/// input's traffic only when they have, or frames would overtake each other.
#[derive(Default)]
pub(super) struct Draining {
    /// Whether frames were received since the last mark, and the queues that they went to.
    pub(super) received: bool,
    outputs: PortSet,
    pris: PerPort<PriSet>,
    /// Whether frames from before the mark may still be here, and the queues where they may wait.
    pub(super) is_marked: bool,
    queued: PortSet,
    queued_pris: PerPort<PriSet>,
    /// Outputs that had taken all of them off their queues, and how many frames they had taken then.
    sending: PortSet,
    taken: PerPort<u64>,
}

impl Draining {
    /// Notes that a burst was received.
    pub const fn receive(&mut self) {
        self.received = true;
    }

    /// Notes that frames were queued for (`output`, `pri`).
    #[inline]
    pub fn queue(&mut self, output: PortId, pri: crate::types::Pri) {
        self.outputs.insert(output);
        self.pris[output].insert(pri);
    }

    /// Sets the mark behind all frames received so far.
    pub(super) fn mark(&mut self) {
        self.is_marked = true;
        self.received = false;
        self.queued = core::mem::take(&mut self.outputs);
        for output in self.queued.iter() {
            self.queued_pris[output] = core::mem::take(&mut self.pris[output]);
        }
    }

    /// Frames from before the mark are queued only now (TLPs that were decided about once more): a
    /// new mark must be set behind them.
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
            // Frames for an output without a fast path cannot be overtaken.
            if without.contains(output) {
                self.queued.remove(output);
                continue;
            }
            let is_queued = |pri| core.buffer.depth(output, pri) > 0;
            if self.queued_pris[output].iter().any(is_queued) {
                continue;
            }
            // Pairs with the Release fence in `OutputLane::take`: with the depth at 0, `taken` counts
            // all frames from before the mark.
            fence(Ordering::Acquire);
            self.queued.remove(output);
            self.sending.insert(output);
            self.taken[output] = core.taken(output);
        }
        for output in self.sending.iter() {
            // Pairs with `OutputLane::tell`. Wrapping counts, compared by the sign of their difference.
            let ended = core.fast.ended[output].load(Ordering::Acquire);
            if ended.wrapping_sub(self.taken[output]).cast_signed() >= 0 {
                self.sending.remove(output);
            }
        }
        self.is_marked = !(self.queued.is_empty() && self.sending.is_empty());
        !self.is_marked
    }
}

impl Core {
    /// Frames that `output` took off its queues since the start, wrapping.
    pub(super) fn taken(&self, output: PortId) -> u64 {
        let of = |stats: &WorkerStats| taken(stats, output);
        self.stats.iter().fold(0, |sum, stats| sum.wrapping_add(of(stats)))
    }
}

pub(super) fn taken(stats: &WorkerStats, output: PortId) -> u64 {
    let queues = &stats.port[output].pri;
    crate::types::Pri::ALL.iter().fold(0, |sum, &pri| sum.wrapping_add(queues[pri].dequeued.get()))
}
