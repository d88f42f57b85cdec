//! Rules for frames from one peer: each is taken once, in order, and answered by what has come.
//!
//! A [`Receiver`] hears frames, answers and events; an error has the name of a checker and a description.
//!
//! Source: docs/spec/model.md §4 "Go-Back-N, TYPE1", "Messages".

use std::collections::VecDeque;

use weft_hosts::rclink::queue_pair::{PSNS, psn_since};

use crate::rclink_heard::FrameKind;

type Found<T> = Result<T, (&'static str, String)>;

/// A frame that has come and may be taken.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    message: u32,
    index: u32,
    is_last: bool,
    bytes: usize,
}

/// The message that the peer is sending at the moment.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    message: u32,
    frames: u32,
    bytes: u64,
    /// Whether a frame of it is missing.
    is_broken: bool,
}

/// Frames received from a peer, as far as the endpoint has taken them.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// The PSN after the frames taken in earlier polls.
    expected: u16,
    /// Frames that came in order since the last poll and are not taken yet.
    candidates: VecDeque<Candidate>,
    /// Number of frames taken since the last poll.
    taken: u16,
    /// Whether a frame ahead of its turn has come.
    gap: bool,
    coming: Coming,
    /// Messages completed since the last poll, with their bytes.
    whole: Vec<(u32, u64)>,
    /// Messages that the endpoint has reported as delivered since then.
    said: Vec<(u32, u64)>,
    /// Answers that the endpoint has sent in this poll.
    answers: Vec<(FrameKind, u16)>,
}

impl Receiver {
    /// Hears a frame of a message.
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

    /// The PSN after all frames that came in order.
    fn ahead(&self) -> u16 {
        let ahead = u16::try_from(self.candidates.len()).unwrap_or(PSNS);
        (self.expected + self.taken + ahead) % PSNS
    }

    /// Hears that the endpoint has taken a frame; with `may_lose`, frames before it may be lost.
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
        // A new message begins, whether the one before was complete or not.
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

    /// Hears that the endpoint reports a message as delivered.
    pub fn delivered(&mut self, id: u32, bytes: u64) {
        self.said.push((id, bytes));
    }

    /// Hears that an answer is sent. It is checked at the end of the poll, by [`Self::answers`], as frames of the same
    /// poll may find no room.
    pub fn answer(&mut self, kind: &FrameKind, psn: u16) {
        self.answers.push((*kind, psn));
    }

    /// Checks the answers of a poll, once the endpoint has reported which frames it took: none may name a frame beyond
    /// these.
    pub fn answers(&mut self) -> Found<()> {
        // A frame that was in order and not taken also justifies a NAK for itself.
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

    /// Ends a poll: frames in order that were not taken found no room. Returns how many at least and at most, as those
    /// after the first may instead have been out of order.
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
