//! The sending end of a stream: when each frame is due, and the frame.
//!
//! [`StreamSpec`] is what to send; [`StreamTx`] is how far it got. Bursts of n frames start
//! together, and the gap behind them is the sum of theirs, so that the mean rate is exact.
//!
//! Units: picoseconds, frames, bytes without FCS.
//! Pacing as in [`crate::pace`].

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;

use crate::frames::{FrameError, FrameSpec};
use crate::pace::{Pacer, RATE_MAX, Rate};
use crate::stamp::{ANNOUNCE, Stamp};

/// How the gaps between bursts spread about their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Not at all: exact pacing.
    Even,
    /// Geometrically, as of independent arrivals, by the seed: a gap is a number of sixteenths of
    /// its mean, each of which ends it with probability 1/16.
    Random,
}

/// A stream to send: which frames, how fast, how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Number that receivers know the stream by; of one sender at a time. [`ANNOUNCE`] is taken.
    pub id: u16,
    /// Its frames.
    pub frame: FrameSpec,
    /// Priority whose PAUSE stops it; `None` for what the host's map makes of its frames' headers.
    pub pri: Option<Pri>,
    /// How fast.
    pub rate: Rate,
    /// Spread of gaps.
    pub gaps: Gaps,
    /// Frames that start together; at least 1.
    pub burst: u32,
    /// When the first frame is due.
    pub start: Instant,
    /// Frames in all.
    pub count: Option<u64>,
    /// Time after `start` from which no frame is due any more.
    pub duration: Option<Span>,
    /// How far the stream may fall behind its schedule and still catch up; beyond it the schedule
    /// moves. `None`: it catches up whatever happens.
    pub lag_max: Option<Span>,
    /// Seed of sizes and random gaps.
    pub seed: u64,
    /// Frames whose send times are kept, from the first: for frames too short to carry theirs.
    pub keep_times: usize,
}

impl StreamSpec {
    /// Stream `id` of `frame`: as fast as possible, even, from time 0, without end.
    #[must_use]
    pub const fn new(id: u16, frame: FrameSpec) -> Self {
        Self {
            id,
            frame,
            pri: None,
            rate: Rate::Max,
            gaps: Gaps::Even,
            burst: 1,
            start: Instant::ZERO,
            count: None,
            duration: None,
            lag_max: None,
            seed: id as u64,
            keep_times: 0,
        }
    }
}

/// A stream that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Its frames cannot be built.
    #[error("stream {id}")]
    Frame {
        /// The stream.
        id: u16,
        /// Why.
        #[source]
        source: FrameError,
    },
    /// Its number is taken.
    #[error("stream {id}: expected a number from 0 to 65,534 that no other stream of the host has")]
    Id {
        /// The stream.
        id: u16,
    },
    /// A rate that cannot be paced.
    #[error("stream {id}: rate {rate:?}, expected 1 to {RATE_MAX} a second")]
    Rate {
        /// The stream.
        id: u16,
        /// Its rate.
        rate: Rate,
    },
    /// No frame at a time.
    #[error("stream {id}: burst of 0 frames, expected 1 or more")]
    Burst {
        /// The stream.
        id: u16,
    },
}

/// Whether a stream has a frame to send now, later or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A frame now.
    Now,
    /// A frame at that time, not before.
    At(Instant),
    /// Nothing any more.
    Over,
}

/// The sending end of a stream.
#[derive(Clone, Debug)]
pub struct StreamTx {
    spec: StreamSpec,
    pacer: Pacer,
    rng: Rng,
    /// When the burst under way was due.
    at: Instant,
    /// Gaps of the burst's frames so far.
    ahead: Span,
    burst_left: u32,
    seq: u64,
    bytes: u64,
    behind: Span,
    stopped: bool,
    times: Vec<Instant>,
}

impl StreamTx {
    /// A stream before its first frame.
    ///
    /// # Errors
    /// What cannot be sent, and what was expected.
    pub fn new(spec: StreamSpec) -> Result<Self, StreamError> {
        let id = spec.id;
        spec.frame.check().map_err(|source| StreamError::Frame { id, source })?;
        if id == ANNOUNCE {
            return Err(StreamError::Id { id });
        }
        if !spec.rate.is_valid() {
            return Err(StreamError::Rate { id, rate: spec.rate });
        }
        if spec.burst == 0 {
            return Err(StreamError::Burst { id });
        }
        Ok(Self {
            pacer: Pacer::new(spec.rate),
            rng: Rng::new(spec.seed),
            at: spec.start,
            ahead: Span::ZERO,
            burst_left: spec.burst,
            seq: 0,
            bytes: 0,
            behind: Span::ZERO,
            stopped: false,
            times: Vec::with_capacity(spec.keep_times),
            spec,
        })
    }

    /// What it sends.
    #[must_use]
    pub const fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// Frames taken so far: the next sequence number.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.seq
    }

    /// Bytes taken so far, without FCS.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How far the schedule was moved because the stream could not follow it.
    #[must_use]
    pub const fn behind(&self) -> Span {
        self.behind
    }

    /// Send times of the first frames, as many as were to be kept.
    #[must_use]
    pub fn times(&self) -> &[Instant] {
        &self.times
    }

    /// Ends the stream.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    /// What there is to send at `now`.
    #[must_use]
    pub fn due(&self, now: Instant) -> Due {
        let counted_out = self.spec.count.is_some_and(|count| self.seq >= count);
        let end = self.spec.duration.map(|duration| self.spec.start + duration);
        // without a rate all frames are due at the start: what counts is when they are sent
        let last = if self.spec.rate == Rate::Max { self.at.max(now) } else { self.at };
        if self.stopped || counted_out || end.is_some_and(|end| last >= end) {
            Due::Over
        } else if self.at > now {
            Due::At(self.at)
        } else {
            Due::Now
        }
    }

    /// Length of the next frame.
    #[inline]
    #[must_use]
    pub fn next_len(&self) -> usize {
        self.spec.frame.len_at(self.seq, self.spec.seed)
    }

    /// Builds the next frame into `out`, which is [`Self::next_len`] long, and goes on to the one
    /// after it.
    ///
    /// # Errors
    /// `out` has another length; the stream is where it was.
    pub fn take(&mut self, now: Instant, out: &mut [u8]) -> Result<(), FrameError> {
        let stamp = Stamp { stream: self.spec.id, seq: self.seq, sent: now };
        self.spec.frame.emit(&stamp, out)?;
        self.advance(now, out.len());
        Ok(())
    }

    fn advance(&mut self, now: Instant, len: usize) {
        self.seq += 1;
        self.bytes += len as u64;
        if self.times.len() < self.spec.keep_times {
            self.times.push(now);
        }
        self.ahead = self.ahead + self.pacer.gap(len);
        self.burst_left -= 1;
        if self.burst_left > 0 {
            return;
        }
        self.burst_left = self.spec.burst;
        let gap = match self.spec.gaps {
            Gaps::Even => self.ahead,
            Gaps::Random => Span::from_ps(self.ahead.as_ps() / 16 * self.sixteenths()),
        };
        self.at += gap;
        self.ahead = Span::ZERO;
        if let Some(lag_max) = self.spec.lag_max
            && self.spec.rate != Rate::Max
        {
            let lag = now.since(self.at);
            if lag > lag_max {
                let moved = Span::from_ps(lag.as_ps() - lag_max.as_ps());
                self.at += moved;
                self.behind = self.behind + moved;
            }
        }
    }

    /// A number of 1 or more with mean 16: trials until one of probability 1/16 holds. Ends after
    /// 1,024 trials at the latest, which one gap in 10^28 would need.
    fn sixteenths(&mut self) -> u64 {
        let mut trials = 0;
        for _ in 0..64 {
            let word = self.rng.next_u64();
            for nibble in 0..16 {
                trials += 1;
                if (word >> (nibble * 4)).trailing_zeros() >= 4 {
                    return trials;
                }
            }
        }
        trials
    }
}

#[cfg(test)]
mod tests;
