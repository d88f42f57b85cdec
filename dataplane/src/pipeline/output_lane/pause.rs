//! PAUSE at one output: PFC frames received, pause timers and the watchdog.
//!
//! A received PFC frame stops priorities of the output for its quanta.
//!
//! Source: docs/spec/pipeline.md §9.

use weft_base::sync::Ordering;
use weft_parsers::mac_control::opcode;
use weft_parsers::{Head, mac_control};

use super::OutputLane;
use crate::config::StormAction;
use crate::desc::Desc;
use crate::pfc::PfcFrame;
use crate::pipeline::context::Context;
use crate::stats::{DropReason, PauseSide};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortSet, PriSet};

impl OutputLane {
    /// Publishes which priorities of this output are paused and which are in a storm; drops frames
    /// of the latter if so configured.
    pub fn pause_state<T: Tracer>(&mut self, ctx: &mut Context, now: Instant, tracer: &mut T) {
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
    pub fn count_paused(&self, ctx: &Context, now: Instant) {
        for pri in self.pause.ever_paused().iter() {
            let paused = self.pause.time_paused(pri, now);
            ctx.stats.port[self.port].pri[pri].paused_ps.set(paused.as_ps());
        }
    }

    /// Consumes a MAC control frame: PFC is obeyed, all others are only counted.
    pub fn consume<T: Tracer>(
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
    pub fn obey<T: Tracer>(
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
