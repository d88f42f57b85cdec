//! What clients ask of a running switch, and how each request is answered: one JSON object a line.
//!
//! [`Request`] in, `{"ok": ...}` or `{"error": {...}}` out; [`Backend`] is the running switch;
//! a trace answers with further lines `{"path": ...}`, a frame each, and ends with `{"end": ...}`.
//!
//! Units: as each field says.
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

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Part of the report.
    Show {
        /// Which part.
        what: ShowTopic,
        /// Whether watermarks that it shows begin again after it, or all if it shows none.
        #[serde(default)]
        restart_watermarks: bool,
    },
    /// Events after a number.
    Events {
        /// Number of the last one that is known; 0 for all that are kept.
        #[serde(default)]
        after: u64,
    },
    /// Adds a static FDB entry.
    FdbAdd {
        /// Address, as `weft show fdb` prints it.
        addr: String,
        /// Name of the port.
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
    /// Copies what enters and leaves by a port to a file or port.
    Mirror {
        /// Name of the port.
        port: String,
        /// Where to; nowhere ends it.
        to: Option<MirrorTarget>,
    },
    /// Lets a port send, or holds its queues.
    PortTx {
        /// Name of the port.
        port: String,
        /// Whether it sends.
        on: bool,
    },
    /// At which frame each (port, priority) pauses, drops and resumes.
    ConformParams {
        /// Bytes of each frame, without FCS.
        packet_size: u64,
    },
    /// A call of SAI's RPC (docs/sai.md), which is answered with the message that the service would send.
    Sai {
        /// The message of Thrift's binary protocol, in base64.
        call: String,
    },
    /// Each step of what an edge port does with a request for an address.
    PbrEdge {
        /// Name of the port.
        port: String,
        /// The address: `0x` and hexadecimal digits, or decimal ones.
        hpa: String,
    },
    /// Each step of where a PID leads inside of the switch.
    PbrRoute {
        /// The PID.
        dpid: u16,
    },
    /// The path of the next frames, stage by stage.
    Trace {
        /// Which frames; all by default.
        #[serde(default)]
        filter: Option<String>,
        /// How many frames.
        #[serde(default = "default_count")]
        count: u64,
        /// Whether with the frames' bytes.
        #[serde(default)]
        bytes: bool,
    },
}

/// Where a mirror's copies go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorTarget {
    /// A capture file, which there is not yet.
    File(PathBuf),
    /// A capture file, in place of one that may be there.
    Replace(PathBuf),
    /// A port of the switch.
    Port(String),
}

const fn default_vid() -> u16 {
    1
}

const fn default_count() -> u64 {
    1
}

/// What became of waiting for a traced frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Traced {
    /// All that was decided about one.
    Path(ShownPath),
    /// Nothing yet.
    Nothing,
    /// There will be no more; the text of the end.
    Ended(Value),
}

/// Paths of a trace, for one client.
pub trait TraceStream: Send {
    /// The next path; waits for it, but no longer than `wait`.
    fn next(&mut self, wait: Duration) -> Traced;
}

/// A trace as the lines that its client gets.
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
    /// Everything that is counted; watermarks that topic `restart` shows, or all if it shows none, begin again
    /// afterwards for those who ask so.
    fn stats(&self, restart: Option<ShowTopic>) -> StatsSnapshot;

    /// The same, as it can be read without holding workers or waiting for the kernel: sums may not add up. What was paused since
    /// the last look goes to `pauses`.
    fn look(&self, pauses: &mut Pauses) -> StatsSnapshot {
        let _ = pauses; // a switch without workers has none
        self.stats(None)
    }

    /// What the process may do.
    ///
    /// # Errors
    /// The kernel does not say.
    fn process(&self) -> Result<ProcessReport, Refused>;

    /// All FDB entries.
    fn fdb(&self) -> Vec<FdbRow>;

    /// Adds a static entry.
    ///
    /// # Errors
    /// No such port, no room.
    fn fdb_add(&self, vid: u16, addr: AddrKey, port: &str) -> Result<(), Refused>;

    /// Removes an entry.
    ///
    /// # Errors
    /// No such entry.
    fn fdb_del(&self, vid: u16, addr: AddrKey) -> Result<(), Refused>;

    /// Reads the configuration again, from `path` or where it came from, and applies it whole or not
    /// at all; returns what to tell the client.
    ///
    /// # Errors
    /// What is wrong with it, a line each.
    fn reload(&self, path: Option<&Path>) -> Result<Value, Refused>;

    /// Begins to mirror `port`, or ends it.
    ///
    /// # Errors
    /// No such port, no such file.
    fn mirror(&self, port: &str, to: Option<&MirrorTarget>) -> Result<(), Refused>;

    /// Lets `port` send, or holds its queues: what it takes nothing off stays queued, and PFC frames are sent still. When
    /// this returns, it is in force in all workers, and what the port had taken before has left.
    ///
    /// # Errors
    /// No such port; workers or the device do not answer.
    fn port_tx(&self, port: &str, on: bool) -> Result<(), Refused>;

    /// At which frame of `packet_size` bytes each (port, priority) pauses, drops and resumes.
    fn conform_params(&self, packet_size: u64) -> Params;

    /// Each step of what edge `port` does with a request for `hpa`.
    ///
    /// # Errors
    /// No such port, or no edge.
    fn pbr_edge(&self, port: &str, hpa: u64) -> Result<Value, Refused>;

    /// Each step of where `dpid` leads.
    ///
    /// # Errors
    /// The switch routes no TLPs.
    fn pbr_route(&self, dpid: u16) -> Result<Value, Refused>;

    /// Begins to trace `count` frames, with their bytes or without.
    ///
    /// # Errors
    /// A filter that means nothing.
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
    /// Carries out calls of SAI's RPC, if the switch has it.
    sai: Option<Arc<Service>>,
    /// Reports are made one after the other: each may be large while it is made.
    reports: Mutex<()>,
}

impl SwitchHandler {
    /// Answers for `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, sai: None, reports: Mutex::default() }
    }

    /// The same, and calls of SAI's RPC are carried out by `service`.
    #[must_use]
    pub fn with_sai(self, service: Arc<Service>) -> Self {
        Self { sai: Some(service), ..self }
    }
}

impl LineHandler for SwitchHandler {
    fn answer(&self, line: &[u8]) -> Answer {
        let request: Result<Request, _> = parse(line);
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

/// Answers one line.
#[must_use]
pub fn answer(line: &[u8], backend: &dyn Backend) -> Answer {
    let answer = || -> Result<Answer, Refused> {
        let request: Request = parse(line)?;
        if let Request::Trace { filter, count, bytes } = &request {
            let stream = backend.trace(filter.as_deref(), *count, *bytes)?;
            let first = to_line(&json!({ "ok": "tracing" }));
            return Ok(Answer::Stream(first, Box::new(Paths(stream))));
        }
        if let Request::Show { what, restart_watermarks } = &request {
            let shown = show(*what, *restart_watermarks, backend)?;
            return ok_line(&shown).map(Answer::Line);
        }
        dispatch(&request, backend).map(|value| Answer::Line(to_line(&json!({ "ok": value }))))
    };
    answer().unwrap_or_else(|refused| Answer::Line(to_line(&json!({ "error": refused }))))
}

/// Answers one line with one line; of a trace, with the line that begins it.
#[must_use]
pub fn handle_line(line: &[u8], backend: &dyn Backend) -> Vec<u8> {
    match answer(line, backend) {
        Answer::Line(line) | Answer::Stream(line, _) => line,
    }
}

/// What is to be shown of `topic`, and where it comes from.
fn show(topic: ShowTopic, restart: bool, backend: &dyn Backend) -> Result<ShowResponse, Refused> {
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
    const SIZES: std::ops::RangeInclusive<u64> = 14..=9_728;
    if !SIZES.contains(&packet_size) {
        let (least, most) = (SIZES.start(), SIZES.end());
        let message = format!("expected {least} to {most} bytes, found {packet_size}");
        return Err(Refused::bad_request(message));
    }
    serde_json::to_value(backend.conform_params(packet_size))
        .map_err(|error| Refused::unavailable(error.to_string()))
}

/// Carries out a call of SAI's RPC; the answer's message, in base64.
fn call_sai(call: &str, service: &Service) -> Result<Value, Refused> {
    let bytes = BASE64.decode(call.as_bytes());
    let bytes = bytes.map_err(|error| Refused::bad_request(format!("expected base64: {error}")))?;
    let mut rest = &bytes[..];
    let read = read_message(&mut rest).map_err(|error| Refused::bad_request(error.to_string()))?;
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
