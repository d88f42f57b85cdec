//! HPCC's simulator: `topology.txt` and `flow.txt`.
//!
//! The text of a file becomes a [`Topology`] or [`Flow`]s. Nodes are called n0, n1, ... after their numbers. Rates
//! have a form such as `100Gbps`, delays such as `0.001ms`; starts are in seconds.
//!
//! Source: alibaba-edu/High-Precision-Congestion-Control, the `simulation` folder.
//!
//! `topology.txt`: "nodes switches links", the numbers of the switches, then "a b RATE DELAY ERROR" for each link.
//! `flow.txt`: the number of flows, then "src dst pg dport bytes start" for each; the first flow begins at 0 here.
//! The priority group and the port are not used: the virtual channel decides the class (`request_vc`). Like HPCC, the
//! reader takes as many entries as the first line counts and ignores the rest: files that HPCC ships go on with an
//! explanation, or with flows that a smaller number leaves out.

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_sim::scenario::flow::Flow;
use weft_sim::topology::{LinkSpec, NODES_MAX, NodeKind, Topology};
use weft_toml::quantity::decimal;

use super::line::{Line, at_end, lines};
use super::{FLOWS_MAX, Imported, refuse_link};
use crate::Problem;
use crate::quantity::parse_time;

/// Most nodes of a file, and most links.
const COUNT_MAX: u64 = NODES_MAX as u64;

/// Reads `topology.txt`.
///
/// # Errors
/// The first problem.
pub(super) fn topology(file: &str, text: &str) -> Result<Imported<Topology>, Problem> {
    let mut all = lines(file, text, char::is_whitespace).peekable();
    let head = all.next().ok_or_else(|| at_end(file, text, "\"nodes switches links\""))?;
    let nodes = head.number(0, "the number of nodes", 2..=COUNT_MAX)?;
    let last = nodes - 1;
    let switches = head.number(1, "the number of switches, below that of nodes", 0..=last)?;
    let links = head.number(2, "the number of links", 1..=COUNT_MAX)?;
    head.at_most(3, "the end of the line: nodes, switches and links are three numbers")?;
    let mut is_switch = vec![false; usize::try_from(nodes).unwrap_or(0)];
    let mut left = usize::try_from(switches).unwrap_or(0);
    // HPCC reads words, wherever lines end.
    while left > 0 {
        let line = all.next().ok_or_else(|| at_end(file, text, "the numbers of the switches"))?;
        line.at_most(left, format!("{switches} switches, as the first line has it").as_str())?;
        left -= line.len();
        for at in 0..line.len() {
            let id = line.number(at, "the number of a switch", 0..=last)?;
            let slot = usize::try_from(id).ok().and_then(|id| is_switch.get_mut(id));
            match slot {
                Some(slot) if !*slot => *slot = true,
                _ => return Err(line.refuse(at, "each switch once")),
            }
        }
    }
    let mut net = Topology::default();
    for (id, is_switch) in is_switch.into_iter().enumerate() {
        let kind = if is_switch { NodeKind::Switch } else { NodeKind::Host };
        net.add(&format!("n{id}"), kind).map_err(|error| head.refuse(0, error))?;
    }
    for _ in 0..links {
        let line = all.next().ok_or_else(|| {
            at_end(file, text, format_args!("{links} links, as the first line has it"))
        })?;
        link(&mut net, &line, last)?;
    }
    Ok(Imported { what: net, warnings: rest(all, "links", links) })
}

/// A warning if more entries follow the `count` that the first line announces; an explanation in words is no entry.
fn rest<'a>(lines: impl Iterator<Item = Line<'a>>, what: &str, count: u64) -> Vec<Problem> {
    // An entry has four words or more and begins with a number; explanations begin with a word.
    let mut entries = lines.filter(|line| line.len() > 3 && line.word(0).parse::<u64>().is_ok());
    let Some(first) = entries.next() else { return Vec::new() };
    let more = entries.count() + 1;
    vec![first.remark(format_args!("{more} more {what} than the {count} of the first line: not read, as HPCC does not read them"))]
}

/// Adds the link that `line` describes; `last` is the highest number of a node.
fn link(net: &mut Topology, line: &Line<'_>, last: u64) -> Result<(), Problem> {
    let node = |at| line.number(at, "the number of a node", 0..=last);
    let ends = [node(0)?, node(1)?].map(|id| usize::try_from(id).unwrap_or(usize::MAX));
    let rate = rate(line.word(2)).ok_or_else(|| line.refuse(2, "a rate such as 100Gbps"))?;
    let delay = time(line.word(3)).filter(|ps| *ps > 0);
    let delay = delay.ok_or_else(|| line.refuse(3, "a delay above 0 such as 0.001ms"))?;
    let error: f64 = line.read(4, "an error rate, 0")?;
    if error.abs() > 0.0 {
        return Err(line.refuse(4, "an error rate of 0: say others in [[fault]]"));
    }
    line.at_most(5, "the end of the line after the error rate")?;
    let names = [0, 1].map(|at| format!("n{}", line.word(at)));
    let id = net
        .link(ends[0], ends[1])
        .map_err(|error| refuse_link(line, &error, names.each_ref().map(String::as_str)))?;
    net.specify(id, LinkSpec { rate, propagation: Span::from_ps(delay) });
    Ok(())
}

/// Prefixes of the units "bps", "b/s", "Bps" and "B/s" in ns-3, each with its factor.
const RATE_UNITS: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1_000),
    ("K", 1_000),
    ("Ki", 1 << 10),
    ("M", 1_000_000),
    ("Mi", 1 << 20),
    ("G", 1_000_000_000),
    ("Gi", 1 << 30),
    ("T", 1_000_000_000_000),
];

/// A rate in the notation of ns-3: a number, with a fraction or not, and bps, b/s (bits) or Bps, B/s (bytes), with k,
/// M, G, T, Ki, Mi or Gi. A number alone is bit/s.
fn rate(text: &str) -> Option<LinkRate> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at)?;
    let bits = if unit.is_empty() {
        1
    } else {
        let (unit, bits) = [("bps", 1), ("b/s", 1), ("Bps", 8), ("B/s", 8)]
            .into_iter()
            .find_map(|(end, bits)| Some((unit.strip_suffix(end)?, bits)))?;
        RATE_UNITS.iter().find(|(name, _)| *name == unit)?.1 * bits
    };
    // In u128, as 10^9 parts of a Tbit/s exceed 64 bits.
    let parts = u128::from(decimal(number, RATE_DIGITS)?) * u128::from(bits);
    LinkRate::bps(u64::try_from(parts / RATE_PARTS).ok()?)
}

/// Most digits of a rate behind its point; rates are read in parts of 10^-9.
const RATE_DIGITS: usize = 9;
const RATE_PARTS: u128 = 1_000_000_000;

/// A time in the notation of ns-3, in ps; a number alone is in seconds.
fn time(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number { parse_time(&format!("{text}s")) } else { parse_time(text) }
}

/// Reads `flow.txt`.
///
/// # Errors
/// The first problem.
pub(super) fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
) -> Result<Imported<Vec<Flow>>, Problem> {
    let mut all = lines(file, text, char::is_whitespace);
    let head = all.next().ok_or_else(|| at_end(file, text, "the number of flows"))?;
    let count = head.number(0, "the number of flows", 0..=FLOWS_MAX as u64)?;
    head.at_most(1, "the end of the line after the number of flows")?;
    let mut flows: Vec<Flow> = Vec::new();
    for _ in 0..count {
        let line = all.next().ok_or_else(|| {
            at_end(file, text, format_args!("{count} flows, as the first line has it"))
        })?;
        flows.push(flow(&line, host)?);
    }
    let warnings = rest(all, "flows", count);
    // HPCC starts its flows seconds into the run, which would only be idle here.
    let first = flows.iter().map(|flow| flow.start).min().unwrap_or(Instant::ZERO);
    for flow in &mut flows {
        flow.start = Instant::ZERO + flow.start.since(first);
    }
    Ok(Imported { what: flows, warnings })
}

fn flow(line: &Line<'_>, host: &dyn Fn(&str) -> Option<u16>) -> Result<Flow, Problem> {
    let node = |at| {
        let id = line.word(at).parse::<u32>().ok();
        let named = id.and_then(|id| host(&format!("n{id}")));
        named.ok_or_else(|| {
            line.refuse(at, "the number of a host (of an imported network: n0, n1, ...)")
        })
    };
    let (from, to) = (node(0)?, node(1)?);
    if from == to {
        return Err(line.refuse(1, "another host than the sender"));
    }
    // Read for their range alone: a column that is shifted shows here.
    line.number(2, "a priority group", 0..=7)?;
    line.number(3, "a port", 0..=65_535)?;
    let bytes = line.number(4, "bytes", 1..=u64::MAX)?;
    let start = parse_time(&format!("{}s", line.word(5)));
    let start = start.ok_or_else(|| line.refuse(5, "a start in seconds, to the picosecond"))?;
    line.at_most(6, "the end of the line after the start")?;
    let start = Instant::ZERO + Span::from_ps(start);
    Ok(Flow { start, ..Flow::new(from, to, bytes) })
}
