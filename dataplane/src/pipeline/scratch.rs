//! Scratch: memory for the stages of a burst, allocated once.
//!
//! Its arrays are indexed by place in the burst.
//!
//! Source: docs/spec/pipeline.md §1.

use super::burst::{CACHE_MISS, FrameMeta};
use crate::batch::BURST;
use crate::fdb::Source;
use crate::queues::Demand;

/// Memory for the stages of a burst, allocated once for a lane.
pub(super) struct Scratch {
    /// By frame: its queue if its flow is known, else [`CACHE_MISS`], and its [`FrameMeta`] has the
    /// verdict.
    pub(super) routes: [u16; BURST],
    pub(super) demand: Demand,
    pub(super) metas: [FrameMeta; BURST],
    pub(super) learn: arrayvec::ArrayVec<Source, BURST>,
    /// Where new fronts of TLPs are written.
    pub(super) space: super::tlp::Space,
}

impl Scratch {
    pub fn new() -> Self {
        let routes = [CACHE_MISS; BURST];
        let (demand, learn) = (Demand::new(), arrayvec::ArrayVec::new());
        Self { routes, demand, metas: [FrameMeta::NEW; BURST], learn, space: [0; _] }
    }
}
