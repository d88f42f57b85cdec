//! Snoop filter of a coherent device: which hosts hold a line, and which snoops a request needs before it is carried
//! out.
//!
//! Requests come in by [`Filter::ask`], answers by [`Filter::answered`], [`Filter::silent`] and [`Filter::leave`]; the
//! device carries out the [`Effect`]s. Lines are numbered within the device.
//!
//! Requests for one line are carried out in the order in which they came. When the filter is full, the next line in
//! order of address that has neither snoop nor request under way is taken from its hosts; hosts that wait for places
//! get them in turn, one each.
//!
//! Source: CXL 3.1 sections 3.3.3, 3.3.8; docs/spec/cxl-fabric.md "Back-invalidate".

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use weft_parsers::fabric::Pid;

use super::{Hold, Snoop};

/// Requests that may wait for hosts, in all.
pub const WAITING_MAX: usize = 4_096;
/// Share of [`WAITING_MAX`] that one host may use.
pub const WAITING_EACH: usize = 512;

/// Access to a line that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// Its current value; the requester keeps the copy it has, if any.
    Current,
    /// A copy: exclusive if no other host has one, else shared.
    Shared,
    /// The only copy, to be written without another request.
    Exclusive,
    /// No copy in any host, the requester included.
    NoCopy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect<T> {
    /// Send a snoop to a host.
    Snoop { to: Pid, line: u64, how: Snoop },
    /// A request may be carried out now, before anything else of its line.
    Go {
        what: T,
        /// Hold that the requester's host has from now on.
        grant: Option<Hold>,
    },
    /// The owner never said whether it changed the line, so memory may have an old value.
    Lost { line: u64, who: Pid },
}

/// Why a host's answer was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No snoop of that line to that host is open.
    Unexpected,
    /// The host claims to keep more than the snoop allows: the snoop stays open.
    KeepsTooMuch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FilterCounts {
    /// Snoops that were sent.
    pub snoops: u64,
    /// Lines taken from their hosts as the filter was full.
    pub evicted: u64,
    /// Requests that had to wait.
    pub waited: u64,
    /// Answers that matched no open snoop.
    pub unexpected: u64,
    /// Answers that kept more than the snoop allowed.
    pub wrong: u64,
    /// Snoops whose host was given up on.
    pub silent: u64,
    /// Lines of an owner that was given up on: their last value may be lost.
    pub lost: u64,
}

impl core::hash::Hash for FilterCounts {
    /// Counts change no decision, so the exploration of all orders takes states that differ only in them as one.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asker {
    /// A host with a cache: its own copy is not in the way of its request.
    Cache(Pid),
    /// A host past its cache: each copy counts as another's.
    Plain(Pid),
}

impl Asker {
    /// Host whose copy the request may use or get.
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
    /// Hold when the snoop was sent.
    had: Hold,
}

/// A line that a host holds or a request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line<T> {
    holders: Vec<(Pid, Hold)>,
    snooped: Vec<Snooped>,
    /// In order of arrival. The snoops under way are for the first one, unless `evicted`.
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
            // Sorted: the exploration hashes the state, and the order in which holders came is no part of it.
            self.holders.sort_unstable();
        }
    }

    /// Snoops that a request needs before it can be carried out.
    fn in_the_way(&self, who: Option<Pid>, want: Want) -> Vec<Snooped> {
        let others = self.holders.iter().filter(|(pid, _)| Some(*pid) != who);
        let how = |&(who, had): &(Pid, Hold)| {
            // A sharer has the value that memory has, so a reader need not snoop it. An owner may have changed the line
            // without a message to the device (E to M is silent), so it is always snooped.
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

    /// Records the copy that the requester has once the request is carried out, and returns it.
    fn grant(&mut self, who: Option<Pid>, want: Want) -> Option<Hold> {
        let who = who?;
        let hold = match want {
            Want::Current => return self.hold_of(who),
            Want::NoCopy => None,
            Want::Exclusive => Some(Hold::Owned),
            // A sole reader gets E, so that its first store needs no second request.
            Want::Shared if self.holders.iter().all(|(pid, _)| *pid == who) => Some(Hold::Owned),
            Want::Shared => Some(Hold::Shared),
        };
        self.set(who, hold);
        hold
    }
}

/// Whether the request may need a place in the filter for its requester's copy.
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
    // Round robin that survives removals: only the last key is remembered, not a position.
    let behind = all.range((Bound::Excluded(last), Bound::Unbounded)).find_map(key);
    behind.or_else(|| all.iter().find_map(key))
}

/// Requests that wait for a place, by host; `last` is the host that got the last place.
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

    /// Takes the next request in turn of hosts whose line `fits`.
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

/// Which hosts hold which lines. `T` is the owner's name for a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter<T> {
    lines: BTreeMap<u64, Line<T>>,
    room: usize,
    /// Waiting requests, those for a place included; `waiting_of` has them by host.
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
    /// An empty filter of `room` lines, one at least.
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

    /// Lines in use (held or waited for), and the filter's capacity.
    #[must_use]
    pub fn used(&self) -> (usize, usize) {
        (self.lines.len(), self.room)
    }

    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    #[must_use]
    pub const fn counts(&self) -> FilterCounts {
        self.counts
    }

    #[must_use]
    pub fn hold_of(&self, who: Pid, line: u64) -> Option<Hold> {
        self.lines.get(&line)?.hold_of(who)
    }

    #[must_use]
    pub fn holders(&self, line: u64) -> &[(Pid, Hold)] {
        self.lines.get(&line).map_or(&[], |line| &line.holders)
    }

    #[must_use]
    pub fn held_by(&self, who: Pid) -> Vec<u64> {
        let held = self.lines.iter().filter(|(_, place)| place.hold_of(who).is_some());
        held.map(|(line, _)| *line).collect()
    }

    /// Like [`Self::is_in_the_way`], for any line of a range.
    #[must_use]
    pub fn is_any_in_the_way(&self, lines: core::ops::Range<u64>, want: Want) -> bool {
        let mut known = self.lines.range(lines);
        known.any(|(_, place)| !place.is_idle() || !place.in_the_way(None, want).is_empty())
    }

    /// Whether a request of a requester without a copy ([`Asker::Plain`]) would have to wait.
    #[must_use]
    pub fn is_in_the_way(&self, line: u64, want: Want) -> bool {
        let of_line = |line: &Line<T>| !line.is_idle() || !line.in_the_way(None, want).is_empty();
        self.lines.get(&line).is_some_and(of_line)
    }

    pub fn next_effect(&mut self) -> Option<Effect<T>> {
        self.effects.pop_front()
    }

    /// Takes a request.
    ///
    /// # Errors
    /// It would have to wait, and [`WAITING_MAX`] do, or [`WAITING_EACH`] of the same host.
    pub fn ask(&mut self, line: u64, who: Asker, want: Want, what: T) -> Result<(), T> {
        let own = self.waiting_of.get(&who.pid()).copied().unwrap_or(0);
        // The bounds hold for requests that would wait. Others take no memory, and are carried out even while a host
        // that answers no snoop has filled its share.
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
        // A newcomer may not take a free place while others wait for one.
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
                // Behind earlier requests of the line, whatever it needs: order of arrival decides between hosts.
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

    /// Starts a request for a line that has no place.
    fn begin(&mut self, line: u64, ask: Ask<T>) {
        // Leaves no copy behind, so nothing has to be remembered and no place is needed.
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

    /// Carries a request out, or snoops the hosts in its way. The line keeps its place either way.
    fn attempt(&mut self, line: u64, ask: Ask<T>) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        let snooped = place.in_the_way(ask.who.holder(), ask.want);
        if snooped.is_empty() {
            let grant = place.grant(ask.who.holder(), ask.want);
            self.effects.push_back(Effect::Go { what: ask.what, grant });
            return;
        }
        let who = ask.who;
        // At the front: `settle` has taken it from there, or no other request waits.
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

    /// A host answers a snoop and keeps the line as `left`.
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
        // Against the hold at the time of the snoop, not the one now: the host may have evicted the line after it
        // answered.
        if left > how.leaves(Some(had)) {
            // Not even surely the answer to this snoop. The snoop stays open, and the host's leases run out before the
            // device gives up on it.
            self.counts.wrong += 1;
            return Err(Wrong::KeepsTooMuch);
        }
        place.snooped.swap_remove(at);
        // An eviction or write-back may overtake the answer; the host then holds less than the answer claims.
        place.set(who, left.min(place.hold_of(who)));
        self.settle(line);
        Ok(())
    }

    /// Gives up on a host that has not answered in time. It then has no lease by which it could use the line.
    pub fn silent(&mut self, who: Pid, line: u64) {
        let asked = |place: &Line<T>| place.snooped.iter().any(|it| it.who == who);
        if self.lines.get(&line).is_some_and(asked) {
            // Only while the snoop is open: an answer or an earlier timeout may have ended it already.
            self.counts.silent += 1;
            self.give_up(who, line);
        }
    }

    fn give_up(&mut self, who: Pid, line: u64) {
        let Some(place) = self.lines.get_mut(&line) else { return };
        place.snooped.retain(|it| it.who != who);
        // A sharer's copy equals memory, so losing it loses nothing.
        if place.hold_of(who) == Some(Hold::Owned) {
            self.counts.lost += 1;
            self.effects.push_back(Effect::Lost { line, who });
        }
        place.set(who, None);
        self.settle(line);
    }

    /// A host gives up a line, or keeps less of it. Takes effect at once, even while requests wait. False if the host
    /// holds less than `left`.
    pub fn leave(&mut self, who: Pid, line: u64, left: Option<Hold>) -> bool {
        let Some(place) = self.lines.get_mut(&line) else { return false };
        let had = place.hold_of(who);
        if had.is_none() || left > had {
            return false;
        }
        // An open snoop of this host stays open: its answer comes behind this message, and requests go on only then.
        place.set(who, left);
        self.tidy(line);
        true
    }

    /// Lets waiting requests go on once all snooped hosts have answered.
    fn settle(&mut self, line: u64) {
        // True for the request that the snoops were sent for.
        let mut asked = true;
        while let Some(place) = self.lines.get_mut(&line)
            && place.snooped.is_empty()
        {
            // These snoops made room for another line; the first request came later and has snooped no host.
            if core::mem::take(&mut place.evicted) {
                self.evicting -= 1;
                asked = false;
            }
            let Some(ask) = place.waiting.pop_front() else { break };
            self.note_go(ask.who);
            // The owner has written the value back and may keep the line as owner. `attempt` would find it in the way
            // again, and snoop it for ever.
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

    /// Drops all requests and pending effects, for a reset of the device. Hosts keep their copies, so the filter keeps
    /// its record of them.
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

    /// Frees the place of a line that is neither held nor waited for.
    fn tidy(&mut self, line: u64) {
        let is_over = |place: &Line<T>| place.is_idle() && place.holders.is_empty();
        if self.lines.get(&line).is_some_and(is_over) {
            self.lines.remove(&line);
            self.make_room();
        }
    }

    /// Gives free places to requests that wait for one, and starts to evict a line for each of the rest.
    fn make_room(&mut self) {
        loop {
            // A request whose line has got a place through another request needs none of its own.
            let Self { lines, room, for_room, .. } = self;
            let is_free = lines.len() < *room;
            let next = for_room.pop(|line| is_free || lines.contains_key(&line));
            let Some((line, ask)) = next else { break };
            self.note_go(ask.who);
            self.lines.entry(line).or_default();
            // May wait again, now for its line: another request may have come first.
            self.start(line, ask);
        }
        // One eviction for each request that waits, no more: lines that hosts use should stay.
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
