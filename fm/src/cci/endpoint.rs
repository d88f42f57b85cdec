//! Commands to a host's GAE by the process that plays the host: its control socket passes them on to the host's mailbox.
//!
//! Bytes of a CCI request -> a line of JSON (`gae`) -> bytes of the response.
//!
//! Units: ms.
//! Source: docs/endpoint.md "Control socket"; docs/spec/wire-formats.md §4.1, §4.6.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use weft_base::causes::with_causes;
use weft_parsers::cci::{Header, ReturnCode, header};
use weft_rpc::{Client, ClientError};

use super::socket::PeerError;
use super::{Gate, Peer, QUICK, Transport, TransportError};

/// Where a host's GAE answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GaePeer {
    /// In a session of the host, as a switch's CCI: a [`Peer`].
    Cci(Peer),
    /// By the control socket of the endpoint that the host is: `endpoint:PATH`.
    Endpoint(PathBuf),
}

/// Why a text names no [`GaePeer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected endpoint:PATH, unix:PATH or tcp:HOST:PORT, found {0}")]
pub struct GaePeerError(String);

impl FromStr for GaePeer {
    type Err = GaePeerError;

    fn from_str(text: &str) -> Result<Self, GaePeerError> {
        match text.strip_prefix("endpoint:") {
            Some(path) if !path.is_empty() => Ok(Self::Endpoint(PathBuf::from(path))),
            _ => text.parse().map(Self::Cci).map_err(|PeerError(found)| GaePeerError(found)),
        }
    }
}

#[derive(Serialize)]
struct Command {
    cmd: &'static str,
    opcode: u16,
    input: String,
    timeout_ms: u64,
}

#[derive(Deserialize)]
struct Answered {
    response: Said,
}

#[derive(Deserialize)]
struct Said {
    code: u16,
    vendor: u16,
    output: String,
}

/// A way to the GAE of a host by its endpoint; connected when it is first needed.
#[derive(Debug)]
pub struct Endpoint {
    path: PathBuf,
    gate: Option<Gate>,
    timeout: Duration,
    quick: bool,
    open: Option<Client>,
}

impl Endpoint {
    /// By the control socket at `path`; the GAE has `timeout` for each answer.
    #[must_use]
    pub const fn new(path: PathBuf, timeout: Duration) -> Self {
        Self { path, gate: None, timeout, quick: false, open: None }
    }

    /// Sets what is asked before anything is sent.
    #[must_use]
    pub fn with_gate(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    fn span(&self) -> Duration {
        if self.quick { self.timeout.min(QUICK) } else { self.timeout }
    }

    /// A little longer than the endpoint waits for its mailbox, so that it is the endpoint that says so.
    const fn longest(&self) -> Duration {
        self.timeout.saturating_add(QUICK)
    }

    /// The connection, or a new one where the endpoint was started again.
    fn client(&mut self) -> Result<Client, ClientError> {
        let is_there = |client: &Client| client.wait(Duration::ZERO).is_ok_and(|is_there| is_there);
        match self.open.take().filter(is_there) {
            Some(client) => Ok(client),
            None => Client::connect_for(&self.path, self.longest()),
        }
    }

    fn failed(&self, error: ClientError) -> TransportError {
        let peer = || self.path.display().to_string();
        match error {
            ClientError::Connect { source, .. } => {
                TransportError::Io { what: "connect to", peer: peer(), source }
            }
            ClientError::Io(source)
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                TransportError::Timeout(self.longest().as_millis())
            }
            ClientError::Io(source) => TransportError::Io { what: "ask", peer: peer(), source },
            ClientError::Refused(refused) => {
                TransportError::Gone(format!("{}: {}", peer(), refused.message))
            }
            other => TransportError::Gone(format!("{}: {}", peer(), with_causes(&other))),
        }
    }

    fn ask(&mut self, command: &Command) -> Result<Answered, ClientError> {
        let mut client = self.client()?;
        let answer = client.request(command)?;
        self.open = Some(client);
        serde_json::from_value(answer).map_err(|error| ClientError::Answer(error.to_string()))
    }
}

impl Transport for Endpoint {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let (asked, payload) = Header::parse(request)?;
        Gate::pass(self.gate.as_ref())?;
        let timeout_ms = u64::try_from(self.span().as_millis()).unwrap_or(u64::MAX);
        let (opcode, input) = (asked.opcode.0, HEXLOWER.encode(payload));
        let command = Command { cmd: "gae", opcode, input, timeout_ms };
        let Answered { response } = self.ask(&command).map_err(|error| self.failed(error))?;
        let malformed = || self.failed(ClientError::Answer("no hexadecimal digits".to_owned()));
        let payload =
            HEXLOWER_PERMISSIVE.decode(response.output.as_bytes()).map_err(|_| malformed())?;
        let answered = Header {
            vendor_status: response.vendor,
            ..asked.response(ReturnCode::from_bits(response.code))
        };
        let mut out = vec![0; header::LEN];
        answered.emit(payload.len(), &mut out).ok_or(TransportError::TooLong)?;
        out.extend_from_slice(&payload);
        Ok(out)
    }

    fn set_impatient(&mut self, on: bool) {
        self.quick = on;
    }
}
