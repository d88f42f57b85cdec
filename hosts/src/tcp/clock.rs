//! The clock of the TCP stack, which may run faster than that of its host.
//!
//! [`StackClock`] turns a host's [`Instant`] into smoltcp's and back.
//!
//! Units: picoseconds of the host; microseconds of the stack.
//! Source: RFC 6298 (2.1, 2.4), whose timeout of a second smoltcp has built in.
//!
//! smoltcp counts microseconds and never waits less than a second before it sends again. A second of its clock is
//! [`rto_min`](StackClock::new) of the host's: so the least timeout is that, round trips are told apart by a thousandth of it, and
//! all that the stack times by itself is in that proportion.

use smoltcp::time::{Duration, Instant as StackInstant};
use weft_dataplane::time::{Instant, Span};

/// Microseconds of the stack's second.
const SECOND_US: u128 = 1_000_000;

/// How the time of a host becomes that of its stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackClock {
    origin: Instant,
    rto_min: Span,
}

impl StackClock {
    /// Of a stack that begins at `origin` and waits `rto_min`, which is not 0, at least before it sends again.
    pub const fn new(origin: Instant, rto_min: Span) -> Self {
        Self { origin, rto_min }
    }

    /// What the stack's clock shows at `now`.
    pub fn at(self, now: Instant) -> StackInstant {
        let passed = u128::from(now.since(self.origin).as_ps());
        let us = passed * SECOND_US / u128::from(self.rto_min.as_ps());
        StackInstant::from_micros(i64::try_from(us).unwrap_or(i64::MAX))
    }

    /// When the stack's clock first shows `at`.
    pub fn when(self, at: StackInstant) -> Instant {
        let us = u128::try_from(at.total_micros()).unwrap_or(0);
        let ps = (us * u128::from(self.rto_min.as_ps())).div_ceil(SECOND_US);
        self.origin + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX / 4))
    }

    /// How long a span of the host is for the stack, rounded up.
    pub fn span(self, span: Span) -> Duration {
        let us = (u128::from(span.as_ps()) * SECOND_US).div_ceil(u128::from(self.rto_min.as_ps()));
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
