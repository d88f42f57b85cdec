//! Faults of a cable in virtual time: frames are damaged at random, and the link is down for a while.
//!
//! [`Errors`] stands at the end that sends, [`Outages`] at each end. Each end decides by itself, from its own state, as
//! the ends of a cable may be on different threads.
//!
//! Source: docs/spec/model.md §3.

use weft_base::rng::Rng;
use weft_base::sync::{Arc, AtomicU64, Ordering};

use crate::time::{Instant, Span};

/// Bits of a frame's FCS.
const FCS_BITS: u64 = 32;

/// Share of frames that are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorRate {
    /// One frame in this many.
    Frames(u64),
    /// One bit in this many, FCS included: a frame of n bits is damaged with probability n divided by this number.
    Bits(u64),
}

/// Damages frames at random.
#[derive(Clone, Debug)]
pub struct Errors {
    rate: ErrorRate,
    rng: Rng,
}

impl Errors {
    /// Damages frames at `rate`; the same `seed` damages the same frames.
    #[must_use]
    pub fn new(rate: ErrorRate, seed: u64) -> Self {
        Self { rate, rng: Rng::new(seed) }
    }

    /// Decides whether the next frame, of `len` bytes without FCS, is damaged.
    pub fn strike(&mut self, len: usize) -> bool {
        match self.rate {
            ErrorRate::Frames(one_in) => self.rng.chance(1, one_in),
            ErrorRate::Bits(one_in) => self.rng.chance(len as u64 * 8 + FCS_BITS, one_in),
        }
    }
}

/// When a link is down, as one of its ends sees it.
#[derive(Clone, Debug)]
pub struct Outages {
    /// Start and end of each outage, in order and without overlap.
    spans: Box<[(Instant, Instant)]>,
    /// Index of the first outage that is not over.
    next: usize,
    /// Time from sending a bit to receiving it.
    propagation: Span,
    /// Frames towards this end that were lost; shared with reports.
    lost: Arc<AtomicU64>,
}

impl Outages {
    /// Takes the outages of a link in any order, as pairs of start and end; overlapping ones are merged. Frames that
    /// are lost are counted in `lost`.
    #[must_use]
    pub fn new(
        mut spans: Vec<(Instant, Instant)>,
        propagation: Span,
        lost: Arc<AtomicU64>,
    ) -> Self {
        spans.retain(|&(from, until)| from < until);
        spans.sort_unstable();
        let mut apart: Vec<(Instant, Instant)> = Vec::with_capacity(spans.len());
        for (from, until) in spans {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => apart.push((from, until)),
            }
        }
        Self { spans: apart.into(), next: 0, propagation, lost }
    }

    /// Advances to `now`; returns whether the link is up then.
    pub fn tick(&mut self, now: Instant) -> bool {
        while self.spans.get(self.next).is_some_and(|&(_, until)| until <= now) {
            self.next += 1;
        }
        self.spans.get(self.next).is_none_or(|&(from, _)| now < from)
    }

    /// Time at which the link next goes down or up after `now`, the time of the last [`Self::tick`].
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let &(from, until) = self.spans.get(self.next)?;
        Some(if now < from { from } else { until })
    }

    /// Whether the link was down while a frame was on it, for `time` on the wire with its last bit arriving at `at`. If
    /// so, counts the frame as lost.
    pub fn lose(&mut self, at: Instant, time: Span) -> bool {
        let on_link = time + self.propagation;
        let begun = Instant::from_ps(at.as_ps().saturating_sub(on_link.as_ps()));
        // Outages that are over count, too: the frame may have been on the cable during one before `now`.
        let before = self.spans.get(..=self.next).unwrap_or(&self.spans);
        let hit = before.iter().rev().any(|&(from, until)| from < at && begun < until);
        if hit {
            // Relaxed: a counter that guards nothing; the other end adds its own frames.
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ns(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn as_many_frames_are_damaged_as_asked() {
        #[rustfmt::skip] // columns: name, rate, length, least and most of 100,000
        let cases = [
            ("every frame",     ErrorRate::Frames(1),         60, 100_000, 100_000),
            ("one in 100",      ErrorRate::Frames(100),       60,     850,   1_150),
            ("one bit in 10^6", ErrorRate::Bits(1_000_000), 1_246,    850,   1_150),
            ("longer",          ErrorRate::Bits(1_000_000),   121,      50,     150),
        ];
        for (name, rate, len, least, most) in cases {
            let mut errors = Errors::new(rate, 7);
            let struck = (0..100_000).filter(|_| errors.strike(len)).count();
            assert!((least..=most).contains(&struck), "{name}: {struck}");
        }
        let draw = |seed| {
            let mut errors = Errors::new(ErrorRate::Frames(2), seed);
            (0..64).map(|_| errors.strike(60)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn a_frame_is_lost_if_the_link_was_down_while_it_was_on_it() {
        let spans =
            vec![(ns(300), ns(400)), (ns(100), ns(150)), (ns(140), ns(200)), (ns(7), ns(7))];
        let lost = Arc::new(AtomicU64::new(0));
        let mut outages = Outages::new(spans, Span::from_ns(10), lost.clone());
        #[rustfmt::skip] // columns: now, up, next change
        let cases = [
            (0,   true,  Some(100)),
            (99,  true,  Some(100)),
            (100, false, Some(200)),
            (199, false, Some(200)),
            (200, true,  Some(300)),
            (399, false, Some(400)),
            (400, true,  None),
        ];
        for (now, up, next) in cases {
            assert_eq!(outages.tick(ns(now)), up, "{now}");
            assert_eq!(outages.next(ns(now)), next.map(ns), "{now}");
        }
        #[rustfmt::skip] // columns: last bit in, frame's time, lost
        let cases = [
            (100, 40, false),
            (101, 40, true),
            (230, 21, true),
            (230, 20, false),
            (260, 190, true),
            (300, 0, false),
            (390, 0, true),
        ];
        let mut want = 0;
        for (at, time, is_lost) in cases {
            assert_eq!(outages.lose(ns(at), Span::from_ns(time)), is_lost, "{at} {time}");
            want += u64::from(is_lost);
        }
        assert_eq!(lost.load(Ordering::Relaxed), want);
    }
}
