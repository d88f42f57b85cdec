//! XOFF: asks the peer to pause the priority of a group that is above its limit.
//!
//! XON, at which the group is released, is looked for once a step (`Lane::release_groups`).
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4, §9.

use super::InputLane;
use crate::config::PfcMode;
use crate::pipeline::context::Context;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{Pri, PriSet};

impl InputLane {
    /// Notes that a group is above XOFF.
    pub fn cross_xoff<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        pri: Pri,
        limit: u32,
        tracer: &mut T,
    ) {
        if self.xoff.contains(pri) {
            return;
        }
        self.xoff.insert(pri);
        ctx.over_xoff.insert(self.port);
        ctx.has_released = true; // the group may be at XON already: check once
        ctx.stats.port[self.port].pri[pri].xoff.add(1);
        // In `egress-queue` mode groups still count XOFF and use headroom, but `Lane::release_groups`
        // decides on PAUSE.
        if ctx.snapshot.config.pfc.mode == PfcMode::IngressPg {
            self.pause.set(pri, true);
            let pris = ctx.core.xoff(self.port).or(PriSet::only(pri));
            ctx.set_xoff(self.port, pris, now);
        }
        if T::ON {
            let used = ctx.core.buffer.group_used(self.port, pri)
                + ctx.core.buffer.headroom_used(self.port, pri);
            let port = self.port.get();
            tracer.event(now, Event::Group { port, pri: pri.get(), xoff: true, used, limit });
        }
    }
}
