//! PAUSE of all ports of a lane: timers, watchdogs, PFC frames that are due, and the pause guard.
//!
//! Source: docs/spec/pipeline.md §9.

use weft_parsers::mac_control;

use super::Lane;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::PortSet;

impl Lane {
    /// Runs the pause timers and watchdogs of the outputs at `look`, and publishes the result for
    /// the crossbar.
    pub(in crate::pipeline) fn pauses<T: Tracer>(
        &mut self,
        now: Instant,
        look: PortSet,
        tracer: &mut T,
    ) {
        let Self { ctx, outputs, .. } = self;
        for place in look.iter() {
            let Some(lane) = outputs.get_mut(place.index()) else { break };
            lane.pause_state(ctx, now, tracer);
        }
    }

    /// Brings the times for which outputs were paused up to `now`. Steps count them, and the last
    /// step may be earlier.
    pub fn count_pauses(&mut self, now: Instant) {
        let Self { ctx, outputs, .. } = self;
        for lane in outputs.iter() {
            lane.count_paused(ctx, now);
        }
    }

    /// Takes over the pauses that the guard has sent for this worker while it was away: groups that
    /// are not above XOFF are released.
    pub(in crate::pipeline) fn follow_guard(&mut self) {
        let Self { ctx, inputs, .. } = self;
        for lane in inputs {
            let Some((classes, frames)) = ctx.core.take_guarded(lane.port) else { continue };
            ctx.stats.port[lane.port].pfc_guard.add(frames);
            lane.pause.note_paused(classes);
        }
    }

    /// Makes a PFC frame if one is due, and puts it before all frames that wait.
    pub(in crate::pipeline) fn send_pause<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        tracer: &mut T,
    ) {
        let (Some(lane), Some(input)) = (self.outputs.get_mut(index), self.inputs.get_mut(index))
        else {
            return;
        };
        let Some(config) = self.ctx.snapshot.config.ports.get(lane.port.index()) else { return };
        if !self.ctx.snapshot.pfc_ports.contains(lane.port)
            || input.pause.next(now).is_none_or(|at| now < at)
        {
            return;
        }
        let stats = &self.ctx.stats.port[lane.port];
        // May draw on the reserve for control frames, which data cannot use up
        // (docs/spec/pipeline.md §4).
        let desc = if lane.pending.is_full() { None } else { self.ctx.bufs.alloc_control() };
        let Some(mut desc) = desc else {
            stats.pfc_tx_late.add(1); // still due at the next step
            return;
        };
        let Some(frame) = input.pause.poll(now, config.rate, &self.ctx.snapshot.config.pfc.classes)
        else {
            self.ctx.bufs.free(desc);
            return;
        };
        let wire = mac_control::Pfc { enable: frame.enable, quanta: frame.quanta };
        self.ctx.bufs.set_len(&mut desc, mac_control::FRAME_LEN);
        if let Some(out) = self.ctx.bufs.bytes_mut(&mut desc).and_then(|b| b.first_chunk_mut()) {
            wire.emit(config.parse.port_mac, out);
        }
        desc.set_input(lane.port);
        // Before all data frames, and behind older control frames: PFC frames must arrive in the
        // order in which they were decided.
        lane.pending.insert(lane.pending_control, desc);
        lane.pending_control += 1;
        stats.pfc_tx.add(1);
        if frame.quanta.iter().any(|&quanta| quanta > 0) {
            // The pause guard refreshes from this time on, should the worker be away.
            self.ctx.core.note_pause_sent(lane.port, now);
        }
        // Only XOFF and XON of the worker count. A release of classes that the guard alone had paused
        // would be taken for an XON by tests that read these counters (SAI).
        let guarded = input.pause.take_guarded();
        for pri in self.ctx.snapshot.pris.iter() {
            let classes = self.ctx.snapshot.config.pfc.classes[pri];
            let pausing = (0..8).any(|c| {
                frame.enable & classes & 1 << c != 0 && frame.quanta.get(c).is_some_and(|&q| q > 0)
            });
            let resuming = frame.enable & classes & !guarded != 0 && !pausing;
            stats.pri[pri].pause_tx.add(u64::from(pausing));
            stats.pri[pri].resume_tx.add(u64::from(resuming));
        }
        if T::ON {
            let pausing = (0..8)
                .filter(|&c| frame.quanta.get(c).is_some_and(|&q| q > 0))
                .fold(0, |s, c| s | 1 << c);
            let event = Event::PauseTx { port: lane.port.get(), enable: frame.enable, pausing };
            tracer.event(now, event);
        }
    }
}
