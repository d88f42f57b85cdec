//! Requests of one connection over any transport: the connection's right, and requests that wait for a response.
//!
//! [`Requests::carry_out`] takes a request and returns the response, or keeps the request's origin until
//! [`Requests::resolve`].
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.4.
//!
//! One request of each tag may wait at a time, and [`WAITING_MAX`] in all.

use std::collections::{BTreeMap, BTreeSet};

use weft_dataplane::time::Instant;
use weft_parsers::cci::component::ClaimOp;
use weft_parsers::cci::{Category, Header, Opcode, Request, Response, ReturnCode};

use super::common::{Answer, Ticket};
use super::ownership::Ownership;
use super::reply::Reply;
use super::rights::Right;
use super::session::Session;
use super::{Component, Served, respond, serve};

/// Pending requests of one connection at a time.
pub const WAITING_MAX: usize = 32;

/// Requests of one connection; `F` is the origin of a request, to which its response goes.
#[derive(Clone, Debug)]
pub struct Requests<F> {
    session: Session,
    right: Right,
    /// Origin and CCI tag of each pending request.
    waiting: BTreeMap<Ticket, (F, u8)>,
    ignored: u64,
}

impl<F> Requests<F> {
    /// Requests of a peer that may become at most `right`.
    #[must_use]
    pub const fn new(session: Session, right: Right) -> Self {
        Self { session, right, waiting: BTreeMap::new(), ignored: 0 }
    }

    #[must_use]
    pub const fn session(&self) -> Session {
        self.session
    }

    /// Number of messages that were no requests.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Tickets of all pending requests.
    #[must_use]
    pub fn tickets(&self) -> BTreeSet<Ticket> {
        self.waiting.keys().copied().collect()
    }

    /// Whether no request is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The same requests with another right.
    #[must_use]
    pub fn with_right(self, right: Right) -> Self {
        Self { right, ..self }
    }

    /// Carries out the request in `message` from `from`; returns the response, unless there is none or it comes
    /// later.
    pub fn carry_out(
        &mut self,
        component: &mut dyn Component,
        now: Instant,
        from: F,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let mut response = Vec::new();
        if let Ok((header, _, payload)) = Header::cut(message)
            && header.category == Category::Request
        {
            // A tag that is in use would make two responses indistinguishable for the client.
            let is_busy = self.waiting.len() >= WAITING_MAX
                || self.waiting.values().any(|(_, tag)| *tag == header.tag);
            let owner = &component.common().ownership;
            let allowed = self.right.allows(owner.primary_right(), header.opcode, payload);
            let allowed = if is_busy { Err(ReturnCode::Busy) } else { allowed };
            if let Err(code) = allowed {
                respond(header, code, &[], &mut response);
                return Some(response);
            }
        }
        match serve(component, now, self.session, message, &mut response) {
            Served::Response => {
                self.judge(component, message, &mut response);
                return Some(response);
            }
            Served::Ignored => self.ignored += 1,
            Served::Pending(ticket) => {
                let tag = Header::cut(message).map_or(0, |(header, _, _)| header.tag);
                self.waiting.insert(ticket, (from, tag));
            }
        }
        None
    }

    /// Follows up a successful response: hides the managers from an observer, and records the right of a claim.
    fn judge(&self, component: &mut dyn Component, request: &[u8], response: &mut Vec<u8>) {
        let Ok((header, _, payload)) = Header::cut(request) else { return };
        let is_done = Header::cut(response)
            .is_ok_and(|(answer, _, _)| answer.return_code == ReturnCode::Success);
        if !is_done {
            return;
        }
        match header.opcode {
            Opcode::IDENTIFY_PBR_COMPONENT if self.right == Right::Observer => {
                let nobody = Response::IdentifyPbrComponent(Ownership::new().identity());
                let mut reply = Reply::new();
                let _ = reply.send(&nobody); // as long as the one that it replaces
                response.clear();
                respond(header, ReturnCode::Success, reply.payload(), response);
            }
            Opcode::CLAIM_OWNERSHIP => {
                // `UpdatePid` repeats an earlier claim, whose right stays.
                if let Ok(Request::ClaimOwnership(claim)) = Request::parse(header.opcode, payload)
                    && matches!(claim.op, ClaimOp::RegisterPrimary | ClaimOp::PromoteSecondary)
                {
                    component.common_mut().ownership.set_primary_right(self.right);
                }
            }
            _ => {}
        }
    }

    /// Origin of the request that `answer` belongs to, if it is one of these.
    pub fn resolve(&mut self, answer: &Answer) -> Option<F> {
        if answer.session != self.session {
            return None;
        }
        self.waiting.remove(&answer.ticket).map(|(from, _)| from)
    }
}
