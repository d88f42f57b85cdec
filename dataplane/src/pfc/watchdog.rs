//! PFC watchdog of an output: ends a PAUSE storm before it stops the whole fabric.
//!
//! From the priorities paused at `now` it finds storms that begin and storms that are over; whether
//! frames of a priority in a storm are dropped or forwarded is the caller's choice.
//!
//! Units: `detect` and `restore` as [`Span`]; defaults 200 ms and 400 ms.
//! Source: docs/spec/pipeline.md §9.

use crate::time::{Instant, Span};
use crate::types::{PerPri, PriSet};

/// Storms that began or ended at one observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchdogEvents {
    /// Priorities in which a storm began.
    pub stormed: PriSet,
    /// Priorities in which a storm ended.
    pub restored: PriSet,
}

/// The PFC watchdog of one output: it ends a pause that lasts too long.
#[derive(Clone, Debug)]
pub struct Watchdog {
    detect: Span,
    restore: Span,
    paused: PriSet,
    storming: PriSet,
    /// Since when each priority has been paused or open, whichever it is.
    since: PerPri<Instant>,
    storms: PerPri<u64>,
}

impl Watchdog {
    /// Default time of a pause without a break that is a storm.
    pub const DETECT: Span = Span::from_ms(200);
    /// Default time without a pause that ends a storm.
    pub const RESTORE: Span = Span::from_ms(400);

    /// A storm after `detect` without a break, over after `restore` without a pause. `detect` 0 turns
    /// the watchdog off.
    #[must_use]
    pub fn new(detect: Span, restore: Span) -> Self {
        Self {
            detect,
            restore,
            paused: PriSet::EMPTY,
            storming: PriSet::EMPTY,
            since: PerPri::default(),
            storms: PerPri::default(),
        }
    }

    /// Changes the times. Turned off, it ends its storms at the next observation.
    pub fn set(&mut self, detect: Span, restore: Span) {
        self.detect = detect;
        self.restore = restore;
    }

    /// Notes that the priorities of `paused` are paused at `now`, and all others open.
    ///
    /// A break counts only when it is seen: call it whenever the set may have changed, before and
    /// after a received PFC frame is taken in, and when [`Watchdog::tick`] says.
    pub fn observe(&mut self, paused: PriSet, now: Instant) -> WatchdogEvents {
        // Both directions of change: `since` is the begin of the pause for a paused priority, and
        // of the time without a pause for an open one. Each break restarts the count: only a pause
        // without one is a storm.
        for pri in paused.without(self.paused).or(self.paused.without(paused)).iter() {
            self.since[pri] = now;
        }
        self.paused = paused;
        if self.detect == Span::ZERO {
            // Switched off by a reload: a storm in progress must not go on dropping frames.
            let restored = core::mem::take(&mut self.storming);
            return WatchdogEvents { stormed: PriSet::EMPTY, restored };
        }
        let stormed: PriSet = paused
            .without(self.storming)
            .iter()
            .filter(|&pri| now.since(self.since[pri]) >= self.detect)
            .collect();
        let restored: PriSet = self
            .storming
            .without(paused)
            .iter()
            .filter(|&pri| now.since(self.since[pri]) >= self.restore)
            .collect();
        for pri in stormed.iter() {
            self.storms[pri] += 1;
        }
        self.storming = self.storming.or(stormed).without(restored);
        WatchdogEvents { stormed, restored }
    }

    /// Priorities in a storm: the level-triggered word.
    #[inline]
    #[must_use]
    pub const fn storming(&self) -> PriSet {
        self.storming
    }

    /// Storms since the start.
    #[must_use]
    pub const fn storms(&self) -> &PerPri<u64> {
        &self.storms
    }

    /// When the next storm begins or ends if nothing changes; `now` when that is overdue.
    #[must_use]
    pub fn tick(&self, now: Instant) -> Option<Instant> {
        if self.detect == Span::ZERO {
            return (!self.storming.is_empty()).then_some(now);
        }
        let begins = self.paused.without(self.storming).iter().map(|p| self.since[p] + self.detect);
        let ends = self.storming.without(self.paused).iter().map(|p| self.since[p] + self.restore);
        // An overdue change is due now: virtual time, which jumps to the answer, never goes back.
        begins.chain(ends).map(|at| if at < now { now } else { at }).min()
    }
}
