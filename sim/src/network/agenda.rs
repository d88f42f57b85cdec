//! The agenda of a host: which flows it sends, when each begins, and their results.
//!
//! An [`Agenda`] gives messages to an endpoint and connections to a TCP host when their time has come and the flows
//! they wait for are done. Events of both go in, [`Sent`] and [`Delivered`] come out.
//!
//! Source: docs/spec/model.md §3, §7.

use core::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use weft_dataplane::time::Instant;
use weft_hosts::rclink::endpoint::{Endpoint, Event, Message};
use weft_hosts::tcp::TcpEvent;

use super::tcp::TcpSide;
use crate::scenario::flow::{Flow, FlowId};

/// State of a flow at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Id of the flow.
    pub id: FlowId,
    /// Number of flows that it still waits for.
    waits: u32,
    /// When it was given to the endpoint or TCP host.
    pub begun: Option<Instant>,
    /// When its first segment was sent; TCP only.
    pub first: Option<Instant>,
    /// When all of it was acknowledged; without acknowledgements, sent.
    pub done: Option<Instant>,
    /// Frames of it that were sent again until then.
    pub resent: u64,
    /// When it was given up, if it was.
    pub failed: Option<Instant>,
}

/// A flow that has been delivered, at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Id of the flow.
    pub id: FlowId,
    /// When its first frame was first sent; `None` of TCP, whose segments do not carry it.
    pub first: Option<Instant>,
    /// Bytes of payload, if only the receiver knows them (TCP).
    pub bytes: Option<u64>,
    /// When its last frame or byte was taken.
    pub at: Instant,
}

/// Flows of one host.
pub struct Agenda {
    flows: Arc<[Flow]>,
    host: u16,
    /// Flows from this host, in the order of their ids.
    sent: Vec<Sent>,
    /// Pairs of a flow that this host sees done and one of its own that waits for it, in order.
    waiting: Vec<(FlowId, FlowId)>,
    /// Flows that wait only for their time.
    ready: BinaryHeap<Reverse<(Instant, FlowId)>>,
    /// Messages begun by the last call of [`Self::begin`] that returned true.
    begun: Vec<FlowId>,
    /// Flows to this host, in the order of their delivery.
    delivered: Vec<Delivered>,
    /// Number of flows from this host that are done or given up.
    closed: usize,
}

/// For each host, the ids of the flows that it sends, in order.
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
    /// The agenda of `host`, which sends the flows in `own` ([`by_sender`]); `flows` have been checked.
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

    /// Flows from this host, in the order of their ids.
    pub fn sent(&self) -> &[Sent] {
        &self.sent
    }

    /// Flows delivered to this host, in the order of their delivery.
    pub fn delivered(&self) -> &[Delivered] {
        &self.delivered
    }

    /// Number of flows from this host that are done or given up.
    pub const fn closed(&self) -> usize {
        self.closed
    }

    /// When the next flow begins, of those that wait only for their time.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.ready.peek().map(|&Reverse((at, _))| at)
    }

    /// Begins the flows that are due by `now`, at the endpoint or the TCP host; returns whether there were any.
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
                // A refused flow, to a queue pair that has failed, is closed, or the run would wait for it.
                if !taken {
                    sent.failed = Some(now);
                    self.closed += 1;
                }
            }
        }
    }

    /// Messages begun by the last call of [`Self::begin`] that returned true.
    pub fn begun(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.begun.iter().filter_map(|&id| Some((id, self.flows.get(id as usize)?)))
    }

    /// Takes events of the endpoint; returns whether more flows may begin now.
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

    /// Takes events of the TCP host; returns whether more flows may begin now.
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

    /// A flow has been delivered, if it is one to this host.
    fn came(&mut self, delivered: Delivered) {
        let flow = self.flows.get(delivered.id as usize);
        // The id comes from the marks of frames: only a flow to this host counts.
        if flow.is_some_and(|flow| flow.to == self.host) {
            self.delivered.push(delivered);
            self.release(delivered.id);
        }
    }

    /// Gives up all RC Link flows to `to`, whose queue pair has failed.
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

    /// Flow `id` is done at this host: flows that wait for it have one less to wait for.
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
