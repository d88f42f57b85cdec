//! Transit: a frame whose path is free goes through the switch at once.
//!
//! Frames that came in at one instant are admitted but not yet in a VOQ. Where input and output are
//! free and no other frame waits for either, a frame goes to its port; all others go to their VOQs.
//! The result is that of a slot of the crossbar and a pick of the scheduler, as neither has a
//! choice there.
//!
//! Units: cells, [`Instant`].
//! Source: docs/spec/pipeline.md §4 to §7; docs/spec/model.md §1.

use super::VirtualTimeLane;
use super::transits::{Transit, Transits};
use crate::desc::Desc;
use crate::pipeline::context::{Context, ToCrossbar};
use crate::pipeline::input_lane::InputLane;
use crate::pipeline::input_lane::note_shared;
use crate::pipeline::lane::Lane;
use crate::pipeline::output_lane::count_sent;
use crate::pipeline::output_lane::leave_one;
use crate::pipeline::output_lane::{OutputLane, wire_len};
use crate::pipeline::timing::Step;
use crate::port::TimedPort;
use crate::queues::QueueId;
use crate::stats::{Counter, DropReason};
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortId, PriSet, QueueKey};

impl VirtualTimeLane {
    /// Lets the frames that came in at `now` go through, or into their VOQs; returns how many went
    /// through.
    pub(super) fn pass_transits<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn TimedPort>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        let Transits { mut frames, contended, .. } = core::mem::take(&mut self.transits);
        let mut moved = 0;
        if !contended.is_empty() {
            // Frames that compete for an output go to their VOQs, where a slot decides between them.
            let meets = |frame: &Transit| contended.contains(frame.output);
            let (meeting, alone) = frames.drain(..).partition::<Vec<_>, _>(meets);
            for frame in meeting {
                self.queue(now, frame, tracer);
            }
            frames = alone;
        }
        for frame in frames.drain(..) {
            let (output, pri) = (frame.output, frame.desc.pri());
            let voq = QueueKey { input: frame.desc.input(), output, pri };
            if !self.is_clear(now, voq) {
                self.queue(now, frame, tracer);
                continue;
            }
            if let Some(crossbar) = &mut self.lane.crossbar {
                // For the pointers, which must be as after a slot with this one request.
                let _ = crossbar.islip.slot_of_one(voq);
            }
            moved += self.cross_over(now, frame.desc, output, ports, step, tracer);
        }
        self.transits.frames = frames; // keeps the allocation
        moved
    }

    /// Takes a frame over the crossbar, and sends it if no other is before it; else it goes into
    /// its egress queue, which has room. Returns how many times it moved: 1, or 2 if it was sent.
    #[inline]
    pub(super) fn cross_over<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        ports: &mut [Box<dyn TimedPort>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        // Ports that take bursts get the frames of one instant in the order of ports, from `send_due`.
        let may_pass = self.may_transit::<T>() && !self.in_bursts.contains(output);
        let Lane { ctx, crossbar, outputs, inputs, .. } = &mut self.lane;
        let (lane, back) = (outputs.get_mut(output.index()), inputs.get(output.index()));
        let (Some(crossbar), Some(lane), Some(back), Some(port)) =
            (crossbar, lane, back, ports.get_mut(output.index()))
        else {
            ctx.purge(now, desc, output, DropReason::NoOutput, tracer);
            return 0;
        };
        let pri = desc.pri();
        self.holds.hold(now, &desc, output, &ctx.snapshot);
        if may_pass && is_bare(lane) && back.pause.is_idle() && port.tx_room(now) > 0 {
            return 1 + send_one(lane, ctx, now, desc, port.as_mut(), tracer);
        }
        crossbar.feed(output, pri, desc);
        lane.queued.insert(pri);
        step.fed.insert(output);
        1
    }

    /// Puts an admitted frame into its VOQ.
    fn queue<T: Tracer>(&mut self, now: Instant, frame: Transit, tracer: &mut T) {
        let ctx = &mut self.lane.ctx;
        let Transit { desc, output } = frame;
        let (input, id) = (desc.input(), QueueId::new(output, desc.pri()));
        ctx.crossbar_dirty = true;
        let ToCrossbar::Local(voqs) = &mut ctx.to_crossbar else { return };
        if let Err(desc) = voqs.push(input, id, desc) {
            ctx.purge(now, desc, output, DropReason::Pool, tracer); // it was counted as queued
        }
    }

    /// Whether a frame is sure to go from `input` to `output` in the next slot, and no other from
    /// or to them.
    #[inline]
    fn is_clear(&self, now: Instant, voq: QueueKey) -> bool {
        let QueueKey { input, output, pri } = voq;
        let Lane { ctx, crossbar: Some(crossbar), .. } = &self.lane else { return false };
        let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return false };
        let core = &ctx.core;
        core.up().contains(output)
            && !core.closed(output).contains(pri)
            && self.holds.is_free(now, voq)
            && (voqs.outputs().is_empty()
                || !voqs.outputs().contains(output) && !voqs.waits_from(input))
            && crossbar.has_room_for(output, pri)
    }
}

/// Admits a frame of the port of `lane` that goes to one output, and keeps it until all frames of
/// this instant have come in.
#[inline]
pub(super) fn enter<T: Tracer>(
    lane: &mut InputLane,
    ctx: &mut Context,
    now: Instant,
    desc: Desc,
    output: PortId,
    transits: &mut Transits,
    tracer: &mut T,
) {
    let pri = desc.pri();
    let Some(desc) = lane.admit_one(ctx, now, output, desc, tracer) else { return };
    ctx.stats.port[lane.port].pri[pri].enqueued.add(1);
    // As `InputLane::publish` does for frames that go to a VOQ.
    let depth = u64::from(ctx.core.buffer.depth(output, pri));
    ctx.stats.port[output].pri[pri].depth_watermark.raise(depth);
    note_shared(ctx);
    transits.add(desc, output);
}

/// Whether no frame is before one that comes now, and no rate limit holds it.
#[inline]
fn is_bare(lane: &OutputLane) -> bool {
    lane.up
        && !lane.tx_off
        && !lane.backlog
        && lane.queued.is_empty()
        && lane.pending.is_empty()
        && lane.sched.is_unlimited()
}

/// Does the work of [`OutputLane::take`] and [`OutputLane::hand_over`] for a frame that skips the
/// egress queue.
#[inline]
fn send_one<T: Tracer>(
    lane: &mut OutputLane,
    ctx: &mut Context,
    now: Instant,
    desc: Desc,
    port: &mut dyn TimedPort,
    tracer: &mut T,
) -> usize {
    let (output, pri) = (lane.port, desc.pri());
    // For the state of the round, which must be as if the frame had been queued.
    let _ = lane.sched.pick(now, PriSet::only(pri), |_| wire_len(&desc));
    let Some(desc) = leave_one(ctx, now, output, desc, tracer) else { return 0 };
    count_sent(&ctx.stats.port[output], core::slice::from_ref(&desc), Counter::add);
    port.tx_one(now, &mut ctx.bufs, desc);
    1
}
