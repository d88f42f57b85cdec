//! Runs a scenario.
//!
//! [`run`] takes a [`Scenario`] and [`RunOptions`] and gives [`Results`], which are valid whenever the run ends.
//!
//! Source: docs/spec/model.md §3, §6.

mod collect;
mod sample;
mod stall;

use weft_base::memory::{NoMemory, try_room_with_reserve};
use weft_base::rng::Rng;
use weft_base::sync::{AtomicBool, Ordering};
use weft_dataplane::time::{Instant, Span};

use self::sample::Sampler;
use crate::network::{Host, Network, NetworkError, Plan};
use crate::results::flow::FlowResult;
use crate::results::{Ending, Objection, Results};
use crate::scenario::circles;
use crate::scenario::fault::Fault;
use crate::scenario::metrics::{self, MetricError};
use crate::scenario::workload::{Workload, WorkloadError, expand};
use crate::scenario::{Checks, Scenario};
use crate::topology::TopologyError;

/// A run stalls if nothing has moved for this many times as long as an endpoint waits for an ACK.
const PATIENCE: u64 = 10;
/// Least time without movement that counts as a stall.
const STILL: Span = Span::from_ns(1_000_000);

/// Threads and observers of a run; none of them changes the results.
pub struct RunOptions<'a> {
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Set by the caller to end the run, with the results until then.
    pub stop: &'a AtomicBool,
    /// Called after each slice of virtual time with the progress so far.
    pub progress: &'a mut dyn FnMut(&Progress),
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time that the run has reached.
    pub now: Instant,
    /// Virtual time at which the run ends at the latest.
    pub until: Instant,
    /// Frames that switches have sent.
    pub frames: u64,
    /// Number of all flows.
    pub flows: usize,
    /// Number of flows that were delivered.
    pub delivered: usize,
    /// Bytes of payload that hosts have taken.
    pub taken_bytes: u64,
    /// Bytes of payload of all flows.
    pub bytes: u64,
    /// Flows delivered since the last call, in the order of delivery; fields of later events are not set yet.
    pub ended: Vec<FlowResult>,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A workload cannot be expanded.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The network cannot be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The topology is not valid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// Memory became too short to go on.
    #[error("the run came to {} ns", at.as_ns())]
    Memory {
        /// Virtual time that the run had reached.
        at: Instant,
        /// Bytes that should have been free.
        source: NoMemory,
    },
    /// PFC may wait for itself, in the circle that the text names.
    #[error(
        "PFC may wait for itself in a circle: {0}. Expected routes without one, PFC off at one of these, or that circles are allowed"
    )]
    Circle(String),
    /// No workload has a flow.
    #[error("no workload has a flow: nothing would move")]
    Nothing,
    /// An expectation names a metric that does not exist.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

/// Builds the network of a scenario, in which nothing has moved yet.
///
/// # Errors
/// A workload, network or topology that cannot be, or a circle of PFC.
pub fn build(scenario: &Scenario) -> Result<Network, RunError> {
    let hosts = scenario.topology.hosts().count();
    // Workloads and faults draw from seeds of their own: a change of one leaves the other as it was.
    let mut seeds = Rng::new(scenario.seed);
    let flows = expand(&scenario.workloads, hosts, seeds.next_u64())?;
    let endpoints = &scenario.endpoints;
    let connections: Vec<_> = scenario.workloads.iter().map(Workload::connection).collect();
    let network = Network::build(&Plan {
        topology: &scenario.topology,
        switches: &*scenario.switches,
        endpoints: &*endpoints.template,
        kind: endpoints.kind,
        delay: endpoints.delay,
        overhead: endpoints.overhead,
        fronts: !scenario.options.full_frames,
        frame_len_max: endpoints.frame_len_max,
        flows: flows.into(),
        connections: &connections,
        faults: &scenario.faults,
        seed: seeds.next_u64(),
        checks: scenario.options.checks,
        latency_parts: scenario.options.latency_parts,
    })?;
    if !scenario.options.pfc_circles {
        let snapshots = network.switches().map(|switch| switch.core().snapshot.load());
        let pfc: Vec<bool> = snapshots.map(|snapshot| snapshot.config.pfc.enabled).collect();
        let routes = scenario.topology.routes()?;
        if let Some(circle) = circles::circle(&scenario.topology, &routes, &pfc) {
            return Err(RunError::Circle(circles::words(&scenario.topology, &circle)));
        }
    }
    Ok(network)
}

/// Runs a scenario to its end.
///
/// # Errors
/// Those of [`build`], and memory that became short; nothing has moved in any other case.
pub fn run(scenario: &Scenario, options: RunOptions<'_>) -> Result<Results, RunError> {
    let RunOptions { threads, stop, progress } = options;
    let mut network = build(scenario)?;
    if network.flows().is_empty() {
        return Err(RunError::Nothing);
    }
    // Before the run: a misspelt metric should not cost hours.
    metrics::check(scenario, &collect::collect(scenario, &network, Ending::Until, network.now()))?;
    let mut sampler = Sampler::new(&network, scenario.options);
    let mut watch = Watch::new(scenario, &network);
    let ending = loop {
        let end = (network.now() + sampler.step()).min(scenario.until);
        if let Err(error) = network.run(end, threads.max(1)) {
            // A wire does not fail. If it did, the run would stall and report that.
            debug_assert!(false, "{error}");
        }
        network.settle();
        // A failed allocation ends the process, and with it everything told so far.
        try_room_with_reserve(network.spare())
            .map_err(|source| RunError::Memory { at: network.now(), source })?;
        let ending = watch.look(&network, stop.load(Ordering::Relaxed));
        // A sample at the end of the slice would add time in which the run was already over.
        let at = match ending {
            Some(Ending::Done) => watch.last,
            _ => network.now(),
        };
        sampler.sample(&network, at);
        progress(&watch.progress(&network));
        if let Some(ending) = ending {
            break ending;
        }
    };
    let at = if ending == Ending::Done { watch.last } else { network.now() };
    let ending = match ending {
        Ending::Stalled { .. } => {
            Ending::Stalled { waiting: stall::waiting(scenario, &network, watch.moved) }
        }
        other => other,
    };
    let mut results = collect::collect(scenario, &network, ending, at);
    results.series = sampler.finish(scenario, at);
    for (host, parts) in results.hosts.iter_mut().zip(network.parts()) {
        host.parts = Some(parts);
    }
    results.finish();
    results.expectations = metrics::evaluate(scenario, &results);
    // A run that the user stopped is not judged.
    if scenario.options.checks != Checks::Off && results.ending != Ending::Interrupted {
        results.objections = objections(scenario, &mut network);
    }
    Ok(results)
}

/// Violations that checkers find once everything in flight has arrived.
fn objections(scenario: &Scenario, network: &mut Network) -> Vec<Objection> {
    let returned = |network: &Network| -> u64 {
        let all = network.hosts().flat_map(|host| host.endpoint().credits());
        all.map(|(_, _, returned)| returned).sum()
    };
    loop {
        let before = returned(network);
        let end = network.now() + STILL;
        if let Err(error) = network.run(end, 1) {
            debug_assert!(false, "{error}");
        }
        // When all is sent, receivers may still drain their buffers and return credits.
        if !network.is_idle() || returned(network) == before {
            break;
        }
    }
    let nodes = scenario.topology.nodes();
    let all = network.violations().into_iter().map(|(node, found)| Objection {
        at_ps: found.at_ps,
        node: nodes.get(node).map(|node| node.name.clone()).unwrap_or_default(),
        checker: found.checker.to_owned(),
        saw: found.saw,
    });
    all.collect()
}

/// Notices when a run has ended, or stalls.
struct Watch {
    until: Instant,
    /// Data frames that hosts have sent and taken.
    frames: u64,
    /// When that number last grew.
    moved: Instant,
    /// Time without movement after which the run has stalled.
    quiet: Span,
    /// When the last fault begins or ends.
    faults: Instant,
    /// When the last flow was done.
    last: Instant,
    bytes: u64,
    /// By host: number of flows to it that were reported as delivered.
    told: Vec<usize>,
}

impl Watch {
    fn new(scenario: &Scenario, network: &Network) -> Self {
        let changes = scenario.faults.iter().flat_map(|fault| match *fault {
            Fault::LinkDown { from, until, .. } => [Some(from), until],
            Fault::PauseStorm { from, until, .. } => [Some(from), Some(until)],
            _ => [None, None],
        });
        let patience = Span::from_ps(network.patience().as_ps().saturating_mul(PATIENCE));
        Self {
            until: scenario.until,
            frames: 0,
            moved: Instant::ZERO,
            quiet: patience.max(network.tcp_patience()).max(STILL),
            faults: changes.flatten().max().unwrap_or(Instant::ZERO),
            last: Instant::ZERO,
            bytes: network.flows().iter().map(|flow| flow.bytes).fold(0, u64::saturating_add),
            told: vec![0; network.hosts().count()],
        }
    }

    /// Flows delivered since the last call, in the order of delivery.
    fn ended(&mut self, network: &Network) -> Vec<FlowResult> {
        let mut ended = Vec::new();
        for (told, host) in self.told.iter_mut().zip(network.hosts()) {
            let fresh = host.delivered().get(*told..).unwrap_or_default();
            *told += fresh.len();
            ended.extend(fresh.iter().filter_map(|it| collect::delivered(network, it)));
        }
        ended.sort_unstable_by_key(|flow: &FlowResult| (flow.delivered_ps, flow.id));
        ended
    }

    /// Why the run ends now, if it does.
    fn look(&mut self, network: &Network, is_stopped: bool) -> Option<Ending> {
        let now = network.now();
        let frames = network.hosts().map(Host::moved).sum();
        if frames != self.frames {
            (self.frames, self.moved) = (frames, now);
        }
        let flows = network.flows().len();
        if network.closed() == flows && network.delivered() == flows {
            let dones = network.hosts().flat_map(|host| {
                let sent = host.sent().iter().filter_map(|sent| sent.done.or(sent.failed));
                sent.chain(host.delivered().iter().map(|delivered| delivered.at))
            });
            self.last = dones.max().unwrap_or(now);
            return Some(Ending::Done);
        }
        if is_stopped {
            return Some(Ending::Interrupted);
        }
        if now >= self.until {
            return Some(Ending::Until);
        }
        // A flow still to begin, or a fault still to end, may set things moving again.
        let next_start = network.hosts().filter_map(Host::next_start).max();
        let since = self.moved.max(self.faults).max(next_start.unwrap_or(Instant::ZERO));
        (since + self.quiet <= now).then(|| Ending::Stalled { waiting: Vec::new() })
    }

    fn progress(&mut self, network: &Network) -> Progress {
        let taken = network.hosts().map(Host::taken_bytes);
        Progress {
            now: network.now(),
            until: self.until,
            frames: network.switches().map(sample::sent_frames).sum(),
            flows: network.flows().len(),
            delivered: network.delivered(),
            taken_bytes: taken.sum(),
            bytes: self.bytes,
            ended: self.ended(network),
        }
    }
}
