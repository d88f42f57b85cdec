//! A watch on one switch of a network: passes its trace to the checkers and to the log of frames.
//!
//! [`SwitchWatch`] is the switch's [`Tracer`]; [`SwitchWatch::follow`] compares counters after each step.
//!
//! Source: docs/spec/model.md §5, §6.

use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Tracer};

use crate::checkers::{Checkers, Violation};
use crate::journey::SwitchLog;

/// Steps between two full looks of the checkers.
const LOOK_EVERY: u64 = 1_024;

/// The tracer of a switch in a network.
pub struct SwitchWatch {
    checkers: Option<Checkers>,
    /// Log of frames and of their parts of latency, if the run wants one.
    pub log: Option<SwitchLog>,
    /// Number that the next frame gets in the trace.
    next: u64,
    steps: u64,
}

impl SwitchWatch {
    /// A watch on a switch with this `core`, with checkers if `is_checked`.
    #[must_use]
    pub fn new(core: &Core, is_checked: bool, log: Option<SwitchLog>) -> Self {
        let checkers = is_checked.then(|| Checkers::new(&core.snapshot.load()));
        Self { checkers, log, next: 1, steps: 0 }
    }

    /// Has checkers and log follow the counters after a step.
    pub fn follow(&mut self, now: Instant, core: &Core) {
        if let Some(log) = &mut self.log {
            log.follow(now, core);
        }
        if let Some(checkers) = &mut self.checkers {
            checkers.follow(now, core, core.snapshot.load().config.ports.len());
            self.steps += 1;
            if self.steps.is_multiple_of(LOOK_EVERY) {
                checkers.look(now, core);
            }
        }
    }

    /// Violations found until the end of a run at `now`.
    #[must_use]
    pub fn violations(&self, now: Instant, core: &Core) -> Vec<Violation> {
        let Some(mut last) = self.checkers.clone() else { return Vec::new() };
        // Only an empty switch can be held to its end state: frames still queued are neither sent nor lost.
        if Ledger::read(core).queued == 0 {
            last.finish(now, core);
        } else {
            last.look(now, core);
        }
        last.violations().to_vec()
    }
}

impl Tracer for SwitchWatch {
    const ON: bool = true;

    fn event(&mut self, now: Instant, event: Event) {
        if let Some(checkers) = &mut self.checkers {
            checkers.event(now, &event);
        }
        if let Some(log) = &mut self.log {
            log.event(now, &event);
        }
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        if let Some(log) = &mut self.log {
            log.bytes(frame, bytes);
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}
