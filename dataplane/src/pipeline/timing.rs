//! What drives a lane: how time passes, and what a step came to.
//!
//! [`Timing`] in, [`Step`] out.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/pipeline.md §6; docs/spec/model.md.

use crate::time::Instant;
use crate::types::PortSet;

/// Result of a step: what moved, and when the next one is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Frames received, moved, dropped or sent.
    pub work: usize,
    /// When something is due even if nothing arrives.
    pub next: Option<Instant>,
    /// Frames were put into VOQs: the crossbar's owner should look.
    pub queued: bool,
    /// Outputs that got frames from the crossbar: their owners should look.
    pub fed: PortSet,
    /// Frames wait for room at a port: look again soon.
    pub blocked: bool,
}

/// Whether a switch runs in real or in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As it does: the crossbar runs as often as there is work.
    Live,
    /// Virtual: a match of the crossbar takes its ports for the frame's wire time over the speedup.
    Virtual,
}
