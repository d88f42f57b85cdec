//! Wakes: when each port of a switch is due.
//!
//! It tells which ports are due, and when the first one is.
//!
//! Units: [`Instant`].
//! Source: docs/spec/model.md §1.

use crate::time::Instant;
use crate::types::{PortId, PortSet};

/// Value for a port that is not due: virtual time begins at 0 and never gets there.
const NEVER: u64 = u64::MAX;

/// When each port of a lane is due, by place in the lane.
pub(super) struct Wakes {
    /// By port, in picoseconds.
    at: Vec<u64>,
    /// Ports that are due at all.
    members: PortSet,
    /// When the first port is due, and which ports are due then, unless `is_stale`.
    first: u64,
    due: PortSet,
    is_stale: bool,
}

impl Wakes {
    /// Wakes of `ports` ports, of which none is due.
    pub fn new(ports: usize) -> Self {
        let none = PortSet::EMPTY;
        Self { at: vec![NEVER; ports], members: none, first: NEVER, due: none, is_stale: false }
    }

    /// Sets when `port` is due, if ever.
    #[inline]
    pub fn set(&mut self, port: PortId, at: Option<Instant>) {
        let at = at.map_or(NEVER, Instant::as_ps);
        let Some(slot) = self.at.get_mut(port.index()) else { return };
        *slot = at;
        if at == NEVER {
            self.members.remove(port);
        } else {
            self.members.insert(port);
        }
        if at < self.first {
            (self.first, self.due) = (at, PortSet::only(port));
        } else if at == self.first {
            self.due.insert(port);
        } else if self.due.contains(port) {
            self.due.remove(port);
            // The next minimum is looked for only when it is asked: many ports are set in each
            // step.
            self.is_stale |= self.due.is_empty();
        }
    }

    /// Makes `port` due at `at`, unless it is due before.
    #[inline]
    pub fn bring_forward(&mut self, port: PortId, at: Instant) {
        if self.at.get(port.index()).is_some_and(|&due| at.as_ps() < due) {
            self.set(port, Some(at));
        }
    }

    /// The ports that are due by `now`. The caller sets each of them anew.
    #[inline]
    pub fn due(&mut self, now: Instant) -> PortSet {
        let first = self.first().map_or(NEVER, Instant::as_ps);
        match now.as_ps() {
            now if now < first => PortSet::EMPTY,
            now if now == first => self.due,
            now => self.until(now),
        }
    }

    /// [`Self::due`] where some ports were due before `now`.
    #[cold]
    fn until(&self, now: u64) -> PortSet {
        self.members.iter().filter(|&port| self.at(port) <= now).collect()
    }

    /// When the first port is due.
    #[inline]
    pub fn first(&mut self) -> Option<Instant> {
        if self.is_stale {
            self.look();
        }
        Some(self.first).filter(|&at| at != NEVER).map(Instant::from_ps)
    }

    #[inline]
    fn at(&self, port: PortId) -> u64 {
        self.at.get(port.index()).copied().unwrap_or(NEVER)
    }

    fn look(&mut self) {
        (self.first, self.due, self.is_stale) = (NEVER, PortSet::EMPTY, false);
        for port in self.members.iter() {
            let at = self.at(port);
            if at < self.first {
                (self.first, self.due) = (at, PortSet::only(port));
            } else if at == self.first {
                self.due.insert(port);
            }
        }
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
        let (mut wakes, mut list) = (Wakes::new(9), [None::<Instant>; 9]);
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
                    now += crate::time::Span::from_ps(rng.below(6));
                    let due = wakes.due(now);
                    for (place, slot) in list.iter_mut().enumerate() {
                        let is_due = slot.take_if(|at| *at <= now).is_some();
                        let port = PortId::new(place).unwrap();
                        assert_eq!(is_due, due.contains(port), "{place}");
                        if is_due {
                            wakes.set(port, None);
                        }
                    }
                }
            }
            if rng.below(2) == 0 {
                assert_eq!(wakes.first(), list.iter().flatten().min().copied());
            }
        }
    }
}
