//! Figures in words: numbers with commas, times and rates in units for people, never rounded.
//!
//! Every function turns a number or a text into a text.

/// A whole number with a comma after each three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number in units of 10^`places`, exactly: with 6 places picoseconds become microseconds, with 9 places
/// bit/s become Gbit/s.
#[must_use]
pub fn scaled(number: u64, places: u32) -> String {
    let unit = 10u64.saturating_pow(places);
    let (whole, part) = (grouped(number / unit), number % unit);
    // No point without digits behind it.
    if part == 0 {
        return whole;
    }
    let width = places as usize;
    format!("{whole}.{}", format!("{part:0width$}").trim_end_matches('0'))
}

/// Picoseconds in microseconds, exactly.
#[must_use]
pub fn us(ps: u64) -> String {
    scaled(ps, 6)
}

/// Bit/s in Gbit/s, exactly.
#[must_use]
pub fn gbps(bps: u64) -> String {
    scaled(bps, 9)
}

/// Foreign text for one line of a terminal: control characters and line ends are shown as U+FFFD, so that they can
/// neither move the cursor nor forge lines.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact_in_any_unit() {
        #[rustfmt::skip] // columns: number, places, text
        let cases = [
            (0, 6, "0"), (1, 6, "0.000001"), (650_300_000, 6, "650.3"), (1_234_567_000_000, 6, "1,234,567"),
            (385_650_000_000, 9, "385.65"), (42, 0, "42"), (u64::MAX, 6, "18,446,744,073,709.551615"),
        ];
        for (number, places, text) in cases {
            assert_eq!(scaled(number, places), text);
        }
        assert_eq!(grouped(1_000), "1,000");
    }
}
