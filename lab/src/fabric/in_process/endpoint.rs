//! A host, device, HBR switch or GFD of a fabric in one process.
//!
//! A [`RunningEndpoint`] has its runner, and knows whether it has power.
//!
//! Source: docs/endpoint.md.

use weft_dataplane::port::PortError;
use weft_dataplane::time::Instant;

use super::idle::IdleState;
use crate::endpoint::spec::SpecError;
use crate::endpoint::{Endpoint, Runner};
use crate::fabric::endpoint_spec::endpoint_spec;
use crate::fabric::layout::{Layout, Part};
use crate::fabric::topology::Topology;

/// A part other than a PBR switch.
pub(super) struct RunningEndpoint {
    pub part: Part,
    pub runner: Runner,
    pub idle: IdleState,
    /// Whether its power is off.
    pub off: bool,
}

impl RunningEndpoint {
    /// Polls it once if there is anything to do; true if anything moved.
    pub fn step(&mut self, now: Instant) -> Result<bool, PortError> {
        // A called runner is not idle, though none of its inboxes has a frame.
        if self.off || self.idle.is_idle(now) && !self.runner.is_called() {
            return Ok(false);
        }
        self.idle.wake();
        let progress = self.runner.step(now)?;
        let moved = progress.frames > 0;
        self.idle.polled(now, moved || progress.blocked, progress.next);
        Ok(moved)
    }
}

/// Makes the endpoint of a part, as after power-on; `None` for a PBR switch.
pub(super) fn endpoint_of(
    topology: &Topology,
    layout: &Layout,
    part: Part,
) -> Result<Option<Box<dyn Endpoint>>, SpecError> {
    let spec = endpoint_spec(topology, layout, part, &|_| String::new());
    spec.map(|spec| spec.endpoint(&[])).transpose()
}
