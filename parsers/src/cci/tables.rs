//! Tables that commands get and set in parts: DRT, RGT, segments, interleave DPIDs, re-router, bit vectors.
//!
//! A Get names a range of entries and is answered with that range and its entries; a Set carries
//! the same and has an empty answer. Ranges count entries, those of vectors bytes.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5708h to 5716h), §4.6; CXL 3.1 sections 7.7.13.10 to
//! 7.7.13.24, 7.7.14.

use super::layout::{codes, message, record};
use super::wire::{List, Payload, Wire, front, get, put_front, room, set, split_list};
use crate::ParseError;
use crate::fabric::{DrtEntry, Hpa, Pid, RgtEntry};

record! {
    /// Request of Get DRT (5708h) and Get RGT (570Ah).
    struct RoutingRange: 6 {
        /// Number of the table.
        0 => table: u8,
        /// Entries to return at most.
        2 => count: u16,
        /// Index of the first entry: a DPID, or a group's index.
        4 => start: u16,
    }
}

message! {
    /// Response of Get DRT (5708h).
    struct Drt: 8 {
        /// Number of the DRT.
        0 => table: u8,
        /// DPID of the first entry.
        4 => start: u16,
        /// Number of the RGT that its entries index; read-only.
        6 => rgt: u8,
    }
    /// Entries for DPIDs `start`, `start` + 1 and so on.
    2 as u16 => entries: [DrtEntry]
}

message! {
    /// Request of Set DRT (5709h).
    struct SetDrt: 6 {
        /// Number of the DRT.
        0 => table: u8,
        /// DPID of the first entry.
        4 => start: u16,
    }
    /// Entries for DPIDs `start`, `start` + 1 and so on.
    2 as u16 => entries: [DrtEntry]
}

message! {
    /// Response of Get RGT (570Ah), request of Set RGT (570Bh).
    struct Rgt: 6 {
        /// Number of the RGT.
        0 => table: u8,
        /// Index of the first group.
        4 => start: u16,
    }
    /// Groups from `start` on.
    2 as u16 => entries: [RgtEntry]
}

record! {
    /// Response of Get LDST/IDT Capabilities (570Ch).
    struct LdstCaps: 26 {
        /// Number of the vPPB.
        0 => vppb: u8,
        /// Segments that the LDST can hold.
        1 => segments: u16,
        /// Code of the segment size, 64 GB << n.
        3 => segment_size: u8,
        /// DPIDs that the interleave table can hold.
        4 => idt: u16,
        /// Entries that the completer ID re-router can hold.
        6 => re_routers: u16,
        /// PID of this edge port.
        8 => pid: Pid,
        /// First HPA of the range that LDST decodes; 0 while it is off.
        10 => base: Hpa,
        /// Last HPA that LDST decodes; 0 while it is off.
        18 => limit: Hpa,
    }
}

record! {
    /// Request of Set LDST/IDT Configuration (570Dh).
    struct SetLdst: 18 {
        /// Number of the vPPB.
        0 => vppb: u8,
        /// Code of the segment size, 64 GB << n.
        1 => segment_size: u8,
        /// First HPA of the range; 0 turns LDST off.
        2 => base: Hpa,
        /// Last HPA of the range; 0 turns LDST off.
        10 => limit: Hpa,
    }
}

record! {
    /// Request of the commands that get entries of a bridge's table: 570Eh, 5710h, 5712h, 5805h, 5807h.
    struct EdgeRange: 6 {
        /// Number of the vPPB.
        0 => vppb: u8,
        /// Entries to return at most.
        2 => count: u16,
        /// Index of the first entry, from 0.
        4 => start: u16,
    }
}

/// Request of the commands that set entries of a bridge's table: 570Fh, 5713h and 5806h, where the
/// list is at `HEAD` 6, and 5711h and 5808h, where it is at 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetEdge<'a, T: Wire, const HEAD: usize> {
    /// Number of the vPPB.
    pub vppb: u8,
    /// Index of the first entry to set.
    pub start: u16,
    /// New entries, from `start` on.
    pub entries: List<'a, T>,
}

/// Request that sets segments or re-routers.
pub type SetEntries<'a, T> = SetEdge<'a, T, 6>;

/// Request that sets PIDs of an interleave DPID table.
pub type SetIdt<'a> = SetEdge<'a, Pid, 8>;

impl<'a, T: Wire, const HEAD: usize> Payload<'a> for SetEdge<'a, T, HEAD> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (list, _) = split_list(payload, HEAD, 0)?;
        let EdgeRange { vppb, count, start } = get(payload, 0)?;
        Ok(Self { vppb, start, entries: List::parse(list, HEAD, usize::from(count))? })
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let count = u16::try_from(self.entries.len()).ok()?;
        let range = EdgeRange { vppb: self.vppb, count, start: self.start };
        range.write(room(out, HEAD)?);
        self.entries.emit(out, HEAD)
    }
}

/// Response of the commands that get entries of a bridge's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a, T: Wire> {
    /// Index of the first entry of the list.
    pub start: u16,
    /// Entries from `start` on.
    pub entries: List<'a, T>,
}

impl<T: Wire> Entries<'_, T> {
    const HEAD: usize = 4;
}

impl<'a, T: Wire> Payload<'a> for Entries<'a, T> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (list, _) = split_list(payload, Self::HEAD, 0)?;
        let count: u16 = get(payload, 0)?;
        let entries = List::parse(list, Self::HEAD, usize::from(count))?;
        Ok(Self { start: get(payload, 2)?, entries })
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let head = room(out, Self::HEAD)?;
        set(head, 0, &u16::try_from(self.entries.len()).ok()?);
        set(head, 2, &self.start);
        self.entries.emit(out, Self::HEAD)
    }
}

record! {
    /// Part of a bit vector: request of Get LAV (5714h) and Get PID Access Vectors (5802h).
    struct VectorRange: 8 {
        /// Offset of the first byte in the vector.
        0 => start: u32,
        /// Bytes of the vector to return at most.
        4 => len: u32,
    }
}

record! {
    /// Part of a VCS's bit vector: request of 5715h and 5901h.
    struct VcsVectorRange: 12 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Bytes of the vector to return.
        4 => range: VectorRange,
    }
}

message! {
    /// Part of a bit vector: response of 5714h, 5715h, 5801h, 5802h and 5901h.
    struct Vector: 4 {}
    /// PID n is bit n % 8 of byte n / 8.
    0 as u32 => data: [u8]
}

codes! {
    /// Change of a PID's bit in the LAV.
    enum LdstAccess: Operation, 0x7 {
        /// Sets the bit: LDST and the re-router may send to the PID.
        0 => Enable,
        /// Clears the bit: they may not.
        1 => Disable,
    }
}

/// A PID and an operation on it, in two bytes: PID 11:0, operation 14:12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidOp<Op> {
    /// PID that the operation changes.
    pub pid: Pid,
    /// Operation; 3 bits.
    pub op: Op,
}

impl<Op: Wire> Wire for PidOp<Op> {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [low, high] = front(bytes)?;
        // the operation's code is masked here, as bits 11:8 of the PID share its byte
        let op = Op::read(&[(high >> 4) & 7])?;
        Ok(Self { pid: Pid::from_low_bits(u16::from_le_bytes([low, high])), op })
    }

    fn write(&self, bytes: &mut [u8]) {
        let mut op = [0];
        self.op.write(&mut op);
        let [op] = op;
        let [low, high] = self.pid.bits().to_le_bytes();
        put_front(bytes, [low, high | ((op & 7) << 4)]);
    }
}

record! {
    /// Request of Configure VCS LDST Access (5716h).
    struct ConfigureLdstAccess: 4 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// PID and its new access.
        2 => access: PidOp<LdstAccess>,
    }
}
