//! Streams and tags: numbers that are lent out and returned. Both are first in, first out, so that a number rests as
//! long as possible before it is used again.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; PCIe 6.0 section 2.2.6.2 (14-bit tags).

use std::collections::VecDeque;

use super::port::{StreamId, Tag};

/// Streams not in use by a transfer.
pub struct Streams {
    free: VecDeque<StreamId>,
    count: usize,
}

impl Streams {
    #[must_use]
    pub fn new(count: usize) -> Self {
        let free = (0..u32::try_from(count).unwrap_or(u32::MAX)).map(StreamId).collect();
        Self { free, count }
    }

    /// Takes `want` streams; `None` if fewer are free.
    pub fn take(&mut self, want: usize) -> Option<Vec<StreamId>> {
        (want <= self.free.len()).then(|| self.free.drain(..want).collect())
    }

    pub fn give(&mut self, streams: impl IntoIterator<Item = StreamId>) {
        self.free.extend(streams);
        debug_assert!(self.free.len() <= self.count, "a stream was given back twice");
    }

    /// Number of streams in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.count - self.free.len()
    }
}

/// Tags not in use by a request.
pub struct Tags {
    free: VecDeque<Tag>,
}

impl Tags {
    /// All 2^14 tags.
    #[must_use]
    pub fn new() -> Self {
        Self { free: (0..Tag::COUNT).map(Tag).collect() }
    }

    /// Takes the tag that has rested longest.
    pub fn take(&mut self) -> Option<Tag> {
        self.free.pop_front()
    }

    /// Returns a tag that was taken and not used: it is the next one again.
    pub fn put_back(&mut self, tag: Tag) {
        self.free.push_front(tag);
    }

    /// Returns a tag after use.
    pub fn give(&mut self, tag: Tag) {
        self.free.push_back(tag);
        debug_assert!(self.free.len() <= usize::from(Tag::COUNT), "a tag was given back twice");
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}
