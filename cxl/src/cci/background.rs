//! The background operation of a component, of which there is one at a time.
//!
//! [`Background::start`] sets its end, [`Background::finish`] its return code; 0002h reads the status, 0005h
//! requests an abort.
//!
//! Units: percent; time as `Instant`.
//! Source: CXL 3.1 sections 8.2.9.1.2, 8.2.9.1.5; docs/spec/wire-formats.md §4.2.

use weft_dataplane::time::Instant;
use weft_parsers::cci::generic::{BackgroundStatus, Progress};
use weft_parsers::cci::{Opcode, ReturnCode};

/// The operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    opcode: Opcode,
    begin: Instant,
    end: Instant,
}

/// The background operation of a component: the one in progress, and the result of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Background {
    running: Option<Running>,
    last: Option<(Opcode, ReturnCode)>,
}

impl Background {
    /// No operation in progress, and none before.
    pub const IDLE: Self = Self { running: None, last: None };

    /// Starts an operation that ends at `end`; its owner then calls [`Background::finish`].
    ///
    /// # Errors
    /// Busy: another operation is in progress.
    pub fn start(&mut self, opcode: Opcode, now: Instant, end: Instant) -> Result<(), ReturnCode> {
        if self.running.is_some() {
            return Err(ReturnCode::Busy);
        }
        self.running = Some(Running { opcode, begin: now, end });
        Ok(())
    }

    /// Whether an operation is in progress.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// End of the operation in progress.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        self.running.map(|running| running.end)
    }

    /// Opcode of the operation that has ended by `now` and is not finished yet.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Opcode> {
        self.running.filter(|running| running.end <= now).map(|running| running.opcode)
    }

    /// Finishes the operation in progress with its return code.
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

    /// Request Abort of Background Operation (0005h). The operations of weft take effect at once at their end, so
    /// none can be aborted.
    ///
    /// # Errors
    /// Request Abort of Background Operation Not Supported: an operation is in progress.
    pub const fn abort(&self) -> Result<(), ReturnCode> {
        if self.running.is_some() { Err(ReturnCode::NotAbortable) } else { Ok(()) }
    }
}

/// Progress of an operation in percent, at most 99.
fn done_percent(running: Running, now: Instant) -> u8 {
    // `max(1)`: an operation may end when it begins, and must not divide by zero.
    let whole = running.end.since(running.begin).as_ps().max(1);
    let part = now.since(running.begin).as_ps();
    u8::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(99).min(99)
}
