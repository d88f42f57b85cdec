//! The mark that a data frame carries at the front of its payload, and the bytes that follow it.
//!
//! The whole mark has 24 bytes: magic 16 bits, flags 2 and payload length 14, stream 16, check 16, sequence number 64,
//! send time 64 (picoseconds). A payload of 6 to 23 bytes, whose length a header tells, has the short one of 6 bytes:
//! check 8 bits, stream 16, flag 1 and sequence number 23. All fields are big-endian. Each byte after the mark is a
//! function of stream and sequence number, so that a receiver can check it without knowing the sender.
//!
//! Source: ours; 6 bytes are left in a tagged Standard frame of 60 (docs/spec/wire-formats.md §1.1).

use weft_dataplane::time::Instant;
use weft_parsers::crc::LEN as ICRC_LEN;

/// Bytes of the whole mark.
pub const LEN: usize = 24;
/// Bytes of the short mark.
pub const SHORT_LEN: usize = 6;
/// Stream number of announcements: frames that only make a station known to switches.
pub const ANNOUNCE: u16 = 0xFFFF;

/// First bytes of a marked payload; no EtherType's payload that a kernel sends begins so.
const MAGIC: u16 = 0xFE77;
const ICRC: u16 = 0x8000;
const BITS: u16 = 0x4000;
const LEN_MASK: u16 = 0x3FFF;
/// Sequence numbers of the short mark count modulo this.
const SHORT_SEQS: u64 = 1 << 23;

/// Scatters 64 bits over 64 bits, one to one (`SplitMix64`'s finisher).
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// The stamp that a sender writes into a payload: stream, sequence number, send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Stream that the frame belongs to.
    pub stream: u16,
    /// Number of the frame in its stream, from 0.
    pub seq: u64,
    /// When the frame was built.
    pub sent: Instant,
}

/// Facts beside the stamp that a receiver must know to check a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Four bytes of ICRC stand behind the payload.
    pub icrc: bool,
    /// The payload bits of a GEN2 header are [`header_bits`].
    pub bits: bool,
}

/// The stamp of a frame as a receiver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Stream that the frame belongs to.
    pub stream: u16,
    /// Number of the frame in the stream; of the short mark only its low 23 bits.
    pub seq: Seq,
    /// When the frame was built; `None` of the short mark, which has no room for it.
    pub sent: Option<Instant>,
    /// Bytes of the payload as sent.
    pub len: usize,
    /// Which further parts of the frame the receiver can check.
    pub extras: Extras,
}

/// A sequence number as far as a mark carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seq {
    /// The whole number, of a mark of 24 bytes.
    Whole(u64),
    /// The low 23 bits, of a short mark.
    Low(u64),
}

impl Seq {
    /// The full number: of those with these low bits the one nearest to `expected`.
    #[must_use]
    pub const fn near(self, expected: u64) -> u64 {
        match self {
            Self::Whole(seq) => seq,
            Self::Low(low) => {
                let ahead = low.wrapping_sub(expected) % SHORT_SEQS;
                let (forth, back) = (expected.wrapping_add(ahead), SHORT_SEQS - ahead);
                // Numbers below 0 do not exist: near the start of a stream only the one ahead is possible.
                if ahead > SHORT_SEQS / 2 && expected >= back { expected - back } else { forth }
            }
        }
    }
}

/// Result of looking for a stamp at the front of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// No mark of ours: other traffic.
    Foreign,
    /// A mark of ours whose check or length is wrong.
    Broken,
    /// A mark whose check and length are right.
    Mark(Mark),
}

/// Bytes that the mark of a payload of `payload_len` bytes takes; `None` when none fits.
/// `told` says that a header carries the payload's length, which the short mark needs.
#[must_use]
pub const fn len_for(payload_len: usize, told: bool) -> Option<usize> {
    if payload_len >= LEN {
        Some(LEN)
    } else if told && payload_len >= SHORT_LEN {
        Some(SHORT_LEN)
    } else {
        None
    }
}

/// Fills `payload` with the mark that fits it and the bytes that follow the mark. A payload too short for a mark
/// becomes zeros.
pub fn write(payload: &mut [u8], told: bool, stamp: &Stamp, extras: Extras) {
    let len = payload.len();
    write_front(payload, len, told, stamp, extras);
    match len_for(len, told) {
        Some(mark) => {
            // The receiver knows these bits alone when it checks the bytes.
            let low = if mark == LEN { stamp.seq } else { stamp.seq % SHORT_SEQS };
            fill(payload.get_mut(mark..).unwrap_or_default(), stamp.stream, low);
        }
        None => payload.fill(0),
    }
}

/// Writes only the mark of a payload of `len` bytes; `front` holds at least the mark's bytes.
pub fn write_front(front: &mut [u8], len: usize, told: bool, stamp: &Stamp, extras: Extras) {
    match len_for(len, told) {
        Some(LEN) => {
            let Some(head) = front.first_chunk_mut::<LEN>() else { return };
            put_long(head, len, stamp, extras);
        }
        Some(_) => {
            let Some(head) = front.first_chunk_mut::<SHORT_LEN>() else { return };
            // 23 bits of sequence number leave the top bit of the three bytes for the flag.
            let low = (stamp.seq % SHORT_SEQS) | (u64::from(extras.icrc) << 23);
            let [.., b2, b1, b0] = low.to_be_bytes();
            let [s1, s0] = stamp.stream.to_be_bytes();
            *head = [check8(stamp.stream, low), s1, s0, b2, b1, b0];
        }
        None => {}
    }
}

/// Writes the whole mark of a payload of `len` bytes; `None` if that is too short for it.
#[inline]
#[must_use]
pub const fn write_long(
    head: &mut [u8; LEN],
    len: usize,
    stamp: &Stamp,
    extras: Extras,
) -> Option<()> {
    if len < LEN {
        return None;
    }
    put_long(head, len, stamp, extras);
    Some(())
}

#[inline]
const fn put_long(head: &mut [u8; LEN], len: usize, stamp: &Stamp, extras: Extras) {
    let flags = if extras.icrc { ICRC } else { 0 } | if extras.bits { BITS } else { 0 };
    // frames are shorter than 2^14 bytes: nothing is cut off
    let [.., len_high, len_low] = len.to_be_bytes();
    let word = flags | u16::from_be_bytes([len_high, len_low]) & LEN_MASK;
    let check = check16(word, stamp.stream, stamp.seq, stamp.sent);
    let first =
        (MAGIC as u64) << 48 | (word as u64) << 32 | (stamp.stream as u64) << 16 | check as u64;
    let (front, back) = head.split_at_mut(8);
    let (middle, back) = back.split_at_mut(8);
    front.copy_from_slice(&first.to_be_bytes());
    middle.copy_from_slice(&stamp.seq.to_be_bytes());
    back.copy_from_slice(&stamp.sent.as_ps().to_be_bytes());
}

/// Reads the mark of `payload`; `told` is the payload's length according to a header, ICRC included, if a header tells
/// it.
#[must_use]
pub fn read(payload: &[u8], told: Option<usize>) -> Reading {
    let whole = read_whole(payload, told);
    // a short mark has less than 24 bytes of payload, or less than 28 with an ICRC
    match told.filter(|len| *len < LEN + ICRC_LEN) {
        // Below 24 bytes there is no room for the whole mark: what reads as its magic is the short one's check and
        // stream.
        Some(len) if whole == Reading::Foreign || len < LEN => read_short(payload, len),
        _ => whole,
    }
}

fn read_whole(payload: &[u8], told: Option<usize>) -> Reading {
    match payload.first_chunk() {
        Some(head) => read_head(head, told),
        None => Reading::Foreign,
    }
}

/// Reads the whole mark of a payload whose header tells a length of `told` bytes, ICRC included; `None` if it has to be
/// read with [`read`], which also finds short marks.
#[inline]
#[must_use]
pub fn read_long(head: &[u8; LEN], told: usize) -> Option<Mark> {
    match read_head(head, Some(told)) {
        Reading::Mark(mark) if told >= LEN + ICRC_LEN => Some(mark),
        _ => None,
    }
}

#[inline]
fn read_head(head: &[u8; LEN], told: Option<usize>) -> Reading {
    let long = |at: usize| {
        head.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |eight| u64::from_be_bytes(*eight))
    };
    let [m1, m0, f1, f0, s1, s0, c1, c0] = long(0).to_be_bytes();
    let word = u16::from_be_bytes;
    let (magic, flags, stream, check) =
        (word([m1, m0]), word([f1, f0]), word([s1, s0]), word([c1, c0]));
    let (seq, sent) = (long(8), Instant::from_ps(long(16)));
    if magic != MAGIC {
        return Reading::Foreign;
    }
    let len = usize::from(flags & LEN_MASK);
    let extras = Extras { icrc: flags & ICRC != 0, bits: flags & BITS != 0 };
    let sent_len = len + if extras.icrc { ICRC_LEN } else { 0 };
    if check != check16(flags, stream, seq, sent) || told.is_some_and(|told| told != sent_len) {
        return Reading::Broken;
    }
    Reading::Mark(Mark { stream, seq: Seq::Whole(seq), sent: Some(sent), len, extras })
}

fn read_short(payload: &[u8], len: usize) -> Reading {
    let Some(([check, s1, s0, b2, b1, b0], _)) = payload.split_first_chunk::<SHORT_LEN>() else {
        return Reading::Foreign;
    };
    let stream = u16::from_be_bytes([*s1, *s0]);
    let low = u64::from(u32::from_be_bytes([0, *b2, *b1, *b0]));
    if *check != check8(stream, low) || len < SHORT_LEN {
        return Reading::Broken;
    }
    let extras = Extras { icrc: low >= SHORT_SEQS, bits: false };
    let seq = Seq::Low(low % SHORT_SEQS);
    // the length that the header tells counts an ICRC
    let len = len.saturating_sub(if extras.icrc { ICRC_LEN } else { 0 });
    if len < SHORT_LEN {
        return Reading::Broken;
    }
    Reading::Mark(Mark { stream, seq, sent: None, len, extras })
}

/// Whether the bytes after the mark are as sent; `payload` has the length with which it was sent.
#[must_use]
pub fn is_intact(payload: &[u8], mark: &Mark) -> bool {
    let (at, seq) = match mark.seq {
        Seq::Whole(seq) => (LEN, seq),
        Seq::Low(low) => (SHORT_LEN, low),
    };
    let Some(rest) = payload.get(at..) else { return false };
    let key = key(mark.stream, seq);
    let (words, tail) = rest.as_chunks::<8>();
    let mut want = (0u64..).map(|at| word(key, at));
    let whole = words.iter().zip(&mut want).all(|(had, want)| *had == want.to_le_bytes());
    let last = word(key, words.len() as u64).to_le_bytes();
    whole && tail.iter().zip(last).all(|(had, want)| *had == want)
}

/// Payload bits in the GEN2 header of this frame if they are varied: 24 bits of the destination half and 24 of the
/// source half.
#[must_use]
pub const fn header_bits(stream: u16, seq: u64) -> (u32, u32) {
    let [hi2, hi1, hi0, lo2, lo1, lo0, ..] = mix(key(stream, seq)).to_be_bytes();
    (u32::from_be_bytes([0, hi2, hi1, hi0]), u32::from_be_bytes([0, lo2, lo1, lo0]))
}

const fn key(stream: u16, seq: u64) -> u64 {
    // Up to 2^48 frames no two streams share a key.
    mix(seq ^ (stream as u64) << 48)
}

/// Eight bytes of a payload's filling, from offset 8 * `at` after the mark.
#[inline]
const fn word(key: u64, at: u64) -> u64 {
    let z = (key ^ at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z ^ z >> 32
}

fn fill(rest: &mut [u8], stream: u16, seq: u64) {
    let key = key(stream, seq);
    let (words, tail) = rest.as_chunks_mut::<8>();
    let count = words.len() as u64;
    for (to, at) in words.iter_mut().zip(0u64..) {
        *to = word(key, at).to_le_bytes();
    }
    for (to, from) in tail.iter_mut().zip(word(key, count).to_le_bytes()) {
        *to = from;
    }
}

const fn check16(flags: u16, stream: u16, seq: u64, sent: Instant) -> u16 {
    let fields = mix((flags as u64) << 16 | stream as u64);
    let [high, low, ..] = mix(fields ^ mix(seq ^ mix(sent.as_ps()))).to_be_bytes();
    u16::from_be_bytes([high, low])
}

const fn check8(stream: u16, low: u64) -> u8 {
    let [high, ..] = mix(!((stream as u64) << 32 | low)).to_be_bytes();
    high
}

#[cfg(test)]
mod tests;
