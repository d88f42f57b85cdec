//! A heap of planned events, in the order of their instants.
//!
//! Of several at one instant the one put in first comes out first, so that the order depends on nothing else.
//!
//! All instants in a heap lie within 106 days of each other, as [`Instant`]s compare wrap-safe.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use weft_dataplane::time::Instant;

struct Entry<E> {
    at: Instant,
    seq: u64,
    event: E,
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at).then(other.seq.cmp(&self.seq)) // a BinaryHeap gives the greatest
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<E> Eq for Entry<E> {}

/// Planned events in order of time.
pub struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    seq: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), seq: 0 }
    }
}

impl<E> Events<E> {
    /// A heap without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans `event` for the instant `at`.
    pub fn push(&mut self, at: Instant, event: E) {
        self.heap.push(Entry { at, seq: self.seq, event });
        self.seq += 1;
    }

    /// When the first event is due.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes the first event if it is due by `now`.
    #[inline]
    pub fn pop(&mut self, now: Instant) -> Option<E> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|entry| entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_by_order() {
        let mut events = Events::new();
        let times = [5, 1, 5, 3, 1, u64::MAX - 2]; // the last lies before the wrap, so before 1
        for (n, &ps) in times.iter().enumerate() {
            events.push(Instant::from_ps(ps), n);
        }
        let mut order = Vec::new();
        assert_eq!(events.pop(Instant::from_ps(u64::MAX - 3)), None);
        while let Some(event) = events.pop(Instant::from_ps(5)) {
            order.push(event);
        }
        assert_eq!(order, [5, 1, 4, 3, 0, 2]);
        assert_eq!(events.next(), None);
    }
}
