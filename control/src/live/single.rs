//! The one port of a process that is no switch: opened by name, waited for, and the clock that goes with it.
//!
//! Shape: `"DEVICE"`, `"af_packet:DEVICE"` or `"tap:NAME"` → a boxed [`Port`].
//! Units: bytes, nanoseconds.
//! Source: docs/spec/pipeline.md §11.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_dataplane::port::Port;
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::MacAddr;

use crate::error::CliError;

/// Frames that may wait for a host: it has nothing to fear from them but memory.
const RX_RING_FRAMES: usize = 8_192;

/// The name of the device in `[KIND:]DEVICE`, and whether it is a tap.
fn kind(text: &str) -> Result<(bool, &str), CliError> {
    match text.split_once(':') {
        Some(("tap", name)) => Ok((true, name)),
        Some(("af_packet", name)) => Ok((false, name)),
        Some((kind, _)) => {
            Err(CliError::Usage(format!("expected tap or af_packet, found {kind:?}")))
        }
        None => Ok((false, text)),
    }
}

/// Opens `[KIND:]DEVICE`.
///
/// # Errors
/// A kind that there is not, a device that cannot be opened.
pub fn open(text: &str, rate: LinkRate, frame_len_max: usize) -> Result<Box<dyn Port>, CliError> {
    let (is_tap, name) = kind(text)?;
    let device = name.to_owned();
    let opened: Result<Box<dyn Port>, _> = if is_tap {
        Tap::open(&TapConfig { device, rate, frame_len_max }).map(|port| Box::new(port) as _)
    } else {
        let (tx_ring_frames, rx_ring_frames) = (64, RX_RING_FRAMES);
        let config = AfPacketConfig { device, rate, frame_len_max, tx_ring_frames, rx_ring_frames };
        AfPacket::open(&config).map(|port| Box::new(port) as _)
    };
    opened.map_err(|source| CliError::System {
        what: "open the device".to_owned(),
        source: Box::new(source),
    })
}

/// The address of the interface behind `[KIND:]DEVICE`, if it has one.
#[must_use]
pub fn mac(text: &str) -> Option<MacAddr> {
    let (_, name) = kind(text).ok()?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    text.trim().parse().ok()
}

/// Waits for a frame or until the time is over; short times are spun through.
pub fn wait(port: &dyn Port, span: Span) {
    wait_for(port.wait_fd(), span);
}

/// As [`wait`], for any of several things.
pub fn wait_for<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, span: Span) {
    if span < Span::from_us(20) {
        std::hint::spin_loop();
        return;
    }
    let ns = i64::try_from(span.as_ns()).unwrap_or(i64::MAX).min(1_000_000_000 - 1);
    let timeout = Timespec { tv_sec: 0, tv_nsec: ns };
    let mut fds: Vec<PollFd<'_>> =
        fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let _ = poll(&mut fds, Some(&timeout)); // an interrupted wait only comes back sooner
}

/// The time on the clock that all processes of a machine share.
#[must_use]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (s, ns) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Instant::from_ns(s.wrapping_mul(1_000_000_000).wrapping_add(ns))
}
