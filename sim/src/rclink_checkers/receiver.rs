//! What must hold of frames from one peer: taken once each, in order, and answered for what has come.
//!
//! [`Receiver`] hears frames, answers and what the endpoint says; what is wrong is a name of a checker and what it saw.
//!
//! Units: PSNs modulo 4096.
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1", "Messages".

use std::collections::VecDeque;

use weft_hosts::rclink::queue_pair::{PSNS, psn_since};

use super::heard::FrameKind;

type Found<T> = Result<T, (&'static str, String)>;

/// A frame that has come and may be taken.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    message: u32,
    index: u32,
    is_last: bool,
    bytes: usize,
}

/// The message that is coming.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    message: u32,
    frames: u32,
    bytes: u64,
    /// Whether a frame of it did not come.
    is_broken: bool,
}

/// What has come from a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// The PSN after those that are taken.
    expected: u16,
    /// Came since the last poll, in order, and not yet taken.
    candidates: VecDeque<Candidate>,
    /// Frames taken of those.
    taken: u16,
    /// Whether one has come whose turn it was not.
    gap: bool,
    coming: Coming,
    /// Messages that are all there since the last poll, and their bytes.
    whole: Vec<(u32, u64)>,
    /// Those that the endpoint says are.
    said: Vec<(u32, u64)>,
    /// Answers of this poll.
    answers: Vec<(FrameKind, u16)>,
}

impl Receiver {
    /// A frame of a message has come.
    pub fn come(&mut self, kind: &FrameKind) {
        let FrameKind::Data { psn, message, index, is_last, bytes } = *kind else { return };
        let candidate = Candidate { message, index, is_last, bytes };
        let Some(psn) = psn else {
            self.candidates.push_back(candidate);
            return;
        };
        match psn_since(psn, self.ahead()) {
            0 => self.candidates.push_back(candidate),
            1..2_048 => self.gap = true,
            _ => {}
        }
    }

    /// The PSN after all that have come in order.
    fn ahead(&self) -> u16 {
        let ahead = u16::try_from(self.candidates.len()).unwrap_or(PSNS);
        (self.expected + self.taken + ahead) % PSNS
    }

    /// The endpoint has taken a frame, before which others may have been lost or not.
    pub fn take(&mut self, id: u32, index: u32, bytes: usize, may_lose: bool) -> Found<()> {
        let Some(frame) = self.candidates.pop_front() else {
            return Err((
                "order",
                format!("frame {index} of message {id} is taken, and did not come"),
            ));
        };
        self.taken += 1;
        if (frame.message, frame.index, frame.bytes) != (id, index, bytes) {
            let Candidate { message, index: next, .. } = frame;
            let saw = format!("frame {index} of {id} is taken before frame {next} of {message}");
            return Err(("order", saw));
        }
        if frame.index == 0 {
            self.coming = Coming { message: id, ..Coming::default() };
        }
        let Coming { message, frames, .. } = self.coming;
        let is_next = (message, frames) == (id, index);
        self.coming.is_broken |= !is_next;
        (self.coming.message, self.coming.frames) = (id, index + 1);
        self.coming.bytes += bytes as u64;
        if frame.is_last && !self.coming.is_broken {
            self.whole.push((id, self.coming.bytes));
        }
        if is_next || may_lose && (message != id || index > frames) {
            return Ok(());
        }
        Err((
            "order",
            format!("frame {index} of message {id} is taken, {frames} of {message} is next"),
        ))
    }

    /// The endpoint says that a message is all there.
    pub fn delivered(&mut self, id: u32, bytes: u64) {
        self.said.push((id, bytes));
    }

    /// An answer goes out. What it is held against is known at the end of the poll ([`Self::answers`]): what came in it may find
    /// no room.
    pub fn answer(&mut self, kind: &FrameKind, psn: u16) {
        self.answers.push((*kind, psn));
    }

    /// The endpoint has said all of a poll, and which frames it has taken: its answers name none beyond these.
    pub fn answers(&mut self) -> Found<()> {
        let is_refused = self.candidates.front().is_some();
        let next = (self.expected + self.taken) % PSNS;
        let may_be = |psn: u16| psn_since(psn % PSNS, self.expected) <= self.taken;
        let mut found = Ok(());
        for (kind, psn) in core::mem::take(&mut self.answers) {
            let (is_true, what) = match kind {
                FrameKind::Ack(_) => (may_be(psn + 1), "ACK"),
                FrameKind::Nak(_) => {
                    (may_be(psn) && (core::mem::take(&mut self.gap) || is_refused), "NAK")
                }
                _ => (may_be(psn), "RNR NAK"),
            };
            if !is_true {
                found = Err(("answer", format!("{what} of {psn}, and {next} is next")));
            }
        }
        found
    }

    /// The endpoint has said all of a poll; frames that it did not take found no room: whether there were any, and how many.
    /// Those behind the first one may have found none, or were out of order.
    pub fn polled(&mut self) -> Found<(u64, u64)> {
        self.expected = (self.expected + core::mem::take(&mut self.taken)) % PSNS;
        let refused = self.candidates.len() as u64;
        self.candidates.clear();
        let (whole, said) = (core::mem::take(&mut self.whole), core::mem::take(&mut self.said));
        if whole == said {
            return Ok((refused.min(1), refused));
        }
        Err(("deliver", format!("messages {said:?} are said to be there, {whole:?} are")))
    }
}
