//! Pace of looks at the fabric: at once after a notification, and otherwise at regular times.
//!
//! [`Pace::rest`] waits between two looks on something that [`Waits`]; a [`Bell`] waits for descriptors.
//!
//! Any component can send notifications without cause. So at most [`BURST`] looks follow notifications at once, and one
//! more for each [`REFILL`] that passes.
//!
//! Source: docs/fm.md "Monitoring the fabric".

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use weft_base::eventfd::EventFd;

/// Shortest time between two looks.
const GAP: Duration = Duration::from_millis(5);
/// Looks that may follow notifications at once.
const BURST: u32 = 16;
/// Time for one more of these looks, and so the longest delay of a notification, however many come.
const REFILL: Duration = Duration::from_millis(250);

/// Why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// A notification came, or the connection to the entry switch ended.
    Notified,
    Time,
    /// The service ends, or has something else to do now.
    Stop,
}

/// Something that a [`Pace`] waits on.
pub(crate) trait Waits {
    /// Waits for `span`; with `listens` a notification ends the wait.
    fn wait(&mut self, span: Duration, listens: bool) -> Woken;
}

/// The time between two looks: a token bucket.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
    /// Looks that may follow notifications at once: tokens.
    looks: u32,
    /// Time towards the next token.
    passed: Duration,
}

impl Pace {
    /// Looks every `pause` without notifications.
    pub const fn new(pause: Duration) -> Self {
        Self { pause, looks: BURST, passed: Duration::ZERO }
    }

    /// Adds the tokens for time that has passed.
    fn earn(&mut self, span: Duration) {
        self.passed += span;
        while self.passed >= REFILL && self.looks < BURST {
            (self.passed, self.looks) = (self.passed.saturating_sub(REFILL), self.looks + 1);
        }
        // A full bucket keeps no time: after a quiet hour there are no more than `BURST` looks.
        self.passed = self.passed.min(REFILL);
    }

    /// Rests until the next look is due.
    pub fn rest(&mut self, on: &mut impl Waits) {
        // Without tokens the first part of the rest does not listen, whatever comes.
        let first = if self.looks > 0 { GAP } else { REFILL }.min(self.pause);
        if on.wait(first, false) == Woken::Stop {
            return;
        }
        self.earn(first);
        let mut left = self.pause.saturating_sub(first);
        while !left.is_zero() {
            let span = left.min(REFILL);
            match on.wait(span, true) {
                Woken::Stop => return,
                Woken::Notified => {
                    self.looks = self.looks.saturating_sub(1);
                    return;
                }
                Woken::Time => self.earn(span),
            }
            left = left.saturating_sub(span);
        }
    }
}

/// Waits for a time, for a notification and for the end of the service.
#[derive(Debug)]
pub(crate) struct Bell {
    ring: EventFd,
    timer: OwnedFd,
}

impl Bell {
    /// A bell that was not rung.
    ///
    /// # Errors
    /// The kernel gives no descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { ring: EventFd::new()?, timer })
    }

    /// Ends the present wait, or the next one.
    pub fn ring(&self) {
        self.ring.notify();
    }

    /// Sets the time after which [`Bell::wait`] ends.
    pub fn set(&self, span: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec {
            tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(span.subsec_nanos().max(1)), // 0 would stop the timer
        };
        let until = Itimerspec { it_interval: zero, it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &until);
        debug_assert!(set.is_ok(), "{set:?}"); // its arguments are good
    }

    /// Waits until the bell is rung, `other` is readable, or the time has passed; returns whether it has passed.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>) -> bool {
        let fds = [self.timer.as_fd(), self.ring.as_fd()].into_iter().chain(other);
        let mut fds: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, None); // an interrupted wait only comes back sooner
        let is_over = fds.first().is_some_and(|timer| !timer.revents().is_empty());
        drop(fds);
        // Drained before the caller looks at its flags: a ring after this ends the next wait.
        self.ring.drain();
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notifications without a break, from the beginning or after a time.
    struct Flood {
        now: Duration,
        begins: Duration,
    }

    impl Waits for Flood {
        fn wait(&mut self, span: Duration, listens: bool) -> Woken {
            let quiet = self.begins.saturating_sub(self.now);
            if listens && quiet <= span {
                self.now += quiet;
                return Woken::Notified;
            }
            self.now += span;
            Woken::Time
        }
    }

    fn looks(pace: &mut Pace, on: &mut Flood, until: Duration) -> Vec<Duration> {
        let mut looks = Vec::new();
        while on.now < until {
            pace.rest(on);
            looks.push(on.now);
        }
        looks
    }

    /// docs/fm.md: however many notifications there are, 16 of them and four more a second lead to a look.
    #[test]
    fn a_flood_leads_to_a_bounded_number_of_looks() {
        const HOUR: Duration = Duration::from_hours(1);
        let mut flood = Flood { now: Duration::ZERO, begins: Duration::ZERO };
        let looks = looks(&mut Pace::new(HOUR), &mut flood, Duration::from_mins(1));
        assert!(looks[0] <= GAP, "the first one is looked at at once: {looks:?}");
        assert!((240..=16 + 241).contains(&looks.len()), "{}", looks.len());
        let longest = looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        assert_eq!(longest, Some(REFILL), "that of somebody else waits no longer");
    }

    /// With polls as frequent as the looks of a flood, a flood doubles the number of looks at most.
    #[test]
    fn polls_go_on_beside_a_flood() {
        let pause = REFILL;
        let mut flood = Flood { now: Duration::ZERO, begins: Duration::ZERO };
        let looks = looks(&mut Pace::new(pause), &mut flood, Duration::from_secs(10));
        let longest = looks.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        assert!(
            longest <= Some(pause) && looks.len() <= 16 + 2 * 41,
            "{longest:?} {}",
            looks.len()
        );
    }

    /// After a quiet time an event leads to a look at once again, however long the pause is.
    #[test]
    fn quiet_makes_it_quick_again() {
        const HOUR: Duration = Duration::from_hours(1);
        let mut pace = Pace::new(HOUR);
        let mut on = Flood { now: Duration::ZERO, begins: Duration::ZERO };
        looks(&mut pace, &mut on, Duration::from_secs(30));
        assert_eq!(pace.looks, 0);
        let event = on.now + BURST * REFILL;
        on.begins = event;
        pace.rest(&mut on);
        assert_eq!(on.now, event, "it is looked at when it comes");
        assert!(pace.looks >= BURST - 2, "{}", pace.looks);
    }

    #[test]
    fn a_bell_is_rung_and_a_time_passes() {
        let bell = Bell::new().unwrap();
        bell.set(Duration::from_hours(1));
        bell.ring();
        assert!(!bell.wait(None), "rung before");
        bell.set(Duration::ZERO);
        assert!(bell.wait(None));
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        bell.set(Duration::from_hours(1));
        drop(far);
        assert!(!bell.wait(Some(near.as_fd())), "an end is readable, too");
    }
}
