//! Loads and stores by CXL.mem: ranges are cut into lines of 64 bytes, each a request of its own.
//!
//! Shape: [`MemOperation`]s in by [`MemRequester::submit`], messages out by [`MemRequester::flush`], responses in by
//! [`MemRequester::take`], [`MemDone`] out.
//! Units: bytes, lines; tags of 16 bits.
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9.
//!
//! Lines are sent in the order of the ranges, and answered in any. A tag that was used is the last to be used again, so that
//! what comes late finds nobody.

mod throttle;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::Hpa;

use crate::requester::Failure;
pub use throttle::Throttle;

/// Most requests under way: half of the tags, so that the other half rests.
pub const IN_FLIGHT_MAX: usize = 1 << 15;
/// The first address that no message can name.
const ADDR_END: u64 = 1 << 52;

/// Number of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemId(pub u64);

/// Why a load or store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemFailure {
    /// An address that no message can name.
    #[error("the address is not below 2^52")]
    Address,
    /// Nobody has that memory, or nobody may tell.
    #[error("there is no such memory, or it is not the host's")]
    NoMemory,
    /// A line is poisoned.
    #[error("a line is poisoned")]
    Poisoned,
    /// An answer that does not fit its request.
    #[error("an answer does not fit its request")]
    Mismatch,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// Given up: a reset, or the link went down.
    #[error("given up: the link went down")]
    GivenUp,
}

impl From<MemFailure> for Failure {
    fn from(failure: MemFailure) -> Self {
        match failure {
            MemFailure::Address => Self::Address,
            MemFailure::NoMemory => Self::NoMemory,
            MemFailure::Poisoned => Self::Poisoned,
            MemFailure::Mismatch => Self::Mismatch,
            MemFailure::Timeout => Self::Timeout,
            MemFailure::GivenUp => Self::GivenUp,
        }
    }
}

/// A load or store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemOperation {
    /// So many bytes are loaded.
    Load {
        /// First address.
        addr: Hpa,
        /// Bytes.
        len: usize,
    },
    /// These bytes are stored.
    Store {
        /// First address.
        addr: Hpa,
        /// What.
        data: Vec<u8>,
    },
}

/// A load or store that ended, and the bytes that were loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemDone {
    /// Which.
    pub id: MemId,
    /// Its end. A store that was refused ends like any other: CXL.mem has no word for it.
    pub result: Result<Vec<u8>, MemFailure>,
}

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MemCounts {
    /// Requests that were sent, a line each.
    pub sent: u64,
    /// Requests that have their answer.
    pub answered: u64,
    /// Requests that were not answered in time.
    pub timeouts: u64,
    /// Requests that were given up while under way.
    pub given_up: u64,
    /// Messages for nothing that is under way.
    pub unexpected: u64,
    /// Responses that do not fit their request.
    pub mismatched: u64,
    /// Level of throttling now, 0 to 255.
    pub throttle: u8,
}

/// What a requester is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemSpec {
    /// Requests under way, at most [`IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// How long an answer may take.
    pub timeout: Span,
}

/// A load or store that has not ended.
struct Op {
    addr: u64,
    len: usize,
    /// What is stored, or what was loaded so far.
    data: Vec<u8>,
    stores: bool,
    /// Bytes that requests were sent for.
    split: usize,
    under_way: usize,
    failure: Option<MemFailure>,
}

/// A request under way.
#[derive(Clone, Copy)]
struct Flight {
    id: MemId,
    /// Which bytes of the operation, and where these begin in the line.
    at: usize,
    len: usize,
    from: usize,
    reads: bool,
    serial: u64,
}

/// Sends loads and stores as messages, and matches responses to them.
pub struct MemRequester {
    spec: MemSpec,
    throttle: Throttle,
    /// Those that have not ended, from number `first` on.
    ops: VecDeque<Option<Op>>,
    first: u64,
    /// How many these are.
    open: usize,
    /// The first that is not sent to its end.
    next: u64,
    flights: Vec<Option<Flight>>,
    free: VecDeque<u16>,
    under_way: usize,
    deadlines: VecDeque<(Instant, u16, u64)>,
    done: VecDeque<MemDone>,
    counts: MemCounts,
}

impl MemRequester {
    /// Nothing is under way.
    #[must_use]
    pub fn new(spec: MemSpec) -> Self {
        let most = spec.in_flight_max.clamp(1, IN_FLIGHT_MAX);
        let tags = u16::try_from(2 * most - 1).unwrap_or(u16::MAX);
        Self {
            spec: MemSpec { in_flight_max: most, ..spec },
            throttle: Throttle::new(most),
            ops: VecDeque::new(),
            first: 0,
            open: 0,
            next: 0,
            flights: vec![None; usize::from(tags) + 1],
            free: (0..=tags).collect(),
            under_way: 0,
            deadlines: VecDeque::new(),
            done: VecDeque::new(),
            counts: MemCounts::default(),
        }
    }

    /// Takes a load or store; its lines are sent by the next [`Self::flush`].
    pub fn submit(&mut self, what: MemOperation) -> MemId {
        let (Hpa(addr), data, stores) = match what {
            MemOperation::Load { addr, len } => (addr, vec![0; len], false),
            MemOperation::Store { addr, data } => (addr, data, true),
        };
        let len = data.len();
        let id = MemId(self.first + self.ops.len() as u64);
        let fits = addr.checked_add(len as u64).is_some_and(|end| end <= ADDR_END);
        let failure = (!fits).then_some(MemFailure::Address);
        self.ops.push_back(Some(Op { addr, len, data, stores, split: 0, under_way: 0, failure }));
        self.open += 1;
        self.finish(id);
        id
    }

    /// The next load or store that ended.
    pub fn next_done(&mut self) -> Option<MemDone> {
        self.done.pop_front()
    }

    /// When the next request times out.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Requests under way.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.under_way
    }

    /// Loads and stores that have not ended.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.open
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> MemCounts {
        MemCounts { throttle: self.throttle.level(), ..self.counts }
    }

    fn op(&mut self, id: MemId) -> Option<&mut Op> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.ops.get_mut(place)?.as_mut()
    }

    /// Hands what may be sent to `send`.
    pub fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&MemMessage<'_>)) {
        let end = self.first + self.ops.len() as u64;
        self.next = self.next.max(self.first); // those before have ended
        while self.next < end && self.under_way < self.throttle.limit() {
            let id = MemId(self.next);
            let more = match self.op(id) {
                Some(op) => op.failure.is_none() && op.split < op.len,
                None => false,
            };
            if !more {
                self.next = id.0 + 1;
                continue;
            }
            let Some(tag) = self.free.pop_front() else { return };
            self.counts.sent += 1;
            let serial = self.counts.sent;
            let Some(op) = self.op(id) else { return };
            let flight = op.send_line(id, tag, serial, send);
            if let Some(place) = self.flights.get_mut(usize::from(tag)) {
                *place = Some(flight);
            }
            self.under_way += 1;
            self.deadlines.push_back((now + self.spec.timeout, tag, serial));
        }
    }

    /// Takes a message; false if there is nothing that it answers.
    pub fn take(&mut self, message: &MemMessage<'_>) -> bool {
        let head = &message.head;
        let class = head.op.class();
        let place = self.flights.get_mut(usize::from(head.tag)).filter(|_| class.is_response());
        let Some(flight) = place.and_then(Option::take) else {
            self.counts.unexpected += 1;
            return false;
        };
        self.free.push_back(head.tag);
        self.under_way -= 1;
        self.counts.answered += 1;
        self.throttle.answered(head.load, self.under_way);
        let loaded = match (flight.reads, head.op, message.data) {
            (true, MemOp::MemData, Some(_)) if head.poison => Err(MemFailure::Poisoned),
            (true, MemOp::MemData, Some(line)) => Ok(Some(line)),
            (true, MemOp::MemDataNxm, _) => Err(MemFailure::NoMemory),
            (false, MemOp::Cmp, _) => Ok(None),
            _ => {
                self.counts.mismatched += 1;
                Err(MemFailure::Mismatch)
            }
        };
        if let Some(op) = self.op(flight.id) {
            op.under_way -= 1;
            match loaded {
                Ok(Some(line)) => op.fill(&flight, line),
                Ok(None) => {}
                Err(failure) => op.failure = op.failure.or(Some(failure)),
            }
        }
        self.finish(flight.id);
        true
    }

    /// Ends what was not answered by `now`; returns how many requests that were.
    pub fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(&(at, tag, serial)) = self.deadlines.front() {
            let place = self.flights.get_mut(usize::from(tag));
            let flight = place.filter(|flight| flight.is_some_and(|one| one.serial == serial));
            if flight.is_some() && at > now {
                break;
            }
            self.deadlines.pop_front();
            let Some(flight) = flight.and_then(Option::take) else { continue };
            self.free.push_back(tag);
            self.under_way -= 1;
            self.counts.timeouts += 1;
            expired += 1;
            if let Some(op) = self.op(flight.id) {
                op.under_way -= 1;
                op.failure = op.failure.or(Some(MemFailure::Timeout));
            }
            self.finish(flight.id);
        }
        expired
    }

    /// Gives up everything: a reset, or the link went down.
    pub fn give_up(&mut self) {
        self.counts.given_up += self.under_way as u64;
        (self.under_way, self.open) = (0, 0);
        self.deadlines.clear();
        for (tag, flight) in (0..).zip(&mut self.flights) {
            if flight.take().is_some() {
                self.free.push_back(tag);
            }
        }
        for (id, op) in (self.first..).zip(core::mem::take(&mut self.ops)) {
            self.first = id + 1;
            if op.is_some() {
                self.done.push_back(MemDone { id: MemId(id), result: Err(MemFailure::GivenUp) });
            }
        }
        self.next = self.first;
    }

    /// Ends a load or store of which nothing is under way or left to be sent.
    fn finish(&mut self, id: MemId) {
        let over = self
            .op(id)
            .is_some_and(|op| op.under_way == 0 && (op.split >= op.len || op.failure.is_some()));
        if !over {
            return;
        }
        let place = usize::try_from(id.0 - self.first).ok();
        let op = place.and_then(|place| self.ops.get_mut(place)).and_then(Option::take);
        if let Some(op) = op {
            self.open -= 1;
            let loaded = if op.stores { Vec::new() } else { op.data };
            self.done.push_back(MemDone { id, result: op.failure.map_or(Ok(loaded), Err) });
        }
        while let Some(None) = self.ops.front() {
            self.ops.pop_front();
            self.first += 1;
        }
    }
}

impl Op {
    /// Sends the request for the next line.
    fn send_line(
        &mut self,
        id: MemId,
        tag: u16,
        serial: u64,
        send: &mut dyn FnMut(&MemMessage<'_>),
    ) -> Flight {
        let addr = self.addr + self.split as u64;
        let line = addr & !(LINE as u64 - 1);
        let from = usize::try_from(addr - line).unwrap_or_default();
        let (at, len) = (self.split, (LINE - from).min(self.len - self.split));
        self.split += len;
        self.under_way += 1;
        let mut data = [0; LINE];
        let (op, enables) = match (self.stores, len) {
            (false, _) => (MemOp::MemRd, None),
            (true, LINE) => (MemOp::MemWr, None),
            (true, _) => (MemOp::MemWrPtl, Some(((1_u64 << len) - 1) << from)),
        };
        if self.stores {
            let bytes = self.data.get(at..at + len).unwrap_or_default();
            for (place, &byte) in data.iter_mut().skip(from).zip(bytes) {
                *place = byte;
            }
        }
        let head = MemHead { addr: Hpa(line), ..MemHead::new(op, tag) };
        send(&MemMessage { head, data: self.stores.then_some(&data), enables });
        Flight { id, at, len, from, reads: !self.stores, serial }
    }

    /// Keeps what came of a line.
    fn fill(&mut self, flight: &Flight, line: &[u8; LINE]) {
        let place = self.data.get_mut(flight.at..flight.at + flight.len);
        let bytes = line.get(flight.from..flight.from + flight.len);
        if let (Some(place), Some(bytes)) = (place, bytes) {
            place.copy_from_slice(bytes);
        }
    }
}
