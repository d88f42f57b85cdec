//! Words on cache lines of their own, each written by one thread: counts that workers read of each
//! other without a locked instruction.
//!
//! Shape: [`Words`], a fixed number of u32; the owner's [`add`] and [`sub`] are a load and a store.
//! Units: as the owner counts; words wrap.
//! Source: P. E. `McKenney`, "Is Parallel Programming Hard, And, If So, What Can You Do About It?", chapter 5
//! (counters split by thread).

use crate::sync::{AtomicU32, Ordering};

/// Words of a cache line.
pub const LINE: usize = 16;

/// So many words, from the start of a cache line on and to the end of one.
pub struct Words {
    all: Box<[AtomicU32]>,
    /// Where in `all` a line starts.
    first: usize,
}

impl Words {
    /// At least `count` words, all 0.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let count = count.next_multiple_of(LINE);
        let all: Box<[_]> = (0..count + LINE).map(|_| AtomicU32::new(0)).collect();
        let first = all.as_ptr().align_offset(LINE * size_of::<u32>()).min(LINE);
        Self { all, first }
    }

    /// Word `at`.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline]
    #[must_use]
    pub fn at(&self, at: usize) -> &AtomicU32 {
        self.all.get(self.first + at).expect("a word of this array")
    }

    /// Words from `at` on.
    #[inline]
    #[must_use]
    pub fn from(&self, at: usize) -> &[AtomicU32] {
        self.all.get(self.first + at..).unwrap_or_default()
    }
}

/// Adds to a word of the caller's own; returns what it was.
#[inline]
pub fn add(word: &AtomicU32, n: u32) -> u32 {
    let before = word.load(Ordering::Relaxed);
    word.store(before.wrapping_add(n), Ordering::Relaxed);
    before
}

/// Takes off a word of the caller's own; returns what it was.
#[inline]
pub fn sub(word: &AtomicU32, n: u32) -> u32 {
    add(word, n.wrapping_neg())
}
