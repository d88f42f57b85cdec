//! Lane: the part of a switch that one worker owns.
//!
//! It has both sides of its ports ([`InputLane`], [`OutputLane`]), perhaps the crossbar, and memory
//! for a burst. [`Lane::step`] puts the stages in order; the files here are its parts, which need
//! several ports at once or both sides of one. What concerns one side of one port is a method of
//! that side, and what needs no port at all takes the [`Context`].
//!
//! Source: ARCHITECTURE.md "The path of a frame".

mod anew;
mod cross;
mod follow;
mod gates;
mod groups;
mod handover;
mod housekeeping;
mod pause;
mod probes;
mod receive;
mod send;
mod step;
mod whole;

use std::sync::Arc;

use super::context::Context;
use super::crossbar::Crossbar;
use super::downlink::Downlink;
use super::input_lane::InputLane;
use super::output_lane::OutputLane;
use super::scratch::Scratch;
use super::switch_core::Core;
use crate::flows::FlowCache;
use crate::pool::Bufs;
use crate::stats::WorkerStats;
use crate::types::PortId;

pub(super) use cross::trace_match;
pub(super) use step::AGE_BUCKETS;

/// The part of a switch that one worker owns: its ports' queues and schedulers, and perhaps the
/// crossbar.
pub struct Lane {
    pub(super) ctx: Context,
    pub(super) inputs: Vec<InputLane>,
    pub(super) outputs: Vec<OutputLane>,
    pub(super) crossbar: Option<Crossbar>,
    /// The way from the crossbar, if another worker owns that.
    pub(super) downlink: Option<Downlink>,
    pub(super) scratch: Box<Scratch>,
    pub(super) flows: FlowCache,
    /// Whether loop probes are still to be sent.
    pub(super) probing: bool,
    /// Whether frames may bypass the pipeline at any port; determined at the first step.
    pub(super) has_fast_path: Option<bool>,
}

impl Lane {
    /// The ports that this lane owns, in the order in which [`Self::step`] expects them.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.inputs.iter().map(|lane| lane.port)
    }

    /// The state that all workers of the switch share.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        &self.ctx.core
    }

    /// The counters that this worker writes.
    #[must_use]
    pub const fn stats(&self) -> &Arc<WorkerStats> {
        &self.ctx.stats
    }

    /// The worker's handle of the pool.
    pub const fn bufs(&mut self) -> &mut Bufs {
        &mut self.ctx.bufs
    }
}
