//! Per-thread counters, which other threads read.
//!
//! Each is written by one thread, on cache lines of its own, without a locked instruction. Counters
//! wrap.
//!
//! [`PerThreadCounters`], a fixed number of u32; the owner's [`add`] and [`sub`] are a load and a store.
//!
//! Source: P. E. `McKenney`, "Is Parallel Programming Hard, And, If So, What Can You Do About It?",
//! chapter 5 (counters split by thread).

use crate::sync::{AtomicU32, Ordering};

/// Counters that fit in one cache line.
pub const LINE: usize = 16;

/// An array of counters that one thread writes and others read; it shares no cache line with anything else.
pub struct PerThreadCounters {
    all: Box<[AtomicU32]>,
    /// Offset in `all` of the first cache line.
    first: usize,
}

impl PerThreadCounters {
    /// At least `count` counters, all 0.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let count = count.next_multiple_of(LINE);
        // a line more than needed, so that the counters can begin at a line's start
        let all: Box<[_]> = (0..count + LINE).map(|_| AtomicU32::new(0)).collect();
        let first = all.as_ptr().align_offset(LINE * size_of::<u32>()).min(LINE);
        Self { all, first }
    }

    /// The counter with index `at`.
    ///
    /// # Panics
    /// When there is no such counter.
    #[inline]
    #[must_use]
    pub fn at(&self, at: usize) -> &AtomicU32 {
        self.all.get(self.first + at).expect("a counter of this array")
    }

    /// All counters from index `at` on.
    #[inline]
    #[must_use]
    pub fn from(&self, at: usize) -> &[AtomicU32] {
        self.all.get(self.first + at..).unwrap_or_default()
    }
}

/// Adds `n` to a counter that only the calling thread writes; returns its value before.
#[inline]
pub fn add(counter: &AtomicU32, n: u32) -> u32 {
    // a load and a store, not a locked addition: only this thread writes; Relaxed, as a count by
    // itself tells nothing of other memory
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(n), Ordering::Relaxed);
    before
}

/// Subtracts `n` from a counter that only the calling thread writes; returns its value before.
#[inline]
pub fn sub(counter: &AtomicU32, n: u32) -> u32 {
    add(counter, n.wrapping_neg())
}
