//! Messages that are not done: those still to be put into slots, peer by peer, and those with frames in slots.
//!
//! [`Backlog::add`] takes a message, [`Backlog::next`] gives its frames one by one, and [`Backlog::complete`] ends it.
//!
//! Source: docs/spec/model.md §4 "Messages".

use std::collections::BTreeSet;

use super::event::Message;

/// The index that stands for no message.
pub(super) const NONE: u32 = u32::MAX;

/// A message that is not done; `in_use` is false for a free entry.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Bytes of payload not in slots yet.
    bytes: u64,
    id: u32,
    /// Frames put into slots so far.
    written: u32,
    /// Frames sent again so far.
    resent: u32,
    /// The next message to the same peer; of a free entry, the next free one.
    after: u32,
    /// Place of its receiver among the peers.
    to: u16,
    /// Frames in slots now.
    frames: u16,
    in_use: bool,
}

/// The frame of a message that goes into a slot next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub index: u32,
    pub len: u64,
    pub is_last: bool,
}

/// All messages that are not done, by index.
#[derive(Debug)]
pub(super) struct Backlog {
    all: Vec<Open>,
    /// Index of the first free entry.
    free: u32,
    ids: BTreeSet<u32>,
}

impl Backlog {
    pub const fn new() -> Self {
        Self { all: Vec::new(), free: NONE, ids: BTreeSet::new() }
    }

    /// Whether all messages are done.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether a message with this id is not done.
    pub fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// Takes a message for the peer at place `to`; returns its index.
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

    /// Has message `next` follow the one at `place`.
    pub fn link(&mut self, place: u32, next: u32) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.after = next;
        }
    }

    /// Index of the message to the same peer after the one at `place`.
    pub fn after(&self, place: u32) -> u32 {
        self.all.get(place as usize).map_or(NONE, |open| open.after)
    }

    /// The next frame of the message at `place`, with at most `most` bytes of payload.
    #[inline]
    pub fn next(&self, place: u32, most: usize) -> Option<Part> {
        let open = self.all.get(place as usize)?;
        let len = open.bytes.min(most as u64);
        Some(Part { index: open.written, len, is_last: len == open.bytes })
    }

    /// Notes that this frame is in a slot.
    #[inline]
    pub fn written(&mut self, place: u32, part: Part) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.bytes -= part.len;
            open.written += 1;
            open.frames += 1;
        }
    }

    /// Id of the message at `place`.
    #[inline]
    pub fn id(&self, place: u32) -> u32 {
        self.all.get(place as usize).map_or(0, |open| open.id)
    }

    /// Counts a frame of the message at `place` that is sent again.
    pub fn resent(&mut self, place: u32) {
        if let Some(open) = self.all.get_mut(place as usize) {
            open.resent = open.resent.saturating_add(1);
        }
    }

    /// Notes that a frame of the message at `place` has left its slot. If that ends the message, returns its id and how
    /// many of its frames were sent again.
    #[inline]
    pub fn complete(&mut self, place: u32) -> Option<(u32, u64)> {
        let open = self.all.get_mut(place as usize)?;
        open.frames = open.frames.saturating_sub(1);
        // The last slot may empty while further frames still wait for slots; and a failed peer's messages have ended
        // already.
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

    /// Ends all messages to the peer at `to`, which has failed.
    pub fn give_up(&mut self, to: u16) {
        for place in 0..self.all.len() {
            let is_one = self.all.get(place).is_some_and(|open| open.in_use && open.to == to);
            if is_one && let Ok(place) = u32::try_from(place) {
                self.end(place);
            }
        }
    }

    /// Bytes on the heap, those of `ids` left out.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Open>()
    }
}

const _: () = assert!(size_of::<Open>() <= 32, "there may be many");
