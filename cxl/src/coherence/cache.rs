//! A host's write-back cache of lines: M, E, S and I, loads and stores on them, snoops.
//!
//! [`Access`]es and snoops in, answers of requests in; [`Out`] has what is to be sent and which accesses are done.
//!
//! Units: addresses of lines, bytes of a line.
//! Source: CXL 3.1 sections 3.3.3, 3.3.5 to 3.3.10; docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not answer".
//!
//! Accesses to one line are done in the order in which they came. Of a full cache the next line in order of address, of which
//! nothing is under way, gives up its place.
//!
//! A line is used only while its lease lasts ([`Leases`]). When that is over, the device may have given up on the host: a
//! changed line is written back, which the device refuses if the line is not the host's any more, and then read again. What
//! comes without a lease, from a device without back-invalidate or too late, is used once, by those who waited when it was
//! asked for: it was the newest when the device answered, and need not be now.

use std::collections::{BTreeMap, VecDeque};

use weft_parsers::cxl_mem::LINE;

pub use super::cache_counts::CacheCounts;
use super::lease::Leases;
use super::{Failure, Hold, Snoop};

/// Bytes of a line.
pub type Bytes = [u8; LINE];

/// A load or store within one line. `T` is its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access<T> {
    /// Whose.
    pub what: T,
    /// What is stored, and which bytes of it count; `None` for a load.
    pub store: Option<(Bytes, u64)>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Out<T> {
    /// `MemRd` for a copy; exclusive, or shared.
    Read {
        /// The line.
        line: u64,
        /// The only copy.
        exclusive: bool,
    },
    /// `MemWr` of a changed line.
    WriteBack {
        /// The line.
        line: u64,
        /// What it holds.
        data: Bytes,
        /// What is kept.
        left: Option<Hold>,
    },
    /// `MemWr` or `MemWrPtl` past the cache.
    Through {
        /// The line.
        line: u64,
        /// What is written.
        data: Bytes,
        /// Which bytes of it count.
        mask: u64,
    },
    /// `MemClnEvct`.
    Evict {
        /// The line.
        line: u64,
    },
    /// `BIConflict`: a snoop met a request.
    Conflict {
        /// The line.
        line: u64,
    },
    /// `BIRsp`.
    Answer {
        /// The line.
        line: u64,
        /// What is kept.
        left: Option<Hold>,
    },
    /// An access is done: what the line holds, or why not.
    Done {
        /// Which.
        what: T,
        /// Its end.
        result: Result<Bytes, Failure>,
    },
}

/// How a line is held.
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

/// What is under way for a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    /// A read, and what has come of it.
    Read {
        /// How the line is held from now on, by a lease of which number.
        granted: Option<(State, u64)>,
        data: Option<(Bytes, bool)>,
        /// Accesses that waited when it was asked for.
        waited: usize,
    },
    /// Perhaps for a place in the cache. The line is held no more than it will be afterwards.
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
    /// Number of the lease by which it is held.
    lease: u64,
    doing: Doing,
    /// The strictest of those that have no answer: of two, the device has given up on the host for the first, and it may not
    /// have come first.
    snoop: Option<Snoop>,
    /// `BIConflict`s that have no acknowledgement yet: until then it is not known which of snoops and request was first.
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

/// Lines that a host holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cache<T> {
    lines: BTreeMap<u64, Line<T>>,
    room: usize,
    for_room: VecDeque<(u64, Access<T>)>,
    leaving: usize,
    /// The line that gave up its place last.
    hand: u64,
    leases: Leases,
    out: VecDeque<Out<T>>,
    /// Changed lines that were lost, until [`Cache::next_lost`] tells them.
    lost: VecDeque<u64>,
    counts: CacheCounts,
}

/// Lost lines that wait for somebody to ask; beyond, the oldest is forgotten, but counted.
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

    /// Lines that are held or waited for, of how many.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.lines.len(), self.room)
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// How a line is held, and what it holds.
    #[must_use]
    pub fn held(&self, line: u64) -> Option<(Hold, &Bytes)> {
        let place = self.lines.get(&line)?;
        Some((place.state.hold()?, &place.data))
    }

    /// The same while its lease lasts.
    #[must_use]
    pub fn usable(&self, line: u64) -> Option<(Hold, &Bytes)> {
        let is_leased = self.leases.is_valid(self.lines.get(&line)?.lease);
        self.held(line).filter(|_| is_leased)
    }

    /// The leases of its lines.
    pub const fn leases(&mut self) -> &mut Leases {
        &mut self.leases
    }

    /// A changed line that was lost.
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

    /// What is to be done next.
    pub fn next_out(&mut self) -> Option<Out<T>> {
        self.out.pop_front()
    }

    /// Takes a load or store.
    pub fn access(&mut self, line: u64, access: Access<T>) {
        let is_there = self.lines.contains_key(&line);
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

    /// The device snoops a line.
    pub fn snoop(&mut self, line: u64, how: Snoop) {
        let Some(place) = self.lines.get_mut(&line) else {
            self.counts.snoops += 1;
            return self.out.push_back(Out::Answer { line, left: None });
        };
        place.snoop = place.snoop.max(Some(how));
        // Each snoop has a conflict of its own: the acknowledgement of an earlier one says nothing of it.
        if matches!(place.doing, Doing::Read { .. }) {
            place.conflicts += 1;
            self.counts.conflicts += 1;
            self.out.push_back(Out::Conflict { line });
        }
        self.go_on(line);
    }

    /// `BI-ConflictAck`: a request that has no `Cmp` yet comes after the snoop. False if nobody waits for that.
    pub fn conflict_known(&mut self, line: u64) -> bool {
        let Some(place) = self.lines.get_mut(&line).filter(|place| place.conflicts > 0) else {
            return false;
        };
        place.conflicts -= 1;
        if place.conflicts == 0
            && let Doing::Read { granted: None, .. } = place.doing
            && let Some(how) = place.snoop.take()
        {
            // A line that is read for is not changed.
            let left = how.leaves(place.state.hold());
            place.state = State::of(left);
            self.answer(line, left);
        }
        self.go_on(line);
        true
    }

    /// `BI-ConflictAck` does not come: the snoop is answered when the request has ended.
    pub fn conflict_lost(&mut self, line: u64) {
        if let Some(place) = self.lines.get_mut(&line) {
            place.conflicts = place.conflicts.saturating_sub(1);
            self.go_on(line);
        }
    }

    /// The link went down: what is under way gets no answer, and accesses that wait are dropped without one. What
    /// is held stays: the lease says whether it can be used.
    pub fn link_down(&mut self) {
        let mut lost = Vec::new();
        self.lines.retain(|line, place| {
            if matches!(place.doing, Doing::WriteBack { .. }) {
                lost.push(*line); // perhaps
            }
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
        self.out.clear();
        self.leaving = 0;
    }

    fn answer(&mut self, line: u64, left: Option<Hold>) {
        self.counts.snoops += 1;
        self.out.push_back(Out::Answer { line, left });
    }

    /// `Cmp`, `Cmp-S` or `Cmp-E` of a read: what is granted, by a lease of which number. False if none is under way.
    pub fn granted(&mut self, line: u64, hold: Option<Hold>, lease: u64) -> bool {
        let Some(Line { doing: Doing::Read { granted, .. }, .. }) = self.lines.get_mut(&line)
        else {
            return false;
        };
        *granted = Some((State::of(hold), lease));
        self.fill(line);
        true
    }

    /// `MemData` of a read; `alone` if no `Cmp` belongs to it, as the device tracks nobody's lines. False if none is under way.
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

    /// Uses what was read, once all of it is there.
    fn fill(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        let Doing::Read { granted: Some((granted, lease)), data: Some((data, poison)), waited } =
            place.doing
        else {
            return;
        };
        (place.doing, place.data, place.lease) = (Doing::Nothing, data, lease);
        // What has no lease is not kept: the device may have given it up since it answered.
        let is_kept = self.leases.is_valid(lease);
        place.state = if is_kept { granted } else { State::Invalid };
        if poison {
            let heals = |access: &Access<T>| access.store.is_some_and(|(_, mask)| mask == u64::MAX);
            if !place.waiting.front().is_some_and(heals) {
                let count = if is_kept { usize::MAX } else { waited };
                return self.fail(line, Failure::Poisoned, count);
            }
            if place.state == State::Shared {
                place.state = State::Invalid;
            }
        }
        self.serve(line);
        self.serve_once(line, waited);
        self.go_on(line);
    }

    /// Does the accesses that the line is good for.
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

    /// The same of a line that was read and may not be kept: loads up to a store, which goes past the cache, and none that
    /// came after the line was asked for.
    fn serve_once(&mut self, line: u64, waited: usize) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        if place.state != State::Invalid {
            return;
        }
        for _ in 0..waited {
            let Some(access) = place.waiting.front() else { return };
            if let Some((data, mask)) = access.store {
                place.doing = Doing::Through;
                return self.out.push_back(Out::Through { line, data, mask });
            }
            let Some(access) = place.waiting.pop_front() else { return };
            self.out.push_back(Out::Done { what: access.what, result: Ok(place.data) });
        }
    }

    /// `Cmp` of what was written or given up; `refused` if a line that was written back was not the host's any more. False if
    /// nothing is under way.
    pub fn written(&mut self, line: u64, refused: bool) -> bool {
        let Some(place) = self.lines.get_mut(&line) else { return false };
        match place.doing {
            Doing::WriteBack { leaves } => {
                self.leaving -= usize::from(leaves);
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

    /// What is under way for a line ends badly.
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
                // Nobody knows what the device has: it is not told that all is well.
                (place.state, place.snoop, place.doing) = (State::Invalid, None, Doing::Nothing);
                self.lose(line);
                self.go_on(line);
            }
        }
    }

    /// The first `count` accesses that wait for a line fail.
    fn fail(&mut self, line: u64, why: Failure, count: usize) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        (place.state, place.doing) = (State::Invalid, Doing::Nothing);
        let count = count.min(place.waiting.len());
        for access in place.waiting.drain(..count) {
            self.out.push_back(Out::Done { what: access.what, result: Err(why) });
        }
        self.go_on(line);
    }

    /// The next thing that is to be done with a line of which nothing is under way.
    fn go_on(&mut self, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        if place.conflicts > 0 {
            return;
        }
        if place.doing == Doing::Through && place.snoop.take().is_some() {
            // The device may have the write wait for this answer. Nothing is kept of what is written past the cache.
            return self.answer(line, None);
        }
        if place.doing != Doing::Nothing {
            return;
        }
        if let Some(how) = place.snoop {
            let left = how.leaves(place.state.hold());
            if place.state == State::Modified {
                (place.doing, place.state) = (Doing::WriteBack { leaves: false }, State::of(left));
                self.counts.written_back += 1;
                return self.out.push_back(Out::WriteBack { line, data: place.data, left });
            }
            (place.snoop, place.state) = (None, State::of(left));
            self.answer(line, left);
        }
        self.serve(line);
        let Some(place) = self.lines.get_mut(&line) else { return };
        if let Some(access) = place.waiting.front() {
            if place.state != State::Invalid && !self.leases.is_valid(place.lease) {
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
            self.evict(); // it may be this one that gives up its place
        }
    }

    /// Gives free places to those that wait for one, and has lines give up theirs for the rest.
    fn make_room(&mut self) {
        while let Some((line, _)) = self.for_room.front()
            && (self.lines.len() < self.room || self.lines.contains_key(line))
        {
            let Some((line, access)) = self.for_room.pop_front() else { break };
            self.lines.entry(line).or_insert_with(Line::new).waiting.push_back(access);
            self.go_on(line);
        }
        self.evict();
    }

    /// Has as many lines give up their places as are waited for.
    fn evict(&mut self) {
        while self.leaving < self.for_room.len() {
            let idle = |(line, place): (&u64, &Line<T>)| place.is_idle().then_some(*line);
            let behind = (core::ops::Bound::Excluded(self.hand), core::ops::Bound::Unbounded);
            let victim = self.lines.range(behind).find_map(idle);
            let Some(victim) = victim.or_else(|| self.lines.iter().find_map(idle)) else { break };
            self.hand = victim;
            self.leave(victim);
        }
    }

    /// Gives up a line of which nothing is under way.
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

    /// Gives up all lines of which nothing is under way, changed ones by writing them back.
    pub fn flush(&mut self) {
        let idle = self.lines.iter().filter(|(_, place)| place.is_idle());
        let idle: Vec<u64> = idle.map(|(line, _)| *line).collect();
        for line in idle {
            self.leave(line);
        }
    }

    /// Drops everything: changed lines are lost, and loads and stores that wait end without an answer.
    pub fn clear(&mut self) {
        let is_changed = |place: &Line<T>| {
            place.state == State::Modified || matches!(place.doing, Doing::WriteBack { .. })
        };
        let changed = self.lines.iter().filter(|(_, place)| is_changed(place));
        let changed: Vec<u64> = changed.map(|(line, _)| *line).collect();
        self.link_down();
        self.lines.clear();
        // Those that were being written back are told by `link_down`.
        let told: Vec<u64> = self.lost.iter().copied().collect();
        for line in changed.into_iter().filter(|line| !told.contains(line)) {
            self.lose(line);
        }
    }
}
