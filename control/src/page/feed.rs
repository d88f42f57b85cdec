//! What the page shows, read once for all who look, and not at all while nobody does.
//!
//! [`Feed::latest`] gives a numbered [`PageState`] as JSON; [`Viewers`] has a place for each of a few clients.
//!
//! Units: nanoseconds since the switch started; milliseconds.
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
/// Time between two reads.
pub const EVERY: Duration = Duration::from_millis(EVERY_MS);
/// Clients that are sent events at a time.
pub const VIEWERS: usize = 8;
/// Reads whose pauses a state has, for clients that do not take each one.
const READS: usize = 5;
/// Pauses that a state has at most; the oldest are left out.
const PAUSES: usize = 2_000;

/// What the page shows at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct PageState {
    /// Number of the read.
    pub number: u64,
    /// The report of `weft show all`, without `conservation`: workers go on while it is read.
    pub switch: Value,
    /// Pauses that ended within the last reads, and those that go on.
    pub pauses: Vec<PauseReport>,
    /// Pauses of these reads that are too many to be told, and begins and ends that were overwritten before they were read.
    pub pauses_lost: u64,
    /// Who looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viewers: Option<ViewerCounts>,
}

/// Who looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewerCounts {
    /// Clients that are sent events now.
    pub open: usize,
    /// How many may be.
    pub most: usize,
    /// Clients that found no place.
    pub refused: usize,
    /// Clients that were sent away, as they did not take an event in time.
    pub slow: usize,
}

impl PageState {
    /// Of `stats`, with what `pauses` has read by then.
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

/// Pauses that go on, by the names of `stats`.
#[must_use]
pub fn open_pauses(pauses: &Pauses, stats: &StatsSnapshot) -> Vec<PauseReport> {
    let name = |id: PortId| {
        let port = stats.ports.iter().find(|port| port.port == id.get());
        port.map_or_else(|| id.get().to_string(), |port| port.name.clone())
    };
    pauses.open(&name)
}

/// Clients that are sent events.
#[derive(Debug, Default)]
pub struct Viewers {
    open: AtomicUsize,
    refused: AtomicUsize,
    slow: AtomicUsize,
}

/// A client's place among those that are sent events.
#[derive(Debug)]
pub struct Viewer<'a>(&'a Viewers);

impl Viewers {
    /// A place; none if all are taken.
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
    /// Notes that it did not take an event in time.
    pub fn is_slow(&self) {
        self.0.slow.fetch_add(1, Ordering::Relaxed); // a count
    }
}

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed); // a count
    }
}

/// The last read.
#[derive(Default)]
struct Latest {
    number: u64,
    at: Option<Instant>,
    text: Arc<str>,
    pauses: Pauses,
    /// Pauses that ended, by read.
    ended: VecDeque<Vec<PauseReport>>,
    lost: u64,
}

/// What the page shows.
pub struct Feed {
    backend: Arc<dyn Backend>,
    clock: Clock,
    latest: Mutex<Latest>,
    /// Who looks.
    pub viewers: Viewers,
}

impl Feed {
    /// Of the switch behind `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        let (latest, viewers) = (Mutex::default(), Viewers::default());
        Self { backend, clock: Clock::start(), latest, viewers }
    }

    /// The state and its number: one that is younger than [`EVERY`], or one that is read now. Whoever asks meanwhile gets the
    /// same one.
    #[must_use]
    pub fn latest(&self) -> (u64, Arc<str>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if latest.at.is_none_or(|at| now.since(at) >= Span::from_ms(EVERY_MS)) {
            latest.at = Some(now);
            self.read(&mut latest);
        }
        (latest.number, latest.text.clone())
    }

    /// How long it is until the next state is due.
    #[must_use]
    pub fn due_in(&self) -> Duration {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let age = latest.at.map_or(0, |at| self.clock.now().since(at).as_ns());
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
