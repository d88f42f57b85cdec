//! Messages that are not done, and of each peer those that are not all in slots.
//!
//! [`Backlog::add`] takes a message, [`Backlog::next`] gives its frames one by one; [`Backlog::complete`] ends it.
//!
//! Units: bytes of payload, frames.
//! Source: docs/spec/model.md §4 "Messages".

use std::collections::BTreeSet;

use super::event::Message;

/// No message.
pub(super) const NONE: u32 = u32::MAX;

/// A message that is not done.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Bytes that are not in slots.
    bytes: u64,
    id: u32,
    /// Frames that were put into slots.
    written: u32,
    /// Frames that were sent again.
    resent: u32,
    /// The next one to the same peer; of an entry that is free, the next one of those.
    after: u32,
    /// Place of who it is for.
    to: u16,
    /// Frames in slots.
    frames: u16,
    in_use: bool,
}

/// A frame that goes into a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub index: u32,
    pub len: u64,
    pub is_last: bool,
}

/// All messages that are not done, by a place of their own.
#[derive(Debug)]
pub(super) struct Backlog {
    all: Vec<Open>,
    /// The first entry that is free.
    free: u32,
    ids: BTreeSet<u32>,
}

impl Backlog {
    /// None.
    pub const fn new() -> Self {
        Self { all: Vec::new(), free: NONE, ids: BTreeSet::new() }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether there is one of that number.
    pub fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Takes a message for the peer at place `to`; returns where.
    pub fn add(&mut self, message: &Message, to: u16) -> u32 {
        self.ids.insert(message.id);
        let open = Open {
            bytes: message.bytes,
            id: message.id,
            written: 0,
            resent: 0,
            after: NONE,
            to,
            frames: 0,
            in_use: true,
        };
        if let Some(entry) = self.all.get_mut(self.free as usize) {
            let place = core::mem::replace(&mut self.free, entry.after);
            *entry = open;
            place
        } else {
            self.all.push(open);
            u32::try_from(self.all.len() - 1).unwrap_or(NONE)
        }
    }

    /// Has `next` follow the message at `place`.
    pub fn link(&mut self, place: u32, next: u32) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.after = next;
        }
    }

    /// The message behind the one at `place`.
    pub fn after(&self, place: u32) -> u32 {
        self.all.get(place as usize).map_or(NONE, |open| open.after)
    }

    /// The next frame of the message at `place`, of at most `most` bytes.
    #[inline]
    pub fn next(&self, place: u32, most: usize) -> Option<Part> {
        let open = self.all.get(place as usize)?;
        let len = open.bytes.min(most as u64);
        Some(Part { index: open.written, len, is_last: len == open.bytes })
    }

    /// That frame is in a slot.
    #[inline]
    pub fn written(&mut self, place: u32, part: Part) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.bytes -= part.len;
            open.written += 1;
            open.frames += 1;
        }
    }

    /// The number of the message at `place`.
    #[inline]
    pub fn id(&self, place: u32) -> u32 {
        self.all.get(place as usize).map_or(0, |open| open.id)
    }

    /// A frame of the message at `place` is sent again.
    pub fn resent(&mut self, place: u32) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.resent = open.resent.saturating_add(1);
        }
    }

    /// A frame of the message at `place` is out of its slot: its number and how many of its frames were sent again, if that
    /// was the last one.
    #[inline]
    pub fn complete(&mut self, place: u32) -> Option<(u32, u64)> {
        let open = self.all.get_mut(place as usize)?;
        open.frames = open.frames.saturating_sub(1);
        if open.frames > 0 || open.bytes > 0 || !open.in_use {
            return None;
        }
        let (id, resent) = (open.id, open.resent);
        self.end(place);
        Some((id, u64::from(resent)))
    }

    fn end(&mut self, place: u32) {
        if let Some(open) = self.all.get_mut(place as usize) {
            self.ids.remove(&open.id);
            (open.in_use, open.after) = (false, self.free);
            self.free = place;
        }
    }

    /// Nothing goes to the peer at `to` any more.
    pub fn give_up(&mut self, to: u16) {
        for place in 0..self.all.len() {
            let is_one = self.all.get(place).is_some_and(|open| open.in_use && open.to == to);
            if is_one && let Ok(place) = u32::try_from(place) {
                self.end(place);
            }
        }
    }

    /// Bytes on the heap, without the numbers.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Open>()
    }
}

const _: () = assert!(size_of::<Open>() <= 32, "there may be many");
