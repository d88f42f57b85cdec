//! The clock of the TCP stack, which may run faster than the host's.
//!
//! smoltcp counts microseconds, and never retransmits before a second has passed (RFC 6298). [`StackClock`] makes a
//! second of smoltcp's clock as long as the host's [`rto_min`](StackClock::new): that becomes the least timeout, round
//! trips are measured to a thousandth of it, and all that the stack times by itself scales with it.
//!
//! Source: RFC 6298 (2.1, 2.4), whose timeout of a second smoltcp has built in.

use smoltcp::time::{Duration, Instant as StackInstant};
use weft_dataplane::time::{Instant, Span};

/// Microseconds in a second of the stack's clock.
const SECOND_US: u128 = 1_000_000;

/// Converts between a host's clock and its stack's.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackClock {
    origin: Instant,
    rto_min: Span,
}

impl StackClock {
    /// A clock that shows 0 at `origin`, and a second after `rto_min`, which must not be 0.
    pub const fn new(origin: Instant, rto_min: Span) -> Self {
        Self { origin, rto_min }
    }

    /// Reading of the stack's clock at `now`.
    pub fn at(self, now: Instant) -> StackInstant {
        let passed = u128::from(now.since(self.origin).as_ps());
        let us = passed * SECOND_US / u128::from(self.rto_min.as_ps());
        StackInstant::from_micros(i64::try_from(us).unwrap_or(i64::MAX))
    }

    /// The first instant at which the stack's clock shows `at`.
    pub fn when(self, at: StackInstant) -> Instant {
        let us = u128::try_from(at.total_micros()).unwrap_or(0);
        // Rounded up: a host woken earlier would find that its stack is not due yet, and spin.
        let ps = (us * u128::from(self.rto_min.as_ps())).div_ceil(SECOND_US);
        self.origin + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX / 4))
    }

    /// Length of `span` on the stack's clock, rounded up.
    pub fn span(self, span: Span) -> Duration {
        let us = (u128::from(span.as_ps()) * SECOND_US).div_ceil(u128::from(self.rto_min.as_ps()));
        // A quarter, so that the stack can add it to a time without overflow.
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stack is never due before the instant that it asked for, nor a picosecond later than has to be.
    #[test]
    fn a_time_of_the_stack_is_the_first_instant_that_shows_it() {
        let origin = Instant::from_ns(7);
        #[rustfmt::skip] // columns: name, rto_min, stack's microseconds, picoseconds after the origin
        let cases = [
            ("as fast as the host", Span::from_ms(1_000), 3,         3_000_000),
            ("1 ms",                Span::from_ms(1),     1_000_000, 1_000_000_000),
            ("one nanosecond",      Span::from_ms(1),     1,         1_000),
            ("rounded up",          Span::from_ps(1_500_001), 1,     2),
            ("at once",             Span::from_us(1),     0,         0),
        ];
        for (name, rto_min, us, ps) in cases {
            let clock = StackClock::new(origin, rto_min);
            let at = clock.when(StackInstant::from_micros(us));
            assert_eq!(at.since(origin).as_ps(), ps, "{name}");
            assert!(clock.at(at) >= StackInstant::from_micros(us), "{name}");
            if ps > 0 {
                let before = Instant::from_ps(at.as_ps() - 1);
                assert!(clock.at(before) < StackInstant::from_micros(us), "{name}");
            }
        }
        let clock = StackClock::new(origin, Span::from_ms(1));
        assert_eq!(clock.span(Span::from_us(500)), Duration::from_millis(500));
    }
}
