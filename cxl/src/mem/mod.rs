//! Loads and stores by CXL.mem: ranges are cut into lines of 64 bytes, each a request of its own.
//!
//! [`MemOperation`]s come in by [`MemRequester::submit`], messages go out by [`MemRequester::flush`], responses come in
//! by [`MemRequester::take`], and [`MemDone`] reports the end.
//!
//! Lines are sent in the order of the ranges, and answered in any. A used tag is the last to be used again, so that a
//! late answer matches no request.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9.

pub mod cached;
mod operation;
pub(crate) mod ops;
mod throttle;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::Hpa;

pub use operation::{IN_FLIGHT_MAX, MemCounts, MemDone, MemFailure, MemId, MemOperation, MemSpec};
use ops::{Ops, Piece};
pub use throttle::Throttle;

/// Answer to a refused request, and whether a line of ones goes with it; `None` if the request has no answer.
#[must_use]
pub fn refusal(request: &MemHead) -> Option<(MemHead, bool)> {
    let op = request.op.refusal()?;
    let head = MemHead { ld: request.ld, ..MemHead::new(op, request.tag) };
    Some((head, op == MemOp::MemDataNxm))
}

/// A request under way.
#[derive(Clone, Copy)]
struct Flight {
    piece: Piece,
    serial: u64,
}

/// Sends loads and stores as messages, and matches responses to them.
pub struct MemRequester {
    spec: MemSpec,
    throttle: Throttle,
    ops: Ops,
    flights: Vec<Option<Flight>>,
    free: VecDeque<u16>,
    under_way: usize,
    deadlines: VecDeque<(Instant, u16, u64)>,
    counts: MemCounts,
}

impl MemRequester {
    /// A requester without requests under way.
    #[must_use]
    pub fn new(spec: MemSpec) -> Self {
        let most = spec.in_flight_max.clamp(1, IN_FLIGHT_MAX);
        // Twice as many tags as requests under way: each rests before it is used again.
        let tags = u16::try_from(2 * most - 1).unwrap_or(u16::MAX);
        Self {
            spec: MemSpec { in_flight_max: most, ..spec },
            throttle: Throttle::new(most),
            ops: Ops::default(),
            flights: vec![None; usize::from(tags) + 1],
            free: (0..=tags).collect(),
            under_way: 0,
            deadlines: VecDeque::new(),
            counts: MemCounts::default(),
        }
    }

    /// Takes a load or store; its lines are sent by the next [`Self::flush`].
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
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Number of requests under way.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.under_way
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

    /// Hands messages that may be sent to `send`.
    pub fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&MemMessage<'_>)) {
        while self.under_way < self.throttle.limit() {
            let Some(&tag) = self.free.front() else { return };
            let Some((piece, data)) = self.ops.next_piece() else { return };
            self.free.pop_front();
            self.counts.sent += 1;
            let serial = self.counts.sent;
            send_piece(&piece, data.as_ref(), tag, send);
            if let Some(place) = self.flights.get_mut(usize::from(tag)) {
                *place = Some(Flight { piece, serial });
            }
            self.under_way += 1;
            self.deadlines.push_back((now + self.spec.timeout, tag, serial));
        }
    }

    /// Takes a message; false if it answers no request.
    pub fn take(&mut self, message: &MemMessage<'_>) -> bool {
        let head = &message.head;
        let class = head.op.class();
        // A device may send a request by mistake or malice: its tag is the device's own, and ends none of ours.
        let place = self.flights.get_mut(usize::from(head.tag)).filter(|_| class.is_response());
        let Some(flight) = place.and_then(Option::take) else {
            self.counts.unexpected += 1;
            return false;
        };
        self.free.push_back(head.tag);
        self.under_way -= 1;
        self.counts.answered += 1;
        self.throttle.answered(head.load, self.under_way);
        let loaded = match (flight.piece.reads, head.op, message.data) {
            (true, MemOp::MemData, Some(_)) if head.poison => Err(MemFailure::Poisoned),
            (true, MemOp::MemData, Some(line)) => Ok(Some(line)),
            (true, MemOp::MemDataNxm, _) => Err(MemFailure::NoMemory),
            (false, MemOp::Cmp, _) => Ok(None),
            _ => {
                self.counts.mismatched += 1;
                Err(MemFailure::Mismatch)
            }
        };
        self.ops.ended(&flight.piece, loaded);
        true
    }

    /// Ends requests that were not answered by `now`; returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(&(at, tag, serial)) = self.deadlines.front() {
            let place = self.flights.get_mut(usize::from(tag));
            // Deadlines of answered requests stay in the queue; by now another request may have the tag, so the serial
            // decides.
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
            self.ops.ended(&flight.piece, Err(MemFailure::Timeout));
        }
        expired
    }

    /// Gives up everything, after a reset or a loss of the link.
    pub fn give_up(&mut self) {
        self.counts.given_up += self.under_way as u64;
        self.under_way = 0;
        self.deadlines.clear();
        for (tag, flight) in (0..).zip(&mut self.flights) {
            if flight.take().is_some() {
                self.free.push_back(tag);
            }
        }
        self.ops.give_up();
    }
}

/// Sends the request for a piece, without metadata.
fn send_piece(
    piece: &Piece,
    data: Option<&[u8; LINE]>,
    tag: u16,
    send: &mut dyn FnMut(&MemMessage<'_>),
) {
    let (op, enables) = match (piece.reads, piece.len) {
        (true, _) => (MemOp::MemRd, None),
        (false, LINE) => (MemOp::MemWr, None),
        (false, _) => (MemOp::MemWrPtl, Some(piece.mask())),
    };
    let head = MemHead { addr: Hpa(piece.line), ..MemHead::new(op, tag) };
    send(&MemMessage { head, data, enables });
}
