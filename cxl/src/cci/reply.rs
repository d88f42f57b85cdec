//! The payload of a response while it is made.
//!
//! [`Reply::send`] writes a [`Response`]; nothing else ever stands in it.
//!
//! Units: bytes.

use weft_parsers::cci::{Response, ReturnCode, header, mctp};

use super::{Done, Outcome};

/// Longest payload that a response can have on a stream.
pub const PAYLOAD_MAX: usize = mctp::MESSAGE_MAX - header::LEN;
/// Room that is tried first: what all responses but long lists fit in.
const SHORT: usize = 1_024;

/// The payload of a response while it is written.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Sets what is answered.
    ///
    /// # Errors
    /// Internal Error: it is longer than [`PAYLOAD_MAX`], or a list longer than its count can say.
    pub fn send(&mut self, response: &Response<'_>) -> Done {
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

    /// What is answered.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }
}
