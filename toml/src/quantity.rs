//! Sizes, addresses and other whole numbers, as people write them.
//!
//! All files and flags read them by [`parse_number`], so that a size which one command takes means the same to all others.

/// Units with the factor that each stands for, as those of the GNU core utilities: K is KiB, of 1024, and KB is of 1000.
/// A unit stands before those that it ends with.
const UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

/// Reads a whole number such as `4096`, `0x1000` or `4KiB`. Underscores may group digits, and blanks stand around the
/// number and its unit. `None` for all other text, and for a number that does not fit 64 bits.
#[must_use]
pub fn parse_number(text: &str) -> Option<u64> {
    let text: String = text.trim().chars().filter(|&c| c != '_').collect();
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        // `from_str_radix` also takes a sign, such as in `0x+10`.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return u64::from_str_radix(digits, 16).ok().filter(|_| is_hex);
    }
    let unit = UNITS.iter().find_map(|(unit, by)| Some((text.strip_suffix(unit)?, *by)));
    let (number, by) = unit.unwrap_or((&text, 1));
    decimal(number.trim_end(), 0)?.checked_mul(by)
}

/// A decimal number such as `2.5`, in parts of 10^-`digits`; `None` if it has a sign, an exponent, or more digits
/// behind its point.
#[must_use]
pub fn decimal(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) || fraction.trim_end_matches('0').len() > digits {
        return None;
    }
    // Zeros at the end do not count as digits: 1.500 is exact in tenths.
    let parts = format!("{:0<digits$}", fraction.trim_end_matches('0'));
    // Without places the text is empty, which does not parse as a number.
    let parts = if digits == 0 { 0 } else { parts.parse().ok()? };
    let ten = 10_u64.checked_pow(u32::try_from(digits).ok()?)?;
    whole.parse::<u64>().ok()?.checked_mul(ten)?.checked_add(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly_or_refused() {
        #[rustfmt::skip] // columns: text, want
        let cases = [
            ("0", Some(0)), ("4096", Some(4_096)), ("1_000", Some(1_000)), (" 3 KiB ", Some(3_072)),
            ("0x1000", Some(4_096)), ("0X0100_0000", Some(1 << 24)), ("0x1B", Some(27)),
            ("0xFFFF_FFFF_FFFF_FFFF", Some(u64::MAX)), ("18446744073709551615", Some(u64::MAX)),
            ("7B", Some(7)), ("4K", Some(4_096)), ("4KiB", Some(4_096)), ("4KB", Some(4_000)),
            ("64M", Some(64 << 20)), ("2MB", Some(2_000_000)), ("1G", Some(1 << 30)), ("1GB", Some(1_000_000_000)),
            ("1TiB", Some(1 << 40)), ("1T", Some(1 << 40)), ("1TB", Some(1_000_000_000_000)), ("64.0KiB", Some(65_536)),
            ("", None), ("_", None), ("-1", None), ("+4", None), ("0x", None), ("0x+1", None), ("0x10KiB", None),
            ("4kib", None), ("4 k", None), ("1.5MB", None), ("1e3", None), ("KiB", None), ("4KiBB", None), ("4 0", None),
            ("18446744073709551616", None), ("18446744073709551615KiB", None), ("99999999999TiB", None), ("é", None),
        ];
        for (text, want) in cases {
            assert_eq!(parse_number(text), want, "{text:?}");
        }
    }

    #[test]
    fn decimals_keep_all_their_digits_or_are_refused() {
        #[rustfmt::skip] // columns: text, digits, want
        let cases = [
            ("2.5", 1, Some(25)), ("2.50", 1, Some(25)), ("2.55", 1, None), ("2", 3, Some(2_000)), ("2.0", 0, Some(2)),
            ("", 1, None), (".5", 1, None), ("2.", 1, None), ("+2", 1, None), ("1e3", 1, None),
            ("18446744073709551615", 0, Some(u64::MAX)), ("18446744073709551615", 1, None),
        ];
        for (text, digits, want) in cases {
            assert_eq!(decimal(text, digits), want, "{text:?} in {digits}");
        }
    }
}
