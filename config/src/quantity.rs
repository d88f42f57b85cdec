//! Times, sizes, fractions and tolerances, as files write them.
//!
//! Each parser returns `None` for a text that it does not accept. All work in integers: no value is rounded.
//!
//! Source: docs/scenarios.md; docs/configuration.md.

use weft_toml::quantity::{decimal, parse_number};

/// Longest time that a file can give: 100 days, in ps. It is below 2^63 ps (106 days), within which
/// [`Instant`](weft_dataplane::time::Instant)s compare.
pub const TIME_PS_MAX: u64 = 100 * 86_400 * 1_000_000_000_000;

/// `"10ms"` or `"2.5 us"` in ps: a number and ps, ns, us, ms or s, that is a whole number of ps and at most
/// [`TIME_PS_MAX`].
#[must_use]
pub fn parse_time(text: &str) -> Option<u64> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(at)?;
    // The digits behind the point that still make whole picoseconds.
    let digits = match unit {
        "ps" => 0,
        "ns" => 3,
        "us" => 6,
        "ms" => 9,
        "s" => 12,
        _ => return None,
    };
    decimal(number.trim_end(), digits).filter(|ps| *ps <= TIME_PS_MAX)
}

/// `"64KiB"` in bytes, 1 or above: see [`parse_number`].
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    // The bound of TOML's integers: a size means the same as a number and as a text.
    parse_number(text).filter(|bytes| (1..=i64::MAX.unsigned_abs()).contains(bytes))
}

/// `"3/4"` or `"0.75"` as numerator and denominator, exactly; at most 9 digits stand behind the point. The
/// denominator may be 0 here: [`is_ratio_within`] refuses that.
#[must_use]
pub fn parse_ratio(text: &str) -> Option<(u64, u64)> {
    let text = text.trim();
    match text.split_once('/') {
        Some((num, den)) => Some((decimal(num.trim(), 0)?, decimal(den.trim(), 0)?)),
        None => Some((decimal(text, 9)?, 1_000_000_000)),
    }
}

/// Whether `num / den` is a number from 1 / `least` to `most`.
#[must_use]
pub fn is_ratio_within(num: u64, den: u64, least: u64, most: u64) -> bool {
    // In u128 the products of two u64 below cannot overflow.
    let [num, den, least, most] = [num, den, least, most].map(u128::from);
    den > 0 && num * least >= den && num <= most * den
}

/// How far a figure may be off its expected value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Parts of 10^-9 of the value.
    Parts(u64),
    /// The expected value is the lower bound.
    AtLeast,
    /// The expected value is the upper bound.
    AtMost,
}

/// `"0.3%"`, `"at least"` or `"at most"`.
#[must_use]
pub fn parse_tolerance(text: &str) -> Option<Tolerance> {
    match text.trim() {
        "at least" => Some(Tolerance::AtLeast),
        "at most" => Some(Tolerance::AtMost),
        // A percent is 10^7 parts of 10^-9, so 7 digits behind its point are whole parts.
        text => decimal(text.strip_suffix('%')?.trim_end(), 7).map(Tolerance::Parts),
    }
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::*;
    use crate::value::Kind;

    #[test]
    fn kinds_of_a_scenario_accept_up_to_their_bounds() {
        #[rustfmt::skip] // columns: kind, text, want (as TOML; none: refused)
        let cases = [
            (Kind::Time, "'10ms'", Some("\"10ms\"")),
            (Kind::Time, "10", None),
            (Kind::Time, "'10'", None),
            (Kind::Time, "'10 min'", None),
            (Kind::Time, "'-1us'", None),
            (Kind::Time, "'0.5ps'", None),
            (Kind::Time, "'8640000s'", Some("\"8640000s\"")),
            (Kind::Time, "'8640001s'", None),
            (Kind::Size, "1", Some("1")),
            (Kind::Size, "0", None),
            (Kind::Size, "'64KiB'", Some("\"64KiB\"")),
            (Kind::Size, "'0KiB'", None),
            (Kind::Size, "'1.5MB'", None),
            (Kind::Size, "'99999999999GiB'", None),
            (Kind::Ratio(1_024, 64), "0.75", Some("0.75")),
            (Kind::Ratio(1_024, 64), "2.0", Some("2")),
            (Kind::Ratio(1_024, 64), "'3/4'", Some("\"3/4\"")),
            (Kind::Ratio(1_024, 64), "'1/1024'", Some("\"1/1024\"")),
            (Kind::Ratio(1_024, 64), "'1/1025'", None),
            (Kind::Ratio(1_024, 64), "64", Some("64")),
            (Kind::Ratio(1_024, 64), "64.000000001", None),
            (Kind::Ratio(1_024, 64), "0", None),
            (Kind::Ratio(1_024, 64), "'1/0'", None),
            (Kind::Ratio(1_024, 64), "'0/0'", None),
            (Kind::Ratio(1_024, 64), "'18446744073709551615/18446744073709551615'", Some("\"18446744073709551615/18446744073709551615\"")),
            (Kind::Ratio(1_024, 64), "-1", None),
            (Kind::Ratio(1_024, 64), "nan", None),
            (Kind::Line, "'a b'", Some("\"a b\"")),
            (Kind::Line, "' '", None),
            (Kind::Tolerance, "2.5", Some("2.5")),
            (Kind::Tolerance, "-1", None),
            (Kind::Tolerance, "'0.3%'", Some("\"0.3%\"")),
            (Kind::Tolerance, "'at least'", Some("\"at least\"")),
            (Kind::Tolerance, "'about'", None),
            (Kind::Priority, "-20", Some("-20")),
            (Kind::Priority, "20", None),
            (Kind::Priority, "'rr'", Some("\"rr\"")),
            (Kind::Priority, "'fifo'", None),
        ];
        for (kind, text, want) in cases {
            let got =
                kind.check(&DeValue::parse(text).unwrap()).ok().map(|value| kind.show(&value));
            assert_eq!(got.as_deref(), want, "{kind} of {text}");
        }
    }

    #[test]
    fn texts_are_what_they_say_exactly() {
        let times = ["1ps", "1.5 ns", "0.000001us", "2ms", "1s", "0s"].map(parse_time);
        assert_eq!(times.map(Option::unwrap), [1, 1_500, 1, 2_000_000_000, 1_000_000_000_000, 0]);
        assert_eq!(parse_size("3 KiB"), Some(3_072));
        let ratios = ["3/4", " 3 / 4 ", "0.75", "2", "1/0", "1.5/2", "-1", "1e3", "0.0000000001"];
        let third = (750_000_000, 1_000_000_000);
        let want = [Some((3, 4)), Some((3, 4)), Some(third), Some((2_000_000_000, 1_000_000_000))];
        assert_eq!(ratios.map(parse_ratio)[..4], want);
        assert_eq!(ratios.map(parse_ratio)[4..], [Some((1, 0)), None, None, None, None]);
        assert_eq!(parse_tolerance("0.3%"), Some(Tolerance::Parts(3_000_000)));
        assert_eq!(parse_tolerance("0.00000001%"), None, "finer than a part of 10^-9");
    }
}
