//! Transits: frames that came in at one instant and are in no queue yet, in virtual time.
//!
//! [`Transits`], of a lane: a frame a port at most.
//!
//! Units: frames.
//! Source: docs/spec/model.md §1.

use crate::desc::Desc;
use crate::types::{PortId, PortSet};

/// An admitted frame on its way.
pub(super) struct Transit {
    pub desc: Desc,
    pub output: PortId,
}

/// Frames that came in at one instant, one a port at most.
#[derive(Default)]
pub(super) struct Transits {
    pub frames: Vec<Transit>,
    outputs: PortSet,
    /// Outputs that several of them go to.
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
