//! Answers and events of an endpoint, kept until they are taken.
//!
//! Answers are kept by the number of their command, events in a bounded list that loses the oldest one first. Times are
//! those that the endpoint is given.
//!
//! Source: docs/endpoint.md.

use std::collections::VecDeque;

use weft_cxl::transaction_layer::ReceivedMessage;
use weft_dataplane::time::Instant;
use weft_rpc::Refused;

use super::command::{Answer, EventReport, TransferReport};
use super::number::Hex;

/// Events kept until a client takes them.
const EVENTS_MAX: usize = 4_096;

/// Answers and events of an endpoint.
#[derive(Debug, Default)]
pub struct EventLog {
    now: Instant,
    answers: Vec<(u64, Result<Answer, Refused>)>,
    events: VecDeque<EventReport>,
    number: u64,
    lost: u64,
}

impl EventLog {
    /// Sets the time stamp of events recorded from now on.
    pub const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Records an event.
    pub fn event(&mut self, kind: &str, text: impl Into<String>) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.lost += 1;
        }
        let (number, at_ns) = (self.number, self.now.as_ns());
        self.number += 1;
        self.events.push_back(EventReport {
            number,
            at_ns,
            kind: kind.to_owned(),
            text: text.into(),
        });
    }

    /// Records a message that the endpoint does not handle.
    pub fn message(&mut self, message: ReceivedMessage) {
        let ReceivedMessage { from, code, routing, dws, payload } = message;
        let payload = Hex(payload);
        self.event("message", format!("{from} code {code:#04x} {routing:?} {dws:x?} {payload}"));
    }

    /// Answers the commands whose transfers have ended, by number.
    pub fn transfers(&mut self, ended: Vec<(u64, TransferReport)>) {
        for (number, report) in ended {
            self.answer(number, Ok(Answer::Transfer(Box::new(report))));
        }
    }

    /// Answers the command with this number.
    pub fn answer(&mut self, number: u64, answer: Result<Answer, Refused>) {
        self.answers.push((number, answer));
    }

    /// Takes the answers recorded since the last call.
    pub fn take_answers(&mut self) -> Vec<(u64, Result<Answer, Refused>)> {
        core::mem::take(&mut self.answers)
    }

    /// Takes the events since the last call, and the number of those lost.
    pub fn take_events(&mut self) -> (Vec<EventReport>, u64) {
        (self.events.drain(..).collect(), core::mem::take(&mut self.lost))
    }
}
