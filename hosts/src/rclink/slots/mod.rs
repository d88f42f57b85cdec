//! Slots: frames that are to be sent, or that wait to be acknowledged: one FIFO an endpoint.
//!
//! Shape: [`Slots::write`] takes a frame, [`Slots::grant`] gives the oldest that may go; [`Slots::ack`], [`Slots::nak`] and
//! [`Slots::expire`] end slots or have them sent again. EMPTY → `WAIT_GRANT` → `WAIT_ACK` → EMPTY; resend: `WAIT_ACK` →
//! `WAIT_GRANT`; rate mask: `WAIT_GRANT` ↔ `WAIT_CRD`.
//! Units: picoseconds; PSNs modulo 4096.
//! Source: docs/spec/model.md §4 "Slots", "Go-Back-N".

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};

use self::list::{Links, List, NONE};
use super::queue_pair::{PSNS, psn_since};

mod list;

/// Slots of an endpoint.
pub const SLOTS: usize = 512;
/// Virtual channels.
pub const VCS: usize = 8;
/// Times that a queue pair goes back without anything new acknowledged, before it is fatal.
pub const RETRIES_MAX: u8 = 7;
/// Times that a receiver may be not ready, one after the other: a counter of four bits.
pub const NOT_READY_MAX: u8 = 15;

/// What a queue pair waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mask {
    /// The next window of its rate.
    Rate = 1,
    /// Credits.
    Credit = 2,
    /// The receiver, which was not ready.
    NotReady = 4,
}

/// Why a queue pair goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A frame is missing.
    Missing,
    /// The receiver was not ready.
    NotReady,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Queue pair that it is for.
    pub qp: u16,
    /// Virtual channel: one for each flow.
    pub vc: u8,
    /// Bytes of its payload.
    pub len: u16,
    /// The caller's own.
    pub tag: u64,
}

/// A frame that goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The frame.
    pub request: Request,
    /// Its number in its queue pair.
    pub psn: u16,
    /// Whether it was sent before.
    pub resent: bool,
    /// When it was sent first; now if it was not.
    pub first: Instant,
}

/// What a NAK or a timeout did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WentBack {
    /// Frames that are to be sent again.
    Frames(usize),
    /// The queue pair has gone back too often: its frames are given up, so many.
    Fatal(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    WaitGrant,
    WaitCredit,
    WaitAck,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    request: Request,
    state: State,
    /// When it was written, among all.
    age: u64,
    psn: u16,
    /// When it was sent first and last; `None` before.
    sent: Option<(Instant, Instant)>,
    /// In its queue pair, in the order of PSNs.
    in_qp: Links,
    /// Among those that wait for an ACK, in the order in which they were sent.
    in_flight: Links,
}

/// A queue pair's frames.
#[derive(Clone, Copy, Debug)]
struct TxQp {
    /// Slots in the order of their PSNs; the first one's is that of the oldest frame without ACK.
    slots: List,
    next_psn: u16,
    retries: u8,
    /// Times that the receiver was not ready, one after the other.
    not_ready: u8,
    /// Bits of [`Mask`].
    masks: u8,
    is_fatal: bool,
}

impl TxQp {
    const NEW: Self = Self {
        slots: List::EMPTY,
        next_psn: 0,
        retries: 0,
        not_ready: 0,
        masks: 0,
        is_fatal: false,
    };
}

/// Queue pairs that were used.
#[derive(Debug, Default)]
struct Qps {
    /// By number, up to the highest one: place among those that were used, from 1; 0 for none.
    place: Vec<u16>,
    used: Vec<TxQp>,
}

impl Qps {
    fn index(&self, qp: u16) -> Option<usize> {
        usize::from(*self.place.get(usize::from(qp))?).checked_sub(1)
    }

    fn get(&self, qp: u16) -> Option<&TxQp> {
        self.used.get(self.index(qp)?)
    }

    fn get_mut(&mut self, qp: u16) -> Option<&mut TxQp> {
        let index = self.index(qp)?;
        self.used.get_mut(index)
    }

    /// The queue pair, which is new if it was not used.
    fn entry(&mut self, qp: u16) -> &mut TxQp {
        if self.index(qp).is_none() {
            if self.place.len() <= usize::from(qp) {
                self.place.resize(usize::from(qp) + 1, 0);
            }
            self.used.push(TxQp::NEW);
            if let Some(place) = self.place.get_mut(usize::from(qp)) {
                *place = u16::try_from(self.used.len()).unwrap_or(u16::MAX);
            }
        }
        self.get_mut(qp).expect("it was made where there was none")
    }
}

/// The slots of an endpoint.
#[derive(Debug)]
pub struct Slots {
    /// Those that were ever used.
    all: Vec<Slot>,
    free: Vec<u16>,
    /// Slots there are.
    limit: usize,
    qps: Qps,
    /// By VC: slots that wait for a grant, oldest first.
    ready: [VecDeque<u16>; VCS],
    /// Slots that wait for an ACK, the one that was sent first in front.
    in_flight: List,
    written: u64,
    timeout: Span,
    /// Whether frames are acknowledged; if not, a slot is empty once it is granted.
    is_reliable: bool,
    /// Whether the VC that was granted last waits for the others.
    takes_turns: bool,
    last_vc: u8,
}

impl Slots {
    /// All slots are empty; what is not acknowledged is sent again after `timeout`, `None` where nothing is acknowledged.
    #[must_use]
    pub fn new(timeout: Option<Span>, takes_turns: bool) -> Self {
        Self::with_limit(SLOTS, timeout, takes_turns)
    }

    /// The same with so many slots, at most [`SLOTS`].
    #[must_use]
    pub fn with_limit(limit: usize, timeout: Option<Span>, takes_turns: bool) -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            limit: limit.min(SLOTS),
            qps: Qps::default(),
            ready: Default::default(),
            in_flight: List::EMPTY,
            written: 0,
            timeout: timeout.unwrap_or(Span::ZERO),
            is_reliable: timeout.is_some(),
            takes_turns,
            last_vc: 0,
        }
    }

    /// Bytes on the heap.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let ready: usize = self.ready.iter().map(VecDeque::capacity).sum();
        self.all.capacity() * size_of::<Slot>()
            + (self.free.capacity() + ready) * size_of::<u16>()
            + self.qps.place.capacity() * size_of::<u16>()
            + self.qps.used.capacity() * size_of::<TxQp>()
    }

    /// Whether a frame finds a slot.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.used() < self.limit
    }

    /// Whether a frame waits for nothing but its grant, on a VC that `is_open`.
    #[must_use]
    pub fn is_ready(&self, is_open: impl Fn(u8) -> bool) -> bool {
        (0..).zip(&self.ready).any(|(vc, ready)| !ready.is_empty() && is_open(vc))
    }

    /// Slots that are not empty.
    #[must_use]
    pub fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Whether a queue pair has failed.
    #[must_use]
    pub fn is_fatal(&self, qp: u16) -> bool {
        self.qps.get(qp).is_some_and(|qp| qp.is_fatal)
    }

    /// Writes a frame into a slot; gives it back where there is none, or the queue pair has failed.
    ///
    /// # Errors
    /// The frame.
    pub fn write(&mut self, request: Request) -> Result<(), Request> {
        let has_room = self.has_room();
        let qp = self.qps.entry(request.qp);
        if qp.is_fatal || !has_room {
            return Err(request);
        }
        self.written += 1;
        let state = if qp.masks != 0 { State::WaitCredit } else { State::WaitGrant };
        let (age, psn, links) = (self.written, qp.next_psn, Links::NONE);
        let slot = Slot { request, state, age, psn, sent: None, in_qp: links, in_flight: links };
        let index = self.free.pop().unwrap_or(u16::try_from(self.all.len()).unwrap_or(NONE));
        match self.all.get_mut(usize::from(index)) {
            Some(empty) => *empty = slot,
            None => self.all.push(slot),
        }
        qp.next_psn = (qp.next_psn + 1) & (PSNS - 1);
        qp.slots.push(&mut self.all, index, |slot| &mut slot.in_qp);
        if state == State::WaitGrant
            && let Some(ready) = self.ready.get_mut(usize::from(request.vc))
        {
            ready.push_back(index);
        }
        Ok(())
    }

    /// The oldest frame that may go, of VCs that `is_open`; it goes at `now`.
    pub fn grant(&mut self, now: Instant, is_open: impl Fn(u8) -> bool) -> Option<Granted> {
        let mut oldest: Option<(bool, u64, u8)> = None;
        for (vc, ready) in (0_u8..).zip(&self.ready) {
            let Some(slot) = ready.front().and_then(|&index| self.all.get(usize::from(index)))
            else {
                continue;
            };
            if is_open(vc) {
                let waits = self.takes_turns && vc == self.last_vc;
                let this = (waits, slot.age, vc);
                oldest = Some(oldest.map_or(this, |other| other.min(this)));
            }
        }
        let (_, _, vc) = oldest?;
        self.last_vc = vc;
        let index = self.ready.get_mut(usize::from(vc))?.pop_front()?;
        let slot = self.all.get_mut(usize::from(index))?;
        let (request, psn, resent) = (slot.request, slot.psn, slot.sent.is_some());
        let first = slot.sent.map_or(now, |(first, _)| first);
        slot.sent = Some((first, now));
        if self.is_reliable {
            slot.state = State::WaitAck;
            self.in_flight.push(&mut self.all, index, |slot| &mut slot.in_flight);
        } else if let Some(qp) = self.qps.get_mut(request.qp) {
            qp.slots.remove(&mut self.all, index, |slot| &mut slot.in_qp);
            self.empty(index);
        }
        Some(Granted { request, psn, resent, first })
    }

    /// Empties a slot that is not in its queue pair any more.
    fn empty(&mut self, index: u16) {
        let Some(slot) = self.all.get_mut(usize::from(index)) else { return };
        let was = core::mem::replace(&mut slot.state, State::Empty);
        let vc = slot.request.vc;
        self.free.push(index);
        match was {
            State::WaitAck => {
                self.in_flight.remove(&mut self.all, index, |slot| &mut slot.in_flight);
            }
            State::WaitGrant => {
                if let Some(ready) = self.ready.get_mut(usize::from(vc)) {
                    ready.retain(|&other| other != index); // it was to be sent again
                }
            }
            State::WaitCredit | State::Empty => {}
        }
    }

    /// Slots of a queue pair, in the order of PSNs.
    fn slots_of(&self, list: List) -> impl Iterator<Item = (u16, &Slot)> {
        let next = |&index: &u16| List::after(&self.all, index, |slot| slot.in_qp);
        let indices = core::iter::successors(list.first(), next);
        indices.filter_map(|index| Some((index, self.all.get(usize::from(index))?)))
    }

    /// An ACK has come: all frames of `qp` up to `psn` are done; `done` hears of each, oldest first. One for frames that
    /// were not sent, or were acknowledged before, changes nothing.
    pub fn ack(&mut self, qp: u16, psn: u16, mut done: impl FnMut(Request)) {
        let Some(list) = self.qps.get(qp).map(|pair| pair.slots) else { return };
        let Some((_, oldest)) = self.slots_of(list).next() else { return };
        let count = usize::from(psn_since(psn, oldest.psn)) + 1;
        let last = if count > self.used() { None } else { self.slots_of(list).nth(count - 1) };
        if last.is_none_or(|(_, slot)| slot.sent.is_none()) {
            return;
        }
        for _ in 0..count {
            let Some(pair) = self.qps.get_mut(qp) else { return };
            let Some(index) = pair.slots.first() else { return };
            (pair.retries, pair.not_ready) = (0, 0);
            pair.slots.remove(&mut self.all, index, |slot| &mut slot.in_qp);
            if let Some(slot) = self.all.get(usize::from(index)) {
                done(slot.request);
            }
            self.empty(index);
        }
    }

    /// A NAK has come: all frames of `qp` before `psn` are done, as by an ACK, and all others that were sent are to be sent
    /// again. `None` where it is not of a frame that waits to be acknowledged.
    pub fn nak(
        &mut self,
        qp: u16,
        psn: u16,
        reason: Reason,
        done: impl FnMut(Request),
    ) -> Option<WentBack> {
        self.ack(qp, psn_since(psn, 1), done);
        let front = self.qps.get(qp)?.slots.first()?;
        let slot = self.all.get(usize::from(front))?;
        (slot.psn == psn && slot.sent.is_some()).then(|| self.go_back(qp, reason))
    }

    /// When [`Self::expire`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let (_, last) = self.all.get(usize::from(self.in_flight.first()?))?.sent?;
        Some(last + self.timeout)
    }

    /// The queue pair whose oldest frame was sent so long ago that it is sent again, with all that follow.
    pub fn expire(&mut self, now: Instant) -> Option<(u16, WentBack)> {
        self.next_timeout().filter(|&at| at <= now)?;
        let qp = self.all.get(usize::from(self.in_flight.first()?))?.request.qp;
        Some((qp, self.go_back(qp, Reason::Missing)))
    }

    /// All frames of `qp` that were sent are to be sent again.
    fn go_back(&mut self, qp: u16, reason: Reason) -> WentBack {
        let Some(pair) = self.qps.get_mut(qp) else { return WentBack::Frames(0) };
        let (count, most) = match reason {
            Reason::Missing => (&mut pair.retries, RETRIES_MAX),
            Reason::NotReady => (&mut pair.not_ready, NOT_READY_MAX),
        };
        *count += 1;
        if *count > most {
            return self.give_up(qp);
        }
        let state = if pair.masks != 0 { State::WaitCredit } else { State::WaitGrant };
        let list = pair.slots;
        let back = self.turn(list, State::WaitAck, state);
        let count = back.len();
        for &index in &back {
            self.in_flight.remove(&mut self.all, index, |slot| &mut slot.in_flight);
        }
        if state == State::WaitGrant {
            self.make_ready(back);
        }
        WentBack::Frames(count)
    }

    /// Turns slots of a queue pair from one state to another; returns which.
    fn turn(&mut self, list: List, from: State, to: State) -> Vec<u16> {
        let which = self.slots_of(list).filter(|(_, slot)| slot.state == from);
        let which: Vec<u16> = which.map(|(index, _)| index).collect();
        for &index in &which {
            if let Some(slot) = self.all.get_mut(usize::from(index)) {
                slot.state = to;
            }
        }
        which
    }

    /// Ends a queue pair and empties its slots.
    fn give_up(&mut self, qp: u16) -> WentBack {
        let Some(pair) = self.qps.get_mut(qp) else { return WentBack::Frames(0) };
        pair.is_fatal = true;
        let list = core::mem::replace(&mut pair.slots, List::EMPTY);
        let given_up: Vec<u16> = self.slots_of(list).map(|(index, _)| index).collect();
        for &index in &given_up {
            self.empty(index);
        }
        WentBack::Fatal(given_up.len())
    }

    /// Puts slots back among those that wait for a grant, each at the place of its age.
    fn make_ready(&mut self, back: Vec<u16>) {
        let age = |index: u16| self.all.get(usize::from(index)).map(|slot| slot.age);
        for index in back {
            let Some(vc) = self.all.get(usize::from(index)).map(|slot| slot.request.vc) else {
                continue;
            };
            if let Some(ready) = self.ready.get_mut(usize::from(vc)) {
                let place = ready.partition_point(|&other| age(other) < age(index));
                ready.insert(place, index);
            }
        }
    }

    /// A queue pair has to wait for something (`on`), or not any more; it goes on when it waits for nothing.
    pub fn mask(&mut self, qp: u16, mask: Mask, on: bool) {
        let Some(pair) = self.qps.get_mut(qp) else { return };
        let was = pair.masks;
        pair.masks = if on { was | mask as u8 } else { was & !(mask as u8) };
        if (was != 0) == (pair.masks != 0) {
            return;
        }
        let (from, to) = if on {
            (State::WaitGrant, State::WaitCredit)
        } else {
            (State::WaitCredit, State::WaitGrant)
        };
        let list = pair.slots;
        let changed = self.turn(list, from, to);
        if on {
            for ready in &mut self.ready {
                let slots = &self.all;
                let waits = |index: &u16| {
                    slots.get(usize::from(*index)).is_some_and(|slot| slot.request.qp != qp)
                };
                ready.retain(waits);
            }
        } else {
            self.make_ready(changed);
        }
    }
}

#[cfg(test)]
mod tests;
