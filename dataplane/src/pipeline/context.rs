//! Context: the state that every stage of a lane uses, and the ways in which a queued frame ends.
//!
//! [`Context`] holds all but the state of ports, so that a loop over a burst can borrow one port
//! and this at once. A frame that ends gives back its chunk and its share of the buffer.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4.

use std::sync::Arc;

use weft_base::rng::Rng;
use weft_base::sync::Ordering;

use super::held::Held;
use super::switch_core::Core;
use super::uplink::Uplink;
use crate::buffer::{Lease, Leaving};
use crate::config::PfcMode;
use crate::desc::{Desc, Flag};
use crate::lag::Joined;
use crate::pool::Bufs;
use crate::snapshot::Snapshot;
use crate::stats::{DropReason, PauseSide, WorkerStats};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet, Pri, PriSet};
use crate::voq::Voqs;

/// State that every stage of a lane uses, apart from that of its ports: a loop over a burst can
/// borrow a port's state and this at once.
pub(super) struct Context {
    pub(super) core: Arc<Core>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) bufs: Bufs,
    pub(super) to_crossbar: ToCrossbar,
    pub(super) lease: Lease,
    pub(super) rng: Rng,
    /// Links that this worker's flows may take, in LAGs and to stations behind several ports.
    pub(super) joined_lags: Joined,
    pub(super) joined_spreads: Joined,
    /// Inputs with a group that is above XOFF, or was when it was last looked at.
    pub(super) over_xoff: PortSet,
    /// Outputs that are paused or in a storm, or whose release has not been published yet.
    pub(super) paused_or_storming: PortSet,
    /// Cells were returned, or a group has crossed XOFF, since groups were last checked for XON.
    pub(super) has_released: bool,
    /// The crossbar's inputs changed since its last pass (time and frames that egress queues sent
    /// excluded).
    pub(super) crossbar_dirty: bool,
    /// TLPs without a route at the moment.
    pub(super) held: Held,
}

/// How received frames get to the crossbar.
pub(super) enum ToCrossbar {
    /// This worker runs it: into the VOQs.
    Local(Box<Voqs>),
    /// Another worker runs it: over a ring to that worker.
    Remote(Uplink),
}

impl Context {
    /// Sets the priorities for which `input` asks its peer to pause.
    pub(super) fn set_xoff(&self, input: PortId, pris: PriSet, now: Instant) {
        let before = self.core.xoff(input);
        self.core.xoff[input].store(pris.bits(), Ordering::Relaxed);
        self.stats.pauses.note(now, input, PauseSide::Asked, before, pris);
    }

    /// Uncharges a queued frame that leaves the queues of `output`; returns the depth of (output,
    /// pri) that is left, in cells. [`Self::clear_congestion`] follows.
    pub(super) fn uncharge(&mut self, desc: &Desc, output: PortId) -> u32 {
        self.has_released = true;
        let Self { core, snapshot, bufs, lease, .. } = self;
        let mut run = core.buffer.leaving(lease, &snapshot.thresholds, output, desc.pri());
        leave(&mut run, bufs, desc, snapshot.cells(desc.len()));
        let left = run.depth();
        run.end(lease);
        left
    }

    /// `egress-queue` mode: clears the congestion of a queue that has fallen below its XON, at the
    /// frame that takes it there.
    #[inline]
    pub(super) fn clear_congestion(&self, output: PortId, pri: Pri, cells: u32) {
        if let PfcMode::EgressQueue { xon_bytes, .. } = self.snapshot.config.pfc.mode
            && u64::from(cells) * u64::from(self.snapshot.config.buffer.cell_bytes) < xon_bytes
        {
            let bit = PortSet::only(output).bits();
            self.core.congested[pri].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Drops a frame that was queued for `output`.
    pub(super) fn discard<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        reason: DropReason,
        tracer: &mut T,
    ) {
        // Uncharged before it is freed: the descriptor says how many cells it took, and of which
        // group.
        let (cells, pri) = (self.uncharge(&desc, output), desc.pri());
        self.clear_congestion(output, pri, cells);
        self.end_at(now, desc, output, reason, tracer);
    }

    /// The VOQs, where they are this worker's.
    pub(super) fn voqs(&mut self) -> Option<&mut Voqs> {
        match &mut self.to_crossbar {
            ToCrossbar::Local(voqs) => Some(voqs),
            ToCrossbar::Remote(_) => None,
        }
    }

    /// Drops a frame that was counted as queued for `output` but was never dequeued by its
    /// scheduler. It counts as `purged`, so that enqueued - dequeued - purged stays the number of
    /// queued frames ([`super::Ledger`]).
    pub(super) fn purge<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.stats.port[output].pri[desc.pri()].purged.add(1);
        self.discard(now, desc, output, reason, tracer);
    }

    /// Holds a TLP that came in at `input` and has its place there. It waited for `output`, if that
    /// is `Some`.
    #[cold]
    pub(super) fn hold(&mut self, now: Instant, desc: Desc, input: PortId, output: Option<PortId>) {
        self.held.push(now, desc, input, output);
        self.stats.parked.add(1);
    }

    /// Counts one TLP of `input` as held no longer.
    pub(super) fn let_go(&mut self, input: PortId) {
        self.held.give_place(input);
        self.stats.parked.sub(1);
    }

    /// Takes a frame off the counters of `output`'s queues.
    pub(super) fn unqueue(&mut self, desc: &Desc, output: PortId) {
        self.stats.port[output].pri[desc.pri()].purged.add(1);
        let (cells, pri) = (self.uncharge(desc, output), desc.pri());
        self.clear_congestion(output, pri, cells);
    }

    /// Drops a frame that was to leave by `output`: counts the drop there, too.
    pub(super) fn end_at<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.stats.count_output_drop(output, desc.pri(), reason);
        self.end(now, desc, reason, tracer);
    }

    /// Drops a frame: counts the drop at its input, and frees the chunk.
    pub(super) fn end<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        reason: DropReason,
        tracer: &mut T,
    ) {
        let port = desc.input();
        if T::ON {
            let frame = self.bufs.trace_id(&desc);
            tracer.event(now, Event::Drop { frame, port: port.get(), reason: reason.name() });
        }
        self.stats.count_drop_pri(port, desc.pri(), reason);
        self.bufs.free(desc);
    }
}

/// One frame of a run leaves: uncharges it, and returns the depth before, in cells.
#[inline]
pub(super) fn leave(run: &mut Leaving<'_>, bufs: &mut Bufs, desc: &Desc, cells: u32) -> u32 {
    if desc.has(Flag::Pg) {
        run.copy_of(desc.input());
        // A replicated lossless frame is charged once and stays charged until its last copy leaves.
        if bufs.uncharge(desc) {
            run.lossless(desc.input(), cells);
        }
    } else {
        run.lossy(desc.input(), cells);
    }
    run.shallow(cells)
}
