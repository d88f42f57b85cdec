//! Writes a record while the switch runs.
//!
//! [`Recorded`] ports report their answers to the [`Recorder`]; the worker reports where steps begin and end, and
//! control its changes between two steps.
//!
//! Source: docs/spec/pipeline.md §13.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::format::{self, PoolMove};
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::port::delegate::delegate;
use crate::port::{Port, PortCounters, PortError, PortOpenError};
use crate::time::{Instant, Span};

/// Bytes collected before a write.
const BLOCK: usize = 256 << 10;
/// How long complete entries may stay unwritten: a killed run loses no more than this.
const WRITE_EVERY: Span = Span::from_ms(100);

/// Outcome of recording.
#[derive(Debug)]
pub struct Summary {
    /// Steps that have an entry.
    pub steps: u64,
    /// Length of the record in bytes.
    pub bytes: u64,
    /// Number of decisions in the run.
    pub events: u64,
    /// Hash of all decisions and their times; `None` if the run did not come to its end.
    pub trace_hash: Option<u64>,
    /// Hash of all frames that ports took.
    pub sent_hash: u64,
    /// The write error at which the record ends before the run; `None` if it is whole.
    pub failed: Option<io::Error>,
}

/// Called once, when the record cannot be written any further.
pub type OnFailure = Box<dyn FnMut(&io::Error) + Send>;

/// A port's last recorded answers.
#[derive(Clone, Copy, Default)]
struct Known {
    link: Option<bool>,
    counters: PortCounters,
}

/// Effect of calls on the pool that is not in the record yet.
#[derive(Clone, Copy, Default)]
struct Carry {
    used: i64,
    changed: bool,
}

impl Carry {
    fn add(&mut self, call: &Effect) {
        self.used += call.used;
        self.changed |= call.changed();
    }
}

/// Position of the run between steps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between steps; the last one has an entry.
    Between,
    /// Within a step.
    Step,
    /// Between steps; the last one needed no entry.
    Idle,
}

struct Inner {
    out: Box<dyn Write + Send>,
    on_failure: OnFailure,
    failed: Option<io::Error>,
    /// Complete entries that are not written yet.
    block: Vec<u8>,
    written: u64,
    written_at: Instant,
    /// Encoded answers of the current step.
    calls: Vec<u8>,
    phase: Phase,
    /// The current step must get an entry: a replay has to do it, too.
    matters: bool,
    /// Time of the current step.
    now: Instant,
    /// Time of the last entry.
    last: Instant,
    /// Answers as of the last entry; `new` are those of the current step, which may get no entry.
    known: Vec<Known>,
    new: Vec<Known>,
    /// Effect on the pool since the last entry.
    carry: Carry,
    /// The same, until an answer of the current step includes it.
    untold: Carry,
    sent: Xxh3,
    trace_hash: u64,
    steps: u64,
    ended: Option<(u64, u64)>,
}

/// Writes a record; clones write the same one.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<Inner>>);

impl Recorder {
    /// Begins the record of a switch with `ports` ports; `header` is a text for the replay.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn start(
        mut out: Box<dyn Write + Send>,
        header: &[u8],
        ports: usize,
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let mut block = Vec::with_capacity(2 * BLOCK);
        format::put_preamble(&mut block, header);
        // Written at once, so that a file that cannot be written refuses the recording before the run starts.
        out.write_all(&block)?;
        let written = block.len() as u64;
        block.clear();
        Ok(Self(Arc::new(Mutex::new(Inner {
            out,
            on_failure,
            failed: None,
            block,
            written,
            written_at: Instant::ZERO,
            calls: Vec::with_capacity(BLOCK),
            phase: Phase::Between,
            matters: false,
            now: Instant::ZERO,
            last: Instant::ZERO,
            known: vec![Known::default(); ports],
            new: vec![Known::default(); ports],
            carry: Carry::default(),
            untold: Carry::default(),
            sent: Xxh3::new(),
            trace_hash: Xxh3::new().digest(),
            steps: 0,
            ended: None,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a step.
    pub fn begin(&self, now: Instant) {
        let mut inner = self.lock();
        if now.since(inner.written_at) >= WRITE_EVERY {
            inner.write_out();
            inner.written_at = now;
        }
        inner.begin(now);
    }

    /// Ends the step. `kept`: a replay may have to do this step, too; a step that is not kept gets no entry unless a
    /// port's answer matters. `trace_hash` covers all decisions so far.
    pub fn end(&self, kept: bool, trace_hash: u64) {
        let mut inner = self.lock();
        inner.trace_hash = trace_hash;
        inner.phase = Phase::Idle;
        if kept || inner.matters {
            inner.keep();
        }
    }

    /// Records a change by control between two steps; `text` describes it.
    pub fn change(&self, text: &[u8]) {
        let mut inner = self.lock();
        // The change happens after the last step, so the replay must be brought to that step's time first.
        inner.keep_idle();
        inner.entry(|block| format::put_change(block, text));
    }

    /// Begins the stop at `now`; the ports' answers from here on belong to it.
    pub fn begin_stop(&self, now: Instant) {
        let mut inner = self.lock();
        inner.keep_idle();
        inner.begin(now);
    }

    /// Ends the stop, after `events` decisions with this hash.
    pub fn end_stop(&self, trace_hash: u64, events: u64) {
        let mut inner = self.lock();
        inner.phase = Phase::Between;
        inner.ended = Some((trace_hash, events));
        let since = inner.now.as_ps().wrapping_sub(inner.last.as_ps());
        let hashes = [trace_hash, inner.sent.digest()];
        let calls = core::mem::take(&mut inner.calls);
        inner.entry(|block| format::put_stop(block, since, &calls, hashes, events));
    }

    /// Ends the record with the final counters, a text like the header.
    #[must_use]
    pub fn finish(&self, counts: &[u8]) -> Summary {
        let mut inner = self.lock();
        inner.entry(|block| format::put_counts(block, counts));
        inner.write_out();
        if inner.failed.is_none()
            && let Err(error) = inner.out.flush()
        {
            inner.fail(error);
        }
        Summary {
            steps: inner.steps,
            bytes: inner.written,
            events: inner.ended.map_or(0, |(_, events)| events),
            trace_hash: inner.ended.map(|(hash, _)| hash),
            sent_hash: inner.sent.digest(),
            failed: inner.failed.take(),
        }
    }
}

impl Inner {
    fn begin(&mut self, now: Instant) {
        self.calls.clear();
        (self.phase, self.matters, self.untold) = (Phase::Step, false, self.carry);
        self.now = now;
        // Answers of the last step count as recorded only if it got an entry: otherwise `known` has not changed.
        self.new.clone_from(&self.known);
    }

    /// Writes an entry for the step that has just ended.
    fn keep(&mut self) {
        let since = self.now.as_ps().wrapping_sub(self.last.as_ps());
        let digest = format::digest(self.trace_hash, self.sent.digest());
        // Taken out, as `entry` borrows `self`, and put back for its capacity: a step must not allocate.
        let calls = core::mem::take(&mut self.calls);
        self.entry(|block| format::put_step(block, since, &calls, digest));
        self.calls = calls;
        self.last = self.now;
        self.known.clone_from(&self.new);
        self.carry = Carry::default();
        self.phase = Phase::Between;
        self.steps += 1;
    }

    /// Writes an entry for the last step although it did nothing, as counters of time run on to its time.
    fn keep_idle(&mut self) {
        if self.phase == Phase::Idle {
            self.keep();
        }
    }

    fn entry(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        if self.failed.is_some() {
            return;
        }
        put(&mut self.block);
        if self.block.len() >= BLOCK {
            self.write_out();
        }
    }

    fn write_out(&mut self) {
        if self.failed.is_some() || self.block.is_empty() {
            return;
        }
        match self.out.write_all(&self.block) {
            Ok(()) => self.written += self.block.len() as u64,
            Err(error) => self.fail(error),
        }
        self.block.clear();
    }

    fn fail(&mut self, error: io::Error) {
        (self.on_failure)(&error);
        self.failed = Some(error);
    }

    /// Notes a call's effect on the pool; returns the effect to record, and whether it must be recorded. The first call
    /// of a step includes the effect of steps without an entry.
    fn moved(&mut self, call: &Effect) -> (PoolMove, bool) {
        self.carry.add(call);
        let mut told = core::mem::take(&mut self.untold);
        told.add(call);
        (PoolMove { used: told.used, short: call.short }, told.changed)
    }
}

/// Effect of one call on the pool.
struct Effect {
    used: i64,
    was_short: usize,
    short: usize,
}

impl Effect {
    /// Makes the call and measures its effect.
    fn of<R>(bufs: &mut Bufs, call: impl FnOnce(&mut Bufs) -> R) -> (R, Self) {
        let (used, was_short) = (bufs.used().get(), bufs.reserve_short());
        let result = call(bufs);
        let after = bufs.used().get();
        let used = after.wrapping_sub(used).cast_signed();
        (result, Self { used, was_short, short: bufs.reserve_short() })
    }

    const fn changed(&self) -> bool {
        self.used != 0 || self.was_short != self.short
    }
}

/// A port whose answers are recorded.
pub struct Recorded<P: Port> {
    port: P,
    index: usize,
    recorder: Recorder,
}

impl<P: Port> Recorded<P> {
    /// Records the answers of `port`, number `index` of the switch.
    pub const fn new(port: P, index: usize, recorder: Recorder) -> Self {
        Self { port, index, recorder }
    }
}

impl<P: Port> Port for Recorded<P> {
    // No `fast_path`: frames that the kernel forwards would not be in the record.
    delegate!(
        caps, sending, wait_fd, link_fd, next_event, idle_at, release => |self| self.port
    );

    fn start(&mut self, bufs: &mut Bufs) -> Result<(), PortOpenError> {
        let (result, effect) = Effect::of(bufs, |bufs| self.port.start(bufs));
        self.recorder.lock().untold.add(&effect);
        result
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let (count, effect) = Effect::of(bufs, |bufs| self.port.rx(now, bufs, batch));
        let inner = &mut *self.recorder.lock();
        let (pool, moved) = inner.moved(&effect);
        if count > 0 || moved {
            format::put_rx(&mut inner.calls, self.index, count, pool);
            for desc in batch.iter().skip(before) {
                let (partial, bytes) = (bufs.partial_csum(desc), bufs.bytes(desc));
                format::put_frame(&mut inner.calls, desc.start(), partial, bytes);
            }
        }
        count
    }

    fn tx_room(&mut self, now: Instant) -> usize {
        let room = self.port.tx_room(now);
        format::put_room(&mut self.recorder.lock().calls, self.index, room);
        room
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        // Hashed before: frames that the port takes are gone afterwards.
        let hashes: ArrayVec<u64, BURST> = batch.iter().map(|desc| sent(bufs, desc)).collect();
        let (taken, effect) = Effect::of(bufs, |bufs| self.port.tx(now, bufs, batch));
        let inner = &mut *self.recorder.lock();
        let (pool, _) = inner.moved(&effect);
        format::put_tx(&mut inner.calls, self.index, taken, pool);
        for hash in hashes.iter().take(taken) {
            fold(&mut inner.sent, self.index, *hash);
        }
        // A frame that left in the run must leave in the replay, too.
        inner.matters |= taken > 0;
        taken
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        let (result, effect) = Effect::of(bufs, |bufs| self.port.service(now, bufs));
        let inner = &mut *self.recorder.lock();
        let (pool, moved) = inner.moved(&effect);
        if moved {
            format::put_service(&mut inner.calls, self.index, pool);
        }
        result
    }

    fn link_up(&self) -> bool {
        let up = self.port.link_up();
        let inner = &mut *self.recorder.lock();
        // Idle workers ask between steps, too; such answers decide nothing.
        if let Some(known) = inner.new.get_mut(self.index).filter(|_| inner.phase == Phase::Step)
            && known.link != Some(up)
        {
            known.link = Some(up);
            inner.matters = true;
            format::put_link(&mut inner.calls, self.index, up);
        }
        up
    }

    fn counters(&self) -> PortCounters {
        let counters = self.port.counters();
        let inner = &mut *self.recorder.lock();
        if let Some(known) = inner.new.get_mut(self.index).filter(|_| inner.phase == Phase::Step)
            && known.counters != counters
        {
            known.counters = counters;
            inner.matters = true;
            format::put_counters(&mut inner.calls, self.index, &counters);
        }
        counters
    }
}

/// Hash of a frame's bytes as the port gets them.
pub(super) fn sent(bufs: &Bufs, desc: &Desc) -> u64 {
    xxh3_64(bufs.bytes(desc))
}

/// Adds a frame that port `index` took to the hash of all sent frames.
pub(super) fn fold(all: &mut Xxh3, index: usize, hash: u64) {
    all.update(&(index as u64).to_le_bytes());
    all.update(&hash.to_le_bytes());
}
