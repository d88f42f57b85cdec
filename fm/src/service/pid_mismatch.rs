//! Who calls itself by a PID that is not its port's.
//!
//! A look at all downstream ports -> an event for each that is new, and an error as long as it stays.
//!
//! Source: docs/security.md; docs/spec/wire-formats.md §4.5 (5702h).

use super::Fm;
use super::board::Cause;

/// What errors of this kind end with.
const NOT_TAKEN: &str = "which was not assigned to that port, and is refused";

impl Fm {
    /// Tells what has been announced in whose name since the last look. The edge has let none of it pass.
    pub(super) fn report_pid_mismatches(&mut self) {
        let Some(running) = &self.running else { return };
        let now = running.pid_mismatches.clone();
        self.errors.retain(|line| !line.ends_with(NOT_TAKEN));
        for pid_mismatch @ (at, pid) in &now {
            let text = format!("{at}: the component there announces PID {pid}, {NOT_TAKEN}");
            if !self.pid_mismatches.contains(pid_mismatch) {
                self.board.record_caused(Cause::Port(*at), &text);
            }
            self.errors.push(text);
        }
        self.pid_mismatches = now;
    }
}
