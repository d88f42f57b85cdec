//! A host's write-back cache of lines: states M, E, S and I, loads and stores, and answers to snoops.
//!
//! [`Access`]es, snoops and answers of requests come in; [`Out`] has the messages to be sent and the accesses that are
//! done. Lines are named by their address at the host.
//!
//! Accesses to one line are done in the order in which they came. When the cache is full, the next line in order of
//! address that has nothing under way gives up its place.
//!
//! A line is used only while its lease lasts ([`Leases`]). After that the device may have given up on the host: a
//! changed line is written back, which the device refuses if the line is not the host's any more, and then read again.
//! Data without a lease, from a device without back-invalidate or too late, is used once, by the accesses that waited
//! when it was requested: it was the newest value when the device answered, and may be older than memory by now.
//!
//! Source: CXL 3.1 sections 3.3.3, 3.3.5 to 3.3.10; docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not
//! answer".

use std::collections::{BTreeMap, VecDeque};

use weft_parsers::cxl_mem::LINE;

pub use super::cache_counts::CacheCounts;
use super::lease::Leases;
use super::{Failure, Hold, Snoop};

pub type Bytes = [u8; LINE];

/// A load or store within one line. `T` is the caller's name for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access<T> {
    pub what: T,
    /// Data of a store and its byte mask (bit n: byte n is written); `None` for a load.
    pub store: Option<(Bytes, u64)>,
}

/// A message to send, or the end of an access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Out<T> {
    /// `MemRd` for a copy; exclusive, or shared.
    Read { line: u64, exclusive: bool },
    /// `MemWr` of a changed line.
    WriteBack { line: u64, data: Bytes, left: Option<Hold> },
    /// `MemWr` or `MemWrPtl` past the cache.
    Through {
        line: u64,
        data: Bytes,
        /// Byte mask: bit n set if byte n is written.
        mask: u64,
    },
    /// `MemClnEvct`.
    Evict { line: u64 },
    /// `BIConflict`: a snoop met a request.
    Conflict { line: u64 },
    /// `BIRsp`.
    Answer { line: u64, left: Option<Hold> },
    /// The line's open snoops get no answer: the write-back that they waited for has failed.
    Unanswered { line: u64 },
    /// An access is done: the line's bytes after it, or why it failed.
    Done { what: T, result: Result<Bytes, Failure> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum State {
    Invalid,
    Shared,
    Exclusive,
    Modified,
}

impl State {
    const fn of(hold: Option<Hold>) -> Self {
        match hold {
            None => Self::Invalid,
            Some(Hold::Shared) => Self::Shared,
            Some(Hold::Owned) => Self::Exclusive,
        }
    }

    const fn hold(self) -> Option<Hold> {
        match self {
            Self::Invalid => None,
            Self::Shared => Some(Hold::Shared),
            Self::Exclusive | Self::Modified => Some(Hold::Owned),
        }
    }
}

/// The host's own request for a line that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// A read; its two answers come in either order.
    Read {
        /// From `Cmp`: the state granted, and the number of its lease.
        granted: Option<(State, u64)>,
        data: Option<(Bytes, bool)>,
        /// Accesses that waited when the read was sent; only they may use data without a lease.
        waited: usize,
    },
    /// `leaves`: it makes room for another line. The state is already the one that remains after it.
    WriteBack {
        leaves: bool,
    },
    Through,
    Evict,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line<T> {
    state: State,
    data: Bytes,
    /// Number of the lease by which the line is held.
    lease: u64,
    doing: Doing,
    /// The strictest open snoop. There are two when the device has given up on the first; they may arrive in either
    /// order.
    snoop: Option<Snoop>,
    /// `BIConflict`s without acknowledgement. Until it comes the order of snoop and request is unknown.
    conflicts: u32,
    waiting: VecDeque<Access<T>>,
}

impl<T> Line<T> {
    const fn new() -> Self {
        Self {
            state: State::Invalid,
            data: [0; LINE],
            lease: 0,
            doing: Doing::Nothing,
            snoop: None,
            conflicts: 0,
            waiting: VecDeque::new(),
        }
    }

    fn is_idle(&self) -> bool {
        let quiet = self.doing == Doing::Nothing && self.snoop.is_none() && self.conflicts == 0;
        quiet && self.waiting.is_empty()
    }
}

/// Lines that a host holds or waits for, at most `room`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cache<T> {
    lines: BTreeMap<u64, Line<T>>,
    room: usize,
    for_room: VecDeque<(u64, Access<T>)>,
    leaving: usize,
    /// Address of the line that gave up its place last.
    hand: u64,
    leases: Leases,
    out: VecDeque<Out<T>>,
    /// Lost changed lines that [`Cache::next_lost`] has not returned yet.
    lost: VecDeque<u64>,
    counts: CacheCounts,
}

/// Lost lines kept until they are fetched; beyond that many the oldest is forgotten, but stays counted.
const LOST_MAX: usize = 1_024;

fn merge(line: &mut Bytes, data: &Bytes, mask: u64) {
    for (at, (place, byte)) in line.iter_mut().zip(data).enumerate() {
        if mask >> at & 1 == 1 {
            *place = *byte;
        }
    }
}

impl<T: Copy + PartialEq> Cache<T> {
    /// An empty cache of `room` lines.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self {
            lines: BTreeMap::new(),
            room: room.max(1),
            for_room: VecDeque::new(),
            leaving: 0,
            hand: u64::MAX,
            leases: Leases::default(),
            out: VecDeque::new(),
            lost: VecDeque::new(),
            counts: CacheCounts::default(),
        }
    }

    /// Lines in use (held or waited for), and the cache's capacity.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.lines.len(), self.room)
    }

    #[must_use]
    pub const fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// State and bytes of a line that is held, whether or not its lease lasts.
    #[must_use]
    pub fn held(&self, line: u64) -> Option<(Hold, &Bytes)> {
        let place = self.lines.get(&line)?;
        Some((place.state.hold()?, &place.data))
    }

    /// Like [`Self::held`], but only while the line's lease lasts.
    #[must_use]
    pub fn usable(&self, line: u64) -> Option<(Hold, &Bytes)> {
        let is_leased = self.leases.is_valid(self.lines.get(&line)?.lease);
        self.held(line).filter(|_| is_leased)
    }

    pub const fn leases(&mut self) -> &mut Leases {
        &mut self.leases
    }

    /// Next changed line that was lost: its stores were acknowledged, and are in neither cache nor memory.
    pub fn next_lost(&mut self) -> Option<u64> {
        self.lost.pop_front()
    }

    fn lose(&mut self, line: u64) {
        self.counts.lost += 1;
        if self.lost.len() >= LOST_MAX {
            self.lost.pop_front();
        }
        self.lost.push_back(line);
    }

    pub fn next_out(&mut self) -> Option<Out<T>> {
        self.out.pop_front()
    }

    pub fn access(&mut self, line: u64, access: Access<T>) {
        let is_there = self.lines.contains_key(&line);
        // Also behind others that wait while a place is free: this access could overtake an earlier one to the same
        // line.
        if !is_there && (self.lines.len() >= self.room || !self.for_room.is_empty()) {
            self.counts.misses += 1;
            self.for_room.push_back((line, access));
            return self.make_room();
        }
        let place = self.lines.entry(line).or_insert_with(Line::new);
        let needs = if access.store.is_some() { State::Exclusive } else { State::Shared };
        if place.is_idle() && place.state >= needs && self.leases.is_valid(place.lease) {
            self.counts.hits += 1;
        } else {
            self.counts.misses += 1;
        }
        place.waiting.push_back(access);
        self.go_on(line);
    }

    pub fn snoop(&mut self, line: u64, how: Snoop) {
        let Some(place) = self.lines.get_mut(&line) else {
            self.counts.snoops += 1;
            // Lines with a write-back or eviction under way are still in `lines`, so the host has nothing of this one.
            return self.out.push_back(Out::Answer { line, left: None });
        };
        place.snoop = place.snoop.max(Some(how));
        // Each snoop has its own conflict: the acknowledgement of an earlier one may have been sent before this snoop.
        // Write-backs and evictions need none: the snoop's answer waits for their `Cmp` (CXL 3.1, 3.3.8).
        if matches!(place.doing, Doing::Read { .. }) {
            place.conflicts += 1;
            self.counts.conflicts += 1;
            self.out.push_back(Out::Conflict { line });
        }
        self.go_on(line);
    }

    /// `BI-ConflictAck`: the snoop came before the request if that has no `Cmp` yet. False if no conflict is open.
    pub fn conflict_known(&mut self, line: u64) -> bool {
        let Some(place) = self.lines.get_mut(&line).filter(|place| place.conflicts > 0) else {
            return false;
        };
        place.conflicts -= 1;
        // NDRs of a device stay in order: without `Cmp` before this acknowledgement, the device had not carried out the
        // read when it sent the snoop.
        if place.conflicts == 0
            && let Doing::Read { granted: None, .. } = place.doing
            && let Some(how) = place.snoop.take()
        {
            // No write-back needed: a line that is being read is I or S, never M.
            let left = how.leaves(place.state.hold());
            place.state = State::of(left);
            self.answer(line, left);
        }
        self.go_on(line);
        true
    }

    /// `BI-ConflictAck` does not come (timeout): the snoop is answered when the request has ended.
    pub fn conflict_lost(&mut self, line: u64) {
        if let Some(place) = self.lines.get_mut(&line) {
            // The order stays unknown. The snoop is answered when the read has ended, by its own timeout at the latest.
            place.conflicts = place.conflicts.saturating_sub(1);
            self.go_on(line);
        }
    }

    /// The link went down: requests under way get no answer, and waiting accesses are dropped without one. Held lines
    /// stay, and can be used while their leases last.
    pub fn link_down(&mut self) {
        let mut lost = Vec::new();
        self.lines.retain(|line, place| {
            if matches!(place.doing, Doing::WriteBack { .. }) {
                lost.push(*line); // perhaps: its `Cmp` may have been on the way
            }
            // The device may have carried out the request or not: to hold nothing is right in both cases.
            if place.doing != Doing::Nothing {
                place.state = State::Invalid;
            }
            (place.doing, place.snoop, place.conflicts) = (Doing::Nothing, None, 0);
            place.waiting.clear();
            place.state != State::Invalid
        });
        for line in lost {
            self.lose(line);
        }
        self.for_room.clear();
        // Answers to snoops in `out` go with it: the device waits out its time limit for them.
        self.out.clear();
        self.leaving = 0;
    }

    fn answer(&mut self, line: u64, left: Option<Hold>) {
        self.counts.snoops += 1;
        self.out.push_back(Out::Answer { line, left });
    }

    /// `Cmp`, `Cmp-S` or `Cmp-E` of a read: the hold granted, by lease number `lease`. False if no read is under way.
    pub fn granted(&mut self, line: u64, hold: Option<Hold>, lease: u64) -> bool {
        let Some(Line { doing: Doing::Read { granted, .. }, .. }) = self.lines.get_mut(&line)
        else {
            return false;
        };
        *granted = Some((State::of(hold), lease));
        self.fill(line);
        true
    }

    /// `MemData` of a read; `alone` if no `Cmp` belongs to it, as the device tracks no copies. False if no read is
    /// under way.
    pub fn data(&mut self, line: u64, data: &Bytes, poison: bool, alone: bool) -> bool {
        let place = self.lines.get_mut(&line);
        let Some(Line { doing: Doing::Read { granted, data: place, .. }, .. }) = place else {
            return false;
        };
        *place = Some((*data, poison));
        if alone {
            *granted = Some((State::Invalid, 0));
        }
        self.fill(line);
        true
    }

    /// Completes a read once both answers are there.
    fn fill(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        let Doing::Read { granted: Some((granted, lease)), data: Some((data, poison)), waited } =
            place.doing
        else {
            return;
        };
        // Both answers are there. The data is used before `go_on` answers a snoop, so that a contended line makes
        // progress at each host that gets it.
        (place.doing, place.data, place.lease) = (Doing::Nothing, data, lease);
        // Without a valid lease the line is not kept: the device may have given up on this host since it answered.
        let is_kept = self.leases.is_valid(lease);
        place.state = if is_kept { granted } else { State::Invalid };
        if poison {
            // Only a store of all 64 bytes replaces a poisoned value.
            let heals = |access: &Access<T>| access.store.is_some_and(|(_, mask)| mask == u64::MAX);
            if !place.waiting.front().is_some_and(heals) {
                // By a lease the poison is the current value, for later accesses as well. Without one they need another
                // read.
                let count = if is_kept { usize::MAX } else { waited };
                return self.fail(line, Failure::Poisoned, count);
            }
            // A shared copy cannot take that store and must not give the poison to loads: it is dropped, and
            // `serve_once` writes the line past the cache.
            if place.state == State::Shared {
                place.state = State::Invalid;
            }
        }
        self.serve(line);
        // Does nothing if the line was kept.
        self.serve_once(line, waited);
        self.go_on(line);
    }

    /// Does the waiting accesses that the line's state allows, in order.
    fn serve(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        if !self.leases.is_valid(place.lease) {
            return;
        }
        while let Some(access) = place.waiting.front() {
            match &access.store {
                None if place.state >= State::Shared => {}
                Some((data, mask)) if place.state >= State::Exclusive => {
                    merge(&mut place.data, data, *mask);
                    place.state = State::Modified;
                }
                _ => break,
            }
            let Some(access) = place.waiting.pop_front() else { break };
            self.out.push_back(Out::Done { what: access.what, result: Ok(place.data) });
        }
    }

    /// Uses data that may not be kept. Serves loads up to the first store, which goes past the cache, but no access
    /// that came after the read was sent.
    fn serve_once(&mut self, line: u64, waited: usize) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        if place.state != State::Invalid {
            return;
        }
        // Later accesses may expect a newer value: the data was current when the device answered, after the first
        // `waited` had come.
        for _ in 0..waited {
            let Some(access) = place.waiting.front() else { return };
            if let Some((data, mask)) = access.store {
                // The store stays at the front until its `Cmp`, so that later accesses do not overtake it.
                place.doing = Doing::Through;
                return self.out.push_back(Out::Through { line, data, mask });
            }
            let Some(access) = place.waiting.pop_front() else { return };
            self.out.push_back(Out::Done { what: access.what, result: Ok(place.data) });
        }
    }

    /// `Cmp` of a write or eviction; `refused` if the device no longer counts the host as owner of the line that it
    /// wrote back. False if neither is under way.
    pub fn written(&mut self, line: u64, refused: bool) -> bool {
        let Some(place) = self.lines.get_mut(&line) else { return false };
        match place.doing {
            Doing::WriteBack { leaves } => {
                self.leaving -= usize::from(leaves);
                // The device has given up on this host and the line is another's or poisoned: these stores are lost.
                if refused {
                    place.state = State::Invalid;
                    self.lose(line);
                }
            }
            Doing::Through => {
                if let Some(access) = place.waiting.pop_front() {
                    self.out.push_back(Out::Done { what: access.what, result: Ok(place.data) });
                }
            }
            Doing::Evict => self.leaving -= 1,
            Doing::Nothing | Doing::Read { .. } => return false,
        }
        if let Some(place) = self.lines.get_mut(&line) {
            place.doing = Doing::Nothing;
        }
        self.go_on(line);
        true
    }

    /// The request under way for a line has failed.
    pub fn failed(&mut self, line: u64, why: Failure) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        match place.doing {
            Doing::Nothing => {}
            Doing::Read { .. } => self.fail(line, why, usize::MAX),
            Doing::Evict => _ = self.written(line, false),
            Doing::Through => {
                if let Some(access) = place.waiting.pop_front() {
                    self.out.push_back(Out::Done { what: access.what, result: Err(why) });
                }
                place.doing = Doing::Nothing;
                self.go_on(line);
            }
            Doing::WriteBack { leaves } => {
                self.leaving -= usize::from(leaves);
                // The device may have the data or not. An answer to the snoop would tell it that memory is current, so
                // the snoop gets none, and the device poisons the line when it gives up.
                (place.state, place.doing) = (State::Invalid, Doing::Nothing);
                if place.snoop.take().is_some() {
                    // The owner of this cache has to forget the snoop's tag: it would match later answers and data to it.
                    self.out.push_back(Out::Unanswered { line });
                }
                self.lose(line);
                self.go_on(line);
            }
        }
    }

    /// Fails the first `count` accesses that wait for a line.
    fn fail(&mut self, line: u64, why: Failure, count: usize) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        (place.state, place.doing) = (State::Invalid, Doing::Nothing);
        let count = count.min(place.waiting.len());
        for access in place.waiting.drain(..count) {
            self.out.push_back(Out::Done { what: access.what, result: Err(why) });
        }
        self.go_on(line);
    }

    /// Takes a line's next step, if nothing of it is under way.
    fn go_on(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        // Order of snoop and request unknown: neither an answer nor another request may leave yet.
        if place.conflicts > 0 {
            return;
        }
        if place.doing == Doing::Through && place.snoop.take().is_some() {
            // Answered at once: the device may hold the write back until it has this answer. The host keeps nothing of
            // a line that it writes past the cache.
            return self.answer(line, None);
        }
        if place.doing != Doing::Nothing {
            return;
        }
        // Before accesses that wait: other hosts' requests wait for this answer at the device.
        if let Some(how) = place.snoop {
            let left = how.leaves(place.state.hold());
            if place.state == State::Modified {
                (place.doing, place.state) = (Doing::WriteBack { leaves: false }, State::of(left));
                self.counts.written_back += 1;
                // `snoop` stays set: its answer leaves after the `Cmp`, so memory is current when the device sees the
                // answer.
                return self.out.push_back(Out::WriteBack { line, data: place.data, left });
            }
            (place.snoop, place.state) = (None, State::of(left));
            self.answer(line, left);
        }
        self.serve(line);
        let Some(place) = self.lines.get_mut(&line) else { return };
        if let Some(access) = place.waiting.front() {
            if place.state != State::Invalid && !self.leases.is_valid(place.lease) {
                // The device may have given the line to another host. A clean copy is dropped; changed bytes are
                // offered to the device, which takes them only from the owner, and the line is read again after that.
                self.counts.lapsed += 1;
                if core::mem::replace(&mut place.state, State::Invalid) == State::Modified {
                    place.doing = Doing::WriteBack { leaves: false };
                    self.counts.written_back += 1;
                    return self.out.push_back(Out::WriteBack {
                        line,
                        data: place.data,
                        left: None,
                    });
                }
            }
            place.doing = Doing::Read { granted: None, data: None, waited: place.waiting.len() };
            self.out.push_back(Out::Read { line, exclusive: access.store.is_some() });
        } else if place.state == State::Invalid {
            self.lines.remove(&line);
            self.make_room();
        } else {
            self.evict(); // this line has just become idle, and may be the only one that can leave
        }
    }

    /// Gives free places to accesses that wait for one, and evicts lines for the rest.
    fn make_room(&mut self) {
        // An access whose line has come back through an earlier one needs no place.
        while let Some((line, _)) = self.for_room.front()
            && (self.lines.len() < self.room || self.lines.contains_key(line))
        {
            let Some((line, access)) = self.for_room.pop_front() else { break };
            self.lines.entry(line).or_insert_with(Line::new).waiting.push_back(access);
            self.go_on(line);
        }
        self.evict();
    }

    /// Evicts as many lines as accesses wait for a place.
    fn evict(&mut self) {
        while self.leaving < self.for_room.len() {
            let idle = |(line, place): (&u64, &Line<T>)| place.is_idle().then_some(*line);
            let behind = (core::ops::Bound::Excluded(self.hand), core::ops::Bound::Unbounded);
            // From behind the last victim on, then from the start: each line has its turn.
            let victim = self.lines.range(behind).find_map(idle);
            let Some(victim) = victim.or_else(|| self.lines.iter().find_map(idle)) else { break };
            self.hand = victim;
            self.leave(victim);
        }
    }

    /// Gives up an idle line.
    fn leave(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        self.leaving += 1;
        if core::mem::replace(&mut place.state, State::Invalid) == State::Modified {
            place.doing = Doing::WriteBack { leaves: true };
            self.counts.written_back += 1;
            self.out.push_back(Out::WriteBack { line, data: place.data, left: None });
        } else {
            place.doing = Doing::Evict;
            self.counts.evicted += 1;
            self.out.push_back(Out::Evict { line });
        }
    }

    /// Gives up all idle lines, changed ones by writing them back.
    pub fn flush(&mut self) {
        let idle = self.lines.iter().filter(|(_, place)| place.is_idle());
        let idle: Vec<u64> = idle.map(|(line, _)| *line).collect();
        for line in idle {
            self.leave(line);
        }
    }

    /// Drops everything, as after a reset: changed lines are lost, and waiting loads and stores end without an answer.
    pub fn clear(&mut self) {
        // Lines whose write-back is under way, which their stores are in too, `link_down` reports itself.
        self.link_down();
        let changed = self.lines.iter().filter(|(_, place)| place.state == State::Modified);
        let changed: Vec<u64> = changed.map(|(line, _)| *line).collect();
        self.lines.clear();
        for line in changed {
            self.lose(line);
        }
    }
}
