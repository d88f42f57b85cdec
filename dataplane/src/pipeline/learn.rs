//! Learn: puts the source addresses of a burst into the FDB.
//!
//! The forwarding decision collects them; they are used from the next burst on.
//!
//! Source: docs/spec/pipeline.md §3.

use super::context::Context;
use super::loops::{cut_loop, port_with, suspect};
use crate::batch::BURST;
use crate::fdb::{Learned, Source};
use crate::time::{Instant, Span};
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};

/// Learns the source addresses of a burst; they are used from the next burst on.
#[inline]
pub(super) fn learn_burst<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    input: PortId,
    sources: &mut arrayvec::ArrayVec<Source, BURST>,
    tracer: &mut T,
) {
    let home = ctx.snapshot.links.leader(input);
    if !sources.is_empty() && ctx.core.blocks.is_settling(home, now) {
        // Frames that went round are still under way, and would be learnt at the wrong end.
        sources.clear();
    }
    for source in sources.drain(..) {
        let key = source.key;
        let (outcome, other) = ctx.core.fdb.learn_from(source, home, now);
        let name = match outcome {
            Learned::New => "new",
            Learned::Moved { .. } => "moved",
            Learned::Looping { .. } => "looping",
            Learned::Held => "held",
            Learned::Known => "known",
            Learned::PortLimit => "port_limit",
            Learned::Full => "full",
            Learned::Static => "static",
            Learned::Busy => "busy",
        };
        let own = match outcome {
            Learned::New => port_with(ctx, key.addr()),
            _ => None,
        };
        // The same frame came in by two ports, or a frame of a port's own address came in: frames
        // may go round.
        if let Some(other) = other.or(own) {
            suspect(ctx, PortSet::only(home).or(PortSet::only(other)), key.vid());
        }
        match outcome {
            Learned::Moved { .. } => ctx.stats.port[input].fdb_moves.add(1),
            Learned::Looping { home, other } => {
                // A sticky station stays at `home`, so it has not moved.
                let moved = ctx.snapshot.config.forward.sticky == Span::ZERO;
                ctx.stats.port[input].fdb_moves.add(u64::from(moved));
                cut_loop(ctx, now, home, other, key.vid(), tracer);
            }
            Learned::Busy => ctx.stats.learn_busy.add(1),
            _ => {}
        }
        if T::ON {
            let event = Event::Learn { key: key.addr().to_bits(), port: home.get(), outcome: name };
            tracer.event(now, event);
        }
    }
}
