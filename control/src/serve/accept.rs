//! Accepts connections also when descriptors run out: one is kept in reserve, and the acceptor waits.
//!
//! [`Reserve::accept`] goes around a call of accept(2).
//!
//! Source: accept(2), `EMFILE`, `ENFILE`: the connection stays in the queue, so a listener that is polled again at once
//! is ready for ever.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use weft_base::wait;

/// First wait after a connection could not be accepted.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Longest wait: so late a client is served once there are descriptors again, or a stop is noticed.
const WAIT_MAX: Duration = Duration::from_millis(320);

/// A descriptor in reserve, to accept and close the connection of a client that cannot be served.
pub(crate) struct Reserve {
    held: Option<File>,
    wait: Duration,
}

impl Reserve {
    /// Opens the descriptor, if one is to be had.
    pub(crate) fn new() -> Self {
        Self { held: File::open("/dev/null").ok(), wait: WAIT_MIN }
    }

    /// Calls `accept`. When descriptors or memory have run out, accepts and closes one connection by means of the
    /// reserve, and waits, longer each time, before it returns the error.
    pub(crate) fn accept<T>(&mut self, mut accept: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let refused = match accept() {
            Ok(stream) => {
                self.wait = WAIT_MIN;
                // The reserve may have been used up: descriptors are there again.
                self.held = self.held.take().or_else(|| File::open("/dev/null").ok());
                return Ok(stream);
            }
            Err(error) => error,
        };
        // Only for want of resources: other errors concern one connection, and the next is accepted at once.
        let errno = Errno::from_io_error(&refused);
        if matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) {
            if self.held.take().is_some() {
                drop(accept()); // the client sees that it is closed
            }
            self.held = File::open("/dev/null").ok();
            // Without the wait the acceptor would spin: connections that stay in the queue keep the listener ready.
            wait::pause(self.wait);
            self.wait = (self.wait * 2).min(WAIT_MAX);
        }
        Err(refused)
    }
}

/// Raises the limit of open descriptors to the hard limit.
///
/// # Errors
/// The kernel's answer.
pub fn raise_descriptor_limit() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_sent_away_and_the_acceptor_waits() {
        let mut reserve = Reserve::new();
        let (mut calls, mut taken) = (0, 0);
        for round in 1..=4 {
            let waited = reserve.wait;
            let got = reserve.accept(|| {
                calls += 1;
                // The second call of a round has the descriptor that was in reserve.
                if calls % 2 == 1 {
                    Err(io::Error::from(Errno::MFILE))
                } else {
                    taken += 1;
                    Ok(())
                }
            });
            assert!(got.is_err());
            assert_eq!((calls, taken), (2 * round, round));
            assert!(reserve.held.is_some() && reserve.wait == (waited * 2).min(WAIT_MAX));
        }
        assert!(reserve.accept(|| Ok(())).is_ok());
        assert_eq!(reserve.wait, WAIT_MIN);
        // Other errors concern one client, and the acceptor does not wait.
        let before = reserve.wait;
        assert!(reserve.accept(|| Err::<(), _>(io::Error::from(Errno::CONNABORTED))).is_err());
        assert_eq!(reserve.wait, before);
    }

    #[test]
    fn the_limit_of_descriptors_is_as_high_as_it_may_be() {
        raise_descriptor_limit().unwrap();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
