//! Orthogonal header content: the DWs behind a flit-mode base header.
//!
//! OHC-A in five layouts by kind (A1 memory, A2 I/O, A3 configuration, A4 messages, A5
//! completions), B, C; each has one decode and one emit. Bits are those of a DW.
//!
//! Source: PCIe 6.0 section 2.2.1.2.1; docs/spec/wire-formats.md §3.5.

use super::fields::{Pasid, Status};
use super::layout::{bit, bits8};

/// OHC-A1: memory and UIO requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OhcA1 {
    /// NW: the translation asked for need not be writable.
    pub no_write: bool,
    /// Process address space, where PV is set.
    pub pasid: Option<Pasid>,
    /// Byte enables of the last DW, 4 bits.
    pub last_be: u8,
    /// Byte enables of the first DW, 4 bits.
    pub first_be: u8,
}

impl OhcA1 {
    /// Reads an OHC-A1.
    #[must_use]
    pub const fn decode(dw: u32) -> Self {
        let pasid =
            Pasid { pasid: dw >> 8 & 0xF_FFFF, privileged: bit(dw, 29), execute: bit(dw, 28) };
        Self {
            no_write: bit(dw, 31),
            pasid: if bit(dw, 30) { Some(pasid) } else { None },
            last_be: bits8(dw, 4) & 0xF,
            first_be: bits8(dw, 0) & 0xF,
        }
    }

    /// The OHC-A1 as a DW.
    #[must_use]
    pub const fn emit(self) -> u32 {
        let space = match self.pasid {
            Some(Pasid { pasid, privileged, execute }) => {
                1 << 30
                    | (privileged as u32) << 29
                    | (execute as u32) << 28
                    | (pasid & 0xF_FFFF) << 8
            }
            None => 0,
        };
        (self.no_write as u32) << 31 | space | byte_enables(self.last_be, self.first_be)
    }
}

/// `LastBE` in bits 7:4, `FirstBE` in bits 3:0: OHC-A2, and the low byte of A1 and A3.
#[inline]
#[must_use]
pub const fn byte_enables(last_be: u8, first_be: u8) -> u32 {
    ((last_be & 0xF) << 4 | first_be & 0xF) as u32
}

/// `DestSeg` in bits 31:24 if DSV, bit 15, is set: OHC-A3, A4 and A5.
#[inline]
#[must_use]
pub const fn dest_segment(dw: u32) -> Option<u8> {
    if bit(dw, 15) { Some(bits8(dw, 24)) } else { None }
}

/// The bits that [`dest_segment`] reads.
#[inline]
#[must_use]
pub const fn with_dest_segment(segment: Option<u8>) -> u32 {
    match segment {
        Some(segment) => (segment as u32) << 24 | 1 << 15,
        None => 0,
    }
}

/// PASID of an OHC-A4, without ER.
#[must_use]
pub const fn decode_a4_pasid(dw: u32) -> Option<Pasid> {
    let pasid = (dw >> 8 & 0xF) << 16 | (bits8(dw, 16) as u32) << 8 | bits8(dw, 0) as u32;
    if bit(dw, 14) { Some(Pasid { pasid, privileged: bit(dw, 13), execute: false }) } else { None }
}

/// OHC-A4 of a message.
#[must_use]
pub const fn emit_a4(segment: Option<u8>, pasid: Option<Pasid>) -> u32 {
    let space = match pasid {
        Some(Pasid { pasid, privileged, .. }) => {
            1 << 14
                | (privileged as u32) << 13
                | (pasid >> 16 & 0xF) << 8
                | (pasid >> 8 & 0xFF) << 16
                | pasid & 0xFF
        }
        None => 0,
    };
    with_dest_segment(segment) | space
}

/// OHC-A5, behind completions only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OhcA5 {
    /// Segment of the requester.
    pub dest_segment: Option<u8>,
    /// Segment of the completer; means something beside a destination segment only.
    pub completer_segment: u8,
    /// `LA[1:0]`.
    pub lower_address: u8,
    /// Status of the completion, bits 2:0.
    pub status: Status,
}

impl OhcA5 {
    /// Reads an OHC-A5.
    #[must_use]
    pub const fn decode(dw: u32) -> Self {
        Self {
            dest_segment: dest_segment(dw),
            completer_segment: bits8(dw, 16),
            lower_address: bits8(dw, 3) & 3,
            status: Status::from_low_bits(bits8(dw, 0)),
        }
    }

    /// The OHC-A5 as a DW.
    #[must_use]
    pub const fn emit(self) -> u32 {
        with_dest_segment(self.dest_segment)
            | (self.completer_segment as u32) << 16
            | ((self.lower_address & 3) as u32) << 3
            | self.status as u32
    }
}

/// Requester segment of an OHC-C, if RSV is set.
#[inline]
#[must_use]
pub const fn requester_segment(dw: u32) -> Option<u8> {
    if bit(dw, 3) { Some(bits8(dw, 24)) } else { None }
}

/// OHC-C that says the requester's segment and nothing of IDE.
#[inline]
#[must_use]
pub const fn emit_c(segment: u8) -> u32 {
    (segment as u32) << 24 | 1 << 3
}
