//! Captures: reading and writing of pcap and pcapng files with nanosecond stamps.
//!
//! [`CaptureReader`] file, packed by gzip or zstd or not -> [`Record`]s of the interfaces that a [`CaptureName`] says;
//! [`CaptureWriter`] frames -> file. Ethernet only; the FCS is checked and taken off where the file says that it is there.
//!
//! Units: ns since the epoch of the file, bytes.
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05 (4.1 to 4.4, 5); docs/spec/pipeline.md §13.

mod fields;
mod interface;
mod link_errors;
mod read;
mod source;
mod unpack;
mod write;

use std::path::PathBuf;

use weft_base::memory::NoMemory;

pub use interface::{CaptureName, Choice, Interface, Shown};
pub use link_errors::LinkErrors;
pub use read::CaptureReader;
pub use write::{CaptureWriter, Direction, Meta};

use crate::port::wire::Flaw;

/// `LINKTYPE_ETHERNET`, the only link type that weft reads and writes.
const LINK_ETHERNET: u16 = 1;
/// Longest frame that a record may hold: libpcap's own limit.
pub const RECORD_LEN_MAX: u32 = 262_144;
/// Magic of pcap with nanoseconds; with microseconds; of a pcapng section header; its byte order.
const MAGIC_NS: u32 = 0xA1B2_3C4D;
const MAGIC_US: u32 = 0xA1B2_C3D4;
const BLOCK_SECTION: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET_OBSOLETE: u32 = 2;
const BLOCK_PACKET_SIMPLE: u32 = 3;
const BLOCK_PACKET: u32 = 6;
/// Options: comment; name, stamp resolution, FCS length and stamp offset of an interface; flags of
/// a packet.
const OPT_COMMENT: u16 = 1;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_IF_FCSLEN: u16 = 13;
const OPT_IF_TSOFFSET: u16 = 14;
const OPT_EPB_FLAGS: u16 = 2;

/// Kind of capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// Classic pcap with nanosecond stamps; has no place for comments and interfaces.
    Pcap,
    /// pcapng.
    PcapNg,
}

impl CaptureFormat {
    /// The format that a file of this name should have: pcapng for `.pcapng` and `.ntar`, else pcap.
    #[must_use]
    pub fn for_path(path: &std::path::Path) -> Self {
        let ng = path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("pcapng") || e.eq_ignore_ascii_case("ntar"));
        if ng { Self::PcapNg } else { Self::Pcap }
    }
}

/// What a capture has of a frame's FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fcs {
    /// The file says that frames have none.
    #[default]
    Absent,
    /// The capture cut the frame off before the end of its FCS.
    CutOff,
    /// It is that of the frame.
    Right,
    /// It is not: the frame was damaged on its way to where it was captured.
    Wrong,
}

/// One frame of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, ns since the epoch; 0 where the file does not say.
    pub ts_ns: u64,
    /// The frame without FCS, as far as it was captured.
    pub data: Vec<u8>,
    /// Bytes that the frame had on the wire, without FCS.
    pub orig_len: u32,
    /// Its FCS, which `data` and `orig_len` are without.
    pub fcs: Fcs,
    /// What the device that captured it saw go wrong on the link.
    pub link_errors: LinkErrors,
    /// Interface, numbered from 0 over the whole file.
    pub interface: u32,
    /// First comment on the packet, if it has any.
    pub comment: Option<String>,
}

impl Record {
    /// Whether the capture cut the frame off.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.orig_len)
    }

    /// What is wrong with the frame on the wire of a port that receives it.
    #[must_use]
    pub fn flaw(&self) -> Flaw {
        if self.is_truncated() {
            Flaw::Truncated // its FCS is not there to be checked
        } else if self.fcs == Fcs::Wrong || self.link_errors.is_damaged() {
            Flaw::Fcs
        } else if self.link_errors.is_runt() {
            Flaw::Runt
        } else {
            Flaw::None
        }
    }
}

/// Where in a file an error was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Record that was being read or written, from 1; 0 before the first.
    pub record: u64,
    /// Byte where its header starts.
    pub offset: u64,
}

impl core::fmt::Display for Place {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: record {} at byte {}", self.path.display(), self.record, self.offset)
    }
}

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file could not be opened or made.
    #[error("{}: cannot open capture", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// There is no memory for the frames that wait to be written.
    #[error("{}: cannot write a capture", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// How much it would be.
        source: NoMemory,
    },
    /// A read failed.
    #[error("{at}: read failed")]
    Read {
        /// Where.
        at: Place,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A write failed.
    #[error("{at}: write failed")]
    Write {
        /// Where.
        at: Place,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file ends in the middle of a header, block or frame.
    #[error("{at}: file ends inside {what}: {need} bytes needed, {had} there")]
    Short {
        /// Where.
        at: Place,
        /// What was being read.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes there.
        had: u64,
    },
    /// Neither pcap nor pcapng.
    #[error("{}: not a pcap or pcapng file: starts with {magic:#010x}", path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first four bytes as a big-endian number.
        magic: u32,
    },
    /// Packed by a program that is not read.
    #[error("{}: packed, and neither by gzip nor by zstd: unpack it first ({tool})", path.display())]
    Packed {
        /// The file.
        path: PathBuf,
        /// What unpacks it.
        tool: &'static str,
    },
    /// None of the interfaces that were wanted.
    #[error("{}: no interface {wanted}: it has {found}", path.display())]
    NoInterface {
        /// The file.
        path: PathBuf,
        /// What was wanted.
        wanted: String,
        /// What it has.
        found: String,
    },
    /// Not Ethernet.
    #[error("{at}: link type {link_type} is not Ethernet (1)")]
    LinkType {
        /// Where.
        at: Place,
        /// What the file says.
        link_type: u16,
    },
    /// A field has a value that the format, or weft, does not allow.
    #[error("{at}: {what} is {had}, must be {want}")]
    Field {
        /// Where.
        at: Place,
        /// Which field.
        what: &'static str,
        /// Its value.
        had: u64,
        /// What is possible.
        want: &'static str,
    },
}

#[cfg(test)]
mod tests;
