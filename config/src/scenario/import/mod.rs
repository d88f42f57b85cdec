//! Importers of files of other simulators, of flows as CSV, and of captures.
//!
//! A file becomes a [`Topology`] or [`Flow`]s. Problems have file, line, the value found and the one expected. The
//! units of each format end here.
//!
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

/// The contents of a file, with warnings about parts that were left out or are doubtful.
#[derive(Debug)]
pub struct Imported<T> {
    /// Contents of the file.
    pub what: T,
    /// Warnings for the user.
    pub warnings: Vec<Problem>,
}

/// A network of another simulator.
#[derive(Debug, Default)]
pub struct Network {
    /// Hosts, switches and links.
    pub topology: Topology,
    /// Latency of switches by name, in ns, where the file gives one.
    pub switch_latency_ns: BTreeMap<String, u64>,
}

/// Most flows of one file: bounds the memory of an import.
pub const FLOWS_MAX: usize = 10_000_000;

/// Reads a topology of htsim, which begins with a word, or of HPCC, which begins with numbers.
///
/// # Errors
/// The first problem.
pub fn topology(file: &str, text: &str) -> Result<Imported<Network>, Problem> {
    let first = line::lines(file, text, char::is_whitespace).next();
    if first.is_some_and(|line| line.word(0).parse::<u64>().is_ok()) {
        let Imported { what: topology, warnings } = hpcc::topology(file, text)?;
        Ok(Imported { what: Network { topology, ..Network::default() }, warnings })
    } else {
        Ok(Imported { what: htsim::topology(file, text)?, warnings: Vec::new() })
    }
}

/// The refusal of a link whose ends are words 0 and 1 of `line`.
fn refuse_link(line: &line::Line<'_>, error: &TopologyError, names: [&str; 2]) -> Problem {
    let TopologyError::Ports { name, most } = error else { return line.refuse(0, error) };
    // Blame the end that has no free port.
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

/// Reads flows from CSV, `flow.txt` of HPCC or a `.cm` of htsim, told apart by the first word of the file. Flows of
/// htsim without an end get `endless` bytes.
///
/// # Errors
/// All problems of a CSV file, or the first one of the other formats.
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
