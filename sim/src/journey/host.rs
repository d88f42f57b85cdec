//! Log of the frames that a host sends and takes, and of the waits before they are sent.
//!
//! Source: docs/spec/model.md §6 "Results".

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::time::{Instant, Span};
use weft_hosts::rclink::endpoint::Hold;

use super::{Held, Key};
use crate::engine::Latency;

/// Frames to one peer, and the wait of the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Frames of messages that have begun, not sent yet.
    left: u64,
    /// Waits of the next frame until now.
    held: Held,
    /// The reason for which it waits now, and since when.
    now: Option<(Hold, Instant)>,
}

impl Turn {
    /// Adds the wait until `now`, from when on the next frame waits for `hold`, or not at all.
    fn go_on(&mut self, now: Instant, hold: Option<Hold>) {
        if let Some((hold, since)) = self.now {
            let span = match hold {
                Hold::Pause => &mut self.held.pause,
                Hold::Credit => &mut self.held.credit,
                Hold::Rate => &mut self.held.rate,
            };
            *span = *span + now.since(since);
        }
        self.now = hold.filter(|_| self.left > 0).map(|hold| (hold, now));
    }
}

/// Log of one host.
#[derive(Clone, Debug)]
pub struct HostLog {
    /// Propagation delay of the cable to the host.
    pub(super) propagation: Span,
    /// Latency of its endpoint for each frame.
    pub(super) delay: Latency,
    /// Bytes of payload in a full frame.
    payload: u64,
    /// Ids of messages that have begun.
    begun: BTreeSet<u32>,
    turns: BTreeMap<u16, Turn>,
    sent: Vec<(Key, Held)>,
    taken: Vec<(Key, Span)>,
}

impl HostLog {
    /// The log of a host at the end of a cable, whose full frames have `payload` bytes of payload.
    #[must_use]
    pub fn new(propagation: Span, delay: Latency, payload: u64) -> Self {
        let (sent, taken) = (Vec::new(), Vec::new());
        let (begun, turns) = (BTreeSet::new(), BTreeMap::new());
        Self { propagation, delay, payload, begun, turns, sent, taken }
    }

    /// Notes that message `id` to `to` with `bytes` bytes has begun; repetitions are ignored.
    pub fn begun(&mut self, id: u32, to: u16, bytes: u64) {
        if self.begun.insert(id) {
            self.turns.entry(to).or_default().left += bytes.div_ceil(self.payload.max(1));
        }
    }

    /// Notes for each peer whether its next frame waits from `now` on, and the reason.
    pub fn held(&mut self, now: Instant, holds: impl Fn(u16) -> Option<Hold>) {
        for (&to, turn) in &mut self.turns {
            if turn.left > 0 || turn.now.is_some() {
                turn.go_on(now, holds(to));
            }
        }
    }

    /// Notes that a frame to `to` was sent, for the first time or again.
    pub fn sent_frame(&mut self, now: Instant, to: u16, key: Key) {
        let turn = self.turns.entry(to).or_default();
        // The wait of this frame ends, and the next one has the same reason to wait until `held` says otherwise.
        let hold = turn.now.map(|(hold, _)| hold);
        turn.go_on(now, hold);
        turn.left = turn.left.saturating_sub(1);
        self.sent.push((key, core::mem::take(&mut turn.held)));
    }

    /// Notes that a frame was taken `after` this long from when it was sent.
    pub fn took(&mut self, key: Key, after: Span) {
        self.taken.push((key, after));
    }

    /// All frames sent, one entry for each time, with their waits.
    pub(super) fn sent(&self) -> &[(Key, Held)] {
        &self.sent
    }

    /// All frames taken, with their latencies.
    pub(super) fn taken(&self) -> &[(Key, Span)] {
        &self.taken
    }
}
