//! Tournament: the component that is due first.
//!
//! Shape: a number of components, each with one instant at which it is due, or none; [`Tournament::first`] is the earliest,
//! of those at one instant the one of the lowest number. A component has one leaf of a binary tree; each node above has the
//! earlier of the two below it, so that a change costs a comparison a level, and ends where nothing changes any more.
//! Units: [`Instant`], less than 213 days: a run begins at 0.
//! Source: docs/spec/model.md §1.

#![expect(
    clippy::indexing_slicing,
    reason = "places are those of nodes; a component that is not there is a panic"
)]

use weft_dataplane::time::Instant;

/// The instant of a component that is not due.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Picoseconds.
    at: u64,
    component: u32,
}

/// When each of so many components is due.
#[derive(Debug)]
pub struct Tournament {
    /// The root is 1, the nodes below `n` are `2 n` and `2 n + 1`: of two that are due at once the left one is of the lower
    /// number.
    nodes: Vec<Node>,
    /// The first leaf.
    leaves: usize,
    count: usize,
}

impl Tournament {
    /// `count` components, none of which is due.
    ///
    /// # Panics
    /// When there are more than 2^31.
    #[must_use]
    pub fn new(count: usize) -> Self {
        assert!(count <= 1 << 31, "at most 2^31 components");
        let leaves = count.next_power_of_two();
        Self { nodes: vec![Node { at: NEVER, component: 0 }; 2 * leaves], leaves, count }
    }

    /// The component that is due first, and when.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<(Instant, usize)> {
        let root = self.nodes[1];
        (root.at != NEVER).then(|| (Instant::from_ps(root.at), root.component as usize))
    }

    /// When `component` is due.
    #[inline]
    #[must_use]
    pub fn due(&self, component: usize) -> Option<Instant> {
        let leaf = self.nodes.get(self.leaves + component).filter(|leaf| leaf.at != NEVER)?;
        Some(Instant::from_ps(leaf.at))
    }

    /// Has `component` due at `at`, or not at all.
    ///
    /// # Panics
    /// When there is no such component.
    #[inline]
    pub fn set(&mut self, component: usize, at: Option<Instant>) {
        assert!(component < self.count, "component {component} of {}", self.count);
        let at = at.map_or(NEVER, Instant::as_ps);
        let mut place = self.leaves + component;
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^31")]
        let mut winner = Node { at, component: component as u32 };
        let nodes = self.nodes.as_mut_slice();
        while nodes[place] != winner {
            nodes[place] = winner;
            if place == 1 {
                break;
            }
            let (left, right) = (nodes[place & !1], nodes[place | 1]);
            winner = if right.at < left.at { right } else { left };
            place /= 2;
        }
    }

    /// Has `component` due at `at` if it is not due before.
    ///
    /// # Panics
    /// As [`Self::set`].
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
