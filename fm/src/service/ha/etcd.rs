//! Client of etcd: the few requests that several managers need.
//!
//! [`Etcd`] sends lease, range and transaction requests of the v3 JSON gateway over a [`Post`]. A [`Fence`] is the key
//! that every write compares.
//!
//! Every transaction can be sent twice, as it puts the same values under the same condition: it is sent again if its
//! answer is lost or makes no sense. Values that are acted upon are compared by etcd with its own ([`Etcd::sure`],
//! `expected` of [`Etcd::write`]), so an answer that was changed on its way, or is old, is not used.
//!
//! Source: etcd 3.4 "gRPC gateway" and `rpc.proto`.

use std::fmt::Debug;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::answer::{self, AnswerError, Granted, Kept, KeyValue, Outcome, Ranged};

/// Longest value that is sent back for comparison, in bytes.
const COMPARED_MAX: usize = 4_096;

/// A connection to etcd: takes a path and JSON, returns JSON.
pub trait Post: Debug + Send + Sync {
    /// Sends a request and waits for its answer, within a time limit.
    ///
    /// # Errors
    /// No answer came.
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError>;
}

impl<T: Post + ?Sized> Post for std::sync::Arc<T> {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        (**self).post(path, body)
    }
}

/// Why a request to etcd failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member answered.
    #[error("etcd at {member} does not answer")]
    Silent {
        /// Member that was asked last.
        member: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer is not accepted.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("another fabric manager leads")]
    Deposed,
    /// The lease of this manager has ended by its own clock.
    #[error("the lease of this fabric manager has ended")]
    Ended,
}

/// Proof that a manager leads: its key in etcd, as it made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence(pub KeyValue);

/// An operation of a transaction.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    Put(&'a str, &'a [u8]),
    /// Removes the keys from the first up to, not including, the second.
    Remove(&'a str, &'a str),
}

/// A key and its value when it was read.
pub type Expected<'a> = (&'a str, Option<&'a KeyValue>);

/// A client of etcd.
#[derive(Clone, Debug)]
pub struct Etcd<P>(pub P);

impl<P: Post> Etcd<P> {
    fn ask<T: for<'de> serde::Deserialize<'de>>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let bytes = self.0.post(path, &body.to_string())?;
        Ok(answer::read(&bytes)?)
    }

    /// Grants a lease of this number; returns its duration, at most the one requested.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn grant(&self, id: i64, ttl: Duration) -> Result<Duration, EtcdError> {
        let body = json!({ "ID": id.to_string(), "TTL": ttl.as_secs().to_string() });
        lasts(self.ask("/v3/lease/grant", &body)?, id, ttl)?
            .ok_or_else(|| AnswerError::Unfit("a lease without time").into())
    }

    /// Keeps a lease alive; returns its duration from now on, `None` if it has ended.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn keep(&self, id: i64, ttl: Duration) -> Result<Option<Duration>, EtcdError> {
        let body = json!({ "ID": id.to_string() });
        let kept: Kept = self.ask("/v3/lease/keepalive", &body)?;
        lasts(kept.result, id, ttl)
    }

    /// Revokes a lease.
    ///
    /// # Errors
    /// See [`EtcdError`]; it ends by itself then.
    pub fn revoke(&self, id: i64) -> Result<(), EtcdError> {
        let body = json!({ "ID": id.to_string() });
        self.ask::<Value>("/v3/lease/revoke", &body).map(drop)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let body = json!({ "key": text(key.as_bytes()), "limit": "1" });
        let ranged: Ranged = self.ask("/v3/kv/range", &body)?;
        if ranged.header.revision <= 0 {
            // Every range of etcd has a header; one without is something else's answer.
            return Err(AnswerError::Unfit("a header is missing").into());
        }
        let found = ranged.only()?;
        if found.is_some_and(|found| found.key != key.as_bytes()) {
            return Err(AnswerError::Unfit("another key").into());
        }
        Ok(found.cloned())
    }

    /// Reads a key, and has etcd confirm the value.
    ///
    /// # Errors
    /// See [`EtcdError`]; the value is not the one that etcd has.
    pub fn sure(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let found = self.get(key)?;
        let read = json!({ "request_range": { "key": text(key.as_bytes()) } });
        let compare = is_still(key, found.as_ref());
        let body = json!({ "compare": compare, "success": [read], "failure": [read] });
        let outcome: Outcome = self.ask("/v3/kv/txn", &body)?;
        if outcome.succeeded && outcome.last_read()? == found.as_ref() {
            return Ok(found);
        }
        Err(AnswerError::Unfit("a key is another one when read again").into())
    }

    /// Makes `key` with `value` and `lease` unless it exists; returns the key as it is then, whoever made it.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn make(&self, key: &str, value: &[u8], lease: i64) -> Result<KeyValue, EtcdError> {
        let (name, lease) = (text(key.as_bytes()), lease.to_string());
        let read = json!({ "request_range": { "key": name } });
        let put = json!({ "request_put": { "key": name, "value": text(value), "lease": lease } });
        let none =
            json!({ "key": name, "target": "CREATE", "result": "EQUAL", "create_revision": "0" });
        let body = json!({ "compare": [none], "success": [put, read], "failure": [read] });
        let outcome: Outcome = self.ask("/v3/kv/txn", &body)?;
        match outcome.last_read()? {
            Some(found) if found.key == key.as_bytes() && found.create_revision > 0 => {
                Ok(found.clone())
            }
            _ => Err(AnswerError::Unfit("the leader's key is missing").into()),
        }
    }

    /// Changes keys, all or none, if `fence` stands and keys have their `expected` values.
    ///
    /// # Errors
    /// See [`EtcdError`]; without an answer the change may be made.
    pub fn write(
        &self,
        fence: &Fence,
        expected: &[Expected<'_>],
        changes: &[Change<'_>],
    ) -> Result<(), EtcdError> {
        let Fence(leader) = fence;
        let key = text(&leader.key);
        let change = |change: &Change<'_>| match change {
            Change::Put(key, value) => {
                json!({ "request_put": { "key": text(key.as_bytes()), "value": text(value) } })
            }
            Change::Remove(from, to) => {
                let (from, to) = (text(from.as_bytes()), text(to.as_bytes()));
                json!({ "request_delete_range": { "key": from, "range_end": to } })
            }
        };
        // Read in the same transaction, so that the outcome tells "deposed" from a changed answer.
        let read = json!({ "request_range": { "key": key } });
        let success: Vec<Value> = changes.iter().map(change).chain([read.clone()]).collect();
        let same = json!({
            "key": key, "target": "CREATE", "result": "EQUAL",
            "create_revision": leader.create_revision.to_string(),
        });
        let compare = expected.iter().flat_map(|&(key, found)| is_still(key, found));
        let compare: Vec<Value> = compare.chain([same]).collect();
        let body = json!({ "compare": compare, "success": success, "failure": [read] });
        let outcome: Outcome = self.ask("/v3/kv/txn", &body)?;
        match (outcome.succeeded, outcome.last_read()?) {
            (true, Some(found)) if found == leader && outcome.responses.len() == success.len() => {
                Ok(())
            }
            (false, found) if found != Some(leader) => Err(EtcdError::Deposed),
            (false, _) if !expected.is_empty() => {
                Err(AnswerError::Unfit("a key is another one than was read").into())
            }
            _ => Err(AnswerError::Unfit("its parts contradict each other").into()),
        }
    }
}

/// Comparisons that hold if a key is still as it was read. A long value is identified by its revision, and has a
/// checksum of its own.
fn is_still(key: &str, found: Option<&KeyValue>) -> Vec<Value> {
    let compare = |target: &str, field: &str, value: String| json!({ "key": text(key.as_bytes()), "target": target, "result": "EQUAL", field: value });
    let Some(found) = found else {
        return vec![compare("CREATE", "create_revision", "0".to_owned())];
    };
    let revision = compare("MOD", "mod_revision", found.mod_revision.to_string());
    let is_short = found.value.len() <= COMPARED_MAX;
    let value = is_short.then(|| compare("VALUE", "value", text(&found.value)));
    [revision].into_iter().chain(value).collect()
}

/// Duration of a lease by etcd's answer; `None` if it has ended.
fn lasts(said: Granted, id: i64, asked: Duration) -> Result<Option<Duration>, EtcdError> {
    if said.id != id {
        return Err(AnswerError::Unfit("another lease").into());
    }
    let ttl = u64::try_from(said.ttl).map_err(|_| AnswerError::Unfit("a time below 0"))?;
    // Never longer than requested, whatever the answer says: the permit is counted from it.
    Ok((ttl > 0).then(|| Duration::from_secs(ttl).min(asked)))
}

fn text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
