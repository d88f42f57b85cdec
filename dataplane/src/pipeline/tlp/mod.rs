//! TLPs: decides where a frame of a port for TLPs goes, and rewrites its front on the way.
//!
//! A frame is read into a [`ParsedTlp`], the tables of `pbr` give a [`Decision`], and the front
//! (addresses, prefix, PTH) is written anew.
//!
//! All of it is done before the frame is queued, as it has one output. Frames for the switch's own
//! functions (configuration of vPPBs, mailboxes, messages to many) go to the CPU port as they came
//! in, with the input in their source address. A frame from the agent names its output in the
//! destination address; if it names the agent itself, the tables decide by the PTH.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside", "Egress at an edge";
//! docs/spec/wire-formats.md §3.7, §3.7a.

mod bytes;
mod cache;
mod decide;
mod fast_out;
mod fast_path;
mod mem;
mod mem_fast;
mod parsed;
mod read;

use weft_base::sync::Ordering;
use weft_parsers::tlp::{Mode, Status};
use weft_parsers::{Format, MacAddr, ether_type, parse_head};

use super::burst::{BurstMask, BurstView, CACHE_MISS, CountRun, FrameMeta, Verdict, trace_rx};
use super::context::Context;
use super::flow_cache::route_burst;
use crate::batch::{BURST, Batch};
use crate::config::{PortRole, TlpLink};
use crate::desc::Desc;
use crate::pbr::{Refusal, Tables};
use crate::stats::{DropReason, REFUSALS_MAX};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet, Pri};

use bytes::{Answer, Change, LinkEnds, Unfit};
use decide::{Decision, decide, return_path};
use fast_path::classify_fast;
use parsed::{ParsedTlp, Read};

pub(super) use bytes::Space;

const _: () = assert!(Refusal::COUNT <= REFUSALS_MAX, "each refusal has its counter");

/// Address of the switch's own functions in frames of the CPU port: 02-57-46-A0-00-00. Port nn is
/// 02-57-46-A1-00-nn there ([`cpu_mac_of_port`]). Nothing outside of the process sees either.
pub const CPU_PORT_MAC: MacAddr = MacAddr([0x02, 0x57, 0x46, 0xA0, 0, 0]);

/// The address that stands for a port in frames of the CPU port.
#[must_use]
pub const fn cpu_mac_of_port(port: PortId) -> MacAddr {
    MacAddr([0x02, 0x57, 0x46, 0xA1, 0, port.get()])
}

/// The port for which `mac` stands ([`cpu_mac_of_port`]); `None` if it is another address.
#[must_use]
pub const fn port_of_cpu_mac(mac: MacAddr) -> Option<PortId> {
    match mac.0 {
        [0x02, 0x57, 0x46, 0xA1, 0, port] => PortId::new(port as usize),
        _ => None,
    }
}

/// Memory for a burst of TLPs.
pub(super) struct TlpScratch<'a> {
    pub metas: &'a mut [FrameMeta; BURST],
    pub routes: &'a mut [u16; BURST],
    pub space: &'a mut Space,
}

/// Decides where each frame of a burst goes that came in at `input`, a port for TLPs, and
/// rewrites it. True if each of them has one queue, which `routes` then name.
#[inline(never)] // as `lookup_burst`
pub(super) fn route_tlps<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    input: PortId,
    batch: &mut Batch,
    TlpScratch { metas, routes, space }: TlpScratch<'_>,
    tracer: &mut T,
) -> bool {
    // As long as TLPs are held, new ones go by the same tables: by newer ones they would overtake those
    // that are held.
    let tables = match &ctx.held.by {
        Some((tables, _)) => arc_swap::Guard::from_inner(tables.clone()),
        None => ctx.core.tables.load(),
    };
    if let Some(last) = batch.last() {
        let (_, sender) = bytes::addresses(ctx.bufs.head(last));
        let partner = &ctx.core.partners[input];
        if partner.load(Ordering::Relaxed) != sender.to_bits() {
            // The last sender: a link has one partner, which may have been replaced.
            partner.store(sender.to_bits(), Ordering::Relaxed);
        }
    }
    // A trace shows each frame's path in full.
    let left = if T::ON {
        routes.fill(CACHE_MISS);
        BurstMask::first(batch.len())
    } else {
        classify_fast(ctx, &tables, input, batch, routes)
    };
    if left.0 == 0 {
        return true;
    }
    let mut run = CountRun::default();
    for place in left.iter() {
        let Some((desc, meta)) = batch.get_mut(place).zip(metas.get_mut(place)) else { break };
        if T::ON {
            trace_rx(&mut ctx.bufs, now, input, desc, tracer);
        }
        let len = desc.len();
        meta.verdict = route_tlp(ctx, &tables, input, desc, meta, space);
        run.count(&ctx.stats.port[input], len, desc.format_index());
        if T::ON
            && let Verdict::Forward(outputs) = meta.verdict
        {
            let frame = ctx.bufs.trace_id(desc);
            let (format, pri) = (Format::Pbr.name(), desc.pri().get());
            tracer.event(now, Event::Classify { frame, format, pri, by: "tlp", vid: 0 });
            tracer.event(now, Event::Forward { frame, by: "pbr", outputs: outputs.bits() });
        }
    }
    run.flush(&ctx.stats.port[input]);
    !T::ON && route_burst(ctx, BurstView { batch, which: left }, metas, routes)
}

/// Decides where one frame goes, and rewrites it.
pub(super) fn route_tlp(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    desc: &mut Desc,
    meta: &mut FrameMeta,
    space: &mut Space,
) -> Verdict {
    let snapshot = &ctx.snapshot;
    let Some(config) = snapshot.config.ports.get(input.index()) else {
        return Verdict::Drop(DropReason::NotTlp);
    };
    let (len, head) = (desc.len(), ctx.bufs.head(desc));
    // PFC pauses ports for TLPs like any other.
    if bytes::ether_type(head) == ether_type::MAC_CONTROL {
        let Ok(head) = parse_head(head, len, &config.parse) else {
            return unread(ctx, input, desc, DropReason::Malformed);
        };
        meta.head = head;
        desc.classify(input, Format::MacControl, Pri::default(), false, false);
        return Verdict::Consume;
    }
    if len > config.frame_len_max {
        return unread(ctx, input, desc, DropReason::TooLong);
    }
    let link = match config.role {
        PortRole::Usp(link) | PortRole::Dsp(link) | PortRole::Fport(link) => link,
        PortRole::Cpu => return receive_from_cpu_port(ctx, tables, input, desc, space),
        PortRole::L2 => return unread(ctx, input, desc, DropReason::NotTlp),
    };
    let tlp = &snapshot.config.tlp;
    match read::read(ctx.bufs.bytes(desc), tables.edge(input), link, tlp) {
        Ok(Read::Tlp(parsed)) => {
            desc.classify(input, Format::Pbr, parsed.pri, false, false);
            let decision = decide(ctx, tables, input, &parsed);
            apply(ctx, tables, input, desc, &parsed, decision, space)
        }
        Ok(Read::Control) => {
            desc.classify(input, Format::Pbr, tlp.tc_to_pri[0], false, false);
            send_to_cpu_port(ctx, input, desc)
        }
        Ok(Read::Refused(refusal)) => {
            desc.classify(input, Format::Pbr, tlp.tc_to_pri[0], false, false);
            refuse(ctx, input, refusal, DropReason::TlpRefused)
        }
        Err(reason) => unread(ctx, input, desc, reason),
    }
}

/// Drops a frame that was not understood.
fn unread(ctx: &Context, input: PortId, desc: &mut Desc, reason: DropReason) -> Verdict {
    let pri = ctx.snapshot.config.tlp.tc_to_pri[0];
    desc.classify(input, Format::Other, pri, false, false);
    Verdict::Drop(reason)
}

/// Carries out `decision`: rewrites the frame, answers it or drops it.
fn apply(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    desc: &mut Desc,
    parsed: &ParsedTlp,
    decision: Decision,
    space: &mut Space,
) -> Verdict {
    let mut status = Status::UnsupportedRequest;
    let refusal = match decision {
        Decision::Hold if ctx.held.take_place(input) => return Verdict::Hold,
        // Not held: no room, or held before for as long as may be. So it is treated as at an
        // edge, by kind.
        Decision::Hold if parsed.request.kind.is_cxl_cache() => {
            return refuse(ctx, input, Refusal::RouteDown, DropReason::TlpRefused);
        }
        Decision::Hold if parsed.request.kind.is_completion() => {
            return refuse(ctx, input, Refusal::RouteDown, DropReason::UnexpectedCompletion);
        }
        Decision::Hold => Refusal::RouteDown,
        Decision::CpuPort if parsed.request.kind.is_cxl_cache() => {
            return refuse(ctx, input, Refusal::WrongRole, DropReason::TlpRefused);
        }
        Decision::CpuPort if parsed.mem.is_some() => {
            if parsed.request.kind.is_completion() {
                let reason = DropReason::UnexpectedCompletion;
                return refuse(ctx, input, Refusal::WrongRole, reason);
            }
            Refusal::WrongRole // the switch's own functions have no memory
        }
        Decision::CpuPort => return send_to_cpu_port(ctx, input, desc),
        Decision::Out { port, front, type1_to_0, segment } => {
            let Some((mode, ends)) = link_of(ctx, port) else {
                return refuse(ctx, input, Refusal::WrongRole, DropReason::TlpRefused);
            };
            let change = Change { front, mode: front.mode(mode), type1_to_0, segment };
            match bytes::change(&mut ctx.bufs, desc, parsed, change, ends, space) {
                Ok(()) => return towards(ctx, port),
                Err(Unfit::Room) => return Verdict::Drop(DropReason::TooLong),
                Err(Unfit::Form) if parsed.request.kind.is_completion() => {
                    let reason = DropReason::UnexpectedCompletion;
                    return refuse(ctx, input, Refusal::NoForm, reason);
                }
                Err(Unfit::Form) => Refusal::NoForm,
            }
        }
        Decision::Refuse(refusal) => refusal,
        //= docs/spec/cxl-fabric.md "Dynamic change": a request whose route is down is answered RRS at once
        Decision::Retry(refusal) => {
            status = Status::RequestRetry;
            refusal
        }
        Decision::Unexpected(refusal) => {
            return refuse(ctx, input, refusal, DropReason::UnexpectedCompletion);
        }
        Decision::Drop(refusal) => return refuse(ctx, input, refusal, DropReason::TlpRefused),
    };
    let refused = refuse(ctx, input, refusal, DropReason::UnsupportedRequest);
    if !parsed.wants_completion {
        return refused;
    }
    answer(ctx, tables, input, desc, parsed, status, space).unwrap_or(refused)
}

/// Layout of TLPs on the link of `port`, its addresses and its longest frame; `None` if the
/// port's role has no such link.
fn link_of(ctx: &Context, port: PortId) -> Option<(Mode, LinkEnds)> {
    let config = ctx.snapshot.config.ports.get(port.index())?;
    let link = config.role.link()?;
    let to = MacAddr::from_bits(ctx.core.partners[port].load(Ordering::Relaxed));
    let oui = ctx.snapshot.config.tlp.oui;
    let (from, frame_len_max) = (config.parse.port_mac, config.frame_len_max);
    Some((link.mode, LinkEnds { to, from, oui, frame_len_max }))
}

/// Counts a TLP that is not forwarded, by its refusal; the verdict is a drop for `reason`.
fn refuse(ctx: &Context, input: PortId, refusal: Refusal, reason: DropReason) -> Verdict {
    if let Some(counter) = ctx.stats.port[input].refused.all().get(refusal.index()) {
        counter.add(1);
    }
    Verdict::Drop(reason)
}

/// Turns a request into its own completion with `status`, and sends it back; `None` if there is
/// no way back.
fn answer(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    desc: &mut Desc,
    parsed: &ParsedTlp,
    status: Status,
    space: &mut Space,
) -> Option<Verdict> {
    let Decision::Out { port, front, .. } = return_path(ctx, tables, input, parsed) else {
        return None;
    };
    let completer = decide::completer(tables, input, parsed).unwrap_or_default();
    let (mode, ends) = link_of(ctx, port)?;
    let answer = Answer { front, mode: front.mode(mode), completer, status };
    bytes::answer(&mut ctx.bufs, desc, parsed, answer, ends, space).ok()?;
    let pri = parsed.pri_of_answer(&ctx.snapshot.config.tlp);
    desc.classify(input, Format::Pbr, pri, false, false);
    ctx.stats.port[input].answered.add(1);
    Some(towards(ctx, port))
}

//= docs/spec/cxl-fabric.md "Dynamic change": what waits for a port whose link goes down is decided about anew
/// Decides once more about a frame that was queued for `output`, whose link has gone down: it
/// goes by another port, is answered or held. `input` is the port by which it now counts as
/// received.
pub(super) fn decide_anew(
    ctx: &mut Context,
    input: PortId,
    output: PortId,
    desc: &mut Desc,
    space: &mut Space,
) -> Verdict {
    let lost = Verdict::Drop(DropReason::PortDown);
    if link_of(ctx, output).is_none() {
        return lost;
    }
    let tables = ctx.core.tables.load();
    let link = TlpLink { payload_max: u16::MAX, ..TlpLink::default() };
    let tlp = &ctx.snapshot.config.tlp;
    // It was read before, and has the front with which it was to be sent: with a PTH, except for
    // hosts and devices.
    let Ok(Read::Tlp(parsed)) = read::read(ctx.bufs.bytes(desc), None, link, tlp) else {
        return lost;
    };
    if parsed.pth.is_none_or(|pth| pth.dpid.is_none()) {
        return lost; // meant for the partner on this link, and for no other port
    }
    desc.classify(input, Format::Pbr, parsed.pri, false, false);
    match decide(ctx, &tables, input, &parsed) {
        decision @ (Decision::Out { .. }
        | Decision::Refuse(_)
        | Decision::Retry(_)
        | Decision::Hold) => match apply(ctx, &tables, input, desc, &parsed, decision, space) {
            Verdict::Drop(_) => lost,
            verdict => verdict,
        },
        Decision::CpuPort | Decision::Unexpected(_) | Decision::Drop(_) => lost,
    }
}

/// Forwards to `port`, if its link is up.
fn towards(ctx: &Context, port: PortId) -> Verdict {
    if ctx.core.up().contains(port) {
        Verdict::Forward(PortSet::only(port))
    } else {
        Verdict::Drop(DropReason::PortDown)
    }
}

/// Sends a frame to the switch's own functions, which are behind the CPU port.
fn send_to_cpu_port(ctx: &mut Context, input: PortId, desc: &mut Desc) -> Verdict {
    let Some(agent) = ctx.snapshot.cpu_port else { return Verdict::Drop(DropReason::NotTlp) };
    if agent == input {
        return Verdict::Drop(DropReason::SamePort);
    }
    bytes::readdress(&mut ctx.bufs, desc, CPU_PORT_MAC, cpu_mac_of_port(input));
    ctx.stats.port[input].to_agent.add(1);
    towards(ctx, agent)
}

/// Forwards a frame of the switch's own functions: to the port that it names, or by its PTH.
fn receive_from_cpu_port(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    desc: &mut Desc,
    space: &mut Space,
) -> Verdict {
    let config = &ctx.snapshot.config.tlp;
    let (to, _) = bytes::addresses(ctx.bufs.head(desc));
    let link = TlpLink { payload_max: u16::MAX, ..TlpLink::default() };
    let parsed = match read::read(ctx.bufs.bytes(desc), None, link, config) {
        Ok(Read::Tlp(parsed)) => Some(parsed),
        Ok(Read::Control | Read::Refused(_)) => None, // refused are edges' only
        // A frame for a link without PTH is not parsed here, as that takes the mode of its link; the
        // agent that made it has named its port.
        Err(DropReason::NotTlp) if to != CPU_PORT_MAC => None,
        Err(reason) => return unread(ctx, input, desc, reason),
    };
    let pri = parsed.map_or(config.tc_to_pri[0], |parsed| parsed.pri);
    desc.classify(input, Format::Pbr, pri, false, false);
    match (port_of_cpu_mac(to), parsed) {
        (Some(port), _) => {
            let Some((_, ends)) = link_of(ctx, port) else {
                return Verdict::Drop(DropReason::NoOutput);
            };
            bytes::readdress(&mut ctx.bufs, desc, ends.to, ends.from);
            towards(ctx, port)
        }
        (None, Some(parsed)) => {
            let decision = decide(ctx, tables, input, &parsed);
            apply(ctx, tables, input, desc, &parsed, decision, space)
        }
        (None, None) => unread(ctx, input, desc, DropReason::NotTlp),
    }
}
