//! The TCP side of a host in virtual time: its stack beside its RC Link endpoint, on the same cable.
//!
//! Flows that TCP carries → a [`TcpSide`] for each host at an end of one; it takes frames before the endpoint does.
//!
//! Units: picoseconds, bytes.
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

/// Port of all receivers.
const RECEIVER_PORT: u16 = 5_001;
/// Port of a sender's first connection.
const FIRST_PORT: u16 = 1_024;
/// Connections of a sender that have ports.
const CONNECTIONS_MAX: usize = (u16::MAX - FIRST_PORT) as usize + 1;
/// Most frames that are taken at once.
const FRAMES_MAX: usize = 64;

/// A host's connections.
pub struct TcpSide {
    host: TcpHost,
    /// Flows that TCP carries from this host, by id.
    own: Vec<FlowId>,
    /// By workload: what its connections are like.
    connections: Vec<Option<ConnectionSpec>>,
    /// Whether it sends before the endpoint does, as the endpoint was the last to.
    is_first: bool,
}

/// The address of host `number`, counted from 0.
fn address(number: u16) -> Ipv4Addr {
    Station::numbered(number.saturating_add(1)).ip4
}

/// Where `ip` is: hosts have numbered stations.
fn directory(ip: Ipv4Addr) -> Option<MacAddr> {
    let [.., high, low] = ip.octets();
    let station = Station::numbered(u16::from_be_bytes([high, low]));
    (station.ip4 == ip).then_some(station.mac)
}

/// What is sent and expected of a flow at its ends, which begins at `start`.
fn transfers(id: FlowId, flow: &Flow, start: Instant) -> [Transfer; 2] {
    let seed = Some(u64::from(id) << 32);
    let (amount, expect) = match flow.carrier {
        Carrier::Tcp { lasts: Some(lasts) } => (Amount::Until(start + lasts), None),
        _ => (Amount::Bytes(flow.bytes), Some(flow.bytes)),
    };
    let sender = Transfer { send: Some(amount), expect: Some(0), seed };
    [sender, Transfer { send: None, expect, seed }]
}

impl TcpSide {
    /// Begins a connection from this host; whether it could.
    pub(super) fn begin(&mut self, now: Instant, id: FlowId, flow: &Flow) -> bool {
        let (Some(key), Some(Some(spec))) =
            (self.key(id, flow), self.connections.get(usize::from(flow.workload)).copied())
        else {
            return false;
        };
        let [transfer, _] = transfers(id, flow, now);
        self.host.connect(now, id, key, &spec, transfer).is_ok()
    }

    /// How this host names the connection of a flow of its own.
    fn key(&self, id: FlowId, flow: &Flow) -> Option<ConnectionKey> {
        let port = port(self.own.binary_search(&id).ok()?);
        Some(ConnectionKey { port, peer: address(flow.to), peer_port: RECEIVER_PORT })
    }

    /// Takes the frames off the wire that are for its connections, up to the first one that is not.
    pub(super) fn take(&mut self, now: Instant, wire: &mut Wire) {
        if wire.is_due(now) {
            let (host, rate) = (&mut self.host, wire.caps().rate);
            wire.offer_each(now, FRAMES_MAX, |frame, len| {
                host.offer(now, rate, frame, len) == Offered::Taken
            });
        }
    }

    /// Sends what there is room for; returns when it is due next.
    pub(super) fn send(&mut self, now: Instant, wire: &mut Wire, fronts: bool) -> Option<Instant> {
        let (before, _) = wire.carried();
        let next = self.host.send_wire(now, wire, fronts);
        if wire.carried().0 != before {
            self.is_first = false;
        }
        next
    }

    /// Whether it sends before the endpoint.
    pub(super) const fn is_first(&self) -> bool {
        self.is_first
    }

    /// The endpoint has sent: next it is this side's turn.
    pub(super) const fn is_next(&mut self) {
        self.is_first = true;
    }

    /// Its connections.
    pub(super) const fn host(&mut self) -> &mut TcpHost {
        &mut self.host
    }

    /// What it has counted.
    #[must_use]
    pub const fn stats(&self) -> TcpStats {
        self.host.stats()
    }

    /// Whether nothing of a connection is left.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.host.is_idle()
    }

    /// Flows of which something has come here whose connections are still there, and how many bytes.
    pub fn arriving(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.host.counts().map(|(id, _, taken)| (id, taken))
    }
}

/// Port of a sender's nth connection.
fn port(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX).saturating_add(FIRST_PORT)
}

/// How much longer than its least timeout a connection waits at most.
const BACKOFF: u64 = 60;

/// So long at most does a connection wait before it sends again.
pub(super) fn patience(plan: &Plan<'_>) -> Span {
    let longest = plan.connections.iter().flatten().map(|spec| spec.rto_min).max();
    let longest = longest.unwrap_or_default();
    Span::from_ps(longest.as_ps().saturating_mul(BACKOFF + 1))
}

/// Whether each host is at an end of a flow that TCP carries, by number.
pub(super) fn has_tcp(plan: &Plan<'_>) -> Vec<bool> {
    let mut has = vec![false; plan.topology.hosts().count()];
    for flow in plan.flows.iter().filter(|flow| flow.is_tcp()) {
        for host in [flow.from, flow.to] {
            has.get_mut(usize::from(host)).into_iter().for_each(|slot| *slot = true);
        }
    }
    has
}

/// By number of host: its connections, if it has any.
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
        // When the receiver's end is done is decided by the sender: its own start does not matter.
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
