//! Reads the fields of a frame with a TLP that decide where it goes.
//!
//! A frame's bytes become a [`ParsedTlp`], or the reason for which the frame is dropped.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/wire-formats.md §3.7, §3.7a.

use weft_parsers::ether_type;
use weft_parsers::tlp::fast_frame::MACS_LEN;
use weft_parsers::tlp::{self, Mode, PbrTlp, Protocol, Tlp};

use super::parsed::{ParsedTlp, Read, pri};
use super::{cache, mem};
use crate::config::{TlpConfig, TlpLink};
use crate::pbr::source::admit;
use crate::pbr::{EdgePort, Request, Role};
use crate::stats::DropReason;

/// LD-ID of the logical device that the FM owns.
const FM_LD: u16 = 0xFFFF;

/// Reads a frame that came in at a port whose tables are `edge`; `None` for a fabric port.
pub(super) fn read(
    frame: &[u8],
    edge: Option<&EdgePort>,
    link: TlpLink,
    config: &TlpConfig,
) -> Result<Read, DropReason> {
    let tagged = frame.get(12..14) == Some(&ether_type::CTAG.to_be_bytes());
    let start = MACS_LEN + if tagged { weft_parsers::vlan::TAG_LEN } else { 0 };
    let header = frame.get(start..).unwrap_or_default();
    let Ok((found, rest)) = tlp::TlpLink::parse(header, config.oui) else {
        return Err(DropReason::NotTlp);
    };
    let start = start + tlp::link::LEN;
    let role = edge.map(|edge| edge.role);
    let (tlp, pth, at, ln) = match found.protocol {
        Protocol::Control => return Ok(Read::Control),
        Protocol::PbrMem | Protocol::HbrMem => {
            return mem::read(rest, start, edge, found.protocol, config);
        }
        Protocol::PbrCache | Protocol::HbrCache => {
            return cache::read(rest, start, edge, found.protocol, config);
        }
        Protocol::Pbr => {
            let pbr = match PbrTlp::parse(rest) {
                Ok(Some(pbr)) => pbr,
                Ok(None) => return Err(DropReason::NotTlp), // nothing but NOPs
                Err(_) => return Err(DropReason::Malformed),
            };
            let pth = pbr.pth();
            if pbr.vend_prefix().is_some() {
                // Edges remove prefixes on the way in: between switches there is none.
                return Err(DropReason::Malformed);
            }
            if let Some(Err(refusal)) = edge.map(|edge| admit(edge, pth, pbr.tlp())) {
                // Before any of its fields is used: the sender may not use this PTH.
                return Ok(Read::Refused(refusal));
            }
            let at = start + pbr.pth_at() + tlp::pth::LEN;
            // Flag 0 is LN on virtual links between switches only; at an edge the TLP has its own bit or
            // none.
            (*pbr.tlp(), Some(pth), at, found.ln && pth.hie && edge.is_none())
        }
        Protocol::HbrFlit | Protocol::HbrNonFlit => {
            let mode = match found.protocol {
                Protocol::HbrFlit => Mode::Flit,
                _ => Mode::NonFlit,
            };
            if !matches!(role, Some(Role::Usp | Role::Dsp)) || mode != link.mode {
                return Err(DropReason::NotTlp);
            }
            let tlp = Tlp::parse(mode, rest).map_err(|_| DropReason::Malformed)?;
            (tlp, None, start + tlp.local_prefix_len(), tlp.ln())
        }
    };
    if tlp.payload().len() > usize::from(link.payload_max) {
        return Err(DropReason::Malformed);
    }
    //= docs/spec/wire-formats.md §3.2: LD FFFFh is the FM's, also where nobody knows yet that the device has LDs
    if role == Some(Role::Dsp) && tlp.vend_prefix().is_some_and(|it| it.ld_id() == FM_LD) {
        return Ok(Read::Control);
    }
    let has_lds = edge.is_some_and(EdgePort::has_lds);
    let request = Request::of(&tlp, has_lds, ln).ok_or(DropReason::NotTlp)?;
    let kind = request.kind;
    let tlp_len = tlp.len() - tlp.local_prefix_len();
    Ok(Read::Tlp(ParsedTlp {
        request,
        wants_completion: tlp.wants_completion(),
        pth,
        mode: tlp.mode(),
        at,
        end: at + tlp_len,
        tc: tlp.tc(),
        pri: pri(kind, tlp.tc(), config),
        mem: None,
    }))
}
