//! Step in virtual time: handles what is due at one instant, at the ports that are due.
//!
//! Like [`Lane::step`], but one frame for each port. A lane has all ports, so each port's place is
//! its number.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/model.md §1; docs/spec/pipeline.md §1 to §11.

use super::lane::Lane;
use super::output_lane::OutputLane;
use super::step::AGE_BUCKETS;
use super::timing::Step;
use crate::port::Port;
use crate::time::Instant;
use crate::trace::{Part, Tracer};
use crate::types::{PortId, PortSet};

impl Lane {
    /// One step at `now`. `changed`: ports that received frames since the last step.
    pub(super) fn step_virtual<T: Tracer>(
        &mut self,
        now: Instant,
        changed: PortSet,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> Step {
        let mut step = Step::default();
        let look = self.due(now, changed, ports, tracer);
        let unsteady = self.unsteady(ports);
        // After a change from outside any link may be different; otherwise only unsteady ones.
        let unsteady = if changed == Self::ANY { look } else { look.and(unsteady) };
        if !unsteady.is_empty() {
            self.links(now, unsteady, ports, tracer);
        }
        if !self.ctx.held.is_empty() {
            step.work += self.release_held(now, tracer);
        }
        self.unblock(now, tracer);
        let spread = self.ctx.snapshot.links.is_any();
        if spread {
            self.keep_joined();
        }
        let paused_or_storming = look.and(self.ctx.paused_or_storming);
        if !paused_or_storming.is_empty() {
            self.pauses(now, paused_or_storming, tracer);
        }
        tracer.part(Part::Rest);
        for place in look.iter() {
            let index = place.index();
            let Some(port) = ports.get_mut(index) else { break };
            if !self.parked.is_empty() {
                step.work += self.unpark(now, index, tracer);
            }
            step.work += if self.in_bursts.contains(place) {
                self.receive(now, index, port.as_mut(), tracer)
            } else {
                self.receive_one(now, index, port.as_mut(), tracer)
            };
        }
        if !self.parked.is_empty() {
            // After all ports have received: frames that came in whole at this instant are charged
            // by then, and go first.
            self.cut_through(now, ports, &mut step, tracer);
        }
        if !self.transits.is_empty() {
            step.work += self.pass_transits(now, ports, &mut step, tracer);
        }
        let moved = self.cross_timed(now, ports, tracer, &mut step);
        tracer.part(Part::Crossbar);
        let look = look.or(step.fed);
        let sent = self.send_due(now, look, step.fed, ports, tracer);
        tracer.part(Part::Egress);
        step.work += moved + sent;
        step.queued = step.work > 0;
        let look = look.or(self.look_after(now, &step, tracer));
        if spread {
            self.join(now);
        }
        if self.has_fast_path != Some(false) {
            self.steer(ports, &mut step);
        }
        step.next = self.next_virtual(now, look, ports, &mut step.blocked);
        step
    }

    /// Ports whose links may go down by themselves. Determined once, and with it which ports hand
    /// over bursts.
    #[inline]
    fn unsteady(&mut self, ports: &[Box<dyn Port>]) -> PortSet {
        if let Some(unsteady) = self.unsteady {
            return unsteady;
        }
        let of = |is: fn(&dyn Port) -> bool| -> PortSet {
            let each = PortSet::first(ports.len()).iter().zip(ports);
            each.filter(|(_, port)| is(port.as_ref())).map(|(place, _)| place).collect()
        };
        self.in_bursts = of(|port| !port.caps().virtual_time);
        *self.unsteady.insert(of(|port| !port.is_steady()))
    }

    /// The ports that are due, where ports of `changed` may have become due since the last step.
    #[inline]
    fn due<T: Tracer>(
        &mut self,
        now: Instant,
        changed: PortSet,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> PortSet {
        if changed == Self::ANY {
            self.refresh(now, tracer);
            return PortSet::first(ports.len());
        }
        for place in changed.iter() {
            // A frame that was sent to a port is due when it is in, not when the step hears of it:
            // results must not depend on when that is, which differs with threads.
            let at = ports.get_mut(place.index()).and_then(Port::look_ahead);
            if let Some(at) = at {
                self.wakes.bring_forward(place, at);
            }
        }
        self.wakes.due(now)
    }

    /// Sends frames by the ports of `look`, and does their housekeeping; returns how many frames
    /// the ports took.
    #[inline]
    fn send_due<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        fed: PortSet,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> usize {
        let mut sent = 0;
        for index in look.iter().map(PortId::index) {
            let Some(port) = ports.get_mut(index) else { break };
            if !self.is_idle(index, fed) {
                sent += self.send(now, index, port.as_mut(), tracer);
            }
            if port.has_news() {
                self.housekeeping(now, index, port.as_mut());
            }
        }
        // Frames that are dropped as they leave a queue make room, too.
        let has_drained = sent > 0 || self.ctx.crossbar_dirty;
        if let Some(crossbar) = self.crossbar.as_mut().filter(|_| has_drained) {
            crossbar.drained();
        }
        sent
    }

    /// Housekeeping once a step; returns the ports that may have a PFC frame to send now.
    #[inline]
    fn look_after<T: Tracer>(&mut self, now: Instant, step: &Step, tracer: &mut T) -> PortSet {
        let (_, relieved) = self.groups(now, tracer);
        self.ctx.core.fdb.age(now, AGE_BUCKETS);
        self.ctx.bufs.settle();
        self.ctx.stats.loops.add(1);
        if step.work > 0 {
            self.ctx.stats.busy_loops.add(1);
        }
        relieved
    }

    /// When the lane next has something to do although no frame arrives. Of its ports only those of
    /// `look` may have changed that.
    #[inline]
    fn next_virtual(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &[Box<dyn Port>],
        blocked: &mut bool,
    ) -> Option<Instant> {
        for place in look.iter() {
            let due = self.port_due(now, place.index(), ports);
            self.wakes.set(place, due);
            *blocked |= self.outputs.get(place.index()).is_some_and(OutputLane::is_blocked);
        }
        let next = self.crossbar.as_ref().and_then(|crossbar| crossbar.next(now));
        let next = Instant::earlier(next, self.wakes.first());
        let next = Instant::earlier(next, self.ctx.core.fdb.next_age_due(now));
        let next = Instant::earlier(next, self.next_of_held(now));
        Instant::earlier(next, self.next_of_links())
    }
}
