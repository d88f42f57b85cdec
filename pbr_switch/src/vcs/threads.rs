//! Commands that the GAE of a virtual switch forwards to GFDs (5809h to 580Bh).
//!
//! Source: docs/spec/wire-formats.md §4.6.

use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::gae::ProxyThread;
use weft_parsers::fabric::Pid;

/// A GFD command that a GAE forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// PID of the GFD.
    pub pid: Pid,
    /// Sequence number among the commands to that GFD, 3 bits.
    pub seq: u8,
    /// False once it was answered or given up.
    pub running: bool,
}

/// The last command forwarded to each GFD, running or done: its sequence number goes on with the next one, and Get
/// Proxy Thread Status asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Commands that may run at the same time.
    max: u16,
    last: Vec<Thread>,
}

impl Threads {
    /// Room for `max` commands at the same time.
    pub(super) const fn new(max: u16) -> Self {
        Self { max, last: Vec::new() }
    }

    pub(super) const fn max(&self) -> u16 {
        self.max
    }

    /// Commands that may still be started. Finished ones take no room.
    pub(crate) fn free(&self) -> u16 {
        let running = self.last.iter().filter(|thread| thread.running).count();
        self.max.saturating_sub(u16::try_from(running).unwrap_or(u16::MAX))
    }

    //= docs/spec/wire-formats.md §4.6: one active 5809 per target PID; no thread left: Resources Exhausted
    /// Starts a command to a GFD, and returns its sequence number.
    pub(crate) fn start(&mut self, pid: Pid) -> Result<u8, ReturnCode> {
        let last = self.last.iter().find(|thread| thread.pid == pid).copied();
        if last.is_some_and(|thread| thread.running) {
            return Err(ReturnCode::Busy);
        }
        if self.free() == 0 {
            return Err(ReturnCode::ResourcesExhausted);
        }
        let seq = last.map_or(0, |thread| thread.seq.wrapping_add(1) & 7);
        self.last.retain(|thread| thread.pid != pid);
        self.last.push(Thread { pid, seq, running: true });
        Ok(seq)
    }

    /// The last command to a GFD, if its sequence number matches.
    pub(crate) fn named(&self, named: ProxyThread) -> Result<Thread, ReturnCode> {
        let same = |it: &&Thread| it.pid == named.pid && it.seq == named.op.get();
        self.last.iter().find(same).copied().ok_or(ReturnCode::InvalidInput)
    }

    /// Frees the thread of a command that was answered or given up.
    pub(crate) fn end(&mut self, pid: Pid, seq: u8) {
        let same = |it: &&mut Thread| it.pid == pid && it.seq == seq;
        for thread in self.last.iter_mut().filter(same) {
            thread.running = false;
        }
    }
}
