//! Time as a number: picoseconds since the start of a run, handed down as `now`.
//!
//! [`Instant`] (u64 ps, wraps after 213 days, compared wrap-safe) and [`LinkRate`] (bit/s).
//!
//! Units: ps inside, ns at the edges; one pause quantum is 512 bit times.
//! Source: IEEE 802.3 Annex 31B.2 (quantum); docs/spec/pipeline.md §9.

use core::cmp::Ordering;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: picoseconds since the start of the run, modulo 2^64.
///
/// Order is that of the shorter way round the circle, so that a run may cross the wrap after 213
/// days. Two instants that are compared must lie less than 106 days apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Instant(u64);

/// A length of time in picoseconds, up to 213 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// The length of no time.
    pub const ZERO: Self = Self(0);

    /// A length of `ps` picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// A length of `ns` nanoseconds, saturating.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// A length of `us` microseconds, saturating.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// A length of `ms` milliseconds, saturating.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000_000))
    }

    /// The length in picoseconds, exact.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The length in whole nanoseconds, rounded down.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }
}

impl Instant {
    /// The instant at which the run starts.
    pub const ZERO: Self = Self(0);

    /// `ps` picoseconds after the start.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds after the start, modulo the wrap.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.wrapping_mul(1_000))
    }

    /// Picoseconds since the start, modulo 2^64.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds since the start, rounded down.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0 / 1_000
    }

    /// Time since `earlier`; zero when `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        // The sign of the wrapping difference says which is later, also across the wrap.
        let d = self.0.wrapping_sub(earlier.0);
        if d.cast_signed() < 0 { Span(0) } else { Span(d) }
    }

    /// The earlier of two optional instants; `None` is never.
    #[must_use]
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b < a { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

impl PartialOrd for Instant {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Instant {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.wrapping_sub(other.0).cast_signed().cmp(&0)
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    #[inline]
    fn add(self, span: Span) -> Self {
        Self(self.0.wrapping_add(span.0))
    }
}

impl Sub<Span> for Instant {
    type Output = Self;
    #[inline]
    fn sub(self, span: Span) -> Self {
        Self(self.0.wrapping_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign<Span> for Instant {
    #[inline]
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

/// A link's rate in bit/s; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkRate(u64);

impl LinkRate {
    /// A rate in bit/s; `None` for 0 or above 10 Tbit/s.
    #[must_use]
    pub const fn bps(bps: u64) -> Option<Self> {
        if bps == 0 || bps > 10_000_000_000_000 { None } else { Some(Self(bps)) }
    }

    /// A rate in Gbit/s.
    ///
    /// # Panics
    /// When `gbps` is 0 or above 10,000; meant for constants and tests.
    #[must_use]
    pub const fn gbps(gbps: u64) -> Self {
        Self::bps(gbps * 1_000_000_000).expect("1..=10,000 Gbit/s")
    }

    /// The rate in bit/s.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Time that `bits` take on the wire, rounded up to a picosecond.
    #[inline]
    #[must_use]
    pub const fn bit_time(self, bits: u64) -> Span {
        Span::from_ps(scale_up(bits, 1_000_000_000_000, self.0))
    }

    /// Time of a frame of `len` bytes (no FCS) on a true wire: FCS, the 64-byte minimum, 8 bytes
    /// of preamble and 12 of gap (docs/spec/model.md).
    #[inline]
    #[must_use]
    pub const fn frame_time(self, len: usize) -> Span {
        let with_fcs = len as u64 + 4;
        let padded = if with_fcs < 64 { 64 } else { with_fcs };
        self.bit_time((padded + 20) * 8)
    }

    /// Time of a frame of `len` bytes (no FCS) on a link: [`Self::frame_time`], or, without
    /// `overhead`, the time of its bytes and the FCS alone.
    #[inline]
    #[must_use]
    pub const fn wire_time(self, len: usize, overhead: bool) -> Span {
        if overhead { self.frame_time(len) } else { self.bit_time((len as u64 + 4) * 8) }
    }

    /// Time of `quanta` pause quanta of 512 bit times (IEEE 802.3 Annex 31B.2).
    #[inline]
    #[must_use]
    pub const fn quanta(self, quanta: u16) -> Span {
        self.bit_time(quanta as u64 * 512)
    }
}

/// Wire times by length of frame, cached: [`LinkRate::wire_time`] without its division for lengths
/// that were asked before.
#[derive(Clone, Debug)]
pub struct WireTimes {
    rate: LinkRate,
    overhead: bool,
    /// Lengths and their times; a length is at the place of its low bits, and 0 is an empty place.
    known: [(usize, Span); Self::PLACES],
}

impl WireTimes {
    const PLACES: usize = 8;

    /// An empty cache for frames at `rate`, with or without overhead.
    #[must_use]
    pub const fn new(rate: LinkRate, overhead: bool) -> Self {
        Self { rate, overhead, known: [(0, Span::ZERO); Self::PLACES] }
    }

    /// Whether the cache is for frames at `rate`, with or without overhead.
    #[must_use]
    pub fn is_of(&self, rate: LinkRate, overhead: bool) -> bool {
        self.rate == rate && self.overhead == overhead
    }

    /// Time of a frame of `len` bytes (no FCS).
    #[inline]
    pub fn of(&mut self, len: usize) -> Span {
        let Some(slot) = self.known.get_mut(len % Self::PLACES) else {
            return self.rate.wire_time(len, self.overhead); // never: each remainder has a place
        };
        if slot.0 != len || len == 0 {
            *slot = (len, self.rate.wire_time(len, self.overhead));
        }
        slot.1
    }
}

/// ceil(a * b / c) without overflow in between; saturates.
#[expect(clippy::cast_possible_truncation, reason = "compared with the maximum first")]
const fn scale_up(a: u64, b: u64, c: u64) -> u64 {
    // The usual case, without a division in 128 bits.
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(c);
    }
    let wide = (a as u128 * b as u128).div_ceil(c as u128);
    if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = Instant::from_ps(u64::MAX - 5);
        let after = before + Span::from_ps(10);
        assert!(before < after);
        assert_eq!(after.since(before).as_ps(), 10);
        assert_eq!(before.since(after), Span::ZERO);
        assert_eq!(Instant::earlier(Some(after), Some(before)), Some(before));
        assert_eq!(Instant::earlier(None, Some(before)), Some(before));
    }

    #[test]
    fn wire_times_are_the_same_when_they_are_asked_again() {
        let rate = LinkRate::gbps(100);
        for overhead in [false, true] {
            let mut times = WireTimes::new(rate, overhead);
            for len in [0, 60, 68, 60, 1_402, 10, 1_402, 68, 0, 1_410, 9_216, usize::MAX / 64] {
                assert_eq!(times.of(len), rate.wire_time(len, overhead), "{len}");
            }
            assert!(times.is_of(rate, overhead) && !times.is_of(rate, !overhead));
        }
    }

    #[test]
    fn wire_times_match_the_model_page() {
        #[rustfmt::skip] // columns: gbps, bytes without FCS, ps
        let cases = [
            (100, 22,   6_720),
            (100, 60,   6_720),
            (400, 60,   1_680),
            (100, 61,   6_800),
            (200, 1402, 57_040),
        ];
        for (gbps, len, ps) in cases {
            assert_eq!(LinkRate::gbps(gbps).frame_time(len).as_ps(), ps, "{gbps}G {len}");
        }
        #[rustfmt::skip] // columns: gbps, bytes without FCS, ps of these and the FCS
        let bare = [(100, 1402, 112_480), (100, 1356, 108_800), (400, 50, 1_080), (200, 22, 1_040)];
        for (gbps, len, ps) in bare {
            assert_eq!(LinkRate::gbps(gbps).wire_time(len, false).as_ps(), ps, "{gbps}G {len}");
        }
        assert_eq!(LinkRate::gbps(100).quanta(1).as_ps(), 5_120);
        assert_eq!(LinkRate::gbps(400).quanta(0xFFFF).as_ns(), 83_884);
        assert_eq!(LinkRate::bps(1).unwrap().bit_time(u64::MAX).as_ps(), u64::MAX);
    }
}
