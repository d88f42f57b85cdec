//! What etcd answers, as it is read: nothing in it is believed that does not fit what was asked.
//!
//! JSON -> [`Granted`], [`Kept`], [`Outcome`], [`KeyValue`]; numbers of 64 bits are text in JSON, bytes are base64.
//!
//! Units: seconds of leases; bytes.
//! Source: etcd 3.4 "gRPC gateway" and `rpc.proto`: `LeaseGrantResponse`, `LeaseKeepAliveResponse`, `RangeResponse`,
//! `TxnResponse`, `KeyValue`.

use std::fmt;
use std::marker::PhantomData;

use data_encoding::BASE64;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Longest answer; a piece of a store is a quarter of it.
pub const ANSWER_MAX: usize = 2 << 20;
/// Most entries of any list of an answer: no more are asked for.
const ENTRIES_MAX: usize = 64;
/// Longest text of an error that is shown.
const TEXT_MAX: usize = 200;

/// Why an answer is none.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// etcd refused.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// It cannot be read.
    #[error("etcd's answer cannot be read")]
    Json(#[from] serde_json::Error),
    /// It is longer than any that was asked for.
    #[error("etcd's answer is longer than {ANSWER_MAX} bytes")]
    Long,
    /// It does not fit what was asked.
    #[error("etcd's answer does not fit the request: {0}")]
    Unfit(&'static str),
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Granted {
    /// Its number.
    #[serde(rename = "ID", deserialize_with = "number", default)]
    pub id: i64,
    /// How long it lasts.
    #[serde(rename = "TTL", deserialize_with = "number", default)]
    pub ttl: i64,
}

/// The outcome of keeping a lease alive; without a TTL it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Kept {
    /// What was kept.
    pub result: Granted,
}

/// A key and what it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "bytes", default)]
    pub key: Vec<u8>,
    /// Its value.
    #[serde(deserialize_with = "bytes", default)]
    pub value: Vec<u8>,
    /// Revision of the store that made it.
    #[serde(deserialize_with = "number", default)]
    pub create_revision: i64,
    /// Revision of the store that changed it last.
    #[serde(deserialize_with = "number", default)]
    pub mod_revision: i64,
    /// Lease that it goes with.
    #[serde(deserialize_with = "number", default)]
    pub lease: i64,
}

/// What is said with every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Header {
    /// Revision of the store.
    #[serde(deserialize_with = "number", default)]
    pub revision: i64,
}

/// Keys in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Ranged {
    /// When that was so; not in an answer of a transaction.
    #[serde(default)]
    pub header: Header,
    /// How many there are: nothing is left out where there is none.
    #[serde(deserialize_with = "number", default)]
    pub count: i64,
    /// They.
    #[serde(deserialize_with = "few", default)]
    pub kvs: Vec<KeyValue>,
}

/// What one operation of a transaction says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Step {
    /// Of a range.
    #[serde(default)]
    pub response_range: Option<Ranged>,
}

/// What came of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Outcome {
    /// Whether what was compared was so.
    #[serde(default)]
    pub succeeded: bool,
    /// What each operation says.
    #[serde(deserialize_with = "few", default)]
    pub responses: Vec<Step>,
}

impl Outcome {
    /// The key that the last operation has read.
    ///
    /// # Errors
    /// It has read more than one, or nothing was to be read.
    pub fn last_read(&self) -> Result<Option<&KeyValue>, AnswerError> {
        let last = self.responses.last().and_then(|step| step.response_range.as_ref());
        last.ok_or(AnswerError::Unfit("a range is missing"))?.only()
    }
}

impl Ranged {
    /// The only key, or none.
    ///
    /// # Errors
    /// There are several, or not as many as are counted.
    pub fn only(&self) -> Result<Option<&KeyValue>, AnswerError> {
        if i64::try_from(self.kvs.len()) != Ok(self.count) {
            return Err(AnswerError::Unfit("it has not the keys that it counts"));
        }
        match self.kvs.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(AnswerError::Unfit("several keys for one")),
        }
    }
}

/// What etcd answers where it refuses.
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

/// A text of somebody else, for people: short, and of one line.
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

/// A list, as long as any that is asked for.
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
                    return Err(A::Error::invalid_length(all.len() + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }
    from.deserialize_seq(Few(PhantomData))
}
