//! One TLP as it stands in a buffer, from its first prefix to its trailer, in either mode.
//!
//! Prefixes, base header 1, 3 or 4 DW, OHC 0 to 7 DW (flit mode), payload, trailer; [`Tlp`] holds
//! the DWs of the header in host order and borrows the rest. Lengths are in bytes unless a name
//! says DW.
//!
//! Source: PCIe 5.0 and 6.0 section 2.2; docs/spec/wire-formats.md §3.1 to §3.6.

mod kinds;
mod rules;

use super::fields::{At, Attr, Pasid};
use super::kind::{Flow, Kind, Mode};
use super::layout::{bit, bits8, dw_at, flit, length, non_flit};
use super::ohc::OhcA1;
use super::prefix::{self, Scope, VendPrefixL0};
use crate::error::{Field, Layer, ParseError};

/// Most prefixes in front of one header: four local, four end-end.
const PREFIXES_MAX: usize = 8;

/// Message code of a vendor-defined message that is answered UR where it is not supported.
pub const CODE_VDM_TYPE0: u8 = 0x7E;
/// Message code of a vendor-defined message that is dropped where it is not supported.
pub const CODE_VDM_TYPE1: u8 = 0x7F;

/// Prefixes found in front of a header.
#[derive(Clone, Copy, Debug, Default)]
struct Prefixes {
    vend: Option<VendPrefixL0>,
    pasid: Option<Pasid>,
    local_len: u8,
    len: u8,
}

impl Prefixes {
    #[inline]
    fn scan(mode: Mode, bytes: &[u8]) -> Result<Self, ParseError> {
        let mut found = Self::default();
        for _ in 0..=PREFIXES_MAX {
            let at = usize::from(found.len);
            let Some(&first) = bytes.get(at) else {
                return Err(ParseError::short(Layer::Tlp, at + 4, bytes.len()));
            };
            let Some(scope) = prefix::scope(mode, first) else {
                return Ok(found);
            };
            let Some(dw) = dw_at(bytes, at) else {
                return Err(ParseError::short(Layer::TlpPrefix, at + prefix::LEN, bytes.len()));
            };
            found.add(scope, dw)?;
        }
        Err(refused(Layer::TlpPrefix, Field::TlpPrefixOrder, u16::from(found.len)))
    }

    #[inline]
    fn add(&mut self, scope: Scope, dw: u32) -> Result<(), ParseError> {
        let [first, rest @ ..] = dw.to_be_bytes();
        match scope {
            Scope::Reserved => {
                return Err(refused(Layer::TlpPrefix, Field::TlpType, u16::from(first)));
            }
            Scope::Local if self.len != self.local_len => {
                return Err(refused(Layer::TlpPrefix, Field::TlpPrefixOrder, u16::from(first)));
            }
            Scope::Local => {
                self.local_len += 4;
                if first == prefix::VEND_L0 && self.vend.is_none() {
                    self.vend = Some(VendPrefixL0::from_bytes(rest));
                }
            }
            Scope::EndEnd if first == prefix::PASID => {
                if self.pasid.is_some() {
                    return Err(refused(Layer::TlpPrefix, Field::TlpPrefixOrder, u16::from(first)));
                }
                self.pasid = Some(prefix::decode_pasid(dw));
            }
            Scope::EndEnd => {}
        }
        self.len += 4;
        Ok(())
    }
}

/// Shorthand for [`ParseError::Value`].
#[inline]
pub(in crate::tlp) const fn refused(layer: Layer, field: Field, value: u16) -> ParseError {
    ParseError::Value { layer, field, value }
}

/// Borrowed PCIe or CXL.io TLP. Getters cannot fail; those of fields that a kind does not have say so.
#[derive(Clone, Copy, Debug)]
pub struct Tlp<'a> {
    mode: Mode,
    kind: Kind,
    wide: bool,
    prefixes: Prefixes,
    dw: [u32; 4],
    ohc: [Option<u32>; 3],
    bytes: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Tlp<'a> {
    /// Reads the TLP at the front of `bytes`, prefixes first; bytes behind its end are not looked
    /// at.
    ///
    /// # Errors
    /// [`ParseError::Short`] when `bytes` ends before it, [`ParseError::Value`] when it is malformed.
    #[inline]
    pub fn parse(mode: Mode, bytes: &'a [u8]) -> Result<Self, ParseError> {
        let prefixes = Prefixes::scan(mode, bytes)?;
        let start = usize::from(prefixes.len);
        let first = bytes.get(start).copied().unwrap_or_default();
        let Some((kind, wide)) = Kind::decode(mode, first) else {
            return Err(refused(Layer::Tlp, Field::TlpType, u16::from(first)));
        };
        let mut at = start + kind.base_len(wide);
        if bytes.len() < at {
            return Err(ParseError::short(Layer::Tlp, at, bytes.len()));
        }
        let mut dw = [0; 4];
        // DWs that a shorter header does not have stay 0
        for (index, dw) in dw.iter_mut().enumerate() {
            if index * 4 < kind.base_len(wide) {
                *dw = dw_at(bytes, start + index * 4).unwrap_or_default();
            }
        }
        let mut tlp = Self { mode, kind, wide, prefixes, dw, ohc: [None; 3], bytes, payload: &[] };
        at = tlp.read_ohc(at)?;
        let payload_end = at + tlp.data_len();
        let end = payload_end + tlp.trailer_len()?;
        let (Some(whole), Some(payload)) = (bytes.get(..end), bytes.get(at..payload_end)) else {
            return Err(ParseError::short(Layer::TlpPayload, end, bytes.len()));
        };
        tlp.bytes = whole;
        tlp.payload = payload;
        // last, as the rules need lengths, byte enables and address
        rules::check(&tlp)?;
        Ok(tlp)
    }

    /// Reads OHC-A, B and C behind the base header and steps over OHC-E; returns where they end.
    #[inline]
    fn read_ohc(&mut self, base_end: usize) -> Result<usize, ParseError> {
        // a NOP has a single DW, in which all bits but the type are reserved
        if matches!(self.mode, Mode::NonFlit) || matches!(self.kind, Kind::Nop) {
            return Ok(base_end);
        }
        let bits = self.ohc_bits();
        let mut at = base_end;
        for (index, ohc) in self.ohc.iter_mut().enumerate() {
            if bits >> index & 1 == 1 {
                *ohc = dw_at(self.bytes, at);
                at += 4;
            }
        }
        // OHC-E has 1, 2 or 4 DWs, which weft steps over
        at += match bits >> 3 {
            0 => 0,
            1 => 4,
            2 => 8,
            _ => 16,
        };
        if self.bytes.len() < at {
            return Err(ParseError::short(Layer::Tlp, at, self.bytes.len()));
        }
        Ok(at)
    }

    #[inline]
    fn trailer_len(&self) -> Result<usize, ParseError> {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => Ok(usize::from(self.td()) * 4),
            Mode::Flit if matches!(self.kind, Kind::Nop) => Ok(0),
            Mode::Flit => match bits8(dw0, flit::TS) & 7 {
                0 => Ok(0),
                1 => Ok(4),
                5 => Ok(12),
                6 => Ok(16),
                ts => Err(refused(Layer::Tlp, Field::Trailer, u16::from(ts))),
            },
        }
    }

    /// Bytes of the whole TLP: prefixes, header, payload and trailer.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a TLP is never empty")]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the whole TLP.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the prefixes in front of the header.
    #[inline]
    #[must_use]
    pub const fn prefix_len(&self) -> usize {
        self.prefixes.len as usize
    }

    /// Bytes of the local prefixes, which come first.
    #[inline]
    #[must_use]
    pub const fn local_prefix_len(&self) -> usize {
        self.prefixes.local_len as usize
    }

    /// The TLP without its local prefixes.
    #[inline]
    #[must_use]
    pub fn without_local_prefixes(&self) -> &'a [u8] {
        self.bytes.get(self.local_prefix_len()..).unwrap_or_default()
    }

    /// Header layout: non-flit or flit mode.
    #[inline]
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Request or completion, and of which kind.
    #[inline]
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Class of credits; see [`Kind::flow`].
    #[inline]
    #[must_use]
    pub const fn flow(&self) -> Flow {
        self.kind.flow()
    }

    /// Takes posted credits; a `UIOMWr` does and is completed all the same ([`Self::wants_completion`]).
    #[inline]
    #[must_use]
    pub const fn is_posted(&self) -> bool {
        matches!(self.flow(), Flow::Posted)
    }

    /// Takes non-posted credits.
    #[inline]
    #[must_use]
    pub const fn is_non_posted(&self) -> bool {
        matches!(self.flow(), Flow::NonPosted)
    }

    /// Whether it answers a request.
    #[inline]
    #[must_use]
    pub const fn is_completion(&self) -> bool {
        matches!(self.flow(), Flow::Completion)
    }

    /// UIO request or completion.
    #[inline]
    #[must_use]
    pub const fn is_uio(&self) -> bool {
        self.kind.is_uio()
    }

    /// The requester waits for a completion.
    #[inline]
    #[must_use]
    pub const fn wants_completion(&self) -> bool {
        self.kind.wants_completion()
    }

    /// Traffic Class, 0..=7.
    #[inline]
    #[must_use]
    pub const fn tc(&self) -> u8 {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => bits8(dw0, non_flit::TC) & 7,
            Mode::Flit if matches!(self.kind, Kind::Nop) => 0,
            Mode::Flit => bits8(dw0, flit::TC) & 7,
        }
    }

    /// Attributes; UIO has none.
    #[inline]
    #[must_use]
    pub const fn attr(&self) -> Attr {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => Attr::from_low_bits(
                (bit(dw0, non_flit::ATTR2) as u8) << 2 | bits8(dw0, non_flit::ATTR) & 3,
            ),
            Mode::Flit if self.is_uio() || matches!(self.kind, Kind::Nop) => Attr::from_low_bits(0),
            Mode::Flit => Attr::from_low_bits(bits8(dw0, flit::ATTR)),
        }
    }

    /// LN: registers or deregisters a line, or answers that it is registered. Non-flit mode only, and
    /// only memory reads, memory writes and completions have it.
    #[inline]
    #[must_use]
    pub const fn ln(&self) -> bool {
        let [dw0, ..] = self.dw;
        matches!(self.mode, Mode::NonFlit)
            && matches!(self.kind, Kind::MemRead | Kind::MemWrite | Kind::Completion { .. })
            && bit(dw0, non_flit::LN)
    }

    /// TH: has processing hints (non-flit mode) or an OHC-B (flit mode).
    #[inline]
    #[must_use]
    pub const fn th(&self) -> bool {
        let [dw0, ..] = self.dw;
        let [_, ohc_b, _] = self.ohc;
        match self.mode {
            Mode::NonFlit => self.kind.is_memory() && bit(dw0, non_flit::TH),
            Mode::Flit => ohc_b.is_some(),
        }
    }

    /// TD: ends in a digest; of flit mode: has a trailer.
    #[inline]
    #[must_use]
    pub const fn td(&self) -> bool {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => bit(dw0, non_flit::TD),
            Mode::Flit if matches!(self.kind, Kind::Nop) => false,
            Mode::Flit => bits8(dw0, flit::TS) & 7 != 0,
        }
    }

    /// EP: the payload is poisoned.
    #[inline]
    #[must_use]
    pub const fn ep(&self) -> bool {
        let [dw0, dw1, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => bit(dw0, non_flit::EP),
            Mode::Flit => bit(dw1, flit::EP),
        }
    }

    /// Address type of a memory request; untranslated on all else.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> At {
        let [dw0, _, dw2, dw3] = self.dw;
        if !self.kind.is_memory() {
            return At::Untranslated;
        }
        At::from_low_bits(match self.mode {
            Mode::NonFlit => bits8(dw0, non_flit::AT),
            Mode::Flit if self.wide => bits8(dw3, 0),
            Mode::Flit => bits8(dw2, 0),
        })
    }

    /// NW of a translation request: the page need not be writable.
    #[inline]
    #[must_use]
    pub const fn no_write(&self) -> bool {
        let [_, _, dw2, dw3] = self.dw;
        if !matches!(self.at(), At::TranslationRequest) {
            return false;
        }
        match self.mode {
            Mode::NonFlit => bit(if self.wide { dw3 } else { dw2 }, 0),
            Mode::Flit => match self.ohc {
                [Some(a), ..] => OhcA1::decode(a).no_write,
                _ => false,
            },
        }
    }

    /// Length in DW, 1..=1024; 0 where the field means nothing (no payload, and no read or atomic).
    #[inline]
    #[must_use]
    pub const fn length_dw(&self) -> u16 {
        let [dw0, ..] = self.dw;
        if self.kind.has_data()
            || self.kind.is_memory()
            || self.kind.is_io()
            || self.kind.is_config()
        {
            length(dw0)
        } else {
            0
        }
    }

    //= PCIe 6.0 section 2.2.7: of CAS the Length is that of both operands, and one of them is what is at the address
    /// Bytes that a request accesses at its address: its Length, or one of the two operands of a CAS;
    /// 0 where Length means nothing.
    #[inline]
    #[must_use]
    pub const fn access_len(&self) -> u64 {
        let bytes = self.length_dw() as u64 * 4;
        if matches!(self.kind, Kind::Cas) { bytes / 2 } else { bytes }
    }

    /// Bytes of the payload.
    #[inline]
    #[must_use]
    pub const fn data_len(&self) -> usize {
        if self.kind.has_data() { self.length_dw() as usize * 4 } else { 0 }
    }

    /// Bytes of the payload, whole DWs.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
