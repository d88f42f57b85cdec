//! Step: one turn of a lane's loop.
//!
//! At one `now` it receives, crosses and sends, and does the housekeeping; it returns when it wants
//! to be called again.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/pipeline.md §1 to §11.

use weft_base::threads;

use super::Lane;
use crate::pipeline::context::Context;
use crate::pipeline::output_lane::OutputLane;
use crate::pipeline::timing::Step;
use crate::port::Port;
use crate::stats::DropReason;
use crate::time::{Instant, Span};
use crate::trace::{Part, Tracer};
use crate::types::PortSet;

/// FDB buckets that a step checks for old entries; none is checked before an entry can be due.
pub(in crate::pipeline) const AGE_BUCKETS: usize = 16;

impl Lane {
    /// Receives, decides and sends at `now`; `ports` are this lane's, in the order of
    /// [`Self::ports`]. Extra calls are harmless.
    pub fn step<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> Step {
        let mut step = Step::default();
        let all = PortSet::first(ports.len());
        // Configuration and links first: everything below decides by them.
        self.refresh(now, tracer);
        for (index, port) in ports.iter().enumerate() {
            self.follow_link(now, index, port.as_ref(), tracer);
        }
        if self.ctx.core.has_guarded() {
            self.follow_guard();
        }
        if !self.ctx.held.is_empty() {
            // Before new frames are received: a TLP of the same flow that comes in now would
            // overtake those that are held.
            step.work += self.release_held(now, tracer);
        }
        self.unblock(now, tracer);
        let spread = self.ctx.snapshot.links.is_any();
        if spread {
            self.keep_joined();
        }
        // Timers that have run out open priorities for the crossbar of this step.
        self.pauses(now, all, tracer);
        tracer.part(Part::Rest);
        self.receive_all(now, ports, &mut step, tracer);
        self.send_probes(now);
        self.cross_and_send(now, ports, &mut step, tracer);
        self.housekeeping_all(now, ports, &mut step, tracer);
        if spread {
            self.join(now);
        }
        self.note_held(ports, &mut step);
        step.blocked |= self.outputs.iter().any(OutputLane::is_blocked);
        // Last: gates of the fast path go by what this step has left in the queues.
        self.steer(ports, &mut step);
        step.next = self.next_due(now, ports);
        step
    }

    /// Receives a burst of each port while there is room on the way to the crossbar.
    #[inline]
    fn receive_all<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        for index in 0..ports.len() {
            if !self.has_room() {
                step.blocked = true; // frames wait in their ports until the crossbar has caught up
                break;
            }
            step.work += self.pass_whole(now, index, ports, tracer);
            let Some(port) = ports.get_mut(index) else { break };
            step.work += self.receive(now, index, port.as_mut(), tracer);
            // Between two bursts, so that a worker that receives from many ports does not keep the
            // crossbar's owner waiting for room in its egress queues.
            if self.downlink.is_some() {
                step.work += self.pass_down(now, ports, tracer);
            }
        }
    }

    /// Moves frames over the crossbar and sends them, until nothing moves or the step has had its
    /// share.
    #[inline]
    fn cross_and_send<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        step.fed = step.fed.or(self.absorb(now, tracer));
        loop {
            // Egress queues are filled first, so that a port gets long bursts.
            let moved = self.cross(now, tracer, step);
            tracer.part(Part::Crossbar);
            let (mut sent, pris) = (0, self.ctx.snapshot.pris);
            for (index, port) in ports.iter_mut().enumerate() {
                if !self.is_idle(index, step.fed) {
                    sent += self.send(now, index, pris, port.as_mut(), tracer);
                }
            }
            tracer.part(Part::Egress);
            step.work += moved + sent;
            if moved + sent == 0 || !self.again() {
                break;
            }
        }
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.rewind();
            step.blocked |= crossbar.waits(&self.ctx);
        }
        // Once, when the step has sent: each report is a store to a cache line that the crossbar
        // reads.
        self.report();
        step.queued = step.work > 0;
    }

    /// Once a step: housekeeping of ports, ingress groups, the FDB, the pool and the buffer.
    #[inline]
    fn housekeeping_all<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        for (index, port) in ports.iter_mut().enumerate() {
            self.housekeeping(now, index, port.as_mut());
        }
        let held = self.take_back_cells();
        self.release_groups(now, PortSet::first(self.inputs.len()), tracer);
        // By one worker: the owner of the crossbar ages the FDB for all.
        if self.crossbar.is_some() {
            self.ctx.core.fdb.age(now, AGE_BUCKETS);
        }
        self.ctx.bufs.settle();
        self.ctx.stats.loops.add(1);
        if step.work > 0 {
            self.ctx.stats.busy_loops.add(1);
        } else {
            // An idle worker whose cells other workers still hold looks again soon, as they tell it
            // of no departure; and it returns its lease, which the others may need.
            step.blocked |= held;
            self.ctx.core.buffer.settle(&mut self.ctx.lease);
        }
    }

    /// For outputs whose queues are held, publishes how many frames their ports have not sent yet:
    /// `tx off` is answered when there are none.
    fn note_held(&self, ports: &mut [Box<dyn Port>], step: &mut Step) {
        if self.ctx.snapshot.config.tx_off.is_empty() {
            return;
        }
        for (lane, port) in self.outputs.iter().zip(ports).filter(|(lane, _)| lane.tx_off) {
            let sending = port.sending();
            self.ctx.core.set_tx_off(lane.port, true, sending);
            step.blocked |= sending > 0;
        }
    }

    /// Removes links that no longer forward from their LAGs and spreads.
    pub(in crate::pipeline) fn keep_joined(&mut self) {
        let Context { core, snapshot, joined_lags, joined_spreads, .. } = &mut self.ctx;
        let open = core.forwarding();
        joined_lags.keep(open, snapshot.links.lags());
        joined_spreads.keep(open, snapshot.links.spreads());
    }

    /// Whether the crossbar may move more frames in this step, which is bounded.
    fn again(&self) -> bool {
        self.crossbar.as_ref().is_some_and(|c| !c.spent())
    }

    /// When this lane next has something to do although no frame arrives.
    fn next_due(&mut self, now: Instant, ports: &[Box<dyn Port>]) -> Option<Instant> {
        let mut next = None;
        for (index, port) in ports.iter().enumerate() {
            next = Instant::earlier(next, self.port_due(now, index, port.as_ref()));
        }
        if self.crossbar.is_some() {
            next = Instant::earlier(next, self.ctx.core.fdb.next_age_due(now));
        }
        next = Instant::earlier(next, self.next_of_held(now));
        Instant::earlier(next, self.next_of_links())
    }

    /// When to check whether held TLPs have a route: no event tells of new tables.
    pub(in crate::pipeline) fn next_of_held(&self, now: Instant) -> Option<Instant> {
        let until = self.ctx.held.next()?;
        Some(until.min(now + Span::from_ms(1)))
    }

    /// When a blocked port opens again, or a link is to take flows.
    #[inline]
    pub(in crate::pipeline) fn next_of_links(&self) -> Option<Instant> {
        let next = Instant::earlier(self.ctx.core.next_unblock(), self.ctx.joined_lags.next());
        Instant::earlier(next, self.ctx.joined_spreads.next())
    }

    /// When the port at place `index` of this lane next has something to do.
    #[inline]
    pub(in crate::pipeline) fn port_due(
        &mut self,
        now: Instant,
        index: usize,
        port: &dyn Port,
    ) -> Option<Instant> {
        let (output, input) = (self.outputs.get_mut(index)?, self.inputs.get(index)?);
        let mut next = Instant::earlier(output.next(now), port.next_event());
        // A port that took no more frames has room when it is idle, and no frame tells of that.
        if output.is_blocked() {
            next = Instant::earlier(next, port.idle_at());
        }
        next = Instant::earlier(next, output.probes.due());
        if !input.pause.is_idle() {
            // A PAUSE that cannot be sent while the link is down is not due.
            next = Instant::earlier(next, input.next(now).filter(|_| output.up));
        }
        next
    }

    /// Ends all frames that are still queued and takes back the chunks that ports hold, when the
    /// switch stops and no lane makes a step any more.
    pub fn stop<T: Tracer>(&mut self, now: Instant, ports: &mut [Box<dyn Port>], tracer: &mut T) {
        self.end_queued(now, tracer);
        for (index, port) in ports.iter_mut().enumerate() {
            self.close_port(index, port.as_mut());
        }
        self.settle();
    }

    /// Ends all frames that are held or queued.
    pub(in crate::pipeline) fn end_queued<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        self.end_held(now, tracer);
        // In the order of the path: frames that are moved on by one call are ended by a later one.
        self.drain_all(now, tracer);
        self.absorb(now, tracer);
        for lane in &mut self.outputs {
            lane.empty(&mut self.ctx, now, DropReason::Shutdown, tracer);
        }
    }

    /// Takes back the chunks that the port at place `index` holds.
    pub(in crate::pipeline) fn close_port(&mut self, index: usize, port: &mut dyn Port) {
        port.release(&mut self.ctx.bufs);
        self.count_port(index, port);
        // Closing a port may wait for the kernel; this tells the supervisor that the stop goes on.
        threads::step();
    }

    /// Returns the worker's chunks and its lease of the buffer.
    pub(in crate::pipeline) fn settle(&mut self) {
        self.ctx.bufs.settle();
        self.ctx.core.buffer.settle(&mut self.ctx.lease);
    }
}
