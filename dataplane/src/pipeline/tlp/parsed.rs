//! What of a frame with a TLP, CXL.mem or CXL.cache message decides where it goes.
//!
//! [`ParsedTlp`], which `read`, `mem` and `cache` make.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9, §3.12.

use weft_parsers::cxl_mem::MemHead;
use weft_parsers::tlp::{Mode, Pth, pth};

use crate::config::TlpConfig;
use crate::pbr::{EdgePort, Kind, Refusal, Request, Role, Route};
use crate::stats::DropReason;
use crate::types::Pri;

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
    /// What it says, if it is no TLP but a CXL.mem message.
    pub mem: Option<MemHead>,
}

impl ParsedTlp {
    /// Whether it is a TLP, and not a message of CXL.mem or CXL.cache.
    pub const fn is_tlp(&self) -> bool {
        self.mem.is_none() && self.cache_id().is_none()
    }

    /// What it goes on with, if it is a CXL.cache message.
    pub const fn cache_id(&self) -> Option<u8> {
        match self.request.route {
            Route::CacheId(cache_id) => Some(cache_id),
            _ => None,
        }
    }

    /// Priority of the completion that this one is turned into.
    pub fn pri_of_answer(&self, config: &TlpConfig) -> Pri {
        match self.request.kind {
            Kind::UioRequest | Kind::CxlMemRequest => config.uio_cpl_pri,
            _ => pri(self.request.kind, self.tc, config),
        }
    }
}

/// A message of CXL.mem or CXL.cache at `start`: its PTH, where the rest begins, and that. Only links of hosts and devices
/// have messages without a PTH.
pub(super) fn behind_pth<'a>(
    rest: &'a [u8],
    start: usize,
    edge: Option<&EdgePort>,
    is_pbr: bool,
) -> Result<(Option<Pth>, usize, &'a [u8]), DropReason> {
    if is_pbr {
        let (pth, message) = Pth::parse(rest).map_err(|_| DropReason::Malformed)?;
        return Ok((Some(pth), start + pth::LEN, message));
    }
    let is_edge = edge.is_some_and(|edge| matches!(edge.role, Role::Usp | Role::Dsp));
    if is_edge { Ok((None, start, rest)) } else { Err(DropReason::NotTlp) }
}

/// UIO, CXL.mem and CXL.cache have priorities of their own; all others go by their Traffic Class.
pub(super) fn pri(kind: Kind, tc: u8, config: &TlpConfig) -> Pri {
    match kind {
        Kind::UioRequest | Kind::CxlMemRequest | Kind::CacheToHost => config.uio_req_pri,
        Kind::UioCompletion | Kind::CxlMemResponse | Kind::CxlMemStatus => config.uio_cpl_pri,
        Kind::CxlMemSnoop | Kind::CxlMemSnoopAnswer | Kind::CacheToDevice => config.uio_cpl_pri,
        _ => config.tc_to_pri.get(usize::from(tc & 7)).copied().unwrap_or_default(),
    }
}
