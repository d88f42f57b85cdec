//! Core: what all workers of a switch share.
//!
//! Counters, tables and level-triggered words of ports; each written by one thread, or by atomic instructions.
//!
//! Units: cells, frames, [`Instant`].
//! Source: docs/spec/pipeline.md §1 to §11; ARCHITECTURE.md "The path of a frame".

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use weft_base::sync::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use crate::buffer::Buffer;
use crate::fdb::Fdb;
use crate::loops::{VALID, probe_number};
use crate::pbr::Tables;
use crate::pool::{Bufs, Pool};
use crate::port::PortError;
use crate::snapshot::Snapshot;
use crate::stats::WorkerStats;
use crate::time::Instant;
use crate::types::{PRIS_MAX, PerPort, PerPri, PortId, PortSet, PriSet};
use crossbeam_queue::ArrayQueue;
use weft_parsers::Vid;

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
    pub(super) chunks_used: Mutex<Vec<Arc<crate::stats::Counter>>>,
    /// Links that are up.
    pub(super) up: AtomicU64,
    /// Ports that are blocked because of a loop.
    pub(super) blocks: Blocks,
    /// Probes that are asked for, and what they have found.
    pub(super) probes: Probes,
    /// By output: priorities that must not be sent.
    pub(super) paused: PerPort<AtomicU8>,
    /// By output: priorities whose frames are thrown away by the watchdog.
    pub(super) storming: PerPort<AtomicU8>,
    /// Outputs with any of them.
    pub(super) storms: AtomicU64,
    /// Outputs whose queues are held: [`SwitchConfig::tx_off`](crate::config::SwitchConfig::tx_off) in force.
    pub(super) tx_off: AtomicU64,
    /// By output, while its queues are held: frames that its port took before, and that may not have left yet.
    pub(super) sending: PerPort<AtomicU64>,
    /// By input: priorities for which PAUSE is asked.
    pub(super) xoff: PerPort<AtomicU8>,
    /// By input: what was sent of PAUSE, by its worker and for it.
    pub(super) pauses: Pauses,
    /// `egress-queue` mode, by priority: outputs above their mark.
    pub(super) congested: PerPri<AtomicU64>,
    /// What TLPs are routed by.
    pub tables: ArcSwap<Tables>,
    /// By port: address of the partner on a link for TLPs, 48 bits; all ones before it has spoken.
    pub(super) partners: PerPort<AtomicU64>,
    /// What passes the pipeline by.
    pub fast: FastCore,
    /// By port: the last error of its housekeeping, until that works again with the link up.
    pub(super) last_error: PerPort<Mutex<Option<PortError>>>,
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

    /// Priorities of `output` whose frames stay in VOQs now.
    #[inline]
    #[must_use]
    pub(super) fn closed(&self, output: PortId) -> PriSet {
        if self.tx_off().contains(output) {
            return PriSet::first(PRIS_MAX);
        }
        self.paused(output).or(self.storming(output))
    }

    /// Outputs whose queues are held.
    #[inline]
    #[must_use]
    pub fn tx_off(&self) -> PortSet {
        PortSet::from_bits(self.tx_off.load(Ordering::Acquire)) // pairs with `set_tx_off`
    }

    /// Of an output whose queues are held, frames that its port took before, and that may not have left yet, as far as the
    /// port knows.
    #[must_use]
    pub fn sending(&self, output: PortId) -> u64 {
        self.sending[output].load(Ordering::Relaxed)
    }

    /// Notes that the queues of `output` are held, or are not any more; of those, that its port is still `sending`.
    pub(super) fn set_tx_off(&self, output: PortId, off: bool, sending: usize) {
        let bit = PortSet::only(output).bits();
        self.sending[output].store(sending as u64, Ordering::Relaxed);
        if off {
            self.tx_off.fetch_or(bit, Ordering::Release); // pairs with `tx_off`
        } else {
            self.tx_off.fetch_and(!bit, Ordering::Release); // as above
        }
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
    pub(super) fn set_last_error(&self, port: PortId, last_error: Option<PortError>) {
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

/// Ports that are blocked, and until when.
pub(super) struct Blocks {
    pub(super) ports: AtomicU64,
    /// By port, in ps; counts while the port is among `ports`.
    pub(super) until: PerPort<AtomicU64>,
    /// By port: the port whose probe came in there, plus 1; 0 where stations that move were the reason.
    pub(super) sender: PerPort<AtomicU8>,
    /// By port, in ps: until when it learns nothing.
    pub(super) settled: PerPort<AtomicU64>,
}

impl Blocks {
    pub fn new() -> Self {
        let never = || PerPort::from_fn(|_| AtomicU64::new(0));
        let sender = PerPort::from_fn(|_| AtomicU8::new(0));
        Self { ports: AtomicU64::new(0), until: never(), sender, settled: never() }
    }

    /// Has `port` learn nothing until then.
    pub(super) fn settle(&self, port: PortId, until: Instant) {
        self.settled[port].store(until.as_ps(), Ordering::Relaxed); // a number on its own
    }

    /// Whether `port` learns nothing now.
    pub(super) fn is_settling(&self, port: PortId, now: Instant) -> bool {
        let until = self.settled[port].load(Ordering::Relaxed); // a number on its own
        until != 0 && now < Instant::from_ps(until)
    }

    pub(super) fn until(&self, port: PortId) -> Instant {
        Instant::from_ps(self.until[port].load(Ordering::Relaxed)) // ordered by `ports`
    }
}

impl Core {
    /// Ports that are blocked because of a loop: the level-triggered word.
    #[inline]
    #[must_use]
    pub fn blocked(&self) -> PortSet {
        PortSet::from_bits(self.blocks.ports.load(Ordering::Acquire)) // pairs with `block`
    }

    /// Links that are up and not blocked.
    #[inline]
    #[must_use]
    pub fn forwarding(&self) -> PortSet {
        self.up().without(self.blocked())
    }

    /// When the next blocked port is one no longer.
    pub(super) fn next_unblock(&self) -> Option<Instant> {
        self.blocked().iter().map(|port| self.blocks.until(port)).min()
    }

    /// Blocks `ports`, unless one of `ends` is blocked: two workers that find a loop at once cut it once. Whether it did.
    pub(super) fn block(&self, ports: PortSet, ends: PortSet, until: Instant) -> bool {
        if !self.blocked().and(ends).is_empty() {
            return false;
        }
        for port in ports.iter() {
            self.blocks.until[port].store(until.as_ps(), Ordering::Relaxed); // before `ports`
        }
        let blocks = &self.blocks.ports;
        let with = |before: u64| (before & ends.bits() == 0).then_some(before | ports.bits());
        blocks.fetch_update(Ordering::Release, Ordering::Relaxed, with).is_ok() // pairs with `blocked`
    }

    /// The port whose probe came in by `port`, which is or was blocked for that.
    #[must_use]
    pub fn blocked_for(&self, port: PortId) -> Option<PortId> {
        let sender = self.blocks.sender[port].load(Ordering::Relaxed); // to be shown
        sender.checked_sub(1).map(PortId::from_low_bits)
    }

    /// Notes why `ports` are blocked.
    pub(super) fn set_blocked_for(&self, ports: PortSet, sender: Option<PortId>) {
        for port in ports.iter() {
            let sender = sender.map_or(0, |sender| sender.get() + 1);
            self.blocks.sender[port].store(sender, Ordering::Relaxed); // to be shown
        }
    }

    /// The next loop that a probe has found, for control. Only the first of many are kept.
    pub fn pop_loop(&self) -> Option<LoopFound> {
        self.probes.found.pop()
    }
}

/// A loop: what leaves by one port of the switch comes in by another, or by the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFound {
    /// The port that sent the probe.
    pub sender: PortId,
    /// The port by which it came in.
    pub came: PortId,
}

/// Loops that wait to be told.
const LOOPS_TOLD: usize = 16;

/// Probes: at which ports a loop is suspected, and by which numbers probes are known again.
pub(super) struct Probes {
    asked: AtomicU64,
    /// By port: the VLAN of the frames that are suspected.
    vids: PerPort<AtomicU16>,
    /// What their numbers are made from.
    key: [u64; 2],
    /// By port: the number of its last probes; 0 before the first.
    nonces: PerPort<AtomicU64>,
    /// By port, in ps: when its last probe was sent.
    sent: PerPort<AtomicU64>,
    found: ArrayQueue<LoopFound>,
}

impl Probes {
    pub fn new(key: [u64; 2]) -> Self {
        Self {
            key,
            asked: AtomicU64::new(0),
            vids: PerPort::from_fn(|_| AtomicU16::new(0)),
            nonces: PerPort::from_fn(|_| AtomicU64::new(0)),
            sent: PerPort::from_fn(|_| AtomicU64::new(0)),
            found: ArrayQueue::new(LOOPS_TOLD),
        }
    }

    /// Ports at which a loop is suspected, until their workers have taken note.
    #[inline]
    pub fn asked(&self) -> PortSet {
        PortSet::from_bits(self.asked.load(Ordering::Acquire)) // pairs with `ask`
    }

    /// Asks for probes of VLAN `vid` by `ports`.
    pub fn ask(&self, ports: PortSet, vid: Vid) {
        for port in ports.iter() {
            self.vids[port].store(vid.get(), Ordering::Relaxed); // before `asked`
        }
        self.asked.fetch_or(ports.bits(), Ordering::Release); // pairs with `asked`
    }

    /// The worker of `port` has taken note.
    pub fn take(&self, port: PortId) {
        self.asked.fetch_and(!PortSet::only(port).bits(), Ordering::Relaxed); // a hint of `asked`
    }

    /// The VLAN that probes of `port` are for.
    pub fn vid(&self, port: PortId) -> Vid {
        Vid::from_low_bits(self.vids[port].load(Ordering::Relaxed)) // ordered by `asked`
    }

    /// The number of the last probes of `port`; 0 before the first.
    pub fn nonce(&self, port: PortId) -> u64 {
        self.nonces[port].load(Ordering::Relaxed) // a number on its own
    }

    /// Chooses the number of the next probes of `port`.
    pub fn renew_nonce(&self, port: PortId, now: Instant) {
        let nonce = probe_number(self.key, port, now);
        self.nonces[port].store(nonce, Ordering::Relaxed); // a number on its own
    }

    /// A probe of `port` is sent.
    pub fn set_sent(&self, port: PortId, now: Instant) {
        self.sent[port].store(now.as_ps(), Ordering::Relaxed); // a number on its own
    }

    /// Whether `nonce` is that of a probe which left by `port` a short time ago.
    pub fn proves(&self, port: PortId, nonce: u64, now: Instant) -> bool {
        let sent = Instant::from_ps(self.sent[port].load(Ordering::Relaxed)); // a number on its own
        nonce != 0 && nonce == self.nonce(port) && now.since(sent) <= VALID
    }

    /// Keeps a loop for control.
    pub fn tell(&self, found: LoopFound) {
        let _ = self.found.push(found); // full: enough are told
    }
}

/// What a worker and its [`PauseGuard`](crate::worker::PauseGuard) tell each other of the PAUSE that their ports have sent.
pub(super) struct Pauses {
    /// By port: when its worker last sent a PFC frame that pauses, in ps.
    sent: PerPort<AtomicU64>,
    /// Ports at which the guard has sent some since their workers looked.
    guarded: AtomicU64,
    /// By such a port: PFC classes that it has paused.
    classes: PerPort<AtomicU8>,
    /// By such a port: PFC frames that it has sent.
    frames: PerPort<AtomicU64>,
}

impl Pauses {
    pub fn new() -> Self {
        Self {
            sent: PerPort::from_fn(|_| AtomicU64::new(0)),
            guarded: AtomicU64::new(0),
            classes: PerPort::from_fn(|_| AtomicU8::new(0)),
            frames: PerPort::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Core {
    /// Notes that the worker of `port` sent a PFC frame that pauses.
    #[inline]
    pub(crate) fn note_pause_sent(&self, port: PortId, now: Instant) {
        self.pauses.sent[port].store(now.as_ps(), Ordering::Relaxed);
    }

    /// When the worker of `port` last sent a PFC frame that pauses.
    pub(crate) fn pause_sent(&self, port: PortId) -> Instant {
        Instant::from_ps(self.pauses.sent[port].load(Ordering::Relaxed))
    }

    /// Notes that `classes` were paused at the peer of `port` for its worker, after the frame has left: whatever the worker
    /// sends once it knows of it comes later.
    pub(crate) fn note_guarded(&self, port: PortId, classes: u8) {
        self.pauses.classes[port].fetch_or(classes, Ordering::Relaxed);
        self.pauses.frames[port].fetch_add(1, Ordering::Relaxed);
        self.pauses.guarded.fetch_or(PortSet::only(port).bits(), Ordering::Release); // pairs with `take_guarded`
    }

    /// Whether any peer was paused for a worker that has not taken note of it.
    #[inline]
    pub(crate) fn has_guarded(&self) -> bool {
        self.pauses.guarded.load(Ordering::Relaxed) != 0
    }

    /// Classes that were paused at the peer of `port` for its worker, and PFC frames for that, since this was last asked.
    pub(crate) fn take_guarded(&self, port: PortId) -> Option<(u8, u64)> {
        let bit = PortSet::only(port).bits();
        let before = self.pauses.guarded.fetch_and(!bit, Ordering::Acquire); // pairs with `note_guarded`
        (before & bit != 0).then(|| {
            let classes = self.pauses.classes[port].swap(0, Ordering::Relaxed);
            (classes, self.pauses.frames[port].swap(0, Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
impl Core {
    /// As if a step had found these links to be up, and no other.
    pub(crate) fn set_up(&self, up: PortSet) {
        self.up.store(up.bits(), Ordering::Relaxed);
    }

    /// As if the worker of `input` had to pause these priorities at its peer.
    pub(crate) fn assert_xoff(&self, input: PortId, pris: PriSet) {
        self.xoff[input].store(pris.bits(), Ordering::Relaxed);
    }
}

/// What is shared of outputs that have a fast path.
pub struct FastCore {
    /// Outputs that surely have none.
    pub(super) without: AtomicU64,
    /// By output: frames taken off its queues that have left since, or were dropped.
    pub(super) ended: PerPort<AtomicU64>,
    /// What went past the pipeline, as its owner counts it.
    pub stats: WorkerStats,
}

impl FastCore {
    pub(super) fn new(stats: WorkerStats) -> Self {
        Self { without: AtomicU64::new(0), ended: PerPort::from_fn(|_| AtomicU64::new(0)), stats }
    }
}
