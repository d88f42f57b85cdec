//! Loads and stores of a device, of any length, through its cache.

use weft_dataplane::time::Instant;
use weft_parsers::cxl_cache::CacheMessage;

use super::Outgoing;
use super::agent::{AgentCounts, CacheAgent, CacheSpec, IN_FLIGHT_MAX};
use crate::coherence::cache::Access;
use crate::mem::ops::{Ops, Piece};
use crate::mem::{MemDone, MemFailure, MemId, MemOperation};

/// Cuts loads and stores into pieces of one line, which a [`CacheAgent`] does.
#[derive(Clone, Debug)]
pub struct CacheRequester {
    ops: Ops,
    agent: CacheAgent<Piece>,
    /// Pieces handed to the agent that have not ended.
    accesses: usize,
}

impl CacheRequester {
    #[must_use]
    pub fn new(spec: CacheSpec) -> Self {
        Self { ops: Ops::default(), agent: CacheAgent::new(spec), accesses: 0 }
    }

    pub fn submit(&mut self, what: MemOperation) -> MemId {
        self.ops.submit(what)
    }

    /// The next load or store that ended.
    pub fn next_done(&mut self) -> Option<MemDone> {
        self.ops.next_done()
    }

    /// Address of the next changed line that was lost.
    pub fn next_lost(&mut self) -> Option<u64> {
        self.agent.next_lost()
    }

    /// Gives up all lines, changed ones by writing them back; then reports it to the host (`CacheFlushed`).
    pub fn flush_lines(&mut self) {
        self.agent.flush();
    }

    /// Whether a flush is under way.
    #[must_use]
    pub const fn is_flushing(&self) -> bool {
        self.agent.is_flushing()
    }

    /// Counts so far; lines in use, and the cache's capacity.
    #[must_use]
    pub fn counts(&self) -> (AgentCounts, (usize, usize)) {
        (self.agent.counts(), self.agent.used())
    }

    /// When the next request times out.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.agent.next_due()
    }

    /// Advances to `now` and hands messages that may be sent to `send`. The caller reads `now` after the last
    /// submission: a lease that has ended by then serves none of them.
    pub fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&Outgoing)) {
        self.agent.set_now(now);
        self.send(now, send);
        // Bounded: the rest of a long load or store waits in `ops` as a range, not as pieces.
        while self.accesses < IN_FLIGHT_MAX
            && let Some((piece, data)) = self.ops.next_piece()
        {
            self.accesses += 1;
            let store = data.map(|data| (data, piece.mask()));
            self.agent.access(piece.line, Access { what: piece, store });
            self.finish();
        }
        self.send(now, send);
    }

    fn send(&mut self, now: Instant, send: &mut dyn FnMut(&Outgoing)) {
        while let Some(out) = self.agent.next_message(now) {
            send(&out);
        }
        self.finish();
    }

    /// Passes ended pieces on to their loads and stores.
    fn finish(&mut self) {
        while let Some((piece, result)) = self.agent.next_done() {
            self.accesses -= 1;
            let loaded = match &result {
                Ok(line) => Ok(piece.reads.then_some(line)),
                Err(failure) => Err(MemFailure::from(*failure)),
            };
            self.ops.ended(&piece, loaded);
        }
    }

    /// Advances to `now`; called before messages are taken in.
    pub fn set_now(&mut self, now: Instant) {
        self.agent.set_now(now);
    }

    /// Takes a message from the host.
    pub fn take(&mut self, message: &CacheMessage<'_>) {
        self.agent.take(message);
        self.finish();
    }

    /// Ends requests that were not answered by `now`.
    pub fn expire(&mut self, now: Instant) {
        self.agent.expire(now);
        self.finish();
    }

    /// Empties the cache: a reset, the link went down, or the host has turned it off.
    pub fn clear(&mut self) {
        self.agent.clear();
        self.accesses = 0;
        self.ops.give_up();
    }
}
