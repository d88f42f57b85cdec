//! Worker: the thread that drives one lane live, and the one place that reads the clock.
//!
//! [`Worker::run`] loops over [`Lane::step`] until it is told to stop. By [`WorkerGroup`] control
//! reaches all workers: to stop them, to pause them for a consistent look, and to hand out a
//! tracer.
//!
//! Units: nanoseconds of the monotonic clock.
//! Source: ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §11.

mod away;
mod group;
mod idle;
mod pause_guard;
mod recording;
mod refused;
mod replaying;
mod tsc;

use std::sync::Arc;

pub use away::{Away, LATELY};
pub use group::{Quiesced, Stuck, WorkerGroup, WorkerGroupError};
pub use idle::{Idle, Poll};
pub use pause_guard::{GuardedPort, PauseGuard};
pub use recording::Recording;
pub use refused::end_on_refused_call;
pub use replaying::{Divergence, Replaying};
pub use tsc::tsc;

use crate::pipeline::{Lane, Step};
use crate::port::Port;
use crate::port::record::Recorder;
use crate::time::{Instant, Span};
use crate::trace::{Event, Listen, NoTrace, Trace};

/// Receives every event of a traced worker, until it has enough.
pub type Listener = Box<dyn Listen + Send>;

/// The clock of live workers: nanoseconds since the switch was started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock that starts now; all workers of a switch share one.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one clock reader of the data plane")]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// Time since the start of the clock, in whole nanoseconds.
    #[must_use]
    pub fn now(&self) -> Instant {
        let ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::from_ns(ns)
    }
}

/// Whether and why a worker's decisions are traced.
enum Tracing {
    Off,
    /// While a client listens.
    Now(Box<Trace<Forward>>),
    /// From the first step to the last, as the run is recorded.
    Recorded(Box<Recording>),
}

/// Passes events to a listener, if there is one.
struct Forward {
    to: Option<Listener>,
}

impl Listen for Forward {
    fn listen(&mut self, now: Instant, event: &Event) {
        if let Some(listener) = &mut self.to {
            listener.listen(now, event);
            if listener.has_enough() {
                self.to = None;
            }
        }
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        if let Some(listener) = &mut self.to {
            listener.bytes(frame, bytes);
        }
    }
}

/// One worker, before its thread runs.
pub struct Worker {
    index: usize,
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    clock: Clock,
    group: Arc<WorkerGroup>,
    idle: Idle,
    tracing: Tracing,
    /// Trace number of the next frame. No number is given twice in the life of a switch: a frame
    /// may stay queued, or its chunk keep its number, until the next trace.
    number: u64,
}

impl Worker {
    /// Worker `index` of `group`, driving `lane` over its `ports`.
    #[must_use]
    pub fn new(
        index: usize,
        lane: Lane,
        ports: Vec<Box<dyn Port>>,
        clock: Clock,
        group: Arc<WorkerGroup>,
        poll: Poll,
    ) -> Self {
        let idle = Idle::new(poll, group.wakeup(index));
        let number = index as u64 + 1;
        Self { index, lane, ports, clock, group, idle, tracing: Tracing::Off, number }
    }

    /// Records the run; `recorder` also records its ports.
    #[must_use]
    pub fn recorded(mut self, recorder: Recorder) -> Self {
        self.tracing = Tracing::Recorded(Box::new(Recording::new(recorder)));
        self
    }

    /// Runs until the group is told to stop; returns the ports, emptied. Frames that are still
    /// queued then are counted as dropped.
    #[must_use]
    pub fn run(mut self) -> Vec<Box<dyn Port>> {
        let mut quiet_since = None;
        let mut busy = None; // start of the last pass, if that did something
        let mut away = Away::default();
        while !self.group.is_stopping() {
            self.group.check_in(self.index);
            self.listen();
            let now = self.clock.now();
            // Before the step: control and the pause guard see from it for how long the worker is
            // in a step.
            self.lane.stats().beat_ns.set(now.as_ns());
            away.turn(now, self.lane.stats());
            let cycles = tsc().unwrap_or(0);
            // A pass is counted when the next one begins, so that one reading of both clocks serves
            // both.
            if let Some((since, cycles_then)) = busy.take() {
                self.lane.stats().count_busy(now.since(since), cycles.wrapping_sub(cycles_then));
            }
            let step = self.step(now);
            self.group.wake_after(self.index, &step);
            if step.work > 0 {
                quiet_since = None;
                busy = Some((now, cycles));
                continue;
            }
            let since = *quiet_since.get_or_insert(now);
            if let Some(sleep) = self.idle.plan(now, since, &step, &self.ports) {
                away.sleep_until(now + sleep, self.lane.stats());
                let lane = &mut self.lane;
                self.idle.sleep(sleep, &self.group, self.index, || lane.has_arrivals());
            }
        }
        self.stop()
    }

    fn step(&mut self, now: Instant) -> Step {
        let step = match &mut self.tracing {
            Tracing::Off => return self.lane.step(now, &mut self.ports, &mut NoTrace),
            Tracing::Recorded(run) => return run.step(&mut self.lane, now, &mut self.ports),
            Tracing::Now(trace) => self.lane.step(now, &mut self.ports, &mut **trace),
        };
        if let Tracing::Now(trace) = &mut self.tracing
            && trace.listener().to.is_none()
        {
            self.number = trace.next_number();
            self.tracing = Tracing::Off;
        }
        step
    }

    /// Takes over a listener that control has left for this worker.
    fn listen(&mut self) {
        let Some(listener) = self.group.take_listener(self.index) else { return };
        match &mut self.tracing {
            Tracing::Now(trace) => trace.listener().to = Some(listener),
            Tracing::Recorded(run) => run.trace.listener().to = Some(listener),
            Tracing::Off => {
                let forward = Forward { to: Some(listener) };
                // Worker n of m takes every m-th number, so that numbers of one switch differ.
                let trace = Trace::numbered(forward, self.number, self.group.len() as u64);
                self.tracing = Tracing::Now(Box::new(trace));
            }
        }
    }

    fn stop(mut self) -> Vec<Box<dyn Port>> {
        // First: until all workers have left their loops, they may still hand frames over to this
        // one.
        self.group.leave(self.index);
        let now = self.clock.now();
        match &mut self.tracing {
            Tracing::Off => self.lane.stop(now, &mut self.ports, &mut NoTrace),
            Tracing::Now(trace) => self.lane.stop(now, &mut self.ports, &mut **trace),
            Tracing::Recorded(run) => run.stop(&mut self.lane, now, &mut self.ports),
        }
        self.ports
    }
}

/// How long a worker looks for work before it sleeps.
pub const QUIET: Span = Span::from_us(50);
/// How long a worker sleeps at most.
pub const SLEEP_MAX: Span = Span::from_ms(100);
/// How long a worker sleeps at most while its last work is less than [`ACTIVE`] ago: then its
/// heartbeat soon shows when it is away.
pub const SLEEP_ACTIVE: Span = Span::from_ms(5);
/// How long after its last work a worker still takes the short sleeps of [`SLEEP_ACTIVE`].
pub const ACTIVE: Span = Span::from_ms(1_000);
