//! Bits of the DWs of both header layouts, in one place for view and emitter.
//!
//! Bits are those of a DW in host order, bit 31 first on the wire.
//!
//! Source: docs/spec/wire-formats.md §3.1, §3.5.

/// Bits 31:16 of a DW.
#[inline]
pub(super) const fn high16(dw: u32) -> u16 {
    let [a, b, _, _] = dw.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// Bits 15:0 of a DW.
#[inline]
pub(super) const fn low16(dw: u32) -> u16 {
    let [_, _, c, d] = dw.to_be_bytes();
    u16::from_be_bytes([c, d])
}

/// Bits 7:0 of `dw >> shift`.
#[inline]
pub(super) const fn bits8(dw: u32, shift: u32) -> u8 {
    let [_, _, _, low] = (dw >> shift).to_be_bytes();
    low
}

/// Whether bit `bit` is set.
#[inline]
pub(super) const fn bit(dw: u32, bit: u32) -> bool {
    dw >> bit & 1 == 1
}

/// Two halves as one DW.
#[inline]
pub(super) const fn halves(high: u16, low: u16) -> u32 {
    (high as u32) << 16 | low as u32
}

/// The DW at `at`.
#[inline]
pub(super) fn dw_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|dw| u32::from_be_bytes(*dw))
}

/// DWs of a Length field, in which 0 stands for 1,024.
#[inline]
pub(super) const fn length(dw0: u32) -> u16 {
    match low16(dw0) & 0x3FF {
        0 => 1_024,
        dws => dws,
    }
}

/// DW0 of non-flit mode: T9, T8, Attr2, LN, TH, TD, EP.
pub(super) mod non_flit {
    pub const T9: u32 = 23;
    pub const TC: u32 = 20;
    pub const T8: u32 = 19;
    pub const ATTR2: u32 = 18;
    pub const LN: u32 = 17;
    pub const TH: u32 = 16;
    pub const TD: u32 = 15;
    pub const EP: u32 = 14;
    pub const ATTR: u32 = 12;
    pub const AT: u32 = 10;
}

/// DW0 and DW1 of flit mode.
pub(super) mod flit {
    pub const TC: u32 = 21;
    pub const OHC: u32 = 16;
    pub const TS: u32 = 13;
    pub const ATTR: u32 = 10;
    /// EP, in DW1.
    pub const EP: u32 = 15;
    /// In DW1 of a completion: `LA[6]`.
    pub const LA6: u32 = 14;
    pub const OHC_A: u8 = 1;
    pub const OHC_C: u8 = 4;
}
