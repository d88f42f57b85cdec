//! Fast parse of the commonest flit-mode TLPs, by their first 16 bytes.
//!
//! First four DWs → [`FastTlp`]; `None` for every TLP that [`super::Tlp::parse`] must look at.
//!
//! Source: PCIe 6.0 table 2-5; docs/spec/wire-formats.md §3.5, §3.6.
//!
//! Taken are memory and UIO requests and completions without OHC and trailer: the first DW alone
//! gives their length, and their byte enables are all ones. `Tlp::parse` takes each of them, with
//! the same meaning.

use super::kind::Flow;
use crate::bytes::window;

/// Kind of a common TLP, as far as forwarding has to tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastKind {
    /// Memory read or write (`MRd`, `MWr`).
    Memory,
    /// UIO read or write (`UIOMRd`, `UIOMWr`).
    Uio,
    /// Completion of a memory read (`Cpl`, `CplD`).
    Completion,
    /// UIO completion (`UIOWrCpl`, `UIORdCpl`, `UIORdCplD`).
    UioCompletion,
}

/// Fields of a common TLP that forwarding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastTlp {
    /// Kind of the TLP.
    pub kind: FastKind,
    /// Class of credits that it takes.
    pub flow: Flow,
    /// Traffic Class, 0..=7.
    pub tc: u8,
    /// Bytes of header and payload.
    pub len: u16,
    /// Bytes of payload, 0..=4096.
    pub data_len: u16,
    /// Address of a request, 0 of a completion.
    pub address: u64,
}

const KIND: u8 = 3;
const DATA: u8 = 4;
const WIDE: u8 = 8;
const ADDRESS: u8 = 16;
const NON_POSTED: u8 = 32;
const TAKEN: u8 = 64;

/// Facts by the first byte of the header; 0 for a type that takes a longer look.
const TABLE: [u8; 256] = {
    let mut table = [0; 256];
    let (uio, cpl, uio_cpl) = (1, 2, 3);
    table[0x03] = TAKEN | ADDRESS | NON_POSTED;
    table[0x20] = TAKEN | ADDRESS | NON_POSTED | WIDE;
    table[0x40] = TAKEN | ADDRESS | DATA;
    table[0x60] = TAKEN | ADDRESS | DATA | WIDE;
    table[0x22] = TAKEN | ADDRESS | NON_POSTED | WIDE | uio;
    table[0x61] = TAKEN | ADDRESS | DATA | WIDE | uio;
    table[0x0A] = TAKEN | cpl;
    table[0x4A] = TAKEN | DATA | cpl;
    table[0x0C] = TAKEN | uio_cpl;
    table[0x0D] = TAKEN | uio_cpl;
    table[0x48] = TAKEN | DATA | uio_cpl;
    table
};

/// Looks at the first 16 bytes of a TLP without prefixes; a TLP shorter than that may have any bytes behind it.
#[inline]
#[must_use]
#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a byte finds one of 256 entries; a payload is 4 KiB at most; the rest is masked"
)]
pub const fn fast_tlp(head: &[u8; 16]) -> Option<FastTlp> {
    let [first, _, _, _, ..] = *head;
    let facts = TABLE[first as usize];
    let dw0 = u32::from_be_bytes(*window::<0, 4, _>(head));
    // OHC and trailer make a TLP longer than this parse reckons with
    if facts == 0 || dw0 & 0x001F_E000 != 0 {
        return None;
    }
    // a Length of 0 stands for 1,024 DWs
    let bytes = (((dw0.wrapping_sub(1)) & 0x3FF) + 1) * 4;
    let high = u32::from_be_bytes(*window::<8, 4, _>(head));
    let low = u32::from_be_bytes(*window::<12, 4, _>(head));
    let wide = facts & WIDE != 0;
    let address = if wide { (high as u64) << 32 | low as u64 } else { high as u64 };
    let is_request = facts & ADDRESS != 0;
    // AT 01 is a translation request, whose address means another thing; an access beyond the next
    // 4 KiB is malformed: `Tlp::parse` decides both
    if is_request && (address & 3 == 1 || (address as u32 & 0xFFC) + bytes > 4_096) {
        return None;
    }
    let data_len = if facts & DATA != 0 { bytes as u16 } else { 0 };
    let kind = match facts & KIND {
        0 => FastKind::Memory,
        1 => FastKind::Uio,
        2 => FastKind::Completion,
        _ => FastKind::UioCompletion,
    };
    Some(FastTlp {
        kind,
        flow: if !is_request {
            Flow::Completion
        } else if facts & NON_POSTED != 0 {
            Flow::NonPosted
        } else {
            Flow::Posted
        },
        tc: (dw0 >> 21) as u8 & 7,
        len: data_len + if wide { 16 } else { 12 },
        data_len,
        address: if is_request { address & !3 } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Hpa;
    use crate::testing::Rng;
    use crate::tlp::{Kind, Mode, Tlp};

    /// Whatever the fast path takes parses, and means the same.
    #[test]
    fn the_fast_path_reads_what_the_parser_reads() {
        const TYPES: [u8; 12] =
            [0x03, 0x20, 0x40, 0x60, 0x22, 0x61, 0x0A, 0x4A, 0x0C, 0x0D, 0x48, 0x05];
        let mut rng = Rng::new(11);
        let (mut taken, mut left) = (0, 0);
        for n in 0..300_000_u32 {
            let mut bytes = [0; 16 + 4_096];
            for byte in &mut bytes[..16] {
                *byte = rng.u8();
            }
            if n % 4 != 0 {
                bytes[0] = TYPES[n as usize % TYPES.len()];
                bytes[1] &= 0xE0;
                bytes[2] &= 0x1F;
            }
            let head = bytes.first_chunk().unwrap();
            let parsed = Tlp::parse(Mode::Flit, &bytes);
            let Some(quick) = fast_tlp(head) else {
                left += u32::from(parsed.is_ok());
                continue;
            };
            taken += 1;
            let tlp = parsed.unwrap_or_else(|error| panic!("{:02x?}: {error}", &bytes[..16]));
            let kind = match tlp.kind() {
                Kind::MemRead | Kind::MemWrite => FastKind::Memory,
                Kind::UioRead | Kind::UioWrite => FastKind::Uio,
                Kind::Completion { locked: false, .. } => FastKind::Completion,
                Kind::UioReadCompletion { .. } | Kind::UioWriteCompletion => {
                    FastKind::UioCompletion
                }
                other => panic!("{other:?}"),
            };
            let Hpa(address) = tlp.addr().unwrap_or_default();
            let want = FastTlp {
                kind,
                flow: tlp.flow(),
                tc: tlp.tc(),
                len: tlp.len().try_into().unwrap(),
                data_len: tlp.payload().len().try_into().unwrap(),
                address,
            };
            assert_eq!(quick, want, "{:02x?}", &bytes[..16]);
        }
        assert!(taken > 50_000 && left > 1_000, "{taken} taken, {left} left to parse");
    }
}
