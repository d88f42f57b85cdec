//! Dequeue: takes frames off egress queues as the scheduler says, and accounts for them.
//!
//! Frames that wait, as far as the port has room, become pending frames, marked and tagged.
//!
//! Units: bytes, cells.
//! Source: docs/spec/pipeline.md §7, §8.

use arrayvec::ArrayVec;
use weft_base::ring::Rx;
use weft_base::rng::Rng;
use weft_base::sync::{Ordering, fence};

use super::rewrite::rewrite;
use super::{OutputLane, wire_len};
use crate::batch::BURST;
use crate::buffer::Leaving;
use crate::desc::{Desc, Flag};
use crate::pipeline::context::{Context, leave};
use crate::pool::Bufs;
use crate::snapshot::Snapshot;
use crate::stats::{DropReason, WorkerStats};
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PerPri, PortId, Pri, PriSet};

impl OutputLane {
    /// Takes frames off the egress queues in `ready`, as the scheduler says, until `room` are
    /// pending; returns the queues that are left with frames.
    #[inline]
    pub fn pick<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        room: usize,
        mut ready: PriSet,
        mut lens: PerPri<u32>,
        tracer: &mut T,
    ) -> PriSet {
        while !ready.is_empty() {
            let space = room.saturating_sub(self.pending.len());
            if space == 0 {
                self.full = true;
                break;
            }
            let Some(pri) = self.sched.pick(now, ready, |pri| lens[pri]) else {
                // Rates hold all of them back: nothing but time opens them, so `OutputLane::next`
                // asks for a step.
                self.closed_until = self.sched.next_open(now, ready);
                break;
            };
            let Some(queue) = self.queues[pri].as_mut() else { break };
            let mut count = 1;
            // A queue alone needs no choice frame by frame, and a long run shares one look at the
            // buffer.
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

    /// Takes `count` frames off a queue for good: uncharges them, marks them, sets their tags.
    #[inline(never)] // on its own it keeps its state in registers
    pub fn take<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        pri: Pri,
        count: usize,
        tracer: &mut T,
    ) {
        if count == 1 {
            return self.take_one(ctx, now, pri, tracer);
        }
        let Self { port, queues, pending, .. } = self;
        let port = *port;
        let Some(queue) = queues[pri].as_mut() else { return };
        ctx.has_released = true;
        let Context { core, snapshot, stats, bufs, lease, rng, .. } = ctx;
        let (ecn, tags_stay) = (snapshot.ecn, snapshot.tags_stay);
        let cell = u64::from(snapshot.config.buffer.cell_bytes);
        let mut run = core.buffer.leaving(lease, &snapshot.thresholds, port, pri);
        note_depth(stats, port, pri, &run);
        if !T::ON && tags_stay {
            // Below the low mark no frame of the run is marked, as the depth only falls from here on
            // (`depth` is that before the run). From the low mark on, those with ECT need a closer look.
            let depth = u64::from(run.depth()) * cell;
            let marks = if ecn.is_some_and(|ecn| depth >= ecn.low()) { Flag::Ect as u8 } else { 0 };
            let fronts = queue.fronts(count);
            if let Some(charge) = charge_of_all(fronts, marks, cell) {
                release_all(&mut run, fronts, charge);
                let left = run.depth();
                let taken = queue.pop_each(count, |desc| pending.push(desc));
                stats.port[port].pri[pri].dequeued.add(taken as u64);
                // Pairs with `Draining::is_drained`: a reader who sees the depth fall then sees these
                // frames among those taken, so that it waits until they are sent.
                fence(Ordering::Release);
                run.end(lease);
                return ctx.clear_congestion(port, pri, left);
            }
        }
        let mut lost = ArrayVec::<Desc, BURST>::new();
        let taken = queue.pop_each(count, |desc| {
            let departure = Departure { now, port, pri, snapshot, stats };
            match leave_queue(&mut run, bufs, rng, departure, desc, tracer) {
                Ok(desc) => pending.push(desc),
                Err(desc) => lost.push(desc),
            }
        });
        stats.port[port].pri[pri].dequeued.add(taken as u64);
        fence(Ordering::Release); // as above
        let left = run.depth();
        run.end(lease);
        ctx.clear_congestion(port, pri, left);
        for desc in lost {
            // There is room in its queue now although nothing was sent, by which the crossbar would
            // hear of it.
            ctx.crossbar_dirty = true;
            ctx.stats.port[port].late_drops.add(1);
            ctx.end_at(now, desc, port, DropReason::Pool, tracer);
        }
    }
}

impl OutputLane {
    /// [`Self::take`] for one frame.
    #[inline]
    fn take_one<T: Tracer>(&mut self, ctx: &mut Context, now: Instant, pri: Pri, tracer: &mut T) {
        let Some(desc) = self.queues[pri].as_mut().and_then(Rx::pop) else { return };
        self.pending.extend(leave_one(ctx, now, self.port, desc, tracer));
    }
}

/// One frame leaves the queues of `output` for good, as in [`OutputLane::take`]; drops it, and
/// returns `None`, if there is no memory for its tag.
#[inline]
pub(in crate::pipeline) fn leave_one<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    output: PortId,
    desc: Desc,
    tracer: &mut T,
) -> Option<Desc> {
    let pri = desc.pri();
    ctx.has_released = true;
    let Context { core, snapshot, stats, bufs, lease, rng, .. } = ctx;
    let mut run = core.buffer.leaving(lease, &snapshot.thresholds, output, pri);
    note_depth(stats, output, pri, &run);
    let departure = Departure { now, port: output, pri, snapshot, stats };
    let kept = leave_queue(&mut run, bufs, rng, departure, desc, tracer);
    stats.port[output].pri[pri].dequeued.add(1);
    fence(Ordering::Release); // as in `take`
    let left = run.depth();
    run.end(lease);
    ctx.clear_congestion(output, pri, left);
    match kept {
        Ok(desc) => Some(desc),
        Err(desc) => {
            ctx.crossbar_dirty = true; // as in `take`
            ctx.stats.port[output].late_drops.add(1);
            ctx.end_at(now, desc, output, DropReason::Pool, tracer);
            None
        }
    }
}

/// Facts that all frames share which leave one queue now.
#[derive(Clone, Copy)]
struct Departure<'a> {
    now: Instant,
    port: PortId,
    pri: Pri,
    snapshot: &'a Snapshot,
    stats: &'a WorkerStats,
}

/// A frame leaves its queue: it is uncharged, marked, and gets the tag that it is sent with. `Err`
/// if there is no memory for that.
#[inline]
fn leave_queue<T: Tracer>(
    run: &mut Leaving<'_>,
    bufs: &mut Bufs,
    rng: &mut Rng,
    Departure { now, port, pri, snapshot, stats }: Departure<'_>,
    desc: Desc,
    tracer: &mut T,
) -> Result<Desc, Desc> {
    let before = leave(run, bufs, &desc, snapshot.cells(desc.len()));
    let depth = u64::from(before) * u64::from(snapshot.config.buffer.cell_bytes);
    let ect = desc.has(Flag::Ect);
    let ecn = snapshot.ecn;
    let marked = ect && ecn.is_some_and(|ecn| ecn.verdict(depth, rng).is_mark());
    if T::ON {
        let (low, high, max_percent) =
            ecn.map_or((0, 0, 0), |ecn| (ecn.low(), ecn.high(), ecn.max_percent()));
        let (frame, port, pri) = (bufs.trace_id(&desc), port.get(), pri.get());
        let event = Event::Deq { frame, port, pri, depth, low, high, max_percent, ect, marked };
        tracer.event(now, event);
    }
    if !marked && snapshot.tags_stay {
        return Ok(desc);
    }
    rewrite(bufs, snapshot, stats, port, pri, desc, marked)
}

/// The kind of counter that all frames of a run were charged to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// To their VOQs.
    Lossy,
    /// To their ingress groups.
    Lossless,
}

/// The charge of a run, if all of it is alike: all lossy or all lossless, of one cell each, and
/// without the flags in `marks`, which ask for a closer look. Most runs are.
#[expect(clippy::inline_always, reason = "one function with `take` but for its reader")]
#[inline(always)]
fn charge_of_all(fronts: [&[Desc]; 2], marks: u8, cell_bytes: u64) -> Option<Charge> {
    let one = usize::try_from(cell_bytes).unwrap_or(usize::MAX);
    let all = |special: u8, group: bool| {
        // Bitwise, so that the loop has no branches and can be vectorised.
        let is_plain = |desc: &Desc| {
            !desc.has_any(special) & (desc.len() <= one) & (desc.has(Flag::Pg) == group)
        };
        fronts.iter().all(|part| part.iter().all(is_plain))
    };
    if all(marks, false) {
        return Some(Charge::Lossy);
    }
    all(marks | Flag::Shared as u8, true).then_some(Charge::Lossless)
}

/// Uncharges frames of one cell each.
#[expect(clippy::inline_always, reason = "one function with `take` but for its reader")]
#[inline(always)]
fn release_all(run: &mut Leaving<'_>, fronts: [&[Desc]; 2], charge: Charge) {
    for part in fronts {
        let inputs = part.iter().map(Desc::input);
        if charge == Charge::Lossless {
            run.lossless_alike(inputs, 1);
        } else if let Some((input, cells)) = of_one_input(part) {
            run.lossy_alike(core::iter::once(input), cells);
        } else {
            run.lossy_alike(inputs, 1);
        }
    }
}

/// With several workers, raises the depth watermark of a queue: between departures it only grows,
/// so its maxima are where frames leave.
#[inline]
fn note_depth(stats: &WorkerStats, port: PortId, pri: Pri, run: &Leaving<'_>) {
    if let Some(depth) = run.depth_of_all() {
        stats.port[port].pri[pri].depth_watermark.raise(u64::from(depth));
    }
}

/// The input of all of `frames`, if it is one, and how many there are: they are uncharged by one
/// subtraction instead of one for each frame.
#[inline]
fn of_one_input(frames: &[Desc]) -> Option<(PortId, u32)> {
    let (first, last) = (frames.first()?.input(), frames.last()?.input());
    let is_one = first == last && frames.iter().all(|desc| desc.input() == first);
    is_one.then_some((first, u32::try_from(frames.len()).ok()?))
}
