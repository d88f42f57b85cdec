//! The record of a run, byte by byte.
//!
//! `WEFTREC`, version, header, then entries: step (time, answers of ports, digest), change, stop, counters. Numbers are
//! LEB128, signed ones in zigzag; texts have their length in front, and only control reads them.
//!
//! Source: docs/spec/pipeline.md §13; DWARF 5 section 7.6 (LEB128).

use std::io::{BufRead, BufReader, Read};

use crate::batch::BURST;
use crate::pool::{FRAME_LEN_MAX, PartialCsum};
use crate::port::PortCounters;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::types::PORTS_MAX;

/// First bytes of every record.
const MAGIC: &[u8; 7] = b"WEFTREC";
/// Version that this module writes and reads.
const VERSION: u8 = 1;
/// Longest text of an entry in bytes: a configuration, or a list of static entries.
const TEXT_LEN_MAX: u64 = 16 << 20;
/// Longest frame that a port can deliver: a chunk has a little more room than a frame needs.
const LEN_MAX: u64 = FRAME_LEN_MAX as u64 + 128;
/// Shortest frame of a live port.
const LEN_MIN: u64 = 14;
/// Offsets in a chunk at which frames can start.
const STARTS: core::ops::RangeInclusive<u64> = 64..=510;
/// Answers of one step at most.
const CALLS_MAX: usize = 1 << 20;

const STEP: u8 = 0x01;
const CHANGE: u8 = 0x02;
const STOP: u8 = 0x03;
const COUNTS: u8 = 0x04;
const LINK: u8 = 0x10;
const RX: u8 = 0x11;
const ROOM: u8 = 0x12;
const TX: u8 = 0x13;
const SERVICE: u8 = 0x14;
const COUNTERS: u8 = 0x15;
const END: u8 = 0x1F;
/// Flags in front of a frame: its start, its partial checksum follow.
const HAS_START: u8 = 1;
const HAS_PARTIAL: u8 = 2;

/// Why a record cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("read")]
    Read(#[from] std::io::Error),
    /// The file is no record.
    #[error("expected a record of `weft run --record`, found something else")]
    Foreign,
    /// The record was written by another version of weft.
    #[error("expected a record of version {VERSION}, found version {0}")]
    Version(u8),
    /// The record has bytes that no recorder writes.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Offset in the file, in bytes.
        at: u64,
        /// The fault.
        what: &'static str,
    },
    /// The record ends within an entry, or within its header.
    #[error("truncated: the entry at byte {at} is incomplete")]
    Cut {
        /// Offset at which the entry begins, in bytes.
        at: u64,
    },
}

/// Effect of a port's call on the packet pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolMove {
    /// Change of the number of chunks in use.
    pub used: i64,
    /// Chunks that the reserve for control frames lacks afterwards.
    pub short: usize,
}

/// A frame as a port delivered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset of its start in its chunk, in bytes.
    pub start: usize,
    /// Place of its checksum, if that is partial.
    pub partial: Option<PartialCsum>,
    /// The whole frame, without FCS.
    pub bytes: Vec<u8>,
}

/// An answer of a port; those that repeat the last one are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Whether the link is up, recorded when it changes.
    Link(bool),
    /// Received frames; recorded unless there were none.
    Rx(Vec<Frame>, PoolMove),
    /// Number of frames that the port would take.
    Room(usize),
    /// Number of frames that it took.
    Tx(usize, PoolMove),
    /// Housekeeping that moved chunks.
    Service(PoolMove),
    /// The port's counters, recorded when they change.
    Counters(PortCounters),
}

/// An answer, with its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index of the port in the switch.
    pub port: usize,
    /// The port's answer.
    pub answer: Answer,
}

/// An entry of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A step of the pipeline.
    Step {
        /// Time of the step.
        now: Instant,
        /// The ports' answers, in the order of the calls.
        calls: Vec<Call>,
        /// Digest of both hashes after the step, see `digest`.
        digest: u32,
    },
    /// A change by control between two steps; the text is control's own.
    Change(Vec<u8>),
    /// The switch stopped.
    Stop {
        /// Time of the stop.
        now: Instant,
        /// The ports' answers, in the order of the calls.
        calls: Vec<Call>,
        /// Hash of all decisions and their times.
        trace_hash: u64,
        /// Hash of all frames that ports took.
        sent_hash: u64,
        /// Number of decisions in the run.
        events: u64,
    },
    /// Final counters; the text is control's own.
    Counts(Vec<u8>),
}

/// Part of both hashes, kept after each step: a replay that differs shows in which step it begins to.
#[expect(clippy::cast_possible_truncation, reason = "a part is kept")]
pub(super) const fn digest(trace_hash: u64, sent_hash: u64) -> u32 {
    // Rotated, so that equal changes of both hashes do not cancel out.
    (trace_hash ^ sent_hash.rotate_left(17)) as u32
}

// Writing ---------------------------------------------------------------------------------------

#[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[expect(clippy::cast_possible_truncation, reason = "a port's number is below 64")]
fn put_head(out: &mut Vec<u8>, tag: u8, port: usize) {
    out.extend([tag, port as u8]);
}

fn put_move(out: &mut Vec<u8>, pool: PoolMove) {
    // The lowest bit says whether `short` follows: most calls leave the reserve full.
    put_number(out, (zigzag(pool.used) << 1) + u64::from(pool.short > 0));
    if pool.short > 0 {
        put_number(out, pool.short as u64);
    }
}

pub(super) fn put_preamble(out: &mut Vec<u8>, header: &[u8]) {
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    put_text(out, header);
}

pub(super) fn put_link(out: &mut Vec<u8>, port: usize, up: bool) {
    put_head(out, LINK, port);
    out.push(up.into());
}

/// Followed by `count` frames, by [`put_frame`].
pub(super) fn put_rx(out: &mut Vec<u8>, port: usize, count: usize, pool: PoolMove) {
    put_head(out, RX, port);
    put_number(out, count as u64);
    put_move(out, pool);
}

pub(super) fn put_frame(
    out: &mut Vec<u8>,
    start: usize,
    partial: Option<PartialCsum>,
    bytes: &[u8],
) {
    let moved = start != crate::pool::HEADROOM;
    // Most frames start at HEADROOM and have complete checksums; both are left out to keep records short.
    out.push(HAS_START * u8::from(moved) + HAS_PARTIAL * u8::from(partial.is_some()));
    if moved {
        put_number(out, start as u64);
    }
    if let Some(partial) = partial {
        put_number(out, partial.start.into());
        put_number(out, partial.offset.into());
    }
    put_text(out, bytes);
}

pub(super) fn put_room(out: &mut Vec<u8>, port: usize, room: usize) {
    put_head(out, ROOM, port);
    put_number(out, room as u64);
}

pub(super) fn put_tx(out: &mut Vec<u8>, port: usize, taken: usize, pool: PoolMove) {
    put_head(out, TX, port);
    put_number(out, taken as u64);
    put_move(out, pool);
}

pub(super) fn put_service(out: &mut Vec<u8>, port: usize, pool: PoolMove) {
    put_head(out, SERVICE, port);
    put_move(out, pool);
}

pub(super) fn put_counters(out: &mut Vec<u8>, port: usize, counters: &PortCounters) {
    put_head(out, COUNTERS, port);
    put_number(out, counters.kernel_rx);
    put_number(out, counters.tx_failed);
    let dropped = || counters.rx_dropped.iter().filter_map(|&(reason, n)| Some((reason?, n)));
    put_number(out, dropped().count() as u64);
    for (reason, total) in dropped() {
        // The number of a drop reason is never used again, so old records stay readable.
        out.push(reason as u8);
        put_number(out, total);
    }
}

/// A step whose answers, `calls`, are encoded already.
pub(super) fn put_step(out: &mut Vec<u8>, since_ps: u64, calls: &[u8], digest: u32) {
    out.push(STEP);
    put_number(out, since_ps);
    out.extend_from_slice(calls);
    out.push(END);
    out.extend_from_slice(&digest.to_le_bytes());
}

pub(super) fn put_change(out: &mut Vec<u8>, text: &[u8]) {
    out.push(CHANGE);
    put_text(out, text);
}

/// The end of a run, with encoded answers; `hashes` of decisions and of sent frames.
pub(super) fn put_stop(
    out: &mut Vec<u8>,
    since_ps: u64,
    calls: &[u8],
    hashes: [u64; 2],
    events: u64,
) {
    out.push(STOP);
    put_number(out, since_ps);
    out.extend_from_slice(calls);
    out.push(END);
    for hash in hashes {
        out.extend_from_slice(&hash.to_le_bytes());
    }
    put_number(out, events);
}

pub(super) fn put_counts(out: &mut Vec<u8>, text: &[u8]) {
    out.push(COUNTS);
    put_text(out, text);
}

// Reading ---------------------------------------------------------------------------------------

/// Reads a record entry by entry. Memory is bounded by the length of the file, whatever the file claims.
pub struct RecordReader<R> {
    from: BufReader<R>,
    at: u64,
    entry_at: u64,
    now: Instant,
    ended: bool,
}

impl<R: Read> RecordReader<R> {
    /// Begins to read; also returns the header's text.
    ///
    /// # Errors
    /// The file is no record, is of another version, or its header is incomplete.
    pub fn new(from: R) -> Result<(Self, Vec<u8>), RecordError> {
        let from = BufReader::with_capacity(64 << 10, from);
        let mut reader = Self { from, at: 0, entry_at: 0, now: Instant::ZERO, ended: false };
        let magic = reader.bytes(MAGIC.len() as u64)?;
        if magic != MAGIC {
            return Err(RecordError::Foreign);
        }
        let version = reader.byte()?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let header = reader.text()?;
        Ok((reader, header))
    }

    /// The next entry; `None` at the end, and after an error.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn next_entry(&mut self) -> Result<Option<Entry>, RecordError> {
        // The end of the file between two entries is no error: a run that was killed wrote no stop.
        if self.ended || self.from.fill_buf()?.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        self.entry_at = self.at;
        let entry = self.entry();
        self.ended = entry.is_err();
        entry.map(Some)
    }

    fn entry(&mut self) -> Result<Entry, RecordError> {
        Ok(match self.byte()? {
            STEP => {
                let (now, calls) = self.answers()?;
                Entry::Step { now, calls, digest: u32::from_le_bytes(self.array()?) }
            }
            CHANGE => Entry::Change(self.text()?),
            STOP => {
                let (now, calls) = self.answers()?;
                let trace_hash = u64::from_le_bytes(self.array()?);
                let sent_hash = u64::from_le_bytes(self.array()?);
                Entry::Stop { now, calls, trace_hash, sent_hash, events: self.number()? }
            }
            COUNTS => Entry::Counts(self.text()?),
            _ => return self.damaged("no entry begins like that"),
        })
    }

    fn answers(&mut self) -> Result<(Instant, Vec<Call>), RecordError> {
        // Times are differences to the entry before, which keeps an entry short.
        let now = Instant::from_ps(self.now.as_ps().wrapping_add(self.number()?));
        let mut calls = Vec::new();
        while let Some(call) = self.call()? {
            // Only a damaged record has so many: bounds the memory that it can take.
            if calls.len() == CALLS_MAX {
                return self.damaged("a step with too many answers");
            }
            calls.push(call);
        }
        self.now = now;
        Ok((now, calls))
    }

    fn call(&mut self) -> Result<Option<Call>, RecordError> {
        let tag = self.byte()?;
        if tag == END {
            return Ok(None);
        }
        let port = usize::from(self.byte()?);
        if port >= PORTS_MAX {
            return self.damaged("a port's number above 63");
        }
        let answer = match tag {
            LINK => match self.byte()? {
                up @ (0 | 1) => Answer::Link(up == 1),
                _ => return self.damaged("a link neither up nor down"),
            },
            RX => {
                let count = self.below(BURST as u64 + 1, "more frames than a burst has")?;
                let pool = self.pool_move()?;
                let mut frames = Vec::with_capacity(count);
                for _ in 0..count {
                    frames.push(self.frame()?);
                }
                Answer::Rx(frames, pool)
            }
            ROOM => Answer::Room(self.below(u64::MAX, "room without end")?),
            TX => {
                let taken = self.below(BURST as u64 + 1, "more frames than a burst has")?;
                Answer::Tx(taken, self.pool_move()?)
            }
            SERVICE => Answer::Service(self.pool_move()?),
            COUNTERS => Answer::Counters(self.counters()?),
            _ => return self.damaged("no answer begins like that"),
        };
        Ok(Some(Call { port, answer }))
    }

    fn frame(&mut self) -> Result<Frame, RecordError> {
        let flags = self.byte()?;
        if flags & !(HAS_START | HAS_PARTIAL) != 0 {
            return self.damaged("a frame with unknown flags");
        }
        let mut start = crate::pool::HEADROOM;
        if flags & HAS_START != 0 {
            start = self.below(*STARTS.end() + 1, "a frame that starts nowhere in its chunk")?;
            if !STARTS.contains(&(start as u64)) || !start.is_multiple_of(2) {
                return self.damaged("a frame that starts nowhere in its chunk");
            }
        }
        let mut partial = None;
        if flags & HAS_PARTIAL != 0 {
            let [start, offset] = [self.half()?, self.half()?];
            partial = Some(PartialCsum { start, offset });
        }
        let len = self.number()?;
        if !(LEN_MIN..=LEN_MAX).contains(&len) {
            return self.damaged("a frame of a length that no port delivers");
        }
        Ok(Frame { start, partial, bytes: self.bytes(len)? })
    }

    fn half(&mut self) -> Result<u16, RecordError> {
        let number = self.number()?;
        u16::try_from(number).or_else(|_| self.damaged("a checksum's place beyond any frame"))
    }

    fn pool_move(&mut self) -> Result<PoolMove, RecordError> {
        let word = self.number()?;
        let magnitude = word >> 1;
        let used = (magnitude >> 1).cast_signed() ^ -(magnitude & 1).cast_signed();
        let short = if word & 1 == 1 { self.below(1 << 24, "a reserve of no pool")? } else { 0 };
        Ok(PoolMove { used, short })
    }

    fn counters(&mut self) -> Result<PortCounters, RecordError> {
        let mut counters = PortCounters {
            kernel_rx: self.number()?,
            tx_failed: self.number()?,
            ..PortCounters::default()
        };
        let count = self.number()?;
        if count > counters.rx_dropped.len() as u64 {
            return self.damaged("more reasons than a port has");
        }
        for n in 0..count {
            let index = usize::from(self.byte()?);
            let Some(&reason) = DropReason::ALL.get(index) else {
                return self.damaged("an unknown drop reason");
            };
            let total = self.number()?;
            if let Some(slot) = usize::try_from(n).ok().and_then(|n| counters.rx_dropped.get_mut(n))
            {
                *slot = (Some(reason), total);
            }
        }
        Ok(counters)
    }

    fn damaged<T>(&self, what: &'static str) -> Result<T, RecordError> {
        Err(RecordError::Damaged { at: self.at, what })
    }

    fn below(&mut self, bound: u64, what: &'static str) -> Result<usize, RecordError> {
        let number = self.number()?;
        match usize::try_from(number) {
            Ok(small) if number < bound => Ok(small),
            _ => self.damaged(what),
        }
    }

    fn number(&mut self) -> Result<u64, RecordError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            // Bits beyond the 64th would be lost: the tenth byte has room for one bit only.
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        self.damaged("a number of more than 64 bits")
    }

    fn text(&mut self) -> Result<Vec<u8>, RecordError> {
        let len = self.number()?;
        if len > TEXT_LEN_MAX {
            return self.damaged("a text that is too long");
        }
        self.bytes(len)
    }

    fn byte(&mut self) -> Result<u8, RecordError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let mut bytes = [0; N];
        match self.from.read_exact(&mut bytes) {
            Ok(()) => {
                self.at += N as u64;
                Ok(bytes)
            }
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(RecordError::Cut { at: self.entry_at })
            }
            Err(e) => Err(e.into()),
        }
    }

    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, RecordError> {
        let mut bytes = Vec::new(); // grows with what is there, not with what is claimed
        (&mut self.from).take(len).read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        if bytes.len() as u64 == len {
            return Ok(bytes);
        }
        Err(RecordError::Cut { at: self.entry_at })
    }
}
