//! One TLP as it stands in a buffer, from its first prefix to its trailer, in either mode.
//! Shape: prefixes, base header 1, 3 or 4 DW, OHC 0 to 7 DW (flit mode), payload, trailer; [`Tlp`] holds the DWs
//! of the header in host order and borrows the rest.
//! Units: DW of 4 bytes, lengths in bytes unless a name says DW.
//! Source: PCIe 5.0 and 6.0 section 2.2; docs/spec/wire-formats.md §3.1 to §3.6.

use super::fields::{AddressSpace, At, Attr, DevLoad, Implicit, Pasid, Route, Status};
use super::kind::{Flow, Kind, Mode, Routing};
use super::layout::{bit, bits8, dw_at, flit, high16, length, low16, non_flit};
use super::ohc::{self, OhcA1, OhcA5};
use super::prefix::{self, Scope, VendPrefixL0};
use super::rules;
use super::uio::UioDw2;
use crate::error::{Field, Layer, ParseError};
use crate::fabric::{Bdf, Hpa};

/// Most prefixes in front of one header: four local, four end-end.
const PREFIXES_MAX: usize = 8;

/// Message code of a vendor-defined message that is answered UR where it is not supported.
pub const CODE_VDM_TYPE0: u8 = 0x7E;
/// Message code of a vendor-defined message that is dropped where it is not supported.
pub const CODE_VDM_TYPE1: u8 = 0x7F;

/// What was found in front of a header.
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
pub(super) const fn refused(layer: Layer, field: Field, value: u16) -> ParseError {
    ParseError::Value { layer, field, value }
}

/// Borrowed TLP. Getters cannot fail; those of fields that a kind does not have say so.
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
    /// Reads the TLP at the front of `bytes`, prefixes first; what lies behind its end is not looked at.
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
        rules::check(&tlp)?;
        Ok(tlp)
    }

    /// Reads OHC-A, B and C behind the base header and steps over OHC-E; returns where they end.
    #[inline]
    fn read_ohc(&mut self, base_end: usize) -> Result<usize, ParseError> {
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

    /// Header layout.
    #[inline]
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// What it asks for or answers.
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

    /// Answers a request.
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
    /// Bytes at the address that a request is about: by Length, of CAS one of two operands; 0 where that means nothing.
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

    /// The payload.
    #[inline]
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Who asked; of a completion, whom it goes to.
    #[inline]
    #[must_use]
    pub const fn requester(&self) -> Bdf {
        let [_, dw1, dw2, _] = self.dw;
        Bdf::from_bits(high16(if self.is_completion() { dw2 } else { dw1 }))
    }

    /// Who answers, of a completion.
    #[inline]
    #[must_use]
    pub const fn completer(&self) -> Option<Bdf> {
        let [_, dw1, ..] = self.dw;
        if self.is_completion() { Some(Bdf::from_bits(high16(dw1))) } else { None }
    }

    /// Tag: 10 bits, of flit mode 14. A message of flit mode has none, nor a write whose tag byte
    /// carries a hint: 0.
    #[inline]
    #[must_use]
    pub const fn tag(&self) -> u16 {
        let [dw0, dw1, dw2, _] = self.dw;
        match (self.mode, self.kind) {
            (Mode::Flit, Kind::Message { .. } | Kind::Nop) => 0,
            (Mode::Flit, _) => low16(dw1) & 0x3FFF,
            (Mode::NonFlit, Kind::MemWrite) if self.th() => 0,
            (Mode::NonFlit, _) => {
                let low = bits8(if self.is_completion() { dw2 } else { dw1 }, 8);
                (bit(dw0, non_flit::T9) as u16) << 9
                    | (bit(dw0, non_flit::T8) as u16) << 8
                    | low as u16
            }
        }
    }

    /// `LastBE` and `FirstBE` as one byte, as they count: all ones where the header has none.
    #[inline]
    pub(super) const fn byte_enables(&self) -> u8 {
        let [_, dw1, ..] = self.dw;
        let all = if self.length_dw() > 1 { 0xFF } else { 0x0F };
        if self.kind.is_atomic()
            || !(self.kind.is_memory() || self.kind.is_io() || self.kind.is_config())
        {
            return all;
        }
        match (self.mode, self.ohc) {
            // a read with hints has them where the byte enables are
            (Mode::NonFlit, _) if self.th() && self.is_non_posted() => all,
            (Mode::NonFlit, _) => bits8(dw1, 0),
            (Mode::Flit, [Some(a), ..]) => bits8(a, 0),
            (Mode::Flit, _) => all,
        }
    }

    /// Byte enables of the first DW, bit 0 its first byte.
    #[inline]
    #[must_use]
    pub const fn first_be(&self) -> u8 {
        self.byte_enables() & 0xF
    }

    /// Byte enables of the last DW; 0 if there is but one.
    #[inline]
    #[must_use]
    pub const fn last_be(&self) -> u8 {
        self.byte_enables() >> 4
    }

    /// Address of a memory or I/O request, or of a message routed by it: the first DW's first byte.
    #[inline]
    #[must_use]
    pub const fn addr(&self) -> Option<Hpa> {
        let [_, _, dw2, dw3] = self.dw;
        match self.kind {
            Kind::Message { routing: Routing::Address, .. } => {}
            kind if kind.is_memory() || kind.is_io() => {}
            _ => return None,
        }
        Some(if self.wide {
            Hpa((dw2 as u64) << 32 | (dw3 & !3) as u64)
        } else {
            Hpa((dw2 & !3) as u64)
        })
    }

    /// Whether the header has room for a 64-bit address; messages always have.
    #[inline]
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// What decides where it goes.
    #[inline]
    #[must_use]
    pub const fn route(&self) -> Route {
        let [_, _, dw2, _] = self.dw;
        if let Some(addr) = self.addr() {
            let space = if self.kind.is_io() { AddressSpace::Io } else { AddressSpace::Memory };
            return Route::Address { space, addr, wide: self.wide };
        }
        match self.kind {
            Kind::Message { routing: Routing::ToRoot, .. } => Route::Implicit(Implicit::ToRoot),
            Kind::Message { routing: Routing::Broadcast, .. } => {
                Route::Implicit(Implicit::Broadcast)
            }
            Kind::Message { routing: Routing::Gather, .. } => Route::Implicit(Implicit::Gather),
            Kind::Message { routing: Routing::Local, .. } | Kind::Nop => {
                Route::Implicit(Implicit::Local)
            }
            _ => Route::Id(Bdf::from_bits(high16(dw2))),
        }
    }

    /// Register of a configuration request, byte offset 0..=4092.
    #[inline]
    #[must_use]
    pub const fn register(&self) -> Option<u16> {
        let [_, _, dw2, _] = self.dw;
        if self.kind.is_config() { Some(low16(dw2) & 0xFFC) } else { None }
    }

    /// Status of a completion.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        let [_, dw1, ..] = self.dw;
        if !self.is_completion() {
            return None;
        }
        Some(match (self.mode, self.ohc) {
            (Mode::NonFlit, _) => Status::from_low_bits(bits8(dw1, 13)),
            (Mode::Flit, [Some(a5), ..]) => OhcA5::decode(a5).status,
            (Mode::Flit, _) => Status::Success,
        })
    }

    /// Bytes that are still to come, with this completion's, 1..=4096. UIO has no such count.
    #[inline]
    #[must_use]
    pub const fn byte_count(&self) -> Option<u16> {
        let [_, dw1, dw2, _] = self.dw;
        if !matches!(self.kind, Kind::Completion { .. }) {
            return None;
        }
        let dw = match self.mode {
            Mode::NonFlit => dw1,
            Mode::Flit => dw2,
        };
        Some(match low16(dw) & 0xFFF {
            0 => 4_096,
            count => count,
        })
    }

    /// Low 7 bits of the address of the first byte that a completion returns.
    #[inline]
    #[must_use]
    pub const fn lower_address(&self) -> Option<u8> {
        let [_, dw1, dw2, _] = self.dw;
        if !matches!(self.kind, Kind::Completion { .. }) {
            return None;
        }
        Some(match self.mode {
            Mode::NonFlit => bits8(dw2, 0) & 0x7F,
            Mode::Flit => {
                let low = match self.ohc {
                    [Some(a5), ..] => OhcA5::decode(a5).lower_address,
                    _ => 0,
                };
                (bit(dw1, flit::LA6) as u8) << 6 | (bits8(dw2, 12) & 0xF) << 2 | low
            }
        })
    }

    /// Load of the completer and the first DW's place in the request, of a UIO completion.
    #[inline]
    #[must_use]
    pub const fn uio_completion(&self) -> Option<(DevLoad, u16)> {
        let [_, _, dw2, _] = self.dw;
        if !self.kind.is_uio_completion() {
            return None;
        }
        let UioDw2 { dev_load, offset_dw, .. } = UioDw2::decode(dw2);
        Some((dev_load, offset_dw))
    }

    /// Code of a message.
    #[inline]
    #[must_use]
    pub const fn message_code(&self) -> Option<u8> {
        let [_, dw1, ..] = self.dw;
        if matches!(self.kind, Kind::Message { .. }) { Some(bits8(dw1, 0)) } else { None }
    }

    /// The two DWs of a message behind the one with its code.
    #[inline]
    #[must_use]
    pub const fn message_dws(&self) -> Option<(u32, u32)> {
        let [_, _, dw2, dw3] = self.dw;
        if matches!(self.kind, Kind::Message { .. }) { Some((dw2, dw3)) } else { None }
    }

    /// Vendor ID of a vendor-defined message.
    #[inline]
    #[must_use]
    pub const fn vendor_id(&self) -> Option<u16> {
        let [_, _, dw2, _] = self.dw;
        match self.message_code() {
            Some(CODE_VDM_TYPE0 | CODE_VDM_TYPE1) => Some(low16(dw2)),
            _ => None,
        }
    }

    /// The first vendor-defined local prefix 0: LD-ID or PID, as the port has it.
    #[inline]
    #[must_use]
    pub const fn vend_prefix(&self) -> Option<VendPrefixL0> {
        self.prefixes.vend
    }

    /// Process address space of a request or message.
    #[inline]
    #[must_use]
    pub const fn pasid(&self) -> Option<Pasid> {
        match (self.mode, self.ohc) {
            (Mode::NonFlit, _) => self.prefixes.pasid,
            (Mode::Flit, [Some(a), ..]) => match self.kind {
                Kind::Message { .. } => ohc::decode_a4_pasid(a),
                kind if kind.is_memory() => OhcA1::decode(a).pasid,
                _ => None,
            },
            (Mode::Flit, _) => None,
        }
    }

    /// Segment that a configuration request, message or completion goes to.
    #[inline]
    #[must_use]
    pub const fn dest_segment(&self) -> Option<u8> {
        match self.ohc {
            [Some(a), ..] if !(self.kind.is_memory() || self.kind.is_io()) => ohc::dest_segment(a),
            _ => None,
        }
    }

    /// Segment of the completer, where a completion names one.
    #[inline]
    #[must_use]
    pub const fn completer_segment(&self) -> Option<u8> {
        match self.ohc {
            [Some(a), ..] if self.is_completion() && bit(a, 15) => Some(bits8(a, 16)),
            _ => None,
        }
    }

    /// Segment of the requester, where an OHC-C names one.
    #[inline]
    #[must_use]
    pub const fn requester_segment(&self) -> Option<u8> {
        match self.ohc {
            [_, _, Some(c)] => ohc::requester_segment(c),
            _ => None,
        }
    }

    /// OHC-A, B and C as they stand.
    #[inline]
    #[must_use]
    pub const fn ohc(&self) -> [Option<u32>; 3] {
        self.ohc
    }

    /// The OHC bits of a flit-mode header: A, B, C, and two of E.
    #[inline]
    pub(super) const fn ohc_bits(&self) -> u8 {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => 0,
            Mode::Flit => bits8(dw0, flit::OHC) & 0x1F,
        }
    }

    /// TS of a flit-mode header, 3 bits.
    #[inline]
    pub(super) const fn trailer_bits(&self) -> u8 {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => 0,
            Mode::Flit => bits8(dw0, flit::TS) & 7,
        }
    }

    /// What a 4-DW flit-mode header with 64 bits behind DW1 says of its address.
    #[inline]
    pub(super) const fn address_or_zero(&self) -> u64 {
        match self.addr() {
            Some(Hpa(addr)) => addr,
            None => 0,
        }
    }
}
