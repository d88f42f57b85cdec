//! The re-router at a memory device's edge: sends a UIO completion straight back to the requester by its id.
//!
//! Maps (segment, bus, device, function) to a PID; 256 entries in buckets of one cache line.
//!
//! Source: CXL 3.1 section 7.7.9; docs/spec/wire-formats.md §4.5 (5712h, 5713h), §5.3.

use std::sync::Arc;

use weft_parsers::fabric::{Bdf, Pid, ReRouterEntry};

use super::error::TableError;
use super::segments::range;

/// Number of buckets: four times as many slots as entries, so that nearly all lookups read one bucket.
const BUCKETS: usize = 128;

const VALID: u64 = 1 << 63;
const SEGMENT_COUNTS: u64 = 1 << 33;
const SEGMENT_AT: u64 = 40; // 8 bits
const BDF_AT: u64 = 16; // 16 bits; the PID stands below

/// Eight slots of one cache line, filled from the first on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Bucket([u64; 8]);

/// PIDs of requesters, for completions on their way back.
///
/// An entry without a segment matches every segment that a completion names; one with a segment matches only that. No
/// completion can match two entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReRouter {
    /// Entries as commands set them, by index.
    entries: Arc<[Option<ReRouterEntry>]>,
    buckets: Arc<[Bucket]>,
}

impl Default for ReRouter {
    fn default() -> Self {
        Self {
            entries: vec![None; Self::LEN].into(),
            buckets: vec![Bucket::default(); BUCKETS].into(),
        }
    }
}

impl ReRouter {
    /// Number of entries.
    pub const LEN: usize = 256;

    /// PID for a completion to `requester`; `segment` is that of its destination, if it names one.
    ///
    /// Reads one cache line, and another for each full bucket on the way.
    #[inline]
    #[must_use]
    pub fn lookup(&self, segment: Option<u8>, requester: Bdf) -> Option<Pid> {
        let slot = self.find(requester, |slot| matches(slot, segment, requester))?;
        Some(Pid::from_low_bits(low_u16(slot)))
    }

    /// Whether completions to `requester`, of any segment, go to `pid`.
    #[must_use]
    pub fn leads_to(&self, requester: Bdf, pid: Pid) -> bool {
        let id = requester.bits();
        let is_it =
            |slot| low_u16(slot >> BDF_AT) == id && Pid::from_low_bits(low_u16(slot)) == pid;
        self.find(requester, is_it).is_some()
    }

    /// The first slot that `is_it` accepts, from the requester's bucket on, up to the first free slot.
    #[inline]
    fn find(&self, requester: Bdf, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        let first = bucket_of(requester);
        for step in 0..BUCKETS {
            let bucket = self.buckets.get((first + step) % BUCKETS)?;
            for &slot in &bucket.0 {
                // Entries are never removed one by one: `set` rebuilds all buckets, so a free slot ends every search.
                if slot == 0 {
                    return None;
                }
                if is_it(slot) {
                    return Some(slot);
                }
            }
        }
        None
    }

    /// Sets entries from `start` on; all of them or none. `None`, or a DPID of `0xFFF`, clears an entry.
    ///
    /// # Errors
    /// The range leaves the table, or a completion could match two entries; nothing has changed then.
    pub fn set(
        &mut self,
        start: usize,
        entries: &[Option<ReRouterEntry>],
    ) -> Result<(), TableError> {
        range(start, entries.len(), Self::LEN)?;
        let mut all = self.entries.to_vec();
        for (place, entry) in all.iter_mut().skip(start).zip(entries) {
            *place = entry.filter(|entry| !entry.dpid.is_none());
        }
        let mut sorted: Vec<ReRouterEntry> = all.iter().copied().flatten().collect();
        sorted.sort_unstable_by_key(|entry| (entry.requester, entry.segment)); // no segment comes first
        let mut last: Option<ReRouterEntry> = None;
        for &entry in &sorted {
            if let Some(before) = last
                && before.requester == entry.requester
                // Sorted, an entry without a segment precedes those of its requester with one, all of which it would
                // match as well.
                && (before.segment.is_none() || before.segment == entry.segment)
            {
                return Err(TableError::Twice(entry.requester));
            }
            last = Some(entry);
        }
        self.buckets = fill(&sorted).into();
        self.entries = all.into();
        Ok(())
    }

    /// The entry at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<ReRouterEntry> {
        self.entries.get(index).copied().flatten()
    }
}

/// Makes buckets of `entries`, each in the first free slot from its own bucket on.
fn fill(entries: &[ReRouterEntry]) -> Vec<Bucket> {
    let mut buckets = vec![Bucket::default(); BUCKETS];
    for &entry in entries {
        let first = bucket_of(entry.requester);
        let mut places = (0..BUCKETS).map(|step| (first + step) % BUCKETS);
        let free = places.find(|&at| buckets.get(at).is_some_and(|bucket| bucket.0.contains(&0)));
        let bucket = free.and_then(|at| buckets.get_mut(at));
        if let Some(slot) = bucket.and_then(|bucket| bucket.0.iter_mut().find(|slot| **slot == 0)) {
            *slot = word(entry);
        }
    }
    buckets
}

/// Bucket at which the search for a requester begins: its 16 bits, spread by a multiplication.
#[inline]
const fn bucket_of(requester: Bdf) -> usize {
    (requester.bits().wrapping_mul(0x9E37) >> 9) as usize % BUCKETS
}

fn word(entry: ReRouterEntry) -> u64 {
    let segment = match entry.segment {
        Some(segment) => SEGMENT_COUNTS | u64::from(segment) << SEGMENT_AT,
        None => 0,
    };
    VALID | segment | u64::from(entry.requester.bits()) << BDF_AT | u64::from(entry.dpid.bits())
}

#[inline]
fn matches(slot: u64, segment: Option<u8>, requester: Bdf) -> bool {
    if low_u16(slot >> BDF_AT) != requester.bits() {
        return false;
    }
    slot & SEGMENT_COUNTS == 0
        || segment.is_some_and(|segment| (slot >> SEGMENT_AT) & 0xFF == u64::from(segment))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "low bits are what is asked for")]
const fn low_u16(bits: u64) -> u16 {
    bits as u16
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "as tables are told")]
    fn entry(segment: Option<u8>, requester: u16, dpid: u16) -> Option<ReRouterEntry> {
        let dpid = Pid::from_low_bits(dpid);
        Some(ReRouterEntry { dpid, segment, requester: Bdf::from_bits(requester) })
    }

    #[test]
    fn a_segment_counts_only_where_the_entry_has_one() {
        let mut table = ReRouter::default();
        table
            .set(3, &[entry(None, 0x0100, 1), entry(Some(7), 0x0200, 2), entry(Some(8), 0x0200, 3)])
            .unwrap();
        #[rustfmt::skip] // columns: segment, requester, want
        let cases = [
            (None,    0x0100, Some(1)), (Some(9), 0x0100, Some(1)),
            (Some(7), 0x0200, Some(2)), (Some(8), 0x0200, Some(3)),
            (None,    0x0200, None),    (Some(9), 0x0200, None), (None, 0x0101, None),
        ];
        for (segment, requester, want) in cases {
            let found = table.lookup(segment, Bdf::from_bits(requester));
            assert_eq!(found, want.map(Pid::from_low_bits), "{segment:?} {requester:#x}");
        }
        for (requester, dpid) in [(0x0100, 1), (0x0200, 2), (0x0200, 3), (0x0100, 2), (0x0300, 1)] {
            let leads = table.leads_to(Bdf::from_bits(requester), Pid::from_low_bits(dpid));
            let want = [(0x0100, 1), (0x0200, 2), (0x0200, 3)].contains(&(requester, dpid));
            assert_eq!(leads, want, "{requester:#x} to {dpid}");
        }
        let leads = |id: u16| table.leads_to(Bdf::from_bits(id), Pid::from_low_bits(1));
        let all: Vec<u16> = (0..=u16::MAX).filter(|id| leads(*id)).collect();
        assert_eq!(all, [0x0100], "no other id, of whatever bucket");
        assert_eq!((table.get(3), table.get(0)), (entry(None, 0x0100, 1), None));
    }

    #[test]
    fn entries_that_a_completion_could_match_both_are_refused() {
        let twice = Err(TableError::Twice(Bdf::from_bits(0x0100)));
        #[rustfmt::skip] // columns: two segments, want
        let cases = [
            (None, None, twice), (None, Some(1), twice), (Some(1), None, twice), (Some(1), Some(1), twice),
            (Some(1), Some(2), Ok(())),
        ];
        for (a, b, want) in cases {
            let mut table = ReRouter::default();
            let both = [entry(a, 0x0100, 1), entry(Some(4), 0x0900, 3), entry(b, 0x0100, 2)];
            assert_eq!(table.set(0, &both), want, "{a:?} {b:?}");
            assert_eq!(table == ReRouter::default(), want.is_err(), "as it was");
        }
        let mut table = ReRouter::default();
        table.set(5, &[entry(None, 0x0100, 1)]).unwrap();
        assert_eq!(table.set(5, &[entry(Some(1), 0x0100, 2)]), Ok(()), "in place of the old one");
        assert!(table.set(255, &[None, None]).is_err());
    }

    /// 256 requesters of one id in 256 segments fill bucket after bucket.
    #[test]
    fn a_full_table_of_one_requester_still_finds_each() {
        let mut table = ReRouter::default();
        let all: Vec<_> = (0..=255).map(|s| entry(Some(s), 0x1234, u16::from(s))).collect();
        table.set(0, &all).unwrap();
        for segment in 0..=255 {
            let found = table.lookup(Some(segment), Bdf::from_bits(0x1234));
            assert_eq!(found, Some(Pid::from_low_bits(segment.into())), "{segment}");
        }
        assert_eq!(table.lookup(None, Bdf::from_bits(0x1234)), None);
    }

    /// Random sets against a scan of all entries.
    #[test]
    fn random_changes_match_a_scan() {
        let (mut rng, mut table) = (Rng::new(4), ReRouter::default());
        let mut model: Vec<Option<ReRouterEntry>> = vec![None; ReRouter::LEN];
        let hit = |e: &ReRouterEntry, segment: Option<u8>, requester: Bdf| {
            e.requester == requester && (e.segment.is_none() || e.segment == segment)
        };
        let (mut set, mut refused) = (0, 0);
        for _ in 0..5_000 {
            let place = usize::try_from(rng.below(256)).unwrap();
            let segment = rng.chance(1, 2).then(|| u8::try_from(rng.below(4)).unwrap());
            let requester = u16::try_from(rng.below(300)).unwrap();
            let new = match rng.below(5) {
                0 => None,
                _ => entry(segment, requester, u16::try_from(rng.below(0xFFF)).unwrap()),
            };
            let clash = new.is_some_and(|new| {
                model.iter().enumerate().filter(|(at, _)| *at != place).any(|(_, old)| {
                    old.is_some_and(|old| {
                        old.requester == new.requester
                            && (old.segment.is_none()
                                || new.segment.is_none()
                                || old.segment == new.segment)
                    })
                })
            });
            assert_eq!(table.set(place, &[new]).is_err(), clash, "{new:?}");
            if clash {
                refused += 1;
            } else {
                (model[place], set) = (new, set + 1);
            }
            let probe = Bdf::from_bits(u16::try_from(rng.below(300)).unwrap());
            let segment = rng.chance(1, 2).then(|| u8::try_from(rng.below(4)).unwrap());
            let mut want = model.iter().flatten().filter(|e| hit(e, segment, probe));
            assert_eq!(table.lookup(segment, probe), want.next().map(|e| e.dpid));
            assert_eq!(want.next(), None, "no completion matches two");
        }
        assert!(set > 1_000 && refused > 500, "{set} {refused}");
    }
}
