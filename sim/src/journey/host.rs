//! What a host notes of the frames that it sends and takes.
//!
//! [`HostLog`] hears of messages, frames and what holds them.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §6 "Results".

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::time::{Instant, Span};
use weft_hosts::rclink::endpoint::Hold;

use super::{Held, Key};
use crate::engine::Latency;

/// Frames to one peer.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Frames of messages that were not sent yet.
    left: u64,
    /// What has held the next one until now.
    held: Held,
    /// What holds it now, and since when.
    now: Option<(Hold, Instant)>,
}

impl Turn {
    /// Time goes on to `now`, from when on `hold` holds the next frame.
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

/// What passed at a host.
#[derive(Clone, Debug)]
pub struct HostLog {
    /// Of the cable to it.
    pub(super) propagation: Span,
    /// What its endpoint takes for a frame.
    pub(super) delay: Latency,
    /// Bytes of payload a frame.
    payload: u64,
    /// Messages that have begun.
    begun: BTreeSet<u32>,
    turns: BTreeMap<u16, Turn>,
    sent: Vec<(Key, Held)>,
    taken: Vec<(Key, Span)>,
}

impl HostLog {
    /// Of a host at the end of a cable, whose frames have so many bytes of payload.
    #[must_use]
    pub fn new(propagation: Span, delay: Latency, payload: u64) -> Self {
        let (sent, taken) = (Vec::new(), Vec::new());
        let (begun, turns) = (BTreeSet::new(), BTreeMap::new());
        Self { propagation, delay, payload, begun, turns, sent, taken }
    }

    /// Message `id` of so many bytes to `to` has begun; it may be told more than once.
    pub fn begun(&mut self, id: u32, to: u16, bytes: u64) {
        if self.begun.insert(id) {
            self.turns.entry(to).or_default().left += bytes.div_ceil(self.payload.max(1));
        }
    }

    /// What holds the next frame to each peer, from `now` on.
    pub fn held(&mut self, now: Instant, holds: impl Fn(u16) -> Option<Hold>) {
        for (&to, turn) in &mut self.turns {
            if turn.left > 0 || turn.now.is_some() {
                turn.go_on(now, holds(to));
            }
        }
    }

    /// A frame to `to` was sent: the first time, or again.
    pub fn sent_frame(&mut self, now: Instant, to: u16, key: Key) {
        let turn = self.turns.entry(to).or_default();
        let hold = turn.now.map(|(hold, _)| hold);
        turn.go_on(now, hold);
        turn.left = turn.left.saturating_sub(1);
        self.sent.push((key, core::mem::take(&mut turn.held)));
    }

    /// A frame was taken, so long after it was sent.
    pub fn took(&mut self, key: Key, after: Span) {
        self.taken.push((key, after));
    }

    /// Frames that were sent, each as often as it was.
    pub(super) fn sent(&self) -> &[(Key, Held)] {
        &self.sent
    }

    /// Frames that were taken.
    pub(super) fn taken(&self) -> &[(Key, Span)] {
        &self.taken
    }
}
