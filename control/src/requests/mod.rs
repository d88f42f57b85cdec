//! Requests to a running switch and their answers: one JSON object a line.
//!
//! A [`Request`] is answered with `{"ok": ...}` or `{"error": {...}}` by a [`Backend`], the running switch. A trace
//! answers with further lines `{"path": ...}`, one for each frame, and ends with `{"end": ...}`.
//!
//! Source: ARCHITECTURE.md "Control"; JSON is RFC 8259.

mod client;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weft_config::value::parse_addr;
use weft_parsers::AddrKey;
use weft_rpc::{Answer, LineHandler, LineStream, Next, Refused, ok_line, parse, to_line};

use crate::conform::Params;
use crate::events;
use crate::paths::ShownPath;
use crate::report::pauses::Pauses;
use crate::report::process::ProcessReport;
use crate::report::{FdbReport, FdbRow, ShowResponse, ShowTopic, StatsSnapshot};
use crate::sai::service::Service;
use crate::sai::thrift::read_message;

pub use client::{find_socket, next_path, sockets};

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Reports one topic.
    Show {
        what: ShowTopic,
        /// Whether the watermarks of the topic restart after it; all of them if it has none.
        #[serde(default)]
        restart_watermarks: bool,
    },
    /// Lists events.
    Events {
        /// Number of the last event that the client has; 0 for all that are kept.
        #[serde(default)]
        after: u64,
    },
    /// Adds a static entry to the FDB.
    FdbAdd {
        /// Address, as `weft show fdb` prints it.
        addr: String,
        port: String,
        /// VLAN, 1 to 4094.
        #[serde(default = "default_vid")]
        vid: u16,
    },
    /// Removes an FDB entry, static or learned.
    FdbDel {
        /// Address, as `weft show fdb` prints it.
        addr: String,
        /// VLAN, 1 to 4094.
        #[serde(default = "default_vid")]
        vid: u16,
    },
    /// Reads the configuration again and applies all of it or nothing.
    Reload {
        /// Another file than the one that the switch was started with.
        #[serde(default)]
        path: Option<PathBuf>,
    },
    /// Copies the frames that enter and leave by a port, to a file or another port.
    Mirror {
        port: String,
        /// The target; `None` ends the mirror.
        to: Option<MirrorTarget>,
    },
    /// Lets a port send, or holds its queues.
    PortTx {
        port: String,
        /// Whether the port sends.
        on: bool,
    },
    /// Asks at which frame each (port, priority) pauses, drops and resumes.
    ConformParams {
        /// Bytes of each frame, without FCS.
        packet_size: u64,
    },
    /// A call of SAI's RPC (docs/sai.md). The answer is the message that the service would send.
    Sai {
        /// Message of Thrift's binary protocol, in base64.
        call: String,
    },
    /// Explains, step by step, how an edge port treats a request for an address.
    PbrEdge {
        port: String,
        /// The address: `0x` and hexadecimal digits, or decimal ones.
        hpa: String,
    },
    /// Explains, step by step, where a PID leads inside of the switch.
    PbrRoute { dpid: u16 },
    /// Traces the next frames through all stages.
    Trace {
        /// Expression that selects frames; all frames by default.
        #[serde(default)]
        filter: Option<String>,
        /// Frames after which the trace ends.
        #[serde(default = "default_count")]
        count: u64,
        /// Whether paths come with the frames' bytes.
        #[serde(default)]
        bytes: bool,
    },
}

/// Target of a mirror's copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorTarget {
    /// A capture file that does not exist yet.
    File(PathBuf),
    /// A capture file, which replaces an existing one.
    Replace(PathBuf),
    Port(String),
}

const fn default_vid() -> u16 {
    1
}

const fn default_count() -> u64 {
    1
}

/// Outcome of waiting for a traced frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Traced {
    /// All decisions about one frame.
    Path(ShownPath),
    /// No frame in that time.
    Nothing,
    /// The trace has ended, for the reason in this text.
    Ended(Value),
}

/// Source of the paths of a trace, for one client.
pub trait TraceStream: Send {
    /// Waits for the next path, but no longer than `wait`.
    fn next(&mut self, wait: Duration) -> Traced;
}

/// A trace in the form of the lines that its client gets.
struct Paths(Box<dyn TraceStream>);

impl LineStream for Paths {
    fn next(&mut self, wait: Duration) -> Next {
        match self.0.next(wait) {
            Traced::Path(path) => Next::Line(to_line(&json!({ "path": path }))),
            Traced::Nothing => Next::Nothing,
            Traced::Ended(end) => Next::End(to_line(&json!({ "end": end }))),
        }
    }
}

/// The running switch, as management sees it. All methods may be called from several threads at once.
pub trait Backend: Send + Sync {
    /// All counters at one moment. With `restart`, the watermarks of that topic restart afterwards, for readers that
    /// use `Show`; all of them if the topic has none.
    fn stats(&self, restart: Option<ShowTopic>) -> StatsSnapshot;

    /// All counters, read without holding workers or waiting for the kernel: sums may not add up. Pauses since the last
    /// look go to `pauses`.
    fn look(&self, pauses: &mut Pauses) -> StatsSnapshot {
        let _ = pauses; // a switch without workers has none
        self.stats(None)
    }

    /// Rights of the process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    fn process(&self) -> Result<ProcessReport, Refused>;

    fn fdb(&self) -> Vec<FdbRow>;

    /// Adds a static entry.
    ///
    /// # Errors
    /// No such port, or no room.
    fn fdb_add(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused>;

    /// Removes an entry, static or learned.
    ///
    /// # Errors
    /// No such entry.
    fn fdb_del(&self, vid: u16, addr: AddrKey) -> Result<(), Refused>;

    /// Reads the configuration again, from `path` or from where it came, and applies it whole or not at all. Returns
    /// the answer for the client.
    ///
    /// # Errors
    /// The problems of the configuration, a line each.
    fn reload(&self, path: Option<&Path>) -> Result<Value, Refused>;

    /// Begins to mirror `port`, or ends its mirror without `to`.
    ///
    /// # Errors
    /// No such port, or the file cannot be made.
    fn mirror(&self, port: &str, to: Option<&MirrorTarget>) -> Result<(), Refused>;

    /// Lets `port` send, or holds its queues: frames for it stay queued, and PFC frames are still sent. When this
    /// returns, the change is in force in all workers, and frames that the device had before have left.
    ///
    /// # Errors
    /// No such port, or workers or the device do not answer.
    fn port_tx(&self, port: &str, on: bool) -> Result<(), Refused>;

    /// At which frame of `packet_size` bytes each (port, priority) pauses, drops and resumes.
    fn conform_params(&self, packet_size: u64) -> Params;

    /// Steps by which edge `port` treats a request for `hpa`.
    ///
    /// # Errors
    /// No such port, or it is no edge.
    fn pbr_edge(&self, port: &str, hpa: u64) -> Result<Value, Refused>;

    /// Steps by which the switch finds the output for `dpid`.
    ///
    /// # Errors
    /// The switch routes no TLPs.
    fn pbr_route(&self, dpid: u16) -> Result<Value, Refused>;

    /// Begins to trace `count` frames, with their bytes or without.
    ///
    /// # Errors
    /// The filter cannot be parsed, or other traces use all memory.
    fn trace(
        &self,
        filter: Option<&str>,
        count: u64,
        bytes: bool,
    ) -> Result<Box<dyn TraceStream>, Refused>;
}

/// Answers requests to a running switch.
pub struct SwitchHandler {
    backend: Arc<dyn Backend>,
    /// Carries out calls of SAI's RPC; `None` if the switch does not serve SAI.
    sai: Option<Arc<Service>>,
    /// Held while a report is made: each may be large, and only one at a time takes that memory.
    reports: Mutex<()>,
}

impl SwitchHandler {
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, sai: None, reports: Mutex::default() }
    }

    /// Also carries out calls of SAI's RPC, by `service`.
    #[must_use]
    pub fn with_sai(self, service: Arc<Service>) -> Self {
        Self { sai: Some(service), ..self }
    }
}

impl LineHandler for SwitchHandler {
    fn answer(&self, line: &[u8]) -> Answer {
        let request: Result<Request, _> = parse(line);
        // Answered here: a `Backend` does not have the SAI service.
        if let (Ok(Request::Sai { call }), Some(service)) = (&request, &self.sai) {
            let answered = call_sai(call, service).map(|value| json!({ "ok": value }));
            return Answer::Line(to_line(
                &answered.unwrap_or_else(|refused| json!({ "error": refused })),
            ));
        }
        let is_report = matches!(request, Ok(Request::Show { .. }));
        let _one = is_report.then(|| self.reports.lock().unwrap_or_else(PoisonError::into_inner));
        answer(line, self.backend.as_ref())
    }
}

#[must_use]
pub fn answer(line: &[u8], backend: &dyn Backend) -> Answer {
    let answer = || -> Result<Answer, Refused> {
        let request: Request = parse(line)?;
        // A trace is the only request that is answered with more than one line.
        if let Request::Trace { filter, count, bytes } = &request {
            let stream = backend.trace(filter.as_deref(), *count, *bytes)?;
            let first = to_line(&json!({ "ok": "tracing" }));
            return Ok(Answer::Stream(first, Box::new(Paths(stream))));
        }
        // Written to the line directly: a `Value` of a large report would take its memory twice.
        if let Request::Show { what, restart_watermarks } = &request {
            let shown = show(*what, *restart_watermarks, backend)?;
            return ok_line(&shown).map(Answer::Line);
        }
        dispatch(&request, backend).map(|value| Answer::Line(to_line(&json!({ "ok": value }))))
    };
    answer().unwrap_or_else(|refused| Answer::Line(to_line(&json!({ "error": refused }))))
}

/// Answers one line with one line; for a trace, with the line that begins it.
#[must_use]
pub fn handle_line(line: &[u8], backend: &dyn Backend) -> Vec<u8> {
    match answer(line, backend) {
        Answer::Line(line) | Answer::Stream(line, _) => line,
    }
}

/// The part of the report that `topic` names.
fn show(topic: ShowTopic, restart: bool, backend: &dyn Backend) -> Result<ShowResponse, Refused> {
    // Lazy: topics that need no counters must not hold the workers.
    let stats = || backend.stats(restart.then_some(topic));
    Ok(match topic {
        ShowTopic::Ports => ShowResponse::Ports(stats().ports),
        ShowTopic::Fdb => {
            ShowResponse::Fdb(FdbReport { summary: stats().fdb, entries: backend.fdb() })
        }
        ShowTopic::Queues => ShowResponse::Queues(stats().queues),
        ShowTopic::Buffer => ShowResponse::Buffer(stats().buffer),
        ShowTopic::Pfc => ShowResponse::Pfc(stats().pfc),
        ShowTopic::Drops => ShowResponse::Drops(stats().drops),
        ShowTopic::Conservation => ShowResponse::Conservation(stats().conservation),
        ShowTopic::Workers => ShowResponse::Workers(stats().workers),
        ShowTopic::Process => ShowResponse::Process(backend.process()?),
        ShowTopic::Fabric => ShowResponse::Fabric(stats().fabric),
        ShowTopic::Events => ShowResponse::Events(events::log().after(0)), // asks no worker
        ShowTopic::All => ShowResponse::All(Box::new(stats())),
    })
}

fn conform_params(packet_size: u64, backend: &dyn Backend) -> Result<Value, Refused> {
    // From an Ethernet header to the longest frame that any port may take.
    const SIZES: std::ops::RangeInclusive<u64> = 14..=9_728;
    if !SIZES.contains(&packet_size) {
        let (least, most) = (SIZES.start(), SIZES.end());
        let message = format!("expected {least} to {most} bytes, found {packet_size}");
        return Err(Refused::bad_request(message));
    }
    serde_json::to_value(backend.conform_params(packet_size))
        .map_err(|error| Refused::unavailable(error.to_string()))
}

/// Carries out a call of SAI's RPC; returns the message that answers it, in base64.
fn call_sai(call: &str, service: &Service) -> Result<Value, Refused> {
    let bytes = BASE64.decode(call.as_bytes());
    let bytes = bytes.map_err(|error| Refused::bad_request(format!("expected base64: {error}")))?;
    let mut rest = &bytes[..];
    let read = read_message(&mut rest).map_err(|error| Refused::bad_request(error.to_string()))?;
    // A second message would have no line to be answered on.
    let message = read.filter(|_| rest.is_empty());
    let message = message
        .ok_or_else(|| Refused::bad_request("expected one message of Thrift's binary protocol"))?;
    let answer = service.answer(&message);
    let answer = answer.ok_or_else(|| Refused::bad_request("expected a call that is answered"))?;
    Ok(Value::String(BASE64.encode(&answer)))
}

fn station(addr: &str, vid: u16) -> Result<AddrKey, Refused> {
    if !(1..=4_094).contains(&vid) {
        return Err(Refused::bad_request(format!("expected a VLAN 1..=4094, found {vid}")));
    }
    let key = parse_addr(addr).ok_or_else(|| {
        let expected = weft_config::value::Kind::Addr;
        Refused::bad_request(format!("expected {expected}, found {addr:?}"))
    })?;
    Ok(key)
}

fn address(text: &str) -> Result<u64, Refused> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| {
        Refused::bad_request(format!("expected an address such as 0x10000000000, found {text:?}"))
    })
}

fn dispatch(request: &Request, backend: &dyn Backend) -> Result<Value, Refused> {
    let done = |()| json!("done");
    match request {
        Request::Events { after } => serde_json::to_value(events::log().after(*after))
            .map_err(|error| Refused::unavailable(error.to_string())),
        Request::FdbAdd { addr, port, vid } => {
            backend.fdb_add(*vid, station(addr, *vid)?, port).map(done)
        }
        Request::FdbDel { addr, vid } => backend.fdb_del(*vid, station(addr, *vid)?).map(done),
        Request::Reload { path } => backend.reload(path.as_deref()),
        Request::Mirror { port, to } => backend.mirror(port, to.as_ref()).map(done),
        Request::PortTx { port, on } => backend.port_tx(port, *on).map(done),
        Request::ConformParams { packet_size } => conform_params(*packet_size, backend),
        Request::PbrEdge { port, hpa } => backend.pbr_edge(port, address(hpa)?),
        Request::PbrRoute { dpid } if *dpid > 0xFFF => {
            Err(Refused::bad_request(format!("expected a PID 0..=4095, found {dpid}")))
        }
        Request::PbrRoute { dpid } => backend.pbr_route(*dpid),
        Request::Sai { .. } => Err(Refused::bad_request("this switch has no SAI service")),
        Request::Show { .. } | Request::Trace { .. } => {
            Err(Refused::bad_request("a report or trace has an answer of its own"))
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
