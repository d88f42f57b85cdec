//! What goes into slots and out of them.
//!
//! Plain data.
//!
//! Units: bytes of payload, picoseconds; PSNs modulo 4096.
//! Source: docs/spec/model.md §4 "Slots", "Go-Back-N".

use weft_dataplane::time::Instant;

/// What a queue pair waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mask {
    /// The next window of its rate.
    Rate = 1,
    /// Credits.
    Credit = 2,
    /// The receiver, which was not ready.
    NotReady = 4,
}

/// Why a queue pair goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A frame is missing.
    Missing,
    /// The receiver was not ready.
    NotReady,
}

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Queue pair that it is for.
    pub qp: u16,
    /// Virtual channel: one for each flow.
    pub vc: u8,
    /// Bytes of its payload.
    pub len: u16,
    /// The caller's own.
    pub tag: u64,
}

/// A frame that goes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The frame.
    pub request: Request,
    /// Its number in its queue pair.
    pub psn: u16,
    /// Whether it was sent before.
    pub resent: bool,
    /// When it was sent first; now if it was not.
    pub first: Instant,
}

/// What a NAK or a timeout did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WentBack {
    /// Frames that are to be sent again.
    Frames(usize),
    /// The queue pair has gone back too often: its frames are given up, so many.
    Fatal(usize),
}
