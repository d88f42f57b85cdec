//! Results of a run: what every view of it is made from.
//!
//! [`Results`], filled by whoever runs a scenario; [`Results::finish`] derives what follows from the rest.
//!
//! Units: as the names of fields end: picoseconds, bytes, frames, bits a second.
//! Source: docs/spec/model.md §6; docs/results.md.
//!
//! Equal runs have equal results: there is no date in them, no name of a machine and no order of chance.

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

/// Version of what is in [`Results`]: it grows when a field changes or goes.
pub const SCHEMA: u32 = 1;

/// What no run has in it, for whoever reads a result.
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
    /// The time that the scenario gives is over.
    Until,
    /// Somebody stopped it: the results are those until then.
    Interrupted,
    /// Nothing would ever move again.
    Stalled {
        /// Who waits for what.
        waiting: Vec<Waiting>,
    },
}

impl Ending {
    /// In a few words.
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

/// Who waits for what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Host, or switch with port and priority.
    pub who: String,
    /// What for: the end of a pause and whose, credit, an acknowledgement.
    pub on: String,
    /// Since when.
    pub since_ps: u64,
}

/// A setting of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its key, as the scenario file has it.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// What a series counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
    /// Bytes of buffer of an output's queue: mean and most.
    QueueDepthBytes,
    /// Bits a second that a port sent, or a host took: mean.
    ThroughputBps,
    /// Picoseconds of an interval for which a queue was paused: sum.
    PausedPs,
}

impl SeriesKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::QueueDepthBytes, Self::ThroughputBps, Self::PausedPs];

    /// As in results: with its unit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueDepthBytes => "queue_depth_bytes",
            Self::ThroughputBps => "throughput_bps",
            Self::PausedPs => "paused_ps",
        }
    }
}

/// A series over time; point n stands for the time from n to n + 1 intervals, the last one for what is left of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesResult {
    /// What it counts.
    pub kind: SeriesKind,
    /// Host or switch.
    pub node: String,
    /// Port of a switch.
    pub port: Option<u8>,
    /// Priority.
    pub pri: Option<u8>,
    /// Time that a point stands for.
    pub interval_ps: u64,
    /// Mean in each; of [`SeriesKind::PausedPs`] the sum.
    pub mean: Vec<u64>,
    /// Most in each; none where that has no meaning.
    pub max: Vec<u64>,
}

impl SeriesResult {
    /// Points of something at a node.
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

    /// Where it is, in words: `s1 port 2 priority 3`.
    #[must_use]
    pub fn place(&self) -> String {
        let port = self.port.map(|port| format!(" port {port}")).unwrap_or_default();
        let pri = self.pri.map(|pri| format!(" priority {pri}")).unwrap_or_default();
        format!("{}{port}{pri}", self.node)
    }
}

/// What was expected, and what came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectResult {
    /// The metric; its name ends with its unit.
    pub metric: String,
    /// What came; `None` when there is no such figure, as nothing was delivered.
    pub found: Option<Decimal>,
    /// What was wanted.
    pub wanted: Decimal,
    /// How far off it may be, in words: `0.3%`, `at least`.
    pub tolerance: String,
    /// Least that passes; `None` for no bound.
    pub least: Option<Decimal>,
    /// Most that passes; `None` for no bound.
    pub most: Option<Decimal>,
    /// Whether it is within.
    pub passed: bool,
    /// Where the wanted value is from.
    pub source: String,
}

/// Something that must not be, as the checkers of an endpoint or a switch saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    /// When.
    pub at_ps: u64,
    /// Host or switch.
    pub node: String,
    /// Which checker.
    pub checker: String,
    /// What it saw.
    pub saw: String,
}

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of weft.
    pub weft: String,
    /// Name of the scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// What the scenario says, as far as it is worth telling.
    pub settings: Vec<Setting>,
    /// Why it ended.
    pub ending: Ending,
    /// Virtual time at which it ended.
    pub end_ps: u64,
    /// All flows together.
    pub summary: Summary,
    /// What was expected.
    pub expectations: Vec<ExpectResult>,
    /// Latency of all frames that hosts took.
    pub latency: Percentiles,
    /// What it is made of; `None` where that was not taken apart.
    pub parts: Option<LatencyParts>,
    /// By number.
    pub hosts: Vec<HostResult>,
    /// In the order of the topology.
    pub switches: Vec<SwitchResult>,
    /// In the order of the topology.
    pub links: Vec<LinkResult>,
    /// Slowdown by size of flow.
    pub sizes: Vec<SizeBin>,
    /// Who had what for whom.
    pub matrix: Vec<MatrixCell>,
    /// Over time.
    pub series: Vec<SeriesResult>,
    /// By number.
    pub flows: Vec<FlowResult>,
    /// What this run has not in it.
    pub not_modelled: Vec<String>,
    /// What checkers object to, if they were on (`weft sim check`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objections: Vec<Objection>,
}

impl Results {
    /// Results of a run until `end`, with nothing in them yet.
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

    /// Derives what follows from flows, hosts and switches: [`Results::summary`], sizes, matrix and parts.
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

    /// Whether all that was expected has come.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.passed)
    }

    /// Name of a host.
    #[must_use]
    pub fn host(&self, number: u32) -> &str {
        let host = usize::try_from(number).ok().and_then(|number| self.hosts.get(number));
        host.map_or("?", |host| host.name.as_str())
    }
}
