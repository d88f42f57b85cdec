//! CCI over a byte stream such as a TCP connection: bytes in, bytes out, no socket.
//!
//! [`StreamServer::receive`] takes received bytes, carries out each complete request and appends the responses.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1 (MCTP types 07h and 08h).
//!
//! Late responses, as from beyond a tunnel, are appended by [`StreamServer::resolve`].

use std::collections::BTreeSet;

use weft_dataplane::time::Instant;
use weft_parsers::ParseError;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};

use super::Component;
use super::common::{Answer, Ticket};
use super::requests::Requests;
use super::rights::Right;
use super::session::Session;

/// Reason to close a CCI connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Framing is lost: the begin of the next message is unknown.
    #[error("the stream is out of step: {0}")]
    OutOfStep(ParseError),
}

/// Serves CCI messages that come over one byte stream.
#[derive(Clone, Debug)]
pub struct StreamServer {
    requests: Requests<MessageType>,
    /// Bytes of an incomplete message, and messages left for the next call.
    bytes: Vec<u8>,
}

impl StreamServer {
    /// A connection without any input yet, which may claim the component.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self { requests: Requests::new(session, Right::Primary), bytes: Vec::new() }
    }

    /// Changes the most that the connection may become.
    #[must_use]
    pub fn with_right(self, right: Right) -> Self {
        Self { requests: self.requests.with_right(right), ..self }
    }

    /// Session of the connection.
    #[must_use]
    pub const fn session(&self) -> Session {
        self.requests.session()
    }

    /// Number of messages that were no requests.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.requests.ignored()
    }

    /// Tickets of all pending requests.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.requests.tickets()
    }

    /// Number of buffered bytes of an incomplete message, at most [`mctp::STREAM_MAX`].
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.bytes.len()
    }

    /// Appends `bytes` to the input, carries out complete messages, and appends the responses to `out`.
    ///
    /// # Errors
    /// [`StreamError`]: the connection must be closed. `out` has the responses to earlier messages.
    pub fn receive(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), StreamError> {
        self.receive_some(component, now, bytes, usize::MAX, out).map(drop)
    }

    /// As [`receive`](Self::receive), until `out` has at least `most` bytes. Returns whether complete messages may
    /// be left, for another call without bytes.
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
            // Before each message: a client that does not read its responses must not make `out` grow.
            if out.len() >= most {
                is_left = !rest.is_empty();
                break;
            }
            // An error leaves `bytes` empty: the connection is closed, and nothing of its input can be used.
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

    /// Appends the response to a pending request; returns whether that belongs to this connection.
    pub fn resolve(&mut self, answer: &Answer, out: &mut Vec<u8>) -> bool {
        let Some(kind) = self.requests.resolve(answer) else { return false };
        frame(kind, &answer.message, out);
        true
    }
}

/// Appends a notification of an event, as FM-API message (type 07h).
pub fn notify(message: &[u8], out: &mut Vec<u8>) {
    frame(MessageType::FmApi, message, out);
}

/// Appends `message` with its length and type in front.
fn frame(kind: MessageType, message: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + mctp::HEAD_LEN + message.len(), 0);
    let written = mctp::emit(kind, message, out.get_mut(start..).unwrap_or_default());
    debug_assert!(written.is_some(), "a reply fits in a stream's message");
}
