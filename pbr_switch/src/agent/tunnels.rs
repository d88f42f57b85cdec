//! CCI messages to and from components further out.
//!
//! A request that [`Switch`](super::Switch) passes on becomes a request of the tunnel, and the tunnel's answer
//! completes it. A request that arrives by tunnel is served like one of a connection.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (5701h); CXL 3.1 section 7.7.12.2.

use weft_cxl::cci::{Common, Component, Served, Session, Ticket, serve};
use weft_cxl::vdm::mctp::{Event, Peer, RequestId, Ticket as Asked};
use weft_dataplane::time::Instant;
use weft_parsers::cci::ReturnCode;
use weft_parsers::cci::mctp::MessageType;

use super::Agent;
use crate::config::Role;
use crate::switch::{FarRequest, Outgoing};

/// Requests in flight in both directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnelled {
    /// Passed on: the tunnel's request, and the ticket it completes.
    out: Vec<(RequestId, Ticket)>,
    /// Received by tunnel, and not answered yet.
    in_band: Vec<(Ticket, Asked)>,
}

impl Tunnelled {
    /// Takes the requester behind the tunnel that waits for the answer under `ticket`.
    pub fn asked(&mut self, ticket: Ticket) -> Option<Asked> {
        let at = self.in_band.iter().position(|(own, _)| *own == ticket)?;
        Some(self.in_band.swap_remove(at).1)
    }

    fn passed_on(&mut self, id: RequestId) -> Option<Ticket> {
        let at = self.out.iter().position(|(own, _)| *own == id)?;
        Some(self.out.swap_remove(at).1)
    }
}

impl Agent {
    /// Passes requests on to other components; true if there were any.
    pub(super) fn pass_on(&mut self, now: Instant) -> bool {
        let all: Vec<Outgoing> = self.switch.outgoing().collect();
        let any = !all.is_empty();
        // First: an answer is accepted only if its DPID is named here.
        self.name_guests();
        for Outgoing { ticket, spid, to } in all {
            let (peer, kind, message) = match to {
                FarRequest::Port(port, message) => {
                    (Peer::Port(port.get()), MessageType::FmApi, message)
                }
                FarRequest::Pid(pid, message) => (Peer::Pid(pid), MessageType::FmApi, message),
                FarRequest::Device(..) | FarRequest::LdConfig { .. } | FarRequest::LdMem { .. } => {
                    self.ask_ld(now, ticket, &to);
                    continue;
                }
            };
            self.counts.passed_on += 1;
            let timeout = Common::PATIENCE;
            match self.tunnel.request_as(now, spid, peer, kind, &message, timeout) {
                Ok(id) => self.tunnelled.out.push((id, ticket)),
                Err(_) => self.complete(ticket, Err(ReturnCode::RetryRequired)),
            }
        }
        any
    }

    /// Names the PIDs that the tunnel answers to: the switch's own, and that of a fabric manager connected here.
    pub(super) fn name_guests(&mut self) {
        let ownership = &self.switch.common().ownership;
        let guest = ownership.primary().filter(|_| ownership.is_local()).map(|fm| fm.pid);
        let own = ownership.pid();
        self.tunnel.set_own(own);
        self.tunnel.set_guests(guest.into_iter().collect());
    }

    pub(super) fn complete(&mut self, ticket: Ticket, answer: Result<&[u8], ReturnCode>) {
        if let Some(answer) = self.switch.common_mut().complete(ticket, answer) {
            self.answer(answer);
        }
    }

    /// Serves requests that came by tunnels, and answers that came back; true if there were any.
    pub(super) fn serve_tunnels(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.tunnel.pop_event() {
            any = true;
            match event {
                Event::Response(id, message) => match self.tunnelled.passed_on(id) {
                    Some(ticket) => self.complete(ticket, Ok(&message)),
                    None => self.counts.unexpected += 1,
                },
                Event::Failed(id, _) => {
                    // The link or the component may be back at the next try.
                    if let Some(ticket) = self.tunnelled.passed_on(id) {
                        self.complete(ticket, Err(ReturnCode::RetryRequired));
                    }
                }
                Event::Request { ticket, message, .. } => self.serve_far(now, ticket, &message),
                Event::Notice { from, port, message } => self.relay(from, port, &message),
            }
        }
        // Requests whose time ran out; `tick` has completed them with Retry Required.
        let stale: Vec<_> = self.switch.common_mut().answers().collect();
        for answer in stale {
            any = true;
            self.answer(answer);
        }
        any
    }

    fn serve_far(&mut self, now: Instant, asked: Asked, message: &[u8]) {
        let Some((port, pid)) = self.tunnel.asker(asked) else { return };
        // Only links between switches carry commands; a requester at an edge gets no answer.
        let from = self.port_of(port).and_then(|port| self.switch.port(port));
        if from.is_none_or(|port| port.role != Role::Fabric) {
            self.counts.refused += 1;
            return;
        }
        let session = Session::InBand { port, pid };
        let mut out = Vec::new();
        match serve(&mut self.switch, now, session, message, &mut out) {
            Served::Response => {
                // The command may have been Claim Ownership, which changes the PIDs.
                self.name_guests();
                if self.tunnel.respond(asked, &out).is_err() {
                    self.counts.unsent += 1;
                }
            }
            Served::Pending(ticket) => self.tunnelled.in_band.push((ticket, asked)),
            Served::Ignored => self.counts.ignored += 1,
        }
    }

    /// Sends the waiting packets of all tunnels.
    pub(super) fn flush_tunnel(&mut self, now: Instant) {
        self.name_guests();
        while let Some(sent) = self.tunnel.poll(now) {
            let repr = sent.repr();
            match sent.peer {
                Peer::Pid(_) => self.send_by(sent.pth, &repr),
                // A neighbour without a PID is reached by port and DPID FFFh: no route leads there.
                Peer::Port(port) => match self.port_of(port) {
                    Some(port) => self.send_at(port, Some(sent.pth), &repr),
                    None => self.counts.unsent += 1,
                },
            }
        }
    }
}
