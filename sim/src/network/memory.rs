//! Memory that a network takes before anything moves.
//!
//! A plan → bytes of address space, which are tried before the first switch is built.
//!
//! Units: bytes.
//! Source: `sim/tests/memory.rs`, which measures switches and hosts.

use weft_base::memory::try_room_with_reserve;

use super::{NetworkError, Plan};
use crate::topology::NodeKind;

/// Of a switch; most of it is counters of ports that it does not have, and a cache of flows, of which few pages are ever real.
const SWITCH: usize = 1_500_000;
/// Of each of its ports, with a half of the cable.
const PORT: usize = 20_000;
/// Of each host, at each switch: its entry, and the way to it.
const STATION: usize = 128;
/// Of a host.
const HOST: usize = 48_000;
/// Of a flow.
const FLOW: usize = 512;

/// What a network takes, rather too much; pools of whole frames ([`super::Plan::fronts`]) are refused where they are mapped.
///
/// # Errors
/// The system has not so much.
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
