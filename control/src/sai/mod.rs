//! The SAI service: a running switch for programs that test switch chips over SAI's RPC, such as those of network
//! operating systems.
//!
//! [`start`] serves over TCP, with a thread for each connection, which carries out its calls one after the other.
//! [`service`] has the methods; [`crate::sai_client`] calls them.
//!
//! Source: docs/sai.md.
//!
//! The protocol knows no users: every client that can connect can read counters and hold ports. So nothing is served
//! unless the configuration asks for it, and then on loopback unless it gives another address.

mod answer;
mod args;
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

/// Limits for all clients together. A test keeps its connection while it waits for queues to fill and drain.
pub const LIMITS: Limits = Limits {
    clients: 16,
    unknown: 0,
    idle: Duration::from_mins(5),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
    unread: 4 << 20,
};

/// Serves `service` at `addr`; port 0 takes any port.
///
/// # Errors
/// The address cannot be had.
pub fn start(addr: SocketAddr, service: Arc<Service>) -> Result<TcpServer, TcpError> {
    start_within(addr, service, LIMITS)
}

/// As [`start`], with other limits.
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
        // Clients cannot be told apart, so no place is kept for anyone.
        Ok(Trust::Owner)
    }

    fn serve(&self, client: &Client) {
        let mut input = BufReader::with_capacity(MESSAGE_LEN_MAX, Feed { client });
        // After a message that cannot be read, the beginning of the next is not known: this connection ends.
        while let Ok(Some(message)) = read_message(&mut input) {
            client.working();
            // A call that waits for no answer (oneway) is carried out all the same.
            if let Some(answer) = self.0.answer(&message)
                && client.send(&answer).is_err()
            {
                return;
            }
            // Bytes of the next call that have come already count as part of a request.
            if input.buffer().is_empty() { client.idle() } else { client.asking() }
        }
    }
}

/// Reads from a client; the first bytes after it was idle begin a request.
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
