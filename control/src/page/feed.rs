//! The state that the page shows: read once for all viewers, and not at all without any.
//!
//! [`Feed::latest`] gives a numbered [`PageState`] as JSON; [`Viewers`] has places for a few clients. Times are in
//! milliseconds, in reports in nanoseconds since the switch started.
//!
//! Source: docs/page.md.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_dataplane::worker::Clock;

use crate::report::StatsSnapshot;
use crate::report::pauses::{PauseReport, Pauses};
use crate::requests::Backend;

const EVERY_MS: u64 = 200;
/// Least time between two reads.
pub const EVERY: Duration = Duration::from_millis(EVERY_MS);
/// Clients that may be sent events at a time.
pub const VIEWERS: usize = 8;
/// Reads whose pauses a state repeats, for clients that miss some states.
const READS: usize = 5;
/// Pauses in a state at most; the oldest are left out.
const PAUSES: usize = 2_000;

/// State of a switch at one moment, for the page.
#[derive(Clone, Debug, Serialize)]
pub struct PageState {
    /// Number of the read.
    pub number: u64,
    /// The report of `weft show all` without `conservation`: workers run while it is read, so it would not add up.
    pub switch: Value,
    /// Pauses that ended within the last reads, and those that go on.
    pub pauses: Vec<PauseReport>,
    /// Pauses of these reads that were left out, and edges that were overwritten before they were read.
    pub pauses_lost: u64,
    /// `None` on the page of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viewers: Option<ViewerCounts>,
}

/// Counters of the clients that are sent events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewerCounts {
    pub open: usize,
    /// Places for them.
    pub most: usize,
    /// Clients that found no place.
    pub refused: usize,
    /// Clients that were sent away because they did not take an event in time.
    pub slow: usize,
}

impl PageState {
    /// The state for `stats`, with the pauses that were read at the same time.
    #[must_use]
    pub fn new(
        number: u64,
        stats: &StatsSnapshot,
        pauses: Vec<PauseReport>,
        pauses_lost: u64,
    ) -> Self {
        let mut switch = serde_json::to_value(stats).unwrap_or_default();
        if let Some(switch) = switch.as_object_mut() {
            switch.remove("conservation");
        }
        Self { number, switch, pauses, pauses_lost, viewers: None }
    }
}

/// Pauses that go on, with the port names of `stats`.
#[must_use]
pub fn open_pauses(pauses: &Pauses, stats: &StatsSnapshot) -> Vec<PauseReport> {
    let name = |id: PortId| {
        let port = stats.ports.iter().find(|port| port.port == id.get());
        port.map_or_else(|| id.get().to_string(), |port| port.name.clone())
    };
    pauses.open(&name)
}

/// Places for clients that are sent events.
#[derive(Debug, Default)]
pub struct Viewers {
    open: AtomicUsize,
    refused: AtomicUsize,
    slow: AtomicUsize,
}

/// A client's place; given back when dropped.
#[derive(Debug)]
pub struct Viewer<'a>(&'a Viewers);

impl Viewers {
    /// Takes a place; `None` if all are taken.
    #[must_use]
    pub fn enter(&self) -> Option<Viewer<'_>> {
        let enter = |open: usize| (open < VIEWERS).then_some(open + 1);
        if self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok() {
            return Some(Viewer(self));
        }
        self.refused.fetch_add(1, Ordering::Relaxed); // a count
        None
    }

    fn counts(&self) -> ViewerCounts {
        let [open, refused, slow] = [&self.open, &self.refused, &self.slow];
        let [open, refused, slow] = [open, refused, slow].map(|it| it.load(Ordering::Relaxed));
        ViewerCounts { open, most: VIEWERS, refused, slow }
    }
}

impl Viewer<'_> {
    /// Counts it as too slow to take an event in time.
    pub fn is_slow(&self) {
        self.0.slow.fetch_add(1, Ordering::Relaxed); // a count
    }
}

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed); // a count
    }
}

#[derive(Default)]
struct Latest {
    number: u64,
    at: Option<Instant>,
    text: Arc<str>,
    pauses: Pauses,
    /// By read, the pauses that ended before it.
    ended: VecDeque<Vec<PauseReport>>,
    lost: u64,
}

/// The feed of one switch for all viewers.
pub struct Feed {
    backend: Arc<dyn Backend>,
    clock: Clock,
    latest: Mutex<Latest>,
    pub viewers: Viewers,
}

impl Feed {
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let (latest, viewers) = (Mutex::default(), Viewers::default());
        Self { backend, clock: Clock::start(), latest, viewers }
    }

    /// The state and its number: the last one if it is younger than [`EVERY`], else one that is read now. Clients that
    /// ask meanwhile wait for it and get the same.
    #[must_use]
    pub fn latest(&self) -> (u64, Arc<str>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if latest.at.is_none_or(|at| now.since(at) >= Span::from_ms(EVERY_MS)) {
            // Set before the read, which takes time: the next read is due `EVERY` after this one began.
            latest.at = Some(now);
            self.read(&mut latest);
        }
        (latest.number, latest.text.clone())
    }

    /// Time until the next state is due.
    #[must_use]
    pub fn due_in(&self) -> Duration {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let age = latest.at.map_or(0, |at| self.clock.now().since(at).as_ns());
        // At least a millisecond, so that a client's thread does not spin while another one reads.
        EVERY.saturating_sub(Duration::from_nanos(age)).max(Duration::from_millis(1))
    }

    fn read(&self, latest: &mut Latest) {
        let stats = self.backend.look(&mut latest.pauses);
        latest.ended.push_back(latest.pauses.take_ended());
        if latest.ended.len() > READS {
            latest.ended.pop_front();
        }
        let open = open_pauses(&latest.pauses, &stats);
        let mut pauses: Vec<PauseReport> =
            latest.ended.iter().flatten().cloned().chain(open).collect();
        let over = pauses.len().saturating_sub(PAUSES);
        pauses.drain(..over);
        // Lost edges are a running total; each state tells those since the last one.
        let lost = latest.pauses.lost() - latest.lost + over as u64;
        latest.lost = latest.pauses.lost();
        latest.number += 1;
        let mut state = PageState::new(latest.number, &stats, pauses, lost);
        state.viewers = Some(self.viewers.counts());
        latest.text = serde_json::to_string(&state).unwrap_or_default().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::testing::Recorder;

    #[test]
    fn one_read_is_for_all_who_look_and_none_is_made_for_nobody() {
        let backend = Arc::new(Recorder::default());
        let reads = || backend.0.lock().unwrap().len();
        let feed = Feed::new(backend.clone());
        assert_eq!(reads(), 0);
        let first = feed.latest();
        assert_eq!(first.0, 1);
        for _ in 0..100 {
            let (number, _) = feed.latest();
            assert!(number <= reads() as u64);
        }
        // However slow this machine is: as many reads as numbers, and no two within the time of one.
        assert_eq!(reads() as u64, feed.latest().0);
        let wanted = feed.latest().0 + 1;
        weft_base::wait::until(weft_base::wait::LONG, "the next read", || {
            (feed.latest().0 >= wanted).then_some(())
        });
        let state: Value = serde_json::from_str(&feed.latest().1).unwrap();
        assert_eq!(state["switch"]["switch"], "s");
        assert!(state["switch"].get("conservation").is_none());
        assert!(state["switch"]["queues"].is_array());
    }

    #[test]
    fn places_are_counted() {
        let viewers = Viewers::default();
        let all: Vec<_> = (0..VIEWERS).map(|_| viewers.enter().unwrap()).collect();
        assert!(viewers.enter().is_none());
        all.first().unwrap().is_slow();
        drop(all);
        let counts = ViewerCounts { open: 0, most: VIEWERS, refused: 1, slow: 1 };
        assert_eq!(viewers.counts(), counts);
        assert!(viewers.enter().is_some());
    }
}
