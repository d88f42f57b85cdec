//! How time passes for a lane, and the result of a step.
//!
//! Units: frames, [`Instant`].
//! Source: docs/spec/pipeline.md §6; docs/spec/model.md.

use crate::time::Instant;
use crate::types::PortSet;

/// Result of a step: what moved, and when the next one is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Number of frames that the step received, moved, dropped or sent.
    pub work: usize,
    /// When the lane has something to do even if no frame arrives; `None`: never.
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
    /// Real time: the crossbar runs as often as there is work.
    Live,
    /// Virtual time: a match of the crossbar holds its ports for the frame's wire time over the speedup.
    Virtual,
}
