//! Permit: how long a manager may command, by its own clock.
//!
//! A [`Permit`] is shared by the thread that keeps the lease, the senders of commands and the store. Times are
//! nanoseconds of `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
//!
//! The lease is counted from before the request that began or renewed it, so it ends by this clock before it ends by
//! etcd's. It also ends when etcd has left a request unconfirmed for as long, even if it keeps the lease. A permit that
//! has ended stays so, because commands have been refused in between.
//!
//! Source: `clock_gettime(2)`; docs/fm.md "Several managers".

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Reads a clock, in nanoseconds.
pub type Clock = fn() -> u64;

#[must_use]
pub fn clock() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

/// Nine tenths of a lease: clocks differ a little, and a command takes time to arrive.
fn usable(lease: Duration) -> u64 {
    let whole = lease.as_nanos();
    u64::try_from(whole - whole / 10).unwrap_or(u64::MAX)
}

/// In place of the end of a permit: it has ended.
const ENDED: u64 = 0;
/// In place of the end of a permit: it has ended because etcd left a request unanswered.
const UNANSWERED: u64 = 1;

/// The right to command components and to write the store, until a lease ends.
#[derive(Debug)]
pub struct Permit {
    /// End of the permit, or [`ENDED`] or [`UNANSWERED`]: one word, so that of several threads that find it over one
    /// alone says why, and all others read the same.
    until: AtomicU64,
    /// Deadline for the etcd request in flight; `u64::MAX` if none is.
    answer_by: AtomicU64,
    lease: Duration,
    clock: Clock,
}

/// An etcd request in flight, until it is dropped.
#[derive(Debug)]
pub struct Asked<'a>(&'a Permit);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        // Before the deadline is lifted: an answer that comes after it is too late, and ends the permit.
        self.0.left();
        self.0.answer_by.store(u64::MAX, Ordering::SeqCst);
    }
}

impl Permit {
    /// A permit for a lease that was requested at `asked`.
    #[must_use]
    pub fn new(clock: Clock, asked: u64, lease: Duration) -> Self {
        Self {
            until: AtomicU64::new(asked.saturating_add(usable(lease)).max(UNANSWERED + 1)),
            answer_by: AtomicU64::new(u64::MAX),
            lease,
            clock,
        }
    }

    /// Whether the permit has not ended.
    pub fn holds(&self) -> bool {
        !self.left().is_zero()
    }

    /// Time left, or zero if the permit has ended.
    pub fn left(&self) -> Duration {
        let now = (self.clock)();
        let mut until = self.until.load(Ordering::SeqCst);
        loop {
            match self.left_of(until, now) {
                Ok(left) => return left,
                // Another thread has renewed or ended it since it was read: that counts.
                Err(other) => until = other,
            }
        }
    }

    /// Time left at `now` of a permit whose end was read as `until`; ends it if there is none.
    ///
    /// # Errors
    /// Its end is another one by now.
    fn left_of(&self, until: u64, now: u64) -> Result<Duration, u64> {
        if until <= UNANSWERED {
            return Ok(Duration::ZERO);
        }
        let why = if now >= until {
            ENDED
        } else if now >= self.answer_by.load(Ordering::SeqCst) {
            UNANSWERED
        } else {
            return Ok(Duration::from_nanos(until - now));
        };
        let ended = self.until.compare_exchange(until, why, Ordering::SeqCst, Ordering::SeqCst);
        ended.map(|_| Duration::ZERO)
    }

    /// Renews the permit for a lease requested at `asked`; returns whether it still holds.
    pub fn renew(&self, asked: u64, lease: Duration) -> bool {
        let later = asked.saturating_add(usable(lease));
        // Read before `holds`: if the permit ends after this, the exchange below fails.
        let until = self.until.load(Ordering::SeqCst);
        if !self.holds() || until <= UNANSWERED {
            return false;
        }
        // Another value can only say that it has ended, as only one thread renews.
        let new = until.max(later);
        self.until.compare_exchange(until, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Marks an etcd request as in flight. If etcd has not answered within the usable part of a lease, the permit ends,
    /// even while the lease is renewed. Only one request may be in flight.
    pub fn asks(&self) -> Asked<'_> {
        let by = (self.clock)().saturating_add(usable(self.lease));
        self.answer_by.store(by, Ordering::SeqCst);
        Asked(self)
    }

    /// Whether the permit ended because etcd did not answer a request, though the lease was renewed.
    pub fn was_unanswered(&self) -> bool {
        self.until.load(Ordering::SeqCst) == UNANSWERED
    }

    pub fn end(&self) {
        let end = |until| (until > UNANSWERED).then_some(ENDED);
        // An error: it has ended before, and the reason stays.
        let _ = self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_permit_ends_before_its_lease_and_does_not_come_back() {
        let lease = Duration::from_micros(1);
        let at = |now| NOW.store(now, Ordering::SeqCst);
        let clock: Clock = || NOW.load(Ordering::SeqCst);
        at(5_000);
        let permit = Permit::new(clock, 4_000, lease); // it took as long as the lease to get it
        assert!(!permit.holds());
        let permit = Permit::new(clock, 5_000, lease);
        assert_eq!(permit.left(), Duration::from_nanos(900));
        at(5_899);
        assert!(permit.holds() && permit.renew(5_500, lease));
        assert_eq!(permit.left(), Duration::from_nanos(501));
        assert!(permit.renew(1, lease), "an answer that comes late shortens nothing");
        assert_eq!(permit.left(), Duration::from_nanos(501));
        at(6_400);
        assert!(!permit.renew(6_399, lease), "it has ended, however new the lease is");
        at(6_000);
        assert!(!permit.holds());
        let permit = Permit::new(clock, 6_000, lease);
        permit.end();
        assert!(!permit.renew(6_000, lease) && !permit.holds());
        let endless = Permit::new(clock, u64::MAX - 1, Duration::MAX);
        assert!(endless.holds());
        assert!(super::clock() > 0);
    }

    #[test]
    fn what_etcd_does_not_answer_ends_a_permit_that_is_renewed() {
        static NOW: AtomicU64 = AtomicU64::new(1_000);
        let lease = Duration::from_micros(1);
        let at = |now| NOW.store(now, Ordering::SeqCst);
        let clock: Clock = || NOW.load(Ordering::SeqCst);
        let permit = || Permit::new(clock, clock(), lease);
        let renewed = permit();
        for asked in [1_000, 1_500] {
            let asks = renewed.asks();
            at(asked + 499);
            assert!(renewed.renew(asked + 499, lease) && renewed.holds());
            drop(asks); // the answer has come
            at(asked + 500);
        }
        at(2_200);
        assert!(renewed.holds() && !renewed.was_unanswered(), "nothing is asked any more");
        let asks = renewed.asks();
        at(2_800);
        assert!(renewed.renew(2_800, lease));
        at(3_099);
        assert!(renewed.renew(3_099, lease) && renewed.holds());
        at(3_100);
        assert!(!renewed.renew(3_100, lease), "a lease that is kept alive does not help");
        drop(asks);
        assert!(!renewed.holds() && renewed.was_unanswered());
        let late = permit();
        let asks = late.asks();
        assert!(late.renew(3_900, lease));
        at(4_050);
        drop(asks);
        assert!(!late.holds() && late.was_unanswered(), "it came too late");
        let silent = permit();
        let asks = silent.asks();
        at(9_000);
        assert!(!silent.holds() && !silent.was_unanswered(), "the lease has ended, too");
        drop(asks);
    }

    /// Two threads have read the same end. The second goes on so late that the lease has ended, too: the reason of the
    /// first stands, and so does a renewal.
    #[test]
    fn second_thread_that_finds_it_over_changes_nothing() {
        let clock: Clock = || 1_000;
        let (lease, ns) = (Duration::from_micros(1), |span| Ok(Duration::from_nanos(span)));
        let permit = Permit::new(clock, 1_500, lease);
        let asks = permit.asks(); // to be answered by 1,900
        let seen = permit.until.load(Ordering::SeqCst);
        assert_eq!(permit.left_of(seen, 1_899), ns(501));
        assert_eq!((permit.left_of(seen, 2_000), permit.was_unanswered()), (ns(0), true));
        assert_eq!(permit.left_of(seen, 2_500), Err(UNANSWERED));
        permit.end();
        assert!(permit.was_unanswered() && !permit.holds() && !permit.renew(1_000, lease));
        drop(asks);
        let permit = Permit::new(clock, 1_500, lease);
        let seen = permit.until.load(Ordering::SeqCst);
        assert!(permit.renew(2_000, lease));
        assert_eq!(
            (permit.left_of(seen, 2_500), permit.left_of(2_900, 2_500)),
            (Err(2_900), ns(400))
        );
    }
}
