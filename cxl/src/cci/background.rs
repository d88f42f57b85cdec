//! The one command of a component that goes on in the background.
//!
//! [`Background`]: started with an end, finished with a return code, told by 0002h, aborted by 0005h.
//!
//! Units: percent; time as `Instant`.
//! Source: CXL 3.1 sections 8.2.9.1.2, 8.2.9.1.5; docs/spec/wire-formats.md §4.2.

use weft_dataplane::time::Instant;
use weft_parsers::cci::generic::{BackgroundStatus, Progress};
use weft_parsers::cci::{Opcode, ReturnCode};

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    opcode: Opcode,
    begin: Instant,
    end: Instant,
}

/// The background operation of a component: the one that runs, and how the last one ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Background {
    running: Option<Running>,
    last: Option<(Opcode, ReturnCode)>,
}

impl Background {
    /// Nothing runs, and nothing has.
    pub const IDLE: Self = Self { running: None, last: None };

    /// A command begins that is over at `end`: then whoever started it calls [`Background::finish`].
    ///
    /// # Errors
    /// Busy: another one runs.
    pub fn start(&mut self, opcode: Opcode, now: Instant, end: Instant) -> Result<(), ReturnCode> {
        if self.running.is_some() {
            return Err(ReturnCode::Busy);
        }
        self.running = Some(Running { opcode, begin: now, end });
        Ok(())
    }

    /// Whether a command runs.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// When the one that runs is over.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        self.running.map(|running| running.end)
    }

    /// The command that is over at `now`, still to be finished.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Opcode> {
        self.running.filter(|running| running.end <= now).map(|running| running.opcode)
    }

    /// The command that runs is over.
    pub fn finish(&mut self, code: ReturnCode) {
        if let Some(running) = self.running.take() {
            self.last = Some((running.opcode, code));
        }
    }

    /// Background Operation Status (0002h).
    #[must_use]
    pub fn status(&self, now: Instant) -> BackgroundStatus {
        let (opcode, code) = match (self.running, self.last) {
            (Some(running), _) => (running.opcode.0, ReturnCode::Success),
            (None, Some((opcode, code))) => (opcode.0, code),
            (None, None) => (0, ReturnCode::Success),
        };
        let percent = match self.running {
            Some(running) => done_percent(running, now),
            None if self.last.is_some() => 100,
            None => 0,
        };
        let progress = Progress { running: self.running.is_some(), percent };
        BackgroundStatus { progress, opcode, return_code: code.bits(), vendor_status: 0 }
    }

    /// Request Abort of Background Operation (0005h): those there are take effect at once when they are over, so none
    /// can be taken back.
    ///
    /// # Errors
    /// Request Abort of Background Operation Not Supported: one runs.
    pub const fn abort(&self) -> Result<(), ReturnCode> {
        if self.running.is_some() { Err(ReturnCode::NotAbortable) } else { Ok(()) }
    }
}

/// How much of it is done, below 100 while it runs.
fn done_percent(running: Running, now: Instant) -> u8 {
    let whole = running.end.since(running.begin).as_ps().max(1);
    let part = now.since(running.begin).as_ps();
    u8::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(99).min(99)
}
