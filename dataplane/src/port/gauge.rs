//! How full the receive rings of a port are, for threads other than the port's worker.
//!
//! [`RxGauge::permille`] of rings that the port shows while it has them ([`RxGauge::show`]).
//!
//! Units: frames; 1/1,000 of a ring.
//! Source: the kernel's status words and indices, as in `af_packet::slots` and `af_xdp::rings`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of a ring that are looked at: the filled ones lie next to each other, so a few tell how many they are.
pub(super) const PROBES: usize = 32;

/// A ring of which something can be read at any time.
pub(super) enum Ring {
    /// Status words of [`PROBES`] slots or fewer, evenly spread; those that have `bit` are filled.
    Slots { words: Vec<NonNull<AtomicU32>>, bit: u32 },
    /// Indices that run on and wrap, and how many entries the ring is good for.
    Indices { producer: NonNull<AtomicU32>, consumer: NonNull<AtomicU32>, entries: u32 },
    /// So full.
    #[cfg(test)]
    Level(Arc<core::sync::atomic::AtomicU16>),
}

// SAFETY: the words are only read, and atomically; the memory is that of the process.
unsafe impl Send for Ring {}

impl Ring {
    fn permille(&self) -> u16 {
        // Nothing is read but these words, so no order is needed.
        // SAFETY: `show`: the words are there for as long as the ring is shown.
        let load = |word: &NonNull<AtomicU32>| unsafe { word.as_ref() }.load(Ordering::Relaxed);
        let (filled, of) = match self {
            Self::Slots { words, bit } => {
                let filled = words.iter().filter(|word| load(word) & bit != 0).count();
                (filled as u64, words.len() as u64)
            }
            Self::Indices { producer, consumer, entries } => {
                // In this order: a consumer that goes on meanwhile makes it more and not negative.
                let consumed = load(consumer);
                (u64::from(load(producer).wrapping_sub(consumed)), u64::from(*entries))
            }
            #[cfg(test)]
            Self::Level(level) => (u64::from(level.load(Ordering::Relaxed)), 1_000),
        };
        u16::try_from((filled * 1_000 / of.max(1)).min(1_000)).unwrap_or(1_000)
    }
}

/// The receive rings of one port, whatever becomes of its interface.
#[derive(Clone, Default)]
pub struct RxGauge(Arc<Mutex<Vec<Ring>>>);

impl RxGauge {
    fn rings(&self) -> MutexGuard<'_, Vec<Ring>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How full the fullest ring is; 0 while there is none.
    #[must_use]
    pub fn permille(&self) -> u16 {
        self.rings().iter().map(Ring::permille).max().unwrap_or(0)
    }

    /// Has the gauge read `rings` until what is returned is dropped.
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

/// Rings that a gauge reads; dropped before their memory goes.
pub(super) struct Shown(RxGauge);

impl Drop for Shown {
    fn drop(&mut self) {
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
