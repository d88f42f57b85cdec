//! Timers of frames that wait for an ACK.
//!
//! Of each queue pair the oldest slot has one, if it waits for an ACK: so few are looked at, however many frames are in flight.
//! They go by a stopwatch of their virtual channel, which stands while that is paused: a timer has ended when the stopwatch
//! shows so much more than at its start, and no list has to be changed at a pause.
//!
//! [`Timers::note`] when a slot is sent, [`Timers::start`], [`Timers::restart`] and [`Timers::end`] as it becomes the oldest
//! one; [`Timers::soonest`] is the first to end.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1", "TYPE2".

use weft_dataplane::time::{Instant, Span};

use super::list::List;
use super::{Slot, State, VCS};

/// The timers of an endpoint.
#[derive(Debug)]
pub(super) struct Timers {
    /// How long one runs.
    time: Span,
    /// By VC: slots whose timers run, the one that began first in front.
    lists: [List; VCS],
    stopwatches: [Stopwatch; VCS],
    /// None ends before; `None` while none runs.
    quiet: Option<Instant>,
    /// Whether a timer goes from when its frame was sent, whatever has been acknowledged since.
    are_own: bool,
}

impl Timers {
    /// None runs; each is to run for `time`.
    pub const fn new(time: Span) -> Self {
        let (lists, stopwatches) = ([List::EMPTY; VCS], [Stopwatch::RUNNING; VCS]);
        Self { time, lists, stopwatches, quiet: None, are_own: false }
    }

    /// From now on each goes from when its frame was sent, whatever has been acknowledged since.
    pub const fn make_own(&mut self) {
        self.are_own = true;
    }

    /// A slot is sent at `now`.
    #[inline]
    pub fn note(&self, now: Instant, slot: &mut Slot) {
        if let Some(watch) = self.stopwatches.get(usize::from(slot.vc)) {
            slot.timer = watch.read(now);
        }
    }

    /// The timer of slot `index` runs, from what was noted.
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

    /// All before slot `index` is acknowledged: its timer runs from now on, if it waits for an ACK.
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

    /// The timer of slot `index`, which is the oldest one, ends if it runs.
    #[inline]
    pub fn end(&mut self, all: &mut [Slot], index: u16) {
        let slot = all.get(usize::from(index)).filter(|slot| slot.state == State::WaitAck);
        if let Some(list) = slot.and_then(|slot| self.lists.get_mut(usize::from(slot.vc))) {
            list.remove(all, index, |slot| &mut slot.by_timer);
        }
    }

    /// Nothing waits for an ACK.
    #[inline]
    pub const fn rest(&mut self) {
        self.quiet = None;
    }

    /// From `now` on the timers of `vcs`, as bits, stand and those of all others run.
    pub fn stop(&mut self, now: Instant, vcs: u8, all: &[Slot]) {
        let mut is_changed = false;
        for (vc, watch) in (0_u8..).zip(&mut self.stopwatches) {
            is_changed |= watch.set(now, vcs >> vc & 1 != 0);
        }
        if is_changed {
            self.look(all);
        }
    }

    /// Before this none ends, but it may be that none does then: that is not looked up at each ACK.
    #[inline]
    pub const fn quiet(&self) -> Option<Instant> {
        self.quiet
    }

    /// Whether one may have ended.
    #[inline]
    pub fn is_late(&self, now: Instant) -> bool {
        self.quiet.is_some_and(|quiet| quiet <= now)
    }

    /// Looks up when the first one ends, and of which slot that is.
    pub fn look<'a>(&mut self, all: &'a [Slot]) -> Option<(Instant, &'a Slot)> {
        let soonest = self.soonest(all);
        self.quiet = soonest.map(|(at, _)| at);
        soonest
    }

    /// When the first one ends, and of which slot that is; `None` while none runs.
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
        // A frame's own timer may have begun before that in front. Few are looked at, as few are in flight.
        if self.are_own { slots.min_by_key(|slot| slot.timer) } else { slots.next() }
    }
}

/// A clock that can be stopped.
#[derive(Clone, Copy, Debug)]
struct Stopwatch {
    /// For how long it has been stopped, not counting since `since`.
    stopped: Span,
    /// Since when it has been stopped.
    since: Option<Instant>,
}

impl Stopwatch {
    /// It has never been stopped.
    const RUNNING: Self = Self { stopped: Span::ZERO, since: None };

    /// Stops it at `now`, or lets it run; whether that is a change.
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

    /// What it shows at `now`.
    #[inline]
    fn read(&self, now: Instant) -> Instant {
        self.since.unwrap_or(now) - self.stopped
    }

    /// When it will show `reading`; `None` while it is stopped.
    #[inline]
    fn when(&self, reading: Instant) -> Option<Instant> {
        self.since.is_none().then(|| reading + self.stopped)
    }
}
