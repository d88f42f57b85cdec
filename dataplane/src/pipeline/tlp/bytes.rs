//! The bytes of a frame with a TLP: its front, and TLPs that are written anew.
//!
//! From a frame, its [`ParsedTlp`] and a [`Change`] it makes the frame that is sent. The payload is
//! moved only where the layout of the header changes, and its length with it.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.5, §3.7, §3.7a.

use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::fast_frame::MACS_LEN;
use weft_parsers::tlp::{
    self, Completion, Kind as TlpKind, Mode, Oui, Protocol, Pth, Status, Tlp, TlpLink, TlpRepr,
    VendPrefixL0, convert,
};
use weft_parsers::{HEAD_LEN, MacAddr};
use weft_parsers::{cxl_cache, cxl_mem};

use super::mem;
use super::parsed::ParsedTlp;
use crate::desc::Desc;
use crate::pbr::{Kind, LnTlp};
use crate::pool::Bufs;

/// Longest front: addresses, link header, and a prefix or a PTH of 4 bytes.
const FRONT_MAX: usize = MACS_LEN + tlp::link::LEN + 4;

/// Memory in which a TLP is written anew: header and OHC, and a payload of at most 4 KiB.
pub(in crate::pipeline) type Space = [u8; 4_096 + 128];

/// The front of a TLP that is sent, behind the link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// On links of hosts and devices: a local prefix, or nothing.
    Hbr(Option<VendPrefixL0>),
    /// On PBR links: a PTH, and the TLP behind it is in flit mode.
    Pbr(Pth),
}

impl Front {
    /// Layout of the TLP's header, on a link whose mode is `link`.
    pub const fn mode(self, link: Mode) -> Mode {
        match self {
            Self::Hbr(_) => link,
            Self::Pbr(_) => Mode::Flit,
        }
    }
}

/// Changes of a TLP between receipt and sending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub front: Front,
    pub mode: Mode,
    pub type1_to_0: bool,
    pub segment: Option<u8>,
}

/// The completion by which a refused request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub front: Front,
    pub mode: Mode,
    pub completer: Bdf,
    pub status: Status,
}

/// A reason why a frame cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The mode of the link has no such TLP.
    Form,
    /// It is longer than the chunk, or the port's longest frame.
    Room,
}

/// Addresses of a link, the OUI of its protocol, and its longest frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkEnds {
    pub to: MacAddr,
    pub from: MacAddr,
    pub oui: Oui,
    pub frame_len_max: usize,
}

/// EtherType at its place behind the addresses, tagged or not.
pub(super) const fn ether_type(head: &[u8; HEAD_LEN]) -> u16 {
    let [_, _, _, _, _, _, _, _, _, _, _, _, high, low, ..] = *head;
    u16::from_be_bytes([high, low])
}

/// Destination and source address of a frame, in this order.
pub(super) const fn addresses(head: &[u8; HEAD_LEN]) -> (MacAddr, MacAddr) {
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *head;
    (MacAddr([d0, d1, d2, d3, d4, d5]), MacAddr([s0, s1, s2, s3, s4, s5]))
}

/// A front as bytes.
struct Head {
    bytes: [u8; FRONT_MAX],
    len: usize,
}

impl Head {
    fn new(ends: LinkEnds, front: Front, parsed: &ParsedTlp, mode: Mode, ln: bool) -> Self {
        let mut head = Self { bytes: [0; FRONT_MAX], len: 0 };
        head.put(&ends.to.0);
        head.put(&ends.from.0);
        let is_pbr = matches!(front, Front::Pbr(_));
        let protocol = match (is_pbr, mode) {
            _ if parsed.cache_id().is_some() && is_pbr => Protocol::PbrCache,
            _ if parsed.cache_id().is_some() => Protocol::HbrCache,
            _ if parsed.mem.is_some() && is_pbr => Protocol::PbrMem,
            _ if parsed.mem.is_some() => Protocol::HbrMem,
            (true, _) => Protocol::Pbr,
            (false, Mode::Flit) => Protocol::HbrFlit,
            (false, Mode::NonFlit) => Protocol::HbrNonFlit,
        };
        let mut link = [0; tlp::link::LEN];
        // PBR links have no LN bit but flag 0 of the link header, and that between the ends of a
        // virtual link only (docs/spec/wire-formats.md §3.7a).
        let ln = ln && matches!(front, Front::Pbr(pth) if pth.hie);
        let written = TlpLink { oui: ends.oui, protocol, ln }.emit(&mut link);
        debug_assert!(written.is_ok(), "the array is of its length");
        head.put(&link);
        match front {
            Front::Hbr(Some(prefix)) if parsed.is_tlp() => head.put(&prefix.emit()),
            // Messages of CXL.mem name their logical device in a field of their own.
            Front::Hbr(_) => {}
            Front::Pbr(pth) => head.put(&pth.emit()),
        }
        head
    }

    fn put(&mut self, bytes: &[u8]) {
        let places = self.bytes.get_mut(self.len..).unwrap_or_default();
        for (place, &byte) in places.iter_mut().zip(bytes) {
            *place = byte;
        }
        self.len += bytes.len();
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Both addresses of a frame as bytes, from the low 48 bits of each.
#[inline]
pub(super) const fn macs(to: u64, from: u64) -> [u8; MACS_LEN] {
    let [_, _, d0, d1, d2, d3, d4, d5] = to.to_be_bytes();
    let [_, _, s0, s1, s2, s3, s4, s5] = from.to_be_bytes();
    [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5]
}

/// Puts addresses, link header and perhaps a PTH before the `len` bytes at `at`.
#[inline]
pub(super) fn put_front(
    bufs: &mut Bufs,
    desc: &mut Desc,
    at: usize,
    len: usize,
    macs: [u8; MACS_LEN],
    pth: Option<Pth>,
    link: TlpLink,
) -> Option<()> {
    let (chunk, start) = bufs.chunk_mut(desc)?;
    let front_len = MACS_LEN + tlp::link::LEN + if pth.is_some() { tlp::pth::LEN } else { 0 };
    let first = (start + at).checked_sub(front_len)?;
    let (places, _) = chunk.get_mut(first..)?.split_first_chunk_mut::<MACS_LEN>()?;
    *places = macs;
    let rest = chunk.get_mut(first + MACS_LEN..)?;
    let rest = link.emit(rest).ok()?;
    if let Some(pth) = pth {
        *rest.first_chunk_mut()? = pth.emit();
    }
    bufs.set_bounds(desc, first, front_len + len);
    Some(())
}

/// Replaces the addresses of a frame and leaves the rest as it is.
pub(super) fn readdress(bufs: &mut Bufs, desc: &mut Desc, to: MacAddr, from: MacAddr) {
    if let Some(macs) = bufs.bytes_mut(desc).and_then(|bytes| bytes.first_chunk_mut::<MACS_LEN>()) {
        let [d0, d1, d2, d3, d4, d5] = to.0;
        let [s0, s1, s2, s3, s4, s5] = from.0;
        *macs = [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5];
    }
}

/// LD-ID to write into a CXL.mem message that is sent with this front. On the link of a device with
/// logical devices it is the one that is addressed. Elsewhere it is 0, as only that link's ends
/// know LD-IDs.
fn ld_of(front: Front, parsed: &ParsedTlp) -> Option<u8> {
    parsed.mem?;
    match front {
        Front::Hbr(Some(prefix)) => Some(prefix.ld_id().to_le_bytes()[0]),
        _ => parsed.request.ld.map(|_| 0),
    }
}

/// Rewrites a frame as it is to be sent.
pub(super) fn change(
    bufs: &mut Bufs,
    desc: &mut Desc,
    parsed: &ParsedTlp,
    change: Change,
    ends: LinkEnds,
    space: &mut Space,
) -> Result<(), Unfit> {
    let ln = parsed.request.ln.is_some_and(LnTlp::has_bit);
    let head = Head::new(ends, change.front, parsed, change.mode, ln);
    if !parsed.is_tlp() || parsed.mode == change.mode && change.segment.is_none() {
        if head.len + parsed.end - parsed.at > ends.frame_len_max {
            return Err(Unfit::Room);
        }
        let (chunk, start) = bufs.chunk_mut(desc).ok_or(Unfit::Room)?;
        let at = start + parsed.at;
        if change.type1_to_0
            && let Some(tlp) = chunk.get_mut(at..start + parsed.end)
        {
            convert::type1_to_type0(parsed.mode, tlp).map_err(|_| Unfit::Form)?;
        }
        let first = at.checked_sub(head.len).ok_or(Unfit::Room)?;
        let places = chunk.get_mut(first..at).ok_or(Unfit::Room)?;
        places.copy_from_slice(head.bytes());
        if let (Front::Hbr(_), Kind::CxlMemSnoop, Some(pth)) =
            (change.front, parsed.request.kind, parsed.pth)
            && let Some(message) = chunk.get_mut(at..)
        {
            // Behind the edge there is no PTH: the host answers to this BI-ID.
            cxl_mem::set_bi_id(message, pth.spid.bits());
        }
        if let (Some(ld), Some(message)) = (ld_of(change.front, parsed), chunk.get_mut(at..)) {
            cxl_mem::set_ld(message, ld);
        }
        // That of the port at which the message came in, not the one that the device wrote.
        if let (Some(cache_id), Some(message)) = (parsed.cache_id(), chunk.get_mut(at..)) {
            cxl_cache::set_cache_id(message, cache_id);
        }
        bufs.set_bounds(desc, first, head.len + parsed.end - parsed.at);
        return Ok(());
    }
    let bytes = bufs.bytes(desc).get(parsed.at..parsed.end).unwrap_or_default();
    let tlp = Tlp::parse(parsed.mode, bytes).map_err(|_| Unfit::Form)?;
    let mut repr = match (parsed.mode, change.mode) {
        (Mode::NonFlit, Mode::Flit) => convert::flit_repr(&tlp).map_err(|_| Unfit::Form)?,
        (Mode::Flit, Mode::NonFlit) => {
            TlpRepr { ln, ..convert::non_flit_repr(&tlp).map_err(|_| Unfit::Form)? }
        }
        _ => tlp.repr(),
    };
    repr.requester_segment = change.segment.or(repr.requester_segment);
    if change.type1_to_0 {
        repr.kind = match repr.kind {
            TlpKind::CfgRead { .. } => TlpKind::CfgRead { type1: false },
            TlpKind::CfgWrite { .. } => TlpKind::CfgWrite { type1: false },
            kind => kind,
        };
    }
    let len = repr.emit(space).map_err(|_| Unfit::Form)?;
    replace(bufs, desc, &head, space.get(..len).unwrap_or_default(), ends.frame_len_max)
}

/// Turns a request into its completion, which says by its status why it was refused.
pub(super) fn answer(
    bufs: &mut Bufs,
    desc: &mut Desc,
    parsed: &ParsedTlp,
    Answer { front, mode, completer, status }: Answer,
    ends: LinkEnds,
    space: &mut Space,
) -> Result<(), Unfit> {
    let head = Head::new(ends, front, parsed, mode, false);
    if let Some(request) = &parsed.mem {
        let len = mem::refused(request, space).ok_or(Unfit::Form)?;
        let tlp = space.get(..len).unwrap_or_default();
        return replace(bufs, desc, &head, tlp, ends.frame_len_max);
    }
    let bytes = bufs.bytes(desc).get(parsed.at..parsed.end).unwrap_or_default();
    let tlp = Tlp::parse(parsed.mode, bytes).map_err(|_| Unfit::Form)?;
    let repr = Completion::of(&tlp, status, completer).ok_or(Unfit::Form)?;
    let len = repr.emit(space).map_err(|_| Unfit::Form)?;
    replace(bufs, desc, &head, space.get(..len).unwrap_or_default(), ends.frame_len_max)
}

/// Replaces a frame's bytes by a front and a TLP.
fn replace(
    bufs: &mut Bufs,
    desc: &mut Desc,
    head: &Head,
    tlp: &[u8],
    len_max: usize,
) -> Result<(), Unfit> {
    let len = head.len + tlp.len();
    if len > len_max {
        return Err(Unfit::Room);
    }
    let (chunk, start) = bufs.chunk_mut(desc).ok_or(Unfit::Room)?;
    let places = chunk.get_mut(start..start + len).ok_or(Unfit::Room)?;
    let (front, rest) = places.split_at_mut(head.len);
    front.copy_from_slice(head.bytes());
    rest.copy_from_slice(tlp);
    bufs.set_bounds(desc, start, len);
    Ok(())
}
