//! Tallies: departures that a worker counts, so that no counter of the buffer has two writers.
//!
//! [`Tally`] is written by one worker: cells queued for and departed from each (output, pri), and
//! departures from queues of other workers' inputs, which those workers fold into their own
//! counters.
//!
//! Units: cells, as wrapping sums.
//! Source: docs/spec/pipeline.md §4; counters split by writer ([`weft_base::counters`]).

use weft_base::counters::{LINE, PerThreadCounters, sub};
use weft_base::sync::{AtomicU32, Ordering, fence};

use super::{Buffer, Lease, Thresholds, over};
use crate::types::{GroupKey, PRIS_MAX, PortId, Pri, PriSet, QueueKey};

/// The counters of one worker.
pub(super) struct Tally {
    pris: usize,
    /// By (output, pri): cells queued so far; with one worker, cells that are still queued.
    entered: PerThreadCounters,
    /// By (output, pri): cells that left.
    left: PerThreadCounters,
    /// By (output, pri, input). For VOQs of other workers' inputs: cells that this worker saw leave. For its
    /// own: minus the cells that it has folded in. So the sum over all workers is the cells that are
    /// still to be folded in.
    voq: PerThreadCounters,
    row: usize,
    /// For groups, by (input, pri), in the same way.
    group: PerThreadCounters,
    /// By (output, pri, input): copies of lossless frames that left, wrapping.
    gone: PerThreadCounters,
    /// Two counters: unused cells of its lease, and cells of headroom in use by its groups.
    own: PerThreadCounters,
}

impl Tally {
    pub fn new(ports: usize, pris: usize, single_worker: bool) -> Self {
        // A single worker changes the queues' counters itself, and saves the memory.
        let unless_single = |count| PerThreadCounters::new(if single_worker { 0 } else { count });
        // A cache line for each (output, pri): a run of departures stays within it.
        let row = ports.next_multiple_of(LINE);
        Self {
            pris,
            entered: PerThreadCounters::new(ports * pris),
            left: unless_single(ports * pris),
            voq: unless_single(ports * pris * row),
            row,
            group: unless_single(ports * PRIS_MAX),
            gone: unless_single(ports * pris * row),
            own: PerThreadCounters::new(2),
        }
    }

    /// Cells of the shared part that this worker has taken ahead and not used.
    #[inline]
    pub fn leased(&self) -> &AtomicU32 {
        self.own.at(0)
    }

    /// Cells of headroom that groups of this worker use, as far as it knows.
    #[inline]
    pub fn headroom(&self) -> &AtomicU32 {
        self.own.at(1)
    }

    /// Cells queued for (output, pri).
    #[inline]
    pub fn entered(&self, output: PortId, pri: Pri) -> &AtomicU32 {
        self.entered.at(output.index() * self.pris + pri.index())
    }

    /// Cells that left (output, pri).
    #[inline]
    pub fn left(&self, output: PortId, pri: Pri) -> &AtomicU32 {
        self.left.at(output.index() * self.pris + pri.index())
    }

    /// Departures of a VOQ, less those folded in.
    #[inline]
    pub fn voq(&self, QueueKey { input, output, pri }: QueueKey) -> &AtomicU32 {
        let queue = output.index() * self.pris + pri.index();
        self.voq.at(queue * self.row + input.index())
    }

    /// Copies of lossless frames of (input, output, pri) that left.
    #[inline]
    pub fn gone(&self, QueueKey { input, output, pri }: QueueKey) -> &AtomicU32 {
        let queue = output.index() * self.pris + pri.index();
        self.gone.at(queue * self.row + input.index())
    }

    /// Departures of a group, less those folded in.
    #[inline]
    pub fn group(&self, input: PortId, pri: Pri) -> &AtomicU32 {
        self.group.at(input.index() * PRIS_MAX + pri.index())
    }
}

/// Sum of one counter over all workers, wrapping.
#[inline]
fn sum<'a>(workers: &'a [Tally], of: impl Fn(&'a Tally) -> &'a AtomicU32) -> u32 {
    let add = |sum: u32, tally| sum.wrapping_add(of(tally).load(Ordering::Relaxed));
    workers.iter().fold(0, add)
}

impl Buffer {
    /// Cells queued for (output, pri), VOQs and egress queue together; a replicated frame counts at
    /// each of its outputs. Never fewer than there are, even while other workers change it.
    #[inline]
    #[must_use]
    pub fn depth(&self, output: PortId, pri: Pri) -> u32 {
        if self.single_worker {
            return sum(&self.workers, |tally| tally.entered(output, pri));
        }
        let left = sum(&self.workers, |tally| tally.left(output, pri));
        // Pairs with the Release store of `Leaving::end`: cells that are seen to have left are then seen
        // to have entered, too, so that the difference never wraps below 0.
        fence(Ordering::Acquire);
        sum(&self.workers, |tally| tally.entered(output, pri)).wrapping_sub(left)
    }

    /// Copies of lossless frames of (input, output, pri) that left. 0 with one worker, which takes
    /// them off where it added them.
    #[inline]
    pub(super) fn gone(&self, voq: QueueKey) -> u32 {
        if self.single_worker { 0 } else { sum(&self.workers, |tally| tally.gone(voq)) }
    }

    /// Cells that left a VOQ by other workers, and that its own worker has not folded in yet.
    #[inline]
    pub(super) fn unseen_of_voq(&self, voq: QueueKey) -> u32 {
        if self.single_worker { 0 } else { sum(&self.workers, |tally| tally.voq(voq)) }
    }

    /// Cells that left a group by other workers, and that its own worker has not folded in yet.
    #[inline]
    pub(super) fn unseen_of_group(&self, input: PortId, pri: Pri) -> u32 {
        if self.single_worker { 0 } else { sum(&self.workers, |tally| tally.group(input, pri)) }
    }

    /// Folds departures that other workers have noted into a VOQ of this worker's; returns the
    /// cells that it uses then.
    #[inline(never)] // rare: when it seems to be full
    pub(super) fn fold_voq(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        QueueKey { input, output, pri }: QueueKey,
    ) -> u32 {
        let word = self.voq.at(self.voq_at(QueueKey { input, output, pri }));
        let unseen = self.unseen_of_voq(QueueKey { input, output, pri });
        if unseen == 0 {
            return word.load(Ordering::Relaxed);
        }
        // Taken off this worker's own tally, as it may not write the others': the sum over all is 0 then.
        sub(self.tally(lease).voq(QueueKey { input, output, pri }), unseen);
        let before = sub(word, unseen);
        let after = before.wrapping_sub(unseen);
        let reserve = thresholds.voq_reserve();
        // Without a reserve, the worker that saw the frames leave has returned their cells already
        // (`Leaving::lossy`).
        if reserve > 0 {
            self.give_back(lease, over(before, reserve) - over(after, reserve));
        }
        after
    }

    /// Folds departures that other workers have noted into a group of this worker's.
    #[inline]
    pub(super) fn fold_group(&self, lease: &mut Lease, thresholds: &Thresholds, group: GroupKey) {
        let GroupKey { input, pri } = group;
        let unseen = self.unseen_of_group(input, pri);
        if unseen > 0 {
            sub(self.tally(lease).group(input, pri), unseen);
            let freed = self.release(self.tally(lease), thresholds, group, unseen);
            self.give_back(lease, freed);
        }
    }

    /// Uncharges lossless frames from a group of this worker's, from its headroom first; returns
    /// how many cells of the shared part that frees.
    #[inline]
    #[must_use = "to be given back"]
    pub(super) fn release(
        &self,
        tally: &Tally,
        thresholds: &Thresholds,
        GroupKey { input, pri }: GroupKey,
        cells: u32,
    ) -> u64 {
        let head = self.headroom_word(input, pri);
        // Headroom first, whichever frame leaves: a group resumes only with its headroom empty
        // (`Lane::groups`), and its next XOFF needs all of it.
        let from_head = head.load(Ordering::Relaxed).min(cells);
        if from_head > 0 {
            sub(head, from_head);
            sub(tally.headroom(), from_head);
        }
        let rest = cells - from_head;
        if rest == 0 {
            return 0;
        }
        let reserve = thresholds.group_reserve();
        let before = sub(self.group_word(input, pri), rest);
        debug_assert!(before >= rest, "a queue gives back what it took");
        over(before, reserve) - over(before.saturating_sub(rest), reserve)
    }

    /// Folds departures that other workers have noted into this worker's groups of priorities
    /// `lossless`, and into its VOQs if these have a reserve. True if any of these still uses a
    /// cell, so that more departures are to come.
    pub fn catch_up(&self, lease: &mut Lease, thresholds: &Thresholds, lossless: PriSet) -> bool {
        if self.single_worker {
            return false;
        }
        let mut uses = false;
        for input in lease.inputs.iter() {
            for pri in lossless.iter() {
                let cells = || {
                    let group = self.group_word(input, pri).load(Ordering::Relaxed);
                    group + self.headroom_word(input, pri).load(Ordering::Relaxed)
                };
                if cells() > 0 {
                    self.fold_group(lease, thresholds, GroupKey { input, pri });
                    uses |= cells() > 0;
                }
            }
            // VOQs without a reserve can wait until they seem full: folding them in returns no
            // cells.
            if thresholds.voq_reserve() > 0 {
                uses |= self.fold_voqs(lease, thresholds, input);
            }
        }
        uses
    }

    fn fold_voqs(&self, lease: &mut Lease, thresholds: &Thresholds, input: PortId) -> bool {
        let mut uses = false;
        for output in self.ports() {
            for pri in Pri::ALL.into_iter().take(self.pris) {
                let word = self.voq.at(self.voq_at(QueueKey { input, output, pri }));
                if word.load(Ordering::Relaxed) > 0 {
                    let voq = QueueKey { input, output, pri };
                    uses |= self.fold_voq(lease, thresholds, voq) > 0;
                }
            }
        }
        uses
    }
}
