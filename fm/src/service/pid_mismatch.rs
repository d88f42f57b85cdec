//! PID mismatches: components that announce a PID other than their port's.
//!
//! A look at all downstream ports makes an event of each new one, and an error while it lasts.
//!
//! Source: docs/security.md; docs/spec/wire-formats.md §4.5 (5702h).

use super::Fm;
use super::board::Cause;

/// End of all errors of this kind, by which they are found again.
const NOT_TAKEN: &str = "which was not assigned to that port, and is refused";

impl Fm {
    /// Reports mismatches that are new since the last look. The edge passes nothing of such components.
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
