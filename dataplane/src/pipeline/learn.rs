//! Learn: puts the sources that a burst brought into the FDB.
//!
//! Shape: keys, collected by the forwarding decision; seen from the next burst on.
//! Units: none.
//! Source: docs/spec/pipeline.md §3.

use super::context::Context;
use crate::batch::BURST;
use crate::fdb::{FdbKey, Learned};
use crate::time::{Instant, Span};
use crate::trace::{Event, Tracer};
use crate::types::PortId;

impl Context {
    /// Learns what the burst brought; seen from the next one on.
    #[inline]
    pub(super) fn learn<T: Tracer>(
        &mut self,
        now: Instant,
        input: PortId,
        keys: &mut arrayvec::ArrayVec<FdbKey, BURST>,
        tracer: &mut T,
    ) {
        let home = self.snapshot.links.leader(input);
        for key in keys.drain(..) {
            let outcome = self.core.fdb.learn(key, home, now);
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
            match outcome {
                Learned::Moved { .. } => self.stats.port[input].fdb_moves.add(1),
                Learned::Looping { home, other } => {
                    let moved = self.snapshot.config.forward.sticky == Span::ZERO;
                    self.stats.port[input].fdb_moves.add(u64::from(moved));
                    self.cut_loop(now, (home, other), tracer);
                }
                Learned::Busy => self.stats.learn_busy.add(1),
                _ => {}
            }
            if T::ON {
                let event =
                    Event::Learn { key: key.addr().to_bits(), port: home.get(), outcome: name };
                tracer.event(now, event);
            }
        }
    }
}
