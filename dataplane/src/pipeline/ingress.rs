//! Ingress: receive, parse, classify, forward, admit, enqueue, learn, for one burst of one port.
//!
//! Shape: passes over the whole burst; a frame's [`Verdict`] is decided first and carried out last.
//! Units: cells.
//! Source: docs/spec/pipeline.md §1 to §4, §9.

use weft_base::sync::Ordering;
use weft_parsers::{Format, Head, flow_hash, parse_head};

use super::burst::{BurstMask, CACHE_MISS, CountRun, FrameMeta, Verdict, trace_rx};
use super::egress::OutputLane;
use super::fast::Draining;
use super::route::Router;
use super::{Context, Lane, ToCrossbar};
use crate::batch::{BURST, Batch};
use crate::buffer::Verdict as Granted;
use crate::config::{PfcMode, Trust};
use crate::desc::{Desc, Flag};
use crate::fdb::{FdbKey, Learned};
use crate::flows::FlowCache;
use crate::pfc::PauseTx;
use crate::port::Port;
use crate::queues::{Demand, QueueId, QueueSet};
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::storm::StormGuard;
use crate::time::{Instant, Span};
use crate::trace::{Event, Part, Tracer};
use crate::types::{PerPri, PortId, PortSet, Pri, PriSet};

/// What one worker keeps for a port as input.
pub(super) struct InputLane {
    pub port: PortId,
    /// Queues that got frames in this burst.
    pub touched: QueueSet,
    storm: StormGuard,
    pub pause: PauseTx,
    /// Lossless priorities whose group has crossed XOFF.
    pub xoff: PriSet,
    /// Frames put into VOQs in this burst.
    pub enqueued: PerPri<u64>,
    /// What became of frames that could have passed by.
    pub draining: Draining,
    seen: crate::port::PortCounters,
}

impl InputLane {
    pub fn new(port: PortId, snapshot: &Snapshot) -> Self {
        Self {
            port,
            touched: QueueSet::EMPTY,
            storm: StormGuard::new(storm_limits(snapshot, port)),
            pause: PauseTx::new(),
            xoff: PriSet::EMPTY,
            enqueued: PerPri::default(),
            draining: Draining::default(),
            seen: crate::port::PortCounters::default(),
        }
    }

    pub fn reconfigure(&mut self, old: &Snapshot, new: &Snapshot) {
        let limits = storm_limits(new, self.port);
        if limits != storm_limits(old, self.port) {
            self.storm = StormGuard::new(limits);
        }
        self.pause.remap();
    }

    pub fn link_down(&mut self) {
        self.pause.link_down();
    }

    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.pause.next(now)
    }
}

fn storm_limits(snapshot: &Snapshot, port: PortId) -> crate::storm::StormLimits {
    snapshot.config.ports.get(port.index()).map(|p| p.storm).unwrap_or_default()
}

/// Memory of a burst, made once.
pub(super) struct Scratch {
    /// By frame: the queue of one whose flow is known, else [`CACHE_MISS`]: its [`FrameMeta`] says more.
    routes: [u16; BURST],
    demand: Demand,
    metas: [FrameMeta; BURST],
    learn: arrayvec::ArrayVec<FdbKey, BURST>,
    /// Where TLPs are written anew.
    space: super::tlp::Space,
}

impl Scratch {
    pub fn new() -> Self {
        let routes = [CACHE_MISS; BURST];
        let (demand, learn) = (Demand::new(), arrayvec::ArrayVec::new());
        Self { routes, demand, metas: [FrameMeta::NEW; BURST], learn, space: [0; _] }
    }
}

impl Lane {
    /// One burst of one port; returns how many frames it was.
    pub(super) fn receive<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        let Self { ctx, inputs, outputs, scratch, flows, .. } = self;
        let mut batch = Batch::new();
        let received = port.rx(now, &mut ctx.bufs, &mut batch);
        tracer.part(Part::Receive);
        if received == 0 {
            return 0;
        }
        let Some(lane) = inputs.get_mut(index) else { return 0 };
        lane.draining.receive();
        let Scratch { routes, demand, metas, learn, space } = &mut **scratch;
        let count = batch.len();
        if ctx.snapshot.tlp_ports.contains(lane.port) {
            let memory = (&mut *metas, &mut *routes, space);
            let routed = ctx.tlps(now, lane.port, &mut batch, memory, tracer);
            ctx.count_burst(lane.port, count);
            if !(routed && lane.enqueue_burst(ctx, &mut batch, routes, demand)) {
                lane.dispose(ctx, now, &mut batch, (routes, metas), outputs.get_mut(index), tracer);
            }
            lane.publish(ctx);
            tracer.part(Part::Ingress);
            return count;
        }
        let blocked = ctx.core.blocked().contains(lane.port);
        // A trace tells each frame's way in full.
        let unknown = if T::ON || blocked {
            routes.fill(CACHE_MISS);
            BurstMask::first(count)
        } else {
            ctx.lookup_burst(now, lane.port, &mut batch, routes, flows)
        };
        if unknown.0 != 0 {
            ctx.parse(now, lane.port, (&mut batch, unknown), metas, tracer);
            let (which, to) = ((&batch[..], unknown), (&mut *metas, &mut *learn, flows));
            if blocked {
                shut_out(which.1, to.0);
            } else if ctx.snapshot.links.is_any() {
                lane.forward::<T, true>(ctx, now, which, to, tracer);
            } else {
                lane.forward::<T, false>(ctx, now, which, to, tracer);
            }
        }
        let routed = unknown.0 == 0 || !T::ON && ctx.route((&mut batch, unknown), metas, routes);
        ctx.count_burst(lane.port, count);
        if !(routed && lane.enqueue_burst(ctx, &mut batch, routes, demand)) {
            lane.dispose(ctx, now, &mut batch, (routes, metas), outputs.get_mut(index), tracer);
        }
        lane.publish(ctx);
        ctx.learn(now, lane.port, learn, tracer);
        tracer.part(Part::Ingress);
        count
    }
}

/// Nothing is forwarded that came in by a port which is blocked; what is for the switch itself is.
#[cold]
fn shut_out(which: BurstMask, metas: &mut [FrameMeta; BURST]) {
    for place in which.iter() {
        let Some(meta) = metas.get_mut(place) else { break };
        if let Verdict::Forward(_) = meta.verdict {
            meta.verdict = Verdict::Drop(DropReason::LoopBlocked);
        }
    }
}

impl Context {
    /// Counts a burst that came in.
    #[inline]
    fn count_burst(&self, input: PortId, count: usize) {
        self.stats.port[input].rx_frames.add(count as u64);
        self.stats.frames.add(count as u64);
        self.stats.bursts.add(1);
    }

    /// Parses and classifies frames of the burst.
    #[inline(never)] // as `lookup_burst`
    fn parse<T: Tracer>(
        &mut self,
        now: Instant,
        input: PortId,
        (batch, which): (&mut Batch, BurstMask),
        metas: &mut [FrameMeta; BURST],
        tracer: &mut T,
    ) {
        let snapshot = &*self.snapshot;
        let Some(config) = snapshot.config.ports.get(input.index()) else { return };
        let Some(classifier) = snapshot.classifiers.get(input.index()) else { return };
        let (stats, fdb) = (&self.stats.port[input], &self.core.fdb);
        let mut run = CountRun::default();
        for place in which.iter() {
            let Some((desc, meta)) = batch.get_mut(place).zip(metas.get_mut(place)) else { break };
            let len = desc.len();
            if T::ON {
                trace_rx(&mut self.bufs, now, input, desc, tracer);
            }
            let Ok(head) = parse_head(self.bufs.head(desc), len, &config.parse) else {
                run.count(stats, len, Format::Other as usize);
                meta.verdict = Verdict::Drop(DropReason::Malformed);
                let (pri, _) = classifier.pri(&Head::EMPTY);
                desc.classify(input, Format::Other, pri, (false, false));
                continue;
            };
            let format = head.format();
            run.count(stats, len, format as usize);
            meta.verdict = if len > config.frame_len_max {
                Verdict::Drop(DropReason::TooLong)
            } else if format == Format::MacControl {
                Verdict::Consume
            } else {
                match snapshot.vlan.ingress(input, head.tci()) {
                    Ok(vid) => {
                        meta.vid = vid;
                        desc.set_vid(vid.get());
                        meta.dst = fdb.probe(FdbKey::new(vid, head.dst()));
                        meta.src = fdb.probe(FdbKey::new(vid, head.src()));
                        Verdict::Forward(PortSet::EMPTY)
                    }
                    Err(_) => Verdict::Drop(DropReason::VlanFiltered),
                }
            };
            meta.head = head;
            let (pri, by) = classifier.pri(&head);
            desc.classify(input, format, pri, (head.tagged(), snapshot.may_mark(&head)));
            let filtered = Verdict::Drop(DropReason::VlanFiltered); // it was classified, too
            if T::ON && (matches!(meta.verdict, Verdict::Forward(_)) || meta.verdict == filtered) {
                let event = Event::Classify {
                    frame: self.bufs.trace_id(desc),
                    format: format.name(),
                    pri: pri.get(),
                    by: by.map_or("default", Trust::name),
                    vid: head.tci().map_or(0, |tci| tci.vid().get()),
                };
                tracer.event(now, event);
            }
        }
        run.flush(stats);
    }

    /// Learns what the burst brought; seen from the next one on.
    #[inline]
    fn learn<T: Tracer>(
        &mut self,
        now: Instant,
        input: PortId,
        keys: &mut arrayvec::ArrayVec<FdbKey, BURST>,
        tracer: &mut T,
    ) {
        let home = self.snapshot.links.leader(input);
        for key in keys.drain(..) {
            let outcome = self.core.fdb.learn(key, home, now);
            let name = match outcome {
                Learned::New => "new",
                Learned::Moved { .. } => "moved",
                Learned::Looping { .. } => "looping",
                Learned::Held => "held",
                Learned::Known => "known",
                Learned::PortLimit => "port_limit",
                Learned::Full => "full",
                Learned::Static => "static",
                Learned::Busy => "busy",
            };
            match outcome {
                Learned::Moved { .. } => self.stats.port[input].fdb_moves.add(1),
                Learned::Looping { home, other } => {
                    let moved = self.snapshot.config.forward.sticky == Span::ZERO;
                    self.stats.port[input].fdb_moves.add(u64::from(moved));
                    self.cut_loop(now, (home, other), tracer);
                }
                Learned::Busy => self.stats.learn_busy.add(1),
                _ => {}
            }
            if T::ON {
                let event =
                    Event::Learn { key: key.addr().to_bits(), port: home.get(), outcome: name };
                tracer.event(now, event);
            }
        }
    }

    fn trace_admission<T: Tracer>(
        &self,
        now: Instant,
        desc: &Desc,
        output: PortId,
        cells: u32,
        admission: crate::buffer::Admission,
        tracer: &mut T,
    ) {
        let verdict = match admission.verdict {
            Granted::Queue => "queue",
            Granted::Headroom => "in_headroom",
            Granted::Drop(reason) => reason.name(),
        };
        let event = Event::Admit {
            frame: self.bufs.trace_id(desc),
            input: desc.input().get(),
            output: output.get(),
            pri: desc.pri().get(),
            verdict,
            cells,
            used: admission.used,
            limit: admission.limit,
            shared_used: self.core.buffer.shared_used(&self.snapshot.thresholds),
        };
        tracer.event(now, event);
    }
}

impl InputLane {
    /// Decides where frames of the burst go.
    #[inline(never)] // as `lookup_burst`
    fn forward<T: Tracer, const SPREAD: bool>(
        &mut self,
        ctx: &Context,
        now: Instant,
        (batch, which): (&[Desc], BurstMask),
        (metas, learn, flows): (
            &mut [FrameMeta; BURST],
            &mut arrayvec::ArrayVec<FdbKey, BURST>,
            &mut FlowCache,
        ),
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
            let source_known = router.source(meta, learn);
            let hash = || flow_hash(ctx.bufs.bytes(desc), &meta.head, meta.vid);
            let (verdict, by) = router.destination(meta, desc.len(), hash);
            meta.verdict = verdict;
            // A flow that has a choice is more than a flow's key says.
            let chosen = SPREAD && router.chosen;
            if !T::ON && source_known && !chosen && matches!(by, "fdb" | "static") {
                ctx.insert_flow(flows, desc, meta);
            }
            if T::ON
                && let Verdict::Forward(outputs) = verdict
            {
                let frame = ctx.bufs.trace_id(desc);
                tracer.event(now, Event::Forward { frame, by, outputs: outputs.bits() });
            }
        }
    }

    /// Carries out what was decided; MAC control frames go to the port's `output` side.
    #[inline(never)] // as `lookup_burst`
    fn dispose<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        batch: &mut Batch,
        (routes, metas): (&[u16; BURST], &[FrameMeta; BURST]),
        mut output: Option<&mut OutputLane>,
        tracer: &mut T,
    ) {
        for ((desc, &route), meta) in batch.drain(..).zip(routes).zip(metas) {
            if route != CACHE_MISS {
                let output = QueueId::from_low_bits(route).output();
                self.enqueue(ctx, now, PortSet::only(output), desc, tracer);
                continue;
            }
            match (meta.verdict, &mut output) {
                (Verdict::Forward(outputs), _) => self.enqueue(ctx, now, outputs, desc, tracer),
                (Verdict::Drop(reason), _) => ctx.end(now, desc, reason, tracer),
                (Verdict::Consume, Some(output)) => {
                    output.consume(ctx, now, &meta.head, desc, tracer);
                }
                (Verdict::Consume, None) => ctx.end(now, desc, DropReason::Unsupported, tracer),
            }
        }
    }

    /// Queues a frame for all of `outputs`.
    #[inline]
    fn enqueue<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        desc: Desc,
        tracer: &mut T,
    ) {
        if ctx.snapshot.is_lossless(self.port, desc.pri()) {
            return self.enqueue_lossless(ctx, now, outputs, desc, tracer);
        }
        match outputs.sole() {
            Some(output) => self.enqueue_lossy(ctx, now, output, desc, tracer),
            None => self.enqueue_copies(ctx, now, outputs, desc, tracer),
        }
    }

    /// Queues a lossy frame for several outputs.
    #[inline(never)] // rare
    fn enqueue_copies<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        mut desc: Desc,
        tracer: &mut T,
    ) {
        let mut left = outputs;
        while let Some(output) = left.lowest() {
            left.remove(output);
            if left.is_empty() {
                return self.enqueue_lossy(ctx, now, output, desc, tracer);
            }
            ctx.stats.port[self.port].copies.add(1);
            let copy = ctx.bufs.share(&mut desc);
            self.enqueue_lossy(ctx, now, output, copy, tracer);
        }
        ctx.end(now, desc, DropReason::NoOutput, tracer); // a set that was checked not to be empty
    }

    /// Queues one copy of a lossy frame, charged to its VOQ.
    #[expect(clippy::inline_always, reason = "most frames; a call is a tenth of what it does")]
    #[inline(always)]
    fn enqueue_lossy<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) {
        let cells = ctx.snapshot.cells(desc.len());
        let queue = (self.port, output, desc.pri());
        let admission =
            ctx.core.buffer.admit_voq(&mut ctx.lease, &ctx.snapshot.thresholds, queue, cells);
        if T::ON {
            ctx.trace_admission(now, &desc, output, cells, admission, tracer);
        }
        match admission.verdict {
            Granted::Drop(reason) => ctx.end(now, desc, reason, tracer),
            _ => self.push(ctx, now, output, desc, tracer),
        }
    }

    /// Queues a lossless frame: charged once to its ingress group, until its last copy leaves.
    fn enqueue_lossless<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        mut desc: Desc,
        tracer: &mut T,
    ) {
        let cells = ctx.snapshot.cells(desc.len());
        let (input, pri) = (self.port, desc.pri());
        let group = (input, pri);
        let admission =
            ctx.core.buffer.admit_group(&mut ctx.lease, &ctx.snapshot.thresholds, group, cells);
        if T::ON {
            let first = outputs.lowest().unwrap_or_default();
            ctx.trace_admission(now, &desc, first, cells, admission, tracer);
        }
        if let Granted::Drop(reason) = admission.verdict {
            self.cross_xoff(ctx, now, pri, admission.limit, tracer);
            let more = outputs.len().saturating_sub(1);
            ctx.stats.port[input].copies.add(more as u64);
            for _ in 0..more {
                ctx.stats.count_drop_pri(input, pri, reason);
                if T::ON {
                    let frame = ctx.bufs.trace_id(&desc);
                    let (port, reason) = (input.get(), reason.name());
                    tracer.event(now, Event::Drop { frame, port, reason });
                }
            }
            return ctx.end(now, desc, reason, tracer);
        }
        desc.set(Flag::Pg, true);
        let stats = &ctx.stats.port[input].pri[pri];
        // What is in headroom is not in the group.
        if admission.verdict == Granted::Queue {
            stats.pg_watermark.raise(u64::from(admission.used + cells));
        } else {
            let used = ctx.core.buffer.headroom_used(input, pri);
            stats.headroom_watermark.raise(u64::from(used));
            self.cross_xoff(ctx, now, pri, admission.limit, tracer);
        }
        let mut left = outputs;
        while let Some(output) = left.lowest() {
            left.remove(output);
            ctx.core.buffer.deepen_by(&ctx.lease, (input, output, pri), cells);
            if left.is_empty() {
                return self.push(ctx, now, output, desc, tracer);
            }
            ctx.stats.port[input].copies.add(1);
            let copy = ctx.bufs.share(&mut desc);
            self.push(ctx, now, output, copy, tracer);
        }
        ctx.end(now, desc, DropReason::NoOutput, tracer);
    }

    /// Puts a charged frame into its VOQ.
    #[expect(clippy::inline_always, reason = "once a frame; a call costs a fifth of what it does")]
    #[inline(always)]
    fn push<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) {
        let pri = desc.pri();
        let queue = QueueId::new(output, pri);
        let pushed = match &mut ctx.to_crossbar {
            ToCrossbar::Local(voqs) => voqs.push(self.port, queue, desc),
            ToCrossbar::Remote(uplink) => uplink.push(desc, queue),
        };
        match pushed {
            Ok(()) => {
                self.touched.insert(queue);
                self.enqueued[pri] += 1;
                self.draining.queue(output, pri);
            }
            Err(desc) => ctx.discard(now, desc, output, DropReason::Pool, tracer),
        }
    }

    /// Ends a burst: what it put into VOQs is counted, and how deep these have become.
    #[inline]
    fn publish(&mut self, ctx: &Context) {
        for pri in Pri::ALL {
            let count = core::mem::take(&mut self.enqueued[pri]);
            if count > 0 {
                ctx.stats.port[self.port].pri[pri].enqueued.add(count);
            }
        }
        let buffer = &ctx.snapshot.config.buffer;
        let xoff_bytes = match ctx.snapshot.config.pfc.mode {
            PfcMode::EgressQueue { xoff_bytes, .. } => xoff_bytes,
            PfcMode::IngressPg => u64::MAX,
        };
        // With several workers, an output's own sees how deep its queues get.
        let touched = core::mem::take(&mut self.touched);
        if !ctx.core.buffer.is_solo() && xoff_bytes == u64::MAX {
            return;
        }
        for queue in touched.iter() {
            let (output, pri) = (queue.output(), queue.pri());
            let depth = u64::from(ctx.core.buffer.depth(output, pri));
            ctx.stats.port[output].pri[pri].depth_watermark.raise(depth);
            if depth * u64::from(buffer.cell_bytes) > xoff_bytes {
                let bit = PortSet::only(output).bits();
                ctx.core.congested[pri].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Notes that a group is above XOFF.
    fn cross_xoff<T: Tracer>(
        &mut self,
        ctx: &Context,
        now: Instant,
        pri: Pri,
        limit: u32,
        tracer: &mut T,
    ) {
        if self.xoff.contains(pri) {
            return;
        }
        self.xoff.insert(pri);
        ctx.stats.port[self.port].pri[pri].xoff.add(1);
        if ctx.snapshot.config.pfc.mode == PfcMode::IngressPg {
            self.pause.set(pri, true);
            ctx.core.xoff[self.port].fetch_or(1 << pri.get(), Ordering::Relaxed);
        }
        if T::ON {
            let used = ctx.core.buffer.group_used(self.port, pri)
                + ctx.core.buffer.headroom_used(self.port, pri);
            let port = self.port.get();
            tracer.event(now, Event::Group { port, pri: pri.get(), xoff: true, used, limit });
        }
    }
}

impl Lane {
    /// Releases groups that have reached XON, and in `egress-queue` mode follows the queues; true if other
    /// workers still hold room of this one's, which comes back by and by.
    pub(super) fn groups<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> bool {
        let Context { core, snapshot, lease, .. } = &mut self.ctx;
        let held = core.buffer.catch_up(lease, &snapshot.thresholds, snapshot.lossless);
        for lane in &mut self.inputs {
            for pri in lane.xoff.iter() {
                let buffer = &self.ctx.core.buffer;
                let limit = buffer.group_limit(&self.ctx.lease, &self.ctx.snapshot.thresholds, pri);
                let head = buffer.headroom_used(lane.port, pri);
                let used = buffer.group_used(lane.port, pri) + head;
                if used > self.ctx.snapshot.thresholds.xon(limit) {
                    continue;
                }
                lane.xoff.remove(pri);
                self.ctx.stats.port[lane.port].pri[pri].xon.add(1);
                if self.ctx.snapshot.config.pfc.mode == PfcMode::IngressPg {
                    lane.pause.set(pri, false);
                    self.ctx.core.xoff[lane.port].fetch_and(!(1 << pri.get()), Ordering::Relaxed);
                }
                if T::ON {
                    let port = lane.port.get();
                    let pri = pri.get();
                    tracer.event(now, Event::Group { port, pri, xoff: false, used, limit });
                }
            }
            if matches!(self.ctx.snapshot.config.pfc.mode, PfcMode::EgressQueue { .. }) {
                for pri in self.ctx.snapshot.lossless.iter() {
                    let hot =
                        PortSet::from_bits(self.ctx.core.congested[pri].load(Ordering::Relaxed));
                    let on = self.ctx.snapshot.pfc_ports.contains(lane.port)
                        && hot
                            .iter()
                            .any(|output| self.ctx.core.buffer.stands(lane.port, output, pri));
                    lane.pause.set(pri, on);
                    let word = &self.ctx.core.xoff[lane.port];
                    let bits = word.load(Ordering::Relaxed);
                    let bit = 1 << pri.get();
                    word.store(if on { bits | bit } else { bits & !bit }, Ordering::Relaxed);
                }
            }
        }
        held
    }

    /// Books what a port counted beside the frames that it delivered and took.
    pub(super) fn settle_port(&mut self, index: usize, port: &mut dyn Port) {
        let Some(lane) = self.inputs.get_mut(index) else { return };
        let now = port.counters();
        if now == lane.seen {
            return;
        }
        let stats = &self.ctx.stats.port[lane.port];
        for (slot, &(reason, total)) in now.rx_dropped.iter().enumerate() {
            let before = lane.seen.rx_dropped.get(slot).map_or(0, |&(_, total)| total);
            let Some(reason) = reason else { continue };
            stats.rx_frames.add(total - before);
            self.ctx.stats.count_drops(lane.port, reason, total - before);
        }
        let failed = now.tx_failed - lane.seen.tx_failed;
        stats.tx_frames.sub(failed);
        stats.late_drops.add(failed);
        self.ctx.stats.count_drops(lane.port, DropReason::TxError, failed);
        stats.kernel_rx.set(now.kernel_rx);
        lane.seen = now;
    }
}
