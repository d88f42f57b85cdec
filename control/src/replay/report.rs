//! Outcome of a replay of captures, as `result.json` has it.
//!
//! [`ReplayResult`] and the ports' names → [`Report`], with every count by name.
//!
//! Source: docs/spec/pipeline.md §10, §13.

use std::collections::BTreeMap;

use serde::Serialize;
use weft_dataplane::pipeline::{Ledger, PortLedger, QueueLedger};
use weft_dataplane::stats::{DROP_REASONS, DropReason, OUTPUT_REASONS, SIZE_BIN_NAMES};
use weft_parsers::Format;
use weft_sim::checkers::Violation;
use weft_sim::replay::ReplayResult;

use super::Base;

/// Counts by name, without those that are 0.
pub type Named = BTreeMap<String, u64>;

/// Outcome of a replay. The same input gives the same report, byte by byte.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Hash of every decision and its time.
    pub trace_hash: String,
    /// Number of decisions.
    pub events: u64,
    /// Warnings about the inputs: one is cut off, or something was left out of it.
    pub warnings: Vec<String>,
    /// Start of virtual time, in nanoseconds since the epoch.
    pub base_ns: u64,
    /// End of virtual time, since its start.
    pub end_ps: u64,
    /// Frames read from captures.
    pub inputs: u64,
    /// Frames written to captures, PFC frames of the switch included.
    pub outputs: u64,
    pub drops: Named,
    /// Lossless frames that found the headroom full. A file does not obey PAUSE, so these are no errors of the switch.
    pub xoff_overruns: u64,
    /// Frames that were still queued at the end.
    pub stuck: u64,
    /// Whether every frame is accounted for.
    pub conservation: Conservation,
    pub buffer: Buffer,
    pub ports: Vec<PortReport>,
    /// Violations that the checkers found.
    pub violation_count: u64,
    /// The first of these violations.
    pub violations: Vec<Violation>,
}

/// rx + copies = tx + dropped + consumed + queued + imbalance.
#[derive(Clone, Debug, Serialize)]
pub struct Conservation {
    pub rx: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    pub tx: u64,
    pub dropped: u64,
    /// Frames for the switch itself.
    pub consumed: u64,
    pub queued: u64,
    /// Frames that are not accounted for: always 0.
    pub imbalance: i64,
}

/// Buffer and pool at the end.
#[derive(Clone, Debug, Serialize)]
pub struct Buffer {
    /// Cells of the shared part in use.
    pub shared_used_cells: u64,
    /// Most cells of the shared part that were in use.
    pub shared_watermark_cells: u64,
    pub shared_total_cells: u64,
    /// Cells of headroom in use, all groups together.
    pub headroom_used_cells: u64,
    /// Most cells of headroom that were in use.
    pub headroom_watermark_cells: u64,
    /// Chunks of the pool in use.
    pub chunks_used: u64,
    pub chunks: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    pub name: String,
    /// Frames received, dropped ones included.
    pub rx_frames: u64,
    pub rx_bytes: u64,
    /// Frames sent, PFC frames of the switch left out.
    pub tx_frames: u64,
    pub tx_bytes: u64,
    /// Frames in its capture, PFC frames of the switch included.
    pub captured: u64,
    pub rx_formats: Named,
    pub tx_formats: Named,
    /// Received frames by size with FCS, such as `65-127`.
    pub rx_sizes: Named,
    /// Received frames to a group address, without MAC control and frames that cannot be parsed.
    pub rx_group_frames: u64,
    /// Sent frames to a group address.
    pub tx_group_frames: u64,
    /// Copies of replicated frames beyond the first.
    pub copies: u64,
    /// MAC control frames that ended here.
    pub consumed: u64,
    /// PFC frames among them that were acted upon.
    pub pfc_rx: u64,
    /// Plain 802.3x PAUSE frames among them.
    pub pause_rx: u64,
    /// PFC frames made here.
    pub pfc_tx: u64,
    /// Addresses that moved here.
    pub fdb_moves: u64,
    /// Times that it was blocked for a loop.
    pub loop_blocks: u64,
    /// Drops by reason, of frames that came in at this port.
    pub drops: Named,
    pub priorities: Vec<PriReport>,
}

/// Counts of one (port, priority).
#[derive(Clone, Debug, Serialize)]
pub struct PriReport {
    pub pri: usize,
    pub enqueued: u64,
    pub dequeued: u64,
    pub tx_bytes: u64,
    pub ecn_marked: u64,
    pub pause_rx: u64,
    pub resume_rx: u64,
    pub pause_tx: u64,
    pub resume_tx: u64,
    pub xoff: u64,
    pub xon: u64,
    pub paused_ps: u64,
    pub storms: u64,
    pub depth_watermark_cells: u64,
    pub pg_watermark_cells: u64,
    pub headroom_watermark_cells: u64,
    pub drops: Named,
    pub output_drops: Named,
}

fn named<'n>(names: impl Iterator<Item = &'n str>, counts: &[u64]) -> Named {
    let pairs = names.zip(counts).filter(|(_, count)| **count > 0);
    pairs.map(|(name, count)| (name.to_owned(), *count)).collect()
}

fn drops(counts: &[u64]) -> Named {
    named(DropReason::ALL.iter().map(|reason| reason.name()), counts)
}

fn formats(counts: &[u64]) -> Named {
    named(Format::ALL.iter().map(|format| format.name()), counts)
}

fn sizes(counts: &[u64]) -> Named {
    named(SIZE_BIN_NAMES.into_iter(), counts)
}

impl Report {
    pub(super) fn new(
        result: &ReplayResult,
        names: &[&str],
        written: &[u64],
        base: Base,
        warnings: Vec<String>,
    ) -> Self {
        let ledger = &result.ledger;
        Self {
            warnings,
            trace_hash: format!("{:016x}", result.trace_hash),
            events: result.events,
            base_ns: base.ns(),
            end_ps: result.end_ps,
            inputs: result.inputs,
            outputs: result.outputs,
            drops: result.drops.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect(),
            xoff_overruns: result.xoff_overruns,
            stuck: result.stuck,
            conservation: Conservation::of(ledger),
            buffer: Buffer::of(ledger),
            ports: ports_of(ledger, names, written),
            violation_count: result.violation_count,
            violations: result.violations.clone(),
        }
    }
}

impl Conservation {
    #[must_use]
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            rx: ledger.rx,
            copies: ledger.copies,
            tx: ledger.tx,
            dropped: ledger.dropped,
            consumed: ledger.consumed,
            queued: ledger.queued,
            imbalance: ledger.imbalance(),
        }
    }
}

impl Buffer {
    #[must_use]
    pub fn of(ledger: &Ledger) -> Self {
        Self {
            shared_used_cells: ledger.shared_used,
            shared_watermark_cells: ledger.shared_watermark,
            shared_total_cells: ledger.shared_total,
            headroom_used_cells: ledger.headroom_used,
            headroom_watermark_cells: ledger.headroom_watermark,
            chunks_used: ledger.chunks_used,
            chunks: ledger.chunks,
        }
    }
}

/// Reports of all ports of `ledger`, with their names and the number of frames in each capture.
#[must_use]
pub fn ports_of(ledger: &Ledger, names: &[&str], captured: &[u64]) -> Vec<PortReport> {
    let ports = names.iter().zip(&ledger.port).zip(captured);
    ports.map(|((name, port), captured)| port_report(name, port, *captured)).collect()
}

/// Drops of all ports, by reason.
#[must_use]
pub fn drops_of(ledger: &Ledger) -> Named {
    let mut sums = [0; DROP_REASONS];
    for port in &ledger.port {
        for (sum, count) in sums.iter_mut().zip(&port.drops) {
            *sum += count;
        }
    }
    drops(&sums)
}

fn port_report(name: &str, port: &PortLedger, captured: u64) -> PortReport {
    PortReport {
        name: name.to_owned(),
        rx_frames: port.rx_frames,
        rx_bytes: port.rx_bytes,
        tx_frames: port.tx_frames,
        tx_bytes: port.tx_bytes,
        captured,
        rx_formats: formats(&port.rx_format),
        tx_formats: formats(&port.tx_format),
        rx_sizes: sizes(&port.rx_size),
        rx_group_frames: port.rx_group_frames,
        tx_group_frames: port.tx_group_frames,
        copies: port.copies,
        consumed: port.consumed,
        pfc_rx: port.pfc_rx,
        pause_rx: port.pause_rx,
        pfc_tx: port.pfc_tx,
        fdb_moves: port.fdb_moves,
        loop_blocks: port.loop_blocks,
        drops: drops(&port.drops),
        priorities: port.pri.iter().enumerate().map(|(pri, q)| pri_report(pri, q)).collect(),
    }
}

fn pri_report(pri: usize, queue: &QueueLedger) -> PriReport {
    PriReport {
        pri,
        enqueued: queue.enqueued,
        dequeued: queue.dequeued,
        tx_bytes: queue.tx_bytes,
        ecn_marked: queue.ecn_marked,
        pause_rx: queue.pause_rx,
        resume_rx: queue.resume_rx,
        pause_tx: queue.pause_tx,
        resume_tx: queue.resume_tx,
        xoff: queue.xoff,
        xon: queue.xon,
        paused_ps: queue.paused_ps,
        storms: queue.storms,
        depth_watermark_cells: queue.depth_watermark,
        pg_watermark_cells: queue.pg_watermark,
        headroom_watermark_cells: queue.headroom_watermark,
        drops: drops(&queue.drops),
        output_drops: named(OUTPUT_REASONS.iter().map(|reason| reason.name()), &queue.output_drops),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Names of all fields below `value`; the keys of counts by name are no fields.
    fn fields(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    into.push(name.clone());
                    fields(value, into);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| fields(item, into)),
            _ => {}
        }
    }

    #[test]
    fn the_page_tells_of_every_field() {
        const PAGE: &str = include_str!("../../../docs/replay.md");
        let port = PortLedger { pri: vec![QueueLedger::default()], ..PortLedger::default() };
        let ledger = Ledger { port: vec![port], ..Ledger::default() };
        let violation = Violation { checker: "", at_ps: 0, saw: String::new() };
        let report = Report {
            warnings: Vec::new(),
            trace_hash: String::new(),
            events: 0,
            base_ns: 0,
            end_ps: 0,
            inputs: 0,
            outputs: 0,
            drops: Named::new(),
            xoff_overruns: 0,
            stuck: 0,
            conservation: Conservation::of(&ledger),
            buffer: Buffer::of(&ledger),
            ports: ports_of(&ledger, &["p0"], &[0]),
            violation_count: 0,
            violations: vec![violation],
        };
        let mut names = Vec::new();
        fields(&serde_json::to_value(&report).unwrap(), &mut names);
        assert!(names.len() > 50, "{names:?}");
        for name in names {
            assert!(PAGE.contains(&format!("`{name}`")), "{name}");
        }
    }
}
