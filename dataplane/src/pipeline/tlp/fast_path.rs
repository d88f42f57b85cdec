//! Fast path of TLPs: the most common ones, from edge to edge, without translation or refusal.
//!
//! Each frame of a burst that it takes gets its queue. [`super::route_tlps`] handles the others,
//! and would give the same result for all of them.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge" step 2, "Inside", "Egress at an edge".

use weft_parsers::Format;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::fast_frame::{self, FastFrame, Front, LinkWords, MACS_LEN};
use weft_parsers::tlp::{FastKind, FastTlp, Mode, Protocol, Pth, TlpLink};

use super::bytes;
use super::fast_out::{macs_out, port_behind, queue_out, to_gfd};
use super::mem_fast::{self, forward_mem};
use crate::batch::{BURST, Batch};
use crate::config::PortRole;
use crate::desc::Desc;
use crate::pbr::{EdgePort, Role, Tables};
use crate::pipeline::burst::{BurstMask, CACHE_MISS, CountRun};
use crate::pipeline::context::Context;
use crate::queues::QueueId;
use crate::types::{PortId, Pri};

/// Routes the frames of a burst that the fast path takes; returns the others.
#[inline(never)] // each loop on its own keeps its state in registers
pub(super) fn classify_fast(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    batch: &mut Batch,
    routes: &mut [u16; BURST],
) -> BurstMask {
    let config = ctx.snapshot.config.ports.get(input.index());
    let edge = tables.edge(input);
    let front = config.and_then(|config| {
        let own = config.role.link()?;
        let front = match edge {
            None => Front::Pbr,
            Some(edge) if own.mode == Mode::Flit && edge.role != Role::Gfd => Front::Hbr,
            Some(_) => return None,
        };
        Some((own, front))
    });
    let words = LinkWords::new(ctx.snapshot.config.tlp.oui);
    let len_max = config.map_or(0, |config| config.frame_len_max);
    let mut run = CountRun::default();
    let (mut unknown, mut bit) = (0_u64, 1_u64);
    for (desc, route) in batch.iter_mut().zip(routes) {
        let len = desc.len();
        let head = ctx.bufs.head(desc);
        // TLPs of G-FAM devices, and of links in non-flit mode, take the full path.
        let tlp = front.filter(|_| len <= len_max).and_then(|(own, front)| {
            fast_frame::fast_frame(head, len, &words, front, own.payload_max)
        });
        let taken = match tlp {
            Some(frame) => forward_fast(ctx, tables, input, edge, desc, &frame),
            None if len <= len_max => mem_fast::read(head, len, &words)
                .and_then(|message| forward_mem(ctx, tables, input, edge, desc, &message)),
            None => None,
        };
        if let Some(queue) = taken {
            run.count(&ctx.stats.port[input], len, Format::Pbr as usize);
            *route = queue.get();
        } else {
            unknown |= bit;
            // `routes` still holds the last burst's queues, by which the frame would leave.
            *route = CACHE_MISS;
        }
        bit <<= 1;
    }
    run.flush(&ctx.stats.port[input]);
    BurstMask(unknown)
}

/// The queue of a frame that only needs a new front, which it has on return; `None` if it needs
/// more.
#[inline]
fn forward_fast(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    edge: Option<&EdgePort>,
    desc: &mut Desc,
    frame: &FastFrame,
) -> Option<QueueId> {
    let tlp = &frame.tlp;
    let pth = match (frame.pth, edge) {
        (Some(pth), None) => pth,
        (None, Some(edge)) => by_fast(edge, tlp)?,
        _ => return None,
    };
    // For a virtual switch of this switch, which the full path passes it through.
    if pth.hie && tables.routes().is_ours(pth.dpid) {
        return None;
    }
    let port = port_behind(ctx, tables, pth)?;
    let config = ctx.snapshot.config.ports.get(port.index())?;
    let exit = tables.edge(port);
    if exit.is_some_and(EdgePort::has_lds) {
        return None; // the full path finds out which logical device is meant
    }
    let (front, dsar) = match (exit.map(|edge| edge.role), config.role) {
        (None, PortRole::Fport(_)) => (Some(pth), pth.dsar),
        (Some(Role::Gfd), _) => (Some(pth), true),
        // With PIF set, the full path decides whether a prefix is added.
        (Some(Role::Usp | Role::Dsp), PortRole::Usp(link) | PortRole::Dsp(link))
            if link.mode == Mode::Flit && !pth.pif =>
        {
            (None, false)
        }
        _ => return None,
    };
    let len = usize::from(tlp.len);
    let macs = macs_out(ctx, port, front.is_some(), len)?;
    let same = frame.pth.is_some() == front.is_some() && frame.pth.map(|p| p.dsar) == Some(dsar);
    if same && desc.len() == frame.at + len {
        // Between two fabric links nothing but the addresses changes.
        let bytes = ctx.bufs.bytes_mut(desc)?.first_chunk_mut::<MACS_LEN>()?;
        *bytes = macs;
    } else {
        let front = front.map(|pth| Pth { dsar, ..pth });
        let oui = ctx.snapshot.config.tlp.oui;
        let protocol = if front.is_some() { Protocol::Pbr } else { Protocol::HbrFlit };
        let link = TlpLink { oui, protocol, ln: false };
        bytes::put_front(&mut ctx.bufs, desc, frame.at, len, macs, front, link)?;
    }
    let pri = pri_of(tlp, &ctx.snapshot.config.tlp);
    Some(queue_out(ctx, input, desc, port, pri))
}

/// The PTH of a request that FAST sends to a GFD.
#[inline]
fn by_fast(edge: &EdgePort, tlp: &FastTlp) -> Option<Pth> {
    if !matches!(tlp.kind, FastKind::Uio | FastKind::Memory) || edge.has_lds() {
        return None;
    }
    to_gfd(edge, Hpa(tlp.address))
}

#[inline]
fn pri_of(tlp: &FastTlp, config: &crate::config::TlpConfig) -> Pri {
    match tlp.kind {
        FastKind::Uio => config.uio_req_pri,
        FastKind::UioCompletion => config.uio_cpl_pri,
        FastKind::Memory | FastKind::Completion => {
            config.tc_to_pri.get(usize::from(tlp.tc & 7)).copied().unwrap_or_default()
        }
    }
}
