//! MCTP over TCP: a component reached by packets of 68 bytes.
//!
//! Splits a CCI message into packets, and collects packets until the message with the same tag is complete; one request
//! at a time. As with [`Socket`](super::Socket), the connection is dropped after any failure, and the next call makes a
//! new one.
//!
//! Source: DMTF DSP0236 section 8; docs/mctp.md "On the wire".

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::{Category, Header, header};
use weft_parsers::mctp::{EID_NULL, PACKET_LEN, Packet, Transport as Head, packets};

use super::{Transport, TransportError};

/// EID of the manager: 8 is the lowest that is not reserved.
const OWN_EID: u8 = 8;
/// Packets read for one answer before the component is given up; the longest message takes 1,024.
const PACKETS_MAX: usize = 8_192;
/// Bound on the bytes of a message that is being put together.
const MESSAGE_MAX: usize = 1 << 16;

/// A transport over MCTP: a connection to a component, made when it is first needed.
#[derive(Debug)]
pub struct Mctp {
    peer: SocketAddr,
    timeout: Duration,
    tag: u8,
    open: Option<TcpStream>,
}

impl Mctp {
    /// A transport to `peer`, which has `timeout` for each piece of its answer.
    #[must_use]
    pub const fn new(peer: SocketAddr, timeout: Duration) -> Self {
        Self { peer, timeout, tag: 0, open: None }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TransportError {
        match source.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                TransportError::Timeout(self.timeout.as_millis())
            }
            _ => TransportError::Io { what, peer: self.peer.to_string(), source },
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.peer, self.timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        Ok(stream)
    }

    fn exchange(
        &mut self,
        stream: &mut TcpStream,
        request: &[u8],
    ) -> Result<Vec<u8>, TransportError> {
        let (asked, _, _) = Header::cut(request)?;
        // The message tag has 3 bits.
        self.tag = (self.tag + 1) & 7;
        let head = Head {
            dest: EID_NULL, // the component at the other end
            source: OWN_EID,
            first: true,
            last: true,
            seq: 0,
            owner: true,
            tag: self.tag,
        };
        let out: Vec<u8> = packets(head, MessageType::FmApi as u8, request).flatten().collect();
        stream.write_all(&out).map_err(|source| self.failed("write to", source))?;
        let (mut message, mut next) = (Vec::new(), None);
        for _ in 0..PACKETS_MAX {
            let mut bytes = [0; PACKET_LEN];
            stream.read_exact(&mut bytes).map_err(|source| self.failed("read from", source))?;
            let Packet { head, payload } = Packet::parse(&bytes)?;
            if head.owner || head.tag != self.tag {
                continue; // no answer to this request
            }
            if head.first {
                // A start of message ends an unfinished one: its end was lost.
                message.clear();
            } else if next != Some(head.seq) || message.len() >= MESSAGE_MAX {
                next = None;
                continue; // part of a message that has no beginning, or no end
            }
            // The packet sequence number has 2 bits.
            next = Some((head.seq + 1) & 3);
            message.extend_from_slice(payload);
            if !head.last {
                continue;
            }
            next = None;
            if let Some(answer) = cci(&message)
                && let Ok((header, _, _)) = Header::cut(answer)
                && header.category == Category::Response
                && header.tag == asked.tag
            {
                return Ok(answer.to_vec());
            }
        }
        Err(TransportError::Gone(format!("{} sends other messages, but no response", self.peer)))
    }
}

/// The CCI message of an MCTP message, without padding; `None` if it has none.
fn cci(message: &[u8]) -> Option<&[u8]> {
    let body = message.strip_prefix(&[MessageType::FmApi as u8])?;
    let (_, len, _) = Header::cut(body).ok()?;
    body.get(..header::LEN.checked_add(len)?)
}

impl Transport for Mctp {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => self.connect().map_err(|source| self.failed("connect to", source))?,
        };
        let answer = self.exchange(&mut stream, request)?;
        self.open = Some(stream);
        Ok(answer)
    }
}
