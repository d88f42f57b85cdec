//! Decision about a TLP that comes in at an edge: to which PID, or to which port of this switch, it goes.
//!
//! [`ingress`] takes five steps; the first one that applies decides.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge: which DPID"; CXL 3.1 sections 7.7.2.4, 7.7.3.3, 7.7.9;
//! docs/spec/wire-formats.md §3.7.

use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::edge::{EdgePort, Role};
use super::ln::LnTlp;
use super::refusal::Refusal;
use super::segments::Found;
use super::vcs::{Binding, Function, Hop, Route, Side, Vcs};
use crate::types::PortId;

/// Kind of a TLP, CXL.mem or CXL.cache message, as far as routing distinguishes kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// UIO read or write.
    UioRequest,
    /// Any other completion.
    UioCompletion,
    /// Any other memory request.
    MemoryRequest,
    /// Any other completion.
    Completion,
    /// CXL.mem: M2S Req or `RwD`.
    CxlMemRequest,
    /// CXL.mem: S2M DRS.
    CxlMemResponse,
    /// CXL.mem: S2M NDR, which must stay in order.
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
    /// I/O, configuration, and all other messages.
    Other,
}

impl Kind {
    /// Whether it answers a request, so that a refusal of it is reported to no requester.
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

    /// Whether its completion can ask for a retry; CXL.mem has no such answer.
    #[must_use]
    pub const fn may_be_retried(self) -> bool {
        matches!(self, Self::UioRequest | Self::MemoryRequest | Self::Other)
    }

    /// Whether it may take any route of a group from edge to edge.
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

    /// Whether it is a CXL.mem message, in either direction.
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

    /// Whether it is a CXL.cache message. A refused one is dropped, as CXL.cache has no answer for that.
    #[inline]
    #[must_use]
    pub const fn is_cxl_cache(self) -> bool {
        matches!(self, Self::CacheToHost | Self::CacheToDevice)
    }
}

/// The fields of a TLP that decide its route at an edge port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind of the TLP.
    pub kind: Kind,
    /// Destination that the TLP names.
    pub route: Route,
    /// PID of its `VendPrefixL0`; for a `BIRsp` without PTH, its BI-ID.
    pub prefix: Option<Pid>,
    /// Destination segment of a completion, if it names one.
    pub segment: Option<u8>,
    /// Requester ID of a UIO request, as the TLP states it.
    pub requester: Option<Bdf>,
    /// LD-ID, at the port of a device with several logical devices.
    pub ld: Option<u16>,
    /// Its part in Lightweight Notification, if any.
    pub ln: Option<LnTlp>,
}

/// Fields for the PTH of a TLP on its way through the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source PID.
    pub spid: Pid,
    /// Destination PID.
    pub dpid: Pid,
    /// The far edge puts SPID into a `VendPrefixL0`.
    pub pif: bool,
    /// Hierarchical: on a static route from vDSP to vUSP or back.
    pub hie: bool,
    /// Set on the way downstream from a host.
    pub dsar: bool,
}

/// Where routing sends a TLP, or why it refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Into the fabric, by [`super::Tables::forward`] with this header.
    Fabric {
        /// Fields of its PTH.
        header: Header,
        /// Requester segment to insert; `None` to insert none.
        segment: Option<u8>,
        /// Type 1 configuration becomes Type 0.
        type1_to_0: bool,
    },
    /// Out at a port of this switch, without PTH.
    Port {
        /// The port of this switch.
        port: PortId,
        /// LD-ID of the logical device behind it, if it has any.
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
    /// Answered with UR if an answer is due, else dropped; counted by reason either way.
    UnsupportedRequest(Refusal),
    /// Dropped, and counted as Unexpected Completion.
    UnexpectedCompletion(Refusal),
    /// Dropped without an answer.
    Drop(Refusal),
}

impl Verdict {
    /// The verdict for a refused TLP: a completion or CXL.cache message is dropped, anything else is unsupported.
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

/// Sends a TLP from this edge straight to the edge of `dpid`.
#[inline]
fn straight(port: &EdgePort, dpid: Pid, pif: bool) -> Verdict {
    let dsar = matches!(port.role, Role::Usp);
    let header = Header { spid: port.pid, dpid, pif, hie: false, dsar };
    Verdict::Fabric { header, segment: None, type1_to_0: false }
}

/// Decides about a TLP that came in without PTH at `port`, whose virtual switch is `vcs`.
#[inline]
#[must_use]
pub fn ingress(port: &EdgePort, vcs: Option<&Vcs>, request: &Request) -> Verdict {
    if let Role::Gfd = port.role {
        return Verdict::refuse(request.kind, Refusal::WrongRole); // a GFD speaks PBR
    }
    if request.kind.is_cxl_mem() {
        return cxl_mem(port, request);
    }
    // Before FAST and LDST: a prefix replaces the address decode (docs/spec/cxl-fabric.md, step 1).
    if let Some(pid) = request.prefix {
        return by_prefix(port, request.kind, pid);
    }
    match (request.kind, request.route) {
        (Kind::UioRequest | Kind::MemoryRequest, Route::Memory(hpa)) => {
            if let Some(verdict) = by_address(port, request.kind, hpa) {
                return verdict;
            }
            if let Some(verdict) = by_ldst(port, request.kind, hpa) {
                // Only for a hit: without one, step 5 decides, and the bridges answer for the completion's way back.
                let is_own = is_own_id(port, vcs, request.requester);
                let foreign = Verdict::UnsupportedRequest(Refusal::ForeignId);
                return if is_own { verdict } else { foreign };
            }
        }
        (Kind::UioCompletion, Route::Id(id)) => {
            let found = port.rerouter().and_then(|table| table.lookup(request.segment, id));
            // A target that LAV does not allow counts as no entry. The completion then takes the hierarchical way.
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

/// CXL.mem at an edge: only a host sends requests, routed by FAST and LDST, and it answers snoops to the GFD that the
/// BI-ID names. Answers of a memory device go by [`answer`].
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

/// CXL.mem answer of a memory device: goes to the host of its hierarchy, with PID `host`, if LAV allows that.
#[inline]
#[must_use]
pub fn answer(port: &EdgePort, kind: Kind, host: Option<Pid>) -> Verdict {
    match host {
        Some(host) if port.access().lav.contains(host) => straight(port, host, false),
        Some(_) => Verdict::refuse(kind, Refusal::LavClear),
        None => Verdict::refuse(kind, Refusal::Unbound),
    }
}

/// CXL.cache at an edge: from a device to the host of its hierarchy, with PID `host`; from a host to the port that has
/// the cache, by its virtual switch `vcs`. Whether the device may use the `CacheID` was checked when the message was
/// read.
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

/// Whether a host's CXL.mem request may leave at the port of a memory device: only from its own host, with PID `host`,
/// and only if LAV allows that.
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

/// Step 1: the prefix names the destination, if the port and VTV allow it.
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

/// Step 2: FAST; `None` for addresses outside of its window.
#[inline]
fn by_address(port: &EdgePort, kind: Kind, hpa: Hpa) -> Option<Verdict> {
    let is_uio = matches!(kind, Kind::UioRequest);
    let refuse = |refusal| Some(Verdict::UnsupportedRequest(refusal));
    match port.fast().lookup(hpa) {
        // An address inside of the window belongs to the fabric: without a valid entry it must not reach the bridges.
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
                // A CXL.mem message has no field for a segment.
                let segment = (flag && matches!(kind, Kind::UioRequest)).then_some(port.segment);
                Some(Verdict::Fabric { header, segment, type1_to_0 })
            }
            other => Some(other),
        },
        Found::Invalid | Found::Miss => None,
    }
}

/// Whether a device uses its own Requester ID: the memory device's edge sends the completion to the requester named. A
/// bridge accepts only ids of its own buses (PCIe 6.0, 6.12.1.1: source validation).
#[inline]
fn is_own_id(port: &EdgePort, vcs: Option<&Vcs>, requester: Option<Bdf>) -> bool {
    let (Some((_, Side::Below(vppb))), Some(vcs), Some(id)) = (port.vcs, vcs, requester) else {
        return true;
    };
    let vppb = vcs.below().get(usize::from(vppb));
    vppb.is_some_and(|vppb| vppb.bridge.has_bus(id.bus()))
}

/// Step 5: the virtual switch routes a TLP that enters it from `side`, from a link or out of the fabric.
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

/// Sends a TLP out by a vPPB's binding; `down` if it comes from above the vPPB.
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
