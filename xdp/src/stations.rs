//! Stations: a mirror of the forwarding database in memory that the program reads by itself.
//!
//! A key leads to a port and the time of its last frame; two buckets of four entries can hold a key.
//!
//! Source: docs/spec/pipeline.md §3; Fan et al., "`MemC3`", NSDI 2013 (two buckets of four).

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::io;

use crate::layout::{NO_PORT, Station, WAYS, homes};
use crate::sys::Mapped;

/// Number of buckets for `stations`: one each, so that both buckets of a key are full only by very bad luck or by
/// intent. (While 24,576 of 8,192 random stations were replaced, no station found both full; with half the buckets, one
/// in 400.)
pub(crate) fn buckets(stations: u32) -> u32 {
    const MOST: u32 = 1 << 24; // what `homes` tells apart
    stations.min(MOST).next_power_of_two().max(2)
}

/// The table. Only this side writes keys; the program writes [`NO_PORT`] and ticks to stations.
#[derive(Debug)]
pub(crate) struct Stations {
    words: Mapped,
    mask: u32,
    /// Entries that were cleared since the last grace period: a program may still be reading them.
    left: BTreeSet<usize>,
}

/// Station of an entry without a key.
const NOWHERE: Station = Station { port: NO_PORT, fixed: 0, last_seen: 0 };

/// An entry: the index of its key. Its station is [`WAYS`] words behind that.
#[derive(Clone, Copy)]
struct Place(usize);

impl Stations {
    /// Words per bucket.
    pub const BUCKET: usize = 2 * WAYS;

    /// A table of `buckets` empty buckets, a power of two.
    pub fn new(words: Mapped, buckets: u32) -> Self {
        let table = Self { words, mask: buckets - 1, left: BTreeSet::new() };
        for place in table.places() {
            table.set(place, NOWHERE);
        }
        table
    }

    /// Number of buckets, less one.
    pub const fn mask(&self) -> u32 {
        self.mask
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let count = (self.mask as usize + 1) * WAYS;
        (0..count).map(|n| Place(n / WAYS * Self::BUCKET + n % WAYS))
    }

    fn places_of(bucket: u32) -> impl Iterator<Item = Place> {
        (0..WAYS).map(move |way| Place(bucket as usize * Self::BUCKET + way))
    }

    fn key(&self, Place(at): Place) -> u64 {
        self.words.word(at).load(Ordering::Relaxed)
    }

    fn set_key(&self, Place(at): Place, key: u64) {
        // Release: the station was written before its key. A program on a machine with weakly ordered loads may still
        // read the station first, and then finds `NO_PORT`.
        self.words.word(at).store(key, Ordering::Release);
    }

    fn station(&self, Place(at): Place) -> Station {
        Station::from_word(self.words.word(at + WAYS).load(Ordering::Relaxed))
    }

    fn set(&self, Place(at): Place, station: Station) {
        self.words.word(at + WAYS).store(station.word(), Ordering::Release);
    }

    fn find(&self, key: u64) -> Option<Place> {
        let (first, second) = homes(key, self.mask);
        Self::places_of(first).chain(Self::places_of(second)).find(|&place| self.key(place) == key)
    }

    pub fn get(&self, key: u64) -> Option<Station> {
        self.find(key).map(|place| self.station(place))
    }

    /// All stations with their keys, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Station)> + '_ {
        let all = self.places().map(|place| (self.key(place), place));
        all.filter(|(key, _)| *key != 0).map(|(key, place)| (key, self.station(place)))
    }

    /// Number of keys in a bucket.
    fn used(&self, bucket: u32) -> usize {
        Self::places_of(bucket).filter(|&place| self.key(place) != 0).count()
    }

    /// An empty entry for a new key: in its first bucket, where programs look first, unless that is nearly full and the
    /// second has more room. If all empty entries were in use lately, waits by `grace` for programs that may be reading
    /// them.
    fn free(
        &mut self,
        key: u64,
        grace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Option<Place>> {
        let (first, second) = homes(key, self.mask);
        let nearly_full = self.used(first) + 1 >= WAYS && self.used(second) < self.used(first);
        let (one, other) = if nearly_full { (second, first) } else { (first, second) };
        let places = || Self::places_of(one).chain(Self::places_of(other));
        let is_empty = |place: &Place| self.key(*place) == 0;
        let Some(any) = places().find(is_empty) else { return Ok(None) };
        let fresh = places().find(|place| is_empty(place) && !self.left.contains(&place.0));
        if fresh.is_none() {
            grace()?;
            self.left.clear();
        }
        Ok(Some(fresh.unwrap_or(any)))
    }

    /// Adds or changes a station; returns false, and changes nothing, if its two buckets are full.
    pub fn put(
        &mut self,
        key: u64,
        station: Station,
        grace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<bool> {
        if let Some(place) = self.find(key) {
            self.set(place, station);
            return Ok(true);
        }
        let Some(place) = self.free(key, grace)? else { return Ok(false) };
        self.set(place, station);
        // The key last: a program that finds it must find the station, too.
        self.set_key(place, key);
        Ok(true)
    }

    /// Removes a station; true if there was one.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(place) = self.find(key) else { return false };
        // The station first: a program that has just matched the key then finds no port, and passes the frame to user
        // space.
        self.set(place, NOWHERE);
        self.set_key(place, 0);
        // Until a grace period a program may hold a pointer to this entry, and would write its tick to another station.
        self.left.insert(place.0);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::layout::fdb_key;

    fn table(buckets: u32) -> Stations {
        let words = Mapped::anonymous(buckets as usize * Stations::BUCKET).unwrap();
        Stations::new(words, buckets)
    }

    fn at(port: u16) -> Station {
        Station { port, fixed: 0, last_seen: 7 }
    }

    fn needless() -> io::Result<()> {
        panic!("there were places that no program can be at")
    }

    /// Keys whose first bucket of two is bucket 0.
    fn keys() -> impl Iterator<Item = u64> {
        (1..).map(|addr| fdb_key(1, addr)).filter(|&key| homes(key, 1).0 == 0)
    }

    #[test]
    fn buckets_are_a_power_of_two() {
        for (stations, want) in
            [(0, 2), (2, 2), (3, 4), (65_536, 65_536), (65_537, 131_072), (u32::MAX, 1 << 24)]
        {
            assert_eq!(buckets(stations), want, "{stations}");
        }
    }

    #[test]
    fn an_empty_place_holds_no_port() {
        let table = table(4);
        assert!(table.places().all(|place| table.station(place) == NOWHERE));
        assert_eq!(table.places().count(), 16);
        assert_ne!(fdb_key(0, 0), 0, "no key is that of an empty place");
    }

    /// A key goes to one of two buckets, the first preferred. A key that finds no room is left out and changes nothing.
    #[test]
    fn what_finds_no_room_is_left_out() {
        let mut table = table(2);
        let all: Vec<u64> = keys().take(9).collect();
        let (last, held) = all.split_last().unwrap();
        for (n, &key) in (0..).zip(held) {
            assert!(table.put(key, at(n), needless).unwrap(), "{n}");
        }
        let order: Vec<u64> = table.places().map(|place| table.key(place)).collect();
        let want = [0, 1, 2, 6, 3, 4, 5, 7].map(|n: usize| held[n]);
        assert_eq!(order, want, "the first bucket, until it is nearly full");
        assert!(!table.put(*last, at(9), needless).unwrap(), "full");
        assert!(table.find(*last).is_none());
        assert!(table.put(held[3], at(33), needless).unwrap(), "there already");
        for (n, &key) in (0..).zip(held) {
            let want = at(if n == 3 { 33 } else { n });
            assert_eq!(table.find(key).map(|place| table.station(place)), Some(want), "{n}");
        }
    }

    /// A program may still be at a place that was cleared: none is filled again before it has ended.
    #[test]
    fn a_place_that_was_left_is_filled_after_a_grace_period_only() {
        let mut table = table(2);
        let all: Vec<u64> = keys().take(20).collect();
        for &key in &all[..6] {
            assert!(table.put(key, at(1), needless).unwrap());
        }
        let left: Vec<usize> = all[..2].iter().map(|&key| table.find(key).unwrap().0).collect();
        for &key in &all[..2] {
            assert!(table.remove(key), "it was there");
            assert!(!table.remove(key), "it is gone");
        }
        assert!(left.iter().all(|&place| table.station(Place(place)) == NOWHERE));
        for &key in &all[6..8] {
            assert!(table.put(key, at(2), needless).unwrap(), "two are fresh");
        }
        let refused = table.put(all[8], at(3), || Err(io::ErrorKind::Unsupported.into()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert!(table.find(all[8]).is_none(), "not without waiting");
        let mut waited = 0;
        let mut wait = || {
            waited += 1;
            Ok(())
        };
        assert!(table.put(all[8], at(3), &mut wait).unwrap());
        assert!(table.put(all[9], at(3), &mut wait).unwrap(), "who ended for one, ended for both");
        assert_eq!(waited, 1);
        assert!(left.contains(&table.find(all[8]).unwrap().0));
    }

    /// Against a map: a key is found until it is removed, with the port that was put last.
    #[test]
    fn random_changes_fare_as_in_a_map() {
        let mut table = table(buckets(512));
        let mut model = BTreeMap::new();
        let (mut seed, mut full) = (1_u64, 0);
        for _ in 0..40_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (key, port) = (fdb_key(1, seed >> 33 & 0x1FF), (seed >> 50 & 63) as u16);
            if seed >> 60 < 8 {
                assert_eq!(table.remove(key), model.remove(&key).is_some());
            } else if table.put(key, at(port), || Ok(())).unwrap() {
                model.insert(key, port);
            } else {
                assert!(!model.contains_key(&key));
                full += 1;
            }
            let found = table.find(key).map(|place| table.station(place).port);
            assert_eq!(found, model.get(&key).copied());
        }
        let held: BTreeMap<u64, u16> = table
            .places()
            .map(|place| (table.key(place), table.station(place).port))
            .filter(|(key, _)| *key != 0)
            .collect();
        assert_eq!(held, model);
        assert_eq!(full, 0, "there is room for all");
    }
}
