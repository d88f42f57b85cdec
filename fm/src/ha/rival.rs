//! Another group of managers with the same `fm.uuid`, in another etcd or under another prefix, that leads the same fabric.
//!
//! [`Rival`], a key of etcd, which keeps all of the group from electing a leader until it is removed; [`Looks`] tells
//! whether the terms of an entry switch move.
//!
//! Units: terms; nanoseconds.
//! Source: docs/fm.md "Several managers".
//!
//! Components know a manager by its UUID only, which is made from `fm.uuid` and the term: they do not tell groups apart. Who
//! leads by a lease that etcd confirms knows that nobody else of its group does.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring;
use serde::{Deserialize, Serialize};

/// Most terms that are left out behind one that etcd did not know, less one: two groups that count on from the same term do
/// not come to the same UUID.
const APART_MAX: u64 = 1 << 16;

/// What the key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// The term in which components were led by the other group.
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

/// What one of several managers knows of another group.
#[derive(Debug, Default)]
pub struct OtherGroup {
    rival: Mutex<Option<Rival>>,
    /// A client wants the fabric to be taken over from it.
    pub taking_over: AtomicBool,
    /// At terms that etcd does not know.
    pub looks: Looks,
}

impl OtherGroup {
    /// That it leads, as etcd has it.
    pub fn rival(&self) -> Option<Rival> {
        *self.rival.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what etcd has; whether it is something else than before.
    pub fn know(&self, rival: Option<Rival>) -> bool {
        let mut known = self.rival.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, rival) != rival
    }
}

/// A term behind one that etcd did not know, which no other group comes to by counting.
#[must_use]
pub fn term_apart(later: u64) -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers no lease is asked for either.
    let _ = ring::default_provider().secure_random.fill(&mut bytes);
    later.saturating_add(u64::from_le_bytes(bytes) % APART_MAX)
}

/// What terms show in the time of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The lease has not passed yet.
    Waits,
    /// The term is the same after a lease.
    Still,
    /// It has become another one: somebody leads.
    Moves,
}

/// Looks at the later term of an entry switch, of one term of this manager.
#[derive(Debug, Default)]
pub struct Looks(Mutex<Option<First>>);

#[derive(Clone, Copy, Debug)]
struct First {
    own: u64,
    later: u64,
    at: u64,
}

impl Looks {
    /// That the entry switch is led in `later` at `now`, seen in the term `own`.
    pub fn look(&self, own: u64, later: u64, now: u64, ttl: Duration) -> Seen {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match first.filter(|first| first.own == own) {
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
