//! Captures: reads and writes pcap and pcapng files with nanosecond stamps.
//!
//! [`CaptureReader`] reads the [`Record`]s of the interfaces that a [`CaptureName`] chooses, also from files packed by
//! gzip or zstd. [`CaptureWriter`] writes frames. Ethernet only; an FCS that the file has is checked and removed.
//!
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

use crate::port::flaw::Flaw;

/// `LINKTYPE_ETHERNET`, the only link type that weft reads and writes.
const LINK_ETHERNET: u16 = 1;
/// Longest frame that a record may hold: libpcap's own limit.
pub const RECORD_LEN_MAX: u32 = 262_144;
/// First words of files: pcap with nanoseconds, pcap with microseconds, pcapng section header; then the section's
/// byte-order magic.
const MAGIC_NS: u32 = 0xA1B2_3C4D;
const MAGIC_US: u32 = 0xA1B2_C3D4;
const BLOCK_SECTION: u32 = 0x0A0D_0D0A;
const BYTE_ORDER: u32 = 0x1A2B_3C4D;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET_OBSOLETE: u32 = 2;
const BLOCK_PACKET_SIMPLE: u32 = 3;
const BLOCK_PACKET: u32 = 6;
/// Options: comment; name, stamp resolution, FCS length and stamp offset of an interface; flags of a packet.
const OPT_COMMENT: u16 = 1;
const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_IF_FCSLEN: u16 = 13;
const OPT_IF_TSOFFSET: u16 = 14;
const OPT_EPB_FLAGS: u16 = 2;

/// Kind of capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// Classic pcap with nanosecond stamps; cannot hold comments and interfaces.
    Pcap,
    /// pcapng: has interfaces, comments and directions.
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

/// State of a frame's FCS in a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fcs {
    /// The file says that frames have none.
    #[default]
    Absent,
    /// The capture cut the frame off before the end of its FCS.
    CutOff,
    /// The FCS fits the frame.
    Right,
    /// The FCS does not fit: the frame was damaged on its way to the place of capture.
    Wrong,
}

/// One frame of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time of capture in ns since the epoch; 0 if the file does not say.
    pub ts_ns: u64,
    /// The frame without FCS, as far as it was captured.
    pub data: Vec<u8>,
    /// Length of the frame on the wire in bytes, without FCS.
    pub orig_len: u32,
    /// State of the FCS, which was removed from `data` and `orig_len`.
    pub fcs: Fcs,
    /// Errors that the capturing device saw on the link.
    pub link_errors: LinkErrors,
    /// Interface, numbered from 0 over the whole file.
    pub interface: u32,
    /// First comment on the packet; `None` if there is none.
    pub comment: Option<String>,
}

impl Record {
    /// Whether the capture cut the frame off.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        (self.data.len() as u64) < u64::from(self.orig_len)
    }

    /// How a port that receives this frame would find it damaged.
    #[must_use]
    pub fn flaw(&self) -> Flaw {
        if self.is_truncated() {
            Flaw::Truncated // without its FCS it cannot be checked for damage
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
    /// Path of the file, as it was given.
    pub path: PathBuf,
    /// Record being read or written, from 1; 0 before the first.
    pub record: u64,
    /// Offset of the record's header in the file, in bytes.
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
        /// Path of the file.
        path: PathBuf,
        /// The system's answer to open or create.
        source: std::io::Error,
    },
    /// There is no memory for the frames waiting to be written.
    #[error("{}: cannot write a capture", path.display())]
    Memory {
        /// Path of the file.
        path: PathBuf,
        /// Size of the refused allocation.
        source: NoMemory,
    },
    /// A read failed.
    #[error("{at}: read failed")]
    Read {
        /// Place of the record being read.
        at: Place,
        /// The system's answer to the read.
        source: std::io::Error,
    },
    /// A write failed.
    #[error("{at}: write failed")]
    Write {
        /// Place of the record being written.
        at: Place,
        /// The system's answer to the write.
        source: std::io::Error,
    },
    /// The file ends in the middle of a header, block or frame.
    #[error("{at}: file ends inside {what}: {need} bytes needed, {had} there")]
    Short {
        /// Place of the record that is cut off.
        at: Place,
        /// The part of the file that is cut off.
        what: &'static str,
        /// Bytes that this part has.
        need: u64,
        /// Bytes of it that are in the file.
        had: u64,
    },
    /// The file is neither pcap nor pcapng.
    #[error("{}: not a pcap or pcapng file: starts with {magic:#010x}", path.display())]
    Magic {
        /// Path of the file.
        path: PathBuf,
        /// Its first four bytes as a big-endian number.
        magic: u32,
    },
    /// The file is packed by a program that weft does not read.
    #[error("{}: packed, and neither by gzip nor by zstd: unpack it first ({tool})", path.display())]
    Packed {
        /// Path of the file.
        path: PathBuf,
        /// Program that unpacks it.
        tool: &'static str,
    },
    /// The file has none of the chosen interfaces.
    #[error("{}: no interface {wanted}: it has {found}", path.display())]
    NoInterface {
        /// Path of the file.
        path: PathBuf,
        /// The interfaces that were chosen.
        wanted: String,
        /// The interfaces that the file has.
        found: String,
    },
    /// The chosen interface is not Ethernet.
    #[error("{at}: link type {link_type} is not Ethernet (1)")]
    LinkType {
        /// Place of its first frame.
        at: Place,
        /// The `LINKTYPE_` number in the file.
        link_type: u16,
    },
    /// A field has a value that the format, or weft, does not allow.
    #[error("{at}: {what} is {had}, must be {want}")]
    Field {
        /// Place of the record with the field.
        at: Place,
        /// Name of the field.
        what: &'static str,
        /// Its value in the file.
        had: u64,
        /// The values that are allowed.
        want: &'static str,
    },
}

#[cfg(test)]
mod tests;
