//! Step: one turn of a lane's loop.
//!
//! Shape: receive, cross and send, housekeeping, at one `now`; answers when it wants to be called again.
//! Units: frames, [`Instant`].
//! Source: docs/spec/pipeline.md §1 to §11.

use super::context::Context;
use super::lane::Lane;
use super::output_lane::OutputLane;
use super::timing::{Step, Timing};
use crate::port::Port;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Part, Tracer};
use crate::types::{PORTS_MAX, PortId, PortSet};

/// FDB buckets that a step looks at for old entries; nothing is looked at before one can be due.
const AGE_BUCKETS: usize = 16;

impl Lane {
    /// Receives, decides and sends at `now`; `ports` are this lane's, in the order of
    /// [`Self::ports`]. Extra calls are harmless.
    pub fn step<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> Step {
        self.step_at(now, Self::ANY, ports, tracer)
    }

    /// What is said to have changed where anything may have.
    pub const ANY: PortSet = PortSet::first(PORTS_MAX);

    /// As [`Self::step`], where nothing has changed since the last step but that frames were sent to ports of `changed`, by
    /// place ([`Self::ANY`]: but for what is unknown). In virtual time only ports that are due are looked at.
    pub fn step_at<T: Tracer>(
        &mut self,
        now: Instant,
        changed: PortSet,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> Step {
        let mut step = Step::default();
        let all = PortSet::first(ports.len());
        let is_new = self.refresh(now, tracer);
        let look = match self.timing {
            Timing::Virtual if !is_new && changed != Self::ANY => {
                for place in changed.iter() {
                    let at = ports.get_mut(place.index()).and_then(Port::look_ahead);
                    if let Some(at) = at {
                        self.wakes.bring_forward(place, at);
                    }
                }
                self.wakes.due(now)
            }
            Timing::Virtual | Timing::Live => all,
        };
        self.links(now, look, ports, tracer);
        self.unblock(now, tracer);
        let spread = self.ctx.snapshot.links.is_any();
        if spread {
            self.keep_joined();
        }
        self.pauses(now, look, tracer);
        tracer.part(Part::Rest);
        self.receive_all(now, look, ports, &mut step, tracer);
        let look = self.cross_and_send(now, look, ports, &mut step, tracer);
        let look = self.housekeeping_all(now, look, ports, &mut step, tracer);
        if spread {
            self.join(now);
        }
        let mut outputs = look.iter().filter_map(|place| self.outputs.get(place.index()));
        step.blocked |= outputs.any(OutputLane::is_blocked);
        self.steer(ports, &mut step);
        step.next = self.next_due(now, look, ports);
        step
    }

    /// Receives a burst of each port, as long as its frames find room on the way to the crossbar.
    #[inline]
    fn receive_all<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) {
        for index in look.iter().map(PortId::index) {
            if !self.has_room() {
                step.blocked = true; // frames wait in their ports until the crossbar has caught up
                break;
            }
            let Some(port) = ports.get_mut(index) else { break };
            if !self.parked.is_empty() {
                step.work += self.unpark(now, index, tracer);
            }
            step.work += self.receive(now, index, port.as_mut(), tracer);
            if self.downlink.is_some() {
                step.work += self.pass_down(now, ports, tracer);
            }
        }
        if !self.parked.is_empty() {
            self.cut_through(now, ports, step, tracer);
        }
    }

    /// Moves frames over the crossbar and sends them, until nothing moves any more or the step has had its share; returns
    /// the ports that were looked at.
    #[inline]
    fn cross_and_send<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) -> PortSet {
        step.fed = step.fed.or(self.absorb(now, tracer));
        let mut looked;
        loop {
            // Egress queues are filled first, so that a port gets long bursts.
            let moved = self.cross(now, tracer, step);
            tracer.part(Part::Crossbar);
            let mut sent = 0;
            // In virtual time a lane has all ports, so that each one's place is its number.
            looked = if self.timing == Timing::Virtual { look.or(step.fed) } else { look };
            for index in looked.iter().map(PortId::index) {
                let Some(port) = ports.get_mut(index) else { break };
                if !self.is_idle(index, step.fed) {
                    sent += self.send(now, index, port.as_mut(), tracer);
                }
            }
            tracer.part(Part::Egress);
            step.work += moved + sent;
            if let Some(crossbar) = self.crossbar.as_mut().filter(|_| sent > 0) {
                crossbar.drained();
            }
            if moved + sent == 0 || !self.again() {
                break;
            }
        }
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.rewind();
            step.blocked |= crossbar.waits(&self.ctx);
        }
        self.report();
        step.queued = step.work > 0;
        looked
    }

    /// What is done once a step for ports, ingress groups, the FDB, the pool and the buffer; returns the ports of which
    /// something may have changed.
    #[inline]
    fn housekeeping_all<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &mut [Box<dyn Port>],
        step: &mut Step,
        tracer: &mut T,
    ) -> PortSet {
        for index in look.iter().map(PortId::index) {
            let Some(port) = ports.get_mut(index) else { break };
            self.housekeeping(now, index, port.as_mut());
        }
        let (held, relieved) = self.groups(now, tracer);
        if self.crossbar.is_some() {
            self.ctx.core.fdb.age(now, AGE_BUCKETS);
        }
        self.ctx.bufs.settle();
        self.ctx.stats.loops.add(1);
        if step.work > 0 {
            self.ctx.stats.busy_loops.add(1);
        } else {
            step.blocked |= held;
            self.ctx.core.buffer.settle(&mut self.ctx.lease);
        }
        if self.timing == Timing::Virtual { look.or(relieved) } else { look }
    }

    /// Lets links that do not forward any more leave their LAGs and spreads.
    fn keep_joined(&mut self) {
        let Context { core, snapshot, joined_lags, joined_spreads, .. } = &mut self.ctx;
        let open = core.forwarding();
        joined_lags.keep(open, snapshot.links.lags());
        joined_spreads.keep(open, snapshot.links.spreads());
    }

    /// Whether the crossbar may do more in this step: only live, and not without end.
    fn again(&self) -> bool {
        self.timing == Timing::Live && self.crossbar.as_ref().is_some_and(|c| !c.spent())
    }

    /// When this lane next has something to do of its own accord; of its ports only those of `look` may have changed that.
    fn next_due(
        &mut self,
        now: Instant,
        look: PortSet,
        ports: &[Box<dyn Port>],
    ) -> Option<Instant> {
        let mut next = self.crossbar.as_ref().and_then(|crossbar| crossbar.next(now));
        for place in look.iter() {
            let due = self.port_due(now, place.index(), ports);
            if self.timing == Timing::Virtual {
                self.wakes.set(place, due);
            } else {
                next = Instant::earlier(next, due);
            }
        }
        next = Instant::earlier(next, self.wakes.first());
        if self.crossbar.is_some() {
            next = Instant::earlier(next, self.ctx.core.fdb.next_age_due(now));
        }
        next = Instant::earlier(next, self.ctx.core.next_unblock());
        next = Instant::earlier(next, self.ctx.joined_lags.next());
        Instant::earlier(next, self.ctx.joined_spreads.next())
    }

    /// When the port at a place of this lane next has something to do.
    #[inline]
    fn port_due(&mut self, now: Instant, index: usize, ports: &[Box<dyn Port>]) -> Option<Instant> {
        let output = self.outputs.get_mut(index)?;
        let (port, input) = (ports.get(index)?, self.inputs.get(index)?);
        let mut next = Instant::earlier(output.next(now), port.next_event());
        if output.is_blocked() {
            next = Instant::earlier(next, port.idle_at());
        }
        // A PAUSE that cannot be sent while the link is down is not due.
        next = Instant::earlier(next, input.next(now).filter(|_| output.up));
        Instant::earlier(next, input.parked.as_ref().map(|parked| parked.until))
    }

    /// Ends all frames that are still queued and takes back what ports hold: the switch stops, and no
    /// lane makes a step any more.
    pub fn stop<T: Tracer>(&mut self, now: Instant, ports: &mut [Box<dyn Port>], tracer: &mut T) {
        self.end_parked(now, tracer);
        self.drain_all(now, tracer);
        self.absorb(now, tracer);
        for lane in &mut self.outputs {
            lane.empty(&mut self.ctx, now, DropReason::Shutdown, tracer);
        }
        for (index, port) in ports.iter_mut().enumerate() {
            port.release(&mut self.ctx.bufs);
            self.count_port(index, port.as_mut());
        }
        self.ctx.bufs.settle();
        self.ctx.core.buffer.settle(&mut self.ctx.lease);
    }
}
