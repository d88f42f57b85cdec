//! Samples for series over time: levels of switches and hosts now, and amounts since the sample before.
//!
//! A [`Sampler`] looks at a [`Network`] between slices of virtual time.
//!
//! Source: docs/spec/model.md §6: the memory for series is bounded.

use weft_dataplane::pipeline::Core;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{PortId, Pri};

use crate::network::Network;
use crate::results::series::{Amount, Level};
use crate::results::{SeriesKind, SeriesResult};
use crate::scenario::Options;
use crate::scenario::Scenario;
use crate::switch::Switch;
use crate::topology::NodeId;

/// Most points of all series together.
const POINTS_MAX: usize = 1 << 20;
/// Least number of points of a series.
const POINTS_MIN: usize = 16;

/// A priority of a port of a switch, with its series.
struct Queue {
    switch: usize,
    port: PortId,
    pri: Pri,
    depth: Option<Level>,
    paused: Paused,
}

/// Series of the time for which a queue or host has been paused.
#[derive(Default)]
struct Paused {
    time: Option<Amount>,
    paused_ps: u64,
}

impl Paused {
    /// Notes that the time paused is `paused_ps` at `now`.
    fn sample(
        &mut self,
        paused_ps: u64,
        last: Instant,
        now: Instant,
        interval: Span,
        points: usize,
    ) {
        // The series is made when there is something to record: most queues are never paused.
        if paused_ps > self.paused_ps {
            let time = self.time.get_or_insert_with(|| Amount::new(interval, points));
            time.add_over(last, now, paused_ps - self.paused_ps);
            self.paused_ps = paused_ps;
        }
    }
}

/// Traffic that leaves by a port of a switch, or that a host takes.
struct Flowing {
    /// Index of the switch or host.
    place: usize,
    port: Option<PortId>,
    bits: Option<Amount>,
    bytes: u64,
}

/// Takes samples of a network, and keeps the series.
pub(super) struct Sampler {
    step: Span,
    points: usize,
    /// Samples taken since the step was last doubled.
    taken: usize,
    interval: Span,
    samples_max: usize,
    last: Instant,
    queues: Vec<Queue>,
    ports: Vec<Flowing>,
    hosts: Vec<Flowing>,
    /// Time paused of the hosts' requests.
    held: Vec<Paused>,
}

impl Sampler {
    pub fn new(network: &Network, options: Options) -> Self {
        let (mut queues, mut ports) = (Vec::new(), Vec::new());
        for (switch, it) in network.switches().enumerate() {
            let snapshot = it.core().snapshot.load();
            let config = &snapshot.config;
            for port in (0..config.ports.len()).filter_map(PortId::new) {
                ports.push(Flowing { place: switch, port: Some(port), bits: None, bytes: 0 });
                for pri in Pri::ALL.into_iter().take(config.pris) {
                    let paused = Paused::default();
                    queues.push(Queue { switch, port, pri, depth: None, paused });
                }
            }
        }
        let hosts: Vec<Flowing> = network
            .hosts()
            .enumerate()
            .map(|(place, _)| Flowing { place, port: None, bits: None, bytes: 0 })
            .collect();
        // Memory for series is bounded (docs/spec/model.md §6): many series have fewer points each.
        let series = (2 * queues.len() + ports.len() + 2 * hosts.len()).max(1);
        let samples_max = options.samples_max.max(2);
        Self {
            step: options.sampling.max(Span::from_ps(1)),
            points: (POINTS_MAX / series).clamp(POINTS_MIN, samples_max.max(POINTS_MIN)),
            taken: 0,
            interval: options.sampling.max(Span::from_ps(1)),
            samples_max,
            last: Instant::ZERO,
            queues,
            ports,
            held: hosts.iter().map(|_| Paused::default()).collect(),
            hosts,
        }
    }

    /// Time from one sample to the next.
    pub const fn step(&self) -> Span {
        self.step
    }

    /// Takes a sample of the network at `now`.
    pub fn sample(&mut self, network: &Network, now: Instant) {
        let (interval, points, last) = (self.interval, self.points, self.last);
        let switches: Vec<&Switch> = network.switches().collect();
        for queue in &mut self.queues {
            let Some(core) = switches.get(queue.switch).map(|switch| switch.core()) else {
                continue;
            };
            queue.sample(core, last, now, interval, points);
        }
        for port in &mut self.ports {
            let core = switches.get(port.place).map(|switch| switch.core());
            let (Some(core), Some(number)) = (core, port.port) else { continue };
            let bytes = core.stats.iter().map(|stats| stats.port[number].tx_bytes.get()).sum();
            port.sample(bytes, last, now, interval, points);
        }
        for ((host, held), it) in self.hosts.iter_mut().zip(&mut self.held).zip(network.hosts()) {
            held.sample(it.endpoint().paused(now).as_ps(), last, now, interval, points);
            host.sample(it.taken_bytes(), last, now, interval, points);
        }
        self.last = self.last.max(now);
        self.taken += 1;
        if self.taken >= self.samples_max {
            // With the step doubled, as many samples again cover as much time as all before.
            self.taken /= 2;
            self.step = self.step + self.step;
        }
    }

    /// All series that are not 0 throughout, until `end`.
    pub fn finish(self, scenario: &Scenario, end: Instant) -> Vec<SeriesResult> {
        let topology = &scenario.topology;
        let name = |node: Option<&NodeId>| {
            let node = node.and_then(|&node| topology.nodes().get(node));
            node.map(|node| node.name.clone()).unwrap_or_default()
        };
        let switches: Vec<NodeId> = topology.switches().collect();
        let hosts: Vec<NodeId> = topology.hosts().collect();
        let mut all = Vec::new();
        let mut paused = Vec::new();
        for queue in self.queues {
            let name = name(switches.get(queue.switch));
            let (port, pri) = (Some(queue.port.get()), Some(queue.pri.get()));
            let of = |kind, points| SeriesResult::new(kind, &name, port, pri, points);
            let depth = queue.depth.and_then(|level| level.finish(end));
            all.extend(depth.map(|points| of(SeriesKind::QueueDepthBytes, points)));
            let sums = queue.paused.time.and_then(|time| time.sums(end));
            paused.extend(sums.map(|points| of(SeriesKind::PausedPs, points)));
        }
        for (held, host) in self.held.into_iter().zip(&hosts) {
            let sums = held.time.and_then(|time| time.sums(end));
            let of = |points| {
                SeriesResult::new(SeriesKind::PausedPs, &name(Some(host)), None, None, points)
            };
            paused.extend(sums.map(of));
        }
        for (flowing, names) in self
            .ports
            .into_iter()
            .map(|it| (it, &switches))
            .chain(self.hosts.into_iter().map(|it| (it, &hosts)))
        {
            let name = name(names.get(flowing.place));
            let port = flowing.port.map(PortId::get);
            let rate = flowing.bits.and_then(|amount| amount.rate(end, 8));
            let kind = SeriesKind::ThroughputBps;
            all.extend(rate.map(|points| SeriesResult::new(kind, &name, port, None, points)));
        }
        all.extend(paused);
        all
    }
}

impl Queue {
    fn sample(&mut self, core: &Core, last: Instant, now: Instant, interval: Span, points: usize) {
        let cells = core.buffer.depth(self.port, self.pri);
        if cells > 0 || self.depth.is_some() {
            let cell = core.snapshot.load().config.buffer.cell_bytes;
            let depth = self.depth.get_or_insert_with(|| Level::new(interval, points));
            depth.set(now, u64::from(cells) * u64::from(cell));
        }
        let paused = |stats: &weft_dataplane::stats::WorkerStats| {
            stats.port[self.port].pri[self.pri].paused_ps.get()
        };
        let paused_ps = core.stats.iter().map(|stats| paused(stats)).sum();
        self.paused.sample(paused_ps, last, now, interval, points);
    }
}

impl Flowing {
    fn sample(&mut self, bytes: u64, last: Instant, now: Instant, interval: Span, points: usize) {
        if bytes > self.bytes {
            let amount = self.bits.get_or_insert_with(|| Amount::new(interval, points));
            amount.add_over(last, now, bytes - self.bytes);
            self.bytes = bytes;
        }
    }
}

/// Frames that a switch has sent on all ports.
pub(super) fn sent_frames(switch: &Switch) -> u64 {
    let core = switch.core();
    let ports = core.snapshot.load().config.ports.len();
    let ports = || (0..ports).filter_map(PortId::new);
    core.stats
        .iter()
        .map(|stats| ports().map(|port| stats.port[port].tx_frames.get()).sum::<u64>())
        .sum()
}
