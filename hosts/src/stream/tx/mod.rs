//! The sending end of a stream: when each frame is due, and its bytes.
//!
//! A [`StreamSpec`] says which frames to send; [`StreamTx`] keeps the progress. The frames of a burst start together,
//! and the gap after them is the sum of their gaps, so that the mean rate is exact ([`crate::pace`]). Lengths are
//! without FCS.

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::Pri;

use crate::frames::{FrameError, FrameSpec};
use crate::pace::{Pacer, RATE_MAX, Rate};
use crate::stamp::{ANNOUNCE, Stamp};

/// How the gaps between bursts spread about their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Exact pacing without any spread.
    Even,
    /// Geometrically by the seed, as for independent arrivals: a gap is a number of sixteenths of its mean, each of
    /// which ends it with probability 1/16.
    Random,
}

/// Description of a stream: its frames, their rate and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// Number by which receivers know the stream, of one sender at a time. [`ANNOUNCE`] is reserved.
    pub id: u16,
    /// Description of its frames, lengths included.
    pub frame: FrameSpec,
    /// Priority whose PAUSE stops the stream; `None`: the one that the host's map gives to the frames' headers.
    pub pri: Option<Pri>,
    /// Rate, in bits or frames a second.
    pub rate: Rate,
    /// Spread of the gaps between bursts.
    pub gaps: Gaps,
    /// Frames that start together; at least 1.
    pub burst: u32,
    /// When the first frame is due, on the host's clock.
    pub start: Instant,
    /// Number of frames to send; `None`: no limit.
    pub count: Option<u64>,
    /// Time after `start` from which on no frame is due; `None`: no limit.
    pub duration: Option<Span>,
    /// How far the stream may fall behind its schedule and still catch up; beyond that the schedule moves. `None`: it
    /// always catches up.
    pub lag_max: Option<Span>,
    /// Seed of frame lengths and random gaps.
    pub seed: u64,
    /// How many send times to keep, from the first frame on, for frames too short to carry theirs.
    pub keep_times: usize,
}

impl StreamSpec {
    /// Stream `id` of `frame`: as fast as possible, evenly paced, from time 0 on, without end.
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

/// Why a stream cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// Its frames cannot be built.
    #[error("stream {id}")]
    Frame {
        /// Number of the stream.
        id: u16,
        /// The part or length that the format cannot have.
        #[source]
        source: FrameError,
    },
    /// Its number is reserved, or another stream of the host has it.
    #[error("stream {id}: expected a number from 0 to 65,534 that no other stream of the host has")]
    Id {
        /// Number of the stream.
        id: u16,
    },
    /// Its rate cannot be paced.
    #[error("stream {id}: rate {rate:?}, expected 1 to {RATE_MAX} a second")]
    Rate {
        /// Number of the stream.
        id: u16,
        /// The rate that was asked for.
        rate: Rate,
    },
    /// Its bursts would have no frames.
    #[error("stream {id}: burst of 0 frames, expected 1 or more")]
    Burst {
        /// Number of the stream.
        id: u16,
    },
}

/// Whether a stream has a frame to send now, later or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A frame is due now, or was before.
    Now,
    /// The next frame is due at that time.
    At(Instant),
    /// The stream has ended.
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
    /// Sum of the gaps of the burst's frames sent so far.
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
    /// A field of `spec` that does not make a stream.
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

    /// Description of the stream, as given to [`Self::new`].
    #[must_use]
    pub const fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// Frames built so far, and so the next sequence number.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.seq
    }

    /// Bytes of these frames, without FCS.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How far the schedule was moved because the stream could not follow it.
    #[must_use]
    pub const fn behind(&self) -> Span {
        self.behind
    }

    /// Send times of the first frames, as many as the description says.
    #[must_use]
    pub fn times(&self) -> &[Instant] {
        &self.times
    }

    /// Ends the stream before its time.
    pub const fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether a frame is due at `now`, later or never.
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

    /// Builds the next frame in `out`, which is [`Self::next_len`] bytes long, and advances to the one after it.
    ///
    /// # Errors
    /// `out` has another length; the stream has not advanced.
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
        // All frames of a burst are due at once: `at` stands until the last one.
        if self.burst_left > 0 {
            return;
        }
        self.burst_left = self.spec.burst;
        let gap = match self.spec.gaps {
            Gaps::Even => self.ahead,
            Gaps::Random => Span::from_ps(self.ahead.as_ps() / 16 * self.sixteenths()),
        };
        // From when it was due, not from now: a late frame shortens the next wait, and the rate is kept.
        self.at += gap;
        self.ahead = Span::ZERO;
        // At the highest rate there is no schedule to fall behind.
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

    /// A random number of 1 or more with mean 16: trials until one of probability 1/16 succeeds. Ends after 1,024
    /// trials, which one gap in 10^28 would exceed.
    fn sixteenths(&mut self) -> u64 {
        let mut trials = 0;
        for _ in 0..64 {
            let word = self.rng.next_u64();
            for nibble in 0..16 {
                trials += 1;
                // A nibble of four zero bits has probability 1/16; a word has 16 of them.
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
