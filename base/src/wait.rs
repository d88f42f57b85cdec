//! Waiting: a span that passes, and a condition that comes to hold.
//!
//! [`pause`] sleeps in a thread that no other thread wakes. Tests use [`until`]: they wait for a
//! condition, never for the time that it takes on some machine. [`try_until`] leaves the message to
//! its caller.
//!
//! Source: `std::thread::park_timeout`, which returns at once where the thread was unparked before,
//! as by the end of a scope of threads: no sleep.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a test waits for something quick, on a machine that is busy with other things.
pub const LONG: Duration = Duration::from_secs(30);

/// Shortest and longest time between two looks at a condition.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// Lets `span` pass, all of it; nothing ends it early. A thread that can be woken waits on a
/// channel, a descriptor, or parks.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub fn pause(span: Duration) {
    thread::sleep(span);
}

/// Calls `condition` again and again until it returns a value, and returns that.
///
/// The looks are a millisecond apart at first and get rarer with time, so that a look may be costly,
/// such as a question to another process. The last look comes after `deadline`, however late the
/// thread is run.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use weft_base::wait;
///
/// let count = AtomicU32::new(0);
/// let found = std::thread::scope(|scope| {
///     scope.spawn(|| count.store(3, Ordering::Relaxed));
///     wait::until(wait::LONG, "a count", || match count.load(Ordering::Relaxed) {
///         0 => None,
///         count => Some(count),
///     })
/// });
/// assert_eq!(found, 3);
/// ```
///
/// # Panics
/// `condition` returned nothing until `deadline` had passed; the message names `what`.
#[track_caller]
pub fn until<T>(
    deadline: Duration,
    what: impl fmt::Display,
    condition: impl FnMut() -> Option<T>,
) -> T {
    match try_until(deadline, condition) {
        Some(found) => found,
        None => panic!("not within {deadline:?}: {what}"),
    }
}

/// As [`until`]; `None` when `condition` returned nothing until `deadline` had passed.
#[expect(clippy::disallowed_methods, reason = "a deadline of the machine's time")]
pub fn try_until<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let waited = begun.elapsed(); // before the look
        if let Some(found) = condition() {
            return Some(found);
        }
        if waited >= deadline {
            return None;
        }
        // rarer with time, as a look may cost a whole process
        pause((waited / 8).clamp(LOOK_MIN, LOOK_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unpark that came before does not end it.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it is about the machine's time")]
    fn a_pause_is_as_long_as_it_is_said_to_be() {
        let span = Duration::from_millis(20);
        thread::current().unpark();
        let begun = Instant::now();
        pause(span);
        assert!(begun.elapsed() >= span, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_condition_is_looked_at_until_it_has_something() {
        let mut looks = 0;
        let found = until(LONG, "the fifth look", || {
            looks += 1;
            (looks == 5).then_some("here")
        });
        assert_eq!((found, looks), ("here", 5));
    }

    #[test]
    fn there_is_a_look_when_there_is_no_time_and_one_behind_the_deadline() {
        assert_eq!(try_until(Duration::ZERO, || Some(1)), Some(1));
        assert_eq!(try_until(Duration::ZERO, || None::<u8>), None);
        let mut looks = 0;
        let found = try_until(Duration::from_millis(1), || {
            looks += 1;
            pause(Duration::from_millis(5)); // the thread is late
            (looks == 2).then_some(looks)
        });
        assert_eq!(found, Some(2));
    }

    #[test]
    #[should_panic(expected = "not within 3ms: the moon")]
    fn what_does_not_come_to_be_so_is_said() {
        until(Duration::from_millis(3), "the moon", || None::<()>);
    }
}
