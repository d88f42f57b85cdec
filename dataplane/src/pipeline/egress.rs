//! Egress: PAUSE, scheduling, ECN marks, tags, and handing frames to the port.
//!
//! Shape: per output the consuming ends of its egress queues, a scheduler, pause timers, a watchdog.
//! Units: octets, cells.
//! Source: pipeline.md §7 to §9.

use arrayvec::ArrayVec;
use weft_parsers::mac_control::{self, opcode};
use weft_parsers::{Head, Tci, Vid, mark_ce};

use super::Lane;
use crate::batch::{BURST, Batch};
use crate::config::StormAction;
use crate::desc::{Desc, Flag};
use crate::egress::EgressSched;
use crate::pfc::{PauseRx, PfcFrame, Watchdog};
use crate::pool::PartialCsum;
use crate::port::Port;
use crate::ring::Rx;
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::sync::Ordering;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PerPri, PortId, Pri, PriSet};
use crate::vlan::{Arrival, Extent, TagOp};

/// What one worker keeps for a port as output.
pub(super) struct OutputLane {
    pub port: PortId,
    queues: PerPri<Option<Rx<Desc>>>,
    sched: EgressSched,
    pause: PauseRx,
    watchdog: Watchdog,
    /// Frames picked but not yet taken by the port; control frames of ours stand first.
    pending: Batch,
    pending_control: usize,
    pub up: bool,
    /// Rates hold all back until then.
    closed_until: Option<Instant>,
    /// The port had no room for all that was ready.
    full: bool,
}

/// What is counted of a frame when its port has taken it.
struct Fact {
    frame: u64,
    len: u16,
    format: usize,
    pri: Pri,
}

impl OutputLane {
    pub fn new(port: PortId, queues: PerPri<Option<Rx<Desc>>>, snapshot: &Snapshot) -> Self {
        let pfc = &snapshot.config.pfc;
        let config = snapshot.config.ports.get(port.index()).expect("a port of this switch");
        Self {
            port,
            queues,
            sched: EgressSched::new(&config.egress),
            pause: PauseRx::new(),
            watchdog: Watchdog::new(pfc.watchdog_detect, pfc.watchdog_restore),
            pending: Batch::new(),
            pending_control: 0,
            up: false,
            closed_until: None,
            full: false,
        }
    }

    pub fn reconfigure(&mut self, snapshot: &Snapshot) {
        let pfc = &snapshot.config.pfc;
        self.watchdog.set(pfc.watchdog_detect, pfc.watchdog_restore);
        if let Some(config) = snapshot.config.ports.get(self.port.index()) {
            self.sched.reconfigure(&config.egress);
        }
    }

    pub fn link_down(&mut self, now: Instant) {
        self.pause.clear(now);
        // Nothing waits for a port that is down.
        (self.closed_until, self.full) = (None, false);
    }

    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        let next = Instant::earlier(self.pause.tick(now), self.watchdog.tick(now));
        Instant::earlier(next, self.closed_until)
    }

    /// Whether frames wait for room at the port.
    pub fn is_blocked(&self) -> bool {
        self.full || !self.pending.is_empty()
    }

    /// Queues that hold a frame, and the lengths of their first ones.
    #[inline]
    fn ready(&mut self, pris: PriSet) -> (PriSet, PerPri<u32>) {
        let mut ready = PriSet::EMPTY;
        let mut lens = PerPri::default();
        for pri in pris.iter() {
            if let Some(first) = self.queues[pri].as_mut().and_then(Rx::front) {
                ready.insert(pri);
                lens[pri] = wire_len(first);
            }
        }
        (ready, lens)
    }
}

/// Octets of a frame, as schedulers count.
#[inline]
fn wire_len(desc: &Desc) -> u32 {
    u32::try_from(desc.len()).unwrap_or(u32::MAX)
}

impl Lane {
    /// Follows pause timers and the watchdog, and tells the crossbar.
    pub(super) fn pauses<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        for index in 0..self.outputs.len() {
            self.pause_state(now, index, tracer);
        }
    }

    fn pause_state<T: Tracer>(&mut self, now: Instant, index: usize, tracer: &mut T) {
        let Some(lane) = self.outputs.get_mut(index) else { return };
        lane.pause.tick(now);
        let paused = lane.pause.paused(now);
        let events = lane.watchdog.observe(paused, now);
        let storming = lane.watchdog.storming();
        let (held, thrown) = match self.snapshot.config.pfc.watchdog_action {
            StormAction::Drop => (paused, storming),
            StormAction::Forward => (paused.without(storming), PriSet::EMPTY),
        };
        self.core.paused[lane.port].store(held.bits(), Ordering::Relaxed);
        self.core.storming[lane.port].store(thrown.bits(), Ordering::Relaxed);
        let port = lane.port;
        for pri in self.snapshot.pris.iter() {
            let stats = &self.stats.port[port].pri[pri];
            if paused.contains(pri) || stats.paused_ps.get() > 0 {
                stats.paused_ps.set(lane.pause.time_paused(pri, now).as_ps());
            }
        }
        for (pris, active) in [(events.stormed, true), (events.restored, false)] {
            for pri in pris.iter() {
                if active {
                    self.stats.port[port].pri[pri].storms.add(1);
                }
                if T::ON {
                    let event = Event::Storm { port: port.get(), pri: pri.get(), active };
                    tracer.event(now, event);
                }
            }
        }
        if !thrown.is_empty() {
            self.throw(now, index, thrown, DropReason::Watchdog, tracer);
        }
    }

    /// Throws away what stands in egress queues.
    fn throw<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        pris: PriSet,
        reason: DropReason,
        tracer: &mut T,
    ) {
        for pri in pris.iter() {
            while let Some((desc, port)) = self.outputs.get_mut(index).and_then(|lane| {
                let port = lane.port;
                lane.queues[pri].as_mut().and_then(Rx::pop).map(|desc| (desc, port))
            }) {
                self.stats.port[port].pri[pri].purged.add(1);
                self.discard(now, desc, port, reason, tracer);
            }
        }
    }

    /// Ends all frames of an output, picked ones included.
    pub(super) fn empty_output<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.throw(now, index, self.snapshot.pris, reason, tracer);
        let Some(lane) = self.outputs.get_mut(index) else { return };
        let port = lane.port;
        let control = core::mem::take(&mut lane.pending_control);
        for (n, desc) in core::mem::take(&mut lane.pending).into_iter().enumerate() {
            if n < control {
                self.bufs.free(desc);
            } else {
                self.stats.port[port].late_drops.add(1);
                self.end(now, desc, reason, tracer);
            }
        }
    }

    /// Takes a MAC control frame in: PFC acts, all others are only counted.
    pub(super) fn consume<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        head: &Head,
        desc: Desc,
        tracer: &mut T,
    ) {
        let port = desc.input();
        let stats = &self.stats.port[port];
        stats.consumed.add(1);
        let code = head.mac_control_opcode().unwrap_or(0);
        if T::ON {
            let frame = self.bufs.trace_id(&desc);
            tracer.event(now, Event::Consume { frame, port: port.get(), opcode: code });
        }
        match code {
            opcode::PFC if head.pfc_da() => match mac_control::Pfc::parse(self.bufs.bytes(&desc)) {
                Ok(frame) => {
                    let frame = PfcFrame { enable: frame.enable, quanta: frame.quanta };
                    self.obey(now, index, &frame, tracer);
                }
                Err(_) => stats.mac_control_bad.add(1),
            },
            opcode::PFC => stats.mac_control_bad.add(1),
            opcode::PAUSE => stats.pause_rx.add(1),
            opcode::EXTENSION => stats.cbfc_rx.add(1),
            _ => stats.mac_control_unknown.add(1),
        }
        self.bufs.free(desc);
    }

    /// Acts upon a PFC frame.
    fn obey<T: Tracer>(&mut self, now: Instant, index: usize, frame: &PfcFrame, tracer: &mut T) {
        let Some(lane) = self.outputs.get_mut(index) else { return };
        let port = lane.port;
        self.stats.port[port].pfc_rx.add(1);
        if !self.snapshot.pfc_ports.contains(port) {
            return;
        }
        let maps = &self.snapshot.config.maps.pcp_to_pri;
        for (class, (&pri, &quanta)) in maps.iter().zip(&frame.quanta).enumerate() {
            if frame.enable >> class & 1 != 0 {
                let stats = &self.stats.port[port].pri[pri];
                if quanta > 0 { stats.pause_rx.add(1) } else { stats.resume_rx.add(1) }
            }
        }
        if let Some(config) = self.snapshot.config.ports.get(port.index()) {
            lane.watchdog.observe(lane.pause.paused(now), now);
            lane.pause.on_pfc(frame, now, config.rate, maps);
        }
        if T::ON {
            let paused = lane.pause.paused(now).bits();
            let event = Event::PauseRx { port: port.get(), enable: frame.enable, paused };
            tracer.event(now, event);
        }
        self.pause_state(now, index, tracer);
    }

    /// Sends what may be sent by one port; returns how many frames it took.
    pub(super) fn send<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if !self.outputs.get(index).is_some_and(|lane| lane.up) {
            self.empty_output(now, index, DropReason::PortDown, tracer);
            return 0;
        }
        self.send_pause(now, index, tracer);
        let Some(lane) = self.outputs.get_mut(index) else { return 0 };
        (lane.closed_until, lane.full) = (None, false);
        let waiting = lane.ready(self.snapshot.pris.without(self.core.paused(lane.port)));
        if waiting.0.is_empty() && lane.pending.is_empty() {
            return 0;
        }
        let room = port.tx_room(now).min(self.snapshot.config.tx_ring_frames).min(BURST);
        self.pick(now, index, room, waiting, tracer);
        self.hand_over(now, index, port, tracer)
    }

    /// Lets the port do its chores and books what it counted.
    pub(super) fn tend(&mut self, now: Instant, index: usize, port: &mut dyn Port) {
        if port.service(now, &mut self.bufs).is_err() {
            self.stats.service_errors.add(1); // the link's state says the rest
        }
        self.settle_port(index, port);
    }

    /// Makes a PFC frame if one is due, and puts it first.
    fn send_pause<T: Tracer>(&mut self, now: Instant, index: usize, tracer: &mut T) {
        let (Some(lane), Some(input)) = (self.outputs.get_mut(index), self.inputs.get_mut(index))
        else {
            return;
        };
        let Some(config) = self.snapshot.config.ports.get(lane.port.index()) else { return };
        if !self.snapshot.pfc_ports.contains(lane.port)
            || input.pause.next(now).is_none_or(|at| now < at)
        {
            return;
        }
        let stats = &self.stats.port[lane.port];
        let desc = if lane.pending.is_full() { None } else { self.bufs.alloc_control() };
        let Some(mut desc) = desc else {
            stats.pfc_tx_late.add(1); // still due at the next step
            return;
        };
        let Some(frame) = input.pause.poll(now, config.rate, &self.snapshot.config.pfc.classes)
        else {
            self.bufs.free(desc);
            return;
        };
        let wire = mac_control::Pfc { enable: frame.enable, quanta: frame.quanta };
        self.bufs.set_len(&mut desc, mac_control::FRAME_LEN);
        if let Some(out) = self.bufs.bytes_mut(&mut desc).and_then(|b| b.first_chunk_mut()) {
            wire.emit(config.parse.port_mac, out);
        }
        desc.set_input(lane.port);
        lane.pending.insert(lane.pending_control, desc);
        lane.pending_control += 1;
        stats.pfc_tx.add(1);
        for pri in self.snapshot.pris.iter() {
            let classes = self.snapshot.config.pfc.classes[pri];
            let pausing = (0..8).any(|c| {
                frame.enable & classes & 1 << c != 0 && frame.quanta.get(c).is_some_and(|&q| q > 0)
            });
            let resuming = frame.enable & classes != 0 && !pausing;
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

    /// Takes frames off the egress queues that wait, as the scheduler says, until `room` are pending.
    #[inline]
    fn pick<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        room: usize,
        (mut ready, mut lens): (PriSet, PerPri<u32>),
        tracer: &mut T,
    ) {
        while !ready.is_empty() {
            let Some(lane) = self.outputs.get_mut(index) else { return };
            if lane.pending.len() >= room {
                lane.full = true;
                return;
            }
            let Some(pri) = lane.sched.pick(now, ready, |pri| lens[pri]) else {
                lane.closed_until = lane.sched.next_open(now, ready);
                return;
            };
            let Some(queue) = lane.queues[pri].as_mut() else { return };
            let Some(desc) = queue.pop() else { return };
            match queue.front() {
                Some(next) => lens[pri] = wire_len(next),
                None => ready.remove(pri),
            }
            let port = lane.port;
            if let Some(desc) = self.finish(now, port, pri, desc, tracer)
                && let Some(lane) = self.outputs.get_mut(index)
            {
                lane.pending.push(desc);
            }
        }
    }

    /// Takes a frame off its queue for good: accounts for it, marks it, sets its tag.
    #[inline]
    fn finish<T: Tracer>(
        &mut self,
        now: Instant,
        port: PortId,
        pri: Pri,
        desc: Desc,
        tracer: &mut T,
    ) -> Option<Desc> {
        let depth = u64::from(self.release(&desc, port));
        let depth = depth * u64::from(self.snapshot.config.buffer.cell_bytes);
        self.stats.port[port].pri[pri].dequeued.add(1);
        let ect = desc.has(Flag::Ect);
        let mut mark = false;
        let (mut low, mut high) = (0, 0);
        if let Some(profile) = &self.snapshot.ecn {
            mark = ect && profile.verdict(depth, &mut self.rng).is_mark();
            (low, high) = (profile.low(), profile.high());
        }
        if T::ON {
            let frame = self.bufs.trace_id(&desc);
            let (port, pri) = (port.get(), pri.get());
            tracer.event(now, Event::Deq { frame, port, pri, depth, low, high, ect, marked: mark });
        }
        if !mark && self.snapshot.tags_stay {
            return Some(desc);
        }
        self.rewrite(now, port, pri, desc, mark, tracer)
    }

    /// Changes a frame's octets on the way out: ECN mark, tag.
    fn rewrite<T: Tracer>(
        &mut self,
        now: Instant,
        port: PortId,
        pri: Pri,
        desc: Desc,
        mark: bool,
        tracer: &mut T,
    ) -> Option<Desc> {
        let tci = desc.has(Flag::Tagged).then(|| {
            let bytes = self.bufs.head(&desc);
            Tci(u16::from_be_bytes([bytes[14], bytes[15]]))
        });
        let vid = Vid::from_low_bits(desc.vid());
        let op = self.snapshot.vlan.egress(port, vid, Arrival::of(tci));
        if !mark && op == TagOp::Keep {
            return Some(desc);
        }
        let mut desc = match self.bufs.make_sole(desc) {
            Ok(desc) => desc,
            Err(desc) => {
                self.stats.port[port].late_drops.add(1);
                self.end(now, desc, DropReason::Pool, tracer);
                return None;
            }
        };
        if mark {
            let ip = if desc.has(Flag::Tagged) { 18 } else { 14 };
            let marked = self.bufs.bytes_mut(&mut desc).is_some_and(|bytes| mark_ce(bytes, ip));
            self.stats.port[port].pri[pri].ecn_marked.add(u64::from(marked));
        }
        if op != TagOp::Keep {
            self.retag(port, pri, vid, op, tci, &mut desc);
        }
        Some(desc)
    }

    fn retag(
        &mut self,
        port: PortId,
        pri: Pri,
        vid: Vid,
        op: TagOp,
        old: Option<Tci>,
        desc: &mut Desc,
    ) {
        let Some(config) = self.snapshot.config.ports.get(port.index()) else { return };
        let kept = old.map_or(u16::from(self.snapshot.pcp_of_pri[pri]) << 13, |tci| tci.0 & 0xF000);
        let tci = Tci(kept | vid.get());
        let partial = self.bufs.partial_csum(desc);
        let before = desc.len();
        let Some((chunk, start)) = self.bufs.chunk_mut(desc) else { return };
        let Some(at) = op.apply(chunk, Extent { start, len: before }, tci, config.parse.tpid)
        else {
            return;
        };
        self.bufs.set_bounds(desc, at.start, at.len);
        desc.set(Flag::Tagged, op != TagOp::Strip);
        if let Some(partial) = partial {
            // What lies behind the addresses has moved against the frame's start.
            let start = (usize::from(partial.start) + at.len).saturating_sub(before);
            let start = u16::try_from(start).unwrap_or(partial.start);
            self.bufs.set_partial_csum(desc, Some(PartialCsum { start, ..partial }));
        }
    }

    /// Gives the pending frames to the port and counts what it took.
    fn hand_over<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        let Some(lane) = self.outputs.get_mut(index) else { return 0 };
        if lane.pending.is_empty() {
            return 0;
        }
        // Noted before: what the port takes is its own.
        let mut facts = ArrayVec::<Fact, BURST>::new();
        for desc in &lane.pending {
            let len = u16::try_from(desc.len()).unwrap_or(u16::MAX);
            let frame = if T::ON { self.bufs.trace_id(desc) } else { 0 };
            facts.push(Fact { frame, len, format: desc.format_index(), pri: desc.pri() });
        }
        let taken = port.tx(now, &mut self.bufs, &mut lane.pending);
        let control = taken.min(lane.pending_control);
        lane.pending_control -= control;
        let stats = &self.stats.port[lane.port];
        stats.tx_frames.add((taken - control) as u64);
        for &Fact { frame, len, format, pri } in facts.iter().take(taken).skip(control) {
            stats.tx_bytes.add(u64::from(len));
            stats.pri[pri].tx_bytes.add(u64::from(len));
            if let Some(counter) = stats.tx_format.get(format) {
                counter.add(1);
            }
            if T::ON {
                tracer.event(now, Event::Tx { frame, port: lane.port.get(), len });
            }
        }
        taken
    }
}
