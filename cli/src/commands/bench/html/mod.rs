//! The result as one page of tables and plots that loads no other file.
//!
//! The HTML is well-formed XML too, which the tests check.
//!
//! Source: RFC 2544 §26 (reporting formats); docs/bench.md.

use std::fmt::Write as _;

use weft_views::figures::grouped;
use weft_views::page::{head, table};
use weft_views::svg::{Draw, Plot, Series, escape, place};

use super::result::{PortsResult, SizeResult, Throughput, limit_words};
use super::text::{mbps, percent, us, warnings};

#[must_use]
pub fn page(result: &PortsResult) -> String {
    let mut out = String::new();
    let title = format!("weft bench: {} to {}", result.tx.device, result.rx.device);
    head(&title, "", &mut out);
    for warning in warnings(result) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&warning));
    }
    about(result, &mut out);
    throughputs(result, &mut out);
    latencies(result, &mut out);
    losses(result, &mut out);
    bursts(result, &mut out);
    totals(result, &mut out);
    out.push_str("</body></html>\n");
    out
}

fn about(result: &PortsResult, out: &mut String) {
    let (machine, plan) = (&result.machine, &result.plan);
    let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    let kind = if machine.is_virtual { " (virtual machine)" } else { "" };
    let ways = if plan.bidirectional { "both ways, rates of each" } else { "one way" };
    let rows = [
        ("weft", machine.weft.to_owned()),
        ("Started", machine.started()),
        ("Processor", format!("{}, {} to use{kind}", or(&machine.cpu), machine.cpus)),
        ("Governor", or(&machine.governor)),
        ("Kernel", or(&machine.kernel)),
        ("Sending port", result.tx.words()),
        ("Receiving port", result.rx.words()),
        ("Frames", format!("{}, {ways}", plan.format)),
        (
            "Trials",
            format!(
                "{} ms each, learning frames {} ms before, {} ms for frames under way; searches to {} % \
             of the generator's rate, {} times",
                plan.trial_ms,
                plan.settle_ms,
                plan.drain_ms,
                percent(plan.resolution_ppm),
                plan.repetitions
            ),
        ),
    ];
    out.push_str("<h2>Where and how</h2>\n");
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    table(&["", ""], &rows, out);
    let _ = writeln!(out, "<p>Command: <code>{}</code></p>", escape(&machine.command_line()));
}

fn throughputs(result: &PortsResult, out: &mut String) {
    let some: Vec<_> = result.sizes.iter().filter(|size| size.throughput.is_some()).collect();
    if some.is_empty() {
        return;
    }
    out.push_str("<h2>Throughput (RFC 2544 §26.1)</h2>\n");
    let mut rows = Vec::new();
    for size in &some {
        for (name, found) in [("NDR", &size.throughput), ("PDR", &size.partial)] {
            let Some(found) = found else { continue };
            rows.push(throughput_row(size, name, found));
        }
    }
    let count = some.len();
    let series = |name: &str, of: &dyn Fn(&SizeResult) -> Option<u64>| Series {
        name: name.to_owned(),
        points: some
            .iter()
            .enumerate()
            .filter_map(|(at, size)| {
                let fps = of(size)?;
                let words = format!("{name}, {} bytes: {} frames/s", size.size, grouped(fps));
                Some((place(at, count), float(fps), words))
            })
            .collect(),
    };
    let plot = Plot {
        title: "Throughput by frame size".to_owned(),
        x_label: "bytes of a frame, with FCS",
        y_label: "frames a second",
        x_ticks: names(&some),
        series: vec![
            series("NDR", &|size| Some(size.throughput.as_ref()?.median_fps)),
            series("PDR", &|size| Some(size.partial.as_ref()?.median_fps)),
            series("generator", &|size| Some(size.generator_fps)),
        ],
        draw: Draw::Bars,
        log: false,
    };
    out.push_str(&plot.svg());
    let head = ["Bytes", "Rate", "Frames/s", "Mbit/s", "Least", "Most", "Passes up to", "Limit"];
    table(&head, &rows, out);
}

fn throughput_row(size: &SizeResult, name: &str, found: &Throughput) -> Vec<String> {
    vec![
        size.size.clone(),
        name.to_owned(),
        grouped(found.median_fps),
        mbps(found.median_bps),
        grouped(found.least_fps),
        grouped(found.most_fps),
        format!("{} % lost", percent(found.accepted_ppm)),
        limit_words(found),
    ]
}

fn latencies(result: &PortsResult, out: &mut String) {
    let some: Vec<_> =
        result.sizes.iter().filter_map(|size| Some((size, size.latency.as_ref()?))).collect();
    let tagged: Vec<_> = result
        .sizes
        .iter()
        .filter_map(|size| Some((size, size.latency_tagged.as_ref()?)))
        .collect();
    if !some.is_empty() {
        let load = percent(result.plan.latency_load_ppm);
        let _ = writeln!(out, "<h2>Latency at {load} % of the throughput</h2>");
        // Evenly spaced: on a linear axis the tail, from p99 on, would be one point.
        let ticks = some.first().map_or(Vec::new(), |(_, latency)| {
            let count = latency.curve_ns.len();
            let tick = |(at, (ppm, _)): (usize, &(u64, u64))| (place(at, count), percent(*ppm));
            latency.curve_ns.iter().enumerate().map(tick).collect()
        });
        let series = some.iter().map(|(size, latency)| Series {
            name: format!("{} bytes", size.size),
            points: latency
                .curve_ns
                .iter()
                .enumerate()
                .map(|(at, &(ppm, ns))| {
                    let words =
                        format!("{} bytes: {} % within {} us", size.size, percent(ppm), us(ns));
                    (place(at, latency.curve_ns.len()), float(ns), words)
                })
                .collect(),
        });
        let plot = Plot {
            title: "Latency by percentile".to_owned(),
            x_label: "percent of the frames within",
            y_label: "nanoseconds",
            x_ticks: ticks,
            series: series.collect(),
            draw: Draw::Lines,
            // Tails may be orders of magnitude above the median.
            log: true,
        };
        out.push_str(&plot.svg());
        let row = |(size, l): &(&SizeResult, &super::result::LatencyResult)| {
            let mut row = vec![size.size.clone(), grouped(l.trial.offered_fps), grouped(l.frames)];
            let figures = [l.min_ns, l.mean_ns, l.p50_ns, l.p99_ns, l.p999_ns, l.max_ns];
            row.extend(figures.map(us));
            row.push(percent(l.trial.lost_ppm()));
            row
        };
        let head = [
            "Bytes", "Frames/s", "Frames", "Least us", "Mean", "p50", "p99", "p99.9", "Most",
            "Lost %",
        ];
        table(&head, &some.iter().map(row).collect::<Vec<_>>(), out);
    }
    if !tagged.is_empty() {
        out.push_str("<h2>Latency of tagged frames at the throughput (RFC 2544 §26.2)</h2>\n");
        let row = |(size, t): &(&SizeResult, &super::result::TaggedResult)| {
            let mut row =
                vec![size.size.clone(), grouped(t.fps), grouped(t.trials), grouped(t.missing)];
            row.extend([t.mean_ns, t.min_ns, t.max_ns].map(us));
            row
        };
        let head = ["Bytes", "Frames/s", "Tagged frames", "Missing", "Mean us", "Least", "Most"];
        table(&head, &tagged.iter().map(row).collect::<Vec<_>>(), out);
    }
}

fn losses(result: &PortsResult, out: &mut String) {
    let some: Vec<_> = result.sizes.iter().filter(|size| !size.loss.is_empty()).collect();
    if some.is_empty() {
        return;
    }
    out.push_str("<h2>Loss over load (RFC 2544 §26.3)</h2>\n");
    let series = some.iter().map(|size| Series {
        name: format!("{} bytes", size.size),
        points: size
            .loss
            .iter()
            .map(|point| {
                let (lost, fps) = (percent(point.lost_ppm()), grouped(point.offered_fps));
                let words = format!("{} bytes: {lost} % of {fps} frames/s", size.size);
                // Relative to each size's own maximum, so that all sizes share an axis.
                let load = ratio(point.offered_fps, size.generator_fps);
                (load, ratio(point.lost_ppm(), 10_000), words)
            })
            .collect(),
    });
    let plot = Plot {
        title: "Loss over load".to_owned(),
        x_label: "offered load, percent of the generator's most",
        y_label: "percent lost",
        x_ticks: (0..=5).map(|fifth| (ratio(fifth, 5), (fifth * 20).to_string())).collect(),
        series: series.collect(),
        draw: Draw::Lines,
        log: false,
    };
    out.push_str(&plot.svg());
    let mut rows = Vec::new();
    for size in some {
        for point in &size.loss {
            rows.push(vec![
                size.size.clone(),
                point.asked_fps.map_or("all".to_owned(), grouped),
                grouped(point.offered_fps),
                grouped(point.sent_frames),
                grouped(point.received_frames),
                percent(point.lost_ppm()),
            ]);
        }
    }
    table(&["Bytes", "Asked for, frames/s", "Offered", "Sent", "Received", "Lost %"], &rows, out);
}

fn bursts(result: &PortsResult, out: &mut String) {
    let rows: Vec<_> = result
        .sizes
        .iter()
        .filter_map(|size| {
            let burst = size.burst.as_ref()?;
            Some(vec![
                size.size.clone(),
                grouped(burst.mean_frames),
                grouped(burst.most_tried_frames),
                grouped(burst.frames.len() as u64),
            ])
        })
        .collect();
    if !rows.is_empty() {
        out.push_str("<h2>Back-to-back frames (RFC 2544 §26.4)</h2>\n");
        table(&["Bytes", "Longest burst, mean", "Longest tried", "Searches"], &rows, out);
    }
}

fn totals(result: &PortsResult, out: &mut String) {
    let row = |size: &SizeResult| {
        let t = size.totals;
        let mut row = vec![size.size.clone()];
        let counts = [t.trials, t.sent, t.received, t.duplicates, t.reordered, t.corrupt, t.late];
        row.extend(counts.map(grouped));
        row
    };
    out.push_str("<h2>All trials</h2>\n");
    let head = ["Bytes", "Trials", "Sent", "Came", "Twice", "Out of order", "Damaged", "Too late"];
    table(&head, &result.sizes.iter().map(row).collect::<Vec<_>>(), out);
}

/// Ticks with the names of sizes, evenly spaced along an axis.
fn names(sizes: &[&SizeResult]) -> Vec<(f64, String)> {
    let count = sizes.len();
    sizes.iter().enumerate().map(|(at, size)| (place(at, count), size.size.clone())).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a height on a page")]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::float_arithmetic, reason = "a place on a page")]
fn ratio(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

#[cfg(test)]
mod tests;
