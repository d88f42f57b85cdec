//! Loads and stores by CXL.mem through a write-back cache.
//!
//! Like [`super::MemRequester`]; [`Cache`] decides which messages to send, and this file gives them tags and time
//! limits. Messages that others wait for (answers to snoops, write-backs, evictions) are sent before reads, whatever
//! the throttle says.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem", "Back-invalidate"; docs/spec/wire-formats.md §3.9.

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemClass, MemHead, MemMessage, MemOp, MetaField};
use weft_parsers::fabric::Hpa;

use super::in_flight::InFlight;
use super::operation::{MemCounts, MemDone, MemFailure, MemId, MemOperation, MemSpec};
use super::ops::{Ops, Piece};
use super::throttle::Throttle;
use crate::coherence::cache::{Access, Cache, CacheCounts, Out};
use crate::coherence::{Failure, Hold, Snoop, answer_op};

/// Waiting messages from which on snoops are dropped.
const WAITING_MAX: usize = 1 << 14;
/// `SnpType` of requests: others keep a shared copy (1), or none (3).
const SNP_DATA: u8 = 1;
const SNP_INV: u8 = 3;
/// `MetaValue` of requests: the hold of the host after it (invalid, any, shared).
const META_INVALID: u8 = 0b00;
const META_ANY: u8 = 0b10;
const META_SHARED: u8 = 0b11;

impl From<Failure> for MemFailure {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoMemory => Self::NoMemory,
            Failure::Poisoned => Self::Poisoned,
            Failure::Timeout => Self::Timeout,
            Failure::Mismatch => Self::Mismatch,
        }
    }
}

/// Kind of a request, and its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A read, and which of its two answers have come.
    Read {
        granted: bool,
        data: bool,
    },
    /// A write, a write-back or an eviction: one `Cmp` ends it.
    Write,
    Conflict,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    line: u64,
    what: What,
    /// When it was sent: the lease that its answer names counts from then.
    sent: Instant,
}

/// Open snoops of one line; beyond that many the oldest gets no answer.
const SNOOPS_MAX: usize = 8;

/// Sends loads and stores through a cache.
pub struct CachedRequester {
    spec: MemSpec,
    throttle: Throttle,
    ops: Ops,
    cache: Cache<Piece>,
    /// Pieces handed to the cache that have not ended.
    accesses: usize,
    /// Messages that go before `reads`, as others may wait for them.
    urgent: VecDeque<Out<Piece>>,
    reads: VecDeque<Out<Piece>>,
    /// Tags and senders of each line's open snoops: one, and those that the device has given up on.
    snoops: BTreeMap<u64, VecDeque<(u16, u16)>>,
    requests: InFlight<Flight>,
    reads_under_way: usize,
    counts: MemCounts,
}

impl CachedRequester {
    /// A requester with an empty cache of `lines` lines.
    #[must_use]
    pub fn new(spec: MemSpec, lines: usize) -> Self {
        let most = spec.in_flight_max.clamp(1, super::operation::IN_FLIGHT_MAX);
        // Reads are bounded by `most`, write-backs and conflicts are not: these must not wait for a tag while reads
        // hold all.
        let requests = InFlight::new((4 * most).max(1_024), spec.timeout);
        Self {
            spec: MemSpec { in_flight_max: most, ..spec },
            throttle: Throttle::new(most),
            ops: Ops::default(),
            cache: Cache::new(lines),
            accesses: 0,
            urgent: VecDeque::new(),
            reads: VecDeque::new(),
            snoops: BTreeMap::new(),
            requests,
            reads_under_way: 0,
            counts: MemCounts::default(),
        }
    }

    /// Takes a load or store.
    pub fn submit(&mut self, what: MemOperation) -> MemId {
        self.ops.submit(what)
    }

    /// The next load or store that ended.
    pub fn next_done(&mut self) -> Option<MemDone> {
        self.ops.next_done()
    }

    /// When the next request times out.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.requests.next_due()
    }

    /// Loads and stores that have not ended.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.ops.open()
    }

    #[must_use]
    pub const fn counts(&self) -> MemCounts {
        MemCounts { throttle: self.throttle.level(), ..self.counts }
    }

    /// Counts of the cache; lines in use, and the cache's capacity.
    #[must_use]
    pub fn cache(&self) -> (CacheCounts, (usize, usize)) {
        (self.cache.counts(), self.cache.used())
    }

    /// Sorts the cache's decisions into the queues.
    fn drain(&mut self) {
        while let Some(out) = self.cache.next_out() {
            match out {
                Out::Done { what: piece, result } => {
                    self.accesses -= 1;
                    let loaded = match &result {
                        Ok(line) => Ok(piece.reads.then_some(line)),
                        Err(failure) => Err(MemFailure::from(*failure)),
                    };
                    self.ops.ended(&piece, loaded);
                }
                Out::Read { .. } => self.reads.push_back(out),
                // Else the answer to the next snoop would answer this one, too, which the device has given up.
                Out::Unanswered { line } => _ = self.snoops.remove(&line),
                _ => self.urgent.push_back(out),
            }
        }
    }

    /// Address of the next changed line that was lost: its stores were acknowledged, and are in neither cache nor
    /// memory.
    pub fn next_lost(&mut self) -> Option<u64> {
        self.cache.next_lost()
    }

    /// Advances to `now`. The caller reads the clock after the loads and stores that lines of the cache are to serve
    /// were submitted.
    pub fn set_now(&mut self, now: Instant) {
        self.cache.leases().set_now(now);
    }

    /// Hands messages that may be sent to `send`; see [`Self::set_now`].
    pub fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&MemMessage<'_>)) {
        self.set_now(now);
        // Before new accesses and after: they may make lines give up their places.
        self.send_urgent(now, send);
        while self.accesses < self.spec.in_flight_max
            && let Some((piece, data)) = self.ops.next_piece()
        {
            self.accesses += 1;
            let store = data.map(|data| (data, piece.mask()));
            self.cache.access(piece.line, Access { what: piece, store });
            self.drain();
        }
        self.send_urgent(now, send);
        while self.reads_under_way < self.throttle.limit()
            && let Some(tag) = self.requests.next_tag()
            && let Some(Out::Read { line, exclusive }) = self.reads.pop_front()
        {
            self.reads_under_way += 1;
            let (snoop, meta_value) =
                if exclusive { (SNP_INV, META_ANY) } else { (SNP_DATA, META_SHARED) };
            let head = MemHead { snoop, ..of_line(MemOp::MemRd, tag, line, meta_value) };
            send(&MemMessage { head, data: None, enables: None });
            self.sent(now, line, What::Read { granted: false, data: false });
        }
    }

    fn send_urgent(&mut self, now: Instant, send: &mut dyn FnMut(&MemMessage<'_>)) {
        while let Some(out) = self.urgent.front() {
            if let Out::Answer { line, left } = *out {
                self.urgent.pop_front();
                // Answers need no tag of this host: they repeat those of the snoops.
                for (tag, bi_id) in self.snoops.remove(&line).unwrap_or_default() {
                    let addr = Hpa(line);
                    let head = MemHead { bi_id, addr, ..MemHead::new(answer_op(left), tag) };
                    send(&MemMessage { head, data: None, enables: None });
                }
                continue;
            }
            let Some(tag) = self.requests.next_tag() else { return };
            let Some(out) = self.urgent.pop_front() else { return };
            let Some((line, what)) = send_out(&out, tag, send) else { continue };
            self.sent(now, line, what);
        }
    }

    /// Notes a request that was sent with the next tag.
    fn sent(&mut self, now: Instant, line: u64, what: What) {
        self.counts.sent += 1;
        self.requests.start(now, Flight { line, what, sent: now });
    }

    /// Takes a message; false if it is no snoop and answers no request.
    pub fn take(&mut self, message: &MemMessage<'_>) -> bool {
        let head = &message.head;
        if let Some(how) = Snoop::of(head.op) {
            // A device that snoops faster than the link takes answers fills memory here; it gives up on the dropped
            // ones.
            if self.urgent.len() >= WAITING_MAX {
                self.counts.unexpected += 1;
                return false;
            }
            let snoops = self.snoops.entry(head.addr.0).or_default();
            if snoops.len() >= SNOOPS_MAX {
                snoops.pop_front();
            }
            // Before the cache sees the snoop, as it may answer at once.
            snoops.push_back((head.tag, head.bi_id));
            self.cache.snoop(head.addr.0, how);
            self.drain();
            return true;
        }
        let is_answer = head.op.class().is_response();
        let request = if is_answer { self.requests.get_mut(head.tag) } else { None };
        let Some(flight) = request.copied() else {
            self.counts.unexpected += 1;
            return false;
        };
        // Before the answer takes effect: a line granted by it is kept only if its lease is known.
        self.cache.leases().renew(head.lease, flight.sent);
        match self.answered(&flight, message) {
            Ok(None) => self.end(head.tag),
            Ok(Some(what)) => {
                if let Some(request) = self.requests.get_mut(head.tag) {
                    request.what = what;
                }
            }
            Err(failure) => {
                self.counts.mismatched += u64::from(failure == Failure::Mismatch);
                self.end(head.tag);
                self.lost(&flight, failure);
            }
        }
        // Once for each request: of the two answers to a read only the data counts.
        if head.op.class() == MemClass::Drs || flight.what == What::Write {
            self.throttle.answered(head.load, self.reads_under_way);
        }
        self.drain();
        true
    }

    /// Advances a request by an answer: `None` if it has ended, else its progress.
    fn answered(
        &mut self,
        flight: &Flight,
        message: &MemMessage<'_>,
    ) -> Result<Option<What>, Failure> {
        let (head, line) = (&message.head, flight.line);
        match (flight.what, head.op, message.data) {
            (What::Write, MemOp::Cmp, _) => _ = self.cache.written(line, head.poison),
            (What::Conflict, MemOp::BiConflictAck, _) => _ = self.cache.conflict_known(line),
            (What::Read { .. }, MemOp::MemDataNxm, _) => return Err(Failure::NoMemory),
            (What::Read { data: false, granted }, MemOp::MemData, Some(bytes)) => {
                // Without metadata the device tracks no copies, and no `Cmp` follows.
                let alone = head.meta == MetaField::NoOp;
                self.cache.data(line, bytes, head.poison, alone);
                return Ok((!alone && !granted).then_some(What::Read { data: true, granted }));
            }
            (What::Read { granted: false, data }, MemOp::Cmp | MemOp::CmpS | MemOp::CmpE, _) => {
                let hold = match head.op {
                    MemOp::CmpS => Some(Hold::Shared),
                    MemOp::CmpE => Some(Hold::Owned),
                    _ => None,
                };
                self.cache.granted(line, hold, head.lease.number);
                return Ok((!data).then_some(What::Read { data, granted: true }));
            }
            _ => return Err(Failure::Mismatch),
        }
        Ok(None)
    }

    fn end(&mut self, tag: u16) {
        if let Some(flight) = self.requests.end(tag) {
            self.ended(&flight);
            self.counts.answered += 1;
        }
    }

    /// A request has ended, answered or not: a read makes room for the next one.
    fn ended(&mut self, flight: &Flight) {
        self.reads_under_way -= usize::from(matches!(flight.what, What::Read { .. }));
    }

    /// A request ends without a fitting answer.
    fn lost(&mut self, flight: &Flight, why: Failure) {
        if flight.what == What::Conflict {
            self.cache.conflict_lost(flight.line);
        } else {
            self.cache.failed(flight.line, why);
        }
    }

    /// Ends requests that were not answered by `now`; returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.set_now(now);
        let mut expired = 0;
        while let Some(flight) = self.requests.next_expired(now) {
            self.ended(&flight);
            self.counts.timeouts += 1;
            expired += 1;
            self.lost(&flight, Failure::Timeout);
            self.drain();
        }
        expired
    }

    /// Gives up everything under way, after a reset or a loss of the link. Lines stay usable while their leases last.
    pub fn give_up(&mut self) {
        self.counts.given_up += self.requests.clear() as u64;
        (self.reads_under_way, self.accesses) = (0, 0);
        self.cache.link_down();
        self.urgent.clear();
        self.reads.clear();
        self.snoops.clear();
        self.ops.give_up();
    }
}

fn of_line(op: MemOp, tag: u16, line: u64, meta_value: u8) -> MemHead {
    MemHead { addr: Hpa(line), meta: MetaField::State, meta_value, ..MemHead::new(op, tag) }
}

/// Sends a message that is neither a read nor an answer to a snoop; returns its line and kind.
fn send_out(
    out: &Out<Piece>,
    tag: u16,
    send: &mut dyn FnMut(&MemMessage<'_>),
) -> Option<(u64, What)> {
    let (head, data, enables, what) = match out {
        Out::WriteBack { line, data, left } => {
            let kept = match left {
                None => META_INVALID,
                Some(Hold::Shared) => META_SHARED,
                Some(Hold::Owned) => META_ANY,
            };
            (of_line(MemOp::MemWr, tag, *line, kept), Some(data), None, What::Write)
        }
        Out::Through { line, data, mask } => {
            let whole = *mask == u64::MAX;
            let op = if whole { MemOp::MemWr } else { MemOp::MemWrPtl };
            let head = MemHead { addr: Hpa(*line), ..MemHead::new(op, tag) };
            (head, Some(data), (!whole).then_some(*mask), What::Write)
        }
        Out::Evict { line } => {
            (of_line(MemOp::MemClnEvct, tag, *line, META_INVALID), None, None, What::Write)
        }
        Out::Conflict { line } => {
            // BIConflict is an M2S RwD message, so it carries a line, whose bytes mean nothing
            // (docs/spec/wire-formats.md §3.9).
            let head = MemHead { addr: Hpa(*line), ..MemHead::new(MemOp::BiConflict, tag) };
            (head, Some(&[0; LINE]), None, What::Conflict)
        }
        Out::Read { .. } | Out::Answer { .. } | Out::Unanswered { .. } | Out::Done { .. } => {
            return None;
        }
    };
    send(&MemMessage { head, data, enables });
    Some((head.addr.0, what))
}

#[cfg(test)]
mod tests;
