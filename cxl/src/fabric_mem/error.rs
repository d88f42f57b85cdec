//! Refusals of calls, and reasons why a transfer failed. [`Error`] is the result of a call and means that nothing has
//! changed; [`Reason`] belongs to one transfer. Addresses are the owner's unless they are `Hpa`.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6.

use weft_parsers::fabric::{Hpa, Pid};

use super::port::MemKind;
use super::{Handle, PeerId, TransferReq};

/// Why a call was refused. The call has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Transfers are off (`enable_use_fabric_mem`).
    #[error("fabric memory is off: set enable_use_fabric_mem to 1")]
    Disabled,
    /// The engine was finalised: only a new one can be used.
    #[error("the engine was finalized")]
    Finalized,
    /// Two options exclude each other.
    #[error("enable_use_fabric_mem and buffer_pool exclude each other")]
    OptionConflict,
    /// An option is not known, or its value is out of range.
    #[error("option {key} = {value:?}: {why}")]
    Option {
        key: String,
        value: String,
        /// Description of the values that are valid.
        why: &'static str,
    },
    /// A range is empty or ends beyond 64 bits.
    #[error("range at {addr:#x} of {len:#x} bytes is empty or ends beyond 64 bits")]
    Extent { addr: u64, len: u64 },
    /// A range overlaps a registration, `with`.
    #[error("range at {addr:#x} overlaps handle {}", with.0)]
    Overlap { addr: u64, with: Handle },
    /// Not all memory of a range is of the given kind.
    #[error("memory at {addr:#x} is not all {kind:?} memory")]
    Kind {
        addr: u64,
        /// The kind that the caller named.
        kind: MemKind,
    },
    /// Device memory without a place on the fabric cannot be shared.
    #[error("device memory at {addr:#x} has no address on the fabric")]
    NoPlace { addr: u64 },
    /// The window for exports is full.
    #[error("no {len:#x} bytes are left in the window for exports")]
    WindowFull { len: u64 },
    /// Free pages of the window for exports showed other memory before, which peers still refer to.
    #[error(
        "{len:#x} bytes in the window for exports are free only once peer {} is disconnected: it was told of memory that was there before",
        peer.0
    )]
    WindowRetired {
        len: u64,
        /// One of these peers.
        peer: PeerId,
    },
    /// The window shows registered memory, so it cannot be moved.
    #[error("the window for exports cannot be moved while memory that it shows is registered")]
    WindowInUse,
    /// No registration has this handle.
    #[error("handle {} is not registered", .0.0)]
    UnknownHandle(Handle),
    /// Transfers use the registration; `transfers` is their number.
    #[error("{transfers} transfers use handle {}", handle.0)]
    Busy { handle: Handle, transfers: usize },
    /// The peer is not connected.
    #[error("peer {} is not connected", .0.0)]
    NotConnected(PeerId),
    /// The peer is connected or connecting already.
    #[error("peer {} is connected already", .0.0)]
    Connected(PeerId),
    /// A share of the peer is invalid.
    #[error("peer {}: share {index} {why}", peer.0)]
    BadShare {
        peer: PeerId,
        index: usize,
        /// Rule that it breaks.
        why: &'static str,
    },
    /// The fabric address table has no segment for a PID.
    #[error("no fabric segment is known for port id {0}")]
    NoSegment(Pid),
    /// A transfer has no operation.
    #[error("the transfer has no operation")]
    Empty,
    /// A local range of an operation is not within one registration.
    #[error("operation {index}: local range at {addr:#x} is not within one registration")]
    Local { index: usize, addr: u64 },
    /// A remote range of an operation is not within one import.
    #[error("operation {index}: remote range at {addr:#x} is not within what the peer shares")]
    Remote { index: usize, addr: u64 },
    /// Two operations write the same bytes, in no defined order.
    #[error("operations {first} and {second} write to the same bytes")]
    Destinations { first: usize, second: usize },
    /// An operation reads bytes that one of the same transfer writes, in no defined order.
    #[error("operation {reads} reads bytes that operation {writes} writes")]
    Overwritten {
        reads: usize,
        /// Index of the writing operation; may be the same one.
        writes: usize,
    },
    /// Too many transfers are under way or have results that were not read; their number.
    #[error("{0} transfers are in progress, or their results were not read")]
    TooMany(usize),
    /// The transfer was never begun, or its result was read already.
    #[error("transfer {} is unknown: it was never begun, or its result was read already", .0.0)]
    UnknownRequest(TransferReq),
    /// A synchronous transfer failed.
    #[error("the transfer failed: {0}")]
    Failed(Reason),
    /// A synchronous transfer took too long.
    #[error("the transfer did not end in time")]
    Timeout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The completer refused: status UR.
    #[error("unsupported request at {0}")]
    Unsupported(Hpa),
    /// The completer aborted: status CA.
    #[error("completer abort at {0}")]
    Aborted(Hpa),
    /// The data is poisoned.
    #[error("poisoned data for {0}")]
    Poisoned(Hpa),
    /// A completion does not fit its request in kind, offset or length, or brings bytes twice.
    #[error("malformed completion for {0}")]
    Malformed(Hpa),
    /// A request was not completed in time. It is never sent again, as a write may have been carried out.
    #[error("no completion for {0}")]
    Lost(Hpa),
    /// The memory at a local address could not be read or written.
    #[error("local memory at {0:#x} cannot be accessed")]
    Memory(u64),
    /// The device of the registered memory is gone.
    #[error("the memory of handle {} is gone", .0.0)]
    Revoked(Handle),
    /// Either side closed the connection.
    #[error("disconnected")]
    Disconnected,
    #[error("the peer is gone")]
    PeerLost,
}
