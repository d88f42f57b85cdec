//! The receiving end of a stream: loss, order, duplicates, corruption, latency, marks.
//!
//! Sequence numbers in, counts out; the last [`WINDOW`] numbers are kept as bits, so that a
//! late frame is told from one that came twice (as in RFC 4303 §3.4.3).
//!
//! Units: frames, bytes without FCS, picoseconds.
//! Source: definitions of RFC 4737 (reordered: a number below the next expected one) and RFC 5560.

use hdrhistogram::Histogram;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PRIS_MAX, Pri};
use weft_parsers::{Ecn, Format};

use crate::frames::Flaw;
use crate::stamp::Mark;

/// Sequence numbers that are remembered behind the highest one.
pub const WINDOW: u64 = 4096;
const WORDS: usize = 64;

/// What the receiver knows of a frame beside its mark.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When its last byte was in.
    pub now: Instant,
    /// Bytes without FCS.
    pub len: usize,
    /// Its format.
    pub format: Format,
    /// Its priority by its header.
    pub pri: Pri,
    /// Its ECN codepoint.
    pub ecn: Option<Ecn>,
    /// What is wrong with it.
    pub flaw: Option<Flaw>,
}

/// How a sequence number relates to those before it: new, late, repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next one, or one further on: those between are missing for now.
    Ahead,
    /// Missing until now.
    Late,
    /// Had before.
    Twice,
    /// So far behind that nobody remembers.
    TooOld,
}

/// The last [`WINDOW`] sequence numbers, and how many came.
#[derive(Clone, Debug)]
pub struct SeqWindow {
    bits: Box<[u64; WORDS]>,
    /// One above the highest number seen.
    next: u64,
    unique: u64,
}

const _: () = assert!(WINDOW == WORDS as u64 * 64, "one bit a number");

impl Default for SeqWindow {
    fn default() -> Self {
        Self { bits: Box::new([0; WORDS]), next: 0, unique: 0 }
    }
}

impl SeqWindow {
    /// One above the highest number seen.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Numbers seen, each counted once.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.unique
    }

    fn bit(&mut self, seq: u64) -> (&mut u64, u64) {
        let slot = usize::try_from(seq / 64 % WORDS as u64).unwrap_or_default();
        let word = self.bits.get_mut(slot).expect("the slot is below WORDS by the remainder");
        (word, 1 << (seq % 64))
    }

    /// Notes that `seq` came.
    pub fn record(&mut self, seq: u64) -> Order {
        let order = if seq >= self.next {
            if seq - self.next >= WINDOW {
                self.bits.fill(0);
            } else {
                for gone in self.next..seq {
                    let (word, bit) = self.bit(gone);
                    *word &= !bit;
                }
            }
            self.next = seq.saturating_add(1);
            Order::Ahead
        } else if self.next - seq > WINDOW {
            return Order::TooOld;
        } else {
            let (word, bit) = self.bit(seq);
            if *word & bit != 0 {
                return Order::Twice;
            }
            Order::Late
        };
        let (word, bit) = self.bit(seq);
        *word |= bit;
        self.unique += 1;
        order
    }
}

/// Picoseconds up to which latencies are told apart least finely.
const LEAST: u64 = 128;
/// Picoseconds, 17 s: longer ones count as that long in the percentiles.
const MOST: u64 = 1 << 44;

/// Latencies, to about 1 % above 13 ns (exact: least, most and sum).
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u32>,
    min: Option<Span>,
    max: Span,
    sum_ps: u128,
    count: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let mut histogram = Histogram::new_with_bounds(LEAST, 2 * LEAST, 2).expect("valid bounds");
        histogram.auto(true); // it is as long as the longest one needs
        Self { histogram, min: None, max: Span::ZERO, sum_ps: 0, count: 0 }
    }
}

impl Latency {
    /// Bytes on the heap.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<u32>()
    }

    /// Adds one latency.
    pub fn record(&mut self, latency: Span) {
        let value = latency.as_ps().min(MOST);
        let recorded = self.histogram.record(value);
        debug_assert!(recorded.is_ok(), "below the most there is memory for all");
        self.min = Some(self.min.map_or(latency, |min| min.min(latency)));
        self.max = self.max.max(latency);
        self.sum_ps += u128::from(latency.as_ps());
        self.count += 1;
    }

    /// Adds all of another.
    ///
    /// # Panics
    /// Never: all grow as they need.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("it grows");
        self.min = match (self.min, other.min) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.max = self.max.max(other.max);
        self.sum_ps += other.sum_ps;
        self.count += other.count;
    }

    /// How many were added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least; zero when there is none.
    #[must_use]
    pub fn min(&self) -> Span {
        self.min.unwrap_or_default()
    }

    /// The most.
    #[must_use]
    pub const fn max(&self) -> Span {
        self.max
    }

    /// The mean, rounded down; zero when there is none.
    #[must_use]
    pub fn mean(&self) -> Span {
        let mean = self.sum_ps.checked_div(u128::from(self.count)).unwrap_or_default();
        Span::from_ps(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The latency that `quantile` (0.0 to 1.0) of all do not exceed, never above the most.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Span {
        Span::from_ps(self.histogram.value_at_quantile(quantile)).min(self.max)
    }
}

/// The receiving end of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamRx {
    /// Sequence numbers.
    pub window: SeqWindow,
    /// Frames, whatever is wrong with them.
    pub frames: u64,
    /// Bytes, likewise.
    pub bytes: u64,
    /// Frames whose number was below the next expected one, and missing.
    pub reordered: u64,
    /// Frames whose number had come before.
    pub duplicates: u64,
    /// Frames too far behind to tell.
    pub too_old: u64,
    /// Frames with a flaw, by [`Flaw`]: short, grown, payload, ICRC, header bits, IP checksum.
    pub flaws: [u64; 6],
    /// Frames by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Frames by priority.
    pub pris: [u64; PRIS_MAX],
    /// Frames by format.
    pub formats: [u64; Format::COUNT],
    /// First and last arrival.
    pub first_last: Option<(Instant, Instant)>,
    /// Latency of the frames that carry a send time.
    pub latency: Latency,
    /// Arrivals of the first frames that carry none, with their numbers, as many as are kept.
    arrivals: Vec<(u64, Instant)>,
    /// How many are kept.
    keep_arrivals: usize,
}

impl StreamRx {
    /// Keeps the arrivals of the first `count` frames that carry no send time.
    #[must_use]
    pub fn keeping_arrivals(count: usize) -> Self {
        let arrivals = Vec::with_capacity(count);
        Self { arrivals, keep_arrivals: count, ..Self::default() }
    }

    /// Latency of all frames whose send time is known: carried, or in the sender's `times`.
    #[must_use]
    pub fn latency_with(&self, times: &[Instant]) -> Latency {
        let mut latency = self.latency.clone();
        for (seq, at) in &self.arrivals {
            let sent = usize::try_from(*seq).ok().and_then(|seq| times.get(seq));
            if let Some(sent) = sent {
                latency.record(at.since(*sent));
            }
        }
        latency
    }

    /// Notes a frame.
    pub fn record(&mut self, mark: &Mark, arrival: &Arrival) -> Order {
        let seq = mark.seq.near(self.window.next());
        let order = self.window.record(seq);
        match order {
            Order::Ahead => {}
            Order::Late => self.reordered += 1,
            Order::Twice => self.duplicates += 1,
            Order::TooOld => self.too_old += 1,
        }
        self.frames += 1;
        self.bytes += arrival.len as u64;
        if let Some(flaw) = arrival.flaw {
            count(&mut self.flaws, flaw as usize);
        }
        if let Some(ecn) = arrival.ecn {
            count(&mut self.ecn, ecn as usize);
        }
        count(&mut self.pris, arrival.pri.index());
        count(&mut self.formats, arrival.format as usize);
        let first = self.first_last.map_or(arrival.now, |(first, _)| first);
        self.first_last = Some((first, arrival.now));
        if let Some(sent) = mark.sent {
            self.latency.record(arrival.now.since(sent));
        } else if self.arrivals.len() < self.keep_arrivals {
            self.arrivals.push((seq, arrival.now));
        }
        order
    }

    /// Frames that did not come: of `sent` ones if the sender says so, else of those before the last
    /// one that came.
    #[must_use]
    pub const fn lost(&self, sent: Option<u64>) -> u64 {
        let sent = match sent {
            Some(sent) => sent,
            None => self.window.next(),
        };
        sent.saturating_sub(self.window.unique())
    }

    /// Frames with a flaw.
    #[must_use]
    pub fn corrupt(&self) -> u64 {
        self.flaws.iter().sum()
    }
}

/// Counts one more at `index`, which is in range where the tables are made.
#[inline]
pub(crate) fn count(table: &mut [u64], index: usize) {
    if let Some(slot) = table.get_mut(index) {
        *slot += 1;
    }
}

#[cfg(test)]
mod tests;
