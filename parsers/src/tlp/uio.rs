//! DW2 of a UIO completion: requester, `DevLoad`, and the place of its data in the request.
//!
//! Requester BDF 16, CDL 2, reserved 4, DW offset 10 bits. The positions are weft's proposal; no
//! other file knows them.
//!
//! Source: PCIe 6.1 UIO completions; the bit positions are proposed, docs/spec/wire-formats.md
//! §3.6.

use super::fields::DevLoad;
use super::layout::{bits8, halves, high16, low16};
use crate::fabric::Bdf;

/// DW2 of a UIO completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UioDw2 {
    /// Function that made the request; bits 31:16.
    pub requester: Bdf,
    /// Load of the completer; bits 15:14.
    pub dev_load: DevLoad,
    /// First DW of this completion, counted from the request's address, 0..=1023; bits 9:0.
    pub offset_dw: u16,
}

impl UioDw2 {
    /// Reads DW2 of a header.
    #[inline]
    #[must_use]
    pub const fn decode(dw: u32) -> Self {
        Self {
            requester: Bdf::from_bits(high16(dw)),
            dev_load: DevLoad::from_low_bits(bits8(dw, 14)),
            offset_dw: low16(dw) & 0x3FF,
        }
    }

    /// The DW, reserved bits 0.
    #[inline]
    #[must_use]
    pub const fn emit(self) -> u32 {
        halves(self.requester.bits(), (self.dev_load as u16) << 14 | self.offset_dw & 0x3FF)
    }
}
