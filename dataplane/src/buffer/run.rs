//! Runs of frames that leave queues of one (output, pri): what they share is looked up once.
//!
//! Shape: [`Leaving`]; `end` settles the shared part.
//! Units: cells.
//! Source: pipeline.md §4.

use super::{Buffer, Lease, Thresholds};
use crate::sync::{AtomicU32, Ordering};
use crate::types::{PortId, Pri};

/// A run of frames that leave the queues of one (output, pri): what they share is looked up once, and
/// what they free of the shared part is given back at the end.
#[must_use = "`end` gives back what the run freed"]
pub struct Leaving<'a> {
    pub(super) buffer: &'a Buffer,
    pub(super) thresholds: &'a Thresholds,
    /// From the first input's VOQ on.
    pub(super) voqs: &'a [AtomicU32],
    /// Words from one input's VOQ to the next input's.
    pub(super) stride: usize,
    pub(super) reserve: u32,
    pub(super) depth: &'a AtomicU32,
    pub(super) pri: Pri,
    pub(super) freed: u64,
    /// Cells of (output, pri) before the run, and those that left since; others may add meanwhile.
    pub(super) depth_before: u32,
    pub(super) left: u32,
    pub(super) solo: bool,
}

impl Leaving<'_> {
    /// Gives back what a lossy frame from `input` took in its VOQ.
    ///
    /// # Panics
    /// When there is no such port.
    #[inline]
    pub fn lossy(&mut self, input: PortId, cells: u32) {
        let word = self.voqs.get(input.index() * self.stride).expect("a port of this switch");
        let before = if self.solo {
            let before = word.load(Ordering::Relaxed);
            debug_assert!(before >= cells, "a queue gives back what it took");
            word.store(before.wrapping_sub(cells), Ordering::Relaxed);
            before
        } else {
            word.fetch_sub(cells, Ordering::Relaxed)
        };
        let over = before.saturating_sub(self.reserve);
        self.freed += u64::from(over.min(cells));
    }

    /// As [`Self::lossy`] and [`Self::shallow`] for a frame of `cells` from each of `inputs`.
    ///
    /// # Panics
    /// When there is no such port.
    #[inline]
    pub fn lossy_alike(&mut self, inputs: impl Iterator<Item = PortId>, cells: u32) {
        let before = self.freed;
        let mut count = 0;
        if self.solo && self.reserve == 0 {
            for input in inputs {
                let word = self.voqs.get(input.index() * self.stride);
                let word = word.expect("a port of this switch");
                word.store(word.load(Ordering::Relaxed).wrapping_sub(cells), Ordering::Relaxed);
                count += 1;
            }
            self.freed = before + u64::from(count * cells); // all of it was shared
        } else {
            for input in inputs {
                self.lossy(input, cells);
                count += 1;
            }
        }
        self.left += count * cells;
    }

    /// As [`Self::lossless`] and [`Self::shallow`] for the last copy of a frame of `cells` from each of
    /// `inputs`.
    #[inline]
    pub fn lossless_alike(
        &mut self,
        lease: &mut Lease,
        inputs: impl Iterator<Item = PortId>,
        cells: u32,
    ) {
        for input in inputs {
            self.lossless(lease, input, cells);
            self.left += cells;
        }
    }

    /// Gives back what a lossless frame from `input` took in its group.
    #[inline]
    pub fn lossless(&self, lease: &mut Lease, input: PortId, cells: u32) {
        self.buffer.release_group(lease, self.thresholds, (input, self.pri), cells);
    }

    /// Notes that a copy left; returns the depth of (output, pri) before, in cells.
    #[inline]
    #[must_use]
    pub const fn shallow(&mut self, cells: u32) -> u32 {
        let before = self.depth_before.wrapping_sub(self.left);
        self.left += cells;
        before
    }

    /// Cells of (output, pri) that the run has left.
    #[inline]
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth_before.wrapping_sub(self.left)
    }

    /// Ends the run.
    #[inline]
    pub fn end(self, lease: &mut Lease) {
        self.buffer.sub(self.depth, self.left);
        self.buffer.give_back(lease, self.freed);
    }
}
