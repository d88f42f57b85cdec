//! Groups: releases ingress groups that have reached XON.
//!
//! In `egress-queue` mode the depth of outputs decides instead.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §4, §9.

use weft_base::sync::Ordering;

use super::Lane;
use crate::config::PfcMode;
use crate::pipeline::context::Context;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortSet, PriSet, QueueKey};

impl Lane {
    /// Takes over the cells that other workers have returned to this worker's groups; true if they
    /// still hold some, which they return over time.
    #[inline]
    pub(in crate::pipeline) fn take_back_cells(&mut self) -> bool {
        let Context { core, snapshot, lease, .. } = &mut self.ctx;
        core.buffer.catch_up(lease, &snapshot.thresholds, snapshot.lossless)
    }

    /// Whether queues, not groups, decide on PAUSE.
    #[inline]
    pub(in crate::pipeline) fn pauses_by_queue(&self) -> bool {
        matches!(self.ctx.snapshot.config.pfc.mode, PfcMode::EgressQueue { .. })
    }

    /// Releases groups that have reached XON, and in `egress-queue` mode follows the queues, of the
    /// inputs at `look`. Returns the ports, by place, that may have a PFC frame to send now.
    pub(in crate::pipeline) fn release_groups<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        tracer: &mut T,
    ) -> PortSet {
        let mut relieved = PortSet::EMPTY;
        let by_queue = self.pauses_by_queue();
        if self.ctx.over_xoff.is_empty() && !by_queue {
            return relieved;
        }
        self.ctx.has_released = false;
        for place in look.iter() {
            let Some(lane) = self.inputs.get_mut(place.index()) else { break };
            if lane.xoff.is_empty() && !by_queue {
                continue;
            }
            if by_queue {
                relieved.insert(place);
            }
            for pri in lane.xoff.iter() {
                let buffer = &self.ctx.core.buffer;
                let limit = buffer.group_limit(&self.ctx.lease, &self.ctx.snapshot.thresholds, pri);
                let head = buffer.headroom_used(lane.port, pri);
                let used = buffer.group_used(lane.port, pri) + head;
                // Headroom must be empty, too: the limit may have risen while others drained. A group
                // that resumes with part of its headroom in use could not hold the frames that come
                // after its next XOFF.
                if head > 0 || used > self.ctx.snapshot.thresholds.xon(limit) {
                    continue;
                }
                relieved.insert(place);
                lane.xoff.remove(pri);
                self.ctx.stats.port[lane.port].pri[pri].xon.add(1);
                if lane.xoff.is_empty() {
                    self.ctx.over_xoff.remove(lane.port);
                }
                if self.ctx.snapshot.config.pfc.mode == PfcMode::IngressPg {
                    lane.pause.set(pri, false);
                    let pris = self.ctx.core.xoff(lane.port).without(PriSet::only(pri));
                    self.ctx.set_xoff(lane.port, pris, now);
                }
                if T::ON {
                    let port = lane.port.get();
                    let pri = pri.get();
                    tracer.event(now, Event::Group { port, pri, xoff: false, used, limit });
                }
            }
            if by_queue {
                for pri in self.ctx.snapshot.lossless.iter() {
                    let hot =
                        PortSet::from_bits(self.ctx.core.congested[pri].load(Ordering::Relaxed));
                    let on = self.ctx.snapshot.pfc_ports.contains(lane.port)
                        && hot.iter().any(|output| {
                            self.ctx.core.buffer.stands(QueueKey { input: lane.port, output, pri })
                        });
                    lane.pause.set(pri, on);
                    let (pris, one) = (self.ctx.core.xoff(lane.port), PriSet::only(pri));
                    let pris = if on { pris.or(one) } else { pris.without(one) };
                    self.ctx.set_xoff(lane.port, pris, now);
                }
            }
        }
        relieved
    }
}
