//! Shared buffer: who may queue how much, by dynamic thresholds, with headroom for lossless groups.
//!
//! Cells used per VOQ (lossy), per ingress group (lossless, shared part and headroom apart),
//! per (output, pri), and of the shared part in all; frames of lossless priorities per (input, output,
//! pri). Every word but that of the shared part has one writer: what a queue
//! uses is known to its input's worker, which folds in what other workers let leave; [`Lease`] is one
//! worker's hold.
//!
//! Units: cells.
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches" (1998);
//! docs/spec/pipeline.md §4.

mod headroom;
mod plan;
mod run;
mod tally;

pub use headroom::{Headroom, live_cells};
pub use plan::{BufferError, BufferPlan, Thresholds};
pub use run::Leaving;
use weft_base::counters::{LINE, PerThreadCounters, add};
use weft_base::sync::{AtomicU32, AtomicU64, Ordering, fence};

use crate::queues::{Demand, QueueId};
use crate::stats::DropReason;
use crate::types::{GroupKey, PORTS_MAX, PRIS_MAX, PerPri, PortId, PortSet, Pri, PriSet, QueueKey};
use tally::Tally;

/// Cells that a worker takes from or gives back to the shared part at once, when there are several.
const LEASE: u64 = 64;
/// Cells of the shared part that a worker may hold and not use, when there are several.
pub const LEASED_MAX: u64 = 2 * LEASE;

/// What became of a frame that asked for room, with the numbers that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The answer.
    pub verdict: Verdict,
    /// Cells of the queue before the frame; without headroom for a group.
    pub used: u32,
    /// The most that the queue might hold.
    pub limit: u32,
}

/// What a queue holds, and the bounds on it.
#[derive(Clone, Copy)]
struct Occupancy {
    /// Cells that it holds.
    used: u32,
    /// The most that it may hold.
    limit: u32,
    /// Of those, cells that are its own.
    reserve: u32,
    /// Cells of the shared part, in use or not, that the rest is taken from.
    total: u64,
}

/// Whether a frame got room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the queue's reserve or the shared part.
    Queue,
    /// In the group's headroom: its XOFF is crossed.
    Headroom,
    /// Nowhere.
    Drop(DropReason),
}

/// One worker's hold on the buffer: cells of the shared part taken ahead, so that workers rarely meet, and
/// the inputs whose counts it writes.
#[derive(Debug)]
pub struct Lease {
    cells: u64,
    worker: usize,
    inputs: PortSet,
}

impl Lease {
    /// The hold of worker `worker`, which receives from `inputs`.
    #[must_use]
    pub const fn new(worker: usize, inputs: PortSet) -> Self {
        Self { cells: 0, worker, inputs }
    }
}

impl Default for Lease {
    /// That of the only worker.
    fn default() -> Self {
        Self::new(0, PortSet::first(PORTS_MAX))
    }
}

/// A count that all workers write, alone on its cache line.
#[repr(align(64))]
struct Shared(AtomicU64);

/// The shared buffer's counters: cells in use by VOQ, ingress group, output and priority, and of the shared part.
pub struct Buffer {
    pris: usize,
    ports: usize,
    /// One thread does all: what frames leave free is known at once.
    solo: bool,
    /// By input, output and priority, as the input's worker knows it; each input has its own lines.
    voq: PerThreadCounters,
    stride: usize,
    /// By input, a line each: groups by priority, then their headroom.
    group: PerThreadCounters,
    /// As `voq`: copies of lossless frames that were queued, wrapping; alone, those that still are.
    standing: PerThreadCounters,
    shared: Shared,
    workers: Box<[Tally]>,
}

impl Buffer {
    /// An empty buffer of a switch with so many workers; alone, one saves what it takes to know what
    /// others let leave.
    #[must_use]
    pub fn new(ports: usize, pris: usize, workers: usize) -> Self {
        let stride = (ports * pris).next_multiple_of(LINE);
        let solo = workers <= 1;
        Self {
            pris,
            ports,
            solo,
            voq: PerThreadCounters::new(ports * stride),
            stride,
            group: PerThreadCounters::new(ports * LINE),
            standing: PerThreadCounters::new(ports * stride),
            shared: Shared(AtomicU64::new(0)),
            workers: (0..workers.max(1)).map(|_| Tally::new(ports, pris, solo)).collect(),
        }
    }

    #[inline]
    const fn voq_at(&self, input: PortId, output: PortId, pri: Pri) -> usize {
        input.index() * self.stride + output.index() * self.pris + pri.index()
    }

    #[inline]
    fn standing_word(&self, input: PortId, output: PortId, pri: Pri) -> &AtomicU32 {
        self.standing.at(self.voq_at(input, output, pri))
    }

    #[inline]
    fn group_word(&self, input: PortId, pri: Pri) -> &AtomicU32 {
        self.group.at(input.index() * LINE + pri.index())
    }

    #[inline]
    fn headroom_word(&self, input: PortId, pri: Pri) -> &AtomicU32 {
        self.group.at(input.index() * LINE + PRIS_MAX + pri.index())
    }

    #[inline]
    fn tally(&self, lease: &Lease) -> &Tally {
        self.workers.get(lease.worker).expect("a worker of this switch")
    }

    /// Whether one thread does all.
    #[inline]
    #[must_use]
    pub const fn is_solo(&self) -> bool {
        self.solo
    }

    /// Takes up to what is wanted for the lease; true if it now holds `need`.
    #[inline]
    fn reserve(&self, lease: &mut Lease, need: u64, total: u64) -> bool {
        if lease.cells >= need {
            return true;
        }
        let short = need - lease.cells;
        for want in [short.max(LEASE), short] {
            let used = self.shared.0.fetch_add(want, Ordering::Relaxed);
            if used + want <= total {
                lease.cells += want;
                return true;
            }
            self.shared.0.fetch_sub(want, Ordering::Relaxed);
        }
        false
    }

    #[inline]
    fn give_back(&self, lease: &mut Lease, cells: u64) {
        if self.solo {
            let used = self.shared.0.load(Ordering::Relaxed);
            debug_assert!(used >= cells, "a queue gives back what it took");
            self.shared.0.store(used.wrapping_sub(cells), Ordering::Relaxed);
            return;
        }
        lease.cells += cells;
        if lease.cells >= LEASED_MAX {
            self.shared.0.fetch_sub(lease.cells - LEASE, Ordering::Relaxed);
            lease.cells = LEASE;
        }
    }

    /// Gives all of a lease back: when a worker idles or stops.
    pub fn settle(&self, lease: &mut Lease) {
        let cells = core::mem::take(&mut lease.cells);
        if cells > 0 {
            self.shared.0.fetch_sub(cells, Ordering::Relaxed);
            self.tell_lease(lease);
        }
    }

    /// Lets others know how much of a lease is free.
    #[inline]
    fn tell_lease(&self, lease: &Lease) {
        let free = u32::try_from(lease.cells).unwrap_or(u32::MAX);
        self.tally(lease).leased().store(free, Ordering::Relaxed);
    }

    /// Cells of the shared part in use, at the end of a burst of this worker's, if they are above `most`. With several
    /// workers, those count that left and that the worker of their input has not heard of yet.
    #[inline]
    #[must_use]
    pub fn shared_above(&self, lease: &Lease, most: u64) -> Option<u64> {
        let taken = self.shared.0.load(Ordering::Relaxed);
        if self.solo {
            return Some(taken).filter(|&taken| taken > most);
        }
        self.tell_lease(lease);
        if taken <= most {
            return None;
        }
        let leased = |tally: &Tally| u64::from(tally.leased().load(Ordering::Relaxed));
        let free: u64 = self.workers.iter().map(leased).sum();
        Some(taken.saturating_sub(free)).filter(|&used| used > most)
    }

    /// Cells of headroom in use by all groups, as their workers know it.
    #[must_use]
    pub fn headroom_known(&self) -> u64 {
        self.workers.iter().map(|tally| u64::from(tally.headroom().load(Ordering::Relaxed))).sum()
    }

    /// Cells of headroom in use by all groups; exact while no worker changes anything.
    #[must_use]
    pub fn headroom_in_all(&self) -> u64 {
        self.groups().map(|(input, pri)| u64::from(self.headroom_used(input, pri))).sum()
    }

    /// What the shared part has left, as this worker sees it.
    #[inline]
    fn free(&self, lease: &Lease, total: u64) -> u64 {
        (total + lease.cells).saturating_sub(self.shared.0.load(Ordering::Relaxed))
    }

    /// Asks for room in a queue of this worker's; charges `word` if granted.
    #[inline]
    fn charge(
        &self,
        lease: &mut Lease,
        word: &AtomicU32,
        Occupancy { used, limit, reserve, total }: Occupancy,
        cells: u32,
    ) -> bool {
        let Some(after) = used.checked_add(cells).filter(|&after| after <= limit) else {
            return false;
        };
        let need = over(after, reserve) - over(used, reserve);
        if self.solo {
            // Nobody else changes anything meanwhile, and a lease is used up at once.
            debug_assert_eq!(lease.cells, 0, "alone, nothing is taken ahead");
            let shared = self.shared.0.load(Ordering::Relaxed);
            if shared + need > total {
                return false;
            }
            self.shared.0.store(shared + need, Ordering::Relaxed);
        } else if self.reserve(lease, need, total) {
            lease.cells -= need;
        } else {
            return false;
        }
        word.store(after, Ordering::Relaxed);
        true
    }

    /// Asks for room for a lossy frame of `cells` in its VOQ (input, output, priority), whose input is this worker's, and charges
    /// it.
    #[expect(clippy::inline_always, reason = "once a frame; a call costs a fifth of what it does")]
    #[inline(always)]
    pub fn admit_voq(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        voq: QueueKey,
        cells: u32,
    ) -> Admission {
        let QueueKey { input, output, pri } = voq;
        let used = self.voq.at(self.voq_at(input, output, pri)).load(Ordering::Relaxed);
        let known = self.admit_with(lease, thresholds, voq, used, cells);
        if self.solo || known.verdict == Verdict::Queue {
            return known;
        }
        self.admit_folded_voq(lease, thresholds, voq, cells)
    }

    /// As [`Self::admit_voq`] where that has no room by what this worker knows: with what others let leave of the VOQ, which
    /// lowers what it uses and, with a reserve, gives back cells of the shared part.
    #[inline(never)] // rare: when it seems to be full
    fn admit_folded_voq(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        voq: QueueKey,
        cells: u32,
    ) -> Admission {
        let used = self.fold_voq(lease, thresholds, voq);
        self.admit_with(lease, thresholds, voq, used, cells)
    }

    /// Charges a frame to a VOQ that holds `used` cells, if that leaves it within its limit.
    #[expect(clippy::inline_always, reason = "once a frame, as `admit_voq`")]
    #[inline(always)]
    fn admit_with(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        voq: QueueKey,
        used: u32,
        cells: u32,
    ) -> Admission {
        let QueueKey { input, output, pri } = voq;
        let free = self.free(lease, thresholds.shared);
        let limit = thresholds.voq_limit_with(pri, free);
        let (reserve, total) = (thresholds.voq_reserve(), thresholds.shared);
        let word = self.voq.at(self.voq_at(input, output, pri));
        let occupancy = Occupancy { used, limit, reserve, total };
        let verdict = if self.charge(lease, word, occupancy, cells) {
            self.deepen(lease, output, pri, cells);
            Verdict::Queue
        } else {
            Verdict::Drop(DropReason::Dt)
        };
        Admission { verdict, used, limit }
    }

    /// Asks for room for all frames of a burst of `input`, this worker's, where priorities `lossless` are
    /// charged to their groups, and charges them; false, and nothing charged, if they must be asked one by
    /// one: static shares, or any frame could be refused or cross XOFF.
    ///
    /// The limit falls as the buffer fills: a queue that is within it after all of the burst was within
    /// it at each frame before.
    #[inline(never)] // on its own it keeps its state in registers
    pub fn admit_all(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        input: PortId,
        lossless: PriSet,
        demand: &Demand,
    ) -> bool {
        let Some(groups) = self.burst_fits(lease, thresholds, input, lossless, demand) else {
            return false;
        };
        let wanted = u64::from(demand.cells());
        if !self.solo && !self.reserve(lease, wanted, thresholds.shared) {
            return false;
        }
        self.charge_burst(lease, thresholds, input, lossless, demand, &groups);
        true
    }

    /// The VOQs of an input, and where in them a queue is.
    #[inline]
    fn voqs_of<'a>(&'a self, input: PortId) -> Option<impl Fn(QueueId) -> Option<&'a AtomicU32>> {
        let voqs = self.voq.from(input.index() * self.stride).get(..self.stride)?;
        let pris = self.pris;
        Some(move |queue: QueueId| voqs.get(queue.output().index() * pris + queue.pri().index()))
    }

    /// Cells of a burst for each ingress group, if no frame of it could be refused or cross XOFF.
    #[expect(clippy::inline_always, reason = "one function with `admit_all` but for its reader")]
    #[inline(always)]
    fn burst_fits(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        input: PortId,
        lossless: PriSet,
        demand: &Demand,
    ) -> Option<PerPri<u32>> {
        let left = self.free(lease, thresholds.shared).checked_sub(u64::from(demand.cells()));
        let left = left.filter(|_| thresholds.admit_bursts())?;
        let word = self.voqs_of(input)?;
        let mut groups = PerPri::<u32>::default();
        for queue in demand.queues().iter() {
            let (pri, cells) = (queue.pri(), demand.cells_of(queue));
            if lossless.contains(pri) {
                groups[pri] += cells;
                continue;
            }
            let limit = thresholds.dynamic(thresholds.voq_reserve, pri, left);
            if word(queue)?.load(Ordering::Relaxed) + cells <= limit {
                continue; // a sum far below 2^31
            }
            let voq = QueueKey { input, output: queue.output(), pri };
            if self.solo || self.fold_voq(lease, thresholds, voq) + cells > limit {
                return None;
            }
        }
        for pri in lossless.iter() {
            let after = self.group_word(input, pri).load(Ordering::Relaxed) + groups[pri];
            if groups[pri] > 0 && after > thresholds.dynamic(thresholds.pg_reserve, pri, left) {
                return None;
            }
        }
        Some(groups)
    }

    /// Charges a burst that fits, with its cells for each ingress group.
    #[expect(clippy::inline_always, reason = "one function with `admit_all` but for its reader")]
    #[inline(always)]
    fn charge_burst(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        input: PortId,
        lossless: PriSet,
        demand: &Demand,
        groups: &PerPri<u32>,
    ) {
        let mut taken = 0;
        let mut charge = |word: &AtomicU32, cells: u32, reserve: u32| {
            let before = add(word, cells);
            taken += over(before + cells, reserve) - over(before, reserve);
        };
        for pri in lossless.iter() {
            charge(self.group_word(input, pri), groups[pri], thresholds.pg_reserve);
        }
        let word = self.voqs_of(input);
        let tally = self.tally(lease);
        for queue in demand.queues().iter() {
            let cells = demand.cells_of(queue);
            add(tally.entered(queue.output(), queue.pri()), cells);
            if lossless.contains(queue.pri()) {
                let frames = u32::try_from(demand.frames_of(queue)).unwrap_or(u32::MAX); // a burst's
                add(self.standing_word(input, queue.output(), queue.pri()), frames);
            } else if let Some(word) = word.as_ref().and_then(|word| word(queue)) {
                charge(word, cells, thresholds.voq_reserve);
            }
        }
        if self.solo {
            let used = self.shared.0.load(Ordering::Relaxed);
            self.shared.0.store(used + taken, Ordering::Relaxed);
        } else {
            lease.cells -= taken;
        }
    }

    /// The limit of an ingress group: its XOFF.
    #[inline]
    #[must_use]
    pub fn group_limit(&self, lease: &Lease, thresholds: &Thresholds, pri: Pri) -> u32 {
        thresholds.group_limit_with(pri, self.free(lease, thresholds.shared))
    }

    /// Asks for room for a lossless frame of `cells` in its ingress group, whose input is this worker's, and
    /// charges it there, or in the headroom. Each output that gets a copy is told by [`Self::deepen_by`].
    #[inline]
    pub fn admit_group(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        group: GroupKey,
        cells: u32,
    ) -> Admission {
        let GroupKey { input, pri } = group;
        let word = self.group_word(input, pri);
        let mut used = word.load(Ordering::Relaxed);
        let mut limit = self.group_limit(lease, thresholds, pri);
        let (reserve, total) = (thresholds.group_reserve(), thresholds.shared);
        let occupancy = Occupancy { used, limit, reserve, total };
        let mut fits = self.charge(lease, word, occupancy, cells);
        if !fits && !self.solo {
            self.fold_group(lease, thresholds, group);
            used = word.load(Ordering::Relaxed);
            limit = self.group_limit(lease, thresholds, pri);
            fits = self.charge(lease, word, Occupancy { used, limit, ..occupancy }, cells);
        }
        let head = self.headroom_word(input, pri);
        let verdict = if fits {
            Verdict::Queue
        } else if head.load(Ordering::Relaxed) + cells <= thresholds.headroom(input) {
            add(head, cells);
            add(self.tally(lease).headroom(), cells);
            Verdict::Headroom
        } else {
            Verdict::Drop(DropReason::Headroom)
        };
        Admission { verdict, used, limit }
    }

    /// Notes that a copy of a frame was queued for an output.
    #[inline]
    fn deepen(&self, lease: &Lease, output: PortId, pri: Pri, cells: u32) {
        add(self.tally(lease).entered(output, pri), cells);
    }

    /// Notes that a copy of a lossless frame was queued for an output.
    #[inline]
    pub fn deepen_by(&self, lease: &Lease, QueueKey { input, output, pri }: QueueKey, cells: u32) {
        add(self.standing_word(input, output, pri), 1);
        self.deepen(lease, output, pri, cells);
    }

    /// Whether lossless frames from `input` are queued for (output, pri), in its VOQ, in the egress queue or
    /// on their way.
    #[inline]
    #[must_use]
    pub fn stands(&self, input: PortId, output: PortId, pri: Pri) -> bool {
        self.lossless_waiting(input, output, pri) != 0
    }

    /// Cells of a VOQ's lossy frames.
    #[must_use]
    pub fn voq_used(&self, input: PortId, output: PortId, pri: Pri) -> u32 {
        let known = self.voq.at(self.voq_at(input, output, pri)).load(Ordering::Relaxed);
        known.saturating_sub(self.unseen_of_voq(input, output, pri)) // who reads beside workers may see more leave
    }

    /// Lossless frames from `input` that are queued for (output, pri), in its VOQ, in the egress queue or on their way.
    #[inline]
    #[must_use]
    pub fn lossless_waiting(&self, input: PortId, output: PortId, pri: Pri) -> u32 {
        let gone = self.gone(input, output, pri);
        fence(Ordering::Acquire); // pairs with `Leaving::end`: who left had entered
        self.standing_word(input, output, pri).load(Ordering::Relaxed).wrapping_sub(gone)
    }

    /// Cells of an input's lossy frames of a priority, all its VOQs together.
    #[must_use]
    pub fn lossy_used(&self, input: PortId, pri: Pri) -> u64 {
        self.ports().map(|output| u64::from(self.voq_used(input, output, pri))).sum()
    }

    /// Cells of an ingress group, without headroom.
    #[inline]
    #[must_use]
    pub fn group_used(&self, input: PortId, pri: Pri) -> u32 {
        let known = self.group_word(input, pri).load(Ordering::Relaxed);
        if self.solo {
            return known;
        }
        let head = self.headroom_word(input, pri).load(Ordering::Relaxed);
        known.saturating_sub(self.unseen_of_group(input, pri).saturating_sub(head)) // as `voq_used`
    }

    /// Cells of an ingress group's headroom in use.
    #[inline]
    #[must_use]
    pub fn headroom_used(&self, input: PortId, pri: Pri) -> u32 {
        let known = self.headroom_word(input, pri).load(Ordering::Relaxed);
        if self.solo { known } else { known.saturating_sub(self.unseen_of_group(input, pri)) }
    }

    /// Cells of the shared part in use, leases included; exact while no worker changes anything.
    #[must_use]
    pub fn shared_used(&self, thresholds: &Thresholds) -> u64 {
        let taken = self.shared.0.load(Ordering::Relaxed);
        if self.solo {
            return taken;
        }
        // What left and will be given back as soon as its worker hears of it.
        let (group, voq) = (thresholds.group_reserve(), thresholds.voq_reserve());
        let due = |known: &AtomicU32, used: u32, reserve: u32| {
            over(known.load(Ordering::Relaxed), reserve).saturating_sub(over(used, reserve))
        };
        let mut sum = 0;
        for (input, pri) in self.groups() {
            sum += due(self.group_word(input, pri), self.group_used(input, pri), group);
            for output in self.ports().filter(|_| voq > 0) {
                let known = self.voq.at(self.voq_at(input, output, pri));
                sum += due(known, self.voq_used(input, output, pri), voq);
            }
        }
        taken.saturating_sub(sum)
    }

    fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.ports).filter_map(PortId::new)
    }

    fn groups(&self) -> impl Iterator<Item = (PortId, Pri)> + use<> {
        let pris = self.pris;
        self.ports().flat_map(move |port| Pri::ALL.into_iter().take(pris).map(move |p| (port, p)))
    }

    /// Cells charged in all: every VOQ and group, headroom included.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let mut sum = 0;
        for (input, pri) in self.groups() {
            let voqs = self.ports().map(|output| u64::from(self.voq_used(input, output, pri)));
            let group = self.group_used(input, pri) + self.headroom_used(input, pri);
            sum += voqs.sum::<u64>() + u64::from(group);
        }
        sum
    }
}

/// Cells that a queue draws on the shared part.
#[inline]
const fn over(used: u32, reserve: u32) -> u64 {
    used.saturating_sub(reserve) as u64
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
