//! Scratch: memory of a burst, made once.
//!
//! Arrays by place in the burst.
//!
//! Source: docs/spec/pipeline.md §1.

use super::burst::{CACHE_MISS, FrameMeta};
use crate::batch::BURST;
use crate::fdb::Source;
use crate::queues::Demand;

/// Memory of a burst, made once.
pub(super) struct Scratch {
    /// By frame: the queue of one whose flow is known, else [`CACHE_MISS`]: its [`FrameMeta`] says more.
    pub(super) routes: [u16; BURST],
    pub(super) demand: Demand,
    pub(super) metas: [FrameMeta; BURST],
    pub(super) learn: arrayvec::ArrayVec<Source, BURST>,
    /// Where TLPs are written anew.
    pub(super) space: super::tlp::Space,
}

impl Scratch {
    pub fn new() -> Self {
        let routes = [CACHE_MISS; BURST];
        let (demand, learn) = (Demand::new(), arrayvec::ArrayVec::new());
        Self { routes, demand, metas: [FrameMeta::NEW; BURST], learn, space: [0; _] }
    }
}
