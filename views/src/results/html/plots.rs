//! Pictures of the page: times of flows, queues, pauses and rates over time, who sent to whom, links, parts of latency.
//!
//! [`all`] appends each picture as a `figure` with an id; marks carry their figures as titles.
//!
//! Source: docs/results.md "The page".
#![expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "places on a page")]

use std::cmp::Reverse;
use std::fmt::Write as _;

use weft_sim::results::flow::Ranks;
use weft_sim::results::network::LatencyParts;
use weft_sim::results::{Results, SeriesKind, SeriesResult};

use crate::figures::{gbps, grouped, us};
use crate::svg::{Draw, Plot, Series, escape, place};

/// Most series of one picture: as many as there are colours.
const SERIES: usize = 8;
/// Most points of a distribution.
const STEPS: usize = 200;
/// Most bars of one picture.
const BARS: usize = 24;
/// Most cells of the matrix in each direction.
const SIDE: usize = 64;

/// Appends all pictures for which the results have figures.
pub fn all(results: &Results, out: &mut String) {
    fct(results, out);
    slowdown(results, out);
    for (kind, id, title, y_label, words) in [
        (
            SeriesKind::QueueDepthBytes,
            "depth",
            "Queue depth over time",
            "most bytes in an interval",
            &(|bytes| format!("{} bytes", grouped(bytes))) as &dyn Fn(u64) -> String,
        ),
        (SeriesKind::PausedPs, "pause", "Pause over time", "us paused in an interval", &|ps| {
            format!("{} us", us(ps))
        }),
        (SeriesKind::ThroughputBps, "throughput", "Throughput over time", "Gb/s", &|bps| {
            format!("{} Gb/s", gbps(bps))
        }),
    ] {
        over_time(results, kind, id, title, y_label, words, out);
    }
    matrix(results, out);
    links(results, out);
    parts(results, out);
}

/// Names and values of ranks; names are those of the JSON.
pub fn named<T: Copy>(ranks: &Ranks<T>) -> [(&'static str, T); 7] {
    let Ranks { min, p50, p90, p95, p99, p999, max } = *ranks;
    [
        ("min", min),
        ("p50", p50),
        ("p90", p90),
        ("p95", p95),
        ("p99", p99),
        ("p999", p999),
        ("max", max),
    ]
}

fn figure(id: &str, title: &str, text: Option<&str>, svg: &str, out: &mut String) {
    let text = text.map(|text| format!("<figcaption>{}</figcaption>", escape(text)));
    let text = text.unwrap_or_default();
    let title = escape(title);
    let _ = writeln!(out, "<figure id=\"{id}\"><h2>{title}</h2>{text}{svg}</figure>");
}

/// Marks at 0 and at each fifth of an axis up to `most`, labelled by `words`.
fn axis(most: u64, words: impl Fn(u64) -> String) -> Vec<(f64, String)> {
    // In u128: picoseconds times five can exceed 64 bits.
    let at = |fifth: u64| u64::try_from(u128::from(most) * u128::from(fifth) / 5).unwrap_or(most);
    (0..=5).map(|fifth| (fifth as f64 / 5.0, words(at(fifth)))).collect()
}

/// Microseconds for the label of an axis, which has little room: cut to nanoseconds, or from a millisecond on to
/// microseconds.
fn short_us(ps: u64) -> String {
    us(if ps >= 1_000_000_000 { ps / 1_000_000 * 1_000_000 } else { ps / 1_000 * 1_000 })
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn fct(results: &Results, out: &mut String) {
    let mut times: Vec<(u64, u32)> =
        results.flows.iter().filter_map(|flow| Some((flow.fct_ps?, flow.id))).collect();
    times.sort_unstable();
    let Some(&(most, _)) = times.last() else { return };
    let count = times.len();
    let steps = count.min(STEPS);
    let points = (1..=steps).filter_map(|step| {
        // Every step ends at a flow that was measured: no point is interpolated.
        let rank = (count * step).div_ceil(steps);
        let (ps, id) = *times.get(rank - 1)?;
        let percent = rank as f64 * 100.0 / count as f64;
        let (rank, count) = (grouped(rank as u64), grouped(count as u64));
        let words = format!("{} us: flow {id}, number {rank} of {count}", us(ps));
        Some((share(ps, most), percent, words))
    });
    let plot = Plot {
        title: "Distribution of flow completion times".to_owned(),
        x_label: "FCT, us",
        y_label: "percent of flows that took no longer",
        x_ticks: axis(most, short_us),
        series: vec![Series { name: "FCT".to_owned(), points: points.collect() }],
        draw: Draw::Curves,
        log: false,
    };
    figure("fct", "Distribution of flow completion times", None, &plot.svg(), out);
}

fn slowdown(results: &Results, out: &mut String) {
    let bins = &results.sizes;
    if bins.is_empty() {
        return;
    }
    let series = ["p50", "p95", "p99", "max"].map(|rank| {
        let points = bins.iter().enumerate().filter_map(|(at, bin)| {
            let (_, value) = named(&bin.slowdown).into_iter().find(|(name, _)| *name == rank)?;
            let (least, most) = (grouped(bin.least_bytes), grouped(bin.most_bytes));
            let words =
                format!("{rank} {value}: {} flows of {least} to {most} bytes", grouped(bin.flows));
            Some((place(at, bins.len()), value.0 as f64 / 1e9, words))
        });
        Series { name: rank.to_owned(), points: points.collect() }
    });
    let ticks = bins.iter().enumerate();
    let plot = Plot {
        title: "Slowdown by size of flow".to_owned(),
        x_label: "bytes of a flow, up to",
        y_label: "FCT over FCT alone",
        x_ticks: ticks.map(|(at, bin)| (place(at, bins.len()), bytes(bin.most_bytes))).collect(),
        series: series.into(),
        draw: Draw::Lines,
        log: false,
    };
    figure("slowdown", "Slowdown by size of flow", None, &plot.svg(), out);
}

/// Bytes for the label of an axis.
fn bytes(bytes: u64) -> String {
    match bytes {
        1_000_000.. => format!("{} MB", bytes / 100_000 / 10),
        1_000.. => format!("{} kB", bytes / 1_000),
        _ => format!("{bytes} B"),
    }
}

/// The highest values of a series, or its means if it has no highest ones.
fn shown(series: &SeriesResult) -> &[u64] {
    if series.max.is_empty() { &series.mean } else { &series.max }
}

fn over_time(
    results: &Results,
    kind: SeriesKind,
    id: &str,
    title: &str,
    y_label: &'static str,
    words: &dyn Fn(u64) -> String,
    out: &mut String,
) {
    let mut of: Vec<&SeriesResult> =
        results.series.iter().filter(|series| series.kind == kind).collect();
    if of.is_empty() {
        return;
    }
    let sum = |series: &SeriesResult| shown(series).iter().copied().fold(0, u64::saturating_add);
    of.sort_by_cached_key(|series| Reverse(sum(series)));
    let all = of.len();
    of.truncate(SERIES);
    // Labels of the axes have these units: bytes, Gb/s, us.
    let unit = match kind {
        SeriesKind::QueueDepthBytes => 1.0,
        SeriesKind::ThroughputBps => 1e9,
        SeriesKind::PausedPs => 1e6,
    };
    let end = results.end_ps;
    let series = of.into_iter().map(|series| {
        let place = series.place();
        let points = (0u64..).zip(shown(series)).map(|(at, &value)| {
            let from = at.saturating_mul(series.interval_ps);
            let to = from.saturating_add(series.interval_ps).min(end);
            let words = format!("{place}: {} from {} to {} us", words(value), us(from), us(to));
            // A value of an interval stands at its middle.
            (share(u64::midpoint(from, to), end), value as f64 / unit, words)
        });
        Series { points: points.collect(), name: place }
    });
    let series: Vec<Series> = series.collect();
    let text = (all > SERIES)
        .then(|| format!("The {SERIES} with most of {} series.", grouped(all as u64)));
    let plot = Plot {
        title: title.to_owned(),
        x_label: "virtual time, us",
        y_label,
        x_ticks: axis(end, short_us),
        series,
        draw: Draw::Curves,
        log: false,
    };
    figure(id, title, text.as_deref(), &plot.svg(), out);
}

fn matrix(results: &Results, out: &mut String) {
    const BOX: f64 = 480.0;
    let hosts = results.hosts.len();
    if results.matrix.is_empty() || hosts == 0 {
        return;
    }
    // Neighbours by number share a cell, so that the matrix has 64 cells a side at most.
    let each = hosts.div_ceil(SIDE);
    let side = hosts.div_ceil(each);
    let mut sums = std::collections::BTreeMap::new();
    for cell in &results.matrix {
        let group = |host: u32| usize::try_from(host).unwrap_or(usize::MAX) / each;
        let sum: &mut u64 = sums.entry((group(cell.from), group(cell.to))).or_default();
        *sum = sum.saturating_add(cell.bytes);
    }
    let most = sums.values().copied().max().unwrap_or(1);
    let name = |group: usize| {
        let host = |host: usize| results.host(u32::try_from(host).unwrap_or(u32::MAX));
        let last = (group * each + each).min(hosts) - 1;
        match each {
            1 => host(group).to_owned(),
            _ => format!("{} to {}", host(group * each), host(last)),
        }
    };
    let size = BOX / side as f64;
    let mut svg =
        "<svg viewBox=\"0 0 720 520\" role=\"img\" aria-label=\"Traffic matrix\">".to_owned();
    let _ = write!(
        svg,
        "<rect class=\"grid\" x=\"78\" y=\"12\" width=\"{BOX}\" height=\"{BOX}\" fill=\"none\"/>\
         <text class=\"middle\" x=\"318\" y=\"512\">receiver</text>\
         <text class=\"middle\" transform=\"rotate(-90 60 252)\" x=\"60\" y=\"252\">sender</text>"
    );
    for ((from, to), bytes) in sums.into_iter().filter(|&((from, to), _)| from < side && to < side)
    {
        let (x, y) = (78.0 + size * to as f64, 12.0 + size * from as f64);
        let words = format!("{} to {}: {} bytes", name(from), name(to), grouped(bytes));
        let _ = write!(
            svg,
            "<rect class=\"c0 cell\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{size:.1}\" height=\"{size:.1}\" \
             fill-opacity=\"{:.2}\"><title>{}</title></rect>",
            // Even a few bytes are to be seen.
            0.15 + 0.85 * share(bytes, most),
            escape(&words)
        );
    }
    svg.push_str("</svg>");
    let text = (each > 1).then(|| format!("A cell is {each} x {each} hosts."));
    figure("matrix", "Traffic matrix", text.as_deref(), &svg, out);
}

fn links(results: &Results, out: &mut String) {
    let mut ways: Vec<_> = results
        .links
        .iter()
        .flat_map(|link| [(&link.a, &link.b, link.a_to_b), (&link.b, &link.a, link.b_to_a)])
        .collect();
    if ways.is_empty() {
        return;
    }
    ways.sort_by_key(|(.., way)| Reverse(way.busy_ps));
    let all = ways.len();
    ways.truncate(BARS);
    let count = ways.len();
    let points = ways.iter().enumerate().map(|(at, (from, to, way))| {
        let words = format!(
            "{} port {} to {} port {}: utilisation {}, {} frames, {} bytes",
            from.node,
            from.port,
            to.node,
            to.port,
            way.utilisation,
            grouped(way.frames),
            grouped(way.bytes)
        );
        (place(at, count), way.utilisation.0 as f64 / 1e7, words)
    });
    let plot = Plot {
        title: "Link utilisation".to_owned(),
        x_label: "links, each way, the busiest first",
        y_label: "percent of the run that it was busy",
        x_ticks: (1..=count).map(|at| (place(at - 1, count), at.to_string())).collect(),
        series: vec![Series { name: "busy".to_owned(), points: points.collect() }],
        draw: Draw::Bars,
        log: false,
    };
    let text = (all > BARS).then(|| format!("The {BARS} busiest of {}.", grouped(all as u64)));
    figure("links", "Link utilisation", text.as_deref(), &plot.svg(), out);
}

fn parts(results: &Results, out: &mut String) {
    let Some(all) = &results.parts else { return };
    let of_hosts = results.hosts.iter().filter_map(|host| Some((host.name.as_str(), host.parts?)));
    let mut bars: Vec<(&str, LatencyParts)> =
        of_hosts.filter(|(_, parts)| parts.frames > 0).collect();
    let count = bars.len();
    bars.sort_by_cached_key(|(_, parts)| Reverse(parts.total_ps / parts.frames.max(1)));
    bars.truncate(BARS / 2);
    let text = (count > bars.len()).then(|| {
        format!("All hosts, and the {} of {count} whose frames took longest.", bars.len())
    });
    // After the sorting: the bar of all hosts always comes first.
    bars.insert(0, ("all", *all));
    let names: Vec<_> = all.parts().iter().map(|&(name, _)| name).collect();
    let series = names.iter().enumerate().map(|(part, name)| Series {
        name: (*name).to_owned(),
        points: bars
            .iter()
            .enumerate()
            .map(|(at, (host, parts))| {
                let ps = parts.parts().get(part).map_or(0, |&(_, ps)| ps);
                let mean = ps / parts.frames.max(1);
                let frames = grouped(parts.frames);
                let words = format!("{host}: {name} {} us a frame, mean of {frames}", us(mean));
                (place(at, bars.len()), mean as f64 / 1e6, words)
            })
            .collect(),
    });
    let ticks = bars.iter().enumerate();
    // The label under a bar has no room for more.
    let name = |name: &str| name.chars().take(8).collect::<String>();
    let plot = Plot {
        title: "What latency is made of".to_owned(),
        x_label: "receiving host",
        y_label: "us a frame",
        x_ticks: ticks.map(|(at, (host, _))| (place(at, bars.len()), name(host))).collect(),
        series: series.collect(),
        draw: Draw::Stacked,
        log: false,
    };
    figure("parts", "What latency is made of", text.as_deref(), &plot.svg(), out);
}
