//! A requester as the port of a fabric memory engine.
//!
//! [`UioSide`] remembers which transactions are the engine's; [`Uio`] is a [`UioPort`] over both.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.6, §5.5.

use std::collections::VecDeque;

use weft_dataplane::time::Instant;
use weft_parsers::tlp::Status;

use super::{Done, Failure, OpId, Operation, Requester};
use crate::by_key::ByKey;
use crate::fabric_mem::{Answer, Body, Completion, NotTaken, Request, Tag, UioPort};

/// The transactions of a fabric memory engine: those under way, and ended ones that it has not polled.
#[derive(Debug, Default)]
pub struct UioSide {
    under_way: ByKey<OpId, (Tag, bool)>,
    ended: VecDeque<(Tag, bool, Result<Vec<u8>, Failure>)>,
}

impl UioSide {
    /// Takes the result of a transaction if it is the engine's; otherwise returns it.
    pub fn take(&mut self, done: Done) -> Option<Done> {
        match self.under_way.swap_remove(&done.op) {
            Some((tag, write)) => {
                self.ended.push_back((tag, write, done.result));
                None
            }
            None => Some(done),
        }
    }
}

/// A requester and its engine's transactions, as the engine's port.
pub struct Uio<'a> {
    pub requester: &'a mut Requester,
    pub side: &'a mut UioSide,
    /// Limit of the engine's transactions under way.
    pub pending_max: usize,
}

impl Uio<'_> {
    /// Number of further requests that it accepts at present.
    #[must_use]
    pub fn room(&self) -> usize {
        self.pending_max.saturating_sub(self.side.under_way.len())
    }
}

impl UioPort for Uio<'_> {
    fn submit(
        &mut self,
        _: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken> {
        if self.side.under_way.len() >= self.pending_max {
            return Err(NotTaken::Full);
        }
        let addr = request.addr;
        let (what, write) = match request.body {
            Body::Read(len) => (Operation::UioRead { addr, len }, false),
            Body::Write(len) => {
                let mut data = self.requester.buffer(len);
                if !fill(&mut data) {
                    return Err(NotTaken::Unfilled);
                }
                (Operation::UioWrite { addr, data }, true)
            }
        };
        let op = self.requester.submit(what.into());
        self.side.under_way.insert(op, (request.tag, write));
        Ok(())
    }

    fn poll(&mut self, _: Instant, each: &mut dyn FnMut(Completion<'_>)) {
        for (tag, write, result) in self.side.ended.drain(..) {
            let answer = match &result {
                Ok(_) if write => Answer::Written,
                Ok(data) => Answer::Data { offset: 0, data, poisoned: false },
                // The engine has a time limit of its own, and ends the request by that.
                Err(Failure::Timeout | Failure::Status(Status::RequestRetry)) => continue,
                Err(Failure::NoForm | Failure::Status(Status::UnsupportedRequest)) => {
                    Answer::Unsupported
                }
                Err(_) => Answer::Aborted,
            };
            each(Completion { tag, answer });
            self.requester.recycle(result.unwrap_or_default());
        }
    }
}
