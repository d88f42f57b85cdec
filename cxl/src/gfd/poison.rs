//! The set of poisoned lines of a memory, by line number: a word for each 64 lines of which at least one is poisoned,
//! so that any number can be.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use std::collections::BTreeMap;

const WORD: u64 = 64;

#[derive(Debug, Default)]
pub struct Poison {
    /// Bits of 64 lines each, by the number of the first divided by 64. No word is 0, so that an empty map means no
    /// poison.
    words: BTreeMap<u64, u64>,
}

/// The bits of lines `first..end` in word `number`; the caller ensures that at least one line lies in it.
const fn mask(number: u64, first: u64, end: u64) -> u64 {
    let from = if number == first / WORD { u64::MAX << (first % WORD) } else { u64::MAX };
    let last = end - 1;
    let upto = if number == last / WORD { u64::MAX >> (WORD - 1 - last % WORD) } else { u64::MAX };
    from & upto
}

impl Poison {
    pub const fn new() -> Self {
        Self { words: BTreeMap::new() }
    }

    /// Whether no line is poisoned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Poisons a line.
    pub fn set(&mut self, line: u64) {
        *self.words.entry(line / WORD).or_default() |= 1 << (line % WORD);
    }

    /// Whether any of lines `first..end` is poisoned.
    #[inline]
    pub fn any(&self, first: u64, end: u64) -> bool {
        first < end && {
            let mut words = self.words.range(first / WORD..=(end - 1) / WORD);
            words.any(|(number, word)| word & mask(*number, first, end) != 0)
        }
    }

    /// Ends the poison of lines `first..end`.
    pub fn heal(&mut self, first: u64, end: u64) {
        let mut from = first;
        while from < end {
            // Jumps to the next word that exists: a range may have far more lines than there are poisoned ones.
            let Some((&number, word)) = self.words.range_mut(from / WORD..=(end - 1) / WORD).next()
            else {
                return;
            };
            *word &= !mask(number, first, end);
            if *word == 0 {
                self.words.remove(&number);
            }
            from = (number + 1).saturating_mul(WORD);
        }
    }

    /// Keeps the poison of the lines that `keeps` selects, and ends all other.
    pub fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        self.words.retain(|number, word| {
            let gone = (0..WORD).filter(|bit| *word & (1 << bit) != 0);
            let gone = gone.filter(|bit| !keeps(number * WORD + bit));
            *word &= !gone.fold(0, |gone, bit| gone | 1 << bit);
            *word != 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_base::rng::Rng;

    use super::*;

    /// Against a plain set of lines, at random places around the ends of words.
    #[test]
    fn it_holds_what_a_set_holds() {
        let (mut poison, mut want, mut rng) = (Poison::new(), BTreeSet::new(), Rng::new(0xBAD));
        for step in 0..20_000 {
            let first = rng.below(300);
            let most = if rng.chance(1, 5) { 200 } else { 3 };
            let end = first + rng.below(most);
            match rng.below(4) {
                0 => {
                    poison.heal(first, end);
                    want.retain(|line| !(first..end).contains(line));
                }
                1 if step % 100 == 0 => {
                    poison.retain(|line| line < 250);
                    want.retain(|line| *line < 250);
                }
                _ => {
                    poison.set(first);
                    want.insert(first);
                }
            }
            let (at, upto) = (rng.below(300), rng.below(310));
            let is = at < upto && want.range(at..upto).next().is_some();
            assert_eq!(poison.any(at, upto), is, "{step}: {at}..{upto}");
            assert_eq!(poison.is_empty(), want.is_empty(), "{step}");
        }
        poison.heal(0, u64::MAX);
        assert!(poison.is_empty() && !poison.any(0, u64::MAX));
        poison.set(u64::MAX / 64);
        assert!(poison.any(0, u64::MAX / 64 + 1));
    }
}
