//! Loop probes and blocked ports: sends the probes that are due, opens ports whose time is over.
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3 "Loops".

use weft_base::sync::Ordering;

use super::Lane;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::PortSet;

impl Lane {
    /// Opens blocked ports whose time is over, or all of them if the configuration no longer blocks
    /// ports.
    pub(in crate::pipeline) fn unblock<T: Tracer>(&self, now: Instant, tracer: &mut T) {
        let core = &self.ctx.core;
        let never = self.ctx.snapshot.config.forward.loop_block.is_none();
        for port in core.blocked().iter() {
            if now < core.blocks.until(port) && !never {
                continue;
            }
            let bit = PortSet::only(port).bits();
            // By whichever worker comes first: only the one that finds the bit set traces it.
            let before = core.blocks.ports.fetch_and(!bit, Ordering::AcqRel);
            if T::ON && before & bit != 0 {
                tracer.event(now, Event::Block { port: port.get(), blocked: false });
            }
        }
    }

    /// Sends the loop probes that are due.
    pub(in crate::pipeline) fn send_probes(&mut self, now: Instant) {
        let asked = self.ctx.core.probes.asked();
        if asked.is_empty() && !self.probing {
            return;
        }
        self.probing = false;
        for lane in &mut self.outputs {
            if asked.contains(lane.port) {
                self.ctx.core.probes.take(lane.port);
                if lane.probes.ask(now) {
                    // Once a series: the number of an earlier series proves nothing any more.
                    self.ctx.core.probes.renew_nonce(lane.port, now);
                }
            }
            if lane.probes.due().is_some_and(|at| at <= now) {
                lane.send_probe(&mut self.ctx, now);
            }
            self.probing |= lane.probes.due().is_some();
        }
    }
}
