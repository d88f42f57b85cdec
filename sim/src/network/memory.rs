//! Estimate of the memory that a network takes before anything moves, tried before the first switch is built.
//!
//! Source: `sim/tests/memory.rs`, which measures switches and hosts.

use weft_base::memory::try_room_with_reserve;

use super::{NetworkError, Plan};
use crate::topology::NodeKind;

/// Bytes of a switch; most are counters of ports that it does not have and a cache of flows, of which few pages ever
/// become real.
const SWITCH: usize = 1_500_000;
/// Bytes of a port of a switch, with half of its cable.
const PORT: usize = 20_000;
/// Bytes of a host at each switch: its FDB entry, and the route to it.
const STATION: usize = 128;
/// Bytes of a host itself.
const HOST: usize = 48_000;
/// Bytes of a flow, at its hosts.
const FLOW: usize = 512;

/// Tries whether there is memory for the network; returns the estimate, which is rather too high. Pools of whole frames
/// ([`super::Plan::fronts`]) are not in it: they are refused where they are mapped.
///
/// # Errors
/// The system does not have this much.
pub(super) fn try_address_space(plan: &Plan<'_>) -> Result<usize, NetworkError> {
    let hosts = plan.topology.hosts().count();
    let of = |kind: NodeKind, ports: usize| match kind {
        NodeKind::Switch => SWITCH + ports * PORT + hosts * STATION,
        NodeKind::Host => HOST,
    };
    let nodes = plan.topology.nodes().iter().map(|node| of(node.kind, node.ports.len()));
    let of_tcp = plan.flows.iter().filter(|flow| flow.is_tcp()).map(|flow| {
        let spec = plan.connections.get(usize::from(flow.workload)).copied().flatten();
        spec.map_or(0, |spec| spec.send_buffer + spec.receive_buffer)
    });
    let bytes = nodes.chain(of_tcp).fold(plan.flows.len() * FLOW, usize::saturating_add);
    try_room_with_reserve(bytes).map_err(|source| {
        let switches = plan.topology.switches().count();
        NetworkError::Memory { switches, hosts, source }
    })?;
    Ok(bytes)
}
