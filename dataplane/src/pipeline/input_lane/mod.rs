//! Input lane: state that one worker keeps for a port as input.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §1 to §4, §9.

mod enqueue;
mod ingress;
mod sample;
mod xoff;

use super::draining::Draining;
use crate::loops::Repeats;
use crate::pfc::PauseTx;
use crate::queues::QueueSet;
use crate::snapshot::Snapshot;
use crate::storm::StormGuard;
use crate::time::Instant;
use crate::types::{PerPri, PortId, PriSet};

pub(super) use enqueue::note_shared;
pub(super) use ingress::Found;

/// State that one worker keeps for a port as input.
pub(super) struct InputLane {
    pub port: PortId,
    /// Queues that got frames in this burst.
    pub touched: QueueSet,
    pub(super) storm: StormGuard,
    pub pause: PauseTx,
    /// Lossless priorities whose group has crossed XOFF.
    pub xoff: PriSet,
    /// Frames put into VOQs in this burst, and the priorities that have any.
    pub enqueued: PerPri<u64>,
    pub enqueued_pris: PriSet,
    /// Frames that could have bypassed the pipeline, and whether they have left.
    pub draining: Draining,
    pub(super) seen: crate::port::PortCounters,
    /// Samples of frames, which show whether the same ones come in again.
    pub(super) repeats: Repeats,
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
            enqueued_pris: PriSet::EMPTY,
            draining: Draining::default(),
            seen: crate::port::PortCounters::default(),
            repeats: Repeats::new(),
        }
    }

    pub fn reconfigure(&mut self, old: &Snapshot, new: &Snapshot) {
        let limits = storm_limits(new, self.port);
        // A new guard has full buckets: a reload that leaves the limits alone must not let a storm
        // in.
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
