//! Serving clients at a TCP address.
//!
//! [`TcpServer`] is a [`Server`] and where it listens.
//!
//! Source: ARCHITECTURE.md "Control".

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Counts, Limits, Listener, Protocol, Server};

/// Why nobody can be served at an address.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {call} {addr}")]
pub struct TcpError {
    /// What was to serve.
    pub what: &'static str,
    /// What was tried.
    pub call: &'static str,
    /// Where.
    pub addr: SocketAddr,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

/// A place at an address where clients are served; dropping it ends it.
pub struct TcpServer {
    addr: SocketAddr,
    server: Server,
}

impl TcpServer {
    /// Serves those who connect to `addr`, for `what`; port 0 takes any.
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
        let at = listener.addr().unwrap_or(addr);
        let server = Server::start(listener, limits, protocol);
        Ok(Self { addr: at, server: server.map_err(error("start a thread for"))? })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What clients have done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.server.counts()
    }
}
