//! Step in virtual time: handles what is due at one instant, at the ports that are due.
//!
//! The order is that of [`Lane::step`](crate::pipeline::lane::Lane::step), but with one frame for each port.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/model.md §1; docs/spec/pipeline.md §1 to §11.

use super::VirtualTimeLane;
use crate::pipeline::lane::AGE_BUCKETS;
use crate::pipeline::output_lane::OutputLane;
use crate::pipeline::timing::Step;
use crate::port::TimedPort;
use crate::time::Instant;
use crate::trace::{Part, Tracer};
use crate::types::{PortId, PortSet, PriSet};

impl VirtualTimeLane {
    /// One step at `now`, which visits only ports that are due. `changed`: ports that received
    /// frames since the last step ([`Self::ANY`] if anything else may have changed, too). `ports`
    /// are those of the switch, in order.
    pub fn step_at<T: Tracer>(
        &mut self,
        now: Instant,
        changed: PortSet,
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
    ) -> Step {
        let mut step = Step::default();
        let look = self.due(now, changed, ports, tracer);
        let unsteady = self.unsteady(ports);
        // After a change from outside any link may be different; otherwise only unsteady ones.
        let unsteady = if changed == Self::ANY { look } else { look.and(unsteady) };
        for index in unsteady.iter().map(PortId::index) {
            let Some(port) = ports.get(index) else { break };
            self.lane.follow_link(now, index, port.as_ref(), tracer);
        }
        if !self.lane.ctx.held.is_empty() {
            step.work += self.lane.release_held(now, tracer);
        }
        self.lane.unblock(now, tracer);
        let spread = self.lane.ctx.snapshot.links.is_any();
        if spread {
            self.lane.keep_joined();
        }
        let paused_or_storming = look.and(self.lane.ctx.paused_or_storming);
        if !paused_or_storming.is_empty() {
            self.lane.pauses(now, paused_or_storming, tracer);
        }
        tracer.part(Part::Rest);
        for place in look.iter() {
            let index = place.index();
            let Some(port) = ports.get_mut(index) else { break };
            if !self.parked.inputs().is_empty() {
                step.work += self.unpark(now, place, tracer);
            }
            step.work += if self.in_bursts.contains(place) {
                self.lane.receive(now, index, port.as_mut(), tracer)
            } else {
                self.receive_one(now, index, port.as_mut(), tracer)
            };
        }
        if !self.parked.inputs().is_empty() {
            // After all ports have received: frames that came in whole at this instant are charged
            // by then, and go first.
            self.cut_through(now, ports, &mut step, tracer);
        }
        if !self.transits.is_empty() {
            step.work += self.pass_transits(now, ports, &mut step, tracer);
        }
        let moved = self.cross(now, ports, tracer, &mut step);
        tracer.part(Part::Crossbar);
        let look = look.or(step.fed);
        let sent = self.send_due(now, look, step.fed, ports, tracer);
        tracer.part(Part::Egress);
        step.work += moved + sent;
        step.queued = step.work > 0;
        let look = look.or(self.look_after(now, &step, tracer));
        if spread {
            self.lane.join(now);
        }
        step.next = self.next_virtual(now, look, ports, &mut step.blocked);
        step
    }

    /// Ports whose links may go down by themselves. Determined once, and with it which ports hand
    /// over bursts.
    #[inline]
    fn unsteady(&mut self, ports: &[Box<dyn TimedPort>]) -> PortSet {
        if let Some(unsteady) = self.unsteady {
            return unsteady;
        }
        let of = |is: fn(&dyn TimedPort) -> bool| -> PortSet {
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
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
    ) -> PortSet {
        if changed == Self::ANY {
            if self.lane.refresh(now, tracer) {
                self.holds.reconfigure(&self.lane.ctx.snapshot);
            }
            return PortSet::first(ports.len());
        }
        for place in changed.iter() {
            // A frame that was sent to a port is due when it is in, not when the step hears of it:
            // results must not depend on when that is, which differs with threads.
            let at = ports.get_mut(place.index()).and_then(|port| port.look_ahead());
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
        ports: &mut [Box<dyn TimedPort>],
        tracer: &mut T,
    ) -> usize {
        let mut sent = 0;
        for index in look.iter().map(PortId::index) {
            let Some(port) = ports.get_mut(index) else { break };
            if !self.lane.is_idle(index, fed) {
                let queued = self.lane.outputs.get(index).map_or(PriSet::EMPTY, |lane| lane.queued);
                sent += self.lane.send(now, index, queued, port.as_mut(), tracer);
            }
            if port.has_news() {
                self.lane.housekeeping(now, index, port.as_mut());
            }
        }
        // Frames that are dropped as they leave a queue make room, too.
        if sent > 0 || self.lane.ctx.crossbar_dirty {
            self.holds.drained();
        }
        sent
    }

    /// Housekeeping once a step; returns the ports that may have a PFC frame to send now.
    #[inline]
    fn look_after<T: Tracer>(&mut self, now: Instant, step: &Step, tracer: &mut T) -> PortSet {
        self.lane.take_back_cells();
        let relieved = self.release_groups(now, tracer);
        let ctx = &mut self.lane.ctx;
        ctx.core.fdb.age(now, AGE_BUCKETS);
        ctx.bufs.settle();
        ctx.stats.loops.add(1);
        if step.work > 0 {
            ctx.stats.busy_loops.add(1);
        }
        relieved
    }

    /// [`Lane::release_groups`](crate::pipeline::lane::Lane::release_groups) of the inputs that may be
    /// released.
    #[inline]
    fn release_groups<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> PortSet {
        let (by_queue, over) = (self.lane.pauses_by_queue(), self.lane.ctx.over_xoff);
        if by_queue {
            return self.lane.release_groups(now, PortSet::first(self.lane.inputs.len()), tracer);
        }
        // No other worker returns cells, so a group can only reach XON after this lane released
        // some. Builds with assertions check that.
        let may_relieve = self.lane.ctx.has_released;
        if over.is_empty() || !may_relieve && !cfg!(debug_assertions) {
            return PortSet::EMPTY;
        }
        let relieved = self.lane.release_groups(now, over, tracer);
        debug_assert!(may_relieve || relieved.is_empty(), "nothing else takes a group to XON");
        relieved
    }

    /// When the lane next has something to do although no frame arrives. Of its ports only those of
    /// `look` may have changed that.
    #[inline]
    fn next_virtual(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &[Box<dyn TimedPort>],
        blocked: &mut bool,
    ) -> Option<Instant> {
        for place in look.iter() {
            let index = place.index();
            let due =
                ports.get(index).and_then(|port| self.lane.port_due(now, index, port.as_ref()));
            self.wakes.set(place, Instant::earlier(due, self.parked.until(place)));
            *blocked |= self.lane.outputs.get(index).is_some_and(OutputLane::is_blocked);
        }
        let next = Instant::earlier(self.holds.next(now), self.wakes.first());
        let next = Instant::earlier(next, self.lane.ctx.core.fdb.next_age_due(now));
        let next = Instant::earlier(next, self.lane.next_of_held(now));
        Instant::earlier(next, self.lane.next_of_links())
    }
}
