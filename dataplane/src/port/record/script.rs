//! Ports that give the answers of a record, so that the pipeline decides as it did in the recorded run.
//!
//! A [`Script`] holds the answers of a step. Its [`Scripted`] ports must be asked exactly these questions, in this
//! order.
//!
//! Source: docs/spec/pipeline.md §13.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use xxhash_rust::xxh3::Xxh3;

use super::format::{Answer, Call, Frame, PoolMove, digest};
use super::recorder::{fold, sent};
use crate::batch::{BURST, Batch};
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::port::csum::complete_frame;
use crate::port::{Port, PortCaps, PortCounters, PortError};
use crate::time::Instant;

/// Called with every frame that a port takes: the port's number, the time, and the bytes with a complete checksum.
pub type SentFrames = Box<dyn FnMut(usize, Instant, &[u8]) + Send>;

/// Largest growth of a drop counter in one step, far more than a port can count in that time; only a damaged record has
/// more.
const GROWTH_MAX: u64 = 1 << 24;

struct State {
    calls: VecDeque<Call>,
    ports: Vec<(bool, PortCounters)>,
    /// Chunks that stand for those that the recorded ports held.
    held: Vec<Desc>,
    sent: Xxh3,
    sent_count: u64,
    sent_to: Option<SentFrames>,
    spare: Vec<u8>,
    fault: Option<String>,
}

/// Answers that the ports of a switch are to give.
#[derive(Clone)]
pub struct Script(Arc<Mutex<State>>);

impl Script {
    /// A script for `ports` ports; frames that they take go to `sent_to`.
    #[must_use]
    pub fn new(ports: usize, sent_to: Option<SentFrames>) -> Self {
        Self(Arc::new(Mutex::new(State {
            calls: VecDeque::new(),
            ports: vec![(false, PortCounters::default()); ports],
            held: Vec::new(),
            sent: Xxh3::new(),
            sent_count: 0,
            sent_to,
            spare: Vec::new(),
            fault: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the answers of the next step.
    pub fn load(&self, calls: Vec<Call>) {
        self.lock().calls = calls.into();
    }

    /// Checks that the step asked for all of its answers, and for no others.
    ///
    /// # Errors
    /// The first question or answer that does not fit, in words.
    pub fn check(&self) -> Result<(), String> {
        let mut state = self.lock();
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        // An answer left over was given in the recorded run and not asked for now: the replay has decided otherwise.
        match state.calls.front() {
            None => Ok(()),
            Some(call) => Err(format!("the record has {}, which was not asked for", name(call))),
        }
    }

    /// Number of frames that ports took.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.lock().sent_count
    }

    /// Hash of all frames that ports took.
    #[must_use]
    pub fn sent_hash(&self) -> u64 {
        self.lock().sent.digest()
    }

    /// Digest for a step's entry, given the hash of all decisions so far.
    #[must_use]
    pub fn digest(&self, trace_hash: u64) -> u32 {
        digest(trace_hash, self.sent_hash())
    }
}

/// Describes a call in words.
fn name(call: &Call) -> String {
    let port = call.port;
    match &call.answer {
        Answer::Link(up) => format!("port {port}'s link {}", if *up { "up" } else { "down" }),
        Answer::Rx(frames, _) => format!("{} frames received by port {port}", frames.len()),
        Answer::Room(room) => format!("room for {room} frames at port {port}"),
        Answer::Tx(taken, _) => format!("{taken} frames taken by port {port}"),
        Answer::Service(_) => format!("housekeeping of port {port}"),
        Answer::Counters(_) => format!("counters of port {port}"),
    }
}

impl State {
    /// Takes the next answer if it belongs to `port` and `want` accepts it.
    fn take<T>(&mut self, port: usize, want: impl FnOnce(&mut Answer) -> Option<T>) -> Option<T> {
        // Only the first: a question in another order means that the replay has decided otherwise.
        let call = self.calls.front_mut().filter(|call| call.port == port)?;
        let answer = want(&mut call.answer)?;
        self.calls.pop_front();
        Some(answer)
    }

    fn object(&mut self, fault: impl FnOnce(&Self) -> String) {
        // The first difference counts; all later ones follow from it.
        if self.fault.is_none() {
            self.fault = Some(fault(self));
        }
    }

    /// Notes that port `port` was asked a question to which the record has another answer.
    fn unexpected(&mut self, port: usize, question: &str) {
        self.object(|state| {
            let has = state.calls.front().map_or_else(|| "nothing".to_owned(), name);
            format!("port {port} was asked {question}, where the record has {has}")
        });
    }

    /// Allocates or frees held chunks until `used` are in use and the reserve lacks `short`, as in the recorded run.
    fn align(&mut self, bufs: &mut Bufs, used: u64, short: usize) {
        loop {
            let over = bufs.used().get().wrapping_sub(used).cast_signed();
            let chunk = match over {
                0 => break,
                1.. => self.held.pop(),
                _ => bufs.alloc(),
            };
            let Some(chunk) = chunk else {
                return self.object(|_| "the pool cannot hold what the record says".to_owned());
            };
            if over > 0 {
                bufs.free(chunk);
            } else {
                self.held.push(chunk);
            }
        }
        while bufs.reserve_short() > short {
            let Some(desc) = bufs.alloc() else { break };
            bufs.free(desc); // the reserve is filled first
        }
        if bufs.reserve_short() != short {
            self.object(|_| "the reserve is not what the record says".to_owned());
        }
    }

    fn deliver(&mut self, bufs: &mut Bufs, batch: &mut Batch, frames: &[Frame], pool: PoolMove) {
        let before = bufs.used().get();
        let count = i64::try_from(frames.len()).unwrap_or(0);
        // Frames beyond the growth of the pool's use came in chunks that the recorded port had posted before.
        let mut from_held = count.saturating_sub(pool.used);
        for frame in frames {
            let ready = if from_held > 0 { self.held.pop() } else { None };
            from_held -= 1;
            let Some(mut desc) = ready.or_else(|| bufs.alloc()) else {
                return self.object(|_| "the pool has no chunk for a received frame".to_owned());
            };
            if !batch.is_full() && fill(bufs, &mut desc, frame) {
                batch.push(desc);
            } else {
                bufs.free(desc);
                return self.object(|_| "a received frame has no room".to_owned());
            }
        }
        self.align(bufs, before.wrapping_add_signed(pool.used), pool.short);
    }

    fn send(&mut self, port: usize, now: Instant, bufs: &Bufs, desc: &Desc) {
        self.sent_count += 1;
        let Some(sent_to) = &mut self.sent_to else { return };
        self.spare.clear();
        self.spare.extend_from_slice(bufs.bytes(desc));
        if let Some(partial) = bufs.partial_csum(desc) {
            complete_frame(&mut self.spare, partial);
        }
        sent_to(port, now, &self.spare);
    }
}

/// Copies a recorded frame into a fresh chunk, at the offset that it had in its own.
fn fill(bufs: &mut Bufs, desc: &mut Desc, frame: &Frame) -> bool {
    let (fresh, len) = (desc.start(), frame.bytes.len());
    let Some((chunk, at)) = bufs.chunk_mut(desc) else { return false };
    let Some(start) = (at + frame.start).checked_sub(fresh) else { return false };
    let room = start..start + len.max(weft_parsers::HEAD_LEN);
    let Some(bytes) = chunk.get_mut(room).and_then(|room| room.get_mut(..len)) else {
        return false;
    };
    bytes.copy_from_slice(&frame.bytes);
    bufs.set_bounds(desc, start, len);
    bufs.set_partial_csum(desc, frame.partial);
    true
}

/// A port that gives the answers of its script.
pub struct Scripted {
    caps: PortCaps,
    index: usize,
    script: Script,
}

impl Scripted {
    /// Port number `index` of `script`.
    #[must_use]
    pub const fn new(caps: PortCaps, index: usize, script: Script) -> Self {
        Self { caps, index, script }
    }
}

impl Port for Scripted {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let state = &mut *self.script.lock();
        let received = state.take(self.index, |answer| match answer {
            Answer::Rx(frames, pool) => Some((core::mem::take(frames), *pool)),
            _ => None,
        });
        if let Some((frames, pool)) = received {
            state.deliver(bufs, batch, &frames, pool);
        }
        batch.len() - before
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        let state = &mut *self.script.lock();
        let room = state.take(self.index, |answer| match answer {
            Answer::Room(room) => Some(*room),
            _ => None,
        });
        if room.is_none() {
            state.unexpected(self.index, "how many frames it would take");
        }
        room.unwrap_or(0)
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let state = &mut *self.script.lock();
        let taken = state.take(self.index, |answer| match answer {
            // The record cannot take more frames than the replay offers.
            Answer::Tx(taken, pool) if *taken <= batch.len() => Some((*taken, *pool)),
            _ => None,
        });
        let Some((taken, pool)) = taken else {
            state.unexpected(self.index, &format!("to take {} frames", batch.len()));
            return 0;
        };
        let used = bufs.used().get().wrapping_add_signed(pool.used);
        let hashes: ArrayVec<u64, BURST> =
            batch.iter().take(taken).map(|desc| sent(bufs, desc)).collect();
        for hash in hashes {
            fold(&mut state.sent, self.index, hash);
        }
        for desc in batch.drain(..taken) {
            state.send(self.index, now, bufs, &desc);
            bufs.free(desc);
        }
        state.align(bufs, used, pool.short);
        taken
    }

    fn service(&mut self, _now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        let state = &mut *self.script.lock();
        let moved = state.take(self.index, |answer| match answer {
            Answer::Service(pool) => Some(*pool),
            _ => None,
        });
        if let Some(pool) = moved {
            let used = bufs.used().get().wrapping_add_signed(pool.used);
            state.align(bufs, used, pool.short);
        }
        Ok(())
    }

    fn link_up(&self) -> bool {
        let state = &mut *self.script.lock();
        let new = state.take(self.index, |answer| match answer {
            Answer::Link(up) => Some(*up),
            _ => None,
        });
        let Some((up, _)) = state.ports.get_mut(self.index) else { return false };
        *up = new.unwrap_or(*up);
        *up
    }

    fn counters(&self) -> PortCounters {
        let state = &mut *self.script.lock();
        let new = state.take(self.index, |answer| match answer {
            Answer::Counters(counters) => Some(*counters),
            _ => None,
        });
        let Some((_, counters)) = state.ports.get_mut(self.index) else {
            return PortCounters::default();
        };
        let Some(new) = new else { return *counters };
        if !grows(counters, &new) {
            let old = *counters;
            state.object(|_| format!("counters of port {} leap or go back", self.index));
            return old;
        }
        *counters = new;
        new
    }

    fn release(&mut self, bufs: &mut Bufs) {
        // The chunks belong to the script: the first port that is released frees them for all.
        for desc in core::mem::take(&mut self.script.lock().held) {
            bufs.free(desc);
        }
    }
}

/// Whether `new` can follow `old` within a step.
fn grows(old: &PortCounters, new: &PortCounters) -> bool {
    let near = |old: u64, new: u64| new.checked_sub(old).is_some_and(|by| by <= GROWTH_MAX);
    let mut dropped = old.rx_dropped.iter().zip(&new.rx_dropped);
    near(old.tx_failed, new.tx_failed)
        && dropped.all(|(old, new)| (old.0.is_none() || old.0 == new.0) && near(old.1, new.1))
}
