//! The way out of a frame, as the fast paths of TLPs and of CXL.mem messages share it.
//!
//! An edge and an address give a PTH, a PTH a port, and a port the addresses and the queue of a
//! frame.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge" step 2, "Inside".

use weft_parsers::Format;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::fast_frame::MACS_LEN;
use weft_parsers::tlp::{Pth, link, pth};

use super::bytes;
use crate::desc::{Desc, Flag};
use crate::pbr::segments::Found;
use crate::pbr::tables::Arrival;
use crate::pbr::{Dispatch, EdgePort, Role, Tables};
use crate::pipeline::context::Context;
use crate::queues::QueueId;
use crate::types::{PortId, Pri};

/// The PTH of a request that FAST sends to a GFD.
#[inline]
pub(super) fn to_gfd(edge: &EdgePort, hpa: Hpa) -> Option<Pth> {
    match edge.fast().lookup(hpa) {
        // A GIM segment (`flag`) needs PIF, and a GFD outside of GMV is refused: both on the full
        // path.
        Found::Hit { flag: false, dpid } if edge.access().gmv.contains(dpid) => {
            Some(Pth { dsar: edge.role == Role::Usp, ..Pth::new(edge.pid, dpid) })
        }
        _ => None,
    }
}

/// The port to which a DPID belongs, if it is a single one and its link is up.
#[inline]
pub(super) fn port_behind(ctx: &Context, tables: &Tables, pth: Pth) -> Option<PortId> {
    match tables.forward(pth.spid, pth.dpid, false) {
        Ok(Arrival::Out(Dispatch::Port(port)))
            if ctx.core.up().contains(port)
                && tables.edge(port).is_none_or(|edge| !edge.resetting) =>
        {
            Some(port)
        }
        _ => None,
    }
}

/// Both addresses of a frame sent by `port`; `None` where `len` bytes behind its front, which
/// may have a PTH, are too long.
#[inline]
pub(super) fn macs_out(
    ctx: &Context,
    port: PortId,
    has_pth: bool,
    len: usize,
) -> Option<[u8; MACS_LEN]> {
    let config = ctx.snapshot.config.ports.get(port.index())?;
    let before = MACS_LEN + link::LEN + if has_pth { pth::LEN } else { 0 };
    if before + len > config.frame_len_max {
        return None;
    }
    let to = ctx.core.partners[port].load(weft_base::sync::Ordering::Relaxed);
    Some(bytes::macs(to, config.parse.port_mac.to_bits()))
}

/// Notes format and priority of a frame that is ready to be sent by `port`; returns its queue.
#[inline]
pub(super) fn queue_out(
    ctx: &Context,
    input: PortId,
    desc: &mut Desc,
    port: PortId,
    pri: Pri,
) -> QueueId {
    desc.classify(input, Format::Pbr, pri, false, false);
    desc.set(Flag::Pg, ctx.snapshot.is_lossless(input, pri));
    QueueId::new(port, pri)
}
