//! Storm limits of a port: how much broadcast, unknown unicast and multicast may come in.
//!
//! Each [`StormKind`] has a token bucket, refilled from `now`; [`StormSet`] is a level-triggered
//! set of kinds above their limit.
//!
//! Units: frames/s or bit/s (bytes without FCS times 8); credit in 10^-12 frame or bit, exact.
//! Source: docs/spec/pipeline.md §3.

use crate::pool::FRAME_LEN_MAX;
use crate::time::{Instant, Span};

/// Kind of traffic that storm control limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StormKind {
    /// Frames to FF-FF-FF-FF-FF-FF.
    Broadcast = 0,
    /// Frames to a station that is not in the FDB.
    UnknownUnicast = 1,
    /// Frames to any other group.
    Multicast = 2,
}

impl StormKind {
    /// All three kinds, by their number.
    pub const ALL: [Self; 3] = [Self::Broadcast, Self::UnknownUnicast, Self::Multicast];
}

/// A limit of storm control: the rate that may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormLimit {
    /// Frames a second; 0 drops all.
    FramesPerSecond(u64),
    /// Bits a second, without FCS; 0 drops all.
    BitsPerSecond(u64),
}

/// Storm-control limits of a port; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormLimits {
    /// Limit for frames to the broadcast address.
    pub broadcast: Option<StormLimit>,
    /// Limit for unicast frames to stations that are not in the FDB.
    pub unknown_unicast: Option<StormLimit>,
    /// Limit for frames to other groups.
    pub multicast: Option<StormLimit>,
}

/// Kinds that are above their limit; bit n is [`StormKind`] n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StormSet(u8);

impl StormSet {
    /// The set as a word.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether `kind` is above its limit.
    #[must_use]
    pub const fn contains(self, kind: StormKind) -> bool {
        self.0 >> kind as u8 & 1 != 0
    }
}

/// Depth of a bucket, as time at its rate.
pub const DEPTH: Span = Span::from_ms(10);
/// Least depth of a bucket in bit/s: one largest frame, or such frames could never pass.
const BITS_MIN: u128 = FRAME_LEN_MAX as u128 * 8;
/// Time without a refused frame that ends a storm.
pub const CALM: Span = Span::from_ms(1_000);
/// Credit for one frame or bit: 10^12, as time is in picoseconds.
const UNIT: u128 = 1_000_000_000_000;

/// A token bucket. `credit` is in 10^-12 units, so that ps times units a second needs no division.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    limit: StormLimit,
    credit: u128,
    filled: Instant,
    /// Time of the last refused frame, while the storm lasts.
    refused: Option<Instant>,
}

impl Bucket {
    fn new(limit: StormLimit) -> Self {
        Self { limit, credit: Self::depth(limit), filled: Instant::ZERO, refused: None }
    }

    fn depth(limit: StormLimit) -> u128 {
        let (rate, least) = match limit {
            StormLimit::FramesPerSecond(rate) => (rate, 1),
            StormLimit::BitsPerSecond(rate) => (rate, BITS_MIN),
        };
        if rate == 0 { 0 } else { (u128::from(DEPTH.as_ps()) * u128::from(rate)).max(least * UNIT) }
    }

    fn take(&mut self, len: usize, now: Instant) -> bool {
        let (rate, units) = match self.limit {
            StormLimit::FramesPerSecond(rate) => (rate, 1),
            StormLimit::BitsPerSecond(rate) => (rate, len as u128 * 8),
        };
        // In 128 bits: an hour at 10 Tbit/s is above 2^64, and the bucket may not have been drawn
        // on for days.
        let grown = u128::from(now.since(self.filled).as_ps()) * u128::from(rate);
        let full = Self::depth(self.limit);
        self.credit = (self.credit + grown).min(full);
        self.filled = now;
        let fits = rate != 0 && units * UNIT <= self.credit;
        if fits {
            self.credit -= units * UNIT;
        } else {
            self.refused = Some(now);
        }
        fits
    }

    /// When the storm is over if no further frame is refused; `None` if there is no storm.
    fn calm_at(&self) -> Option<Instant> {
        self.refused.map(|at| at + CALM)
    }
}

/// Storm control of one port: counts received frames against its limits.
#[derive(Clone, Debug, Default)]
pub struct StormGuard {
    buckets: [Option<Bucket>; 3],
}

impl StormGuard {
    /// Full buckets for `limits`.
    #[must_use]
    pub fn new(limits: StormLimits) -> Self {
        let StormLimits { broadcast, unknown_unicast, multicast } = limits;
        Self { buckets: [broadcast, unknown_unicast, multicast].map(|l| l.map(Bucket::new)) }
    }

    /// Whether a frame of `len` bytes (no FCS) may be flooded. Refusing it begins or prolongs a
    /// storm.
    #[inline]
    pub fn allow(&mut self, kind: StormKind, len: usize, now: Instant) -> bool {
        match self.buckets.get_mut(kind as usize) {
            Some(Some(bucket)) => bucket.take(len, now),
            _ => true,
        }
    }

    /// Kinds of which a frame was refused less than [`CALM`] ago: the level-triggered word.
    #[must_use]
    pub fn storming(&self, now: Instant) -> StormSet {
        let on = StormKind::ALL.into_iter().zip(&self.buckets).filter(|(_, bucket)| {
            bucket.and_then(|b| b.calm_at()).is_some_and(|calm_at| now < calm_at)
        });
        StormSet(on.fold(0, |bits, (kind, _)| bits | 1 << kind as u8))
    }

    /// Ends the storms that are over; returns when the next one ends.
    pub fn tick(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        for bucket in self.buckets.iter_mut().flatten() {
            match bucket.calm_at() {
                Some(calm_at) if calm_at <= now => bucket.refused = None,
                calm_at => next = Instant::earlier(next, calm_at),
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use StormKind::{Broadcast, Multicast, UnknownUnicast};
    use StormLimit::{BitsPerSecond, FramesPerSecond};

    fn guard(limit: StormLimit) -> StormGuard {
        StormGuard::new(StormLimits { broadcast: Some(limit), ..StormLimits::default() })
    }

    /// A full bucket's burst, then the instant at which the next frame fits, to the picosecond.
    #[test]
    fn limits_are_exact_on_both_sides() {
        #[rustfmt::skip] // columns: name, limit, length, burst, ps to the next
        let cases = [
            ("1,000 frames/s hold 10",    FramesPerSecond(1_000),        60, 10, 1_000_000_000),
            ("1 frame/s holds 1",         FramesPerSecond(1),            60, 1,  1_000_000_000_000),
            ("3 frames/s round up",       FramesPerSecond(3),            60, 1,  333_333_333_334),
            ("100 Mbit/s hold 1 Mbit",    BitsPerSecond(100_000_000),  1250, 100, 100_000_000),
            ("1 Mbit/s hold 9,728 bytes", BitsPerSecond(1_000_000),   9728, 1,  77_824_000_000),
            ("short frames cost less",    BitsPerSecond(1_000_000),      76, 128, 608_000_000),
        ];
        for (name, limit, len, burst, ps) in cases {
            for start in [Instant::ZERO, Instant::ZERO - Span::from_ps(ps / 2)] {
                let mut guard = guard(limit);
                guard.allow(Broadcast, len, start - Span::from_ms(20_000));
                for n in 0..burst {
                    assert!(guard.allow(Broadcast, len, start), "{name}: frame {n}");
                }
                assert!(!guard.clone().allow(Broadcast, len, start), "{name}: one too many");
                let next = start + Span::from_ps(ps);
                assert!(!guard.clone().allow(Broadcast, len, next - Span::from_ps(1)), "{name}");
                assert!(guard.allow(Broadcast, len, next), "{name}: first ps");
                assert!(!guard.allow(Broadcast, len, next), "{name}: used up");
            }
        }
    }

    /// Refused frames cost nothing, so that ten times the rate still gets the rate through, exactly.
    #[test]
    fn overload_gets_the_rate_and_no_more() {
        let mut guard = guard(FramesPerSecond(10_000));
        let passed = (0..1_000_000_u64)
            .filter(|n| guard.allow(Broadcast, 60, Instant::from_ns(n * 10_000)))
            .count();
        assert_eq!(passed, 10 * 10_000 + 99, "10 s and the bucket, less the step not yet reached");
    }

    #[test]
    fn kinds_have_limits_of_their_own() {
        let limits = StormLimits {
            broadcast: Some(FramesPerSecond(0)),
            unknown_unicast: None,
            multicast: Some(FramesPerSecond(1)),
        };
        let mut guard = StormGuard::new(limits);
        let now = Instant::ZERO;
        #[rustfmt::skip] // columns: kind, allowed, storming
        let cases = [
            (Multicast,      true,  0b000),
            (UnknownUnicast, true,  0b000),
            (Broadcast,      false, 0b001),
            (UnknownUnicast, true,  0b001),
            (Multicast,      false, 0b101),
        ];
        for (kind, allowed, storming) in cases {
            assert_eq!(guard.allow(kind, 60, now), allowed, "{kind:?}");
            assert_eq!(guard.storming(now).bits(), storming, "{kind:?}");
        }
        let later = now + Span::from_ms(86_400_000);
        assert!(!guard.allow(Broadcast, 0, later), "0 lets nothing in, however long it waits");
    }

    #[test]
    fn a_storm_ends_after_a_calm_second() {
        let mut guard = guard(FramesPerSecond(1));
        let start = Instant::ZERO - Span::from_ms(500); // the wrap lies within the second
        assert_eq!(guard.tick(start), None);
        assert!(guard.allow(Broadcast, 60, start) && !guard.allow(Broadcast, 60, start));
        let over = start + CALM;
        #[rustfmt::skip] // columns: name, at, storming, next tick
        let cases = [
            ("at once",  start,                     true,  Some(over)),
            ("last ps",  over - Span::from_ps(1),   true,  Some(over)),
            ("over",     over,                      false, None),
        ];
        for (name, at, storming, next) in cases {
            assert_eq!(guard.storming(at).contains(Broadcast), storming, "{name}");
            assert_eq!(guard.tick(at), next, "{name}");
        }
    }
}
