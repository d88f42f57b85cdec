//! Anew: decides once more about TLPs that are held, or wait for a port whose link goes down.
//!
//! Frames in VOQs and egress queues of that port, and those of [`Held`](crate::pipeline::held::Held), are treated as if
//! they had just come in: they go to another port, are answered, held or dropped.
//!
//! Units: frames.
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/spec/pipeline.md §9.

use std::sync::Arc;

use super::Lane;
use crate::desc::{Desc, Flag};
use crate::pbr::Tables;
use crate::pipeline::burst::{CACHE_MISS, FrameMeta, FrameRoute, Verdict};
use crate::pipeline::held::{HeldTlp, Turn};
use crate::pipeline::tlp::{decide_anew, route_tlp};
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PortId, PortSet};

impl Lane {
    /// Decides anew about all TLPs that wait for the port at place `index`, whose link has just
    /// gone down.
    ///
    /// It does so at once, oldest first: TLPs that come in from now on must not overtake those that
    /// wait.
    #[cold]
    pub(in crate::pipeline) fn leave_down<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        tracer: &mut T,
    ) {
        let Some(port) = self.outputs.get(index).map(|lane| lane.port) else { return };
        if !self.ctx.snapshot.tlp_ports.contains(port) {
            return;
        }
        self.empty_down(now, index, tracer);
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.gather(&mut self.ctx, now, tracer);
            let pris = self.ctx.snapshot.pris;
            self.purge_output(now, port, pris, DropReason::PortDown, tracer);
        }
    }

    /// Empties the egress queues of the port at place `index`, whose link is down; returns how many
    /// TLPs were decided about anew.
    #[cold]
    pub(in crate::pipeline) fn empty_down<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        tracer: &mut T,
    ) -> usize {
        let Self { ctx, outputs, .. } = self;
        let Some(lane) = outputs.get_mut(index) else { return 0 };
        if !ctx.snapshot.tlp_ports.contains(lane.port) {
            lane.empty(ctx, now, DropReason::PortDown, tracer);
            return 0;
        }
        let (port, mut count) = (lane.port, 0);
        if !lane.pending.is_empty() {
            // Picked frames first, as they were queued before the others.
            let control = core::mem::take(&mut lane.pending_control);
            for (n, desc) in core::mem::take(&mut lane.pending).into_iter().enumerate() {
                if n < control {
                    self.ctx.bufs.free(desc);
                    continue;
                }
                self.ctx.stats.port[port].late_drops.add(1); // it was taken off its queue, and not sent
                self.decide_anew(now, desc, port, tracer);
                count += 1;
            }
        }
        let pris = self.ctx.snapshot.pris;
        while let Some(desc) = self.outputs.get_mut(index).and_then(|lane| lane.pop_any(pris)) {
            self.unqueue(desc, port, now, tracer);
            count += 1;
        }
        count
    }

    /// Takes a frame that waits for `output` out of the counters, and decides about it anew.
    pub(in crate::pipeline) fn unqueue<T: Tracer>(
        &mut self,
        desc: Desc,
        output: PortId,
        now: Instant,
        tracer: &mut T,
    ) {
        self.ctx.unqueue(&desc, output);
        self.decide_anew(now, desc, output, tracer);
    }

    /// Decides about a frame that is in no queue any more.
    fn decide_anew<T: Tracer>(
        &mut self,
        now: Instant,
        mut desc: Desc,
        output: PortId,
        tracer: &mut T,
    ) {
        let Self { ctx, inputs, scratch, .. } = self;
        ctx.crossbar_dirty = true;
        // Queued again by its own input, it keeps its place in its flow. If that input is another
        // worker's, whose counters this one may not write, it counts as received by the port that it was
        // to leave by.
        let place = |port| inputs.iter().position(|lane| lane.port == port);
        let at = place(desc.input()).or_else(|| place(output)).unwrap_or(0);
        let Some(lane) = inputs.get_mut(at) else {
            return ctx.end_at(now, desc, output, DropReason::PortDown, tracer);
        };
        // It was uncharged when it left its queue; admission sets the flag again.
        desc.set(Flag::Pg, false);
        let verdict = decide_anew(ctx, lane.port, output, &mut desc, &mut scratch.space);
        if verdict == Verdict::Hold {
            return ctx.hold(now, desc, lane.port, Some(output));
        }
        if matches!(verdict, Verdict::Drop(_)) {
            return ctx.end_at(now, desc, output, DropReason::PortDown, tracer);
        }
        lane.draining.begin_again();
        let meta = FrameMeta { verdict, ..FrameMeta::NEW };
        let found = FrameRoute { route: CACHE_MISS, meta: &meta };
        lane.dispose_one(ctx, now, desc, found, None, tracer);
    }

    /// Decides once more about held TLPs if tables or links have changed, or their time is over;
    /// returns how many went on.
    #[cold]
    pub(in crate::pipeline) fn release_held<T: Tracer>(
        &mut self,
        now: Instant,
        tracer: &mut T,
    ) -> usize {
        // Kept as `Held::by` for the TLPs that stay held, so that the next change is noticed by
        // comparison.
        let (tables, up) = (self.ctx.core.tables.load_full(), self.ctx.core.up());
        let is_same = |by: &(Arc<Tables>, PortSet)| Arc::ptr_eq(&by.0, &tables) && by.1 == up;
        let has_changed = !self.ctx.held.by.as_ref().is_some_and(is_same);
        let is_due = self.ctx.held.next().is_some_and(|until| until <= now);
        if !has_changed && !is_due {
            return 0;
        }
        let mut gone = 0;
        // Taken out as a whole: those that stay are put back one by one, and so keep their order.
        for held in core::mem::take(&mut self.ctx.held.frames) {
            let is_over = held.until <= now;
            if !has_changed && !is_over {
                self.ctx.held.frames.push_back(held);
                continue;
            }
            self.ctx.held.turn = if is_over { Turn::Last } else { Turn::Again };
            gone += usize::from(self.decide_held(now, held, &tables, tracer));
        }
        self.ctx.held.turn = Turn::First;
        self.ctx.held.by = (!self.ctx.held.is_empty()).then_some((tables, up));
        self.ctx.crossbar_dirty |= gone > 0;
        gone
    }

    /// Decides about one held TLP; true if it went on.
    fn decide_held<T: Tracer>(
        &mut self,
        now: Instant,
        mut held: HeldTlp,
        tables: &Tables,
        tracer: &mut T,
    ) -> bool {
        let Self { ctx, inputs, scratch, .. } = self;
        let Some(lane) = inputs.iter_mut().find(|lane| lane.port == held.input) else {
            ctx.let_go(held.input);
            ctx.end(now, held.desc, DropReason::PortDown, tracer);
            return true;
        };
        let (mut meta, space) = (FrameMeta::NEW, &mut scratch.space);
        held.desc.set(Flag::Pg, false);
        meta.verdict = match held.output {
            // It was rewritten for that output before it was held, so it is read as a frame with a
            // PTH.
            Some(output) => decide_anew(ctx, lane.port, output, &mut held.desc, space),
            None => route_tlp(ctx, tables, lane.port, &mut held.desc, &mut meta, space),
        };
        if meta.verdict == Verdict::Hold {
            ctx.held.frames.push_back(held);
            return false;
        }
        ctx.let_go(held.input);
        lane.draining.begin_again();
        let found = FrameRoute { route: CACHE_MISS, meta: &meta };
        lane.dispose_one(ctx, now, held.desc, found, None, tracer);
        true
    }

    /// Drops held TLPs, when the switch stops.
    pub(in crate::pipeline) fn end_held<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        for held in core::mem::take(&mut self.ctx.held.frames) {
            self.ctx.let_go(held.input);
            self.ctx.end(now, held.desc, DropReason::Shutdown, tracer);
        }
    }
}
