//! Loops: asks for probes where a loop is suspected, and blocks a port where one is proved.
//!
//! A suspicion makes the ports in question send probes. If one comes in by a port of this switch,
//! that port is blocked for a while; there is no STP.
//!
//! The port by which a probe comes in is blocked, not the one that sent it, because whoever sends
//! the probe into that port is behind it. So a neighbour that forges source addresses, repeats
//! frames or passes probes on to an accomplice only gets its own ports blocked.
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3 "Loops".

use weft_parsers::loop_probe::LoopProbe;
use weft_parsers::{AddrKey, Head, Vid};

use super::context::Context;
use super::switch_core::LoopFound;
use crate::config::PortConfig;
use crate::desc::Desc;
use crate::time::{Instant, Span};
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};

/// How long the ends of a loop learn nothing after it was cut: frames that went round are still
/// under way.
const SETTLE: Span = Span::from_ms(1_000);
/// Opcode that traces show for a consumed probe: its EtherType.
const TRACED: u16 = weft_parsers::ether_type::LOOPBACK;

/// Asks for probes by `ports`, between which frames of VLAN `vid` may go round.
pub(super) fn suspect(ctx: &Context, ports: PortSet, vid: Vid) {
    let links = &ctx.snapshot.links;
    // All links of a LAG, as any of them may be the one that leads back.
    let all = ports.iter().fold(PortSet::EMPTY, |all, port| all.or(links.members(port)));
    ctx.core.probes.ask(all.and(ctx.snapshot.probed), vid);
}

/// The port of this switch whose own address this is. No station sends from it, so such a frame
/// has come back.
pub(super) fn port_with(ctx: &Context, address: AddrKey) -> Option<PortId> {
    let of = |port: &PortConfig| AddrKey::ethernet(port.parse.port_mac) == address;
    let at = ctx.snapshot.config.ports.iter().position(of)?;
    PortId::new(at).filter(|&port| ctx.snapshot.probed.contains(port))
}

/// The probe in this frame, and the port that sent it, if it claims to come from a port of this
/// switch.
pub(super) fn own_probe(ctx: &Context, desc: &Desc, head: &Head) -> Option<(PortId, LoopProbe)> {
    let probe = LoopProbe::parse(ctx.bufs.bytes(desc), head.tagged()).ok()?;
    let sender = PortId::new(usize::from(probe.port))?;
    let config = ctx.snapshot.config.ports.get(sender.index())?;
    let is_own = probe.src == config.parse.port_mac && ctx.snapshot.probed.contains(sender);
    is_own.then_some((sender, probe))
}

/// Consumes a probe that claims to come from a port of this switch, and blocks a port if it
/// proves a loop.
#[cold]
pub(super) fn take_probe<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    head: &Head,
    desc: Desc,
    tracer: &mut T,
) {
    let port = desc.input();
    ctx.stats.port[port].consumed.add(1);
    if T::ON {
        let frame = ctx.bufs.trace_id(&desc);
        tracer.event(now, Event::Consume { frame, port: port.get(), opcode: TRACED });
    }
    let probe = own_probe(ctx, &desc, head);
    ctx.bufs.free(desc);
    match probe {
        Some((sender, probe)) if ctx.core.probes.proves(sender, probe.nonce, now) => {
            loop_found(ctx, now, sender, port, tracer);
        }
        // Its number is wrong or old, so a neighbour has guessed or recorded it. It proves nothing.
        _ => ctx.stats.port[port].loop_probes_bad.add(1),
    }
}

/// A loop from `sender` to `came` is proved: blocks `came`, unless the loop is cut already.
fn loop_found<T: Tracer>(
    ctx: &Context,
    now: Instant,
    sender: PortId,
    came: PortId,
    tracer: &mut T,
) {
    let links = &ctx.snapshot.links;
    let [sender, came] = [sender, came].map(|port| links.leader(port));
    let ends = links.members(sender).or(links.members(came));
    if let Some(span) = ctx.snapshot.config.forward.loop_block {
        // Another probe of the same loop has cut it: one block opens it, a second would cut off
        // stations.
        if !block(ctx, now, span, links.members(came), ends, tracer) {
            return;
        }
        ctx.core.set_blocked_for(links.members(came), Some(sender));
        for end in [sender, came] {
            // Before the flush: nothing may be learnt anew at these ports in between.
            ctx.core.blocks.settle(end, now + SETTLE);
            ctx.core.fdb.flush_port(end);
        }
    }
    ctx.core.probes.tell(LoopFound { sender, came });
}

/// A station moves too often between `home`, where it was, and `other`. Where ports can send
/// probes, probes decide; otherwise `other` is blocked, unless one of the two is blocked, so
/// that the loop is cut already.
pub(super) fn cut_loop<T: Tracer>(
    ctx: &Context,
    now: Instant,
    home: PortId,
    other: PortId,
    vid: Vid,
    tracer: &mut T,
) {
    let ports = PortSet::only(home).or(PortSet::only(other));
    if ports.without(ctx.snapshot.probed).is_empty() {
        suspect(ctx, ports, vid);
        return;
    }
    let Some(span) = ctx.snapshot.config.forward.loop_block else { return };
    let links = &ctx.snapshot.links;
    if block(ctx, now, span, links.members(other), ports, tracer) {
        ctx.core.set_blocked_for(links.members(other), None);
        // Frames that went round have moved other stations, too, to ports that they are not behind.
        ctx.core.fdb.flush_movers(home);
        ctx.core.fdb.flush_port(other);
    }
}

/// Blocks `ports`, unless one of `ends` is blocked already; true if it did.
fn block<T: Tracer>(
    ctx: &Context,
    now: Instant,
    span: Span,
    ports: PortSet,
    ends: PortSet,
    tracer: &mut T,
) -> bool {
    if !ctx.core.block(ports, ends, now + span) {
        return false;
    }
    for port in ports.iter() {
        ctx.stats.port[port].loop_blocks.add(1);
        if T::ON {
            tracer.event(now, Event::Block { port: port.get(), blocked: true });
        }
    }
    true
}
