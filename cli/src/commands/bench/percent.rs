//! Percentages on the command line, exact to a millionth of the whole.
//!
//! [`Percent`] is read from decimal digits and kept in parts per million.

use std::str::FromStr;

/// A share of a whole, 0 to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(u64);

impl Percent {
    /// The share in parts per million.
    #[must_use]
    pub const fn ppm(self) -> u64 {
        self.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("expected 0 to 100 with at most 4 decimals, found {text:?}");
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || part.is_empty() || part.len() > 4 || !digits(whole) || !digits(part)
        {
            return Err(refuse());
        }
        let whole: u64 = whole.parse().ok().filter(|whole| *whole <= 100).ok_or_else(refuse)?;
        // Four decimals of a percent are millionths: pad ".5" to 5000.
        let part: u64 = format!("{part:0<4}").parse().map_err(|_| refuse())?;
        let ppm = whole * 10_000 + part;
        if ppm <= 1_000_000 { Ok(Self(ppm)) } else { Err(refuse()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact() {
        #[rustfmt::skip] // columns: text, parts per million
        let cases = [
            ("0", Some(0)), ("0.5", Some(5_000)), ("0.0001", Some(1)), ("100", Some(1_000_000)),
            ("12.34", Some(123_400)), ("100.1", None), ("-1", None), ("", None), (".5", None),
            ("1.", None), ("1e2", None), ("0.00001", None), ("99999999999999999999", None),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Percent>().ok().map(Percent::ppm), want, "{text:?}");
        }
    }
}
