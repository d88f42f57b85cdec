//! Merges CNPs: of congestion notifications for one queue pair in quick succession, only the first counts.
//!
//! Source: docs/spec/model.md §4 "CNP".

use arrayvec::ArrayVec;
use weft_dataplane::time::{Instant, Span};

/// Queue pairs that are remembered, as in the hardware's merge buffer (docs/spec/wire-formats.md §1.5).
const REMEMBERED: usize = 8;

/// Queue pairs for which a CNP was passed on recently, and when.
#[derive(Clone, Debug)]
pub struct CnpMerge {
    window: Span,
    /// Entries by time, the latest last.
    passed: ArrayVec<(u16, Instant), REMEMBERED>,
    merged: u64,
}

impl CnpMerge {
    /// Suppresses further CNPs of a queue pair for `window` after one that was passed on.
    #[must_use]
    pub const fn new(window: Span) -> Self {
        Self { window, passed: ArrayVec::new_const(), merged: 0 }
    }

    /// Handles a CNP for queue pair `qp`; true if it is passed on, false if it is suppressed.
    pub fn receive(&mut self, qp: u16, now: Instant) -> bool {
        let known = self.passed.iter().position(|&(other, _)| other == qp);
        if let Some(place) = known
            && let Some(&(_, at)) = self.passed.get(place)
        {
            // Measured from the one passed on, so that a steady stream of CNPs is not suppressed for ever.
            if now.since(at) <= self.window {
                self.merged += 1;
                return false;
            }
            self.passed.remove(place);
        }
        if self.passed.is_full() {
            self.passed.remove(0); // the oldest
        }
        self.passed.push((qp, now));
        true
    }

    /// Number of CNPs suppressed.
    #[must_use]
    pub const fn merged(&self) -> u64 {
        self.merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_held_back_until_the_window_is_over() {
        let window = Span::from_us(50);
        let at = |ps: u64| Instant::from_ps(ps);
        let limit = window.as_ps();
        let mut merge = CnpMerge::new(window);
        #[rustfmt::skip] // columns: queue pair, at ps, passed on
        let cases = [
            (5,             0, true),
            (5,             1, false),
            (5,         limit, false),
            (6,         limit, true),
            (5,     limit + 1, true),
            (5,     limit + 2, false), // its time is that of the one passed on
            (5, 2 * limit + 1, false),
            (5, 2 * limit + 2, true),
        ];
        for (qp, ps, passed) in cases {
            assert_eq!(merge.receive(qp, at(ps)), passed, "{qp} at {ps}");
        }
        assert_eq!(merge.merged(), 4);
    }

    #[test]
    fn the_oldest_of_eight_is_forgotten() {
        let mut merge = CnpMerge::new(Span::from_us(50));
        for qp in 0..9 {
            assert!(merge.receive(qp, Instant::from_ns(u64::from(qp))));
        }
        for qp in 1..9 {
            assert!(!merge.receive(qp, Instant::from_ns(100)), "{qp}");
        }
        assert!(merge.receive(0, Instant::from_ns(100)), "it was forgotten");
        assert!(merge.receive(1, Instant::from_ns(100)), "and this one made room for it");
    }
}
