//! Crossing: what the owner of the crossbar does with it in a step.
//!
//! Shape: slot after slot, until nobody asks any more; what waits for outputs that are down or in a storm is dropped.
//! Units: frames, slots.
//! Source: docs/spec/pipeline.md §6.

use super::context::ToCrossbar;
use super::lane::Lane;
use super::timing::Step;
use crate::islip::Match;
use crate::port::Port;
use crate::queues::QueueId;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PriSet};

impl Lane {
    /// Moves what can be moved, if this lane has the crossbar: slot after slot until nothing asks any
    /// more or, live, the step has had its share. Returns how many frames moved.
    pub(super) fn cross<T: Tracer>(
        &mut self,
        now: Instant,
        tracer: &mut T,
        step: &mut Step,
    ) -> usize {
        let Self { ctx, crossbar, .. } = self;
        let Some(crossbar) = crossbar else { return 0 };
        let mut total = crossbar.gather(ctx, now, tracer);
        total += self.purge(now, tracer);
        let Self { ctx, crossbar, .. } = self;
        let Some(crossbar) = crossbar else { return 0 };
        crossbar.collect(now, ctx);
        // Without a request no slot is used, so that extra steps change nothing.
        while !crossbar.requests.is_empty() {
            crossbar.islip.slot(&crossbar.requests, &mut crossbar.matches);
            for n in 0..crossbar.matches.len() {
                let Some(found) = crossbar.matches.as_slice().get(n).copied() else { break };
                let Match { input, output, pri, iteration } = found;
                let moved = crossbar.transfer(ctx, (input, output, pri));
                total += moved;
                step.fed.insert(output);
                if T::ON {
                    let event = Event::Match {
                        input: input.get(),
                        output: output.get(),
                        pri: pri.get(),
                        iteration: iteration + 1,
                        frames: u16::try_from(moved).unwrap_or(u16::MAX),
                    };
                    tracer.event(now, event);
                }
            }
            if crossbar.spent() {
                break;
            }
        }
        total
    }

    /// As [`Self::cross`], in virtual time: a frame a match, until no pair of free ports has one.
    #[inline]
    pub(super) fn cross_timed<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
        step: &mut Step,
    ) -> usize {
        let mut total = None;
        loop {
            let Self { ctx, crossbar: Some(crossbar), .. } = self else { return 0 };
            let ToCrossbar::Local(voqs) = &ctx.to_crossbar else { return 0 };
            if voqs.outputs().is_empty() {
                crossbar.rest();
                return total.unwrap_or_default();
            }
            let Some(total) = &mut total else {
                total = Some(self.purge(now, tracer));
                continue;
            };
            if let Some(one) = crossbar.only_one(ctx) {
                let moved = crossbar
                    .collect_one(now, ctx, one)
                    .map_or(0, |one| self.follow_match(now, one, ports, step, tracer));
                *total += moved;
                if moved == 0 {
                    return *total;
                }
                continue;
            }
            crossbar.collect(now, ctx);
            if crossbar.requests.is_empty() {
                return *total;
            }
            crossbar.islip.slot(&crossbar.requests, &mut crossbar.matches);
            let (before, mut n) = (*total, 0);
            while let Some(found) = self.crossbar.as_ref().and_then(|it| it.matches.get(n)) {
                *total += self.follow_match(now, found, ports, step, tracer);
                n += 1;
            }
            if *total == before {
                return *total;
            }
        }
    }

    /// Moves the frame of a match, in virtual time; returns how many that was.
    #[inline]
    pub(super) fn follow_match<T: Tracer>(
        &mut self,
        now: Instant,
        found: Match,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) -> usize {
        let Self { ctx, crossbar: Some(crossbar), .. } = self else { return 0 };
        let Match { input, output, pri, iteration } = found;
        let desc = crossbar.take(ctx, (input, output, pri));
        let moved = usize::from(desc.is_some());
        if T::ON {
            let event = Event::Match {
                input: input.get(),
                output: output.get(),
                pri: pri.get(),
                iteration: iteration + 1,
                frames: u16::from(moved > 0),
            };
            tracer.event(now, event);
        }
        desc.map_or(0, |desc| self.cross_over(now, (desc, output), ports, step, tracer))
    }

    /// Throws away what waits for outputs that are down or in a storm.
    fn purge<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> usize {
        if self.crossbar.is_none() {
            return 0;
        }
        let up = self.ctx.core.up();
        let mut gone = 0;
        if self.ctx.snapshot.ports.without(up).is_empty() && self.ctx.core.storms().is_empty() {
            return 0;
        }
        for output in self.ctx.snapshot.ports.iter() {
            let storming = self.ctx.core.storming(output);
            if up.contains(output) && storming.is_empty() {
                continue;
            }
            let (pris, reason) = if up.contains(output) {
                (storming, DropReason::Watchdog)
            } else {
                (self.ctx.snapshot.pris, DropReason::PortDown)
            };
            gone += self.purge_output(now, output, pris, reason, tracer);
        }
        gone
    }

    fn purge_output<T: Tracer>(
        &mut self,
        now: Instant,
        output: PortId,
        pris: PriSet,
        reason: DropReason,
        tracer: &mut T,
    ) -> usize {
        let mut gone = 0;
        for pri in pris.iter() {
            let id = QueueId::new(output, pri);
            let ToCrossbar::Local(voqs) = &self.ctx.to_crossbar else { return gone };
            for input in voqs.waiting(output, pri).iter() {
                while let Some(desc) = self.ctx.voqs().and_then(|voqs| voqs.pop(input, id)) {
                    self.ctx.purge(now, desc, output, reason, tracer);
                    gone += 1;
                }
            }
        }
        gone
    }

    /// Throws away all that waits in VOQs: the switch stops.
    pub(super) fn drain_all<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.gather(&mut self.ctx, now, tracer);
        }
        for output in self.ctx.snapshot.ports.iter() {
            self.purge_output(now, output, self.ctx.snapshot.pris, DropReason::Shutdown, tracer);
        }
    }
}
