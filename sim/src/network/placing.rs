//! Places hosts at the ends of their cables, with the faults that a plan has for them.
//!
//! Source: docs/spec/model.md §3, §4.

use std::collections::VecDeque;

use weft_dataplane::buffer::Headroom;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::Span;
use weft_hosts::pfc::SlowSpec;
use weft_hosts::rclink::endpoint::{Endpoint, EndpointError, EndpointSpec, Transport};

use super::agenda::Agenda;
use super::credits::Way;
use super::storm::Storms;
use super::{Host, Plan};
use crate::journey::HostLog;
use crate::rclink_checkers::Watch;
use crate::scenario::Checks;
use crate::scenario::fault::Fault;
use crate::scenario::flow::FlowId;
use crate::topology::LinkSpec;

/// The link of a host, and the behaviour of its other end.
#[derive(Clone, Copy)]
pub(super) struct HostLink {
    pub link: LinkSpec,
    /// Time that the other end takes to obey a PAUSE.
    pub response: Span,
}

/// Makes a host of an endpoint at the end of its cable.
pub(super) fn at_port(
    plan: &Plan<'_>,
    mut endpoint: Box<EndpointSpec>,
    HostLink { link, response }: HostLink,
    ends: Vec<Option<WireEnd>>,
    partners: Vec<u16>,
    delays: Vec<Span>,
    own: &[FlowId],
) -> Result<Host, EndpointError> {
    let wire = WireConfig {
        name: String::new(),
        rate: link.rate,
        // The endpoint's delays count as the wire's: a frame starts that much later, and is taken that much later.
        propagation: link.propagation + plan.delay.send,
        latency: plan.delay.receive,
        overhead: plan.overhead,
        drop_runts: plan.overhead, // without, short frames are no fault
        cut_through: false,
    };
    let number = endpoint.number;
    let mut storms = Vec::new();
    for fault in plan.faults {
        match *fault {
            Fault::SlowReceiver { host, drain } if host == number => {
                let slow = endpoint.slow.unwrap_or_else(|| slow(plan, link, response, &endpoint));
                endpoint.slow = Some(SlowSpec { drain, ..slow });
            }
            Fault::PauseStorm { host, classes, from, until } if host == number => {
                storms.push((classes, from, until));
            }
            _ => {}
        }
    }
    let mut ends = ends.into_iter();
    // The first end is the host's own port, the others are ways of credits.
    let end = ends.next().flatten().unwrap_or_else(|| cable(1).0);
    let ways =
        partners.into_iter().zip(delays).zip(ends).filter_map(|((to, delay), end)| {
            Some(Way { to, end: end?, delay, held: VecDeque::new() })
        });
    let storms = Storms::new(endpoint.frame.src.mac, &storms);
    let keeps = plan.checks == Checks::Keep;
    let payload = endpoint.payload_max as u64;
    // Also for latencies alone: the watch sees each frame that the log needs.
    let watch = (plan.checks != Checks::Off || plan.latency_parts).then(|| {
        let mut watch = Watch::new(&mut endpoint, link.rate, keeps, plan.fronts);
        watch.log = plan.latency_parts.then(|| HostLog::new(link.propagation, plan.delay, payload));
        Box::new(watch)
    });
    let mut host = Host {
        endpoint: Endpoint::new(*endpoint)?,
        port: Wire::new(wire, plan.frame_len_max, end),
        fronts: plan.fronts,
        agenda: Agenda::new(number, &plan.flows, own),
        ways: ways.collect(),
        storms,
        watch,
        tcp: None,
        plain: false,
    };
    host.plain = host.is_plain();
    Ok(host)
}

/// The receive buffer of a slow receiver whose endpoint has none of its own: XOFF at 32 frames (TYPE2: 8) and one round
/// trip, XON at one round trip, and room for one more (docs/spec/model.md §4).
fn slow(plan: &Plan<'_>, link: LinkSpec, response: Span, endpoint: &EndpointSpec) -> SlowSpec {
    let headroom = Headroom {
        rate: link.rate,
        frame_len_max: plan.frame_len_max,
        overhead: true,
        latency: Span::ZERO, // a host takes frames in at once
        propagation: Headroom::propagation(link.propagation.as_ps() / 5_000 + 1),
        // Its own delay counts both ways; the far end is given a microsecond at least.
        response: plan.delay.receive + plan.delay.send + response.max(Span::from_us(1)),
    };
    let is_multicast = matches!(endpoint.transport, Transport::Unreliable { .. });
    let trip = usize::try_from(headroom.bytes()).unwrap_or(usize::MAX / 8);
    SlowSpec {
        lossless: endpoint.classes.pcp.into_iter().collect(),
        ..SlowSpec::by_round_trip(link.rate, trip, plan.frame_len_max, is_multicast)
    }
}
