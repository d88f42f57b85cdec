//! The result for a terminal: a line for each figure of each size.
//!
//! Also formats figures and warnings for the HTML page.

use std::io::{self, Write};

use weft_views::figures::grouped;

use super::result::{PortsResult, SizeResult, Throughput, limit_words};
use super::search::Offered;

/// Formats parts per million as percent.
#[must_use]
pub fn percent(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats nanoseconds as microseconds with one decimal.
#[must_use]
pub fn us(ns: u64) -> String {
    format!("{}.{}", grouped(ns / 1_000), ns % 1_000 / 100)
}

/// Formats bits a second as megabits a second.
#[must_use]
pub fn mbps(bps: u64) -> String {
    grouped(bps / 1_000_000)
}

/// Reasons to doubt the figures: virtual interfaces, a build without optimisation, unsteady searches, missing sizes.
#[must_use]
pub fn warnings(result: &PortsResult) -> Vec<String> {
    let mut told = Vec::new();
    for link in [&result.tx, &result.rx] {
        if link.is_virtual == Some(true) {
            let device = &link.device;
            told.push(format!(
                "{device} is a virtual interface: the results do not apply to hardware"
            ));
        }
    }
    if !result.machine.optimised {
        told.push("weft was built without optimisation: the generator is slow".to_owned());
    }
    if result.interrupted {
        told.push("interrupted: sizes that were not finished are missing".to_owned());
    }
    let is_unsteady =
        |found: &Option<Throughput>| found.as_ref().is_some_and(|found| !found.steady);
    let unsteady: Vec<_> = result
        .sizes
        .iter()
        .filter(|size| is_unsteady(&size.throughput) || is_unsteady(&size.partial))
        .map(|size| size.size.as_str())
        .collect();
    if !unsteady.is_empty() {
        told.push(format!(
            "the same rate passed once and not another time (sizes {}): is the machine busy elsewhere? The figures may be too low",
            unsteady.join(", ")
        ));
    }
    told.extend(result.left_out.iter().map(|left| format!("{}: {}", left.size, left.why)));
    told
}

/// Writes the result as text.
///
/// # Errors
/// Those of `out`.
pub fn print(result: &PortsResult, out: &mut dyn Write) -> io::Result<()> {
    let arrow = if result.plan.bidirectional { "<->" } else { "->" };
    let (tx, rx) = (result.tx.words(), result.rx.words());
    writeln!(out, "{} frames, {tx} {arrow} {rx}", result.plan.format)?;
    for warning in warnings(result) {
        writeln!(out, "note: {warning}")?;
    }
    for size in &result.sizes {
        print_size(size, out)?;
    }
    Ok(())
}

fn print_size(size: &SizeResult, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{} bytes with FCS", size.size)?;
    writeln!(out, "  generator    {} frames/s at most", grouped(size.generator_fps))?;
    for (name, found) in [("NDR", &size.throughput), ("PDR", &size.partial)] {
        if let Some(found) = found {
            writeln!(out, "  {name}          {}", throughput(found))?;
        }
    }
    if let Some(latency) = &size.latency {
        writeln!(
            out,
            "  latency      p50 {} p99 {} p99.9 {} max {} us at {} frames/s",
            us(latency.p50_ns),
            us(latency.p99_ns),
            us(latency.p999_ns),
            us(latency.max_ns),
            grouped(latency.trial.offered_fps)
        )?;
    }
    if let Some(tagged) = &size.latency_tagged {
        let (mean, min, max) = (us(tagged.mean_ns), us(tagged.min_ns), us(tagged.max_ns));
        let (fps, came) = (grouped(tagged.fps), tagged.trials - tagged.missing);
        writeln!(
            out,
            "  at all of it mean {mean} us ({min} to {max}) of {came} tagged frames at {fps} frames/s"
        )?;
    }
    if !size.loss.is_empty() {
        let words: Vec<_> = size.loss.iter().map(loss).collect();
        writeln!(out, "  loss         {}", words.join(", "))?;
    }
    if let Some(burst) = &size.burst {
        let whole = if burst.mean_frames >= burst.most_tried_frames {
            " (all that were tried)"
        } else {
            ""
        };
        writeln!(out, "  back to back {} frames{whole}", grouped(burst.mean_frames))?;
    }
    let totals = size.totals;
    writeln!(
        out,
        "  {} trials: {} sent, {} came, {} twice, {} out of order, {} damaged, {} too late",
        totals.trials,
        grouped(totals.sent),
        grouped(totals.received),
        grouped(totals.duplicates),
        grouped(totals.reordered),
        grouped(totals.corrupt),
        grouped(totals.late)
    )
}

fn throughput(found: &Throughput) -> String {
    format!(
        "{} frames/s, {} Mbit/s ({} to {}), {} % lost passes; {}",
        grouped(found.median_fps),
        mbps(found.median_bps),
        grouped(found.least_fps),
        grouped(found.most_fps),
        percent(found.accepted_ppm),
        limit_words(found)
    )
}

/// Formats a point of the loss curve.
fn loss(point: &Offered) -> String {
    format!("{} % at {}", percent(point.lost_ppm()), grouped(point.offered_fps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        for (number, want) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_488_095, "1,488,095")] {
            assert_eq!(grouped(number), want);
        }
        for (ppm, want) in [(0, "0"), (1, "0.0001"), (5_000, "0.5"), (1_000_000, "100")] {
            assert_eq!(percent(ppm), want);
        }
        assert_eq!(
            (us(999), us(12_345), mbps(1_500_000)),
            ("0.9".into(), "12.3".into(), "1".into())
        );
    }
}
