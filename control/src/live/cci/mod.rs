//! CCI over a Unix socket or TLS: a thread for each connection of a manager.
//!
//! [`Server`] accepts connections. Their bytes go through a [`StreamServer`] to the [`Agent`], and responses, late
//! answers and notifications go back.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1, §4.4; RFC 8446 (TLS 1.3).
//!
//! At the Unix socket root and the user that runs the switch may connect, and claim it. Over TLS the certificate says
//! which rights its holder may get ([`tls::right`]). Over bare TCP every client may claim the switch; the configuration
//! has to allow that with `cci_insecure`.

pub mod mctp;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use weft_base::eventfd::EventFd;
use weft_base::threads::Role;
use weft_config::places::Listen;
use weft_config::resolve::{CciConfig, CciGuard};
use weft_cxl::cci::stream::notify;
use weft_cxl::cci::{Right, StreamServer};

use super::agent::{Agent, PeerId};
use crate::mgmt::trusted;
use crate::report::fabric::CciCounts;
use crate::serve::{self, Client, Limits, Listener, Protocol, SocketError, Stream, Trust, wait};
use crate::tls::{self, TlsError};

/// Most connections at a time; the last place is for root, or for the certificate of a primary fabric manager.
pub const CONNECTIONS_MAX: usize = 64;
/// Limits for all managers together.
pub const LIMITS: Limits = Limits {
    clients: CONNECTIONS_MAX,
    unknown: 16,
    idle: Duration::from_mins(5),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
    unread: 32 << 20,
};
/// Bytes that one read takes at most.
const PIECE: usize = 16 * 1024;
/// Bytes of responses after which no more requests are carried out until the client has taken them.
const OUT_MAX: usize = 64 * 1024;

/// Why managers cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum CciError {
    /// The Unix socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel refuses the address.
    #[error("{0}")]
    Io(SocketAddr, #[source] io::Error),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel gives no thread or no eventfd.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

#[derive(Default)]
struct Counters {
    denied: AtomicU64,
    malformed: AtomicU64,
    ignored: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed); // a count, and nothing hangs on it
}

struct Managers {
    agent: Arc<Agent>,
    tls: Option<Arc<ServerConfig>>,
    counters: Counters,
}

/// The listener for managers; dropping it ends all connections.
pub struct Server {
    managers: Arc<Managers>,
    inner: serve::Server,
    at: String,
    guard: String,
}

impl Server {
    /// Serves `agent` where `config` says.
    ///
    /// # Errors
    /// See [`CciError`].
    pub fn start(config: &CciConfig, agent: Arc<Agent>) -> Result<Self, CciError> {
        Self::start_within(config, agent, LIMITS)
    }

    /// As [`start`](Self::start), within other limits.
    ///
    /// # Errors
    /// See [`CciError`].
    pub fn start_within(
        config: &CciConfig,
        agent: Arc<Agent>,
        limits: Limits,
    ) -> Result<Self, CciError> {
        let tls = match &config.guard {
            CciGuard::Tls(files) => Some(tls::server(files)?),
            CciGuard::OwnUser | CciGuard::Insecure => None,
        };
        let (listener, at) = match &config.place {
            Listen::Tcp(addr) => {
                let listener = Listener::tcp(*addr).map_err(|error| CciError::Io(*addr, error))?;
                // Port 0 takes any: the address that is reported is the one that the kernel chose.
                let at = listener.addr().unwrap_or(*addr).to_string();
                (listener, at)
            }
            Listen::Unix(path) => (Listener::unix(path)?, path.display().to_string()),
        };
        let managers = Arc::new(Managers { agent, tls, counters: Counters::default() });
        let server = serve::Server::start(listener, limits, managers.clone());
        let server = server.map_err(CciError::Thread)?;
        Ok(Self { managers, inner: server, at, guard: config.guard.to_string() })
    }

    /// The address or path that it listens at.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// How it tells who may command, as text for reports.
    #[must_use]
    pub fn guard(&self) -> &str {
        &self.guard
    }

    #[must_use]
    pub fn counts(&self) -> CciCounts {
        let Counters { denied, malformed, ignored } = &self.managers.counters;
        let [denied, malformed, ignored] =
            [denied, malformed, ignored].map(|count| count.load(Ordering::Relaxed));
        let serve::Counts { open, accepted, refused, evicted, overdue } = self.inner.counts();
        CciCounts { open, accepted, refused, evicted, overdue, denied, malformed, ignored }
    }
}

impl Protocol for Managers {
    fn role(&self) -> Role {
        Role::Cci
    }

    fn name(&self) -> &'static str {
        "weft-cci"
    }

    fn trust(&self, stream: &Stream) -> Result<Trust, Vec<u8>> {
        match (stream, &self.tls) {
            (Stream::Unix(_), _) => trusted(stream).map_err(|_| Vec::new()),
            // A client over TLS is unknown until its handshake is over: it takes a place beside those of managers until
            // then.
            (Stream::Tcp(_), Some(_)) => Ok(Trust::Unknown),
            (Stream::Tcp(_), None) => Ok(Trust::User),
        }
    }

    fn serve(&self, client: &Client) {
        let Some((mut wire, right)) = self.meet(client) else {
            return add(&self.counters.denied, 1);
        };
        // An error ends this connection only. The client sees it closed; the counters say why.
        if let Ok(wakeup) = EventFd::new() {
            let _ = self.serve_wire(client, &mut wire, right, &Arc::new(wakeup));
        }
    }
}

/// The layer over a connection: bare, or TLS.
enum Wire {
    Plain,
    Tls(Box<ServerConnection>),
}

impl Wire {
    /// Waits for bytes; returns 0 at the end.
    fn read(&mut self, mut stream: &Stream, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain => stream.read(piece),
            Self::Tls(tls) => rustls::Stream::new(tls.as_mut(), &mut stream).read(piece),
        }
    }

    fn write_all(&mut self, mut stream: &Stream, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain => stream.write_all(bytes),
            Self::Tls(tls) => {
                let mut stream = rustls::Stream::new(tls.as_mut(), &mut stream);
                // The records may still be in rustls's buffer: an answer is only taken when the client has them.
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Whether bytes are left that were read from the socket and not returned yet.
    fn has_more(&mut self) -> bool {
        match self {
            Self::Plain => false,
            // TLS reads whole records: bytes of the next request may be in its buffer, and `poll` would not tell of
            // them.
            Self::Tls(tls) => {
                tls.process_new_packets().is_ok_and(|s| s.plaintext_bytes_to_read() > 0)
            }
        }
    }
}

impl Managers {
    /// Completes the handshake and learns which right the client may get; `None` where its certificate does not say.
    fn meet(&self, client: &Client) -> Option<(Wire, Right)> {
        let Some(config) = &self.tls else { return Some((Wire::Plain, Right::Primary)) };
        // The handshake counts as a request: a client that stops in the middle of it is overdue like one with half a
        // request.
        client.asking();
        let mut tls = Box::new(ServerConnection::new(config.clone()).ok()?);
        while tls.is_handshaking() {
            tls.complete_io(&mut client.stream()).ok()?;
        }
        let right = tls::right(tls.peer_certificates()?)?;
        // A certificate of a primary manager is entitled to the place that is kept for one.
        let trust = if right == Right::Primary { Trust::Owner } else { Trust::User };
        client.raise(trust).ok()?;
        Some((Wire::Tls(tls), right))
    }

    /// Serves one manager until it goes, or its stream is out of step.
    fn serve_wire(
        &self,
        client: &Client,
        wire: &mut Wire,
        right: Right,
        wakeup: &Arc<EventFd>,
    ) -> io::Result<()> {
        let session = self.agent.new_session();
        let peer = self.agent.connect(session, wakeup.clone());
        self.agent.listen(peer);
        let mut server = StreamServer::new(session).with_right(right);
        let done = self.carry_out(client, wire, peer, &mut server, wakeup);
        // Also after an error: the counts of this connection must not be lost, and its session must end.
        add(&self.counters.ignored, server.ignored());
        self.agent.forget(peer);
        done
    }

    fn carry_out(
        &self,
        client: &Client,
        wire: &mut Wire,
        peer: PeerId,
        server: &mut StreamServer,
        wakeup: &EventFd,
    ) -> io::Result<()> {
        let (mut piece, mut out, mut is_left) = (vec![0; PIECE], Vec::new(), false);
        client.idle();
        loop {
            let mut got = 0;
            // Requests that are left over from the last turn come first: the client has taken its answers, so it goes
            // on at once.
            if !is_left {
                let is_there = wire.has_more() || {
                    let [is_there, _] = wait([client.stream().as_fd(), wakeup.as_fd()], None);
                    is_there
                };
                // Drained before the answers are fetched, so that one that comes in between wakes the next wait.
                wakeup.drain();
                if is_there {
                    client.asking();
                    got = match wire.read(client.stream(), &mut piece) {
                        Ok(0) => return Ok(()),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                        other => other?,
                    };
                }
            }
            let bytes = piece.get(..got).unwrap_or_default();
            let done = self.agent.receive(peer, server, bytes, OUT_MAX, &mut out);
            let late = self.agent.late(peer);
            // More late answers than one connection may leave unread: `late` has dropped them, and the connection is
            // closed, as its manager would wait for them in vain.
            for answer in late.ok_or(io::ErrorKind::OutOfMemory)? {
                server.resolve(&answer, &mut out);
            }
            for notice in self.agent.notices(peer) {
                notify(&notice, &mut out);
            }
            if !out.is_empty() {
                // Memory is accounted before the write, which lasts as long as the client takes to read.
                let held = client.hold(out.len()).map_err(io::Error::other)?;
                client.answering(|stream| wire.write_all(stream, &out))?;
                drop(held);
                out.clear();
                // One large answer must not hold its memory for the life of the connection.
                out.shrink_to(2 * OUT_MAX);
            }
            // Only now: the answers to the requests before the error have been sent.
            is_left = done.map_err(|error| {
                add(&self.counters.malformed, 1);
                io::Error::other(error)
            })?;
            // Half a request has a time limit of its own, which begins with its first byte.
            if is_left || server.buffered() > 0 {
                client.asking();
            } else {
                client.idle();
            }
        }
    }
}

#[cfg(test)]
mod tests;
