//! Latency prober: one end sends frames with the time of sending, the other takes their age.
//!
//! [`send`] at a rate out of a socket; [`ages`] of a receiver's memory -> histogram. Times are ns
//! of `CLOCK_MONOTONIC`.
//!
//! Source: the stamp of sending is read in user space just before sendto(2), as a host's frames
//! also come from sockets; that of arrival by XDP (`bpf_ktime_get_ns`). A receiving socket's
//! `SO_TIMESTAMPNS` would need an skb, which frames of the express path do not have, and carries
//! the wake-up of a reader on the same processor. The sender's own cost cancels out beside a plain
//! cable.

use hdrhistogram::Histogram;

use super::bpf::Memory;
use super::{KitError, frame, sys};

/// Ages that a receiver keeps.
pub const SAMPLES_MAX: usize = 1 << 20;
/// Longest age that is told apart: a second.
const AGE_NS_MAX: u64 = 1_000_000_000;

/// Writes a word of the prober's into its frame, as the receiver loads it.
fn put(frame: &mut [u8], at: u8, value: u64) {
    let at = usize::from(at);
    if let Some(field) = frame.get_mut(at..at + 8) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// Sends frames of `frame_len` out of `ifindex`, evenly, for `duration_ns`; returns how many were taken.
///
/// # Errors
/// No socket; a rate of 0.
pub fn send(
    ifindex: i32,
    frame_len: usize,
    rate_fps: u64,
    duration_ns: u64,
) -> Result<u64, KitError> {
    if rate_fps == 0 {
        return Err(KitError::Usage("a rate is above 0".to_owned()));
    }
    let socket = sys::PacketSocket::open(ifindex)?;
    let mut bytes = frame::template(frame_len)?;
    put(&mut bytes, frame::MARK, frame::MARK_VALUE);
    let (start, mut sent, mut taken) = (sys::now_ns(), 0_u64, 0_u64);
    loop {
        let now = sys::now_ns();
        if now - start >= duration_ns {
            return Ok(taken);
        }
        // counted from the start, so that late frames do not delay those behind them
        let due = start
            + u64::try_from(u128::from(sent) * 1_000_000_000 / u128::from(rate_fps))
                .unwrap_or(u64::MAX);
        if now < due {
            std::hint::spin_loop();
            continue;
        }
        // read again: `now` is older by the arithmetic above
        put(&mut bytes, frame::STAMP, sys::now_ns());
        // a frame that the socket refuses is not sent again, as its time is over
        taken += u64::from(socket.send(&bytes));
        sent += 1;
    }
}

/// Ages from sample `from` on, in a histogram of three digits; frames beyond [`SAMPLES_MAX`] are not in it.
///
/// # Panics
/// Never: the histogram's bounds are constants.
#[must_use]
pub fn ages(memory: &Memory, from: usize) -> Histogram<u64> {
    let mut ages = Histogram::new_with_max(AGE_NS_MAX, 3).expect("bounds of a histogram");
    let count = usize::try_from(memory.word(0)).unwrap_or(usize::MAX).min(SAMPLES_MAX);
    for sample in from..count {
        ages.saturating_record(memory.word(1 + sample));
    }
    ages
}
