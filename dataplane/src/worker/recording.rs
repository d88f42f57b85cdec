//! Recording: steps and the stop of a lane whose run is recorded.
//!
//! [`Recording::step`] is a traced [`Lane::step`], with an entry in the record if it did anything.
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §13.

use super::Forward;
use crate::pipeline::{Lane, Step};
use crate::port::Port;
use crate::port::record::Recorder;
use crate::time::Instant;
use crate::trace::Trace;

/// A run that is recorded from its first step to its last.
pub struct Recording {
    pub(super) trace: Trace<Forward>,
    recorder: Recorder,
    /// When the switch wanted its next step; `None` before the first.
    next: Option<Instant>,
}

impl Recording {
    /// A run whose ports `recorder` records.
    #[must_use]
    pub fn new(recorder: Recorder) -> Self {
        Self { trace: Trace::new(Forward { to: None }), recorder, next: None }
    }

    /// One step of `lane`.
    ///
    /// It gets an entry if anything was moved, decided or due. Changes by time alone are due when
    /// the step before said so; any other step leaves all state as it was.
    pub fn step(&mut self, lane: &mut Lane, now: Instant, ports: &mut [Box<dyn Port>]) -> Step {
        let due = self.next.is_some_and(|at| at <= now);
        // A step may decide without moving a frame, for example when it opens a blocked port.
        let before = self.trace.events();
        self.recorder.begin(now);
        let step = lane.step(now, ports, &mut self.trace);
        let kept = due || step.work > 0 || self.trace.events() != before;
        self.recorder.end(kept, self.trace.hash());
        self.next = step.next;
        step
    }

    /// The end: queued frames are dropped, and the ports return their chunks.
    pub fn stop(&mut self, lane: &mut Lane, now: Instant, ports: &mut [Box<dyn Port>]) {
        self.recorder.begin_stop(now);
        lane.stop(now, ports, &mut self.trace);
        self.recorder.end_stop(self.trace.hash(), self.trace.events());
    }
}
