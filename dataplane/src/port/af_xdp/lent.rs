//! Which chunks of the pool the kernel has.
//!
//! Shape: a bit for each chunk. A chunk comes back from the kernel by a number in memory that it
//! writes: only one that was lent is taken for ours again, so that a frame never has two owners.
//! Units: chunks.
//! Source: ARCHITECTURE.md "Time, errors, unsafe".

/// Chunks that were lent and have not come back.
pub(super) struct Lent {
    words: Box<[u64]>,
    count: usize,
}

impl Lent {
    /// None of `chunks` chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self { words: vec![0; chunks.div_ceil(64)].into(), count: 0 }
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    const fn place(chunk: u32) -> (usize, u64) {
        (chunk as usize / 64, 1 << (chunk % 64))
    }

    /// Lends a chunk; false if it is lent already.
    #[inline]
    pub(super) fn lend(&mut self, chunk: u32) -> bool {
        let (word, bit) = Self::place(chunk);
        let Some(word) = self.words.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        self.count += usize::from(new);
        new
    }

    /// Takes a chunk back; false if it was not lent.
    #[inline]
    pub(super) fn take(&mut self, chunk: u32) -> bool {
        let (word, bit) = Self::place(chunk);
        let Some(word) = self.words.get_mut(word) else { return false };
        let lent = *word & bit != 0;
        *word &= !bit;
        self.count -= usize::from(lent);
        lent
    }

    /// Takes all back, one after the other.
    pub(super) fn take_any(&mut self) -> Option<u32> {
        let (index, word) = self.words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let chunk = index * 64 + word.trailing_zeros() as usize;
        *word &= *word - 1;
        self.count -= 1;
        u32::try_from(chunk).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_once() {
        let mut lent = Lent::new(130);
        for chunk in [0, 63, 64, 129] {
            assert!(lent.lend(chunk) && !lent.lend(chunk), "{chunk}");
        }
        assert_eq!(lent.count(), 4);
        assert!(lent.take(63) && !lent.take(63) && !lent.take(1));
        assert!(!lent.take(1_000) && !lent.lend(1_000), "no such chunk");
        let rest: Vec<u32> = std::iter::from_fn(|| lent.take_any()).collect();
        assert_eq!((rest.as_slice(), lent.count()), (&[0, 64, 129][..], 0));
    }
}
