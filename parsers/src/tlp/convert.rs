//! Changes on the way: type 1 to type 0, local prefixes, one header layout to the other.
//!
//! Bytes in place, or a parsed TLP in and the other mode's bytes out.
//!
//! Source: docs/spec/wire-formats.md §3.2, §3.4, §3.5; PCIe 6.0 section 2.2.1.2 (flit mode has no
//! LN).

use core::fmt;

use super::kind::{Kind, Mode};
use super::prefix::{self, VendPrefixL0};
use super::repr::{EmitError, TlpRepr};
use super::view::{Tlp, refused};
use crate::error::{Field, Layer, ParseError};

/// Why a TLP has no form in the other mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertError {
    /// It has the form already.
    Mode,
    /// The other mode has no such kind: UIO, NOP.
    Kind,
    /// Its tag has more than 10 bits.
    Tag,
    /// It names a segment.
    Segment,
    /// It is encrypted or has a MAC.
    Ide,
    /// It has an end-end prefix or OHC-E with nowhere to go.
    Extension,
    /// It could not be written.
    Emit(EmitError),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mode => "TLP is in that mode already",
            Self::Kind => "non-flit mode has no TLP of this kind",
            Self::Tag => "non-flit mode has tags of 10 bits",
            Self::Segment => "non-flit mode has no segments",
            Self::Ide => "a TLP under IDE cannot change its header",
            Self::Extension => "the other mode has no place for an extension of the header",
            Self::Emit(error) => return write!(f, "{error}"),
        })
    }
}

impl core::error::Error for ConvertError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Emit(error) => Some(error),
            _ => None,
        }
    }
}

/// Writes a non-flit TLP as a flit-mode one; returns its length.
///
/// LN, processing hints, BCM and the digest are left behind, as is the tag of a message.
///
/// # Errors
/// It has a vendor's end-end prefix, or `out` is too small.
pub fn to_flit(tlp: &Tlp<'_>, out: &mut [u8]) -> Result<usize, ConvertError> {
    flit_repr(tlp)?.emit(out).map_err(ConvertError::Emit)
}

/// As [`to_flit`], but returns the TLP as fields.
///
/// # Errors
/// It has a vendor's end-end prefix.
pub fn flit_repr<'a>(tlp: &Tlp<'a>) -> Result<TlpRepr<'a>, ConvertError> {
    if tlp.mode() == Mode::Flit {
        return Err(ConvertError::Mode);
    }
    let end_end = tlp.bytes().get(tlp.local_prefix_len()..tlp.prefix_len()).unwrap_or_default();
    if end_end.chunks_exact(prefix::LEN).any(|prefix| matches!(prefix, [0x9E | 0x9F, ..])) {
        return Err(ConvertError::Extension);
    }
    let mut repr = tlp.repr();
    repr.mode = Mode::Flit;
    repr.ln = false;
    match repr.kind {
        Kind::Message { .. } => {
            repr.tag = 0;
            // an OHC-A4 has no ER
            if let Some(pasid) = &mut repr.pasid {
                pasid.execute = false;
            }
        }
        // a PASID is a matter of memory requests and messages
        kind if !kind.is_memory() => repr.pasid = None,
        _ => {}
    }
    Ok(repr)
}

/// Writes a flit-mode TLP as a non-flit one; returns its length.
///
/// Processing hints and an ECRC are left behind.
///
/// # Errors
/// It has no such form ([`ConvertError`] says why), or `out` is too small.
pub fn to_non_flit(tlp: &Tlp<'_>, out: &mut [u8]) -> Result<usize, ConvertError> {
    non_flit_repr(tlp)?.emit(out).map_err(ConvertError::Emit)
}

/// As [`to_non_flit`], but returns the TLP as fields.
///
/// # Errors
/// It has no such form.
pub fn non_flit_repr<'a>(tlp: &Tlp<'a>) -> Result<TlpRepr<'a>, ConvertError> {
    if tlp.mode() == Mode::NonFlit {
        return Err(ConvertError::Mode);
    }
    if tlp.kind().byte(Mode::NonFlit, tlp.is_wide()).is_none() {
        return Err(ConvertError::Kind);
    }
    let [_, _, ohc_c] = tlp.ohc();
    if tlp.dest_segment().or(tlp.requester_segment()).is_some() {
        return Err(ConvertError::Segment);
    }
    // T, K, sub-stream, stream and count of posted requests sent
    if tlp.trailer_bits() > 1 || ohc_c.unwrap_or_default() & 0x00FF_FF73 != 0 {
        return Err(ConvertError::Ide);
    }
    if tlp.ohc_bits() >> 3 != 0 {
        return Err(ConvertError::Extension);
    }
    if tlp.tag() > 0x3FF {
        return Err(ConvertError::Tag);
    }
    Ok(TlpRepr { mode: Mode::NonFlit, ..tlp.repr() })
}

/// Turns the type 1 configuration request at the front of `bytes` into type 0, at its target bus.
///
/// # Errors
/// It is malformed, or no type 1 request; nothing is changed then.
pub fn type1_to_type0(mode: Mode, bytes: &mut [u8]) -> Result<(), ParseError> {
    let tlp = Tlp::parse(mode, bytes)?;
    let type0 = match tlp.kind() {
        Kind::CfgRead { type1: true } => Kind::CfgRead { type1: false },
        Kind::CfgWrite { type1: true } => Kind::CfgWrite { type1: false },
        _ => return Err(not_type1(&tlp)),
    };
    let at = tlp.prefix_len();
    if let (Some(byte), Some(first)) = (bytes.get_mut(at), type0.byte(mode, false)) {
        *byte = first;
    }
    Ok(())
}

fn not_type1(tlp: &Tlp<'_>) -> ParseError {
    let first = tlp.bytes().get(tlp.prefix_len()).copied().unwrap_or_default();
    refused(Layer::Tlp, Field::TlpType, u16::from(first))
}

/// Puts `prefix` in front of the TLP of `len` bytes at the front of `bytes`, which then holds 4 more.
///
/// # Errors
/// [`EmitError::Room`] when `bytes` has none for them; nothing is changed then.
pub fn insert_prefix(
    bytes: &mut [u8],
    len: usize,
    prefix: VendPrefixL0,
) -> Result<usize, EmitError> {
    let had = bytes.len();
    let need = len.saturating_add(prefix::LEN);
    let place = bytes.get_mut(..need).ok_or(EmitError::Room { need, had })?;
    place.copy_within(..len, prefix::LEN);
    for (byte, value) in place.iter_mut().zip(prefix.emit()) {
        *byte = value;
    }
    Ok(need)
}

/// Takes all local prefixes away from the TLP at the front of `bytes`; returns its new length.
///
/// # Errors
/// It is malformed; nothing is changed then.
pub fn remove_local_prefixes(mode: Mode, bytes: &mut [u8]) -> Result<usize, ParseError> {
    let tlp = Tlp::parse(mode, bytes)?;
    let (from, len) = (tlp.local_prefix_len(), tlp.len());
    if let Some(whole) = bytes.get_mut(..len) {
        whole.copy_within(from.min(len).., 0);
    }
    Ok(len - from)
}
