//! Bytes as hexadecimal digits in JSON, for `#[serde(with)]`: two digits a byte, nothing between them.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&HEXLOWER.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes());
    bytes.map_err(|_| D::Error::custom("expected two hexadecimal digits a byte"))
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Bytes(#[serde(with = "super")] Vec<u8>);

    #[test]
    fn digits_are_read_as_written() {
        let all = Bytes((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.starts_with("\"000102") && text.ends_with("fdfeff\""), "{text}");
        assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), all);
        assert_eq!(serde_json::from_str::<Bytes>("\"0aFf\"").unwrap(), Bytes(vec![10, 255]));
        for text in ["0", "0g", "+1", " 1", "\u{e9}"] {
            assert!(serde_json::from_str::<Bytes>(&format!("\"{text}\"")).is_err(), "{text:?}");
        }
    }
}
