//! Replaying: the steps of a record, done again and held against what was recorded.
//!
//! Entries of a record → [`Replaying`] → the same decisions, or a [`Divergence`].
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §13.

use crate::pipeline::{Core, Lane};
use crate::port::record::{Call, Script};
use crate::port::{Port, PortCaps};
use crate::time::Instant;
use crate::trace::{Listen, Trace};

/// Where a replay does not do what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}, {} ns after the start: {what}", at.as_ns())]
pub struct Divergence {
    /// Which step of the record, from 1; one more than there are for the stop.
    pub step: u64,
    /// Its time.
    pub at: Instant,
    /// What is different.
    pub what: String,
}

/// A switch that does again what a record says.
pub struct Replaying<L> {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    script: Script,
    trace: Trace<L>,
    steps: u64,
    now: Instant,
}

impl<L: Listen> Replaying<L> {
    /// A switch with one worker and the ports of `script`, whose facts are `caps`; decisions are also
    /// told to `listener`.
    #[must_use]
    pub fn new(lane: Lane, caps: Vec<PortCaps>, script: Script, listener: L) -> Self {
        let port = |(index, caps)| -> Box<dyn Port> {
            Box::new(crate::port::record::Scripted::new(caps, index, script.clone()))
        };
        let ports = caps.into_iter().enumerate().map(port).collect();
        let trace = Trace::new(listener);
        Self { lane, ports, script, trace, steps: 0, now: Instant::ZERO }
    }

    /// What is shared, to change as control did.
    #[must_use]
    pub const fn core(&self) -> &std::sync::Arc<Core> {
        self.lane.core()
    }

    /// Steps done.
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

    /// How many decisions there were.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.trace.events()
    }

    /// Does a step again.
    ///
    /// # Errors
    /// The ports were asked for something else, or the decisions or frames sent are others.
    pub fn step(&mut self, now: Instant, calls: Vec<Call>, digest: u32) -> Result<(), Divergence> {
        self.begin(now, calls);
        self.lane.step(now, &mut self.ports, &mut self.trace);
        self.check()?;
        if self.script.digest(self.trace.hash()) != digest {
            return Err(self.diverged("other decisions or other frames sent".to_owned()));
        }
        Ok(())
    }

    /// Does the stop again.
    ///
    /// # Errors
    /// The ports were asked for something else.
    pub fn stop(&mut self, now: Instant, calls: Vec<Call>) -> Result<(), Divergence> {
        self.begin(now, calls);
        self.end();
        self.check()
    }

    /// Ends a record that has no stop: what the ports hold goes back; nothing is decided any more.
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
