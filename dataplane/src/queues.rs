//! Queues of outputs, (output, pri): an id, sets and arrays of queues, and the demand of a burst.
//!
//! [`QueueId`] = output(8:3), pri(2:0); [`QueueSet`] 512 bits; [`PerQueue`] 512 values; [`Demand`]
//! counts frames and cells.
//!
//! Source: docs/spec/pipeline.md, "Words".
#![expect(clippy::cast_possible_truncation, reason = "fields are cut out of words")]

use core::ops::{Index, IndexMut};

use crate::batch::BURST;
use crate::pool::FRAME_LEN_MAX;
use crate::types::{PORTS_MAX, PRIS_MAX, PortId, Pri};

/// Most queues of a switch: 64 outputs with 8 priorities.
pub const QUEUES_MAX: usize = PORTS_MAX * PRIS_MAX;

const WORDS: usize = QUEUES_MAX / 64;

/// A queue of an output: the output and a priority, in nine bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueId(u16);

impl QueueId {
    /// Number of bits of an id.
    pub const BITS: u32 = QUEUES_MAX.trailing_zeros();

    /// The queue of `pri` at `output`.
    #[inline]
    #[must_use]
    pub const fn new(output: PortId, pri: Pri) -> Self {
        Self((output.get() as u16) << 3 | pri.get() as u16)
    }

    /// The queue whose id is in the low nine bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u16) -> Self {
        Self(bits % QUEUES_MAX as u16)
    }

    /// The id as a number below [`QUEUES_MAX`].
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Port that the queue's frames leave by.
    #[inline]
    #[must_use]
    pub const fn output(self) -> PortId {
        PortId::from_low_bits((self.0 >> 3) as u8)
    }

    /// Priority of the queue's frames.
    #[inline]
    #[must_use]
    pub const fn pri(self) -> Pri {
        Pri::from_low_bits(self.0 as u8)
    }

    #[inline]
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of queues, as one bit for each [`QueueId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet([u64; WORDS]);

impl QueueSet {
    /// The set without any queue.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds a queue to the set.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "an id is below 512 by construction")]
    pub const fn insert(&mut self, queue: QueueId) {
        self.0[queue.index() / 64 % WORDS] |= 1 << (queue.index() % 64);
    }

    /// Whether the set has a queue.
    #[inline]
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "an id is below 512 by construction")]
    pub const fn contains(&self, queue: QueueId) -> bool {
        self.0[queue.index() / 64 % WORDS] >> (queue.index() % 64) & 1 == 1
    }

    /// Adds all queues of `other`.
    #[inline]
    pub fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, word)| *own |= word);
    }

    /// The queues of the set, lowest output first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = QueueId> + use<> {
        (0..).zip(self.0).flat_map(|(at, word)| Bits(word).map(move |bit| QueueId(at * 64 + bit)))
    }

    /// Whether the set has no queue.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }
}

/// The positions of the set bits of a word, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = u16;

    #[inline]
    fn next(&mut self) -> Option<u16> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros() as u16)?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// One `T` for each queue that a switch can have.
#[derive(Clone, Debug)]
pub struct PerQueue<T>(Box<[T; QUEUES_MAX]>);

impl<T> PerQueue<T> {
    /// Computes each queue's value by `make`.
    #[must_use]
    pub fn from_fn(make: impl FnMut(QueueId) -> T) -> Self {
        let all: Vec<T> = (0..QUEUES_MAX as u16).map(QueueId).map(make).collect();
        match all.into_boxed_slice().try_into() {
            Ok(array) => Self(array),
            Err(_) => unreachable!("made of exactly QUEUES_MAX"),
        }
    }
}

impl<T> Index<QueueId> for PerQueue<T> {
    type Output = T;
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "an id is below 512 by construction")]
    fn index(&self, queue: QueueId) -> &T {
        &self.0[queue.index() % QUEUES_MAX]
    }
}

impl<T> IndexMut<QueueId> for PerQueue<T> {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "an id is below 512 by construction")]
    fn index_mut(&mut self, queue: QueueId) -> &mut T {
        &mut self.0[queue.index() % QUEUES_MAX]
    }
}

/// The demand of a burst: frames and cells for each queue.
#[derive(Debug)]
pub struct Demand {
    /// Frames in the upper half, cells in the lower.
    wanted: PerQueue<u64>,
    queues: QueueSet,
    cells: u32,
}

impl Default for Demand {
    fn default() -> Self {
        Self::new()
    }
}

const FRAME: u64 = 1 << 32;
const _: () = assert!(BURST * FRAME_LEN_MAX < 1 << 32, "cells of a burst never reach the frames");

impl Demand {
    /// The demand of an empty burst.
    #[must_use]
    pub fn new() -> Self {
        Self { wanted: PerQueue::from_fn(|_| 0), queues: QueueSet::EMPTY, cells: 0 }
    }

    /// Adds one frame of `cells` for `queue`.
    #[inline]
    pub fn add(&mut self, queue: QueueId, cells: u32) {
        // Frames and cells in one word: one load and store for each frame instead of two.
        self.wanted[queue] += FRAME | u64::from(cells);
        self.queues.insert(queue);
        self.cells += cells;
    }

    /// Adds `frames` frames, of `cells` together, for `queue`.
    #[inline]
    pub fn add_alike(&mut self, queue: QueueId, frames: usize, cells: u32) {
        self.wanted[queue] += FRAME * frames as u64 + u64::from(cells);
        self.queues.insert(queue);
        self.cells += cells;
    }

    /// Queues for which the burst has frames.
    #[inline]
    #[must_use]
    pub const fn queues(&self) -> &QueueSet {
        &self.queues
    }

    /// Cells of the whole burst.
    #[inline]
    #[must_use]
    pub const fn cells(&self) -> u32 {
        self.cells
    }

    /// Cells of the burst for one queue.
    #[inline]
    #[must_use]
    pub fn cells_of(&self, queue: QueueId) -> u32 {
        self.wanted[queue] as u32
    }

    /// Frames of the burst for one queue.
    #[inline]
    #[must_use]
    pub fn frames_of(&self, queue: QueueId) -> u64 {
        self.wanted[queue] >> 32
    }

    /// Empties the demand; the cost grows with the queues that had frames.
    #[inline]
    pub fn clear(&mut self) {
        for queue in self.queues.iter() {
            self.wanted[queue] = 0;
        }
        (self.queues, self.cells) = (QueueSet::EMPTY, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(output: usize, pri: u8) -> QueueId {
        QueueId::new(PortId::new(output).unwrap(), Pri::new(pri).unwrap())
    }

    #[test]
    fn ids_hold_output_and_priority() {
        for output in 0..PORTS_MAX {
            for pri in Pri::ALL {
                let id = queue(output, pri.get());
                assert_eq!((id.output().index(), id.pri()), (output, pri));
                assert_eq!(QueueId::from_low_bits(id.get()), id);
            }
        }
    }

    #[test]
    fn sets_and_demands_know_what_was_put_in() {
        let all = [queue(0, 0), queue(0, 7), queue(7, 7), queue(8, 0), queue(31, 3), queue(63, 7)];
        let mut set = QueueSet::EMPTY;
        let mut demand = Demand::new();
        for (n, &id) in (1_u32..).zip(&all) {
            set.insert(id);
            demand.add(id, n);
            demand.add(id, 10);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), all);
        assert!(all.iter().all(|&id| set.contains(id)) && !set.contains(queue(0, 1)));
        assert_eq!((demand.queues(), demand.cells()), (&set, 21 + 60));
        assert_eq!((demand.frames_of(all[5]), demand.cells_of(all[5])), (2, 16));
        assert_eq!(demand.frames_of(queue(1, 0)), 0);
        let mut alike = Demand::new();
        alike.add_alike(all[5], 2, 16);
        assert_eq!((alike.frames_of(all[5]), alike.cells_of(all[5]), alike.cells()), (2, 16, 16));
        assert_eq!(alike.queues().iter().collect::<Vec<_>>(), [all[5]]);
        demand.clear();
        assert!(demand.queues().is_empty());
        assert_eq!((demand.frames_of(all[5]), demand.cells_of(all[5]), demand.cells()), (0, 0, 0));
        let mut both = set;
        both.unite(&QueueSet::EMPTY);
        assert_eq!(both, set);
    }
}
