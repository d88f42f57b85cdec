//! Results of a run, from which all views of it are made.
//!
//! The caller that runs a scenario fills a [`Results`]; [`Results::finish`] derives the rest. Names of fields end with
//! their units: picoseconds, bytes, frames, bits a second. Equal runs have equal results: there is no date in them, no
//! name of a machine, and no order that depends on chance.
//!
//! Source: docs/spec/model.md §6; docs/results.md.

pub mod decimal;
pub mod flow;
pub mod network;
pub mod series;

use serde::{Deserialize, Serialize};
use weft_dataplane::time::Instant;

use decimal::Decimal;
use flow::{FlowResult, SizeBin, Summary};
use network::{HostResult, LatencyParts, LinkResult, MatrixCell, Percentiles, SwitchResult};
use series::Points;

/// Version of the fields of [`Results`]; it grows when one changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Effects that no run models, for readers of a result.
pub const NOT_MODELLED: &[&str] = &[
    "The physical layer beyond rate, length and errors of a cable: no FEC delay, no lane skew, no link training.",
    "Hosts beyond their endpoint: no CPU, no PCIe, no memory, no doorbells; an endpoint takes a fixed time a frame.",
    "Drift of clocks: all clocks are one.",
    "Protocols that find routes, neighbours and classes (BGP, LLDP, DCBX): routes and classes are configured.",
    "Memory of the switch: cells are written and freed at once, and no bank is ever busy.",
];

/// Why a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Ending {
    /// All flows are done.
    #[default]
    Done,
    /// The scenario's time is over.
    Until,
    /// The user stopped the run; results are those until then.
    Interrupted,
    /// Nothing would ever move again.
    Stalled {
        /// Queues and flows that wait, and the reason of each.
        waiting: Vec<Waiting>,
    },
}

impl Ending {
    /// The ending as a short text.
    #[must_use]
    pub const fn words(&self) -> &'static str {
        match self {
            Self::Done => "all flows are done",
            Self::Until => "the scenario's time is over",
            Self::Interrupted => "interrupted: results until then",
            Self::Stalled { .. } => "stalled: nothing would move again",
        }
    }
}

/// A queue or flow of a stalled run that waits for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Host, or switch with port and priority.
    pub who: String,
    /// Cause of the wait: a pause and whose it is, credit, an acknowledgement.
    pub on: String,
    /// Time since which it waits.
    pub since_ps: u64,
}

/// A setting of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Key of the setting, as in the scenario file.
    pub key: String,
    /// Value of the setting, as text.
    pub value: String,
}

/// Quantity that a series records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
    /// Bytes of buffer that an output's queue takes: mean and maximum.
    QueueDepthBytes,
    /// Bits a second that a port sent, or a host took: mean.
    ThroughputBps,
    /// Picoseconds of an interval for which a queue was paused: sum.
    PausedPs,
}

impl SeriesKind {
    /// All kinds, in the order of the variants.
    pub const ALL: [Self; 3] = [Self::QueueDepthBytes, Self::ThroughputBps, Self::PausedPs];

    /// Name of the kind in results, which ends with its unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueDepthBytes => "queue_depth_bytes",
            Self::ThroughputBps => "throughput_bps",
            Self::PausedPs => "paused_ps",
        }
    }
}

/// A series over time. Point n stands for the time from n to n + 1 intervals; the last one ends with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesResult {
    /// Quantity that it records.
    pub kind: SeriesKind,
    /// Name of the host or switch.
    pub node: String,
    /// Port, of a series of a switch.
    pub port: Option<u8>,
    /// Priority, of a series of a queue.
    pub pri: Option<u8>,
    /// Length of the interval that a point stands for.
    pub interval_ps: u64,
    /// Mean of each interval; of [`SeriesKind::PausedPs`] the sum.
    pub mean: Vec<u64>,
    /// Maximum of each interval; empty for kinds that have none.
    pub max: Vec<u64>,
}

impl SeriesResult {
    /// The series with these `points`, at a node and perhaps one of its ports and priorities.
    #[must_use]
    pub fn new(
        kind: SeriesKind,
        node: &str,
        port: Option<u8>,
        pri: Option<u8>,
        points: Points,
    ) -> Self {
        let Points { interval_ps, mean, max } = points;
        Self { kind, node: node.to_owned(), port, pri, interval_ps, mean, max }
    }

    /// Place of the series as text: `s1 port 2 priority 3`.
    #[must_use]
    pub fn place(&self) -> String {
        let port = self.port.map(|port| format!(" port {port}")).unwrap_or_default();
        let pri = self.pri.map(|pri| format!(" priority {pri}")).unwrap_or_default();
        format!("{}{port}{pri}", self.node)
    }
}

/// An expectation of the scenario, and the value found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectResult {
    /// Name of the metric, which ends with its unit.
    pub metric: String,
    /// Value found; `None` if there is none, for example because nothing was delivered.
    pub found: Option<Decimal>,
    /// Value that the scenario expects.
    pub wanted: Decimal,
    /// Tolerance as text: `0.3%`, `at least`.
    pub tolerance: String,
    /// Least value that passes; `None`: no lower bound.
    pub least: Option<Decimal>,
    /// Largest value that passes; `None`: no upper bound.
    pub most: Option<Decimal>,
    /// Whether the value found is within the bounds.
    pub passed: bool,
    /// Source of the expected value, as the scenario names it.
    pub source: String,
}

/// A violation that the checkers of an endpoint or a switch found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    /// Virtual time of the violation.
    pub at_ps: u64,
    /// Name of the host or switch.
    pub node: String,
    /// Name of the checker.
    pub checker: String,
    /// Description of the violation.
    pub saw: String,
}

/// All results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`] of the version that wrote it.
    pub schema: u32,
    /// Version of weft that made the run.
    pub weft: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of the run.
    pub seed: u64,
    /// The scenario's settings, as far as they are told.
    pub settings: Vec<Setting>,
    /// Why the run ended.
    pub ending: Ending,
    /// Virtual time at the end.
    pub end_ps: u64,
    /// Figures of all flows together.
    pub summary: Summary,
    /// The scenario's expectations, each with the value found.
    pub expectations: Vec<ExpectResult>,
    /// Latencies of all frames that hosts took.
    pub latency: Percentiles,
    /// Sums of the parts of these latencies; `None` if they were not recorded.
    pub parts: Option<LatencyParts>,
    /// Hosts, in the order of their numbers.
    pub hosts: Vec<HostResult>,
    /// Switches, in the order of the topology.
    pub switches: Vec<SwitchResult>,
    /// Links, in the order of the topology.
    pub links: Vec<LinkResult>,
    /// Slowdown by size of flow.
    pub sizes: Vec<SizeBin>,
    /// Flows and bytes of each pair of hosts.
    pub matrix: Vec<MatrixCell>,
    /// Series over time of queues, ports and hosts.
    pub series: Vec<SeriesResult>,
    /// Flows, in the order of their numbers.
    pub flows: Vec<FlowResult>,
    /// Effects that this run does not model.
    pub not_modelled: Vec<String>,
    /// Violations that checkers found, if they were on (`weft sim check`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objections: Vec<Objection>,
}

impl Results {
    /// Empty results of a run that ended at `end`.
    #[must_use]
    pub fn new(scenario: &str, seed: u64, ending: Ending, end: Instant) -> Self {
        Self {
            schema: SCHEMA,
            weft: env!("CARGO_PKG_VERSION").to_owned(),
            scenario: scenario.to_owned(),
            seed,
            ending,
            end_ps: end.as_ps(),
            not_modelled: NOT_MODELLED.iter().map(|&text| text.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Derives [`Results::summary`], sizes, matrix and parts from flows, hosts and switches.
    pub fn finish(&mut self) {
        let mut summary = Summary::of(&self.flows);
        for switch in &self.switches {
            summary.dropped_frames += switch.ledger.dropped_frames;
            for port in &switch.ports {
                summary.pfc_tx_frames += port.pfc_tx_frames;
                for queue in &port.queues {
                    summary.ecn_marked_frames += queue.ecn_marked_frames;
                    summary.switch_paused_ps =
                        summary.switch_paused_ps.saturating_add(queue.paused_ps);
                    let depth = queue.depth_max_cells * u64::from(switch.cell_bytes);
                    summary.queue_depth_max_bytes = summary.queue_depth_max_bytes.max(depth);
                }
            }
        }
        let paused = self.hosts.iter().map(|host| host.paused_ps);
        summary.host_paused_ps = paused.fold(0, u64::saturating_add);
        let counted = |host: &HostResult| {
            // Frames of RC Link and segments of TCP, which a host counts by different names.
            let all = ["resent", "tcp_resent"].into_iter().filter_map(|of| host.counters.get(of));
            all.sum::<u64>()
        };
        summary.resent_frames = self.hosts.iter().map(counted).sum();
        let mut parts: Option<LatencyParts> = None;
        for of_host in self.hosts.iter().filter_map(|host| host.parts.as_ref()) {
            parts.get_or_insert_default().add(of_host);
        }
        self.parts = parts.or(self.parts);
        self.summary = summary;
        self.sizes = SizeBin::of(&self.flows);
        self.matrix = MatrixCell::of(&self.flows);
    }

    /// Whether all expectations passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.passed)
    }

    /// Name of the host with this number; "?" if there is none.
    #[must_use]
    pub fn host(&self, number: u32) -> &str {
        let host = usize::try_from(number).ok().and_then(|number| self.hosts.get(number));
        host.map_or("?", |host| host.name.as_str())
    }
}
