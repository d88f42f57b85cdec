//! Slots of an endpoint: one FIFO of frames that are to be sent or wait for an acknowledgement.
//!
//! [`Slots::write`] puts a frame in, [`Slots::grant`] takes the oldest that may go; [`Slots::ack`], [`Slots::nak`] and
//! [`Slots::expire`] end slots or have their frames sent again. States: EMPTY → `WAIT_GRANT` → `WAIT_ACK` → EMPTY;
//! resend: `WAIT_ACK` → `WAIT_GRANT`; rate mask: `WAIT_GRANT` ↔ `WAIT_CRD`. PSNs count modulo 4096.
//!
//! Source: docs/spec/model.md §4 "Slots", "Go-Back-N".

use std::collections::VecDeque;

use weft_dataplane::time::{Instant, Span};

use self::flying::Flying;
use self::list::{Links, List, NONE};
use self::timers::Timers;
use super::queue_pair::{PSNS, psn_since};

mod flying;
mod list;
mod request;
mod timers;

pub use self::flying::Local;
pub use self::request::{Granted, Mask, Reason, Request, WentBack};

/// Slots of an endpoint, as in the hardware's FIFO.
pub const SLOTS: usize = 512;
/// Number of virtual channels.
pub const VCS: usize = 8;
/// How often a queue pair may go back without progress; the next time it fails.
pub const RETRIES_MAX: u8 = 7;
/// How often in a row a receiver may be not ready: a counter of four bits.
pub const NOT_READY_MAX: u8 = 15;

/// Memory for queue pairs grows in steps of this many.
const GROWTH: usize = 16;

/// State of a slot; [`State::Again`] is `WAIT_GRANT` and [`State::AgainCredit`] `WAIT_CRD` of a frame that was sent
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    WaitGrant,
    WaitCredit,
    WaitAck,
    Again,
    AgainCredit,
}

impl State {
    /// Whether the frame has been sent at least once.
    const fn was_sent(self) -> bool {
        matches!(self, Self::WaitAck | Self::Again | Self::AgainCredit)
    }

    /// Whether the frame waits only for its grant.
    const fn is_ready(self) -> bool {
        matches!(self, Self::WaitGrant | Self::Again)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its number among all frames ever written: lower is older.
    age: u64,
    tag: u64,
    /// When the frame was sent first, if it was.
    first: Instant,
    /// Reading of its channel's stopwatch when the timer began, or from when it will count.
    timer: Instant,
    /// Neighbours in its queue pair, in order of PSNs.
    in_qp: Links,
    /// Neighbours among the slots of its VC whose timers run.
    by_timer: Links,
    qp: u16,
    len: u16,
    psn: u16,
    vc: u8,
    state: State,
}

const _: () = assert!(size_of::<Slot>() <= 48, "an endpoint has 512 of them");

impl Slot {
    const fn request(&self) -> Request {
        Request { qp: self.qp, vc: self.vc, len: self.len, tag: self.tag }
    }
}

/// Sender's state of a queue pair.
#[derive(Clone, Copy, Debug)]
struct TxQp {
    /// Slots in order of PSNs; the first has the oldest frame without ACK.
    slots: List,
    next_psn: u16,
    retries: u8,
    /// Times in a row that the receiver was not ready.
    not_ready: u8,
    /// Reasons to wait, as bits of [`Mask`].
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

/// All slots of an endpoint, with the queue pairs that use them.
#[derive(Debug)]
pub struct Slots {
    /// Slots that were ever used; it grows on demand, up to `limit`.
    all: Vec<Slot>,
    free: Vec<u16>,
    /// Number of slots that may be used.
    limit: usize,
    /// Queue pairs by number, up to the highest that was used.
    qps: Vec<TxQp>,
    /// By VC: slots that wait for a grant, oldest first.
    ready: [VecDeque<u16>; VCS],
    /// VCs with slots in `ready`, as bits.
    ready_vcs: u8,
    timers: Timers,
    flying: Flying,
    written: u64,
    /// Whether frames are acknowledged; if not, a slot is empty as soon as it is granted.
    is_reliable: bool,
    /// Whether the VC granted last yields to the others.
    takes_turns: bool,
    last_vc: u8,
}

impl Slots {
    /// Empty slots. Frames not acknowledged within `timeout` are sent again; `None`: nothing is acknowledged.
    #[must_use]
    pub fn new(timeout: Option<Span>, takes_turns: bool) -> Self {
        Self::with_limit(SLOTS, timeout, takes_turns)
    }

    /// The same with `limit` slots, at most [`SLOTS`].
    #[must_use]
    pub fn with_limit(limit: usize, timeout: Option<Span>, takes_turns: bool) -> Self {
        Self {
            all: Vec::new(),
            free: Vec::new(),
            limit: limit.min(SLOTS),
            qps: Vec::new(),
            ready: Default::default(),
            ready_vcs: 0,
            timers: Timers::new(timeout.unwrap_or(Span::ZERO)),
            flying: Flying::ANY,
            written: 0,
            is_reliable: timeout.is_some(),
            takes_turns,
            last_vc: 0,
        }
    }

    /// Limits frames waiting for an ACK to `most`, and their credits to those of `local`; each then has a timer of its
    /// own.
    pub const fn limit_flying(&mut self, most: u16, local: Local) {
        self.flying = Flying::limited(most, local);
        self.timers.make_own();
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let ready: usize = self.ready.iter().map(VecDeque::capacity).sum();
        self.all.capacity() * size_of::<Slot>()
            + (self.free.capacity() + ready) * size_of::<u16>()
            + self.qps.capacity() * size_of::<TxQp>()
    }

    /// Whether a slot is free.
    #[inline]
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.used() < self.limit
    }

    /// Whether a frame on one of `vcs` (bits) waits only for its grant.
    #[inline]
    #[must_use]
    pub fn is_ready(&self, vcs: u8) -> bool {
        self.ready_vcs & vcs != 0 && self.flying.has_room()
    }

    /// Whether a frame on any VC waits only for its grant.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.is_ready(u8::MAX)
    }

    /// Number of slots in use.
    #[inline]
    #[must_use]
    pub const fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Whether the queue pair has failed: no frame goes to it again.
    #[must_use]
    pub fn is_fatal(&self, qp: u16) -> bool {
        self.qps.get(usize::from(qp)).is_some_and(|qp| qp.is_fatal)
    }

    /// State of a queue pair, which is made if it is not there.
    #[inline]
    fn pair(qps: &mut Vec<TxQp>, qp: u16) -> &mut TxQp {
        let index = usize::from(qp);
        if index >= qps.len() {
            let most = index + 1;
            if most > qps.capacity() {
                qps.reserve_exact(most.next_multiple_of(GROWTH) - qps.len());
            }
            qps.resize(most, TxQp::NEW);
        }
        qps.get_mut(index).expect("it was made where there was none")
    }

    /// Puts a frame into a slot.
    ///
    /// # Errors
    /// The frame, if no slot is free or its queue pair has failed.
    #[inline]
    pub fn write(&mut self, request: Request) -> Result<(), Request> {
        let has_room = self.has_room();
        let pair = Self::pair(&mut self.qps, request.qp);
        if pair.is_fatal || !has_room {
            return Err(request);
        }
        self.written += 1;
        let Request { qp, vc, len, tag } = request;
        let slot = Slot {
            age: self.written,
            tag,
            first: Instant::ZERO,
            timer: Instant::ZERO,
            in_qp: Links::NONE,
            by_timer: Links::NONE,
            qp,
            len,
            psn: pair.next_psn,
            vc,
            // A frame of a queue pair that is held back must not pass those that wait already.
            state: if pair.masks != 0 { State::WaitCredit } else { State::WaitGrant },
        };
        let index = self.free.pop().unwrap_or(u16::try_from(self.all.len()).unwrap_or(NONE));
        match self.all.get_mut(usize::from(index)) {
            Some(empty) => *empty = slot,
            None => self.all.push(slot),
        }
        pair.next_psn = (pair.next_psn + 1) & (PSNS - 1);
        pair.slots.push(&mut self.all, index, |slot| &mut slot.in_qp);
        if slot.state == State::WaitGrant
            && let Some(ready) = self.ready.get_mut(usize::from(vc))
        {
            ready.push_back(index);
            self.ready_vcs |= 1 << vc;
        }
        Ok(())
    }

    /// The VC of `vcs` whose first ready frame is oldest; with turns, the VC granted last comes after all others.
    fn oldest(&self, vcs: u8) -> Option<u8> {
        let key = |vc: u8| {
            let index = self.ready.get(usize::from(vc)).and_then(VecDeque::front);
            let slot = index.and_then(|&index| self.all.get(usize::from(index)));
            let waits = self.takes_turns && vc == self.last_vc;
            (waits, slot.map_or(u64::MAX, |slot| slot.age))
        };
        bits(vcs).min_by_key(|&vc| key(vc))
    }

    /// Grants the oldest ready frame on one of `vcs` (bits), which is sent at `now`.
    #[inline]
    pub fn grant(&mut self, now: Instant, vcs: u8) -> Option<Granted> {
        let vcs = if self.flying.has_room() { self.ready_vcs & vcs } else { 0 };
        let vc = match vcs.count_ones() {
            0 => return None,
            // One channel is the usual case, and needs no comparison.
            1 => u8::try_from(vcs.trailing_zeros()).ok()?,
            _ => self.oldest(vcs)?,
        };
        self.last_vc = vc;
        let ready = self.ready.get_mut(usize::from(vc))?;
        let index = ready.pop_front()?;
        if ready.is_empty() {
            self.ready_vcs &= !(1 << vc);
        }
        let slot = self.all.get_mut(usize::from(index))?;
        let (request, psn, resent) = (slot.request(), slot.psn, slot.state.was_sent());
        if !resent {
            slot.first = now;
        }
        let first = slot.first;
        slot.state = State::WaitAck;
        let pair = self.qps.get_mut(usize::from(request.qp))?;
        if self.is_reliable {
            self.timers.note(now, slot);
            self.flying.start(slot.len);
            // others have a timer when they are the oldest one
            if pair.slots.first() == Some(index) {
                self.timers.start(&mut self.all, index);
            }
        } else {
            slot.state = State::Empty;
            pair.slots.remove(&mut self.all, index, |slot| &mut slot.in_qp);
            self.free.push(index);
        }
        Some(Granted { request, psn, resent, first })
    }

    /// Slot `index` no longer waits for an ACK.
    #[inline]
    fn land(&mut self, index: u16) {
        let Some(slot) = self.all.get(usize::from(index)) else { return };
        self.flying.land(slot.len);
        if self.flying.is_empty() {
            self.timers.rest();
        }
    }

    /// The slot of a queue pair's oldest frame.
    #[inline]
    fn oldest_of(&self, qp: u16) -> Option<u16> {
        self.qps.get(usize::from(qp))?.slots.first()
    }

    /// Stops the timer of a queue pair, if it runs.
    #[inline]
    fn end_timer(&mut self, qp: u16) {
        if let Some(index) = self.oldest_of(qp) {
            self.timers.end(&mut self.all, index);
        }
    }

    /// Empties a slot that has been taken out of its queue pair.
    #[inline]
    fn empty(&mut self, index: u16) {
        let Some(slot) = self.all.get_mut(usize::from(index)) else { return };
        let was = core::mem::replace(&mut slot.state, State::Empty);
        let vc = slot.vc;
        self.free.push(index);
        if was == State::WaitAck {
            self.land(index);
        } else if was.is_ready()
            && let Some(ready) = self.ready.get_mut(usize::from(vc))
        {
            ready.retain(|&other| other != index); // it was to be sent again
            if ready.is_empty() {
                self.ready_vcs &= !(1 << vc);
            }
        }
    }

    /// The slots of a queue pair in order of PSNs.
    fn slots_of(&self, list: List) -> impl Iterator<Item = (u16, &Slot)> {
        let next = |&index: &u16| List::after(&self.all, index, |slot| slot.in_qp);
        let indices = core::iter::successors(list.first(), next);
        indices.filter_map(|index| Some((index, self.all.get(usize::from(index))?)))
    }

    /// Handles an ACK: all frames of `qp` up to `psn` are done; `done` gets each, oldest first. An ACK for frames that
    /// were not sent, or were acknowledged before, changes nothing.
    #[inline]
    pub fn ack(&mut self, now: Instant, qp: u16, psn: u16, mut done: impl FnMut(Request)) {
        let Some(list) = self.qps.get(usize::from(qp)).map(|pair| pair.slots) else { return };
        let Some((_, oldest)) = self.slots_of(list).next() else { return };
        let count = usize::from(psn_since(psn, oldest.psn)) + 1;
        // A count above the slots in use belongs to an old ACK: the list need not be walked to find that.
        let last = if count > self.used() { None } else { self.slots_of(list).nth(count - 1) };
        if last.is_none_or(|(_, slot)| !slot.state.was_sent()) {
            return;
        }
        self.end_timer(qp);
        for _ in 0..count {
            let Some(pair) = self.qps.get_mut(usize::from(qp)) else { return };
            let Some(index) = pair.slots.first() else { return };
            // Any progress clears the counts that lead to failure.
            (pair.retries, pair.not_ready) = (0, 0);
            pair.slots.remove(&mut self.all, index, |slot| &mut slot.in_qp);
            if let Some(slot) = self.all.get(usize::from(index)) {
                done(slot.request());
            }
            self.empty(index);
        }
        // Restarted for the frame that is now the oldest (RFC 6298, 5.3).
        if let Some(index) = self.oldest_of(qp) {
            self.timers.restart(now, &mut self.all, index);
        }
    }

    /// Handles a NAK: frames of `qp` before `psn` are done, as by an ACK, and all others that were sent are sent again.
    /// `None` if no frame with `psn` waits for an ACK.
    pub fn nak(
        &mut self,
        now: Instant,
        qp: u16,
        psn: u16,
        reason: Reason,
        done: impl FnMut(Request),
    ) -> Option<WentBack> {
        self.ack(now, qp, psn_since(psn, 1), done);
        let front = self.qps.get(usize::from(qp))?.slots.first()?;
        let slot = self.all.get(usize::from(front))?;
        // A second NAK for one gap, or an old one, must not have the queue pair go back again.
        (slot.psn == psn && slot.state.was_sent()).then(|| self.go_back(qp, reason))
    }

    /// When the first timer ends; `None` while none runs.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.soonest(&self.all).map(|(at, _)| at)
    }

    /// From `now` on the timers of `vcs` (bits) stand still, and all others run.
    pub fn stop_timers(&mut self, now: Instant, vcs: u8) {
        self.timers.stop(now, vcs, &self.all);
    }

    /// When to call [`Self::expire`] next. It may be earlier than [`Self::next_timeout`], as it is not computed anew at
    /// each ACK, but never later.
    #[inline]
    #[must_use]
    pub const fn timer(&self) -> Option<Instant> {
        self.timers.quiet()
    }

    /// Queue pair and PSN of the oldest frame if its timer has ended at `now`.
    pub fn overdue(&mut self, now: Instant) -> Option<(u16, u16)> {
        if !self.is_late(now) {
            return None;
        }
        let (_, slot) = self.timers.look(&self.all).filter(|&(at, _)| at <= now)?;
        Some((slot.qp, slot.psn))
    }

    /// Whether a timer may have ended at `now`.
    #[inline]
    #[must_use]
    pub fn is_late(&self, now: Instant) -> bool {
        self.timers.is_late(now)
    }

    /// Has the frames of a queue pair sent again whose timer has ended by `now`; returns the queue pair. To be called
    /// until it returns `None`.
    #[inline]
    pub fn expire(&mut self, now: Instant) -> Option<(u16, WentBack)> {
        if self.is_late(now) { self.expired(now) } else { None }
    }

    #[cold]
    fn expired(&mut self, now: Instant) -> Option<(u16, WentBack)> {
        // what is sent later ends later
        let qp = self.timers.look(&self.all).filter(|&(at, _)| at <= now)?.1.qp;
        let went = self.go_back(qp, Reason::Missing);
        self.timers.look(&self.all);
        Some((qp, went))
    }

    /// Has all frames of `qp` that were sent sent again, or ends the queue pair if that has happened too often.
    fn go_back(&mut self, qp: u16, reason: Reason) -> WentBack {
        let Some(pair) = self.qps.get_mut(usize::from(qp)) else { return WentBack::Frames(0) };
        let (count, most) = match reason {
            Reason::Missing => (&mut pair.retries, RETRIES_MAX),
            Reason::NotReady => (&mut pair.not_ready, NOT_READY_MAX),
        };
        *count += 1;
        if *count > most {
            return self.give_up(qp);
        }
        let is_masked = pair.masks != 0;
        // While the first slot still waits for an ACK: `end` looks for its timer in that state only.
        self.end_timer(qp);
        let Some(pair) = self.qps.get(usize::from(qp)) else { return WentBack::Frames(0) };
        let state = if is_masked { State::AgainCredit } else { State::Again };
        let list = pair.slots;
        let back = self.turn(list, |had| (had == State::WaitAck).then_some(state));
        let count = back.len();
        for &index in &back {
            self.land(index);
        }
        if !is_masked {
            self.make_ready(back);
        }
        WentBack::Frames(count)
    }

    /// Changes the state of those slots of a queue pair for which `to` gives one; returns their indices.
    fn turn(&mut self, list: List, to: impl Fn(State) -> Option<State>) -> Vec<u16> {
        let which = self.slots_of(list).filter(|(_, slot)| to(slot.state).is_some());
        let which: Vec<u16> = which.map(|(index, _)| index).collect();
        for &index in &which {
            if let Some(slot) = self.all.get_mut(usize::from(index)) {
                slot.state = to(slot.state).unwrap_or(slot.state);
            }
        }
        which
    }

    /// Ends a queue pair as failed, and empties its slots.
    fn give_up(&mut self, qp: u16) -> WentBack {
        self.end_timer(qp);
        let Some(pair) = self.qps.get_mut(usize::from(qp)) else { return WentBack::Frames(0) };
        pair.is_fatal = true;
        let list = core::mem::replace(&mut pair.slots, List::EMPTY);
        let given_up: Vec<u16> = self.slots_of(list).map(|(index, _)| index).collect();
        for &index in &given_up {
            self.empty(index);
        }
        WentBack::Fatal(given_up.len())
    }

    /// Puts slots back into `ready`, each at the place of its age.
    fn make_ready(&mut self, back: Vec<u16>) {
        let age = |index: u16| self.all.get(usize::from(index)).map(|slot| slot.age);
        for index in back {
            let Some(vc) = self.all.get(usize::from(index)).map(|slot| slot.vc) else {
                continue;
            };
            if let Some(ready) = self.ready.get_mut(usize::from(vc)) {
                // Frames of other queue pairs may have been written since: the channel stays in order of age.
                let place = ready.partition_point(|&other| age(other) < age(index));
                ready.insert(place, index);
                self.ready_vcs |= 1 << vc;
            }
        }
    }

    /// Sets or clears a reason for which a queue pair waits; it goes on when no reason is left.
    pub fn mask(&mut self, qp: u16, mask: Mask, on: bool) {
        let Some(pair) = self.qps.get_mut(usize::from(qp)) else { return };
        let was = pair.masks;
        pair.masks = if on { was | mask as u8 } else { was & !(mask as u8) };
        // Other reasons hold it back anyway, or it has none before and after.
        if (was != 0) == (pair.masks != 0) {
            return;
        }
        let list = pair.slots;
        let changed = self.turn(list, |had| match (had, on) {
            (State::WaitGrant, true) => Some(State::WaitCredit),
            (State::Again, true) => Some(State::AgainCredit),
            (State::WaitCredit, false) => Some(State::WaitGrant),
            (State::AgainCredit, false) => Some(State::Again),
            _ => None,
        });
        if !on {
            self.make_ready(changed);
        } else if !changed.is_empty() {
            // `ready` holds slots that may be granted at once, and nothing is checked at the grant.
            for vc in bits(self.ready_vcs) {
                let Some(ready) = self.ready.get_mut(usize::from(vc)) else { continue };
                let slots = &self.all;
                ready.retain(|index| {
                    slots.get(usize::from(*index)).is_some_and(|slot| slot.qp != qp)
                });
                if ready.is_empty() {
                    self.ready_vcs &= !(1 << vc);
                }
            }
        }
    }
}

/// Positions of the bits that are set, lowest first.
#[inline]
fn bits(mut of: u8) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let lowest = of.trailing_zeros();
        of &= of.wrapping_sub(1);
        u8::try_from(lowest).ok().filter(|&lowest| lowest < 8)
    })
}

#[cfg(test)]
mod tests;
