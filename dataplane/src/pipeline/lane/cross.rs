//! Crossing: how the owner of the crossbar runs it in a step.
//!
//! It runs slots until no input has a request. Frames for outputs that are down or in a storm are
//! dropped.
//!
//! Units: frames, slots.
//! Source: docs/spec/pipeline.md §6.

use super::Lane;
use crate::islip::Match;
use crate::pipeline::context::ToCrossbar;
use crate::pipeline::timing::Step;
use crate::queues::QueueId;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PriSet, QueueKey};

impl Lane {
    /// Moves all frames that can be moved, if this lane has the crossbar: slot after slot until
    /// there is no request, or the step has moved its share to some output. Returns how many frames
    /// moved.
    pub(in crate::pipeline) fn cross<T: Tracer>(
        &mut self,
        now: Instant,
        tracer: &mut T,
        step: &mut Step,
    ) -> usize {
        let Self { ctx, crossbar, .. } = self;
        let Some(crossbar) = crossbar else { return 0 };
        let mut total = crossbar.gather(ctx, now, tracer);
        // Before requests are collected: purged frames must not be matched.
        total += self.purge(now, tracer);
        let Self { ctx, crossbar, .. } = self;
        let Some(crossbar) = crossbar else { return 0 };
        crossbar.collect(ctx);
        // Without a request no slot is used, so that extra steps change nothing.
        while !crossbar.requests.is_empty() {
            crossbar.islip.slot(&crossbar.requests, &mut crossbar.matches);
            let mut n = 0;
            // By index, as `transfer` needs the crossbar for itself.
            while let Some(found) = crossbar.matches.get(n) {
                let Match { input, output, pri, .. } = found;
                let moved = crossbar.transfer(ctx, QueueKey { input, output, pri });
                total += moved;
                step.fed.insert(output);
                trace_match(now, found, moved, tracer);
                n += 1;
            }
            if crossbar.spent() {
                break;
            }
        }
        total
    }

    /// Drops frames that wait for outputs that are down or in a storm; returns how many.
    pub(in crate::pipeline) fn purge<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> usize {
        if self.crossbar.is_none() {
            return 0;
        }
        let up = self.ctx.core.up();
        let mut gone = 0;
        // The usual case in two loads: all links are up, and there is no storm.
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

    /// Empties the VOQs of an output. TLPs for a port that is down are decided about once more; all
    /// other frames are dropped for `reason`. Returns how many frames left.
    pub(in crate::pipeline) fn purge_output<T: Tracer>(
        &mut self,
        now: Instant,
        output: PortId,
        pris: PriSet,
        reason: DropReason,
        tracer: &mut T,
    ) -> usize {
        let mut gone = 0;
        let is_tlp = self.ctx.snapshot.tlp_ports.contains(output);
        // A request that is dropped would time out at its requester; there may be another path, or
        // an answer (docs/spec/cxl-fabric.md "Dynamic change").
        let is_anew = is_tlp && reason == DropReason::PortDown;
        for pri in pris.iter() {
            let id = QueueId::new(output, pri);
            let ToCrossbar::Local(voqs) = &self.ctx.to_crossbar else { return gone };
            for input in voqs.waiting(output, pri).iter() {
                // The VOQs are borrowed for each frame anew: a TLP that is decided about once more
                // may be queued in them again, for another output.
                while let Some(desc) = self.ctx.voqs().and_then(|voqs| voqs.pop(input, id)) {
                    if is_anew {
                        self.unqueue(desc, output, now, tracer);
                    } else {
                        self.ctx.purge(now, desc, output, reason, tracer);
                    }
                    gone += 1;
                }
            }
        }
        gone
    }

    /// Drops all frames that wait in VOQs, when the switch stops.
    pub(in crate::pipeline) fn drain_all<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        if let Some(crossbar) = &mut self.crossbar {
            // Frames that other workers have sent up are in no VOQ yet, and would stay uncounted in
            // the ring.
            crossbar.gather(&mut self.ctx, now, tracer);
        }
        for output in self.ctx.snapshot.ports.iter() {
            self.purge_output(now, output, self.ctx.snapshot.pris, DropReason::Shutdown, tracer);
        }
    }
}

/// Traces a match, and how many frames it moved.
#[inline]
pub(in crate::pipeline) fn trace_match<T: Tracer>(
    now: Instant,
    found: Match,
    moved: usize,
    tracer: &mut T,
) {
    if !T::ON {
        return;
    }
    let event = Event::Match {
        input: found.input.get(),
        output: found.output.get(),
        pri: found.pri.get(),
        iteration: found.iteration + 1,
        frames: u16::try_from(moved).unwrap_or(u16::MAX),
    };
    tracer.event(now, event);
}
