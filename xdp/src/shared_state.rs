//! State that workers and the XDP program share in mapped arrays, so that neither needs a system call.
//!
//! Open priorities by output; frames handed to user space and frames that it is done with, by (port, queue, group of
//! flows). The counts wrap.
//!
//! Source: docs/express.md "Order".

use core::sync::atomic::Ordering;

use crate::layout::{BUCKETS, Control, PORTS, QUEUES};
use crate::sys::Mapped;

const LINE: usize = 8;

/// Words shared by workers and the program: open priorities, and frames handed over and done with. Any thread may use
/// it.
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
        // Release: a program that sees the output open also sees the counts that made it quiet.
        self.open.word(usize::from(output) * LINE).store(u64::from(pris), Ordering::Release);
    }

    /// Priorities of `output` that are open, as bits.
    #[must_use]
    pub fn open(&self, output: u8) -> u8 {
        self.open.word(usize::from(output) * LINE).load(Ordering::Relaxed).to_le_bytes()[0]
    }

    #[inline]
    const fn cell(port: u8, queue: u8, bucket: u8) -> usize {
        (port as usize * QUEUES + queue as usize) * BUCKETS + bucket as usize % BUCKETS
    }

    /// Number of frames of (port, queue, group) that the program has handed to the socket.
    #[inline]
    #[must_use]
    pub fn handed(&self, port: u8, queue: u8, bucket: u8) -> u64 {
        self.handed.word(Self::cell(port, queue, bucket)).load(Ordering::Acquire)
    }

    /// Number of these frames that user space is done with.
    #[must_use]
    pub fn done(&self, port: u8, queue: u8, bucket: u8) -> u64 {
        self.done.word(Self::cell(port, queue, bucket)).load(Ordering::Relaxed)
    }

    /// Publishes that user space is done with the first `count` frames: sent and completed, dropped, or lost on the way
    /// to it.
    #[inline]
    pub fn set_done(&self, port: u8, queue: u8, bucket: u8, count: u64) {
        // Release: the program must not see the count before the frames are out.
        self.done.word(Self::cell(port, queue, bucket)).store(count, Ordering::Release);
    }

    /// Drains (port, queue), or ends that. While it drains, most frames are dropped that would be express if none were
    /// waiting ahead of them.
    pub fn set_drain(&self, port: u8, queue: u8, on: bool) {
        let at = usize::from(port) * QUEUES + usize::from(queue);
        self.drain.word(at).store(u64::from(on), Ordering::Relaxed);
    }

    /// The program's control word.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::from_word(self.control.word(0).load(Ordering::Relaxed))
    }

    /// Writes the control word; only control does.
    pub(crate) fn set_control(&self, control: Control) {
        // Release: a program that sees the new bank number also sees the bank's contents.
        self.control.word(0).store(control.word(), Ordering::Release);
    }
}
