//! What is to be done, in order of arrival once it is due.
//!
//! [`DueQueue::push`] with a time; [`DueQueue::run`] takes the steps of what is due. What is not due yet takes places of
//! [`HELD_MAX`], of which a requester has at most as many as are free: however many are held up, others find some.
//!
//! Source: docs/spec/cxl-fabric.md "Load of the device"; dynamic thresholds of Choudhury and Hahne (1998), with a factor of 1.

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;

use super::config::{HELD_MAX, PLACED_MAX, QUEUED_MAX};
use crate::tlp_end::TlpEnd;

/// How far one of them came.
pub(super) enum JobStep {
    /// It is done: the next one.
    Done,
    /// More of it is to be done.
    More,
    /// It cannot go on now.
    Wait,
}

/// What is done for a requester.
pub(super) trait Owed: Copy {
    /// Who that is.
    fn requester(&self) -> Pid;
}

/// Things to be done, each not before its time.
#[derive(Debug)]
pub(super) struct DueQueue<T> {
    ready: VecDeque<T>,
    later: Vec<(Instant, T)>,
    held: Vec<u16>, // of `later`, by requester
    next: Option<Instant>,
}

impl<T: Owed> DueQueue<T> {
    pub(super) fn new(room: usize) -> Self {
        let (ready, held) = (VecDeque::with_capacity(room), vec![0; Pid::COUNT]);
        Self { ready, later: Vec::new(), held, next: None }
    }

    /// Whether one more of a requester's may be taken in, and held up.
    pub(super) fn has_room(&self, requester: Pid) -> bool {
        let held = self.held.get(requester.index()).copied().unwrap_or_default();
        let is_full = self.ready.len() + self.later.len() >= QUEUED_MAX;
        !is_full && usize::from(held) < HELD_MAX.saturating_sub(self.later.len())
    }

    /// Those that are due: what a limit holds up is not among them.
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

    /// Makes ready what is due, in order of arrival; returns when the next one is.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
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

    /// Takes steps of what is due, while `end` has room for what they place; returns when the next one is due.
    pub(super) fn run(
        &mut self,
        now: Instant,
        end: &mut TlpEnd,
        mut step: impl FnMut(&mut T, &mut TlpEnd) -> JobStep,
    ) -> Option<Instant> {
        let next = self.ripen(now);
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
