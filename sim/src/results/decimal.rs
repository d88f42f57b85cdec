//! Decimal numbers of results: exact in memory, and printed in exactly one way.
//!
//! A [`Decimal`] prints as the shortest text for it, and as a JSON number that reads back as the same value. It counts
//! parts of 10^-9 of its field's unit.
//!
//! Source: docs/results.md; RFC 8259 §6 (numbers).

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parts that make 1.
const PARTS: i128 = 1_000_000_000;
/// Derived ratios are rounded to a multiple of this, which is 6 places.
const RATIO_STEP: i128 = 1_000;

/// A decimal number, in parts of 10^-9.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal(pub i128);

impl Decimal {
    /// The number 1 itself.
    pub const ONE: Self = Self(PARTS);

    /// A whole number as a decimal.
    #[must_use]
    pub fn whole(number: u64) -> Self {
        Self(i128::from(number) * PARTS)
    }

    /// `part` / `whole` to 6 places, with halves rounded away from zero; `None` if `whole` is 0.
    #[must_use]
    pub fn ratio(part: u64, whole: u64) -> Option<Self> {
        let scaled = i128::from(part) * (PARTS / RATIO_STEP);
        let whole = i128::from(whole);
        let rounded = (scaled + whole / 2).checked_div(whole)?;
        Some(Self(rounded * RATIO_STEP))
    }

    /// Picoseconds as microseconds, exactly.
    #[must_use]
    pub fn us_of_ps(ps: u64) -> Self {
        Self(i128::from(ps) * 1_000)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, magnitude) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let parts = PARTS.unsigned_abs();
        let (whole, part) = (magnitude / parts, magnitude % parts);
        if part == 0 {
            return write!(f, "{sign}{whole}");
        }
        write!(f, "{sign}{whole}.{}", format!("{part:09}").trim_end_matches('0'))
    }
}

/// Text that is not a decimal number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected a decimal number with at most 9 places, such as 650.3")]
pub struct DecimalError(pub String);

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let refused = || DecimalError(text.to_owned());
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 9 {
            return Err(refused());
        }
        let whole: i128 = whole.parse().map_err(|_| refused())?;
        // Padded to nine digits, the fraction is a number of parts.
        let part: i128 = format!("{part:0<9}").parse().map_err(|_| refused())?;
        let number = whole.checked_mul(PARTS).and_then(|w| w.checked_add(part));
        let number = number.ok_or_else(refused)?;
        Ok(Self(if negative { -number } else { number }))
    }
}

/// A number in JSON: whole ones as integers, others as the nearest double, which prints as the same decimal up to 15
/// digits.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % PARTS == 0
            && let Ok(whole) = i64::try_from(self.0 / PARTS)
        {
            return serializer.serialize_i64(whole);
        }
        let text = self.to_string();
        serializer.serialize_f64(text.parse().map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        // Nine places cut off the error that the double has beyond them.
        let text = format!("{number:.9}");
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_its_text_and_the_text_it() {
        #[rustfmt::skip] // columns: parts, text
        let cases = [
            (0, "0"), (1, "0.000000001"), (1_500_000_000, "1.5"), (-250_000_000, "-0.25"),
            (650_300_000_000, "650.3"), (12 * PARTS, "12"), (1_002_345_000, "1.002345"),
        ];
        for (parts, text) in cases {
            assert_eq!(Decimal(parts).to_string(), text);
            assert_eq!(text.parse(), Ok(Decimal(parts)), "{text}");
        }
        for text in [
            "",
            "-",
            ".5",
            "1.",
            "1e3",
            "0x1",
            "1.0000000001",
            " 1",
            "99999999999999999999999999999999999",
        ] {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError(text.to_owned())));
        }
    }

    #[test]
    fn ratios_have_6_places_and_nothing_has_none() {
        #[rustfmt::skip] // columns: part, whole, text
        let cases = [(1, 3, "0.333333"), (2, 3, "0.666667"), (1, 2, "0.5"), (7, 7, "1"), (0, 5, "0"),
            (u64::MAX, 1, "18446744073709551615"), (1, 2_000_000, "0.000001")];
        for (part, whole, text) in cases {
            assert_eq!(Decimal::ratio(part, whole).unwrap().to_string(), text, "{part}/{whole}");
        }
        assert_eq!(Decimal::ratio(1, 0), None);
        assert_eq!(Decimal::us_of_ps(650_300_001).to_string(), "650.300001");
    }
}
