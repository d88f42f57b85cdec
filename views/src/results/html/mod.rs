//! Results as one page of tables and pictures, which loads nothing else.
//!
//! [`page`] makes HTML that is also well-formed XML. The page carries its JSON: each figure of a table has its JSON
//! pointer (`data-json`), and is that number in another unit (`data-places`).
//!
//! Source: docs/results.md "The page".

mod plots;
mod topology;

use std::fmt::Write as _;

use weft_sim::results::{Ending, Results};

use crate::figures::{grouped, scaled, us};
use crate::page::{Cell, TIP_SCRIPT, TIP_STYLE, figures, head, script_json, table};
use crate::svg::escape;

/// Most flows, and most pairs of hosts, in the JSON of a page; the JSON file has all.
const JSON_ROWS: usize = 2_000;
/// Most rows of a table of the page.
const ROWS: usize = 50;

const STYLE: &str = "
.fail { color: #c0392b; font-weight: 600; } figure { margin: 0 0 1.5rem; }
.node { stroke: var(--ink); fill: var(--soft); } .wire { fill: none; } .cell { stroke: var(--paper); stroke-width: .5; }
";

/// The page, from its head to its script.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut out = String::new();
    let style = [TIP_STYLE, STYLE].concat();
    head(&format!("weft sim: {}", results.scenario), &style, &mut out);
    about(results, &mut out);
    expectations(results, &mut out);
    summary(results, &mut out);
    plots::all(results, &mut out);
    topology::draw(results, &mut out);
    hosts(results, &mut out);
    switches(results, &mut out);
    flows(results, &mut out);
    not_modelled(results, &mut out);
    out.push_str("<div id=\"tip\" hidden=\"hidden\"></div>\n");
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"results\">{}</script>\n<script>{TIP_SCRIPT}</script>\n\
         </body></html>\n",
        embedded(results)
    );
    out
}

/// Appends a note, which stands above the table that it is about.
fn note(text: &str, out: &mut String) {
    let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(text));
}

fn embedded(results: &Results) -> String {
    if results.flows.len() <= JSON_ROWS && results.matrix.len() <= JSON_ROWS {
        return script_json(results);
    }
    let mut cut = results.clone();
    // From the end: JSON pointers of the first rows, which tables show, stay right.
    cut.flows.truncate(JSON_ROWS);
    cut.matrix.truncate(JSON_ROWS);
    script_json(&cut)
}

/// The number at `pointer`, in the unit of the JSON.
fn plain(number: u64, pointer: String) -> Cell {
    Cell::figure(grouped(number), pointer, 0)
}

/// The picoseconds at `pointer`, in microseconds.
fn micro(ps: u64, pointer: String) -> Cell {
    Cell::figure(us(ps), pointer, 6)
}

fn about(results: &Results, out: &mut String) {
    match &results.ending {
        Ending::Done => {}
        Ending::Until => note("The time that the scenario gives was over.", out),
        Ending::Interrupted => note("Interrupted: these are the results until then.", out),
        Ending::Stalled { waiting } => {
            note("Stalled: nothing would have moved again. Who waits for what:", out);
            let row = |(at, entry): (usize, &weft_sim::results::Waiting)| {
                let since = micro(entry.since_ps, format!("/ending/waiting/{at}/since_ps"));
                vec![entry.who.clone().into(), entry.on.clone().into(), since]
            };
            let rows: Vec<_> = waiting.iter().enumerate().map(row).collect();
            figures(&["Who", "Waits for", "Since, us"], &rows, out);
        }
    }
    // Never, unless the switch loses or doubles a frame: its frames are accounted for exactly once
    // (docs/spec/pipeline.md §10).
    for switch in results.switches.iter().filter(|switch| switch.ledger.imbalance_frames != 0) {
        let frames = switch.ledger.imbalance_frames;
        note(&format!("{}: {frames} frames are not accounted for", switch.name), out);
    }
    out.push_str("<h2>What was run</h2>\n");
    let mut rows = vec![
        vec!["weft".into(), results.weft.clone().into()],
        vec!["Seed".into(), Cell::figure(results.seed.to_string(), "/seed".into(), 0)],
        vec!["Ended at, us of virtual time".into(), micro(results.end_ps, "/end_ps".into())],
    ];
    for setting in &results.settings {
        rows.push(vec![setting.key.clone().into(), setting.value.clone().into()]);
    }
    figures(&["", ""], &rows, out);
    out.push_str("<p><a href=\"#not-modelled\">What is not modelled</a></p>\n");
}

fn expectations(results: &Results, out: &mut String) {
    if results.expectations.is_empty() {
        return;
    }
    out.push_str("<h2>What was expected</h2>\n");
    let missed = results.expectations.iter().filter(|entry| !entry.passed).count();
    let class = if missed == 0 { "pass" } else { "fail" };
    let all = results.expectations.len();
    let _ = writeln!(out, "<p class=\"{class}\">{} of {all} as expected.</p>", all - missed);
    let row = |(at, entry): (usize, &weft_sim::results::ExpectResult)| {
        let at = |field: &str| format!("/expectations/{at}/{field}");
        let found = match entry.found {
            Some(found) => Cell::figure(found.to_string(), at("found"), 0),
            None => "no such figure".into(),
        };
        vec![
            entry.metric.clone().into(),
            found,
            Cell::figure(entry.wanted.to_string(), at("wanted"), 0),
            entry.tolerance.clone().into(),
            if entry.passed { "passed" } else { "FAILED" }.into(),
            entry.source.clone().into(),
        ]
    };
    let rows: Vec<_> = results.expectations.iter().enumerate().map(row).collect();
    figures(&["Metric", "Found", "Expected", "Tolerance", "", "Source"], &rows, out);
}

fn summary(results: &Results, out: &mut String) {
    let sum = &results.summary;
    out.push_str("<h2>In short</h2>\n");
    let at = |field: &str| format!("/summary/{field}");
    let count = |name: &str, field: &str, value| vec![name.into(), plain(value, at(field))];
    let time = |name: &str, field: &str, value| vec![name.into(), micro(value, at(field))];
    let goodput = Cell::figure(scaled(sum.goodput_bps, 9), at("goodput_bps"), 9);
    let rows = [
        count("Flows", "flows", sum.flows),
        count("Flows delivered", "flows_delivered", sum.flows_delivered),
        count("Bytes delivered", "delivered_bytes", sum.delivered_bytes),
        time("From the first start to the last delivery, us", "makespan_ps", sum.makespan_ps),
        vec!["Goodput, Gb/s".into(), goodput],
        count("Frames sent again", "resent_frames", sum.resent_frames),
        count("Frames dropped by switches", "dropped_frames", sum.dropped_frames),
        count("Frames marked with CE", "ecn_marked_frames", sum.ecn_marked_frames),
        count("PFC frames of switches", "pfc_tx_frames", sum.pfc_tx_frames),
        time("Queues of switches paused, us over all", "switch_paused_ps", sum.switch_paused_ps),
        time("Hosts paused, us over all", "host_paused_ps", sum.host_paused_ps),
        count("Deepest queue, bytes", "queue_depth_max_bytes", sum.queue_depth_max_bytes),
    ];
    figures(&["", ""], &rows, out);
    let mut rows = Vec::new();
    for (name, field, ranks) in [
        ("FCT, us", "fct_ps", &sum.fct_ps),
        ("FCT to the acknowledgement, us", "fct_sender_ps", &sum.fct_sender_ps),
    ] {
        let Some(ranks) = ranks else { continue };
        // `named` has the ranks in the order of the columns below.
        let mut row = vec![Cell::from(name)];
        for (rank, ps) in plots::named(ranks) {
            row.push(micro(ps, format!("/summary/{field}/{rank}")));
        }
        rows.push(row);
    }
    if let Some(ranks) = &sum.slowdown {
        let mut row = vec![Cell::from("Slowdown")];
        for (rank, value) in plots::named(ranks) {
            row.push(Cell::figure(value.to_string(), format!("/summary/slowdown/{rank}"), 0));
        }
        rows.push(row);
    }
    if results.latency.frames > 0 {
        let l = &results.latency;
        let row = [("min", l.min_ps), ("p50", l.p50_ps), ("p90", l.p90_ps)].into_iter();
        let mut cells = vec![Cell::from("Latency of a frame, us")];
        cells.extend(row.map(|(name, ps)| micro(ps, format!("/latency/{name}_ps"))));
        // Latencies have no p95.
        cells.push("".into());
        let row = [("p99", l.p99_ps), ("p999", l.p999_ps), ("max", l.max_ps)].into_iter();
        cells.extend(row.map(|(name, ps)| micro(ps, format!("/latency/{name}_ps"))));
        rows.push(cells);
    }
    if !rows.is_empty() {
        figures(&["", "Least", "p50", "p90", "p95", "p99", "p99.9", "Most"], &rows, out);
    }
}

/// Appends a note if a table does not have all rows.
fn rest(shown: usize, all: usize, what: &str, out: &mut String) {
    if shown < all {
        let (shown, all) = (grouped(shown as u64), grouped(all as u64));
        note(&format!("{shown} of {all} {what}; the JSON and the CSV files have all."), out);
    }
}

fn hosts(results: &Results, out: &mut String) {
    if results.hosts.is_empty() {
        return;
    }
    out.push_str("<h2>Hosts</h2>\n");
    let counters = ["tx_frames", "rx_frames", "resent", "timeouts", "cnps_rx", "ecn_marked"];
    let row = |(number, host): (usize, &weft_sim::results::network::HostResult)| {
        let at = |field: &str| format!("/hosts/{number}/{field}");
        let mut row = vec![Cell::from(host.name.clone())];
        row.extend(counters.map(|name| match host.counters.get(name) {
            Some(&count) => plain(count, at(&format!("counters/{name}"))),
            None => "".into(),
        }));
        row.push(micro(host.paused_ps, at("paused_ps")));
        let latencies = [("p50_ps", host.latency.p50_ps), ("max_ps", host.latency.max_ps)];
        row.extend(latencies.map(|(name, ps)| match host.latency.frames {
            0 => "".into(), // it took none
            _ => micro(ps, at(&format!("latency/{name}"))),
        }));
        row
    };
    let rows: Vec<_> = results.hosts.iter().enumerate().take(ROWS).map(row).collect();
    let head = [
        "Host",
        "Sent",
        "Taken",
        "Sent again",
        "Timeouts",
        "CNPs",
        "Marked",
        "Paused, us",
        "Latency p50, us",
        "Most",
    ];
    // Above the table, where it is seen before the end of a long one.
    rest(rows.len(), results.hosts.len(), "hosts", out);
    figures(&head, &rows, out);
}

fn switches(results: &Results, out: &mut String) {
    if results.switches.is_empty() {
        return;
    }
    out.push_str("<h2>Switches: where all frames are</h2>\n");
    let row = |(number, switch): (usize, &weft_sim::results::network::SwitchResult)| {
        let at = |field: &str| format!("/switches/{number}/ledger/{field}");
        let l = &switch.ledger;
        let imbalance = Cell::figure(l.imbalance_frames.to_string(), at("imbalance_frames"), 0);
        vec![
            switch.name.clone().into(),
            plain(l.rx_frames, at("rx_frames")),
            plain(l.copies, at("copies")),
            plain(l.tx_frames, at("tx_frames")),
            plain(l.dropped_frames, at("dropped_frames")),
            plain(l.consumed_frames, at("consumed_frames")),
            plain(l.queued_frames, at("queued_frames")),
            imbalance,
        ]
    };
    let rows: Vec<_> = results.switches.iter().enumerate().take(ROWS).map(row).collect();
    let head =
        ["Switch", "Received", "Copies", "Sent", "Dropped", "PFC taken", "Queued", "Missing"];
    rest(rows.len(), results.switches.len(), "switches", out);
    figures(&head, &rows, out);
    let mut rows = Vec::new();
    for switch in &results.switches {
        for (port, of) in switch.ports.iter().enumerate() {
            for (reason, count) in &of.drops {
                let place = format!("{} port {port}", switch.name);
                rows.push(vec![place, reason.clone(), grouped(*count)]);
            }
        }
    }
    if !rows.is_empty() {
        out.push_str("<h2>Drops</h2>\n");
        let all = rows.len();
        rows.truncate(ROWS);
        rest(rows.len(), all, "rows", out);
        table(&["Where", "Reason", "Frames"], &rows, out);
    }
}

fn flows(results: &Results, out: &mut String) {
    if results.flows.is_empty() {
        return;
    }
    out.push_str("<h2>Flows</h2>\n");
    let row = |(number, flow): (usize, &weft_sim::results::flow::FlowResult)| {
        let at = |field: &str| format!("/flows/{number}/{field}");
        let or = |ps: Option<u64>, field: &str| match ps {
            Some(ps) => micro(ps, at(field)),
            None => "never".into(),
        };
        vec![
            Cell::figure(flow.id.to_string(), at("id"), 0),
            results.host(flow.from).into(),
            results.host(flow.to).into(),
            plain(flow.bytes, at("bytes")),
            or(flow.start_ps, "start_ps"),
            or(flow.fct_ps, "fct_ps"),
            micro(flow.ideal_fct_ps, at("ideal_fct_ps")),
            flow.slowdown.map_or_else(
                || "".into(),
                |slowdown| Cell::figure(slowdown.to_string(), at("slowdown"), 0),
            ),
            flow.resent_frames
                .map_or_else(|| "".into(), |resent| plain(resent, at("resent_frames"))),
        ]
    };
    let rows: Vec<_> = results.flows.iter().enumerate().take(ROWS).map(row).collect();
    let head = [
        "Flow",
        "From",
        "To",
        "Bytes",
        "Start, us",
        "FCT, us",
        "Alone, us",
        "Slowdown",
        "Sent again",
    ];
    rest(rows.len(), results.flows.len(), "flows", out);
    figures(&head, &rows, out);
}

fn not_modelled(results: &Results, out: &mut String) {
    out.push_str("<h2 id=\"not-modelled\">What is not modelled</h2>\n<ul>");
    for text in &results.not_modelled {
        let _ = write!(out, "<li>{}</li>", escape(text));
    }
    out.push_str("</ul>\n");
}

#[cfg(test)]
mod tests;
