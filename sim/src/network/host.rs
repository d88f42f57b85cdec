//! A host: an RC Link endpoint at its port, with what it is to send.
//!
//! Shape: [`Host`] is at the edge of a network.
//! Units: picoseconds.
//! Source: docs/spec/model.md §3, §4.

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
    /// Whether only fronts of frames are kept.
    pub(super) fronts: bool,
    pub(super) agenda: Agenda,
    pub(super) storms: Option<Box<Storms>>,
    /// Whether [`Self::is_plain`], once and for all.
    pub(super) plain: bool,
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

    /// What the checkers of its endpoint object to; whether all that was to be sent in the network is there.
    #[must_use]
    pub fn violations(&self, now: Instant, is_all_there: bool) -> Vec<Violation> {
        let watch = self.watch.as_ref();
        watch.map(|it| it.violations(now, &self.endpoint, is_all_there)).unwrap_or_default()
    }

    /// PFC frames that it sent as a fault.
    #[must_use]
    pub fn storm_frames(&self) -> u64 {
        self.storms.as_ref().map_or(0, |storms| storms.sent())
    }
}

impl Host {
    /// Whether nothing but its endpoint and its flows says when it is due.
    pub(super) fn is_plain(&self) -> bool {
        let is_alone = self.storms.is_none() && self.ways.is_empty() && self.watch.is_none();
        is_alone && !self.port.has_outages()
    }

    /// What events of the endpoint bring about, and whatever else is due.
    fn go_on(
        &mut self,
        now: Instant,
        mut next: Option<Instant>,
    ) -> Result<Option<Instant>, PortError> {
        let Self { endpoint, port, fronts, agenda, storms, ways, watch, .. } = self;
        let storm = storms.as_mut().and_then(|storms| storms.step(now, port));
        if !ways.is_empty() {
            credits::take(ways, now, endpoint, watch.as_deref_mut());
        }
        let mut is_polled = self.plain;
        loop {
            if agenda.begin(now, endpoint)
                && let Some(log) = watch.as_mut().and_then(|watch| watch.log.as_mut())
            {
                agenda.begun().for_each(|(id, flow)| log.begun(id, flow.to, flow.bytes));
            }
            let has_more = if let Some(watch) = watch {
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
            if !has_more || agenda.next().is_none_or(|at| at > now) {
                break;
            }
        }
        if port.has_outages() {
            // It sends whether its link is up or not: what is lost is sent again.
            let _ = port.link_up();
            next = Instant::earlier(next, port.next_event());
        }
        next = Instant::earlier(Instant::earlier(next, agenda.next()), storm);
        // Nobody asks for credits where there are no ways for them.
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
        self.agenda.begin(now, &mut self.endpoint);
        let next = self.endpoint.poll_wire(now, &mut self.port, self.fronts);
        if self.endpoint.has_events() {
            return self.go_on(now, next);
        }
        Ok(match self.agenda.next() {
            Some(at) => Instant::earlier(next, Some(at)),
            None => next,
        })
    }
}
