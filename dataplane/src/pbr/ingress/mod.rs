//! What becomes of a TLP that comes in at an edge: to which PID it goes, or to which port of this switch.
//! [`EdgePort`], its [`Vcs`], [`Request`] → [`Verdict`], in five steps; the first that decides holds.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge: which DPID"; CXL 3.1 sections 7.7.2.4, 7.7.3.3, 7.7.9;
//! docs/spec/wire-formats.md §3.7.

use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::edge::{EdgePort, Role};
use super::ln::LnTlp;
use super::refusal::Refusal;
use super::segments::Found;
use super::vcs::{Binding, Function, Hop, Route, Side, Vcs};
use crate::types::PortId;

/// Kind of a TLP, CXL.mem or CXL.cache message, as far as routing tells kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UIO read or write.
    UioRequest,
    /// Any answer to one.
    UioCompletion,
    /// Any other TLP that asks for memory.
    MemoryRequest,
    /// Any other completion.
    Completion,
    /// CXL.mem: M2S Req or `RwD`.
    CxlMemRequest,
    /// CXL.mem: S2M DRS.
    CxlMemResponse,
    /// CXL.mem: S2M NDR, which stay in their order.
    CxlMemStatus,
    /// CXL.mem: S2M `BISnp`.
    CxlMemSnoop,
    /// CXL.mem: M2S `BIRsp`.
    CxlMemSnoopAnswer,
    /// CXL.cache: D2H.
    CacheToHost,
    /// CXL.cache: H2D.
    CacheToDevice,
    /// A GFD's notification for a GAE.
    Gam,
    /// I/O, configuration, messages.
    Other,
}

impl Kind {
    /// Whether it answers a request: then nobody is told that it was refused.
    #[inline]
    #[must_use]
    pub const fn is_completion(self) -> bool {
        matches!(
            self,
            Self::UioCompletion
                | Self::Completion
                | Self::CxlMemResponse
                | Self::CxlMemStatus
                | Self::CxlMemSnoopAnswer
        )
    }

    /// Whether its completion can say that it may be sent again: CXL.mem has no word for that.
    #[must_use]
    pub const fn may_be_retried(self) -> bool {
        matches!(self, Self::UioRequest | Self::MemoryRequest | Self::Other)
    }

    /// Whether it may take any of the routes from edge to edge.
    #[inline]
    #[must_use]
    pub const fn is_unordered(self) -> bool {
        matches!(
            self,
            Self::UioRequest
                | Self::UioCompletion
                | Self::CxlMemRequest
                | Self::CxlMemResponse
                | Self::CxlMemSnoop
                | Self::CxlMemSnoopAnswer
        )
    }

    /// Whether it is a CXL.mem message.
    #[inline]
    #[must_use]
    pub const fn is_cxl_mem(self) -> bool {
        matches!(
            self,
            Self::CxlMemRequest
                | Self::CxlMemResponse
                | Self::CxlMemStatus
                | Self::CxlMemSnoop
                | Self::CxlMemSnoopAnswer
        )
    }

    /// Whether it is a CXL.cache message: refused, it is dropped, as CXL.cache has no word for that.
    #[inline]
    #[must_use]
    pub const fn is_cxl_cache(self) -> bool {
        matches!(self, Self::CacheToHost | Self::CacheToDevice)
    }
}

/// The fields of a TLP that routing at an edge port depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it is.
    pub kind: Kind,
    /// Where it says that it goes.
    pub route: Route,
    /// PID of its `VendPrefixL0`; of a `BIRsp` without PTH, its BI-ID.
    pub prefix: Option<Pid>,
    /// Destination segment of a completion, where it names one.
    pub segment: Option<u8>,
    /// Who says that he sends a UIO request.
    pub requester: Option<Bdf>,
    /// LD-ID, at the port of a device with several logical devices.
    pub ld: Option<u16>,
    /// What it is to Lightweight Notification.
    pub ln: Option<LnTlp>,
}

/// What goes into the PTH of a TLP on its way through the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source.
    pub spid: Pid,
    /// Destination.
    pub dpid: Pid,
    /// The far edge puts SPID into `VendPrefixL0`.
    pub pif: bool,
    /// Hierarchical: on a static route from vDSP to vUSP or back.
    pub hie: bool,
    /// Downstream of a host.
    pub dsar: bool,
}

/// Where routing sends a TLP, or why it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Into the fabric, by [`super::Tables::forward`] with this header.
    Fabric {
        /// Its PTH.
        header: Header,
        /// Requester segment to put into it.
        segment: Option<u8>,
        /// Type 1 configuration becomes Type 0.
        type1_to_0: bool,
    },
    /// Out at a port of this switch, without PTH.
    Port {
        /// Which.
        port: PortId,
        /// The logical device behind it.
        ld: Option<u16>,
        /// Type 1 configuration becomes Type 0.
        type1_to_0: bool,
    },
    /// To a function of the virtual switch.
    Internal(Function),
    /// Below each of [`Vcs::bound`], by [`out`].
    Broadcast,
    /// One answer of many, for the virtual switch's [`super::Gather`].
    Gather,
    /// A message that ends here.
    Here,
    /// Answered with UR where an answer is due, dropped where none is; counted by reason either way.
    UnsupportedRequest(Refusal),
    /// Dropped, counted as Unexpected Completion.
    UnexpectedCompletion(Refusal),
    /// Dropped.
    Drop(Refusal),
}

impl Verdict {
    /// Refused: a completion or CXL.cache message is dropped, anything else is unsupported.
    #[inline]
    const fn refuse(kind: Kind, refusal: Refusal) -> Self {
        if kind.is_cxl_cache() {
            Self::Drop(refusal)
        } else if kind.is_completion() {
            Self::UnexpectedCompletion(refusal)
        } else {
            Self::UnsupportedRequest(refusal)
        }
    }
}

/// From this edge straight to the edge of `dpid`.
#[inline]
fn straight(port: &EdgePort, dpid: Pid, pif: bool) -> Verdict {
    let dsar = matches!(port.role, Role::Usp);
    let header = Header { spid: port.pid, dpid, pif, hie: false, dsar };
    Verdict::Fabric { header, segment: None, type1_to_0: false }
}

/// Where a TLP goes that came in without PTH at `port`, whose virtual switch is `vcs`.
#[inline]
#[must_use]
pub fn ingress(port: &EdgePort, vcs: Option<&Vcs>, request: &Request) -> Verdict {
    if let Role::Gfd = port.role {
        return Verdict::refuse(request.kind, Refusal::WrongRole); // a GFD speaks PBR
    }
    if request.kind.is_cxl_mem() {
        return cxl_mem(port, request);
    }
    if let Some(pid) = request.prefix {
        return by_prefix(port, request.kind, pid);
    }
    match (request.kind, request.route) {
        (Kind::UioRequest | Kind::MemoryRequest, Route::Memory(hpa)) => {
            if let Some(verdict) = by_address(port, request.kind, hpa) {
                return verdict;
            }
            if let Some(verdict) = by_ldst(port, request.kind, hpa) {
                let is_own = is_own_id(port, vcs, request.requester);
                let foreign = Verdict::UnsupportedRequest(Refusal::ForeignId);
                return if is_own { verdict } else { foreign };
            }
        }
        (Kind::UioCompletion, Route::Id(id)) => {
            let found = port.rerouter().and_then(|table| table.lookup(request.segment, id));
            // An entry whose target is no longer allowed counts as none.
            if let Some(dpid) = found.filter(|&dpid| port.access().lav.contains(dpid)) {
                return straight(port, dpid, false);
            }
        }
        _ => {}
    }
    match (vcs, port.vcs) {
        (Some(vcs), Some((_, side))) => hierarchical(vcs, side, request),
        _ => Verdict::refuse(request.kind, Refusal::NoVcs),
    }
}

/// CXL.mem: only a host asks, and FAST and LDST know whom; it answers the GFD that its BI-ID names. What a memory device
/// answers goes by [`answer`].
#[inline]
fn cxl_mem(port: &EdgePort, request: &Request) -> Verdict {
    match (port.role, request.kind, request.route) {
        (Role::Usp, Kind::CxlMemRequest, Route::Memory(hpa)) => {
            let found = by_address(port, request.kind, hpa);
            let found = found.or_else(|| by_ldst(port, request.kind, hpa));
            found.unwrap_or(Verdict::UnsupportedRequest(Refusal::NoHdmDecoder))
        }
        (Role::Usp, Kind::CxlMemSnoopAnswer, _) => match request.prefix {
            Some(dpid) if port.access().gmv.contains(dpid) => straight(port, dpid, false),
            _ => Verdict::UnexpectedCompletion(Refusal::NotInGmv),
        },
        _ => Verdict::refuse(request.kind, Refusal::WrongRole),
    }
}

/// What a memory device answers by CXL.mem: to the host in whose hierarchy it is, whose PID is `host`, if the FM allows that.
#[inline]
#[must_use]
pub fn answer(port: &EdgePort, kind: Kind, host: Option<Pid>) -> Verdict {
    match host {
        Some(host) if port.access().lav.contains(host) => straight(port, host, false),
        Some(_) => Verdict::refuse(kind, Refusal::LavClear),
        None => Verdict::refuse(kind, Refusal::Unbound),
    }
}

/// CXL.cache at an edge: from a device to the host of its hierarchy, whose PID is `host`; from a host to the port that has the
/// cache, as its virtual switch `vcs` knows. That a device may have the `CacheID` has been seen when it was read.
#[inline]
#[must_use]
pub fn cxl_cache(
    port: &EdgePort,
    vcs: Option<&Vcs>,
    host: Option<Pid>,
    request: &Request,
) -> Verdict {
    let (found, refusal) = match (port.role, request.kind, request.route) {
        (Role::Dsp, Kind::CacheToHost, _) => (host, Refusal::Unbound),
        (Role::Usp, Kind::CacheToDevice, Route::CacheId(cache_id)) => {
            (vcs.and_then(|vcs| vcs.cache_routes().port(cache_id)), Refusal::NoCacheId)
        }
        _ => (None, Refusal::WrongRole),
    };
    found.map_or(Verdict::Drop(refusal), |dpid| straight(port, dpid, false))
}

/// Whether a request of a host by CXL.mem may leave at the port of a memory device: only its own host asks it, whose PID is
/// `host`, and only if the FM allows that.
///
/// # Errors
/// [`Refusal::ForeignHost`] or [`Refusal::LavClear`].
#[inline]
pub fn may_ask(port: &EdgePort, spid: Pid, host: Option<Pid>) -> Result<(), Refusal> {
    if host != Some(spid) {
        return Err(Refusal::ForeignHost);
    }
    if port.access().lav.contains(spid) { Ok(()) } else { Err(Refusal::LavClear) }
}

/// Step 1: the prefix says where it goes, if the port and the FM allow that.
fn by_prefix(port: &EdgePort, kind: Kind, pid: Pid) -> Verdict {
    let enabled = match kind {
        Kind::UioRequest => port.prefixes.ingress_request,
        Kind::UioCompletion => port.prefixes.egress_request,
        _ => return Verdict::refuse(kind, Refusal::PrefixNeedsUio),
    };
    if !enabled {
        return Verdict::refuse(kind, Refusal::PrefixNotEnabled);
    }
    if !port.access().vtv.contains(pid) {
        return Verdict::refuse(kind, Refusal::PrefixNotInVtv);
    }
    straight(port, pid, matches!(kind, Kind::UioRequest))
}

/// Step 2: FAST; `None` for what it does not know.
#[inline]
fn by_address(port: &EdgePort, kind: Kind, hpa: Hpa) -> Option<Verdict> {
    let is_uio = matches!(kind, Kind::UioRequest);
    let refuse = |refusal| Some(Verdict::UnsupportedRequest(refusal));
    match port.fast().lookup(hpa) {
        Found::Invalid => refuse(Refusal::NoFastEntry),
        Found::Hit { flag: true, .. } if !is_uio => refuse(Refusal::GimNeedsUio),
        Found::Hit { flag: true, dpid } if port.access().vtv.contains(dpid) => {
            Some(straight(port, dpid, true))
        }
        Found::Hit { flag: true, .. } => refuse(Refusal::GimNotInVtv),
        Found::Hit { flag: false, dpid } if port.access().gmv.contains(dpid) => {
            Some(straight(port, dpid, false))
        }
        Found::Hit { flag: false, .. } => refuse(Refusal::NotInGmv),
        Found::Miss => None,
    }
}

/// Step 3: LDST, for UIO and for CXL.mem of a host.
#[inline]
fn by_ldst(port: &EdgePort, kind: Kind, hpa: Hpa) -> Option<Verdict> {
    if matches!(kind, Kind::MemoryRequest) {
        return None;
    }
    match port.ldst().lookup(hpa) {
        Found::Hit { dpid, .. } if !port.access().lav.contains(dpid) => {
            Some(Verdict::UnsupportedRequest(Refusal::LavClear))
        }
        Found::Hit { flag, dpid } => match straight(port, dpid, false) {
            Verdict::Fabric { header, type1_to_0, .. } => {
                // CXL.mem names no segment.
                let segment = (flag && matches!(kind, Kind::UioRequest)).then_some(port.segment);
                Some(Verdict::Fabric { header, segment, type1_to_0 })
            }
            other => Some(other),
        },
        Found::Invalid | Found::Miss => None,
    }
}

/// Whether a device speaks in its own name: the memory device's edge sends the completion to whoever the request names. A
/// bridge takes ids of its own buses alone (PCIe 6.0, 6.12.1.1: source validation).
#[inline]
fn is_own_id(port: &EdgePort, vcs: Option<&Vcs>, requester: Option<Bdf>) -> bool {
    let (Some((_, Side::Below(vppb))), Some(vcs), Some(id)) = (port.vcs, vcs, requester) else {
        return true;
    };
    let vppb = vcs.below().get(usize::from(vppb));
    vppb.is_some_and(|vppb| vppb.bridge.has_bus(id.bus()))
}

/// Step 5: what the virtual switch says of a TLP that comes into it from `side`, from a link or out of the fabric.
#[must_use]
pub fn hierarchical(vcs: &Vcs, side: Side, request: &Request) -> Verdict {
    if let Some(ln) = request.ln
        && let Err(refusal) = vcs.admit_ln(side, ln)
    {
        return Verdict::refuse(request.kind, refusal);
    }
    match vcs.route(side, request.route) {
        Ok(Hop::Up(binding)) => out(binding, false, false),
        Ok(Hop::Down { binding, type1_to_0, .. }) => out(binding, true, type1_to_0),
        Ok(Hop::Internal(function)) => Verdict::Internal(function),
        Ok(Hop::Broadcast) => Verdict::Broadcast,
        Ok(Hop::Gather) => Verdict::Gather,
        Ok(Hop::Here) => Verdict::Here,
        Err(refusal) => Verdict::refuse(request.kind, refusal),
    }
}

/// Out by what a vPPB is bound to; `down` from above it.
#[must_use]
pub const fn out(binding: Binding, down: bool, type1_to_0: bool) -> Verdict {
    match binding {
        Binding::Unbound => Verdict::UnsupportedRequest(Refusal::Unbound),
        Binding::Port(port) => Verdict::Port { port, ld: None, type1_to_0 },
        Binding::Ld { port, ld } => Verdict::Port { port, ld: Some(ld), type1_to_0 },
        Binding::Fabric { spid, dpid } => {
            let header = Header { spid, dpid, pif: false, hie: true, dsar: down };
            Verdict::Fabric { header, segment: None, type1_to_0 }
        }
    }
}

#[cfg(test)]
mod tests;
