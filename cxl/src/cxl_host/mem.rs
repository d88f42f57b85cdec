//! CXL.mem requester of a host: with or without a cache. [`HostMem`] passes every call on to the one that the host has.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem", "Back-invalidate".

use weft_dataplane::time::Instant;
use weft_parsers::cxl_mem::MemMessage;

use crate::coherence::cache::CacheCounts;
use crate::mem::cached::CachedRequester;
use crate::mem::{MemCounts, MemDone, MemId, MemOperation, MemRequester, MemSpec};

pub(super) enum HostMem {
    Plain(Box<MemRequester>),
    Cached(Box<CachedRequester>),
}

macro_rules! both {
    ($self:ident, $one:ident => $what:expr) => {
        match $self {
            Self::Plain($one) => $what,
            Self::Cached($one) => $what,
        }
    };
}

impl HostMem {
    /// A requester with a cache of `lines` lines; 0: without a cache.
    pub(super) fn new(spec: MemSpec, lines: usize) -> Self {
        if lines == 0 {
            Self::Plain(Box::new(MemRequester::new(spec)))
        } else {
            Self::Cached(Box::new(CachedRequester::new(spec, lines)))
        }
    }

    pub(super) fn submit(&mut self, what: MemOperation) -> MemId {
        both!(self, one => one.submit(what))
    }

    pub(super) fn next_done(&mut self) -> Option<MemDone> {
        both!(self, one => one.next_done())
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        both!(self, one => one.next_due())
    }

    pub(super) fn counts(&self) -> MemCounts {
        both!(self, one => one.counts())
    }

    /// Address of the next changed line that was lost.
    pub(super) fn next_lost(&mut self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Cached(one) => one.next_lost(),
        }
    }

    /// Advances to `now`; called before messages are taken in.
    pub(super) fn set_now(&mut self, now: Instant) {
        if let Self::Cached(one) = self {
            one.set_now(now);
        }
    }

    pub(super) fn flush(&mut self, now: Instant, send: &mut dyn FnMut(&MemMessage<'_>)) {
        both!(self, one => one.flush(now, send));
    }

    pub(super) fn take(&mut self, message: &MemMessage<'_>) {
        both!(self, one => one.take(message));
    }

    pub(super) fn expire(&mut self, now: Instant) {
        both!(self, one => one.expire(now));
    }

    pub(super) fn give_up(&mut self) {
        both!(self, one => one.give_up());
    }

    /// Counts of the cache; lines in use, and its capacity.
    pub(super) fn cache(&self) -> Option<(CacheCounts, (usize, usize))> {
        match self {
            Self::Plain(_) => None,
            Self::Cached(one) => Some(one.cache()),
        }
    }
}
