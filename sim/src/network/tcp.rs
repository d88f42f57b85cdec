//! The TCP side of a host in virtual time: a TCP stack beside the RC Link endpoint, on the same cable.
//!
//! Each host at an end of a TCP flow has a [`TcpSide`], which takes its frames off the wire before the endpoint does.
//!
//! Source: docs/spec/model.md §7.

use core::net::Ipv4Addr;

use weft_dataplane::port::Port;
use weft_dataplane::port::wire::Wire;
use weft_dataplane::time::{Instant, Span};
use weft_hosts::frames::Station;
use weft_hosts::rclink::endpoint::EndpointSpec;
use weft_hosts::tcp::{
    Amount, ConnectionKey, ConnectionSpec, Offered, TcpError, TcpHost, TcpHostSpec, TcpStats,
    Transfer,
};
use weft_parsers::MacAddr;

use super::{NetworkError, Plan};
use crate::scenario::flow::{Carrier, Flow, FlowId};

/// TCP port of all receivers.
const RECEIVER_PORT: u16 = 5_001;
/// TCP port of a sender's first connection; others follow.
const FIRST_PORT: u16 = 1_024;
/// Most connections of a sender, each with a port of its own.
const CONNECTIONS_MAX: usize = (u16::MAX - FIRST_PORT) as usize + 1;
/// Most frames that are taken in one step.
const FRAMES_MAX: usize = 64;

/// The TCP connections of a host.
pub struct TcpSide {
    host: TcpHost,
    /// TCP flows from this host, in the order of their ids.
    own: Vec<FlowId>,
    /// Settings of TCP connections, by workload.
    connections: Vec<Option<ConnectionSpec>>,
    /// Whether TCP sends before the endpoint, which has sent last.
    is_first: bool,
}

/// IP address of host `number`, counted from 0.
fn address(number: u16) -> Ipv4Addr {
    Station::numbered(number.saturating_add(1)).ip4
}

/// MAC address of `ip`, which is that of a numbered station.
fn directory(ip: Ipv4Addr) -> Option<MacAddr> {
    let [.., high, low] = ip.octets();
    let station = Station::numbered(u16::from_be_bytes([high, low]));
    (station.ip4 == ip).then_some(station.mac)
}

/// Data that the sender and the receiver of a flow send and expect; it begins at `start`.
fn transfers(id: FlowId, flow: &Flow, start: Instant) -> [Transfer; 2] {
    // Data of its own for each flow, so that bytes of another connection are found.
    let seed = Some(u64::from(id) << 32);
    let (amount, expect) = match flow.carrier {
        Carrier::Tcp { lasts: Some(lasts) } => (Amount::Until(start + lasts), None),
        _ => (Amount::Bytes(flow.bytes), Some(flow.bytes)),
    };
    let sender = Transfer { send: Some(amount), expect: Some(0), seed };
    [sender, Transfer { send: None, expect, seed }]
}

impl TcpSide {
    /// Begins the connection of a flow from this host; returns whether it could.
    pub(super) fn begin(&mut self, now: Instant, id: FlowId, flow: &Flow) -> bool {
        let (Some(key), Some(Some(spec))) =
            (self.key(id, flow), self.connections.get(usize::from(flow.workload)).copied())
        else {
            return false;
        };
        let [transfer, _] = transfers(id, flow, now);
        self.host.connect(now, id, key, &spec, transfer).is_ok()
    }

    /// Key of a flow's connection at this host, its sender.
    fn key(&self, id: FlowId, flow: &Flow) -> Option<ConnectionKey> {
        let port = port(self.own.binary_search(&id).ok()?);
        Some(ConnectionKey { port, peer: address(flow.to), peer_port: RECEIVER_PORT })
    }

    /// Takes frames for its connections off the wire, up to the first that is not for them.
    pub(super) fn take(&mut self, now: Instant, wire: &mut Wire) {
        if wire.is_due(now) {
            let (host, rate) = (&mut self.host, wire.caps().rate);
            wire.offer_each(now, FRAMES_MAX, |frame, len| {
                host.offer(now, rate, frame, len) == Offered::Taken
            });
        }
    }

    /// Sends while the wire has room; returns when it is due next.
    pub(super) fn send(&mut self, now: Instant, wire: &mut Wire, fronts: bool) -> Option<Instant> {
        let (before, _) = wire.carried();
        let next = self.host.send_wire(now, wire, fronts);
        if wire.carried().0 != before {
            self.is_first = false;
        }
        next
    }

    /// Whether TCP sends before the endpoint in this step.
    pub(super) const fn is_first(&self) -> bool {
        self.is_first
    }

    /// Gives the next turn to TCP, after the endpoint has sent.
    pub(super) const fn is_next(&mut self) {
        self.is_first = true;
    }

    pub(super) const fn host(&mut self) -> &mut TcpHost {
        &mut self.host
    }

    /// Counters of the TCP host.
    #[must_use]
    pub const fn stats(&self) -> TcpStats {
        self.host.stats()
    }

    /// Whether no connection is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.host.is_idle()
    }

    /// Flows of which data has come, with the bytes, as long as their connections exist.
    pub fn arriving(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.host.counts().map(|(id, _, taken)| (id, taken))
    }
}

/// TCP port of a sender's connection number `place`.
fn port(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX).saturating_add(FIRST_PORT)
}

/// Largest factor by which retransmissions back off from the least timeout.
const BACKOFF: u64 = 60;

/// Longest time that a connection waits before it sends again.
pub(super) fn patience(plan: &Plan<'_>) -> Span {
    let longest = plan.connections.iter().flatten().map(|spec| spec.rto_min).max();
    let longest = longest.unwrap_or_default();
    Span::from_ps(longest.as_ps().saturating_mul(BACKOFF + 1))
}

/// For each host, whether it is at an end of a TCP flow.
pub(super) fn has_tcp(plan: &Plan<'_>) -> Vec<bool> {
    let mut has = vec![false; plan.topology.hosts().count()];
    for flow in plan.flows.iter().filter(|flow| flow.is_tcp()) {
        for host in [flow.from, flow.to] {
            has.get_mut(usize::from(host)).into_iter().for_each(|slot| *slot = true);
        }
    }
    has
}

/// For each host its TCP side, if it is at an end of a TCP flow.
pub(super) fn sides(
    plan: &Plan<'_>,
    endpoints: &[&EndpointSpec],
) -> Result<Vec<Option<Box<TcpSide>>>, NetworkError> {
    let connections = plan.connections.to_vec();
    let mut sides: Vec<Option<Box<TcpSide>>> = Vec::new();
    for (number, has) in has_tcp(plan).into_iter().enumerate() {
        let Some(endpoint) = endpoints.get(number).filter(|_| has) else {
            sides.push(None);
            continue;
        };
        // Sequence numbers come from the run's seed and the host (docs/spec/model.md §7).
        let seed = plan.seed.wrapping_add(u64::from(endpoint.number) << 32);
        let host = TcpHost::new(TcpHostSpec {
            mac: endpoint.frame.src.mac,
            ip: endpoint.frame.src.ip4,
            prefix_len: 16,
            gateway: None,
            directory: Some(directory),
            origin: Instant::ZERO,
            whole: !plan.fronts,
            classes: endpoint.classes,
            seed,
        });
        let host = host.map_err(|source| refused(plan, number, source))?;
        let (own, connections) = (Vec::new(), connections.clone());
        sides.push(Some(Box::new(TcpSide { host, own, connections, is_first: false })));
    }
    let flows = plan.flows.iter().enumerate().filter(|(_, flow)| flow.is_tcp());
    for (number, flow) in flows {
        let id = FlowId::try_from(number).unwrap_or(FlowId::MAX);
        let from = usize::from(flow.from);
        let Some(Some(sender)) = sides.get_mut(from) else { continue };
        let place = sender.own.len();
        if place >= CONNECTIONS_MAX {
            let name = name(plan, from);
            return Err(NetworkError::Connections { name, most: CONNECTIONS_MAX });
        }
        sender.own.push(id);
        let spec = connections.get(usize::from(flow.workload)).copied().flatten();
        let (flow_number, workload) = (number, flow.workload);
        let spec = spec.ok_or(NetworkError::NoConnection { flow: flow_number, workload })?;
        let to = usize::from(flow.to);
        let Some(Some(receiver)) = sides.get_mut(to) else { continue };
        let peer_port = port(place);
        let key = ConnectionKey { port: RECEIVER_PORT, peer: address(flow.from), peer_port };
        // The sender decides when the receiver is done, so its start does not matter here.
        let [_, transfer] = transfers(id, flow, Instant::ZERO);
        let awaited = receiver.host.await_peer(id, key, &spec, transfer);
        awaited.map_err(|source| refused(plan, to, source))?;
    }
    Ok(sides)
}

fn name(plan: &Plan<'_>, number: usize) -> String {
    let node = plan.topology.hosts().nth(number).and_then(|node| plan.topology.nodes().get(node));
    node.map(|node| node.name.clone()).unwrap_or_default()
}

fn refused(plan: &Plan<'_>, number: usize, source: TcpError) -> NetworkError {
    NetworkError::Tcp { name: name(plan, number), source }
}
