//! The receiving end of a stream: loss, reordering, duplicates, corruption, latency and ECN marks.
//!
//! The last [`WINDOW`] sequence numbers are kept as bits, so that a late frame can be told from a duplicate (as in RFC
//! 4303 §3.4.3). Bytes are without FCS.
//!
//! Source: definitions of RFC 4737 (reordered: a number below the next expected one) and RFC 5560.

use hdrhistogram::Histogram;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PRIS_MAX, Pri};
use weft_parsers::{Ecn, Format};

use crate::frames::Flaw;
use crate::stamp::Mark;

/// Sequence numbers that are remembered below the highest one.
pub const WINDOW: u64 = 4096;
const WORDS: usize = 64;

/// Facts about a received frame beside its mark.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When its last byte arrived.
    pub now: Instant,
    /// Length in bytes, without FCS.
    pub len: usize,
    /// Format by the classifier.
    pub format: Format,
    /// Priority that its header asks for.
    pub pri: Pri,
    /// ECN codepoint; `None` without an IP header.
    pub ecn: Option<Ecn>,
    /// The first flaw found, if it is damaged.
    pub flaw: Option<Flaw>,
}

/// How a sequence number relates to those that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next one, or one further on; those skipped count as missing until they come.
    Ahead,
    /// Below the highest one, and missing until now.
    Late,
    /// Received before: a duplicate.
    Twice,
    /// So far below the highest that the window does not remember it.
    TooOld,
}

/// The last [`WINDOW`] sequence numbers as bits, and how many different ones came.
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
    /// One above the highest number seen; 0 before the first.
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

    /// Notes that `seq` came, and says how it relates to those before.
    pub fn record(&mut self, seq: u64) -> Order {
        let order = if seq >= self.next {
            // The whole window is behind the new one; clearing number by number could take 2^64 turns.
            if seq - self.next >= WINDOW {
                self.bits.fill(0);
            } else {
                // Their bits are those of numbers one window back, which must not read as received.
                for gone in self.next..seq {
                    let (word, bit) = self.bit(gone);
                    *word &= !bit;
                }
            }
            self.next = seq.saturating_add(1);
            Order::Ahead
        } else if self.next - seq > WINDOW {
            // Its bit belongs to a number one window on.
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

/// Resolution of short latencies, and the least that the histogram tells apart from zero, in picoseconds.
const LEAST: u64 = 128;
/// Longest latency for the percentiles in picoseconds, 17 s; longer ones count as that. It bounds the histogram's
/// memory.
const MOST: u64 = 1 << 44;

/// Distribution of latencies: percentiles to about 1 % above 13 ns; minimum, maximum and sum exact.
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
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<u32>()
    }

    /// Adds one latency to all figures.
    pub fn record(&mut self, latency: Span) {
        // Capped here only: minimum, maximum and sum take the latency as it is.
        let value = latency.as_ps().min(MOST);
        let recorded = self.histogram.record(value);
        debug_assert!(recorded.is_ok(), "below the most there is memory for all");
        self.min = Some(self.min.map_or(latency, |min| min.min(latency)));
        self.max = self.max.max(latency);
        self.sum_ps += u128::from(latency.as_ps());
        self.count += 1;
    }

    /// Adds all latencies of `other`.
    ///
    /// # Panics
    /// Never: the histogram grows as it needs, up to latencies of 17 s.
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

    /// Number of latencies added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The shortest latency; zero if there is none.
    #[must_use]
    pub fn min(&self) -> Span {
        self.min.unwrap_or_default()
    }

    /// The longest latency; zero if there is none.
    #[must_use]
    pub const fn max(&self) -> Span {
        self.max
    }

    /// The mean, rounded down; zero if there is none.
    #[must_use]
    pub fn mean(&self) -> Span {
        let mean = self.sum_ps.checked_div(u128::from(self.count)).unwrap_or_default();
        Span::from_ps(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The latency that a share of `quantile` (0.0 to 1.0) of all does not exceed, at most the longest.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Span {
        // The histogram answers by the upper end of a bin, which may lie above the longest latency.
        Span::from_ps(self.histogram.value_at_quantile(quantile)).min(self.max)
    }
}

/// The receiving end of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamRx {
    /// Sequence numbers that came.
    pub window: SeqWindow,
    /// All frames received, with flaws or without.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Frames with a number below the next expected one that was missing until then.
    pub reordered: u64,
    /// Frames whose number had already come.
    pub duplicates: u64,
    /// Frames too far behind to be told from duplicates.
    pub too_old: u64,
    /// Frames with a flaw, by [`Flaw`]: short, grown, payload, ICRC, header bits, IP checksum.
    pub flaws: [u64; 6],
    /// Frames by ECN codepoint: Not-ECT, ECT(1), ECT(0), CE.
    pub ecn: [u64; 4],
    /// Frames by priority of their headers.
    pub pris: [u64; PRIS_MAX],
    /// Frames by format, in the order of [`Format::ALL`].
    pub formats: [u64; Format::COUNT],
    /// First and last arrival; `None` before the first frame.
    pub first_last: Option<(Instant, Instant)>,
    /// Latency of the frames that carry a send time.
    pub latency: Latency,
    /// Number and arrival of the first frames that carry no send time, up to `keep_arrivals`.
    arrivals: Vec<(u64, Instant)>,
    /// Most entries of `arrivals`.
    keep_arrivals: usize,
}

impl StreamRx {
    /// A receiver that keeps the arrivals of the first `count` frames without a send time.
    #[must_use]
    pub fn keeping_arrivals(count: usize) -> Self {
        let arrivals = Vec::with_capacity(count);
        Self { arrivals, keep_arrivals: count, ..Self::default() }
    }

    /// Latency of all frames whose send time is known: from the frame, or from the sender's `times`.
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

    /// Counts a frame with this mark, and says how its number relates to those before.
    pub fn record(&mut self, mark: &Mark, arrival: &Arrival) -> Order {
        // A short mark has 23 bits of the number: the nearest to the expected one is meant.
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

    /// Frames that did not come: of `sent` if the sender's count is known, else of those up to the highest number that
    /// came.
    #[must_use]
    pub const fn lost(&self, sent: Option<u64>) -> u64 {
        let sent = match sent {
            Some(sent) => sent,
            None => self.window.next(),
        };
        sent.saturating_sub(self.window.unique())
    }

    /// Frames with a flaw, of any kind.
    #[must_use]
    pub fn corrupt(&self) -> u64 {
        self.flaws.iter().sum()
    }
}

/// Adds one at `index`, which every caller takes from an enum that the table has a slot for.
#[inline]
pub(crate) fn count(table: &mut [u64], index: usize) {
    if let Some(slot) = table.get_mut(index) {
        *slot += 1;
    }
}

#[cfg(test)]
mod tests;
