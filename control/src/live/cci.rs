//! CCI over TCP or a Unix socket: a thread for each connection of a manager.
//!
//! Shape: [`Server`] accepts; octets go through [`StreamServer`] to the [`Agent`], responses and late answers back.
//! Units: octets, connections.
//! Source: fabric.md "FM module"; wire-formats.md 4.1.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use weft_dataplane::bell::Bell;
use weft_endpoints::cci::StreamServer;

use super::agent::Agent;
use crate::config::value::Listen;
use crate::mgmt::dir::{self, SocketError};

/// Most connections at a time.
pub const CONNECTIONS_MAX: usize = 64;
/// A manager that takes no response for so long is sent away.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// Octets that one read takes.
const PIECE: usize = 16 * 1024;

/// What managers have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CciCounts {
    /// Connections now.
    pub open: u64,
    /// Connections since the start.
    pub accepted: u64,
    /// Connections that were refused: too many.
    pub refused: u64,
    /// Connections that were closed as what they sent was out of step.
    pub malformed: u64,
    /// Messages that were no requests.
    pub ignored: u64,
}

/// Why managers cannot connect.
#[derive(Debug, thiserror::Error)]
pub enum CciError {
    /// The Unix socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The kernel refuses.
    #[error("{0}")]
    Io(SocketAddr, #[source] io::Error),
    /// No thread, or no eventfd.
    #[error("start a thread")]
    Thread(#[source] io::Error),
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE_MAX))?;
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_write_timeout(Some(WRITE_MAX))?;
                Ok(Stream::Unix(stream))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&self, piece: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(piece),
            Self::Unix(stream) => (&*stream).read(piece),
        }
    }

    fn write_all(&self, octets: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&*stream).write_all(octets),
            Self::Unix(stream) => (&*stream).write_all(octets),
        }
    }

    fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        }; // it may be closed already
    }
}

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    malformed: AtomicU64,
    ignored: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed); // a count, and nothing hangs on it
}

#[derive(Default)]
struct Registered {
    next: u64,
    streams: BTreeMap<u64, Arc<Stream>>,
    threads: BTreeMap<u64, JoinHandle<()>>,
}

struct Shared {
    agent: Arc<Agent>,
    stop: AtomicBool,
    bell: Bell,
    counters: Counters,
    registered: Mutex<Registered>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place where managers connect; dropping it ends all connections.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    /// The Unix socket.
    path: Option<PathBuf>,
    at: String,
}

impl Server {
    /// Serves `agent` at `place`.
    ///
    /// # Errors
    /// See [`CciError`].
    pub fn start(place: &Listen, agent: Arc<Agent>) -> Result<Self, CciError> {
        let (listener, path, at) = match place {
            Listen::Tcp(addr) => {
                let failed = |source| CciError::Io(*addr, source);
                let listener = TcpListener::bind(addr).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let at = listener.local_addr().map_err(failed)?.to_string();
                (Listener::Tcp(listener), None, at)
            }
            Listen::Unix(path) => {
                let listener = dir::listen(path)?;
                listener.set_nonblocking(true).map_err(CciError::Thread)?;
                (Listener::Unix(listener), Some(path.clone()), path.display().to_string())
            }
        };
        let shared = Arc::new(Shared {
            agent,
            stop: AtomicBool::new(false),
            bell: Bell::new().map_err(CciError::Thread)?,
            counters: Counters::default(),
            registered: Mutex::default(),
        });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("weft-cci".to_owned());
        let acceptor = thread.spawn(move || accept(&listener, &own)).map_err(CciError::Thread)?;
        Ok(Self { shared, acceptor: Some(acceptor), path, at })
    }

    /// Where it listens.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// What managers have done.
    #[must_use]
    pub fn counts(&self) -> CciCounts {
        let Counters { accepted, refused, malformed, ignored } = &self.shared.counters;
        let [accepted, refused, malformed, ignored] =
            [accepted, refused, malformed, ignored].map(|count| count.load(Ordering::Relaxed));
        let open = self.shared.lock().streams.len() as u64;
        CciCounts { open, accepted, refused, malformed, ignored }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release); // pairs with `accept`
        self.shared.bell.ring();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join(); // a panic has been printed
        }
        let (streams, threads) = {
            let mut registered = self.shared.lock();
            (std::mem::take(&mut registered.streams), std::mem::take(&mut registered.threads))
        };
        for stream in streams.values() {
            stream.close();
        }
        for thread in threads.into_values() {
            let _ = thread.join(); // a panic has been printed
        }
        if let Some(path) = &self.path {
            dir::clean_up(path);
        }
    }
}

fn wait(fds: [BorrowedFd<'_>; 2]) -> [bool; 2] {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let _ = poll(&mut fds, None); // an interrupted wait only comes back sooner
    fds.map(|fd| !fd.revents().is_empty())
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.stop.load(Ordering::Acquire) {
        let [has_come, _] = wait([listener.as_fd(), shared.bell.as_fd()]);
        if !has_come {
            continue;
        }
        match listener.accept() {
            Ok(stream) => admit(stream, shared),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => add(&shared.counters.refused, 1), // too many files, or gone already
        }
    }
}

fn admit(stream: Stream, shared: &Arc<Shared>) {
    let mut registered = shared.lock();
    let bell = Bell::new();
    let (true, Ok(bell)) = (registered.streams.len() < CONNECTIONS_MAX, bell) else {
        return add(&shared.counters.refused, 1); // it sees that it is closed
    };
    let number = registered.next;
    registered.next += 1;
    let stream = Arc::new(stream);
    let (own, all) = (stream.clone(), shared.clone());
    let thread = std::thread::Builder::new().name("weft-cci-client".to_owned());
    let spawned = thread.spawn(move || {
        serve(&own, &Arc::new(bell), &all);
        own.close();
        let mut registered = all.lock();
        registered.streams.remove(&number);
        registered.threads.remove(&number);
    });
    match spawned {
        Ok(thread) => {
            add(&shared.counters.accepted, 1);
            registered.streams.insert(number, stream);
            registered.threads.insert(number, thread);
        }
        Err(_) => add(&shared.counters.refused, 1),
    }
}

/// Serves one manager until it goes, or what it sends makes no sense.
fn serve(stream: &Stream, bell: &Arc<Bell>, shared: &Shared) {
    let session = shared.agent.connect(bell.clone());
    let mut server = StreamServer::new(session);
    let (mut piece, mut out) = (vec![0; PIECE], Vec::new());
    loop {
        let [has_come, _] = wait([stream.as_fd(), bell.as_fd()]);
        bell.quieten();
        let mut is_over = false;
        if has_come {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(got) => {
                    let octets = piece.get(..got).unwrap_or_default();
                    if shared.agent.receive(&mut server, octets, &mut out).is_err() {
                        add(&shared.counters.malformed, 1);
                        is_over = true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        for answer in shared.agent.late(session) {
            server.resolve(&answer, &mut out);
        }
        if !out.is_empty() && stream.write_all(&out).is_err() {
            break;
        }
        out.clear();
        if is_over {
            break;
        }
    }
    add(&shared.counters.ignored, server.ignored());
    shared.agent.forget(session);
}
