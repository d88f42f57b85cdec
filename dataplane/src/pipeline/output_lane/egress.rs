//! Egress: hands frames that may be sent to the port, and drops those that cannot be.
//!
//! [`super::dequeue`] picks, marks and tags them before.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §7 to §9.

use arrayvec::ArrayVec;
use weft_base::ring::Rx;

use super::OutputLane;
use crate::batch::BURST;
use crate::desc::{Desc, FrameStats};
use crate::pipeline::context::Context;
use crate::port::Port;
use crate::stats::{Counter, DropReason, PortStats};
use crate::time::Instant;
use crate::trace::{Event, Part, Tracer};
use crate::types::PriSet;

impl OutputLane {
    /// Drops the frames in egress queues of `pris`.
    pub fn drop_queued<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        pris: PriSet,
        reason: DropReason,
        tracer: &mut T,
    ) {
        ctx.crossbar_dirty = true;
        for pri in pris.iter() {
            while let Some(desc) = self.queues[pri].as_mut().and_then(Rx::pop) {
                ctx.purge(now, desc, self.port, reason, tracer);
            }
        }
    }

    /// Drops all frames of an output, picked ones included.
    pub fn empty<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.drop_queued(ctx, now, ctx.snapshot.pris, reason, tracer);
        let port = self.port;
        if self.pending.is_empty() {
            return;
        }
        let control = core::mem::take(&mut self.pending_control);
        for (n, desc) in core::mem::take(&mut self.pending).into_iter().enumerate() {
            // Control frames are made by the switch and are not in the ledger, so they are only
            // freed.
            if n < control {
                ctx.bufs.free(desc);
            } else {
                ctx.stats.port[port].late_drops.add(1);
                ctx.end_at(now, desc, port, reason, tracer);
            }
        }
    }

    /// [`Self::hand_over`] of control frames alone: data frames that were picked before the queues
    /// were held stay pending.
    #[cold]
    pub fn hand_over_control<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if self.pending_control == 0 {
            return 0;
        }
        let data: ArrayVec<Desc, BURST> = self.pending.drain(self.pending_control..).collect();
        let taken = self.hand_over(ctx, now, port, tracer);
        self.pending.extend(data);
        taken
    }

    /// Gives the pending frames to the port and counts those that it took.
    pub fn hand_over<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let stats = &ctx.stats.port[self.port];
        // Counted before the call, as the port owns the frames that it takes. Those that it leaves are
        // subtracted again.
        let data = self.pending.get(self.pending_control..).unwrap_or_default();
        count_sent(stats, data, Counter::add);
        let mut facts = ArrayVec::<(u64, FrameStats), BURST>::new();
        if T::ON {
            facts.extend(
                self.pending.iter().map(|desc| (ctx.bufs.trace_id(desc), desc.frame_stats())),
            );
        }
        tracer.part(Part::Egress);
        let taken = port.tx(now, &mut ctx.bufs, &mut self.pending);
        tracer.part(Part::Transmit);
        let control = taken.min(self.pending_control);
        self.pending_control -= control;
        if !self.pending.is_empty() {
            let data = self.pending.get(self.pending_control..).unwrap_or_default();
            count_sent(stats, data, Counter::sub);
        }
        if T::ON {
            for &(frame, fact) in facts.iter().take(taken).skip(control) {
                let len = u16::try_from(fact.len()).unwrap_or(u16::MAX);
                tracer.event(now, Event::Tx { frame, port: self.port.get(), len });
            }
        }
        taken
    }
}

/// Counts `frames` as sent, or (with [`Counter::sub`]) as not sent after all.
#[inline]
pub(in crate::pipeline) fn count_sent(
    stats: &PortStats,
    frames: &[Desc],
    count: impl Fn(&Counter, u64),
) {
    count(&stats.tx_frames, frames.len() as u64);
    if let [only] = frames {
        return count_alike(stats, only.frame_stats(), 1, only.len() as u64, count);
    }
    for alike in frames.chunk_by(|a, b| a.frame_stats().is_like(b.frame_stats())) {
        let Some(first) = alike.first() else { continue };
        let bytes = alike.iter().map(|desc| desc.len() as u64).sum();
        count_alike(stats, first.frame_stats(), alike.len() as u64, bytes, &count);
    }
}

/// Counts `frames` frames of `bytes` in all that have the format, priority and kind of `first`.
#[inline]
pub(in crate::pipeline) fn count_alike(
    stats: &PortStats,
    first: FrameStats,
    frames: u64,
    bytes: u64,
    count: impl Fn(&Counter, u64),
) {
    count(&stats.tx_bytes, bytes);
    count(&stats.pri[first.pri()].tx_bytes, bytes);
    if let Some(counter) = stats.tx_format.get(first.format_index()) {
        count(counter, frames);
    }
    if first.is_for_group() {
        count(&stats.tx_group_frames, frames);
    }
}
