//! Schedule: which component is due first.
//!
//! [`Schedule::turn`] is that component; after its step, [`Schedule::stepped`] takes when it wants the next one,
//! and has whoever it sent frames to due when these are in. Nobody else is stepped.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §1.

use weft_base::sync::{Arc, AtomicU64, Ordering};
use weft_dataplane::port::wire::WireEnd;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PORTS_MAX, PortSet};

use super::cables::{Cables, Links};
use super::tournament::Tournament;

/// Ports of a component to which something was sent since it was last stepped, or which were changed from outside.
pub(super) struct Arrivals(AtomicU64);

impl Arrivals {
    /// Frames are on their way to `ports`.
    #[inline]
    fn add(&self, ports: PortSet) {
        self.0.fetch_or(ports.bits(), Ordering::Release); // who takes the ports sees the frames
    }

    /// The ports; none are left.
    #[inline]
    fn take(&self) -> PortSet {
        if self.0.load(Ordering::Relaxed) == 0 {
            return PortSet::EMPTY;
        }
        PortSet::from_bits(self.0.swap(0, Ordering::Acquire)) // pairs with `add`
    }
}

/// When each component is due.
pub struct Schedule {
    pub(super) due: Tournament,
    pub(super) links: Arc<[Links]>,
    pub(super) arrivals: Arc<[Arrivals]>,
    /// By component: the least time from a step of anybody to when it is due for what is sent then.
    pub(super) lookahead: Arc<[Option<Span>]>,
    pub(super) now: Instant,
}

impl Schedule {
    /// Of the components that `cables` join, all of which are due at once; with the ends of each one's cables, by port,
    /// `None` where there is no cable.
    #[must_use]
    pub fn new(cables: Cables) -> (Self, Vec<Vec<Option<WireEnd>>>) {
        let (links, ends) = cables.finish();
        let mut due = Tournament::new(links.len());
        for component in 0..links.len() {
            due.set(component, Some(Instant::ZERO));
        }
        let every = PortSet::first(PORTS_MAX).bits();
        let arrivals = links.iter().map(|_| Arrivals(AtomicU64::new(every))).collect();
        let mut lookahead = vec![None; links.len()];
        for peer in links.iter().flat_map(|links| links.peers.iter().flatten()) {
            if let Some(least) = lookahead.get_mut(peer.component) {
                *least = Some(least.map_or(peer.delay, |least: Span| least.min(peer.delay)));
            }
        }
        let (links, lookahead) = (links.into(), lookahead.into());
        (Self { due, links, arrivals, lookahead, now: Instant::ZERO }, ends)
    }

    /// Until when nothing reaches `component` that anybody does at `now` or later, where nobody is due before `now`.
    #[inline]
    pub(super) fn horizon(&self, component: usize, now: Instant) -> Instant {
        match self.lookahead.get(component) {
            Some(Some(least)) => now + *least - Span::from_ps(1),
            _ => Instant::from_ps(u64::MAX),
        }
    }

    /// Where the run has come to.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// When the first component is due.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.next().map(|at| at.max(self.now))
    }

    /// When `component` is due.
    #[must_use]
    pub fn due(&self, component: usize) -> Option<Instant> {
        self.due.due(component)
    }

    /// The component that is due first, if it is due by `end`: time moves there. [`Self::stepped`] follows; until then the
    /// component stays due.
    #[inline]
    pub fn turn(&mut self, end: Instant) -> Option<usize> {
        let (at, component) = self.due.first().filter(|&(at, _)| at <= end)?;
        self.now = self.now.max(at);
        Some(component)
    }

    /// Ports of `component`, which is about to be stepped, to which frames are on their way since its last step, or which were
    /// changed from outside; it may hear of a frame before it is due for it.
    #[inline]
    #[must_use]
    pub fn arrived(&self, component: usize) -> PortSet {
        self.arrivals.get(component).map_or(PortSet::EMPTY, Arrivals::take)
    }

    /// After the step of `component`: it is next due at `next`, unless a frame comes before, and who it has sent frames
    /// to when the first of these is in.
    ///
    /// # Panics
    /// When there is no such component.
    #[inline]
    pub fn stepped(&mut self, component: usize, next: Option<Instant>) {
        self.stepped_with(component, next, Tournament::bring_forward);
    }

    /// As [`Self::stepped`]; `arrives` hears who is due for a frame, and when.
    #[inline]
    pub(super) fn stepped_with(
        &mut self,
        component: usize,
        next: Option<Instant>,
        mut arrives: impl FnMut(&mut Tournament, usize, Instant),
    ) {
        self.due.set(component, next);
        let Some(links) = self.links.get(component) else { return };
        for (port, at) in links.departures.take() {
            if let Some(Some(peer)) = links.peers.get(port.index()) {
                if let Some(arrivals) = self.arrivals.get(peer.component) {
                    arrivals.add(PortSet::only(peer.port));
                }
                arrives(&mut self.due, peer.component, at + peer.latency);
            }
        }
    }

    /// Has `component` due now: something has changed about it from outside.
    ///
    /// # Panics
    /// When there is no such component.
    pub fn wake(&mut self, component: usize) {
        if let Some(arrivals) = self.arrivals.get(component) {
            arrivals.add(PortSet::first(PORTS_MAX));
        }
        self.due.bring_forward(component, self.now);
    }

    /// Moves time on to `end`, up to which nobody is due.
    pub fn rest(&mut self, end: Instant) {
        self.now = self.now.max(end);
    }
}
