//! Retransmission timers of frames that wait for an ACK.
//!
//! Only the oldest slot of a queue pair has a timer, so that few are looked at however many frames are in flight.
//! Timers are readings of a stopwatch of their virtual channel, which stands still while PFC pauses the channel: a
//! timer has ended when the stopwatch has advanced by the timeout, and a pause changes no list.
//!
//! [`Timers::note`] is called when a slot is sent; [`Timers::start`], [`Timers::restart`] and [`Timers::end`] as it
//! becomes the oldest or is done; [`Timers::soonest`] is the first to end.
//!
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1", "TYPE2".

use weft_dataplane::time::{Instant, Span};

use super::list::List;
use super::{Slot, State, VCS};

/// All retransmission timers of an endpoint.
#[derive(Debug)]
pub(super) struct Timers {
    /// How long a timer runs.
    time: Span,
    /// By VC: slots whose timers run, in the order in which they began.
    lists: [List; VCS],
    stopwatches: [Stopwatch; VCS],
    /// No timer ends before this; `None` while none runs.
    quiet: Option<Instant>,
    /// Whether a timer counts from when its own frame was sent, whatever has been acknowledged since.
    are_own: bool,
}

impl Timers {
    /// No timer runs; each will run for `time`.
    pub const fn new(time: Span) -> Self {
        let (lists, stopwatches) = ([List::EMPTY; VCS], [Stopwatch::RUNNING; VCS]);
        Self { time, lists, stopwatches, quiet: None, are_own: false }
    }

    /// Has timers count from when their own frames were sent from now on.
    pub const fn make_own(&mut self) {
        self.are_own = true;
    }

    /// Notes that a slot is sent at `now`.
    #[inline]
    pub fn note(&self, now: Instant, slot: &mut Slot) {
        if let Some(watch) = self.stopwatches.get(usize::from(slot.vc)) {
            slot.timer = watch.read(now);
        }
    }

    /// Starts the timer of slot `index`, counting from the time noted.
    #[inline]
    pub fn start(&mut self, all: &mut [Slot], index: u16) {
        let Some(slot) = all.get(usize::from(index)) else { return };
        let (vc, end) = (usize::from(slot.vc), slot.timer + self.time);
        if let Some((list, watch)) = self.lists.get_mut(vc).zip(self.stopwatches.get(vc)) {
            list.push(all, index, |slot| &mut slot.by_timer);
            // while the stopwatch stands there is nothing to wait for
            self.quiet = Instant::earlier(self.quiet, watch.when(end));
        }
    }

    /// Starts the timer of slot `index`, which has just become the oldest, if it waits for an ACK.
    #[inline]
    pub fn restart(&mut self, now: Instant, all: &mut [Slot], index: u16) {
        let Some(slot) = all.get_mut(usize::from(index)) else { return };
        if slot.state == State::WaitAck {
            if !self.are_own {
                self.note(now, slot);
            }
            self.start(all, index);
        }
    }

    /// Stops the timer of slot `index`, the oldest of its queue pair, if it runs.
    #[inline]
    pub fn end(&mut self, all: &mut [Slot], index: u16) {
        let slot = all.get(usize::from(index)).filter(|slot| slot.state == State::WaitAck);
        if let Some(list) = slot.and_then(|slot| self.lists.get_mut(usize::from(slot.vc))) {
            list.remove(all, index, |slot| &mut slot.by_timer);
        }
    }

    /// Notes that no frame waits for an ACK.
    #[inline]
    pub const fn rest(&mut self) {
        self.quiet = None;
    }

    /// From `now` on the timers of `vcs` (bits) stand still, and all others run.
    pub fn stop(&mut self, now: Instant, vcs: u8, all: &[Slot]) {
        let mut is_changed = false;
        for (vc, watch) in (0_u8..).zip(&mut self.stopwatches) {
            is_changed |= watch.set(now, vcs >> vc & 1 != 0);
        }
        // A stopped channel has no end to wait for, and one that runs again has a later one.
        if is_changed {
            self.look(all);
        }
    }

    /// A time before which no timer ends. It may be too early, as it is not computed anew at each ACK.
    #[inline]
    pub const fn quiet(&self) -> Option<Instant> {
        self.quiet
    }

    /// Whether a timer may have ended at `now`.
    #[inline]
    pub fn is_late(&self, now: Instant) -> bool {
        self.quiet.is_some_and(|quiet| quiet <= now)
    }

    /// The timer that ends first, with its slot; [`Self::quiet`] is exact after that.
    pub fn look<'a>(&mut self, all: &'a [Slot]) -> Option<(Instant, &'a Slot)> {
        let soonest = self.soonest(all);
        self.quiet = soonest.map(|(at, _)| at);
        soonest
    }

    /// The timer that ends first, with its slot; `None` while none runs.
    pub fn soonest<'a>(&self, all: &'a [Slot]) -> Option<(Instant, &'a Slot)> {
        let fronts = self.lists.iter().zip(&self.stopwatches).filter_map(|(list, watch)| {
            let slot = self.first(all, *list)?;
            Some((watch.when(slot.timer + self.time)?, slot))
        });
        fronts.reduce(|soonest, other| if other.0 < soonest.0 { other } else { soonest })
    }

    /// The slot of a virtual channel whose timer began first.
    fn first<'a>(&self, all: &'a [Slot], list: List) -> Option<&'a Slot> {
        let next = |&index: &u16| List::after(all, index, |slot| slot.by_timer);
        let indices = core::iter::successors(list.first(), next);
        let mut slots = indices.filter_map(|index| all.get(usize::from(index)));
        // Here a timer may have begun before the one in front. The search is short, as few frames are in flight.
        if self.are_own { slots.min_by_key(|slot| slot.timer) } else { slots.next() }
    }
}

/// A clock that can be stopped and started again.
#[derive(Clone, Copy, Debug)]
struct Stopwatch {
    /// How long it has stood still in all, the stop that began at `since` aside.
    stopped: Span,
    /// When it was stopped, if it stands still.
    since: Option<Instant>,
}

impl Stopwatch {
    /// A stopwatch that has never been stopped.
    const RUNNING: Self = Self { stopped: Span::ZERO, since: None };

    /// Stops it at `now`, or starts it again; returns whether that is a change.
    fn set(&mut self, now: Instant, is_stopped: bool) -> bool {
        match self.since {
            None if is_stopped => self.since = Some(now),
            Some(since) if !is_stopped => {
                self.stopped = self.stopped + now.since(since);
                self.since = None;
            }
            _ => return false,
        }
        true
    }

    /// Its reading at `now`.
    #[inline]
    fn read(&self, now: Instant) -> Instant {
        self.since.unwrap_or(now) - self.stopped
    }

    /// When it will show `reading`; `None` while it stands still.
    #[inline]
    fn when(&self, reading: Instant) -> Option<Instant> {
        self.since.is_none().then(|| reading + self.stopped)
    }
}
