//! Crossing in virtual time: slots follow each other until no pair of free ports has a request.
//!
//! A match moves one frame, which holds its input and its output meanwhile ([`super::holds`]).
//!
//! Units: frames, slots.
//! Source: docs/spec/pipeline.md §6; docs/spec/model.md.

use super::VirtualTimeLane;
use super::holds::only_one;
use crate::desc::Desc;
use crate::islip::Match;
use crate::pipeline::context::{Context, ToCrossbar};
use crate::pipeline::crossbar::Crossbar;
use crate::pipeline::lane::Lane;
use crate::pipeline::lane::trace_match;
use crate::pipeline::timing::Step;
use crate::port::TimedPort;
use crate::queues::QueueId;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::QueueKey;

impl VirtualTimeLane {
    /// Moves all frames that can be moved; returns how many.
    #[inline]
    pub(super) fn cross<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
        step: &mut Step,
    ) -> usize {
        let mut total = if self.has_waiting() { self.lane.purge(now, tracer) } else { 0 };
        self.lane.ctx.crossbar_dirty |= total > 0;
        while self.has_waiting() {
            // Without this most collections of requests would find none. Builds with assertions
            // collect them all the same, and must find none.
            if !self.lane.ctx.crossbar_dirty && self.holds.is_settled(now) {
                debug_assert!(self.has_no_request(now), "nothing has changed for anybody");
                return total;
            }
            // Before the slot, not after it: what the slot itself changes must be looked at again.
            self.lane.ctx.crossbar_dirty = false;
            let moved = self.slot(now, ports, tracer, step);
            if moved == 0 {
                return total;
            }
            total += moved;
        }
        if let Some(crossbar) = &mut self.lane.crossbar {
            crossbar.requests.clear();
        }
        self.holds.rest();
        total
    }

    /// Whether any VOQ holds a frame.
    #[inline]
    fn has_waiting(&self) -> bool {
        matches!(&self.lane.ctx.to_crossbar, ToCrossbar::Local(voqs) if !voqs.outputs().is_empty())
    }

    /// Whether there is no request, as [`Self::slot`] would find.
    fn has_no_request(&mut self, now: Instant) -> bool {
        let Self { lane, holds, .. } = self;
        let Lane { ctx, crossbar: Some(crossbar), .. } = lane else { return true };
        holds.collect(now, crossbar, ctx);
        crossbar.requests.is_empty()
    }

    /// One slot; returns how many frames moved.
    #[inline]
    fn slot<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
        step: &mut Step,
    ) -> usize {
        let Self { lane, holds, .. } = self;
        let Lane { ctx, crossbar: Some(crossbar), .. } = lane else { return 0 };
        if let Some(one) = only_one(crossbar, ctx) {
            let found = holds.collect_one(now, crossbar, ctx, one);
            return found.map_or(0, |found| self.follow_match(now, found, ports, step, tracer));
        }
        holds.collect(now, crossbar, ctx);
        if crossbar.requests.is_empty() {
            return 0;
        }
        crossbar.islip.slot(&crossbar.requests, &mut crossbar.matches);
        let (mut moved, mut n) = (0, 0);
        while let Some(found) = self.lane.crossbar.as_ref().and_then(|it| it.matches.get(n)) {
            moved += self.follow_match(now, found, ports, step, tracer);
            n += 1;
        }
        moved
    }

    /// Moves the frame of a match; returns how many times it moved ([`Self::cross_over`]).
    #[inline]
    pub(super) fn follow_match<T: Tracer>(
        &mut self,
        now: Instant,
        found: Match,
        ports: &mut [Box<dyn TimedPort>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        let Lane { ctx, crossbar: Some(crossbar), .. } = &mut self.lane else { return 0 };
        let Match { input, output, pri, .. } = found;
        let desc = take(crossbar, ctx, QueueKey { input, output, pri });
        trace_match(now, found, usize::from(desc.is_some()), tracer);
        desc.map_or(0, |desc| self.cross_over(now, desc, output, ports, step, tracer))
    }
}

/// Takes the frame of one match, where its egress queue has room.
#[inline]
fn take(
    crossbar: &Crossbar,
    ctx: &mut Context,
    QueueKey { input, output, pri }: QueueKey,
) -> Option<Desc> {
    let ToCrossbar::Local(voqs) = &mut ctx.to_crossbar else { return None };
    if !crossbar.has_room_for(output, pri) {
        return None;
    }
    voqs.pop(input, QueueId::new(output, pri))
}
