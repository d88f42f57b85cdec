//! Files of other simulators, flows as CSV, and captures.
//!
//! Text → [`Topology`] or [`Flow`]s; what is wrong is told with file, line, what was found and what was expected.
//!
//! Units: those of each format end here.
//! Source: docs/spec/model.md §3; csg-htsim (`.topo`, `.cm`); HPCC's simulator (`topology.txt`, `flow.txt`).

mod capture;
mod csv;
mod hpcc;
mod htsim;
mod line;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::capture::capture;

use weft_sim::scenario::flow::Flow;
use weft_sim::topology::{Topology, TopologyError};

use crate::Problem;

/// What a file has, and what of it was left out or is doubtful.
#[derive(Debug)]
pub struct Imported<T> {
    /// What it has.
    pub what: T,
    /// What the user should know of it.
    pub warnings: Vec<Problem>,
}

/// A network of another simulator.
#[derive(Debug, Default)]
pub struct Network {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Latency of switches by name, in ns, where the file says it.
    pub switch_latency_ns: BTreeMap<String, u64>,
}

/// Most flows of a file.
pub const FLOWS_MAX: usize = 10_000_000;

/// Reads a topology of htsim or HPCC: the first one begins with a word, the other one with numbers.
///
/// # Errors
/// What is wrong first.
pub fn topology(file: &str, text: &str) -> Result<Imported<Network>, Problem> {
    let first = line::lines(file, text, char::is_whitespace).next();
    if first.is_some_and(|line| line.word(0).parse::<u64>().is_ok()) {
        let Imported { what: topology, warnings } = hpcc::topology(file, text)?;
        Ok(Imported { what: Network { topology, ..Network::default() }, warnings })
    } else {
        Ok(Imported { what: htsim::topology(file, text)?, warnings: Vec::new() })
    }
}

/// The refusal of a link, whose ends are words 0 and 1 of `line`.
fn refuse_link(line: &line::Line<'_>, error: &TopologyError, names: [&str; 2]) -> Problem {
    let TopologyError::Ports { name, most } = error else { return line.refuse(0, error) };
    let at = usize::from(names[0] != name);
    match most {
        1 => line.refuse(
            at,
            format_args!("one link at host {name}: hosts with several are not modelled"),
        ),
        _ => line.refuse(
            at,
            format_args!("at most {most} links at switch {name}, which has no more ports"),
        ),
    }
}

/// Reads flows: CSV, `flow.txt` of HPCC or `.cm` of htsim, told apart by what the file begins with. Those of htsim that have
/// no end get `endless` bytes.
///
/// # Errors
/// All that is wrong.
pub fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
    endless: u64,
) -> Result<Imported<Vec<Flow>>, Vec<Problem>> {
    let first = line::lines(file, text, char::is_whitespace).next();
    let first = first.map_or("", |line| line.word(0));
    if first.parse::<u64>().is_ok() {
        return hpcc::flows(file, text, host).map_err(|problem| vec![problem]);
    }
    if first.eq_ignore_ascii_case("nodes") {
        return htsim::flows(file, text, host, endless).map_err(|problem| vec![problem]);
    }
    let what = csv::flows(file, text, host)?;
    Ok(Imported { what, warnings: Vec::new() })
}
