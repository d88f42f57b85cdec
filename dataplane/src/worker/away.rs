//! Away: how long a worker did not run although it had to.
//!
//! A worker that sleeps publishes until when. It counts as away from then on (or from the start of
//! its last turn if it did not sleep) until its next turn begins. In that time frames waited in the
//! kernel and no PAUSE was sent: the scheduler ran something else, the process was stopped, the
//! hypervisor ran another machine, or a turn took long. A worker that is woken early counts from
//! the planned end of its sleep, so the figure is too small by up to [`super::SLEEP_ACTIVE`] while
//! frames come.
//!
//! Units: nanoseconds of the worker's clock.
//! Source: docs/running.md "Heartbeats".

use crate::stats::WorkerStats;
use crate::time::{Instant, Span};

/// "Lately" is the last one to two such spans.
pub const LATELY: Span = Span::from_ms(10_000);

/// Measures how long a worker is away.
#[derive(Debug, Default)]
pub struct Away {
    /// When the worker had to make its next turn; `None` before the first.
    due: Option<Instant>,
    /// Begin of the current span.
    since: Instant,
    /// The longest absence in the current span, and in the one before.
    longest: [Span; 2],
}

impl Away {
    /// Notes that a turn begins, and counts the absence before it.
    #[inline]
    pub fn turn(&mut self, now: Instant, stats: &WorkerStats) {
        let away = self.due.map_or(Span::ZERO, |due| now.since(due));
        self.due = Some(now);
        let is_over = now.since(self.since) >= LATELY;
        // Almost every turn ends here: only a new maximum or a new span is written to the shared
        // counters.
        if !is_over && away <= self.longest[0] {
            return;
        }
        if is_over {
            // An absence may be longer than a whole span: then the span before this one is empty.
            let before =
                if now.since(self.since) >= LATELY + LATELY { Span::ZERO } else { self.longest[0] };
            (self.since, self.longest) = (now, [Span::ZERO, before]);
        }
        self.longest[0] = self.longest[0].max(away);
        stats.away_ns.raise(away.as_ns());
        stats.away_lately_ns.set(self.longest[0].max(self.longest[1]).as_ns());
    }

    /// Notes that the worker sleeps until `at` at the latest.
    #[inline]
    pub fn sleep_until(&mut self, at: Instant, stats: &WorkerStats) {
        self.due = Some(at);
        // For the pause guard, which does not miss a worker before that.
        stats.wake_ns.set(at.as_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    /// The longest since the start, and lately, in ms.
    fn told(stats: &WorkerStats) -> (u64, u64) {
        (stats.away_ns.get() / 1_000_000, stats.away_lately_ns.get() / 1_000_000)
    }

    #[test]
    fn an_absence_begins_where_the_sleep_was_to_end() {
        #[rustfmt::skip] // columns: name, turn begins, sleeps until, next turn begins, away in ms
        let cases = [
            ("no sleep",            5, None,     308, 303),
            ("woken early",         5, Some(10),   7, 0),
            ("woken in time",       5, Some(10),  10, 0),
            ("woken late",          5, Some(10),  60, 50),
        ];
        for (name, first, until, next, want) in cases {
            let (mut away, stats) = (Away::default(), WorkerStats::default());
            away.turn(ms(first), &stats);
            if let Some(until) = until {
                away.sleep_until(ms(until), &stats);
                assert_eq!(stats.wake_ns.get(), until * 1_000_000, "{name}");
            }
            away.turn(ms(next), &stats);
            assert_eq!(told(&stats), (want, want), "{name}");
        }
    }

    #[test]
    fn what_was_long_ago_counts_since_the_start_only() {
        let (mut away, stats) = (Away::default(), WorkerStats::default());
        let mut turns = |from: u64, to: u64| {
            (from..=to).step_by(100).for_each(|at| away.turn(ms(at), &stats));
            told(&stats)
        };
        assert_eq!(turns(0, 3_000), (100, 100));
        assert_eq!(turns(3_700, 12_000), (700, 700), "700 ms in the first span");
        assert_eq!(turns(12_100, 19_900), (700, 700), "which is the one before now");
        assert_eq!(turns(20_000, 31_000), (700, 100));
        assert_eq!(turns(61_000, 61_000), (30_000, 30_000));
        assert_eq!(turns(61_100, 71_100), (30_000, 30_000));
        assert_eq!(turns(71_200, 81_200), (30_000, 100));
    }
}
