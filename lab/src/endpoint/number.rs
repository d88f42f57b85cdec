//! Numbers, bytes and function ids as people write them.
//!
//! [`Num`], [`Hex`] and [`Id`] are parsed from text or JSON. A [`Num`] is written back as a plain JSON number.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_parsers::fabric::Bdf;
use weft_toml::quantity::parse_number;

/// An address, a size or another number: see [`parse_number`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Num(pub u64);

impl FromStr for Num {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("expected a number like 4096, 0x1000 or 4KiB, found {text:?}");
        parse_number(text).map(Self).ok_or_else(refuse)
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = Num;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or text like \"0x1000\" or \"4KiB\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Num, E> {
                Ok(Num(number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Num, E> {
                // TOML has signed integers only, so its reader hands over every number here.
                let refuse = |_| E::custom(format!("expected 0 or more, found {number}"));
                u64::try_from(number).map(Num).map_err(refuse)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Num, E> {
                text.parse().map_err(E::custom)
            }
        }
        from.deserialize_any(Reader)
    }
}

/// Reads a number, or text that begins with `0x`: other text could be meant as decimal or as hexadecimal.
///
/// # Errors
/// It is neither of them.
pub fn number_or_hex<'de, D: Deserializer<'de>>(from: D) -> Result<Num, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(u64),
        Text(String),
    }
    match Value::deserialize(from)? {
        Value::Number(number) => Ok(Num(number)),
        // JSON has no hexadecimal numbers, so these are text.
        Value::Text(text) if text.starts_with("0x") => text.parse().map_err(D::Error::custom),
        Value::Text(text) => {
            Err(D::Error::custom(format!("expected a number, or text with 0x, found {text:?}")))
        }
    }
}

/// Bytes as hexadecimal digits, two for each byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl FromStr for Hex {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
        HEXLOWER_PERMISSIVE.decode(digits).map(Self).map_err(|_| {
            format!("expected two hexadecimal digits a byte, found {} digits", digits.len())
        })
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A function id, `BUS:DEVICE.FUNCTION` in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub Bdf);

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (bus, rest) = text.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex = |digits: &str, max: u8| {
                u8::from_str_radix(digits, 16).ok().filter(|number| *number <= max)
            };
            Some(Self(Bdf::new(hex(bus, 255)?, hex(device, 31)?, hex(function, 7)?)))
        };
        read().ok_or_else(|| format!("expected a function like 01:00.0, found {text:?}"))
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_bytes_and_ids_are_read_or_refused() {
        #[rustfmt::skip] // columns: text, want
        let cases = [
            ("0", Some(0)), ("4096", Some(4_096)), ("0x1000", Some(4_096)), ("4KiB", Some(4_096)),
            ("64M", Some(64 << 20)), ("1_000", Some(1_000)), ("0xFFFF_FFFF_FFFF_FFFF", Some(u64::MAX)),
            ("", None), ("-1", None), ("0x", None), ("0x+1", None), ("4kib", None), ("+4", None),
            ("18446744073709551615KiB", None), ("KiB", None),
        ];
        for (text, want) in cases {
            assert_eq!(text.parse::<Num>().ok().map(|it| it.0), want, "{text}");
        }
        assert_eq!(serde_json::from_str::<Num>("\"2MiB\"").unwrap(), Num(2 << 20));
        assert_eq!(serde_json::from_str::<Num>("18446744073709551615").unwrap(), Num(u64::MAX));
        assert!(serde_json::from_str::<Num>("-1").is_err());
        let opcode = |text: &str| number_or_hex(&mut serde_json::Deserializer::from_str(text)).ok();
        assert_eq!(opcode("\"0x5800\""), Some(Num(0x5800)));
        assert_eq!(opcode("22528"), Some(Num(0x5800)));
        assert_eq!((opcode("\"5800\""), opcode("-1")), (None, None));
        assert_eq!("0x00fF".parse(), Ok(Hex(vec![0, 255])));
        assert_eq!(Hex(vec![1, 0xAB]).to_string(), "01ab");
        for text in ["0", "0g", "00 1", "é"] {
            assert!(text.parse::<Hex>().is_err(), "{text}");
        }
        assert_eq!("01:1f.7".parse(), Ok(Id(Bdf::new(1, 31, 7))));
        for text in ["1", "01:00", "01:20.0", "01:00.8", "100:00.0", "x:00.0"] {
            assert!(text.parse::<Id>().is_err(), "{text}");
        }
        assert_eq!(serde_json::to_string(&Id(Bdf::new(1, 2, 3))).unwrap(), "\"01:02.3\"");
    }
}
