//! Free indices (chunks, list nodes) that circulate between workers, with a cache per worker.
//!
//! Shape: [`FreeList`] shared, passing chains of up to 62 indices; [`FreeCache`] one worker's stack.
//! Units: indices, u32.
//! Source: the magazine allocator (Bonwick and Adams, USENIX 2001); architecture.md, "Data's way through".

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

/// Indices that move between a cache and the shared list at once.
const CHAIN: usize = 62;

/// Up to [`CHAIN`] indices; 256 octets with the length, so that a hand-over is one queue operation.
#[derive(Clone, Copy)]
struct Chain {
    len: usize,
    ids: [u32; CHAIN],
}

/// The indices that no worker's cache holds.
pub struct FreeList {
    chains: ArrayQueue<Chain>,
    count: usize,
}

impl FreeList {
    /// A list that holds indices `first..first + count`.
    ///
    /// # Panics
    /// When an index would not fit a u32.
    #[must_use]
    pub fn new(first: u32, count: usize) -> Self {
        let end = u32::try_from(first as usize + count).expect("indices fit a u32");
        // Caches give back partial chains only when they are dropped, so twice the whole is enough
        // for up to that many chains; `give` falls back to keeping what does not fit.
        let chains = ArrayQueue::new(count.div_ceil(CHAIN) * 2 + 64);
        let mut next = first;
        while next < end {
            let mut chain = Chain { len: 0, ids: [0; CHAIN] };
            for slot in &mut chain.ids {
                if next == end {
                    break;
                }
                *slot = next;
                next += 1;
                chain.len += 1;
            }
            assert!(chains.push(chain).is_ok(), "sized for all");
        }
        Self { chains, count }
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
    stack: Vec<u32>,
    keep: usize,
}

impl FreeCache {
    /// A cache that takes from and gives back to `list`, holding about `keep` indices at most.
    #[must_use]
    pub fn new(list: Arc<FreeList>, keep: usize) -> Self {
        let keep = keep.max(2 * CHAIN);
        Self { stack: Vec::with_capacity(list.count() + CHAIN), list, keep }
    }

    /// Takes a free index.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        match self.stack.pop() {
            Some(id) => Some(id),
            None => self.refill(),
        }
    }

    #[cold]
    fn refill(&mut self) -> Option<u32> {
        let chain = self.list.chains.pop()?;
        self.stack.extend(chain.ids.iter().take(chain.len));
        self.stack.pop()
    }

    /// Gives an index back.
    #[inline]
    pub fn give(&mut self, id: u32) {
        if self.stack.len() >= self.keep {
            self.spill();
        }
        self.stack.push(id); // within the capacity: no more indices than `count` exist
    }

    /// Hands the oldest chain to the other workers, so that the warm ones stay here.
    #[cold]
    fn spill(&mut self) {
        let mut chain = Chain { len: CHAIN, ids: [0; CHAIN] };
        for (slot, id) in chain.ids.iter_mut().zip(self.stack.iter()) {
            *slot = *id;
        }
        if self.list.chains.push(chain).is_ok() {
            self.stack.drain(..CHAIN);
        }
    }

    /// How many this cache holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stack.len()
    }

    /// Whether this cache holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }
}

impl Drop for FreeCache {
    fn drop(&mut self) {
        while !self.stack.is_empty() {
            let rest = self.stack.len().saturating_sub(CHAIN);
            let mut chain = Chain { len: 0, ids: [0; CHAIN] };
            for (slot, id) in chain.ids.iter_mut().zip(self.stack.drain(rest..)) {
                *slot = id;
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
        for count in [0, 1, CHAIN, CHAIN + 1, 1_000] {
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
