//! Fabric memory transfers: memory is registered, shared with peers, and copied by trains of UIO requests.
//!
//! [`Engine`] is plain state, driven by `poll(now, port, memory)`: [`UioPort`] sends requests, [`Memory`] holds the
//! registered bytes, and the owner of the engine carries the [`Message`]s between peers. Fabric addresses are `Hpa`;
//! other addresses are their owner's.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6, §5.5.

pub mod engine;
pub mod error;
pub mod options;
pub mod peers;
pub mod pools;
pub mod port;
pub mod registry;
pub mod train;

mod run;

pub use engine::{Engine, EngineSpec, Op, Status, TransferOpDesc, Usage};
pub use error::{Error, Reason};
pub use options::Options;
pub use peers::{Message, Segment};
pub use port::{
    Answer, Body, Completion, MemKind, Memory, NotTaken, Place, Request, StreamId, Tag, UioPort,
};
pub use registry::{MemDesc, Share, Window};

/// Number of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// The handle with this number, whether or not it was ever issued.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Number of a peer, chosen by the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Number of an asynchronous transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferReq(u64);

impl TransferReq {
    /// The transfer with this number, whether or not it was ever begun.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
