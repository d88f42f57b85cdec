//! PBR TLP header (PTH), and the grammar of DWs that may stand before it on a PBR link.
//!
//! PTH = 11, reserved 3, Hie 1, DSAR 1, PIF 1, SPID 12, DPID 12 bits; [`PbrTlp`] = NOPs, reserved
//! DWs and local prefixes, PTH, flit-mode TLP.
//!
//! Source: CXL 3.1 section 7.7.6.2; docs/spec/wire-formats.md §3.7.

use super::kind::{Kind, Mode};
use super::prefix::{self, Scope, VendPrefixL0};
use super::repr::{EmitError, TlpRepr};
use super::view::{Tlp, refused};
use crate::bytes::{byte, cut};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::Pid;

/// Bytes of a PTH.
pub const LEN: usize = 4;

/// PBR TLP header, the DW in front of each TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pth {
    /// PIF: the egress edge puts the source's PID in front as a local prefix.
    pub pif: bool,
    /// DSAR: on its way downstream, or from a source that hosts trust.
    pub dsar: bool,
    /// Hie: hierarchical, between a vDSP and a vUSP; static routes only.
    pub hie: bool,
    /// SPID: source of the TLP.
    pub spid: Pid,
    /// DPID: destination; [`Pid::NONE`] is the receiver itself.
    pub dpid: Pid,
}

impl Pth {
    /// A header from `spid` to `dpid` with no bit set.
    #[must_use]
    pub const fn new(spid: Pid, dpid: Pid) -> Self {
        Self { pif: false, dsar: false, hie: false, spid, dpid }
    }

    /// Splits a header off the front of `bytes`; also returns the bytes behind it.
    ///
    /// # Errors
    /// Fewer than [`LEN`] bytes remain, or bits 7:6 of the first are not 11.
    #[inline]
    pub const fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (head, rest) = match cut::<LEN>(bytes, Layer::Pth) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        let flags = byte::<0, _>(head);
        if flags >> 6 != 0b11 {
            return Err(refused(Layer::Pth, Field::PbrGrammar, flags as u16));
        }
        let [_, high, mid, low] = *head;
        let pth = Self {
            pif: flags & 1 != 0,
            dsar: flags & 2 != 0,
            hie: flags & 4 != 0,
            spid: Pid::from_low_bits(u16::from_be_bytes([high, mid]) >> 4),
            dpid: Pid::from_low_bits(u16::from_be_bytes([mid, low])),
        };
        Ok((pth, rest))
    }

    /// The header, reserved bits 0.
    #[inline]
    #[must_use]
    pub const fn emit(self) -> [u8; LEN] {
        let flags = 0xC0 | (self.hie as u8) << 2 | (self.dsar as u8) << 1 | self.pif as u8;
        let [high, spid_low] = (self.spid.bits() << 4).to_be_bytes();
        let [dpid_high, low] = self.dpid.bits().to_be_bytes();
        [flags, high, spid_low | dpid_high, low]
    }
}

/// A TLP on a PBR link.
#[derive(Clone, Copy, Debug)]
pub struct PbrTlp<'a> {
    vend: Option<VendPrefixL0>,
    pth: Pth,
    pth_at: usize,
    tlp: Tlp<'a>,
}

impl<'a> PbrTlp<'a> {
    /// Reads the first TLP with a PTH in `bytes`; NOPs and reserved DWs before it are passed over.
    /// `None` if there is nothing else: one such DW, zeros behind it, and the end.
    ///
    /// # Errors
    /// `bytes` ends too soon, or is malformed.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, ParseError> {
        // from the first local prefix on, a PTH has to follow
        let (mut has_prefix, mut vend) = (false, None);
        for (index, dw) in bytes.chunks(4).enumerate() {
            let pth_at = index * 4;
            let &[first, a, b, c] = dw else {
                // fewer than four bytes at the end: padding if nothing is open, and all zeros
                if !has_prefix && pth_at > 0 && dw.iter().all(|&byte| byte == 0) {
                    return Ok(None);
                }
                return Err(ParseError::short(Layer::Pth, pth_at + 4, bytes.len()));
            };
            match (first >> 6, prefix::scope(Mode::Flit, first)) {
                // bits 5:0 of a NOP are 0; with any other value it is malformed
                (0b00, _) if first == 0 => {}
                // reserved DWs are dropped silently (docs/spec/wire-formats.md §3.7)
                (0b01, _) => {}
                (0b10, Some(Scope::Local)) => {
                    has_prefix = true;
                    // kept wherever it stands among the others, so that none of them hides it
                    if first == prefix::VEND_L0 {
                        vend = vend.or(Some(VendPrefixL0::from_bytes([a, b, c])));
                    }
                }
                (0b11, _) => {
                    let (pth, rest) = Pth::parse(bytes.get(pth_at..).unwrap_or_default())?;
                    let tlp = Self::behind_pth(pth_at, rest, bytes.len())?;
                    return Ok(Some(Self { vend, pth, pth_at, tlp }));
                }
                _ => return Err(refused(Layer::Pth, Field::PbrGrammar, u16::from(first))),
            }
        }
        if has_prefix || bytes.is_empty() {
            return Err(ParseError::short(Layer::Pth, bytes.len() + 4, bytes.len()));
        }
        Ok(None) // NOPs and reserved DWs alone are a frame without a TLP
    }

    /// Neither NOP nor prefix may follow a PTH.
    #[inline]
    fn behind_pth(pth_at: usize, rest: &'a [u8], had: usize) -> Result<Tlp<'a>, ParseError> {
        if let Some(&first) = rest.first()
            && (first == 0 || prefix::scope(Mode::Flit, first).is_some())
        {
            return Err(refused(Layer::Pth, Field::PbrGrammar, u16::from(first)));
        }
        Tlp::parse(Mode::Flit, rest).map_err(|error| match error {
            // the error counts from the front of `bytes`, not of the TLP
            ParseError::Short { layer, need, .. } => {
                ParseError::short(layer, usize::from(need) + pth_at + LEN, had)
            }
            value @ ParseError::Value { .. } => value,
        })
    }

    /// The TLP's PBR header.
    #[inline]
    #[must_use]
    pub const fn pth(&self) -> Pth {
        self.pth
    }

    /// Bytes in front of the PTH.
    #[inline]
    #[must_use]
    pub const fn pth_at(&self) -> usize {
        self.pth_at
    }

    /// The TLP behind the PTH, which has no local prefix.
    #[inline]
    #[must_use]
    pub const fn tlp(&self) -> &Tlp<'a> {
        &self.tlp
    }

    /// Vendor-defined local prefix 0 in front of the PTH; edges must not send one here.
    #[inline]
    #[must_use]
    pub const fn vend_prefix(&self) -> Option<VendPrefixL0> {
        self.vend
    }

    /// Bytes from the front to the end of the TLP.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a TLP is never empty")]
    pub const fn len(&self) -> usize {
        self.pth_at + LEN + self.tlp.len()
    }
}

/// Writes `pth` and `tlp` behind it at the front of `out`; returns the length of both.
///
/// # Errors
/// As [`TlpRepr::emit`]; [`EmitError::Field`] for a TLP with a local prefix or of non-flit mode, and
/// [`EmitError::Kind`] for a NOP, which has no PTH.
pub fn emit_pbr(pth: Pth, tlp: &TlpRepr<'_>, out: &mut [u8]) -> Result<usize, EmitError> {
    if tlp.vend_prefix.is_some() || tlp.mode != Mode::Flit {
        return Err(EmitError::Field);
    }
    if tlp.kind == Kind::Nop {
        return Err(EmitError::Kind);
    }
    let had = out.len();
    let Some((head, rest)) = out.split_first_chunk_mut() else {
        return Err(EmitError::Room { need: LEN + tlp.emit_len()?, had });
    };
    let len = tlp.emit(rest).map_err(|error| match error {
        EmitError::Room { need, .. } => EmitError::Room { need: need + LEN, had },
        other => other,
    })?;
    // last, so that `out` holds no PTH without a TLP
    *head = pth.emit();
    Ok(LEN + len)
}
