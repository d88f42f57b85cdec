//! Idle: how a worker waits when it has nothing to do.
//!
//! `busy` spins; `adaptive` spins for a short while, then sleeps in `ppoll` on its ports and its
//! eventfd, at most until the next timer.
//!
//! Units: nanoseconds.
//! Source: ppoll(2); ARCHITECTURE.md.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use weft_base::eventfd::EventFd;

use super::group::WorkerGroup;
use super::{ACTIVE, QUIET, SLEEP_ACTIVE, SLEEP_MAX};
use crate::pipeline::Step;
use crate::port::Port;
use crate::time::{Instant, Span};
use crate::types::PORTS_MAX;

/// How a worker waits for work: spinning or asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Never sleeps: looks again at once, and keeps its core at 100 %.
    Busy,
    /// Sleeps when there was no work for [`QUIET`](super::QUIET).
    Adaptive,
}

/// State of a worker's waiting: its way, and the file descriptors that wake it.
pub struct Idle {
    poll: Poll,
    wakeup: Option<Arc<EventFd>>,
    fds: Vec<libc::pollfd>,
}

/// How long a worker sleeps at most while frames wait for room at a port, as no event says when
/// there is some.
const BLOCKED: Span = Span::from_us(100);

impl Idle {
    pub(super) fn new(poll: Poll, wakeup: Option<Arc<EventFd>>) -> Self {
        Self { poll, wakeup, fds: Vec::with_capacity(2 * PORTS_MAX + 1) }
    }

    /// For how long the worker may sleep, by configuration and time without work; `None` if it must
    /// look again at once. [`Self::sleep`] follows.
    pub(super) fn plan(
        &mut self,
        now: Instant,
        quiet_since: Instant,
        step: &Step,
        ports: &[Box<dyn Port>],
    ) -> Option<Span> {
        std::hint::spin_loop();
        let quiet = now.since(quiet_since);
        if self.poll == Poll::Busy || quiet < QUIET {
            return None;
        }
        let wait = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.fds.clear();
        for port in ports {
            match port.wait_fd() {
                Some(fd) => self.fds.push(wait(fd.as_raw_fd())),
                // Nothing would wake the worker for a frame of this port, so it polls.
                None if port.link_up() => return None,
                None => {}
            }
            self.fds.extend(port.link_fd().map(|fd| wait(fd.as_raw_fd())));
        }
        if let Some(wakeup) = &self.wakeup {
            self.fds.push(wait(wakeup.as_fd().as_raw_fd()));
        }
        let most = if quiet < ACTIVE { SLEEP_ACTIVE } else { SLEEP_MAX };
        let sleep = if step.blocked { BLOCKED } else { most };
        let sleep = step.next.map_or(sleep, |next| sleep.min(next.since(now)));
        (sleep > Span::ZERO).then_some(sleep)
    }

    /// Sleeps until there is something to do, or `span` is over. `has_arrivals` looks whether other
    /// workers have handed over frames.
    pub(super) fn sleep(
        &mut self,
        span: Span,
        group: &WorkerGroup,
        worker: usize,
        has_arrivals: impl FnOnce() -> bool,
    ) {
        // From here until it sleeps, the worker is woken by the eventfd, which `ppoll` watches: a
        // wake-up in between is not lost. Frames that came after the step and before this had no
        // sleeper to wake, so they are looked for once more.
        if group.prepare_sleep(worker) && !has_arrivals() {
            self.wait(span);
            if let Some(wakeup) = &self.wakeup {
                wakeup.drain();
            }
        }
        group.wake_up(worker);
    }

    fn wait(&mut self, span: Span) {
        const NS: u64 = 1_000_000_000;
        let ns = span.as_ns();
        let timeout = libc::timespec {
            tv_sec: (ns / NS).try_into().unwrap_or(0),
            tv_nsec: i64::try_from(ns % NS).unwrap_or(0),
        };
        let count = self.fds.len() as libc::nfds_t;
        // SAFETY: `fds` holds `count` entries, the timeout outlives the call, no signal mask is set.
        unsafe { libc::ppoll(self.fds.as_mut_ptr(), count, &raw const timeout, core::ptr::null()) };
    }
}
