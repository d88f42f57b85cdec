//! Enqueue: admits frames to the buffer, and puts them into VOQs.
//!
//! It takes a frame and its outputs, or a whole burst at once if none of its frames can be refused
//! or cross XOFF.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4, §5.

use weft_base::sync::Ordering;
use weft_parsers::{Ecn, ecn_of};

use super::InputLane;
use crate::batch::{BURST, Batch};
use crate::buffer::Verdict as Granted;
use crate::config::PfcMode;
use crate::desc::{Desc, Flag};
use crate::pipeline::context::{Context, ToCrossbar};
use crate::pipeline::switch_core::Core;
use crate::pool::Bufs;
use crate::queues::{Demand, QueueId, QueueSet};
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{GroupKey, PortId, PortSet, Pri, PriSet, QueueKey};

impl InputLane {
    /// Queues a frame for all of `outputs`.
    #[inline]
    pub fn enqueue<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        desc: Desc,
        tracer: &mut T,
    ) {
        if let Some(output) = outputs.sole() {
            if let Some(desc) = self.admit_one(ctx, now, output, desc, tracer) {
                self.push(ctx, now, output, desc, tracer);
            }
        } else if ctx.snapshot.is_lossless(self.port, desc.pri()) {
            self.enqueue_lossless(ctx, now, outputs, desc, tracer);
        } else {
            self.enqueue_copies(ctx, now, outputs, desc, tracer);
        }
    }

    /// Admits and charges a frame that goes to one output; drops it if there is no room.
    #[inline]
    pub fn admit_one<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) -> Option<Desc> {
        let pri = desc.pri();
        if ctx.snapshot.is_lossless(self.port, pri) {
            let outputs = PortSet::only(output);
            let (desc, cells) = self.admit_lossless(ctx, now, outputs, desc, tracer)?;
            let voq = QueueKey { input: self.port, output, pri };
            ctx.core.buffer.deepen_by(&ctx.lease, voq, cells);
            return Some(desc);
        }
        self.admit_lossy(ctx, now, output, desc, tracer)
    }

    /// Queues a lossy frame for several outputs.
    #[inline(never)] // rare
    pub fn enqueue_copies<T: Tracer>(
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
                // The last copy is the frame itself. Each copy is charged to a VOQ of its own, so
                // one may be dropped while the others are queued.
                return self.enqueue_lossy(ctx, now, output, desc, tracer);
            }
            count_copies(ctx, self.port, desc.pri(), 1);
            let copy = ctx.bufs.share(&mut desc);
            self.enqueue_lossy(ctx, now, output, copy, tracer);
        }
        ctx.end(now, desc, DropReason::NoOutput, tracer); // a set that was checked not to be empty
    }

    /// Queues one copy of a lossy frame, charged to its VOQ.
    #[expect(clippy::inline_always, reason = "most frames; a call is a tenth of what it does")]
    #[inline(always)]
    pub fn enqueue_lossy<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) {
        if let Some(desc) = self.admit_lossy(ctx, now, output, desc, tracer) {
            self.push(ctx, now, output, desc, tracer);
        }
    }

    /// Charges a copy of a lossy frame to its VOQ; drops it if there is no room.
    #[expect(clippy::inline_always, reason = "most frames; a call is a tenth of what it does")]
    #[inline(always)]
    fn admit_lossy<T: Tracer>(
        &self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) -> Option<Desc> {
        let cells = ctx.snapshot.cells(desc.len());
        // Before admission: a frame that is dropped early must not have been charged.
        if ctx.snapshot.wred_pris.contains(desc.pri())
            && drops_early(ctx, now, output, &desc, tracer)
        {
            ctx.end_at(now, desc, output, DropReason::Wred, tracer);
            return None;
        }
        let voq = QueueKey { input: self.port, output, pri: desc.pri() };
        let admission =
            ctx.core.buffer.admit_voq(&mut ctx.lease, &ctx.snapshot.thresholds, voq, cells);
        if T::ON {
            trace_admission(ctx, now, &desc, output, cells, admission, tracer);
        }
        if let Granted::Drop(reason) = admission.verdict {
            ctx.end_at(now, desc, output, reason, tracer);
            return None;
        }
        Some(desc)
    }

    /// Queues a lossless frame for several outputs. It is charged once to its ingress group, until
    /// its last copy leaves.
    #[inline(never)] // rare
    pub fn enqueue_lossless<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        desc: Desc,
        tracer: &mut T,
    ) {
        let (input, pri) = (self.port, desc.pri());
        let admitted = self.admit_lossless(ctx, now, outputs, desc, tracer);
        let Some((mut desc, cells)) = admitted else { return };
        let mut left = outputs;
        while let Some(output) = left.lowest() {
            left.remove(output);
            ctx.core.buffer.deepen_by(&ctx.lease, QueueKey { input, output, pri }, cells);
            if left.is_empty() {
                return self.push(ctx, now, output, desc, tracer);
            }
            count_copies(ctx, input, pri, 1);
            let copy = ctx.bufs.share(&mut desc);
            self.push(ctx, now, output, copy, tracer);
        }
        ctx.end(now, desc, DropReason::NoOutput, tracer);
    }

    /// Charges a lossless frame to its ingress group or the headroom, and returns its cells; drops
    /// it if both are full.
    #[inline]
    fn admit_lossless<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        outputs: PortSet,
        mut desc: Desc,
        tracer: &mut T,
    ) -> Option<(Desc, u32)> {
        let cells = ctx.snapshot.cells(desc.len());
        let (input, pri) = (self.port, desc.pri());
        let group = GroupKey { input, pri };
        let admission =
            ctx.core.buffer.admit_group(&mut ctx.lease, &ctx.snapshot.thresholds, group, cells);
        if T::ON {
            let first = outputs.lowest().unwrap_or_default();
            trace_admission(ctx, now, &desc, first, cells, admission, tracer);
        }
        if let Granted::Drop(reason) = admission.verdict {
            // Also when the frame is dropped: the peer has to stop.
            self.cross_xoff(ctx, now, pri, admission.limit, tracer);
            // Each copy that is not made counts as a copy and as a drop, at its input and at its
            // output, so that the ledger balances by copies whatever becomes of a frame.
            let more = outputs.len().saturating_sub(1);
            count_copies(ctx, input, pri, more as u64);
            for output in outputs.iter() {
                ctx.stats.count_output_drop(output, pri, reason);
            }
            for _ in 0..more {
                ctx.stats.count_drop_pri(input, pri, reason);
                if T::ON {
                    let frame = ctx.bufs.trace_id(&desc);
                    let (port, reason) = (input.get(), reason.name());
                    tracer.event(now, Event::Drop { frame, port, reason });
                }
            }
            ctx.end(now, desc, reason, tracer);
            return None;
        }
        // Read when the frame leaves (`context::leave`): it is uncharged from its group, not from a
        // VOQ.
        desc.set(Flag::Pg, true);
        let stats = &ctx.stats.port[input].pri[pri];
        // Cells in headroom do not count for the group's own watermark.
        if admission.verdict == Granted::Queue {
            stats.pg_watermark.raise(u64::from(admission.used + cells));
        } else {
            note_headroom(ctx);
            let used = ctx.core.buffer.headroom_used(input, pri);
            stats.headroom_watermark.raise(u64::from(used));
            self.cross_xoff(ctx, now, pri, admission.limit, tracer);
        }
        Some((desc, cells))
    }

    /// Puts a charged frame into its VOQ.
    #[expect(clippy::inline_always, reason = "once a frame; a call costs a fifth of what it does")]
    #[inline(always)]
    pub fn push<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) {
        let pri = desc.pri();
        let queue = QueueId::new(output, pri);
        ctx.crossbar_dirty = true;
        let pushed = match &mut ctx.to_crossbar {
            ToCrossbar::Local(voqs) => voqs.push(self.port, queue, desc),
            ToCrossbar::Remote(uplink) => uplink.push(desc, queue),
        };
        match pushed {
            Ok(()) => {
                self.touched.insert(queue);
                self.enqueued[pri] += 1;
                self.enqueued_pris.insert(pri);
                self.draining.queue(output, pri);
            }
            // Charged already, so `discard` returns the cells. `purged` does not count it, as it
            // was never counted as enqueued.
            Err(desc) => ctx.discard(now, desc, output, DropReason::Pool, tracer),
        }
    }

    /// Queues a burst of frames whose queues are all known. False, and nothing done, if the frames
    /// must be admitted one by one.
    #[inline(never)] // as `lookup_burst`
    pub fn enqueue_burst(
        &mut self,
        ctx: &mut Context,
        batch: &mut Batch,
        routes: &[u16; BURST],
        demand: &mut Demand,
    ) -> bool {
        let Context { core, snapshot, stats, lease, to_crossbar, .. } = ctx;
        // Asked first: adding up the demand of each queue would be in vain.
        if !snapshot.thresholds.admit_bursts() {
            return false;
        }
        let count = batch.len();
        let (first, others) = (routes[0], routes.get(..count).unwrap_or_default());
        if others.iter().fold(0, |sum, route| sum | (route ^ first)) == 0 {
            // All to one queue, so that the sum stays in a register instead of being loaded and stored
            // for each frame.
            let cells = batch.iter().map(|desc| snapshot.cells(desc.len())).sum();
            demand.add_alike(QueueId::from_low_bits(first), count, cells);
        } else {
            for (desc, &route) in batch.iter().zip(routes) {
                demand.add(QueueId::from_low_bits(route), snapshot.cells(desc.len()));
            }
        }
        let lossless =
            if snapshot.pfc_ports.contains(self.port) { snapshot.lossless } else { PriSet::EMPTY };
        let has_room = match to_crossbar {
            ToCrossbar::Local(voqs) => voqs.has_room(count),
            ToCrossbar::Remote(_) => true, // or it would not have been received
        };
        let is_deep = !snapshot.wred_pris.is_empty() && is_deep(core, snapshot, demand);
        // `admit_all` comes last, as it charges: the other conditions must hold by then.
        let granted = has_room
            && !is_deep
            && core.buffer.admit_all(lease, &snapshot.thresholds, self.port, lossless, demand);
        if granted {
            for pri in lossless.iter() {
                let used = core.buffer.group_used(self.port, pri);
                stats.port[self.port].pri[pri].pg_watermark.raise(u64::from(used));
            }
            for queue in demand.queues().iter() {
                self.enqueued[queue.pri()] += demand.frames_of(queue);
                self.enqueued_pris.insert(queue.pri());
                self.draining.queue(queue.output(), queue.pri());
            }
            let queues = routes.iter().map(|&route| QueueId::from_low_bits(route));
            let frames = batch.drain(..).zip(queues);
            match to_crossbar {
                ToCrossbar::Local(voqs) => voqs.push_all(self.port, demand.queues(), frames),
                ToCrossbar::Remote(uplink) => uplink.push_all(frames),
            }
            self.touched.unite(demand.queues());
        }
        demand.clear();
        granted
    }

    /// Raises the watermarks of lossy priority groups to which the burst has added frames.
    #[inline(never)] // only where such watermarks are kept
    fn note_lossy(&self, ctx: &Context) {
        let (snapshot, pri_to_pg) = (&ctx.snapshot, &ctx.snapshot.config.maps.pri_to_pg);
        let lossy = |pri: &Pri| !snapshot.is_lossless(self.port, *pri);
        let pris = self.touched.iter().map(QueueId::pri).filter(lossy);
        let groups = pris.fold(0_u8, |groups, pri| groups | 1 << (pri_to_pg[pri] & 7));
        for group in Pri::ALL.into_iter().filter(|group| groups >> group.get() & 1 != 0) {
            let members = snapshot.pris.iter().filter(lossy);
            let members = members.filter(|&pri| pri_to_pg[pri] == group.get());
            let used = members.map(|pri| ctx.core.buffer.lossy_used(self.port, pri)).sum();
            ctx.stats.port[self.port].pri[group].lossy_watermark.raise(used);
        }
    }

    /// Ends a burst: counts the frames that it put into VOQs, and notes how deep these have become.
    #[inline]
    pub fn publish(&mut self, ctx: &mut Context) {
        ctx.crossbar_dirty = true;
        note_shared(ctx);
        for pri in core::mem::take(&mut self.enqueued_pris).iter() {
            let count = core::mem::take(&mut self.enqueued[pri]);
            ctx.stats.port[self.port].pri[pri].enqueued.add(count);
        }
        let buffer = &ctx.snapshot.config.buffer;
        let xoff_bytes = match ctx.snapshot.config.pfc.mode {
            PfcMode::EgressQueue { xoff_bytes, .. } => xoff_bytes,
            PfcMode::IngressPg => u64::MAX,
        };
        if ctx.snapshot.config.lossy_watermarks {
            self.note_lossy(ctx);
        }
        // With several workers the depth is noted where frames leave, by the worker of the output.
        if !ctx.core.buffer.is_solo() && xoff_bytes == u64::MAX {
            self.touched = QueueSet::EMPTY;
            return;
        }
        for queue in core::mem::take(&mut self.touched).iter() {
            let (output, pri) = (queue.output(), queue.pri());
            let depth = u64::from(ctx.core.buffer.depth(output, pri));
            ctx.stats.port[output].pri[pri].depth_watermark.raise(depth);
            // An atomic OR, as workers of other inputs and of the output change bits of this word, too.
            if depth * u64::from(buffer.cell_bytes) > xoff_bytes {
                let bit = PortSet::only(output).bits();
                ctx.core.congested[pri].fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}

/// Whether these frames could make a queue so deep that WRED drops one of them.
#[inline(never)] // only where there are such profiles
fn is_deep(core: &Core, snapshot: &Snapshot, demand: &Demand) -> bool {
    demand.queues().iter().any(|queue| {
        let cells = core.buffer.depth(queue.output(), queue.pri()) + demand.cells_of(queue);
        let depth = u64::from(cells) * u64::from(snapshot.config.buffer.cell_bytes);
        snapshot.wred[queue.pri()].is_some_and(|profile| profile.may_mark(depth))
    })
}

/// Whether ECN marks the frame instead of dropping it: its sender takes part in ECN, and it may
/// carry a mark already.
fn is_ecn_capable(bufs: &Bufs, desc: &Desc) -> bool {
    // Where ECN would mark it: an IP header behind two tags is not marked, so such a frame may be
    // dropped (docs/spec/pipeline.md §8).
    let ip = if desc.has(Flag::Tagged) { 18 } else { 14 };
    desc.has(Flag::Ect) || ecn_of(bufs.bytes(desc), ip) == Some(Ecn::Ce)
}

/// Whether WRED drops a lossy frame for `output`: one that ECN would not mark, by the depth of
/// its queue with this frame.
//= RFC 3168 section 5
#[inline(never)] // only where there are such profiles
fn drops_early<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    output: PortId,
    desc: &Desc,
    tracer: &mut T,
) -> bool {
    let Context { core, snapshot, bufs, rng, .. } = ctx;
    let pri = desc.pri();
    let Some(profile) = snapshot.wred[pri] else { return false };
    let cells = snapshot.cells(desc.len());
    // The depth as it is now, no average, and with this frame (docs/spec/pipeline.md §4).
    let queued = core.buffer.depth(output, pri);
    let depth = u64::from(queued + cells) * u64::from(snapshot.config.buffer.cell_bytes);
    let is_dropped = profile.verdict(depth, rng).is_mark()
        && !(snapshot.ecn.is_some() && is_ecn_capable(bufs, desc));
    if T::ON && is_dropped {
        let low = profile.low() / u64::from(snapshot.config.buffer.cell_bytes);
        let event = Event::Admit {
            frame: bufs.trace_id(desc),
            input: desc.input().get(),
            output: output.get(),
            pri: pri.get(),
            verdict: DropReason::Wred.name(),
            cells,
            used: queued,
            limit: u32::try_from(low).unwrap_or(u32::MAX),
            shared_used: core.buffer.shared_used(&snapshot.thresholds),
        };
        tracer.event(now, event);
    }
    is_dropped
}

/// Counts the copies of a replicated frame beyond the first.
#[inline]
fn count_copies(ctx: &Context, input: PortId, pri: Pri, count: u64) {
    let stats = &ctx.stats.port[input];
    stats.copies.add(count);
    stats.pri[pri].copies.add(count);
}

/// Raises the watermark of the shared part after frames were admitted.
#[inline]
pub(in crate::pipeline) fn note_shared(ctx: &Context) {
    let mark = &ctx.stats.shared_watermark;
    if let Some(used) = ctx.core.buffer.shared_above(&ctx.lease, mark.get()) {
        mark.set(used);
    }
}

/// Raises the watermark of headroom after a frame was charged there.
fn note_headroom(ctx: &Context) {
    let (buffer, mark) = (&ctx.core.buffer, &ctx.stats.headroom_watermark);
    // The cheap sum is never below the true one, so only when it exceeds the mark is the exact
    // one read.
    if buffer.headroom_known() > mark.get() {
        mark.raise(buffer.headroom_in_all());
    }
}

fn trace_admission<T: Tracer>(
    ctx: &Context,
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
        frame: ctx.bufs.trace_id(desc),
        input: desc.input().get(),
        output: output.get(),
        pri: desc.pri().get(),
        verdict,
        cells,
        used: admission.used,
        limit: admission.limit,
        shared_used: ctx.core.buffer.shared_used(&ctx.snapshot.thresholds),
    };
    tracer.event(now, event);
}
