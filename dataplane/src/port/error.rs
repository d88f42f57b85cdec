//! Why a port cannot be opened, or cannot go on.
//!
//! A setting out of range, or what was tried and the kernel's answer → an error with the port's name.
//!
//! Units: as the setting's range says.
//! Source: docs/spec/pipeline.md §11.

use std::io;

use super::capture::CaptureError;
use crate::batch::BURST;
use crate::pool::FRAME_LEN_MAX;

/// A port's device is gone or refused a wake-up.
#[derive(Debug, thiserror::Error)]
#[error("{device}: {call}")]
pub struct PortError {
    /// The device.
    pub device: String,
    /// What was tried.
    pub call: &'static str,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortOpenError {
    /// A setting that the kind of port cannot take.
    #[error("{device}: {what} is {had}, must be {want}")]
    Config {
        /// The port.
        device: String,
        /// Which setting.
        what: &'static str,
        /// Its value.
        had: u64,
        /// What is possible.
        want: &'static str,
    },
    /// A call was refused.
    #[error("{device}: {call}{hint}")]
    Call {
        /// The device.
        device: String,
        /// What was tried.
        call: &'static str,
        /// What is often the reason, or empty.
        hint: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
    /// A capture file cannot be used.
    #[error("{device}: capture")]
    Capture {
        /// The port.
        device: String,
        /// What is wrong with the file.
        #[source]
        source: CaptureError,
    },
}

/// A call that was refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// What was tried.
    pub call: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Puts what was tried in front of the answer.
pub(super) fn at(call: &'static str) -> impl Fn(io::Error) -> Refused {
    move |source| Refused { call, source }
}

impl PortOpenError {
    /// A call for `device` that was refused; `hint` is what is often the reason, or empty.
    pub(super) fn refused(
        device: &str,
        Refused { call, source }: Refused,
        hint: &'static str,
    ) -> Self {
        Self::Call { device: device.to_owned(), call, hint, source }
    }

    /// Refuses a setting's value that does not fit; `want` says what would.
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

    /// Refuses a longest frame that no chunk holds, or that is shorter than all frames.
    pub(super) fn check_frame_len_max(device: &str, len: usize) -> Result<(), Self> {
        let fits = (64..=FRAME_LEN_MAX).contains(&len);
        Self::check(device, "frame_len_max", len, "64..=9728 bytes", fits)
    }

    /// Refuses numbers of frames that the kernel may hold for a port, sent and received, out of range.
    pub(super) fn check_ring_frames(device: &str, tx: usize, rx: usize) -> Result<(), Self> {
        let fits = (1..=BURST).contains(&tx);
        Self::check(device, "tx_ring_frames", tx, "1..=64 frames", fits)?;
        let fits = (64..=65_536).contains(&rx);
        Self::check(device, "rx_ring_frames", rx, "64..=65536 frames", fits)
    }
}
