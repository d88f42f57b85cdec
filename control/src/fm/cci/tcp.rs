//! A component at the other end of a TCP connection.
//!
//! Shape: length 16 bits, MCTP message type 8 bits, CCI message; one request at a time.
//! Units: milliseconds, for the whole of a call.
//! Source: fabric.md, "FM module".
//!
//! After any failure the connection is given up, so that a late answer is never taken for that of another request; the
//! next call makes a new one.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Category, Header};

use super::{Transport, TransportError};

/// Event notifications that are kept until somebody asks; the oldest go first.
const EVENTS_MAX: usize = 1_024;
/// Messages that are passed over while waiting for the right one.
const OTHERS_MAX: usize = 4_096;

/// A connection, made when it is first needed.
#[derive(Debug)]
pub struct Tcp {
    peer: SocketAddr,
    kind: MessageType,
    timeout: Duration,
    open: Option<TcpStream>,
    received: Vec<u8>,
    events: VecDeque<Vec<u8>>,
}

impl Tcp {
    /// To `peer`, which has `timeout` for each piece of its answer.
    #[must_use]
    pub fn new(peer: SocketAddr, kind: MessageType, timeout: Duration) -> Self {
        let (received, events) = (Vec::new(), VecDeque::new());
        Self { peer, kind, timeout, open: None, received, events }
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> TransportError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                TransportError::Timeout(self.timeout.as_millis())
            }
            _ => TransportError::Io { what, peer: self.peer.to_string(), source },
        }
    }

    fn connect(&self) -> Result<TcpStream, TransportError> {
        let stream = TcpStream::connect_timeout(&self.peer, self.timeout)
            .map_err(|source| self.failed("connect to", source))?;
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))
        };
        set().map_err(|source| self.failed("set up the connection to", source))?;
        Ok(stream)
    }

    fn exchange(
        &mut self,
        stream: &mut TcpStream,
        request: &[u8],
    ) -> Result<Vec<u8>, TransportError> {
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

    fn message(&mut self, stream: &mut TcpStream) -> Result<Vec<u8>, TransportError> {
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

impl Transport for Tcp {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let mut stream = if let Some(stream) = self.open.take() {
            stream
        } else {
            self.received.clear();
            self.connect()?
        };
        let answer = self.exchange(&mut stream, request)?;
        self.open = Some(stream);
        Ok(answer)
    }

    fn event(&mut self) -> Option<Vec<u8>> {
        self.events.pop_front()
    }
}
