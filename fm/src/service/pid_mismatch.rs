//! PID mismatches: components that announce a PID other than their port's.
//!
//! A look at all downstream ports makes an event of each new one, and an error while it lasts.
//!
//! Source: docs/security.md; docs/spec/wire-formats.md §4.5 (5702h).

use std::collections::BTreeSet;

use weft_parsers::fabric::Pid;

use super::board::{Cause, StatusBoard};
use crate::model::graph::PortRef;

/// End of all errors of this kind, by which they are found again.
const NOT_TAKEN: &str = "which was not assigned to that port, and is refused";

/// Downstream ports whose partner announces a PID other than the port's, as of the last look.
#[derive(Debug, Default)]
pub(super) struct PidMismatches(BTreeSet<(PortRef, Pid)>);

impl PidMismatches {
    /// Reports mismatches that are new since the last look, and lists the present ones as errors. The edge passes
    /// nothing of such components.
    pub fn report(
        &mut self,
        now: &BTreeSet<(PortRef, Pid)>,
        errors: &mut Vec<String>,
        board: &StatusBoard,
    ) {
        errors.retain(|line| !line.ends_with(NOT_TAKEN));
        for mismatch @ (at, pid) in now {
            let text = format!("{at}: the component there announces PID {pid}, {NOT_TAKEN}");
            if !self.0.contains(mismatch) {
                board.record_caused(Cause::Port(*at), &text);
            }
            errors.push(text);
        }
        self.0.clone_from(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::graph::SwitchId;

    #[test]
    fn mismatch_is_one_event_and_an_error_while_it_lasts() {
        let (mut mismatches, board) = (PidMismatches::default(), StatusBoard::default());
        let mut errors = vec!["something else".to_owned()];
        let one = (PortRef::new(SwitchId(1), 2), Pid::from_low_bits(7));
        for (name, now, count, events) in [
            ("it begins", [one].into(), 2, 1),
            ("it lasts", [one].into(), 2, 1),
            ("it ends", BTreeSet::new(), 1, 1),
            ("it begins again", [one].into(), 2, 2),
        ] {
            mismatches.report(&now, &mut errors, &board);
            assert_eq!((errors.len(), board.events(0).len()), (count, events), "{name}");
        }
    }
}
