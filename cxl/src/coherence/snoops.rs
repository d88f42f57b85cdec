//! The snoops of a device that have no answer yet: their tags, their time limits, and the leases of hosts.
//!
//! [`Snoops::ask`] gives a tag; [`Snoops::asked`] finds what a host answers, [`Snoops::mark_overdue`] and
//! [`Snoops::give_up`] look at the time; [`Snoops::lease`] is what a response tells its host.
//!
//! Units: lines by number; `BITag`s of 12 bits.
//! Source: docs/spec/cxl-fabric.md "A host that does not answer"; CXL 3.1 sections 3.3.8, 3.3.10.
//!
//! A snoop that has waited for half of its time is overdue, and its host gets no lease until that is over. Giving up waits for
//! the other half from then on: by that time all leases have ended that the host had, as a term is shorter than half of the
//! time. This holds whenever the device looks at its clock: a request that it took in before it marked the snoop was sent before.
//! A host that the device has given up on gets leases by a new number, so it knows of each line whether it still has it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::Lease;
use weft_parsers::fabric::{Hpa, Pid};

/// Of 64 parts of half of the time limit, those that a term has: clocks of two machines do not run alike.
const TERM_PARTS: u64 = 63;

/// Why an answer is none to a snoop that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// The device has given up on that host meanwhile.
    Late,
    /// The host was not asked so.
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Free,
    Asked {
        who: Pid,
        line: u64,
        /// When it is overdue, or, if it is, when the device gives up.
        due: Instant,
        is_overdue: bool,
        /// The line's address at that host; `None` if it was not asked.
        addr: Option<Hpa>,
    },
    /// Its host was given up on, and may answer yet.
    Late(Pid),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Host {
    /// The number of its lease.
    lease: u64,
    /// Its snoops that are overdue.
    overdue: usize,
}

/// Tags that are not in use, in the order in which they will be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free(VecDeque<u16>);

impl Hash for Free {
    /// By which tags others will be asked decides nothing.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Snoops without an answer, and what hosts are told of their leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snoops {
    limit: Span,
    tags: Vec<Tag>,
    free: Free,
    /// Tags of hosts that were given up on: used when there is no other, so that a late answer finds no other snoop.
    late: VecDeque<u16>,
    /// What is to be marked, and what is to be given up, by time.
    marks: BTreeSet<(Instant, u16)>,
    ends: BTreeSet<(Instant, u16)>,
    hosts: BTreeMap<Pid, Host>,
    secret: u64,
    leases: u64,
}

impl Snoops {
    /// Up to `tags` snoops, each with a time `limit`; numbers of leases follow from `secret`.
    #[must_use]
    pub fn new(limit: Span, tags: u16, secret: u64) -> Self {
        Self {
            limit,
            tags: vec![Tag::Free; tags.into()],
            free: Free((0..tags).collect()),
            late: VecDeque::new(),
            marks: BTreeSet::new(),
            ends: BTreeSet::new(),
            hosts: BTreeMap::new(),
            secret,
            leases: 0,
        }
    }

    /// Stops waiting for answers, though some may come. No host is given up.
    pub fn abandon(&mut self) {
        for tag in 0..u16::try_from(self.tags.len()).unwrap_or(u16::MAX) {
            self.forsake(tag);
        }
    }

    /// Whether another snoop can be sent.
    #[must_use]
    pub fn has_tag(&self) -> bool {
        !self.free.0.is_empty() || !self.late.is_empty()
    }

    /// When there is something to be marked or given up.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let first = |all: &BTreeSet<(Instant, u16)>| all.first().map(|&(at, _)| at);
        Instant::earlier(first(&self.marks), first(&self.ends))
    }

    /// Half of the time limit, from when a snoop is overdue until its host is given up on.
    fn half(&self) -> Span {
        Span::from_ps(self.limit.as_ps() - self.limit.as_ps() / 2)
    }

    /// Gives a snoop of a line, which has the address `addr` at its host, a tag, and a time to be answered in; `None` without a
    /// tag.
    pub fn ask(&mut self, now: Instant, who: Pid, line: u64, addr: Hpa) -> Option<u16> {
        self.put(who, line, now + self.half(), Some(addr))
    }

    /// The same of a host that cannot be asked: its leases end. They do so from the next look at the clock on, as it may have been
    /// given some that `now` does not know of.
    pub fn cannot_ask(&mut self, now: Instant, who: Pid, line: u64) {
        self.put(who, line, now, None);
    }

    fn put(&mut self, who: Pid, line: u64, due: Instant, addr: Option<Hpa>) -> Option<u16> {
        let tag = self.free.0.pop_front().or_else(|| self.late.pop_front())?;
        *self.tags.get_mut(usize::from(tag))? =
            Tag::Asked { who, line, due, is_overdue: false, addr };
        self.marks.insert((due, tag));
        Some(tag)
    }

    /// The line of the snoop that `who` answers by `tag`, for the line at `addr`; 0 if the answer does not say for which. It stays
    /// under way until [`Self::answered`].
    ///
    /// # Errors
    /// See [`NotAsked`].
    pub fn asked(&mut self, who: Pid, tag: u16, addr: Hpa) -> Result<u64, NotAsked> {
        match self.tags.get_mut(usize::from(tag)) {
            Some(Tag::Asked { who: asked, line, addr: Some(known), .. }) if *asked == who => {
                // Of another line: the tag was that of a snoop which the device has given up on.
                if addr == Hpa(0) || addr == *known { Ok(*line) } else { Err(NotAsked::Late) }
            }
            Some(Tag::Asked { who: asked, addr: None, .. }) if *asked == who => Err(NotAsked::Late),
            Some(place @ Tag::Late(_)) if *place == Tag::Late(who) => {
                *place = Tag::Free;
                self.late.retain(|late| *late != tag);
                self.free.0.push_back(tag);
                Err(NotAsked::Late)
            }
            _ => Err(NotAsked::Unexpected),
        }
    }

    /// A snoop has its answer.
    pub fn answered(&mut self, tag: u16) {
        if self.take(tag, Tag::Free).is_some() {
            self.free.0.push_back(tag);
        }
    }

    /// Ends a snoop without an answer; one may come yet.
    fn forsake(&mut self, tag: u16) -> Option<(Pid, u64)> {
        let Some(&Tag::Asked { who, .. }) = self.tags.get(usize::from(tag)) else { return None };
        self.late.push_back(tag);
        self.take(tag, Tag::Late(who))
    }

    /// Ends a snoop, whose tag becomes `after`.
    fn take(&mut self, tag: u16, after: Tag) -> Option<(Pid, u64)> {
        let place = self.tags.get_mut(usize::from(tag))?;
        let Tag::Asked { who, line, due, is_overdue, .. } = *place else { return None };
        *place = after;
        if is_overdue {
            self.ends.remove(&(due, tag));
            let host = self.hosts.entry(who).or_default();
            host.overdue = host.overdue.saturating_sub(1);
        } else {
            self.marks.remove(&(due, tag));
        }
        Some((who, line))
    }

    fn mark(&mut self, now: Instant, tag: u16) {
        let half = self.half();
        if let Some(Tag::Asked { who, due, is_overdue: is_overdue @ false, .. }) =
            self.tags.get_mut(usize::from(tag))
        {
            self.marks.remove(&(*due, tag));
            // From now on, not from when it was due: leases may have been given since then.
            (*due, *is_overdue) = (now + half, true);
            self.ends.insert((*due, tag));
            self.hosts.entry(*who).or_default().overdue += 1;
        }
    }

    /// Marks what is overdue at `now`, before anything is taken in that may have been sent by then.
    pub fn mark_overdue(&mut self, now: Instant) {
        while let Some(&(at, tag)) = self.marks.first()
            && at <= now
        {
            self.mark(now, tag);
        }
    }

    /// The next host that is given up on at `now`, and its line. Its lease is over.
    pub fn give_up(&mut self, now: Instant) -> Option<(Pid, u64)> {
        let &(at, tag) = self.ends.first()?;
        if at > now {
            return None;
        }
        let (who, line) = self.forsake(tag)?;
        self.revoke(who);
        Some((who, line))
    }

    /// What a host has of lines may be less than it thinks: from now on it gets leases by another number.
    pub fn revoke(&mut self, who: Pid) {
        if let Some(host) = self.hosts.get_mut(&who) {
            host.lease = 0;
        }
    }

    /// What a response tells `who`.
    pub fn lease(&mut self, who: Pid) -> Lease {
        let (secret, leases) = (self.secret, &mut self.leases);
        let host = self.hosts.entry(who).or_default();
        if host.overdue > 0 {
            return Lease::NONE;
        }
        while host.lease == 0 {
            *leases += 1;
            host.lease = number(secret, *leases);
        }
        let unit = Lease::UNIT_US * 1_000_000;
        let term = self.limit.as_ps() / 2 / 64 * TERM_PARTS / unit;
        Lease { number: host.lease, term: u16::try_from(term).unwrap_or(u16::MAX) }
    }
}

/// The number of the `nth` lease: without the secret it cannot be guessed, so no other device can renew the lease.
fn number(secret: u64, nth: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (secret, nth).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    fn pid(bits: u16) -> Pid {
        Pid::assignable(bits).unwrap()
    }

    /// The answer to an early snoop is not taken for that to a later one, however many lines a host is given up for.
    #[test]
    fn a_late_answer_is_never_that_to_another_snoop_of_its_host() {
        let mut snoops = Snoops::new(Span::from_us(200), 1, 1);
        let tag = snoops.ask(at(0), pid(1), 10, Hpa(0x40)).unwrap();
        assert!(!snoops.has_tag());
        snoops.mark_overdue(at(100));
        assert_eq!(snoops.give_up(at(200)), Some((pid(1), 10)));
        assert_eq!(snoops.ask(at(200), pid(1), 11, Hpa(0x80)), Some(tag));
        assert_eq!(snoops.asked(pid(2), tag, Hpa(0x80)), Err(NotAsked::Unexpected));
        assert_eq!(snoops.asked(pid(1), tag, Hpa(0x40)), Err(NotAsked::Late));
        assert_eq!(snoops.asked(pid(1), tag, Hpa(0x80)), Ok(11));
        assert_eq!(snoops.asked(pid(1), tag, Hpa(0)), Ok(11), "it does not say");
        snoops.answered(tag);
        assert_eq!(snoops.asked(pid(1), tag, Hpa(0x80)), Err(NotAsked::Unexpected));
    }

    /// Who cannot be asked may have had leases that the clock, which was read before, does not know of.
    #[test]
    fn who_cannot_be_asked_is_given_up_on_by_the_next_look_at_the_clock() {
        let mut snoops = Snoops::new(Span::from_us(200), 2, 1);
        snoops.cannot_ask(at(0), pid(1), 10);
        assert!(snoops.give_up(at(0)).is_none());
        assert!(snoops.lease(pid(1)) != Lease::NONE && snoops.next_due() == Some(at(0)));
        snoops.mark_overdue(at(5_000)); // it was away meanwhile
        assert_eq!(snoops.lease(pid(1)), Lease::NONE);
        assert_eq!(snoops.asked(pid(1), 0, Hpa(0)), Err(NotAsked::Late));
        assert!(snoops.give_up(at(5_099)).is_none());
        assert_eq!(snoops.give_up(at(5_100)), Some((pid(1), 10)));
    }
}
