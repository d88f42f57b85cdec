//! A request under way, and the completions that answer it.
//!
//! Each completion yields a [`Step`]; its bytes are copied to their place in the transaction's data.
//!
//! Units: bytes, double words.
//! Source: PCIe 6.0 sections 2.2.9, 2.3.1.1, 2.3.2; docs/spec/wire-formats.md §3.6 (chunks of UIO in any order).

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{Kind, Status, Tlp};

use super::parts::Part;
use super::transaction::{Failure, OpId};
use crate::cover::Cover;

/// Effect of a completion on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// More completions follow.
    More,
    /// RRS before any data: the request may be sent again.
    Again,
    /// The request is complete.
    Whole,
    /// The request has failed.
    Failed(Failure),
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub op: OpId,
    /// Distinguishes it from earlier requests with the same tag.
    pub serial: u64,
    requester: Bdf,
    kind: Kind,
    addr: u64,
    /// Position of its bytes in the transaction's data, and their number.
    at: usize,
    len: usize,
    /// Bytes received (memory reads).
    got: usize,
    /// Double words received, and their total (UIO reads).
    seen: Cover,
    dws: u64,
    /// Time until which it may be sent again.
    until: Instant,
}

impl Flight {
    pub(super) fn new(
        op: OpId,
        requester: Bdf,
        serial: u64,
        until: Instant,
        part: &Part<'_>,
    ) -> Self {
        let dws = (usize::from(low2(part.addr)) + part.len).div_ceil(4).max(1) as u64;
        let (kind, addr, at, len) = (part.kind, part.addr, part.at, part.len);
        let (got, seen) = (0, Cover::default());
        Self { op, serial, requester, kind, addr, at, len, got, seen, dws, until }
    }

    /// Position in the transaction, number of bytes, and the time until which it may be sent again.
    pub(super) const fn again(&self) -> (usize, usize, Instant) {
        (self.at, self.len, self.until)
    }

    /// Whether a completion with its tag is for this request.
    pub(super) fn is_answered_by(&self, tlp: &Tlp<'_>) -> bool {
        // A late completion may be for a request before a change of the bus number, with the same tag.
        tlp.requester() == self.requester
            && match self.kind {
                Kind::UioRead => matches!(tlp.kind(), Kind::UioReadCompletion { .. }),
                Kind::UioWrite => tlp.kind() == Kind::UioWriteCompletion,
                _ => matches!(tlp.kind(), Kind::Completion { locked: false, .. }),
            }
    }

    /// Processes a completion; data goes to its place in `answer`.
    pub(super) fn take(&mut self, tlp: &Tlp<'_>, answer: &mut [u8]) -> Step {
        match tlp.status() {
            Some(Status::Success) => {}
            // UIO requests have no order that sending one again could break; a read of another kind would overtake
            // writes before it that were lost.
            Some(Status::RequestRetry) if self.kind.is_uio() && self.seen.is_empty() => {
                return Step::Again;
            }
            status => return Step::Failed(Failure::Status(status.unwrap_or_default())),
        }
        let wants_data =
            !matches!(self.kind, Kind::UioWrite | Kind::IoWrite | Kind::CfgWrite { .. });
        if wants_data != tlp.kind().has_data() {
            return Step::Failed(Failure::Mismatch);
        }
        // EP is about data, so it counts only in a completion that has data where it should.
        if tlp.ep() {
            return Step::Failed(Failure::Poisoned);
        }
        match self.kind {
            Kind::UioRead => self.chunk(tlp, answer),
            Kind::MemRead => self.split(tlp, answer),
            _ if wants_data && tlp.payload().len() != 4 => Step::Failed(Failure::Mismatch),
            _ => {
                let bytes = tlp.payload().get(usize::from(low2(self.addr))..);
                self.put(0, bytes.unwrap_or_default(), answer);
                Step::Whole
            }
        }
    }

    /// Processes the next completion of a memory read, whose position follows from the ones before.
    fn split(&mut self, tlp: &Tlp<'_>, answer: &mut [u8]) -> Step {
        // Byte Count of a read of zero length is 1 (2.2.9).
        let left = (self.len - self.got).max(1);
        let addr = self.addr.wrapping_add(self.got as u64);
        let [low, ..] = addr.to_le_bytes();
        // The address of a read of zero length stands for its first byte.
        let fits = tlp.byte_count().map(usize::from) == Some(left)
            && tlp.lower_address().is_some_and(|lower| lower == low & 0x7F || self.len == 0);
        let in_front = usize::from(low & 3);
        let room = tlp.payload().len().saturating_sub(in_front);
        // At most three bytes behind the last one, to the end of its double word.
        if !fits || room == 0 || room > left + 3 {
            return Step::Failed(Failure::Mismatch);
        }
        let now = room.min(self.len - self.got);
        let bytes = tlp.payload().get(in_front..in_front + now).unwrap_or_default();
        self.put(self.got, bytes, answer);
        self.got += now;
        if self.got == self.len { Step::Whole } else { Step::More }
    }

    /// Processes a completion of a UIO read, which carries its own offset and may come in any order.
    fn chunk(&mut self, tlp: &Tlp<'_>, answer: &mut [u8]) -> Step {
        let from = tlp.uio_completion().map_or(0, |(_, offset)| usize::from(offset));
        // Also refused: a chunk that overlaps one received before.
        if !self.seen.add(from as u64, tlp.payload().len() as u64 / 4, self.dws) {
            return Step::Failed(Failure::Mismatch);
        }
        let in_front = usize::from(low2(self.addr));
        let start = (from * 4).saturating_sub(in_front);
        let bytes = tlp.payload().get(in_front.saturating_sub(from * 4)..).unwrap_or_default();
        let most = bytes.len().min(self.len.saturating_sub(start));
        self.put(start, bytes.get(..most).unwrap_or_default(), answer);
        if self.seen.is_whole(self.dws) { Step::Whole } else { Step::More }
    }

    /// Copies `bytes` to `from` bytes behind the request's first byte, as far as they belong to it.
    fn put(&self, from: usize, bytes: &[u8], answer: &mut [u8]) {
        let end = (self.at + self.len).min(answer.len());
        let place = answer.get_mut(self.at + from..end).unwrap_or_default();
        let len = place.len().min(bytes.len());
        if let (Some(place), Some(bytes)) = (place.get_mut(..len), bytes.get(..len)) {
            place.copy_from_slice(bytes);
        }
    }
}

const fn low2(addr: u64) -> u8 {
    addr.to_le_bytes()[0] & 3
}
