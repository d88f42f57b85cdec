//! Chunks in flight: those of the pool that the kernel has.
//!
//! One bit per chunk. A chunk comes back from the kernel as a number in shared memory that only the kernel should
//! write. The port takes back a chunk only if it had handed that one over, so that a chunk never has two owners.
//!
//! Source: ARCHITECTURE.md "Time, errors, unsafe".

/// Chunks that the kernel was given and has not given back.
pub(super) struct InFlightChunks {
    words: Box<[u64]>,
    count: usize,
}

impl InFlightChunks {
    /// An empty set, for a pool of `chunks` chunks.
    pub(super) fn new(chunks: usize) -> Self {
        Self { words: vec![0; chunks.div_ceil(64)].into(), count: 0 }
    }

    /// Number of chunks that the kernel has.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    const fn place(chunk: u32) -> (usize, u64) {
        (chunk as usize / 64, 1 << (chunk % 64))
    }

    /// Notes that the kernel gets a chunk; false if it has it already.
    #[inline]
    pub(super) fn insert(&mut self, chunk: u32) -> bool {
        let (word, bit) = Self::place(chunk);
        let Some(word) = self.words.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        self.count += usize::from(new);
        new
    }

    /// Takes a chunk back; false if the kernel did not have it.
    #[inline]
    pub(super) fn take(&mut self, chunk: u32) -> bool {
        let (word, bit) = Self::place(chunk);
        let Some(word) = self.words.get_mut(word) else { return false };
        let was_there = *word & bit != 0;
        *word &= !bit;
        self.count -= usize::from(was_there);
        was_there
    }

    /// Takes back any chunk; `None` once all are back.
    pub(super) fn take_any(&mut self) -> Option<u32> {
        let (index, word) = self.words.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let chunk = index * 64 + word.trailing_zeros() as usize;
        // Clears the lowest bit set, the one that `trailing_zeros` found.
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
        let mut in_flight = InFlightChunks::new(130);
        for chunk in [0, 63, 64, 129] {
            assert!(in_flight.insert(chunk) && !in_flight.insert(chunk), "{chunk}");
        }
        assert_eq!(in_flight.count(), 4);
        assert!(in_flight.take(63) && !in_flight.take(63) && !in_flight.take(1));
        assert!(!in_flight.take(1_000) && !in_flight.insert(1_000), "no such chunk");
        let rest: Vec<u32> = std::iter::from_fn(|| in_flight.take_any()).collect();
        assert_eq!((rest.as_slice(), in_flight.count()), (&[0, 64, 129][..], 0));
    }
}
