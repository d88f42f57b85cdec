//! The engine: steps components that are connected only by cables with a delay, each when it is due.
//!
//! [`Cables`] between the ports of [`Component`]s make an [`Engine`], which runs them on one thread or several; a
//! [`Schedule`] alone serves a caller that steps its components itself.
//!
//! As a frame takes time on a cable, others see a component's actions later than they happen. So the order of
//! components at one instant, and with it their numbers, decide nothing, and threads have to meet only once in the
//! least of these times. For the same reason a component whose turn it is goes on for as long as nothing that others do
//! meanwhile can reach it: that keeps its state in the caches.
//!
//! Source: docs/spec/model.md §1.

mod cables;
mod schedule;
mod sharing;
#[cfg(test)]
mod tests;
mod threads;
mod tournament;

use weft_dataplane::time::Instant;
use weft_dataplane::types::PortSet;

use self::sharing::Owners;

pub use cables::{CableError, CableSpec, Cables, Latency, Place};
pub use schedule::Schedule;

/// A switch or an endpoint, as the engine sees it.
pub trait Component: Send {
    /// Does all work that is due at `now`; returns when more is due, frames on their way to it included. Extra calls
    /// change nothing. Only ports in `arrived` may have frames on their way that the component was not told of before.
    fn step(&mut self, now: Instant, arrived: PortSet) -> Option<Instant>;
}

/// Bytes of a thread's stack, as in the standard library.
const STACK: usize = 2 << 20;

/// Components, and the schedule that says when each is due.
pub struct Engine<C> {
    components: Vec<C>,
    schedule: Schedule,
    /// Bytes of the stack of each thread, by its number.
    stack: fn(usize) -> usize,
}

impl<C: Component> Engine<C> {
    /// An engine of `components` in the order of their numbers ([`Cables::add`]), connected as `schedule` says.
    ///
    /// # Panics
    /// If their number differs from that of the components in `schedule`.
    #[must_use]
    pub fn new(components: Vec<C>, schedule: Schedule) -> Self {
        assert_eq!(components.len(), schedule.links.len(), "a component for each number");
        Self { components, schedule, stack: |_| STACK }
    }

    /// All components, by number.
    #[must_use]
    pub fn components(&self) -> &[C] {
        &self.components
    }

    /// A component that is about to be changed; it is due now.
    pub fn change(&mut self, component: usize) -> Option<&mut C> {
        let changed = self.components.get_mut(component)?;
        self.schedule.wake(component);
        Some(changed)
    }

    /// Virtual time of the run.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.schedule.now()
    }

    /// Runs until `end` on up to `threads` threads; the result is the same with any number of them. Where the system
    /// has no memory for their stacks, or allows no more threads, one does all.
    ///
    /// # Panics
    /// If a component does.
    pub fn run(&mut self, end: Instant, threads: usize) {
        let Self { components, schedule, stack } = self;
        let owners = (threads > 1).then(|| Owners::new(&schedule.links, threads));
        let owners = owners.filter(|owners| owners.threads() > 1);
        let shared =
            owners.is_some_and(|owners| threads::run(components, schedule, end, &owners, *stack));
        if !shared {
            while let Some(component) = schedule.turn(end) {
                let now = schedule.now();
                // A component goes on alone until others could reach it, but never beyond the end of the run.
                let last = schedule.horizon(component, now).min(end);
                let arrived = schedule.arrived(component);
                let next =
                    components.get_mut(component).and_then(|it| visit(it, now, arrived, last));
                schedule.stepped(component, next);
            }
        }
        schedule.rest(end);
    }
}

/// Steps a component at `now` and whenever it is due until `last`; returns when it is due after that.
#[inline]
fn visit<C: Component>(
    component: &mut C,
    now: Instant,
    arrived: PortSet,
    last: Instant,
) -> Option<Instant> {
    let mut next = component.step(now, arrived);
    while let Some(at) = next.filter(|&at| at <= last) {
        // Ports with frames were told in the first step; since then no other component has been stepped.
        next = component.step(at, PortSet::EMPTY);
    }
    next
}
