//! Fast path: when frames may pass the pipeline by, and when it is done with those that did not.
//!
//! Per output a gate of priorities; per input what was received up to a mark, until each output
//! that it went to has sent all that it had taken by then.
//!
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::Ordering;

use super::draining::taken;
use super::lane::Lane;
use super::output_lane::OutputLane;
use super::switch_core::Core;
use super::timing::Step;
use crate::port::Port;
use crate::stats::WorkerStats;
use crate::types::{PortSet, PriSet};

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
            let sending = port.sending();
            let Some(fast) = port.fast_path() else { continue };
            lane.tell(&ctx.core, &ctx.stats, sending);
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
            // What is held has not left: what comes in must not pass it by.
            let is_held = !ctx.held.is_empty() && ctx.held.is_of(lane.port);
            if draining.is_marked && !is_held && draining.is_drained(&ctx.core) {
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
    fn tell(&self, core: &Core, stats: &WorkerStats, sending: usize) {
        let under_way = self.unsent() + sending;
        let ended = taken(stats, self.port).wrapping_sub(under_way as u64);
        core.fast.ended[self.port].store(ended, Ordering::Release); // pairs with `is_drained`
    }

    /// Priorities of `unshaped` whose frames may be sent at once: none is paused, or has a frame queued, and
    /// the port is not blocked.
    fn gate(&self, core: &Core, unshaped: PriSet) -> PriSet {
        if !self.up || self.tx_off || self.unsent() > 0 || core.blocked().contains(self.port) {
            return PriSet::EMPTY;
        }
        let held = core.paused(self.port).or(core.storming(self.port));
        let open = unshaped.without(held);
        open.iter().filter(|&pri| core.buffer.depth(self.port, pri) == 0).collect()
    }
}
