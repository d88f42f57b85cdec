//! Files of other simulators, and flows as CSV.
//!
//! Shape: text → [`Topology`] or [`Flow`]s; what is wrong is told with file, line, what was found and what was expected.
//! Units: those of each format end here.
//! Source: docs/spec/model.md §3; csg-htsim (`.topo`, `.cm`); HPCC's simulator (`topology.txt`, `flow.txt`).

mod csv;
mod hpcc;
mod htsim;
mod line;
#[cfg(test)]
mod tests;

use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_dataplane::time::Instant;
use weft_sim::scenario::flow::Flow;
use weft_sim::topology::Topology;

use crate::config::{Place, Problem};
use crate::scenario::problem;

/// Most flows of a file.
pub const FLOWS_MAX: usize = 10_000_000;

/// Reads a topology of htsim or HPCC: the first one begins with a word, the other one with numbers.
///
/// # Errors
/// What is wrong first.
pub fn topology(file: &str, text: &str) -> Result<Topology, Problem> {
    let first = line::lines(file, text, char::is_whitespace).next();
    if first.is_some_and(|line| line.word(0).parse::<u64>().is_ok()) {
        hpcc::topology(file, text)
    } else {
        htsim::topology(file, text)
    }
}

/// Reads flows: CSV, `flow.txt` of HPCC or `.cm` of htsim, told apart by what the file begins with.
///
/// # Errors
/// All that is wrong.
pub fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
) -> Result<Vec<Flow>, Vec<Problem>> {
    let first = line::lines(file, text, char::is_whitespace).next();
    let first = first.map_or("", |line| line.word(0));
    if first.parse::<u64>().is_ok() {
        return hpcc::flows(file, text, host).map_err(|problem| vec![problem]);
    }
    if first.eq_ignore_ascii_case("nodes") {
        return htsim::flows(file, text, host).map_err(|problem| vec![problem]);
    }
    csv::flows(file, text, host)
}

/// Reads a capture as messages from one host to another: a frame's length at its time, the first one at 0.
///
/// # Errors
/// It is no capture, or damaged.
pub fn capture(file: &str, bytes: Vec<u8>, (from, to): (u16, u16)) -> Result<Vec<Flow>, Problem> {
    let refuse = |error: &dyn std::fmt::Display| {
        problem(
            Place::WholeFile(file.to_owned()),
            "",
            format!("expected a capture, pcap or pcapng: {error}"),
        )
    };
    let mut reader =
        CaptureReader::new(file, std::io::Cursor::new(bytes)).map_err(|error| refuse(&error))?;
    let (mut record, mut flows, mut first) = (Record::default(), Vec::new(), None);
    while reader.read_into(&mut record).map_err(|error| refuse(&error))? {
        if flows.len() == FLOWS_MAX {
            return Err(refuse(&format_args!("expected at most {FLOWS_MAX} frames, found more")));
        }
        let first = *first.get_or_insert(record.ts_ns);
        let start = Instant::from_ns(record.ts_ns.saturating_sub(first));
        let bytes = u64::from(record.orig_len).max(1);
        flows.push(Flow { from, to, bytes, start, after: Vec::new(), vc: None, workload: 0 });
    }
    Ok(flows)
}
