//! `weft fm`: the fabric manager as a service, and the words that ask it.
//!
//! Shape: arguments -> [`Request`] -> [`Response`] as text or JSON; `serve` has the service.
//! Units: as the answers' fields.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; `docs/fm.md`.

mod args;
mod request;
mod serve;
mod show;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use weft_fm::service::status::Phase;
use weft_fm::service::{Request, Response};
use weft_rpc::renamed::{self, Place};
use weft_rpc::{Client, ClientError};

use self::args::AskArgs;
pub use self::args::FmCommand;
use self::request::request;
use super::write_json;
use crate::config::resolve::sockets_dir;
use crate::error::CliError;

/// How long an answer may take: a discovery asks every component.
const ANSWER_MAX: Duration = Duration::from_secs(600);
/// How often `status --wait` looks.
const LOOK: Duration = Duration::from_millis(200);

/// Where a fabric manager listens unless it is told otherwise.
fn default_socket() -> PathBuf {
    sockets_dir().join("fm").join("fm.sock")
}

/// Does what `command` asks for.
///
/// # Errors
/// Nobody answers, or the fabric manager refuses; output that cannot be written.
pub fn run(command: &FmCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        FmCommand::Serve(args) => serve::run(args),
        FmCommand::Status { wait: true, ask } => wait(ask, out),
        other => {
            let (request, ask) = request(other)?;
            let response = FmClient::connect(ask)?.ask(&request)?;
            write(&response, ask.json, out)
        }
    }
}

fn failed(error: &ClientError) -> CliError {
    let text = match error {
        ClientError::Connect { path, source } => {
            format!("no fabric manager listens at {}: {source}", path.display())
        }
        ClientError::Io(source) => format!("connection to the fabric manager: {source}"),
        other => other.to_string(),
    };
    CliError::Switch(text)
}

struct FmClient(Client);

impl FmClient {
    fn connect(ask: &AskArgs) -> Result<Self, CliError> {
        let path = ask.socket.clone().unwrap_or_else(default_socket);
        Client::connect_for(&path, ANSWER_MAX).map(Self).map_err(|error| failed(&error))
    }

    fn ask(&mut self, request: &Request) -> Result<Response, CliError> {
        let mut answer = self.0.request(request).map_err(|error| failed(&error))?;
        renamed::drop_old(Place::FmAnswer, &mut answer);
        serde_json::from_value(answer).map_err(|error| {
            CliError::Switch(format!("answer of the fabric manager is not understood: {error}"))
        })
    }
}

fn write(response: &Response, json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if !json {
        return out.write_all(show::text(response).as_bytes()).map_err(CliError::Output);
    }
    // What kind of answer it is goes without saying.
    let value = serde_json::to_value(response).map_err(|error| CliError::Output(error.into()))?;
    let inner = value.as_object().and_then(|object| object.values().next());
    write_json(out, inner.unwrap_or(&value))
}

/// Looks at the status until the fabric is up or cannot be brought up.
fn wait(ask: &AskArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = FmClient::connect(ask)?;
    loop {
        let response = client.ask(&Request::Status)?;
        let Response::Status(status) = &response else {
            return Err(CliError::Switch("expected a status, found another answer".to_owned()));
        };
        match status.phase {
            Phase::Up | Phase::Standby => return write(&response, ask.json, out),
            Phase::Failed => {
                let why = status.failed.clone().unwrap_or_default();
                return Err(CliError::Difference(format!("the fabric is not up: {why}")));
            }
            Phase::Starting => {}
        }
        if !client.0.wait(LOOK).map_err(|error| failed(&error))? {
            return Err(CliError::Switch("the fabric manager has stopped".to_owned()));
        }
    }
}
