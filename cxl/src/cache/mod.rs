//! CXL.cache: a device keeps lines of its host's memory in a cache of its own.
//!
//! [`agent::CacheAgent`] is the device's half: loads and stores in, requests out. [`home::HomeAgent`] is the host's half: it
//! knows which cache holds which line and how, and lets nothing touch a line before the caches that are in its way have
//! answered. Both stand on the parts that keep hosts' caches coherent with G-FAM devices ([`crate::coherence`]), with the
//! parts of host and device exchanged; what differs is the messages, and that data is pulled and forwarded here.
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

/// CQIDs or UQIDs that are free, in the order in which they will be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free(VecDeque<u16>);

impl core::hash::Hash for Free {
    /// By which numbers requests and data go decides nothing.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// A message that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// Its fields. A device leaves its `CacheID` 0: the switch sets it.
    pub head: CacheHead,
    /// Its line, where it brings one.
    pub data: Option<Box<Bytes>>,
    /// Which bytes of the line count; all of them without.
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

    /// The message.
    #[must_use]
    pub fn message(&self) -> CacheMessage<'_> {
        CacheMessage { head: self.head, data: self.data.as_deref(), enables: self.enables }
    }
}
