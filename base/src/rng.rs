//! Random numbers of the data plane: seeded, the same on every machine and in every version.
//!
//! u64 seed in, u64 words, bounded integers and yes/no out; [`Rng`] is 32 bytes of state.
//! Probabilities are fractions of integers, `num / den`; no float.
//!
//! Source: xoshiro256++ (Blackman, Vigna, 2021) by `rand_xoshiro`; bounds by Lemire (ACM TOMACS
//! 29(1), 2019).

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A generator that a seed determines; a record of a run holds the seed and nothing else.
///
/// Not for secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of `seed`; every seed is good, 0 too.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in 0..`bound`, each equally likely; 0 when `bound` is 0 or 1.
    ///
    /// Draws one word, and another with a chance of less than `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let (mut high, mut low) = product(self.next_u64(), bound);
        if low < bound {
            // The first `2^64 mod bound` values of the low word would come once too often.
            let excess = bound.wrapping_neg() % bound;
            while low < excess {
                (high, low) = product(self.next_u64(), bound);
            }
        }
        high
    }

    /// True with probability `num / den`.
    ///
    /// Certain, and without a draw, when `num` is at least `den` (true) or 0 (false).
    #[inline]
    pub fn chance(&mut self, num: u64, den: u64) -> bool {
        num >= den || (num > 0 && self.below(den) < num)
    }

    /// A span of an exponential distribution with this mean, rounded down: the time between two
    /// events that come at random (Poisson).
    ///
    /// By comparisons alone (von Neumann, NBS Applied Mathematics Series 12, 1951): runs of falling
    /// words are drawn until one has an odd length. The number of runs before it is the whole part
    /// of the result in units of the mean, its first word the fraction.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0_u64;
        loop {
            let first = self.next_u64();
            let (mut last, mut is_odd) = (first, true);
            loop {
                let next = self.next_u64();
                if next >= last {
                    break;
                }
                (last, is_odd) = (next, !is_odd);
            }
            if is_odd {
                return mean.saturating_mul(whole).saturating_add(product(first, mean).0);
            }
            whole += 1;
        }
    }
}

/// The product as its high and its low word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low word is what is asked for")]
const fn product(a: u64, b: u64) -> (u64, u64) {
    let wide = a as u128 * b as u128;
    ((wide >> 64) as u64, wide as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words computed by the authors' C code (xoshiro256++ filled by `SplitMix64`), redone in Python.
    #[test]
    fn seeds_give_the_same_words_for_ever() {
        #[rustfmt::skip] // columns: seed, first three words
        let cases = [
            (0,      [0x5317_5D61_490B_23DF, 0x61DA_6F3D_C380_D507, 0x5C0F_DF91_EC9A_7BFC]),
            (1,      [0xCFC5_D07F_6F03_C29B, 0xBF42_4132_963F_E08D, 0x19A3_7D57_57AA_F520]),
            (0x5EED, [0x8EB2_871B_24AE_0C00, 0xFDD2_C14D_7560_F757, 0x1746_0BDF_1E7C_3333]),
        ];
        for (seed, want) in cases {
            let mut rng = Rng::new(seed);
            assert_eq!(want.map(|_| rng.next_u64()), want, "seed {seed:#x}");
        }
    }

    #[test]
    fn numbers_stay_below_their_bound_and_spread() {
        let mut rng = Rng::new(7);
        for bound in [0, 1, 2, 3, 10, 64, 1 << 33, u64::MAX / 2 + 2, u64::MAX] {
            for _ in 0..200 {
                let drawn = rng.below(bound);
                assert!(drawn < bound.max(1), "{drawn} of {bound}");
            }
        }
        let draws: Vec<u64> = (0..100_000).map(|_| rng.below(10)).collect();
        for value in 0..10 {
            let hits = draws.iter().filter(|&&drawn| drawn == value).count();
            assert!((9_600..=10_400).contains(&hits), "{value}: {hits}");
        }
    }

    #[test]
    fn chances_come_true_as_often_as_asked() {
        #[rustfmt::skip] // columns: num, den, least and most of 100,000
        let cases = [
            (0, 5,                0,       0),
            (5, 5,          100_000, 100_000),
            (9, 5,          100_000, 100_000),
            (1, 0,          100_000, 100_000),
            (1, 2,           49_300,  50_700),
            (1, 1_000,           50,     150),
            (u64::MAX / 4 * 3, u64::MAX, 74_300, 75_700),
        ];
        let mut rng = Rng::new(11);
        for (num, den, least, most) in cases {
            let hits = (0..100_000).filter(|_| rng.chance(num, den)).count();
            assert!((least..=most).contains(&hits), "{num}/{den}: {hits}");
        }
    }

    /// Mean and deviation of an exponential distribution are one, half of it is below ln 2 of the mean.
    #[test]
    fn spans_between_chance_events_are_exponential() {
        let mut rng = Rng::new(3);
        let mut spans: Vec<u64> = (0..200_000).map(|_| rng.exponential(1_000_000)).collect();
        let mean = spans.iter().sum::<u64>() / 200_000;
        assert!((993_000..=1_007_000).contains(&mean), "{mean}");
        let squares: u64 = spans.iter().map(|&span| span.abs_diff(mean).pow(2) / 200_000).sum();
        assert!((983_000..=1_017_000).contains(&squares.isqrt()), "{}", squares.isqrt());
        spans.sort_unstable();
        #[rustfmt::skip] // columns: place of 200,000, quantile of a mean of 1,000,000
        let cases = [(20_000, 105_360), (100_000, 693_147), (180_000, 2_302_585), (198_000, 4_605_170)];
        for (place, want) in cases {
            let had: u64 = spans[place];
            assert!(had.abs_diff(want) * 50 < want, "{place}: {had}, not {want}");
        }
        assert_eq!(rng.exponential(0), 0);
    }
}
