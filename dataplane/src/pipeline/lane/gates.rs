//! Gates of the fast path: when frames may bypass the pipeline, and when those that did not have
//! left it.
//!
//! Each output has a gate of priorities. Each input has a mark on the frames that it received so
//! far, which is reached when every output that they went to has sent all that it had taken by
//! then.
//!
//! Units: frames.
//! Source: docs/express.md.

use weft_base::sync::Ordering;

use super::Lane;
use crate::pipeline::output_lane::OutputLane;
use crate::pipeline::switch_core::Core;
use crate::pipeline::timing::Step;
use crate::port::Port;
use crate::types::PortSet;

impl Lane {
    /// Sets the gates of this lane's outputs, publishes how many frames they have sent, and tells
    /// inputs when the frames that they received have left.
    pub(in crate::pipeline) fn steer(&mut self, ports: &mut [Box<dyn Port>], step: &mut Step) {
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
            // A held frame is in no queue but has not left either: no later one may overtake it.
            let is_held = !ctx.held.is_empty() && ctx.held.is_of(lane.port);
            if draining.is_marked && !is_held && draining.is_drained(&ctx.core) {
                fast.drained();
            }
            step.blocked |= draining.is_marked || draining.received;
        }
    }
}

/// Publishes which outputs have no fast path; true if any output has one.
fn any_fast(core: &Core, outputs: &[OutputLane], ports: &mut [Box<dyn Port>]) -> bool {
    let mut without = PortSet::EMPTY;
    for (lane, port) in outputs.iter().zip(ports) {
        if port.fast_path().is_none() {
            without.insert(lane.port);
        }
    }
    // An output counts as having a fast path until its lane says otherwise: before that lane's
    // first step its frames could be overlooked.
    core.fast.without.fetch_or(without.bits(), Ordering::Relaxed);
    without.len() < outputs.len()
}
