//! Rules for frames to one peer: in order, sent again only for a reason, and done when acknowledged.
//!
//! A [`Sender`] hears frames and answers; an error has the name of a checker and a description. PSNs are counted from
//! the start of the run, and time is read from a clock that stands still while PFC pauses the frames' priority.
//!
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1", "LITE".

use std::collections::{BTreeMap, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;
use weft_hosts::rclink::queue_pair::psn_since;

use crate::rclink_heard::FrameKind;

type Found<T> = Result<T, (&'static str, String)>;

/// Half of the PSNs: a difference beyond it means that a number is behind.
const AHEAD: u64 = 1 << 11;

/// A frame that was sent and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    message: u32,
    index: u32,
    is_last: bool,
    sent: Instant,
}

/// A message that is not done.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    /// Frames of it that were sent, each counted once.
    sent: u32,
    /// Frames that are acknowledged; without acknowledgements, sent.
    done: u32,
    /// Number of its frames, once the last one was sent.
    frames: Option<u32>,
    resent: u64,
}

/// Frames sent to a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Sender {
    /// Number of the oldest frame not acknowledged, the first of `open`.
    una: u64,
    /// Number of the next frame that is sent for the first time.
    next: u64,
    /// Number of the frame that goes next; below `next` while frames are sent again.
    cursor: u64,
    open: VecDeque<Open>,
    /// When a frame was last acknowledged for the first time.
    progress: Instant,
    /// Whether a NAK has come since frames were last sent again.
    nak: bool,
    /// Whether a frame was acknowledged after its timeout, and nothing was sent since.
    late: bool,
    messages: BTreeMap<u32, Sending>,
    /// Priority of the frames to this peer.
    pub pri: Pri,
    /// Whether the peer was given up, after which nothing is checked.
    given_up: bool,
}

impl Sender {
    /// Hears a frame of a message that is sent; returns whether it was sent before.
    pub fn send(&mut self, clock: Instant, kind: &FrameKind, timeout: Option<Span>) -> Found<bool> {
        let FrameKind::Data { psn, message, index, is_last, .. } = *kind else { return Ok(false) };
        if self.given_up {
            return Ok(false);
        }
        let frame = Open { message, index, is_last, sent: clock };
        let Some(psn) = psn else {
            let sending = self.first(frame)?;
            sending.done += 1;
            return Ok(false);
        };
        // A PSN stands for one of 4096 numbers; the window is shorter, so counting from the oldest is unambiguous.
        let at = self.una + u64::from(psn_since(psn, low(self.una)));
        if at == self.next && at == self.cursor {
            (self.next, self.cursor, self.late) = (at + 1, at + 1, false);
            self.open.push_back(frame);
            return self.first(frame).map(|_| false);
        }
        if at > self.cursor {
            let saw = format!("PSN {psn} sent, {} left out", low(self.cursor));
            return Err(("sequence", saw));
        }
        let place = usize::try_from(at - self.una).unwrap_or(usize::MAX);
        let Some(open) = self.open.get_mut(place) else {
            return Err(("sequence", format!("PSN {psn} sent, which is acknowledged")));
        };
        // If the oldest frame was late, its timeout had those after it sent again as well.
        let began = open.sent.max(self.progress);
        let is_due = is_over(began, clock, timeout) | core::mem::take(&mut self.late);
        if (open.message, open.index, open.is_last) != (message, index, is_last) {
            return Err(("sequence", format!("PSN {psn} is another frame when it is sent again")));
        }
        open.sent = clock;
        let is_back = at < self.cursor;
        self.cursor = at + 1;
        if let Some(sending) = self.messages.get_mut(&message) {
            sending.resent += 1;
        }
        // Go-Back-N goes back to the oldest frame, and nowhere else.
        if is_back && at != self.una {
            return Err((
                "resend",
                format!("PSN {psn} sent again, {} is the oldest", low(self.una)),
            ));
        }
        if is_back && !core::mem::take(&mut self.nak) && !is_due {
            return Err((
                "resend",
                format!("PSN {psn} sent again without a NAK and before its time"),
            ));
        }
        Ok(true)
    }

    /// Hears a frame that is sent for the first time: it must be the next of its message.
    fn first(&mut self, frame: Open) -> Found<&mut Sending> {
        let Open { message, index, is_last, .. } = frame;
        let sending = self.messages.entry(message).or_default();
        let want = core::mem::replace(&mut sending.sent, index + 1);
        if index != want || sending.frames.is_some() {
            let saw = format!("frame {index} of message {message} sent, {want} is next");
            return Err(("sequence", saw));
        }
        sending.frames = is_last.then_some(index + 1);
        Ok(sending)
    }

    /// Hears that the peer acknowledges frames up to `psn` (ACK), or all before it (NAK).
    pub fn answered(
        &mut self,
        clock: Instant,
        psn: u16,
        is_ack: bool,
        timeout: Option<Span>,
    ) -> Found<()> {
        if self.given_up {
            return Ok(());
        }
        let new = u64::from(psn_since(psn, low(self.una))) + u64::from(is_ack);
        self.nak |= !is_ack;
        // A number that is behind belongs to an old answer.
        if new % (2 * AHEAD) >= AHEAD {
            return Ok(());
        }
        let new = new % (2 * AHEAD);
        if new > self.next - self.una {
            return Err(("acknowledge", format!("PSN {psn} is acknowledged, and was not sent")));
        }
        if new > 0
            && let Some(oldest) = self.open.front()
        {
            self.late |= is_over(oldest.sent.max(self.progress), clock, timeout);
            self.progress = clock;
        }
        for _ in 0..new {
            let Some(open) = self.open.pop_front() else { break };
            if let Some(sending) = self.messages.get_mut(&open.message) {
                sending.done += 1;
            }
        }
        self.una += new;
        self.cursor = self.cursor.max(self.una);
        Ok(())
    }

    /// Hears that the endpoint reports message `id` as done; `None` if the message was not for this peer.
    pub fn done(&mut self, id: u32, resent: u64) -> Option<Found<()>> {
        let sending = self.messages.remove(&id)?;
        Some(if sending.frames != Some(sending.done) {
            let Sending { done, frames, .. } = sending;
            Err(("acknowledge", format!("message {id} is done with {done} of {frames:?} frames")))
        } else if sending.resent != resent {
            let saw = format!("message {id}: {resent} sent again, {} by frames", sending.resent);
            Err(("ledger", saw))
        } else {
            Ok(())
        })
    }

    /// Hears that the peer was given up.
    pub fn give_up(&mut self) {
        self.given_up = true;
        self.messages.clear();
    }

    /// Checks that no frame and no message is open.
    pub fn finish(&self, peer: u16) -> Found<()> {
        if self.given_up || self.messages.is_empty() && self.open.is_empty() {
            return Ok(());
        }
        let (open, messages) = (self.open.len(), self.messages.len());
        Err(("acknowledge", format!("{open} frames and {messages} messages to {peer} are open")))
    }
}

/// Whether a timer that began at `began` has ended.
fn is_over(began: Instant, clock: Instant, timeout: Option<Span>) -> bool {
    timeout.is_some_and(|timeout| clock.since(began) >= timeout)
}

/// The 12 bits of a PSN on the wire.
fn low(psn: u64) -> u16 {
    u16::try_from(psn & 0xFFF).unwrap_or(0)
}
