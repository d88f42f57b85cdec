//! Engine: whose turn it is, where components meet only over cables with a delay.
//!
//! [`Cables`] between ports of [`Component`]s → an [`Engine`], which runs them on one thread or several;
//! [`Schedule`] alone for who steps its components itself.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §1.
//!
//! As a frame takes time on a cable, others see later only what a component does at an instant: the order of components
//! at one instant, and so their numbers, decide nothing, and threads have to meet once in the least of these times only.
//! For the same reason a component whose turn it is goes on for as long as nothing that others do meanwhile can reach it:
//! what it works with is in the caches then.

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

/// A switch or an endpoint.
pub trait Component: Send {
    /// Does what is due at `now`; returns when it next has something to do, frames that are on their way to it included.
    /// Extra calls change nothing. Only ports that have `arrived` have frames on their way of which it was not told before.
    fn step(&mut self, now: Instant, arrived: PortSet) -> Option<Instant>;
}

/// Stack of a thread: what the standard library gives one.
const STACK: usize = 2 << 20;

/// Components and when they are due.
pub struct Engine<C> {
    components: Vec<C>,
    schedule: Schedule,
    /// Bytes of each thread's stack, by its number.
    stack: fn(usize) -> usize,
}

impl<C: Component> Engine<C> {
    /// Components by their numbers ([`Cables::add`]), joined as `schedule` knows.
    ///
    /// # Panics
    /// When there are more or fewer than cables were laid for.
    #[must_use]
    pub fn new(components: Vec<C>, schedule: Schedule) -> Self {
        assert_eq!(components.len(), schedule.links.len(), "a component for each number");
        Self { components, schedule, stack: |_| STACK }
    }

    /// The components.
    #[must_use]
    pub fn components(&self) -> &[C] {
        &self.components
    }

    /// A component that is going to be changed: it is due now.
    pub fn change(&mut self, component: usize) -> Option<&mut C> {
        let changed = self.components.get_mut(component)?;
        self.schedule.wake(component);
        Some(changed)
    }

    /// Where the run has come to.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.schedule.now()
    }

    /// Runs until `end` on so many threads, one at least: with any number of them the same happens. Where the system has no
    /// memory for their stacks, or allows no more of them, it is one.
    ///
    /// # Panics
    /// As a component does.
    pub fn run(&mut self, end: Instant, threads: usize) {
        let Self { components, schedule, stack } = self;
        let owners = (threads > 1).then(|| Owners::new(&schedule.links, threads));
        let owners = owners.filter(|owners| owners.threads() > 1);
        let shared =
            owners.is_some_and(|owners| threads::run(components, schedule, end, &owners, *stack));
        if !shared {
            while let Some(component) = schedule.turn(end) {
                let now = schedule.now();
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
        next = component.step(at, PortSet::EMPTY);
    }
    next
}
