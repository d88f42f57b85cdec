//! What calls refuse, and why a transfer failed.
//! [`Error`] is a call's answer and changes nothing; [`Reason`] belongs to one transfer.
//!
//! Units: bytes; addresses of the owner unless they are `Hpa`.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6.

use weft_parsers::fabric::{Hpa, Pid};

use super::port::MemKind;
use super::{Handle, PeerId, TransferReq};

/// Why a call was refused. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The mode is off.
    #[error("fabric memory is off: set enable_use_fabric_mem to 1")]
    Disabled,
    /// The engine was finalized.
    #[error("the engine was finalized")]
    Finalized,
    /// Two options exclude each other.
    #[error("enable_use_fabric_mem and buffer_pool exclude each other")]
    OptionConflict,
    /// An option is not known, or its value is out of range.
    #[error("option {key} = {value:?}: {why}")]
    Option {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What was expected.
        why: &'static str,
    },
    /// A range is empty or ends beyond 64 bits.
    #[error("range at {addr:#x} of {len:#x} bytes is empty or ends beyond 64 bits")]
    Extent {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// A range overlaps a registration.
    #[error("range at {addr:#x} overlaps handle {}", with.0)]
    Overlap {
        /// First address.
        addr: u64,
        /// The registration.
        with: Handle,
    },
    /// The memory at a range is not, or not all, of the kind that was named.
    #[error("memory at {addr:#x} is not all {kind:?} memory")]
    Kind {
        /// First address.
        addr: u64,
        /// What was named.
        kind: MemKind,
    },
    /// Device memory that has no place on the fabric cannot be shared.
    #[error("device memory at {addr:#x} has no address on the fabric")]
    NoPlace {
        /// First address.
        addr: u64,
    },
    /// The window for exports is full.
    #[error("no {len:#x} bytes are left in the window for exports")]
    WindowFull {
        /// Bytes that were wanted.
        len: u64,
    },
    /// What is free of the window for exports was other memory before, which peers still take to be there.
    #[error(
        "{len:#x} bytes in the window for exports are free only once peer {} is disconnected: it was told of memory that was there before",
        peer.0
    )]
    WindowRetired {
        /// Bytes that were wanted.
        len: u64,
        /// One of those peers.
        peer: PeerId,
    },
    /// Memory is registered that has its place in the window.
    #[error("the window for exports cannot be moved while memory that it shows is registered")]
    WindowInUse,
    /// No such registration.
    #[error("handle {} is not registered", .0.0)]
    UnknownHandle(Handle),
    /// Transfers use the registration.
    #[error("{transfers} transfers use handle {}", handle.0)]
    Busy {
        /// The registration.
        handle: Handle,
        /// How many.
        transfers: usize,
    },
    /// The peer is not connected.
    #[error("peer {} is not connected", .0.0)]
    NotConnected(PeerId),
    /// The peer is connected, or about to be.
    #[error("peer {} is connected already", .0.0)]
    Connected(PeerId),
    /// The peer's shares make no sense.
    #[error("peer {}: share {index} {why}", peer.0)]
    BadShare {
        /// Who sent it.
        peer: PeerId,
        /// Which one.
        index: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The fabric address table has no segment for a port id.
    #[error("no fabric segment is known for port id {0}")]
    NoSegment(Pid),
    /// A transfer has no operation.
    #[error("the transfer has no operation")]
    Empty,
    /// A local range of an operation is not within one registration.
    #[error("operation {index}: local range at {addr:#x} is not within one registration")]
    Local {
        /// Which operation.
        index: usize,
        /// First address.
        addr: u64,
    },
    /// A remote range of an operation is not within one import.
    #[error("operation {index}: remote range at {addr:#x} is not within what the peer shares")]
    Remote {
        /// Which operation.
        index: usize,
        /// First address.
        addr: u64,
    },
    /// Two operations write to the same bytes, in no order.
    #[error("operations {first} and {second} write to the same bytes")]
    Destinations {
        /// One of them.
        first: usize,
        /// The other.
        second: usize,
    },
    /// An operation reads what one of the same transfer writes, in no order.
    #[error("operation {reads} reads bytes that operation {writes} writes")]
    Overwritten {
        /// One of them.
        reads: usize,
        /// The other, or the same.
        writes: usize,
    },
    /// So many transfers run or have results that nobody asked for.
    #[error("{0} transfers are in progress, or their results were not read")]
    TooMany(usize),
    /// No such transfer, or its result was taken.
    #[error("transfer {} is unknown: it was never begun, or its result was read already", .0.0)]
    UnknownRequest(TransferReq),
    /// A synchronous transfer failed.
    #[error("the transfer failed: {0}")]
    Failed(Reason),
    /// A synchronous transfer took too long.
    #[error("the transfer did not end in time")]
    Timeout,
}

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Whoever answers for the address refused: status UR.
    #[error("unsupported request at {0}")]
    Unsupported(Hpa),
    /// Whoever answers for the address gave up: status CA.
    #[error("completer abort at {0}")]
    Aborted(Hpa),
    /// The data is marked as bad.
    #[error("poisoned data for {0}")]
    Poisoned(Hpa),
    /// A completion does not fit its request: kind, place, length, or twice the same bytes.
    #[error("malformed completion for {0}")]
    Malformed(Hpa),
    /// A request was not completed in time; it is not sent again.
    #[error("no completion for {0}")]
    Lost(Hpa),
    /// The memory at a local address could not be read or written.
    #[error("local memory at {0:#x} cannot be accessed")]
    Memory(u64),
    /// The device of the memory that was registered is not there any more.
    #[error("the memory of handle {} is gone", .0.0)]
    Revoked(Handle),
    /// The connection was closed, by either side.
    #[error("disconnected")]
    Disconnected,
    /// The peer is gone.
    #[error("the peer is gone")]
    PeerLost,
}
