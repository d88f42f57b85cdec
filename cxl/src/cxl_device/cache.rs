//! A function's cache of its host's memory (CXL.cache), switched on and off by software.
//!
//! While `Cache_Enable` is 0 the cache sends no new requests. When software clears the bit, all lines are written back
//! and given up; lines that can no longer be written back then, because the `CacheID` is gone, are lost.

use weft_dataplane::time::Instant;
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::fabric::Hpa;

use crate::cache::agent::{AgentCounts, CacheSpec};
use crate::cache::{CacheRequester, Outgoing};
use crate::mem::{MemId, MemOperation};
use crate::requester::{Done, Failure, OpId};

pub(crate) struct FunctionCache {
    requester: CacheRequester,
    is_on: bool,
}

/// Number of a load or store among all transactions: bit 63 is set, which numbers of TLP transactions never reach.
const fn op_of(MemId(id): MemId) -> OpId {
    OpId(1 << 63 | id)
}

impl FunctionCache {
    pub(super) fn new(spec: CacheSpec) -> Self {
        Self { requester: CacheRequester::new(spec), is_on: false }
    }

    pub(super) fn counts(&self) -> (AgentCounts, (usize, usize)) {
        self.requester.counts()
    }

    /// Software sets or clears `Cache_Enable`.
    pub(super) fn set_on(&mut self, is_on: bool) {
        if core::mem::replace(&mut self.is_on, is_on) && !is_on {
            self.requester.flush_lines();
        }
    }

    /// Submits a load or store; `None` while the cache is off.
    pub(super) fn submit(&mut self, what: MemOperation) -> Option<OpId> {
        self.is_on.then(|| op_of(self.requester.submit(what)))
    }

    /// Writes back and gives up all lines; false while the cache is off.
    pub(super) fn flush_lines(&mut self) -> bool {
        if self.is_on {
            self.requester.flush_lines();
        }
        self.is_on
    }

    pub(super) const fn is_flushing(&self) -> bool {
        self.requester.is_flushing()
    }

    pub(super) fn take(&mut self, now: Instant, message: &CacheMessage<'_>) {
        // Before the message: a lease that has ended by now must not serve a load that it lets go on.
        self.requester.set_now(now);
        self.requester.take(message);
    }

    pub(super) fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&Outgoing)) {
        self.requester.flush(now, send);
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.requester.expire(now);
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.requester.next_due()
    }

    pub(super) fn clear(&mut self) {
        self.requester.clear();
        self.is_on = false;
    }

    /// The next load or store that ended.
    pub(super) fn next_done(&mut self) -> Option<Done> {
        let done = self.requester.next_done()?;
        let result = done.result.map_err(Failure::from);
        Some(Done { op: op_of(done.id), result, ln: false })
    }

    /// Address of the next changed line that was lost.
    pub(super) fn next_lost(&mut self) -> Option<Hpa> {
        self.requester.next_lost().map(Hpa)
    }
}
