//! Indexed heap: the component that is due first.
//!
//! Shape: a number of components, each with one instant at which it is due, or none; [`DueHeap::first`] is the earliest,
//! of those at one instant the one of the lowest number. Changing an instant moves its component, so a component never
//! stands in the heap twice.
//! Units: [`Instant`]; all that are in a heap lie within 106 days of each other.
//! Source: docs/spec/model.md §1.

#![expect(
    clippy::indexing_slicing,
    reason = "places are those of nodes; a component that is not there is a panic"
)]

use weft_dataplane::time::Instant;

/// Children of a node: four lie in one cache line.
const CHILDREN: usize = 4;
/// The place of a component that is not due.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    at: Instant,
    component: u32,
}

impl Node {
    #[inline]
    fn is_before(self, other: Self) -> bool {
        (self.at, self.component) < (other.at, other.component)
    }
}

/// When each of so many components is due.
#[derive(Debug)]
pub struct DueHeap {
    nodes: Vec<Node>,
    /// By component: its place in `nodes`.
    places: Vec<u32>,
}

impl DueHeap {
    /// `count` components, none of which is due.
    ///
    /// # Panics
    /// When there are 2^32 - 1 or more.
    #[must_use]
    pub fn new(count: usize) -> Self {
        assert!(u32::try_from(count).is_ok_and(|count| count < NOWHERE), "fewer than 2^32 - 1");
        Self { nodes: Vec::with_capacity(count), places: vec![NOWHERE; count] }
    }

    /// The component that is due first, and when.
    #[inline]
    #[must_use]
    pub fn first(&self) -> Option<(Instant, usize)> {
        self.nodes.first().map(|node| (node.at, node.component as usize))
    }

    /// When `component` is due.
    #[inline]
    #[must_use]
    pub fn due(&self, component: usize) -> Option<Instant> {
        let place = *self.places.get(component)?;
        self.nodes.get(place as usize).map(|node| node.at)
    }

    /// Has `component` due at `at`, or not at all.
    ///
    /// # Panics
    /// When there is no such component.
    #[inline]
    pub fn set(&mut self, component: usize, at: Option<Instant>) {
        let place = self.places[component] as usize;
        match (self.nodes.get(place).copied(), at) {
            (Some(old), Some(at)) => {
                let new = Node { at, ..old };
                if new.is_before(old) { self.rise(place, new) } else { self.sink(place, new) }
            }
            (None, Some(at)) => {
                let new = Node { at, component: u32::try_from(component).unwrap_or(NOWHERE) };
                self.nodes.push(new);
                self.rise(self.nodes.len() - 1, new);
            }
            (Some(old), None) => {
                self.places[component] = NOWHERE;
                let Some(last) = self.nodes.pop().filter(|_| place < self.nodes.len()) else {
                    return;
                };
                if last.is_before(old) { self.rise(place, last) } else { self.sink(place, last) }
            }
            (None, None) => {}
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

    /// Puts `node` at `place` or above.
    #[inline]
    fn rise(&mut self, mut place: usize, node: Node) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if !node.is_before(self.nodes[parent]) {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    /// Puts `node` at `place` or below.
    #[inline]
    fn sink(&mut self, mut place: usize, node: Node) {
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.nodes.len());
            let Some(least) =
                children.reduce(|a, b| if self.nodes[b].is_before(self.nodes[a]) { b } else { a })
            else {
                break;
            };
            if !self.nodes[least].is_before(node) {
                break;
            }
            self.put(place, self.nodes[least]);
            place = least;
        }
        self.put(place, node);
    }

    #[inline]
    fn put(&mut self, place: usize, node: Node) {
        self.nodes[place] = node;
        self.places[node.component as usize] = u32::try_from(place).unwrap_or(NOWHERE);
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
        for count in [1, 2, 5, 64] {
            let (mut heap, mut list) = (DueHeap::new(count), vec![None; count]);
            for _ in 0..5_000 {
                let component = usize::try_from(rng.below(count as u64)).unwrap();
                let at = Instant::from_ps(rng.below(20).wrapping_sub(10)); // on both sides of the wrap
                match rng.below(3) {
                    0 => {
                        heap.set(component, None);
                        list[component] = None;
                    }
                    1 => {
                        heap.set(component, Some(at));
                        list[component] = Some(at);
                    }
                    _ => {
                        heap.bring_forward(component, at);
                        list[component] = Instant::earlier(list[component], Some(at));
                    }
                }
                let all = list.iter().enumerate().filter_map(|(number, at)| Some(((*at)?, number)));
                assert_eq!(heap.first(), all.min(), "of {count}");
                assert_eq!(heap.due(component), list[component]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_component_that_is_not_there_is_not_set() {
        DueHeap::new(2).set(2, Some(Instant::ZERO));
    }
}
