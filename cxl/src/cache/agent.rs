//! Cache agent of a device: its requests to the host, and its answers to snoops.
//!
//! [`Cache`] decides per line; this file turns its decisions into requests with a CQID and a time limit, serves write
//! pulls, and answers snoops together with the changed line that a snoop takes. H2D messages come in the order in which
//! the host sent them, so a snoop that meets a request without GO was sent before GO and is answered at once: the host
//! carries out the request after it.
//!
//! Source: CXL 3.1 sections 3.2.2 to 3.2.5; docs/spec/cxl-fabric.md "CXL.cache".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::{CacheClass, CacheHead, CacheMessage, CacheOp, GoState};
use weft_parsers::fabric::Hpa;

use super::{Free, Outgoing};
use crate::coherence::cache::{Access, Bytes, Cache, CacheCounts, Out};
use crate::coherence::{Failure, Hold, Snoop};

/// Number of CQIDs: twice [`IN_FLIGHT_MAX`], so that a CQID rests before it is used again and a late answer matches no
/// request.
const CQIDS: u16 = 1_024;
/// Most requests under way: as many as the home agent lets wait for one cache.
pub const IN_FLIGHT_MAX: usize = 512;
/// Open snoops of one line; beyond that many the oldest gets no answer. All but one were given up by the host.
const SNOOPS_MAX: usize = 8;
/// Waiting messages from which on snoops are dropped.
const WAITING_MAX: usize = 1 << 14;

/// Parameters of a device's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    pub lines: usize,
    /// Requests under way, 1 to [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// Time limit for the host's answer.
    pub timeout: Span,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AgentCounts {
    /// Counts of the state machine of lines.
    #[serde(flatten)]
    pub lines: CacheCounts,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that were answered in full.
    pub answered: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Messages that match no request under way.
    pub unexpected: u64,
    /// Answers that do not fit their request.
    pub mismatched: u64,
}

impl core::hash::Hash for AgentCounts {
    /// Counts change no decision, so the exploration of all orders takes states that differ only in them as one.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Kind of a request, and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    /// `RdAny` or `RdOwn`: ends with both GO and data; `failed` once one of them has reported an error.
    Read { granted: bool, data: bool, failed: bool },
    /// `DirtyEvict`, with the line to be written.
    DirtyEvict(Box<Bytes>),
    /// `CleanEvictNoData`.
    CleanEvict,
    /// `WrInv`: the bytes to be written, and whether the host has pulled them.
    Write { data: Box<Bytes>, mask: u64, pulled: bool },
    /// `CacheFlushed`.
    Flushed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    line: u64,
    what: What,
    serial: Serial,
    /// When it was sent: the lease that its answer names counts from then.
    sent: Instant,
}

/// Number of a request: tells its deadline from that of another request with the same CQID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Serial(u64);

impl core::hash::Hash for Serial {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// A snoop without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snooped {
    uqid: u16,
    how: Snoop,
    /// The cache had the line when the snoop came.
    hit: bool,
}

/// The cache of a device. `T` is the owner's name for a load or store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheAgent<T> {
    in_flight_max: usize,
    timeout: Span,
    cache: Cache<T>,
    /// Write-backs, evictions and writes: others may wait for them, so they go before `reads`.
    urgent: VecDeque<Out<T>>,
    reads: VecDeque<Out<T>>,
    /// Answers and data, which need no CQID.
    out: VecDeque<Outgoing>,
    done: VecDeque<(T, Result<Bytes, Failure>)>,
    snoops: BTreeMap<u64, VecDeque<Snooped>>,
    /// Changed lines taken by a snoop: sent with its answer.
    forwards: BTreeMap<u64, Box<Bytes>>,
    flights: BTreeMap<u16, Flight>,
    free: Free,
    deadlines: VecDeque<(Instant, u16, Serial)>,
    last: Serial,
    /// A flush is under way: the cache is emptied, then `CacheFlushed` is sent.
    flushing: bool,
    counts: AgentCounts,
}

impl<T: Copy + PartialEq> CacheAgent<T> {
    #[must_use]
    pub fn new(spec: CacheSpec) -> Self {
        Self {
            in_flight_max: spec.in_flight_max.clamp(1, IN_FLIGHT_MAX),
            timeout: spec.timeout,
            cache: Cache::new(spec.lines),
            urgent: VecDeque::new(),
            reads: VecDeque::new(),
            out: VecDeque::new(),
            done: VecDeque::new(),
            snoops: BTreeMap::new(),
            forwards: BTreeMap::new(),
            flights: BTreeMap::new(),
            free: Free((0..CQIDS).collect()),
            deadlines: VecDeque::new(),
            last: Serial(0),
            flushing: false,
            counts: AgentCounts::default(),
        }
    }

    /// Lines in use (held or waited for), and the cache's capacity.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        self.cache.used()
    }

    #[must_use]
    pub const fn counts(&self) -> AgentCounts {
        AgentCounts { lines: self.cache.counts(), ..self.counts }
    }

    /// State and bytes of a line, while its lease lasts.
    #[must_use]
    pub fn usable(&self, line: u64) -> Option<(Hold, &Bytes)> {
        self.cache.usable(line)
    }

    /// When the next request times out.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Advances to `now`. The caller reads the clock after the accesses that lines of the cache are to serve.
    pub fn set_now(&mut self, now: Instant) {
        self.cache.leases().set_now(now);
    }

    /// Takes a load or store within the line at address `line`; see [`Self::set_now`].
    pub fn access(&mut self, line: u64, access: Access<T>) {
        self.cache.access(line, access);
        self.drain();
    }

    /// The next load or store that ended: the line's bytes, or why it failed.
    pub fn next_done(&mut self) -> Option<(T, Result<Bytes, Failure>)> {
        self.done.pop_front()
    }

    /// Address of the next changed line that was lost: its stores are in neither cache nor memory.
    pub fn next_lost(&mut self) -> Option<u64> {
        self.cache.next_lost()
    }

    /// Gives up all lines, changed ones by writing them back, then sends `CacheFlushed`.
    pub fn flush(&mut self) {
        self.flushing = true;
        self.cache.flush();
        self.drain();
    }

    /// Whether a flush is under way.
    #[must_use]
    pub const fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// Sorts the cache's decisions into the queues.
    fn drain(&mut self) {
        while let Some(out) = self.cache.next_out() {
            match out {
                Out::Done { what, result } => self.done.push_back((what, result)),
                Out::Read { .. } => self.reads.push_back(out),
                // CXL.cache has no BIConflict and needs none: H2D stays in order, so whether GO has come says which was
                // first.
                Out::Conflict { line } => _ = self.cache.conflict_known(line),
                // The snoop's answer carries the line (RspSFwdM, RspIFwdM), so no DirtyEvict is sent and the write-back
                // counts as done.
                Out::WriteBack { line, data, .. } if self.is_snooped(line) => {
                    self.forwards.insert(line, Box::new(data));
                    self.cache.written(line, false);
                }
                Out::Answer { line, left } => self.answer(line, left),
                // Else the next write-back would be taken for this snoop's, and never sent.
                Out::Unanswered { line } => _ = self.snoops.remove(&line),
                Out::WriteBack { .. } | Out::Through { .. } | Out::Evict { .. } => {
                    self.urgent.push_back(out);
                }
            }
        }
    }

    fn is_snooped(&self, line: u64) -> bool {
        self.snoops.get(&line).is_some_and(|snoops| !snoops.is_empty())
    }

    /// Answers the open snoops of a line; the cache keeps it as `left`.
    fn answer(&mut self, line: u64, left: Option<Hold>) {
        let data = self.forwards.remove(&line);
        for Snooped { uqid, how, hit } in self.snoops.remove(&line).unwrap_or_default() {
            // Opcodes by what the cache had and keeps (docs/spec/cxl-fabric.md "CXL.cache"): V keeps its state, S and I
            // are the state that is left; Fwd announces the line in D2H Data.
            let keeps_all = how == Snoop::Current && left.is_some();
            let op = match (left, data.is_some()) {
                (Some(_), true) if keeps_all => CacheOp::RspVFwdV,
                (Some(_), false) if keeps_all => CacheOp::RspVHitV,
                (Some(_), true) => CacheOp::RspSFwdM,
                (Some(_), false) => CacheOp::RspSHitSE,
                (None, true) => CacheOp::RspIFwdM,
                (None, false) if hit => CacheOp::RspIHitSE,
                (None, false) => CacheOp::RspIHitI,
            };
            let head = CacheHead { addr: Hpa(line), ..CacheHead::new(op, uqid) };
            self.out.push_back(Outgoing::of(head));
            if let Some(data) = &data {
                // By the snoop's UQID, behind its answer: the host knows by the answer that this data comes.
                let head = CacheHead::new(CacheOp::DataToHost, uqid);
                self.out.push_back(Outgoing::with_data(head, data));
            }
        }
    }

    /// The next message to send at `now`.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        // Answers and data first: they need no CQID, and other requesters wait for them at the host.
        if let Some(out) = self.out.pop_front() {
            return Some(out);
        }
        // Up to the most that the home agent takes, not the owner's `in_flight_max`: reads under way must not delay a
        // line that others wait for.
        if self.flights.len() < IN_FLIGHT_MAX
            && let Some(out) = self.urgent.pop_front()
        {
            return self.request(now, &out);
        }
        if self.flights.len() < self.in_flight_max
            && let Some(out) = self.reads.pop_front()
        {
            return self.request(now, &out);
        }
        // CacheFlushed goes last: the home agent then takes every line as given up.
        if !self.flushing || !self.flights.is_empty() || !self.urgent.is_empty() {
            return None;
        }
        // CacheFlushed names no line: address 0.
        if self.cache.used().0 == 0 {
            return self.send(now, 0, CacheOp::CacheFlushed, What::Flushed);
        }
        // Lines that were busy when the flush began, and that the cache therefore left out.
        self.cache.flush();
        self.drain();
        let out = self.urgent.pop_front()?;
        self.request(now, &out)
    }

    fn request(&mut self, now: Instant, out: &Out<T>) -> Option<Outgoing> {
        let (line, op, what) = match *out {
            Out::Read { line, exclusive } => {
                let op = if exclusive { CacheOp::RdOwn } else { CacheOp::RdAny };
                (line, op, What::Read { granted: false, data: false, failed: false })
            }
            Out::WriteBack { line, data, .. } => {
                (line, CacheOp::DirtyEvict, What::DirtyEvict(Box::new(data)))
            }
            Out::Evict { line } => (line, CacheOp::CleanEvictNoData, What::CleanEvict),
            Out::Through { line, data, mask } => {
                let what = What::Write { data: Box::new(data), mask, pulled: false };
                (line, CacheOp::WrInv, what)
            }
            Out::Conflict { .. }
            | Out::Answer { .. }
            | Out::Unanswered { .. }
            | Out::Done { .. } => return None,
        };
        self.send(now, line, op, what)
    }

    fn send(&mut self, now: Instant, line: u64, op: CacheOp, what: What) -> Option<Outgoing> {
        let cqid = self.free.0.pop_front()?;
        self.counts.sent += 1;
        self.last.0 += 1;
        let serial = self.last;
        self.flights.insert(cqid, Flight { line, what, serial, sent: now });
        self.deadlines.push_back((now + self.timeout, cqid, serial));
        let head = CacheHead { addr: Hpa(line), ..CacheHead::new(op, cqid) };
        Some(Outgoing::of(head))
    }

    /// Takes a message from the host; false if it is no snoop and answers no request.
    pub fn take(&mut self, message: &CacheMessage<'_>) -> bool {
        let head = &message.head;
        let taken = match head.op.class() {
            CacheClass::H2dReq => self.snoop(head),
            CacheClass::H2dRsp | CacheClass::H2dData => self.answered(message),
            CacheClass::D2hReq | CacheClass::D2hRsp | CacheClass::D2hData => false,
        };
        self.counts.unexpected += u64::from(!taken);
        self.drain();
        taken
    }

    fn snoop(&mut self, head: &CacheHead) -> bool {
        let how = match head.op {
            CacheOp::SnpCur => Snoop::Current,
            CacheOp::SnpData => Snoop::Data,
            _ => Snoop::Invalidate,
        };
        if self.out.len() >= WAITING_MAX {
            return false; // the host gives up on it after its time limit, as on any other
        }
        let line = head.addr.0;
        // Before the snoop changes the state: the answer reports whether the cache had the line (RspIHitSE or
        // RspIHitI).
        let hit = self.cache.held(line).is_some();
        let snoops = self.snoops.entry(line).or_default();
        if snoops.len() >= SNOOPS_MAX {
            snoops.pop_front();
        }
        // Recorded before the cache sees the snoop: `drain` looks here whether a write-back is for a snoop.
        snoops.push_back(Snooped { uqid: head.id, how, hit });
        self.cache.snoop(line, how);
        true
    }

    fn answered(&mut self, message: &CacheMessage<'_>) -> bool {
        let head = &message.head;
        let Some(mut flight) = self.flights.remove(&head.id) else { return false };
        // Before the answer takes effect: a line granted by it is kept only if its lease is known.
        self.cache.leases().renew(head.lease, flight.sent);
        match self.progress(&mut flight, message) {
            Progress::Waits => _ = self.flights.insert(head.id, flight),
            Progress::Ended => self.end(head.id),
            Progress::Failed(why) => {
                self.end(head.id);
                self.counts.mismatched += u64::from(why == Failure::Mismatch);
                self.cache.failed(flight.line, why);
            }
        }
        true
    }

    fn end(&mut self, cqid: u16) {
        self.free.0.push_back(cqid);
        self.counts.answered += 1;
    }

    /// Advances a request by an answer.
    fn progress(&mut self, flight: &mut Flight, message: &CacheMessage<'_>) -> Progress {
        let (head, line) = (&message.head, flight.line);
        match (&mut flight.what, head.op) {
            (What::Read { granted, data, failed }, CacheOp::Go) if !*granted => {
                *granted = true;
                match GoState::decode(head.rsp_data) {
                    Some(GoState::Error) | None => *failed = true,
                    Some(GoState::Invalid) => _ = self.cache.granted(line, None, 0),
                    Some(GoState::Shared) => {
                        self.cache.granted(line, Some(Hold::Shared), head.lease.number);
                    }
                    // GO-M counts as GO-E: weft's home agent never grants M, as it writes a changed line to memory
                    // first.
                    Some(GoState::Exclusive | GoState::Modified) => {
                        self.cache.granted(line, Some(Hold::Owned), head.lease.number);
                    }
                }
                Progress::of_read(*granted && *data, *failed)
            }
            (What::Read { granted, data, failed }, CacheOp::DataToDevice) if !*data => {
                *data = true;
                // The host fills the line with ones where it has no memory; it must not reach the cache.
                if head.go_err {
                    *failed = true;
                } else if let Some(bytes) = message.data.filter(|_| !*failed) {
                    self.cache.data(line, bytes, head.poison, false);
                }
                Progress::of_read(*granted && *data, *failed)
            }
            (What::DirtyEvict(data), CacheOp::GoWritePull | CacheOp::GoErrWritePull) => {
                let head_of_data = CacheHead::new(CacheOp::DataToHost, head.rsp_data);
                self.out.push_back(Outgoing::with_data(head_of_data, data));
                // The host pulls the data even when it refuses: GO_ERR_WritePull says that the line is not this cache's
                // any more, and that it drops the data.
                self.cache.written(line, head.op == CacheOp::GoErrWritePull);
                Progress::Ended
            }
            (What::CleanEvict, CacheOp::Go | CacheOp::GoWritePullDrop) => {
                self.cache.written(line, false);
                Progress::Ended
            }
            (What::Write { data, mask, pulled: pulled @ false }, CacheOp::WritePull) => {
                *pulled = true;
                let head = CacheHead::new(CacheOp::DataToHost, head.rsp_data);
                let enables = (*mask != u64::MAX).then_some(*mask);
                self.out.push_back(Outgoing { enables, ..Outgoing::with_data(head, data) });
                Progress::Waits
            }
            // No memory there: the data is owed all the same, and dropped by the host.
            (What::Write { data, pulled: false, .. }, CacheOp::GoErrWritePull) => {
                let head = CacheHead::new(CacheOp::DataToHost, head.rsp_data);
                self.out.push_back(Outgoing::with_data(head, data));
                Progress::Failed(Failure::NoMemory)
            }
            (What::Write { pulled: true, .. }, CacheOp::Go) => {
                self.cache.written(line, false);
                Progress::Ended
            }
            (What::Flushed, CacheOp::Go) => {
                self.flushing = false;
                Progress::Ended
            }
            _ => Progress::Failed(Failure::Mismatch),
        }
    }

    /// Ends requests that were not answered by `now`; returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.set_now(now);
        let mut expired = 0;
        while let Some(&(at, cqid, serial)) = self.deadlines.front() {
            // Deadlines of answered requests stay in the queue and are skipped here; their CQID may be another
            // request's by now.
            let is_open = self.flights.get(&cqid).is_some_and(|flight| flight.serial == serial);
            if is_open && at > now {
                break;
            }
            self.deadlines.pop_front();
            if !is_open {
                continue;
            }
            let Some(flight) = self.flights.remove(&cqid) else { continue };
            self.free.0.push_back(cqid);
            self.counts.timeouts += 1;
            expired += 1;
            if flight.what == What::Flushed {
                self.flushing = false; // if the message was lost, the host snoops each line when it needs it
            } else {
                self.cache.failed(flight.line, Failure::Timeout);
            }
            self.drain();
        }
        expired
    }

    /// Empties the cache when it may no longer be used: after a reset, or when the link went down. Changed lines that
    /// were not written back are lost ([`Self::next_lost`]); waiting loads and stores end without an answer.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.flushing = false;
        self.urgent.clear();
        self.reads.clear();
        self.out.clear();
        self.snoops.clear();
        self.forwards.clear();
        self.deadlines.clear();
        let used = core::mem::take(&mut self.flights);
        // To the back of the queue: answers to these may still come, and find the CQID unused.
        self.free.0.extend(used.into_keys());
    }
}

/// State of a request after an answer.
enum Progress {
    Waits,
    Ended,
    Failed(Failure),
}

impl Progress {
    /// A read ends when GO and data have come, even if one of them reports an error: the CQID is in use until both
    /// have.
    const fn of_read(is_complete: bool, failed: bool) -> Self {
        match (is_complete, failed) {
            (false, _) => Self::Waits,
            (true, false) => Self::Ended,
            (true, true) => Self::Failed(Failure::NoMemory),
        }
    }
}
