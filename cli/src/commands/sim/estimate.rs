//! Estimate of a scenario's work, before it runs.
//!
//! Counts frames, and frame-hops: frames times the switches that they pass.
//!
//! Source: docs/simulation.md.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use weft_base::rng::Rng;
use weft_hosts::frames::Station;
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_hosts::tcp::HEADERS_LEN;
use weft_sim::scenario::flow::{Carrier, Flow};
use weft_sim::scenario::workload::{Workload, expand};
use weft_sim::scenario::{Scenario, Site};
use weft_sim::topology::{NodeKind, Topology};

/// The size of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    hosts: usize,
    switches: usize,
    links: usize,
    flows: u64,
    frames: u64,
    /// Frames that switches forward, without ACKs and retransmissions.
    pub hops: u64,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, switches, links, flows, frames, hops } = self;
        write!(
            f,
            "{hosts} hosts, {switches} switches, {links} links; {flows} flows, {frames} frames of payload, {hops} frame-hops and what comes back"
        )
    }
}

/// Bytes of payload in a frame of the scenario's endpoints.
fn payload(scenario: &Scenario) -> u64 {
    let peers: Vec<Station> = vec![Station::numbered(1), Station::numbered(2)];
    let mut spec = EndpointSpec::new(0, peers.into(), scenario.endpoints.kind);
    // The first host stands for all: an estimate needs no more.
    let first = scenario.topology.hosts().next().unwrap_or(0);
    let name = scenario.topology.nodes().get(first).map_or("", |node| node.name.as_str());
    let site = Site { node: first, name, links: &[] };
    match (scenario.endpoints.template)(&site, &mut spec) {
        Ok(()) => spec.payload_max.max(1) as u64,
        Err(_) => 1,
    }
}

/// Frames of a flow, with `payload` bytes in each of an endpoint's. A TCP connection that lasts for a time is taken to
/// fill the slowest link.
fn frames_of(scenario: &Scenario, flow: &Flow, payload: u64) -> u64 {
    let workload = scenario.workloads.get(usize::from(flow.workload));
    let Some(spec) = workload.and_then(Workload::connection) else {
        return flow.bytes.div_ceil(payload);
    };
    match flow.carrier {
        Carrier::Tcp { lasts: Some(lasts) } => {
            let links = scenario.topology.links().iter();
            let rate = links.filter_map(|link| link.spec).map(|spec| spec.rate).min();
            rate.map_or(0, |rate| lasts.as_ps() / rate.frame_time(spec.mss + HEADERS_LEN).as_ps())
        }
        _ => flow.bytes.div_ceil(spec.mss as u64),
    }
}

/// Number of switches on the shortest path from a node to each other one; `u64::MAX` if there is none.
fn switches_from(topology: &Topology, from: usize) -> Vec<u64> {
    let mut hops = vec![u64::MAX; topology.nodes().len()];
    let mut next = VecDeque::from([(from, 0)]);
    while let Some((node, passed)) = next.pop_front() {
        let Some(slot) = hops.get_mut(node).filter(|slot| **slot == u64::MAX) else { continue };
        *slot = passed;
        let Some(it) = topology.nodes().get(node) else { continue };
        // Hosts don't forward: a path ends there.
        if it.kind == NodeKind::Host && node != from {
            continue;
        }
        let through = passed + u64::from(it.kind == NodeKind::Switch);
        let links = it.ports.iter().filter_map(|&link| topology.links().get(link));
        next.extend(links.map(|link| (link.far(node).0, through)));
    }
    hops
}

pub(super) fn of(scenario: &Scenario) -> Work {
    let topology = &scenario.topology;
    let hosts: Vec<usize> = topology.hosts().collect();
    let mut work = Work {
        hosts: hosts.len(),
        switches: topology.switches().count(),
        links: topology.links().len(),
        ..Work::default()
    };
    // Workloads that cannot be expanded count as none here; the run refuses them.
    let flows = expand(&scenario.workloads, hosts.len(), Rng::new(scenario.seed).next_u64());
    let payload = payload(scenario);
    let mut ways: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let node = |host: u16| hosts.get(usize::from(host)).copied().unwrap_or(0);
    for flow in flows.unwrap_or_default() {
        let way = ways.entry(flow.from).or_insert_with(|| switches_from(topology, node(flow.from)));
        let hops = way.get(node(flow.to)).copied().filter(|hops| *hops != u64::MAX).unwrap_or(0);
        let frames = frames_of(scenario, &flow, payload);
        work.flows += 1;
        work.frames = work.frames.saturating_add(frames);
        work.hops = work.hops.saturating_add(frames.saturating_mul(hops));
    }
    work
}
