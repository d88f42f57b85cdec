//! Lightweight Notification: requests that register a cache line, and the message of its change.
//!
//! LN bit of memory reads, writes and completions; [`LnMessage`] = `MsgD` with code 0x7F and two
//! DWs; [`LnrCapability`] of 8 bytes, whose counts n stand for 2^n lines. Non-flit mode only.
//!
//! Source: PCIe 5.0 section 6.21 (removed in 6.0); docs/spec/wire-formats.md §3.3, C11 (place of NR
//! and payload order proposed).

use super::fields::Attr;
use super::kind::{Kind, Mode, Routing};
use super::layout::{bits8, dw_at, halves, high16};
use super::repr::{Body, TlpRepr};
use super::view::{CODE_VDM_TYPE1, Tlp, refused};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::{Bdf, Hpa};

/// Vendor ID of an LN Message.
pub const VENDOR_PCI_SIG: u16 = 0x0001;

/// Size of a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LineSize {
    /// Lines of 64 bytes.
    #[default]
    L64,
    /// Lines of 128 bytes.
    L128,
}

impl LineSize {
    /// Length of a line in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::L64 => 64,
            Self::L128 => 128,
        }
    }

    /// First byte of the line of `addr`.
    #[must_use]
    pub const fn line(self, Hpa(addr): Hpa) -> Hpa {
        Hpa(addr & !(self.bytes() - 1))
    }
}

/// Operation of a request on the registry of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LnRequest {
    /// Reads the line and registers it.
    Read,
    /// Asks whether the region takes registrations; registers nothing.
    Probe,
    /// Writes the line and registers it.
    Write,
    /// Forgets the registration of the line.
    Deregister,
}

/// Operation and line of a request with LN set. `None` for all other TLPs.
///
/// # Errors
/// It crosses a line: the completer answers CA.
pub fn request(tlp: &Tlp<'_>, size: LineSize) -> Result<Option<(LnRequest, Hpa)>, ParseError> {
    let (true, Some(Hpa(addr))) = (tlp.ln(), tlp.addr()) else {
        return Ok(None);
    };
    // a zero-length request is one DW with no byte enabled
    let is_empty = tlp.length_dw() == 1 && tlp.first_be() == 0;
    let end = addr.saturating_add(u64::from(tlp.length_dw()) * 4 - 1);
    if size.line(Hpa(addr)) != size.line(Hpa(end)) {
        return Err(refused(Layer::Tlp, Field::LnLine, tlp.length_dw()));
    }
    let what = match (tlp.kind(), is_empty) {
        (Kind::MemRead, false) => LnRequest::Read,
        (Kind::MemRead, true) => LnRequest::Probe,
        (_, false) => LnRequest::Write,
        (_, true) => LnRequest::Deregister,
    };
    Ok(Some((what, size.line(Hpa(addr)))))
}

/// An LN Read of `length_dw` DWs at `addr`.
#[must_use]
pub const fn read(requester: Bdf, tag: u16, addr: Hpa, length_dw: u16) -> TlpRepr<'static> {
    let last_be = if length_dw > 1 { 0xF } else { 0 };
    memory(Kind::MemRead, requester, tag, addr, length_dw, 0xF, last_be)
}

/// Asks whether the region of `addr` takes registrations.
#[must_use]
pub const fn probe(requester: Bdf, tag: u16, addr: Hpa) -> TlpRepr<'static> {
    memory(Kind::MemRead, requester, tag, addr, 1, 0, 0)
}

/// An LN Write of whole DWs; `None` if `data` is empty, not whole DWs, or longer than a TLP takes.
#[must_use]
pub fn write(requester: Bdf, addr: Hpa, data: &[u8]) -> Option<TlpRepr<'_>> {
    let length_dw = u16::try_from(data.len() / 4).ok().filter(|dws| (1..=1_024).contains(dws))?;
    if !data.len().is_multiple_of(4) {
        return None;
    }
    let last_be = if length_dw > 1 { 0xF } else { 0 };
    let repr = memory(Kind::MemWrite, requester, 0, addr, length_dw, 0xF, last_be);
    Some(TlpRepr { payload: data, ..repr })
}

/// Forgets the registration of the line of `addr`: an LN Write of nothing.
#[must_use]
pub const fn deregister(requester: Bdf, addr: Hpa) -> TlpRepr<'static> {
    let mut repr = memory(Kind::MemWrite, requester, 0, addr, 1, 0, 0);
    repr.payload = &[0; 4];
    repr
}

/// The request with its length and byte enables, first and last.
const fn memory(
    kind: Kind,
    requester: Bdf,
    tag: u16,
    addr: Hpa,
    length_dw: u16,
    first_be: u8,
    last_be: u8,
) -> TlpRepr<'static> {
    let body = Body::Address {
        addr,
        wide: addr.0 >> 32 != 0,
        at: super::fields::At::Untranslated,
        no_write: false,
        length_dw,
        first_be,
        last_be,
    };
    let mut repr = TlpRepr::new(Mode::NonFlit, kind, requester, tag, body);
    repr.ln = true;
    repr
}

/// Why a line is no longer registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// 00: it was written.
    Updated,
    /// 01: it made room for another.
    Evicted,
    /// 10: all lines of the function are forgotten.
    EvictedAll,
}

impl Reason {
    const fn from_low_bits(bits: u32) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::Updated),
            1 => Some(Self::Evicted),
            2 => Some(Self::EvictedAll),
            _ => None,
        }
    }
}

/// Tells one function, or all, that a line changed or is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnMessage {
    /// Function that is told; `None` for all.
    pub dest: Option<Bdf>,
    /// Reason of the message.
    pub reason: Reason,
    /// Address of the line: bits 5:0 are 0.
    pub line: Hpa,
}

impl LnMessage {
    /// Bytes of the payload.
    pub const PAYLOAD_LEN: usize = 8;

    /// Reads a parsed message; `None` if it is no LN Message.
    ///
    /// # Errors
    /// It is one, with a reserved reason or a payload of another size.
    pub fn parse(tlp: &Tlp<'_>) -> Result<Option<Self>, ParseError> {
        let (Kind::Message { routing, data: true }, Some((dw2, dw3))) =
            (tlp.kind(), tlp.message_dws())
        else {
            return Ok(None);
        };
        let dest = match routing {
            Routing::Id => Some(Bdf::from_bits(high16(dw2))),
            Routing::Broadcast => None,
            _ => return Ok(None),
        };
        // the same message code serves every vendor: vendor, subtype 00 and mode make it an LN
        // Message
        let is_ln = tlp.mode() == Mode::NonFlit
            && tlp.message_code() == Some(CODE_VDM_TYPE1)
            && tlp.vendor_id() == Some(VENDOR_PCI_SIG)
            && bits8(dw3, 24) == 0;
        if !is_ln {
            return Ok(None);
        }
        let (Some(high), Some(low), 2) =
            (dw_at(tlp.payload(), 0), dw_at(tlp.payload(), 4), tlp.length_dw())
        else {
            return Err(refused(Layer::TlpPayload, Field::TlpLength, tlp.length_dw()));
        };
        let Some(reason) = Reason::from_low_bits(dw3) else {
            return Err(refused(Layer::Tlp, Field::LnLine, 3));
        };
        let line = Hpa(u64::from(high) << 32 | u64::from(low & !0x3F));
        Ok(Some(Self { dest, reason, line }))
    }

    /// The line as the payload of [`Self::repr`].
    #[must_use]
    pub const fn payload(&self) -> [u8; Self::PAYLOAD_LEN] {
        (self.line.0 & !0x3F).to_be_bytes()
    }

    /// The message from `completer`, with [`Self::payload`] for `payload`.
    #[must_use]
    pub const fn repr(self, completer: Bdf, payload: &[u8; Self::PAYLOAD_LEN]) -> TlpRepr<'_> {
        let (routing, dest) = match self.dest {
            Some(dest) => (Routing::Id, dest.bits()),
            None => (Routing::Broadcast, 0),
        };
        let body = Body::Message {
            code: CODE_VDM_TYPE1,
            dw2: halves(dest, VENDOR_PCI_SIG),
            dw3: self.reason as u32,
        };
        let kind = Kind::Message { routing, data: true };
        let mut repr = TlpRepr::new(Mode::NonFlit, kind, completer, 0, body);
        repr.attr = Attr::from_low_bits(0);
        repr.payload = payload;
        repr
    }
}

/// Capability of a function that registers lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one-bit fields of a register")]
pub struct LnrCapability {
    /// Byte offset of the next capability, 12 bits.
    pub next: u16,
    /// LNR-64: takes lines of 64 bytes.
    pub lines_64: bool,
    /// LNR-128: takes lines of 128 bytes.
    pub lines_128: bool,
    /// At most 2^n lines, 5 bits.
    pub registration_max: u8,
    /// LNR Enable: the host has switched registration on.
    pub is_enabled: bool,
    /// CLS: lines of 128 bytes.
    pub is_128: bool,
    /// The host allows 2^n lines, 5 bits.
    pub registration_limit: u8,
}

impl LnrCapability {
    /// Bytes in configuration space.
    pub const LEN: usize = 8;
    /// Id of the extended capability.
    pub const ID: u16 = 0x001C;

    /// Reads the registers; `None` if the id is another or the version not 1.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::LEN]) -> Option<Self> {
        let [id_low, id_high, version, next, cap, max, control, limit] = bytes;
        if u16::from_le_bytes([id_low, id_high]) != Self::ID || version & 0xF != 1 {
            return None;
        }
        Some(Self {
            next: (next as u16) << 4 | (version >> 4) as u16,
            lines_64: cap & 1 != 0,
            lines_128: cap & 2 != 0,
            registration_max: max & 0x1F,
            is_enabled: control & 1 != 0,
            is_128: control & 2 != 0,
            registration_limit: limit & 0x1F,
        })
    }

    /// The registers, as [`Self::decode`] reads them.
    #[must_use]
    pub const fn emit(self) -> [u8; Self::LEN] {
        let [id_low, id_high] = Self::ID.to_le_bytes();
        let [next_low, next_high] = (self.next << 4 | 1).to_le_bytes();
        let cap = self.lines_64 as u8 | (self.lines_128 as u8) << 1;
        let control = self.is_enabled as u8 | (self.is_128 as u8) << 1;
        let (max, limit) = (self.registration_max & 0x1F, self.registration_limit & 0x1F);
        [id_low, id_high, next_low, next_high, cap, max, control, limit]
    }
}
