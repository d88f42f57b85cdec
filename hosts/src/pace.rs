//! Exact pacing: how long after one frame the next may start, without a float and without drift.
//!
//! [`Pacer`] keeps the remainder of each division, so that the sum of all gaps is floor(work * 10^12 / rate)
//! picoseconds after any number of frames. [`Rate`] says whether work is bits or frames. Bits on the wire are counted
//! as `LinkRate::frame_time` does (IEEE 802.3 4.4.2).

use weft_dataplane::time::Span;

/// Picoseconds in a second.
const SECOND_PS: u64 = 1_000_000_000_000;
/// Highest rate in units a second: above it, a frame of the longest kind would take less than a picosecond.
pub const RATE_MAX: u64 = 10_000_000_000_000;

/// Rate of a stream, in one of three units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bits of frames a second, FCS not counted.
    FrameBps(u64),
    /// Bits a second as the wire sees them: FCS, the 64-byte minimum, preamble and gap counted.
    WireBps(u64),
    /// Frames a second, whatever their lengths.
    Fps(u64),
    /// As fast as the port takes them.
    Max,
}

impl Rate {
    /// Work of one frame of `len` bytes in this rate's unit, and the units a second; `None` for
    /// no limit.
    const fn work(self, len: usize) -> Option<(u64, u64)> {
        match self {
            Self::FrameBps(bps) => Some((len as u64 * 8, bps)),
            Self::WireBps(bps) => {
                // FCS of 4 bytes; then preamble, start delimiter and gap, 20 bytes together.
                let with_fcs = len as u64 + 4;
                let padded = if with_fcs < 64 { 64 } else { with_fcs };
                Some(((padded + 20) * 8, bps))
            }
            Self::Fps(fps) => Some((1, fps)),
            Self::Max => None,
        }
    }

    /// Whether the rate can be paced: neither 0 nor above [`RATE_MAX`].
    #[must_use]
    pub const fn is_valid(self) -> bool {
        match self {
            Self::FrameBps(units) | Self::WireBps(units) | Self::Fps(units) => {
                units != 0 && units <= RATE_MAX
            }
            Self::Max => true,
        }
    }
}

/// Paces a stream: gives the time to the next frame and carries the rounding over, so that the mean rate is exact.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    rate: Rate,
    /// Units times picoseconds that no gap has contained yet; below the rate.
    rest: u64,
}

impl Pacer {
    /// A pacer without a remainder. A rate of 0 is taken as no limit; see [`Rate::is_valid`].
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, rest: 0 }
    }

    /// Time from the start of a frame of `len` bytes to the start of the next one.
    #[inline]
    pub fn gap(&mut self, len: usize) -> Span {
        let Some((work, rate)) = self.rate.work(len).filter(|(_, rate)| *rate != 0) else {
            return Span::ZERO;
        };
        // a frame is below 2^19 bits and 10^12 below 2^40: the product fits
        let total = work * SECOND_PS + self.rest;
        self.rest = total % rate;
        Span::from_ps(total / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One million gaps of odd rates and sizes end where one division says.
    #[test]
    fn gaps_do_not_drift() {
        #[rustfmt::skip] // columns: name, rate, lengths in turn, units a second
        let cases: [(_, _, &[usize], _); 5] = [
            ("frame bits",   Rate::FrameBps(7_777_777_777),  &[60, 61, 1398],  7_777_777_777),
            ("wire bits",    Rate::WireBps(99_999_999_999),  &[60, 1514, 997], 99_999_999_999),
            ("frames",       Rate::Fps(3_333_333),           &[60],            3_333_333),
            ("slow",         Rate::FrameBps(1_000_003),      &[9216],          1_000_003),
            ("fastest",      Rate::WireBps(RATE_MAX),        &[60],            RATE_MAX),
        ];
        for (name, rate, lens, per_second) in cases {
            assert!(rate.is_valid(), "{name}");
            let mut pacer = Pacer::new(rate);
            let (mut at_ps, mut work) = (0u64, 0u128);
            for len in lens.iter().cycle().take(1_000_000) {
                work += match rate {
                    Rate::FrameBps(_) => *len as u128 * 8,
                    Rate::WireBps(_) => (*len as u128 + 4).max(64) * 8 + 160,
                    _ => 1,
                };
                at_ps += pacer.gap(*len).as_ps();
            }
            let want = work * u128::from(SECOND_PS) / u128::from(per_second);
            assert_eq!(u128::from(at_ps), want, "{name}");
        }
    }

    #[test]
    fn rates_out_of_range_are_known() {
        #[rustfmt::skip] // columns: rate, valid
        let cases = [
            (Rate::Max, true), (Rate::Fps(0), false), (Rate::Fps(1), true),
            (Rate::WireBps(RATE_MAX), true), (Rate::WireBps(RATE_MAX + 1), false),
        ];
        for (rate, valid) in cases {
            assert_eq!(rate.is_valid(), valid, "{rate:?}");
        }
        assert_eq!(Pacer::new(Rate::Max).gap(1514), Span::ZERO);
    }
}
