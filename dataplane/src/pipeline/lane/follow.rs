//! Follow: takes over changes around a lane since its last step.
//!
//! These are a new configuration, links that went up or down, and links that may take flows.
//!
//! Units: [`Instant`].
//! Source: docs/spec/pipeline.md §3, §9.

use std::sync::Arc;

use weft_base::sync::Ordering;

use super::Lane;
use crate::config::PfcMode;
use crate::lag::Joined;
use crate::pipeline::context::Context;
use crate::pipeline::output_lane::OutputLane;
use crate::port::Port;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet, PriSet};

impl Lane {
    /// Takes over a new configuration; false if there is none.
    pub(in crate::pipeline) fn refresh<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> bool {
        let current = self.ctx.core.snapshot.load();
        if current.epoch == self.ctx.snapshot.epoch {
            return false;
        }
        let old = core::mem::replace(&mut self.ctx.snapshot, Arc::clone(&current));
        (self.ctx.has_released, self.ctx.crossbar_dirty) = (true, true);
        let snapshot = &self.ctx.snapshot;
        if old.links.is_any() != snapshot.links.is_any() {
            (self.ctx.joined_lags, self.ctx.joined_spreads) = (Joined::new(), Joined::new());
        }
        let mode = snapshot.config.pfc.mode;
        for lane in &mut self.inputs {
            lane.reconfigure(&old, snapshot);
            if mode != old.config.pfc.mode {
                // Another rule decides on PAUSE from now on, and no PAUSE of the old one may stay.
                // Groups above XOFF are asserted anew here; for queues `release_groups` does it in this
                // step.
                let pris = if mode == PfcMode::IngressPg { lane.xoff } else { PriSet::EMPTY };
                for pri in snapshot.lossless.iter() {
                    lane.pause.set(pri, pris.contains(pri));
                }
                self.ctx.set_xoff(lane.port, pris, now);
            }
        }
        for lane in &mut self.outputs {
            lane.reconfigure(snapshot);
            // As if the port had everything left to send, until `note_held` knows better: the
            // command must not be answered before.
            self.ctx.core.set_tx_off(lane.port, lane.tx_off, usize::MAX);
        }
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.reconfigure(snapshot);
        }
        if T::ON {
            tracer.event(now, Event::Reload { epoch: snapshot.epoch });
        }
        true
    }

    /// Follows the link of the port at place `index`, if it went up or down.
    #[inline]
    pub(in crate::pipeline) fn follow_link<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &dyn Port,
        tracer: &mut T,
    ) {
        let up = port.link_up();
        if self.outputs.get(index).is_some_and(|lane| lane.up != up) {
            self.change_link(now, index, up, tracer);
        }
    }

    #[cold]
    fn change_link<T: Tracer>(&mut self, now: Instant, index: usize, up: bool, tracer: &mut T) {
        let Some(lane) = self.outputs.get_mut(index) else { return };
        lane.up = up;
        self.ctx.crossbar_dirty = true;
        let bit = PortSet::only(lane.port).bits();
        if up {
            self.ctx.core.up.fetch_or(bit, Ordering::Relaxed);
        } else {
            let before = self.ctx.core.up.fetch_and(!bit, Ordering::Relaxed);
            lane.link_down(now);
            // Stations behind a LAG stay while it has a link.
            let links = &self.ctx.snapshot.links;
            let left = links.members(lane.port).and(PortSet::from_bits(before & !bit));
            if left.is_empty() {
                self.ctx.core.fdb.flush_port(links.leader(lane.port));
            }
            if let Some(input) = self.inputs.get_mut(index) {
                input.link_down();
            }
        }
        if T::ON {
            tracer.event(now, Event::Link { port: lane.port.get(), up });
        }
        if !up {
            self.leave_down(now, index, tracer);
        }
    }

    /// Lets links that came up take flows, as soon as no frame is overtaken by that.
    pub(in crate::pipeline) fn join(&mut self, now: Instant) {
        let Self { ctx, outputs, .. } = self;
        let Context { core, snapshot, joined_lags, joined_spreads, .. } = ctx;
        // A flow that changes links while its frames wait on the old one would arrive out of order.
        let is_empty = |port: PortId| {
            let has_pending = |lane: &OutputLane| lane.full || !lane.pending.is_empty();
            let pending = outputs.iter().any(|lane| lane.port == port && has_pending(lane));
            !pending && snapshot.pris.iter().all(|pri| core.buffer.depth(port, pri) == 0)
        };
        if joined_lags.waits() {
            joined_lags.admit(now, snapshot.links.lags(), is_empty);
        }
        if joined_spreads.waits() {
            joined_spreads.admit(now, snapshot.links.spreads(), is_empty);
        }
    }
}
