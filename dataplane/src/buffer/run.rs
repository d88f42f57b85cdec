//! Runs of frames that leave queues of one (output, pri): what they share is looked up once.
//!
//! [`Leaving`]; `end` settles the shared part.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4.

use weft_base::counters::{add, sub};
use weft_base::sync::{AtomicU32, Ordering};

use super::tally::Tally;
use super::{Buffer, Lease, Thresholds, over};
use crate::types::{GroupKey, PortId, PortSet, Pri};

/// A run of frames that leave the queues of one (output, pri): what they share is looked up once, and
/// what they free of the shared part is given back at the end.
#[must_use = "`end` gives back what the run freed"]
pub struct Leaving<'a> {
    buffer: &'a Buffer,
    thresholds: &'a Thresholds,
    tally: &'a Tally,
    /// Inputs whose counts this worker writes.
    own: PortSet,
    /// From the first input's VOQ on.
    voqs: &'a [AtomicU32],
    output: PortId,
    pri: Pri,
    reserve: u32,
    freed: u64,
    /// Cells of (output, pri) before the run, and those that left since; others may add meanwhile.
    depth_before: u32,
    left: u32,
}

impl Buffer {
    /// Begins a run of frames that leave the queues of (output, pri).
    #[inline]
    pub fn leaving<'a>(
        &'a self,
        lease: &Lease,
        thresholds: &'a Thresholds,
        output: PortId,
        pri: Pri,
    ) -> Leaving<'a> {
        Leaving {
            buffer: self,
            thresholds,
            tally: self.tally(lease),
            own: lease.inputs,
            voqs: self.voq.from(self.voq_at(PortId::default(), output, pri)),
            output,
            pri,
            reserve: thresholds.voq_reserve(),
            freed: 0,
            depth_before: self.depth(output, pri),
            left: 0,
        }
    }
}

impl<'a> Leaving<'a> {
    #[inline]
    fn voq(&self, input: PortId) -> &'a AtomicU32 {
        self.voqs.get(input.index() * self.buffer.stride).expect("a port of this switch")
    }

    /// Gives back what a lossy frame from `input` took in its VOQ.
    #[inline]
    pub fn lossy(&mut self, input: PortId, cells: u32) {
        if self.buffer.solo || self.own.contains(input) {
            let before = sub(self.voq(input), cells);
            debug_assert!(before >= cells, "a queue gives back what it took");
            self.freed += over(before, self.reserve).min(u64::from(cells));
        } else {
            add(self.tally.voq(input, self.output, self.pri), cells);
            if self.reserve == 0 {
                self.freed += u64::from(cells); // all of it was shared
            }
        }
    }

    /// As [`Self::lossy`] and [`Self::shallow`] for a frame of `cells` from each of `inputs`.
    #[inline]
    pub fn lossy_alike(&mut self, inputs: impl Iterator<Item = PortId>, cells: u32) {
        let mut count = 0;
        if self.buffer.solo && self.reserve == 0 {
            for input in inputs {
                sub(self.voq(input), cells);
                count += 1;
            }
            self.freed += u64::from(count * cells); // all of it was shared
        } else {
            for input in inputs {
                self.lossy(input, cells);
                count += 1;
            }
        }
        self.left += count * cells;
    }

    /// As [`Self::copy_of`], [`Self::lossless`] and [`Self::shallow`] for the only copy of a frame of `cells` from each of
    /// `inputs`.
    #[inline]
    pub fn lossless_alike(&mut self, inputs: impl Iterator<Item = PortId>, cells: u32) {
        let mut count = 0;
        if self.buffer.solo {
            let mut freed = 0;
            for input in inputs {
                self.copy_of(input);
                let group = GroupKey { input, pri: self.pri };
                freed += self.buffer.release(self.tally, self.thresholds, group, cells);
                count += 1;
            }
            self.freed += freed;
        } else {
            for input in inputs {
                self.copy_of(input);
                self.lossless(input, cells);
                count += 1;
            }
        }
        self.left += count * cells;
    }

    /// Notes that a copy of a lossless frame from `input` left.
    #[inline]
    pub fn copy_of(&self, input: PortId) {
        if self.buffer.solo {
            let before = sub(self.buffer.standing_word(input, self.output, self.pri), 1);
            debug_assert!(before > 0, "who leaves was counted");
        } else {
            add(self.tally.gone(input, self.output, self.pri), 1);
        }
    }

    /// Gives back what a lossless frame from `input` took in its group.
    #[inline]
    pub fn lossless(&mut self, input: PortId, cells: u32) {
        if self.buffer.solo || self.own.contains(input) {
            let group = GroupKey { input, pri: self.pri };
            self.freed += self.buffer.release(self.tally, self.thresholds, group, cells);
        } else {
            add(self.tally.group(input, self.pri), cells);
        }
    }

    /// Notes that a copy left; returns the depth of (output, pri) before, in cells.
    #[inline]
    #[must_use]
    pub const fn shallow(&mut self, cells: u32) -> u32 {
        let before = self.depth();
        self.left += cells;
        before
    }

    /// Cells of (output, pri) that the run has left.
    #[inline]
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth_before.wrapping_sub(self.left)
    }

    /// Cells of (output, pri) before the run, where there are several workers, of whom none knows
    /// otherwise.
    #[inline]
    #[must_use]
    pub const fn depth_of_all(&self) -> Option<u32> {
        if self.buffer.solo { None } else { Some(self.depth_before) }
    }

    /// Ends the run.
    #[inline]
    pub fn end(self, lease: &mut Lease) {
        if self.buffer.solo {
            sub(self.tally.entered(self.output, self.pri), self.left);
        } else {
            let word = self.tally.left(self.output, self.pri);
            let left = word.load(Ordering::Relaxed).wrapping_add(self.left);
            word.store(left, Ordering::Release); // pairs with `Buffer::depth`
        }
        self.buffer.give_back(lease, self.freed);
    }
}
