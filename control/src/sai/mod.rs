//! The SAI service: a running switch for programs that test switch chips over SAI's RPC, such as those of network
//! operating systems.
//!
//! Shape: [`SaiServer`] over TCP, a thread a connection, calls one after the other; [`service`] has the methods.
//! Units: bytes, connections.
//! Source: docs/sai.md.
//!
//! The protocol knows no users: whoever can connect can read counters and hold ports. So nothing is served unless it is asked
//! for, and on loopback unless another address is given.

mod answer;
pub mod objects;
pub mod service;
pub mod thrift;

use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_base::threads::Role;

use self::service::{SaiSwitch, Service};
use self::thrift::{MESSAGE_LEN_MAX, read_message};
use crate::serve::{Client, Limits, Listener, Protocol, Server, Stream, Trust};

/// What clients may use. A test keeps its connection while it waits for queues to fill and drain.
pub const LIMITS: Limits = Limits {
    clients: 16,
    unknown: 0,
    idle: Duration::from_secs(300),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
    unread: 4 << 20,
};

/// Why the service cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("SAI service: {call} {addr}")]
pub struct SaiError {
    /// What was tried.
    pub call: &'static str,
    /// Where.
    pub addr: SocketAddr,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

/// A SAI server; dropping it ends it.
pub struct SaiServer {
    addr: SocketAddr,
    server: Server,
}

impl SaiServer {
    /// Serves `switch` at `addr`; port 0 takes any.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(addr: SocketAddr, switch: Arc<dyn SaiSwitch>) -> Result<Self, SaiError> {
        Self::start_within(addr, switch, LIMITS)
    }

    /// As [`start`](Self::start), within other limits.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_within(
        addr: SocketAddr,
        switch: Arc<dyn SaiSwitch>,
        limits: Limits,
    ) -> Result<Self, SaiError> {
        let error = |call| move |source| SaiError { call, addr, source };
        let listener = Listener::tcp(addr).map_err(error("listen at"))?;
        let at = listener.addr().unwrap_or(addr);
        let server = Server::start(listener, limits, Arc::new(Calls(Service::new(switch))));
        Ok(Self { addr: at, server: server.map_err(error("start a thread for"))? })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What clients have done.
    #[must_use]
    pub fn counts(&self) -> crate::serve::Counts {
        self.server.counts()
    }
}

struct Calls(Service);

impl Protocol for Calls {
    fn role(&self) -> Role {
        Role::Sai
    }

    fn name(&self) -> &'static str {
        "weft-sai"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        Ok(Trust::Owner) // nobody can tell who it is: all places are for all
    }

    fn serve(&self, client: &Client) {
        let mut input = BufReader::with_capacity(MESSAGE_LEN_MAX, Feed { client });
        // Where a message cannot be read, the next one's begin is not known: the connection ends, and the others go on.
        while let Ok(Some(message)) = read_message(&mut input) {
            client.working();
            if let Some(answer) = self.0.answer(&message)
                && client.send(&answer).is_err()
            {
                return;
            }
            // What has come already of the next call is part of a request.
            if input.buffer().is_empty() { client.idle() } else { client.asking() }
        }
    }
}

/// The bytes of a client; the first ones after it was idle begin a request.
struct Feed<'a> {
    client: &'a Client,
}

impl Read for Feed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut client = self.client;
        let count = client.read(bytes)?;
        if count > 0 {
            client.asking();
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
