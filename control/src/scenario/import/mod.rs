//! Files of other simulators, flows as CSV, and captures.
//!
//! Shape: text → [`Topology`] or [`Flow`]s; what is wrong is told with file, line, what was found and what was expected.
//! Units: those of each format end here.
//! Source: docs/spec/model.md §3; csg-htsim (`.topo`, `.cm`); HPCC's simulator (`topology.txt`, `flow.txt`).

mod capture;
mod csv;
mod hpcc;
mod htsim;
mod line;
#[cfg(test)]
mod tests;

pub use self::capture::capture;

use weft_sim::scenario::flow::Flow;
use weft_sim::topology::Topology;

use crate::config::Problem;

/// What a file has, and what of it was left out or is doubtful.
#[derive(Debug)]
pub struct Imported<T> {
    /// What it has.
    pub what: T,
    /// What the user should know of it.
    pub warnings: Vec<Problem>,
}

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
