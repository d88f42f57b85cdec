//! The time that each flow would take alone in the network.
//!
//! Source: docs/spec/model.md §2: the slowest link of the path so far decides when the last frame but one is through.

use std::collections::BTreeMap;

use weft_dataplane::port::wire::HEADER_LEN;
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_hosts::stamp;
use weft_hosts::tcp::{ConnectionSpec, HEADERS_LEN};
use weft_parsers::ethernet::MIN_FRAME_LEN;

use super::Plan;
use super::parts::{Part, Parts};
use crate::scenario::flow::{Carrier, Flow};
use crate::topology::{LinkSpec, NodeId, Routes, Topology};

/// Longest time that is computed; longer ones count as that.
const PS_MAX: u64 = i64::MAX.unsigned_abs();

/// A link of a path, with the node at its end.
#[derive(Clone, Copy, Debug)]
struct Hop {
    link: LinkSpec,
    /// Latency of that node.
    at_end: Span,
    /// Whether that node cuts through: forwards a frame once its header is in.
    early: bool,
}

/// The links of a path, in order.
type Path = Vec<Hop>;

/// Frames of a flow, all of which but the last have the full length.
#[derive(Clone, Copy, Debug)]
struct Frames {
    /// Number of frames of full length.
    full: u64,
    full_len: usize,
    /// Length of the last frame, if it is shorter.
    last_len: Option<usize>,
}

impl Frames {
    fn of(bytes: u64, spec: &EndpointSpec) -> Self {
        let most = spec.payload_max.max(1) as u64;
        let rest = usize::try_from(bytes % most).unwrap_or_default();
        Self {
            full: bytes / most,
            full_len: frame_len(spec, spec.payload_max),
            last_len: (rest > 0).then(|| frame_len(spec, rest)),
        }
    }

    /// Segments with data of a TCP flow, without those of its handshake and end.
    fn of_tcp(flow: &Flow, spec: &ConnectionSpec) -> Self {
        let most = spec.mss.max(1) as u64;
        let rest = usize::try_from(flow.bytes % most).unwrap_or_default();
        let len = |payload: usize| (HEADERS_LEN + payload).max(MIN_FRAME_LEN);
        let last_len = (rest > 0).then(|| len(rest));
        Self { full: flow.bytes / most, full_len: len(spec.mss), last_len }
    }

    /// Time from the first bit sent until the last bit is taken.
    fn time(&self, path: &[Hop], overhead: bool) -> Span {
        let (mut full, mut slowest, mut last) = (0, 0, 0);
        for (place, &Hop { link, at_end, early }) in path.iter().enumerate() {
            let beside = u128::from(link.propagation.as_ps()) + u128::from(at_end.as_ps());
            let time = |len| u128::from(link.rate.wire_time(len, overhead).as_ps());
            // Only into an output of the input's rate (docs/spec/model.md §2).
            let next = path.get(place + 1).map(|hop| hop.link.rate);
            let is_early = early && next == Some(link.rate);
            let header = u128::from(link.rate.bit_time(HEADER_LEN as u64 * 8).as_ps());
            // A frame that is cut through goes on this long before its last bit arrives.
            let lead = |len| if is_early { time(len).saturating_sub(header) } else { 0 };
            // The last of the full frames has passed this link when all of them have passed the slowest link so far.
            let each = time(self.full_len);
            let had_slowest = slowest;
            slowest = slowest.max(each);
            let behind = u128::from(self.full.saturating_sub(1));
            let first = full - behind * had_slowest;
            let sent = first + each + behind * slowest;
            if let Some(len) = self.last_len {
                let idle = if self.full == 0 { 0 } else { sent };
                last = last.max(idle) + time(len) + beside - lead(len);
            }
            full = sent + beside - lead(self.full_len);
        }
        let ps = if self.last_len.is_some() { last } else { full };
        Span::from_ps(u64::try_from(ps).unwrap_or(PS_MAX).min(PS_MAX))
    }
}

/// Bytes of a frame with `payload` bytes of payload.
fn frame_len(spec: &EndpointSpec, payload: usize) -> usize {
    // A payload has room for its mark at least.
    let payload = payload.max(stamp::LEN);
    spec.padded_len(spec.frame.header_len() + payload + spec.frame.trailer_len())
}

/// The least time of each flow, by id.
pub(super) fn ideals(plan: &Plan<'_>, parts: &Parts, routes: &Routes) -> Vec<Span> {
    let hosts: Vec<NodeId> = plan.topology.hosts().collect();
    let mut paths: BTreeMap<(u16, u16), Path> = BTreeMap::new();
    // Many flows share a pair of hosts: each path is searched once.
    let ideal = |flow: &Flow| {
        let ends = (flow.from, flow.to);
        let path = paths
            .entry(ends)
            .or_insert_with(|| path(plan, parts, routes, &hosts, flow.from, flow.to));
        let from = hosts.get(usize::from(flow.from)).and_then(|&node| parts.nodes.get(node));
        let Some(Part::Host { endpoint, .. }) = from else { return Span::ZERO };
        let connection = plan.connections.get(usize::from(flow.workload));
        let frames = match (flow.carrier, connection) {
            (Carrier::Tcp { lasts: None }, Some(Some(spec))) => Frames::of_tcp(flow, spec),
            (Carrier::Tcp { lasts: Some(lasts) }, Some(Some(spec))) => {
                // The last segment leaves when the flow's time is over.
                let last = Flow { bytes: spec.mss as u64, ..flow.clone() };
                return plan.delay.send
                    + lasts
                    + Frames::of_tcp(&last, spec).time(path, plan.overhead);
            }
            _ => Frames::of(flow.bytes, endpoint),
        };
        plan.delay.send + frames.time(path, plan.overhead)
    };
    plan.flows.iter().map(ideal).collect()
}

/// Time of the way between two hosts without load and without transmission: propagation and switches. Also returns the
/// rate of the first link.
pub(super) fn way(
    plan: &Plan<'_>,
    parts: &Parts,
    routes: &Routes,
    hosts: &[NodeId],
    from: u16,
    to: u16,
) -> (Span, LinkRate) {
    let path = path(plan, parts, routes, hosts, from, to);
    let rate = path.first().map_or(LinkSpec::UNUSED.rate, |hop| hop.link.rate);
    let sum = path.iter().fold(Span::ZERO, |sum, hop| sum + hop.link.propagation + hop.at_end);
    // Messages beside the data take no time at the host that receives them.
    let last = path.last().map_or(Span::ZERO, |hop| hop.at_end);
    (Span::from_ps(sum.as_ps() - last.as_ps()), rate)
}

/// One of the shortest paths; all have the same number of hops.
fn path(
    plan: &Plan<'_>,
    parts: &Parts,
    routes: &Routes,
    hosts: &[NodeId],
    from: u16,
    to: u16,
) -> Path {
    let topology: &Topology = plan.topology;
    let switches: BTreeMap<NodeId, usize> =
        topology.switches().enumerate().map(|(place, node)| (node, place)).collect();
    let mut path = Path::new();
    let Some(&start) = hosts.get(usize::from(from)) else { return path };
    let first = |node: NodeId| topology.nodes().get(node)?.ports.first().copied();
    let mut next = first(start).map(|link| (start, link));
    while let Some((node, link)) = next {
        let Some(it) = topology.links().get(link) else { break };
        let (far, _) = it.far(node);
        let (at_end, early) = match parts.nodes.get(far) {
            Some(Part::Switch { plan }) => (plan.around.latency, plan.around.cut_through),
            _ => (plan.delay.receive, false),
        };
        path.push(Hop { link: it.spec.unwrap_or(LinkSpec::UNUSED), at_end, early });
        let ports = switches.get(&far).and_then(|&place| routes.get(place)?.get(usize::from(to)));
        next = ports.and_then(|ports| {
            let port = ports.iter().next()?;
            Some((far, *topology.nodes().get(far)?.ports.get(port.index())?))
        });
    }
    path
}
