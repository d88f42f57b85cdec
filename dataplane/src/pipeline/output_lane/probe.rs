//! Loop probe of one port: where and how it is sent.
//!
//! Source: docs/spec/pipeline.md §3 "Loops".

use weft_parsers::Tci;
use weft_parsers::loop_probe::{self, LoopProbe};

use super::OutputLane;
use crate::pipeline::context::Context;
use crate::time::Instant;
use crate::vlan::{Arrival, TagOp};

impl OutputLane {
    /// Puts a probe before all frames that wait, if the port may send one.
    pub fn send_probe(&mut self, ctx: &mut Context, now: Instant) {
        let Context { core, snapshot, .. } = &*ctx;
        let vid = core.probes.vid(self.port);
        let may = self.up
            && !self.tx_off
            && core.forwarding().contains(self.port)
            && snapshot.probed.contains(self.port)
            && snapshot.vlan.members(vid).contains(self.port);
        let Some(config) = snapshot.config.ports.get(self.port.index()).filter(|_| may) else {
            self.probes.stop();
            return;
        };
        self.probes.sent(now);
        // Tagged like any frame of that VLAN that leaves by this port, so that the probe takes its
        // path through the neighbours.
        let tag = match snapshot.vlan.egress(self.port, vid, Arrival::of(None)) {
            TagOp::Insert => Some((config.parse.tpids.first(), Tci(vid.get()))),
            _ => None,
        };
        let (src, port, nonce) =
            (config.parse.port_mac, self.port.get(), core.probes.nonce(self.port));
        let probe = LoopProbe { src, port, nonce };
        if self.pending.is_full() {
            return; // the next one of the series may find room
        }
        let Some(mut desc) = ctx.bufs.alloc_control() else { return };
        ctx.bufs.set_len(&mut desc, loop_probe::FRAME_LEN);
        if let Some(out) = ctx.bufs.bytes_mut(&mut desc).and_then(|b| b.first_chunk_mut()) {
            probe.emit(tag, out);
        }
        desc.set_input(self.port);
        self.pending.insert(self.pending_control, desc);
        self.pending_control += 1;
        self.backlog = true;
        ctx.core.probes.set_sent(self.port, now);
        ctx.stats.port[self.port].loop_probes.add(1);
    }
}
