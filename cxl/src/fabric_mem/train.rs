//! A transfer cut into requests: [`Train`] yields [`Piece`]s in order.
//!
//! Source: docs/spec/wire-formats.md §5.5 (requests of up to 4 KiB).

use weft_parsers::fabric::Hpa;

/// One operation, with its checked addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Address at the own end.
    pub local: u64,
    /// Fabric address of the remote end.
    pub fabric: Hpa,
    /// Bytes, at least 1.
    pub len: u64,
    /// The bytes at the local address are moved by requests, too: each piece is read, then written.
    pub staged: bool,
}

/// A part of an operation that fits one request.
pub type Piece = Span;

/// Operations, and the position up to which they were cut.
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

    /// The next piece; stays the next one until [`Self::advance`].
    #[must_use]
    pub fn peek(&self) -> Option<Piece> {
        let span = self.spans.get(self.at)?;
        let (local, fabric) = (span.local + self.done, span.fabric.0 + self.done);
        // No piece crosses a multiple of the longest request, and so none crosses a 4 KiB boundary, which no request
        // may.
        let to_boundary = |addr: u64| self.request_len_max - (addr & (self.request_len_max - 1));
        let mut len = to_boundary(fabric).min(span.len - self.done);
        // The local end gets requests as well, and the same rule holds there.
        if span.staged {
            len = len.min(to_boundary(local));
        }
        Some(Piece { local, fabric: Hpa(fabric), len, staged: span.staged })
    }

    /// Moves past the piece that [`Self::peek`] returned.
    pub fn advance(&mut self) {
        let (Some(piece), Some(span)) = (self.peek(), self.spans.get(self.at)) else { return };
        self.done += piece.len;
        if self.done == span.len {
            (self.at, self.done) = (self.at + 1, 0);
        }
    }

    /// All operations, before they are cut.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }
}
