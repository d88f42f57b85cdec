//! Collects the state of a [`Network`] as [`Results`], without series and expectations.
//!
//! Source: docs/spec/model.md §6; docs/results.md.

use std::collections::BTreeMap;

use weft_dataplane::pipeline::Ledger;
use weft_dataplane::time::{Instant, Span};
use weft_hosts::rclink::endpoint::Endpoint;
use weft_hosts::stream::rx::Latency;

use crate::network::{Delivered, Host, Network, TcpSide};
use crate::results::flow::FlowResult;
use crate::results::network::{
    CreditResult, HostResult, LinkEnd, LinkResult, LinkWay, Percentiles, SwitchResult,
    endpoint_counters, tcp_counters,
};
use crate::results::{Ending, Results};
use crate::scenario::Scenario;
use crate::topology::{LinkSpec, NodeId, NodeKind};

/// Results of the network until `end`.
pub(super) fn collect(
    scenario: &Scenario,
    network: &Network,
    ending: Ending,
    end: Instant,
) -> Results {
    let topology = &scenario.topology;
    let name =
        |node: NodeId| topology.nodes().get(node).map(|node| node.name.clone()).unwrap_or_default();
    let mut results = Results::new(&scenario.name, scenario.seed, ending, end);
    let mut all = Latency::default();
    let hosts: Vec<&Host> = network.hosts().collect();
    for (node, host) in topology.hosts().zip(&hosts) {
        all.merge(host.endpoint().latency());
        results.hosts.push(of_host(name(node), host, end));
    }
    results.latency = Percentiles::from(&all);
    let ledgers = network.ledgers();
    for ((node, switch), ledger) in topology.switches().zip(network.switches()).zip(&ledgers) {
        let cell = switch.core().snapshot.load().config.buffer.cell_bytes;
        results.switches.push(SwitchResult::new(&name(node), cell, ledger));
    }
    results.links = links(scenario, &hosts, &ledgers, end);
    results.flows = flows(network, &hosts);
    results
}

fn of_host(name: String, host: &Host, end: Instant) -> HostResult {
    let endpoint = host.endpoint();
    let mut counters = endpoint_counters(&endpoint.stats());
    for (reason, frames) in host.port_counters().rx_dropped {
        if let Some(reason) = reason {
            counters.insert(format!("drops_{}", reason.name()), frames);
        }
    }
    if let Some(tcp) = host.tcp() {
        counters.extend(tcp_counters(&tcp.stats()));
    }
    if host.storm_frames() > 0 {
        counters.insert("storm_pfc_tx".to_owned(), host.storm_frames());
    }
    HostResult {
        name,
        counters,
        paused_ps: endpoint.paused(end).as_ps(),
        receive_buffer_max_bytes: endpoint.watermark() as u64,
        latency: Percentiles::from(endpoint.latency()),
        parts: None,
        credits: credits(endpoint),
    }
}

/// Credits by virtual channel, summed over all peers.
fn credits(endpoint: &Endpoint) -> Vec<CreditResult> {
    let mut all: BTreeMap<u8, CreditResult> = BTreeMap::new();
    for (vc, used, returned) in endpoint.credits() {
        let sum = all.entry(vc).or_insert(CreditResult { vc, ..CreditResult::default() });
        sum.used = sum.used.saturating_add(used);
        sum.returned = sum.returned.saturating_add(returned);
    }
    all.into_values().collect()
}

/// Result of a flow before it moves.
fn planned(network: &Network, id: u32) -> Option<FlowResult> {
    let flow = network.flows().get(id as usize)?;
    let ideal = network.ideals().get(id as usize)?;
    Some(FlowResult {
        id,
        workload: flow.workload,
        from: flow.from.into(),
        to: flow.to.into(),
        bytes: flow.bytes,
        ideal_fct_ps: ideal.as_ps(),
        ..FlowResult::default()
    })
}

/// Result of a flow that has been delivered.
pub(super) fn delivered(network: &Network, delivered: &Delivered) -> Option<FlowResult> {
    let mut flow = planned(network, delivered.id)?;
    let from = network.hosts().nth(usize::try_from(flow.from).ok()?)?;
    let sent = from.sent().binary_search_by_key(&delivered.id, |sent| sent.id).ok();
    let begun = sent.and_then(|place| from.sent().get(place)?.begun);
    if let Some(begun) = begun {
        flow.start(begun);
    }
    let first = sent.and_then(|place| from.sent().get(place)?.first);
    arrived(&mut flow, delivered, first);
    Some(flow)
}

/// Notes a delivery; `first` is the sender's time of its first frame, which a TCP receiver does not know.
fn arrived(flow: &mut FlowResult, delivered: &Delivered, first: Option<Instant>) {
    if let Some(first) = delivered.first.or(first) {
        flow.sent(first);
    }
    if let Some(bytes) = delivered.bytes {
        flow.bytes = bytes;
    }
    flow.delivered(delivered.at);
}

fn flows(network: &Network, hosts: &[&Host]) -> Vec<FlowResult> {
    let ids = (0..).zip(network.flows()).map(|(id, _)| id);
    let mut flows: Vec<FlowResult> = ids.filter_map(|id| planned(network, id)).collect();
    for sent in hosts.iter().flat_map(|host| host.sent()) {
        let Some(flow) = flows.get_mut(sent.id as usize) else { continue };
        if let Some(begun) = sent.begun {
            flow.start(begun);
        }
        if let Some(first) = sent.first {
            flow.sent(first);
        }
        if let Some(done) = sent.done {
            flow.acknowledged(done, sent.resent);
        }
    }
    for delivered in hosts.iter().flat_map(|host| host.delivered()) {
        let Some(flow) = flows.get_mut(delivered.id as usize) else { continue };
        arrived(flow, delivered, None);
    }
    // A connection without a fixed number of bytes that is still open has the bytes that have come.
    for (id, taken) in hosts.iter().filter_map(|host| host.tcp()).flat_map(TcpSide::arriving) {
        if let Some(flow) = flows.get_mut(id as usize).filter(|flow| flow.bytes == 0) {
            flow.bytes = taken;
        }
    }
    flows
}

fn links(
    scenario: &Scenario,
    hosts: &[&Host],
    ledgers: &[Ledger],
    end: Instant,
) -> Vec<LinkResult> {
    let topology = &scenario.topology;
    // Hosts and switches are numbered separately in the network, each in the order of the topology.
    let mut places = vec![0; topology.nodes().len()];
    for of_kind in [NodeKind::Host, NodeKind::Switch] {
        let nodes = topology.nodes().iter().enumerate().filter(|(_, node)| node.kind == of_kind);
        for (place, (node, _)) in nodes.enumerate() {
            places.get_mut(node).into_iter().for_each(|slot| *slot = place);
        }
    }
    let overhead = scenario.endpoints.overhead;
    let way = |(node, port): (NodeId, usize), spec: LinkSpec| {
        let place = places.get(node).copied().unwrap_or_default();
        let is_host = topology.nodes().get(node).is_some_and(|node| node.kind == NodeKind::Host);
        let (frames, bytes) = if is_host {
            hosts.get(place).map(|host| host.carried()).unwrap_or_default()
        } else {
            let port = ledgers.get(place).and_then(|ledger| ledger.port.get(port));
            port.map(|port| (port.tx_frames, port.tx_bytes)).unwrap_or_default()
        };
        LinkWay::new(frames, bytes, busy(spec, frames, bytes, overhead), end)
    };
    let link = |link: &crate::topology::Link| {
        let spec = link.spec.unwrap_or(LinkSpec::UNUSED);
        let [a, b] = link.ends.map(|(node, port)| {
            let name = topology.nodes().get(node).map(|node| node.name.clone());
            LinkEnd { node: name.unwrap_or_default(), port: port.get() }
        });
        let [a_to_b, b_to_a] = link.ends.map(|(node, port)| way((node, port.index()), spec));
        let (rate_bps, propagation_ps) = (spec.rate.as_bps(), spec.propagation.as_ps());
        LinkResult { a, b, rate_bps, propagation_ps, a_to_b, b_to_a }
    };
    topology.links().iter().map(link).collect()
}

/// Time that `frames` take on a link; `bytes` are already padded to 60 a frame where that is the least.
fn busy(spec: LinkSpec, frames: u64, bytes: u64, overhead: bool) -> Span {
    const SECOND_PS: u128 = 1_000_000_000_000;
    const FCS: u64 = 4;
    const PREAMBLE_AND_GAP: u64 = 20;
    let around = if overhead { FCS + PREAMBLE_AND_GAP } else { FCS };
    let octets = bytes + around * frames;
    let ps = u128::from(octets) * 8 * SECOND_PS / u128::from(spec.rate.as_bps().max(1));
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}
