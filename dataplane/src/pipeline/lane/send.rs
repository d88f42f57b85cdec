//! Send: picks frames of one port and hands them over, PFC frames first.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §7 to §9.

use super::Lane;
use crate::batch::BURST;
use crate::port::Port;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortSet, PriSet};

impl Lane {
    /// Sends frames that may be sent by one port; returns how many the port took. Egress queues of
    /// other priorities than `queued` are empty.
    #[inline]
    pub(in crate::pipeline) fn send<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        queued: PriSet,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if !self.outputs.get(index).is_some_and(|lane| lane.up) {
            return self.empty_down(now, index, tracer);
        }
        // First: a PAUSE that waits behind data costs headroom.
        self.send_pause(now, index, tracer);
        let Self { ctx, outputs, .. } = self;
        let Some(lane) = outputs.get_mut(index) else { return 0 };
        (lane.closed_until, lane.full) = (None, false);
        let (ready, lens) = lane.ready(queued);
        lane.queued = ready;
        // Held queues (`tx_off`) are skipped like paused ones, but watchdog and counters see no
        // pause.
        let paused = if lane.tx_off { ready } else { ready.and(ctx.core.paused(lane.port)) };
        let open = ready.without(paused);
        if open.is_empty() && lane.pending.is_empty() {
            lane.backlog = !paused.is_empty();
            return 0;
        }
        let room = port.tx_room(now).min(ctx.snapshot.config.tx_ring_frames).min(BURST);
        // At most as many as the port takes now. Frames that were picked cannot be paused or
        // dropped as queued any more, and are out of the buffer's counters.
        let left = lane.pick(ctx, now, room, open, lens, tracer);
        let sent = if lane.tx_off {
            lane.hand_over_control(ctx, now, port, tracer)
        } else {
            lane.hand_over(ctx, now, port, tracer)
        };
        lane.queued = paused.or(left);
        lane.backlog = !lane.queued.is_empty() || !lane.pending.is_empty();
        sent
    }

    /// Whether a port surely has nothing to send: it had no backlog at the last look, is not among
    /// `fed`, and no PAUSE is to be sent.
    #[inline]
    pub(in crate::pipeline) fn is_idle(&self, index: usize, fed: PortSet) -> bool {
        self.outputs.get(index).is_some_and(|o| o.up && !o.backlog && !fed.contains(o.port))
            && self.inputs.get(index).is_some_and(|input| input.pause.is_idle())
    }
}
