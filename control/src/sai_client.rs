//! Client of SAI's RPC, for tests of a switch.
//!
//! [`SaiClient`] calls over a TCP connection to a server, or over the management socket of a running switch.
//! Source: docs/sai.md.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use data_encoding::BASE64;

use crate::requests::Request;
use crate::sai::objects::{SUCCESS, attribute};
use crate::sai::thrift::{
    Fields, Kind, Message, MessageKind, Output, Value, WireError, read_answer,
};

/// Longest time to connect, and to wait for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum SaiError {
    /// The server cannot be reached.
    #[error("connect to {addr}")]
    Connect { addr: SocketAddr, source: io::Error },
    /// The connection failed, or the answer cannot be read.
    #[error("{method}: no answer")]
    Wire { method: &'static str, source: WireError },
    /// The running switch does not answer, or refuses.
    #[error("{method}")]
    Switch { method: &'static str, source: weft_rpc::ClientError },
    /// The server answered with an application exception.
    #[error("{method}: {text} (code {code})")]
    Exception { method: &'static str, code: i64, text: String },
    /// The answer has another form than the method's.
    #[error("{method}: expected {expected} as answer")]
    Answer { method: &'static str, expected: &'static str },
    /// The answer is a status other than success.
    #[error("{method}: status {status}")]
    Status { method: &'static str, status: i64 },
}

/// The way that calls go.
enum Carrier {
    Tcp(BufReader<TcpStream>),
    Management(weft_rpc::Client),
}

/// Object ids of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortObjects {
    pub port: i64,
    /// Ids of its queues, by priority.
    pub queues: Vec<i64>,
    /// Ids of its priority groups, by number.
    pub groups: Vec<i64>,
}

/// A client; calls are made one after the other.
pub struct SaiClient {
    carrier: Carrier,
    seq: i32,
}

impl SaiClient {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(addr: SocketAddr) -> Result<Self, SaiError> {
        let open = || {
            let stream = TcpStream::connect_timeout(&addr, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            // Each call is one small message whose answer is waited for: Nagle's algorithm could only delay it.
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = open().map_err(|source| SaiError::Connect { addr, source })?;
        Ok(Self { carrier: Carrier::Tcp(BufReader::new(stream)), seq: 0 })
    }

    /// Calls the running switch behind a management socket.
    #[must_use]
    pub const fn over(client: weft_rpc::Client) -> Self {
        Self { carrier: Carrier::Management(client), seq: 0 }
    }

    /// Calls `method` with the arguments that `write` writes; returns field 0 of the answer.
    fn call(
        &mut self,
        method: &'static str,
        write: impl FnOnce(&mut Output),
    ) -> Result<Value, SaiError> {
        self.seq = self.seq.wrapping_add(1);
        let mut call = Output::call(method, self.seq);
        write(&mut call);
        call.stop();
        let answer = self.carry(method, &call.into_bytes())?;
        let Message { kind, seq, mut args, .. } = answer;
        if kind == MessageKind::Exception {
            let text = args.get(&1).and_then(Value::as_text).unwrap_or("no text").to_owned();
            let code = args.get(&2).and_then(Value::as_int).unwrap_or(0);
            return Err(SaiError::Exception { method, code, text });
        }
        // Another number belongs to an answer that came too late for an earlier call.
        let value = args.remove(&0).filter(|_| seq == self.seq);
        value.ok_or(SaiError::Answer { method, expected: "a value, and the number of the call" })
    }

    fn carry(&mut self, method: &'static str, call: &[u8]) -> Result<Message, SaiError> {
        let wire = |source| SaiError::Wire { method, source };
        let ended = || wire(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        let answer = match &mut self.carrier {
            Carrier::Tcp(stream) => {
                stream.get_mut().write_all(call).map_err(|error| wire(error.into()))?;
                read_answer(stream)
            }
            Carrier::Management(client) => {
                let request = Request::Sai { call: BASE64.encode(call) };
                let answer = client.request(&request);
                let answer = answer.map_err(|source| SaiError::Switch { method, source })?;
                let bytes = answer.as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok());
                let bytes = bytes.ok_or(SaiError::Answer { method, expected: "base64" })?;
                read_answer(&mut &bytes[..])
            }
        };
        answer.map_err(wire)?.ok_or_else(ended)
    }

    /// Object ids of the port called `name`; `None` if there is no such port.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn port(&mut self, name: &str) -> Result<Option<PortObjects>, SaiError> {
        const BY_NAME: &str = "sai_thrift_get_port_id_by_front_port";
        const ATTRIBUTES: &str = "sai_thrift_get_port_attribute";
        let id = self.call(BY_NAME, |out| out.field(Kind::Binary, 1).binary(name.as_bytes()))?;
        let id = id.as_int();
        let port = id.ok_or(SaiError::Answer { method: BY_NAME, expected: "an object id" })?;
        if port == 0 {
            return Ok(None);
        }
        let value = self.call(ATTRIBUTES, |out| out.field(Kind::I64, 1).i64(port))?;
        let objects = |id| objects(&value, id);
        let lists = objects(attribute::PORT_QOS_QUEUE_LIST)
            .zip(objects(attribute::PORT_INGRESS_PRIORITY_GROUP_LIST));
        let expected = "lists of queues and priority groups";
        let (queues, groups) = lists.ok_or(SaiError::Answer { method: ATTRIBUTES, expected })?;
        Ok(Some(PortObjects { port, queues, groups }))
    }

    /// Lets a port send, or holds its queues.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn set_tx(&mut self, port: i64, on: bool) -> Result<(), SaiError> {
        const METHOD: &str = "sai_thrift_set_port_attribute";
        let value = self.call(METHOD, |out| {
            out.field(Kind::I64, 1).i64(port);
            out.field(Kind::Struct, 2);
            out.field(Kind::I32, 1).i32(attribute::PORT_PKT_TX_ENABLE);
            out.field(Kind::Struct, 2);
            out.field(Kind::Bool, 1).byte(on.into());
            out.stop();
            out.stop();
        })?;
        done(METHOD, &value)
    }

    /// Counters of a port.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn port_stats(&mut self, port: i64, ids: &[i32]) -> Result<Vec<u64>, SaiError> {
        self.stats("sai_thrift_get_port_stats", port, ids)
    }

    /// Counters of a queue.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn queue_stats(&mut self, queue: i64, ids: &[i32]) -> Result<Vec<u64>, SaiError> {
        self.stats("sai_thrift_get_queue_stats", queue, ids)
    }

    /// Counters of a priority group; reading its watermarks restarts them.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn group_stats(&mut self, group: i64, ids: &[i32]) -> Result<Vec<u64>, SaiError> {
        self.stats("sai_thrift_get_pg_stats", group, ids)
    }

    /// Counters of a buffer pool.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn pool_stats(&mut self, pool: i64, ids: &[i32]) -> Result<Vec<u64>, SaiError> {
        self.stats("sai_thrift_get_buffer_pool_stats", pool, ids)
    }

    /// Restarts watermarks of a queue.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn clear_queue(&mut self, queue: i64, ids: &[i32]) -> Result<(), SaiError> {
        const METHOD: &str = "sai_thrift_clear_queue_stats";
        let value = self.call(METHOD, |out| write_counters(out, queue, ids))?;
        done(METHOD, &value)
    }

    /// Restarts watermarks of a pool.
    ///
    /// # Errors
    /// See [`SaiError`].
    pub fn clear_pool(&mut self, pool: i64, ids: &[i32]) -> Result<(), SaiError> {
        const METHOD: &str = "sai_thrift_clear_buffer_pool_stats";
        let value = self.call(METHOD, |out| write_counters(out, pool, ids))?;
        done(METHOD, &value)
    }

    fn stats(
        &mut self,
        method: &'static str,
        object: i64,
        ids: &[i32],
    ) -> Result<Vec<u64>, SaiError> {
        let value = self.call(method, |out| write_counters(out, object, ids))?;
        let read = |values: &[Value]| -> Option<Vec<u64>> {
            values.iter().map(|value| value.as_int().map(i64::cast_unsigned)).collect()
        };
        let counts = value.as_list().and_then(read).filter(|counts| counts.len() == ids.len());
        counts.ok_or(SaiError::Answer { method, expected: "as many counters as were asked for" })
    }
}

fn write_counters(out: &mut Output, object: i64, ids: &[i32]) {
    out.field(Kind::I64, 1).i64(object);
    out.field(Kind::List, 2).list(Kind::I32, ids.len());
    for &id in ids {
        out.i32(id);
    }
    out.field(Kind::I32, 3).i32(i32::try_from(ids.len()).unwrap_or(i32::MAX));
}

fn done(method: &'static str, value: &Value) -> Result<(), SaiError> {
    let status = value.as_int().ok_or(SaiError::Answer { method, expected: "a status" })?;
    if status == i64::from(SUCCESS) { Ok(()) } else { Err(SaiError::Status { method, status }) }
}

/// The list of objects in attribute `id` of a list of attributes.
fn objects(attributes: &Value, id: i32) -> Option<Vec<i64>> {
    let mut of = attributes.as_struct()?.get(&1)?.as_list()?.iter();
    let value = of.find_map(|one| {
        let fields: &Fields = one.as_struct()?;
        let is_it = fields.get(&1)?.as_int()? == i64::from(id);
        fields.get(&2).filter(|_| is_it)
    });
    let list = value?.as_struct()?.get(&16)?.as_struct()?.get(&2)?.as_list()?;
    list.iter().map(Value::as_int).collect()
}
