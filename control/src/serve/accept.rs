//! Accepting connections when descriptors run out: one is kept in reserve, and the acceptor waits.
//!
//! [`Reserve::accept`] around a call of accept(2).
//!
//! Units: milliseconds.
//! Source: accept(2), `EMFILE`, `ENFILE`: the connection stays in the queue, so that a listener that is
//! polled or asked again at once is ready for ever.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use weft_base::wait;

/// First wait after a connection could not be taken.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Longest one: so late a client is served once there are descriptors again, or an end noticed.
const WAIT_MAX: Duration = Duration::from_millis(320);

/// A descriptor that is given up so that a client that cannot be served is at least sent away.
pub(crate) struct Reserve {
    held: Option<File>,
    wait: Duration,
}

impl Reserve {
    /// With a descriptor in reserve, if there is one.
    pub(crate) fn new() -> Self {
        Self { held: File::open("/dev/null").ok(), wait: WAIT_MIN }
    }

    /// Calls `accept`. Where descriptors or memory have run out, sends the client away by means of the one
    /// in reserve and waits, longer each time, before it returns the error.
    pub(crate) fn accept<T>(&mut self, mut accept: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let refused = match accept() {
            Ok(stream) => {
                self.wait = WAIT_MIN;
                self.held = self.held.take().or_else(|| File::open("/dev/null").ok());
                return Ok(stream);
            }
            Err(error) => error,
        };
        let errno = Errno::from_io_error(&refused);
        if matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) {
            if self.held.take().is_some() {
                drop(accept()); // the client sees that it is closed
            }
            self.held = File::open("/dev/null").ok();
            wait::pause(self.wait);
            self.wait = (self.wait * 2).min(WAIT_MAX);
        }
        Err(refused)
    }
}

/// Raises the limit of open descriptors to what the process may have.
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
        // Other errors are a client's own, and nobody waits for them.
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
