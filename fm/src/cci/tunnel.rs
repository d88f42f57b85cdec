//! Tunnels: a component behind another one, reached by Fabric Crawl Out (5701h) around each message.
//!
//! Source: docs/spec/wire-formats.md §4.5; CXL 3.1 section 7.7.13.3.

use weft_parsers::cci::nest::{Hop, TUNNELS_MAX, tunnels};
use weft_parsers::cci::pbr::CrawlTarget;
use weft_parsers::cci::{Header, Opcode, Payload, ReturnCode, header, mctp, mld};

use super::{Transport, TransportError};

/// Bytes that a tunnel adds to a message: a CCI header, target, type and length.
const AROUND: usize = header::LEN + 6;

/// A transport through another component, by Fabric Crawl Out.
pub struct Tunnel<'a> {
    through: &'a mut dyn Transport,
    target: CrawlTarget,
}

impl<'a> Tunnel<'a> {
    /// A tunnel to `target`, as seen by the component behind `through`.
    pub fn new(through: &'a mut dyn Transport, target: CrawlTarget) -> Self {
        Self { through, target }
    }
}

impl Transport for Tunnel<'_> {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        // Refused here as the component would (CXL 3.1, 7.7.13.3: two layers at most), without a round trip.
        if tunnels(request).is_ok_and(|around| around >= TUNNELS_MAX) {
            return Err(TransportError::TooDeep);
        }
        if request.len() + AROUND > mctp::MESSAGE_MAX {
            return Err(TransportError::TooLong);
        }
        let (inner, _, _) = Header::cut(request)?;
        let mut out = vec![0; request.len() + AROUND];
        let len = Hop::Crawl(self.target).emit_message(inner.tag, request, &mut out);
        out.truncate(len.ok_or(TransportError::TooLong)?);
        let answer = self.through.call(&out)?;
        let (outer, payload) = Header::parse(&answer)?;
        if outer.return_code != ReturnCode::Success {
            return Err(TransportError::NotPassedOn {
                target: self.target,
                code: outer.return_code,
            });
        }
        if outer.opcode != Opcode::CRAWL_OUT || outer.tag != inner.tag {
            return Err(TransportError::Gone(format!(
                "the tunnel returned a response to {}",
                outer.opcode
            )));
        }
        Ok(mld::TunnelResponse::parse(payload)?.message.bytes().to_vec())
    }
}
