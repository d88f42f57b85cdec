//! Cut-through: forwards frames when their headers are in, or parks them.
//!
//! A frame that a port handed over before its last bit is in goes over the crossbar at once, or is
//! parked until then.
//!
//! Units: cells, [`Instant`].
//! Source: docs/spec/model.md §2.

use super::VirtualTimeLane;
use super::parked::Parked;
use crate::desc::Desc;
use crate::islip::Match;
use crate::pipeline::burst::FrameRoute;
use crate::pipeline::lane::Lane;
use crate::pipeline::learn::learn_burst;
use crate::pipeline::timing::Step;
use crate::port::TimedPort;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortId, PriSet, QueueKey};

impl VirtualTimeLane {
    /// Keeps the frame that port `index` handed over, and that is whole at `until`.
    pub(super) fn park<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        desc: Desc,
        until: Instant,
        tracer: &mut T,
    ) {
        let Lane { ctx, inputs, scratch, .. } = &mut self.lane;
        let Some(lane) = inputs.get_mut(index) else {
            ctx.bufs.free(desc);
            return;
        };
        ctx.stats.parked.add(1);
        // The simulated wire knows already that the frame's FCS will be wrong: its source is not
        // learnt.
        if ctx.bufs.is_damaged(&desc) {
            scratch.learn.clear();
        }
        learn_burst(ctx, now, lane.port, &mut scratch.learn, tracer);
        let (route, meta) = (scratch.routes[0], scratch.metas[0]);
        let parked = Parked { desc, route, meta, until, is_new: true };
        self.parked.put(lane.port, Box::new(parked));
    }

    /// Queues the frame of `input` if it is whole by now; returns how many frames that was. A
    /// frame that was damaged on the wire is dropped.
    pub(super) fn unpark<T: Tracer>(
        &mut self,
        now: Instant,
        input: PortId,
        tracer: &mut T,
    ) -> usize {
        let parked = self.parked.take_if(input, |parked| parked.until <= now);
        let Some(mut parked) = parked else { return 0 };
        let ctx = &mut self.lane.ctx;
        if ctx.bufs.is_damaged(&parked.desc) {
            ctx.bufs.set_damaged(&mut parked.desc, false);
            ctx.stats.parked.sub(1);
            ctx.end(now, parked.desc, DropReason::Fcs, tracer);
            return 1;
        }
        self.proceed(now, input, *parked, tracer);
        1
    }

    /// Forwards frames whose header came in at `now` and whose outputs can start now; the others
    /// stay until they are whole.
    pub(super) fn cut_through<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn TimedPort>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        for input in self.parked.inputs().iter() {
            // Only in the step in which its header came in. A frame that could not start then waits
            // for its last bit (docs/spec/model.md §2).
            let parked = self.parked.take_if(input, |parked| parked.is_new);
            let Some(mut parked) = parked else { continue };
            let voq = parked.voq(input);
            let Some(QueueKey { output, pri, .. }) =
                voq.filter(|&voq| self.starts_now(now, voq, parked.desc.len(), ports))
            else {
                parked.is_new = false;
                self.parked.put(input, parked);
                continue;
            };
            self.proceed(now, input, *parked, tracer);
            // Queued and taken out in one step, so that admission, counters and the crossbar's hold
            // are those of any other frame.
            let found = Match { input, output, pri, iteration: 0 };
            step.work += self.follow_match(now, found, ports, step, tracer);
        }
    }

    /// Whether a frame that comes in now at the rate of `output` could be sent there now, with no
    /// frame before it.
    fn starts_now(
        &self,
        now: Instant,
        voq: QueueKey,
        len: usize,
        ports: &[Box<dyn TimedPort>],
    ) -> bool {
        let QueueKey { input, output, pri } = voq;
        let Lane { ctx, inputs, outputs, .. } = &self.lane;
        let snapshot = &ctx.snapshot;
        let rate = |port: PortId| snapshot.config.ports.get(port.index()).map(|port| port.rate);
        let mine = outputs.iter().zip(inputs).zip(ports).find(|((lane, _), _)| lane.port == output);
        let Some(((lane, back), port)) = mine else { return false };
        let is_free = |port: &dyn TimedPort| port.idle_at().is_none_or(|at| at <= now);
        let buffer = &ctx.core.buffer;
        let only = PriSet::only(pri);
        let may_send = !ctx.core.closed(output).contains(pri)
            && lane.sched.next_open(now, only).is_some_and(|at| at <= now);
        // Neither a frame nor a PAUSE is before it, and (`fits`) it makes no PAUSE necessary.
        let is_first = !lane.is_blocked()
            && snapshot.pris.iter().all(|pri| buffer.depth(output, pri) == 0)
            && back.pause.next(now).is_none_or(|at| at > now);
        let fits = !snapshot.is_lossless(input, pri) || {
            let used = buffer.group_used(input, pri) + buffer.headroom_used(input, pri);
            used + snapshot.cells(len) <= buffer.group_limit(&ctx.lease, &snapshot.thresholds, pri)
        };
        // The same rate on both sides: a faster output would run out of bits in the middle of the
        // frame.
        lane.up
            && rate(input) == rate(output)
            && may_send
            && is_first
            && fits
            && is_free(port.as_ref())
            && self.holds.is_free(now, voq)
    }

    /// Ends the ingress of a frame: puts it into its queues.
    fn proceed<T: Tracer>(&mut self, now: Instant, input: PortId, parked: Parked, tracer: &mut T) {
        let Lane { ctx, inputs, outputs, .. } = &mut self.lane;
        let Some(lane) = inputs.get_mut(input.index()) else { return };
        ctx.stats.parked.sub(1);
        let Parked { desc, route, meta, .. } = parked;
        let found = FrameRoute { route, meta: &meta };
        lane.dispose_one(ctx, now, desc, found, outputs.get_mut(input.index()), tracer);
    }

    /// Drops frames that are not whole, when the switch stops.
    pub(super) fn end_parked<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        for input in self.parked.inputs().iter() {
            let Some(parked) = self.parked.take_if(input, |_| true) else { continue };
            self.lane.ctx.stats.parked.sub(1);
            self.lane.ctx.end(now, parked.desc, DropReason::Shutdown, tracer);
        }
    }
}
