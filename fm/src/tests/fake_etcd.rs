//! An etcd in memory, as far as managers use it: keys, revisions, leases.
//!
//! A path and JSON -> JSON, as etcd's gateway answers.
//!
//! Source: etcd 3.4 "gRPC gateway" and `rpc.proto`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::service::ha::etcd::{EtcdError, Post};

#[derive(Clone, Debug)]
pub struct Stored {
    pub value: Vec<u8>,
    pub created: i64,
    pub changed: i64,
    pub lease: i64,
}

#[derive(Debug, Default)]
pub struct State {
    pub keys: BTreeMap<Vec<u8>, Stored>,
    pub leases: Vec<i64>,
    /// Keys that were read outside of a transaction.
    pub reads: u64,
    revision: i64,
}

#[derive(Debug, Default)]
pub struct FakeEtcd {
    pub state: Mutex<State>,
    /// Whether nothing is answered.
    pub silent: AtomicBool,
    /// Whether transactions take effect without an answer; leases and reads are answered.
    pub unconfirming: AtomicBool,
}

fn bytes(value: &Value, name: &str) -> Vec<u8> {
    let text = value.get(name).and_then(Value::as_str).unwrap_or_default();
    BASE64.decode(text.as_bytes()).unwrap()
}

fn number(value: &Value, name: &str) -> i64 {
    value.get(name).and_then(Value::as_str).map_or(0, |text| text.parse().unwrap())
}

impl State {
    fn header(&self) -> Value {
        json!({ "cluster_id": "14841639068965178418", "member_id": "10276657743932975437",
            "revision": self.revision.max(1).to_string(), "raft_term": "2" })
    }

    fn range(&self, request: &Value) -> Value {
        let key = bytes(request, "key");
        let Some(found) = self.keys.get(&key) else { return json!({ "header": self.header() }) };
        let mut kv = json!({
            "key": BASE64.encode(&key), "create_revision": found.created.to_string(),
            "mod_revision": found.changed.to_string(), "version": "1",
            "value": BASE64.encode(&found.value),
        });
        if found.lease != 0 {
            kv["lease"] = found.lease.to_string().into();
        }
        json!({ "header": self.header(), "kvs": [kv], "count": "1" })
    }

    fn operation(&mut self, operation: &Value) -> Value {
        if let Some(put) = operation.get("request_put") {
            let (key, value, lease) =
                (bytes(put, "key"), bytes(put, "value"), number(put, "lease"));
            let created = self.keys.get(&key).map_or(self.revision, |had| had.created);
            let changed = self.revision;
            self.keys.insert(key, Stored { value, created, changed, lease });
            return json!({ "response_put": { "header": self.header() } });
        }
        if let Some(remove) = operation.get("request_delete_range") {
            let (from, to) = (bytes(remove, "key"), bytes(remove, "range_end"));
            self.keys.retain(|key, _| !(from <= *key && *key < to));
            return json!({ "response_delete_range": { "header": self.header() } });
        }
        json!({ "response_range": self.range(&operation["request_range"]) })
    }

    fn txn(&mut self, body: &Value) -> Value {
        let fits = |compare: &Value| {
            let had = self.keys.get(&bytes(compare, "key"));
            match compare["target"].as_str() {
                Some("CREATE") => {
                    had.map_or(0, |had| had.created) == number(compare, "create_revision")
                }
                Some("MOD") => had.map_or(0, |had| had.changed) == number(compare, "mod_revision"),
                Some("VALUE") => had.is_some_and(|had| had.value == bytes(compare, "value")),
                other => panic!("{other:?}"),
            }
        };
        let succeeded = body["compare"].as_array().unwrap().iter().all(fits);
        self.revision += 1;
        let branch = if succeeded { "success" } else { "failure" };
        let operations = body[branch].as_array().unwrap().clone();
        let responses: Vec<Value> = operations.iter().map(|one| self.operation(one)).collect();
        let mut answer = json!({ "header": self.header(), "responses": responses });
        if succeeded {
            answer["succeeded"] = true.into();
        }
        answer
    }

    pub fn expire(&mut self, lease: i64) {
        self.leases.retain(|id| *id != lease);
        self.keys.retain(|_, stored| stored.lease != lease);
    }

    /// Ends the leader's lease.
    pub fn depose(&mut self) {
        if let Some(lease) = self.leader() {
            self.expire(lease);
        }
    }

    /// The leader's lease.
    pub fn leader(&self) -> Option<i64> {
        self.keys.iter().find(|(key, _)| key.ends_with(b"/leader")).map(|(_, stored)| stored.lease)
    }
}

impl FakeEtcd {
    pub fn answer(&self, path: &str, body: &str) -> Vec<u8> {
        let body: Value = serde_json::from_str(body).unwrap();
        let mut state = self.state.lock().unwrap();
        let (id, header) = (number(&body, "ID"), state.header());
        let answer = match path {
            "/v3/lease/grant" => {
                state.leases.push(id);
                json!({ "header": header, "ID": id.to_string(), "TTL": body["TTL"] })
            }
            "/v3/lease/keepalive" if state.leases.contains(&id) => {
                json!({ "result": { "header": header, "ID": id.to_string(), "TTL": "2" } })
            }
            "/v3/lease/keepalive" => {
                json!({ "result": { "header": header, "ID": id.to_string() } })
            }
            "/v3/lease/revoke" => {
                state.expire(id);
                json!({ "header": header })
            }
            "/v3/kv/range" => {
                state.reads += 1;
                state.range(&body)
            }
            "/v3/kv/txn" => state.txn(&body),
            _ => json!({ "error": "Not Found", "message": "Not Found", "code": 5 }),
        };
        answer.to_string().into_bytes()
    }
}

impl Post for FakeEtcd {
    fn post(&self, path: &str, body: &str) -> Result<Vec<u8>, EtcdError> {
        let is_lost = path == "/v3/kv/txn" && self.unconfirming.load(Ordering::SeqCst);
        if is_lost {
            self.answer(path, body);
        }
        if is_lost || self.silent.load(Ordering::SeqCst) {
            let source = Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            return Err(EtcdError::Silent { member: "fake".to_owned(), source });
        }
        Ok(self.answer(path, body))
    }
}
