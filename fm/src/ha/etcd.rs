//! The few requests to etcd that several managers need.
//!
//! [`Etcd`] over [`Post`]: lease, range and transaction of the v3 JSON gateway; [`Fence`] is what every write compares.
//!
//! Units: seconds of leases; nanoseconds of [`Clock`](super::permit::Clock).
//! Source: etcd 3.4 "gRPC gateway" and `rpc.proto`.
//!
//! Every transaction may be sent twice, as it puts the same values under the same condition: one whose answer was lost or
//! makes no sense is sent again. What is read and leads to something has etcd compare it with what it has ([`Etcd::sure`], the
//! `expected` of [`Etcd::write`]): an answer that was changed on its way, or is an old one, is none.

use std::fmt::Debug;
use std::time::Duration;

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::answer::{self, AnswerError, Granted, Kept, KeyValue, Outcome, Ranged};

/// Longest value that is sent again to be compared.
const COMPARED_MAX: usize = 4_096;

/// The way to etcd: a path and JSON in, JSON out.
pub trait Post: Debug + Send + Sync {
    /// Sends a request and waits for its answer, for no longer than a set time.
    ///
    /// # Errors
    /// None came.
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError>;
}

impl<T: Post + ?Sized> Post for std::sync::Arc<T> {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        (**self).post(path, body)
    }
}

/// Why a request to etcd came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No answer.
    #[error("etcd at {member} does not answer")]
    Silent {
        /// Who was asked last.
        member: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An answer that is none.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// Another manager leads.
    #[error("another fabric manager leads")]
    Deposed,
    /// The lease of this manager has ended by its own clock.
    #[error("the lease of this fabric manager has ended")]
    Ended,
}

/// What says that a manager leads: its key in etcd, as it made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence(pub KeyValue);

/// An operation of a transaction.
#[derive(Clone, Debug)]
pub enum Change<'a> {
    /// Sets a key.
    Put(&'a str, &'a [u8]),
    /// Removes the keys from one on to before another.
    Remove(&'a str, &'a str),
}

/// A key and what was read of it.
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

    /// Begins a lease of a number; how long it lasts, and no longer than was asked for.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn grant(&self, id: i64, ttl: Duration) -> Result<Duration, EtcdError> {
        let body = json!({ "ID": id.to_string(), "TTL": ttl.as_secs().to_string() });
        lasts(self.ask("/v3/lease/grant", &body)?, id, ttl)?
            .ok_or_else(|| AnswerError::Unfit("a lease without time").into())
    }

    /// Keeps a lease alive; how long it lasts from now on, or none where it has ended.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub fn keep(&self, id: i64, ttl: Duration) -> Result<Option<Duration>, EtcdError> {
        let body = json!({ "ID": id.to_string() });
        let kept: Kept = self.ask("/v3/lease/keepalive", &body)?;
        lasts(kept.result, id, ttl)
    }

    /// Ends a lease.
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
            return Err(AnswerError::Unfit("a header is missing").into());
        }
        let found = ranged.only()?;
        if found.is_some_and(|found| found.key != key.as_bytes()) {
            return Err(AnswerError::Unfit("another key").into());
        }
        Ok(found.cloned())
    }

    /// Reads a key, and has etcd confirm what was read.
    ///
    /// # Errors
    /// See [`EtcdError`]; what was read is not what etcd has.
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

    /// Makes `key` with `value` and `lease`, where there is none; the key as it is then, whoever made it.
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

    /// Changes keys, all or none, as long as `fence` stands and keys are what was `expected`.
    ///
    /// # Errors
    /// See [`EtcdError`]; it may have come about where no answer came.
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

/// What etcd compares so that a key is as it was read; a long value is known by its revision, and has a checksum of its own.
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

/// How long a lease lasts that is said to be granted or kept.
fn lasts(said: Granted, id: i64, asked: Duration) -> Result<Option<Duration>, EtcdError> {
    if said.id != id {
        return Err(AnswerError::Unfit("another lease").into());
    }
    let ttl = u64::try_from(said.ttl).map_err(|_| AnswerError::Unfit("a time below 0"))?;
    Ok((ttl > 0).then(|| Duration::from_secs(ttl).min(asked)))
}

fn text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
