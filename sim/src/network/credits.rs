//! Cables on which credit counts go back beside the data: one for each pair of hosts with flows and credits.
//!
//! A count is a frame of [`COUNT_LEN`] bytes.
//!
//! Source: docs/spec/model.md §4 "CBFC": credits come back over the way back without load.

use std::collections::{BTreeSet, VecDeque};

use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::WireEnd;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_hosts::rclink::endpoint::{CreditKind, CreditUpdate, Endpoint};

use super::parts::Parts;
use super::{NetworkError, Plan, ideal, no_cable};
use crate::engine::{CableSpec, Cables, Place};
use crate::rclink_checkers::Watch;
use crate::topology::{NodeId, PORTS_MAX, Routes};

/// Bytes of a count: virtual channel, kind, number.
const COUNT_LEN: usize = 10;

/// The way from a host to one partner.
pub(super) struct Way {
    pub to: u16,
    pub end: WireEnd,
    /// Time that a count takes.
    pub delay: Span,
    /// Counts that found no room on the cable.
    pub held: VecDeque<CreditUpdate>,
}

/// Gives counts that have arrived by `now` to the endpoint.
pub(super) fn take(
    ways: &mut [Way],
    now: Instant,
    endpoint: &mut Endpoint,
    mut watch: Option<&mut Watch>,
) {
    for way in ways {
        while let Some(frame) = way.end.receive(now) {
            if let Some(update) = read(frame.bytes()) {
                if let Some(watch) = &mut watch {
                    watch.counted(now, way.to, update);
                }
                endpoint.credits_in(way.to, update);
            }
        }
    }
}

/// Sends the endpoint's counts; returns when the ways have something to do next.
pub(super) fn say(ways: &mut [Way], now: Instant, endpoint: &mut Endpoint) -> Option<Instant> {
    while let Some((to, update)) = endpoint.credits_out() {
        // Hosts without a flow between them have used no credits of each other.
        let Ok(place) = ways.binary_search_by_key(&to, |way| way.to) else { continue };
        if let Some(way) = ways.get_mut(place) {
            way.held.push_back(update);
        }
    }
    let mut next = None;
    for way in ways {
        let at = now + way.delay;
        while let Some(&update) = way.held.front() {
            if !way.end.send(at, Flaw::None, &written(update)) {
                next = Instant::earlier(next, Some(at)); // there is room when the first has arrived
                break;
            }
            way.held.pop_front();
        }
        next = Instant::earlier(next, way.end.next_arrival());
    }
    next
}

fn written(update: CreditUpdate) -> [u8; COUNT_LEN] {
    let CreditUpdate { vc, kind, count } = update;
    let mut bytes = [0; COUNT_LEN];
    let (front, back) = bytes.split_at_mut(2);
    front.copy_from_slice(&[vc, u8::from(kind == CreditKind::Used)]);
    back.copy_from_slice(&count.to_be_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Option<CreditUpdate> {
    let (&[vc, kind], count) = bytes.split_first_chunk()?;
    let kind = if kind == 0 { CreditKind::Returned } else { CreditKind::Used };
    Some(CreditUpdate { vc, kind, count: u64::from_be_bytes(count.try_into().ok()?) })
}

/// For each host the hosts that it has flows with, where both have credits, in order.
pub(super) fn partners(plan: &Plan<'_>, parts: &Parts) -> Result<Vec<Vec<u16>>, NetworkError> {
    let with: Vec<bool> = parts.endpoints().map(|spec| spec.credits.is_some()).collect();
    let mut all: Vec<BTreeSet<u16>> = vec![BTreeSet::new(); with.len()];
    for flow in plan.flows.iter() {
        let has = |host: u16| with.get(usize::from(host)) == Some(&true);
        if has(flow.from) && has(flow.to) {
            for (host, partner) in [(flow.from, flow.to), (flow.to, flow.from)] {
                if let Some(of) = all.get_mut(usize::from(host)) {
                    of.insert(partner);
                }
            }
        }
    }
    let nodes: Vec<NodeId> = plan.topology.hosts().collect();
    for (partners, node) in all.iter().zip(nodes) {
        if partners.len() >= PORTS_MAX {
            let name = plan.topology.nodes().get(node).map(|node| node.name.clone());
            let (name, had) = (name.unwrap_or_default(), partners.len());
            return Err(NetworkError::Partners { name, had, most: PORTS_MAX - 1 });
        }
    }
    Ok(all.into_iter().map(|partners| partners.into_iter().collect()).collect())
}

/// Lays cables for the counts between hosts and their partners. Returns for each host and partner the time that a count
/// takes: that of the way back without load, and at least that of the shortest frame.
pub(super) fn lay_ways(
    parts: &Parts,
    plan: &Plan<'_>,
    routes: &Routes,
    partners: &[Vec<u16>],
    cables: &mut Cables,
) -> Result<Vec<Vec<Span>>, NetworkError> {
    let nodes: Vec<NodeId> = plan.topology.hosts().collect();
    let mut delays: Vec<Vec<Span>> = partners.iter().map(|of| vec![Span::ZERO; of.len()]).collect();
    for (host, of) in (0_u16..).zip(partners) {
        // Each pair once, from its lower number.
        for (place, &partner) in of.iter().enumerate().filter(|&(_, &it)| it > host) {
            let Some(back) = partners.get(usize::from(partner)) else { continue };
            let Ok(there) = back.binary_search(&host) else { continue };
            let at = |host: u16, place: usize| {
                let component = nodes.get(usize::from(host)).copied()?;
                Some(Place { component, port: PortId::new(1 + place)? })
            };
            let (Some(a), Some(b)) = (at(host, place), at(partner, there)) else { continue };
            let (way, rate) = ideal::way(plan, parts, routes, &nodes, host, partner);
            let least = CableSpec { rate, propagation: Span::ZERO, overhead: plan.overhead };
            let least = least.delay();
            // A frame on the cable takes its wire time, so that this much less is left for propagation.
            let propagation = Span::from_ps(way.as_ps().saturating_sub(least.as_ps()));
            let spec = CableSpec { rate, propagation, overhead: plan.overhead };
            let laid = cables.lay_beside(a, b, &spec);
            laid.map_err(|error| no_cable(plan.topology, [a, b], error))?;
            for (host, place) in [(host, place), (partner, there)] {
                let slot = delays.get_mut(usize::from(host)).and_then(|of| of.get_mut(place));
                if let Some(slot) = slot {
                    *slot = propagation + least;
                }
            }
        }
    }
    Ok(delays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        for kind in [CreditKind::Returned, CreditKind::Used] {
            let update = CreditUpdate { vc: 5, kind, count: 0x0123_4567_89AB_CDEF };
            assert_eq!(read(&written(update)), Some(update));
        }
        assert_eq!(read(&[1, 0, 2]), None);
    }
}
