//! RED profiles: whether a frame is marked (ECN) as it leaves, or dropped early as it arrives (WRED).
//!
//! The depth of the queue and a [`RedProfile`] give a [`Verdict`]; the parsers write the bytes of a
//! mark.
//!
//! Units: depth and both marks in one unit, bytes or cells, whichever the caller counts in.
//! Source: RFC 3168 section 5; docs/spec/pipeline.md §8 (a line from 0 at the low mark to
//! `max_percent` at the high one, as WRED profiles have it).

use weft_base::rng::Rng;

/// A reason why a profile was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedError {
    /// The low mark is above the high one.
    #[error("low mark {low} is above the high mark {high}")]
    LowAboveHigh {
        /// The low mark asked for.
        low: u64,
        /// The high mark asked for.
        high: u64,
    },
    /// The share is above 100 percent.
    #[error("max_percent {0} is above 100")]
    MaxPercent(u8),
}

/// The profile of one queue: no frame is marked (or dropped) below `low`, all are from `high` on, in between a share that
/// rises from 0 to `max_percent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedProfile {
    low: u64,
    high: u64,
    max_percent: u8,
}

/// Whether a frame is marked, or dropped, with the numbers behind the decision for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Depth below the low mark.
    Below,
    /// Between the marks: marked with probability `num / den`.
    Drawn {
        /// Depth above the low mark, times `max_percent`.
        num: u64,
        /// Distance of the marks, times 100.
        den: u64,
        /// Whether the draw was to mark.
        mark: bool,
    },
    /// Depth at or above the high mark.
    Above,
}

impl Verdict {
    /// Whether the frame is to be marked, or dropped early.
    #[inline]
    #[must_use]
    pub const fn is_mark(self) -> bool {
        match self {
            Self::Below => false,
            Self::Drawn { mark, .. } => mark,
            Self::Above => true,
        }
    }
}

impl RedProfile {
    /// A profile from its marks, both below 2^57, and the share in percent of frames that are
    /// marked just below the high mark; equal marks make a step.
    ///
    /// # Errors
    /// [`RedError`].
    pub const fn new(low: u64, high: u64, max_percent: u8) -> Result<Self, RedError> {
        if low > high {
            Err(RedError::LowAboveHigh { low, high })
        } else if max_percent > 100 {
            Err(RedError::MaxPercent(max_percent))
        } else {
            Ok(Self { low, high, max_percent })
        }
    }

    /// The mark at which marking begins.
    #[must_use]
    pub const fn low(self) -> u64 {
        self.low
    }

    /// The mark from which on every frame is marked.
    #[must_use]
    pub const fn high(self) -> u64 {
        self.high
    }

    /// Share in percent at which the line ends, just below the high mark.
    #[must_use]
    pub const fn max_percent(self) -> u8 {
        self.max_percent
    }

    /// Whether a frame could be marked at queue depth `depth`, without a draw.
    #[must_use]
    pub const fn may_mark(self, depth: u64) -> bool {
        depth >= self.high || depth > self.low && self.max_percent > 0
    }

    /// Decides at queue depth `depth`; draws from `rng` between the marks only.
    #[inline]
    pub fn verdict(self, depth: u64, rng: &mut Rng) -> Verdict {
        // First, as equal marks leave nothing to divide by below.
        if depth >= self.high {
            return Verdict::Above;
        }
        match depth.checked_sub(self.low) {
            None => Verdict::Below,
            // Integers only, so that a run in virtual time is the same on every machine.
            Some(above) => {
                let num = above.saturating_mul(u64::from(self.max_percent));
                let den = (self.high - self.low).saturating_mul(100); // above num: depth is below high
                Verdict::Drawn { num, den, mark: rng.chance(num, den) }
            }
        }
    }
}

/// Whether a frame that may be marked is marked at queue depth `depth`.
#[inline]
pub fn decide(depth: u64, profile: &RedProfile, rng: &mut Rng) -> bool {
    profile.verdict(depth, rng).is_mark()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_bound_both_sides() {
        #[rustfmt::skip] // columns: name, low, high, depth, want (none: drawn)
        let cases = [
            ("empty",                 100, 200,        0, Some(Verdict::Below)),
            ("last below",            100, 200,       99, Some(Verdict::Below)),
            ("low is p = 0",          100, 200,      100, Some(Verdict::Drawn { num: 0, den: 10_000, mark: false })),
            ("first drawn",           100, 200,      101, None),
            ("last drawn",            100, 200,      199, None),
            ("high",                  100, 200,      200, Some(Verdict::Above)),
            ("far above",             100, 200, u64::MAX, Some(Verdict::Above)),
            ("step: below",           100, 100,       99, Some(Verdict::Below)),
            ("step: at",              100, 100,      100, Some(Verdict::Above)),
            ("step at 0 marks all",     0,   0,        0, Some(Verdict::Above)),
            ("0 to 1: empty queue",     0,   1,        0, Some(Verdict::Drawn { num: 0, den: 100, mark: false })),
            ("0 to 1: anything",        0,   1,        1, Some(Verdict::Above)),
        ];
        for (name, low, high, depth, want) in cases {
            let got = RedProfile::new(low, high, 100).unwrap().verdict(depth, &mut Rng::new(1));
            match want {
                Some(want) => assert_eq!(got, want, "{name}"),
                None => assert!(
                    matches!(got, Verdict::Drawn { num, den: 10_000, .. } if num == (depth - low) * 100),
                    "{name}: {got:?}"
                ),
            }
        }
    }

    #[test]
    fn a_falling_line_is_refused() {
        let refused = RedProfile::new(201, 200, 100).unwrap_err();
        assert_eq!(refused, RedError::LowAboveHigh { low: 201, high: 200 });
        assert_eq!(refused.to_string(), "low mark 201 is above the high mark 200");
        assert_eq!(RedProfile::new(1, 2, 101), Err(RedError::MaxPercent(101)));
    }

    /// Marking stays within 2 points of the line in each third of it, whatever share it ends at; from the
    /// high mark on all are marked.
    #[test]
    fn marking_follows_the_line() {
        let seed = 0x00EC_A001;
        let (low, high) = (50_000, 80_000);
        let mut rng = Rng::new(seed);
        for (max_percent, bin) in [100, 40, 1, 0].into_iter().flat_map(|m| [(m, 0), (m, 1), (m, 2)])
        {
            let profile = RedProfile::new(low, high, max_percent).unwrap();
            let (frames, mut marked, mut expected) = (20_000, 0, 0); // expected: in 1/30,000
            for _ in 0..frames {
                let depth = low + bin * 10_000 + rng.below(10_000);
                expected += depth - low;
                marked += u64::from(decide(depth, &profile, &mut rng));
            }
            let want = expected * u64::from(max_percent) / 100 / (high - low);
            let off = marked.abs_diff(want);
            let case = format!("seed {seed:#x}, {max_percent} %, bin {bin}: {marked}, not {want}");
            assert!(off * 100 <= frames * 2 && (max_percent > 0 || marked == 0), "{case}");
            assert!(decide(high, &profile, &mut rng), "{case}");
        }
    }

    #[test]
    fn what_may_be_marked_is_what_the_verdict_can_be() {
        #[rustfmt::skip] // columns: low, high, max_percent, depth, want
        let cases = [
            (100, 200, 100,  99, false),
            (100, 200, 100, 100, false),
            (100, 200, 100, 101, true),
            (100, 200,   0, 199, false),
            (100, 200,   0, 200, true),
            (100, 100, 100,  99, false),
            (100, 100, 100, 100, true),
            (  0,   0,   0,   0, true),
        ];
        for (low, high, max_percent, depth, want) in cases {
            let profile = RedProfile::new(low, high, max_percent).unwrap();
            let mut rng = Rng::new(7);
            let marked = (0..10_000).any(|_| decide(depth, &profile, &mut rng));
            assert_eq!((profile.may_mark(depth), marked), (want, want), "{profile:?} at {depth}");
        }
    }

    #[test]
    fn certain_verdicts_leave_the_generator_alone() {
        let profile = RedProfile::new(10, 20, 100).unwrap();
        let mut rng = Rng::new(3);
        for depth in [0, 9, 10, 20, 21] {
            decide(depth, &profile, &mut rng);
        }
        assert_eq!(rng, Rng::new(3));
        decide(15, &profile, &mut rng);
        assert_ne!(rng, Rng::new(3));
    }
}
