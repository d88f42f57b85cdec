//! Core: the state that all workers of a switch share.
//!
//! It has counters, tables and level-triggered words of ports. Each is written by one thread, or by
//! atomic instructions.
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

/// The state that all workers of a switch share, and that control reads.
pub struct Core {
    /// Packet pool; other switches of the process may use it, too.
    pub pool: Arc<Pool>,
    /// Forwarding database, learned and static stations of all ports.
    pub fdb: Fdb,
    /// Counts of the shared buffer.
    pub buffer: Buffer,
    /// The configuration in force.
    pub snapshot: ArcSwap<Snapshot>,
    /// Counters by worker; each is written by that one only.
    pub stats: Vec<Arc<WorkerStats>>,
    /// By holder of chunks: chunks that it took less those that it returned, wrapping. A chunk may
    /// be returned by another holder than took it, so only the sum has a meaning.
    pub(super) chunks_used: Mutex<Vec<Arc<crate::stats::Counter>>>,
    /// Links that are up.
    pub(super) up: AtomicU64,
    /// Ports that are blocked because of a loop.
    pub(super) blocks: Blocks,
    /// Loop probes: those asked for, and the loops that they have found.
    pub(super) probes: Probes,
    /// By output: priorities that must not be sent.
    pub(super) paused: PerPort<AtomicU8>,
    /// By output: priorities whose frames the watchdog drops.
    pub(super) storming: PerPort<AtomicU8>,
    /// Outputs with a priority in `storming`.
    pub(super) storms: AtomicU64,
    /// Outputs whose queues are held: [`SwitchConfig::tx_off`](crate::config::SwitchConfig::tx_off) in force.
    pub(super) tx_off: AtomicU64,
    /// By output, while its queues are held: frames that its port took before and that may not have
    /// been sent yet.
    pub(super) sending: PerPort<AtomicU64>,
    /// By input: priorities for which the peer is asked to pause.
    pub(super) xoff: PerPort<AtomicU8>,
    /// PFC frames that were sent by each input's worker, and by the pause guard for it.
    pub(super) pauses: Pauses,
    /// `egress-queue` mode, by priority: outputs above XOFF that have not fallen below XON since.
    pub(super) congested: PerPri<AtomicU64>,
    /// Routing tables for TLPs.
    pub tables: ArcSwap<Tables>,
    /// By port: address of the link partner of a TLP link, 48 bits; all ones before it has sent a
    /// frame.
    pub(super) partners: PerPort<AtomicU64>,
    /// Shared state of the fast path, which bypasses the pipeline.
    pub fast: FastCore,
    /// By port: the last error of its housekeeping, until housekeeping succeeds with the link up.
    pub(super) last_error: PerPort<Mutex<Option<PortError>>>,
}

impl Core {
    /// Links that are up.
    #[inline]
    #[must_use]
    pub fn up(&self) -> PortSet {
        PortSet::from_bits(self.up.load(Ordering::Relaxed))
    }

    /// Address of the link partner of a TLP link, all ones before it has sent a frame.
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

    /// Priorities of `output` whose frames stay in VOQs now: paused, in a storm, or held by
    /// command.
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
        // Pairs with `set_tx_off`: whoever sees an output held sees how many frames its port still sends.
        PortSet::from_bits(self.tx_off.load(Ordering::Acquire))
    }

    /// Of an output whose queues are held, frames that its port took before and that may not have
    /// been sent yet, as far as the port knows.
    #[must_use]
    pub fn sending(&self, output: PortId) -> u64 {
        self.sending[output].load(Ordering::Relaxed)
    }

    /// Publishes whether the queues of `output` are held, and how many frames its port is still
    /// `sending`.
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

    /// Passes the last error of `port`'s housekeeping to `say` and returns its result; `None` if
    /// housekeeping succeeds.
    pub fn last_error<R>(&self, port: PortId, say: impl FnOnce(&PortError) -> R) -> Option<R> {
        let last_error = self.last_error[port].lock().unwrap_or_else(PoisonError::into_inner);
        last_error.as_ref().map(say)
    }

    /// Sets the error that [`Self::last_error`] reports.
    pub(super) fn set_last_error(&self, port: PortId, last_error: Option<PortError>) {
        *self.last_error[port].lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }

    /// Chunks in use by frames, ports and reserves. Each holder publishes its number once a step,
    /// so while chunks go from one holder to another the sum may be off by those handed over in one
    /// step.
    #[must_use]
    pub fn chunks_used(&self) -> u64 {
        let holders = self.chunks_used.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = holders.iter().fold(0, |sum: u64, counter| sum.wrapping_add(counter.get()));
        // Below 0 while one holder has published that a chunk came back, and the other not yet that it was
        // taken.
        u64::try_from(sum.cast_signed()).unwrap_or(0).min(self.pool.count() as u64)
    }

    /// Counts the chunks that `bufs` takes and returns in [`Self::chunks_used`], beside those of
    /// the workers.
    pub fn count_chunks(&self, bufs: &Bufs) {
        let mut holders = self.chunks_used.lock().unwrap_or_else(PoisonError::into_inner);
        holders.push(bufs.used());
    }
}

/// Ports that are blocked, and until when.
pub(super) struct Blocks {
    pub(super) ports: AtomicU64,
    /// By port, in ps; valid while the port is among `ports`.
    pub(super) until: PerPort<AtomicU64>,
    /// By port: the port whose probe came in there, plus 1; 0 where moving stations were the
    /// reason.
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

    /// Stops `port` from learning until the given time.
    pub(super) fn settle(&self, port: PortId, until: Instant) {
        self.settled[port].store(until.as_ps(), Ordering::Relaxed); // a number on its own
    }

    /// Whether `port` must not learn now.
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

    /// When the first of the blocked ports opens again.
    pub(super) fn next_unblock(&self) -> Option<Instant> {
        self.blocked().iter().map(|port| self.blocks.until(port)).min()
    }

    /// Blocks `ports`, unless one of `ends` is blocked: two workers that find a loop at once cut it
    /// once. True if it did.
    pub(super) fn block(&self, ports: PortSet, ends: PortSet, until: Instant) -> bool {
        if !self.blocked().and(ends).is_empty() {
            return false;
        }
        for port in ports.iter() {
            // Before `ports`: the Release below publishes it with the bit.
            self.blocks.until[port].store(until.as_ps(), Ordering::Relaxed);
        }
        let blocks = &self.blocks.ports;
        // Tested and set in one atomic step, as another worker may have found the same loop since
        // the test above.
        let with = |before: u64| (before & ends.bits() == 0).then_some(before | ports.bits());
        // Release pairs with the Acquire load in `blocked`.
        blocks.fetch_update(Ordering::Release, Ordering::Relaxed, with).is_ok()
    }

    /// The port whose probe came in by `port`, which is or was blocked for that.
    #[must_use]
    pub fn blocked_for(&self, port: PortId) -> Option<PortId> {
        let sender = self.blocks.sender[port].load(Ordering::Relaxed); // for display only
        sender.checked_sub(1).map(PortId::from_low_bits)
    }

    /// Notes why `ports` are blocked.
    pub(super) fn set_blocked_for(&self, ports: PortSet, sender: Option<PortId>) {
        for port in ports.iter() {
            let sender = sender.map_or(0, |sender| sender.get() + 1);
            self.blocks.sender[port].store(sender, Ordering::Relaxed); // for display only
        }
    }

    /// The next loop that a probe has found, for control. If many are found at once, later ones are
    /// not kept.
    pub fn pop_loop(&self) -> Option<LoopFound> {
        self.probes.found.pop()
    }
}

/// A loop: frames that leave by one port of the switch come in by another, or by the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFound {
    /// The port that sent the probe.
    pub sender: PortId,
    /// The port by which the probe came in.
    pub came: PortId,
}

/// Loops that can wait for control.
const LOOPS_TOLD: usize = 16;

/// Loop probes: ports at which a loop is suspected, and the numbers by which their probes are
/// recognised.
pub(super) struct Probes {
    asked: AtomicU64,
    /// By port: the VLAN of the frames under suspicion.
    vids: PerPort<AtomicU16>,
    /// Secret from which the numbers of probes are computed.
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

    /// Clears the request for `port`, whose worker has taken note.
    pub fn take(&self, port: PortId) {
        self.asked.fetch_and(!PortSet::only(port).bits(), Ordering::Relaxed); // a hint of `asked`
    }

    /// The VLAN in which `port` sends probes.
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

    /// Notes that a probe of `port` is sent at `now`.
    pub fn set_sent(&self, port: PortId, now: Instant) {
        self.sent[port].store(now.as_ps(), Ordering::Relaxed); // a number on its own
    }

    /// Whether `nonce` is that of a probe which left by `port` at most [`VALID`] ago.
    pub fn proves(&self, port: PortId, nonce: u64, now: Instant) -> bool {
        let sent = Instant::from_ps(self.sent[port].load(Ordering::Relaxed)); // a number on its own
        nonce != 0 && nonce == self.nonce(port) && now.since(sent) <= VALID
    }

    /// Keeps a loop for control.
    pub fn tell(&self, found: LoopFound) {
        let _ = self.found.push(found); // if full, control has enough loops to report
    }
}

/// PAUSE that ports have sent, shared between a worker and its
/// [`PauseGuard`](crate::worker::PauseGuard).
pub(super) struct Pauses {
    /// By port: when its worker last sent a PFC frame that pauses, in ps.
    sent: PerPort<AtomicU64>,
    /// Ports at which the guard has sent PFC frames since their workers looked.
    guarded: AtomicU64,
    /// By such a port: PFC classes that the guard has paused.
    classes: PerPort<AtomicU8>,
    /// By such a port: PFC frames that the guard has sent.
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

    /// Notes that `classes` were paused at the peer of `port` in place of its worker. It is called
    /// after the frame has left, so any frame that the worker sends once it knows of it comes
    /// later.
    pub(crate) fn note_guarded(&self, port: PortId, classes: u8) {
        self.pauses.classes[port].fetch_or(classes, Ordering::Relaxed);
        self.pauses.frames[port].fetch_add(1, Ordering::Relaxed);
        // Last, and Release: a worker that sees the bit (Acquire in `take_guarded`) sees the numbers.
        self.pauses.guarded.fetch_or(PortSet::only(port).bits(), Ordering::Release);
    }

    /// Whether any peer was paused for a worker that has not taken note of it.
    #[inline]
    pub(crate) fn has_guarded(&self) -> bool {
        self.pauses.guarded.load(Ordering::Relaxed) != 0
    }

    /// Classes that were paused at the peer of `port` in place of its worker since the last call,
    /// and the number of PFC frames for that.
    pub(crate) fn take_guarded(&self, port: PortId) -> Option<(u8, u64)> {
        let bit = PortSet::only(port).bits();
        // The bit is cleared before the numbers are read: what the guard adds in between sets it again.
        // Acquire pairs with `note_guarded`.
        let before = self.pauses.guarded.fetch_and(!bit, Ordering::Acquire);
        (before & bit != 0).then(|| {
            let classes = self.pauses.classes[port].swap(0, Ordering::Relaxed);
            (classes, self.pauses.frames[port].swap(0, Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
impl Core {
    /// Test: sets the links that are up, as a step would.
    pub(crate) fn set_up(&self, up: PortSet) {
        self.up.store(up.bits(), Ordering::Relaxed);
    }

    /// Test: sets the priorities that the worker of `input` pauses at its peer.
    pub(crate) fn assert_xoff(&self, input: PortId, pris: PriSet) {
        self.xoff[input].store(pris.bits(), Ordering::Relaxed);
    }
}

/// Shared state of outputs that have a fast path.
pub struct FastCore {
    /// Outputs without a fast path; one is counted as having it until its lane has said otherwise.
    pub(super) without: AtomicU64,
    /// By output: frames taken off its queues that have been sent or dropped since.
    pub(super) ended: PerPort<AtomicU64>,
    /// Counters of frames that bypassed the pipeline; their owner writes them.
    pub stats: WorkerStats,
}

impl FastCore {
    pub(super) fn new(stats: WorkerStats) -> Self {
        Self { without: AtomicU64::new(0), ended: PerPort::from_fn(|_| AtomicU64::new(0)), stats }
    }
}
