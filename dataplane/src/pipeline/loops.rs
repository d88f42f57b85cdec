//! Loops: ports that are blocked because stations move between them again and again.
//!
//! Shape: a station that moves too often → the port that it moves to is blocked until a time; there is no STP.
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3 ("one address moving more than 10 times a second").

use weft_base::sync::Ordering;

use super::context::Context;
use super::lane::Lane;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};

impl Lane {
    /// Opens ports again whose time is over, or all if loops no longer block any.
    pub(super) fn unblock<T: Tracer>(&self, now: Instant, tracer: &mut T) {
        let core = &self.ctx.core;
        let never = self.ctx.snapshot.config.forward.loop_block.is_none();
        for port in core.blocked().iter() {
            if now < core.blocks.until(port) && !never {
                continue;
            }
            let bit = PortSet::only(port).bits();
            let before = core.blocks.ports.fetch_and(!bit, Ordering::AcqRel);
            if T::ON && before & bit != 0 {
                tracer.event(now, Event::Block { port: port.get(), blocked: false });
            }
        }
    }
}

impl Context {
    /// A station moves between `home`, where it was, and `other` too often: blocks `other`, unless one of them is
    /// blocked, so that the loop is cut already.
    pub(super) fn cut_loop<T: Tracer>(
        &self,
        now: Instant,
        (home, other): (PortId, PortId),
        tracer: &mut T,
    ) {
        let Some(span) = self.snapshot.config.forward.loop_block else { return };
        let blocked = self.core.blocked();
        if blocked.contains(home) || blocked.contains(other) {
            return;
        }
        let ports = self.snapshot.links.members(other);
        self.core.block(ports, now + span);
        // Its stations may be behind other ports, as the loop shows.
        self.core.fdb.flush_port(other);
        for port in ports.iter() {
            self.stats.port[port].loop_blocks.add(1);
            if T::ON {
                tracer.event(now, Event::Block { port: port.get(), blocked: true });
            }
        }
    }
}
