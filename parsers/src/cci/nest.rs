//! Messages in messages: Tunnel Management Command (5300h) and Fabric Crawl Out (5701h).
//!
//! [`Layers`] walks from the outermost message inwards; the last one that it yields is not a
//! tunnel.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (more than two tunnel layers: Unsupported); CXL 3.1
//! section 7.7.13.3.

use super::commands::{Request, RequestError};
use super::header::Header;
use super::mctp::MessageType;
use super::mld::{TunnelRequest, TunnelTarget};
use super::opcode::Opcode;
use super::pbr::{CrawlOut, CrawlTarget};
use super::wire::List;

/// Most tunnels around a message.
pub const TUNNELS_MAX: usize = 2;

/// The receiver of a message within a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// A port or LD (5300h).
    Tunnel {
        /// Number of the port or LD, as in [`TunnelRequest::id`].
        id: u8,
        /// Kind of receiver.
        target: TunnelTarget,
    },
    /// The other end of a port, or a PID (5701h).
    Crawl(CrawlTarget),
}

impl Hop {
    /// Writes a request that carries `message` there, and returns its length; `None` when it does not fit.
    pub fn emit_message(self, tag: u8, message: &[u8], out: &mut [u8]) -> Option<usize> {
        let message = List::of(message);
        let request = match self {
            Self::Tunnel { id, target } => Request::Tunnel(TunnelRequest { id, target, message }),
            Self::Crawl(target) => Request::CrawlOut(CrawlOut { target, message }),
        };
        request.emit_message(tag, out)
    }
}

/// One layer of nested tunnels: a message on the way inwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer<'a> {
    /// Header of the layer's message.
    pub header: Header,
    /// Payload of the layer's message.
    pub payload: &'a [u8],
    /// Receiver of the message that it carries; `None` for the innermost layer.
    pub hop: Option<Hop>,
}

/// The layers of nested tunnels, from the outermost request to the innermost; an error ends it.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    next: Option<&'a [u8]>,
}

/// Walks the requests in `message`.
#[must_use]
pub const fn layers(message: &[u8]) -> Layers<'_> {
    Layers { next: Some(message) }
}

//= docs/spec/wire-formats.md §4.1: the message of a 5300h tunnel may have its MCTP message type in front
/// Takes the MCTP message type off the front of a message in a tunnel (5300h), where there is one.
///
/// The first byte of a CCI message is its category, and no category has the number of a type.
#[must_use]
pub const fn split_type(message: &[u8]) -> (Option<MessageType>, &[u8]) {
    match message.split_first() {
        Some((7, message)) => (Some(MessageType::FmApi), message),
        Some((8, message)) => (Some(MessageType::Cci), message),
        _ => (None, message),
    }
}

/// Counts the tunnels around the innermost request of `message`; stops at one more than [`TUNNELS_MAX`].
///
/// # Errors
/// The header of a layer, or the payload of a tunnel, is malformed.
pub fn tunnels(message: &[u8]) -> Result<usize, RequestError> {
    let mut count = 0;
    for layer in layers(message).take(TUNNELS_MAX + 1) {
        count += usize::from(layer?.hop.is_some());
    }
    Ok(count)
}

impl<'a> Iterator for Layers<'a> {
    type Item = Result<Layer<'a>, RequestError>;

    /// Each layer is shorter than the one around it, so this ends.
    fn next(&mut self) -> Option<Self::Item> {
        let message = self.next.take()?;
        let (header, payload) = match Header::parse(message) {
            Ok(parts) => parts,
            Err(error) => return Some(Err(error.into())),
        };
        let tunnel = matches!(header.opcode, Opcode::TUNNEL | Opcode::CRAWL_OUT);
        // a response or event with a tunnel's opcode carries nothing onwards
        if !tunnel || header.category != super::header::Category::Request {
            return Some(Ok(Layer { header, payload, hop: None }));
        }
        let (hop, inner) = match Request::parse(header.opcode, payload) {
            Ok(Request::Tunnel(t)) => {
                (Hop::Tunnel { id: t.id, target: t.target }, split_type(t.message.bytes()).1)
            }
            Ok(Request::CrawlOut(crawl)) => (Hop::Crawl(crawl.target), crawl.message.bytes()),
            Ok(_) => return Some(Ok(Layer { header, payload, hop: None })),
            Err(error) => return Some(Err(error)),
        };
        self.next = Some(inner);
        Some(Ok(Layer { header, payload, hop: Some(hop) }))
    }
}
