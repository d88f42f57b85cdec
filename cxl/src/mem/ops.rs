//! Loads and stores under way: cut into pieces of one line, and put together again. [`Ops::submit`] takes one,
//! [`Ops::next_piece`] returns its [`Piece`]s, [`Ops::ended`] takes the end of each, and [`MemDone`] reports the end of
//! the whole.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use std::collections::VecDeque;

use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::Hpa;

use super::operation::{MemDone, MemFailure, MemId, MemOperation};

/// End of the addresses that a message can name.
const ADDR_END: u64 = 1 << 52;

/// The part of a load or store that lies in one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Piece {
    pub id: MemId,
    /// Offset in the operation; `from` is the offset in the line.
    pub at: usize,
    pub len: usize,
    pub from: usize,
    pub line: u64,
    pub reads: bool,
}

/// A load or store under way.
#[derive(Clone, Debug)]
struct Op {
    addr: u64,
    len: usize,
    /// The bytes to store, or those loaded so far.
    data: Vec<u8>,
    stores: bool,
    /// Bytes that were cut into pieces.
    split: usize,
    under_way: usize,
    failure: Option<MemFailure>,
}

/// Loads and stores under way, in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ops {
    /// Operations from number `first` on; `None` for one that has ended.
    all: VecDeque<Option<Op>>,
    first: u64,
    /// Number of operations under way.
    open: usize,
    /// Number of the first operation that is not cut to its end.
    next: u64,
    done: VecDeque<MemDone>,
}

impl Ops {
    pub(crate) fn submit(&mut self, what: MemOperation) -> MemId {
        let (Hpa(addr), data, stores) = match what {
            MemOperation::Load { addr, len } => (addr, vec![0; len], false),
            MemOperation::Store { addr, data } => (addr, data, true),
        };
        let len = data.len();
        let id = MemId(self.first + self.all.len() as u64);
        let fits = addr.checked_add(len as u64).is_some_and(|end| end <= ADDR_END);
        let failure = (!fits).then_some(MemFailure::Address);
        self.all.push_back(Some(Op { addr, len, data, stores, split: 0, under_way: 0, failure }));
        self.open += 1;
        self.finish(id);
        id
    }

    pub(crate) fn next_done(&mut self) -> Option<MemDone> {
        self.done.pop_front()
    }

    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    fn op(&mut self, id: MemId) -> Option<&mut Op> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        self.all.get_mut(place)?.as_mut()
    }

    /// The next piece; for a store also its line of data.
    pub(crate) fn next_piece(&mut self) -> Option<(Piece, Option<[u8; LINE]>)> {
        let end = self.first + self.all.len() as u64;
        self.next = self.next.max(self.first); // operations in front of `first` have ended
        while self.next < end {
            let id = MemId(self.next);
            match self.op(id) {
                // After a failure no more pieces are made; those under way are waited for.
                Some(op) if op.failure.is_none() && op.split < op.len => return Some(op.cut(id)),
                _ => self.next = id.0 + 1,
            }
        }
        None
    }

    /// A piece has ended; a load brings the bytes of its line.
    pub(crate) fn ended(&mut self, piece: &Piece, result: Result<Option<&[u8; LINE]>, MemFailure>) {
        if let Some(op) = self.op(piece.id) {
            op.under_way -= 1;
            match result {
                Ok(Some(line)) => op.fill(piece, line),
                Ok(None) => {}
                Err(failure) => op.failure = op.failure.or(Some(failure)),
            }
        }
        self.finish(piece.id);
    }

    /// Ends all operations as given up.
    pub(crate) fn give_up(&mut self) {
        self.open = 0;
        for (id, op) in (self.first..).zip(core::mem::take(&mut self.all)) {
            self.first = id + 1;
            if op.is_some() {
                self.done.push_back(MemDone { id: MemId(id), result: Err(MemFailure::GivenUp) });
            }
        }
        self.next = self.first;
    }

    /// Ends a load or store if no piece is under way or left to be cut.
    fn finish(&mut self, id: MemId) {
        let over = self
            .op(id)
            .is_some_and(|op| op.under_way == 0 && (op.split >= op.len || op.failure.is_some()));
        if !over {
            return;
        }
        let place = usize::try_from(id.0 - self.first).ok();
        let op = place.and_then(|place| self.all.get_mut(place)).and_then(Option::take);
        if let Some(op) = op {
            self.open -= 1;
            let loaded = if op.stores { Vec::new() } else { op.data };
            self.done.push_back(MemDone { id, result: op.failure.map_or(Ok(loaded), Err) });
        }
        // An operation may end before an earlier one; its place goes when all in front have ended.
        while let Some(None) = self.all.front() {
            self.all.pop_front();
            self.first += 1;
        }
    }
}

impl Op {
    /// Cuts off the part that lies in the next line.
    fn cut(&mut self, id: MemId) -> (Piece, Option<[u8; LINE]>) {
        let addr = self.addr + self.split as u64;
        let line = addr & !(LINE as u64 - 1);
        let from = usize::try_from(addr - line).unwrap_or_default();
        let (at, len) = (self.split, (LINE - from).min(self.len - self.split));
        self.split += len;
        self.under_way += 1;
        let piece = Piece { id, at, len, from, line, reads: !self.stores };
        if !self.stores {
            return (piece, None);
        }
        // Bytes outside the piece are not enabled: their value does not matter.
        let mut data = [0; LINE];
        let bytes = self.data.get(at..at + len).unwrap_or_default();
        for (place, &byte) in data.iter_mut().skip(from).zip(bytes) {
            *place = byte;
        }
        (piece, Some(data))
    }

    /// Copies the loaded part of a line.
    fn fill(&mut self, piece: &Piece, line: &[u8; LINE]) {
        let place = self.data.get_mut(piece.at..piece.at + piece.len);
        let bytes = line.get(piece.from..piece.from + piece.len);
        if let (Some(place), Some(bytes)) = (place, bytes) {
            place.copy_from_slice(bytes);
        }
    }
}

impl Piece {
    /// The piece's bytes in its line, one bit each.
    pub(crate) const fn mask(&self) -> u64 {
        if self.len >= LINE { u64::MAX } else { ((1 << self.len) - 1) << self.from }
    }
}
