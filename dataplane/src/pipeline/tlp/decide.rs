//! Decides where a TLP goes: into the fabric or out of it, through virtual switches, by a port.
//!
//! A [`ParsedTlp`] becomes a [`Decision`]. A TLP passes a bounded number of virtual switches of
//! this switch.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside", "Egress at an edge".

use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{Pth, VendPrefixL0};

use super::bytes::Front;
use super::parsed::ParsedTlp;
use crate::buffer::Buffer;
use crate::pbr::egress::{leave, may_snoop};
use crate::pbr::tables::Arrival;
use crate::pbr::vcs::Implicit;
use crate::pbr::{
    Dispatch, Flow, Kind, Leaving, Load, Out, Refusal, Request, Role, Route, Tables, Verdict,
};
use crate::pipeline::context::Context;
use crate::types::{PortId, Pri};

/// Most virtual switches of one switch that a TLP passes.
const HOPS_MAX: usize = 8;

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is sent by `port` with a new front.
    Out { port: PortId, front: Front, type1_to_0: bool, segment: Option<u8> },
    /// It goes to the switch's own functions, unchanged but for its addresses.
    CpuPort,
    /// Unsupported request: returned as a completion that says so, or dropped if it wants none.
    Refuse(Refusal),
    /// Like [`Self::Refuse`], but the completion says that the request may be sent again (RRS).
    Retry(Refusal),
    /// It has no route at the moment, and its requester cannot be told to send it again: it is held for a
    /// while, if there is room.
    Hold,
    /// Unexpected completion: dropped and counted as that.
    Unexpected(Refusal),
    /// Dropped without an answer.
    Drop(Refusal),
}

impl Decision {
    /// Refusal by kind: completions are never answered, and CXL.cache has no message for a refusal.
    const fn refuse(kind: Kind, refusal: Refusal) -> Self {
        if kind.is_cxl_cache() {
            Self::Drop(refusal)
        } else if kind.is_completion() {
            Self::Unexpected(refusal)
        } else {
            Self::Refuse(refusal)
        }
    }
}

/// Changes of a TLP's header that a verdict asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Edits {
    type1_to_0: bool,
    segment: Option<u8>,
}

/// Facts about a TLP or message, beside its PTH, on which its way out depends.
#[derive(Clone, Copy)]
struct Leaver {
    kind: Kind,
    pri: Pri,
    /// Requester of a UIO request.
    requester: Option<Bdf>,
    /// `CacheID` of a CXL.cache message.
    cache_id: Option<u8>,
}

/// Queue depths, for routing groups that avoid congestion.
struct Depths<'a> {
    buffer: &'a Buffer,
    pri: Pri,
    cell: u64,
    full: u64,
}

impl Load for Depths<'_> {
    fn queued_bytes(&self, port: PortId) -> u64 {
        u64::from(self.buffer.depth(port, self.pri)) * self.cell
    }

    fn is_full(&self, port: PortId) -> bool {
        self.queued_bytes(port) >= self.full
    }
}

/// Decides where a TLP goes that came in at `input`.
pub(super) fn decide(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    parsed: &ParsedTlp,
) -> Decision {
    let Some(pth) = parsed.pth else {
        let verdict = tables.ingress(input, &parsed.request);
        return resolve(ctx, tables, parsed, verdict);
    };
    if !parsed.is_tlp() && (pth.hie || pth.dpid.is_none()) {
        let is_cache = parsed.cache_id().is_some();
        let refusal = if is_cache { Refusal::NoCacheId } else { Refusal::NoHdmDecoder };
        // Messages go from edge to edge only: virtual switches and the CPU port have no memory or
        // cache.
        return Decision::refuse(parsed.request.kind, refusal);
    }
    if pth.dpid.is_none() {
        return Decision::CpuPort;
    }
    match onward(ctx, tables, parsed, pth, Edits::default()) {
        Ok(decision) => decision,
        Err(verdict) => resolve(ctx, tables, parsed, verdict),
    }
}

/// Follows a verdict through virtual switches until the TLP leaves the switch or ends in it.
fn resolve(ctx: &mut Context, tables: &Tables, parsed: &ParsedTlp, verdict: Verdict) -> Decision {
    let mut verdict = verdict;
    for _ in 0..HOPS_MAX {
        let (header, edits) = match verdict {
            Verdict::Fabric { header, segment, type1_to_0 } => {
                (header, Edits { type1_to_0, segment })
            }
            Verdict::Port { port, ld, type1_to_0 } => {
                let prefix = ld.map(VendPrefixL0::from_ld_id);
                let front = Front::Hbr(prefix);
                return Decision::Out { port, front, type1_to_0, segment: None };
            }
            Verdict::Internal(_) | Verdict::Broadcast | Verdict::Gather | Verdict::Here => {
                return Decision::CpuPort;
            }
            Verdict::UnsupportedRequest(refusal) => return Decision::Refuse(refusal),
            Verdict::UnexpectedCompletion(refusal) => return Decision::Unexpected(refusal),
            Verdict::Drop(refusal) => return Decision::Drop(refusal),
        };
        let crate::pbr::ingress::Header { spid, dpid, pif, hie, dsar } = header;
        match onward(ctx, tables, parsed, Pth { pif, dsar, hie, spid, dpid }, edits) {
            Ok(decision) => return decision,
            Err(next) => verdict = next,
        }
    }
    // Virtual switches that are bound in a circle would keep the TLP here for ever.
    Decision::Drop(Refusal::NoBinding)
}

/// Forwards a TLP with a PTH: to the end of its path in this switch, or (`Err`) into a virtual
/// switch.
fn onward(
    ctx: &mut Context,
    tables: &Tables,
    parsed: &ParsedTlp,
    pth: Pth,
    edits: Edits,
) -> Result<Decision, Verdict> {
    let kind = parsed.request.kind;
    let refused = |refusal| Decision::refuse(kind, refusal);
    let to = match tables.forward(pth.spid, pth.dpid, pth.hie) {
        Ok(Arrival::Here) => return Ok(Decision::CpuPort),
        Ok(Arrival::Vcs(vcs, side)) => {
            let route = match parsed.request.route {
                Route::Config1(bdf) if edits.type1_to_0 => Route::Config0(bdf),
                route => route,
            };
            let request = Request { route, prefix: None, ld: None, ..parsed.request };
            let verdict = tables.hierarchical(vcs, side, &request);
            return Err(converted(verdict, edits.type1_to_0));
        }
        Ok(Arrival::Out(to)) => to,
        // The ends of a virtual link speak to each other while it is down, too: else Link Up would
        // never arrive.
        Err(Refusal::NoBinding) if is_between_ends(parsed) => return Ok(Decision::CpuPort),
        Err(refusal) => return Ok(refused(refusal)),
    };
    let requester = parsed.request.requester;
    let what = Leaver { kind, pri: parsed.pri, requester, cache_id: parsed.cache_id() };
    Ok(match exit(ctx, tables, to, what, pth) {
        Ok(Decision::Out { port, front, .. }) => {
            let Edits { type1_to_0, segment } = edits;
            match foreign_snoop(tables, port, parsed, pth) {
                Some(refusal) => Decision::Drop(refusal),
                None => Decision::Out { port, front, type1_to_0, segment },
            }
        }
        Ok(decision) => decision,
        Err(Refusal::RouteDown) if is_inside(tables, to) => {
            if parsed.wants_completion && kind.may_be_retried() {
                Decision::Retry(Refusal::RouteDown)
            } else {
                Decision::Hold
            }
        }
        Err(refusal) => refused(refusal),
    })
}

/// The way out by the port that `to` leads to, with the front that this port's link needs.
fn exit(
    ctx: &mut Context,
    tables: &Tables,
    to: Dispatch,
    what: Leaver,
    pth: Pth,
) -> Result<Decision, Refusal> {
    let Leaver { kind, pri, requester, cache_id } = what;
    let flow = if kind.is_unordered() && !pth.hie { Flow::Dynamic } else { Flow::Static };
    let config = &ctx.snapshot.config;
    let cell = u64::from(config.buffer.cell_bytes);
    // An egress queue's capacity: a deeper output has frames in VOQs, and counts as full.
    let full = config.crossbar.egress_queue_frames as u64 * cell;
    let depths = Depths { buffer: &ctx.core.buffer, pri, cell, full };
    let up = ctx.core.up().and(ctx.snapshot.tlp_ports);
    let Some(port) = tables.pick(to, flow, up, ctx.rng.next_u64(), &depths)? else {
        return Ok(Decision::CpuPort);
    };
    if let (Some(edge), Some(cache_id)) = (tables.edge(port), cache_id) {
        tables.may_leave_by_cache_id(edge, kind, pth.spid, cache_id)?;
    }
    // Which logical device a request is for follows from its sender: fabric links carry no
    // LD-ID.
    let ld = match (tables.edge(port), kind) {
        (Some(edge), Kind::CxlMemRequest) if edge.role == Role::Dsp => {
            tables.asked(edge, pth.spid)?.map(VendPrefixL0::from_ld_id)
        }
        (Some(edge), Kind::UioRequest) if edge.role == Role::Dsp && !pth.pif => {
            tables.uio_ld(edge, pth.spid, requester)?.map(VendPrefixL0::from_ld_id)
        }
        _ => None,
    };
    let front = match tables.edge(port) {
        None => Front::Pbr(pth),
        Some(edge) => match leave(edge, &Leaving { kind, spid: pth.spid, pif: pth.pif }) {
            Out::Keep => Front::Pbr(Pth { dsar: true, ..pth }),
            Out::Strip { prefix } => Front::Hbr(prefix.map(VendPrefixL0::from_pid).or(ld)),
            Out::Internal(_) => return Ok(Decision::CpuPort),
            Out::UnsupportedRequest(refusal) => return Ok(Decision::Refuse(refusal)),
            Out::Drop(refusal) => return Ok(Decision::Drop(refusal)),
        },
    };
    Ok(Decision::Out { port, front, type1_to_0: false, segment: None })
}

/// The way back of the completion of a refused request: to where the request came from.
pub(super) fn return_path(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    parsed: &ParsedTlp,
) -> Decision {
    let Some(pth) = parsed.pth else {
        let front = Front::Hbr(parsed.request.ld.map(VendPrefixL0::from_ld_id));
        return Decision::Out { port: input, front, type1_to_0: false, segment: None };
    };
    let (kind, pri) = match parsed.request.kind {
        Kind::UioRequest => (Kind::UioCompletion, parsed.pri_of_answer(&ctx.snapshot.config.tlp)),
        Kind::CxlMemRequest => {
            (Kind::CxlMemResponse, parsed.pri_of_answer(&ctx.snapshot.config.tlp))
        }
        _ => (Kind::Completion, parsed.pri),
    };
    let what = Leaver { kind, pri, requester: None, cache_id: None };
    // Source and destination swapped, as the completer would send it.
    let back = Pth { pif: false, dsar: !pth.dsar, spid: pth.dpid, dpid: pth.spid, ..pth };
    match tables.routes().lookup(back.dpid) {
        Ok(to) => match exit(ctx, tables, to, what, back) {
            Ok(decision) => decision,
            Err(refusal) => Decision::Drop(refusal),
        },
        Err(refusal) => Decision::Drop(refusal),
    }
}

/// Whether a route ends inside of the fabric, where another route may come up. At an edge there is
/// no other.
fn is_inside(tables: &Tables, to: Dispatch) -> bool {
    match to {
        Dispatch::Port(port) => tables.edge(port).is_none(),
        Dispatch::Group(_) => true,
        Dispatch::Here => false,
    }
}

/// The refusal of a snoop that this host must not get, if it is one.
fn foreign_snoop(tables: &Tables, port: PortId, parsed: &ParsedTlp, pth: Pth) -> Option<Refusal> {
    let (Kind::CxlMemSnoop, Route::Memory(line)) = (parsed.request.kind, parsed.request.route)
    else {
        return None;
    };
    let host = tables.edge(port).filter(|edge| edge.role == Role::Usp)?;
    may_snoop(host, pth.spid, line).err()
}

/// Whether it is a message that ends at the next port (implicit routing, local).
const fn is_between_ends(parsed: &ParsedTlp) -> bool {
    matches!(parsed.request.route, Route::Implicit(Implicit::Local))
}

/// `verdict` on a TLP that was converted to Type 0 before, and stays so.
const fn converted(verdict: Verdict, type1_to_0: bool) -> Verdict {
    match verdict {
        Verdict::Port { port, ld, type1_to_0: now } => {
            Verdict::Port { port, ld, type1_to_0: now || type1_to_0 }
        }
        Verdict::Fabric { header, segment, type1_to_0: now } => {
            Verdict::Fabric { header, segment, type1_to_0: now || type1_to_0 }
        }
        other => other,
    }
}

/// The ID of the completer that answers for a refused request: the upstream bridge of the virtual
/// switch in which the request is.
pub(super) fn completer(tables: &Tables, input: PortId, parsed: &ParsedTlp) -> Option<Bdf> {
    let vcs = match parsed.pth {
        None => tables.edge(input)?.part(parsed.request.ld)?.vcs?.0,
        Some(pth) => match tables.forward(pth.spid, pth.dpid, pth.hie) {
            Ok(Arrival::Vcs(vcs, _)) => vcs,
            _ => return None,
        },
    };
    let upstream = tables.vcs(vcs)?.upstream();
    Some(Bdf::from_bits(u16::from_be_bytes([upstream.bridge.primary, upstream.function])))
}
