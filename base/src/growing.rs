//! Bounded single-producer single-consumer queue that takes memory as it needs it: frames on a cable.
//!
//! [`queue`] gives a [`Tx`] and an [`Rx`]. It begins with few slots, which stay in the caches, and
//! doubles them when they do not suffice, up to a capacity.
//!
//! Source: [`crate::ring`]: one after the other, each twice as long.

use std::sync::PoisonError;

use crate::ring::{self, ring};
use crate::sync::{Arc, Mutex};

/// Word of a ring that the producer has left for a longer one.
const LEFT: usize = 1;

/// Place where the producer leaves the next ring for the consumer.
type Next<T> = Arc<Mutex<Option<Box<Rx<T>>>>>;

/// Producing end of a growing queue.
pub struct Tx<T> {
    ring: ring::Tx<T>,
    next: Next<T>,
    capacity: usize,
    most: usize,
    /// Rings that the producer has left, until it sees that they are empty.
    left: Vec<ring::Tx<T>>,
}

/// Consuming end of a growing queue.
pub struct Rx<T> {
    ring: ring::Rx<T>,
    next: Next<T>,
}

/// A queue for at least `most` items that begins with room for `first`.
///
/// # Panics
/// When either is 0.
#[must_use]
pub fn queue<T>(first: usize, most: usize) -> (Tx<T>, Rx<T>) {
    let capacity = first.min(most);
    let (tx, rx) = ring(capacity);
    let next = Next::default();
    let rx = Rx { ring: rx, next: next.clone() };
    (Tx { ring: tx, next, capacity, most, left: Vec::new() }, rx)
}

impl<T> Tx<T> {
    /// Whether one more item fits.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.ring.room(1) > 0 || self.capacity < self.most
    }

    /// Items in the queue: never fewer than there are.
    pub fn len(&mut self) -> usize {
        self.ring.len() + self.left.iter_mut().map(ring::Tx::len).sum::<usize>()
    }

    /// Whether the queue is empty, as far as this end knows.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Appends `item`.
    ///
    /// # Errors
    /// The item itself when the queue is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.ring.room(1) == 0 && !self.grow() {
            return Err(item);
        }
        // kept until they are empty, as `len` counts the items in them
        if !self.left.is_empty() {
            self.drop_left();
        }
        self.ring.push(item)
    }

    /// Frees rings that were left and are empty now.
    #[cold]
    fn drop_left(&mut self) {
        self.left.retain_mut(|ring| !ring.is_empty());
    }

    /// Goes on in a ring of twice the length, if there may be one.
    #[cold]
    fn grow(&mut self) -> bool {
        if self.capacity >= self.most {
            return false;
        }
        self.capacity = (2 * self.capacity).min(self.most);
        let (tx, rx) = ring(self.capacity);
        let next = Next::default();
        let rx = Box::new(Rx { ring: rx, next: next.clone() });
        // before the word: a consumer that sees the word finds the ring here
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(rx);
        self.ring.set_word(LEFT); // Release: all items of this ring come before it
        self.left.push(core::mem::replace(&mut self.ring, tx));
        self.next = next;
        true
    }
}

impl<T> Rx<T> {
    /// The ring that has the first item, if any has.
    #[inline]
    fn first(&mut self) -> &mut ring::Rx<T> {
        if self.ring.is_empty() && self.ring.word() == LEFT {
            self.follow();
        }
        &mut self.ring
    }

    /// Goes to the ring that the producer writes to, or to the first one before it that is not
    /// empty.
    #[cold]
    fn follow(&mut self) {
        // Both are read again: an item that was pushed before the ring was left is visible only
        // after the word.
        while self.ring.word() == LEFT && self.ring.is_empty() {
            let next = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(next) = next else { return };
            *self = *next;
        }
    }

    /// The first item, which stays in the queue.
    #[inline]
    pub fn front(&mut self) -> Option<&T> {
        self.first().front()
    }

    /// Takes the first item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.first().pop()
    }

    /// Drops the first item where it is.
    #[inline]
    pub fn skip(&mut self) {
        self.first().skip();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    /// As a list, however long it gets.
    #[test]
    fn random_pushes_and_pops_keep_the_order() {
        for (first, most) in [(1, 1), (2, 2), (1, 6), (4, 5), (8, 4), (1, 9)] {
            let (mut tx, mut rx) = queue(first, most);
            let mut list = VecDeque::new();
            let mut rng = Rng::new(5);
            let steps = if cfg!(miri) { 300 } else { 20_000 };
            let mut was_full = false;
            for n in 0..steps {
                // By turns it fills and empties.
                if rng.below(5) < if n / 40 % 2 == 0 { 3 } else { 2 } {
                    let has_room = tx.has_room();
                    let fits = tx.push(Box::new(n)).is_ok();
                    assert_eq!(fits, has_room);
                    assert!(fits || list.len() >= most);
                    was_full |= !fits;
                    if fits {
                        list.push_back(n);
                    }
                } else {
                    assert_eq!(rx.front().map(|n| **n), list.front().copied());
                    if rng.below(2) == 0 {
                        assert_eq!(rx.pop().map(|n| *n), list.pop_front());
                    } else {
                        rx.skip();
                        list.pop_front();
                    }
                }
                assert_eq!((tx.len(), tx.is_empty()), (list.len(), list.is_empty()));
            }
            assert!(was_full, "{first} of {most}");
        }
    }

    /// It has room for twice as many when they are needed, and no sooner; rings that were left go.
    #[test]
    fn it_grows_when_it_must() {
        let (mut tx, mut rx) = queue(4, 64);
        for n in 0..100 {
            tx.push(n).unwrap();
            if n >= 3 {
                assert_eq!(rx.pop(), Some(n - 3));
            }
            assert_eq!(tx.capacity, 4);
        }
        for n in 100..130 {
            tx.push(n).unwrap();
        }
        assert_eq!((tx.capacity, tx.len()), (32, 33));
        assert!((97..130).all(|n| rx.pop() == Some(n)));
        assert_eq!((rx.pop(), tx.len(), tx.left.len()), (None, 0, 3));
        tx.push(0).unwrap();
        assert_eq!((rx.pop(), tx.left.len()), (Some(0), 0), "those that are empty go");
        for n in 0..64 {
            tx.push(n).unwrap();
        }
        assert_eq!((tx.capacity, tx.left.len()), (64, 1), "the one before has items");
        assert!((0..64).all(|n| rx.pop() == Some(n)));
    }

    /// Items that are left are dropped once, in whichever ring they are.
    #[test]
    fn what_is_left_is_dropped_once() {
        let item = std::sync::Arc::new(());
        for tx_first in [true, false] {
            let (mut tx, mut rx) = queue(1, 8);
            for _ in 0..7 {
                tx.push(item.clone()).unwrap();
            }
            assert!(rx.pop().is_some());
            rx.skip();
            if tx_first {
                drop(tx);
                drop(rx);
            } else {
                drop(rx);
                drop(tx);
            }
            assert_eq!(std::sync::Arc::strong_count(&item), 1);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::ring::loom_tests::cross_in_order;

    /// It grows while another thread takes items; items are taken in the order of their pushes.
    #[test]
    fn items_cross_in_order() {
        loom::model(|| {
            let (mut tx, mut rx) = queue::<Box<u32>>(1, 2);
            let pop = || {
                let seen = rx.front().map(|item| **item)?;
                let item = rx.pop();
                assert_eq!(item.as_deref(), Some(&seen));
                item
            };
            cross_in_order(move |item| tx.push(item).is_ok(), pop);
        });
    }
}
