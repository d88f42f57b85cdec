//! Errors of changing a routing table; the command that caused the change answers "Invalid Input".
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.6, §5.1.

use weft_parsers::fabric::{Bdf, Pid};

/// Why a change of a routing table was refused; the table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A table of this size cannot be indexed.
    #[error("a table cannot have {0} entries")]
    Entries(usize),
    /// The segment size code is above 7.
    #[error("segment size code {0} is reserved: 0 to 7")]
    SegmentSize(u8),
    /// Base or limit lies inside of a segment.
    #[error("{what} {address:#x} is no multiple of the segment size")]
    Alignment {
        /// Name of the bound: base or limit.
        what: &'static str,
        /// Address of the bound.
        address: u64,
    },
    /// The limit is not above the base.
    #[error("limit {limit:#x} is not above base {base:#x}")]
    Order {
        /// First address of the window.
        base: u64,
        /// Last address of the window.
        limit: u64,
    },
    /// Two segments of the window would share an entry.
    #[error("a window of {segments} segments is larger than the table of {entries}")]
    Window {
        /// Segments in the window.
        segments: u64,
        /// Entries in the table.
        entries: usize,
    },
    /// Entries or bytes beyond the end of a table.
    #[error("entries {start} and {count} on are beyond a table of {len}")]
    Range {
        /// Index of the first one.
        start: usize,
        /// Number of entries or bytes.
        count: usize,
        /// Length of the table.
        len: usize,
    },
    /// An interleaved segment needs more entries than the interleave DPID table has.
    #[error("{ways} ways from {index} on do not fit in an interleave DPID table of {len}")]
    Idt {
        /// Index of the first way in the table.
        index: u16,
        /// Number of ways of the segment.
        ways: u16,
        /// Length of the interleave DPID table.
        len: usize,
    },
    /// A segment of one way with an index as target, or of several ways with a PID.
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
    /// The access vector does not allow the target.
    #[error("{vector} does not allow {pid}")]
    NotAllowed {
        /// Name of the access vector.
        vector: &'static str,
        /// PID of the target.
        pid: Pid,
    },
    /// A completion could match two entries of a re-router.
    #[error("two entries match {0}")]
    Twice(Bdf),
    /// The switch has no such port.
    #[error("there is no port {0}")]
    Port(u8),
    /// The switch has no such routing group.
    #[error("there is no routing group {0}")]
    Group(u8),
    /// The last primary port of a group is beyond its last port.
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
        /// SPID of TLPs that come in.
        spid: Pid,
        /// DPID of TLPs that come in.
        dpid: Pid,
    },
    /// The virtual switch has no such vPPB, or would have too many.
    #[error("there is no vPPB {0}")]
    Vppb(usize),
    /// A port cannot have this logical device.
    #[error("there is no logical device {0}")]
    Ld(u16),
}
