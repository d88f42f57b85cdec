//! Fabric memory transfers: memory registered, shared and copied by trains of UIO requests.
//!
//! [`Engine`] is plain state, driven by `poll(now, port, memory)`: [`UioPort`] sends requests,
//! [`Memory`] holds what is registered, [`Message`]s between peers are carried by whoever owns the engine.
//!
//! Units: bytes; picoseconds; fabric addresses are `Hpa`, others are their owner's.
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

/// Names a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// The handle of this number, which need not be one that was given.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Names a peer; the transport gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Names an asynchronous transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferReq(u64);

impl TransferReq {
    /// The transfer of this number, which need not be one that was begun.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
