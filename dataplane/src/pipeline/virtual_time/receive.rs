//! Receive in virtual time: takes one frame of a port through the stages of ingress.
//!
//! A frame that goes to one output may pass at once ([`super::transit`]), and one whose last bit is
//! not in yet is parked ([`super::cut_through`]).
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §1 to §4; docs/spec/model.md §1.

use super::VirtualTimeLane;
use super::transit::enter;
use crate::batch::Batch;
use crate::pipeline::burst::{BurstMask, BurstView, CACHE_MISS, FrameRoute, Verdict};
use crate::pipeline::flow_cache::lookup_one;
use crate::pipeline::input_lane::Found;
use crate::pipeline::lane::Lane;
use crate::pipeline::learn::learn_burst;
use crate::pipeline::parse::count_burst;
use crate::pipeline::scratch::Scratch;
use crate::port::TimedPort;
use crate::time::Instant;
use crate::trace::{Part, Tracer};

impl VirtualTimeLane {
    /// Like [`Lane::receive`], but one frame; returns how many that was.
    pub(super) fn receive_one<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn TimedPort,
        tracer: &mut T,
    ) -> usize {
        let Some(mut desc) = port.rx_one(now, &mut self.lane.ctx.bufs) else { return 0 };
        tracer.part(Part::Receive);
        let may_transit = self.may_transit::<T>();
        let Self { lane: all, transits, .. } = self;
        let Lane { ctx, inputs, outputs, scratch, flows, .. } = all;
        let Some(lane) = inputs.get_mut(index) else { return 0 };
        if ctx.snapshot.tlp_ports.contains(lane.port) {
            let mut batch = Batch::new();
            batch.push(desc);
            return self.lane.take_in(now, index, batch, tracer);
        }
        lane.draining.receive();
        count_burst(ctx, lane.port, 1);
        let Scratch { routes, metas, learn, .. } = &mut **scratch;
        let blocked = ctx.core.blocked().contains(lane.port);
        // As in `Lane::take_in`.
        let known =
            if T::ON || blocked { None } else { lookup_one(ctx, now, lane.port, &mut desc, flows) };
        let (route, sole) = if let Some(queue) = known {
            (queue.get(), Some(queue.output()))
        } else {
            let mut batch = Batch::new();
            batch.push(desc);
            let burst = BurstView { batch: &mut batch, which: BurstMask::first(1) };
            let to = Found { metas, learn, flows };
            lane.decide(ctx, now, burst, to, blocked, tracer);
            let Some(only) = batch.pop() else { return 0 };
            desc = only;
            let sole = match metas[0].verdict {
                Verdict::Forward(outputs) => outputs.sole(),
                Verdict::Drop(_) | Verdict::Consume | Verdict::Hold => None,
            };
            (CACHE_MISS, sole)
        };
        // Cut-through: the port handed the frame over when its header was in.
        if let Some(until) = port.whole_at().filter(|&until| until > now) {
            routes[0] = route;
            self.park(now, index, desc, until, tracer);
            return 1;
        }
        if let Some(output) = sole.filter(|_| may_transit) {
            enter(lane, ctx, now, desc, output, transits, tracer);
        } else {
            let found = FrameRoute { route, meta: &metas[0] };
            lane.dispose_one(ctx, now, desc, found, outputs.get_mut(index), tracer);
        }
        if !learn.is_empty() {
            learn_burst(ctx, now, lane.port, learn, tracer);
        }
        tracer.part(Part::Ingress);
        1
    }
}
