//! Fill level of a port's receive rings, for threads other than the port's worker.
//!
//! The pause guard reads it while a worker is away. A port shows its rings while they are mapped ([`RxGauge::show`]).
//!
//! Source: the kernel's status words and indices, as in `af_packet::slots` and `af_xdp::rings`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of a ring that are read: filled slots lie next to each other, so a few evenly spread ones tell the level.
pub(super) const PROBES: usize = 32;

/// A ring whose level can be read at any time.
pub(super) enum Ring {
    /// Status words of at most [`PROBES`] slots, evenly spread; `bit` marks a filled slot.
    Slots { words: Vec<NonNull<AtomicU32>>, bit: u32 },
    /// Indices that run on and wrap; the ring is full with `entries`.
    Indices { producer: NonNull<AtomicU32>, consumer: NonNull<AtomicU32>, entries: u32 },
    /// A fixed level, for tests.
    #[cfg(test)]
    Level(Arc<core::sync::atomic::AtomicU16>),
}

// SAFETY: the words are only read, and atomically; the memory is that of the process.
unsafe impl Send for Ring {}

impl Ring {
    fn permille(&self) -> u16 {
        // Relaxed: only these words are read, no data behind them.
        // SAFETY: `show`: the words are there for as long as the ring is shown.
        let load = |word: &NonNull<AtomicU32>| unsafe { word.as_ref() }.load(Ordering::Relaxed);
        let (filled, of) = match self {
            Self::Slots { words, bit } => {
                let filled = words.iter().filter(|word| load(word) & bit != 0).count();
                (filled as u64, words.len() as u64)
            }
            Self::Indices { producer, consumer, entries } => {
                // The consumer's index first: if the worker goes on in between, the difference errs upwards and cannot
                // be negative.
                let consumed = load(consumer);
                (u64::from(load(producer).wrapping_sub(consumed)), u64::from(*entries))
            }
            #[cfg(test)]
            Self::Level(level) => (u64::from(level.load(Ordering::Relaxed)), 1_000),
        };
        u16::try_from((filled * 1_000 / of.max(1)).min(1_000)).unwrap_or(1_000)
    }
}

/// Fill level of one port's receive rings; it stays valid while the interface comes and goes.
#[derive(Clone, Default)]
pub struct RxGauge(Arc<Mutex<Vec<Ring>>>);

impl RxGauge {
    fn rings(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Level of the fullest ring in 1/1,000; 0 while the port has no rings.
    #[must_use]
    pub fn permille(&self) -> u16 {
        self.rings().iter().map(Ring::permille).max().unwrap_or(0)
    }

    /// Has the gauge read `rings` until the returned value is dropped.
    ///
    /// # Safety
    /// The words of `rings` stay mapped until then.
    pub(super) unsafe fn show(&self, rings: Vec<Ring>) -> Shown {
        *self.rings() = rings;
        Shown(self.clone())
    }

    /// A gauge that reads `level`, in 1/1,000.
    #[cfg(test)]
    pub(crate) fn of_level(level: Arc<core::sync::atomic::AtomicU16>) -> Self {
        Self(Arc::new(Mutex::new(vec![Ring::Level(level)])))
    }
}

/// Rings that a gauge reads; drop it before their memory is unmapped.
pub(super) struct Shown(RxGauge);

impl Drop for Shown {
    fn drop(&mut self) {
        // Waits for a reader, which holds the lock while it reads the words: afterwards the memory may go.
        self.0.rings().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_ring_counts_while_rings_are_shown() {
        let gauge = RxGauge::default();
        assert_eq!(gauge.permille(), 0);
        let slots: Vec<AtomicU32> = (0..PROBES).map(|_| AtomicU32::new(4)).collect();
        let indices = [AtomicU32::new(u32::MAX - 1), AtomicU32::new(u32::MAX - 1)];
        let rings = vec![
            Ring::Slots { words: slots.iter().map(NonNull::from).collect(), bit: 1 },
            Ring::Indices {
                producer: NonNull::from(&indices[0]),
                consumer: NonNull::from(&indices[1]),
                entries: 8,
            },
        ];
        // SAFETY: dropped before `slots` and `indices`.
        let shown = unsafe { gauge.show(rings) };
        assert_eq!(gauge.permille(), 0);
        slots[3].store(5, Ordering::Relaxed);
        assert_eq!(gauge.permille(), 31, "one of 32 slots");
        indices[0].store(3, Ordering::Relaxed);
        assert_eq!(gauge.permille(), 625, "five of eight entries, over the wrap");
        indices[0].store(90, Ordering::Relaxed);
        assert_eq!(gauge.permille(), 1_000);
        drop(shown);
        assert_eq!(gauge.permille(), 0);
    }
}
