//! Queue of work in order of arrival, each item once it is due.
//!
//! [`DueQueue::push`] takes an item and its time; [`DueQueue::run`] takes steps of the items that are due. Items not
//! yet due share [`HELD_MAX`] places, of which one requester may have as many as are free: however much of one
//! requester is held up, others find places.
//!
//! Source: docs/spec/cxl-fabric.md "Load of the device"; dynamic thresholds of Choudhury and Hahne (1998), with a
//! factor of 1.

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;

use super::config::{HELD_MAX, PLACED_MAX, QUEUED_MAX};
use crate::tlp_end::TlpEnd;

/// Result of one step of an item.
pub(super) enum JobStep {
    /// Done; the next item follows.
    Done,
    /// More steps follow at once.
    More,
    /// It cannot go on now, and nor can the items behind it.
    Wait,
}

/// An item that is done for a requester.
pub(super) trait DueJob: Copy {
    fn requester(&self) -> Pid;
}

/// Items, each of which is done at its time or later.
#[derive(Debug)]
pub(super) struct DueQueue<T> {
    ready: VecDeque<T>,
    later: Vec<(Instant, T)>,
    held: Vec<u16>, // of `later`, by requester
    next: Option<Instant>,
}

impl<T: DueJob> DueQueue<T> {
    pub(super) fn new(room: usize) -> Self {
        let (ready, held) = (VecDeque::with_capacity(room), vec![0; Pid::COUNT]);
        Self { ready, later: Vec::new(), held, next: None }
    }

    /// Whether another item of a requester may be pushed, even if it is held up.
    pub(super) fn has_room(&self, requester: Pid) -> bool {
        let held = self.held.get(requester.index()).copied().unwrap_or_default();
        // The bound of all; the dynamic threshold below leaves the last places to requesters that have few.
        let is_full = self.ready.len() + self.later.len() >= QUEUED_MAX;
        !is_full && usize::from(held) < HELD_MAX.saturating_sub(self.later.len())
    }

    /// Number of items that are due; those held up by a limit are not.
    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn push(&mut self, now: Instant, due: Instant, what: T) {
        if due <= now {
            self.ready.push_back(what);
        } else {
            self.next = Some(self.next.map_or(due, |next| next.min(due)));
            self.later.push((due, what));
            if let Some(held) = self.held.get_mut(what.requester().index()) {
                *held += 1;
            }
        }
    }

    /// Moves items that are due to `ready`, in order of arrival; returns when the next one is due.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        // Most polls end here, without a look at each item of `later`.
        if self.next.is_none_or(|next| next > now) {
            return self.next;
        }
        self.next = None;
        let Self { ready, later, held, next } = self;
        later.retain(|&(due, what)| {
            let waits = due > now;
            if waits {
                *next = Some(next.map_or(due, |next| next.min(due)));
            } else {
                ready.push_back(what);
                if let Some(held) = held.get_mut(what.requester().index()) {
                    *held = held.saturating_sub(1);
                }
            }
            waits
        });
        self.next
    }

    /// Takes steps of the items that are due, while `end` has room for their frames; returns when the next item is due.
    pub(super) fn run(
        &mut self,
        now: Instant,
        end: &mut TlpEnd,
        mut step: impl FnMut(&mut T, &mut TlpEnd) -> JobStep,
    ) -> Option<Instant> {
        let next = self.ripen(now);
        // Answers stay here rather than in chunks while the port is full: chunks are shared with receiving, and PFC may
        // pause this priority for long.
        while end.waiting() < PLACED_MAX
            && let Some(one) = self.ready.front_mut()
        {
            match step(one, end) {
                JobStep::Done => drop(self.ready.pop_front()),
                JobStep::More => {}
                JobStep::Wait => break,
            }
        }
        next
    }
}
