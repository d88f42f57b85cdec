//! Results as tables for other programs: flows, ports, queues, series.
//!
//! [`Table::write`] writes CSV (RFC 4180) with a head. Units are in the names of columns; an empty cell is a figure
//! that does not exist.
//!
//! Source: docs/results.md "CSV".

use std::io::{self, Write};

use weft_sim::results::Results;
use weft_sim::results::flow::FlowResult;
use weft_sim::results::network::{PortResult, SwitchResult};

/// A table of results, which is a file of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// One row for each flow.
    Flows,
    /// One row for each port of each switch.
    Ports,
    /// One row for each priority of each port.
    Queues,
    /// One row for each point of each series.
    Series,
}

impl Table {
    /// All tables, as `--csv` writes them.
    pub const ALL: [Self; 4] = [Self::Flows, Self::Ports, Self::Queues, Self::Series];

    /// Name of its file.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Flows => "flows.csv",
            Self::Ports => "ports.csv",
            Self::Queues => "queues.csv",
            Self::Series => "series.csv",
        }
    }

    /// Writes the table with its head.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(self, results: &Results, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = Rows(csv::Writer::from_writer(out));
        match self {
            Self::Flows => flows(results, &mut rows)?,
            Self::Ports => ports(results, &mut rows)?,
            Self::Queues => queues(results, &mut rows)?,
            Self::Series => series(results, &mut rows)?,
        }
        rows.0.flush()
    }
}

struct Rows<'a>(csv::Writer<&'a mut dyn Write>);

impl Rows<'_> {
    fn head(&mut self, names: &[&str]) -> io::Result<()> {
        self.0.write_record(names).map_err(io::Error::from)
    }

    fn row(&mut self, cells: &[&dyn ToString]) -> io::Result<()> {
        self.0.write_record(cells.iter().map(|cell| cell.to_string())).map_err(io::Error::from)
    }
}

/// The text of a figure; empty if it does not exist.
fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

const FLOWS: &[&str] = &[
    "flow",
    "workload",
    "from",
    "to",
    "bytes",
    "start_ps",
    "first_sent_ps",
    "delivered_ps",
    "acknowledged_ps",
    "fct_ps",
    "fct_sender_ps",
    "ideal_fct_ps",
    "slowdown",
    "resent_frames",
];

fn flows(results: &Results, rows: &mut Rows<'_>) -> io::Result<()> {
    rows.head(FLOWS)?;
    for flow in &results.flows {
        rows.0.write_record(flow_row(flow, |host| results.host(host).to_owned()))?;
    }
    Ok(())
}

fn flow_row(flow: &FlowResult, name: impl Fn(u32) -> String) -> [String; 14] {
    [
        flow.id.to_string(),
        flow.workload.to_string(),
        name(flow.from),
        name(flow.to),
        flow.bytes.to_string(),
        or_empty(flow.start_ps),
        or_empty(flow.first_sent_ps),
        or_empty(flow.delivered_ps),
        or_empty(flow.acknowledged_ps),
        or_empty(flow.fct_ps),
        or_empty(flow.fct_sender_ps),
        flow.ideal_fct_ps.to_string(),
        or_empty(flow.slowdown),
        or_empty(flow.resent_frames),
    ]
}

/// A writer of flows as they end, with the columns of `flows.csv`.
pub struct FlowStream<W: Write> {
    rows: csv::Writer<W>,
    /// Names of hosts, by number.
    hosts: Vec<String>,
}

impl<W: Write> FlowStream<W> {
    /// Writes the head; hosts are named in the order of their numbers.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(out: W, hosts: Vec<String>) -> io::Result<Self> {
        let mut rows = csv::Writer::from_writer(out);
        rows.write_record(FLOWS)?;
        // The file has its head as soon as the run begins.
        rows.flush()?;
        Ok(Self { rows, hosts })
    }

    /// Writes flows and flushes them: a killed run still leaves the flows that have ended.
    ///
    /// # Errors
    /// The writer's.
    pub fn push(&mut self, flows: &[FlowResult]) -> io::Result<()> {
        let Self { rows, hosts } = self;
        let name = |host: u32| {
            let host = usize::try_from(host).ok().and_then(|host| hosts.get(host));
            host.map_or("?", String::as_str).to_owned()
        };
        for flow in flows {
            rows.write_record(flow_row(flow, name))?;
        }
        if flows.is_empty() { Ok(()) } else { rows.flush() }
    }
}

fn all_ports(results: &Results) -> impl Iterator<Item = (&SwitchResult, usize, &PortResult)> {
    let switches = results.switches.iter();
    switches.flat_map(|switch| (0..).zip(&switch.ports).map(move |(at, port)| (switch, at, port)))
}

fn ports(results: &Results, rows: &mut Rows<'_>) -> io::Result<()> {
    rows.head(&[
        "switch",
        "port",
        "rx_frames",
        "rx_bytes",
        "tx_frames",
        "tx_bytes",
        "pfc_rx_frames",
        "pfc_tx_frames",
        "dropped_frames",
    ])?;
    for (switch, at, port) in all_ports(results) {
        rows.row(&[
            &switch.name,
            &at,
            &port.rx_frames,
            &port.rx_bytes,
            &port.tx_frames,
            &port.tx_bytes,
            &port.pfc_rx_frames,
            &port.pfc_tx_frames,
            &port.drops.values().sum::<u64>(),
        ])?;
    }
    Ok(())
}

fn queues(results: &Results, rows: &mut Rows<'_>) -> io::Result<()> {
    rows.head(&[
        "switch",
        "port",
        "priority",
        "enqueued_frames",
        "dequeued_frames",
        "tx_bytes",
        "dropped_frames",
        "ecn_marked_frames",
        "pause_rx_frames",
        "pause_tx_frames",
        "xoff",
        "xon",
        "paused_ps",
        "storms",
        "depth_max_bytes",
        "input_max_bytes",
        "headroom_max_bytes",
    ])?;
    for (switch, at, port) in all_ports(results) {
        // Watermarks are in cells, as switches count; columns are in bytes.
        let cell = u64::from(switch.cell_bytes);
        for (pri, queue) in (0u8..).zip(&port.queues) {
            rows.row(&[
                &switch.name,
                &at,
                &pri,
                &queue.enqueued_frames,
                &queue.dequeued_frames,
                &queue.tx_bytes,
                &queue.drops.values().sum::<u64>(),
                &queue.ecn_marked_frames,
                &queue.pause_rx_frames,
                &queue.pause_tx_frames,
                &queue.xoff,
                &queue.xon,
                &queue.paused_ps,
                &queue.storms,
                &(queue.depth_max_cells * cell),
                &(queue.input_max_cells * cell),
                &(queue.headroom_max_cells * cell),
            ])?;
        }
    }
    Ok(())
}

fn series(results: &Results, rows: &mut Rows<'_>) -> io::Result<()> {
    rows.head(&["kind", "node", "port", "priority", "from_ps", "to_ps", "mean", "max"])?;
    for series in &results.series {
        for (at, mean) in (0u64..).zip(&series.mean) {
            let from = at.saturating_mul(series.interval_ps);
            // The last interval ends with the run.
            let to = from.saturating_add(series.interval_ps).min(results.end_ps);
            // Series of amounts have no maxima: the list is empty, and the cell, too.
            let max = usize::try_from(at).ok().and_then(|at| series.max.get(at));
            rows.row(&[
                &series.kind.name(),
                &series.node,
                &or_empty(series.port),
                &or_empty(series.pri),
                &from,
                &to,
                mean,
                &or_empty(max),
            ])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    fn read(table: Table) -> (Vec<String>, Vec<Vec<String>>) {
        let mut out = Vec::new();
        table.write(&example::results(), &mut out).unwrap();
        let mut reader = csv::Reader::from_reader(out.as_slice());
        let texts = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect();
        let head = texts(reader.headers().unwrap());
        (head, reader.records().map(|record| texts(&record.unwrap())).collect())
    }

    fn cell(table: Table, row: usize, name: &str) -> String {
        let (head, rows) = read(table);
        let at = head.iter().position(|had| had == name).unwrap_or_else(|| panic!("no {name}"));
        rows[row][at].clone()
    }

    #[test]
    fn each_figure_is_in_its_column() {
        #[rustfmt::skip] // columns: table, row, column, cell
        let cases = [
            (Table::Flows, 1, "from", example::HOSTILE), (Table::Flows, 1, "bytes", "2000000"),
            (Table::Flows, 1, "fct_ps", "61900000"), (Table::Flows, 1, "slowdown", "2.063333"),
            (Table::Flows, 3, "fct_ps", ""), (Table::Flows, 3, "slowdown", ""),
            (Table::Ports, 1, "rx_frames", "1500"), (Table::Ports, 1, "pfc_tx_frames", "4"),
            (Table::Queues, 0, "paused_ps", "4000000"), (Table::Queues, 0, "depth_max_bytes", "23040"),
            (Table::Series, 1, "to_ps", "4000000"), (Table::Series, 1, "max", "23040"),
        ];
        for (table, row, name, want) in cases {
            assert_eq!(cell(table, row, name), want, "{table:?} {row} {name}");
        }
    }

    /// A reader must never ask what a column counts.
    #[test]
    fn columns_of_times_and_sizes_end_with_their_unit() {
        let plain = [
            "from", "to", "kind", "node", "switch", "port", "priority", "flow", "workload",
            "slowdown", "mean", "max", "xoff", "xon", "storms",
        ];
        for table in Table::ALL {
            for name in read(table).0 {
                let unit = ["_ps", "bytes", "_frames"].iter().any(|unit| name.ends_with(unit));
                assert!(unit || plain.contains(&name.as_str()), "{table:?}: {name}");
            }
        }
    }
}
