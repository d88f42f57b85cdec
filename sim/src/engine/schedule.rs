//! The schedule: which component is due first.
//!
//! [`Schedule::turn`] gives that component. After its step, [`Schedule::stepped`] takes the time at which it wants the
//! next one, and makes the receivers of its frames due when the frames arrive. Other components are not stepped.
//!
//! Source: docs/spec/model.md §1.

use weft_base::sync::{Arc, AtomicU64, Ordering};
use weft_dataplane::port::wire::WireEnd;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PORTS_MAX, PortSet};

use super::cables::{Cables, Links};
use super::tournament::Tournament;

/// Ports of a component to which frames were sent since its last step, or that were changed from outside, as bits.
pub(super) struct Arrivals(AtomicU64);

impl Arrivals {
    /// Notes that frames are on their way to `ports`.
    #[inline]
    fn add(&self, ports: PortSet) {
        self.0.fetch_or(ports.bits(), Ordering::Release); // who takes the ports sees the frames
    }

    /// Takes the ports, after which none are noted.
    #[inline]
    fn take(&self) -> PortSet {
        // Mostly there are none, and a load costs less than a swap. A port that another thread adds meanwhile is seen
        // after the threads' next meeting, before the component is due for it.
        if self.0.load(Ordering::Relaxed) == 0 {
            return PortSet::EMPTY;
        }
        PortSet::from_bits(self.0.swap(0, Ordering::Acquire)) // pairs with `add`
    }
}

/// All components, and when each is due.
pub struct Schedule {
    pub(super) due: Tournament,
    pub(super) links: Arc<[Links]>,
    pub(super) arrivals: Arc<[Arrivals]>,
    /// By component, the least time from a step of any peer until the component is due for a frame sent in that step;
    /// `None` without peers.
    pub(super) lookahead: Arc<[Option<Span>]>,
    pub(super) now: Instant,
}

impl Schedule {
    /// A schedule of the components that `cables` connect, all due at once; also returns the cable ends of each, by
    /// port, `None` where there is no cable.
    #[must_use]
    pub fn new(cables: Cables) -> (Self, Vec<Vec<Option<WireEnd>>>) {
        let (links, ends) = cables.finish();
        let mut due = Tournament::new(links.len());
        for component in 0..links.len() {
            due.set(component, Some(Instant::ZERO));
        }
        // At the first step everything counts as changed.
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

    /// Last instant before anything that another component does from `now` on can reach `component`, if none is due
    /// before `now`.
    #[inline]
    pub(super) fn horizon(&self, component: usize, now: Instant) -> Instant {
        // One picosecond less: a frame sent at `now` may arrive exactly one lookahead later.
        match self.lookahead.get(component) {
            Some(Some(least)) => now + *least - Span::from_ps(1),
            _ => Instant::from_ps(u64::MAX),
        }
    }

    /// Virtual time of the run.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// When the first component is due; never before now.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.next().map(|at| at.max(self.now))
    }

    /// When `component` is due, if it is.
    #[must_use]
    pub fn due(&self, component: usize) -> Option<Instant> {
        self.due.due(component)
    }

    /// The component that is due first, if that is by `end`; virtual time moves there. It stays due until
    /// [`Self::stepped`] is called.
    #[inline]
    pub fn turn(&mut self, end: Instant) -> Option<usize> {
        let (at, component) = self.due.first().filter(|&(at, _)| at <= end)?;
        self.now = self.now.max(at);
        Some(component)
    }

    /// Takes the ports of `component`, which is about to be stepped, to which frames are on their way or that were
    /// changed from outside since its last step. A frame may be reported before the component is due for it.
    #[inline]
    #[must_use]
    pub fn arrived(&self, component: usize) -> PortSet {
        self.arrivals.get(component).map_or(PortSet::EMPTY, Arrivals::take)
    }

    /// Notes a step of `component`: it is next due at `next`, or when a frame arrives before; receivers of its frames
    /// are due when the first of these arrives.
    ///
    /// # Panics
    /// If there is no such component.
    #[inline]
    pub fn stepped(&mut self, component: usize, next: Option<Instant>) {
        self.stepped_with(component, next, Tournament::bring_forward);
    }

    /// Like [`Self::stepped`]; `arrives` is called for each receiver with the time at which it is due.
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
                // Noted before the receiver is made due: when it is stepped, the port is among those to look at.
                if let Some(arrivals) = self.arrivals.get(peer.component) {
                    arrivals.add(PortSet::only(peer.port));
                }
                arrives(&mut self.due, peer.component, at + peer.latency);
            }
        }
    }

    /// Makes `component` due now, as it was changed from outside.
    ///
    /// # Panics
    /// If there is no such component.
    pub fn wake(&mut self, component: usize) {
        if let Some(arrivals) = self.arrivals.get(component) {
            // The caller does not say which ports were changed.
            arrivals.add(PortSet::first(PORTS_MAX));
        }
        self.due.bring_forward(component, self.now);
    }

    /// Moves virtual time on to `end`; no component may be due before.
    pub fn rest(&mut self, end: Instant) {
        self.now = self.now.max(end);
    }
}
