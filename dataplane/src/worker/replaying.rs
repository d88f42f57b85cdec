//! Replaying: repeats the steps of a record, and compares them with it.
//!
//! [`Replaying`] gets the entries of a record; the decisions must be the same, or it returns a
//! [`Divergence`].
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §13.

use crate::pipeline::{Core, Lane};
use crate::port::record::{Call, Script};
use crate::port::{Port, PortCaps};
use crate::time::Instant;
use crate::trace::{Listen, Trace};

/// The first difference between a replay and its record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}, {} ns after the start: {what}", at.as_ns())]
pub struct Divergence {
    /// Number of the step in the record, from 1; the stop counts as one more.
    pub step: u64,
    /// Time of the step, since the start of the switch.
    pub at: Instant,
    /// The difference, in words for the user.
    pub what: String,
}

/// A switch that repeats a record.
pub struct Replaying<L> {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    script: Script,
    trace: Trace<L>,
    steps: u64,
    now: Instant,
}

impl<L: Listen> Replaying<L> {
    /// A switch with one worker and the ports of `script`, whose properties are `caps`. Decisions
    /// are also passed to `listener`.
    #[must_use]
    pub fn new(lane: Lane, caps: Vec<PortCaps>, script: Script, listener: L) -> Self {
        let port = |(index, caps)| -> Box<dyn Port> {
            Box::new(crate::port::record::Scripted::new(caps, index, script.clone()))
        };
        let ports = caps.into_iter().enumerate().map(port).collect();
        let trace = Trace::new(listener);
        Self { lane, ports, script, trace, steps: 0, now: Instant::ZERO }
    }

    /// The core of the switch, to which the caller applies the changes that control made.
    #[must_use]
    pub const fn core(&self) -> &std::sync::Arc<Core> {
        self.lane.core()
    }

    /// Number of steps repeated so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Time of the last step.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Hash of all decisions until now, as [`Trace::hash`].
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Number of decisions so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.trace.events()
    }

    /// Repeats a step.
    ///
    /// # Errors
    /// The ports were asked for something else, or decisions or sent frames differ.
    pub fn step(&mut self, now: Instant, calls: Vec<Call>, digest: u32) -> Result<(), Divergence> {
        self.begin(now, calls);
        self.lane.step(now, &mut self.ports, &mut self.trace);
        self.check()?;
        if self.script.digest(self.trace.hash()) != digest {
            return Err(self.diverged("other decisions or other frames sent".to_owned()));
        }
        Ok(())
    }

    /// Repeats the stop.
    ///
    /// # Errors
    /// The ports were asked for something else.
    pub fn stop(&mut self, now: Instant, calls: Vec<Call>) -> Result<(), Divergence> {
        self.begin(now, calls);
        self.end();
        self.check()
    }

    /// Ends a record without a stop: the ports return their chunks, and nothing is compared.
    pub fn end(&mut self) {
        self.lane.stop(self.now, &mut self.ports, &mut self.trace);
    }

    fn begin(&mut self, now: Instant, calls: Vec<Call>) {
        (self.steps, self.now) = (self.steps + 1, now);
        self.script.load(calls);
    }

    fn check(&self) -> Result<(), Divergence> {
        self.script.check().map_err(|what| self.diverged(what))
    }

    const fn diverged(&self, what: String) -> Divergence {
        Divergence { step: self.steps, at: self.now, what }
    }
}
