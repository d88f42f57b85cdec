//! Outcome of replaying a record: hashes and counters of both runs, also as `result.json`.
//!
//! Source: docs/spec/pipeline.md §10, §13.

use serde::Serialize;
use serde_json::Value;
use weft_dataplane::pipeline::Ledger;

use crate::replay::{Buffer, Conservation, Named, PortReport, drops_of, ports_of};

/// The end of the run, as recorded.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// Hash of every decision and its time.
    pub trace_hash: String,
    /// Hash of every frame that a port took.
    pub sent_hash: String,
    /// Number of decisions.
    pub events: u64,
}

/// Outcome of a replay. The same record gives the same report, byte by byte.
#[derive(Clone, Debug, Serialize)]
pub struct RecordReport {
    /// Hash of every decision and its time.
    pub trace_hash: String,
    /// Hash of every frame that a port took.
    pub sent_hash: String,
    /// Number of decisions.
    pub events: u64,
    /// Steps of the record that were replayed.
    pub steps: u64,
    /// Time of the last step, in picoseconds since the switch started.
    pub end_ps: u64,
    pub inputs: u64,
    /// Frames that ports took, including PFC frames of the switch.
    pub outputs: u64,
    /// The end as recorded; `None` when the record has no end.
    pub recorded: Option<Recorded>,
    /// Byte of the record at which it breaks off.
    pub cut_at: Option<u64>,
    /// The first step that did not do as recorded.
    pub divergence: Option<String>,
    /// Differences between hashes and counters at the end.
    pub differences: Vec<String>,
    pub drops: Named,
    /// Whether every frame is accounted for.
    pub conservation: Conservation,
    pub buffer: Buffer,
    pub ports: Vec<PortReport>,
}

/// Counts of a replay.
pub(super) struct Counts {
    pub trace_hash: u64,
    pub sent_hash: u64,
    pub events: u64,
    pub steps: u64,
    pub end_ps: u64,
    pub inputs: u64,
    pub outputs: u64,
}

impl RecordReport {
    /// Report of a replay with these counts and counters; `captured` has the frames that each port took.
    pub(super) fn new(counts: &Counts, ledger: &Ledger, names: &[&str], captured: &[u64]) -> Self {
        Self {
            trace_hash: hex(counts.trace_hash),
            sent_hash: hex(counts.sent_hash),
            events: counts.events,
            steps: counts.steps,
            end_ps: counts.end_ps,
            inputs: counts.inputs,
            outputs: counts.outputs,
            recorded: None,
            cut_at: None,
            divergence: None,
            differences: Vec::new(),
            drops: drops_of(ledger),
            conservation: Conservation::of(ledger),
            buffer: Buffer::of(ledger),
            ports: ports_of(ledger, names, captured),
        }
    }

    /// Whether nothing differs, as far as the record goes.
    #[must_use]
    pub const fn is_equal(&self) -> bool {
        self.divergence.is_none() && self.differences.is_empty()
    }

    /// Whether the record has the end of its run.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.recorded.is_some() && self.cut_at.is_none()
    }
}

/// A hash, as reports print it.
#[must_use]
pub fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Differences that are reported at most.
const DIFFERENCES_MAX: usize = 16;

/// Places at which two documents differ, with both values.
pub(super) fn differences(got: &Value, want: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", got, want, &mut found);
    found
}

fn compare(at: &str, got: &Value, want: &Value, found: &mut Vec<String>) {
    if got == want || found.len() >= DIFFERENCES_MAX {
        return;
    }
    match (got, want) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for ((name, a), b) in a.iter().zip(b.values()) {
                let dot = if at.is_empty() { "" } else { "." };
                compare(&format!("{at}{dot}{name}"), a, b, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (n, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}[{n}]"), a, b, found);
            }
        }
        // Objects with other keys, or arrays of another length, are one difference: comparing their members would only
        // repeat it.
        _ => found.push(format!("{at}: recorded {want}, replayed {got}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_told_by_their_place() {
        let got = json!({"rx": 1, "port": [{"tx": 2, "drops": [0, 1]}, {"tx": 3}]});
        assert_eq!(differences(&got, &got), [""; 0]);
        let want = json!({"rx": 1, "port": [{"tx": 2, "drops": [0, 7]}, {"tx": 4}]});
        let told =
            ["port[0].drops[1]: recorded 7, replayed 1", "port[1].tx: recorded 4, replayed 3"];
        assert_eq!(differences(&got, &want), told);
        let other = json!({"rx": 1, "port": []});
        assert_eq!(differences(&got, &other).len(), 1);
    }
}
