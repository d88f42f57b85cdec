//! A component at the other end of a socket: TCP, or a file of this machine.
//!
//! Shape: length 16 bits, MCTP message type 8 bits, CCI message; one request at a time.
//! Units: milliseconds, for the whole of a call.
//! Source: fabric.md, "FM module".
//!
//! After any failure the connection is given up, so that a late answer is never taken for that of another request; the
//! next call makes a new one. One that the other end has closed meanwhile is made anew before anything is sent, so that a
//! component that was started again gets the request.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Category, Header};

use super::{Transport, TransportError};

/// Event notifications that are kept until somebody asks; the oldest go first.
const EVENTS_MAX: usize = 1_024;
/// Messages that are passed over while waiting for the right one.
const OTHERS_MAX: usize = 4_096;

/// Where a component listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `tcp:HOST:PORT`.
    Tcp(SocketAddr),
    /// `unix:PATH`.
    Unix(PathBuf),
}

/// Why a text names no [`Peer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected tcp:HOST:PORT or unix:PATH, found {0}")]
pub struct NoPeer(String);

impl FromStr for Peer {
    type Err = NoPeer;

    fn from_str(text: &str) -> Result<Self, NoPeer> {
        let bad = |why: &str| NoPeer(format!("{text:?}{why}"));
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(PathBuf::from(path))),
            Some(("tcp", address)) => {
                let mut found = address.to_socket_addrs().map_err(|e| bad(&format!(": {e}")))?;
                found.next().map(Self::Tcp).ok_or_else(|| bad(": nobody has that name"))
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

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn open(peer: &Peer, timeout: Duration) -> io::Result<Self> {
        match peer {
            Peer::Tcp(address) => TcpStream::connect_timeout(address, timeout).map(Self::Tcp),
            Peer::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    fn set(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }

    /// Whether the other end has closed; what it may have sent stays where it is.
    fn is_closed(&self) -> bool {
        use rustix::net::RecvFlags;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(self.fd(), &mut [0_u8; 1][..], flags) {
            Ok((_, count)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    fn write_all(&mut self, octets: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(octets),
            Self::Unix(stream) => stream.write_all(octets),
        }
    }

    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(octets),
            Self::Unix(stream) => stream.read(octets),
        }
    }
}

/// A connection, made when it is first needed.
#[derive(Debug)]
pub struct Socket {
    peer: Peer,
    kind: MessageType,
    timeout: Duration,
    open: Option<Stream>,
    received: Vec<u8>,
    events: VecDeque<Vec<u8>>,
    greeting: Option<Vec<u8>>,
}

impl Socket {
    /// To `peer`, which has `timeout` for each piece of its answer.
    #[must_use]
    pub fn new(peer: Peer, kind: MessageType, timeout: Duration) -> Self {
        let (received, events) = (Vec::new(), VecDeque::new());
        Self { peer, kind, timeout, open: None, received, events, greeting: None }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TransportError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                TransportError::Timeout(self.timeout.as_millis())
            }
            _ => TransportError::Io { what, peer: self.peer.to_string(), source },
        }
    }

    fn connect(&self) -> Result<Stream, TransportError> {
        let stream = Stream::open(&self.peer, self.timeout)
            .map_err(|source| self.failed("connect to", source))?;
        let set = stream.set(self.timeout);
        set.map_err(|source| self.failed("set up the connection to", source))?;
        Ok(stream)
    }

    fn exchange(&mut self, stream: &mut Stream, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let (asked, _, _) = Header::cut(request)?;
        let mut out = vec![0; mctp::HEAD_LEN + request.len()];
        let len = mctp::emit(self.kind, request, &mut out).ok_or(TransportError::TooLong)?;
        out.truncate(len);
        stream.write_all(&out).map_err(|source| self.failed("write to", source))?;
        for _ in 0..OTHERS_MAX {
            let message = self.message(stream)?;
            let (header, _, _) = Header::cut(&message)?;
            match header.category {
                Category::Response if header.tag == asked.tag => return Ok(message),
                Category::Event => {
                    if self.events.len() >= EVENTS_MAX {
                        self.events.pop_front();
                    }
                    self.events.push_back(message);
                }
                Category::Response | Category::Request => {}
            }
        }
        Err(TransportError::Gone(format!("{} says much, but does not answer", self.peer)))
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
        let mut stream = if let Some(stream) = self.open.take().filter(|stream| !stream.is_closed())
        {
            stream
        } else {
            self.received.clear();
            let mut stream = self.connect()?;
            if let Some(greeting) = self.greeting.clone() {
                self.exchange(&mut stream, &greeting)?;
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

    fn greet(&mut self, greeting: Vec<u8>) {
        self.greeting = Some(greeting);
    }
}
