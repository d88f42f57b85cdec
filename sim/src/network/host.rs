//! A host at the edge of a network: an RC Link endpoint at its port, the flows it sends, and its TCP connections.
//!
//! Source: docs/spec/model.md §3, §4, §7.

use weft_dataplane::port::wire::Wire;
use weft_dataplane::port::{Port, PortCounters, PortError};
use weft_dataplane::time::Instant;
use weft_hosts::rclink::endpoint::Endpoint;

use super::agenda::{Agenda, Delivered, Sent};
use super::credits::{self, Way};
use super::storm::Storms;
use super::tcp::TcpSide;
use crate::checkers::Violation;
use crate::nodes::Edge;
use crate::rclink_checkers::Watch;

/// An endpoint at its port, with the flows it sends.
pub struct Host {
    pub(super) endpoint: Endpoint,
    pub(super) port: Wire,
    /// Whether only the fronts of frames are kept.
    pub(super) fronts: bool,
    pub(super) agenda: Agenda,
    pub(super) storms: Option<Box<Storms>>,
    /// Value of [`Self::is_plain`], which never changes once the host is built.
    pub(super) plain: bool,
    /// Ways of credits, by partner.
    pub(super) ways: Vec<Way>,
    /// Watch on the endpoint, if it is checked or its latencies are recorded.
    pub(super) watch: Option<Box<Watch>>,
    /// TCP side, if there are connections from or to this host.
    pub(super) tcp: Option<Box<TcpSide>>,
}

impl Host {
    /// The host's RC Link endpoint.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Flows from this host, in the order of their ids.
    #[must_use]
    pub fn sent(&self) -> &[Sent] {
        self.agenda.sent()
    }

    /// Flows delivered to this host, in the order of their delivery.
    #[must_use]
    pub fn delivered(&self) -> &[Delivered] {
        self.agenda.delivered()
    }

    /// Number of flows from this host that are done or given up.
    #[must_use]
    pub const fn closed(&self) -> usize {
        self.agenda.closed()
    }

    /// When its next flow begins, of those that wait only for their time.
    #[must_use]
    pub fn next_start(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// Counters of its port: frames dropped, by reason.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.port.counters()
    }

    /// Frames that it sent, and their bytes on the wire, without FCS.
    #[must_use]
    pub const fn carried(&self) -> (u64, u64) {
        self.port.carried()
    }

    /// Its TCP connections, if it has any.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpSide> {
        self.tcp.as_deref()
    }

    /// Whether neither its endpoint nor a connection has anything to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.endpoint.is_idle() && self.tcp.as_ref().is_none_or(|tcp| tcp.is_idle())
    }

    /// Data frames and segments that it has sent and taken, which tell a stall.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let (stats, tcp) = (self.endpoint.stats(), self.tcp.as_ref().map(|tcp| tcp.stats()));
        let of_tcp = tcp.map_or(0, |tcp| tcp.tx_segments + tcp.rx_segments);
        stats.tx_frames + stats.rx_frames + of_tcp
    }

    /// Bytes of payload that it has taken, by both protocols.
    #[must_use]
    pub fn taken_bytes(&self) -> u64 {
        let of_tcp = self.tcp.as_ref().map_or(0, |tcp| tcp.stats().rx_bytes);
        self.endpoint.stats().rx_payload + of_tcp
    }

    /// The watch on its endpoint, if it has one.
    #[must_use]
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// Violations by its endpoint; `is_all_there` if everything sent in the network has arrived.
    #[must_use]
    pub fn violations(&self, now: Instant, is_all_there: bool) -> Vec<Violation> {
        let watch = self.watch.as_ref();
        watch.map(|it| it.violations(now, &self.endpoint, is_all_there)).unwrap_or_default()
    }

    /// PFC frames that it sent because of a fault.
    #[must_use]
    pub fn storm_frames(&self) -> u64 {
        self.storms.as_ref().map_or(0, |storms| storms.sent())
    }
}

impl Host {
    /// The same host with TCP connections.
    pub(super) fn with_tcp(mut self, tcp: Option<Box<TcpSide>>) -> Self {
        self.tcp = tcp;
        self.plain = self.is_plain();
        self
    }

    /// Whether only its endpoint and its flows decide when it is due, so that a step may take the short way.
    pub(super) fn is_plain(&self) -> bool {
        let is_alone = self.storms.is_none() && self.ways.is_empty() && self.watch.is_none();
        is_alone && self.tcp.is_none() && !self.port.has_outages()
    }

    /// A step of the host; `next` is the result of a poll that a plain host has already done.
    fn go_on(
        &mut self,
        now: Instant,
        mut next: Option<Instant>,
    ) -> Result<Option<Instant>, PortError> {
        let Self { endpoint, port, fronts, agenda, storms, ways, watch, tcp, .. } = self;
        // First of all: a storm's PFC goes ahead of the endpoint's frames.
        let storm = storms.as_mut().and_then(|storms| storms.step(now, port));
        // TCP takes its frames off the wire before the endpoint looks (docs/spec/model.md §7).
        if let Some(tcp) = tcp {
            tcp.take(now, port);
            agenda.take_tcp(tcp.host().drain_events());
        }
        if !ways.is_empty() {
            credits::take(ways, now, endpoint, watch.as_deref_mut());
        }
        let mut is_polled = self.plain;
        // Events may let further flows begin at this instant, which need another poll.
        loop {
            if agenda.begin(now, endpoint, tcp.as_deref_mut())
                && let Some(log) = watch.as_mut().and_then(|watch| watch.log.as_mut())
            {
                agenda.begun().for_each(|(id, flow)| log.begun(id, flow.to, flow.bytes));
            }
            let (before, mut due) = (port.carried().0, None);
            // The two sides take turns on the link: the one that sent last comes second.
            if let Some(tcp) = tcp.as_mut().filter(|tcp| tcp.is_first()) {
                due = tcp.send(now, port, *fronts);
            }
            let of_tcp = port.carried().0;
            let mut has_more = if let Some(watch) = watch {
                next = Instant::earlier(watch.poll(now, endpoint, port)?, port.next_event());
                let events = endpoint.events();
                watch.said(now, &events);
                agenda.take(events)
            } else {
                if !core::mem::take(&mut is_polled) {
                    next = endpoint.poll_wire(now, port, *fronts);
                }
                agenda.take(endpoint.drain_events())
            };
            if let Some(tcp) = tcp {
                if port.carried().0 != of_tcp {
                    tcp.is_next();
                }
                // TCP has sent nothing before the endpoint, and may use the room that is left.
                if of_tcp == before {
                    due = tcp.send(now, port, *fronts);
                }
                has_more |= agenda.take_tcp(tcp.host().drain_events());
                next = Instant::earlier(next, due);
            }
            if !has_more || agenda.next().is_none_or(|at| at > now) {
                break;
            }
        }
        if port.has_outages() {
            // The host sends whether its link is up or not; lost frames are sent again.
            let _ = port.link_up();
            next = Instant::earlier(next, port.next_event());
        }
        next = Instant::earlier(Instant::earlier(next, agenda.next()), storm);
        // Without ways there are no credits to report.
        if !ways.is_empty() {
            next = Instant::earlier(next, credits::say(ways, now, endpoint));
        }
        Ok(next)
    }
}

impl Edge for Host {
    #[inline]
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        if !self.plain {
            return self.go_on(now, None);
        }
        self.agenda.begin(now, &mut self.endpoint, None);
        let next = self.endpoint.poll_wire(now, &mut self.port, self.fronts);
        // Few polls have events, and only those have to look at the agenda again.
        if self.endpoint.has_events() {
            return self.go_on(now, next);
        }
        Ok(match self.agenda.next() {
            Some(at) => Instant::earlier(next, Some(at)),
            None => next,
        })
    }
}
