//! Runs of frames that leave the queues of one (output, pri), with shared look-ups.
//!
//! [`Leaving`] collects what the frames free, and `end` returns it to the shared part.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4.

use weft_base::counters::{add, sub};
use weft_base::sync::{AtomicU32, Ordering};

use super::tally::Tally;
use super::{Buffer, Lease, Thresholds, over};
use crate::types::{GroupKey, PortId, PortSet, Pri, QueueKey};

/// A run of frames that leave the queues of one (output, pri). It looks up once the counters that
/// the frames share, and returns at the end the cells of the shared part that they freed.
#[must_use = "`end` gives back what the run freed"]
pub struct Leaving<'a> {
    buffer: &'a Buffer,
    thresholds: &'a Thresholds,
    tally: &'a Tally,
    /// Inputs whose counters this worker writes.
    own: PortSet,
    /// Counters of VOQs, from the first input's VOQ of (output, pri) on; the next input's is `stride` further.
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
            voqs: self.voq.from(self.voq_at(QueueKey { input: PortId::default(), output, pri })),
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

    /// Uncharges a lossy frame from `input` from its VOQ.
    #[inline]
    pub fn lossy(&mut self, input: PortId, cells: u32) {
        if self.buffer.single_worker || self.own.contains(input) {
            let before = sub(self.voq(input), cells);
            debug_assert!(before >= cells, "a queue gives back what it took");
            self.freed += over(before, self.reserve).min(u64::from(cells));
        } else {
            // The VOQ's counter belongs to another worker. With a reserve only that one can say
            // which part of these cells was shared, and returns it when it folds them in
            // (`Buffer::fold_voq`).
            add(self.tally.voq(QueueKey { input, output: self.output, pri: self.pri }), cells);
            if self.reserve == 0 {
                self.freed += u64::from(cells); // all of it was shared
            }
        }
    }

    /// Like [`Self::lossy`] and [`Self::shallow`] for a frame of `cells` from each of `inputs`.
    #[inline]
    pub fn lossy_alike(&mut self, inputs: impl Iterator<Item = PortId>, cells: u32) {
        let mut count = 0;
        // The common case in a loop without branches: every cell of a VOQ is shared.
        if self.buffer.single_worker && self.reserve == 0 {
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

    /// Like [`Self::copy_of`], [`Self::lossless`] and [`Self::shallow`] for the only copy of a
    /// frame of `cells` from each of `inputs`.
    #[inline]
    pub fn lossless_alike(&mut self, inputs: impl Iterator<Item = PortId>, cells: u32) {
        let mut count = 0;
        if self.buffer.single_worker {
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

    /// Counts that a copy of a lossless frame from `input` left.
    #[inline]
    pub fn copy_of(&self, input: PortId) {
        if self.buffer.single_worker {
            let before = sub(
                self.buffer.standing_word(QueueKey { input, output: self.output, pri: self.pri }),
                1,
            );
            debug_assert!(before > 0, "who leaves was counted");
        } else {
            add(self.tally.gone(QueueKey { input, output: self.output, pri: self.pri }), 1);
        }
    }

    /// Uncharges a lossless frame from `input` from its group, when its last copy leaves.
    #[inline]
    pub fn lossless(&mut self, input: PortId, cells: u32) {
        if self.buffer.single_worker || self.own.contains(input) {
            let group = GroupKey { input, pri: self.pri };
            self.freed += self.buffer.release(self.tally, self.thresholds, group, cells);
        } else {
            // Whether these cells were headroom, reserve or shared is for the owner to say: it
            // folds them in (`Buffer::fold_group`) and returns the shared ones.
            add(self.tally.group(input, self.pri), cells);
        }
    }

    /// Counts that a copy left; returns the depth of (output, pri) before, in cells.
    #[inline]
    #[must_use]
    pub const fn shallow(&mut self, cells: u32) -> u32 {
        let before = self.depth();
        self.left += cells;
        before
    }

    /// Cells of (output, pri) that are left after the frames of this run so far.
    #[inline]
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth_before.wrapping_sub(self.left)
    }

    /// With several workers, cells of (output, pri) before the run: only the worker of the output
    /// sees how deep its queues get, as they fill from several sides. `None` with one worker, which
    /// notes depths where it enqueues.
    #[inline]
    #[must_use]
    pub const fn depth_of_all(&self) -> Option<u32> {
        if self.buffer.single_worker { None } else { Some(self.depth_before) }
    }

    /// Ends the run: publishes its departures, and returns the cells of the shared part that they
    /// freed.
    #[inline]
    pub fn end(self, lease: &mut Lease) {
        if self.buffer.single_worker {
            sub(self.tally.entered(self.output, self.pri), self.left);
        } else {
            let word = self.tally.left(self.output, self.pri);
            let left = word.load(Ordering::Relaxed).wrapping_add(self.left);
            // Pairs with the fence of `Buffer::depth`. This worker has seen these frames arrive, so a
            // reader who sees them gone sees them counted as arrived, too, and no depth below 0.
            word.store(left, Ordering::Release);
        }
        self.buffer.give_back(lease, self.freed);
    }
}
