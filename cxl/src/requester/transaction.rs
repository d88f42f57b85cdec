//! What is asked of a requester, how it ends, and what bounds its TLPs.
//!
//! [`Transaction`] in, [`Done`] out; [`RequesterSpec`] bounds both.
//!
//! Units: bytes.
//! Source: PCIe 6.0 sections 2.2.5, 2.2.7, 2.8; docs/spec/wire-formats.md §3.1.

use weft_dataplane::time::Span;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Mode, Status};

use crate::pci::{ByteEnables, Reg};

/// Names a transaction that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(crate) u64);

/// The operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Memory read; of no bytes: a read of zero length.
    Read {
        /// First byte.
        addr: Hpa,
        /// Bytes.
        len: usize,
    },
    /// Memory write; of no bytes: a write of zero length.
    Write {
        /// First byte.
        addr: Hpa,
        /// What is written.
        data: Vec<u8>,
    },
    /// I/O read.
    IoRead {
        /// First port.
        port: u32,
        /// Bytes.
        len: usize,
    },
    /// I/O write.
    IoWrite {
        /// First port.
        port: u32,
        /// What is written.
        data: Vec<u8>,
    },
    /// Configuration read; its answer are the four bytes of a register.
    ConfigRead {
        /// Whose.
        dest: Bdf,
        /// Which.
        reg: Reg,
        /// There is a bridge on the way.
        type1: bool,
    },
    /// Configuration write.
    ConfigWrite {
        /// Whose.
        dest: Bdf,
        /// Which.
        reg: Reg,
        /// There is a bridge on the way.
        type1: bool,
        /// Value.
        value: u32,
        /// Bytes of it.
        enables: ByteEnables,
    },
    /// UIO read; flit mode only.
    UioRead {
        /// First byte.
        addr: Hpa,
        /// Bytes.
        len: usize,
    },
    /// UIO write; flit mode only.
    UioWrite {
        /// First byte.
        addr: Hpa,
        /// What is written.
        data: Vec<u8>,
    },
}

/// A read or write of any size; the requester splits it into TLPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// What is asked.
    pub operation: Operation,
    /// The LN bit, of memory requests in non-flit mode.
    pub ln: bool,
    /// Port that a UIO request goes to, past the switch's address decode.
    pub to: Option<Pid>,
    /// Traffic Class.
    pub tc: u8,
}

impl From<Operation> for Transaction {
    fn from(operation: Operation) -> Self {
        Self { operation, ln: false, to: None, tc: 0 }
    }
}

/// Why a transaction failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It was answered with a status other than SC.
    #[error("answered with {0:?}")]
    Status(Status),
    /// It was not answered in time.
    #[error("not answered in time")]
    Timeout,
    /// Its data are marked as bad.
    #[error("the data are poisoned")]
    Poisoned,
    /// Its completions do not fit together, or not to it.
    #[error("a completion does not fit the request")]
    Mismatch,
    /// The link has no TLP for it.
    #[error("TLPs of the link's mode have no request of this kind")]
    NoForm,
    /// By CXL.mem: nobody has that memory, or nobody may tell.
    #[error("there is no such memory, or it is not the host's")]
    NoMemory,
    /// By CXL.mem: an address that no message can name.
    #[error("the address is not below 2^52")]
    Address,
    /// It was given up: a reset, or the link went down.
    #[error("given up")]
    GivenUp,
}

/// The end of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub op: OpId,
    /// What was read (nothing of a write), or why not.
    pub result: Result<Vec<u8>, Failure>,
    /// All completions had the LN bit.
    pub ln: bool,
}

/// What a requester is built from: limits of its TLPs, its tags and its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterSpec {
    /// Layout of its TLPs.
    pub mode: Mode,
    /// Most bytes of a write, a power of two, 128..=4096.
    pub payload_max: usize,
    /// Most bytes that one read asks for, a power of two, 128..=4096.
    pub read_max: usize,
    /// No UIO request crosses a multiple of this, a power of two, 128..=4096: memory that is dealt out over several
    /// devices changes from one to the next at such a multiple, and no device answers for another one.
    pub uio_max: usize,
    /// Requests under way, at most as many as there are tags.
    pub in_flight_max: usize,
    /// How long an answer may take.
    pub timeout: Span,
}
