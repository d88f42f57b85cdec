//! Gate of one output: the priorities whose frames may be sent past the pipeline.
//!
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::Ordering;

use super::OutputLane;
use crate::pipeline::draining::taken;
use crate::pipeline::switch_core::Core;
use crate::stats::WorkerStats;
use crate::types::PriSet;

impl OutputLane {
    /// Publishes how many of the frames that were taken off the queues have left.
    pub fn tell(&self, core: &Core, stats: &WorkerStats, sending: usize) {
        let under_way = self.unsent() + sending;
        let ended = taken(stats, self.port).wrapping_sub(under_way as u64);
        // Pairs with the Acquire load in `Draining::is_drained`: frames that are told as left were sent
        // before, so that no frame which the kernel forwards then overtakes them.
        core.fast.ended[self.port].store(ended, Ordering::Release);
    }

    /// Priorities of `unshaped` whose frames the kernel may send at once: not paused, without a
    /// queued frame, and the port is not blocked.
    pub fn gate(&self, core: &Core, unshaped: PriSet) -> PriSet {
        if !self.up || self.tx_off || self.unsent() > 0 || core.blocked().contains(self.port) {
            return PriSet::EMPTY;
        }
        let held = core.paused(self.port).or(core.storming(self.port));
        let open = unshaped.without(held);
        open.iter().filter(|&pri| core.buffer.depth(self.port, pri) == 0).collect()
    }
}
