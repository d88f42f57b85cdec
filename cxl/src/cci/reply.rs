//! The payload of a response while it is being written.
//!
//! [`Reply::send`] encodes a [`Response`]; a reply never holds anything else.
//!
//! Units: bytes.

use weft_parsers::cci::{Response, ReturnCode, header, mctp};

use super::{Done, Outcome};

/// Longest payload of a response on a stream, bytes.
pub const PAYLOAD_MAX: usize = mctp::MESSAGE_MAX - header::LEN;
/// Room tried first, in bytes: enough for all responses but long lists.
const SHORT: usize = 1_024;

/// The payload of a response while it is being written.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// An empty reply.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Encodes the response into the reply.
    ///
    /// # Errors
    /// Internal Error: it is longer than [`PAYLOAD_MAX`], or a list is longer than its count can express.
    pub fn send(&mut self, response: &Response<'_>) -> Done {
        // Most responses are short, and need no 64 KiB to be cleared.
        for room in [SHORT, PAYLOAD_MAX] {
            self.bytes.clear();
            self.bytes.resize(room, 0);
            if let Some(len) = response.emit(&mut self.bytes) {
                self.bytes.truncate(len);
                return Ok(Outcome::Done);
            }
        }
        self.bytes.clear();
        Err(ReturnCode::InternalError)
    }

    /// The payload of the response.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }
}
