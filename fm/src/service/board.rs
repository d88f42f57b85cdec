//! What the FM is doing, for who asks while it does it.
//!
//! Shape: [`StatusBoard`], shared: a [`Status`] and the last [`EventRecord`]s.
//! Units: none.
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::display_names::DisplayNames;

/// Events that are kept.
pub const EVENTS_MAX: usize = 4_096;

/// How a fabric is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Switches have their tables from files of their own; the FM only looks.
    Static,
    /// Hosts are held until all is brought about.
    #[default]
    FmFirst,
    /// Hosts come up on empty hierarchies; what is bound later is a hot-add.
    Simultaneous,
}

/// How far the FM is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Start-up runs.
    #[default]
    Starting,
    /// The fabric is managed.
    Up,
    /// Another FM manages it, and this one may take over.
    Standby,
    /// The fabric could not be brought up; it is tried again.
    Failed,
}

/// Counts of what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Switches.
    pub switches: usize,
    /// Those of them that do not answer.
    pub silent: usize,
    /// GFDs.
    pub gfds: usize,
    /// Host edges with a PID.
    pub hosts: usize,
    /// Links between switches.
    pub links: usize,
    /// Those of them that are down.
    pub down: usize,
    /// Bindings, local ones and virtual links.
    pub bindings: usize,
    /// Shares of memory.
    pub shares: usize,
}

/// What the FM is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// How far it is.
    pub phase: Phase,
    /// What it does or did last.
    pub step: String,
    /// How the fabric is started.
    pub mode: Mode,
    /// Whether hosts have to wait.
    pub hosts_held: bool,
    /// UUID of this FM.
    pub manager: String,
    /// Its PID.
    pub pid: u16,
    /// What is not as it should be; the rest goes on.
    pub trouble: Vec<String>,
    /// Why it failed.
    pub failed: Option<String>,
    /// What there is.
    pub counts: Counts,
    /// Commands that were sent.
    pub calls: u64,
    /// Number of the last event.
    pub events: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number, from 1.
    pub number: u64,
    /// What.
    pub what: String,
}

#[derive(Debug, Default)]
struct BoardState {
    status: Status,
    events: VecDeque<EventRecord>,
    /// What things are called.
    called: DisplayNames,
}

/// What others may look at.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<BoardState>);

impl StatusBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the FM is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        let inside = self.lock();
        let mut status = inside.status.clone();
        let said = status.trouble.iter_mut().chain(&mut status.failed);
        said.for_each(|text| *text = inside.called.with_names(text));
        status
    }

    /// Tells it what switches are called from now on.
    pub(super) fn name(&self, called: DisplayNames) {
        self.lock().called = called;
    }

    /// Changes that.
    pub(super) fn set(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// Notes an event.
    pub(super) fn record_event(&self, what: impl Into<String>) {
        let mut inside = self.lock();
        inside.status.events += 1;
        let number = inside.status.events;
        if inside.events.len() >= EVENTS_MAX {
            inside.events.pop_front();
        }
        let what = inside.called.with_names(&what.into());
        inside.events.push_back(EventRecord { number, what });
    }

    /// Events after that of a number, as far as they are kept.
    #[must_use]
    pub fn events(&self, after: u64) -> Vec<EventRecord> {
        self.lock().events.iter().filter(|event| event.number > after).cloned().collect()
    }
}
