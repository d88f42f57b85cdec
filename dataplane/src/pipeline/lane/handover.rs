//! Hand-over between workers: a lane's link to the crossbar of another worker.
//!
//! Frames that came down go to egress queues; departures from these are reported back.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use super::Lane;
use crate::pipeline::context::ToCrossbar;
use crate::pipeline::crossbar::Crossbar;
use crate::pipeline::downlink::Downlink;
use crate::port::Port;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::PortSet;

impl Lane {
    /// Whether a burst may be received; always where the crossbar is.
    #[inline]
    pub(in crate::pipeline) fn has_room(&mut self) -> bool {
        match &mut self.ctx.to_crossbar {
            ToCrossbar::Local(_) => true,
            ToCrossbar::Remote(uplink) => uplink.has_room(),
        }
    }

    /// Puts frames that the crossbar's owner has sent into egress queues; returns their outputs.
    pub(in crate::pipeline) fn absorb<T: Tracer>(
        &mut self,
        now: Instant,
        tracer: &mut T,
    ) -> PortSet {
        let Self { ctx, downlink, .. } = self;
        downlink.as_mut().map_or(PortSet::EMPTY, |downlink| downlink.absorb(ctx, now, tracer))
    }

    /// Whether another worker has handed over frames since the last step. A worker asks between
    /// announcing that it sleeps and sleeping: before that, it is not woken for them.
    pub fn has_arrivals(&mut self) -> bool {
        self.crossbar.as_mut().is_some_and(Crossbar::has_arrivals)
            || self.downlink.as_mut().is_some_and(Downlink::has_arrivals)
    }

    /// Reports departures from egress queues to the crossbar's owner.
    #[inline]
    pub(in crate::pipeline) fn report(&mut self) {
        if let Some(downlink) = &mut self.downlink {
            downlink.report();
        }
    }

    /// Between two bursts: sends frames that the crossbar's owner has handed over meanwhile.
    pub(in crate::pipeline) fn pass_down<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> usize {
        let fed = self.absorb(now, tracer);
        if fed.is_empty() {
            return 0;
        }
        let (mut sent, pris) = (0, self.ctx.snapshot.pris);
        for (index, port) in ports.iter_mut().enumerate() {
            if self.outputs.get(index).is_some_and(|output| fed.contains(output.port)) {
                sent += self.send(now, index, pris, port.as_mut(), tracer);
            }
        }
        self.report();
        sent
    }
}
