//! Free indices (chunks) that circulate between workers, with a cache per worker.
//!
//! [`FreeList`] is shared, and passes chains of up to 62 indices (u32); [`FreeCache`] is one
//! worker's stack.
//!
//! Source: the magazine allocator (Bonwick and Adams, USENIX 2001); ARCHITECTURE.md "The path of a
//! frame".

use core::ops::Range;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::sync::{AtomicU32, Ordering};

/// Indices that move between a cache and the shared list in one operation.
const CHAIN: usize = 62;

/// Up to [`CHAIN`] indices; 256 bytes with the length, so that a hand-over is one queue operation.
#[derive(Clone, Copy)]
struct Chain {
    len: usize,
    ids: [u32; CHAIN],
}

/// The indices that no worker's cache holds.
pub struct FreeList {
    chains: ArrayQueue<Chain>,
    /// Indices from here to `end` have never been taken.
    fresh: AtomicU32,
    end: u32,
    count: usize,
}

impl FreeList {
    /// A list that holds indices `first..first + count`.
    ///
    /// # Panics
    /// When an index would not fit a u32.
    #[must_use]
    pub fn new(first: u32, count: usize) -> Self {
        // Only caches that are dropped give back partial chains, so room for twice as many chains
        // as all indices fill is enough; without room, a cache keeps the indices in `give`.
        Self::with_chains(first, count, count.div_ceil(CHAIN) * 2 + 64)
    }

    /// As [`Self::new`], for a list with a single cache, which keeps all that it gets back: it
    /// takes little memory before indices are taken.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn of_one(first: u32, count: usize) -> Self {
        Self::with_chains(first, count, 1)
    }

    fn with_chains(first: u32, count: usize, chains: usize) -> Self {
        let end = u32::try_from(first as usize + count).expect("indices fit a u32");
        Self { chains: ArrayQueue::new(chains), fresh: AtomicU32::new(first), end, count }
    }

    /// The next indices that have never been taken, at most a chain.
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    fn fresh(&self) -> Option<Range<u32>> {
        let after = |first: u32| (self.end - first).min(CHAIN as u32) + first;
        let more = |first| (first < self.end).then(|| after(first));
        // Relaxed: an index that was never taken has no earlier owner whose writes would have to be
        // seen.
        let first = self.fresh.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(first..after(first))
    }

    /// How many indices there are in all, free or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }
}

/// One worker's free indices: a stack, the last given back is the first taken.
pub struct FreeCache {
    list: Arc<FreeList>,
    /// With room for all indices; the first `len` places are in use.
    stack: Box<[u32]>,
    len: usize,
    keep: usize,
}

impl FreeCache {
    /// A cache that takes from and gives back to `list`, holding about `keep` indices at most.
    #[must_use]
    pub fn new(list: Arc<FreeList>, keep: usize) -> Self {
        // with fewer than two chains, a worker that takes and gives by turns would spill and refill
        // for ever
        let keep = keep.max(2 * CHAIN);
        let stack = vec![0; list.count() + CHAIN].into_boxed_slice();
        Self { stack, len: 0, list, keep }
    }

    /// Adds `count` indices above the existing ones, all of which are taken: for the only cache of
    /// a list ([`FreeList::of_one`]).
    ///
    /// # Panics
    /// When an index is free, or a new one would not fit a u32.
    pub fn extend(&mut self, count: usize) {
        assert!(self.is_empty() && self.refill().is_none(), "all are taken");
        self.list = Arc::new(FreeList::of_one(self.list.end, count));
        self.stack = vec![0; self.list.end as usize + CHAIN].into_boxed_slice();
    }

    /// Takes a free index.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        if self.len == 0 {
            self.refill()?;
        }
        self.len -= 1;
        self.stack.get(self.len).copied()
    }

    /// Whether `count` indices can be taken now.
    #[inline]
    fn has(&mut self, count: usize) -> bool {
        while self.len < count {
            if self.refill().is_none() {
                return false;
            }
        }
        true
    }

    /// Free indices, up to `most`, the next to be taken last; [`Self::skip`] takes them.
    #[inline]
    pub fn peek(&mut self, most: usize) -> &[u32] {
        self.has(most);
        let first = self.len.saturating_sub(most);
        self.stack.get(first..self.len).unwrap_or_default()
    }

    /// Takes `count` of the indices that [`Self::peek`] showed, from the end.
    #[inline]
    pub const fn skip(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }

    /// Gives back up to `count` indices: `fill` writes them from the front, and returns how many it
    /// wrote.
    ///
    /// # Panics
    /// When more are given back than there are.
    #[inline]
    pub fn give_all(&mut self, count: usize, fill: impl FnOnce(&mut [u32]) -> usize) -> usize {
        while self.len + count > self.keep && self.len > CHAIN {
            let before = self.len;
            self.spill();
            // the shared list has no room: this cache keeps them
            if self.len == before {
                break;
            }
        }
        let room = self.stack.get_mut(self.len..self.len + count);
        let given = fill(room.expect("no more indices than there are"));
        assert!(given <= count, "as many as there was room for");
        self.len += given;
        given
    }

    /// Fetches a chain of free indices; `None` if there is none.
    #[cold]
    fn refill(&mut self) -> Option<()> {
        let slots = self.stack.iter_mut().skip(self.len);
        if let Some(chain) = self.list.chains.pop() {
            let ids = chain.ids.iter().take(chain.len);
            slots.zip(ids).for_each(|(slot, &id)| *slot = id);
            self.len += chain.len;
        } else {
            let ids = self.list.fresh()?;
            self.len += ids.len();
            slots.zip(ids).for_each(|(slot, id)| *slot = id);
        }
        Some(())
    }

    /// Gives an index back.
    ///
    /// # Panics
    /// When more are given back than there are.
    #[inline]
    pub fn give(&mut self, id: u32) {
        if self.give_warm(id) {
            return;
        }
        self.spill();
        let slot = self.stack.get_mut(self.len).expect("no more indices than there are");
        *slot = id;
        self.len += 1;
    }

    /// As [`Self::give`], if the cache has room; else returns false.
    #[inline]
    pub fn give_warm(&mut self, id: u32) -> bool {
        let Some(slot) = self.stack.get_mut(self.len).filter(|_| self.len < self.keep) else {
            return false;
        };
        *slot = id;
        self.len += 1;
        true
    }

    /// Hands the oldest chain to the other workers, so that the warm ones stay here.
    #[cold]
    fn spill(&mut self) {
        let mut chain = Chain { len: CHAIN, ids: [0; CHAIN] };
        for (slot, id) in chain.ids.iter_mut().zip(self.stack.iter()) {
            *slot = *id;
        }
        if self.list.chains.push(chain).is_ok() {
            self.stack.copy_within(CHAIN..self.len, 0);
            self.len -= CHAIN;
        }
    }

    /// Number of indices that this cache holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether this cache holds no index.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for FreeCache {
    fn drop(&mut self) {
        while self.len > 0 {
            let mut chain = Chain { len: 0, ids: [0; CHAIN] };
            for slot in &mut chain.ids {
                let Some(last) = self.len.checked_sub(1) else { break };
                self.len = last;
                *slot = self.stack.get(last).copied().unwrap_or_default(); // below the old `len`
                chain.len += 1;
            }
            if self.list.chains.push(chain).is_err() {
                return; // cannot happen with fewer workers than spare chains; the indices are lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_index_is_given_out_once() {
        let many = if cfg!(miri) { 2 * CHAIN + 2 } else { 1_000 };
        for count in [0, 1, CHAIN, CHAIN + 1, many] {
            let list = Arc::new(FreeList::new(5, count));
            let mut cache = FreeCache::new(list.clone(), 0);
            let mut other = FreeCache::new(list.clone(), 0);
            let mut seen = BTreeSet::new();
            while let Some(id) = cache.take() {
                assert!(seen.insert(id), "{id} twice");
            }
            assert_eq!(seen.len(), count);
            assert_eq!(seen.first().copied(), (count > 0).then_some(5));
            for id in seen {
                cache.give(id);
            }
            drop(cache);
            assert_eq!(std::iter::from_fn(|| other.take()).count(), count, "all come back");
        }
    }

    #[test]
    fn one_cache_has_all_and_keeps_what_comes_back() {
        let count: u32 = if cfg!(miri) { 130 } else { 1_000 };
        let list = Arc::new(FreeList::of_one(3, count as usize));
        let mut cache = FreeCache::new(list, usize::MAX);
        for _ in 0..3 {
            let all: BTreeSet<u32> = std::iter::from_fn(|| cache.take()).collect();
            let ends = (all.len(), all.first().copied(), all.last().copied());
            assert_eq!(ends, (count as usize, Some(3), Some(count + 2)));
            for id in all {
                cache.give(id);
            }
            assert_eq!(cache.len(), count as usize);
        }
    }

    #[test]
    fn a_cache_that_is_alone_goes_on_with_more_indices() {
        let mut cache = FreeCache::new(Arc::new(FreeList::of_one(0, 5)), usize::MAX);
        let mut all: BTreeSet<u32> = std::iter::from_fn(|| cache.take()).collect();
        assert_eq!(all.len(), 5);
        for (more, want) in [(1, 6), (70, 76), (0, 76)] {
            cache.extend(more);
            all.extend(std::iter::from_fn(|| cache.take()));
            assert_eq!((all.len(), all.last().copied()), (want, u32::try_from(want - 1).ok()));
        }
        for &id in &all {
            cache.give(id);
        }
        assert_eq!(cache.len(), all.len(), "all have room");
    }

    #[test]
    fn a_full_cache_shares_its_oldest() {
        let list = Arc::new(FreeList::new(0, 1_000));
        let mut one = FreeCache::new(list.clone(), 0);
        let all: Vec<u32> = std::iter::from_fn(|| one.take()).collect();
        let mut two = FreeCache::new(list, 0);
        assert_eq!(two.take(), None);
        for id in all {
            one.give(id);
        }
        assert!(one.len() <= 2 * CHAIN + 1);
        assert!(two.take().is_some(), "another worker reaches what this one gave back");
    }
}
