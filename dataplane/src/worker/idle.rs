//! Idle: what a worker does when there is nothing to do.
//!
//! Shape: `busy` spins; `adaptive` spins for a short while, then sleeps in `ppoll` on its ports and
//! its eventfd, no longer than to the next timer.
//! Units: nanoseconds.
//! Source: ppoll(2); ARCHITECTURE.md.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use weft_base::eventfd::EventFd;

use super::group::WorkerGroup;
use super::{QUIET, SLEEP_MAX};
use crate::pipeline::Step;
use crate::port::Port;
use crate::time::{Instant, Span};
use crate::types::PORTS_MAX;

/// What a worker does that has nothing to do: spin or sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Looks again at once.
    Busy,
    /// Sleeps after a quiet while.
    Adaptive,
}

/// A worker's way of being idle.
pub struct Idle {
    poll: Poll,
    wakeup: Option<Arc<EventFd>>,
    fds: Vec<libc::pollfd>,
}

/// How long a sleeper with frames that wait for room at a port waits before it looks again.
const BLOCKED: Span = Span::from_us(100);

impl Idle {
    pub(super) fn new(poll: Poll, wakeup: Option<Arc<EventFd>>) -> Self {
        Self { poll, wakeup, fds: Vec::with_capacity(2 * PORTS_MAX + 1) }
    }

    /// Spins or sleeps, as the configuration and the time without work say.
    pub(super) fn rest(
        &mut self,
        now: Instant,
        quiet_since: Instant,
        step: &Step,
        ports: &[Box<dyn Port>],
        group: &WorkerGroup,
        worker: usize,
    ) {
        std::hint::spin_loop();
        if self.poll == Poll::Busy || now.since(quiet_since) < QUIET {
            return;
        }
        let wait = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.fds.clear();
        for port in ports {
            match port.wait_fd() {
                Some(fd) => self.fds.push(wait(fd.as_raw_fd())),
                None if port.link_up() => return, // it must be asked
                None => {}
            }
            self.fds.extend(port.link_fd().map(|fd| wait(fd.as_raw_fd())));
        }
        if let Some(wakeup) = &self.wakeup {
            self.fds.push(wait(wakeup.as_fd().as_raw_fd()));
        }
        let mut sleep = if step.blocked { BLOCKED } else { SLEEP_MAX };
        if let Some(next) = step.next {
            sleep = sleep.min(next.since(now));
        }
        if sleep == Span::ZERO || !group.prepare_sleep(worker) {
            group.wake_up(worker);
            return;
        }
        self.sleep(sleep);
        group.wake_up(worker);
        if let Some(wakeup) = &self.wakeup {
            wakeup.drain();
        }
    }

    fn sleep(&mut self, span: Span) {
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
