//! TLPs as named fields.
//!
//! The bytes after the addresses and the tag of a frame → [`TlpFields`], or the parse error. Lengths are
//! in bytes, or DW where a name says so.
//!
//! Source: docs/spec/wire-formats.md §3.

use std::fmt;

use serde::Serialize;
use weft_parsers::ParseError;
use weft_parsers::cxl_cache::{CacheClass, CacheMessage, CacheOp, GoState};
use weft_parsers::cxl_mem::{Lease, MemClass, MemMessage};
use weft_parsers::tlp::{
    Implicit, Kind, Mode, Oui, PbrTlp, PbrVdm, Protocol, Pth, Route, Routing, Status, Tlp, TlpLink,
};

/// Fields of a message between two ends of a link for TLPs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlpFields {
    /// `pbr`, `hbr flit`, `hbr non-flit`, `link control`, or `pbr` or `hbr` with `cxl.mem` or `cxl.cache`.
    pub link: &'static str,
    /// PBR TLP header; `None` for HBR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pth: Option<PthFields>,
    /// The standard's mnemonic, as `UIOMRd`, `CfgRd1` or `MemRdData`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tc: Option<u8>,
    /// Contents of `VendPrefixL0`: an LD-ID, or a PID in the upper 12 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vend_prefix: Option<String>,
    /// Id of the requester.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requester: Option<String>,
    /// Id of the completer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<u16>,
    /// Where it goes: an address, an id, or the implicit routing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Register of a configuration request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register: Option<u16>,
    /// Length field, in DW.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length_dw: Option<u16>,
    /// Byte enables of the first and last DW of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_enables: Option<[u8; 2]>,
    /// Completion status, by its abbreviation in the standard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    /// Message code, or the name of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether Lightweight Notification is on.
    #[serde(skip_serializing_if = "is_false")]
    pub ln: bool,
    /// Whether the payload is poisoned.
    #[serde(skip_serializing_if = "is_false")]
    pub poisoned: bool,
    /// Load of the device that answers a UIO request or a CXL.mem message: 0 light to 3 severe overload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev_load: Option<u8>,
    /// Logical device of a CXL.mem message without PTH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ld_id: Option<u8>,
    /// `CacheID` of a CXL.cache message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_id: Option<u8>,
    /// Number of a device's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cqid: Option<u16>,
    /// Number of a host's snoop or write pull.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uqid: Option<u16>,
    /// State that a GO grants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Whether the data is stale, because a snoop took the line first.
    #[serde(skip_serializing_if = "is_false")]
    pub bogus: bool,
    /// Number of the lease in a CXL.mem response or a host's CXL.cache message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Term of the lease, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_us: Option<u64>,
    /// Bytes of a `MemWrPtl` or D2H Data that are valid, bit 0 for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_mask: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PthFields {
    /// PID of the source, hexadecimal.
    pub spid: String,
    /// PID of the destination, hexadecimal.
    pub dpid: String,
    /// Whether the far edge inserts a prefix.
    pub pif: bool,
    /// Whether it goes downstream, or comes from a source that hosts trust.
    pub dsar: bool,
    pub hie: bool,
}

impl From<Pth> for PthFields {
    fn from(pth: Pth) -> Self {
        let Pth { pif, dsar, hie, spid, dpid } = pth;
        Self { spid: spid.to_string(), dpid: dpid.to_string(), pif, dsar, hie }
    }
}

/// Bytes of a TLP's payload, and bytes behind the TLP; or the parse error.
type Lengths = Result<(usize, usize), ParseError>;

/// Reads bytes that start with the EtherType of TLPs; `None` when the EtherType is another protocol's.
pub(super) fn read(bytes: &[u8]) -> Option<(TlpFields, Lengths)> {
    let (link, rest) = TlpLink::parse(bytes, Oui::DEFAULT).ok()?;
    let mut fields = TlpFields::default();
    let read = match link.protocol {
        Protocol::Control => {
            fields.link = "link control";
            return Some((fields, Ok((rest.len(), 0))));
        }
        Protocol::Pbr => {
            fields.link = "pbr";
            PbrTlp::parse(rest).map(|found| {
                found.map(|pbr| {
                    fields.pth = Some(pbr.pth().into());
                    (*pbr.tlp(), rest.len() - pbr.len())
                })
            })
        }
        Protocol::PbrMem | Protocol::HbrMem => return Some(mem(link.protocol, rest)),
        Protocol::PbrCache | Protocol::HbrCache => return Some(cache(link.protocol, rest)),
        Protocol::HbrFlit | Protocol::HbrNonFlit => {
            let (mode, name) = match link.protocol {
                Protocol::HbrFlit => (Mode::Flit, "hbr flit"),
                _ => (Mode::NonFlit, "hbr non-flit"),
            };
            fields.link = name;
            Tlp::parse(mode, rest).map(|tlp| Some((tlp, rest.len() - tlp.len())))
        }
    };
    let read = read.map(|found| {
        if let Some((tlp, behind)) = found {
            fill(&mut fields, &tlp);
            (tlp.payload().len(), behind)
        } else {
            // A PBR TLP without content is a NOP.
            fields.kind = Some("NOP");
            (0, rest.len())
        }
    });
    Some((fields, read))
}

/// Takes the PTH, where there is one, off the bytes after the link header.
fn without_pth<'a>(
    fields: &mut TlpFields,
    is_pbr: bool,
    rest: &'a [u8],
) -> Result<&'a [u8], ParseError> {
    if !is_pbr {
        return Ok(rest);
    }
    let (pth, message) = Pth::parse(rest)?;
    fields.pth = Some(pth.into());
    Ok(message)
}

fn show_lease(fields: &mut TlpFields, lease: Lease) {
    // Number 0 means that there is no lease.
    if lease.number != 0 {
        fields.lease = Some(format!("{:#018x}", lease.number));
        fields.lease_us = Some(u64::from(lease.term) * Lease::UNIT_US);
    }
}

fn cache(protocol: Protocol, rest: &[u8]) -> (TlpFields, Lengths) {
    let is_pbr = protocol == Protocol::PbrCache;
    let link = if is_pbr { "pbr cxl.cache" } else { "hbr cxl.cache" };
    let mut fields = TlpFields { link, ..TlpFields::default() };
    let message = without_pth(&mut fields, is_pbr, rest);
    let found = message.and_then(|message| Ok((message, CacheMessage::parse(message)?)));
    let (message, found) = match found {
        Ok(found) => found,
        Err(error) => return (fields, Err(error)),
    };
    let (head, class) = (found.head, found.head.op.class());
    fields.kind = Some(head.op.name());
    fields.cache_id = Some(head.cache_id);
    match class {
        CacheClass::D2hReq | CacheClass::H2dRsp | CacheClass::H2dData => {
            fields.cqid = Some(head.id);
        }
        CacheClass::D2hRsp | CacheClass::D2hData | CacheClass::H2dReq => {
            fields.uqid = Some(head.id);
        }
    }
    match head.op {
        CacheOp::Go => {
            fields.state = Some(match GoState::decode(head.rsp_data) {
                Some(GoState::Shared) => "S",
                Some(GoState::Exclusive) => "E",
                Some(GoState::Modified) => "M",
                Some(GoState::Invalid) => "I",
                Some(GoState::Error) => "error",
                None => "reserved",
            });
        }
        // Without a GO the field is the UQID of a write pull.
        _ if class == CacheClass::H2dRsp => fields.uqid = Some(head.rsp_data),
        _ => {}
    }
    let names_line = matches!(class, CacheClass::D2hReq | CacheClass::D2hRsp | CacheClass::H2dReq);
    fields.to = names_line.then(|| head.addr.to_string());
    fields.poisoned = head.poison;
    fields.bogus = head.bogus;
    show_lease(&mut fields, head.lease);
    fields.byte_mask = found.enables.map(|mask| format!("{mask:#018x}"));
    let data = found.data.map_or(0, |line| line.len());
    (fields, Ok((data, message.len() - found.len())))
}

fn mem(protocol: Protocol, rest: &[u8]) -> (TlpFields, Lengths) {
    let is_pbr = protocol == Protocol::PbrMem;
    let link = if is_pbr { "pbr cxl.mem" } else { "hbr cxl.mem" };
    let mut fields = TlpFields { link, ..TlpFields::default() };
    let message = without_pth(&mut fields, is_pbr, rest);
    let found = message.and_then(|message| Ok((message, MemMessage::parse(message)?)));
    let (message, found) = match found {
        Ok(found) => found,
        Err(error) => return (fields, Err(error)),
    };
    let (head, class) = (found.head, found.head.op.class());
    let is_snoop = matches!(class, MemClass::BiSnp | MemClass::BiRsp);
    fields.kind = Some(head.op.name());
    fields.tc = class.is_request().then_some(head.tc);
    fields.tag = Some(head.tag);
    fields.to = (!class.is_response()).then(|| head.addr.to_string());
    fields.poisoned = head.poison;
    fields.dev_load = class.is_response().then_some(head.load as u8);
    // With a PTH the PIDs tell the device; snoops have no LD-ID.
    fields.ld_id = (!is_pbr && !is_snoop).then_some(head.ld);
    show_lease(&mut fields, head.lease);
    fields.byte_mask = found.enables.map(|mask| format!("{mask:#018x}"));
    let data = found.data.map_or(0, |line| line.len());
    (fields, Ok((data, message.len() - found.len())))
}

fn fill(fields: &mut TlpFields, tlp: &Tlp<'_>) {
    let kind = tlp.kind();
    let is_message = matches!(kind, Kind::Message { .. });
    fields.kind = Some(name(tlp));
    fields.tc = Some(tlp.tc());
    fields.vend_prefix = tlp.vend_prefix().map(|prefix| format!("{:#06x}", prefix.ld_id()));
    fields.requester = Some(tlp.requester().to_string());
    fields.completer = tlp.completer().map(|bdf| bdf.to_string());
    fields.tag = (!is_message).then(|| tlp.tag());
    fields.to = match tlp.route() {
        Route::Address { addr, .. } => Some(addr.to_string()),
        Route::Id(bdf) if !tlp.is_completion() => Some(bdf.to_string()),
        // A completion is routed by the id of the requester, which is shown already.
        Route::Id(_) => None,
        Route::Implicit(Implicit::ToRoot) => Some("root".to_owned()),
        Route::Implicit(Implicit::Broadcast) => Some("all".to_owned()),
        Route::Implicit(Implicit::Local) => Some("here".to_owned()),
        Route::Implicit(Implicit::Gather) => Some("root, gathered".to_owned()),
    };
    fields.register = tlp.register();
    fields.length_dw = Some(tlp.length_dw()).filter(|&length| length > 0);
    let has_enables = kind.is_memory() || kind.is_io() || kind.is_config();
    fields.byte_enables = has_enables.then(|| [tlp.first_be(), tlp.last_be()]);
    fields.status = tlp.status().map(|status| match status {
        Status::Success => "SC",
        Status::UnsupportedRequest => "UR",
        Status::RequestRetry => "RRS",
        Status::CompleterAbort => "CA",
    });
    fields.message = tlp.message_code().map(|code| match PbrVdm::parse(tlp) {
        Ok(vdm) => format!("{:?}", vdm.op),
        Err(_) => format!("{code:#04x}"),
    });
    fields.ln = tlp.ln();
    fields.poisoned = tlp.ep();
    fields.dev_load = tlp.uio_completion().map(|(load, _)| load as u8);
}

/// The standard's mnemonic for a TLP.
const fn name(tlp: &Tlp<'_>) -> &'static str {
    match tlp.kind() {
        Kind::Nop => "NOP",
        Kind::MemRead => "MRd",
        Kind::MemReadLocked => "MRdLk",
        Kind::MemWrite => "MWr",
        Kind::DeferrableMemWrite => "DMWr",
        Kind::IoRead => "IORd",
        Kind::IoWrite => "IOWr",
        Kind::CfgRead { type1: false } => "CfgRd0",
        Kind::CfgRead { type1: true } => "CfgRd1",
        Kind::CfgWrite { type1: false } => "CfgWr0",
        Kind::CfgWrite { type1: true } => "CfgWr1",
        Kind::Completion { locked: false, data: false } => "Cpl",
        Kind::Completion { locked: false, data: true } => "CplD",
        Kind::Completion { locked: true, data: false } => "CplLk",
        Kind::Completion { locked: true, data: true } => "CplDLk",
        Kind::Message { routing: Routing::Broadcast, data: false } => "Msg (broadcast)",
        Kind::Message { data: false, .. } => "Msg",
        Kind::Message { data: true, .. } => "MsgD",
        Kind::FetchAdd => "FetchAdd",
        Kind::Swap => "Swap",
        Kind::Cas => "CAS",
        Kind::UioRead => "UIOMRd",
        Kind::UioWrite => "UIOMWr",
        Kind::UioReadCompletion { data: false } => "UIORdCpl",
        Kind::UioReadCompletion { data: true } => "UIORdCplD",
        Kind::UioWriteCompletion => "UIOWrCpl",
    }
}

impl TlpFields {
    /// Writes the fields that only a CXL.cache message has.
    fn write_cache(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cache_id) = self.cache_id {
            write!(f, " cacheid {cache_id}")?;
        }
        if let Some(cqid) = self.cqid {
            write!(f, " cqid {cqid}")?;
        }
        if let Some(uqid) = self.uqid {
            write!(f, " uqid {uqid}")?;
        }
        if let Some(state) = self.state {
            write!(f, " {state}")?;
        }
        Ok(())
    }
}

impl fmt::Display for TlpFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.link)?;
        if let Some(pth) = &self.pth {
            write!(f, " {} > {}", pth.spid, pth.dpid)?;
            for (on, name) in [(pth.hie, " hie"), (pth.dsar, " dsar"), (pth.pif, " pif")] {
                f.write_str(if on { name } else { "" })?;
            }
        }
        if let Some(prefix) = &self.vend_prefix {
            write!(f, " prefix {prefix}")?;
        }
        if let Some(kind) = self.kind {
            write!(f, " {kind}")?;
        }
        if let Some(tc) = self.tc {
            write!(f, " tc {tc}")?;
        }
        if let Some(message) = &self.message {
            write!(f, " {message}")?;
        }
        if let Some(completer) = &self.completer {
            write!(f, " by {completer} for")?;
        }
        if let Some(requester) = &self.requester {
            write!(f, " {requester}")?;
        }
        if let Some(tag) = self.tag {
            write!(f, " tag {tag}")?;
        }
        self.write_cache(f)?;
        if let Some(status) = self.status {
            write!(f, " {status}")?;
        }
        if let Some(to) = &self.to {
            write!(f, " to {to}")?;
        }
        if let Some(register) = self.register {
            write!(f, " register {register:#05x}")?;
        }
        if let Some(length) = self.length_dw {
            write!(f, " {length} DW")?;
        }
        // All four bytes of each DW, or of one DW, is the usual case, and left out.
        if let Some([first, last]) = self.byte_enables.filter(|[first, last]| first & last != 0xF)
            && (first, last) != (0xF, 0)
        {
            write!(f, " be {first:#x}/{last:#x}")?;
        }
        if let Some(ld) = self.ld_id.filter(|&ld| ld > 0) {
            write!(f, " ld {ld}")?;
        }
        if let Some(load) = self.dev_load.filter(|&load| load > 0) {
            write!(f, " load {load}")?;
        }
        if let (Some(lease), Some(us)) = (&self.lease, self.lease_us) {
            write!(f, " lease {lease} for {us} us")?;
        }
        if let Some(mask) = &self.byte_mask {
            write!(f, " bytes {mask}")?;
        }
        for (on, name) in [(self.ln, " ln"), (self.poisoned, " poisoned"), (self.bogus, " bogus")] {
            f.write_str(if on { name } else { "" })?;
        }
        Ok(())
    }
}
