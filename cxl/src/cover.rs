//! The parts of an answer that have come, in any order: a set of disjoint ranges, in bytes or doublewords as its user
//! counts.
//!
//! Source: docs/spec/wire-formats.md §3.6 (chunks in any order).

/// Parts of an answer that have come.
#[derive(Clone, Debug, Default)]
pub struct Cover(Vec<(u64, u64)>);

impl Cover {
    /// Whether no part has come.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the `len` units from `offset` on. False, and nothing is added, when the range is empty, ends behind `whole`
    /// or overlaps an earlier one.
    #[must_use]
    pub fn add(&mut self, offset: u64, len: u64, whole: u64) -> bool {
        let Some(end) = offset.checked_add(len).filter(|end| len > 0 && *end <= whole) else {
            return false;
        };
        // Ranges are sorted, disjoint and never touch, so only the two neighbours can overlap or join.
        let at = self.0.partition_point(|(start, _)| *start < offset);
        let before = at.checked_sub(1).and_then(|before| self.0.get(before)).copied();
        let after = self.0.get(at).copied();
        if before.is_some_and(|(_, to)| to > offset) || after.is_some_and(|(from, _)| from < end) {
            return false;
        }
        let joins_before = before.is_some_and(|(_, to)| to == offset);
        let (mut range, mut place) = ((offset, end), at);
        if let Some((from, _)) = before.filter(|_| joins_before) {
            (range.0, place) = (from, at - 1);
        }
        if let Some((_, to)) = after.filter(|(from, _)| *from == end) {
            range.1 = to;
            self.0.remove(at);
        }
        match self.0.get_mut(place).filter(|_| joins_before) {
            Some(old) => *old = range,
            None => self.0.insert(place, range),
        }
        true
    }

    /// Whether all of the `whole` units have come.
    #[must_use]
    pub fn is_whole(&self, whole: u64) -> bool {
        self.0.as_slice() == [(0, whole)]
    }
}
