//! The SAI service: a running switch for programs that test switch chips over SAI's RPC, such as those of network
//! operating systems.
//!
//! [`start`] serves over TCP, a thread a connection, calls one after the other; [`service`] has the methods;
//! [`client`] calls them.
//!
//! Units: bytes, connections.
//! Source: docs/sai.md.
//!
//! The protocol knows no users: whoever can connect can read counters and hold ports. So nothing is served unless it is asked
//! for, and on loopback unless another address is given.

mod answer;
mod args;
pub mod client;
pub mod objects;
mod scheduler;
pub mod service;
pub mod thrift;

use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weft_base::threads::Role;

use self::service::Service;
use self::thrift::{MESSAGE_LEN_MAX, read_message};
use crate::serve::{Client, Limits, Protocol, Stream, TcpError, TcpServer, Trust};

/// What clients may use. A test keeps its connection while it waits for queues to fill and drain.
pub const LIMITS: Limits = Limits {
    clients: 16,
    unknown: 0,
    idle: Duration::from_mins(5),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
    unread: 4 << 20,
};

/// Serves `service` at `addr`; port 0 takes any.
///
/// # Errors
/// The address cannot be had.
pub fn start(addr: SocketAddr, service: Arc<Service>) -> Result<TcpServer, TcpError> {
    start_within(addr, service, LIMITS)
}

/// As [`start`], within other limits.
///
/// # Errors
/// As [`start`].
pub fn start_within(
    addr: SocketAddr,
    service: Arc<Service>,
    limits: Limits,
) -> Result<TcpServer, TcpError> {
    TcpServer::start("SAI service", addr, limits, Arc::new(Calls(service)))
}

struct Calls(Arc<Service>);

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
