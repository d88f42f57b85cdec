//! Time of a step's parts, in TSC cycles.
//!
//! [`Stages`] hears a lane's parts end, and reads the time-stamp counter each time.

use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Part, Tracer};
use weft_dataplane::worker::tsc;

/// Cycles by part; frames take the short way, as without it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stages {
    last: u64,
    sums: [u64; Part::ALL.len()],
}

impl Stages {
    /// Nothing counted, from now on.
    #[must_use]
    pub fn start() -> Self {
        Self { last: tsc().unwrap_or(0), ..Self::default() }
    }

    /// Cycles of each part, in the order of [`Part::ALL`].
    #[must_use]
    pub const fn sums(&self) -> &[u64; Part::ALL.len()] {
        &self.sums
    }
}

impl Tracer for Stages {
    const ON: bool = false;

    fn event(&mut self, _now: Instant, _event: Event) {}

    fn number(&mut self) -> u64 {
        0
    }

    #[inline]
    fn part(&mut self, part: Part) {
        let now = tsc().unwrap_or(0);
        if let Some(sum) = self.sums.get_mut(part as usize) {
            *sum += now.wrapping_sub(self.last);
        }
        self.last = now;
    }
}
