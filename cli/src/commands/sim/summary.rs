//! The summary of a run's results as text.
//!
//! Source: docs/spec/model.md §6.

use std::io::{self, Write};

use weft_sim::results::decimal::Decimal;
use weft_sim::results::flow::Ranks;
use weft_sim::results::{Ending, ExpectResult, Results};

/// An expectation and its figure, in a line.
pub(super) fn expectation(it: &ExpectResult) -> String {
    let found = it.found.map_or_else(|| "nothing".to_owned(), |found| found.to_string());
    format!("{} is {found}, wanted {} ({})", it.metric, it.wanted, it.tolerance)
}

fn us(ps: u64) -> Decimal {
    Decimal::us_of_ps(ps)
}

fn times(what: &str, ranks: Option<&Ranks<u64>>, out: &mut dyn Write) -> io::Result<()> {
    let Some(ranks) = ranks else { return Ok(()) };
    let Ranks { min, p50, p99, max, .. } = *ranks;
    writeln!(out, "{what} min {} p50 {} p99 {} max {}", us(min), us(p50), us(p99), us(max))
}

/// Writes the summary.
///
/// # Errors
/// `out` cannot be written.
pub(super) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let all = &results.summary;
    writeln!(out, "{} (seed {})", results.scenario, results.seed)?;
    writeln!(out, "ended at            {} us: {}", us(results.end_ps), results.ending.words())?;
    if let Ending::Stalled { waiting } = &results.ending {
        for it in waiting {
            writeln!(out, "  {} waits for {} since {} us", it.who, it.on, us(it.since_ps))?;
        }
    }
    writeln!(out, "flows delivered     {} of {}", all.flows_delivered, all.flows)?;
    writeln!(
        out,
        "payload             {} bytes in {} us, {} Mbit/s",
        all.delivered_bytes,
        us(all.makespan_ps),
        all.goodput_bps / 1_000_000
    )?;
    times("flow completion us ", all.fct_ps.as_ref(), out)?;
    times("  as senders see it", all.fct_sender_ps.as_ref(), out)?;
    if let Some(slowdown) = &all.slowdown {
        writeln!(
            out,
            "slowdown            min {} p50 {} p99 {} max {}",
            slowdown.min, slowdown.p50, slowdown.p99, slowdown.max
        )?;
    }
    let latency = &results.latency;
    if latency.frames > 0 {
        writeln!(
            out,
            "frame latency us    min {} p50 {} p99 {} max {}",
            us(latency.min_ps),
            us(latency.p50_ps),
            us(latency.p99_ps),
            us(latency.max_ps)
        )?;
    }
    writeln!(out, "dropped frames      {}", all.dropped_frames)?;
    writeln!(out, "resent frames       {}", all.resent_frames)?;
    writeln!(out, "marked with CE      {}", all.ecn_marked_frames)?;
    writeln!(
        out,
        "PFC frames          {} of switches; hosts were paused for {} us in all",
        all.pfc_tx_frames,
        us(all.host_paused_ps)
    )?;
    for it in &results.expectations {
        let word = match (&results.ending, it.passed) {
            (Ending::Interrupted, _) => "not judged:",
            (_, true) => "as expected:",
            (_, false) => "NOT AS EXPECTED:",
        };
        let source = if it.source.is_empty() { "" } else { &format!("  ({})", it.source) };
        writeln!(out, "{word} {}{source}", expectation(it))?;
    }
    Ok(())
}
