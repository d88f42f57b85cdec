//! Ingress of one port: decides on the outputs of a burst's frames, and carries the verdicts out.
//!
//! Each stage passes over the whole burst; a frame's [`Verdict`] is decided first and carried out
//! last.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §1 to §4, §9.

use weft_parsers::{AddrKey, flow_hash, loop_probe};

use super::InputLane;
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::fdb::Source;
use crate::flows::FlowCache;
use crate::loops::digest;
use crate::pipeline::burst::{
    BurstMask, BurstRoutes, BurstView, CACHE_MISS, FrameMeta, FrameRoute, Verdict,
};
use crate::pipeline::context::Context;
use crate::pipeline::flow_cache::insert_flow;
use crate::pipeline::loops::{own_probe, take_probe};
use crate::pipeline::output_lane::OutputLane;
use crate::pipeline::parse::parse_burst;
use crate::pipeline::route::Router;
use crate::queues::QueueId;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::PortSet;

/// Drops frames that came in by a blocked port instead of forwarding them. Frames for the switch
/// itself still get through.
#[cold]
fn shut_out(which: BurstMask, metas: &mut [FrameMeta; BURST]) {
    for place in which.iter() {
        let Some(meta) = metas.get_mut(place) else { break };
        if let Verdict::Forward(_) = meta.verdict {
            meta.verdict = Verdict::Drop(DropReason::LoopBlocked);
        }
    }
}

/// Memory for the results of a burst.
pub(in crate::pipeline) struct Found<'a> {
    /// Headers and verdicts, by place in the burst.
    pub metas: &'a mut [FrameMeta; BURST],
    /// Source addresses that are to be learnt.
    pub learn: &'a mut arrayvec::ArrayVec<Source, BURST>,
    /// The worker's flow cache.
    pub flows: &'a mut FlowCache,
}

/// Destination of loop probes.
const PROBE: AddrKey = AddrKey::ethernet(loop_probe::DST);

impl InputLane {
    /// Parses frames of the burst, and decides on their outputs.
    #[inline]
    pub fn decide<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        BurstView { batch, which }: BurstView<'_>,
        to: Found<'_>,
        blocked: bool,
        tracer: &mut T,
    ) {
        parse_burst(ctx, now, self.port, BurstView { batch, which }, to.metas, tracer);
        if blocked {
            shut_out(which, to.metas);
        } else if ctx.snapshot.links.is_any() {
            self.forward::<T, true>(ctx, now, BurstView { batch, which }, to, tracer);
        } else {
            self.forward::<T, false>(ctx, now, BurstView { batch, which }, to, tracer);
        }
    }

    /// Decides on the outputs of frames of the burst.
    #[inline(never)] // as `lookup_burst`
    fn forward<T: Tracer, const SPREAD: bool>(
        &mut self,
        ctx: &Context,
        now: Instant,
        BurstView { batch, which }: BurstView<'_>,
        Found { metas, learn, flows }: Found<'_>,
        tracer: &mut T,
    ) {
        let links = &ctx.snapshot.links;
        let mut router = Router::<SPREAD> {
            core: &ctx.core,
            snapshot: &ctx.snapshot,
            storm: &mut self.storm,
            now,
            input: self.port,
            home: links.leader(self.port),
            own: links.members(self.port),
            up: ctx.core.forwarding(),
            joined_lags: ctx.joined_lags.links(),
            joined_spreads: ctx.joined_spreads.links(),
            chosen: false,
        };
        for place in which.iter() {
            let Some((desc, meta)) = batch.get(place).zip(metas.get_mut(place)) else { break };
            if !matches!(meta.verdict, Verdict::Forward(_)) {
                continue;
            }
            // Before the source is learnt: a probe carries a port's own address, at which no
            // station is.
            if meta.head.dst() == PROBE && own_probe(ctx, desc, &meta.head).is_some() {
                meta.verdict = Verdict::Consume;
                continue;
            }
            let frame = || digest(ctx.bufs.bytes(desc));
            // Also for frames that are dropped below: where a station is does not depend on where
            // it sends to.
            let source_known = router.source(meta, frame, learn);
            let hash = || flow_hash(ctx.bufs.bytes(desc), &meta.head, meta.vid);
            let (verdict, by) = router.destination(meta, desc.len(), hash);
            meta.verdict = verdict;
            // Only a flow whose source needs no learning and whose destination is known: the cached
            // path does neither, and a flood has several outputs.
            if !T::ON && source_known && matches!(by, "fdb" | "static") {
                insert_flow(ctx, flows, desc, meta, SPREAD && router.chosen);
            }
            if T::ON
                && let Verdict::Forward(outputs) = verdict
            {
                let frame = ctx.bufs.trace_id(desc);
                tracer.event(now, Event::Forward { frame, by, outputs: outputs.bits() });
            }
        }
    }

    /// Carries out the verdicts. MAC control frames go to the `output` side of the same port, which
    /// PAUSE stops.
    #[inline(never)] // as `lookup_burst`
    pub fn dispose<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        batch: &mut Batch,
        BurstRoutes { routes, metas }: BurstRoutes<'_>,
        mut output: Option<&mut OutputLane>,
        tracer: &mut T,
    ) {
        for ((desc, &route), meta) in batch.drain(..).zip(routes).zip(metas) {
            let found = FrameRoute { route, meta };
            self.carry_out(ctx, now, desc, found, output.as_deref_mut(), tracer);
        }
    }

    /// [`Self::dispose`] and [`Self::publish`] for a burst of one frame.
    #[inline]
    pub fn dispose_one<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        desc: Desc,
        found: FrameRoute<'_>,
        output: Option<&mut OutputLane>,
        tracer: &mut T,
    ) {
        self.carry_out(ctx, now, desc, found, output, tracer);
        self.publish(ctx);
    }

    #[inline]
    fn carry_out<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        desc: Desc,
        FrameRoute { route, meta }: FrameRoute<'_>,
        output: Option<&mut OutputLane>,
        tracer: &mut T,
    ) {
        if route != CACHE_MISS {
            let output = QueueId::from_low_bits(route).output();
            return self.enqueue(ctx, now, PortSet::only(output), desc, tracer);
        }
        match (meta.verdict, output) {
            (Verdict::Forward(outputs), _) => self.enqueue(ctx, now, outputs, desc, tracer),
            (Verdict::Drop(reason), _) => ctx.end(now, desc, reason, tracer),
            (Verdict::Hold, _) => ctx.hold(now, desc, self.port, None),
            (Verdict::Consume, _) if meta.head.mac_control_opcode().is_none() => {
                take_probe(ctx, now, &meta.head, desc, tracer);
            }
            (Verdict::Consume, Some(output)) => output.consume(ctx, now, &meta.head, desc, tracer),
            (Verdict::Consume, None) => ctx.end(now, desc, DropReason::Unsupported, tracer),
        }
    }
}
