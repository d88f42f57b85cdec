//! Input lane: what one worker keeps for a port as input.
//!
//! [`InputLane`], by port.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §1 to §4, §9.

use super::draining::Draining;
use super::parked::Parked;
use crate::loops::Repeats;
use crate::pfc::PauseTx;
use crate::queues::QueueSet;
use crate::snapshot::Snapshot;
use crate::storm::StormGuard;
use crate::time::Instant;
use crate::types::{PerPri, PortId, PriSet};

/// What one worker keeps for a port as input.
pub(super) struct InputLane {
    pub port: PortId,
    /// Queues that got frames in this burst.
    pub touched: QueueSet,
    pub(super) storm: StormGuard,
    pub pause: PauseTx,
    /// Lossless priorities whose group has crossed XOFF.
    pub xoff: PriSet,
    /// Frames put into VOQs in this burst, and at which priorities there are any.
    pub enqueued: PerPri<u64>,
    pub enqueued_pris: PriSet,
    /// What became of frames that could have passed by.
    pub draining: Draining,
    /// A frame that is not whole yet: cut-through, in virtual time.
    pub parked: Option<Box<Parked>>,
    pub(super) seen: crate::port::PortCounters,
    /// Whether frames come in again and again.
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
            parked: None,
            seen: crate::port::PortCounters::default(),
            repeats: Repeats::new(),
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
