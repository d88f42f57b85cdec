//! The FDB's memory: buckets of one cache line, two of which can hold a key.
//!
//! A key's hash gives a first and a second bucket, each with 4 entries of 16 bytes. The table has at least twice as
//! many places as its capacity, so it is at most half full.
//!
//! Source: Fan et al., "`MemC3`", NSDI 2013 (two buckets of four, copy before clear).

use super::entry::{Entry, FdbKey, Value};
use crate::pool::prefetch;

const WAYS: usize = 4;
/// How many moves deep the search for room goes: 8 + 32 + 128 other places for a key.
const DEPTH: u32 = 2;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Bucket([Entry; WAYS]);

const _: () = assert!(size_of::<Bucket>() == 64 || cfg!(loom), "a bucket is a cache line");

impl Bucket {
    #[inline]
    fn find(&self, key: FdbKey) -> Option<(&Entry, Value)> {
        let [a, b, c, d] = &self.0;
        if a.holds(key) {
            return Some((a, a.read(key)?)); // while there is room, the first way holds most keys
        }
        // Arithmetic instead of branches: in a full table it is unpredictable which way holds a key.
        let is = |entry: &Entry| usize::from(entry.key_word() == key.word());
        let entry = self.0.get(is(b) + is(c) * 2 + is(d) * 3)?;
        if entry.holds(key) { Some((entry, entry.read(key)?)) } else { None }
    }

    fn free(&self) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key_word() == 0)
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }
}

/// A key and its hash, computed once per burst.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    key: FdbKey,
    hash: u64,
}

impl Probe {
    /// A filler for arrays before use.
    pub(crate) const EMPTY: Self = Self { key: FdbKey::EMPTY, hash: 0 };

    /// The key that the probe was made for.
    #[inline]
    #[must_use]
    pub const fn key(self) -> FdbKey {
        self.key
    }
}

/// All buckets; a caller that changes them must hold the writer's lock.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
    mask: usize,
    seed: u64,
}

impl Table {
    /// A table with places for at least twice `capacity` entries, in a power of two of buckets.
    pub fn new(capacity: usize, seed: u64) -> Self {
        let count = (capacity * 2).div_ceil(WAYS).next_power_of_two().max(2);
        assert!(count <= 1 << 32, "a probe holds 32 bits of each bucket's number");
        let buckets = (0..count).map(|_| Bucket::default()).collect();
        Self { buckets, mask: count - 1, seed }
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Hashes a key: one wide multiplication with the seeded key, its halves folded (the "mum" of wyhash).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn hash(&self, key: FdbKey) -> u64 {
        let wide = u128::from(key.word() ^ self.seed) * 0x9E37_79B9_7F4A_7C15;
        (wide >> 64) as u64 ^ wide as u64
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "bits above the mask do not matter")]
    const fn first(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// The second bucket of a hash; never the first.
    #[inline]
    const fn second(&self, hash: u64) -> usize {
        let (first, second) = (self.first(hash), (hash >> 32) as usize & self.mask);
        // Two different buckets, so that a key always has eight places.
        if second == first { first ^ 1 } else { second }
    }

    /// First and second bucket of `key`.
    fn homes(&self, key: FdbKey) -> (usize, usize) {
        let hash = self.hash(key);
        (self.first(hash), self.second(hash))
    }

    #[inline]
    pub fn probe(&self, key: FdbKey) -> Probe {
        Probe { key, hash: self.hash(key) }
    }

    /// Prefetches the first bucket, where most keys are.
    #[inline]
    pub fn prefetch(&self, probe: Probe) {
        if let Some(bucket) = self.buckets.get(self.first(probe.hash)) {
            prefetch(bucket);
        }
    }

    #[inline]
    pub fn find(&self, key: FdbKey) -> Option<(&Entry, Value)> {
        self.find_at(self.probe(key))
    }

    /// The entry of a key whose probe is known, with its value.
    #[inline]
    pub fn find_at(&self, probe: Probe) -> Option<(&Entry, Value)> {
        match self.buckets.get(self.first(probe.hash))?.find(probe.key) {
            Some(hit) => Some(hit),
            None => self.buckets.get(self.second(probe.hash))?.find(probe.key),
        }
    }

    /// Enters a key that is not in the table; `false` if its places are taken and cannot be freed.
    ///
    /// Entries in the way are copied to their other bucket before they are overwritten. A reader that looks at the two
    /// buckets around that moment can miss such a key once.
    pub fn place(&self, key: FdbKey, value: Value) -> bool {
        let (first, second) = self.homes(key);
        let free = [first, second]
            .into_iter()
            .find_map(|home| self.buckets.get(home)?.free())
            .or_else(|| self.make_room(first, DEPTH))
            .or_else(|| self.make_room(second, DEPTH));
        if let Some(entry) = free {
            entry.fill(key, value);
        }
        free.is_some()
    }

    /// Copies one entry of the full bucket `home` to its other bucket and returns its old place, which the caller fills
    /// at once.
    fn make_room(&self, home: usize, depth: u32) -> Option<&Entry> {
        // No search comes back to a bucket on its path: that bucket is full, and so are the other buckets of its keys.
        // A third step would look at nothing else.
        const { assert!(DEPTH <= 2) };
        let bucket = self.buckets.get(home)?;
        let near = bucket.entries().find_map(|entry| {
            let (key, value) = entry.both()?;
            self.buckets.get(self.other(key, home))?.free()?.fill(key, value);
            Some(entry)
        });
        if near.is_some() || depth == 0 {
            return near;
        }
        bucket.entries().find_map(|entry| {
            let (key, value) = entry.both()?;
            self.make_room(self.other(key, home), depth - 1)?.fill(key, value);
            Some(entry)
        })
    }

    /// The bucket of `key` that is not `home`.
    fn other(&self, key: FdbKey, home: usize) -> usize {
        let (first, second) = self.homes(key);
        if home == first { second } else { first }
    }

    /// A learned entry in one of `key`'s buckets, to be replaced by a static one.
    pub fn victim(&self, key: FdbKey) -> Option<(&Entry, FdbKey, Value)> {
        let (first, second) = self.homes(key);
        [first, second].into_iter().find_map(|home| {
            self.buckets.get(home)?.entries().find_map(|entry| {
                let (key, value) = entry.both()?;
                (!value.is_static()).then_some((entry, key, value))
            })
        })
    }
}
