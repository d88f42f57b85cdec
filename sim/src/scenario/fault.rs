//! Faults of links and hosts, and when they happen.
//!
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::types::PriSet;

/// A fault of a link or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Frames on a link are damaged at random, both ways.
    BitError {
        /// Number of the link.
        link: usize,
        /// Bits in which there is one error on average; a frame of n bits on the link is damaged with probability n /
        /// this.
        one_in_bits: u64,
    },
    /// Like [`Self::BitError`], with the same probability for each frame.
    FrameError {
        /// Number of the link.
        link: usize,
        /// Frames of which one is damaged on average.
        one_in: u64,
    },
    /// A link goes down, and frames on it are lost.
    LinkDown {
        /// Number of the link.
        link: usize,
        /// When it goes down.
        from: Instant,
        /// When it comes up again; `None`: never in this run.
        until: Option<Instant>,
    },
    /// A host drains its receive buffer slowly.
    SlowReceiver {
        /// Number of the host.
        host: u16,
        /// Rate of draining: bits of frames a second.
        drain: LinkRate,
    },
    /// A host sends PFC frames that pause its link partner without a break.
    PauseStorm {
        /// Number of the host.
        host: u16,
        /// PFC classes that it pauses.
        classes: PriSet,
        /// When the storm begins.
        from: Instant,
        /// When the storm ends.
        until: Instant,
    },
}
