//! The machine's clock.
//!
//! None → [`Instant`].
//!
//! Units: nanoseconds since the machine was started.
//! Source: `clock_gettime(2)`, `CLOCK_MONOTONIC`.

use rustix::time::{ClockId, clock_gettime};
use weft_dataplane::time::Instant;

/// The time on the clock that all processes of a machine share.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Instant::from_ns(s.wrapping_mul(1_000_000_000).wrapping_add(ns))
}
