//! Ledger: all counters of a switch added up, and the sum that must balance.
//!
//! [`Ledger`] is plain numbers. They are exact if no worker is in a step while they are read.
//!
//! Units: frames, bytes, cells, picoseconds.
//! Source: docs/spec/pipeline.md §10.

use super::switch_core::Core;
use crate::stats::{
    Counter, DROP_REASONS, DropReason, FORMATS, OUTPUT_REASONS, REFUSALS_MAX, SIZE_BINS,
    WorkerStats,
};
use crate::types::{PortId, Pri};
use serde::Serialize;

macro_rules! ledger {
    ($(#[$doc:meta])* $name:ident from $stats:path { $($field:ident),* ; max $($max:ident),* } $($extra:tt)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        #[expect(missing_docs, reason = "named and documented as in `stats`")]
        pub struct $name {
            $(pub $field: u64,)*
            $(pub $max: u64,)*
            $($extra)*
        }

        impl $name {
            fn add_counters(&mut self, from: &$stats) {
                $(self.$field = self.$field.wrapping_add(from.$field.get());)*
                $(self.$max = self.$max.max(from.$max.get());)*
            }
        }
    };
}

ledger! {
    /// Counters of one priority of a port, as input and as output.
    QueueLedger from crate::stats::PriStats {
        enqueued, copies, dequeued, purged, tx_bytes, ecn_marked, pause_rx, resume_rx, pause_tx, resume_tx,
        xoff, xon, paused_ps, storms;
        max depth_watermark, pg_watermark, headroom_watermark
    }
    /// Frames dropped that came in here, by reason.
    pub drops: [u64; DROP_REASONS],
    /// Frames dropped that were to leave here, by [`OUTPUT_REASONS`].
    pub output_drops: [u64; OUTPUT_REASONS.len()],
    /// Cells queued for this output now.
    pub depth: u64,
    /// Cells of this input's group now, without headroom.
    pub pg_used: u64,
    /// Cells of this input's headroom in use now.
    pub headroom_used: u64,
}

ledger! {
    /// Counters of one port, with those of its priorities.
    PortLedger from crate::stats::PortStats {
        rx_frames, rx_bytes, tx_frames, tx_bytes, rx_group_frames, tx_group_frames, copies, consumed, pfc_rx, pause_rx, cbfc_rx,
        mac_control_bad, mac_control_unknown, pfc_tx, pfc_tx_late, pfc_guard, fdb_moves, loop_probes, loop_probes_bad, loop_blocks,
        kernel_rx, late_drops, answered, to_agent;
        max
    }
    /// Frames received, by format.
    pub rx_format: [u64; FORMATS],
    /// Frames sent, by format.
    pub tx_format: [u64; FORMATS],
    /// Frames received, by size with FCS; see [`SIZE_BINS`].
    pub rx_size: [u64; SIZE_BINS.len()],
    /// Frames dropped that came in here, by reason; the number is that of the [`DropReason`].
    pub drops: [u64; DROP_REASONS],
    /// TLPs refused, by [`crate::pbr::Refusal`].
    pub refused: Vec<u64>,
    /// Counters by priority, lowest first; as many as the switch has priorities.
    pub pri: Vec<QueueLedger>,
}

/// Accounts for all frames of a switch: received, sent, dropped, queued. The sums must balance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ledger {
    /// Counters by port number.
    pub port: Vec<PortLedger>,
    /// Frames received by all ports.
    pub rx: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// Frames that ports took and did not fail to send.
    pub tx: u64,
    /// Frames dropped, for any reason.
    pub dropped: u64,
    /// Frames that were for the switch itself.
    pub consumed: u64,
    /// Frames in VOQs and egress queues, frames picked but not yet taken by their port, and frames
    /// that are parked or held.
    pub queued: u64,
    /// Cells of the shared part of the buffer in use.
    pub shared_used: u64,
    /// Maximum of cells of the shared part in use.
    pub shared_watermark: u64,
    /// Cells of the shared part, in use or not.
    pub shared_total: u64,
    /// Cells of headroom in use, all groups together.
    pub headroom_used: u64,
    /// Maximum of cells of headroom in use.
    pub headroom_watermark: u64,
    /// Chunks of the pool in use.
    pub chunks_used: u64,
    /// Chunks of the pool, in use or not.
    pub chunks: u64,
}

fn add_all<const N: usize>(to: &mut [u64; N], from: &[Counter; N]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from.get();
    }
}

impl PortLedger {
    /// Reads the counters of one port. They are exact if no worker is in a step meanwhile.
    ///
    /// # Panics
    /// When there is no such port.
    #[must_use]
    pub fn read(core: &Core, port: PortId) -> Self {
        Self::read_with(core, port, &core.fast.stats)
    }

    /// Like [`Self::read`], with `fast` as the counters of frames that bypassed the pipeline.
    ///
    /// # Panics
    /// When there is no such port.
    #[must_use]
    pub fn read_with(core: &Core, port: PortId, fast: &WorkerStats) -> Self {
        read_port(core, port, core.snapshot.load().config.pris, fast)
    }
}

impl Ledger {
    /// Reads all counters of `core`. They are exact if no worker is in a step meanwhile.
    #[must_use]
    pub fn read(core: &Core) -> Self {
        let snapshot = core.snapshot.load();
        let ports = snapshot.config.ports.len();
        let mut ledger = Self {
            port: (0..ports)
                .filter_map(PortId::new)
                .map(|p| read_port(core, p, snapshot.config.pris, &core.fast.stats))
                .collect(),
            shared_used: core.buffer.shared_used(&snapshot.thresholds),
            shared_watermark: most(core, |stats| &stats.shared_watermark),
            shared_total: snapshot.thresholds.shared(),
            headroom_used: core.buffer.headroom_in_all(),
            headroom_watermark: most(core, |stats| &stats.headroom_watermark),
            chunks_used: core.chunks_used(),
            chunks: core.pool.count() as u64,
            ..Self::default()
        };
        let sum =
            |of: &dyn Fn(&PortLedger) -> u64| ledger.port.iter().map(of).fold(0, u64::wrapping_add);
        let queues = |of: &dyn Fn(&QueueLedger) -> u64| {
            sum(&|port| port.pri.iter().map(of).fold(0, u64::wrapping_add))
        };
        // Taken off a queue, but neither sent nor dropped after that: still pending at its port.
        // All sums wrap, as counters of different workers may be below 0 on their own.
        let pending = queues(&|q| q.dequeued)
            .wrapping_sub(sum(&|p| p.tx_frames))
            .wrapping_sub(sum(&|p| p.late_drops));
        let queued = queues(&|q| q.enqueued)
            .wrapping_sub(queues(&|q| q.dequeued))
            .wrapping_sub(queues(&|q| q.purged))
            .wrapping_add(pending)
            // Parked and held frames were received, and are in no queue.
            .wrapping_add(workers(core).map(|worker| worker.parked.get()).sum());
        (ledger.rx, ledger.copies, ledger.tx) =
            (sum(&|p| p.rx_frames), sum(&|p| p.copies), sum(&|p| p.tx_frames));
        (ledger.dropped, ledger.consumed) = (sum(&|p| p.drops.iter().sum()), sum(&|p| p.consumed));
        ledger.queued = queued;
        ledger
    }

    /// Frames that are not accounted for: rx + copies - tx - dropped - consumed - queued. It must
    /// be 0.
    #[must_use]
    pub const fn imbalance(&self) -> i64 {
        let came = self.rx.wrapping_add(self.copies);
        let went = self.tx.wrapping_add(self.dropped).wrapping_add(self.consumed);
        came.wrapping_sub(went).wrapping_sub(self.queued).cast_signed()
    }
}

impl Ledger {
    /// Drops for want of room and by the watchdog, whose output is always known, that are not
    /// counted at an output. It must be 0.
    #[must_use]
    pub fn output_imbalance(&self) -> i64 {
        let known = [DropReason::Dt, DropReason::Headroom, DropReason::Watchdog];
        let queues = || self.port.iter().flat_map(|port| &port.pri);
        let mut left = 0_u64;
        for queue in queues() {
            let places = OUTPUT_REASONS.iter().zip(queue.output_drops);
            for (_, count) in places.filter(|(reason, _)| known.contains(reason)) {
                left = left.wrapping_sub(count);
            }
            for reason in known {
                let count = queue.drops.get(reason as usize).copied().unwrap_or(0);
                left = left.wrapping_add(count);
            }
        }
        left.cast_signed()
    }
}

/// All sets of counters: those of the workers, and that of frames which bypass the pipeline.
fn workers(core: &Core) -> impl Iterator<Item = &WorkerStats> {
    workers_and(core, &core.fast.stats)
}

/// The same with `fast` as the counters of frames that bypass the pipeline.
fn workers_and<'a>(core: &'a Core, fast: &'a WorkerStats) -> impl Iterator<Item = &'a WorkerStats> {
    core.stats.iter().map(|stats| &**stats).chain([fast])
}

/// The maximum of a watermark over all workers.
fn most(core: &Core, of: impl Fn(&WorkerStats) -> &Counter) -> u64 {
    workers(core).map(|stats| of(stats).get()).max().unwrap_or(0)
}

fn read_port(core: &Core, port: PortId, pris: usize, fast: &WorkerStats) -> PortLedger {
    let mut sum = PortLedger::default();
    for worker in workers_and(core, fast) {
        let from = &worker.port[port];
        sum.add_counters(from);
        add_all(&mut sum.rx_format, &from.rx_format);
        add_all(&mut sum.tx_format, &from.tx_format);
        add_all(&mut sum.rx_size, &from.rx_size);
        add_all(&mut sum.drops, &from.drops);
        sum.refused.resize(REFUSALS_MAX, 0);
        for (to, from) in sum.refused.iter_mut().zip(from.refused.all()) {
            *to += from.get();
        }
    }
    sum.pri = Pri::ALL
        .into_iter()
        .take(pris)
        .map(|pri| {
            let mut queue = QueueLedger {
                depth: core.buffer.depth(port, pri).into(),
                pg_used: core.buffer.group_used(port, pri).into(),
                headroom_used: core.buffer.headroom_used(port, pri).into(),
                ..QueueLedger::default()
            };
            for worker in workers_and(core, fast) {
                let from = &worker.port[port].pri[pri];
                queue.add_counters(from);
                add_all(&mut queue.drops, &from.drops);
                add_all(&mut queue.output_drops, &from.output_drops);
            }
            // With several workers it is raised when a frame leaves, so a queue that has only grown so
            // far may be deeper than its watermark.
            queue.depth_watermark = queue.depth_watermark.max(queue.depth);
            queue
        })
        .collect();
    sum
}
