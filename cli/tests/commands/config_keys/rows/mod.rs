//! The rows: the effect of each key, by section.
//!
//! Source: docs/spec/pipeline.md §1 to §12.

mod fabric;
mod ports;
mod switch;

use weft_config::Config;

use super::run::{Flow, Run};
use super::{OTHER, Row, Seen};

/// All rows.
pub fn rows() -> Vec<Row> {
    [switch::rows(), ports::rows(), fabric::rows()].into_iter().flatten().collect()
}

/// A number of `result.json`.
fn count(
    key: &'static str,
    value: &'static str,
    flow: Flow,
    at: &'static str,
    want: &'static str,
) -> Row {
    Row { key, value, beside: &[], seen: Seen::Count(flow, at), want }
}

/// Something else of a replay.
fn sent(
    key: &'static str,
    value: &'static str,
    flow: Flow,
    of: fn(&Run) -> String,
    want: &'static str,
) -> Row {
    Row { key, value, beside: &[], seen: Seen::Sent(flow, of), want }
}

/// A refusal, from a configuration of three ports.
fn refused(key: &'static str, value: &'static str, want: &'static str) -> Row {
    Row { key, value, beside: &[], seen: Seen::Refused(super::run::THREE), want }
}

/// A value that is handed to devices, threads or managers, with the test that checks its effect.
fn live(
    key: &'static str,
    value: &'static str,
    of: fn(&Config) -> String,
    want: &'static str,
    by: &'static str,
) -> Row {
    Row { key, value, beside: &[], seen: Seen::Live(super::run::THREE, of, by), want }
}

impl Row {
    const fn beside(self, beside: &'static [&'static str]) -> Self {
        Self { beside, ..self }
    }
}

/// The priority of the last frame that left p1.
fn pri(run: &Run) -> String {
    let of = |pri: &usize| run.number(&format!("/ports/1/priorities/{pri}/dequeued")) != "0";
    (0..8).rev().find(of).map_or_else(|| "none".to_owned(), |pri| pri.to_string())
}

/// Formats that p0 received.
fn formats(run: &Run) -> String {
    run.number("/ports/0/rx_formats")
}

/// Time at which the first frame has left p1, in ns.
fn first_ns(run: &Run) -> String {
    run.sent[1].first().map_or_else(|| "never".to_owned(), |(at, _)| at.to_string())
}

/// Time at which the last frame has left p1, in ns.
fn last_ns(run: &Run) -> String {
    run.sent[1].last().map_or_else(|| "never".to_owned(), |(at, _)| at.to_string())
}

/// Senders of the frames that left p1, in order: the last byte of each source address.
fn order(run: &Run) -> String {
    let each: Vec<String> =
        run.sent[1].iter().map(|(_, frame)| format!("{:x}", frame[11])).collect();
    each.concat()
}

/// The PFC frames that left p0: stamp, source, classes.
fn pauses(run: &Run) -> Vec<(u64, String, u8, bool)> {
    let is_pfc = |frame: &Vec<u8>| frame[12..14] == [0x88, 8];
    let of = |(at, frame): &(u64, Vec<u8>)| {
        let source: Vec<String> = frame[6..12].iter().map(|byte| format!("{byte:02x}")).collect();
        let pauses = frame[18..34].iter().any(|&byte| byte != 0);
        (*at, source.join(":"), frame[17], pauses)
    };
    run.sent[0].iter().filter(|(_, frame)| is_pfc(frame)).map(of).collect()
}

/// A lossless incast into a small buffer, so that PAUSE is sent.
const TIGHT: &[&str] = &["buffer.buffer_size_mb=1"];
