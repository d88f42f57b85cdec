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
mod in_flight;
mod operation;
pub(crate) mod ops;
mod throttle;

#[cfg(test)]
mod tests;

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};
use weft_parsers::fabric::Hpa;

use in_flight::InFlight;
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

/// Sends loads and stores as messages, and matches responses to them.
pub struct MemRequester {
    throttle: Throttle,
    ops: Ops,
    requests: InFlight<Piece>,
    counts: MemCounts,
}

impl MemRequester {
    /// A requester without requests under way.
    #[must_use]
    pub fn new(spec: MemSpec) -> Self {
        let most = spec.in_flight_max.clamp(1, IN_FLIGHT_MAX);
        // Twice as many tags as requests under way: each rests before it is used again.
        let requests = InFlight::new(2 * most, spec.timeout);
        Self {
            throttle: Throttle::new(most),
            ops: Ops::default(),
            requests,
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
        self.requests.next_due()
    }

    /// Number of requests under way.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.requests.len()
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
        while self.requests.len() < self.throttle.limit() {
            let Some(tag) = self.requests.next_tag() else { return };
            let Some((piece, data)) = self.ops.next_piece() else { return };
            self.counts.sent += 1;
            send_piece(&piece, data.as_ref(), tag, send);
            self.requests.start(now, piece);
        }
    }

    /// Takes a message; false if it answers no request.
    pub fn take(&mut self, message: &MemMessage<'_>) -> bool {
        let head = &message.head;
        let class = head.op.class();
        // A device may send a request by mistake or malice: its tag is the device's own, and ends none of ours.
        let answered = if class.is_response() { self.requests.end(head.tag) } else { None };
        let Some(piece) = answered else {
            self.counts.unexpected += 1;
            return false;
        };
        self.counts.answered += 1;
        self.throttle.answered(head.load, self.requests.len());
        let loaded = match (piece.reads, head.op, message.data) {
            (true, MemOp::MemData, Some(_)) if head.poison => Err(MemFailure::Poisoned),
            (true, MemOp::MemData, Some(line)) => Ok(Some(line)),
            (true, MemOp::MemDataNxm, _) => Err(MemFailure::NoMemory),
            (false, MemOp::Cmp, _) => Ok(None),
            _ => {
                self.counts.mismatched += 1;
                Err(MemFailure::Mismatch)
            }
        };
        self.ops.ended(&piece, loaded);
        true
    }

    /// Ends requests that were not answered by `now`; returns their number.
    pub fn expire(&mut self, now: Instant) -> usize {
        let mut expired = 0;
        while let Some(piece) = self.requests.next_expired(now) {
            self.counts.timeouts += 1;
            expired += 1;
            self.ops.ended(&piece, Err(MemFailure::Timeout));
        }
        expired
    }

    /// Gives up everything, after a reset or a loss of the link.
    pub fn give_up(&mut self) {
        self.counts.given_up += self.requests.clear() as u64;
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
