//! Why a table does not take what it is told; the command behind it answers "Invalid Input".
//! [`TableError`], `Copy`.
//!
//! Units: indices and bytes as named.
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.1.

use weft_parsers::fabric::{Bdf, Pid};

/// Why a change of a routing table was refused; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A table of a size that cannot be indexed.
    #[error("a table cannot have {0} entries")]
    Entries(usize),
    /// Segment size code beyond 7.
    #[error("segment size code {0} is reserved: 0 to 7")]
    SegmentSize(u8),
    /// Base or limit lies inside of a segment.
    #[error("{what} {address:#x} is no multiple of the segment size")]
    Alignment {
        /// Base or limit.
        what: &'static str,
        /// Its address.
        address: u64,
    },
    /// The limit is not above the base.
    #[error("limit {limit:#x} is not above base {base:#x}")]
    Order {
        /// First address.
        base: u64,
        /// Last address.
        limit: u64,
    },
    /// Two segments of the window would share an entry.
    #[error("a window of {segments} segments is larger than the table of {entries}")]
    Window {
        /// Segments of the window.
        segments: u64,
        /// Entries of the table.
        entries: usize,
    },
    /// Entries beyond the table's end.
    #[error("entries {start} and {count} on are beyond a table of {len}")]
    Range {
        /// First index.
        start: usize,
        /// How many.
        count: usize,
        /// Entries or bytes that there are.
        len: usize,
    },
    /// An interleaved segment needs places that the interleave DPID table lacks.
    #[error("{ways} ways from {index} on do not fit in an interleave DPID table of {len}")]
    Idt {
        /// First place.
        index: u16,
        /// Ways.
        ways: u16,
        /// Places that there are.
        len: usize,
    },
    /// One way with an index, or several with a PID.
    #[error("a segment of {0} ways has the wrong kind of target")]
    Target(u16),
    /// A routing group that would need queue depths of other switches.
    #[error(
        "depths of queues further on are not known here: use mode 1, congestion avoiding, which goes by those of this switch"
    )]
    Mode,
    /// `0xFFF` where a PID must stand.
    #[error("PID fff is never assigned")]
    NoPid,
    /// The access vector that counts has no bit for the target.
    #[error("{vector} does not allow {pid}")]
    NotAllowed {
        /// Which vector.
        vector: &'static str,
        /// The target.
        pid: Pid,
    },
    /// A completion could match two entries of a re-router.
    #[error("two entries match {0}")]
    Twice(Bdf),
    /// A port that the switch does not have.
    #[error("there is no port {0}")]
    Port(u8),
    /// A routing group that the switch does not have.
    #[error("there is no routing group {0}")]
    Group(u8),
    /// The last primary port of a group lies behind its last port.
    #[error("primary port {primary} is beyond the last port {highest}")]
    Primary {
        /// Index of the last primary port.
        primary: u8,
        /// Index of the last port.
        highest: u8,
    },
    /// The PID belongs to another target.
    #[error("{0} is assigned to another target")]
    Assigned(Pid),
    /// The same pair of PIDs is bound to two vPPBs.
    #[error("{spid} to {dpid} is bound twice")]
    BoundTwice {
        /// Source of what comes in.
        spid: Pid,
        /// Destination of what comes in.
        dpid: Pid,
    },
    /// A vPPB that the virtual switch does not have, or more than one can have.
    #[error("there is no vPPB {0}")]
    Vppb(usize),
    /// A logical device that a port cannot have.
    #[error("there is no logical device {0}")]
    Ld(u16),
}
