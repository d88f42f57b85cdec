//! Receive: takes a burst of one port through the stages of ingress.
//!
//! Each stage passes over the whole burst; a frame's verdict is decided first and carried out last.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §1 to §4.

use super::Lane;
use crate::batch::Batch;
use crate::pipeline::burst::{BurstMask, BurstRoutes, BurstView, CACHE_MISS};
use crate::pipeline::flow_cache::{lookup_burst, route_burst};
use crate::pipeline::input_lane::Found;
use crate::pipeline::learn::learn_burst;
use crate::pipeline::parse::count_burst;
use crate::pipeline::scratch::Scratch;
use crate::pipeline::tlp::{TlpScratch, route_tlps};
use crate::port::Port;
use crate::time::Instant;
use crate::trace::{Part, Tracer};

impl Lane {
    /// Receives one burst of one port; returns how many frames it was.
    pub(in crate::pipeline) fn receive<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        let mut batch = Batch::new();
        let received = port.rx(now, &mut self.ctx.bufs, &mut batch);
        tracer.part(Part::Receive);
        if received == 0 {
            return 0;
        }
        if let Some(lane) = self.inputs.get_mut(index) {
            lane.sample(&self.ctx, now, &batch);
        }
        self.take_in(now, index, batch, tracer)
    }

    /// Does the work of [`Self::receive`] for frames that a port has handed over.
    pub(in crate::pipeline) fn take_in<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        mut batch: Batch,
        tracer: &mut T,
    ) -> usize {
        let Self { ctx, inputs, outputs, scratch, flows, .. } = self;
        let Some(lane) = inputs.get_mut(index) else { return 0 };
        lane.draining.receive();
        let Scratch { routes, demand, metas, learn, space } = &mut **scratch;
        let count = batch.len();
        if ctx.snapshot.tlp_ports.contains(lane.port) {
            let memory = TlpScratch { metas, routes, space };
            let routed = route_tlps(ctx, now, lane.port, &mut batch, memory, tracer);
            count_burst(ctx, lane.port, count);
            if !(routed && lane.enqueue_burst(ctx, &mut batch, routes, demand)) {
                let found = BurstRoutes { routes, metas };
                lane.dispose(ctx, now, &mut batch, found, outputs.get_mut(index), tracer);
            }
            lane.publish(ctx);
            tracer.part(Part::Ingress);
            return count;
        }
        let blocked = ctx.core.blocked().contains(lane.port);
        // A trace shows each frame's path in full, and a blocked port drops frames of cached flows, too.
        // `routes` still holds the last burst's queues, by which frames would leave.
        let unknown = if T::ON || blocked {
            routes.fill(CACHE_MISS);
            BurstMask::first(count)
        } else {
            lookup_burst(ctx, now, lane.port, &mut batch, routes, flows)
        };
        if unknown.0 != 0 {
            let burst = BurstView { batch: &mut batch, which: unknown };
            let to = Found { metas, learn, flows };
            lane.decide(ctx, now, burst, to, blocked, tracer);
        }
        let burst = BurstView { batch: &mut batch, which: unknown };
        let routed = unknown.0 == 0 || !T::ON && route_burst(ctx, burst, metas, routes);
        count_burst(ctx, lane.port, count);
        if !(routed && lane.enqueue_burst(ctx, &mut batch, routes, demand)) {
            let found = BurstRoutes { routes, metas };
            lane.dispose(ctx, now, &mut batch, found, outputs.get_mut(index), tracer);
        }
        lane.publish(ctx);
        learn_burst(ctx, now, lane.port, learn, tracer);
        tracer.part(Part::Ingress);
        count
    }
}
