//! Wakes: which ports of a lane have something to do of their own accord, in virtual time.
//!
//! Shape: a port and when it is due → the ports that are due, and when the first is.
//! Units: [`Instant`].
//! Source: docs/spec/model.md §1.

use crate::time::Instant;
use crate::types::{PerPort, PortId, PortSet};

/// When each port of a lane is due, by place in the lane.
#[derive(Default)]
pub(super) struct Wakes {
    ports: PortSet,
    at: PerPort<Instant>,
    /// When the first of `ports` is due, unless `is_stale`.
    first: Option<Instant>,
    is_stale: bool,
}

impl Wakes {
    /// Sets when `port` is due, if ever.
    #[inline]
    pub fn set(&mut self, port: PortId, at: Option<Instant>) {
        if self.ports.contains(port) {
            self.is_stale |= self.first == Some(self.at[port]) && at != self.first;
            self.ports.remove(port);
        }
        if let Some(at) = at {
            self.at[port] = at;
            self.ports.insert(port);
            self.first = Instant::earlier(self.first, Some(at));
        }
    }

    /// Has `port` due at `at`, unless it is before.
    #[inline]
    pub fn bring_forward(&mut self, port: PortId, at: Instant) {
        if !self.ports.contains(port) || at < self.at[port] {
            self.set(port, Some(at));
        }
    }

    /// Takes the ports that are due by `now`: they are not due any more.
    #[inline]
    pub fn take(&mut self, now: Instant) -> PortSet {
        if !self.is_stale && self.first.is_none_or(|first| first > now) {
            return PortSet::EMPTY;
        }
        let (mut due, mut first) = (PortSet::EMPTY, None);
        for port in self.ports.iter() {
            let at = self.at[port];
            if at <= now {
                due.insert(port);
            } else {
                first = Instant::earlier(first, Some(at));
            }
        }
        self.ports = self.ports.without(due);
        (self.first, self.is_stale) = (first, false);
        due
    }

    /// When the first port is due.
    #[inline]
    pub fn first(&mut self) -> Option<Instant> {
        if core::mem::take(&mut self.is_stale) {
            self.first = self.ports.iter().map(|port| self.at[port]).min();
        }
        self.first
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    /// As a list that is searched from end to end.
    #[test]
    fn the_first_and_the_due_are_those_of_a_list() {
        let mut rng = Rng::new(3);
        let (mut wakes, mut list) = (Wakes::default(), [None::<Instant>; 9]);
        let mut now = Instant::ZERO;
        for _ in 0..20_000 {
            let place = usize::try_from(rng.below(9)).unwrap();
            let (port, slot) = (PortId::new(place).unwrap(), &mut list[place]);
            let at = now + crate::time::Span::from_ps(1 + rng.below(9));
            match rng.below(4) {
                0 => {
                    wakes.set(port, None);
                    *slot = None;
                }
                1 => {
                    wakes.set(port, Some(at));
                    *slot = Some(at);
                }
                2 => {
                    wakes.bring_forward(port, at);
                    *slot = Instant::earlier(*slot, Some(at));
                }
                _ => {
                    now = now + crate::time::Span::from_ps(rng.below(6));
                    let due = wakes.take(now);
                    for (place, slot) in list.iter_mut().enumerate() {
                        let is_due = slot.take_if(|at| *at <= now).is_some();
                        assert_eq!(is_due, due.contains(PortId::new(place).unwrap()), "{place}");
                    }
                }
            }
            if rng.below(2) == 0 {
                assert_eq!(wakes.first(), list.iter().flatten().min().copied());
            }
        }
    }
}
