//! Ageing: removes entries of the forwarding database that no frame has refreshed for too long.
//!
//! A sweep goes over the table some buckets at a time. It also finds out when the next sweep is due.
//!
//! Source: IEEE 802.1Q clause 8.8.3; docs/spec/pipeline.md §3.

use weft_base::sync::Ordering;

use super::api::LearnKind;
use super::entry::Tick;
use super::{Fdb, add};
use crate::time::{Instant, Span};

/// When the next sweep is due; fits one word, so that workers read it without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Never,
    Now,
    At(Tick),
}

impl Due {
    pub(super) const fn word(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::Now => 1 << 32,
            Self::At(tick) => 2 << 32 | tick.bits() as u64,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the tick is the low half")]
    const fn from_word(word: u64) -> Self {
        match word >> 32 {
            0 => Self::Never,
            1 => Self::Now,
            _ => Self::At(Tick::from_bits(word as u32)),
        }
    }
}

impl Fdb {
    /// Removes entries that are too old, looking at up to `bucket_budget` buckets of 4; returns how many were removed.
    ///
    /// Costs nothing before [`Fdb::next_age_due`]. Removes nothing while another thread writes.
    pub fn age(&self, now: Instant, bucket_budget: usize) -> usize {
        let tick = Tick::at(now);
        if !self.is_due(tick) {
            return 0;
        }
        let Some(mut writer) = self.try_writer() else { return 0 };
        let life = self.life.load(Ordering::Relaxed); // changed under our lock only
        if life == 0 || !self.is_due(tick) {
            return 0; // another worker has just finished the sweep
        }
        // A sweep takes several calls: each must find it due until the last bucket is done.
        self.set_due(Due::Now);
        if writer.sweep_at == 0 {
            writer.oldest = None;
            // Called for its side effect: it drops movers that are too old, also while nothing moves.
            writer.moves.state(now);
        }
        let mut removed = 0;
        for bucket in self.table.buckets().iter().skip(writer.sweep_at).take(bucket_budget) {
            writer.sweep_at += 1;
            for entry in bucket.entries() {
                let Some((key, value)) = entry.both() else { continue };
                if value.is_static() {
                    continue;
                }
                if tick.since(value.tick()) < life {
                    // The oldest stamp that stays says when the next entry can grow too old.
                    writer.note_stamp(value.tick());
                    continue;
                }
                self.remove(&mut writer, entry, value);
                self.tell(key, value.port(), LearnKind::Aged);
                removed += 1;
            }
        }
        if writer.sweep_at == self.table.buckets().len() {
            writer.sweep_at = 0;
            self.set_due(writer.oldest.map_or(Due::Never, |tick| Due::At(tick.plus(life))));
        }
        add(&self.counters.aged, removed as u64);
        removed
    }

    /// Time at which to call [`Fdb::age`] next; `None` while no entry can grow too old.
    #[must_use]
    pub fn next_age_due(&self, now: Instant) -> Option<Instant> {
        match self.due() {
            Due::Never => None,
            Due::Now => Some(now),
            Due::At(tick) => Some(tick.start()),
        }
    }

    /// Sets the lifetime of learned entries, zero for no limit; entries that are too old go with the next sweep.
    pub fn set_ageing(&self, ageing: Span) {
        let mut writer = self.writer();
        let life = Tick::cover(ageing);
        self.life.store(life, Ordering::Relaxed); // read under the same lock
        // A sweep in progress went by the old lifetime; the new one starts over.
        writer.sweep_at = 0;
        self.set_due(if life == 0 || writer.used == 0 { Due::Never } else { Due::Now });
    }

    pub(super) fn due(&self) -> Due {
        Due::from_word(self.due.load(Ordering::Relaxed)) // a hint; `age` asks again under the lock
    }

    pub(super) fn set_due(&self, due: Due) {
        self.due.store(due.word(), Ordering::Relaxed); // a hint; `age` asks again under the lock
    }

    fn is_due(&self, now: Tick) -> bool {
        match self.due() {
            Due::Never => false,
            Due::Now => true,
            Due::At(tick) => now.start() >= tick.start(),
        }
    }
}
