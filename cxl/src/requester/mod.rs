//! A requester: splits transactions into TLPs, tracks them by tag, and reassembles completions.
//!
//! [`Requester::submit`] takes a [`Transaction`], [`Requester::flush`] sends its TLPs, [`Requester::take`] takes
//! completions, and [`Requester::next_done`] returns the results. Tags have 10 bits (non-flit) or 14 (flit).
//!
//! Source: PCIe 6.0 sections 2.2.5 (byte enables), 2.2.6.2 (tags), 2.3.1.1 (split completions), 2.8 (timeout);
//! docs/spec/wire-formats.md §3.1, §3.5, §3.6.
//!
//! Transactions are sent in the order of their submission. A tag that timed out is the last to be used again, so
//! that a late completion matches no request.

mod flight;
mod parts;
mod transaction;
pub mod uio;

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{Kind, Mode, Status, Tlp, TlpRepr, VendPrefixL0};

use crate::by_key::ByKey;

use flight::{Flight, Step};
use parts::Part;
pub use transaction::{Done, Failure, OpId, Operation, RequesterSpec, Transaction};

/// Buffers that are kept for reuse, and the largest one kept: those of UIO requests of a fabric memory engine.
const SPARE_MAX: usize = 256;
const SPARE_LEN_MAX: usize = 4_096;
//= docs/spec/cxl-fabric.md "Dynamic change": a UIO request that was answered with RRS is sent again after 1 ms
/// Pause before a UIO request is sent again.
const RETRY_INTERVAL: Span = Span::from_ms(1);

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RequesterCounts {
    /// Requests sent, those sent again included.
    pub sent: u64,
    /// Requests that were completed with any status.
    pub answered: u64,
    /// Of these, UIO requests completed with RRS, which are sent again.
    pub retried: u64,
    /// Requests that were not completed in time.
    pub timeouts: u64,
    /// Requests abandoned by a reset or a loss of the link.
    pub given_up: u64,
    /// Completions that matched a request.
    pub completions: u64,
    /// Completions that matched no request.
    pub unexpected: u64,
    /// Completions that matched a tag, but do not fit its request.
    pub mismatched: u64,
}

/// A transaction that has not ended.
struct Op {
    transaction: Transaction,
    /// Bytes sent so far, and whether those are all.
    split: usize,
    whole: bool,
    under_way: usize,
    data: Vec<u8>,
    failure: Option<Failure>,
    ln: bool,
}

/// A part of a UIO transaction that is to be sent again, as it was completed with RRS before any data.
#[derive(Clone, Copy)]
struct Again {
    op: OpId,
    split: usize,
    len: usize,
    /// Time to send it; `None` until the next flush, as completions come without the time.
    at: Option<Instant>,
    /// Time after which it is not sent again.
    until: Instant,
}

/// Result of an attempt to send a part.
enum PartSent {
    /// Not sent: no tag is free.
    NoTag,
    /// Not sent: the link's mode has no such TLP.
    NoForm,
    /// Sent, and others follow.
    More,
    /// Sent, and it was the last one.
    Last,
}

/// A requester: sends transactions as TLPs and matches completions to them.
pub struct Requester {
    spec: RequesterSpec,
    id: Bdf,
    /// PCIe segment named in configuration requests.
    segment: Option<u8>,
    ops: ByKey<OpId, Op>,
    /// Transactions that are not sent completely, in order.
    queue: VecDeque<OpId>,
    flights: ByKey<u16, Flight>,
    /// Ascending by time; entries of completed requests are skipped.
    deadlines: VecDeque<(Instant, u16, u64)>,
    /// Ascending by time; entries without one are the last.
    again: VecDeque<Again>,
    done: VecDeque<Done>,
    next_op: u64,
    next_tag: u16,
    counts: RequesterCounts,
    /// Data buffers of ended transactions, for reuse.
    spare: Vec<Vec<u8>>,
}

impl Requester {
    /// A requester without transactions.
    #[must_use]
    pub fn new(spec: RequesterSpec, id: Bdf) -> Self {
        Self {
            spec,
            id,
            segment: None,
            ops: ByKey::default(),
            queue: VecDeque::new(),
            flights: ByKey::default(),
            deadlines: VecDeque::new(),
            again: VecDeque::new(),
            done: VecDeque::new(),
            next_op: 0,
            next_tag: 0,
            spare: Vec::new(),
            counts: RequesterCounts {
                sent: 0,
                answered: 0,
                retried: 0,
                timeouts: 0,
                given_up: 0,
                completions: 0,
                unexpected: 0,
                mismatched: 0,
            },
        }
    }

    /// Changes the Requester ID.
    pub const fn set_id(&mut self, id: Bdf) {
        self.id = id;
    }

    /// Sets the PCIe segment that configuration requests name in flit mode; their receiver learns its segment from
    /// them.
    pub const fn set_segment(&mut self, segment: Option<u8>) {
        self.segment = segment;
    }

    /// Sets the largest write and read in bytes, powers of two.
    pub fn set_sizes(&mut self, payload_max: usize, read_max: usize) {
        self.spec.payload_max = payload_max.clamp(128, 4_096);
        self.spec.read_max = read_max.clamp(128, 4_096);
    }

    #[must_use]
    pub const fn counts(&self) -> RequesterCounts {
        self.counts
    }

    /// Number of requests sent and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Limit of requests sent and not completed.
    fn in_flight_max(&self) -> usize {
        self.spec.in_flight_max.min(usize::from(tags(self.spec.mode)))
    }

    /// Number of transactions that have not ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.ops.len()
    }

    /// Submits a transaction; the next [`Self::flush`] sends it.
    pub fn submit(&mut self, transaction: Transaction) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        let data = self.buffer(parts::answer_len(&transaction.operation));
        let state =
            Op { transaction, split: 0, whole: false, under_way: 0, data, failure: None, ln: true };
        self.ops.insert(op, state);
        self.queue.push_back(op);
        op
    }

    /// A buffer of `len` bytes with any contents.
    pub(crate) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = if len == 0 { None } else { self.spare.pop() }.unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer for [`Self::buffer`], if its size is one that comes often.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        // An empty buffer has no memory to reuse, and a large one would keep it for ever.
        if (1..=SPARE_LEN_MAX).contains(&buffer.capacity()) && self.spare.len() < SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    /// The next transaction that has ended.
    pub fn next_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Time at which the next request times out or is sent again.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        // While no tag is free, only a completion lets it go on, and no timer is needed.
        let again = self.again.front().filter(|_| self.flights.len() < self.in_flight_max());
        // Time zero is due at once: the flush that follows sets the time.
        let again = again.map(|again| again.at.unwrap_or(Instant::ZERO));
        Instant::earlier(self.deadlines.front().map(|(at, ..)| *at), again)
    }

    /// Passes TLPs to `send`, which returns false if the link's mode has no such TLP; requests to send again come
    /// first.
    pub fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&TlpRepr<'_>) -> bool) {
        if !self.send_again(now, send) {
            return;
        }
        while let Some(&op) = self.queue.front() {
            let Some(state) = self.ops.get_mut(&op) else {
                self.queue.pop_front();
                continue;
            };
            // The rest of a failed transaction is not sent.
            if state.failure.is_none() {
                let (split, until) = (state.split, now + self.spec.timeout);
                match self.send_part(now, op, split, until, send) {
                    PartSent::NoTag => return,
                    PartSent::NoForm | PartSent::More => continue,
                    PartSent::Last => {}
                }
            }
            self.queue.pop_front();
            self.finish(op);
        }
    }

    /// Sends the part behind the first `split` bytes of a transaction as one TLP; `until` is the limit for sending
    /// it again.
    fn send_part(
        &mut self,
        now: Instant,
        op: OpId,
        split: usize,
        until: Instant,
        send: &mut dyn FnMut(&TlpRepr<'_>) -> bool,
    ) -> PartSent {
        let most = self.in_flight_max();
        let Some(state) = self.ops.get_mut(&op) else { return PartSent::Last };
        let part = Part::next(&state.transaction.operation, split, &self.spec);
        let mut tag = 0;
        if part.kind.wants_completion() {
            if self.flights.len() >= most {
                return PartSent::NoTag;
            }
            // Round-robin: a tag that timed out is used again only after all others.
            self.next_tag = free_tag(&self.flights, self.next_tag, tags(self.spec.mode));
            tag = self.next_tag;
        }
        let head = TlpRepr {
            vend_prefix: state.transaction.to.map(VendPrefixL0::from_pid),
            tc: state.transaction.tc,
            dest_segment: self.segment.filter(|_| part.kind.is_config()),
            // LN is a bit of memory requests alone; other kinds have it reserved.
            ln: state.transaction.ln && matches!(part.kind, Kind::MemRead | Kind::MemWrite),
            ..TlpRepr::new(self.spec.mode, part.kind, self.id, tag, part.body)
        };
        if !send(&TlpRepr { payload: &part.payload, ..head }) {
            state.failure = Some(Failure::NoForm);
            return PartSent::NoForm;
        }
        self.counts.sent += 1;
        // A part that is sent again was counted before.
        if split == state.split && !state.whole {
            state.split += part.len;
            state.whole = part.last;
        }
        if part.kind.wants_completion() {
            state.under_way += 1;
            // The timeout is the same for all, so appending keeps the deadlines in order.
            self.deadlines.push_back((now + self.spec.timeout, tag, self.counts.sent));
            self.flights.insert(tag, Flight::new(op, self.id, self.counts.sent, until, &part));
        }
        if part.last { PartSent::Last } else { PartSent::More }
    }

    /// Sends requests again whose pause is over; returns false if a tag was missing.
    fn send_again(&mut self, now: Instant, send: &mut dyn FnMut(&TlpRepr<'_>) -> bool) -> bool {
        // New entries are at the end, and only those lack a time.
        for again in self.again.iter_mut().rev() {
            if again.at.is_some() {
                break;
            }
            again.at = Some(now + RETRY_INTERVAL);
        }
        while let Some(again) = self.again.front().copied() {
            let is_over = again.until <= now;
            if !is_over && again.at.is_none_or(|at| now < at) {
                break;
            }
            let Some(state) = self.ops.get_mut(&again.op) else {
                self.again.pop_front();
                continue;
            };
            // `send_part` counts it as under way again.
            state.under_way -= 1;
            let part = Part::next(&state.transaction.operation, again.split, &self.spec);
            // Limits of payload or read size have changed meanwhile: the part would have another length.
            if is_over || part.len != again.len {
                state.failure.get_or_insert(Failure::Status(Status::RequestRetry));
            }
            if state.failure.is_none() {
                let sent = self.send_part(now, again.op, again.split, again.until, send);
                if matches!(sent, PartSent::NoTag) {
                    if let Some(state) = self.ops.get_mut(&again.op) {
                        state.under_way += 1; // still waiting for a tag
                    }
                    return false;
                }
            }
            self.again.pop_front();
            self.finish(again.op);
        }
        true
    }

    /// Takes a completion; returns false if no request matches it.
    pub fn take(&mut self, tlp: &Tlp<'_>) -> bool {
        let tag = tlp.tag();
        let found = self.flights.get_mut(&tag).filter(|flight| flight.is_answered_by(tlp));
        let Some(flight) = found else {
            self.counts.unexpected += 1;
            return false;
        };
        self.counts.completions += 1;
        let op = flight.op;
        let Some(state) = self.ops.get_mut(&op) else { return false };
        let ended = match flight.take(tlp, &mut state.data) {
            Step::More => false,
            Step::Whole => true,
            // Nothing was delivered, so the part keeps its share of `under_way` and waits for its time.
            Step::Again => {
                let (split, len, until) = flight.again();
                self.again.push_back(Again { op, split, len, at: None, until });
                self.flights.swap_remove(&tag);
                (self.counts.answered, self.counts.retried) =
                    (self.counts.answered + 1, self.counts.retried + 1);
                return true;
            }
            Step::Failed(failure) => {
                if failure == Failure::Mismatch {
                    self.counts.mismatched += 1;
                }
                // The first failure is the one reported.
                state.failure.get_or_insert(failure);
                true
            }
        };
        // A registration counts only if all completions carry the LN bit.
        state.ln &= tlp.ln();
        if ended {
            self.flights.swap_remove(&tag);
            self.counts.answered += 1;
            state.under_way -= 1;
            self.finish(op);
        }
        true
    }

    /// Fails requests that were not completed by `now`; returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(&(at, tag, serial)) = self.deadlines.front() {
            // The serial number tells the request from a later one with the same tag.
            let is_under_way = self.flights.get(&tag).is_some_and(|it| it.serial == serial);
            if is_under_way && at > now {
                break;
            }
            self.deadlines.pop_front();
            if !is_under_way {
                continue;
            }
            if let Some(flight) = self.flights.swap_remove(&tag) {
                self.counts.timeouts += 1;
                expired += 1;
                if let Some(state) = self.ops.get_mut(&flight.op) {
                    state.failure.get_or_insert(Failure::Timeout);
                    state.under_way -= 1;
                }
                self.finish(flight.op);
            }
        }
        expired
    }

    /// Abandons all transactions: a reset, or the link went down.
    pub fn give_up(&mut self) {
        self.counts.given_up += self.flights.len() as u64;
        self.flights.clear();
        self.again.clear();
        self.deadlines.clear();
        self.queue.clear();
        // In the order of submission, not of the hash.
        self.ops.sort_unstable_keys();
        for (op, _) in core::mem::take(&mut self.ops) {
            self.done.push_back(Done { op, result: Err(Failure::GivenUp), ln: false });
        }
    }

    /// Ends a transaction if nothing of it is under way or left to send.
    fn finish(&mut self, op: OpId) {
        let over = self
            .ops
            .get(&op)
            .is_some_and(|state| state.under_way == 0 && (state.whole || state.failure.is_some()));
        if !over {
            return;
        }
        if let Some(state) = self.ops.swap_remove(&op) {
            if let Operation::UioWrite { data, .. } = state.transaction.operation {
                self.recycle(data);
            }
            let result = state.failure.map_or(Ok(state.data), Err);
            self.done.push_back(Done { op, result, ln: state.ln });
        }
    }
}

/// Number of tags of a mode.
const fn tags(mode: Mode) -> u16 {
    match mode {
        Mode::NonFlit => 1 << 10,
        Mode::Flit => 1 << 14,
    }
}

/// The next free tag behind `after`; the caller has checked that there is one.
fn free_tag(flights: &ByKey<u16, Flight>, after: u16, count: u16) -> u16 {
    let next = (1..=count).map(|step| after.wrapping_add(step) % count);
    next.into_iter().find(|tag| !flights.contains_key(tag)).unwrap_or(after)
}

#[cfg(test)]
mod tests;
