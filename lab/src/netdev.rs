//! Network devices by name: the ports of a process that is no switch.
//!
//! `"DEVICE"`, `"af_packet:DEVICE"` or `"tap:NAME"` → a boxed [`Port`].
//!
//! Units: bytes, nanoseconds.
//! Source: docs/spec/pipeline.md §11.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::time::{LinkRate, Span};
use weft_parsers::MacAddr;

/// Frames that may wait for a host: it has nothing to fear from them but memory.
const RX_RING_FRAMES: usize = 8_192;

/// Why a network device is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such kind of port.
    #[error("expected tap or af_packet, found {0:?}")]
    Kind(String),
    /// The kernel refuses.
    #[error("open the device")]
    Open(#[source] PortOpenError),
}

/// The name of the device in `[KIND:]DEVICE`, and whether it is a tap.
fn kind(text: &str) -> Result<(bool, &str), OpenError> {
    match text.split_once(':') {
        Some(("tap", name)) => Ok((true, name)),
        Some(("af_packet", name)) => Ok((false, name)),
        Some((kind, _)) => Err(OpenError::Kind(kind.to_owned())),
        None => Ok((false, text)),
    }
}

/// Whether `[KIND:]DEVICE` is a tap; anything else is a packet socket, or refused where it is opened.
#[must_use]
pub fn is_tap(text: &str) -> bool {
    matches!(kind(text), Ok((true, _)))
}

/// Opens `[KIND:]DEVICE`.
///
/// # Errors
/// A kind that there is not, a device that cannot be opened.
pub fn open(text: &str, rate: LinkRate, frame_len_max: usize) -> Result<Box<dyn Port>, OpenError> {
    let (is_tap, name) = kind(text)?;
    let device = name.to_owned();
    let opened: Result<Box<dyn Port>, _> = if is_tap {
        Tap::open(&TapConfig { device, rate, frame_len_max }).map(|port| Box::new(port) as _)
    } else {
        let (tx_ring_frames, rx_ring_frames) = (64, RX_RING_FRAMES);
        let config = AfPacketConfig {
            device,
            rate,
            frame_len_max,
            tx_ring_frames,
            rx_ring_frames,
            tunnel_tap: false,
        };
        AfPacket::open(&config).map(|port| Box::new(port) as _)
    };
    opened.map_err(OpenError::Open)
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
