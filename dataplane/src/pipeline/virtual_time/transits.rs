//! Transits: frames that came in at one instant and are in no queue yet.
//!
//! A lane has one [`Transits`], with at most one frame for each port.
//!
//! Units: frames.
//! Source: docs/spec/model.md §1.

use crate::desc::Desc;
use crate::types::{PortId, PortSet};

/// An admitted frame on its way to an output.
pub(super) struct Transit {
    pub desc: Desc,
    pub output: PortId,
}

/// Frames that came in at one instant, at most one for each port.
#[derive(Default)]
pub(super) struct Transits {
    pub frames: Vec<Transit>,
    outputs: PortSet,
    /// Outputs to which several of them go.
    pub contended: PortSet,
}

impl Transits {
    #[inline]
    pub fn add(&mut self, desc: Desc, output: PortId) {
        let only = PortSet::only(output);
        self.contended = self.contended.or(self.outputs.and(only));
        self.outputs = self.outputs.or(only);
        self.frames.push(Transit { desc, output });
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
