//! RNR timers: how long a sender waits after a receiver was not ready, as a code of 5 bits in the NAK's syndrome.
//!
//! Source: InfiniBand Architecture Specification 1.4, volume 1, table 45 (RNR NAK timer field); docs/spec/model.md §4.

use weft_dataplane::time::Span;

/// Highest code of the five bits.
pub const CODE_MAX: u8 = 31;

/// Wait time by code, in units of 10 us.
const TIMES: [u64; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024,
    1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Wait time of the code in the low five bits of `syndrome`.
#[must_use]
pub fn wait(syndrome: u8) -> Span {
    let units = TIMES.get(usize::from(syndrome & CODE_MAX)).copied().unwrap_or_default();
    Span::from_us(units * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_times() {
        #[rustfmt::skip] // columns: syndrome, us
        let cases = [(0x20, 655_360), (0x21, 10), (0x2E, 1_280), (0x3F, 491_520)];
        for (syndrome, us) in cases {
            assert_eq!(wait(syndrome), Span::from_us(us), "{syndrome:#x}");
        }
    }
}
