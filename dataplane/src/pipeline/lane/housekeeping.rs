//! Housekeeping of ports, once a step: the only calls of a port that may fail.
//!
//! [`Port::service`], and frames that the port counted itself, beside those that it delivered and
//! took.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §1.

use super::Lane;
use crate::port::Port;
use crate::stats::DropReason;
use crate::time::Instant;

impl Lane {
    /// Has the port do its housekeeping, and adds its own counts to the lane's.
    pub(in crate::pipeline) fn housekeeping(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
    ) {
        let served = port.service(now, &mut self.ctx.bufs);
        let Some(lane) = self.outputs.get_mut(index) else { return };
        if let Err(error) = served {
            self.ctx.stats.service_errors.add(1);
            self.ctx.core.set_last_error(lane.port, Some(error));
            lane.in_trouble = true;
        // A port that fails and then succeeds once may still be without a link: the reason stays
        // shown.
        } else if lane.in_trouble && port.link_up() {
            self.ctx.core.set_last_error(lane.port, None);
            lane.in_trouble = false;
        }
        self.count_port(index, port);
    }

    /// Adds the frames that a port dropped by itself to the lane's counters.
    pub(in crate::pipeline) fn count_port(&mut self, index: usize, port: &mut dyn Port) {
        let Some(lane) = self.inputs.get_mut(index) else { return };
        let now = port.counters();
        if now == lane.seen {
            return;
        }
        let stats = &self.ctx.stats.port[lane.port];
        for (slot, &(reason, total)) in now.rx_dropped.iter().enumerate() {
            let before = lane.seen.rx_dropped.get(slot).map_or(0, |&(_, total)| total);
            let Some(reason) = reason else { continue };
            // A frame that the port has dropped was received, or the ledger would not balance.
            stats.rx_frames.add(total - before);
            self.ctx.stats.count_drops(lane.port, reason, total - before);
        }
        let failed = now.tx_failed - lane.seen.tx_failed;
        // It was counted as sent when the port took it.
        stats.tx_frames.sub(failed);
        stats.late_drops.add(failed);
        self.ctx.stats.count_drops(lane.port, DropReason::TxError, failed);
        stats.kernel_rx.set(now.kernel_rx);
        lane.seen = now;
    }
}
