//! State that workers and the XDP program share in mapped arrays, so that neither needs a system call.
//!
//! [`SharedState`] over the mapped arrays: open priorities by output; frames handed to user space
//! and done with, by (port, queue, group of flows).
//!
//! Units: frames; wrapping counts.
//! Source: docs/express.md "Order".

use core::sync::atomic::Ordering;

use crate::layout::{BUCKETS, Control, PORTS, QUEUES};
use crate::sys::Mapped;

const LINE: usize = 8;

/// What workers and one XDP program tell each other: open priorities, and frames handed over and done with. Any thread
/// may use it.
#[derive(Debug)]
pub struct SharedState {
    pub(crate) control: Mapped,
    pub(crate) open: Mapped,
    pub(crate) handed: Mapped,
    pub(crate) done: Mapped,
    pub(crate) drain: Mapped,
}

impl SharedState {
    // Numbers of words of each map.
    pub(crate) const CONTROL: usize = 1;
    pub(crate) const OPEN: usize = PORTS * LINE;
    pub(crate) const COUNTS: usize = PORTS * QUEUES * BUCKETS;
    pub(crate) const DRAIN: usize = PORTS * QUEUES;

    /// Opens the priorities of `pris` (bits) of `output`, and closes all others.
    #[inline]
    pub fn set_open(&self, output: u8, pris: u8) {
        // Release: what made the output quiet is seen by whoever sees it open.
        self.open.word(usize::from(output) * LINE).store(u64::from(pris), Ordering::Release);
    }

    /// Open priorities of `output`.
    #[must_use]
    pub fn open(&self, output: u8) -> u8 {
        self.open.word(usize::from(output) * LINE).load(Ordering::Relaxed).to_le_bytes()[0]
    }

    #[inline]
    const fn cell(port: u8, queue: u8, bucket: u8) -> usize {
        (port as usize * QUEUES + queue as usize) * BUCKETS + bucket as usize % BUCKETS
    }

    /// Frames of (port, queue, group) that the program has handed to the socket.
    #[inline]
    #[must_use]
    pub fn handed(&self, port: u8, queue: u8, bucket: u8) -> u64 {
        self.handed.word(Self::cell(port, queue, bucket)).load(Ordering::Acquire)
    }

    /// Frames of them that user space is done with.
    #[must_use]
    pub fn done(&self, port: u8, queue: u8, bucket: u8) -> u64 {
        self.done.word(Self::cell(port, queue, bucket)).load(Ordering::Relaxed)
    }

    /// Notes that user space is done with the first `count` frames: sent and completed, dropped, or
    /// lost on the way to it.
    #[inline]
    pub fn set_done(&self, port: u8, queue: u8, bucket: u8, count: u64) {
        // Release: the program must not see the count before the frames are out.
        self.done.word(Self::cell(port, queue, bucket)).store(count, Ordering::Release);
    }

    /// Has (port, queue) come to rest, or take all frames again: until then, of frames that would be
    /// express if none were waiting, most are dropped.
    pub fn set_drain(&self, port: u8, queue: u8, on: bool) {
        let at = usize::from(port) * QUEUES + usize::from(queue);
        self.drain.word(at).store(u64::from(on), Ordering::Relaxed);
    }

    /// What the program steers by.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::from_word(self.control.word(0).load(Ordering::Relaxed))
    }

    /// Only control writes this word.
    pub(crate) fn set_control(&self, control: Control) {
        // Release: the bank that is named has been written.
        self.control.word(0).store(control.word(), Ordering::Release);
    }
}
