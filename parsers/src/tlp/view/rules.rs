//! Rules that make a TLP of a known type malformed.
//!
//! They are about lengths, byte enables, addresses and missing OHC. A parsed [`Tlp`] in, the first
//! rule that it breaks out.
//!
//! Source: PCIe 6.0 sections 2.2.5, 2.2.7, 2.2.8.10 ("malformed TLP" clauses);
//! docs/spec/wire-formats.md §3.5.

use super::{Tlp, refused};
use crate::error::{Field, Layer, ParseError};
use crate::tlp::fields::At;
use crate::tlp::kind::{Kind, Mode};
use crate::tlp::layout::{flit, low16};

/// Refuses a TLP that PCIe calls malformed.
#[inline]
pub(super) const fn check(tlp: &Tlp<'_>) -> Result<(), ParseError> {
    let kind = tlp.kind();
    // without OHC-A, byte enables and segment of these would be unknown: it is mandatory there
    let missing = matches!(tlp.mode(), Mode::Flit)
        && (kind.is_io() || kind.is_config())
        && tlp.ohc_bits() & flit::OHC_A == 0;
    if missing {
        return Err(refused(Layer::Tlp, Field::Ohc, tlp.ohc_bits() as u16));
    }
    if !is_length_ok(kind, tlp.length_dw()) {
        return Err(refused(Layer::Tlp, Field::TlpLength, tlp.length_dw()));
    }
    // of a translation request, Length and address mean other things
    if matches!(tlp.at(), At::TranslationRequest) {
        return Ok(());
    }
    if !are_byte_enables_ok(tlp) {
        return Err(refused(Layer::Tlp, Field::ByteEnables, tlp.byte_enables() as u16));
    }
    if kind.is_memory() && !is_address_ok(tlp) {
        let low = (tlp.address_or_zero() & 0xFFFF) as u32;
        return Err(refused(Layer::Tlp, Field::TlpAddress, low16(low)));
    }
    Ok(())
}

/// One DW of configuration or I/O; atomics in their operand sizes.
const fn is_length_ok(kind: Kind, length_dw: u16) -> bool {
    match kind {
        Kind::FetchAdd | Kind::Swap => matches!(length_dw, 1 | 2),
        Kind::Cas => matches!(length_dw, 2 | 4 | 8),
        kind if kind.is_io() || kind.is_config() => length_dw == 1,
        _ => true,
    }
}

/// One DW has no last byte enables; more have both, and without a gap unless they are one aligned
/// quadword.
const fn are_byte_enables_ok(tlp: &Tlp<'_>) -> bool {
    let (first, last) = (tlp.first_be(), tlp.last_be());
    match tlp.length_dw() {
        0 => true,
        1 => last == 0,
        // two DWs that make one aligned quadword may have gaps (PCIe 6.0 section 2.2.5)
        2 if tlp.address_or_zero().is_multiple_of(8) => first != 0 && last != 0,
        _ => matches!(first, 0x8 | 0xC | 0xE | 0xF) && matches!(last, 0x1 | 0x3 | 0x7 | 0xF),
    }
}

/// No access crosses 4 KiB; atomics are aligned to their operand, so that none of them does.
const fn is_address_ok(tlp: &Tlp<'_>) -> bool {
    let (addr, bytes) = (tlp.address_or_zero(), tlp.access_len());
    // 4 for all else: an address field has no bits below DWs
    let operand = if tlp.kind().is_atomic() { bytes } else { 4 };
    addr % 4_096 + bytes <= 4_096 && addr.is_multiple_of(operand)
}
