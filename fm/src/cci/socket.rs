//! CCI over a socket: a Unix socket of this machine, or TCP with TLS.
//!
//! Each message is a length (16 bits), an MCTP message type (8 bits) and the CCI message; one request at a time, with a
//! time limit for each piece of its answer.
//!
//! After any failure the connection is dropped, so that a late answer is never taken for that of another request; the
//! next call makes a new one. A connection that the other end has closed is replaced before anything is sent, so that a
//! restarted component gets the request.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use weft_parsers::ParseError;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Category, Header};

use super::{QUICK, Transport, TransportError};

/// Event notifications that are kept for the caller; the oldest are dropped beyond that.
const EVENTS_MAX: usize = 1_024;
/// Reads of one `take_in`, so that a component that floods cannot hold up the manager.
const PIECES_MAX: usize = 16;
/// Messages skipped while waiting for the response, before the component is given up.
const OTHERS_MAX: usize = 4_096;

/// Address at which a component listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The text names no [`Peer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected tcp:HOST:PORT or unix:PATH, found {0}")]
pub struct PeerError(pub(super) String);

impl FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        let bad = |why: &str| PeerError(format!("{text:?}{why}"));
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            Some(("tcp", address)) => {
                let mut found = address.to_socket_addrs().map_err(|e| bad(&format!(": {e}")))?;
                found.next().map(Self::Tcp).ok_or_else(|| bad(": the name has no address"))
            }
            _ => Err(bad("")),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The manager's identity in TLS.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The manager's certificate and key, and the authority that must have signed the other end's.
    pub config: Arc<ClientConfig>,
    /// The name that the other end's certificate must have.
    pub name: ServerName<'static>,
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A check made before each command: may this manager still send?
#[derive(Clone)]
pub struct Gate(pub Arc<dyn Fn() -> bool + Send + Sync>);

impl Gate {
    /// Passes if there is no gate, or it is open.
    ///
    /// # Errors
    /// [`TransportError::Ended`] if the gate is closed.
    pub(super) fn pass(gate: Option<&Self>) -> Result<(), TransportError> {
        match gate {
            Some(Self(may_send)) if !may_send() => Err(TransportError::Ended),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&(self.0)()).finish()
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Tls(Box<Tls>),
    Unix(UnixStream),
}

impl Stream {
    fn open(peer: &Peer, identity: Option<&Identity>, timeout: Duration) -> io::Result<Self> {
        let address = match peer {
            Peer::Tcp(address) => address,
            Peer::Unix(path) => {
                let stream = Self::Unix(UnixStream::connect(path)?);
                stream.set(timeout)?;
                return Ok(stream);
            }
        };
        let stream = TcpStream::connect_timeout(address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let Some(Identity { config, name }) = identity else { return Ok(Self::Tcp(stream)) };
        let tls = ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        // The handshake is finished here, under the timeouts: a failure in it is then one to connect, before anything
        // is sent.
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self::Tls(Box::new(stream)))
    }

    fn set(&self, timeout: Duration) -> io::Result<()> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &stream.sock,
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                return stream.set_write_timeout(Some(timeout));
            }
        };
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))
    }

    /// Returns the connection, unless the other end has closed it.
    fn still_open(mut self) -> Option<Self> {
        let is_closed = self.is_closed();
        (!is_closed).then_some(self)
    }

    /// Whether the other end has closed; bytes that it sent before stay readable.
    fn is_closed(&mut self) -> bool {
        match self {
            Self::Tcp(stream) => is_at_end(stream.as_fd()),
            Self::Unix(stream) => is_at_end(stream.as_fd()),
            Self::Tls(stream) => is_tls_at_end(stream),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.sock.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(on),
            Self::Tls(stream) => stream.sock.set_nonblocking(on),
            Self::Unix(stream) => stream.set_nonblocking(on),
        }
    }

    /// Reads the bytes that are there without waiting; 0 at the end of the stream.
    fn read_at_once(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.set_nonblocking(true)?;
        let got = self.read(bytes);
        // Set back at once: all other reads rely on blocking with the stream's time limit.
        self.set_nonblocking(false)?;
        got
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

fn is_at_end(fd: BorrowedFd<'_>) -> bool {
    use rustix::net::RecvFlags;
    // Peeked, so that an answer or event in the queue is not lost to the next read.
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(fd, &mut [0_u8; 1][..], flags) {
        Ok((_, count)) => count == 0,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Like [`is_at_end`] for TLS, whose end (`close_notify`) is a record that has to be read to be noticed. Data read on
/// the way stays in rustls for the next read.
fn is_tls_at_end(stream: &mut Tls) -> bool {
    // Where the mode cannot be set the connection is taken for ended: the caller then makes a new one.
    if stream.sock.set_nonblocking(true).is_err() {
        return true;
    }
    let is_at_end = loop {
        match stream.conn.read_tls(&mut stream.sock) {
            Ok(0) => break true,
            Ok(_) => match stream.conn.process_new_packets() {
                Ok(state) if !state.peer_has_closed() => {}
                _ => break true,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
            Err(_) => break true,
        }
    };
    is_at_end || stream.sock.set_nonblocking(false).is_err()
}

/// A transport over a stream: a connection to a component, made when it is first needed.
#[derive(Debug)]
pub struct Socket {
    peer: Peer,
    identity: Option<Identity>,
    gate: Option<Gate>,
    kind: MessageType,
    timeout: Duration,
    quick: bool,
    open: Option<Stream>,
    received: Vec<u8>,
    events: VecDeque<Vec<u8>>,
    first_request: Option<Vec<u8>>,
}

impl Socket {
    /// A transport to `peer`, which has `timeout` for each piece of its answer.
    #[must_use]
    pub fn new(peer: Peer, kind: MessageType, timeout: Duration) -> Self {
        let (received, events) = (Vec::new(), VecDeque::new());
        let (identity, gate, open, first_request) = (None, None, None, None);
        let quick = false;
        Self { peer, identity, gate, kind, timeout, quick, open, received, events, first_request }
    }

    /// Time limit for a piece of an answer.
    fn span(&self) -> Duration {
        if self.quick { self.timeout.min(QUICK) } else { self.timeout }
    }

    /// Sets the manager's certificate and key; with them a peer over TCP is spoken to in TLS.
    #[must_use]
    pub fn with_identity(self, identity: Option<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Sets the check made before each command.
    #[must_use]
    pub fn with_gate(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TransportError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                TransportError::Timeout(self.span().as_millis())
            }
            _ => TransportError::Io { what, peer: self.peer.to_string(), source },
        }
    }

    fn connect(&self) -> Result<Stream, TransportError> {
        Stream::open(&self.peer, self.identity.as_ref(), self.span())
            .map_err(|source| self.failed("connect to", source))
    }

    fn exchange(&mut self, stream: &mut Stream, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let (asked, _, _) = Header::cut(request)?;
        let mut out = vec![0; mctp::HEAD_LEN + request.len()];
        let len = mctp::emit(self.kind, request, &mut out).ok_or(TransportError::TooLong)?;
        out.truncate(len);
        // Behind the connection's set-up, which can take seconds: the lease may have ended meanwhile.
        Gate::pass(self.gate.as_ref())?;
        stream.write_all(&out).map_err(|source| self.failed("write to", source))?;
        for _ in 0..OTHERS_MAX {
            let message = self.message(stream)?;
            let (header, _, _) = Header::cut(&message)?;
            match header.category {
                Category::Response if header.tag == asked.tag => return Ok(message),
                Category::Event => self.keep(message),
                // A late answer to an earlier tag, or a request that the manager does not serve.
                Category::Response | Category::Request => {}
            }
        }
        Err(TransportError::Gone(format!("{} sends other messages, but no response", self.peer)))
    }

    fn keep(&mut self, event: Vec<u8>) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Consumes messages that arrived while no request was under way: keeps events, drops all else.
    ///
    /// # Errors
    /// The bytes are not messages.
    fn sort(&mut self) -> Result<(), ParseError> {
        while let Decoded::Message { message, rest, .. } = mctp::decode(&self.received)? {
            let (message, used) = (message.to_vec(), self.received.len() - rest.len());
            self.received.drain(..used);
            if Header::cut(&message)?.0.category == Category::Event {
                self.keep(message);
            }
        }
        Ok(())
    }

    /// Reads bytes that have arrived, without waiting; returns whether the connection is still good.
    fn read_in(&mut self, stream: &mut Stream) -> bool {
        let mut piece = [0; 4_096];
        for _ in 0..PIECES_MAX {
            match stream.read_at_once(&mut piece) {
                Ok(0) => return false,
                Ok(got) => self.received.extend_from_slice(piece.get(..got).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.sort().is_err() {
                return false;
            }
        }
        self.sort().is_ok()
    }

    fn message(&mut self, stream: &mut Stream) -> Result<Vec<u8>, TransportError> {
        loop {
            if let Decoded::Message { message, rest, .. } = mctp::decode(&self.received)? {
                let message = message.to_vec();
                let used = self.received.len() - rest.len();
                self.received.drain(..used);
                return Ok(message);
            }
            let mut piece = [0; 4_096];
            let got = stream.read(&mut piece).map_err(|source| self.failed("read from", source))?;
            if got == 0 {
                let source = ErrorKind::UnexpectedEof.into();
                return Err(self.failed("read from", source));
            }
            self.received.extend_from_slice(piece.get(..got).unwrap_or_default());
        }
    }
}

impl Transport for Socket {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        // Taken out for the call, and put back only after success: after a failure an answer may still be under way on
        // it.
        let mut stream = if let Some(stream) = self.open.take().and_then(Stream::still_open) {
            stream
        } else {
            // Bytes of the old connection must not be read as the start of a message on the new one.
            self.received.clear();
            let mut stream = self.connect()?;
            if let Some(first_request) = self.first_request.clone() {
                // Its return code is ignored: a component that is not claimed yet refuses it, and is claimed later.
                self.exchange(&mut stream, &first_request)?;
            }
            stream
        };
        let answer = self.exchange(&mut stream, request)?;
        self.open = Some(stream);
        Ok(answer)
    }

    fn event(&mut self) -> Option<Vec<u8>> {
        self.events.pop_front()
    }

    fn take_in(&mut self) {
        let Some(mut stream) = self.open.take() else { return };
        self.open = self.read_in(&mut stream).then_some(stream);
    }

    fn readable(&self) -> Option<OwnedFd> {
        self.open.as_ref()?.fd().try_clone_to_owned().ok()
    }

    fn on_connect(&mut self, first_request: Vec<u8>) {
        self.first_request = Some(first_request);
    }

    fn set_impatient(&mut self, on: bool) {
        self.quick = on;
        let span = self.span();
        // A connection that cannot be set is made anew.
        self.open = self.open.take().filter(|stream| stream.set(span).is_ok());
    }
}
