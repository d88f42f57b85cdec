//! What the FM is doing, for who asks while it does it.
//!
//! Shape: [`StatusBoard`], shared: a [`Status`] and the last [`EventRecord`]s.
//! Units: none.
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::display_names::DisplayNames;
use super::status::{EventRecord, Status};

/// Events that are kept.
pub const EVENTS_MAX: usize = 4_096;

#[derive(Debug, Default)]
struct BoardState {
    status: Status,
    events: VecDeque<EventRecord>,
    /// What things are called.
    called: DisplayNames,
}

impl BoardState {
    /// Keeps an event as it is told; the oldest goes where there are too many.
    fn record(&mut self, what: String) {
        self.status.events += 1;
        let number = self.status.events;
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(EventRecord { number, what });
    }
}

/// The FM's status and last events, for other threads to read.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<BoardState>);

impl StatusBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The FM's status.
    #[must_use]
    pub fn status(&self) -> Status {
        let inside = self.lock();
        let mut status = inside.status.clone();
        let said = status.errors.iter_mut().chain(&mut status.failed);
        said.for_each(|text| *text = inside.called.with_names(text));
        status
    }

    /// Tells it what switches are called from now on.
    pub(super) fn name(&self, called: DisplayNames) {
        self.lock().called = called;
    }

    /// Changes that.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// Notes an event.
    pub(crate) fn record_event(&self, what: impl Into<String>) {
        let mut inside = self.lock();
        let what = inside.called.with_names(&what.into());
        inside.record(what);
    }

    /// Notes an event, unless it is the same as the last one: what fails at each try is told once.
    pub(crate) fn record_change(&self, what: impl Into<String>) {
        let mut inside = self.lock();
        let what = inside.called.with_names(&what.into());
        if inside.events.back().is_none_or(|last| last.what != what) {
            inside.record(what);
        }
    }

    /// Events after that of a number, as far as they are kept.
    #[must_use]
    pub fn events(&self, after: u64) -> Vec<EventRecord> {
        self.lock().events.iter().filter(|event| event.number > after).cloned().collect()
    }
}
