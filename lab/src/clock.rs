//! The machine's monotonic clock.
//!
//! All processes of a machine share it, so their timestamps can be compared.
//!
//! Source: `clock_gettime(2)`, `CLOCK_MONOTONIC`.

use rustix::time::{ClockId, clock_gettime};
use weft_dataplane::time::Instant;

/// Current time, counted from the start of the machine.
#[must_use]
pub fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    let (s, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Instant::from_ns(s.wrapping_mul(1_000_000_000).wrapping_add(ns))
}
