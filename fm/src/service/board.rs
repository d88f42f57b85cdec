//! Status board: the manager's status and events, readable while it works.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_parsers::fabric::Pid;

use super::status::{EventRecord, Status};
use crate::model::graph::PortRef;
use crate::show::display_names::DisplayNames;

/// Events of the manager's own that are kept.
pub const OWN_MAX: usize = 2_048;
/// Events caused by components that are kept in all.
pub const CAUSED_MAX: usize = 2_048;
/// Events that are kept of one component.
pub const SHARE_MAX: usize = 64;

/// A component that can cause events at any rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// A G-FAM device, by its notifications.
    Gfd(Pid),
    /// The component at a port, by announcements that its switch refuses.
    Port(PortRef),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gfd(pid) => write!(f, "GFD {pid}"),
            Self::Port(at) => write!(f, "{at}"),
        }
    }
}

/// Events of one cause, the oldest first.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<EventRecord>,
    /// Number of events dropped, and the number of the last one of these.
    gone: u64,
    last_gone: u64,
}

impl Kept {
    fn forget_one(&mut self) {
        if let Some(event) = self.events.pop_front() {
            (self.gone, self.last_gone) = (self.gone + 1, event.number);
        }
    }

    /// Events after a number, preceded by a line that says how many were dropped.
    fn after(&self, number: u64, of: impl fmt::Display) -> impl Iterator<Item = EventRecord> {
        let what = format!("{} earlier events of {of} are not kept any more", self.gone);
        let gone = EventRecord { number: self.last_gone, what };
        let gone = Some(gone).filter(|gone| self.gone > 0 && gone.number > number);
        gone.into_iter().chain(self.events.iter().filter(move |it| it.number > number).cloned())
    }
}

#[derive(Debug, Default)]
struct BoardState {
    status: Status,
    own: Kept,
    /// Events caused by components, each with its own limit, so that none pushes out those of others.
    caused: BTreeMap<Cause, Kept>,
    /// Number of events in `caused`.
    count: usize,
    called: DisplayNames,
}

impl BoardState {
    /// Records an event. At a cause's limit its own oldest event goes; at the limit of all, the oldest one of the cause
    /// that has most.
    fn record(&mut self, cause: Option<Cause>, what: String) {
        self.status.events += 1;
        let event = EventRecord { number: self.status.events, what };
        let Some(cause) = cause else {
            self.own.events.push_back(event);
            if self.own.events.len() > OWN_MAX {
                self.own.forget_one();
            }
            return;
        };
        let kept = self.caused.entry(cause).or_default();
        kept.events.push_back(event);
        if kept.events.len() > SHARE_MAX {
            // One came and one went: `count` stays.
            return kept.forget_one();
        }
        self.count += 1;
        if self.count > CAUSED_MAX
            && let Some(most) = self.caused.values_mut().max_by_key(|kept| kept.events.len())
        {
            most.forget_one();
            self.count -= 1;
        }
    }
}

/// The manager's status and latest events, for other threads to read.
#[derive(Debug, Default)]
pub struct StatusBoard(Mutex<BoardState>);

impl StatusBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let inside = self.lock();
        let mut status = inside.status.clone();
        // Names are put in when the status is read: they may have changed since the text was made.
        let said = status.errors.iter_mut().chain(&mut status.failed);
        said.for_each(|text| *text = inside.called.told(text));
        status
    }

    /// Sets the names of components in status and events from now on.
    pub(super) fn name(&self, called: DisplayNames) {
        self.lock().called = called;
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock().status);
    }

    /// Records an event of the manager's own.
    pub(crate) fn record_event(&self, what: impl Into<String>) {
        let mut inside = self.lock();
        let what = inside.called.told(&what.into());
        inside.record(None, what);
    }

    /// Records an event that a component can cause at any rate.
    pub(crate) fn record_caused(&self, cause: Cause, what: &str) {
        let mut inside = self.lock();
        let what = inside.called.told(what);
        inside.record(Some(cause), what);
    }

    /// Records an event unless it repeats the last one, so that a failure at each attempt appears once.
    pub(crate) fn record_change(&self, what: impl Into<String>) {
        let mut inside = self.lock();
        let what = inside.called.told(&what.into());
        if inside.own.events.back().is_none_or(|last| last.what != what) {
            inside.record(None, what);
        }
    }

    /// Events after a number, and how many of these were dropped.
    #[must_use]
    pub fn events(&self, after: u64) -> Vec<EventRecord> {
        let inside = self.lock();
        let own = inside.own.after(after, "the fabric manager");
        let caused = inside.caused.iter();
        let caused = caused
            .flat_map(|(cause, kept)| kept.after(after, inside.called.told(&cause.to_string())));
        let mut events: Vec<EventRecord> = own.chain(caused).collect();
        // Clients ask for the events after the last number they have seen.
        events.sort_by_key(|event| event.number);
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::graph::SwitchId;

    fn said(board: &StatusBoard, what: &str) -> usize {
        board.events(0).iter().filter(|event| event.what.contains(what)).count()
    }

    /// docs/fm.md "Refused accesses": a cause that floods pushes out its own events, and the board counts those gone.
    #[test]
    fn who_causes_many_events_pushes_out_its_own() {
        let board = StatusBoard::default();
        let port = |switch, port| Cause::Port(PortRef::new(SwitchId(switch), port));
        board.record_event("found it");
        board.record_caused(port(0, 1), "an honest host");
        let hostile = Cause::Gfd(Pid::from_low_bits(7));
        for number in 0..10_000 {
            board.record_caused(hostile, &format!("flood {number}"));
        }
        assert_eq!((said(&board, "found it"), said(&board, "honest")), (1, 1));
        assert_eq!((said(&board, "flood"), said(&board, "flood 9999")), (SHARE_MAX, 1));
        let gone = format!("{} earlier events of GFD 007 are not kept", 10_000 - SHARE_MAX);
        assert_eq!(said(&board, &gone), 1);
        // A client that asks for new events learns of those that it missed, and of no others.
        let last = board.events(0).last().unwrap().number;
        assert_eq!(board.events(last), []);
        board.record_caused(hostile, "one more");
        assert_eq!(board.events(last).len(), 1);
        // Many causes that flood push out each other's events, not those of a quiet cause, nor the manager's own.
        for number in 0..5 * u32::try_from(CAUSED_MAX).unwrap() {
            let [_, _, high, low] = number.to_be_bytes();
            board.record_caused(port(u16::from(high) % 16 + 1, low), "many");
        }
        assert_eq!((said(&board, "found it"), said(&board, "honest")), (1, 1));
        let kept: usize = board.lock().caused.values().map(|kept| kept.events.len()).sum();
        assert_eq!((kept, board.lock().count), (CAUSED_MAX, CAUSED_MAX));
        for number in 0..=OWN_MAX {
            board.record_event(format!("own {number}"));
        }
        assert_eq!((said(&board, "found it"), said(&board, "own ")), (0, OWN_MAX));
        assert_eq!(
            (said(&board, "2 earlier events of the fabric manager"), said(&board, "honest")),
            (1, 1)
        );
        let numbers: Vec<u64> = board.events(0).iter().map(|event| event.number).collect();
        assert!(numbers.is_sorted());
    }
}
