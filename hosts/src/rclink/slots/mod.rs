//! Slots: frames that are to be sent, or that wait to be acknowledged: one FIFO an endpoint.
//!
//! Shape: [`Slots::write`] takes a frame, [`Slots::grant`] gives the oldest that may go; [`Slots::ack`], [`Slots::nak`] and
//! [`Slots::expire`] end slots or have them sent again. EMPTY → `WAIT_GRANT` → `WAIT_ACK` → EMPTY; resend: `WAIT_ACK` →
//! `WAIT_GRANT`; rate mask: `WAIT_GRANT` ↔ `WAIT_CRD`.
//! Units: picoseconds; PSNs modulo 4096.
//! Source: docs/spec/model.md §4 "Slots", "Go-Back-N".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};

use super::queue_pair::{PSNS, psn_since};

/// Slots of an endpoint.
pub const SLOTS: usize = 512;
/// Virtual channels.
pub const VCS: usize = 8;
/// Times that a queue pair goes back without anything new acknowledged, before it is fatal.
pub const RETRIES_MAX: u8 = 7;

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
    /// Which sending of all was its last one; 0 for none.
    sending: u64,
    /// When it was sent first.
    first: Instant,
    psn: u16,
}

/// A queue pair's frames.
#[derive(Debug, Default)]
struct TxQp {
    /// Slots in the order of their PSNs; the first one's is that of the oldest frame without ACK.
    slots: VecDeque<u16>,
    next_psn: u16,
    retries: u8,
    is_masked: bool,
    is_fatal: bool,
}

/// The slots of an endpoint.
#[derive(Debug)]
pub struct Slots {
    all: Vec<Slot>,
    free: Vec<u16>,
    qps: BTreeMap<u16, TxQp>,
    /// By VC: slots that wait for a grant, oldest first.
    ready: [VecDeque<u16>; VCS],
    /// Sendings, oldest first: which slot, which sending, when; one that is not the slot's last is over.
    in_flight: VecDeque<(u16, u64, Instant)>,
    written: u64,
    sent: u64,
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
        let nothing = Request { qp: 0, vc: 0, len: 0, tag: 0 };
        let empty = Slot {
            request: nothing,
            state: State::Empty,
            age: 0,
            sending: 0,
            first: Instant::ZERO,
            psn: 0,
        };
        Self {
            all: vec![empty; SLOTS],
            free: (0..SLOTS).rev().map_while(|slot| u16::try_from(slot).ok()).collect(),
            qps: BTreeMap::new(),
            ready: Default::default(),
            in_flight: VecDeque::new(),
            written: 0,
            sent: 0,
            timeout: timeout.unwrap_or(Span::ZERO),
            is_reliable: timeout.is_some(),
            takes_turns,
            last_vc: 0,
        }
    }

    /// Whether a frame finds a slot.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether a frame waits for nothing but its grant.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.iter().any(|ready| !ready.is_empty())
    }

    /// Slots that are not empty.
    #[must_use]
    pub fn used(&self) -> usize {
        SLOTS - self.free.len()
    }

    /// Whether a queue pair has failed.
    #[must_use]
    pub fn is_fatal(&self, qp: u16) -> bool {
        self.qps.get(&qp).is_some_and(|qp| qp.is_fatal)
    }

    /// Writes a frame into a slot; gives it back where there is none, or the queue pair has failed.
    ///
    /// # Errors
    /// The frame.
    pub fn write(&mut self, request: Request) -> Result<(), Request> {
        let qp = self.qps.entry(request.qp).or_default();
        if qp.is_fatal {
            return Err(request);
        }
        let Some(index) = self.free.pop() else { return Err(request) };
        let Some(slot) = self.all.get_mut(usize::from(index)) else { return Err(request) };
        self.written += 1;
        let state = if qp.is_masked { State::WaitCredit } else { State::WaitGrant };
        *slot = Slot {
            request,
            state,
            age: self.written,
            sending: 0,
            first: Instant::ZERO,
            psn: qp.next_psn,
        };
        qp.next_psn = (qp.next_psn + 1) & (PSNS - 1);
        qp.slots.push_back(index);
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
        self.sent += 1;
        let slot = self.all.get_mut(usize::from(index))?;
        let resent = slot.sending != 0;
        if !resent {
            slot.first = now;
        }
        let Slot { request, psn, first, .. } = *slot;
        let granted = Granted { request, psn, resent, first };
        slot.sending = self.sent;
        if self.is_reliable {
            slot.state = State::WaitAck;
            self.in_flight.push_back((index, self.sent, now));
        } else {
            slot.state = State::Empty;
            self.free.push(index);
            // The first one, as a rule: a queue pair's frames go in their order.
            if let Some(qp) = self.qps.get_mut(&granted.request.qp)
                && let Some(place) = qp.slots.iter().position(|&other| other == index)
            {
                qp.slots.remove(place);
            }
        }
        Some(granted)
    }

    /// An ACK has come: all frames of `qp` up to `psn` are done; `done` hears of each, oldest first. One for frames that
    /// were not sent, or were acknowledged before, changes nothing.
    pub fn ack(&mut self, qp: u16, psn: u16, mut done: impl FnMut(Request)) {
        let Some(pair) = self.qps.get_mut(&qp) else { return };
        let Some(oldest) = pair.slots.front().and_then(|&i| self.all.get(usize::from(i))) else {
            return;
        };
        let count = usize::from(psn_since(psn, oldest.psn)) + 1;
        let was_sent =
            |index: &u16| self.all.get(usize::from(*index)).is_some_and(|slot| slot.sending != 0);
        if count > pair.slots.len() || !pair.slots.get(count - 1).is_some_and(was_sent) {
            return;
        }
        pair.retries = 0;
        for index in pair.slots.drain(..count) {
            let Some(slot) = self.all.get_mut(usize::from(index)) else { continue };
            done(slot.request);
            if slot.state == State::WaitGrant
                && let Some(ready) = self.ready.get_mut(usize::from(slot.request.vc))
            {
                ready.retain(|&other| other != index); // it was to be sent again
            }
            slot.state = State::Empty;
            self.free.push(index);
        }
    }

    /// A NAK has come: all frames of `qp` before `psn` are done, as by an ACK, and all others that were sent are to be sent
    /// again. `None` where it is not of a frame that waits to be acknowledged.
    pub fn nak(&mut self, qp: u16, psn: u16, done: impl FnMut(Request)) -> Option<WentBack> {
        self.ack(qp, psn_since(psn, 1), done);
        let front = *self.qps.get(&qp)?.slots.front()?;
        let slot = self.all.get(usize::from(front))?;
        (slot.psn == psn && slot.sending != 0).then(|| self.go_back(qp))
    }

    /// When [`Self::expire`] has something to do.
    pub fn next_timeout(&mut self) -> Option<Instant> {
        while let Some(&(index, sending, at)) = self.in_flight.front() {
            let slot = self.all.get(usize::from(index))?;
            if slot.sending == sending && slot.state == State::WaitAck {
                return Some(at + self.timeout);
            }
            self.in_flight.pop_front();
        }
        None
    }

    /// The queue pair whose oldest frame was sent so long ago that it is sent again, with all that follow.
    pub fn expire(&mut self, now: Instant) -> Option<(u16, WentBack)> {
        self.next_timeout().filter(|&at| at <= now)?;
        let &(index, ..) = self.in_flight.front()?;
        let qp = self.all.get(usize::from(index))?.request.qp;
        Some((qp, self.go_back(qp)))
    }

    /// All frames of `qp` that were sent are to be sent again.
    fn go_back(&mut self, qp: u16) -> WentBack {
        let Some(pair) = self.qps.get_mut(&qp) else { return WentBack::Frames(0) };
        pair.retries += 1;
        if pair.retries > RETRIES_MAX {
            return self.give_up(qp);
        }
        let state = if pair.is_masked { State::WaitCredit } else { State::WaitGrant };
        let mut back = Vec::new();
        for &index in &pair.slots {
            let Some(slot) = self.all.get_mut(usize::from(index)) else { continue };
            if slot.state == State::WaitAck {
                slot.state = state;
                back.push(index);
            }
        }
        let count = back.len();
        if state == State::WaitGrant {
            self.make_ready(back);
        }
        WentBack::Frames(count)
    }

    /// Ends a queue pair and empties its slots.
    fn give_up(&mut self, qp: u16) -> WentBack {
        let Some(pair) = self.qps.get_mut(&qp) else { return WentBack::Frames(0) };
        pair.is_fatal = true;
        let given_up = core::mem::take(&mut pair.slots);
        for &index in &given_up {
            if let Some(slot) = self.all.get_mut(usize::from(index)) {
                slot.state = State::Empty;
                self.free.push(index);
            }
        }
        for ready in &mut self.ready {
            ready.retain(|index| !given_up.contains(index));
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

    /// The rate of a queue pair is used up (`on`), or is not any more: its frames wait meanwhile.
    pub fn mask(&mut self, qp: u16, on: bool) {
        let Some(pair) = self.qps.get_mut(&qp).filter(|pair| pair.is_masked != on) else { return };
        pair.is_masked = on;
        let (from, to) = if on {
            (State::WaitGrant, State::WaitCredit)
        } else {
            (State::WaitCredit, State::WaitGrant)
        };
        let mut changed = Vec::new();
        for &index in &pair.slots {
            let Some(slot) = self.all.get_mut(usize::from(index)) else { continue };
            if slot.state == from {
                slot.state = to;
                changed.push(index);
            }
        }
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
