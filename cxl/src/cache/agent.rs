//! The cache of a device: what it asks its host for, and what it answers.
//!
//! [`Cache`] says what is to be done with lines; here that becomes requests with a CQID and a time limit, write pulls, and
//! answers to snoops with the data that a snoop takes. H2D messages come in the order in which the host sent them, so a snoop
//! that meets a request without GO was sent first and is answered at once: the request is carried out after it.
//!
//! Source: CXL 3.1 sections 3.2.2 to 3.2.5; docs/spec/cxl-fabric.md "CXL.cache".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::{CacheClass, CacheHead, CacheMessage, CacheOp, GoState};
use weft_parsers::fabric::Hpa;

use super::{Free, Outgoing};
use crate::coherence::cache::{Access, Bytes, Cache, CacheCounts, Out};
use crate::coherence::{Failure, Hold, Snoop};

/// CQIDs: twice as many as there are requests under way at most, so that one that was used rests before it is used again, and
/// a late answer matches no request.
const CQIDS: u16 = 1_024;
/// Requests under way at most. The home agent lets as many of one cache wait.
pub const IN_FLIGHT_MAX: usize = 512;
/// Snoops of one line that wait for an answer; beyond, the oldest gets none. There is one, and those that the host gave up.
const SNOOPS_MAX: usize = 8;
/// Messages that may wait to be sent before snoops are no longer heard.
const WAITING_MAX: usize = 1 << 14;

/// What a cache of a device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSpec {
    /// Lines.
    pub lines: usize,
    /// Requests under way, 1 to [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// How long the host's answer may take.
    pub timeout: Span,
}

/// Counts of a device's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AgentCounts {
    /// Those of its lines.
    #[serde(flatten)]
    pub lines: CacheCounts,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that have their answer.
    pub answered: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Messages for nothing that is under way.
    pub unexpected: u64,
    /// Answers that do not fit their request.
    pub mismatched: u64,
}

impl core::hash::Hash for AgentCounts {
    /// Counts decide nothing.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// What a request is, and what has come of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    /// `RdAny` or `RdOwn`: GO and data come.
    Read { granted: bool, data: bool, failed: bool },
    /// `DirtyEvict`, with what is to be written.
    DirtyEvict(Box<Bytes>),
    /// `CleanEvictNoData`.
    CleanEvict,
    /// `WrInv`: what is to be written, and whether it was pulled.
    Write { data: Box<Bytes>, mask: u64, pulled: bool },
    /// `CacheFlushed`.
    Flushed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    line: u64,
    what: What,
    serial: Serial,
    /// When it was sent: a lease that its answer tells counts from then.
    sent: Instant,
}

/// Number of a request, by which its deadline knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Serial(u64);

impl core::hash::Hash for Serial {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// A snoop that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snooped {
    uqid: u16,
    how: Snoop,
    /// The cache had the line when the snoop came.
    hit: bool,
}

/// The cache of a device. `T` is the name of a load or store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheAgent<T> {
    in_flight_max: usize,
    timeout: Span,
    cache: Cache<T>,
    /// What others wait for, and reads.
    urgent: VecDeque<Out<T>>,
    reads: VecDeque<Out<T>>,
    /// What needs no CQID: answers and data.
    out: VecDeque<Outgoing>,
    done: VecDeque<(T, Result<Bytes, Failure>)>,
    snoops: BTreeMap<u64, VecDeque<Snooped>>,
    /// Changed lines that a snoop takes: they go with its answer.
    forwards: BTreeMap<u64, Box<Bytes>>,
    flights: BTreeMap<u16, Flight>,
    free: Free,
    deadlines: VecDeque<(Instant, u16, Serial)>,
    last: Serial,
    /// The owner wants the cache empty, and the host told so.
    flushing: bool,
    counts: AgentCounts,
}

impl<T: Copy + PartialEq> CacheAgent<T> {
    /// An empty cache.
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

    /// Lines that are held or waited for, of how many.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        self.cache.used()
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> AgentCounts {
        AgentCounts { lines: self.cache.counts(), ..self.counts }
    }

    /// How a line is held and what it holds, while its lease lasts.
    #[must_use]
    pub fn usable(&self, line: u64) -> Option<(Hold, &Bytes)> {
        self.cache.usable(line)
    }

    /// When the next request times out.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Goes on to `now`, which has to be read from the clock after all accesses came that lines of the cache are to serve.
    pub fn set_now(&mut self, now: Instant) {
        self.cache.leases().set_now(now);
    }

    /// Takes a load or store within the line at address `line`; see [`Self::set_now`].
    pub fn access(&mut self, line: u64, access: Access<T>) {
        self.cache.access(line, access);
        self.drain();
    }

    /// The next load or store that ended: what the line holds, or why not.
    pub fn next_done(&mut self) -> Option<(T, Result<Bytes, Failure>)> {
        self.done.pop_front()
    }

    /// The address of a changed line that was lost: what was stored there is nowhere.
    pub fn next_lost(&mut self) -> Option<u64> {
        self.cache.next_lost()
    }

    /// Gives up all lines, changed ones by writing them back, and then says so (`CacheFlushed`).
    pub fn flush(&mut self) {
        self.flushing = true;
        self.cache.flush();
        self.drain();
    }

    /// Whether a flush has not ended.
    #[must_use]
    pub const fn is_flushing(&self) -> bool {
        self.flushing
    }

    /// Takes what the cache has to say.
    fn drain(&mut self) {
        while let Some(out) = self.cache.next_out() {
            match out {
                Out::Done { what, result } => self.done.push_back((what, result)),
                Out::Read { .. } => self.reads.push_back(out),
                // The order of GO and snoop tells which came first, so the question is answered already.
                Out::Conflict { line } => _ = self.cache.conflict_known(line),
                // A snoop takes the line: the data goes with its answer, and is not asked for.
                Out::WriteBack { line, data, .. } if self.is_snooped(line) => {
                    self.forwards.insert(line, Box::new(data));
                    self.cache.written(line, false);
                }
                Out::Answer { line, left } => self.answer(line, left),
                Out::WriteBack { .. } | Out::Through { .. } | Out::Evict { .. } => {
                    self.urgent.push_back(out);
                }
            }
        }
    }

    fn is_snooped(&self, line: u64) -> bool {
        self.snoops.get(&line).is_some_and(|snoops| !snoops.is_empty())
    }

    /// Answers the snoops of a line, of which `left` is kept.
    fn answer(&mut self, line: u64, left: Option<Hold>) {
        let data = self.forwards.remove(&line);
        for Snooped { uqid, how, hit } in self.snoops.remove(&line).unwrap_or_default() {
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
                let head = CacheHead::new(CacheOp::DataToHost, uqid);
                self.out.push_back(Outgoing::with_data(head, data));
            }
        }
    }

    /// The next message that may be sent at `now`.
    pub fn next_message(&mut self, now: Instant) -> Option<Outgoing> {
        if let Some(out) = self.out.pop_front() {
            return Some(out);
        }
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
        if !self.flushing || !self.flights.is_empty() || !self.urgent.is_empty() {
            return None;
        }
        if self.cache.used().0 == 0 {
            return self.send(now, 0, CacheOp::CacheFlushed, What::Flushed);
        }
        // Lines that something was under way for when the flush began.
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
            Out::Conflict { .. } | Out::Answer { .. } | Out::Done { .. } => return None,
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

    /// Takes a message of the host; false if there is nothing that it answers, and it asks for nothing.
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
            return false; // the host gives up on it as on any other that is not answered
        }
        let line = head.addr.0;
        let hit = self.cache.held(line).is_some();
        let snoops = self.snoops.entry(line).or_default();
        if snoops.len() >= SNOOPS_MAX {
            snoops.pop_front();
        }
        snoops.push_back(Snooped { uqid: head.id, how, hit });
        self.cache.snoop(line, how);
        true
    }

    fn answered(&mut self, message: &CacheMessage<'_>) -> bool {
        let head = &message.head;
        let Some(mut flight) = self.flights.remove(&head.id) else { return false };
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

    /// What an answer makes of a request.
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
                    Some(GoState::Exclusive | GoState::Modified) => {
                        self.cache.granted(line, Some(Hold::Owned), head.lease.number);
                    }
                }
                Progress::of_read(*granted && *data, *failed)
            }
            (What::Read { granted, data, failed }, CacheOp::DataToDevice) if !*data => {
                *data = true;
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

    /// Ends what was not answered by `now`; returns how many requests that were.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.set_now(now);
        let mut expired = 0;
        while let Some(&(at, cqid, serial)) = self.deadlines.front() {
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
                self.flushing = false; // the host takes lines from who does not answer
            } else {
                self.cache.failed(flight.line, Failure::Timeout);
            }
            self.drain();
        }
        expired
    }

    /// Empties the cache, as it may not be used any more: a reset, or the link went down. What was changed and not written
    /// back is lost ([`Self::next_lost`]); loads and stores that wait end without an answer.
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
        self.free.0.extend(used.into_keys());
    }
}

/// What is left of a request after an answer.
enum Progress {
    Waits,
    Ended,
    Failed(Failure),
}

impl Progress {
    /// A read of which GO and data came or not, and one of them said that it failed.
    const fn of_read(is_complete: bool, failed: bool) -> Self {
        match (is_complete, failed) {
            (false, _) => Self::Waits,
            (true, false) => Self::Ended,
            (true, true) => Self::Failed(Failure::NoMemory),
        }
    }
}
