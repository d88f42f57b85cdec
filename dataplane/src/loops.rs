//! Loops: when one is suspected, and when the probes are sent that prove it.
//!
//! [`Repeats`], by input, finds frames that come in again and again. [`ProbeSchedule`], by output,
//! has the time of the next probe. [`digest`] distinguishes frames.
//!
//! A suspicion costs only a few probes, so it may be wrong: hosts do send a frame again, and a
//! generator sends the same one all the time. Only a probe that comes back is a proof.
//!
//! Units: [`Instant`]; samples.
//! Source: docs/spec/pipeline.md §3 "Loops".

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use crate::time::{Instant, Span};
use crate::types::PortId;

/// Probes of a series: more than one, as in a storm some of them are lost.
pub const SERIES: u8 = 3;
/// Time between two probes of a series.
pub const GAP: Span = Span::from_ms(20);
/// Least time from the beginning of a series to the next one.
pub const REST_MIN: Span = Span::from_ms(1_000);
/// Longest time from the beginning of a series to the next one, while suspicions go on.
pub const REST_MAX: Span = Span::from_ms(8_000);

/// How long after it was sent a probe proves a loop: one that comes in later was held back, or
/// recorded.
pub const VALID: Span = Span::from_ms(1_000);

/// Time between two samples of an input.
pub const SAMPLE: Span = Span::from_ms(10);
/// Number of samples that are remembered.
pub const SAMPLES_KEPT: usize = 256;
/// A loop is suspected when at least this many of the last 64 samples were among the remembered
/// ones.
pub const REPEATS_MIN: u32 = 8;

/// Bytes of a frame that [`digest`] looks at, beside its length.
const DIGEST_BYTES: usize = 192;

/// A number that is equal for equal frames and, unless a frame is made to collide, differs for
/// different ones.
#[must_use]
pub fn digest(frame: &[u8]) -> u64 {
    const K: u64 = 0x9E37_79B9_7F4A_7C15;
    let seen = frame.get(..DIGEST_BYTES).unwrap_or(frame);
    let (words, rest) = seen.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    words.iter().chain([&last]).fold(frame.len() as u64, |hash, word| {
        let mixed = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(K);
        mixed ^ mixed >> 29
    })
}

/// The number of the probes that leave by `port` from `now` on; 0 is the number of no probe. It
/// cannot be foreseen without `key` (`SipHash`, as in hash tables that are safe against chosen
/// keys), and a replay of the run computes the same one.
#[must_use]
pub fn probe_number(key: [u64; 2], port: PortId, now: Instant) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, port.get(), now.as_ps()).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Times at which probes leave by one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeSchedule {
    /// Probes of this series that are still to be sent, and the time of the next one.
    left: u8,
    at: Instant,
    /// Time from this series to the next one, and when that may begin; `None` before the first.
    rest: Span,
    next_series: Option<Instant>,
}

impl ProbeSchedule {
    /// A schedule without a suspicion, and so without a probe.
    #[must_use]
    pub const fn new() -> Self {
        Self { left: 0, at: Instant::from_ps(0), rest: REST_MIN, next_series: None }
    }

    /// Notes that a loop is suspected. Begins a series, unless one has begun a short time ago; true
    /// if it did. While suspicions go on, series become rarer.
    pub fn ask(&mut self, now: Instant) -> bool {
        self.rest = match self.next_series {
            Some(next) if now < next => return false,
            // Asked again soon after it was allowed: the suspicion goes on.
            Some(next) if now.since(next) < REST_MAX => {
                Span::from_ps(self.rest.as_ps() * 2).min(REST_MAX)
            }
            _ => REST_MIN,
        };
        (self.left, self.at, self.next_series) = (SERIES, now, Some(now + self.rest));
        true
    }

    /// When the next probe is to be sent; `None` if none is.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.at)
    }

    /// Notes that the probe that was due was sent at `now`, or could not be.
    pub fn sent(&mut self, now: Instant) {
        (self.left, self.at) = (self.left.saturating_sub(1), now + GAP);
    }

    /// Ends the series: the port may not send probes.
    pub fn stop(&mut self) {
        self.left = 0;
    }
}

impl Default for ProbeSchedule {
    fn default() -> Self {
        Self::new()
    }
}

/// Samples of the frames that come in by one port, and how many of them had been seen before.
#[derive(Clone, Debug)]
pub struct Repeats {
    due: Instant,
    seen: Box<[u64; SAMPLES_KEPT]>,
    /// Number of samples so far; the next one goes to this place, modulo [`SAMPLES_KEPT`].
    at: usize,
    /// For each of the last 64 samples, the newest in bit 0: whether it was among those remembered.
    was_seen: u64,
}

impl Repeats {
    /// A port without samples; the first frame is one.
    #[must_use]
    pub fn new() -> Self {
        Self { due: Instant::ZERO, seen: Box::new([0; SAMPLES_KEPT]), at: 0, was_seen: 0 }
    }

    /// Whether the next frame is to be sampled.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Notes a sampled frame by its [`digest`]; true if that makes a loop suspected.
    pub fn note(&mut self, digest: u64, now: Instant) -> bool {
        self.due = now + SAMPLE;
        let digest = digest | 1; // never 0, which marks a free place
        self.was_seen = self.was_seen << 1 | u64::from(self.seen.contains(&digest));
        if let Some(slot) = self.seen.get_mut(self.at % SAMPLES_KEPT) {
            *slot = digest;
        }
        self.at += 1;
        let suspicious = self.was_seen.count_ones() >= REPEATS_MIN;
        if suspicious {
            self.was_seen = 0; // the next suspicion needs as many repeats again
        }
        suspicious
    }
}

impl Default for Repeats {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Instant {
        Instant::from_ps(Span::from_ms(ms).as_ps())
    }

    /// Asked at every millisecond from `from` on: when probes leave until `to`.
    fn probes(schedule: &mut ProbeSchedule, from: u64, to: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        for now in from..to {
            schedule.ask(ms(now));
            if schedule.due().is_some_and(|at| at <= ms(now)) {
                schedule.sent(ms(now));
                sent.push(now);
            }
        }
        sent
    }

    #[test]
    fn series_of_probes_become_rarer_while_suspicions_go_on() {
        let mut schedule = ProbeSchedule::new();
        assert_eq!(schedule.due(), None);
        let starts = [0, 1_000, 3_000, 7_000, 15_000, 23_000];
        let want: Vec<u64> = starts.iter().flat_map(|at| [*at, at + 20, at + 40]).collect();
        assert_eq!(probes(&mut schedule, 0, 30_000), want);
        // After a quiet time the first ones come soon again.
        assert_eq!(
            probes(&mut schedule, 60_000, 61_500),
            [60_000, 60_020, 60_040, 61_000, 61_020, 61_040]
        );
    }

    #[test]
    fn a_series_ends_when_there_is_nothing_to_prove() {
        let mut schedule = ProbeSchedule::new();
        assert!(schedule.ask(ms(5)) && !schedule.ask(ms(5)));
        assert_eq!(schedule.due(), Some(ms(5)));
        schedule.sent(ms(6));
        assert_eq!(schedule.due(), Some(ms(26)));
        schedule.stop();
        assert_eq!(schedule.due(), None);
    }

    #[test]
    fn numbers_of_probes_differ_by_key_port_and_time() {
        let ports = [0, 1, 63].map(|port| PortId::new(port).unwrap());
        let keys = [[0, 0], [0, 1], [1, 0], [u64::MAX; 2]];
        let mut numbers = Vec::new();
        for (key, port) in keys.iter().flat_map(|key| ports.map(|port| (*key, port))) {
            numbers.extend((0..100).map(|at| probe_number(key, port, Instant::from_ps(at))));
            assert_eq!(probe_number(key, port, ms(1)), probe_number(key, port, ms(1)));
        }
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == count && !numbers.contains(&0));
    }

    /// Number of samples until a loop is suspected, in traffic in which `of_hundred` of 100 frames
    /// are one of `kinds` that go round.
    fn samples_until(kinds: u64, of_hundred: u64, most: u64) -> Option<u64> {
        let (mut repeats, mut state) = (Repeats::new(), 7_u64);
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        (0..most).find(|n| {
            let circles = draw(100) < of_hundred;
            let frame = if circles { draw(kinds) << 32 } else { n << 1 | 1 << 60 };
            let now = ms(n * 10);
            assert!(repeats.is_due(now));
            let suspicious = repeats.note(digest(&frame.to_le_bytes()), now);
            assert!(!repeats.is_due(now + Span::from_ps(SAMPLE.as_ps() - 1)));
            suspicious
        })
    }

    #[test]
    fn what_comes_in_again_and_again_is_found_and_other_traffic_is_not() {
        #[rustfmt::skip] // columns: frames that go round, of 100 that come in, samples within which it is found
        let cases = [
            (1,     100, Some(9)),
            (1,     50,  Some(40)),
            (200,   100, Some(400)),
            (1,     25,  Some(100)),
            (1,     0,   None),
        ];
        for (kinds, of_hundred, want) in cases {
            let found = samples_until(kinds, of_hundred, want.unwrap_or(100_000));
            assert_eq!(
                found.is_some(),
                want.is_some(),
                "{kinds} frames, {of_hundred} of 100: {found:?}"
            );
        }
    }

    #[test]
    fn every_byte_up_to_the_bound_and_the_length_tell_frames_apart() {
        let frame = [0x5A; 300];
        let base = digest(&frame);
        for at in 0..frame.len() {
            let mut other = frame;
            other[at] ^= 1;
            assert_eq!(digest(&other) != base, at < DIGEST_BYTES, "{at}");
        }
        assert_ne!(digest(&frame[..299]), base);
        assert_eq!(digest(&[]), digest(&[]));
    }
}
