//! Loops: ports that are blocked because stations move between them again and again.
//!
//! Shape: a station that moves too often → the port that it moves to is blocked until a time; there is no STP.
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3 ("one address moving more than 10 times a second").

use weft_base::sync::{AtomicU64, Ordering};

use super::{Context, Core, Lane};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PerPort, PortId, PortSet};

/// Ports that are blocked, and until when.
pub(super) struct Blocks {
    ports: AtomicU64,
    /// By port, in ps; counts while the port is among `ports`.
    until: PerPort<AtomicU64>,
}

impl Blocks {
    pub fn new() -> Self {
        Self { ports: AtomicU64::new(0), until: PerPort::from_fn(|_| AtomicU64::new(0)) }
    }

    fn until(&self, port: PortId) -> Instant {
        Instant::from_ps(self.until[port].load(Ordering::Relaxed)) // ordered by `ports`
    }
}

impl Core {
    /// Ports that are blocked because of a loop: the level-triggered word.
    #[inline]
    #[must_use]
    pub fn blocked(&self) -> PortSet {
        PortSet::from_bits(self.blocks.ports.load(Ordering::Acquire)) // pairs with `block`
    }

    /// Links that are up and not blocked.
    #[inline]
    #[must_use]
    pub fn forwarding(&self) -> PortSet {
        self.up().without(self.blocked())
    }

    /// When the next blocked port is one no longer.
    pub(super) fn next_unblock(&self) -> Option<Instant> {
        self.blocked().iter().map(|port| self.blocks.until(port)).min()
    }

    fn block(&self, ports: PortSet, until: Instant) {
        for port in ports.iter() {
            self.blocks.until[port].store(until.as_ps(), Ordering::Relaxed); // before `ports`
        }
        self.blocks.ports.fetch_or(ports.bits(), Ordering::Release); // pairs with `blocked`
    }
}

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
