//! A tournament tree that finds the component that is due first.
//!
//! Each component has one instant at which it is due, or none. [`Tournament::first`] is the one with the earliest, and
//! of several at one instant the one with the lowest number. A component has one leaf of a binary tree, and each inner
//! node has the earlier of the two below it: a change costs a comparison a level, and ends where it makes no
//! difference.
//!
//! An instant that is due is below 2^64 - 1 picoseconds: a run begins at 0 and may last 213 days.
//!
//! Source: docs/spec/model.md §1.

#![expect(
    clippy::indexing_slicing,
    reason = "places are those of nodes; a component that is not there is a panic"
)]

use weft_dataplane::time::Instant;

/// Stands for the instant of a component that is not due.
const NEVER: u64 = u64::MAX;

/// When each of `count` components is due.
#[derive(Debug)]
pub struct Tournament {
    /// Instants in picoseconds. The root is 1, the nodes below `n` are `2 n` and `2 n + 1`; the left one has the lower
    /// numbers.
    nodes: Vec<u64>,
    /// Index of the first leaf.
    leaves: usize,
    count: usize,
}

impl Tournament {
    /// A tournament of `count` components, none of which is due.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self { nodes: vec![NEVER; 2 * leaves], leaves, count }
    }

    /// When the first component is due, and which it is.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<(Instant, usize)> {
        let nodes = self.nodes.as_slice();
        let at = nodes[1];
        if at == NEVER {
            return None;
        }
        let mut place = 1;
        while place < self.leaves {
            // To the left if that side has the instant, which makes the lowest number win a tie.
            place = 2 * place + usize::from(nodes[2 * place] != at);
        }
        Some((Instant::from_ps(at), place - self.leaves))
    }

    /// When the first component is due, if any is.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        Some(self.nodes[1]).filter(|&at| at != NEVER).map(Instant::from_ps)
    }

    /// When `component` is due, if it is.
    #[inline]
    #[must_use]
    pub fn due(&self, component: usize) -> Option<Instant> {
        let leaf = self.nodes.get(self.leaves + component).filter(|&&at| at != NEVER)?;
        Some(Instant::from_ps(*leaf))
    }

    /// Makes `component` due at `at`, or not due at all.
    ///
    /// # Panics
    /// If there is no such component.
    #[inline]
    pub fn set(&mut self, component: usize, at: Option<Instant>) {
        assert!(component < self.count, "component {component} of {}", self.count);
        let mut at = at.map_or(NEVER, Instant::as_ps);
        let mut place = self.leaves + component;
        let nodes = self.nodes.as_mut_slice();
        // A node that has this value already has parents that do, too.
        while nodes[place] != at {
            nodes[place] = at;
            if place == 1 {
                break;
            }
            at = at.min(nodes[place ^ 1]);
            place /= 2;
        }
    }

    /// Makes `component` due at `at`, unless it is due earlier.
    ///
    /// # Panics
    /// If there is no such component.
    #[inline]
    pub fn bring_forward(&mut self, component: usize, at: Instant) {
        if self.due(component).is_none_or(|due| at < due) {
            self.set(component, Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    /// Every first one is that of a list which is searched from end to end, whatever was set before.
    #[test]
    fn the_first_is_the_least_by_instant_and_number() {
        let mut rng = Rng::new(7);
        for count in [1, 2, 5, 64, 100] {
            let (mut tree, mut list) = (Tournament::new(count), vec![None; count]);
            for _ in 0..5_000 {
                let component = usize::try_from(rng.below(count as u64)).unwrap();
                let at = Instant::from_ps(rng.below(20));
                match rng.below(3) {
                    0 => {
                        tree.set(component, None);
                        list[component] = None;
                    }
                    1 => {
                        tree.set(component, Some(at));
                        list[component] = Some(at);
                    }
                    _ => {
                        tree.bring_forward(component, at);
                        list[component] = Instant::earlier(list[component], Some(at));
                    }
                }
                let all = list.iter().enumerate().filter_map(|(number, at)| Some(((*at)?, number)));
                assert_eq!(tree.first(), all.min(), "of {count}");
                assert_eq!(tree.due(component), list[component]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "component 2 of 2")]
    fn a_component_that_is_not_there_is_not_set() {
        Tournament::new(2).set(2, Some(Instant::ZERO));
    }
}
