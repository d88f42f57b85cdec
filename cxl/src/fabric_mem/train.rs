//! A transfer cut into requests, and the parts of one request that have come.
//! Shape: [`Train`] yields [`Piece`]s in order; [`Cover`] is a set of disjoint ranges.
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.6 (chunks in any order), §5.5 (requests of up to 4 KiB).

use weft_parsers::fabric::Hpa;

/// One operation, with its checked addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Local address.
    pub local: u64,
    /// Fabric address of the remote end.
    pub fabric: Hpa,
    /// Bytes, above 0.
    pub len: u64,
}

/// A part of an operation that fits one request.
pub type Piece = Span;

/// Operations and how far they have been cut.
#[derive(Clone, Debug)]
pub struct Train {
    spans: Vec<Span>,
    at: usize,
    done: u64,
    request_len_max: u64,
}

impl Train {
    /// `request_len_max` is a power of two of at most 4 KiB: no piece crosses a multiple of it.
    #[must_use]
    pub const fn new(spans: Vec<Span>, request_len_max: u64) -> Self {
        Self { spans, at: 0, done: 0, request_len_max }
    }

    /// The next piece, without taking it.
    #[must_use]
    pub fn peek(&self) -> Option<Piece> {
        let span = self.spans.get(self.at)?;
        let (local, fabric) = (span.local + self.done, span.fabric.0 + self.done);
        let to_boundary = self.request_len_max - (fabric & (self.request_len_max - 1));
        Some(Piece { local, fabric: Hpa(fabric), len: to_boundary.min(span.len - self.done) })
    }

    /// Goes past what [`Self::peek`] gave.
    pub fn advance(&mut self) {
        let (Some(piece), Some(span)) = (self.peek(), self.spans.get(self.at)) else { return };
        self.done += piece.len;
        if self.done == span.len {
            (self.at, self.done) = (self.at + 1, 0);
        }
    }

    /// All operations, whole.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}

/// Ranges of a request's bytes that have come.
#[derive(Clone, Debug, Default)]
pub struct Cover(Vec<(u64, u64)>);

impl Cover {
    /// Adds `len` bytes from `offset` on; false, and nothing is added, when the range is empty, ends behind
    /// `whole` or overlaps what is there.
    #[must_use]
    pub fn add(&mut self, offset: u64, len: u64, whole: u64) -> bool {
        let Some(end) = offset.checked_add(len).filter(|end| len > 0 && *end <= whole) else {
            return false;
        };
        let at = self.0.partition_point(|(start, _)| *start < offset);
        let before = at.checked_sub(1).and_then(|before| self.0.get(before)).copied();
        let after = self.0.get(at).copied();
        if before.is_some_and(|(_, to)| to > offset) || after.is_some_and(|(from, _)| from < end) {
            return false;
        }
        let joins_before = before.is_some_and(|(_, to)| to == offset);
        let (mut range, mut place) = ((offset, end), at);
        if let Some((from, _)) = before.filter(|_| joins_before) {
            (range.0, place) = (from, at - 1);
        }
        if let Some((_, to)) = after.filter(|(from, _)| *from == end) {
            range.1 = to;
            self.0.remove(at);
        }
        match self.0.get_mut(place).filter(|_| joins_before) {
            Some(old) => *old = range,
            None => self.0.insert(place, range),
        }
        true
    }

    /// Whether all of `whole` bytes have come.
    #[must_use]
    pub fn is_whole(&self, whole: u64) -> bool {
        self.0.as_slice() == [(0, whole)]
    }
}
