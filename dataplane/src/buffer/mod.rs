//! Shared buffer: who may queue how much, by dynamic thresholds, with headroom for lossless groups.
//!
//! Shape: cells used per VOQ (lossy), per ingress group (lossless, shared part and headroom apart),
//! per (output, pri), and of the shared part in all; [`Lease`] is one worker's hold on the latter.
//! Units: cells.
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"
//! (1998); pipeline.md §4; seed 003 §5.5.

mod run;

pub use run::Leaving;

use crate::config::{BufferConfig, Sharing};
use crate::queues::{Demand, QueueId};
use crate::stats::DropReason;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::types::{PRIS_MAX, PerPri, PortId, Pri, PriSet};

/// Cells that a worker takes from or gives back to the shared part at once, when there are several.
const LEASE: u64 = 64;

/// A buffer that cannot be laid out as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// Headroom and reserves leave nothing to share.
    #[error(
        "buffer: {total} cells less {headroom} of headroom and {reserves} of reserves leave nothing to share"
    )]
    NothingShared {
        /// The whole buffer.
        total: u64,
        /// All headroom.
        headroom: u64,
        /// All reserves.
        reserves: u64,
    },
    /// Static shares are too small to be of use.
    #[error("buffer: a static share is {share} cells, and one largest frame takes {frame}")]
    ShareBelowFrame {
        /// The share of a VOQ.
        share: u64,
        /// The largest frame.
        frame: u64,
    },
}

/// What a configuration amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlan {
    /// Cells in all: B.
    pub total: u64,
    /// Headroom in all: H.
    pub headroom: u64,
    /// Reserves in all: sum of S.
    pub reserves: u64,
    /// What is shared: B - H - sum of S.
    pub shared: u64,
    /// Static mode: the share of a VOQ.
    pub static_share: u64,
}

impl BufferPlan {
    /// Lays the buffer of a switch out.
    ///
    /// # Errors
    /// When nothing is left to share, or a static share does not take one largest frame.
    pub fn new(
        config: &BufferConfig,
        ports: usize,
        pris: usize,
        lossless: PriSet,
        frame_cells: u32,
    ) -> Result<Self, BufferError> {
        let (ports, pris) = (ports as u64, pris as u64);
        let lossless = lossless.len() as u64;
        let total = u64::from(config.total_cells);
        let per_port: u64 = config.headroom_cells.iter().map(|&cells| u64::from(cells)).sum();
        let headroom = per_port * lossless;
        let reserves = ports * ports * (pris - lossless) * u64::from(config.voq_reserve_cells)
            + ports * lossless * u64::from(config.pg_reserve_cells);
        let shared = total.saturating_sub(headroom).saturating_sub(reserves);
        if shared == 0 {
            return Err(BufferError::NothingShared { total, headroom, reserves });
        }
        let static_share = (total - headroom) / (ports * ports * pris);
        if config.sharing == Sharing::Static && static_share < u64::from(frame_cells) {
            let frame = u64::from(frame_cells);
            return Err(BufferError::ShareBelowFrame { share: static_share, frame });
        }
        Ok(Self { total, headroom, reserves, shared, static_share })
    }
}

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

/// Thresholds that may change while the switch runs.
#[derive(Clone, Debug)]
pub struct Thresholds {
    sharing: Sharing,
    alpha: PerPri<i8>,
    voq_reserve: u32,
    pg_reserve: u32,
    headroom: Vec<u32>,
    xon_offset: u32,
    shared: u64,
    static_share: u32,
    ports: u32,
}

impl Thresholds {
    /// Thresholds of `plan`.
    #[must_use]
    pub fn new(config: &BufferConfig, plan: &BufferPlan, ports: usize) -> Self {
        Self {
            sharing: config.sharing,
            alpha: config.alpha,
            voq_reserve: config.voq_reserve_cells,
            pg_reserve: config.pg_reserve_cells,
            headroom: config.headroom_cells.clone(),
            xon_offset: config.xon_offset_cells,
            shared: plan.shared,
            static_share: u32::try_from(plan.static_share).unwrap_or(u32::MAX),
            ports: u32::try_from(ports).unwrap_or(u32::MAX),
        }
    }

    /// S + alpha x free, saturating.
    #[inline]
    fn dynamic(&self, reserve: u32, pri: Pri, free: u64) -> u32 {
        let alpha = self.alpha[pri];
        let quota =
            if alpha >= 0 { free << alpha.unsigned_abs() } else { free >> alpha.unsigned_abs() };
        u32::try_from(u64::from(reserve) + quota).unwrap_or(u32::MAX)
    }

    /// What a VOQ holds before it draws on the shared part.
    #[inline]
    const fn voq_reserve(&self) -> u32 {
        match self.sharing {
            Sharing::Dt => self.voq_reserve,
            Sharing::Static => self.static_share,
        }
    }

    /// Headroom of a group of `input`.
    #[inline]
    #[must_use]
    pub fn headroom(&self, input: PortId) -> u32 {
        self.headroom.get(input.index()).copied().unwrap_or(0)
    }

    /// The depth at which a group that was stopped goes on, with its XOFF at `limit`.
    #[inline]
    #[must_use]
    pub fn xon(&self, limit: u32) -> u32 {
        limit.saturating_sub(self.xon_offset).max(self.pg_reserve)
    }

    /// What is shared in all.
    #[must_use]
    pub const fn shared(&self) -> u64 {
        self.shared
    }
}

/// One worker's hold on the shared part: cells taken ahead, so that workers rarely meet.
#[derive(Debug, Default)]
pub struct Lease {
    cells: u64,
}

/// The counts.
pub struct Buffer {
    pris: usize,
    ports: usize,
    solo: bool,
    voq: Box<[AtomicU32]>,
    group: Box<[AtomicU32]>,
    headroom: Box<[AtomicU32]>,
    depth: Box<[AtomicU32]>,
    shared: AtomicU64,
}

fn zeros(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

impl Buffer {
    /// An empty buffer of a switch; `solo` when one thread does all, which saves locked instructions.
    #[must_use]
    pub fn new(ports: usize, pris: usize, solo: bool) -> Self {
        Self {
            pris,
            ports,
            solo,
            voq: zeros(ports * ports * pris),
            group: zeros(ports * PRIS_MAX),
            headroom: zeros(ports * PRIS_MAX),
            depth: zeros(ports * PRIS_MAX),
            shared: AtomicU64::new(0),
        }
    }

    #[inline]
    fn voq_word(&self, input: PortId, output: PortId, pri: Pri) -> &AtomicU32 {
        let index = (input.index() * self.ports + output.index()) * self.pris + pri.index();
        self.voq.get(index).expect("ports and priorities of this switch")
    }

    #[inline]
    fn per_pri(words: &[AtomicU32], port: PortId, pri: Pri) -> &AtomicU32 {
        words.get(port.index() * PRIS_MAX + pri.index()).expect("a port of this switch")
    }

    #[inline]
    fn add(&self, word: &AtomicU32, cells: u32) -> u32 {
        if self.solo {
            let before = word.load(Ordering::Relaxed);
            word.store(before + cells, Ordering::Relaxed);
            return before;
        }
        word.fetch_add(cells, Ordering::Relaxed) // counts only; the queues order the frames
    }

    #[inline]
    fn sub(&self, word: &AtomicU32, cells: u32) -> u32 {
        if self.solo {
            let before = word.load(Ordering::Relaxed);
            debug_assert!(before >= cells, "a queue gives back what it took");
            word.store(before.wrapping_sub(cells), Ordering::Relaxed);
            return before;
        }
        word.fetch_sub(cells, Ordering::Relaxed)
    }

    /// Takes up to what is wanted for the lease; true if it now holds `need`.
    #[inline]
    fn reserve(&self, lease: &mut Lease, need: u64, total: u64) -> bool {
        if lease.cells >= need {
            return true;
        }
        let short = need - lease.cells;
        for want in [short.max(LEASE), short] {
            let used = self.shared.fetch_add(want, Ordering::Relaxed);
            if used + want <= total {
                lease.cells += want;
                return true;
            }
            self.shared.fetch_sub(want, Ordering::Relaxed);
        }
        false
    }

    #[inline]
    fn give_back(&self, lease: &mut Lease, cells: u64) {
        if self.solo {
            let used = self.shared.load(Ordering::Relaxed);
            debug_assert!(used >= cells, "a queue gives back what it took");
            self.shared.store(used.wrapping_sub(cells), Ordering::Relaxed);
            return;
        }
        lease.cells += cells;
        if lease.cells >= 2 * LEASE {
            self.shared.fetch_sub(lease.cells - LEASE, Ordering::Relaxed);
            lease.cells = LEASE;
        }
    }

    /// Gives all of a lease back: when a worker idles or stops.
    pub fn settle(&self, lease: &mut Lease) {
        let cells = core::mem::take(&mut lease.cells);
        if cells > 0 {
            self.shared.fetch_sub(cells, Ordering::Relaxed);
        }
    }

    /// What the shared part has left, as this worker sees it.
    #[inline]
    fn free(&self, lease: &Lease, total: u64) -> u64 {
        (total + lease.cells).saturating_sub(self.shared.load(Ordering::Relaxed))
    }

    /// Asks for room in a queue that holds `used`, with reserve `reserve`; charges `word` if granted.
    #[inline]
    fn charge(
        &self,
        lease: &mut Lease,
        word: &AtomicU32,
        (used, limit, reserve, total): (u32, u32, u32, u64),
        cells: u32,
    ) -> bool {
        let over = |used: u32| u64::from(used.saturating_sub(reserve));
        let Some(after) = used.checked_add(cells).filter(|&after| after <= limit) else {
            return false;
        };
        let need = over(after) - over(used);
        if self.solo {
            // Nobody else changes anything meanwhile, and a lease is used up at once.
            debug_assert_eq!(lease.cells, 0, "alone, nothing is taken ahead");
            let shared = self.shared.load(Ordering::Relaxed);
            if shared + need > total {
                return false;
            }
            self.shared.store(shared + need, Ordering::Relaxed);
            word.store(after, Ordering::Relaxed);
            return true;
        }
        if !self.reserve(lease, need, total) {
            return false;
        }
        // Meanwhile the queue may only have become shorter: then less of the shared part is needed.
        let before = self.add(word, cells);
        let taken = over(before + cells) - over(before);
        lease.cells -= taken;
        true
    }

    /// Asks for room for a lossy frame of `cells` in its VOQ, and charges it.
    #[expect(clippy::inline_always, reason = "once a frame; a call costs a fifth of what it does")]
    #[inline(always)]
    pub fn admit_voq(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        (input, output, pri): (PortId, PortId, Pri),
        cells: u32,
    ) -> Admission {
        let word = self.voq_word(input, output, pri);
        let used = word.load(Ordering::Relaxed);
        let (reserve, limit) = match thresholds.sharing {
            Sharing::Dt => {
                let free = self.free(lease, thresholds.shared);
                let reserve = thresholds.voq_reserve;
                (reserve, thresholds.dynamic(reserve, pri, free))
            }
            Sharing::Static => (thresholds.static_share, thresholds.static_share),
        };
        let numbers = (used, limit, reserve, thresholds.shared);
        let verdict = if self.charge(lease, word, numbers, cells) {
            self.add(Self::per_pri(&self.depth, output, pri), cells);
            Verdict::Queue
        } else {
            Verdict::Drop(DropReason::Dt)
        };
        Admission { verdict, used, limit }
    }

    /// Whether [`Self::admit_all`] can say yes at all: one thread, dynamic thresholds.
    #[inline]
    #[must_use]
    pub fn admits_bursts(&self, thresholds: &Thresholds) -> bool {
        self.solo && thresholds.sharing == Sharing::Dt
    }

    /// Asks for room for all frames of a burst of `input`, where priorities `lossless` are charged to
    /// their groups, and charges them; false, and nothing charged, if they must be asked one by one:
    /// several threads, static shares, or any frame could be refused or cross XOFF.
    ///
    /// The limit falls as the buffer fills: a queue that is within it after all of the burst was within
    /// it at each frame before.
    #[inline(never)] // on its own it keeps its state in registers
    pub fn admit_all(
        &self,
        thresholds: &Thresholds,
        (input, lossless): (PortId, PriSet),
        demand: &Demand,
    ) -> bool {
        let used = self.shared.load(Ordering::Relaxed);
        let left = thresholds.shared.checked_sub(used + u64::from(demand.cells()));
        let Some(left) = left.filter(|_| self.admits_bursts(thresholds)) else { return false };
        let first = input.index() * self.ports * self.pris;
        let Some(voqs) = self.voq.get(first..first + self.ports * self.pris) else { return false };
        let word =
            |queue: QueueId| voqs.get(queue.output().index() * self.pris + queue.pri().index());
        let reserve = thresholds.voq_reserve;
        let mut groups = PerPri::<u32>::default();
        for queue in demand.queues().iter() {
            if lossless.contains(queue.pri()) {
                groups[queue.pri()] += demand.cells_of(queue);
                continue;
            }
            let Some(word) = word(queue) else { return false };
            let after = word.load(Ordering::Relaxed) + demand.cells_of(queue); // far below 2^31
            if after > thresholds.dynamic(reserve, queue.pri(), left) {
                return false;
            }
        }
        for pri in lossless.iter() {
            let after =
                Self::per_pri(&self.group, input, pri).load(Ordering::Relaxed) + groups[pri];
            if groups[pri] > 0 && after > thresholds.dynamic(thresholds.pg_reserve, pri, left) {
                return false;
            }
        }
        let mut taken = 0;
        let mut charge = |word: &AtomicU32, cells: u32, reserve: u32| {
            let before = word.load(Ordering::Relaxed);
            let over = |used: u32| u64::from(used.saturating_sub(reserve));
            taken += over(before + cells) - over(before);
            word.store(before + cells, Ordering::Relaxed);
        };
        for pri in lossless.iter() {
            charge(Self::per_pri(&self.group, input, pri), groups[pri], thresholds.pg_reserve);
        }
        for queue in demand.queues().iter() {
            let cells = demand.cells_of(queue);
            self.add(Self::per_pri(&self.depth, queue.output(), queue.pri()), cells);
            if let Some(word) = word(queue).filter(|_| !lossless.contains(queue.pri())) {
                charge(word, cells, reserve);
            }
        }
        self.shared.store(used + taken, Ordering::Relaxed);
        true
    }

    /// The limit of an ingress group: its XOFF.
    #[inline]
    #[must_use]
    pub fn group_limit(&self, lease: &Lease, thresholds: &Thresholds, pri: Pri) -> u32 {
        match thresholds.sharing {
            Sharing::Dt => {
                let free = self.free(lease, thresholds.shared);
                thresholds.dynamic(thresholds.pg_reserve, pri, free)
            }
            Sharing::Static => thresholds.static_share.saturating_mul(thresholds.ports),
        }
    }

    /// Asks for room for a lossless frame of `cells` in its ingress group, and charges it there, or
    /// in the headroom. Each output that gets a copy is told by [`Self::deepen`].
    #[inline]
    pub fn admit_group(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        (input, pri): (PortId, Pri),
        cells: u32,
    ) -> Admission {
        let word = Self::per_pri(&self.group, input, pri);
        let used = word.load(Ordering::Relaxed);
        let limit = self.group_limit(lease, thresholds, pri);
        let reserve = match thresholds.sharing {
            Sharing::Dt => thresholds.pg_reserve,
            Sharing::Static => limit,
        };
        let head = Self::per_pri(&self.headroom, input, pri);
        let numbers = (used, limit, reserve, thresholds.shared);
        let verdict = if self.charge(lease, word, numbers, cells) {
            Verdict::Queue
        } else if head.load(Ordering::Relaxed) + cells <= thresholds.headroom(input) {
            self.add(head, cells);
            Verdict::Headroom
        } else {
            Verdict::Drop(DropReason::Headroom)
        };
        Admission { verdict, used, limit }
    }

    /// Begins a run of frames that leave the queues of (output, pri).
    #[inline]
    pub fn leaving<'a>(
        &'a self,
        thresholds: &'a Thresholds,
        output: PortId,
        pri: Pri,
    ) -> Leaving<'a> {
        let first = output.index() * self.pris + pri.index();
        let depth = Self::per_pri(&self.depth, output, pri);
        Leaving {
            buffer: self,
            thresholds,
            voqs: self.voq.get(first..).unwrap_or_default(),
            stride: self.ports * self.pris,
            reserve: thresholds.voq_reserve(),
            depth,
            pri,
            freed: 0,
            depth_before: depth.load(Ordering::Relaxed),
            left: 0,
            solo: self.solo,
        }
    }

    /// Notes that a copy of a lossless frame was queued for an output.
    #[inline]
    pub fn deepen(&self, output: PortId, pri: Pri, cells: u32) {
        self.add(Self::per_pri(&self.depth, output, pri), cells);
    }

    /// Notes that a copy left the queues of an output; returns the depth before.
    #[inline]
    pub fn shallow(&self, output: PortId, pri: Pri, cells: u32) -> u32 {
        self.sub(Self::per_pri(&self.depth, output, pri), cells)
    }

    /// Gives back what a lossy frame took in its VOQ.
    #[inline]
    pub fn release_voq(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        (input, output, pri): (PortId, PortId, Pri),
        cells: u32,
    ) {
        let mut run = self.leaving(thresholds, output, pri);
        run.lossy(input, cells);
        run.end(lease);
    }

    /// Gives back what a lossless frame took: of the group's headroom first.
    #[inline]
    pub fn release_group(
        &self,
        lease: &mut Lease,
        thresholds: &Thresholds,
        (input, pri): (PortId, Pri),
        cells: u32,
    ) {
        let head = Self::per_pri(&self.headroom, input, pri);
        let mut in_head = head.load(Ordering::Relaxed);
        let mut from_head = 0;
        while in_head > 0 {
            from_head = in_head.min(cells);
            let left = in_head - from_head;
            match head.compare_exchange(in_head, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => {
                    in_head = now;
                    from_head = 0;
                }
            }
        }
        let rest = cells - from_head;
        if rest == 0 {
            return;
        }
        let reserve = match thresholds.sharing {
            Sharing::Dt => thresholds.pg_reserve,
            Sharing::Static => thresholds.static_share.saturating_mul(thresholds.ports),
        };
        let before = self.sub(Self::per_pri(&self.group, input, pri), rest);
        let over = |used: u32| u64::from(used.saturating_sub(reserve));
        self.give_back(lease, over(before) - over(before.saturating_sub(rest)));
    }

    /// Cells of a VOQ's lossy frames.
    #[must_use]
    pub fn voq_used(&self, input: PortId, output: PortId, pri: Pri) -> u32 {
        self.voq_word(input, output, pri).load(Ordering::Relaxed)
    }

    /// Cells of an ingress group, without headroom.
    #[inline]
    #[must_use]
    pub fn group_used(&self, input: PortId, pri: Pri) -> u32 {
        Self::per_pri(&self.group, input, pri).load(Ordering::Relaxed)
    }

    /// Cells of an ingress group's headroom in use.
    #[inline]
    #[must_use]
    pub fn headroom_used(&self, input: PortId, pri: Pri) -> u32 {
        Self::per_pri(&self.headroom, input, pri).load(Ordering::Relaxed)
    }

    /// Cells queued for (output, pri), VOQs and egress queue together; a replicated frame counts at
    /// each of its outputs.
    #[inline]
    #[must_use]
    pub fn depth(&self, output: PortId, pri: Pri) -> u32 {
        Self::per_pri(&self.depth, output, pri).load(Ordering::Relaxed)
    }

    /// Cells of the shared part in use, leases included.
    #[must_use]
    pub fn shared_used(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Cells charged in all: every VOQ and group, headroom included.
    #[must_use]
    pub fn charged(&self) -> u64 {
        let all = self.voq.iter().chain(&self.group).chain(&self.headroom);
        all.map(|word| u64::from(word.load(Ordering::Relaxed))).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
