//! What of a frame with a TLP decides where it goes.
//!
//! Shape: a frame's bytes → [`ParsedTlp`], or the reason for which it is dropped.
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/wire-formats.md §3.7, §3.7a.

use weft_parsers::ether_type;
use weft_parsers::tlp::fast_frame::MACS_LEN;
use weft_parsers::tlp::{self, Mode, PbrTlp, Protocol, Pth, Tlp};

use crate::config::{TlpConfig, TlpLink};
use crate::pbr::source::admit;
use crate::pbr::{EdgePort, Kind, Refusal, Request, Role};
use crate::stats::DropReason;
use crate::types::Pri;

/// LD-ID of the logical device that the FM owns.
const FM_LD: u16 = 0xFFFF;
/// A frame that was read.
pub(super) enum Read {
    /// A TLP.
    Tlp(ParsedTlp),
    /// What the two ends of a link tell each other, and what is for the FM's logical device.
    Control,
    /// A TLP with a PTH that nobody may send at this port.
    Refused(Refusal),
}

/// What a frame holds.
#[derive(Clone, Copy)]
pub(super) struct ParsedTlp {
    pub request: Request,
    /// Somebody waits for an answer.
    pub wants_completion: bool,
    pub pth: Option<Pth>,
    pub mode: Mode,
    /// Where the TLP begins, without local prefixes, and where it ends.
    pub at: usize,
    pub end: usize,
    pub tc: u8,
    pub pri: Pri,
}

impl ParsedTlp {
    /// Priority of the completion that this one is turned into.
    pub fn pri_of_answer(&self, config: &TlpConfig) -> Pri {
        match self.request.kind {
            Kind::UioRequest => config.uio_cpl_pri,
            _ => pri(self.request.kind, self.tc, config),
        }
    }
}

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
    let (tlp, pth, at) = match found.protocol {
        Protocol::Control => return Ok(Read::Control),
        Protocol::Pbr => {
            let pbr = match PbrTlp::parse(rest) {
                Ok(Some(pbr)) => pbr,
                Ok(None) => return Err(DropReason::NotTlp), // nothing but NOPs
                Err(_) => return Err(DropReason::Malformed),
            };
            let pth = pbr.pth();
            if pbr.vend_prefix().is_some() {
                return Err(DropReason::Malformed); // edges take it off
            }
            if let Some(Err(refusal)) = edge.map(|edge| admit(edge, pth, pbr.tlp())) {
                return Ok(Read::Refused(refusal)); // before anything is decided by what it says
            }
            (*pbr.tlp(), Some(pth), start + pbr.pth_at() + tlp::pth::LEN)
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
            (tlp, None, start + tlp.local_prefix_len())
        }
    };
    if tlp.payload().len() > usize::from(link.payload_max) {
        return Err(DropReason::Malformed);
    }
    let has_lds = edge.is_some_and(EdgePort::has_lds);
    let request = Request::of(&tlp, has_lds).ok_or(DropReason::NotTlp)?;
    if request.ld == Some(FM_LD) {
        return Ok(Read::Control);
    }
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
    }))
}

/// UIO has priorities of its own; all others go by their Traffic Class.
fn pri(kind: Kind, tc: u8, config: &TlpConfig) -> Pri {
    match kind {
        Kind::UioRequest => config.uio_req_pri,
        Kind::UioCompletion => config.uio_cpl_pri,
        _ => config.tc_to_pri.get(usize::from(tc & 7)).copied().unwrap_or_default(),
    }
}
