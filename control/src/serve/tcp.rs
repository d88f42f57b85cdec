//! Serves clients at a TCP address: [`TcpServer`] is a [`Server`] with the address that it listens at.
//!
//! Source: ARCHITECTURE.md "Control".

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Counts, Limits, Listener, Protocol, Server};

/// Why clients cannot be served at an address.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {call} {addr}")]
pub struct TcpError {
    /// Service that was to be started.
    pub what: &'static str,
    /// Step that failed.
    pub call: &'static str,
    pub addr: SocketAddr,
    #[source]
    pub source: io::Error,
}

/// A server at an address; dropping it ends all connections.
pub struct TcpServer {
    addr: SocketAddr,
    server: Server,
}

impl TcpServer {
    /// Serves the clients that connect to `addr`, for the service `what`; port 0 takes any port.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn start(
        what: &'static str,
        addr: SocketAddr,
        limits: Limits,
        protocol: Arc<dyn Protocol>,
    ) -> Result<Self, TcpError> {
        let error = |call| move |source| TcpError { what, call, addr, source };
        let listener = Listener::tcp(addr).map_err(error("listen at"))?;
        // The kernel's choice, where port 0 was asked for.
        let at = listener.addr().unwrap_or(addr);
        let server = Server::start(listener, limits, protocol);
        Ok(Self { addr: at, server: server.map_err(error("start a thread for"))? })
    }

    /// The address that it listens at, with the port that the kernel chose.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        self.server.counts()
    }
}
