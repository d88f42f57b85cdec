//! CCI over a stream of bytes, such as a TCP connection: bytes in, bytes out, no socket.
//!
//! [`StreamServer::receive`] takes what came, carries out each whole request and appends the responses.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1 (MCTP types 07h and 08h).
//!
//! What answers late, as from beyond a tunnel, is appended by [`StreamServer::resolve`].

use std::collections::BTreeSet;

use weft_dataplane::time::Instant;
use weft_parsers::ParseError;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};

use super::Component;
use super::common::{Answer, Ticket};
use super::requests::Requests;
use super::rights::Right;
use super::session::Session;

/// Why a CCI connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It is out of step: nothing tells where the next message begins.
    #[error("the stream is out of step: {0}")]
    OutOfStep(ParseError),
}

/// Serves CCI messages that come over one byte stream.
#[derive(Clone, Debug)]
pub struct StreamServer {
    requests: Requests<MessageType>,
    /// What has come of a message that is not whole.
    bytes: Vec<u8>,
}

impl StreamServer {
    /// A connection by which nothing has come yet, and which may claim the component.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self { requests: Requests::new(session, Right::Primary), bytes: Vec::new() }
    }

    /// The same, of somebody who may become at most `right`.
    #[must_use]
    pub fn with_right(self, right: Right) -> Self {
        Self { requests: self.requests.with_right(right), ..self }
    }

    /// Whose connection it is.
    #[must_use]
    pub const fn session(&self) -> Session {
        self.requests.session()
    }

    /// Messages that were no requests.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.requests.ignored()
    }

    /// The requests whose answers are awaited.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.requests.tickets()
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
                    let response = self.requests.carry_out(component, now, kind, message);
                    if let Some(response) = response {
                        frame(kind, &response, out);
                    }
                    rest = behind;
                }
            }
        }
        self.bytes = rest.to_vec();
        Ok(is_left)
    }

    /// Appends a response that was awaited; returns whether it is one of this connection's.
    pub fn resolve(&mut self, answer: &Answer, out: &mut Vec<u8>) -> bool {
        let Some(kind) = self.requests.resolve(answer) else { return false };
        frame(kind, &answer.message, out);
        true
    }
}

/// Appends a notification of an event, as managers of fabrics take it (type 07h).
pub fn notify(message: &[u8], out: &mut Vec<u8>) {
    frame(MessageType::FmApi, message, out);
}

/// Appends `message` with its length and type.
fn frame(kind: MessageType, message: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + mctp::HEAD_LEN + message.len(), 0);
    let written = mctp::emit(kind, message, out.get_mut(start..).unwrap_or_default());
    debug_assert!(written.is_some(), "a reply fits in a stream's message");
}
