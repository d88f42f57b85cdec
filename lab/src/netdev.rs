//! Opens network devices by name, as ports of a process that is not a switch.
//!
//! `"DEVICE"`, `"af_packet:DEVICE"` or `"tap:NAME"` becomes a boxed [`Port`].
//!
//! Source: docs/spec/pipeline.md §11.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::time::{LinkRate, Span};
use weft_parsers::MacAddr;

/// Frames that the receive ring holds. A host or device is not a switch with a buffer to protect, so only memory limits
/// it.
const RX_RING_FRAMES: usize = 8_192;

/// Reasons why a network device cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kind before the colon is neither `tap` nor `af_packet`.
    #[error("expected tap or af_packet, found {0:?}")]
    Kind(String),
    /// The kernel refuses to open the device.
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

/// Whether `[KIND:]DEVICE` is a tap; anything else is a packet socket, or refused by [`open`].
#[must_use]
pub fn is_tap(text: &str) -> bool {
    matches!(kind(text), Ok((true, _)))
}

/// Opens `[KIND:]DEVICE` with frames of at most `frame_len_max` bytes, without FCS.
///
/// # Errors
/// An unknown kind, or a device that cannot be opened.
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

/// MAC address of the interface behind `[KIND:]DEVICE`, if it has one.
#[must_use]
pub fn mac(text: &str) -> Option<MacAddr> {
    let (_, name) = kind(text).ok()?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    text.trim().parse().ok()
}

/// Waits until a frame arrives or `span` is over; spins once if `span` is short.
pub fn wait(port: &dyn Port, span: Span) {
    wait_for(port.wait_fd(), span);
}

/// Like [`wait`], for any of several descriptors.
pub fn wait_for<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, span: Span) {
    // A sleep costs more than this with its two context switches, and would end late.
    if span < Span::from_us(20) {
        std::hint::spin_loop();
        return;
    }
    // `tv_nsec` of 1 s or more is EINVAL; a shorter wait only makes the caller look again sooner.
    let ns = i64::try_from(span.as_ns()).unwrap_or(i64::MAX).min(1_000_000_000 - 1);
    let timeout = Timespec { tv_sec: 0, tv_nsec: ns };
    let mut fds: Vec<PollFd<'_>> =
        fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let _ = poll(&mut fds, Some(&timeout)); // an interrupted wait only comes back sooner
}
