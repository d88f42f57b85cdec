//! The fields of a TLP, CXL.mem or CXL.cache message that decide where its frame goes.
//!
//! [`ParsedTlp`] is made by `read`, `mem` and `cache`.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/wire-formats.md §3.7, §3.7a, §3.9, §3.12.

use weft_parsers::cxl_mem::MemHead;
use weft_parsers::tlp::{Mode, Pth, pth};

use crate::config::TlpConfig;
use crate::pbr::{EdgePort, Kind, Refusal, Request, Role, Route};
use crate::stats::DropReason;
use crate::types::Pri;

/// Result of reading a frame.
pub(super) enum Read {
    /// A TLP, or a message of CXL.mem or CXL.cache.
    Tlp(ParsedTlp),
    /// A message between the two ends of a link, or one for the FM's logical device.
    Control,
    /// A TLP with a PTH that may not be sent into this port.
    Refused(Refusal),
}

/// The fields of a frame that decide where it goes.
#[derive(Clone, Copy)]
pub(super) struct ParsedTlp {
    pub request: Request,
    /// Whether its requester waits for a completion.
    pub wants_completion: bool,
    pub pth: Option<Pth>,
    pub mode: Mode,
    /// Begin of the TLP, behind its local prefixes, and its end.
    pub at: usize,
    pub end: usize,
    pub tc: u8,
    pub pri: Pri,
    /// Its fields, if it is a CXL.mem message instead of a TLP.
    pub mem: Option<MemHead>,
}

impl ParsedTlp {
    /// Whether it is a TLP, and not a message of CXL.mem or CXL.cache.
    pub const fn is_tlp(&self) -> bool {
        self.mem.is_none() && self.cache_id().is_none()
    }

    /// The `CacheID` with which it is sent, if it is a CXL.cache message.
    pub const fn cache_id(&self) -> Option<u8> {
        match self.request.route {
            Route::CacheId(cache_id) => Some(cache_id),
            _ => None,
        }
    }

    /// Priority of the completion that a request is turned into.
    pub fn pri_of_answer(&self, config: &TlpConfig) -> Pri {
        match self.request.kind {
            Kind::UioRequest | Kind::CxlMemRequest => config.uio_cpl_pri,
            _ => pri(self.request.kind, self.tc, config),
        }
    }
}

/// For a message of CXL.mem or CXL.cache at `start`: its PTH, the place of the message behind it,
/// and the message. Only links of hosts and devices have messages without a PTH.
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

/// Priority by kind: UIO, CXL.mem and CXL.cache have priorities of their own, all others go by
/// their Traffic Class.
pub(super) fn pri(kind: Kind, tc: u8, config: &TlpConfig) -> Pri {
    match kind {
        Kind::UioRequest | Kind::CxlMemRequest | Kind::CacheToHost => config.uio_req_pri,
        Kind::UioCompletion | Kind::CxlMemResponse | Kind::CxlMemStatus => config.uio_cpl_pri,
        Kind::CxlMemSnoop | Kind::CxlMemSnoopAnswer | Kind::CacheToDevice => config.uio_cpl_pri,
        _ => config.tc_to_pri.get(usize::from(tc & 7)).copied().unwrap_or_default(),
    }
}
