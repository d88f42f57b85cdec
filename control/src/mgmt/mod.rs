//! Management sockets: a server that hands lines of JSON to a handler and sends back its answers.
//!
//! A [`LineHandler`] behind [`serve::Server`]; a client must be of the user that runs the switch, or root.
//!
//! Source: unix(7), `SO_PEERCRED`; ARCHITECTURE.md "Control".

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use weft_base::threads::Role;
use weft_rpc::{Answer, LINE_LEN_MAX, LineHandler, LineStream, Next, Refused, to_line};

use crate::serve::{self, Client, Counts, Limits, Listener, Protocol, SocketError, Stream, Trust};

/// Most clients at a time; the last place is root's.
pub const CLIENTS_MAX: usize = 32;
/// Limits for all clients together.
pub const LIMITS: Limits = Limits {
    clients: CLIENTS_MAX,
    unknown: 0,
    idle: Duration::from_mins(5),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(30),
    unread: 64 << 20,
};
/// Time between two looks whether the client of a trace without frames is still there.
const TRACE_WAIT: Duration = Duration::from_millis(200);

/// Trust in a client of a Unix socket: only root and the user that runs the switch are let in.
///
/// # Errors
/// The client is of another user.
pub fn trusted(stream: &Stream) -> Result<Trust, Refused> {
    let peer =
        stream.peer().ok_or_else(|| Refused::unavailable("the user of the client is not known"))?;
    if peer.uid.is_root() {
        Ok(Trust::Owner)
    } else if peer.uid == rustix::process::geteuid() {
        Ok(Trust::User)
    } else {
        Err(Refused::because("only root and the user that runs the switch may send requests"))
    }
}

/// A management socket that is served; dropping it ends that.
pub struct Server {
    path: PathBuf,
    server: serve::Server,
}

impl Server {
    /// Listens at `path`, and has `handler` answer each line.
    ///
    /// # Errors
    /// The socket cannot be made, is in use, or its directory is open to others.
    pub fn start(path: &Path, handler: Arc<dyn LineHandler>) -> Result<Self, SocketError> {
        Self::start_within(path, handler, LIMITS)
    }

    /// As [`start`](Self::start), with other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_within(
        path: &Path,
        handler: Arc<dyn LineHandler>,
        limits: Limits,
    ) -> Result<Self, SocketError> {
        let protocol = Arc::new(LineProtocol { handler, clients: limits.clients });
        let server = serve::Server::start(Listener::unix(path)?, limits, protocol);
        let server = server.map_err(|source| SocketError::Io {
            call: "start a thread for",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { path: path.to_owned(), server })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.server.counts()
    }
}

/// The protocol: lines of requests, each with its answer.
struct LineProtocol {
    handler: Arc<dyn LineHandler>,
    clients: usize,
}

fn refusal(refused: &Refused) -> Vec<u8> {
    to_line(&json!({ "error": refused }))
}

impl Protocol for LineProtocol {
    fn role(&self) -> Role {
        Role::Management
    }

    fn name(&self) -> &'static str {
        "weft-mgmt"
    }

    fn trust(&self, stream: &Stream) -> Result<Trust, Vec<u8>> {
        trusted(stream).map_err(|refused| refusal(&refused))
    }

    fn full(&self) -> Vec<u8> {
        let message = format!("{} clients are connected already", self.clients);
        refusal(&Refused::unavailable(message))
    }

    fn short(&self, why: &str) -> Vec<u8> {
        refusal(&Refused::unavailable(why))
    }

    fn serve(&self, client: &Client) {
        // An error ends this client only.
        let _ = answer_lines(client, self.handler.as_ref());
    }
}

/// Answers one client's lines until it goes.
fn answer_lines(client: &Client, handler: &dyn LineHandler) -> io::Result<()> {
    let mut reader = BufReader::new(client);
    let mut line = Vec::new();
    client.idle();
    while read_line(&mut reader, &mut line, || client.asking())? {
        client.working();
        // The handler still gets the line, and refuses it with a message.
        let is_too_long = line.len() > LINE_LEN_MAX;
        if line.trim_ascii().is_empty() {
            client.idle();
            continue;
        }
        match handler.answer(&line) {
            Answer::Line(answer) => send(client, answer)?,
            Answer::Stream(first, mut others) => {
                send(client, first)?;
                follow(client, others.as_mut())?;
            }
        }
        // The rest of the line is not read, so the next bytes would be taken for a request.
        if is_too_long {
            return Ok(());
        }
        client.idle();
    }
    Ok(())
}

/// Sends an answer; or a refusal, if other clients have not read theirs and use the memory.
fn send(client: &Client, answer: Vec<u8>) -> io::Result<()> {
    match client.hold(answer.capacity()) {
        Ok(_held) => client.send(&answer),
        Err(why) => {
            // The answer's own memory is freed before the refusal waits for the client.
            drop(answer);
            let message = format!("{why}: read the pending answers, or try again later");
            client.send(&refusal(&Refused::unavailable(message)))
        }
    }
}

/// Sends the lines that follow an answer, until they end or the client goes.
fn follow(client: &Client, lines: &mut dyn LineStream) -> io::Result<()> {
    loop {
        match lines.next(TRACE_WAIT) {
            Next::Line(line) => client.send(&line)?,
            Next::End(line) => return client.send(&line),
            // Nothing is written while no frame comes, so a client that has gone is only noticed by asking.
            Next::Nothing if client.is_over() || client.stream().is_closed() => {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            Next::Nothing => {}
        }
    }
}

/// Reads up to a newline, which is not kept, into `line`; a longer line than the bound is cut off one byte above it.
/// Calls `begun` whenever bytes of an unfinished line have come. Returns false at the end of the stream.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>, begun: impl Fn()) -> io::Result<bool> {
    line.clear();
    loop {
        let available = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let end = newline.unwrap_or(available.len());
        let room = (LINE_LEN_MAX + 1).saturating_sub(line.len());
        line.extend(available.iter().take(end.min(room)));
        if line.len() > LINE_LEN_MAX {
            return Ok(true);
        }
        reader.consume(newline.map_or(end, |at| at + 1));
        if newline.is_some() {
            return Ok(true);
        }
        begun();
    }
}

#[cfg(test)]
mod tests;
