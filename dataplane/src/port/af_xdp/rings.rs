//! Rings between an `AF_XDP` socket and the kernel.
//!
//! [`Producer`] adds entries, [`Consumer`] takes them. Each keeps its own index and the other side's as last seen. The
//! memory is the kernel's, or plain memory in tests. Indices count entries and wrap at 2^32.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`, "Rings"; `net/xdp/xsk_queue.h` (barriers).

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use super::super::gauge;
use super::super::sys::Mapping;

/// A ring's entry: plain numbers, valid for any bytes.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// Byte offsets of indices, flags and entries in a ring's memory.
pub(super) type Offsets = libc::xdp_ring_offset;

/// Owner of a ring's memory.
enum Memory {
    Kernel {
        _mapping: Mapping,
    },
    #[cfg(test)]
    Plain {
        _words: Vec<u64>,
    },
}

/// The memory of a ring and our place in it.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    /// Our index; counts entries that the other side has not been shown yet, too.
    own: u32,
    /// The other side's index as last seen. It only moves forward, so it errs on the safe side.
    far: u32,
    _memory: Memory,
    of: PhantomData<T>,
}

// SAFETY: the pointers go to memory that the ring keeps, and nothing in it belongs to a thread.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// A ring of `count` entries over `base`, whose memory `memory` owns.
    fn over(base: NonNull<u8>, memory: Memory, offsets: &Offsets, count: u32) -> Self {
        assert!(count.is_power_of_two(), "indices are masked");
        let at = |offset: u64| {
            let offset = usize::try_from(offset).expect("a ring fits the address space");
            // SAFETY: the offsets are the kernel's for this mapping, which holds `count` entries.
            unsafe { base.add(offset) }
        };
        let mut ring = Self {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            mask: count - 1,
            own: 0,
            far: 0,
            _memory: memory,
            of: PhantomData,
        };
        ring.own = ring.producer().load(Ordering::Relaxed); // nothing has gone either way yet
        ring.far = ring.own;
        ring
    }

    fn map(fd: BorrowedFd<'_>, page: u64, offsets: &Offsets, count: u32) -> io::Result<Self> {
        let len = offsets.desc + u64::from(count) * size_of::<T>() as u64;
        let mapping = Mapping::shared(fd, page, len)?;
        let base = mapping.base();
        Ok(Self::over(base, Memory::Kernel { _mapping: mapping }, offsets, count))
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, and in memory that `self` keeps; both sides only use it atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    /// Whether the kernel must be called before it looks at this ring again.
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for `producer`.
        let flags = unsafe { self.flags.as_ref() };
        // Relaxed: the flag guards no data. A wake-up missed here is made at the next look.
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        // SAFETY: masked, so one of the entries, all of which are in memory that `self` keeps.
        unsafe { self.entries.add((index & self.mask) as usize) }
    }
}

/// The side that adds entries: fill and transmit rings.
pub(super) struct Producer<T>(Ring<T>);

impl<T: Entry> Producer<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &Offsets,
        count: u32,
    ) -> io::Result<Self> {
        let mut ring = Ring::map(fd, page, offsets, count)?;
        ring.far = ring.consumer().load(Ordering::Acquire);
        Ok(Self(ring))
    }

    /// A lower bound of the free entries; 0 only if the ring is full.
    #[inline]
    pub(super) fn free(&mut self) -> u32 {
        // Reads the kernel's index only when the last one seen leaves no room: its cache line is shared with the
        // kernel's core.
        let used = self.0.own.wrapping_sub(self.0.far);
        if used <= self.0.mask {
            return self.0.mask + 1 - used;
        }
        self.0.far = self.0.consumer().load(Ordering::Acquire); // pairs with the kernel's release
        self.0.mask + 1 - self.0.own.wrapping_sub(self.0.far)
    }

    /// Adds an entry, which the kernel sees after [`Self::publish`]; false if the ring is full.
    #[inline]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.free() == 0 {
            return false;
        }
        // SAFETY: there is room, so the slot is ours until `publish`.
        unsafe { self.0.slot(self.0.own).write(entry) };
        self.0.own = self.0.own.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries that were added.
    #[inline]
    pub(super) fn publish(&self) {
        self.0.producer().store(self.0.own, Ordering::Release); // pairs with the kernel's acquire
    }

    /// Number of entries that the kernel has not taken yet.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        self.0.own.wrapping_sub(self.0.consumer().load(Ordering::Acquire))
    }

    /// Whether the kernel must be called to go on with this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

/// The side that takes entries: receive and completion rings.
pub(super) struct Consumer<T>(Ring<T>);

impl<T: Entry> Consumer<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offsets: &Offsets,
        count: u32,
    ) -> io::Result<Self> {
        let mut ring = Ring::map(fd, page, offsets, count)?;
        ring.own = ring.consumer().load(Ordering::Relaxed);
        ring.far = ring.own;
        Ok(Self(ring))
    }

    /// Number of entries to take.
    #[inline]
    pub(super) fn ready(&mut self) -> u32 {
        self.0.far = self.0.producer().load(Ordering::Acquire); // pairs with the kernel's release
        self.0.far.wrapping_sub(self.0.own)
    }

    /// How full the ring is, for the gauge, where `entries` is the full mark; valid for as long as `self` lives.
    pub(super) const fn gauged(&self, entries: u32) -> gauge::Ring {
        let Ring { producer, consumer, .. } = self.0;
        gauge::Ring::Indices { producer, consumer, entries }
    }

    /// Takes an entry of those that [`Self::ready`] counted; its slot goes back to the kernel with [`Self::release`].
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.0.own == self.0.far {
            return None;
        }
        // SAFETY: the kernel has published this slot and does not touch it before `release`.
        let entry = unsafe { self.0.slot(self.0.own).read() };
        self.0.own = self.0.own.wrapping_add(1);
        Some(entry)
    }

    /// Returns the slots of all entries taken to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        self.0.consumer().store(self.0.own, Ordering::Release); // pairs with the kernel's acquire
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, desc: 192 };

    /// Both sides of one ring of `count` entries whose indices start at `start`.
    fn pair(count: u32, start: u32) -> (Producer<u64>, Consumer<u64>) {
        let mut words = vec![0_u64; 24 + count as usize];
        let base = NonNull::new(words.as_mut_ptr()).unwrap().cast::<u8>();
        let side = |words| Ring::over(base, Memory::Plain { _words: words }, &OFFSETS, count);
        let (mut producer, mut consumer) = (side(words), side(Vec::new()));
        producer.producer().store(start, Ordering::Relaxed);
        producer.consumer().store(start, Ordering::Relaxed);
        for ring in [&mut producer, &mut consumer] {
            (ring.own, ring.far) = (start, start);
        }
        (Producer(producer), Consumer(consumer))
    }

    #[test]
    fn entries_come_out_in_order_and_only_once_published() {
        for start in [0, u32::MAX - 5] {
            let (mut producer, mut consumer) = pair(4, start);
            let (mut given, mut taken) = (0_u64, 0_u64);
            for round in 0..40_u64 {
                let want = round % 6;
                let room = 4 - (given - taken);
                assert!(u64::from(producer.free()) <= room, "{round}");
                let pushed = (0..want).filter(|n| producer.push(given + n)).count();
                assert_eq!(pushed as u64, room.min(want), "{round}");
                assert_eq!(u64::from(consumer.ready()), given - taken, "unseen");
                producer.publish();
                given += pushed as u64;
                let ready = consumer.ready();
                assert_eq!(u64::from(ready), given - taken, "{round}");
                for _ in 0..u64::from(ready).min(1 + round % 3) {
                    assert_eq!(consumer.pop(), Some(taken), "{round}");
                    taken += 1;
                }
                consumer.release();
            }
            assert!(taken > 40, "the indices went round: {taken}");
            assert_eq!(u64::from(producer.waiting()), given - taken);
        }
    }

    /// All small rings, with indices at each place around their wrap, at each level, after each number of entries was
    /// taken, their slots given back or not: nothing else decides which slot an index names.
    #[test]
    fn every_level_holds_at_every_place_of_the_indices() {
        let most = if cfg!(miri) { 2 } else { 16 };
        let mut cases = 0;
        for count in [1, 2, 4, 8, 16].into_iter().filter(|&count| count <= most) {
            for before_wrap in 0..=2 * count {
                for level in 0..=count {
                    for gone in 0..=level {
                        for is_released in [false, true] {
                            let start = 0_u32.wrapping_sub(before_wrap);
                            hold(count, start, level, gone, is_released);
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(cases, if cfg!(miri) { 78 } else { 11_976 });
    }

    /// A ring with `level` entries of which `gone` were taken, then filled up, then emptied.
    fn hold(count: u32, start: u32, level: u32, gone: u32, is_released: bool) {
        let name = (count, start, level, gone, is_released);
        let (mut producer, mut consumer) = pair(count, start);
        assert!((0..level).all(|n| producer.push(n.into())), "{name:?}");
        assert_eq!(consumer.ready(), 0, "{name:?}: not published");
        producer.publish();
        assert_eq!((consumer.ready(), producer.waiting()), (level, level), "{name:?}");
        assert!((0..gone).all(|n| consumer.pop() == Some(n.into())), "{name:?}");
        if is_released {
            consumer.release();
        }
        let held = if is_released { level - gone } else { level };
        assert_eq!(producer.waiting(), held, "{name:?}");
        assert!(producer.free() <= count - held, "{name:?}: {}", producer.free());
        let mut end = level;
        while producer.push(end.into()) {
            end += 1;
        }
        assert_eq!((end - level, producer.free()), (count - held, 0), "{name:?}");
        producer.publish();
        assert_eq!(consumer.ready(), end - gone, "{name:?}");
        assert!((gone..end).all(|n| consumer.pop() == Some(n.into())), "{name:?}");
        assert_eq!(consumer.pop(), None, "{name:?}");
        consumer.release();
        assert_eq!((producer.waiting(), producer.free()), (0, count), "{name:?}");
    }

    #[test]
    fn a_full_ring_takes_no_more_until_slots_are_released() {
        let (mut producer, mut consumer) = pair(2, 7);
        assert!(producer.push(1) && producer.push(2) && !producer.push(3));
        producer.publish();
        assert_eq!(consumer.ready(), 2);
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(producer.free(), 0, "taken, but not released");
        consumer.release();
        assert_eq!(producer.free(), 1);
        assert!(producer.push(3) && !producer.push(4));
        producer.publish();
        assert_eq!(consumer.pop(), Some(2));
        assert_eq!(consumer.pop(), None, "not looked at yet");
        assert_eq!((consumer.ready(), consumer.pop()), (1, Some(3)));
        assert!(!producer.needs_wakeup());
    }
}
