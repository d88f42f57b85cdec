//! Cut-through, in virtual time: forwards frames when their headers are in, or parks them.
//!
//! A frame that a port handed over before its last bit is in goes over the crossbar at once, or is
//! parked until then.
//!
//! Units: cells, [`Instant`].
//! Source: docs/spec/model.md §2.

use super::burst::FrameRoute;
use super::lane::Lane;
use super::parked::Parked;
use super::timing::Step;
use crate::desc::Desc;
use crate::islip::Match;
use crate::port::Port;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortId, PortSet, PriSet, QueueKey};

impl Lane {
    /// Keeps the frame that port `index` handed over, and that is whole at `until`.
    pub(super) fn park<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        desc: Desc,
        until: Instant,
        tracer: &mut T,
    ) {
        let Self { ctx, inputs, scratch, .. } = self;
        let Some(lane) = inputs.get_mut(index) else {
            ctx.bufs.free(desc);
            return;
        };
        self.parked.insert(lane.port);
        ctx.stats.parked.add(1);
        // The simulated wire knows already that the frame's FCS will be wrong: its source is not
        // learnt.
        if ctx.bufs.is_damaged(&desc) {
            scratch.learn.clear();
        }
        ctx.learn(now, lane.port, &mut scratch.learn, tracer);
        let (route, meta) = (scratch.routes[0], scratch.metas[0]);
        lane.parked = Some(Box::new(Parked { desc, route, meta, until, is_new: true }));
    }

    /// Queues the frame of port `index` if it is whole by now; returns how many frames that was. A
    /// frame that was damaged on the wire is dropped.
    pub(super) fn unpark<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        tracer: &mut T,
    ) -> usize {
        let Some(lane) = self.inputs.get_mut(index) else { return 0 };
        let Some(mut parked) = lane.parked.take_if(|parked| parked.until <= now) else { return 0 };
        self.parked.remove(lane.port);
        if self.ctx.bufs.is_damaged(&parked.desc) {
            self.ctx.bufs.set_damaged(&mut parked.desc, false);
            self.ctx.stats.parked.sub(1);
            self.ctx.end(now, parked.desc, DropReason::Fcs, tracer);
            return 1;
        }
        self.proceed(now, index, *parked, tracer);
        1
    }

    /// Forwards frames whose header came in at `now` and whose outputs can start now; the others
    /// stay until they are whole.
    pub(super) fn cut_through<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        let early = self.parked;
        for index in 0..ports.len() {
            let Some(lane) = self.inputs.get_mut(index) else { return };
            if !early.contains(lane.port) {
                continue;
            }
            let input = lane.port;
            // Only in the step in which its header came in. A frame that could not start then waits
            // for its last bit (docs/spec/model.md §2).
            let Some(parked) = lane.parked.take_if(|parked| parked.is_new) else { continue };
            let voq = parked.voq(input);
            let Some(QueueKey { output, pri, .. }) =
                voq.filter(|&voq| self.starts_now(now, voq, parked.desc.len(), ports))
            else {
                if let Some(lane) = self.inputs.get_mut(index) {
                    lane.parked = Some(Box::new(Parked { is_new: false, ..*parked }));
                }
                continue;
            };
            self.parked.remove(input);
            self.proceed(now, index, *parked, tracer);
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
        QueueKey { input, output, pri }: QueueKey,
        len: usize,
        ports: &[Box<dyn Port>],
    ) -> bool {
        let Self { ctx, inputs, outputs, crossbar, .. } = self;
        let snapshot = &ctx.snapshot;
        let rate = |port: PortId| snapshot.config.ports.get(port.index()).map(|port| port.rate);
        let mine = outputs.iter().zip(inputs).zip(ports).find(|((lane, _), _)| lane.port == output);
        let Some(((lane, back), port)) = mine else { return false };
        let is_free = |port: &dyn Port| port.idle_at().is_none_or(|at| at <= now);
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
            && crossbar.as_ref().is_some_and(|crossbar| crossbar.is_free(now, input, output))
    }

    /// Ends the ingress of a frame: puts it into its queues.
    fn proceed<T: Tracer>(&mut self, now: Instant, index: usize, parked: Parked, tracer: &mut T) {
        let Self { ctx, inputs, outputs, .. } = self;
        let Some(lane) = inputs.get_mut(index) else { return };
        ctx.stats.parked.sub(1);
        let Parked { desc, route, meta, .. } = parked;
        let found = FrameRoute { route, meta: &meta };
        lane.dispose_one(ctx, now, desc, found, outputs.get_mut(index), tracer);
    }

    /// Drops frames that are not whole, when the switch stops.
    pub(super) fn end_parked<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        self.parked = PortSet::EMPTY;
        for lane in &mut self.inputs {
            let Some(parked) = lane.parked.take() else { continue };
            self.ctx.stats.parked.sub(1);
            self.ctx.end(now, parked.desc, DropReason::Shutdown, tracer);
        }
    }
}
