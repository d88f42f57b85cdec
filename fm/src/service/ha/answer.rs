//! Answers of etcd, parsed and checked: nothing in them is believed that does not fit the request.
//!
//! In its JSON, numbers of 64 bits are text and bytes are base64.
//!
//! Source: etcd 3.4 "gRPC gateway" and `rpc.proto`: `LeaseGrantResponse`, `LeaseKeepAliveResponse`, `RangeResponse`,
//! `TxnResponse`, `KeyValue`.

use std::fmt;
use std::marker::PhantomData;

use data_encoding::BASE64;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Longest answer in bytes; a piece of a store takes a quarter of it.
pub const ANSWER_MAX: usize = 2 << 20;
/// Longest list in an answer; no request asks for more.
const ENTRIES_MAX: usize = 64;
/// Longest error text that is shown, in characters.
const TEXT_MAX: usize = 200;

/// Why an answer is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// etcd refused the request.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// It is not valid JSON of this kind.
    #[error("etcd's answer cannot be read")]
    Json(#[from] serde_json::Error),
    /// It is longer than any answer that a request asks for.
    #[error("etcd's answer is longer than {ANSWER_MAX} bytes")]
    Long,
    /// It does not fit the request.
    #[error("etcd's answer does not fit the request: {0}")]
    Unfit(&'static str),
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Granted {
    #[serde(rename = "ID", deserialize_with = "number", default)]
    pub id: i64,
    /// Its duration in seconds.
    #[serde(rename = "TTL", deserialize_with = "number", default)]
    pub ttl: i64,
}

/// Answer to a keep-alive; a TTL of 0 means that the lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Kept {
    /// The lease, as it is now.
    pub result: Granted,
}

/// A key with its value and revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KeyValue {
    #[serde(deserialize_with = "bytes", default)]
    pub key: Vec<u8>,
    #[serde(deserialize_with = "bytes", default)]
    pub value: Vec<u8>,
    /// Revision of the store at which the key was made.
    #[serde(deserialize_with = "number", default)]
    pub create_revision: i64,
    /// Revision of the store at which the key was changed last.
    #[serde(deserialize_with = "number", default)]
    pub mod_revision: i64,
    /// Lease that the key is attached to; 0 for none.
    #[serde(deserialize_with = "number", default)]
    pub lease: i64,
}

/// Data that comes with every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Header {
    #[serde(deserialize_with = "number", default)]
    pub revision: i64,
}

/// Keys of a range, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Ranged {
    /// Header with the store's revision; missing within a transaction.
    #[serde(default)]
    pub header: Header,
    /// Number of keys in the range, to be compared with `kvs`.
    #[serde(deserialize_with = "number", default)]
    pub count: i64,
    #[serde(deserialize_with = "few", default)]
    pub kvs: Vec<KeyValue>,
}

/// Result of one operation of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Step {
    /// Result of a range.
    #[serde(default)]
    pub response_range: Option<Ranged>,
}

/// Result of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Outcome {
    /// Whether the comparison held.
    #[serde(default)]
    pub succeeded: bool,
    /// Results of the operations, in order.
    #[serde(deserialize_with = "few", default)]
    pub responses: Vec<Step>,
}

impl Outcome {
    /// The key that the last operation read.
    ///
    /// # Errors
    /// It read several keys, or was no range.
    pub fn last_read(&self) -> Result<Option<&KeyValue>, AnswerError> {
        let last = self.responses.last().and_then(|step| step.response_range.as_ref());
        last.ok_or(AnswerError::Unfit("a range is missing"))?.only()
    }
}

impl Ranged {
    /// The only key, or none.
    ///
    /// # Errors
    /// There are several, or another number than is counted.
    pub fn only(&self) -> Result<Option<&KeyValue>, AnswerError> {
        if i64::try_from(self.kvs.len()) != Ok(self.count) {
            // A key removed from the list on its way must not look like one that does not exist.
            return Err(AnswerError::Unfit("it has not the keys that it counts"));
        }
        match self.kvs.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(AnswerError::Unfit("several keys for one")),
        }
    }
}

/// Answer of a refused request.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    error: Option<serde_json::Value>,
}

/// Reads an answer.
///
/// # Errors
/// It is a refusal, or not of this kind.
pub fn read<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, AnswerError> {
    if bytes.len() > ANSWER_MAX {
        return Err(AnswerError::Long);
    }
    if let Ok(Refusal { error: Some(error) }) = serde_json::from_slice(bytes) {
        return Err(AnswerError::Refused(shown(&error.to_string())));
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Text from elsewhere made fit for people: short, and on one line.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect()
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Text(String),
        Plain(i64),
    }
    match Number::deserialize(from)? {
        Number::Plain(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(|_| D::Error::custom("expected a number")),
    }
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64.decode(text.as_bytes()).map_err(|_| D::Error::custom("expected base64"))
}

/// A list of at most [`ENTRIES_MAX`] entries.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {ENTRIES_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = seq.next_element()? {
                if all.len() >= ENTRIES_MAX {
                    // Stopped while reading, before a hostile answer has filled the memory.
                    return Err(A::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Few(PhantomData))
}
