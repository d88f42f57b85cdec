//! Frames as they go into slots and come out of them, and the reasons for which they wait or go back.
//!
//! Source: docs/spec/model.md §4 "Slots", "Go-Back-N".

use weft_dataplane::time::Instant;

/// A reason for which a queue pair waits; several may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mask {
    /// Its rate is used up until the next window.
    Rate = 1,
    /// Its virtual channel has no credits.
    Credit = 2,
    /// The receiver was not ready, and named a time to wait.
    NotReady = 4,
}

/// Why frames of a queue pair are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A frame was lost: a NAK or a timeout.
    Missing,
    /// The receiver had no room: an RNR NAK.
    NotReady,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Queue pair that the frame is for.
    pub qp: u16,
    /// Virtual channel, one for each flow.
    pub vc: u8,
    /// Bytes of its payload.
    pub len: u16,
    /// Free for the caller, who gets it back.
    pub tag: u64,
}

/// A frame that is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The frame as it was written into its slot.
    pub request: Request,
    /// Its sequence number in the queue pair.
    pub psn: u16,
    /// Whether it was sent before.
    pub resent: bool,
    /// When it was sent for the first time, which may be now.
    pub first: Instant,
}

/// Result of a NAK or a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WentBack {
    /// Number of frames that are to be sent again.
    Frames(usize),
    /// The queue pair has failed; number of its frames that are given up.
    Fatal(usize),
}
