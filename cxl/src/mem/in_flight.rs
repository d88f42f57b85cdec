//! Requests that wait for an answer, by tag, each with a deadline.
//!
//! Tags are used in turn, so that a tag rests as long as possible before its next request: a late answer then finds no
//! request, instead of ending another one.

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};

struct Slot<T> {
    /// Number of the request: tells its deadline from that of an earlier request with the same tag.
    serial: u64,
    request: T,
}

pub(super) struct InFlight<T> {
    slots: Vec<Option<Slot<T>>>,
    /// Tags in the order in which they became free.
    free: VecDeque<u16>,
    /// Deadline, tag and serial, ascending by time: all requests have the same timeout. Entries of requests that have
    /// ended stay until they are the first.
    deadlines: VecDeque<(Instant, u16, u64)>,
    timeout: Span,
    len: usize,
    last_serial: u64,
}

impl<T> InFlight<T> {
    /// No requests, and the tags 0 to `tags` - 1, at most 2^16.
    pub fn new(tags: usize, timeout: Span) -> Self {
        let last = u16::try_from(tags.saturating_sub(1)).unwrap_or(u16::MAX);
        Self {
            slots: (0..=last).map(|_| None).collect(),
            free: (0..=last).collect(),
            deadlines: VecDeque::new(),
            timeout,
            len: 0,
            last_serial: 0,
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Tag of the next request; `None` while all are in use.
    pub fn next_tag(&self) -> Option<u16> {
        self.free.front().copied()
    }

    /// When to call [`Self::next_expired`]: not after the first deadline.
    pub fn next_due(&self) -> Option<Instant> {
        self.deadlines.front().map(|&(at, ..)| at)
    }

    /// Notes a request that was sent at `now` with [`Self::next_tag`].
    pub fn start(&mut self, now: Instant, request: T) {
        let Some(tag) = self.free.pop_front() else { return };
        self.last_serial += 1;
        let serial = self.last_serial;
        if let Some(slot) = self.slots.get_mut(usize::from(tag)) {
            *slot = Some(Slot { serial, request });
            self.len += 1;
        }
        self.deadlines.push_back((now + self.timeout, tag, serial));
    }

    /// The request with this tag.
    pub fn get_mut(&mut self, tag: u16) -> Option<&mut T> {
        let slot = self.slots.get_mut(usize::from(tag))?.as_mut()?;
        Some(&mut slot.request)
    }

    /// Ends the request with this tag.
    pub fn end(&mut self, tag: u16) -> Option<T> {
        let slot = self.slots.get_mut(usize::from(tag))?.take()?;
        self.free.push_back(tag);
        self.len -= 1;
        Some(slot.request)
    }

    /// Ends the first request that was not answered by `now`.
    pub fn next_expired(&mut self, now: Instant) -> Option<T> {
        while let Some(&(at, tag, serial)) = self.deadlines.front() {
            let slot = self.slots.get(usize::from(tag)).and_then(Option::as_ref);
            let is_open = slot.is_some_and(|slot| slot.serial == serial);
            if is_open && at > now {
                return None;
            }
            self.deadlines.pop_front();
            if is_open {
                return self.end(tag);
            }
        }
        None
    }

    /// Ends all requests, and returns their number.
    pub fn clear(&mut self) -> usize {
        self.deadlines.clear();
        for (tag, slot) in (0..).zip(&mut self.slots) {
            if slot.take().is_some() {
                self.free.push_back(tag);
            }
        }
        core::mem::take(&mut self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Span = Span::from_ms(1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    #[test]
    fn a_tag_rests_until_all_others_were_used() {
        let mut requests = InFlight::new(3, MS);
        requests.start(at(0), 'a');
        assert_eq!(requests.end(0), Some('a'));
        assert_eq!(requests.end(0), None, "a late answer");
        let tags: Vec<_> = "bcd"
            .chars()
            .map(|request| {
                let tag = requests.next_tag();
                requests.start(at(0), request);
                tag
            })
            .collect();
        assert_eq!(tags, [Some(1), Some(2), Some(0)]);
        assert_eq!((requests.next_tag(), requests.len()), (None, 3));
        assert_eq!(requests.get_mut(0), Some(&mut 'd'));
    }

    #[test]
    fn a_deadline_ends_its_own_request_alone() {
        let mut requests = InFlight::new(1, MS);
        requests.start(at(0), 'a');
        requests.end(0);
        requests.start(at(1), 'b');
        assert_eq!(requests.next_due(), Some(at(1)), "of a request that has ended");
        assert_eq!(requests.next_expired(at(1)), None);
        assert_eq!(requests.next_due(), Some(at(2)));
        assert_eq!(requests.next_expired(at(2)), Some('b'));
        assert_eq!((requests.len(), requests.next_due()), (0, None));
    }

    #[test]
    fn cleared_requests_give_their_tags_back() {
        let mut requests = InFlight::new(4, MS);
        for request in 0..3 {
            requests.start(at(0), request);
        }
        requests.end(1);
        assert_eq!(requests.clear(), 2);
        assert_eq!((requests.len(), requests.next_due(), requests.next_tag()), (0, None, Some(3)));
        let tags: Vec<_> = requests.free.iter().copied().collect();
        assert_eq!(tags, [3, 1, 0, 2]);
    }
}
