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

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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

/// Reads a capture as messages from a host: a frame's length at its time, the first one at 0. All are for `to`; without one,
/// each destination address is another host: in the order in which they come, those beside the sender by number.
///
/// # Errors
/// It is no capture, or damaged; it has more destinations than there are hosts.
pub fn capture(
    file: &str,
    bytes: Vec<u8>,
    (from, to): (u16, Option<u16>),
    hosts: usize,
) -> Result<Vec<Flow>, Problem> {
    let refuse = |what: &dyn std::fmt::Display| {
        problem(Place::WholeFile(file.to_owned()), "", what.to_string())
    };
    let damaged = |error: &dyn std::fmt::Display| {
        refuse(&format_args!("expected a capture, pcap or pcapng: {error}"))
    };
    let mut reader =
        CaptureReader::new(file, std::io::Cursor::new(bytes)).map_err(|error| damaged(&error))?;
    let mut others = (0..).take(hosts).filter(|&host| host != from);
    let mut receivers: BTreeMap<[u8; 6], u16> = BTreeMap::new();
    let (mut record, mut flows, mut first) = (Record::default(), Vec::new(), None);
    while reader.read_into(&mut record).map_err(|error| damaged(&error))? {
        if flows.len() == FLOWS_MAX {
            return Err(damaged(&format_args!("expected at most {FLOWS_MAX} frames, found more")));
        }
        let first = *first.get_or_insert(record.ts_ns);
        let start = Instant::from_ns(record.ts_ns.saturating_sub(first));
        let bytes = u64::from(record.orig_len).max(1);
        let to = match (to, record.data.first_chunk()) {
            (Some(to), _) => to,
            (None, Some(dst)) => match receivers.entry(*dst) {
                Entry::Occupied(known) => Some(*known.get()),
                Entry::Vacant(new) => others.next().map(|host| *new.insert(host)),
            }
            .ok_or_else(|| {
                refuse(&format_args!("expected at most {} destination addresses, one for each host beside the sender, found more: name a receiver in `to`", hosts.saturating_sub(1)))
            })?,
            (None, None) => {
                let frame = flows.len() + 1;
                return Err(refuse(&format_args!("expected a destination address in frame {frame}, found {} bytes: name a receiver in `to`", record.data.len())));
            }
        };
        flows.push(Flow { from, to, bytes, start, after: Vec::new(), vc: None, workload: 0 });
    }
    Ok(flows)
}
