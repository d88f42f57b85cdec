//! Flows as CSV: the columns `from,to,bytes,start_us`; the first line names them.
//!
//! [`flows`] reads the text into [`Flow`]s. Sizes are bytes of payload, starts microseconds with a fraction.
//!
//! Source: docs/simulation.md "Flows from a file".

use weft_dataplane::time::{Instant, Span};
use weft_sim::scenario::flow::Flow;
use weft_toml::problem::PROBLEMS_MAX;

use super::FLOWS_MAX;
use super::line::{Line, at_end, lines};
use crate::Problem;
use crate::quantity::{parse_size, parse_time};

const COLUMNS: [&str; 4] = ["from", "to", "bytes", "start_us"];

fn is_gap(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// Reads flows; `host` knows the numbers of hosts by name.
///
/// # Errors
/// All problems, up to [`PROBLEMS_MAX`].
pub(super) fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
) -> Result<Vec<Flow>, Vec<Problem>> {
    let mut all = lines(file, text, is_gap);
    let head = all.next().ok_or_else(|| {
        vec![at_end(file, text, "the names of the columns: from,to,bytes,start_us")]
    })?;
    for (at, name) in COLUMNS.iter().enumerate() {
        if head.word(at) != *name {
            return Err(vec![
                head.refuse(at, format_args!("column {name:?} of from,to,bytes,start_us")),
            ]);
        }
    }
    head.at_most(COLUMNS.len(), "no more columns than from,to,bytes,start_us")
        .map_err(|it| vec![it])?;
    let (mut flows, mut problems) = (Vec::new(), Vec::new());
    for line in all {
        match flow(&line, host) {
            // Enough is read: the rest of the file could have any length.
            _ if flows.len() == FLOWS_MAX => {
                problems.push(line.refuse(0, format_args!("at most {FLOWS_MAX} flows")));
                break;
            }
            Ok(flow) => flows.push(flow),
            Err(problem) => problems.push(problem),
        }
        if problems.len() == PROBLEMS_MAX {
            break;
        }
    }
    if problems.is_empty() { Ok(flows) } else { Err(problems) }
}

fn flow(line: &Line<'_>, host: &dyn Fn(&str) -> Option<u16>) -> Result<Flow, Problem> {
    let named = |at| host(line.word(at)).ok_or_else(|| line.refuse(at, "the name of a host"));
    let (from, to) = (named(0)?, named(1)?);
    if from == to {
        return Err(line.refuse(1, "another host than the sender"));
    }
    let bytes = line.word(2);
    let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0).or_else(|| parse_size(bytes));
    let bytes = bytes.ok_or_else(|| line.refuse(2, "bytes, 1 or above"))?;
    // `parse_time` takes six digits behind the point, which are picoseconds, and bounds the time.
    let start = parse_time(&format!("{}us", line.word(3)));
    let start = start
        .ok_or_else(|| line.refuse(3, "a time in microseconds, 0 or above, to the picosecond"))?;
    line.at_most(COLUMNS.len(), "no more values than columns")?;
    let start = Instant::ZERO + Span::from_ps(start);
    Ok(Flow { start, ..Flow::new(from, to, bytes) })
}
