//! The snoop filter of a coherent device: which hosts hold a line, and what must happen before a request is carried out.
//!
//! Requests in by [`Filter::ask`], answers by [`Filter::answered`], [`Filter::silent`] and [`Filter::leave`];
//! [`Effect`]s out.
//!
//! Units: numbers of lines in the device.
//! Source: CXL 3.1 sections 3.3.3, 3.3.8; docs/spec/cxl-fabric.md "Back-invalidate".
//!
//! Requests for one line are carried out in the order in which they came. Of a full filter the next line in order of address,
//! of which nothing is under way, is taken from its hosts; hosts that wait for places get them in turn, one each.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use weft_parsers::fabric::Pid;

use super::{Hold, Snoop};

/// Requests that may wait for answers of hosts.
pub const WAITING_MAX: usize = 4_096;
/// As many of them may be of one host.
pub const WAITING_EACH: usize = 512;

/// What a request needs of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// Its value; who asks keeps what it has.
    Current,
    /// A copy, shared unless nobody else has one.
    Shared,
    /// The only copy.
    Exclusive,
    /// That no host has a copy, the one that asks included.
    NoCopy,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<T> {
    /// A host is to be snooped.
    Snoop {
        /// Whom.
        to: Pid,
        /// Which line.
        line: u64,
        /// How.
        how: Snoop,
    },
    /// A request may be carried out now, before anything else of its line.
    Go {
        /// Which.
        what: T,
        /// What its host has from now on.
        grant: Option<Hold>,
    },
    /// The owner of a line has not said whether it changed it: what memory has may be old.
    Lost {
        /// Which line.
        line: u64,
        /// Whose.
        who: Pid,
    },
}

/// Why an answer of a host counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It was not asked.
    Unexpected,
    /// It says that it keeps more than it may: the snoop still has no answer.
    KeepsTooMuch,
}

/// Counts of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FilterCounts {
    /// Snoops that were sent.
    pub snoops: u64,
    /// Lines taken from their hosts as the filter was full.
    pub evicted: u64,
    /// Requests that had to wait.
    pub waited: u64,
    /// Answers that nobody waited for.
    pub unexpected: u64,
    /// Answers that kept more than the snoop allowed.
    pub wrong: u64,
    /// Snoops that were not answered in time.
    pub silent: u64,
    /// Lines that were lost that way.
    pub lost: u64,
}

impl core::hash::Hash for FilterCounts {
    /// What was counted decides nothing.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// A host with a cache: its own copy is not in the way of its request.
    Cache(Pid),
    /// A host past its cache: each copy counts as another's.
    Plain(Pid),
}

impl Asker {
    /// Who may have a copy for it.
    const fn holder(self) -> Option<Pid> {
        match self {
            Self::Cache(who) => Some(who),
            Self::Plain(_) => None,
        }
    }

    const fn pid(self) -> Pid {
        match self {
            Self::Cache(who) | Self::Plain(who) => who,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ask<T> {
    who: Asker,
    want: Want,
    what: T,
}

/// A host that has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Snooped {
    who: Pid,
    how: Snoop,
    /// What it held when it was asked.
    had: Hold,
}

/// A line that somebody holds or waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line<T> {
    holders: Vec<(Pid, Hold)>,
    snooped: Vec<Snooped>,
    /// In order; the first one is what hosts were snooped for, unless the line is taken from them.
    waiting: VecDeque<Ask<T>>,
    evicted: bool,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        let (holders, snooped) = (Vec::new(), Vec::new());
        Self { holders, snooped, waiting: VecDeque::new(), evicted: false }
    }
}

impl<T> Line<T> {
    fn is_idle(&self) -> bool {
        self.snooped.is_empty() && self.waiting.is_empty()
    }

    fn hold_of(&self, who: Pid) -> Option<Hold> {
        self.holders.iter().find(|(pid, _)| *pid == who).map(|&(_, hold)| hold)
    }

    fn set(&mut self, who: Pid, hold: Option<Hold>) {
        self.holders.retain(|(pid, _)| *pid != who);
        if let Some(hold) = hold {
            self.holders.push((who, hold));
            self.holders.sort_unstable();
        }
    }

    /// Whom a request has to be kept from first.
    fn in_the_way(&self, who: Option<Pid>, want: Want) -> Vec<Snooped> {
        let others = self.holders.iter().filter(|(pid, _)| Some(*pid) != who);
        let how = |&(who, had): &(Pid, Hold)| {
            let how = match (want, had) {
                (Want::Current | Want::Shared, Hold::Shared) => return None,
                (Want::Current, Hold::Owned) => Snoop::Current,
                (Want::Shared, Hold::Owned) => Snoop::Data,
                (Want::Exclusive | Want::NoCopy, _) => Snoop::Invalidate,
            };
            Some(Snooped { who, how, had })
        };
        others.filter_map(how).collect()
    }

    /// What who asks has once it is carried out.
    fn grant(&mut self, who: Option<Pid>, want: Want) -> Option<Hold> {
        let who = who?;
        let hold = match want {
            Want::Current => return self.hold_of(who),
            Want::NoCopy => None,
            Want::Exclusive => Some(Hold::Owned),
            Want::Shared if self.holders.iter().all(|(pid, _)| *pid == who) => Some(Hold::Owned),
            Want::Shared => Some(Hold::Shared),
        };
        self.set(who, hold);
        hold
    }
}

/// Whether who asks has a copy afterwards that he has not had.
const fn holds(who: Option<Pid>, want: Want) -> bool {
    matches!(want, Want::Shared | Want::Exclusive) && who.is_some()
}

/// The next key behind `last`, and from the first one on again, whose value `fits`.
fn next_behind<K: Ord + Copy, V>(
    all: &BTreeMap<K, V>,
    last: K,
    fits: impl Fn(&V) -> bool,
) -> Option<K> {
    let key = |(key, value): (&K, &V)| fits(value).then_some(*key);
    let behind = all.range((Bound::Excluded(last), Bound::Unbounded)).find_map(key);
    behind.or_else(|| all.iter().find_map(key))
}

/// Requests that wait for a place, by host; and who got the last one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ForRoom<T> {
    queues: BTreeMap<Pid, VecDeque<(u64, Ask<T>)>>,
    len: usize,
    last: Pid,
}

impl<T> ForRoom<T> {
    const fn new() -> Self {
        Self { queues: BTreeMap::new(), len: 0, last: Pid::NONE }
    }

    fn push(&mut self, line: u64, ask: Ask<T>) {
        self.queues.entry(ask.who.pid()).or_default().push_back((line, ask));
        self.len += 1;
    }

    /// The request whose host's turn it is, of those whose line `fits`.
    fn pop(&mut self, fits: impl Fn(u64) -> bool) -> Option<(u64, Ask<T>)> {
        let is_next = |queue: &VecDeque<(u64, Ask<T>)>| queue.front().is_some_and(|it| fits(it.0));
        let who = next_behind(&self.queues, self.last, is_next)?;
        let queue = self.queues.get_mut(&who)?;
        let one = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&who);
        }
        self.last = who;
        self.len -= usize::from(one.is_some());
        one
    }
}

/// Which hosts hold which lines. `T` is a request, as its owner knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter<T> {
    lines: BTreeMap<u64, Line<T>>,
    room: usize,
    /// Requests that wait, with those for room; and by host.
    waiting: usize,
    waiting_of: BTreeMap<Pid, usize>,
    for_room: ForRoom<T>,
    evicting: usize,
    /// The line that was evicted last.
    hand: u64,
    effects: VecDeque<Effect<T>>,
    counts: FilterCounts,
}

impl<T> Filter<T> {
    /// Nobody holds anything; up to `room` lines can be held.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self {
            lines: BTreeMap::new(),
            room: room.max(1),
            waiting: 0,
            waiting_of: BTreeMap::new(),
            for_room: ForRoom::new(),
            evicting: 0,
            hand: u64::MAX,
            effects: VecDeque::new(),
            counts: FilterCounts::default(),
        }
    }

    /// Lines that are held or waited for, of how many.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.lines.len(), self.room)
    }

    /// Requests that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Counts so far.
    #[must_use]
    pub const fn counts(&self) -> FilterCounts {
        self.counts
    }

    /// How `who` holds a line.
    #[must_use]
    pub fn hold_of(&self, who: Pid, line: u64) -> Option<Hold> {
        self.lines.get(&line)?.hold_of(who)
    }

    /// Who holds a line.
    #[must_use]
    pub fn holders(&self, line: u64) -> &[(Pid, Hold)] {
        self.lines.get(&line).map_or(&[], |line| &line.holders)
    }

    /// Lines that `who` holds.
    #[must_use]
    pub fn held_by(&self, who: Pid) -> Vec<u64> {
        let held = self.lines.iter().filter(|(_, place)| place.hold_of(who).is_some());
        held.map(|(line, _)| *line).collect()
    }

    /// As [`Self::is_in_the_way`], of any line of a range.
    #[must_use]
    pub fn is_any_in_the_way(&self, lines: core::ops::Range<u64>, want: Want) -> bool {
        let mut known = self.lines.range(lines);
        known.any(|(_, place)| !place.is_idle() || !place.in_the_way(None, want).is_empty())
    }

    /// Whether a request without a copy of its own, from nobody, would have to wait.
    #[must_use]
    pub fn is_in_the_way(&self, line: u64, want: Want) -> bool {
        let of_line = |line: &Line<T>| !line.is_idle() || !line.in_the_way(None, want).is_empty();
        self.lines.get(&line).is_some_and(of_line)
    }

    /// What is to be done next.
    pub fn next_effect(&mut self) -> Option<Effect<T>> {
        self.effects.pop_front()
    }

    /// Takes a request.
    ///
    /// # Errors
    /// It would have to wait, and [`WAITING_MAX`] do, or [`WAITING_EACH`] of the same host.
    pub fn ask(&mut self, line: u64, who: Asker, want: Want, what: T) -> Result<(), T> {
        let own = self.waiting_of.get(&who.pid()).copied().unwrap_or(0);
        if (self.waiting >= WAITING_MAX || own >= WAITING_EACH) && self.waits(line, who, want) {
            return Err(what);
        }
        self.start(line, Ask { who, want, what });
        Ok(())
    }

    fn waits(&self, line: u64, who: Asker, want: Want) -> bool {
        match self.lines.get(&line) {
            Some(place) => !place.is_idle() || !place.in_the_way(who.holder(), want).is_empty(),
            None => holds(who.holder(), want) && !self.has_room(),
        }
    }

    fn has_room(&self) -> bool {
        self.lines.len() < self.room && self.for_room.len == 0
    }

    fn note_wait(&mut self, who: Asker) {
        self.counts.waited += 1;
        self.waiting += 1;
        *self.waiting_of.entry(who.pid()).or_default() += 1;
    }

    fn note_go(&mut self, who: Asker) {
        self.waiting -= 1;
        if let Some(own) = self.waiting_of.get_mut(&who.pid()) {
            *own -= 1;
            if *own == 0 {
                self.waiting_of.remove(&who.pid());
            }
        }
    }

    fn start(&mut self, line: u64, ask: Ask<T>) {
        match self.lines.get_mut(&line) {
            Some(place) if !place.is_idle() => {
                let who = ask.who;
                place.waiting.push_back(ask);
                self.note_wait(who);
            }
            Some(_) => {
                self.attempt(line, ask);
                self.tidy(line);
            }
            None => self.begin(line, ask),
        }
    }

    /// A request for a line that nobody holds.
    fn begin(&mut self, line: u64, ask: Ask<T>) {
        if !holds(ask.who.holder(), ask.want) {
            self.effects.push_back(Effect::Go { what: ask.what, grant: None });
        } else if self.has_room() {
            self.lines.insert(line, Line::default());
            self.attempt(line, ask);
        } else {
            self.note_wait(ask.who);
            self.for_room.push(line, ask);
            self.make_room();
        }
    }

    /// Carries a request out, or snoops who is in its way. The line stays, whoever holds it.
    fn attempt(&mut self, line: u64, ask: Ask<T>) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        let snooped = place.in_the_way(ask.who.holder(), ask.want);
        if snooped.is_empty() {
            let grant = place.grant(ask.who.holder(), ask.want);
            self.effects.push_back(Effect::Go { what: ask.what, grant });
            return;
        }
        let who = ask.who;
        place.waiting.push_front(ask);
        self.note_wait(who);
        self.snoop(line, snooped);
    }

    fn snoop(&mut self, line: u64, snooped: Vec<Snooped>) {
        for &Snooped { who: to, how, .. } in &snooped {
            self.counts.snoops += 1;
            self.effects.push_back(Effect::Snoop { to, line, how });
        }
        if let Some(place) = self.lines.get_mut(&line) {
            place.snooped = snooped;
        }
    }

    /// A host answers a snoop, and says what it keeps.
    ///
    /// # Errors
    /// See [`Wrong`].
    pub fn answered(&mut self, who: Pid, line: u64, left: Option<Hold>) -> Result<(), Wrong> {
        let place = self.lines.get_mut(&line);
        let found = place.and_then(|place| {
            let at = place.snooped.iter().position(|snooped| snooped.who == who)?;
            let &Snooped { how, had, .. } = place.snooped.get(at)?;
            Some((how, had, at, place))
        });
        let Some((how, had, at, place)) = found else {
            self.counts.unexpected += 1;
            return Err(Wrong::Unexpected);
        };
        if left > how.leaves(Some(had)) {
            // It may not even be the answer to this snoop. The host may use the line as long as it has a lease.
            self.counts.wrong += 1;
            return Err(Wrong::KeepsTooMuch);
        }
        place.snooped.swap_remove(at);
        // An answer may be overtaken by the host's giving up what it says it keeps.
        place.set(who, left.min(place.hold_of(who)));
        self.settle(line);
        Ok(())
    }

    /// A host has not answered in time: it holds the line no more, and has no lease to use it by.
    pub fn silent(&mut self, who: Pid, line: u64) {
        let asked = |place: &Line<T>| place.snooped.iter().any(|it| it.who == who);
        if self.lines.get(&line).is_some_and(asked) {
            self.counts.silent += 1;
            self.give_up(who, line);
        }
    }

    fn give_up(&mut self, who: Pid, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        place.snooped.retain(|it| it.who != who);
        if place.hold_of(who) == Some(Hold::Owned) {
            self.counts.lost += 1;
            self.effects.push_back(Effect::Lost { line, who });
        }
        place.set(who, None);
        self.settle(line);
    }

    /// A host gives up a line, or keeps less of it: at once, whatever waits. False if it does not hold as much.
    pub fn leave(&mut self, who: Pid, line: u64, left: Option<Hold>) -> bool {
        let Some(place) = self.lines.get_mut(&line) else { return false };
        let had = place.hold_of(who);
        if had.is_none() || left > had {
            return false;
        }
        place.set(who, left);
        self.tidy(line);
        true
    }

    /// All that were snooped have answered: the requests that wait go on.
    fn settle(&mut self, line: u64) {
        let mut asked = true;
        while let Some(place) = self.lines.get_mut(&line)
            && place.snooped.is_empty()
        {
            if core::mem::take(&mut place.evicted) {
                self.evicting -= 1;
                asked = false;
            }
            let Some(ask) = place.waiting.pop_front() else { break };
            self.note_go(ask.who);
            // The value that it was asked for is there, even if the owner keeps the line.
            if core::mem::take(&mut asked) && ask.want == Want::Current {
                let grant = ask.who.holder().and_then(|who| self.hold_of(who, line));
                self.effects.push_back(Effect::Go { what: ask.what, grant });
            } else {
                self.attempt(line, ask);
            }
        }
        self.tidy(line);
        self.make_room();
    }

    /// Drops all requests, and what was to be done for them: hosts keep what they hold.
    pub fn drop_requests(&mut self) {
        self.lines.retain(|_, place| {
            *place = Line { holders: core::mem::take(&mut place.holders), ..Line::default() };
            !place.holders.is_empty()
        });
        (self.waiting, self.evicting) = (0, 0);
        self.waiting_of.clear();
        self.for_room = ForRoom::new();
        self.effects.clear();
    }

    /// Forgets a line that nobody holds or waits for.
    fn tidy(&mut self, line: u64) {
        let is_over = |place: &Line<T>| place.is_idle() && place.holders.is_empty();
        if self.lines.get(&line).is_some_and(is_over) {
            self.lines.remove(&line);
            self.make_room();
        }
    }

    /// Gives free places to those that wait for one, and takes lines from their hosts for the rest.
    fn make_room(&mut self) {
        loop {
            let Self { lines, room, for_room, .. } = self;
            let is_free = lines.len() < *room;
            let next = for_room.pop(|line| is_free || lines.contains_key(&line));
            let Some((line, ask)) = next else { break };
            self.note_go(ask.who);
            self.lines.entry(line).or_default();
            self.start(line, ask);
        }
        while self.evicting < self.for_room.len {
            let Some(victim) = next_behind(&self.lines, self.hand, Line::is_idle) else { break };
            let Some(place) = self.lines.get_mut(&victim) else { break };
            let snooped = place.in_the_way(None, Want::NoCopy);
            place.evicted = true;
            self.hand = victim;
            self.evicting += 1;
            self.counts.evicted += 1;
            self.snoop(victim, snooped);
        }
    }
}
