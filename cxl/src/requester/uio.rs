//! A requester as the way that a fabric memory engine sends its requests by.
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

/// The transactions of a fabric memory engine: those under way, and those whose end it has not seen.
#[derive(Debug, Default)]
pub struct UioSide {
    under_way: ByKey<OpId, (Tag, bool)>,
    ended: VecDeque<(Tag, bool, Result<Vec<u8>, Failure>)>,
}

impl UioSide {
    /// Takes a transaction's end if it is the engine's; otherwise gives it back.
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

/// The port of an engine.
pub struct Uio<'a> {
    /// Sends.
    pub requester: &'a mut Requester,
    /// Remembers.
    pub side: &'a mut UioSide,
    /// Transactions of an engine at a time.
    pub pending_max: usize,
}

impl Uio<'_> {
    /// How many more it takes at present.
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
                // The engine has a timeout of its own.
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
