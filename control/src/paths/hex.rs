//! Bytes as hexadecimal digits in JSON.
//!
//! Shape: for `#[serde(with)]`: two digits a byte, nothing between them.
//! Units: bytes.
//! Source: none.

use core::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

struct Digits<'a>(&'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Digits(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| D::Error::custom("expected two hexadecimal digits a byte"))
}

fn parse(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(parse(&Digits(&all).to_string()), Some(all));
        for text in ["0", "0g", "+1", " 1", "\u{e9}"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
