//! Away: how long a worker did not run although it had to.
//!
//! A worker that sleeps says until when. What passes after that, or after the start of its last turn if it did not sleep, until
//! its next turn begins is time in which frames waited in the kernel and no PAUSE was sent: the scheduler ran something else,
//! the process was stopped, the hypervisor ran another machine, or a turn took long. A worker that is woken before its sleep is
//! over counts no earlier than from the end of it, so the figure is too small by up to [`super::SLEEP_ACTIVE`] where frames
//! come.
//!
//! Turns and sleeps in, the longest absence out, since the start and lately.
//!
//! Units: nanoseconds of the worker's clock.
//! Source: docs/running.md "Heartbeats".

use crate::stats::WorkerStats;
use crate::time::{Instant, Span};

/// The longest absence lately is that of the last one to two such spans.
pub const LATELY: Span = Span::from_ms(10_000);

/// Measures how long a worker is away.
#[derive(Debug, Default)]
pub struct Away {
    /// When the worker had to make its next turn; none before the first.
    due: Option<Instant>,
    /// Since when `longest` counts.
    since: Instant,
    /// The longest of this span, and of the one before.
    longest: [Span; 2],
}

impl Away {
    /// A turn begins.
    #[inline]
    pub fn turn(&mut self, now: Instant, stats: &WorkerStats) {
        let away = self.due.map_or(Span::ZERO, |due| now.since(due));
        self.due = Some(now);
        let is_over = now.since(self.since) >= LATELY;
        if !is_over && away <= self.longest[0] {
            return;
        }
        if is_over {
            // One absence may be longer than a whole span.
            let before =
                if now.since(self.since) >= LATELY + LATELY { Span::ZERO } else { self.longest[0] };
            (self.since, self.longest) = (now, [Span::ZERO, before]);
        }
        self.longest[0] = self.longest[0].max(away);
        stats.away_ns.raise(away.as_ns());
        stats.away_lately_ns.set(self.longest[0].max(self.longest[1]).as_ns());
    }

    /// The worker sleeps until `at` at the longest.
    #[inline]
    pub fn sleep_until(&mut self, at: Instant, stats: &WorkerStats) {
        self.due = Some(at);
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
