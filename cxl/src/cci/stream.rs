//! CCI over a stream of bytes, such as a TCP connection: bytes in, bytes out, no socket.
//!
//! Shape: [`StreamServer::receive`] takes what came, carries out each whole request and appends the responses.
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1 (MCTP types 07h and 08h).
//!
//! One request of a tag may wait at a time, and [`WAITING_MAX`] in all. What answers late, as from beyond a tunnel, is appended by
//! [`StreamServer::resolve`].

use std::collections::BTreeMap;

use weft_dataplane::time::Instant;
use weft_parsers::ParseError;
use weft_parsers::cci::component::ClaimOp;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Category, Header, Opcode, Request, Response, ReturnCode};

use super::common::{Answer, Ticket};
use super::ownership::Ownership;
use super::reply::Reply;
use super::rights::Right;
use super::session::Session;
use super::{Component, Served, respond, serve};

/// Requests of one connection that may wait for others at a time.
pub const WAITING_MAX: usize = 32;

/// Why a CCI connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It is out of step: nothing tells where the next message begins.
    #[error("the stream is out of step: {0}")]
    OutOfStep(ParseError),
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    kind: MessageType,
    tag: u8,
}

/// Serves CCI messages that come over one byte stream.
#[derive(Clone, Debug)]
pub struct StreamServer {
    session: Session,
    right: Right,
    /// What has come of a message that is not whole.
    bytes: Vec<u8>,
    waiting: BTreeMap<Ticket, Waiting>,
    ignored: u64,
}

impl StreamServer {
    /// A connection by which nothing has come yet, and which may claim the component.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self {
            session,
            right: Right::Primary,
            bytes: Vec::new(),
            waiting: BTreeMap::new(),
            ignored: 0,
        }
    }

    /// The same, of somebody who may become at most `right`.
    #[must_use]
    pub fn with_right(self, right: Right) -> Self {
        Self { right, ..self }
    }

    /// Whose connection it is.
    #[must_use]
    pub const fn session(&self) -> Session {
        self.session
    }

    /// Messages that were no requests.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Bytes that are kept of a message that is not whole: at most [`mctp::STREAM_MAX`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Takes in `bytes`, carries out what is whole, and appends the responses to `out`.
    ///
    /// # Errors
    /// [`StreamError`]: the connection must be closed. Responses to what came before stand in `out`.
    pub fn receive(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamError> {
        self.receive_some(component, now, bytes, usize::MAX, out).map(drop)
    }

    /// As [`receive`](Self::receive), until `most` bytes or more stand in `out`; whether whole messages may be left, for
    /// a next call without bytes.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_some(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        bytes: &[u8],
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, StreamError> {
        self.bytes.extend_from_slice(bytes);
        let all = core::mem::take(&mut self.bytes);
        let mut rest = all.as_slice();
        let mut is_left = false;
        loop {
            if out.len() >= most {
                is_left = !rest.is_empty();
                break;
            }
            match mctp::decode(rest).map_err(StreamError::OutOfStep)? {
                Decoded::NeedMore { .. } => break,
                Decoded::Message { kind, message, rest: behind } => {
                    self.request(component, now, kind, message, out);
                    rest = behind;
                }
            }
        }
        self.bytes = rest.to_vec();
        Ok(is_left)
    }

    fn request(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        kind: MessageType,
        message: &[u8],
        out: &mut Vec<u8>,
    ) {
        let mut response = Vec::new();
        if let Ok((header, _, payload)) = Header::cut(message)
            && header.category == Category::Request
        {
            let is_busy = self.waiting.len() >= WAITING_MAX
                || self.waiting.values().any(|waiting| waiting.tag == header.tag);
            if is_busy {
                respond(header, ReturnCode::Busy, &[], &mut response);
                return frame(kind, &response, out);
            }
            let owner = &component.common().ownership;
            if let Err(code) = self.right.allows(owner.primary_right(), header.opcode, payload) {
                respond(header, code, &[], &mut response);
                return frame(kind, &response, out);
            }
        }
        match serve(component, now, self.session, message, &mut response) {
            Served::Response => {
                self.judge(component, message, &mut response);
                frame(kind, &response, out);
            }
            Served::Ignored => self.ignored += 1,
            Served::Pending(ticket) => {
                let tag = Header::cut(message).map_or(0, |(header, _, _)| header.tag);
                self.waiting.insert(ticket, Waiting { kind, tag });
            }
        }
    }

    /// Follows up what was answered: an observer is not told who manages the component; by what right it was claimed is
    /// kept.
    fn judge(&self, component: &mut dyn Component, request: &[u8], response: &mut Vec<u8>) {
        let Ok((header, _, payload)) = Header::cut(request) else { return };
        let is_done = Header::cut(response)
            .is_ok_and(|(answer, _, _)| answer.return_code == ReturnCode::Success);
        if !is_done {
            return;
        }
        match header.opcode {
            Opcode::IDENTIFY_PBR_COMPONENT if self.right == Right::Observer => {
                let nobody = Response::IdentifyPbrComponent(Ownership::new().identity());
                let mut reply = Reply::new();
                let _ = reply.send(&nobody); // as long as the one that it replaces
                response.clear();
                respond(header, ReturnCode::Success, reply.payload(), response);
            }
            Opcode::CLAIM_OWNERSHIP => {
                if let Ok(Request::ClaimOwnership(claim)) = Request::parse(header.opcode, payload)
                    && matches!(claim.op, ClaimOp::RegisterPrimary | ClaimOp::PromoteSecondary)
                {
                    component.common_mut().ownership.set_primary_right(self.right);
                }
            }
            _ => {}
        }
    }

    /// Appends a response that was awaited; returns whether it is one of this connection's.
    pub fn resolve(&mut self, answer: &Answer, out: &mut Vec<u8>) -> bool {
        if answer.session != self.session {
            return false;
        }
        let Some(waiting) = self.waiting.remove(&answer.ticket) else { return false };
        frame(waiting.kind, &answer.message, out);
        true
    }
}

/// Appends `message` with its length and type.
fn frame(kind: MessageType, message: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + mctp::HEAD_LEN + message.len(), 0);
    let written = mctp::emit(kind, message, out.get_mut(start..).unwrap_or_default());
    debug_assert!(written.is_some(), "a reply fits in a stream's message");
}
