//! CXL.cache: a device keeps lines of its host's memory in a cache of its own.
//!
//! [`agent::CacheAgent`] is the device's half: loads and stores in, requests out. [`home::HomeAgent`] is the host's
//! half: it records which cache holds which line and how, and lets no access touch a line before the caches in its way
//! have answered. Both use the state machines that keep hosts' caches coherent with G-FAM devices
//! ([`crate::coherence`]), with host and device exchanged. The messages differ, and here the host pulls the data of
//! writes, and snoop answers carry changed lines.
//!
//! Source: CXL 3.1 sections 3.2.2 to 3.2.5; docs/spec/cxl-fabric.md "CXL.cache"; docs/spec/wire-formats.md §3.12.

pub mod agent;
pub mod home;
mod requester;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use weft_parsers::cxl_cache::{CacheHead, CacheMessage};
use weft_parsers::cxl_mem::LINE;

use crate::coherence::cache::Bytes;

pub use requester::CacheRequester;

/// Free CQIDs or UQIDs, in order of their next use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free(VecDeque<u16>);

impl core::hash::Hash for Free {
    /// The order of ids changes no decision, so the exploration of all orders takes states that differ only in it as
    /// one.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Fields of the message. A device leaves `CacheID` 0: the switch sets it from the port.
    pub head: CacheHead,
    /// The line it carries, if any.
    pub data: Option<Box<Bytes>>,
    /// Byte enables of the line (bit n: byte n); `None`: all bytes.
    pub enables: Option<u64>,
}

impl From<&CacheMessage<'_>> for Outgoing {
    fn from(message: &CacheMessage<'_>) -> Self {
        let data = message.data.map(|line| Box::new(*line));
        Self { head: message.head, data, enables: message.enables }
    }
}

impl Outgoing {
    const fn of(head: CacheHead) -> Self {
        Self { head, data: None, enables: None }
    }

    fn with_data(head: CacheHead, data: &[u8; LINE]) -> Self {
        Self { head, data: Some(Box::new(*data)), enables: None }
    }

    #[must_use]
    pub fn message(&self) -> CacheMessage<'_> {
        CacheMessage { head: self.head, data: self.data.as_deref(), enables: self.enables }
    }
}
