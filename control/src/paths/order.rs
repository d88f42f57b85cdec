//! Puts lines of many paths in order of time, though paths come in the order in which frames end.
//!
//! The stages of [`ShownPath`]s wait in [`Lines`] until no earlier one can come, and go to a [`Sink`]. Times are in
//! picoseconds.
//! Source: docs/spec/pipeline.md §13.

use std::collections::BTreeMap;

use super::{ShownPath, Sink, Stage, TraceError};

/// Lines that may wait; beyond that the earliest are written.
const WAITING_MAX: usize = 1 << 18;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub struct Lines {
    /// By time in ps, then by number.
    waiting: BTreeMap<(u64, u64), Stage>,
    /// Lines so far. Their numbers keep lines of one instant in the order in which they came.
    number: u64,
    /// The latest time of any line so far.
    latest_ps: u64,
}

impl Lines {
    /// Adds the lines of a path.
    pub fn add(&mut self, path: ShownPath) {
        let mut at_ps = path.t_ps;
        for stage in path.stages {
            // A stage without a time stands with the one before it.
            at_ps = stage.at_ps().unwrap_or(at_ps);
            self.latest_ps = self.latest_ps.max(at_ps);
            self.waiting.insert((at_ps, self.number), stage);
            self.number += 1;
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the lines from before `end_ps` in order, or all of them without it.
    ///
    /// # Errors
    /// A line cannot be written.
    pub fn write_before(
        &mut self,
        end_ps: Option<u64>,
        sink: &mut Sink<'_>,
    ) -> Result<(), TraceError> {
        while let Some(first) = self.waiting.first_entry() {
            let is_early = end_ps.is_none_or(|end| first.key().0 < end);
            // Too many wait: order in time is given up for the earliest, so that memory stays bounded.
            if !is_early && self.waiting.len() <= WAITING_MAX {
                break;
            }
            if let Some((_, stage)) = self.waiting.pop_first() {
                sink.stage(&stage)?;
            }
        }
        Ok(())
    }

    /// Writes the lines that are older than the latest one by `hold_ps`.
    ///
    /// # Errors
    /// As [`Self::write_before`].
    pub fn write_settled(&mut self, hold_ps: u64, sink: &mut Sink<'_>) -> Result<(), TraceError> {
        self.write_before(Some(self.latest_ps.saturating_sub(hold_ps)), sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A path with lines at these times; each line is its frame and time.
    fn path(frame: u64, times: &[u64]) -> ShownPath {
        let stage = |&t: &u64| Stage { event: json!({ "t_ps": t }), text: format!("{frame}@{t}") };
        let t_ps = times.first().copied().unwrap_or_default();
        ShownPath { frame, t_ps, stages: times.iter().map(stage).collect(), ..ShownPath::default() }
    }

    #[test]
    fn lines_of_frames_that_overlap_are_merged_by_time() {
        let (mut out, mut lines) = (Vec::new(), Lines::default());
        let mut sink = Sink::text(&mut out);
        lines.add(path(2, &[20, 30, 30]));
        lines.write_settled(15, &mut sink).unwrap(); // before 15: nothing
        lines.add(path(1, &[16, 30, 41])); // began before, ended after
        lines.write_settled(15, &mut sink).unwrap(); // before 26
        assert!(!lines.is_empty());
        lines.add(path(3, &[28, 44]));
        lines.write_before(None, &mut sink).unwrap();
        assert!(lines.is_empty());
        drop(sink);
        let text = String::from_utf8(out).unwrap();
        let want = ["1@16", "2@20", "3@28", "2@30", "2@30", "1@30", "1@41", "3@44"];
        assert_eq!(text.lines().collect::<Vec<_>>(), want);
    }

    #[test]
    fn no_more_lines_wait_than_may() {
        let (mut out, mut lines) = (Vec::new(), Lines::default());
        let mut sink = Sink::text(&mut out);
        for frame in 0..WAITING_MAX as u64 + 3 {
            lines.add(path(frame, &[1_000_000 - frame]));
        }
        lines.write_before(Some(0), &mut sink).unwrap();
        assert_eq!(lines.waiting.len(), WAITING_MAX);
        drop(sink);
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), 3);
    }
}
