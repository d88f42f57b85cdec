//! Tables that commands get and set in parts: DRT, RGT, segments, interleave DPIDs, re-router, bit vectors.
//!
//! A range of entries in the request of a Get; the range and its entries in the request of a Set
//! and the response of a Get. The response of a Set is empty.
//!
//! Units: entries; vectors in bytes.
//! Source: docs/spec/wire-formats.md §4.5 (5708h to 5716h), §4.6; CXL 3.1 sections 7.7.13.10 to 7.7.13.24, 7.7.14.

use super::layout::{codes, message, record};
use super::wire::{List, Payload, Wire, front, get, put_front, room, set, split_list};
use crate::ParseError;
use crate::fabric::{DrtEntry, Hpa, Pid, RgtEntry};

record! {
    /// Request of Get DRT (5708h) and Get RGT (570Ah).
    struct RoutingRange: 6 {
        /// Which table.
        0 => table: u8,
        /// Entries.
        2 => count: u16,
        /// First entry.
        4 => start: u16,
    }
}

message! {
    /// Response of Get DRT (5708h).
    struct Drt: 8 {
        /// Which table.
        0 => table: u8,
        /// First entry.
        4 => start: u16,
        /// RGT that its groups are of.
        6 => rgt: u8,
    }
    /// Entries by DPID.
    2 as u16 => entries: [DrtEntry]
}

message! {
    /// Request of Set DRT (5709h).
    struct SetDrt: 6 {
        /// Which table.
        0 => table: u8,
        /// First entry.
        4 => start: u16,
    }
    /// Entries by DPID.
    2 as u16 => entries: [DrtEntry]
}

message! {
    /// Response of Get RGT (570Ah), request of Set RGT (570Bh).
    struct Rgt: 6 {
        /// Which table.
        0 => table: u8,
        /// First entry.
        4 => start: u16,
    }
    /// Entries.
    2 as u16 => entries: [RgtEntry]
}

record! {
    /// Response of Get LDST/IDT Capabilities (570Ch).
    struct LdstCaps: 26 {
        /// The bridge.
        0 => vppb: u8,
        /// Entries of the segment table.
        1 => segments: u16,
        /// Code of the segment size, 64 GB << n.
        3 => segment_size: u8,
        /// Entries of the interleave DPID table.
        4 => idt: u16,
        /// Entries of the re-router.
        6 => re_routers: u16,
        /// Own PID.
        8 => pid: Pid,
        /// First address.
        10 => base: Hpa,
        /// Last address.
        18 => limit: Hpa,
    }
}

record! {
    /// Request of Set LDST/IDT Configuration (570Dh).
    struct SetLdst: 18 {
        /// The bridge.
        0 => vppb: u8,
        /// Code of the segment size, 64 GB << n.
        1 => segment_size: u8,
        /// First address; 0 turns it off.
        2 => base: Hpa,
        /// Last address; 0 turns it off.
        10 => limit: Hpa,
    }
}

record! {
    /// Request of the commands that get entries of a bridge's table: 570Eh, 5710h, 5712h, 5805h, 5807h.
    struct EdgeRange: 6 {
        /// The bridge.
        0 => vppb: u8,
        /// Entries.
        2 => count: u16,
        /// First entry.
        4 => start: u16,
    }
}

/// Request of the commands that set entries of a bridge's table: 570Fh, 5713h and 5806h, where the
/// list is at `HEAD` 6, and 5711h and 5808h, where it is at 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetEdge<'a, T: Wire, const HEAD: usize> {
    /// The bridge.
    pub vppb: u8,
    /// First entry.
    pub start: u16,
    /// Entries.
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
    /// First entry.
    pub start: u16,
    /// Entries.
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
        /// First byte.
        0 => start: u32,
        /// Bytes.
        4 => len: u32,
    }
}

record! {
    /// Part of a VCS's bit vector: request of 5715h and 5901h.
    struct VcsVectorRange: 12 {
        /// The VCS.
        0 => vcs: u8,
        /// Which part.
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
    /// What becomes of a PID in the LAV.
    enum LdstAccess: Operation, 0x7 {
        /// It may be a target.
        0 => Enable,
        /// It may not.
        1 => Disable,
    }
}

/// A PID and what becomes of it, in two bytes: PID 11:0, operation 14:12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidOp<Op> {
    /// The PID.
    pub pid: Pid,
    /// What becomes of it.
    pub op: Op,
}

impl<Op: Wire> Wire for PidOp<Op> {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [low, high] = front(bytes)?;
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
        /// The VCS.
        0 => vcs: u8,
        /// Which PID, and what becomes of it.
        2 => access: PidOp<LdstAccess>,
    }
}
