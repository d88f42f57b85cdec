//! A host: an RC Link endpoint at its port, with what it is to send.
//!
//! Shape: [`Host`] is at the edge of a network.
//! Units: picoseconds.
//! Source: docs/spec/model.md §3, §4.

use weft_dataplane::pool::Bufs;
use weft_dataplane::port::wire::Wire;
use weft_dataplane::port::{Port, PortCounters, PortError};
use weft_dataplane::time::Instant;
use weft_hosts::rclink::endpoint::Endpoint;

use super::agenda::{Agenda, Delivered, Sent};
use super::credits::{self, Way};
use super::storm::Storms;
use crate::checkers::Violation;
use crate::nodes::Edge;
use crate::rclink_checkers::Watch;

/// An endpoint at its port.
pub struct Host {
    pub(super) endpoint: Endpoint,
    pub(super) port: Wire,
    /// For what the endpoint does not send.
    pub(super) bufs: Bufs,
    /// Whether only fronts of frames are kept.
    pub(super) fronts: bool,
    pub(super) agenda: Agenda,
    pub(super) storms: Option<Box<Storms>>,
    /// For credits, by partner.
    pub(super) ways: Vec<Way>,
    /// Checks the endpoint.
    pub(super) watch: Option<Box<Watch>>,
}

impl Host {
    /// The endpoint.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Flows from this host, by id.
    #[must_use]
    pub fn sent(&self) -> &[Sent] {
        self.agenda.sent()
    }

    /// Flows to this host that are all there, in the order in which they were.
    #[must_use]
    pub fn delivered(&self) -> &[Delivered] {
        self.agenda.delivered()
    }

    /// Flows from this host that are done or given up.
    #[must_use]
    pub const fn closed(&self) -> usize {
        self.agenda.closed()
    }

    /// When its next flow begins that waits for nothing but its time.
    #[must_use]
    pub fn next_start(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// What its port counted: frames dropped, by reason.
    #[must_use]
    pub fn port_counters(&self) -> PortCounters {
        self.port.counters()
    }

    /// Frames that it sent, and bytes of them as they were on the wire, without FCS.
    #[must_use]
    pub const fn carried(&self) -> (u64, u64) {
        self.port.carried()
    }

    /// Who checks its endpoint, where it is checked.
    #[must_use]
    pub fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// What the checkers of its endpoint object to.
    #[must_use]
    pub fn violations(&self, now: Instant) -> Vec<Violation> {
        self.watch.as_ref().map(|watch| watch.violations(now, &self.endpoint)).unwrap_or_default()
    }

    /// PFC frames that it sent as a fault.
    #[must_use]
    pub fn storm_frames(&self) -> u64 {
        self.storms.as_ref().map_or(0, |storms| storms.sent())
    }
}

impl Edge for Host {
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        let Self { endpoint, port, bufs, fronts, agenda, storms, ways, watch } = self;
        let storm = storms.as_mut().and_then(|storms| storms.step(now, port, bufs));
        if !ways.is_empty() {
            credits::take(ways, now, endpoint, watch.as_deref_mut());
        }
        let mut due;
        loop {
            if agenda.begin(now, endpoint)
                && let Some(log) = watch.as_mut().and_then(|watch| watch.log.as_mut())
            {
                agenda.begun_at(now).for_each(|(id, flow)| log.begun(id, flow.to, flow.bytes));
            }
            let has_more = if let Some(watch) = watch {
                due = watch.poll(now, endpoint, port, bufs)?;
                let events = endpoint.events();
                watch.said(now, &events);
                agenda.take(events)
            } else {
                due = endpoint.poll_wire(now, port, *fronts).next;
                agenda.take(endpoint.drain_events())
            };
            if !has_more || agenda.next().is_none_or(|at| at > now) {
                break;
            }
        }
        // It sends whether its link is up or not: what is lost is sent again.
        let _ = port.link_up();
        let mut next = Instant::earlier(due, port.next_event());
        next = Instant::earlier(next, agenda.next());
        next = Instant::earlier(next, storm);
        // Nobody asks for credits where there are no ways for them.
        if !ways.is_empty() {
            next = Instant::earlier(next, credits::say(ways, now, endpoint));
        }
        Ok(next)
    }
}
