//! Faults: what goes wrong, and when.
//!
//! [`Fault`].
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::PriSet;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Frames on a link, both ways, are damaged at random.
    BitError {
        /// Number of the link.
        link: usize,
        /// A bit error in so many bits, on average; a frame of n bits on the link is damaged with n / `one_in`.
        one_in_bits: u64,
    },
    /// As [`Self::BitError`], by frame.
    FrameError {
        /// Number of the link.
        link: usize,
        /// One frame in so many, on average.
        one_in: u64,
    },
    /// A link is down; what is on it is lost.
    LinkDown {
        /// Number of the link.
        link: usize,
        /// From when.
        from: Instant,
        /// Until when; `None` for the rest of the run.
        until: Option<Instant>,
    },
    /// A host takes frames out of its receive buffer so slowly.
    SlowReceiver {
        /// Number of the host.
        host: u16,
        /// How fast: bits of frames a second.
        drain: LinkRate,
    },
    /// A host sends PFC PAUSE without end.
    PauseStorm {
        /// Number of the host.
        host: u16,
        /// Which PFC classes it stops.
        classes: PriSet,
        /// From when.
        from: Instant,
        /// Until when.
        until: Instant,
    },
}
