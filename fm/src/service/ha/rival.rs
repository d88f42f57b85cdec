//! Rival group: managers with the same `fm.uuid`, in another etcd or under another prefix, that lead the same fabric.
//!
//! A [`Rival`] is a key of etcd that keeps the whole group from electing a leader until it is removed. [`Looks`] tells
//! whether the terms seen at an entry switch move.
//!
//! Components know a manager only by its UUID, made from `fm.uuid` and the term, and cannot tell groups apart. But a
//! leader whose lease etcd confirms knows that no other member of its own group leads.
//!
//! Source: docs/fm.md "Several managers".

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring;
use serde::{Deserialize, Serialize};

/// Range of the random step beyond a term that etcd did not know, so that two groups that count on from the same term
/// do not come to the same UUID.
const APART_MAX: u64 = 1 << 16;

/// Value of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Term in which the other group led the components.
    pub term: u64,
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { term } = self;
        write!(
            f,
            "another group of fabric managers with this fm.uuid leads the fabric, in term {term}, which this etcd has never \
             known: give each group an fm.uuid of its own, or end the other group; then `weft fm take-over`"
        )
    }
}

/// Knowledge of one manager about another group.
#[derive(Debug, Default)]
pub struct OtherGroup {
    rival: Mutex<Option<Rival>>,
    /// Whether a client has ordered to take the fabric over from it.
    pub taking_over: AtomicBool,
    /// Sightings of terms that etcd does not know.
    pub looks: Looks,
}

impl OtherGroup {
    /// The other group, as noted in etcd.
    pub fn rival(&self) -> Option<Rival> {
        *self.rival.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the note in etcd; returns whether it has changed.
    pub fn know(&self, rival: Option<Rival>) -> bool {
        let mut known = self.rival.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, rival) != rival
    }
}

/// A random term after one that etcd did not know, to which no other group comes by counting.
#[must_use]
pub fn term_apart(later: u64) -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers there is no lease either, so this cannot fail alone.
    let _ = ring::default_provider().secure_random.fill(&mut bytes);
    later.saturating_add(u64::from_le_bytes(bytes) % APART_MAX)
}

/// Result of watching a term for the time of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The lease has not passed yet.
    Waits,
    /// The term has stayed the same for a lease.
    Still,
    /// The term has changed, so a manager leads.
    Moves,
}

/// Watches the later term of an entry switch, within one term of this manager.
#[derive(Debug, Default)]
pub struct Looks(Mutex<Option<First>>);

#[derive(Clone, Copy, Debug)]
struct First {
    own: u64,
    later: u64,
    at: u64,
}

impl Looks {
    /// Records that the entry switch was led in `later` at `now`, seen in the term `own`.
    pub fn look(&self, own: u64, later: u64, now: u64, ttl: Duration) -> Seen {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match first.filter(|first| first.own == own) {
            // A new term of this manager begins a new watch.
            None => *first = Some(First { own, later, at: now }),
            Some(first) if first.later != later => return Seen::Moves,
            Some(first) if u128::from(now.saturating_sub(first.at)) >= ttl.as_nanos() => {
                return Seen::Still;
            }
            Some(_) => {}
        }
        Seen::Waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_that_move_in_a_lease_are_seen() {
        let (looks, ttl) = (Looks::default(), Duration::from_nanos(10));
        #[rustfmt::skip] // columns: name, own, later, now, want
        let cases = [
            ("first look",        1, 5,  0, Seen::Waits),
            ("lease not over",    1, 5,  9, Seen::Waits),
            ("lease over",        1, 5, 10, Seen::Still),
            ("another term",      1, 6,  9, Seen::Moves),
            ("an own new term",   2, 6, 30, Seen::Waits),
            ("counted from then", 2, 6, 39, Seen::Waits),
            ("over",              2, 6, 40, Seen::Still),
        ];
        for (name, own, later, now, want) in cases {
            assert_eq!(looks.look(own, later, now, ttl), want, "{name}");
        }
    }

    #[test]
    fn a_term_apart_is_never_before_and_seldom_the_same() {
        let terms: std::collections::BTreeSet<u64> = (0..64).map(|_| term_apart(9)).collect();
        assert!(terms.iter().all(|term| (9..9 + APART_MAX).contains(term)));
        assert!(terms.len() > 8, "{terms:?}");
        assert_eq!(term_apart(u64::MAX), u64::MAX);
    }
}
