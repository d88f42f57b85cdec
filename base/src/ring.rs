//! Bounded single-producer single-consumer ring: the egress queues between crossbar and output.
//!
//! [`ring`] gives a [`Tx`] and an [`Rx`]; the capacity is a power of two, fixed when made.
//!
//! Source: Lamport 1977 with the far index cached (Lee et al., "A Lock-Free, Cache-Efficient Shared
//! Ring Buffer", ANCS 2009).

use core::mem::MaybeUninit;

use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// An index on a cache line of its own, written by one side only.
#[repr(align(64))]
struct Index(AtomicUsize);

/// The producer's index, and a word of its own that consumers read with it.
#[repr(align(64))]
struct Tail(AtomicUsize, AtomicUsize);

struct Shared<T> {
    head: Index,
    tail: Tail,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by the producer before it publishes `tail` past it and by the consumer
// after that, until it publishes `head` past it: never by both at once.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The producing end of a single-producer, single-consumer ring.
pub struct Tx<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
}

/// The consuming end of a single-producer, single-consumer ring.
pub struct Rx<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
}

/// Lets another thread see whether a ring holds something, without taking from it.
pub struct Watch<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Watch<T> {
    /// Whether nothing can be popped. A push or pop of another thread meanwhile may be seen or not.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // head first: the tail is then at least as new, so that the two agree only if the ring was
        // empty
        let head = self.shared.head.0.load(Ordering::Acquire); // pairs with `pop`
        self.shared.tail.0.load(Ordering::Acquire) == head // pairs with `push`
    }
}

/// A ring for at least `capacity` items.
///
/// # Panics
/// When `capacity` is 0 or no power of two fits it.
#[must_use]
pub fn ring<T>(capacity: usize) -> (Tx<T>, Rx<T>) {
    starting(capacity, 0)
}

/// As [`ring`], with indices that count from `start` on: they wrap, and only their low bits name slots.
fn starting<T>(capacity: usize, start: usize) -> (Tx<T>, Rx<T>) {
    assert!(capacity > 0, "a ring holds something");
    let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit()));
    let shared = Arc::new(Shared {
        head: Index(AtomicUsize::new(start)),
        tail: Tail(AtomicUsize::new(start), AtomicUsize::new(0)),
        slots: slots.collect(),
    });
    let rx = Rx { shared: shared.clone(), head: start, tail_seen: start };
    (Tx { shared, tail: start, head_seen: start }, rx)
}

impl<T> Tx<T> {
    /// Number of items that surely fit now; reads the far index only if fewer than `want` seem to.
    #[inline]
    pub fn room(&mut self, want: usize) -> usize {
        let capacity = self.shared.slots.len();
        if capacity - self.tail.wrapping_sub(self.head_seen) < want {
            self.head_seen = self.shared.head.0.load(Ordering::Acquire); // pairs with `pop`
        }
        capacity - self.tail.wrapping_sub(self.head_seen)
    }

    /// Items in the ring as far as this end knows: never fewer than there are.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.head_seen = self.shared.head.0.load(Ordering::Acquire); // pairs with `pop`
        self.tail.wrapping_sub(self.head_seen)
    }

    /// As [`Self::len`], but keeps the cached index as it is.
    #[inline]
    #[must_use]
    pub fn len_seen(&self) -> usize {
        let head = self.shared.head.0.load(Ordering::Acquire); // pairs with `pop`
        self.tail.wrapping_sub(head)
    }

    /// Whether the ring is empty as far as this end knows.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Gives the consumer a word beside the items, which it sees before any item that is pushed
    /// later.
    #[inline]
    pub fn set_word(&mut self, word: usize) {
        self.shared.tail.1.store(word, Ordering::Release); // pairs with `Rx::word`
    }

    /// Appends `item`.
    ///
    /// # Errors
    /// The item itself when the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room(1) == 0 {
            return Err(item);
        }
        write(&self.shared.slots, self.tail, item);
        self.tail = self.tail.wrapping_add(1);
        self.shared.tail.0.store(self.tail, Ordering::Release); // pairs with `Rx::len`
        Ok(())
    }

    /// Appends all of `items`, seen at once.
    ///
    /// # Panics
    /// When there is no room for them.
    #[inline]
    pub fn push_all(&mut self, items: impl ExactSizeIterator<Item = T>) {
        let count = items.len();
        assert!(self.room(count) >= count, "the caller made sure that there is room");
        let slots = &*self.shared.slots;
        let mut tail = self.tail;
        for item in items.take(count) {
            write(slots, tail, item);
            tail = tail.wrapping_add(1);
        }
        self.tail = tail;
        self.shared.tail.0.store(tail, Ordering::Release); // pairs with `Rx::len`
    }
}

/// Fills slot `tail`; the caller made sure that it is free, and publishes it.
#[inline]
fn write<T>(slots: &[UnsafeCell<MaybeUninit<T>>], tail: usize, item: T) {
    slot(slots, tail).with_mut(|slot| {
        // SAFETY: slots `tail..head_seen + capacity` are the producer's: the consumer gave them up by
        // its Release store of `head` and cannot see them again before our Release store of `tail`.
        let slot = unsafe { &mut *slot };
        slot.write(item);
    });
}

/// Reads slot `head` out; the caller made sure that it is filled, and moves `head` past it.
#[inline]
fn read<T>(slots: &[UnsafeCell<MaybeUninit<T>>], head: usize) -> T {
    slot(slots, head).with(|slot| {
        // SAFETY: `head` is below the `tail` that the producer published with Release, so it left the
        // slot to us until we publish a `head` past it.
        let slot = unsafe { &*slot };
        // SAFETY: the producer wrote the slot before it published `tail`, and `head` moves on, so it
        // is read out only once.
        unsafe { slot.assume_init_read() }
    })
}

/// The slot of an index, which counts on and is masked.
#[inline]
fn slot<T>(slots: &[T], index: usize) -> &T {
    slots.get(index & (slots.len() - 1)).expect("masked by the power-of-two length")
}

impl<T> Rx<T> {
    /// A handle by which another thread sees whether the ring holds something.
    #[must_use]
    pub fn watch(&self) -> Watch<T> {
        Watch { shared: self.shared.clone() }
    }

    /// Items that can be popped.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire); // pairs with `push`
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Whether nothing can be popped.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.tail_seen == self.head && self.len() == 0
    }

    /// The word that the producer gave last; 0 at first.
    #[inline]
    #[must_use]
    pub fn word(&self) -> usize {
        self.shared.tail.1.load(Ordering::Acquire) // pairs with `Tx::set_word`
    }

    /// The first item, which stays in the ring.
    #[inline]
    pub fn front(&mut self) -> Option<&T> {
        if self.is_empty() {
            return None;
        }
        slot(&self.shared.slots, self.head).with(|slot| {
            // SAFETY: `head` is below the `tail` that the producer published with Release, so it
            // left the slot to us until we move `head`; the borrow of self holds it.
            let slot = unsafe { &*slot };
            // SAFETY: the producer wrote the slot before it published `tail`.
            Some(unsafe { slot.assume_init_ref() })
        })
    }

    /// The first items, up to `most`, in two parts: the second is empty unless the ring's end lies
    /// between them.
    ///
    /// # Panics
    /// Never: both parts lie within the ring.
    #[inline]
    pub fn fronts(&mut self, most: usize) -> [&[T]; 2] {
        let count = self.len().min(most);
        let slots = &*self.shared.slots;
        let first = self.head & (slots.len() - 1);
        let before_end = count.min(slots.len() - first);
        let part = |from: usize, count: usize| {
            let slots = slots.get(from..from + count).expect("within the ring");
            let at = slots.as_ptr().cast::<T>();
            // SAFETY: `head..head + count` is below the `tail` that the producer published with
            // Release: these slots are filled, and left to us until we move `head`; the borrow of self
            // holds it. Cell and slot have the layout of the item.
            unsafe { core::slice::from_raw_parts(at, count) }
        };
        [part(first, before_end), part(0, count - before_end)]
    }

    /// Drops the first item, if there is one, where it is.
    #[inline]
    pub fn skip(&mut self) {
        if self.is_empty() {
            return;
        }
        slot(&self.shared.slots, self.head).with_mut(|slot| {
            // SAFETY: as in `front`: the slot is left to us, and we borrow ourselves mutably.
            let slot = unsafe { &mut *slot };
            // SAFETY: the producer wrote the slot before it published `tail`, and `head` moves on.
            unsafe { slot.assume_init_drop() };
        });
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release); // pairs with `Tx::room`
    }

    /// Takes the first item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let item = read(&self.shared.slots, self.head);
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release); // pairs with `Tx::room`
        Some(item)
    }
}

impl<T> Rx<T> {
    /// Takes up to `most` items, first to last, and hands each to `each`; returns how many.
    #[inline]
    pub fn pop_each(&mut self, most: usize, mut each: impl FnMut(T)) -> usize {
        let count = if most <= self.tail_seen.wrapping_sub(self.head) {
            most
        } else {
            self.len().min(most)
        };
        let slots = &*self.shared.slots;
        for _ in 0..count {
            let item = read(slots, self.head);
            self.head = self.head.wrapping_add(1);
            each(item);
        }
        self.shared.head.0.store(self.head, Ordering::Release); // pairs with `Tx::room`
        count
    }
}

impl<T> Drop for Rx<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn random_pushes_and_pops_keep_the_order() {
        let (mut tx, mut rx) = ring(8);
        let mut oracle = VecDeque::new();
        let mut state = 1u64;
        let steps = if cfg!(miri) { 500 } else { 10_000 };
        for n in 0..steps {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 63 == 0 {
                let fits = tx.push(n).is_ok();
                assert_eq!(fits, oracle.len() < 8);
                if fits {
                    oracle.push_back(n);
                }
            } else {
                assert_eq!(rx.front(), oracle.front());
                assert_eq!(rx.pop(), oracle.pop_front());
            }
            assert_eq!((tx.len(), rx.len()), (oracle.len(), oracle.len()));
        }
    }

    /// All small rings, with indices at each place around their wrap, at each level, after each number of items has
    /// gone: nothing else decides which slot an index names, so this is every case there is of them.
    #[test]
    fn every_level_holds_at_every_place_of_the_indices() {
        let capacities = [1, 2, 4, 8, 16];
        let most = if cfg!(miri) { 2 } else { 16 };
        let mut cases = 0;
        for capacity in capacities.into_iter().filter(|&capacity| capacity <= most) {
            for before_wrap in 0..=2 * capacity {
                for level in 0..=capacity {
                    for gone in 0..=level {
                        hold(capacity, 0_usize.wrapping_sub(before_wrap), level, gone);
                        cases += 1;
                    }
                }
            }
        }
        assert_eq!(cases, if cfg!(miri) { 39 } else { 5_988 });
    }

    /// A ring with `level` items of which `gone` were taken, then filled up, then emptied.
    fn hold(capacity: usize, start: usize, level: usize, gone: usize) {
        let name = (capacity, start, level, gone);
        let (mut tx, mut rx) = starting(capacity, start);
        let watch = rx.watch();
        tx.push_all((0..level).map(Box::new));
        for n in 0..gone {
            assert_eq!(rx.pop().as_deref(), Some(&n), "{name:?}");
        }
        let left = level - gone;
        assert_eq!(watch.is_empty(), left == 0, "{name:?}");
        for want in 0..=capacity + 1 {
            let room = tx.room(want); // as far as it must look
            assert!(
                room <= capacity - left && room >= want.min(capacity - left),
                "{name:?}: {room}"
            );
        }
        assert_eq!(rx.front().map(|n| **n), (left > 0).then_some(gone), "{name:?}");
        for most in 0..=capacity + 1 {
            let [first, second] = rx.fronts(most);
            let all = first.iter().chain(second).map(|n| **n);
            assert!(all.eq(gone..gone + left.min(most)), "{name:?}: the first {most}");
        }
        let mut end = level;
        while let Ok(()) = tx.push(Box::new(end)) {
            end += 1;
        }
        assert_eq!(end - gone, capacity, "{name:?}");
        assert_eq!((tx.room(1), tx.len(), rx.len()), (0, capacity, capacity), "{name:?}");
        let mut next = gone;
        while !rx.is_empty() {
            let taken = rx.pop_each(gone + 1, |n| {
                assert_eq!(*n, next, "{name:?}");
                next += 1;
            });
            assert!((1..=gone + 1).contains(&taken), "{name:?}: {taken}");
        }
        assert_eq!((next, rx.pop()), (end, None), "{name:?}");
        assert!(watch.is_empty() && tx.is_empty() && tx.room(capacity) == capacity, "{name:?}");
        assert_eq!(
            (tx.tail, rx.head),
            (start.wrapping_add(end), start.wrapping_add(end)),
            "{name:?}"
        );
    }

    #[test]
    fn what_is_left_is_dropped_once() {
        let item = std::sync::Arc::new(());
        let (mut tx, rx) = ring(4);
        for _ in 0..3 {
            tx.push(item.clone()).unwrap();
        }
        drop(rx);
        assert_eq!(std::sync::Arc::strong_count(&item), 1);
    }
}

#[cfg(all(test, loom))]
pub(crate) mod loom_tests {
    use super::*;

    /// Another thread pushes 1, 2 and 3 until there is no room; here they come in that order and whole.
    pub(crate) fn cross_in_order(
        mut push: impl FnMut(Box<u32>) -> bool + Send + 'static,
        mut pop: impl FnMut() -> Option<Box<u32>>,
    ) {
        let producer = loom::thread::spawn(move || {
            let mut sent = 0u32;
            for n in 1..=3 {
                if push(Box::new(n)) {
                    sent += 1;
                } else {
                    break;
                }
            }
            sent
        });
        let mut next = 1;
        for _ in 0..2 {
            if let Some(item) = pop() {
                assert_eq!(*item, next);
                next += 1;
            }
        }
        let sent = producer.join().unwrap();
        while let Some(item) = pop() {
            assert_eq!(*item, next);
            next += 1;
        }
        assert_eq!(next, sent + 1);
    }

    #[test]
    fn items_cross_in_order_and_whole() {
        loom::model(|| {
            let (mut tx, mut rx) = ring(2);
            cross_in_order(move |item| tx.push(item).is_ok(), || rx.pop());
        });
    }

    /// Several at once, while the indices wrap and another looks on.
    #[test]
    fn batches_cross_whole_where_the_indices_wrap() {
        loom::model(|| {
            let (mut tx, mut rx) = starting(2, usize::MAX);
            let watch = rx.watch();
            let producer = loom::thread::spawn(move || {
                tx.push_all([1, 2].map(Box::new).into_iter());
                tx.push(Box::new(3)).is_ok()
            });
            let mut next = 1;
            let mut check = |item: Box<u32>| {
                assert_eq!(*item, next);
                next += 1;
            };
            let is_seen = !watch.is_empty();
            let taken = rx.pop_each(2, &mut check);
            assert!(taken == 2 || taken == 0 && !is_seen, "both or none: {taken}");
            let has_room = producer.join().unwrap();
            let rest = rx.pop_each(3, &mut check);
            assert_eq!(taken + rest, if has_room { 3 } else { 2 });
            assert!(watch.is_empty());
        });
    }
}
