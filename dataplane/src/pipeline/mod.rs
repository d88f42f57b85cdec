//! The pipeline: puts the switch functions in order, for one worker's ports.
//!
//! Shape: [`Core`] is what workers share, a [`Lane`] what one of them owns; [`Lane::step`] receives,
//! decides and sends at one `now`, and answers when it wants to be called again.
//! Units: cells, frames, [`Instant`].
//! Source: docs/spec/pipeline.md §1 to §11; ARCHITECTURE.md "The path of a frame".

mod build;
mod burst;
mod crossbar;
mod egress;
mod fast;
mod flow_cache;
mod handover;
mod ingress;
mod ledger;
mod loops;
mod route;
mod tlp;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weft_base::rng::Rng;
use weft_base::sync::{AtomicU8, AtomicU64, Ordering};

use crate::buffer::{Buffer, Lease, Leaving};
use crate::config::PfcMode;
use crate::desc::{Desc, Flag};
use crate::fdb::Fdb;
use crate::flows::FlowCache;
use crate::lag::Joined;
use crate::pbr::Tables;
use crate::pool::{Bufs, Pool};
use crate::port::{Port, PortError};
use crate::snapshot::Snapshot;
use crate::stats::{DropReason, WorkerStats};
use crate::time::Instant;
use crate::trace::{Event, Part, Tracer};
use crate::types::{PerPort, PerPri, PortId, PortSet, Pri, PriSet};
use crate::voq::Voqs;

pub use build::{BuildError, Built, build, chunks_beside_buffer, limit_learning};
pub use fast::FastCore;
pub use ledger::{Ledger, PortLedger, QueueLedger};
pub use tlp::{AGENT_MAC, agent_port_mac, port_of_agent_mac};

use crossbar::Crossbar;
use egress::OutputLane;
use handover::{Downlink, Uplink};
use ingress::{InputLane, Scratch};

/// What all workers of a switch share.
pub struct Core {
    /// Packet pool.
    pub pool: Arc<Pool>,
    /// Forwarding database.
    pub fdb: Fdb,
    /// Counts of the shared buffer.
    pub buffer: Buffer,
    /// The configuration in force.
    pub snapshot: ArcSwap<Snapshot>,
    /// By worker.
    pub stats: Vec<Arc<WorkerStats>>,
    /// By holder of chunks: those taken and not given back, as wrapping numbers whose sum is what is used.
    chunks_used: Mutex<Vec<Arc<crate::stats::Counter>>>,
    /// Links that are up.
    up: AtomicU64,
    /// Ports that are blocked because of a loop.
    blocks: loops::Blocks,
    /// By output: priorities that must not be sent.
    paused: PerPort<AtomicU8>,
    /// By output: priorities whose frames are thrown away by the watchdog.
    storming: PerPort<AtomicU8>,
    /// Outputs with any of them.
    storms: AtomicU64,
    /// By input: priorities for which PAUSE is asked.
    xoff: PerPort<AtomicU8>,
    /// `egress-queue` mode, by priority: outputs above their mark.
    congested: PerPri<AtomicU64>,
    /// What TLPs are routed by.
    pub tables: ArcSwap<Tables>,
    /// By port: address of the partner on a link for TLPs, 48 bits; all ones before it has spoken.
    partners: PerPort<AtomicU64>,
    /// What passes the pipeline by.
    pub fast: FastCore,
    /// By port: the last error of its housekeeping, until that works again with the link up.
    last_error: PerPort<Mutex<Option<PortError>>>,
}

impl Core {
    /// Links that are up.
    #[inline]
    #[must_use]
    pub fn up(&self) -> PortSet {
        PortSet::from_bits(self.up.load(Ordering::Relaxed))
    }

    /// Address of the partner on a link for TLPs, all ones before it has spoken.
    #[inline]
    #[must_use]
    pub fn partner(&self, port: PortId) -> weft_parsers::MacAddr {
        weft_parsers::MacAddr::from_bits(self.partners[port].load(Ordering::Relaxed))
    }

    /// Priorities that `output` must not send now.
    #[inline]
    #[must_use]
    pub fn paused(&self, output: PortId) -> PriSet {
        PriSet::from_bits(self.paused[output].load(Ordering::Relaxed))
    }

    /// Priorities of `output` in a PAUSE storm.
    #[inline]
    #[must_use]
    pub fn storming(&self, output: PortId) -> PriSet {
        PriSet::from_bits(self.storming[output].load(Ordering::Relaxed))
    }

    /// Outputs where a priority is in a PAUSE storm.
    #[inline]
    #[must_use]
    pub fn storms(&self) -> PortSet {
        PortSet::from_bits(self.storms.load(Ordering::Relaxed))
    }

    /// Priorities that `input`'s peer is asked to hold back.
    #[must_use]
    pub fn xoff(&self, input: PortId) -> PriSet {
        PriSet::from_bits(self.xoff[input].load(Ordering::Relaxed))
    }

    /// What `say` makes of the last error of `port`'s housekeeping, if it still fails.
    pub fn last_error<R>(&self, port: PortId, say: impl FnOnce(&PortError) -> R) -> Option<R> {
        let last_error = self.last_error[port].lock().unwrap_or_else(PoisonError::into_inner);
        last_error.as_ref().map(say)
    }

    /// Sets what [`Self::last_error`] tells.
    fn set_last_error(&self, port: PortId, last_error: Option<PortError>) {
        *self.last_error[port].lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }

    /// Chunks in use: by frames, ports and reserves. While frames go from one holder of chunks to another,
    /// each tells after a step of its own, so that the sum may be off by what they hand over in one.
    #[must_use]
    pub fn chunks_used(&self) -> u64 {
        let holders = self.chunks_used.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = holders.iter().fold(0, |sum: u64, counter| sum.wrapping_add(counter.get()));
        // Below 0 while a chunk is told as given back before it is told as taken.
        u64::try_from(sum.cast_signed()).unwrap_or(0).min(self.pool.count() as u64)
    }

    /// Has the chunks that `bufs` takes and gives back counted, beside the workers'.
    pub fn count_chunks(&self, bufs: &Bufs) {
        let mut holders = self.chunks_used.lock().unwrap_or_else(PoisonError::into_inner);
        holders.push(bufs.used());
    }
}

/// What a step came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Frames received, moved, dropped or sent.
    pub work: usize,
    /// When something is due even if nothing arrives.
    pub next: Option<Instant>,
    /// Frames were put into VOQs: the crossbar's owner should look.
    pub queued: bool,
    /// Outputs that got frames from the crossbar: their owners should look.
    pub fed: PortSet,
    /// Frames wait for room at a port: look again soon.
    pub blocked: bool,
}

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As it does: the crossbar runs as often as there is work.
    Live,
    /// Virtual: a match of the crossbar takes its ports for the frame's wire time over the speedup.
    Virtual,
}

/// FDB buckets that a step looks at for old entries; nothing is looked at before one can be due.
const AGE_BUCKETS: usize = 16;

/// What every stage of a lane works with, apart from the state of its ports: so that a loop over a
/// burst can hold a port's state and this at once.
struct Context {
    core: Arc<Core>,
    snapshot: Arc<Snapshot>,
    stats: Arc<WorkerStats>,
    bufs: Bufs,
    to_crossbar: ToCrossbar,
    lease: Lease,
    rng: Rng,
    /// Links that this worker's flows may take: in LAGs, and to stations behind several ports.
    joined_lags: Joined,
    joined_spreads: Joined,
}

/// How received frames get to the crossbar.
enum ToCrossbar {
    /// This worker runs it: into the VOQs.
    Local(Box<Voqs>),
    /// Another worker runs it: over a ring to that one.
    Remote(Uplink),
}

/// What one worker owns: its ports' queues and schedulers, and perhaps the crossbar.
pub struct Lane {
    ctx: Context,
    inputs: Vec<InputLane>,
    outputs: Vec<OutputLane>,
    crossbar: Option<Crossbar>,
    /// The way from the crossbar, if another worker has it.
    downlink: Option<Downlink>,
    scratch: Box<Scratch>,
    flows: FlowCache,
    timing: Timing,
    /// Whether frames may pass the pipeline by at any port; asked for at the first step.
    has_fast_path: Option<bool>,
}

impl Lane {
    /// The ports that this lane owns, in the order in which [`Self::step`] wants them.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.inputs.iter().map(|lane| lane.port)
    }

    /// Whether this lane runs the crossbar.
    #[must_use]
    pub const fn has_crossbar(&self) -> bool {
        self.crossbar.is_some()
    }

    /// What the workers share.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        &self.ctx.core
    }

    /// This worker's counters.
    #[must_use]
    pub const fn stats(&self) -> &Arc<WorkerStats> {
        &self.ctx.stats
    }

    /// The worker's handle of the pool.
    pub const fn bufs(&mut self) -> &mut Bufs {
        &mut self.ctx.bufs
    }

    /// Receives, decides and sends at `now`; `ports` are this lane's, in the order of
    /// [`Self::ports`]. Extra calls are harmless.
    pub fn step<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> Step {
        let mut step = Step::default();
        self.refresh(now, tracer);
        self.links(now, ports, tracer);
        self.unblock(now, tracer);
        let spread = self.ctx.snapshot.links.is_any();
        if spread {
            self.keep_joined();
        }
        self.pauses(now, tracer);
        tracer.part(Part::Rest);
        for index in 0..ports.len() {
            if !self.has_room() {
                step.blocked = true; // frames wait in their ports until the crossbar has caught up
                break;
            }
            let Some(port) = ports.get_mut(index) else { break };
            step.work += self.receive(now, index, port.as_mut(), tracer);
            if self.downlink.is_some() {
                step.work += self.pass_down(now, ports, tracer);
            }
        }
        step.fed = self.absorb(now, tracer);
        loop {
            // Egress queues are filled first, so that a port gets long bursts.
            let moved = self.cross(now, tracer, &mut step);
            tracer.part(Part::Crossbar);
            let mut sent = 0;
            for (index, port) in ports.iter_mut().enumerate() {
                if !self.is_idle(index, step.fed) {
                    sent += self.send(now, index, port.as_mut(), tracer);
                }
            }
            tracer.part(Part::Egress);
            step.work += moved + sent;
            if let Some(crossbar) = self.crossbar.as_mut().filter(|_| sent > 0) {
                crossbar.drained();
            }
            if moved + sent == 0 || !self.again() {
                break;
            }
        }
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.rewind();
            step.blocked |= crossbar.waits(&self.ctx);
        }
        self.report();
        step.queued = step.work > 0;
        for (index, port) in ports.iter_mut().enumerate() {
            self.housekeeping(now, index, port.as_mut());
        }
        let held = self.groups(now, tracer);
        if self.crossbar.is_some() {
            self.ctx.core.fdb.age(now, AGE_BUCKETS);
        }
        self.ctx.bufs.settle();
        self.ctx.stats.loops.add(1);
        if step.work > 0 {
            self.ctx.stats.busy_loops.add(1);
        } else {
            step.blocked |= held;
            self.ctx.core.buffer.settle(&mut self.ctx.lease);
        }
        if spread {
            self.join(now);
        }
        step.blocked |= self.outputs.iter().any(OutputLane::is_blocked);
        self.steer(ports, &mut step);
        step.next = self.next_due(now, ports);
        step
    }

    /// Lets links that do not forward any more leave their LAGs and spreads.
    fn keep_joined(&mut self) {
        let Context { core, snapshot, joined_lags, joined_spreads, .. } = &mut self.ctx;
        let open = core.forwarding();
        joined_lags.keep(open, snapshot.links.lags());
        joined_spreads.keep(open, snapshot.links.spreads());
    }

    /// Whether the crossbar may do more in this step: only live, and not without end.
    fn again(&self) -> bool {
        self.timing == Timing::Live && self.crossbar.as_ref().is_some_and(|c| !c.spent())
    }

    /// Takes a new configuration over, if there is one.
    fn refresh<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        let current = self.ctx.core.snapshot.load();
        if current.epoch == self.ctx.snapshot.epoch {
            return;
        }
        let old = core::mem::replace(&mut self.ctx.snapshot, Arc::clone(&current));
        let snapshot = &self.ctx.snapshot;
        if old.links.is_any() != snapshot.links.is_any() {
            (self.ctx.joined_lags, self.ctx.joined_spreads) = (Joined::new(), Joined::new());
        }
        let mode = snapshot.config.pfc.mode;
        for lane in &mut self.inputs {
            lane.reconfigure(&old, snapshot);
            if mode != old.config.pfc.mode {
                // From now on something else decides; `groups` follows the queues by itself.
                let pris = if mode == PfcMode::IngressPg { lane.xoff } else { PriSet::EMPTY };
                for pri in snapshot.lossless.iter() {
                    lane.pause.set(pri, pris.contains(pri));
                }
                self.ctx.core.xoff[lane.port].store(pris.bits(), Ordering::Relaxed);
            }
        }
        for lane in &mut self.outputs {
            lane.reconfigure(snapshot);
        }
        if let Some(crossbar) = &mut self.crossbar {
            crossbar.reconfigure(snapshot);
        }
        if T::ON {
            tracer.event(now, Event::Reload { epoch: snapshot.epoch });
        }
    }

    /// Follows links that went up or down.
    fn links<T: Tracer>(&mut self, now: Instant, ports: &[Box<dyn Port>], tracer: &mut T) {
        for (index, port) in ports.iter().enumerate() {
            let Some(lane) = self.outputs.get_mut(index) else { continue };
            let up = port.link_up();
            if up == lane.up {
                continue;
            }
            lane.up = up;
            let bit = PortSet::only(lane.port).bits();
            if up {
                self.ctx.core.up.fetch_or(bit, Ordering::Relaxed);
            } else {
                let before = self.ctx.core.up.fetch_and(!bit, Ordering::Relaxed);
                lane.link_down(now);
                // Stations behind a LAG stay while it has a link.
                let links = &self.ctx.snapshot.links;
                let left = links.members(lane.port).and(PortSet::from_bits(before & !bit));
                if left.is_empty() {
                    self.ctx.core.fdb.flush_port(links.leader(lane.port));
                }
                if let Some(input) = self.inputs.get_mut(index) {
                    input.link_down();
                }
            }
            if T::ON {
                tracer.event(now, Event::Link { port: lane.port.get(), up });
            }
        }
    }

    /// Lets links that came up take flows, as soon as those overtake no frame.
    fn join(&mut self, now: Instant) {
        let Self { ctx, outputs, .. } = self;
        let Context { core, snapshot, joined_lags, joined_spreads, .. } = ctx;
        let is_empty = |port: PortId| {
            let pending = outputs.iter().any(|lane| lane.port == port && lane.is_blocked());
            !pending && snapshot.pris.iter().all(|pri| core.buffer.depth(port, pri) == 0)
        };
        joined_lags.admit(now, snapshot.links.lags(), is_empty);
        joined_spreads.admit(now, snapshot.links.spreads(), is_empty);
    }

    /// When this lane next has something to do of its own accord.
    fn next_due(&mut self, now: Instant, ports: &[Box<dyn Port>]) -> Option<Instant> {
        let mut next = self.crossbar.as_ref().and_then(|crossbar| crossbar.next(now));
        for (lane, port) in self.outputs.iter_mut().zip(ports) {
            next = Instant::earlier(next, lane.next(now));
            next = Instant::earlier(next, port.next_event());
            if lane.is_blocked() {
                next = Instant::earlier(next, port.idle_at());
            }
        }
        for (lane, output) in self.inputs.iter().zip(&self.outputs) {
            // A PAUSE that cannot be sent while the link is down is not due.
            next = Instant::earlier(next, lane.next(now).filter(|_| output.up));
        }
        if self.crossbar.is_some() {
            next = Instant::earlier(next, self.ctx.core.fdb.next_age_due(now));
        }
        next = Instant::earlier(next, self.ctx.core.next_unblock());
        next = Instant::earlier(next, self.ctx.joined_lags.next());
        Instant::earlier(next, self.ctx.joined_spreads.next())
    }

    /// Ends all frames that are still queued and takes back what ports hold: the switch stops, and no
    /// lane makes a step any more.
    pub fn stop<T: Tracer>(&mut self, now: Instant, ports: &mut [Box<dyn Port>], tracer: &mut T) {
        self.drain_all(now, tracer);
        self.absorb(now, tracer);
        for lane in &mut self.outputs {
            lane.empty(&mut self.ctx, now, DropReason::Shutdown, tracer);
        }
        for (index, port) in ports.iter_mut().enumerate() {
            port.release(&mut self.ctx.bufs);
            self.settle_port(index, port.as_mut());
        }
        self.ctx.bufs.settle();
        self.ctx.core.buffer.settle(&mut self.ctx.lease);
    }
}

impl Context {
    /// Gives back what a queued frame was charged, when it leaves the queues of `output`; returns
    /// the depth of (output, pri) that is left, in cells. [`Self::relieve`] follows.
    fn release(&mut self, desc: &Desc, output: PortId) -> u32 {
        let Self { core, snapshot, bufs, lease, .. } = self;
        let mut run = core.buffer.leaving(lease, &snapshot.thresholds, output, desc.pri());
        leave(&mut run, bufs, lease, desc, snapshot.cells(desc.len()));
        let left = run.depth();
        run.end(lease);
        left
    }

    /// `egress-queue` mode: notes a queue that is below its XON, at the frame that takes it there.
    #[inline]
    fn relieve(&self, output: PortId, pri: Pri, cells: u32) {
        if let PfcMode::EgressQueue { xon_bytes, .. } = self.snapshot.config.pfc.mode
            && u64::from(cells) * u64::from(self.snapshot.config.buffer.cell_bytes) < xon_bytes
        {
            let bit = PortSet::only(output).bits();
            self.core.congested[pri].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Ends a frame that was queued for `output`.
    fn discard<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        reason: DropReason,
        tracer: &mut T,
    ) {
        let (cells, pri) = (self.release(&desc, output), desc.pri());
        self.relieve(output, pri, cells);
        self.end(now, desc, reason, tracer);
    }

    /// The VOQs, where they are this worker's.
    fn voqs(&mut self) -> Option<&mut Voqs> {
        match &mut self.to_crossbar {
            ToCrossbar::Local(voqs) => Some(voqs),
            ToCrossbar::Remote(_) => None,
        }
    }

    /// Ends a frame that was counted as queued for `output` and never came to its egress queue, or not
    /// off it by the scheduler.
    fn purge<T: Tracer>(
        &mut self,
        now: Instant,
        desc: Desc,
        output: PortId,
        reason: DropReason,
        tracer: &mut T,
    ) {
        self.stats.port[output].pri[desc.pri()].purged.add(1);
        self.discard(now, desc, output, reason, tracer);
    }

    /// Ends a frame: counts it at the input, frees it.
    fn end<T: Tracer>(&mut self, now: Instant, desc: Desc, reason: DropReason, tracer: &mut T) {
        let port = desc.input();
        if T::ON {
            let frame = self.bufs.trace_id(&desc);
            tracer.event(now, Event::Drop { frame, port: port.get(), reason: reason.name() });
        }
        self.stats.count_drop_pri(port, desc.pri(), reason);
        self.bufs.free(desc);
    }
}

/// One frame of a run leaves: gives back what it was charged; returns the depth before, in cells.
#[inline]
fn leave(
    run: &mut Leaving<'_>,
    bufs: &mut Bufs,
    lease: &mut Lease,
    desc: &Desc,
    cells: u32,
) -> u32 {
    if desc.has(Flag::Pg) {
        run.copy_of(desc.input());
        if bufs.uncharge(desc) {
            run.lossless(lease, desc.input(), cells);
        }
    } else {
        run.lossy(desc.input(), cells);
    }
    run.shallow(cells)
}
