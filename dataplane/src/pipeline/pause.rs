//! PAUSE: PFC frames received and sent, pause timers and the watchdog.
//!
//! A received PFC frame stops priorities of the output; groups above XOFF make a PFC frame, which
//! is sent first.
//!
//! Source: docs/spec/pipeline.md §9.

use weft_base::sync::Ordering;
use weft_parsers::mac_control::opcode;
use weft_parsers::{Head, mac_control};

use super::context::Context;
use super::lane::Lane;
use super::output_lane::OutputLane;
use crate::config::StormAction;
use crate::desc::Desc;
use crate::pfc::PfcFrame;
use crate::stats::{DropReason, PauseSide};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortSet, PriSet};

impl Lane {
    /// Runs the pause timers and watchdogs of the outputs at `look`, and publishes the result for
    /// the crossbar.
    pub(super) fn pauses<T: Tracer>(&mut self, now: Instant, look: PortSet, tracer: &mut T) {
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
    pub(super) fn follow_guard(&mut self) {
        let Self { ctx, inputs, .. } = self;
        for lane in inputs {
            let Some((classes, frames)) = ctx.core.take_guarded(lane.port) else { continue };
            ctx.stats.port[lane.port].pfc_guard.add(frames);
            lane.pause.note_paused(classes);
        }
    }

    /// Makes a PFC frame if one is due, and puts it before all frames that wait.
    pub(super) fn send_pause<T: Tracer>(&mut self, now: Instant, index: usize, tracer: &mut T) {
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

impl OutputLane {
    /// Publishes which priorities of this output are paused and which are in a storm; drops frames
    /// of the latter if so configured.
    pub(super) fn pause_state<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        tracer: &mut T,
    ) {
        if self.calm && self.pause.is_idle() {
            return; // nothing was paused, nothing is
        }
        self.pause.tick(now);
        let paused = self.pause.paused(now);
        let events = self.watchdog.observe(paused, now);
        let storming = self.watchdog.storming();
        let (held, thrown) = match ctx.snapshot.config.pfc.watchdog_action {
            StormAction::Drop => (paused, storming),
            StormAction::Forward => (paused.without(storming), PriSet::EMPTY),
        };
        ctx.crossbar_dirty |= ctx.core.closed(self.port) != held.or(thrown);
        let before = ctx.core.paused(self.port);
        // Relaxed: the crossbar's owner may match a few frames more, which then wait in the egress
        // queue.
        ctx.core.paused[self.port].store(held.bits(), Ordering::Relaxed);
        ctx.stats.pauses.note(now, self.port, PauseSide::Obeyed, before, held);
        ctx.core.storming[self.port].store(thrown.bits(), Ordering::Relaxed);
        self.calm = paused.or(storming).is_empty() && self.pause.is_idle();
        if self.calm {
            ctx.paused_or_storming.remove(self.port);
        } else {
            ctx.paused_or_storming.insert(self.port);
        }
        let port = self.port;
        let bit = PortSet::only(port).bits();
        if !thrown.is_empty() {
            ctx.core.storms.fetch_or(bit, Ordering::Relaxed);
        } else if ctx.core.storms().contains(port) {
            ctx.core.storms.fetch_and(!bit, Ordering::Relaxed);
        }
        self.count_paused(ctx, now);
        for (pris, active) in [(events.stormed, true), (events.restored, false)] {
            for pri in pris.iter() {
                if active {
                    ctx.stats.port[port].pri[pri].storms.add(1);
                }
                if T::ON {
                    let event = Event::Storm { port: port.get(), pri: pri.get(), active };
                    tracer.event(now, event);
                }
            }
        }
        if !thrown.is_empty() {
            self.drop_queued(ctx, now, thrown, DropReason::Watchdog, tracer);
        }
    }

    /// Counts for how long each priority was paused until `now`, including pauses that are over.
    fn count_paused(&self, ctx: &Context, now: Instant) {
        for pri in self.pause.ever_paused().iter() {
            let paused = self.pause.time_paused(pri, now);
            ctx.stats.port[self.port].pri[pri].paused_ps.set(paused.as_ps());
        }
    }

    /// Consumes a MAC control frame: PFC is obeyed, all others are only counted.
    pub(super) fn consume<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        head: &Head,
        desc: Desc,
        tracer: &mut T,
    ) {
        let port = desc.input();
        let stats = &ctx.stats.port[port];
        stats.consumed.add(1);
        let code = head.mac_control_opcode().unwrap_or(0);
        if T::ON {
            let frame = ctx.bufs.trace_id(&desc);
            tracer.event(now, Event::Consume { frame, port: port.get(), opcode: code });
        }
        match code {
            opcode::PFC if head.pfc_da() => match mac_control::Pfc::parse(ctx.bufs.bytes(&desc)) {
                Ok(frame) => {
                    let frame = PfcFrame { enable: frame.enable, quanta: frame.quanta };
                    self.obey(ctx, now, &frame, tracer);
                }
                Err(_) => stats.mac_control_bad.add(1),
            },
            // Addressed neither to 01-80-C2-00-00-01 nor to the port: not meant for it
            // (docs/spec/pipeline.md §1).
            opcode::PFC => stats.mac_control_bad.add(1),
            opcode::PAUSE => stats.pause_rx.add(1),
            opcode::EXTENSION => stats.cbfc_rx.add(1),
            _ => stats.mac_control_unknown.add(1),
        }
        ctx.bufs.free(desc);
    }

    /// Obeys a received PFC frame.
    pub(super) fn obey<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        frame: &PfcFrame,
        tracer: &mut T,
    ) {
        let port = self.port;
        ctx.stats.port[port].pfc_rx.add(1);
        if !ctx.snapshot.pfc_ports.contains(port) {
            return;
        }
        let maps = &ctx.snapshot.config.maps.pcp_to_pri;
        // Several classes may map to one priority. The frame counts once for it, as a pause if any of
        // them pauses it.
        let (mut pausing, mut resuming) = (PriSet::EMPTY, PriSet::EMPTY);
        for (class, (&pri, &quanta)) in maps.iter().zip(&frame.quanta).enumerate() {
            if frame.enable >> class & 1 != 0 {
                if quanta > 0 { pausing.insert(pri) } else { resuming.insert(pri) }
            }
        }
        let stats = &ctx.stats.port[port].pri;
        pausing.iter().for_each(|pri| stats[pri].pause_rx.add(1));
        resuming.without(pausing).iter().for_each(|pri| stats[pri].resume_rx.add(1));
        if let Some(config) = ctx.snapshot.config.ports.get(port.index()) {
            // Before the frame changes the timers: a pause that ran out just before it is a break,
            // which ends the watchdog's count.
            self.watchdog.observe(self.pause.paused(now), now);
            self.pause.on_pfc(frame, now, config.rate, maps);
        }
        if T::ON {
            let paused = self.pause.paused(now).bits();
            let event = Event::PauseRx { port: port.get(), enable: frame.enable, paused };
            tracer.event(now, event);
        }
        self.pause_state(ctx, now, tracer);
    }
}
