//! Transactions of a requester, their results, and the limits of its TLPs.
//!
//! Units: bytes.
//! Source: PCIe 6.0 sections 2.2.5, 2.2.7, 2.8; docs/spec/wire-formats.md §3.1.

use weft_dataplane::time::Span;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Mode, Status};

use crate::pci::{ByteEnables, Reg};

/// Id of a submitted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(crate) u64);

/// The operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Memory read; `len` 0 is a read of zero length.
    Read {
        /// Address of the first byte.
        addr: Hpa,
        /// Number of bytes to read.
        len: usize,
    },
    /// Memory write; empty `data` is a write of zero length.
    Write {
        /// Address of the first byte.
        addr: Hpa,
        /// Bytes to write, in order of address.
        data: Vec<u8>,
    },
    /// I/O read, within one double word.
    IoRead {
        /// Number of the first I/O port.
        port: u32,
        /// Number of bytes to read.
        len: usize,
    },
    /// I/O write, within one double word.
    IoWrite {
        /// Number of the first I/O port.
        port: u32,
        /// Bytes to write, in order of address.
        data: Vec<u8>,
    },
    /// Configuration read; returns the four bytes of a register.
    ConfigRead {
        /// Function that has the register.
        dest: Bdf,
        reg: Reg,
        /// Type 1: a bridge is on the way.
        type1: bool,
    },
    /// Configuration write of a register.
    ConfigWrite {
        /// Function that has the register.
        dest: Bdf,
        reg: Reg,
        /// Type 1: a bridge is on the way.
        type1: bool,
        value: u32,
        /// Bytes of the register to write.
        enables: ByteEnables,
    },
    /// UIO read; flit mode only.
    UioRead {
        /// Address of the first byte.
        addr: Hpa,
        /// Number of bytes to read.
        len: usize,
    },
    /// UIO write; flit mode only.
    UioWrite {
        /// Address of the first byte.
        addr: Hpa,
        /// Bytes to write, in order of address.
        data: Vec<u8>,
    },
}

/// A read or write of any size; the requester splits it into TLPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub operation: Operation,
    /// LN bit, for memory requests in non-flit mode.
    pub ln: bool,
    /// Destination port of a UIO request that bypasses the switch's address decode.
    pub to: Option<Pid>,
    /// Traffic Class, 0..=7.
    pub tc: u8,
}

impl From<Operation> for Transaction {
    fn from(operation: Operation) -> Self {
        Self { operation, ln: false, to: None, tc: 0 }
    }
}

/// Reason why a transaction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was completed with a status other than SC.
    #[error("answered with {0:?}")]
    Status(Status),
    /// It was not completed in time.
    #[error("not answered in time")]
    Timeout,
    /// Its data is marked as poisoned.
    #[error("the data are poisoned")]
    Poisoned,
    /// Its completions do not fit together, or do not fit the request.
    #[error("a completion does not fit the request")]
    Mismatch,
    /// The link's mode has no such TLP.
    #[error("TLPs of the link's mode have no request of this kind")]
    NoForm,
    /// CXL.mem: no device has that memory, or this host may not use it.
    #[error("there is no such memory, or it is not the host's")]
    NoMemory,
    /// CXL.mem: the address does not fit a message.
    #[error("the address is not below 2^52")]
    Address,
    /// It was abandoned by a reset or a loss of the link.
    #[error("given up")]
    GivenUp,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Id returned when it was submitted.
    pub op: OpId,
    /// Data of a read (empty for a write), or the failure.
    pub result: Result<Vec<u8>, Failure>,
    /// Whether all completions had the LN bit.
    pub ln: bool,
}

/// Limits of a requester's TLPs, tags and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterSpec {
    /// Mode of the link, which decides the layout of TLPs.
    pub mode: Mode,
    /// Largest write in bytes, a power of two, 128..=4096.
    pub payload_max: usize,
    /// Largest read request in bytes, a power of two, 128..=4096.
    pub read_max: usize,
    /// No UIO request crosses a multiple of this, a power of two, 128..=4096. Interleaved memory changes from one
    /// device to the next at such a multiple, and no device answers for another one.
    pub uio_max: usize,
    /// Limit of requests under way; the number of tags is another one.
    pub in_flight_max: usize,
    /// Longest wait for a completion.
    pub timeout: Span,
}
