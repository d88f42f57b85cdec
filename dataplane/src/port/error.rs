//! Errors of ports: one cannot be opened, or cannot go on.
//!
//! Source: docs/spec/pipeline.md §11.

use std::io;

use super::capture::CaptureError;
use crate::batch::BURST;
use crate::pool::FRAME_LEN_MAX;

/// A port's device is gone or refused a wake-up.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {call}")]
pub struct PortError {
    /// Name of the device.
    pub device: String,
    /// The attempted call, for the message.
    pub call: &'static str,
    /// The kernel's answer to it.
    #[source]
    pub source: io::Error,
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortOpenError {
    /// A setting is outside the range of this kind of port.
    #[error("{device}: {what} is {had}, must be {want}")]
    Config {
        /// Device of the port, as configured.
        device: String,
        /// Name of the setting.
        what: &'static str,
        /// Its configured value.
        had: u64,
        /// The range that is possible.
        want: &'static str,
    },
    /// The kernel or a driver refused a call.
    #[error("{device}: {call}{hint}")]
    Call {
        /// Device of the port, as configured.
        device: String,
        /// The attempted call, for the message.
        call: &'static str,
        /// The usual cause, with a leading space; empty if there is none.
        hint: &'static str,
        /// The kernel's answer to it.
        #[source]
        source: io::Error,
    },
    /// The capture file of a `pcap` port cannot be used.
    #[error("{device}: capture")]
    Capture {
        /// Device of the port, as configured.
        device: String,
        /// The fault in the file.
        #[source]
        source: CaptureError,
    },
}

#[derive(Debug)]
pub(super) struct Refused {
    /// The attempted call, for the message.
    pub call: &'static str,
    pub source: io::Error,
}

/// For `map_err`: names the call that was refused.
pub(super) fn at(call: &'static str) -> impl Fn(io::Error) -> Refused {
    move |source| Refused { call, source }
}

impl PortOpenError {
    /// A call for `device` that was refused; `hint` is the usual cause, or empty.
    pub(super) fn refused(
        device: &str,
        Refused { call, source }: Refused,
        hint: &'static str,
    ) -> Self {
        Self::Call { device: device.to_owned(), call, hint, source }
    }

    /// Refuses a setting unless it `fits`; `want` is the range that is possible.
    pub(super) fn check(
        device: &str,
        what: &'static str,
        had: usize,
        want: &'static str,
        fits: bool,
    ) -> Result<(), Self> {
        let refused = || Self::Config { device: device.to_owned(), what, had: had as u64, want };
        if fits { Ok(()) } else { Err(refused()) }
    }

    /// Refuses a longest frame that no chunk holds, or that is shorter than Ethernet's least frame.
    pub(super) fn check_frame_len_max(device: &str, len: usize) -> Result<(), Self> {
        let fits = (64..=FRAME_LEN_MAX).contains(&len);
        Self::check(device, "frame_len_max", len, "64..=9728 bytes", fits)
    }

    /// Refuses ring sizes out of range: frames that the kernel may hold for a port, to send and received.
    pub(super) fn check_ring_frames(device: &str, tx: usize, rx: usize) -> Result<(), Self> {
        let fits = (1..=BURST).contains(&tx);
        Self::check(device, "tx_ring_frames", tx, "1..=64 frames", fits)?;
        let fits = (64..=65_536).contains(&rx);
        Self::check(device, "rx_ring_frames", rx, "64..=65536 frames", fits)
    }
}
