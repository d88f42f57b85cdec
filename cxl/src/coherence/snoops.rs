//! Open snoops of a device: tags, time limits, and the leases of hosts.
//!
//! [`Snoops::ask`] gives a snoop its tag and [`Snoops::asked`] finds the snoop that a host answers;
//! [`Snoops::mark_overdue`] and [`Snoops::give_up`] look at the time, and [`Snoops::lease`] is the lease that a
//! response names.
//!
//! A snoop that has waited for half of its time is overdue, and from then on its host gets no lease. The device gives
//! up when the other half has passed since it marked the snoop: by then all leases of the host have ended, as a term is
//! shorter than half of the time. This holds however late the device looks at its clock, because every request that it
//! took in before the mark was sent before it. After that the host's leases have another number, so the host knows for
//! each line whether its grant is still good.
//!
//! Source: docs/spec/cxl-fabric.md "A host that does not answer"; CXL 3.1 sections 3.3.8, 3.3.10.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::Lease;
use weft_parsers::fabric::{Hpa, Pid};

/// A term is this many 64ths of half of the time limit; the rest allows for clocks of two machines that run at
/// different rates.
const TERM_PARTS: u64 = 63;

/// Why an answer matches no open snoop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// It answers a snoop that the device has given up on, or could not send.
    Late,
    /// No snoop with that tag went to this host.
    Unexpected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tag {
    Free,
    Asked {
        who: Pid,
        line: u64,
        /// Time at which it becomes overdue, or, once it is, at which the device gives up.
        due: Instant,
        is_overdue: bool,
        /// The line's address at that host; `None` if the host has none and so was not snooped.
        addr: Option<Hpa>,
    },
    /// The device gave up on the host, whose answer may still come.
    Late(Pid),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Host {
    /// Number of its lease; 0: the next response gives it a new one.
    lease: u64,
    /// Overdue snoops to it: while there are any it gets no lease.
    overdue: usize,
}

/// Unused tags, in order of their next use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Free(VecDeque<u16>);

impl Hash for Free {
    /// The order of tags changes no decision, so the exploration of all orders takes states that differ only in it as
    /// one.
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snoops {
    limit: Span,
    tags: Vec<Tag>,
    free: Free,
    /// Tags of snoops that were given up on, oldest first. Used only when `free` is empty, so that a late answer is
    /// unlikely to meet another snoop.
    late: VecDeque<u16>,
    /// Snoops to be marked overdue, by time; those to be given up are in `ends`.
    marks: BTreeSet<(Instant, u16)>,
    ends: BTreeSet<(Instant, u16)>,
    hosts: BTreeMap<Pid, Host>,
    secret: u64,
    leases: u64,
}

impl Snoops {
    /// Room for `tags` snoops, each with a time `limit`. Lease numbers are derived from `secret`.
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

    /// Ends all open snoops, for a reset of the device: late answers are tolerated, and no host is given up on.
    pub fn abandon(&mut self) {
        for tag in 0..u16::try_from(self.tags.len()).unwrap_or(u16::MAX) {
            self.forsake(tag);
        }
    }

    #[must_use]
    pub fn has_tag(&self) -> bool {
        !self.free.0.is_empty() || !self.late.is_empty()
    }

    /// When [`Self::mark_overdue`] or [`Self::give_up`] has work next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let first = |all: &BTreeSet<(Instant, u16)>| all.first().map(|&(at, _)| at);
        Instant::earlier(first(&self.marks), first(&self.ends))
    }

    /// Half of the time limit, from when a snoop is overdue until its host is given up on.
    fn half(&self) -> Span {
        // Rounded up, and the term in `lease` down, so that a term is never longer than this half.
        Span::from_ps(self.limit.as_ps() - self.limit.as_ps() / 2)
    }

    /// Gives a snoop of a line, which has the address `addr` at its host, a tag, and a time to be answered in; `None`
    /// without a tag.
    pub fn ask(&mut self, now: Instant, who: Pid, line: u64, addr: Hpa) -> Option<u16> {
        self.put(who, line, now + self.half(), Some(addr))
    }

    /// Like [`Self::ask`] for a host that cannot be snooped, having no address for the line: its leases are left to run
    /// out. Its wait begins with the next look at the clock, as `now` may be older than its last lease.
    pub fn cannot_ask(&mut self, now: Instant, who: Pid, line: u64) {
        self.put(who, line, now, None);
    }

    fn put(&mut self, who: Pid, line: u64, due: Instant, addr: Option<Hpa>) -> Option<u16> {
        // A late tag is reused last, oldest first: each moment it rests makes a late answer to it rarer.
        let tag = self.free.0.pop_front().or_else(|| self.late.pop_front())?;
        *self.tags.get_mut(usize::from(tag))? =
            Tag::Asked { who, line, due, is_overdue: false, addr };
        self.marks.insert((due, tag));
        Some(tag)
    }

    /// Line of the snoop that `who` answers by `tag`. `addr` is the address in the answer, 0 if it has none. The snoop
    /// stays open until [`Self::answered`].
    ///
    /// # Errors
    /// See [`NotAsked`].
    pub fn asked(&mut self, who: Pid, tag: u16, addr: Hpa) -> Result<u64, NotAsked> {
        match self.tags.get_mut(usize::from(tag)) {
            Some(Tag::Asked { who: asked, line, addr: Some(known), .. }) if *asked == who => {
                // Another address: the answer belongs to a snoop given up on earlier that had the same tag.
                if addr == Hpa(0) || addr == *known { Ok(*line) } else { Err(NotAsked::Late) }
            }
            // No snoop was sent by this tag, so the answer is to an earlier user of it.
            Some(Tag::Asked { who: asked, addr: None, .. }) if *asked == who => Err(NotAsked::Late),
            // The one answer that could still come has come, so the tag is as good as a free one.
            Some(place @ Tag::Late(_)) if *place == Tag::Late(who) => {
                *place = Tag::Free;
                self.late.retain(|late| *late != tag);
                self.free.0.push_back(tag);
                Err(NotAsked::Late)
            }
            _ => Err(NotAsked::Unexpected),
        }
    }

    pub fn answered(&mut self, tag: u16) {
        if self.take(tag, Tag::Free).is_some() {
            self.free.0.push_back(tag);
        }
    }

    /// Ends a snoop without an answer, which may still come.
    fn forsake(&mut self, tag: u16) -> Option<(Pid, u64)> {
        let Some(&Tag::Asked { who, .. }) = self.tags.get(usize::from(tag)) else { return None };
        self.late.push_back(tag);
        self.take(tag, Tag::Late(who))
    }

    /// Ends a snoop and sets its tag to `after`; returns host and line.
    fn take(&mut self, tag: u16, after: Tag) -> Option<(Pid, u64)> {
        let place = self.tags.get_mut(usize::from(tag))?;
        let Tag::Asked { who, line, due, is_overdue, .. } = *place else { return None };
        *place = after;
        // An overdue snoop is in `ends`, any other in `marks`, both keyed by `due`.
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
            // Keyed by the old `due`, so removed before that changes.
            self.marks.remove(&(*due, tag));
            // Half of the limit from now, not from `due`: a device that looks at its clock late has given leases since
            // then.
            (*due, *is_overdue) = (now + half, true);
            self.ends.insert((*due, tag));
            self.hosts.entry(*who).or_default().overdue += 1;
        }
    }

    /// Marks snoops that are overdue at `now`. Must run before messages are taken in: a request taken in after the mark
    /// gets no lease.
    pub fn mark_overdue(&mut self, now: Instant) {
        while let Some(&(at, tag)) = self.marks.first()
            && at <= now
        {
            self.mark(now, tag);
        }
    }

    /// Gives up on the next snoop whose time is over at `now`; returns host and line. The host's lease gets another
    /// number.
    pub fn give_up(&mut self, now: Instant) -> Option<(Pid, u64)> {
        let &(at, tag) = self.ends.first()?;
        if at > now {
            return None;
        }
        // The host may go on to think that it holds the line. With another lease number it asks again before it uses
        // any line that it was granted earlier.
        let (who, line) = self.forsake(tag)?;
        self.revoke(who);
        Some((who, line))
    }

    /// Gives a host another lease number, because it may hold less than it thinks: lines granted by the old number are
    /// renewed no more.
    pub fn revoke(&mut self, who: Pid) {
        if let Some(host) = self.hosts.get_mut(&who) {
            host.lease = 0;
        }
    }

    /// Lease that a response to `who` names; [`Lease::NONE`] while a snoop to it is overdue.
    pub fn lease(&mut self, who: Pid) -> Lease {
        let (secret, leases) = (self.secret, &mut self.leases);
        let host = self.hosts.entry(who).or_default();
        if host.overdue > 0 {
            return Lease::NONE;
        }
        // 0 means no lease on the wire, and a hash may be 0.
        while host.lease == 0 {
            *leases += 1;
            host.lease = number(secret, *leases);
        }
        let unit = Lease::UNIT_US * 1_000_000;
        let term = self.limit.as_ps() / 2 / 64 * TERM_PARTS / unit;
        Lease { number: host.lease, term: u16::try_from(term).unwrap_or(u16::MAX) }
    }
}

/// Number of the `nth` lease. It cannot be guessed without the secret, so no other device can renew the lease.
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

    /// A late answer to one snoop is never taken for the answer to a later one with the same tag.
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

    /// A host that cannot be snooped may have leases that are newer than the last reading of the clock.
    #[test]
    fn who_cannot_be_asked_is_given_up_on_by_the_next_look_at_the_clock() {
        let mut snoops = Snoops::new(Span::from_us(200), 2, 1);
        snoops.cannot_ask(at(0), pid(1), 10);
        assert!(snoops.give_up(at(0)).is_none());
        assert!(snoops.lease(pid(1)) != Lease::NONE && snoops.next_due() == Some(at(0)));
        snoops.mark_overdue(at(5_000)); // the device was stopped meanwhile
        assert_eq!(snoops.lease(pid(1)), Lease::NONE);
        assert_eq!(snoops.asked(pid(1), 0, Hpa(0)), Err(NotAsked::Late));
        assert!(snoops.give_up(at(5_099)).is_none());
        assert_eq!(snoops.give_up(at(5_100)), Some((pid(1), 10)));
    }
}
