//! Frame lengths of a stream as a pure function of the sequence number, so that no state is kept.
//!
//! Lengths are without FCS. Any frame's length can be computed again from its number and the stream's seed.
//!
//! Source: simple IMIX (7:4:1 of 64, 594 and 1518 bytes with FCS), as traffic testers have it.

use crate::stamp::mix;

/// One round of IMIX, spread so that long frames do not follow each other.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// Length policy of a stream's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All frames have this length.
    Fixed(usize),
    /// Any length from the first to the second, each equally likely, by the seed.
    Range(usize, usize),
    /// These lengths in turn.
    List(Vec<usize>),
    /// Seven of 60, four of 590, one of 1514, or the nearest length that the format has.
    Imix,
}

impl Sizes {
    /// Length of frame `seq`; `min` and `max` are the limits of the format, and only IMIX is fitted to them.
    #[must_use]
    pub fn len_at(&self, seq: u64, seed: u64, min: usize, max: usize) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Range(low, high) => {
                let span = (high.saturating_sub(*low) as u64).saturating_add(1);
                // the product's high word is below `span`, which came from a usize
                let part = (u128::from(mix(seed ^ mix(seq))) * u128::from(span)) >> 64;
                low.saturating_add(usize::try_from(part).unwrap_or_default())
            }
            Self::List(lens) => nth(lens, seq).unwrap_or(min),
            // Others are checked against the format by `FrameSpec::check`; IMIX has to fit any of them.
            Self::Imix => nth(&IMIX, seq).unwrap_or(min).clamp(min, max.max(min)),
        }
    }

    /// The shortest and the longest length; `None` when there is no length at all or the range is
    /// upside down. IMIX fits itself to any format.
    #[must_use]
    pub fn bounds(&self, min: usize, max: usize) -> Option<(usize, usize)> {
        match self {
            Self::Fixed(len) => Some((*len, *len)),
            Self::Range(low, high) => (low <= high).then_some((*low, *high)),
            Self::List(lens) => Some((*lens.iter().min()?, *lens.iter().max()?)),
            Self::Imix => Some((min, max)),
        }
    }
}

/// The element whose turn it is at `seq`; `None` for an empty list.
fn nth(lens: &[usize], seq: u64) -> Option<usize> {
    let turn = seq.checked_rem(lens.len() as u64)?;
    lens.get(usize::try_from(turn).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_policy() {
        let lens = |sizes: &Sizes, n: u64| -> Vec<usize> {
            (0..n).map(|seq| sizes.len_at(seq, 9, 74, 1398)).collect()
        };
        assert_eq!(lens(&Sizes::Fixed(80), 3), [80, 80, 80]);
        assert_eq!(lens(&Sizes::List(vec![60, 90]), 3), [60, 90, 60]);
        let imix = lens(&Sizes::Imix, 12);
        #[rustfmt::skip] // columns: length after clamping, frames of twelve
        let cases = [(74, 7), (590, 4), (1398, 1)];
        for (len, count) in cases {
            assert_eq!(imix.iter().filter(|had| **had == len).count(), count, "{len}");
        }
    }

    /// 100,000 draws of 61 lengths: each within 5 standard deviations of its share.
    #[test]
    fn range_is_even_and_stays_inside() {
        let sizes = Sizes::Range(60, 120);
        let mut seen = [0u32; 61];
        for seq in 0..100_000 {
            seen[sizes.len_at(seq, 1, 0, 0) - 60] += 1;
        }
        for (at, count) in seen.iter().enumerate() {
            assert!((1_439..=1_840).contains(count), "{at}: {count}");
        }
        assert_ne!(sizes.len_at(0, 1, 0, 0), sizes.len_at(0, 2, 0, 0), "the seed counts");
        assert_eq!(Sizes::Range(5, 5).len_at(7, 1, 0, 0), 5);
    }

    #[test]
    fn bounds_refuse_nonsense() {
        assert_eq!(Sizes::Range(5, 4).bounds(0, 9), None);
        assert_eq!(Sizes::List(vec![]).bounds(0, 9), None);
        assert_eq!(Sizes::List(vec![7, 3, 5]).bounds(0, 9), Some((3, 7)));
        assert_eq!(Sizes::List(vec![]).len_at(1, 0, 60, 90), 60, "no panic");
    }
}
