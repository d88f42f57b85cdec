//! Samples of received frames, which show whether the same ones come in again and again.
//!
//! Source: docs/spec/pipeline.md §3 "Loops".

use weft_parsers::parse_head;

use super::InputLane;
use crate::batch::Batch;
use crate::loops::digest;
use crate::pipeline::context::Context;
use crate::pipeline::loops::suspect;
use crate::time::Instant;

impl InputLane {
    /// Samples a frame of a burst now and then, to see whether the same frames come in again and
    /// again.
    #[inline]
    pub fn sample(&mut self, ctx: &Context, now: Instant, batch: &Batch) {
        if self.repeats.is_due(now) && ctx.snapshot.probed.contains(self.port) {
            self.look_at(ctx, now, batch);
        }
    }

    #[cold]
    fn look_at(&mut self, ctx: &Context, now: Instant, batch: &Batch) {
        let Some(desc) = batch.iter().next() else { return };
        if !self.repeats.note(digest(ctx.bufs.bytes(desc)), now) {
            return;
        }
        let Some(config) = ctx.snapshot.config.ports.get(self.port.index()) else { return };
        let Ok(head) = parse_head(ctx.bufs.head(desc), desc.len(), &config.parse) else { return };
        if head.mac_control_opcode().is_some() {
            return; // PAUSE is refreshed, and ends here
        }
        if let Ok(vid) = ctx.snapshot.vlan.ingress(self.port, head.tci()) {
            suspect(ctx, ctx.snapshot.vlan.members(vid), vid);
        }
    }
}
