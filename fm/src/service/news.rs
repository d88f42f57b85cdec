//! Repeated events: each kind is reported when it begins, and whenever its count has doubled.
//!
//! Source: docs/fm.md "Monitoring the fabric".

use std::collections::BTreeMap;

/// Number of kinds that are counted apart.
pub(super) const KINDS_MAX: usize = 1_024;

/// Count that was reported last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told(u64);

impl Told {
    /// Whether `count` is to be reported now: the first one, and then whenever it has doubled, so that no kind that
    /// goes on hides others. A count lower than before is reported, too: the component that counts was restarted.
    pub const fn is_news(&mut self, count: u64) -> bool {
        if count == 0 || self.0 <= count && count < self.0.saturating_mul(2) {
            return false;
        }
        self.0 = count;
        true
    }
}

/// Reported counts, by kind.
#[derive(Debug)]
pub(super) struct News<K> {
    told: BTreeMap<K, Told>,
}

impl<K> Default for News<K> {
    fn default() -> Self {
        Self { told: BTreeMap::new() }
    }
}

impl<K: Ord> News<K> {
    /// Whether this kind is known, or there is room for one more.
    pub fn has_room_for(&self, kind: &K) -> bool {
        self.told.len() < KINDS_MAX || self.told.contains_key(kind)
    }

    /// Whether `count` of a kind is to be reported now; see [`Told::is_news`].
    pub fn is_news(&mut self, kind: K, count: u64) -> bool {
        count > 0 && self.has_room_for(&kind) && self.told.entry(kind).or_default().is_news(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_told_when_they_begin_and_when_they_double() {
        let mut news = News::default();
        #[rustfmt::skip] // columns: kind, count, told
        let cases = [
            (1, 0, false), (1, 1, true), (1, 1, false), (1, 2, true), (1, 3, false), (2, 900, true), (1, 4, true),
            (2, 1_799, false), (2, 1_800, true), (2, 3, true), (2, 5, false),
        ];
        for (kind, count, told) in cases {
            assert_eq!(news.is_news(kind, count), told, "{kind} {count}");
        }
        let lines = (0..1_000_000_u64).filter(|count| news.is_news(3, *count)).count();
        assert_eq!(lines, 20, "a line for each power of two");
    }

    #[test]
    fn kinds_are_bounded() {
        let mut news = News::default();
        for kind in 0..2 * KINDS_MAX {
            assert_eq!(news.has_room_for(&kind), kind < KINDS_MAX);
            assert_eq!(news.is_news(kind, 1), kind < KINDS_MAX, "{kind}");
        }
        assert!(news.has_room_for(&1));
    }
}
