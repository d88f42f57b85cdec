//! The results of a sweep: one table, as CSV, JSON, text, and a page with a plot of each figure.
//!
//! The table has a [`Row`] for each job; names of columns end with their unit.
//!
//! Source: docs/sweep.md.
#![expect(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "places on a page")]

use std::fmt::Write as _;
use std::io::{self, Write};

use comfy_table::{Table as TextTable, presets};
use serde_json::{Map, Number, Value};
use weft_sim::results::decimal::Decimal;
use weft_sim::results::{Ending, Results};
use weft_views::figures::printable;
use weft_views::page::script_json;
use weft_views::page::{Cell, figures, head};
use weft_views::svg::{Draw, Plot, Series, escape, place};

use super::plan::{Job, Plan, words};

/// Most combinations in a plot; further ones are in the table only.
const COMBINATIONS: usize = 40;

/// A figure of a run: its column, and its value in the results.
type Figure = (&'static str, fn(&Results) -> Option<Decimal>);

/// Figures of a row, in the order of the columns.
const FIGURES: [Figure; 15] = [
    ("end_us", |r| Some(Decimal::us_of_ps(r.end_ps))),
    ("flows_delivered", |r| Some(Decimal::whole(r.summary.flows_delivered))),
    ("fct_p50_us", |r| r.summary.fct_ps.map(|ranks| Decimal::us_of_ps(ranks.p50))),
    ("fct_p99_us", |r| r.summary.fct_ps.map(|ranks| Decimal::us_of_ps(ranks.p99))),
    ("fct_last_us", |r| r.summary.fct_ps.map(|ranks| Decimal::us_of_ps(ranks.max))),
    ("slowdown_p99", |r| r.summary.slowdown.map(|ranks| ranks.p99)),
    ("goodput_gbps", |r| Some(Decimal(i128::from(r.summary.goodput_bps)))),
    ("latency_p50_us", |r| latency(r, r.latency.p50_ps)),
    ("latency_p99_us", |r| latency(r, r.latency.p99_ps)),
    ("dropped_frames", |r| Some(Decimal::whole(r.summary.dropped_frames))),
    ("resent_frames", |r| Some(Decimal::whole(r.summary.resent_frames))),
    ("ecn_marked_frames", |r| Some(Decimal::whole(r.summary.ecn_marked_frames))),
    ("pfc_frames", |r| Some(Decimal::whole(r.summary.pfc_tx_frames))),
    ("paused_us", |r| {
        Some(Decimal::us_of_ps(r.summary.switch_paused_ps.saturating_add(r.summary.host_paused_ps)))
    }),
    ("queue_max_bytes", |r| Some(Decimal::whole(r.summary.queue_depth_max_bytes))),
];

/// A rank's name, and its index among `n` sorted values.
type Rank = (&'static str, fn(usize) -> usize);

/// A latency; `None` if no frame was measured.
fn latency(results: &Results, ps: u64) -> Option<Decimal> {
    (results.latency.frames > 0).then(|| Decimal::us_of_ps(ps))
}

/// A job with its results.
pub struct Row<'a> {
    /// The job, with values and seed.
    pub job: &'a Job,
    /// The figures, in the order of [`FIGURES`], or the reason why there are none.
    outcome: Result<Figures, String>,
}

struct Figures {
    ending: &'static str,
    passed: usize,
    expected: usize,
    values: Vec<Option<Decimal>>,
}

impl<'a> Row<'a> {
    /// Makes the row of a job from its results, or from the reason why there are none.
    #[must_use]
    pub fn new(job: &'a Job, outcome: Result<&Results, String>) -> Self {
        let outcome = outcome.map(|results| Figures {
            ending: match results.ending {
                Ending::Done => "done",
                Ending::Until => "until",
                Ending::Interrupted => "interrupted",
                Ending::Stalled { .. } => "stalled",
            },
            passed: results.expectations.iter().filter(|entry| entry.passed).count(),
            expected: results.expectations.len(),
            values: FIGURES.iter().map(|(_, of)| of(results)).collect(),
        });
        Self { job, outcome }
    }

    /// The reason why the job has no figures.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.outcome.as_ref().err().map(String::as_str)
    }

    fn cells(&self, keys: usize) -> Vec<String> {
        let mut cells: Vec<String> = self.job.values.iter().take(keys).cloned().collect();
        cells.push(self.job.seed.map(|seed| seed.to_string()).unwrap_or_default());
        if let Ok(of) = &self.outcome {
            cells.push(of.ending.to_owned());
            cells.extend(of.values.iter().map(|v| v.map(|v| v.to_string()).unwrap_or_default()));
            cells.extend([of.passed.to_string(), of.expected.to_string()]);
        } else {
            cells.push("failed".to_owned());
            cells.extend(std::iter::repeat_n(String::new(), FIGURES.len() + 2));
        }
        cells
    }
}

fn columns(plan: &Plan) -> Vec<String> {
    let figures = FIGURES.iter().map(|(name, _)| *name);
    let after = ["seed", "ending"].into_iter().chain(figures).chain(["passed", "expected"]);
    plan.keys.iter().cloned().chain(after.map(str::to_owned)).collect()
}

/// Writes the table as CSV, a row for each job.
///
/// # Errors
/// The writer's.
pub fn csv(plan: &Plan, rows: &[Row<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    let names = std::iter::once("job".to_owned()).chain(columns(plan));
    table.write_record(names)?;
    for row in rows {
        let cells = std::iter::once(row.job.name.clone()).chain(row.cells(plan.keys.len()));
        table.write_record(cells)?;
    }
    table.flush()
}

/// The table as JSON, an object for each job with the columns of [`csv`]; empty cells have no key.
#[must_use]
pub fn json(plan: &Plan, rows: &[Row<'_>]) -> Value {
    let names = columns(plan);
    let of = |row: &Row<'_>| {
        let cells = row.cells(plan.keys.len());
        let told = names.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let mut all: Map<String, Value> =
            told.map(|(name, cell)| (name.clone(), number_or_text(cell))).collect();
        all.insert("job".to_owned(), row.job.name.as_str().into());
        if let Some(why) = row.failure() {
            all.insert("failure".to_owned(), why.into());
        }
        Value::Object(all)
    };
    rows.iter().map(of).collect()
}

/// A JSON number if that prints as the same digits, otherwise the text: a value such as `1/8` or `007` stays as given.
fn number_or_text(cell: String) -> Value {
    match serde_json::from_str::<Number>(&cell) {
        Ok(number) if number.to_string() == cell => Value::Number(number),
        _ => Value::String(cell),
    }
}

/// Writes the table as text, without columns that are empty or 0 throughout.
///
/// # Errors
/// The writer's.
pub fn text(plan: &Plan, rows: &[Row<'_>], out: &mut dyn Write) -> io::Result<()> {
    let names = columns(plan);
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(plan.keys.len())).collect();
    // Varied keys are shown even where all values are 0.
    let is_told = |at: usize| {
        at < plan.keys.len()
            || cells.iter().filter_map(|row| row.get(at)).any(|c| !c.is_empty() && c != "0")
    };
    let told: Vec<usize> = (0..names.len()).filter(|&at| is_told(at)).collect();
    // Keys and values are texts of files and arguments: no control character may reach the terminal.
    let pick = |row: &[String]| -> Vec<String> {
        told.iter().filter_map(|&at| row.get(at)).map(|cell| printable(cell)).collect()
    };
    let mut table = TextTable::new();
    table.load_style(presets::NOTHING);
    table.set_header(pick(&names));
    for row in &cells {
        table.add_row(pick(row));
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    for row in rows {
        if let Some(why) = row.failure() {
            writeln!(
                out,
                "failed: {}: {}",
                printable(&words(&plan.keys, row.job)),
                printable(why)
            )?;
        }
    }
    Ok(())
}

/// The page: a plot of each figure that differs between jobs, and the table, also as JSON in a script element.
#[must_use]
pub fn page(scenario: &str, plan: &Plan, rows: &[Row<'_>]) -> String {
    let mut out = String::new();
    head(&format!("weft sim sweep: {scenario}"), "", &mut out);
    for row in rows {
        if let Some(why) = row.failure() {
            let text = format!("failed: {}: {why}", words(&plan.keys, row.job));
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&text));
        }
    }
    for (at, (name, _)) in FIGURES.iter().enumerate() {
        picture(plan, rows, at, name, &mut out);
    }
    out.push_str("<h2>Jobs</h2>\n");
    let names = columns(plan);
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(plan.keys.len())).collect();
    let table: Vec<Vec<Cell>> =
        cells.iter().map(|row| row.iter().cloned().map(Cell::from).collect()).collect();
    let heads: Vec<&str> = names.iter().map(String::as_str).collect();
    figures(&heads, &table, &mut out);
    let json = serde_json::json!({ "columns": names, "rows": cells });
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"results\">{}</script>\n</body></html>\n",
        script_json(&json)
    );
    out
}

/// Plots minimum, median and maximum over the seeds of each combination; nothing if all values are equal.
fn picture(plan: &Plan, rows: &[Row<'_>], figure: usize, name: &'static str, out: &mut String) {
    let mut combinations: Vec<(String, Vec<Decimal>)> = Vec::new();
    let keyless: Vec<String> = plan.keys.clone();
    for row in rows {
        let label = words(&keyless, &Job { seed: None, ..row.job.clone() });
        let value =
            row.outcome.as_ref().ok().and_then(|of| of.values.get(figure).copied().flatten());
        let Some(value) = value else { continue };
        // Jobs of one combination stand together in the plan.
        match combinations.last_mut() {
            Some((last, values)) if *last == label => values.push(value),
            _ => combinations.push((label, vec![value])),
        }
    }
    combinations.truncate(COMBINATIONS);
    let all = || combinations.iter().flat_map(|(_, values)| values);
    let Some(first) = all().next() else { return };
    if all().all(|value| value == first) {
        return;
    }
    for (_, values) in &mut combinations {
        values.sort_unstable();
    }
    let count = combinations.len();
    let one_each = combinations.iter().all(|(_, values)| values.len() == 1);
    let ranks: &[Rank] = if one_each {
        &[("value", |_| 0)]
    } else {
        &[("least", |_| 0), ("median", |n| (n - 1) / 2), ("most", |n| n - 1)]
    };
    let series = ranks.iter().map(|(rank, of)| Series {
        name: (*rank).to_owned(),
        points: combinations
            .iter()
            .enumerate()
            .filter_map(|(at, (label, values))| {
                let value = values.get(of(values.len()))?;
                let words = format!("{label}: {rank} {value} of {}", values.len());
                // A `Decimal` counts billionths.
                Some((place(at, count), value.0 as f64 / 1e9, words))
            })
            .collect(),
    });
    let tick = |(at, (label, _)): (usize, &(String, Vec<Decimal>))| {
        let values: Vec<&str> = label
            .split(' ')
            .map(|part| part.split_once('=').map_or(part, |(_, value)| value))
            .collect();
        // More labels than these would overlap; a point's tooltip has its values.
        let text = if count <= 12 { values.join(" ") } else { (at + 1).to_string() };
        (place(at, count), text)
    };
    let plot = Plot {
        title: name.to_owned(),
        x_label: "combination",
        y_label: name,
        x_ticks: combinations.iter().enumerate().map(tick).collect(),
        series: series.collect(),
        draw: Draw::Lines,
        log: false,
    };
    let _ = writeln!(out, "<figure id=\"{name}\"><h2>{name}</h2>{}</figure>", plot.svg());
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_views::results::example;

    fn plan() -> Plan {
        let job = |value: &str, seed: u64| Job {
            name: format!("{value}{seed}"),
            values: vec![value.to_owned()],
            seed: Some(seed),
            set: vec![],
        };
        let jobs = ["1/8", "<b>"].iter().flat_map(|value| [job(value, 1), job(value, 2)]).collect();
        Plan { keys: vec!["buffer.dt_alpha".to_owned()], jobs }
    }

    fn rows(plan: &Plan) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = (1u64..)
            .zip(&plan.jobs)
            .map(|(at, job)| {
                let mut results = example::results();
                results.summary.dropped_frames = at * 10;
                Row::new(job, Ok(&results))
            })
            .collect();
        rows[3] = Row::new(&plan.jobs[3], Err("exit status: 3: no such file".to_owned()));
        rows
    }

    #[test]
    fn a_row_has_what_the_job_has() {
        let plan = plan();
        let mut out = Vec::new();
        csv(&plan, &rows(&plan), &mut out).unwrap();
        let mut reader = csv::Reader::from_reader(out.as_slice());
        let names = reader.headers().unwrap().clone();
        let records: Vec<_> = reader.records().map(Result::unwrap).collect();
        let cell = |row: usize, name: &str| {
            let at =
                names.iter().position(|had| had == name).unwrap_or_else(|| panic!("no {name}"));
            records[row][at].to_owned()
        };
        assert_eq!((cell(2, "buffer.dt_alpha"), cell(2, "seed")), ("<b>".into(), "1".into()));
        assert_eq!(
            (cell(2, "dropped_frames"), cell(0, "fct_last_us")),
            ("30".into(), "92.8".into())
        );
        assert_eq!(
            (cell(0, "goodput_gbps"), cell(0, "passed")),
            ("258.322580645".into(), "1".into())
        );
        assert_eq!(
            (cell(3, "ending"), cell(3, "dropped_frames")),
            ("failed".into(), String::new())
        );
    }

    #[test]
    fn a_failure_is_told_in_text_and_page() {
        let plan = plan();
        let rows = rows(&plan);
        let mut out = Vec::new();
        text(&plan, &rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let failed = "failed: buffer.dt_alpha=<b> seed=2: exit status: 3: no such file";
        assert!(text.contains(failed), "{text}");
        let page = page("made up", &plan, &rows);
        assert!(page.contains("buffer.dt_alpha=&lt;b&gt; seed=2") && !page.contains("<b>"));
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let doc = roxmltree::Document::parse_with_options(&page, options).expect("well-formed");
        let pictures: Vec<_> = doc
            .descendants()
            .filter(|node| node.has_tag_name("figure"))
            .filter_map(|node| node.attribute("id"))
            .collect();
        assert_eq!(pictures, ["dropped_frames"], "all else is equal");
    }
}
