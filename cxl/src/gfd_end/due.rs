//! What is to be done, in order of arrival once it is due.
//!
//! Shape: [`DueQueue::push`] with a time; [`DueQueue::run`] takes the steps of what is due.
//! Units: none.
//! Source: none of its own.

use std::collections::VecDeque;

use weft_dataplane::time::Instant;

use super::config::PLACED_MAX;
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

/// Things to be done, each not before its time.
#[derive(Debug)]
pub(super) struct DueQueue<T> {
    ready: VecDeque<T>,
    later: Vec<(Instant, T)>,
    next: Option<Instant>,
}

impl<T: Copy> DueQueue<T> {
    pub(super) fn new(room: usize) -> Self {
        Self { ready: VecDeque::with_capacity(room), later: Vec::new(), next: None }
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.later.len()
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
        }
    }

    /// Makes ready what is due, in order of arrival; returns when the next one is.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        if self.next.is_none_or(|next| next > now) {
            return self.next;
        }
        self.next = None;
        let Self { ready, later, next } = self;
        later.retain(|&(due, what)| {
            let waits = due > now;
            if waits {
                *next = Some(next.map_or(due, |next| next.min(due)));
            } else {
                ready.push_back(what);
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
