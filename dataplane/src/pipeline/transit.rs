//! Transit, in virtual time: a frame that nothing stands in the way of goes through the switch at once.
//!
//! Frames that came in at one instant, admitted and in no VOQ yet → to their ports where input and output are free
//! and nothing waits for either; the others go to their VOQs. It comes to the same as a slot of the crossbar and a pick of the
//! scheduler, of which both have no choice there.
//!
//! Units: cells, [`Instant`].
//! Source: docs/spec/pipeline.md §4 to §7; docs/spec/model.md §1.

use super::context::{Context, ToCrossbar};
use super::egress::count_sent;
use super::input_lane::InputLane;
use super::lane::Lane;
use super::output_lane::{OutputLane, wire_len};
use super::timing::{Step, Timing};
use super::transits::{Transit, Transits};
use crate::config::PfcMode;
use crate::desc::Desc;
use crate::port::Port;
use crate::queues::QueueId;
use crate::stats::{Counter, DropReason};
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortId, Pri, PriSet};

impl Lane {
    /// Whether frames may take this way: a trace tells each stage, and in `egress-queue` mode each stage may pause.
    #[inline]
    pub(super) fn may_transit<T: Tracer>(&self) -> bool {
        !T::ON
            && self.timing == Timing::Virtual
            && self.has_fast_path == Some(false)
            && self.ctx.snapshot.config.pfc.mode == PfcMode::IngressPg
            && self.crossbar.as_ref().is_some_and(|crossbar| crossbar.islip.is_strict())
    }

    /// Lets the frames that came in at `now` go through, or into their VOQs; returns how many went.
    pub(super) fn pass_transits<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        let Transits { mut frames, contended, .. } = core::mem::take(&mut self.transits);
        let mut moved = 0;
        if !contended.is_empty() {
            // Whoever meets others takes part in the slot.
            let meets = |frame: &Transit| contended.contains(frame.output);
            let (meeting, alone) = frames.drain(..).partition::<Vec<_>, _>(meets);
            for frame in meeting {
                self.queue(now, frame, tracer);
            }
            frames = alone;
        }
        for frame in frames.drain(..) {
            let (input, output, pri) = (frame.desc.input(), frame.output, frame.desc.pri());
            if !self.is_clear(now, input, output, pri) {
                self.queue(now, frame, tracer);
                continue;
            }
            if let Some(crossbar) = &mut self.crossbar {
                let _ = crossbar.islip.slot_of_one(input, output, pri);
            }
            moved += self.cross_over(now, frame.desc, output, ports, step, tracer);
        }
        self.transits.frames = frames; // its memory
        moved
    }

    /// Takes a frame over the crossbar, and sends it where nothing is before it; else it goes into its egress queue, which has
    /// room. Returns how often it went on.
    #[inline]
    pub(super) fn cross_over<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        // Frames of one instant leave such ports in the order of ports.
        let may_pass = self.may_transit::<T>() && !self.in_bursts.contains(output);
        let Self { ctx, crossbar, outputs, inputs, .. } = self;
        let (lane, back) = (outputs.get_mut(output.index()), inputs.get(output.index()));
        let (Some(crossbar), Some(lane), Some(back), Some(port)) =
            (crossbar, lane, back, ports.get_mut(output.index()))
        else {
            ctx.purge(now, desc, output, DropReason::NoOutput, tracer);
            return 0;
        };
        let pri = desc.pri();
        crossbar.hold(now, desc.input(), output, desc.len(), &ctx.snapshot);
        if may_pass && lane.is_bare() && back.pause.is_idle() && port.tx_room(now) > 0 {
            return 1 + lane.send_one(ctx, now, desc, port.as_mut(), tracer);
        }
        crossbar.feed(output, pri, desc);
        lane.queued.insert(pri);
        step.fed.insert(output);
        1
    }

    /// Puts an admitted frame into its VOQ.
    fn queue<T: Tracer>(&mut self, now: Instant, frame: Transit, tracer: &mut T) {
        let Self { ctx, .. } = self;
        let Transit { desc, output } = frame;
        let (input, id) = (desc.input(), QueueId::new(output, desc.pri()));
        ctx.is_stirred = true;
        let ToCrossbar::Local(voqs) = &mut ctx.to_crossbar else { return };
        if let Err(desc) = voqs.push(input, id, desc) {
            ctx.purge(now, desc, output, DropReason::Pool, tracer); // it was counted as queued
        }
    }

    /// Whether a frame is sure to go from `input` to `output` in the next slot, and nobody else from or to them.
    #[inline]
    fn is_clear(&self, now: Instant, input: PortId, output: PortId, pri: Pri) -> bool {
        let Self { ctx, crossbar: Some(crossbar), .. } = self else { return false };
        let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return false };
        let core = &ctx.core;
        core.up().contains(output)
            && !core.closed(output).contains(pri)
            && crossbar.is_free(now, input, output)
            && (voqs.outputs().is_empty()
                || !voqs.outputs().contains(output) && !voqs.waits_from(input))
            && crossbar.has_room_for(output, pri)
    }
}

impl InputLane {
    /// Admits a frame that goes to one output, and keeps it until all of this instant have come in.
    #[inline]
    pub(super) fn enter<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        desc: Desc,
        output: PortId,
        transits: &mut Transits,
        tracer: &mut T,
    ) {
        let pri = desc.pri();
        let Some(desc) = self.admit_one(ctx, now, output, desc, tracer) else { return };
        ctx.stats.port[self.port].pri[pri].enqueued.add(1);
        let depth = u64::from(ctx.core.buffer.depth(output, pri));
        ctx.stats.port[output].pri[pri].depth_watermark.raise(depth);
        ctx.note_shared();
        transits.add(desc, output);
    }
}

impl OutputLane {
    /// Whether nothing is before a frame that comes now, and no rate holds it.
    #[inline]
    fn is_bare(&self) -> bool {
        self.up
            && !self.tx_off
            && !self.backlog
            && self.queued.is_empty()
            && self.pending.is_empty()
            && self.sched.is_unlimited()
    }

    /// As [`Self::take`] and [`Self::hand_over`] of a frame that was in no egress queue: nothing is before it.
    #[inline]
    fn send_one<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        desc: Desc,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        let (output, pri) = (self.port, desc.pri());
        let _ = self.sched.pick(now, PriSet::only(pri), |_| wire_len(&desc));
        let Some(desc) = ctx.leave(now, output, desc, tracer) else { return 0 };
        count_sent(&ctx.stats.port[output], core::slice::from_ref(&desc), Counter::add);
        port.tx_one(now, &mut ctx.bufs, desc);
        1
    }
}
