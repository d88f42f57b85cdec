//! Hand-over between workers: what a lane does with its link to the crossbar of another worker.
//!
//! Frames that came down go to egress queues; what was taken off these is told back.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use super::context::ToCrossbar;
use super::lane::Lane;
use crate::port::Port;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::PortSet;

impl Lane {
    /// Whether a burst may be received: it always may where the crossbar is.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        match &mut self.ctx.to_crossbar {
            ToCrossbar::Local(_) => true,
            ToCrossbar::Remote(uplink) => uplink.has_room(),
        }
    }

    /// Takes over what the crossbar's owner has sent; returns the outputs.
    pub(super) fn absorb<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> PortSet {
        let Self { ctx, downlink, .. } = self;
        downlink.as_mut().map_or(PortSet::EMPTY, |downlink| downlink.absorb(ctx, now, tracer))
    }

    /// Tells the crossbar's owner what was taken off egress queues.
    #[inline]
    pub(super) fn report(&mut self) {
        if let Some(downlink) = &mut self.downlink {
            downlink.report();
        }
    }

    /// Sends what the crossbar's owner has sent meanwhile, between two bursts.
    pub(super) fn pass_down<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> usize {
        let fed = self.absorb(now, tracer);
        if fed.is_empty() {
            return 0;
        }
        let mut sent = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            if self.outputs.get(index).is_some_and(|output| fed.contains(output.port)) {
                sent += self.send(now, index, port.as_mut(), tracer);
            }
        }
        self.report();
        sent
    }
}
