//! Who hears all that a switch of a network decides: its checkers, and what is noted of frames.
//!
//! [`SwitchWatch`] is a [`Tracer`]; [`SwitchWatch::follow`] hears after each step what the switch counts.
//!
//! Units: picoseconds, frames.
//! Source: docs/spec/model.md §5, §6.

use weft_dataplane::pipeline::{Core, Ledger};
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Tracer};

use crate::checkers::{Checkers, Violation};
use crate::journey::SwitchLog;

/// Steps between two full looks of the checkers.
const LOOK_EVERY: u64 = 1_024;

/// Hears a switch.
pub struct SwitchWatch {
    checkers: Option<Checkers>,
    /// What is noted of frames.
    pub log: Option<SwitchLog>,
    /// Number of the next frame.
    next: u64,
    steps: u64,
}

impl SwitchWatch {
    /// For a switch that decides by `core`, checked or not.
    #[must_use]
    pub fn new(core: &Core, is_checked: bool, log: Option<SwitchLog>) -> Self {
        let checkers = is_checked.then(|| Checkers::new(&core.snapshot.load()));
        Self { checkers, log, next: 1, steps: 0 }
    }

    /// Hears what has come of a step.
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

    /// What checkers object to, at the end of a run.
    #[must_use]
    pub fn violations(&self, now: Instant, core: &Core) -> Vec<Violation> {
        let Some(mut last) = self.checkers.clone() else { return Vec::new() };
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
