//! A token bucket kept as a time, exact to a fraction of a picosecond over any number of frames.
//!
//! [`Bucket`] of a rate and a depth; `open_at(now)` says when it may be drawn on again.
//!
//! Units: rate in bit/s of true wire time (FCS, 64-byte minimum, preamble, gap); depth as a time.
//! Source: the virtual scheduling form of GCRA (ITU-T I.371 Annex A); docs/spec/pipeline.md §7.

use crate::time::{Instant, LinkRate, Span};

/// Longest frame that is charged in full, in bytes; longer ones count as this.
const BYTES_MAX: u32 = 1 << 20;
/// Greatest depth; a greater one counts as this.
const DEPTH_MAX: Span = Span::from_ms(3_600_000);

/// A token bucket: frames may go while it is not in debt, and each draws its wire time.
///
/// A full bucket lets `depth` of wire time go at once, and the frame that empties it; from then on
/// frames go at exactly `rate`. Whether a frame may go does not depend on its length, so small
/// frames get no advantage over large ones. With depth 0 it spaces frames evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: LinkRate,
    depth: Span,
    ahead_max: Span,          // how far ahead of now `full_at` can be
    full_at: Option<Instant>, // when the bucket is full again, rounded down; `None`: it is full
    part: u64,                // the fraction cut off `full_at`, in ps / rate
}

impl Bucket {
    /// A full bucket of `depth` at `rate`; at most an hour deep.
    #[must_use]
    pub fn new(rate: LinkRate, depth: Span) -> Self {
        let mut bucket =
            Self { rate, depth: Span::ZERO, ahead_max: Span::ZERO, full_at: None, part: 0 };
        bucket.set(rate, depth);
        bucket
    }

    /// Changes rate and depth; a debt stays the same time.
    pub fn set(&mut self, rate: LinkRate, depth: Span) {
        // `part` is a fraction of the old rate; rounded up, the debt is paid in full.
        if rate != self.rate {
            self.full_at = self.full_at.map(|at| at + part_up(self.part));
            self.part = 0;
        }
        self.rate = rate;
        self.depth = depth.min(DEPTH_MAX);
        self.ahead_max = self.depth + rate.bit_time(wire_bits(BYTES_MAX));
    }

    /// The rate in force since the last [`Self::set`].
    #[must_use]
    pub const fn rate(&self) -> LinkRate {
        self.rate
    }

    /// When the next frame may go: `now`, or the first picosecond at which the debt is paid.
    #[inline]
    #[must_use]
    pub fn open_at(&self, now: Instant) -> Instant {
        let (full_at, part) = self.full(now);
        let due = full_at + part_up(part) - self.depth;
        if due > now { due } else { now }
    }

    /// Whether a frame may go at `now`.
    #[inline]
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        self.open_at(now) == now
    }

    /// Draws the wire time of a frame of `len` bytes (no FCS) that goes at `now`.
    #[inline]
    pub fn charge(&mut self, now: Instant, len: u32) {
        const PS_PER_S: u64 = 1_000_000_000_000;
        const { assert!(wire_bits(BYTES_MAX) < u64::MAX / PS_PER_S) };
        let rate = self.rate.as_bps();
        // Kept as quotient and remainder, so that rounding does not add up over any number of
        // frames.
        let cost = wire_bits(len) * PS_PER_S; // in ps / rate
        let (full_at, part) = self.full(now);
        let (ps, part) = (cost / rate, part + cost % rate);
        let carry = u64::from(part >= rate);
        self.part = part - carry * rate;
        self.full_at = Some(full_at + Span::from_ps(ps + carry));
    }

    /// When it is full again, seen from `now`.
    #[inline]
    fn full(&self, now: Instant) -> (Instant, u64) {
        match self.full_at {
            // A time in the past means full. So does one further ahead than charges can have
            // caused: after half a turn of the clock (106 days) without a frame, the past looks
            // like the future.
            Some(at) if at + part_up(self.part) >= now && at.since(now) <= self.ahead_max => {
                (at, self.part)
            }
            _ => (now, 0),
        }
    }
}

/// A part of a picosecond, rounded up.
#[inline]
fn part_up(part: u64) -> Span {
    Span::from_ps(u64::from(part > 0))
}

/// Bits of a frame of `len` bytes (no FCS) on the wire, as [`LinkRate::frame_time`] counts them.
#[inline]
const fn wire_bits(len: u32) -> u64 {
    let with_fcs = (if len < BYTES_MAX { len } else { BYTES_MAX }) as u64 + 4;
    (if with_fcs < 64 { 64 } else { with_fcs } + 20) * 8
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    const NEAR_WRAP: Instant = Instant::from_ps(u64::MAX - 1_000_000_000);

    #[test]
    fn a_frame_costs_its_wire_time() {
        for len in [0, 14, 59, 60, 61, 1_402, 9_216, 65_535] {
            let want = LinkRate::gbps(1).frame_time(len as usize);
            let mut bucket = Bucket::new(LinkRate::gbps(1), Span::ZERO);
            bucket.charge(Instant::ZERO, len);
            assert_eq!(bucket.open_at(Instant::ZERO), Instant::ZERO + want, "{len}");
        }
    }

    /// A 1,000-byte frame is 8,192 bits: 8,192 ns at 1 Gbit/s.
    #[test]
    fn depth_goes_at_once_then_the_rate_holds() {
        #[rustfmt::skip] // columns: name, depth_ns, frames sent at 0, open at ns
        let cases = [
            ("depth 0 lets one go",     0,      0,       0),
            ("and then spaces",         0,      1,   8_192),
            ("within the depth",        20_000, 2,       0),
            ("the frame that empties",  20_000, 3,   4_576),
            ("exactly empty is open",   16_384, 2,       0),
            ("one more is debt",        16_384, 3,   8_192),
        ];
        for start in [Instant::ZERO, NEAR_WRAP, Instant::from_ps(u64::MAX)] {
            for (name, depth_ns, frames, open_ns) in cases {
                let mut bucket = Bucket::new(LinkRate::gbps(1), Span::from_ns(depth_ns));
                for _ in 0..frames {
                    bucket.charge(start, 1_000);
                }
                let want = start + Span::from_ns(open_ns);
                assert_eq!(bucket.open_at(start), want, "{name}");
                assert_eq!(bucket.is_open(start), open_ns == 0, "{name}");
                assert!(bucket.is_open(want), "{name}");
            }
        }
    }

    /// Whatever the rate divides badly, the sum of many charges is the exact time, rounded up once.
    #[test]
    fn no_fraction_is_ever_lost() {
        let seed = 0xB0_C4E7;
        let mut rng = Rng::new(seed);
        for bps in [7_003, 7_000_003, 999_999_937, 123_456_789_011, 10_000_000_000_000] {
            let rate = LinkRate::bps(bps).unwrap();
            let mut bucket = Bucket::new(rate, Span::ZERO);
            let (mut now, mut bits) = (NEAR_WRAP, 0_u128);
            for _ in 0..10_000 {
                let len = 60 + u32::try_from(rng.below(1_500)).unwrap();
                bucket.charge(now, len);
                bits += u128::from(len + 24) * 8;
                now = bucket.open_at(now);
                let ps = (bits * 1_000_000_000_000).div_ceil(u128::from(bps));
                let want = NEAR_WRAP + Span::from_ps(u64::try_from(ps).unwrap());
                assert_eq!(now, want, "{bps} seed {seed:#x}");
            }
        }
    }

    #[test]
    fn idle_time_fills_it_and_no_more() {
        let rate = LinkRate::gbps(1);
        for idle in
            [Span::from_ms(1), Span::from_ps(u64::MAX / 2 + 5), Span::from_ps(u64::MAX / 4 * 3)]
        {
            let mut bucket = Bucket::new(rate, Span::from_ns(20_000));
            for _ in 0..100 {
                bucket.charge(NEAR_WRAP, 1_000);
            }
            let later = NEAR_WRAP + idle;
            let mut at_once = 0;
            while bucket.is_open(later) {
                bucket.charge(later, 1_000);
                at_once += 1;
            }
            assert_eq!(at_once, 3, "{idle:?}");
        }
    }

    #[test]
    fn a_new_rate_keeps_the_debt_as_time() {
        let mut bucket = Bucket::new(LinkRate::gbps(1), Span::ZERO);
        bucket.charge(Instant::ZERO, 1_000);
        bucket.set(LinkRate::gbps(2), Span::ZERO);
        let due = bucket.open_at(Instant::ZERO);
        assert_eq!(due, Instant::from_ns(8_192));
        bucket.charge(due, 1_000);
        assert_eq!(bucket.open_at(due), Instant::from_ns(8_192 + 4_096));
    }
}
