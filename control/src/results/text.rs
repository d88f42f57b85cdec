//! Results in short, for a terminal.
//!
//! Shape: [`write`] → lines; what was expected and missed comes last, where it is seen.
//! Units: as printed.
//! Source: docs/results.md "Text".

use std::io::{self, Write};

use weft_sim::results::flow::Ranks;
use weft_sim::results::{Ending, ExpectResult, Results};

use crate::views::figures::{gbps, grouped, printable, us};

/// Flows that are named when they are not delivered.
const NAMED: usize = 5;

/// The summary.
///
/// # Errors
/// The writer's.
pub fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let sum = &results.summary;
    let name = printable(&results.scenario);
    writeln!(
        out,
        "{name}, seed {}: {} at {} us",
        results.seed,
        results.ending.words(),
        us(results.end_ps)
    )?;
    if let Ending::Stalled { waiting } = &results.ending {
        for entry in waiting {
            let (who, on) = (printable(&entry.who), printable(&entry.on));
            writeln!(out, "  {who} waits for {on} since {} us", us(entry.since_ps))?;
        }
    }
    let delivered = grouped(sum.flows_delivered);
    let bytes = grouped(sum.delivered_bytes);
    writeln!(out, "flows       {delivered} of {} delivered, {bytes} bytes", grouped(sum.flows))?;
    if sum.delivered_bytes > 0 {
        writeln!(
            out,
            "goodput     {} Gb/s over {} us",
            gbps(sum.goodput_bps),
            us(sum.makespan_ps)
        )?;
    }
    for (name, ranks) in [("FCT", sum.fct_ps), ("FCT, acked", sum.fct_sender_ps)] {
        if let Some(ranks) = ranks {
            writeln!(out, "{name:<11} {} us", said(&ranks, |ps| us(*ps)))?;
        }
    }
    if let Some(ranks) = &sum.slowdown {
        writeln!(out, "slowdown    {}", said(ranks, ToString::to_string))?;
    }
    let latency = &results.latency;
    if latency.frames > 0 {
        let [p50, p99, max] = [latency.p50_ps, latency.p99_ps, latency.max_ps].map(us);
        let frames = grouped(latency.frames);
        writeln!(out, "latency     p50 {p50}, p99 {p99}, most {max} us of {frames} frames")?;
    }
    network(results, out)?;
    for expectation in &results.expectations {
        writeln!(out, "{}", expected(expectation))?;
    }
    Ok(())
}

/// What switches and hosts did, and what did not come.
fn network(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let sum = &results.summary;
    writeln!(
        out,
        "switches    {} frames dropped, {} marked, {} PFC frames, paused for {} us; deepest queue {} bytes",
        grouped(sum.dropped_frames),
        grouped(sum.ecn_marked_frames),
        grouped(sum.pfc_tx_frames),
        us(sum.switch_paused_ps),
        grouped(sum.queue_depth_max_bytes)
    )?;
    writeln!(
        out,
        "hosts       {} frames sent again, paused for {} us",
        grouped(sum.resent_frames),
        us(sum.host_paused_ps)
    )?;
    let late = results.flows.iter().filter(|flow| flow.delivered_ps.is_none());
    for flow in late.take(NAMED) {
        let (from, to) = (printable(results.host(flow.from)), printable(results.host(flow.to)));
        writeln!(
            out,
            "not delivered: flow {} from {from} to {to}, {} bytes",
            flow.id,
            grouped(flow.bytes)
        )?;
    }
    for switch in results.switches.iter().filter(|switch| switch.ledger.imbalance_frames != 0) {
        let frames = switch.ledger.imbalance_frames;
        writeln!(
            out,
            "LEDGER of {}: {frames} frames are not accounted for",
            printable(&switch.name)
        )?;
    }
    Ok(())
}

fn said<T>(ranks: &Ranks<T>, text: impl Fn(&T) -> String) -> String {
    let Ranks { min, p50, p99, max, .. } = ranks;
    format!("first {}, p50 {}, p99 {}, last {}", text(min), text(p50), text(p99), text(max))
}

/// One line on an expectation.
#[must_use]
pub fn expected(expectation: &ExpectResult) -> String {
    let ExpectResult { metric, found, wanted, tolerance, passed, source, .. } = expectation;
    let verdict = if *passed { "ok  " } else { "FAIL" };
    let found = found.map_or("no such figure".to_owned(), |found| found.to_string());
    let source = printable(source);
    format!(
        "{verdict} {}: {found}, expected {wanted} ({}), from {source}",
        printable(metric),
        printable(tolerance)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;
    use weft_sim::results::Waiting;

    fn text(results: &Results) -> String {
        let mut out = Vec::new();
        write(results, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_summary_tells_what_came() {
        let text = text(&example::results());
        for part in [
            "made up, seed 7: the scenario's time is over at 100 us",
            "3 of 4 delivered, 3,003,000 bytes",
            "FCT         first 31, p50 61.9, p99 92.8, last 92.8 us",
            "24 marked, 8 PFC frames, paused for 8 us; deepest queue 23,040 bytes",
            "6 frames sent again",
            "not delivered: flow 3 from h0 to ",
            "ok   fct_last_us: 93, expected 92.9 (0.3%), from closed form <of> somebody",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(
            !text.contains('\u{1b}') && text.lines().count() < 20,
            "a name is no control sequence"
        );
    }

    #[test]
    fn a_stall_says_who_waits_for_what_and_a_miss_is_marked() {
        let mut results = example::results();
        let waiting = Waiting {
            who: "s1 port 2".into(),
            on: "the end of a pause".into(),
            since_ps: 5_000_000,
        };
        results.ending = Ending::Stalled { waiting: vec![waiting] };
        for expectation in &mut results.expectations {
            (expectation.passed, expectation.found) = (false, None);
        }
        let text = text(&results);
        assert!(text.contains("  s1 port 2 waits for the end of a pause since 5 us"), "{text}");
        assert!(text.contains("FAIL fct_last_us: no such figure"), "{text}");
    }
}
