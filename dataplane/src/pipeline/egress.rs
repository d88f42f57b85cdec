//! Egress: PAUSE, scheduling, ECN marks, tags, and handing frames to the port.
//!
//! Shape: per output the consuming ends of its egress queues, a scheduler, pause timers, a watchdog.
//! Units: bytes, cells.
//! Source: docs/spec/pipeline.md §7 to §9.

use arrayvec::ArrayVec;
use weft_base::ring::Rx;
use weft_base::sync::{Ordering, fence};
use weft_parsers::mac_control::{self, opcode};
use weft_parsers::{Head, Tci, Vid, mark_ce};

use super::{Context, Lane, leave};
use crate::batch::{BURST, Batch};
use crate::buffer::Leaving;
use crate::config::StormAction;
use crate::desc::{Desc, Flag, FrameStats};
use crate::egress::EgressSched;
use crate::pfc::{PauseRx, PfcFrame, Watchdog};
use crate::pool::{Bufs, PartialCsum};
use crate::port::Port;
use crate::snapshot::Snapshot;
use crate::stats::{Counter, DropReason, PortStats, WorkerStats};
use crate::time::Instant;
use crate::trace::{Event, Part, Tracer};
use crate::types::{PerPri, PortId, PortSet, Pri, PriSet};
use crate::vlan::{Arrival, Extent, TagOp};

/// What one worker keeps for a port as output.
#[expect(clippy::struct_excessive_bools, reason = "facts that do not hang together")]
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
    /// The last housekeeping of its port failed; control is told why.
    in_trouble: bool,
    /// No pause runs and no storm is on, and everybody knows.
    calm: bool,
    /// Frames were left in queues or pending when this output was last looked after.
    backlog: bool,
    /// Rates hold all back until then.
    closed_until: Option<Instant>,
    /// The port had no room for all that was ready.
    full: bool,
    /// Priorities that may pass the pipeline by.
    pub gate: PriSet,
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
            in_trouble: false,
            calm: false,
            backlog: false,
            closed_until: None,
            full: false,
            gate: PriSet::EMPTY,
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

    /// Frames off the queues that the port has not taken.
    pub fn unsent(&self) -> usize {
        self.pending.len() - self.pending_control
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

/// Bytes of a frame, as schedulers count.
#[inline]
fn wire_len(desc: &Desc) -> u32 {
    u32::try_from(desc.len()).unwrap_or(u32::MAX)
}

impl Lane {
    /// Follows pause timers and the watchdog, and tells the crossbar.
    pub(super) fn pauses<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        let Self { ctx, outputs, .. } = self;
        for lane in outputs {
            lane.pause_state(ctx, now, tracer);
        }
    }

    /// Sends what may be sent by one port; returns how many frames it took.
    #[inline]
    pub(super) fn send<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if !self.outputs.get(index).is_some_and(|lane| lane.up) {
            if let Some(lane) = self.outputs.get_mut(index) {
                lane.empty(&mut self.ctx, now, DropReason::PortDown, tracer);
            }
            return 0;
        }
        self.send_pause(now, index, tracer);
        let Self { ctx, outputs, .. } = self;
        let Some(lane) = outputs.get_mut(index) else { return 0 };
        (lane.closed_until, lane.full) = (None, false);
        let (ready, lens) = lane.ready(ctx.snapshot.pris);
        let paused = ready.and(ctx.core.paused(lane.port));
        let open = ready.without(paused);
        if open.is_empty() && lane.pending.is_empty() {
            lane.backlog = !paused.is_empty();
            return 0;
        }
        let room = port.tx_room(now).min(ctx.snapshot.config.tx_ring_frames).min(BURST);
        let left = lane.pick(ctx, now, room, (open, lens), tracer);
        let sent = lane.hand_over(ctx, now, port, tracer);
        lane.backlog = !paused.or(left).is_empty() || !lane.pending.is_empty();
        sent
    }

    /// Whether a port surely has nothing to send: its queues, `fed` apart, got nothing.
    #[inline]
    pub(super) fn is_idle(&self, index: usize, fed: PortSet) -> bool {
        self.outputs.get(index).is_some_and(|o| o.up && !o.backlog && !fed.contains(o.port))
            && self.inputs.get(index).is_some_and(|input| input.pause.is_idle())
    }

    /// Has the port do its housekeeping, and books what it counted.
    pub(super) fn housekeeping(&mut self, now: Instant, index: usize, port: &mut dyn Port) {
        let served = port.service(now, &mut self.ctx.bufs);
        let Some(lane) = self.outputs.get_mut(index) else { return };
        if let Err(error) = served {
            self.ctx.stats.service_errors.add(1);
            self.ctx.core.set_last_error(lane.port, Some(error));
            lane.in_trouble = true;
        } else if lane.in_trouble && port.link_up() {
            self.ctx.core.set_last_error(lane.port, None);
            lane.in_trouble = false;
        }
        self.settle_port(index, port);
    }

    /// Makes a PFC frame if one is due, and puts it first.
    fn send_pause<T: Tracer>(&mut self, now: Instant, index: usize, tracer: &mut T) {
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
        lane.pending.insert(lane.pending_control, desc);
        lane.pending_control += 1;
        stats.pfc_tx.add(1);
        for pri in self.ctx.snapshot.pris.iter() {
            let classes = self.ctx.snapshot.config.pfc.classes[pri];
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
}

impl OutputLane {
    fn pause_state<T: Tracer>(&mut self, ctx: &mut Context, now: Instant, tracer: &mut T) {
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
        ctx.core.paused[self.port].store(held.bits(), Ordering::Relaxed);
        ctx.core.storming[self.port].store(thrown.bits(), Ordering::Relaxed);
        self.calm = paused.or(storming).is_empty() && self.pause.is_idle();
        let port = self.port;
        let bit = PortSet::only(port).bits();
        if !thrown.is_empty() {
            ctx.core.storms.fetch_or(bit, Ordering::Relaxed);
        } else if ctx.core.storms().contains(port) {
            ctx.core.storms.fetch_and(!bit, Ordering::Relaxed);
        }
        for pri in ctx.snapshot.pris.iter() {
            let stats = &ctx.stats.port[port].pri[pri];
            if paused.contains(pri) || stats.paused_ps.get() > 0 {
                stats.paused_ps.set(self.pause.time_paused(pri, now).as_ps());
            }
        }
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
            self.throw(ctx, now, thrown, DropReason::Watchdog, tracer);
        }
    }

    /// Throws away what stands in egress queues.
    fn throw<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        pris: PriSet,
        reason: DropReason,
        tracer: &mut T,
    ) {
        for pri in pris.iter() {
            while let Some(desc) = self.queues[pri].as_mut().and_then(Rx::pop) {
                ctx.purge(now, desc, self.port, reason, tracer);
            }
        }
    }

    /// Ends all frames of an output, picked ones included.
    pub(super) fn empty<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.throw(ctx, now, ctx.snapshot.pris, reason, tracer);
        let port = self.port;
        if self.pending.is_empty() {
            return;
        }
        let control = core::mem::take(&mut self.pending_control);
        for (n, desc) in core::mem::take(&mut self.pending).into_iter().enumerate() {
            if n < control {
                ctx.bufs.free(desc);
            } else {
                ctx.stats.port[port].late_drops.add(1);
                ctx.end(now, desc, reason, tracer);
            }
        }
    }

    /// Takes a MAC control frame in: PFC acts, all others are only counted.
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
            opcode::PFC => stats.mac_control_bad.add(1),
            opcode::PAUSE => stats.pause_rx.add(1),
            opcode::EXTENSION => stats.cbfc_rx.add(1),
            _ => stats.mac_control_unknown.add(1),
        }
        ctx.bufs.free(desc);
    }

    /// Acts upon a PFC frame.
    fn obey<T: Tracer>(
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
        for (class, (&pri, &quanta)) in maps.iter().zip(&frame.quanta).enumerate() {
            if frame.enable >> class & 1 != 0 {
                let stats = &ctx.stats.port[port].pri[pri];
                if quanta > 0 { stats.pause_rx.add(1) } else { stats.resume_rx.add(1) }
            }
        }
        if let Some(config) = ctx.snapshot.config.ports.get(port.index()) {
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

    /// Takes frames off the egress queues that wait, as the scheduler says, until `room` are pending;
    /// returns the queues that are left with some.
    #[inline]
    fn pick<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        room: usize,
        (mut ready, mut lens): (PriSet, PerPri<u32>),
        tracer: &mut T,
    ) -> PriSet {
        while !ready.is_empty() {
            let space = room.saturating_sub(self.pending.len());
            if space == 0 {
                self.full = true;
                break;
            }
            let Some(pri) = self.sched.pick(now, ready, |pri| lens[pri]) else {
                self.closed_until = self.sched.next_open(now, ready);
                break;
            };
            let Some(queue) = self.queues[pri].as_mut() else { break };
            let mut count = 1;
            if ready == PriSet::only(pri) {
                let more = queue.len().min(space).saturating_sub(1);
                count += self.sched.pick_alone(pri, more);
            }
            self.take(ctx, now, pri, count, tracer);
            match self.queues[pri].as_mut().and_then(Rx::front) {
                Some(next) => lens[pri] = wire_len(next),
                None => ready.remove(pri),
            }
        }
        ready
    }

    /// Takes `count` frames off a queue for good: accounts for them, marks them, sets their tags.
    #[inline(never)] // on its own it keeps its state in registers
    fn take<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        pri: Pri,
        count: usize,
        tracer: &mut T,
    ) {
        let Self { port, queues, pending, .. } = self;
        let port = *port;
        let Some(queue) = queues[pri].as_mut() else { return };
        let Context { core, snapshot, stats, bufs, lease, rng, .. } = ctx;
        let (ecn, tags_stay) = (snapshot.ecn, snapshot.tags_stay);
        let cell = u64::from(snapshot.config.buffer.cell_bytes);
        let mut run = core.buffer.leaving(lease, &snapshot.thresholds, port, pri);
        note_depth(stats, (port, pri), &run);
        if !T::ON && tags_stay {
            // What most frames are: all lossy or all lossless, of one cell, not to be marked or tagged.
            // None is marked in a queue below the low mark: it does not get deeper meanwhile.
            let depth = u64::from(run.depth()) * cell;
            let marks = if ecn.is_some_and(|ecn| depth >= ecn.low()) { Flag::Ect as u8 } else { 0 };
            let one = usize::try_from(cell).unwrap_or(usize::MAX);
            let fronts = queue.fronts(count);
            let all = |special: u8, group: bool| {
                let is_plain = |desc: &Desc| {
                    !desc.has_any(special) & (desc.len() <= one) & (desc.has(Flag::Pg) == group)
                };
                fronts.iter().all(|part| part.iter().all(is_plain))
            };
            let all_lossy = all(marks, false);
            if all_lossy || all(marks | Flag::Shared as u8, true) {
                for part in fronts {
                    let inputs = part.iter().map(Desc::input);
                    if !all_lossy {
                        run.lossless_alike(lease, inputs, 1);
                    } else if let Some((input, cells)) = of_one_input(part) {
                        run.lossy_alike(core::iter::once(input), cells);
                    } else {
                        run.lossy_alike(inputs, 1);
                    }
                }
                let left = run.depth();
                let taken = queue.pop_each(count, |desc| pending.push(desc));
                stats.port[port].pri[pri].dequeued.add(taken as u64);
                fence(Ordering::Release); // who sees the depth fall sees that they were taken
                run.end(lease);
                return ctx.relieve(port, pri, left);
            }
        }
        let mut lost = ArrayVec::<Desc, BURST>::new();
        let taken = queue.pop_each(count, |desc| {
            let before = leave(&mut run, bufs, lease, &desc, snapshot.cells(desc.len()));
            let depth = u64::from(before) * cell;
            let ect = desc.has(Flag::Ect);
            let marked = ect && ecn.is_some_and(|ecn| ecn.verdict(depth, rng).is_mark());
            if T::ON {
                let (low, high, max_percent) =
                    ecn.map_or((0, 0, 0), |ecn| (ecn.low(), ecn.high(), ecn.max_percent()));
                let (frame, port, pri) = (bufs.trace_id(&desc), port.get(), pri.get());
                let event =
                    Event::Deq { frame, port, pri, depth, low, high, max_percent, ect, marked };
                tracer.event(now, event);
            }
            if !marked && tags_stay {
                return pending.push(desc);
            }
            match rewrite(bufs, snapshot, stats, (port, pri), desc, marked) {
                Ok(desc) => pending.push(desc),
                Err(desc) => lost.push(desc),
            }
        });
        stats.port[port].pri[pri].dequeued.add(taken as u64);
        fence(Ordering::Release); // as above
        let left = run.depth();
        run.end(lease);
        ctx.relieve(port, pri, left);
        for desc in lost {
            ctx.stats.port[port].late_drops.add(1);
            ctx.end(now, desc, DropReason::Pool, tracer);
        }
    }

    /// Gives the pending frames to the port and counts what it took.
    fn hand_over<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        if self.pending.is_empty() {
            return 0;
        }
        let stats = &ctx.stats.port[self.port];
        // Counted before: what the port takes is its own. What it leaves is taken off again.
        let data = self.pending.get(self.pending_control..).unwrap_or_default();
        count_sent(stats, data, Counter::add);
        let mut facts = ArrayVec::<(u64, FrameStats), BURST>::new();
        if T::ON {
            facts.extend(
                self.pending.iter().map(|desc| (ctx.bufs.trace_id(desc), desc.frame_stats())),
            );
        }
        tracer.part(Part::Egress);
        let taken = port.tx(now, &mut ctx.bufs, &mut self.pending);
        tracer.part(Part::Transmit);
        let control = taken.min(self.pending_control);
        self.pending_control -= control;
        if !self.pending.is_empty() {
            let data = self.pending.get(self.pending_control..).unwrap_or_default();
            count_sent(stats, data, Counter::sub);
        }
        if T::ON {
            for &(frame, fact) in facts.iter().take(taken).skip(control) {
                let len = u16::try_from(fact.len()).unwrap_or(u16::MAX);
                tracer.event(now, Event::Tx { frame, port: self.port.get(), len });
            }
        }
        taken
    }
}

/// With several workers, notes how deep a queue has become: between frames that leave it, it only grows.
#[inline]
fn note_depth(stats: &WorkerStats, (port, pri): (PortId, Pri), run: &Leaving<'_>) {
    if let Some(depth) = run.depth_of_all() {
        stats.port[port].pri[pri].depth_watermark.raise(u64::from(depth));
    }
}

/// The input that all of `frames` came in by, and how many there are: what they free of its queue need not
/// be taken off in memory frame after frame.
#[inline]
fn of_one_input(frames: &[Desc]) -> Option<(PortId, u32)> {
    let (first, last) = (frames.first()?.input(), frames.last()?.input());
    let is_one = first == last && frames.iter().all(|desc| desc.input() == first);
    is_one.then_some((first, u32::try_from(frames.len()).ok()?))
}

/// Counts `frames` as sent, or (with [`Counter::sub`]) as not sent after all.
#[inline]
fn count_sent(stats: &PortStats, frames: &[Desc], count: impl Fn(&Counter, u64)) {
    count(&stats.tx_frames, frames.len() as u64);
    for alike in frames.chunk_by(|a, b| a.frame_stats().is_like(b.frame_stats())) {
        let Some(first) = alike.first() else { continue };
        let bytes = alike.iter().map(|desc| desc.len() as u64).sum();
        count(&stats.tx_bytes, bytes);
        count(&stats.pri[first.pri()].tx_bytes, bytes);
        if let Some(counter) = stats.tx_format.get(first.format_index()) {
            count(counter, alike.len() as u64);
        }
    }
}

/// Changes a frame's bytes on the way out: ECN mark, tag. Gives the frame back when it is shared and
/// the pool has no room for a copy.
fn rewrite(
    bufs: &mut Bufs,
    snapshot: &Snapshot,
    stats: &WorkerStats,
    (port, pri): (PortId, Pri),
    desc: Desc,
    mark: bool,
) -> Result<Desc, Desc> {
    let tci = desc.has(Flag::Tagged).then(|| {
        let bytes = bufs.head(&desc);
        Tci(u16::from_be_bytes([bytes[14], bytes[15]]))
    });
    let vid = Vid::from_low_bits(desc.vid());
    let op = snapshot.vlan.egress(port, vid, Arrival::of(tci));
    if !mark && op == TagOp::Keep {
        return Ok(desc);
    }
    let mut desc = bufs.make_sole(desc)?;
    if mark {
        let ip = if desc.has(Flag::Tagged) { 18 } else { 14 };
        let marked = bufs.bytes_mut(&mut desc).is_some_and(|bytes| mark_ce(bytes, ip));
        stats.port[port].pri[pri].ecn_marked.add(u64::from(marked));
    }
    if op != TagOp::Keep {
        retag(bufs, snapshot, (port, pri), (vid, op, tci), &mut desc);
    }
    Ok(desc)
}

/// Puts a tag in, takes it out or changes its VID.
fn retag(
    bufs: &mut Bufs,
    snapshot: &Snapshot,
    (port, pri): (PortId, Pri),
    (vid, op, old): (Vid, TagOp, Option<Tci>),
    desc: &mut Desc,
) {
    let Some(config) = snapshot.config.ports.get(port.index()) else { return };
    let kept = old.map_or(u16::from(snapshot.pcp_of_pri[pri]) << 13, |tci| tci.0 & 0xF000);
    let tci = Tci(kept | vid.get());
    let partial = bufs.partial_csum(desc);
    let before = desc.len();
    let Some((chunk, start)) = bufs.chunk_mut(desc) else { return };
    let Some(at) = op.apply(chunk, Extent { start, len: before }, tci, config.parse.tpid) else {
        return;
    };
    bufs.set_bounds(desc, at.start, at.len);
    desc.set(Flag::Tagged, op != TagOp::Strip);
    if let Some(partial) = partial {
        // What lies behind the addresses has moved against the frame's start.
        let start = (usize::from(partial.start) + at.len).saturating_sub(before);
        let start = u16::try_from(start).unwrap_or(partial.start);
        bufs.set_partial_csum(desc, Some(PartialCsum { start, ..partial }));
    }
}
