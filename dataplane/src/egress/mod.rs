//! Egress: which priority of a port sends next, by strict priority, then by weight, within rates.
//!
//! [`EgressSched`] is the state of a port: it takes the set of queues that may send, and picks one
//! [`Pri`].
//!
//! Units: WRR counts frames, DWRR bytes of frames without FCS, rates bit/s of true wire time.
//! Source: docs/spec/pipeline.md §7; interleaved WRR (Tabatabaee, Le Boudec, Boyer, ITC 32, 2020,
//! Algorithm 1), DRR (Shreedhar, Varghese, IEEE/ACM Trans. Networking 4(3), 1996, Fig. 4).

use crate::bucket::Bucket;
use crate::time::{Instant, LinkRate, Span};
use crate::types::{PRIS_MAX, PerPri, Pri, PriSet};

/// How the priorities outside the strict set share the bandwidth that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weighted {
    /// By frames: a round serves each priority its weight, one frame each in turn.
    Wrr,
    /// By bytes: each visit adds a quantum to the priority's deficit and serves what that covers.
    Dwrr,
}

/// Settings of a port's egress scheduler: strict priorities, weights, rate limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// Priorities that go before all others, the highest first.
    pub strict: PriSet,
    /// How the priorities that are not strict share the rest.
    pub mode: Weighted,
    /// Shares of the priorities that are not strict; only ratios matter. 0 counts as the smallest
    /// share that another one has.
    pub weights: PerPri<u32>,
    /// Greatest rate of each priority, in time on the wire; `None` for no limit.
    pub pri_max_rate: PerPri<Option<LinkRate>>,
    /// Greatest rate of the port, all priorities together; `None` for no limit.
    pub port_max_rate: Option<LinkRate>,
    /// Depth of all token buckets, as time at their rate; live at least 2 ms, an hour at most.
    pub burst: Span,
    /// Longest frame that the port carries, in bytes; DWRR counts a longer one as this.
    pub frame_max: u32,
}

impl EgressConfig {
    /// The default of a switch with `pris` priorities: with up to 4, pri 3 strict and 2:1:0 WRR at
    /// 50:40:10; with more, 7 and 6 strict and the others DWRR with equal weights.
    #[must_use]
    pub fn for_pris(pris: usize) -> Self {
        let (strict, mode, weights) = if pris <= 4 {
            (0b1000, Weighted::Wrr, [10, 40, 50, 0, 0, 0, 0, 0])
        } else {
            (0b1100_0000, Weighted::Dwrr, [1; PRIS_MAX])
        };
        Self {
            strict: PriSet::from_bits(strict),
            mode,
            weights: PerPri(weights),
            pri_max_rate: PerPri::default(),
            port_max_rate: None,
            burst: Span::from_ms(2),
            frame_max: 9_216,
        }
    }
}

/// State of interleaved WRR: a round consists of cycles, and a cycle serves one frame of each
/// priority that has some of its weight left.
#[derive(Clone, Debug)]
struct Wrr {
    weights: PerPri<u32>, // in lowest terms, above 0
    left: PerPri<u32>,    // of the round
    some_left: PriSet,
    turn: PriSet, // not yet served in this cycle; within `some_left`
}

/// State of DWRR.
#[derive(Clone, Debug)]
struct Dwrr {
    quantum: PerPri<u64>, // at least `frame_max`: each visit serves a frame
    deficit: PerPri<u64>,
    some_deficit: PriSet,
    visited: Pri,
    frame_max: u64,
}

/// The scheduler of one output port.
///
/// Rounds are interleaved: with 50:40:10 it sends 2 1 0, 2 1, 2 1, 2 1, 2 and so on, not five of
/// one, then four of the next. Shares are the same, and a queue waits at most for one frame of each
/// other queue in its own cycles, not for their whole weights.
#[derive(Clone, Debug)]
pub struct EgressSched {
    strict: PriSet,
    mode: Weighted,
    wrr: Wrr,
    dwrr: Dwrr,
    limited: PriSet,
    buckets: PerPri<Option<Bucket>>,
    port: Option<Bucket>,
}

impl EgressSched {
    /// A scheduler at the start of a round, with full token buckets.
    #[must_use]
    pub fn new(config: &EgressConfig) -> Self {
        let weights = lowest_terms(config);
        let dwrr = Dwrr::new(weights, config.frame_max);
        let mut sched = Self {
            strict: config.strict,
            mode: config.mode,
            wrr: Wrr::new(weights),
            dwrr,
            limited: PriSet::EMPTY,
            buckets: PerPri::default(),
            port: None,
        };
        sched.set_rates(config);
        sched
    }

    /// Takes over a new configuration. Debts of token buckets stay, and so does the place in the
    /// round unless shares changed.
    pub fn reconfigure(&mut self, config: &EgressConfig) {
        let weights = lowest_terms(config);
        let dwrr = Dwrr::new(weights, config.frame_max);
        // A reload that leaves the shares alone must not begin a round: configurations that are
        // reloaded often would favour the priorities that a round serves first.
        if weights != self.wrr.weights {
            self.wrr = Wrr::new(weights);
        }
        if dwrr.quantum != self.dwrr.quantum || dwrr.frame_max != self.dwrr.frame_max {
            self.dwrr = dwrr;
        }
        self.strict = config.strict;
        self.mode = config.mode;
        self.set_rates(config);
    }

    fn set_rates(&mut self, config: &EgressConfig) {
        for pri in Pri::ALL {
            set_bucket(&mut self.buckets[pri], config.pri_max_rate[pri], config.burst);
        }
        set_bucket(&mut self.port, config.port_max_rate, config.burst);
        self.limited = Pri::ALL.into_iter().filter(|&pri| self.buckets[pri].is_some()).collect();
    }

    /// Picks the priority whose first frame is sent at `now`, and charges that frame; `None` when
    /// all queues are empty or over their rate.
    ///
    /// `ready` are the queues that hold a frame and are not paused, `head_len` the bytes (no FCS)
    /// of a ready queue's first frame. In DWRR, a queue that is not ready or is over its rate when
    /// the round moves on counts as empty: it forfeits its deficit.
    #[inline]
    pub fn pick(
        &mut self,
        now: Instant,
        ready: PriSet,
        head_len: impl Fn(Pri) -> u32,
    ) -> Option<Pri> {
        let open = self.open(now, ready);
        let pri = if let Some(pri) = open.and(self.strict).highest() {
            pri
        } else {
            let shared = open.without(self.strict);
            match self.mode {
                Weighted::Wrr => self.wrr.pick(shared)?,
                Weighted::Dwrr => self.dwrr.pick(shared, &head_len)?,
            }
        };
        if self.limited.contains(pri) || self.port.is_some() {
            let len = head_len(pri);
            // Both buckets are charged, though `open` has asked only whether they are in debt: a
            // frame may take a bucket into debt by its whole length, so that long frames are not
            // held back for ever by a shallow bucket.
            for bucket in [self.buckets[pri].as_mut(), self.port.as_mut()].into_iter().flatten() {
                bucket.charge(now, len);
            }
        }
        Some(pri)
    }

    /// Whether neither the port nor any priority has a rate limit.
    #[inline]
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.limited.is_empty() && self.port.is_none()
    }

    /// Picks `pri` up to `most` times more, while no other queue is ready: returns how often, and
    /// leaves the state that as many calls of [`Self::pick`] would. Returns 0 where the lengths of
    /// frames count (rate limits, DWRR).
    #[inline]
    pub fn pick_alone(&mut self, pri: Pri, most: usize) -> usize {
        if self.limited.contains(pri) || self.port.is_some() {
            return 0;
        }
        if !self.strict.contains(pri) {
            match self.mode {
                Weighted::Wrr => self.wrr.pick_alone(pri, most),
                Weighted::Dwrr => return 0,
            }
        }
        most
    }

    /// When [`Self::pick`] will find one of `ready`: `now`, or later when rates hold all of them
    /// back; `None` when nothing is ready.
    #[must_use]
    pub fn next_open(&self, now: Instant, ready: PriSet) -> Option<Instant> {
        let port = self.port.as_ref().map_or(now, |bucket| bucket.open_at(now));
        let own = |pri| self.buckets[pri].as_ref().map_or(now, |bucket| bucket.open_at(now));
        ready.iter().map(own).min().map(|first| first.max(port))
    }

    /// The priorities of `ready` that may send at `now` under their rates and the port's.
    #[inline]
    fn open(&self, now: Instant, ready: PriSet) -> PriSet {
        if self.port.as_ref().is_some_and(|bucket| !bucket.is_open(now)) {
            return PriSet::EMPTY;
        }
        let mut open = ready;
        for pri in ready.and(self.limited).iter() {
            if self.buckets[pri].as_ref().is_some_and(|bucket| !bucket.is_open(now)) {
                open.remove(pri);
            }
        }
        open
    }
}

impl Wrr {
    fn new(weights: PerPri<u32>) -> Self {
        Self { weights, left: weights, some_left: EVERY, turn: EVERY }
    }

    #[inline]
    fn pick(&mut self, open: PriSet) -> Option<Pri> {
        if open.is_empty() {
            return None;
        }
        if open.and(self.turn).is_empty() {
            self.turn = self.some_left; // the next cycle
            // No open queue has any of its weight left, so the round is over. Queues that are
            // empty or paused lose the rest of theirs: shares are not saved up.
            if open.and(self.turn).is_empty() {
                (self.left, self.some_left, self.turn) = (self.weights, EVERY, EVERY); // round
            }
        }
        let pri = open.and(self.turn).highest()?;
        self.turn.remove(pri);
        self.left[pri] -= 1;
        if self.left[pri] == 0 {
            self.some_left.remove(pri);
        }
        Some(pri)
    }
}

impl Wrr {
    /// Leaves the state of `most` more picks of `pri`, which was picked last, while it alone is
    /// open.
    #[inline]
    fn pick_alone(&mut self, pri: Pri, most: usize) {
        let Some(last) = u32::try_from(most).ok().and_then(|most| most.checked_sub(1)) else {
            return;
        };
        // In closed form, as a burst of 64 frames of one queue is the common case. While `pri`
        // alone is open, each of its picks begins a cycle, and a round begins whenever its weight
        // is used up.
        let mut left = self.left[pri];
        if let Some(over) = last.checked_sub(left) {
            (self.left, self.some_left) = (self.weights, EVERY); // rounds begin on the way
            left = self.weights[pri] - over % self.weights[pri] - 1;
        } else {
            left -= last + 1;
        }
        self.left[pri] = left;
        if left == 0 {
            self.some_left.remove(pri);
        }
        self.turn = self.some_left;
        self.turn.remove(pri);
    }
}

impl Dwrr {
    fn new(weights: PerPri<u32>, frame_max: u32) -> Self {
        let frame_max = u64::from(frame_max.max(1));
        let least = weights.0.into_iter().min().map_or(1, u64::from);
        // The smallest share gets one longest frame a visit, so that every visit sends at least one
        // frame and a pick takes constant time (Shreedhar and Varghese, 1996).
        let quantum = PerPri(weights.0.map(|w| frame_max * u64::from(w) / least));
        Self {
            quantum,
            deficit: PerPri::default(),
            some_deficit: PriSet::EMPTY,
            visited: Pri::default(),
            frame_max,
        }
    }

    #[inline]
    fn pick(&mut self, open: PriSet, head_len: &impl Fn(Pri) -> u32) -> Option<Pri> {
        let len = |pri| u64::from(head_len(pri)).min(self.frame_max);
        let here = self.visited;
        // The queue of the last visit goes on as long as its deficit covers the next frame.
        if open.contains(here)
            && let Some(rest) = self.deficit[here].checked_sub(len(here))
        {
            self.deficit[here] = rest;
            return Some(here);
        }
        let pri = open.next_from(Pri::from_low_bits(here.get() + 1))?;
        let len = len(pri);
        // Only now, when the round moves on: a queue that was empty for a moment while another was
        // served, but has a frame again, keeps what it has.
        for forfeit in self.some_deficit.without(open).iter() {
            self.deficit[forfeit] = 0;
        }
        self.some_deficit = self.some_deficit.and(open);
        self.some_deficit.insert(pri);
        self.visited = pri;
        // Never below 0, as `len` is capped at `frame_max` and a quantum is at least that. The
        // deficit does not build up either: it was below the length of the head, or this queue
        // would be `here` and would have been served above.
        self.deficit[pri] += self.quantum[pri] - len;
        Some(pri)
    }
}

const EVERY: PriSet = PriSet::first(PRIS_MAX);

/// Weights divided by their greatest common divisor, so that rounds are short. Weights of 0, and
/// those of strict priorities, become the smallest of the others.
fn lowest_terms(config: &EgressConfig) -> PerPri<u32> {
    let shares = || {
        let shared = EVERY.without(config.strict);
        shared.iter().map(|pri| config.weights[pri]).filter(|&w| w > 0)
    };
    let least = shares().min().unwrap_or(1);
    let divisor = shares().fold(least, gcd);
    // All eight must be above 0: `Dwrr::new` divides by the least, `Wrr` subtracts before it tests
    // for 0.
    let mut weights = PerPri([least / divisor; PRIS_MAX]);
    for pri in EVERY.without(config.strict).iter() {
        if config.weights[pri] > 0 {
            weights[pri] = config.weights[pri] / divisor;
        }
    }
    weights
}

/// Greatest common divisor of two numbers above 0.
const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn set_bucket(bucket: &mut Option<Bucket>, rate: Option<LinkRate>, depth: Span) {
    match (bucket.as_mut(), rate) {
        // Set in place, so that a reload neither forgives a debt nor fills the bucket.
        (Some(bucket), Some(rate)) => bucket.set(rate, depth),
        (_, rate) => *bucket = rate.map(|rate| Bucket::new(rate, depth)),
    }
}

#[cfg(test)]
mod tests;
