//! What a host is to send, when each flow begins, and what has come of it.
//!
//! [`Agenda`] gives messages to an endpoint, and connections to a TCP host, when their time and all that they wait for
//! have come; events of both go in, [`Sent`] and [`Delivered`] come out.
//!
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §3, §7.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weft_dataplane::time::Instant;
use weft_hosts::rclink::endpoint::{Endpoint, Event, Message};
use weft_hosts::tcp::TcpEvent;

use super::tcp::TcpSide;
use crate::scenario::flow::{Flow, FlowId};

/// A flow at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Which.
    pub id: FlowId,
    /// Flows that it still waits for.
    waits: u32,
    /// When it was given to the endpoint.
    pub begun: Option<Instant>,
    /// When its first segment was sent; of TCP only.
    pub first: Option<Instant>,
    /// When all of it was acknowledged, or sent where nothing is acknowledged.
    pub done: Option<Instant>,
    /// Frames of it that were sent again until then.
    pub resent: u64,
    /// When it was given up.
    pub failed: Option<Instant>,
}

/// A flow at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Which.
    pub id: FlowId,
    /// When its first frame was first sent; TCP does not tell its receiver.
    pub first: Option<Instant>,
    /// Bytes of payload, where they are known here only.
    pub bytes: Option<u64>,
    /// When the last of it was there.
    pub at: Instant,
}

/// The flows of a host.
pub struct Agenda {
    flows: Arc<[Flow]>,
    host: u16,
    /// Flows from this host, by id.
    sent: Vec<Sent>,
    /// Flows that end here, and who waits here for each, in order.
    waiting: Vec<(FlowId, FlowId)>,
    /// Flows that wait for nothing but their time.
    ready: BinaryHeap<Reverse<(Instant, FlowId)>>,
    /// Flows that have begun when [`Self::begin`] was last called to any purpose.
    begun: Vec<FlowId>,
    /// Flows to this host, in the order in which they were there.
    delivered: Vec<Delivered>,
    /// Flows from this host that are done or given up.
    closed: usize,
}

/// By host: its flows, by id.
pub(super) fn by_sender(flows: &[Flow], hosts: usize) -> Vec<Vec<FlowId>> {
    let mut of = vec![Vec::new(); hosts];
    for (id, flow) in (0..).zip(flows) {
        if let Some(of) = of.get_mut(usize::from(flow.from)) {
            of.push(id);
        }
    }
    of
}

impl Agenda {
    /// Of `host` among `flows`, that have been checked; its own are those of `own` ([`by_sender`]).
    pub fn new(host: u16, flows: &Arc<[Flow]>, own: &[FlowId]) -> Self {
        let mut agenda = Self {
            flows: flows.clone(),
            host,
            sent: Vec::new(),
            waiting: Vec::new(),
            ready: BinaryHeap::new(),
            begun: Vec::new(),
            delivered: Vec::new(),
            closed: 0,
        };
        for &id in own {
            let Some(flow) = flows.get(id as usize) else { continue };
            let waits = u32::try_from(flow.after.len()).unwrap_or(u32::MAX);
            let (begun, first, done, failed) = (None, None, None, None);
            agenda.sent.push(Sent { id, waits, begun, first, done, resent: 0, failed });
            agenda.waiting.extend(flow.after.iter().map(|&other| (other, id)));
            if flow.after.is_empty() {
                agenda.ready.push(Reverse((flow.start, id)));
            }
        }
        agenda.waiting.sort_unstable();
        agenda
    }

    /// Flows from this host, by id.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Flows to this host that are all there, in the order in which they were.
    pub fn delivered(&self) -> &[Delivered] {
        &self.delivered
    }

    /// Flows from this host that are done or given up.
    pub const fn closed(&self) -> usize {
        self.closed
    }

    /// When the next flow begins that waits for nothing but its time.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.ready.peek().map(|&Reverse((at, _))| at)
    }

    /// Gives the endpoint and the TCP host what begins by `now`; returns whether there was any.
    #[inline]
    pub fn begin(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        tcp: Option<&mut TcpSide>,
    ) -> bool {
        let is_due = self.next().is_some_and(|at| at <= now);
        if is_due {
            self.begin_due(now, endpoint, tcp);
        }
        is_due
    }

    fn begin_due(&mut self, now: Instant, endpoint: &mut Endpoint, mut tcp: Option<&mut TcpSide>) {
        self.begun.clear();
        while self.next().is_some_and(|at| at <= now) {
            let Some(Reverse((_, id))) = self.ready.pop() else { break };
            let Some(flow) = self.flows.get(id as usize) else { continue };
            let taken = if flow.is_tcp() {
                tcp.as_deref_mut().is_some_and(|tcp| tcp.begin(now, id, flow))
            } else {
                endpoint.send(Message { id, to: flow.to, bytes: flow.bytes }).is_ok()
            };
            if taken && !flow.is_tcp() {
                self.begun.push(id);
            }
            if let Some(sent) = self.own(id) {
                sent.begun = Some(now);
                if !taken {
                    sent.failed = Some(now);
                    self.closed += 1;
                }
            }
        }
    }

    /// Messages that [`Self::begin`] has begun, when it was last true.
    pub fn begun(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.begun.iter().filter_map(|&id| Some((id, self.flows.get(id as usize)?)))
    }

    /// Takes in what came of messages; returns whether others may begin now.
    pub fn take(&mut self, events: impl IntoIterator<Item = Event>) -> bool {
        let ready = self.ready.len();
        for event in events {
            match event {
                Event::Sent { id, resent, at } => self.went(id, resent, at),
                Event::Delivered { id, first, at, .. } => {
                    self.came(Delivered { id, first: Some(first), bytes: None, at });
                }
                Event::Failed { to, at, .. } => self.give_up(to, at),
                Event::Received { .. } | Event::Congested { .. } => {}
            }
        }
        self.ready.len() > ready
    }

    /// Takes in what came of connections; returns whether others may begin now.
    pub fn take_tcp(&mut self, events: impl IntoIterator<Item = TcpEvent>) -> bool {
        let ready = self.ready.len();
        for event in events {
            match event {
                TcpEvent::Begun { id, at } => {
                    if let Some(sent) = self.own(id) {
                        sent.first = Some(at);
                    }
                }
                TcpEvent::Acknowledged { id, resent, at, .. } => self.went(id, resent, at),
                TcpEvent::Received { id, bytes, at, .. } => {
                    self.came(Delivered { id, first: None, bytes: Some(bytes), at });
                }
                TcpEvent::Failed { id, at } => {
                    if let Some(sent) = self.own(id).filter(|sent| sent.done.is_none()) {
                        sent.failed = Some(at);
                        self.closed += 1;
                    }
                }
                TcpEvent::Established { .. } | TcpEvent::Closed { .. } => {}
            }
        }
        self.ready.len() > ready
    }

    /// A flow from this host is done.
    fn went(&mut self, id: FlowId, resent: u64, at: Instant) {
        if let Some(sent) = self.own(id) {
            (sent.done, sent.resent) = (Some(at), resent);
            self.closed += 1;
            self.release(id);
        }
    }

    /// A flow is there, if it is one to this host.
    fn came(&mut self, delivered: Delivered) {
        let flow = self.flows.get(delivered.id as usize);
        if flow.is_some_and(|flow| flow.to == self.host) {
            self.delivered.push(delivered);
            self.release(delivered.id);
        }
    }

    /// No more is sent to `to`.
    fn give_up(&mut self, to: u16, at: Instant) {
        let Self { flows, sent, closed, .. } = self;
        for sent in sent {
            let is_open = sent.begun.is_some() && sent.done.is_none() && sent.failed.is_none();
            let is_lost = |flow: &Flow| flow.to == to && !flow.is_tcp();
            if is_open && flows.get(sent.id as usize).is_some_and(is_lost) {
                sent.failed = Some(at);
                *closed += 1;
            }
        }
    }

    /// Flow `id` is done here: whoever waits for it waits for one less.
    fn release(&mut self, id: FlowId) {
        let first = self.waiting.partition_point(|&(done, _)| done < id);
        for place in first.. {
            let Some(&(_, waiter)) = self.waiting.get(place).filter(|&&(done, _)| done == id)
            else {
                break;
            };
            let start = self.flows.get(waiter as usize).map(|flow| flow.start);
            let Some(sent) = self.own(waiter) else { continue };
            sent.waits = sent.waits.saturating_sub(1);
            if let Some(start) = start.filter(|_| sent.waits == 0) {
                self.ready.push(Reverse((start, waiter)));
            }
        }
    }

    fn own(&mut self, id: FlowId) -> Option<&mut Sent> {
        let place = self.sent.binary_search_by_key(&id, |sent| sent.id).ok()?;
        self.sent.get_mut(place)
    }
}
