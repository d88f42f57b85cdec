//! CCI to a host's GAE by way of the endpoint that plays the host.
//!
//! The endpoint's control socket passes the bytes of a request on to the host's mailbox, as a line of JSON (`gae`), and
//! returns those of the response.
//!
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GaePeer {
    /// At a [`Peer`] that speaks CCI in a session of the host.
    Cci(Peer),
    /// Through the control socket of the endpoint that plays the host: `endpoint:PATH`.
    Endpoint(PathBuf),
}

/// The text names no [`GaePeer`].
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

/// A connection to a host's GAE through its endpoint, made when it is first needed.
#[derive(Debug)]
pub struct Endpoint {
    path: PathBuf,
    gate: Option<Gate>,
    timeout: Duration,
    quick: bool,
    open: Option<Client>,
}

impl Endpoint {
    /// Uses the control socket at `path`; the GAE has `timeout` for each answer.
    #[must_use]
    pub const fn new(path: PathBuf, timeout: Duration) -> Self {
        Self { path, gate: None, timeout, quick: false, open: None }
    }

    /// Sets the check made before each command.
    #[must_use]
    pub fn with_gate(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    fn span(&self) -> Duration {
        if self.quick { self.timeout.min(QUICK) } else { self.timeout }
    }

    /// Slightly longer than the endpoint waits for its mailbox, so that the endpoint reports a silent GAE itself.
    const fn longest(&self) -> Duration {
        self.timeout.saturating_add(QUICK)
    }

    /// The open connection, or a new one if the endpoint was restarted.
    fn client(&mut self) -> Result<Client, ClientError> {
        // Nothing has been asked, so a connection that is readable has ended; a request on it would be lost.
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
        // The last check before anything is sent: a manager whose lease has ended must not command a GAE either.
        Gate::pass(self.gate.as_ref())?;
        let timeout_ms = u64::try_from(self.span().as_millis()).unwrap_or(u64::MAX);
        let (opcode, input) = (asked.opcode.0, HEXLOWER.encode(payload));
        let command = Command { cmd: "gae", opcode, input, timeout_ms };
        let Answered { response } = self.ask(&command).map_err(|error| self.failed(error))?;
        let malformed = || self.failed(ClientError::Answer("no hexadecimal digits".to_owned()));
        let payload =
            HEXLOWER_PERMISSIVE.decode(response.output.as_bytes()).map_err(|_| malformed())?;
        // The socket carries only codes and payload: the header of the response is rebuilt from that of the request.
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
