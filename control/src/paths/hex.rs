//! Octets as hexadecimal digits in JSON.
//!
//! Shape: for `#[serde(with)]`: two digits an octet, nothing between them.
//! Units: octets.
//! Source: none.

use core::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

struct Digits<'a>(&'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

pub(super) fn serialize<S: Serializer>(octets: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Digits(octets))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| D::Error::custom("expected two hexadecimal digits an octet"))
}

fn parse(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let octet = |&[high, low]: &[u8; 2]| u8::try_from(digit(high)? << 4 | digit(low)?).ok();
    if rest.is_empty() { pairs.iter().map(octet).collect() } else { None }
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
