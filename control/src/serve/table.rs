//! Table of the clients of a server: how far each is trusted, and which has to go, for a deadline or for another
//! client.
//!
//! [`Table`] has numbered clients. The time is a parameter.
//!
//! Source: ARCHITECTURE.md "Control".

use std::collections::BTreeMap;
use std::time::Duration;

use weft_dataplane::time::{Instant, Span};

/// How far a client is trusted. When the table is full, a client that is trusted less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// It has not shown yet who it is.
    Unknown,
    /// It may send requests.
    User,
    /// It may have the place that is kept: root, or a primary fabric manager.
    Owner,
}

/// State of a client; each but [`Phase::Working`] has a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of a request has come.
    Idle,
    /// Part of a request, or of a handshake, has come.
    Asking,
    Working,
    /// The client has not taken an answer whole.
    Answering,
}

/// Limits for all clients of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients at a time; the last place is kept for a [`Trust::Owner`].
    pub clients: usize,
    /// Clients of [`Trust::Unknown`] at a time, in addition to those.
    pub unknown: usize,
    /// Longest time between requests.
    pub idle: Duration,
    /// Longest time from the first byte of a request, or of a handshake, to its last.
    pub request: Duration,
    /// Longest time in which a client takes an answer whole.
    pub answer: Duration,
    /// Bytes of answers in all that clients have not read.
    pub unread: usize,
}

/// There is no place, and no client that may be sent away for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy, Debug)]
struct Client {
    trust: Trust,
    phase: Phase,
    since: Instant,
    /// When it last had a whole answer; before that, when it connected or was raised.
    served: Instant,
    is_served: bool,
    /// It was sent away, but its thread has not ended yet.
    sent_away: bool,
}

#[derive(Debug)]
pub struct Table {
    limits: Limits,
    next: u64,
    clients: BTreeMap<u64, Client>,
}

fn after(at: Instant, time: Duration) -> Instant {
    at + Span::from_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2_000))
}

impl Table {
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, next: 0, clients: BTreeMap::new() }
    }

    /// Clients without those that have been sent away.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.values().filter(|client| !client.sent_away).count()
    }

    /// Whether too many clients that were sent away have not ended yet: their threads would pile up.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.clients.len() >= 2 * (self.limits.clients + self.limits.unknown)
    }

    /// Takes a client in; returns its number, and that of a client that has to go for it.
    ///
    /// # Errors
    /// See [`Full`].
    pub fn admit(&mut self, now: Instant, trust: Trust) -> Result<(u64, Option<u64>), Full> {
        if self.is_crowded() {
            return Err(Full);
        }
        let evicted = self.room(None, trust)?;
        let number = self.next;
        self.next += 1;
        let (phase, is_served, sent_away) = (Phase::Idle, false, false);
        let client = Client { trust, phase, since: now, served: now, is_served, sent_away };
        self.clients.insert(number, client);
        Ok((number, evicted))
    }

    /// Raises a client's trust; returns the number of a client that has to go for it.
    ///
    /// # Errors
    /// See [`Full`].
    pub fn raise(&mut self, number: u64, now: Instant, trust: Trust) -> Result<Option<u64>, Full> {
        // It has lost its place already, and its connection is being closed.
        if self.clients.get(&number).is_none_or(|client| client.sent_away) {
            return Err(Full);
        }
        let evicted = self.room(Some(number), trust)?;
        if let Some(client) = self.clients.get_mut(&number) {
            // Served from now on, so that a client which was just raised is not the first to go.
            (client.trust, client.served) = (trust, now);
        }
        Ok(evicted)
    }

    /// Makes room for one more client of `trust`; `number` is the client's own place, if it has one. A client that has
    /// had an answer goes last: clients that only connect, however many, push out each other.
    fn room(&mut self, number: Option<u64>, trust: Trust) -> Result<Option<u64>, Full> {
        let (is_unknown, limits) = (trust == Trust::Unknown, self.limits);
        let most = match trust {
            Trust::Unknown => limits.unknown,
            // One place fewer for users: it stays free for an owner.
            Trust::User => limits.clients.saturating_sub(1),
            Trust::Owner => limits.clients,
        };
        // Unknown clients and all others have places of their own: a client that only connects takes no place of a
        // manager.
        let same =
            |client: &Client| !client.sent_away && (client.trust == Trust::Unknown) == is_unknown;
        let others =
            self.clients.iter().filter(|&(at, client)| same(client) && Some(*at) != number);
        if others.clone().count() < most {
            return Ok(None);
        }
        // A request that is being carried out is not cut off: its client must learn whether it took effect.
        let may_go = others.filter(|(_, it)| it.trust <= trust && it.phase != Phase::Working);
        // The least trusted first, then one that never had an answer, then the one served longest ago.
        let victim = may_go.min_by_key(|(_, it)| (it.trust, it.is_served, it.served.as_ps()));
        let victim = victim.map(|(&at, _)| at).ok_or(Full)?;
        self.send_away(victim);
        Ok(Some(victim))
    }

    /// Marks a client whose connection is being closed.
    pub fn send_away(&mut self, number: u64) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.sent_away = true;
        }
    }

    /// Notes the state of a client.
    pub fn set(&mut self, number: u64, now: Instant, phase: Phase) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        // A request that comes byte by byte keeps the deadline of its first byte.
        if client.phase == phase && phase == Phase::Asking {
            return;
        }
        // Its answer was taken whole.
        if client.phase == Phase::Answering && phase != Phase::Answering {
            (client.served, client.is_served) = (now, true);
        }
        (client.phase, client.since) = (phase, now);
    }

    pub fn remove(&mut self, number: u64) {
        self.clients.remove(&number);
    }

    fn due(&self, client: &Client) -> Option<Instant> {
        let time = match client.phase {
            // A client that has not shown who it is may not stay idle for long.
            Phase::Idle if client.trust == Trust::Unknown => self.limits.request,
            Phase::Idle => self.limits.idle,
            Phase::Asking => self.limits.request,
            Phase::Working => return None,
            Phase::Answering => self.limits.answer,
        };
        (!client.sent_away).then(|| after(client.since, time))
    }

    /// Clients that have missed their deadline; they are marked as sent away.
    pub fn overdue(&mut self, now: Instant) -> Vec<u64> {
        let is_over = |client: &Client| self.due(client).is_some_and(|due| due <= now);
        let over: Vec<u64> =
            self.clients.iter().filter(|(_, it)| is_over(it)).map(|(&at, _)| at).collect();
        for &number in &over {
            self.send_away(number);
        }
        over
    }

    /// Time until a client may miss its deadline; `None` without clients.
    #[must_use]
    pub fn next_look(&self, now: Instant) -> Option<Duration> {
        let Limits { idle, request, answer, .. } = self.limits;
        // A client may enter another phase meanwhile, whose deadline is no nearer than the shortest limit: a quarter of
        // that is often enough.
        let often = idle.min(request).min(answer) / 4;
        if self.clients.is_empty() {
            return None;
        }
        let soonest = self.clients.values().filter_map(|client| self.due(client)).min();
        let left = soonest.map(|at| Duration::from_nanos(at.as_ns().saturating_sub(now.as_ns())));
        Some(left.map_or(often, |left| left.min(often)).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        clients: 4,
        unknown: 2,
        idle: Duration::from_secs(100),
        request: Duration::from_secs(10),
        answer: Duration::from_secs(20),
        unread: 1 << 20,
    };

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn who_had_no_answer_goes_first_and_a_place_is_kept_for_an_owner() {
        let mut table = Table::new(LIMITS);
        for number in 0..3 {
            assert_eq!(table.admit(at(number), Trust::User), Ok((number, None)));
        }
        // 0 has had an answer, 1 only sends bytes, 2 waits for its answer.
        table.set(0, at(3), Phase::Answering);
        table.set(0, at(4), Phase::Idle);
        table.set(1, at(5), Phase::Asking);
        table.set(2, at(5), Phase::Working);
        assert_eq!(table.admit(at(6), Trust::Owner), Ok((3, None)), "the kept place");
        assert_eq!(table.admit(at(7), Trust::User), Ok((4, Some(1))));
        assert_eq!(table.admit(at(8), Trust::User), Ok((5, Some(4))));
        table.set(5, at(9), Phase::Answering);
        table.set(5, at(9), Phase::Idle);
        assert_eq!(table.admit(at(9), Trust::User), Ok((6, Some(0))), "answered longest ago");
        table.set(5, at(9), Phase::Working);
        table.set(6, at(9), Phase::Working);
        assert_eq!(table.admit(at(9), Trust::User), Err(Full), "an owner does not go for a user");
        assert_eq!(table.admit(at(9), Trust::Owner), Ok((7, Some(3))));
    }

    /// An acceptor that did not run for a while admits many clients at once: all are younger than the one that works.
    #[test]
    fn a_burst_of_connections_does_not_push_out_who_is_answered() {
        let mut table = Table::new(LIMITS);
        table.admit(at(0), Trust::User).unwrap();
        for phase in [Phase::Working, Phase::Answering, Phase::Idle] {
            table.set(0, at(1), phase);
        }
        for number in 1..=100 {
            let (_, evicted) = table.admit(at(2), Trust::User).unwrap();
            assert_ne!(evicted, Some(0), "for {number}");
            table.remove(evicted.unwrap_or(u64::MAX));
        }
    }

    #[test]
    fn who_has_not_said_who_it_is_takes_no_place_of_others() {
        let mut table = Table::new(LIMITS);
        for number in 0..3 {
            table.admit(at(0), Trust::User).unwrap();
            table.set(number, at(1), Phase::Idle);
        }
        assert_eq!(table.admit(at(2), Trust::Unknown), Ok((3, None)));
        assert_eq!(table.admit(at(3), Trust::Unknown), Ok((4, None)));
        assert_eq!(table.admit(at(4), Trust::Unknown), Ok((5, Some(3))));
        assert_eq!(table.raise(4, at(5), Trust::Owner), Ok(None));
        assert_eq!(table.raise(5, at(6), Trust::User), Ok(Some(0)));
        assert_eq!(table.raise(3, at(6), Trust::User), Err(Full), "it was sent away");
    }

    /// A client that works now may answer next and not be read: as long as there are clients, a look is due.
    #[test]
    fn a_look_is_due_as_long_as_anybody_is_there() {
        let mut table = Table::new(LIMITS);
        assert_eq!(table.next_look(at(0)), None);
        let (number, _) = table.admit(at(0), Trust::User).unwrap();
        for phase in [Phase::Idle, Phase::Asking, Phase::Working, Phase::Answering] {
            table.set(number, at(1), phase);
            assert!(table.next_look(at(1)).is_some(), "{phase:?}");
        }
        table.remove(number);
        assert_eq!(table.next_look(at(2)), None);
    }

    #[test]
    fn each_phase_has_its_time() {
        type Case<'a> = (&'a str, Trust, &'a [(u64, Phase)], u64);
        #[rustfmt::skip] // columns: name, trust, phases with their seconds, last second in time
        let cases: [Case<'_>; 5] = [
            ("idle",              Trust::User,    &[],                                         99),
            ("unknown",           Trust::Unknown, &[],                                          9),
            ("byte by byte",    Trust::User,    &[(5, Phase::Asking), (9, Phase::Asking)],   14),
            ("unread",            Trust::User,    &[(5, Phase::Working), (50, Phase::Answering)], 69),
            ("idle again",        Trust::User,    &[(5, Phase::Answering), (6, Phase::Idle)], 105),
        ];
        for (name, trust, phases, last) in cases {
            let mut table = Table::new(LIMITS);
            let (number, _) = table.admit(at(0), trust).unwrap();
            for &(second, phase) in phases {
                table.set(number, at(second), phase);
            }
            assert!(table.overdue(at(last)).is_empty(), "{name}");
            assert_eq!(table.overdue(at(last + 1)), [number], "{name}");
            assert_eq!((table.overdue(at(last + 2)), table.len()), (vec![], 0), "{name}: once");
        }
        let mut table = Table::new(LIMITS);
        table.admit(at(0), Trust::User).unwrap();
        table.set(0, at(0), Phase::Working);
        assert!(table.overdue(at(10_000)).is_empty(), "working");
    }

    /// However many clients come, the table has a bound.
    #[test]
    fn those_that_were_sent_away_and_have_not_ended_are_bounded() {
        let mut table = Table::new(LIMITS);
        let admitted = (0..100).filter(|&n| table.admit(at(n), Trust::User).is_ok()).count();
        assert_eq!((admitted, table.clients.len()), (12, 12));
        (0..100).for_each(|number| table.remove(number));
        assert!(table.admit(at(101), Trust::User).is_ok());
    }
}
