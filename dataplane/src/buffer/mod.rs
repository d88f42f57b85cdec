//! Shared buffer: admits frames to queues by dynamic thresholds, with headroom for lossless groups.
//!
//! It counts cells in use per VOQ (lossy), per ingress group (lossless; shared part and headroom
//! apart), per (output, pri), and of the shared part as a whole, and it counts lossless frames per
//! (input, output, pri).
//!
//! Every counter but that of the shared part has one writer, so no frame takes a locked
//! instruction: a queue's counter belongs to the worker of its input, and other workers note in
//! their own `Tally` which frames left it. The owner folds these in when the queue seems full.
//! [`Lease`] is one worker's share of the shared part, taken ahead.
//!
//! Units: cells.
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"
//! (1998); docs/spec/pipeline.md §4.

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

/// Cells that a worker takes from or returns to the shared part at once, when there are several
/// workers. So most frames are admitted and released without touching the one counter that all
/// workers write.
const LEASE: u64 = 64;
/// Cells of the shared part that a worker may hold unused, when there are several. Twice a lease,
/// so that a worker whose use goes up and down by a few cells doesn't take and return a lease each
/// time.
pub const LEASED_MAX: u64 = 2 * LEASE;

/// Decision about a frame that asked for room, with the numbers behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Where the frame was charged, or why it is dropped.
    pub verdict: Verdict,
    /// Cells of the queue before the frame; without headroom for a group.
    pub used: u32,
    /// Threshold of the queue at that moment, in cells; for a group its XOFF.
    pub limit: u32,
}

/// Occupancy of a queue, and the bounds on it.
#[derive(Clone, Copy)]
struct Occupancy {
    /// Cells in the queue now.
    used: u32,
    /// Threshold that the queue may not exceed.
    limit: u32,
    /// Cells of the limit that belong to the queue alone; the rest comes from the shared part.
    reserve: u32,
    /// Size of the shared part, in use or not.
    total: u64,
}

/// Whether a frame got room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the queue's reserve or the shared part.
    Queue,
    /// In the group's headroom: its XOFF is crossed.
    Headroom,
    /// No room: the frame is dropped, and nothing was charged.
    Drop(DropReason),
}

/// One worker's hold on the buffer: cells of the shared part taken ahead, so that workers rarely
/// contend for its counter, and the inputs whose counters this worker writes.
#[derive(Debug)]
pub struct Lease {
    cells: u64,
    worker: usize,
    inputs: PortSet,
}

impl Lease {
    /// The empty lease of worker `worker`, which receives from `inputs`.
    #[must_use]
    pub const fn new(worker: usize, inputs: PortSet) -> Self {
        Self { cells: 0, worker, inputs }
    }
}

impl Default for Lease {
    /// The lease of the only worker of a switch.
    fn default() -> Self {
        Self::new(0, PortSet::first(PORTS_MAX))
    }
}

/// The one counter that all workers write, alone on its cache line so that no other data is
/// invalidated with it.
#[repr(align(64))]
struct Shared(AtomicU64);

/// The shared buffer's counters: cells in use by VOQ, ingress group, output and priority, and of the shared part.
pub struct Buffer {
    pris: usize,
    ports: usize,
    /// There is one worker. It sees every departure itself, so tallies need not be folded in.
    single_worker: bool,
    /// Cells by input, output and priority, as far as the input's worker knows. Each input starts
    /// on a cache line of its own.
    voq: PerThreadCounters,
    stride: usize,
    /// Cells by input, a cache line each: the groups by priority, then their headroom.
    group: PerThreadCounters,
    /// Indexed like `voq`: copies of lossless frames that were queued so far, wrapping; with one
    /// worker, copies that are still queued.
    standing: PerThreadCounters,
    shared: Shared,
    workers: Box<[Tally]>,
}

impl Buffer {
    /// An empty buffer of a switch with `workers` workers. A single worker keeps no tallies of
    /// departures.
    #[must_use]
    pub fn new(ports: usize, pris: usize, workers: usize) -> Self {
        let stride = (ports * pris).next_multiple_of(LINE);
        let single_worker = workers <= 1;
        Self {
            pris,
            ports,
            single_worker,
            voq: PerThreadCounters::new(ports * stride),
            stride,
            group: PerThreadCounters::new(ports * LINE),
            standing: PerThreadCounters::new(ports * stride),
            shared: Shared(AtomicU64::new(0)),
            workers: (0..workers.max(1)).map(|_| Tally::new(ports, pris, single_worker)).collect(),
        }
    }

    #[inline]
    const fn voq_at(&self, QueueKey { input, output, pri }: QueueKey) -> usize {
        input.index() * self.stride + output.index() * self.pris + pri.index()
    }

    #[inline]
    fn standing_word(&self, voq: QueueKey) -> &AtomicU32 {
        self.standing.at(self.voq_at(voq))
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

    /// Whether the switch has one worker only.
    #[inline]
    #[must_use]
    pub const fn is_solo(&self) -> bool {
        self.single_worker
    }

    /// Tops the lease up until it holds `need` cells; false, and nothing taken, if the shared part
    /// lacks them.
    #[inline]
    fn reserve(&self, lease: &mut Lease, need: u64, total: u64) -> bool {
        if lease.cells >= need {
            return true;
        }
        let short = need - lease.cells;
        // A whole lease first; near the end of the shared part, only the cells that are missing, so
        // that the last cells can be used, too.
        for want in [short.max(LEASE), short] {
            // Added first and taken off again if that was too much: two workers cannot both get the
            // last cells. Meanwhile another one may be refused cells that are free, but only in a
            // buffer that is nearly full anyway. Relaxed, as the counter publishes no other data.
            let used = self.shared.0.fetch_add(want, Ordering::Relaxed);
            if used + want <= total {
                lease.cells += want;
                return true;
            }
            self.shared.0.fetch_sub(want, Ordering::Relaxed);
        }
        false
    }

    /// Returns `cells` to the shared part; with several workers, to the lease, and from that when
    /// it is too large.
    #[inline]
    fn give_back(&self, lease: &mut Lease, cells: u64) {
        if self.single_worker {
            let used = self.shared.0.load(Ordering::Relaxed);
            // No other thread writes the counter, so this needs no locked instruction.
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

    /// Returns all of a lease, when a worker idles or stops: cells in the lease of an idle worker
    /// would be missing to the others.
    pub fn settle(&self, lease: &mut Lease) {
        let cells = core::mem::take(&mut lease.cells);
        if cells > 0 {
            self.shared.0.fetch_sub(cells, Ordering::Relaxed);
            self.tell_lease(lease);
        }
    }

    /// Publishes how many cells of the lease are unused, for watermarks of all workers' use.
    #[inline]
    fn tell_lease(&self, lease: &Lease) {
        let free = u32::try_from(lease.cells).unwrap_or(u32::MAX);
        self.tally(lease).leased().store(free, Ordering::Relaxed);
    }

    /// Cells of the shared part in use, at the end of a burst of this worker's, if they are above
    /// `most`. With several workers, frames that left but whose input's worker has not folded that
    /// in yet still count.
    #[inline]
    #[must_use]
    pub fn shared_above(&self, lease: &Lease, most: u64) -> Option<u64> {
        let taken = self.shared.0.load(Ordering::Relaxed);
        if self.single_worker {
            return Some(taken).filter(|&taken| taken > most);
        }
        self.tell_lease(lease);
        if taken <= most {
            return None;
        }
        // Cells in leases count as taken but hold no frame. Only a new maximum is worth reading all
        // workers' lines for it.
        let leased = |tally: &Tally| u64::from(tally.leased().load(Ordering::Relaxed));
        let free: u64 = self.workers.iter().map(leased).sum();
        Some(taken.saturating_sub(free)).filter(|&used| used > most)
    }

    /// Cells of headroom in use by all groups, as far as their workers know: departures that were
    /// not folded in yet still count.
    #[must_use]
    pub fn headroom_known(&self) -> u64 {
        self.workers.iter().map(|tally| u64::from(tally.headroom().load(Ordering::Relaxed))).sum()
    }

    /// Cells of headroom in use by all groups; exact while no worker changes anything.
    #[must_use]
    pub fn headroom_in_all(&self) -> u64 {
        self.groups().map(|(input, pri)| u64::from(self.headroom_used(input, pri))).sum()
    }

    /// Free cells of the shared part as this worker sees them: those of its own lease included,
    /// those of others' not.
    #[inline]
    fn free(&self, lease: &Lease, total: u64) -> u64 {
        (total + lease.cells).saturating_sub(self.shared.0.load(Ordering::Relaxed))
    }

    /// Asks for room in a queue of this worker's; charges the counter `word` if there is.
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
        if self.single_worker {
            // No other thread writes the counter between the load and the store.
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

    /// Asks for room for a lossy frame of `cells` in its VOQ (input, output, priority), and charges
    /// it. The input is one of this worker's.
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
        let used =
            self.voq.at(self.voq_at(QueueKey { input, output, pri })).load(Ordering::Relaxed);
        // The owner's counter is never too low, so a frame that fits by it fits indeed. Only a
        // refusal has to be checked against the departures that others have noted.
        let known = self.admit_with(lease, thresholds, voq, used, cells);
        if self.single_worker || known.verdict == Verdict::Queue {
            return known;
        }
        self.admit_folded_voq(lease, thresholds, voq, cells)
    }

    /// The second attempt of [`Self::admit_voq`], with exact numbers: folds in departures that
    /// other workers have noted, which lowers the use of the VOQ and, if VOQs have a reserve,
    /// returns cells to the shared part.
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
        let word = self.voq.at(self.voq_at(QueueKey { input, output, pri }));
        let occupancy = Occupancy { used, limit, reserve, total };
        let verdict = if self.charge(lease, word, occupancy, cells) {
            self.count_queued(lease, output, pri, cells);
            Verdict::Queue
        } else {
            Verdict::Drop(DropReason::Dt)
        };
        Admission { verdict, used, limit }
    }

    /// Asks for room for all frames of a burst of `input`, which is this worker's, and charges
    /// them. Priorities `lossless` are charged to their groups. False, and nothing charged, if the
    /// frames must be asked for one by one: shares are static, or some frame could be refused or
    /// cross XOFF.
    ///
    /// The limit falls as the buffer fills: a queue that is within its limit after the whole burst
    /// was within it at each frame before.
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
        // For all cells at once, though reserves may cover some of them: `charge_burst` then cannot
        // fail.
        if !self.single_worker && !self.reserve(lease, wanted, thresholds.shared) {
            return false;
        }
        self.charge_burst(lease, thresholds, input, lossless, demand, &groups);
        true
    }

    /// The counters of an input's VOQs, as a function from queue to counter.
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
        // Free cells after the burst, as if none of it came out of reserves: the lowest limit that
        // its frames would meet one by one.
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
            // As in `admit_voq`: exact numbers before the answer is no.
            if self.single_worker || self.fold_voq(lease, thresholds, voq) + cells > limit {
                return None;
            }
        }
        for pri in lossless.iter() {
            let after = self.group_word(input, pri).load(Ordering::Relaxed) + groups[pri];
            // Groups are not folded here: `admit_group` does so, which then asks for each frame.
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
        // `burst_fits` has checked every limit, so counters are written without looking again.
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
                add(
                    self.standing_word(QueueKey {
                        input,
                        output: queue.output(),
                        pri: queue.pri(),
                    }),
                    frames,
                );
            } else if let Some(word) = word.as_ref().and_then(|word| word(queue)) {
                charge(word, cells, thresholds.voq_reserve);
            }
        }
        if self.single_worker {
            let used = self.shared.0.load(Ordering::Relaxed);
            self.shared.0.store(used + taken, Ordering::Relaxed);
        } else {
            // `admit_all` has reserved at least this much; the rest stays in the lease.
            lease.cells -= taken;
        }
    }

    /// The limit of an ingress group: its XOFF.
    #[inline]
    #[must_use]
    pub fn group_limit(&self, lease: &Lease, thresholds: &Thresholds, pri: Pri) -> u32 {
        thresholds.group_limit_with(pri, self.free(lease, thresholds.shared))
    }

    /// Asks for room for a lossless frame of `cells` in its ingress group, whose input is this
    /// worker's, and charges it there or in the headroom. The caller counts each copy at its output
    /// by [`Self::deepen_by`].
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
        if !fits && !self.single_worker {
            // A false refusal would send a PAUSE, or drop from a full headroom, so departures that
            // others have noted are folded in first. The limit is read anew, since that returned
            // cells.
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

    /// Counts a copy of a frame that was queued for an output.
    #[inline]
    fn count_queued(&self, lease: &Lease, output: PortId, pri: Pri, cells: u32) {
        add(self.tally(lease).entered(output, pri), cells);
    }

    /// Counts a copy of a lossless frame that was queued for an output.
    #[inline]
    pub fn deepen_by(&self, lease: &Lease, QueueKey { input, output, pri }: QueueKey, cells: u32) {
        add(self.standing_word(QueueKey { input, output, pri }), 1);
        self.count_queued(lease, output, pri, cells);
    }

    /// Whether lossless frames from `input` are queued for (output, pri): in the VOQ, in the egress
    /// queue or between them.
    #[inline]
    #[must_use]
    pub fn stands(&self, voq: QueueKey) -> bool {
        self.lossless_waiting(voq) != 0
    }

    /// Cells of a VOQ's lossy frames.
    #[must_use]
    pub fn voq_used(&self, voq: QueueKey) -> u32 {
        let known = self.voq.at(self.voq_at(voq)).load(Ordering::Relaxed);
        // A thread that is no worker reads `known` first, and may then see departures of frames
        // that arrived later.
        known.saturating_sub(self.unseen_of_voq(voq))
    }

    /// Lossless frames from `input` that are queued for (output, pri): in the VOQ, in the egress
    /// queue or between them.
    #[inline]
    #[must_use]
    pub fn lossless_waiting(&self, voq: QueueKey) -> u32 {
        let gone = self.gone(voq);
        // Departures are read before arrivals, or a frame that comes and goes between the two loads
        // would count as -1.
        fence(Ordering::Acquire);
        self.standing_word(voq).load(Ordering::Relaxed).wrapping_sub(gone)
    }

    /// Cells of an input's lossy frames of a priority, all its VOQs together.
    #[must_use]
    pub fn lossy_used(&self, input: PortId, pri: Pri) -> u64 {
        self.ports().map(|output| u64::from(self.voq_used(QueueKey { input, output, pri }))).sum()
    }

    /// Cells of an ingress group, without headroom.
    #[inline]
    #[must_use]
    pub fn group_used(&self, input: PortId, pri: Pri) -> u32 {
        let known = self.group_word(input, pri).load(Ordering::Relaxed);
        if self.single_worker {
            return known;
        }
        let head = self.headroom_word(input, pri).load(Ordering::Relaxed);
        // Departures free headroom first: only those beyond it lower the group.
        known.saturating_sub(self.unseen_of_group(input, pri).saturating_sub(head))
    }

    /// Cells of an ingress group's headroom in use.
    #[inline]
    #[must_use]
    pub fn headroom_used(&self, input: PortId, pri: Pri) -> u32 {
        let known = self.headroom_word(input, pri).load(Ordering::Relaxed);
        if self.single_worker {
            known
        } else {
            known.saturating_sub(self.unseen_of_group(input, pri))
        }
    }

    /// Cells of the shared part in use, leases included; exact while no worker changes anything.
    #[must_use]
    pub fn shared_used(&self, thresholds: &Thresholds) -> u64 {
        let taken = self.shared.0.load(Ordering::Relaxed);
        if self.single_worker {
            return taken;
        }
        // Departures that the input's worker has not folded in: it returns their cells when it does.
        // A VOQ without a reserve is not among them, as `Leaving::lossy` returns its cells itself.
        let (group, voq) = (thresholds.group_reserve(), thresholds.voq_reserve());
        let due = |known: &AtomicU32, used: u32, reserve: u32| {
            over(known.load(Ordering::Relaxed), reserve).saturating_sub(over(used, reserve))
        };
        let mut sum = 0;
        for (input, pri) in self.groups() {
            sum += due(self.group_word(input, pri), self.group_used(input, pri), group);
            for output in self.ports().filter(|_| voq > 0) {
                let known = self.voq.at(self.voq_at(QueueKey { input, output, pri }));
                sum += due(known, self.voq_used(QueueKey { input, output, pri }), voq);
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

    /// Sum of all cells that are charged: every VOQ and group, headroom included.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let mut sum = 0;
        for (input, pri) in self.groups() {
            let voqs = self
                .ports()
                .map(|output| u64::from(self.voq_used(QueueKey { input, output, pri })));
            let group = self.group_used(input, pri) + self.headroom_used(input, pri);
            sum += voqs.sum::<u64>() + u64::from(group);
        }
        sum
    }
}

/// Cells of a queue that exceed its reserve, and so come from the shared part.
#[inline]
const fn over(used: u32, reserve: u32) -> u64 {
    used.saturating_sub(reserve) as u64
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
