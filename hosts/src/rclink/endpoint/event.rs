//! Messages, what comes of them, and what an endpoint counts.
//!
//! Plain data.
//!
//! Units: picoseconds, bytes of payload, frames.
//! Source: docs/spec/model.md §4.

use serde::Serialize;
use weft_dataplane::time::Instant;

/// A message to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The caller's number for it, which the receiver sees.
    pub id: u32,
    /// Who it is for.
    pub to: u16,
    /// Bytes; at least 1.
    pub bytes: u64,
}

/// What came of messages and queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All of a message is acknowledged; where nothing is, sent.
    Sent {
        /// The message.
        id: u32,
        /// Frames of it that were sent again.
        resent: u64,
        /// When.
        at: Instant,
    },
    /// All frames of a message have come, whole and in order.
    Delivered {
        /// Who sent it.
        from: u16,
        /// The message.
        id: u32,
        /// Bytes of payload in its frames: where one is shorter than the shortest frame allows, with its padding.
        bytes: u64,
        /// When its first frame was first sent.
        first: Instant,
        /// When the last one came.
        at: Instant,
    },
    /// A frame of a message has come, whole and in order: only where
    /// [`EndpointSpec::frame_events`](super::EndpointSpec::frame_events) asks for it.
    Received {
        /// Who sent it.
        from: u16,
        /// The message.
        id: u32,
        /// Which of its frames.
        index: u32,
        /// Bytes of payload.
        bytes: usize,
        /// When it was first sent.
        sent: Option<Instant>,
        /// When it came.
        at: Instant,
    },
    /// A CNP for frames to `to` was not held back.
    Congested {
        /// Where congestion is.
        to: u16,
        /// When the CNP came.
        at: Instant,
    },
    /// Frames to `to` were not acknowledged however often they were sent: no more are.
    Failed {
        /// The other end.
        to: u16,
        /// Frames that were given up.
        frames: usize,
        /// When.
        at: Instant,
    },
}

/// What an endpoint counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EndpointStats {
    /// Data frames sent, those sent again included.
    pub tx_frames: u64,
    /// Bytes of payload in them.
    pub tx_payload: u64,
    /// Data frames sent again.
    pub resent: u64,
    /// ACKs and NAKs sent.
    pub acks_tx: u64,
    /// Of these, NAKs.
    pub naks_tx: u64,
    /// CNPs sent.
    pub cnps_tx: u64,
    /// Data frames taken.
    pub rx_frames: u64,
    /// Bytes of payload in them.
    pub rx_payload: u64,
    /// Data frames that were taken before.
    pub duplicates: u64,
    /// Data frames dropped, as one before them was missing.
    pub out_of_order: u64,
    /// Frames that are missing: of what is not sent again.
    pub lost: u64,
    /// Frames dropped, as the receive buffer was full.
    pub overruns: u64,
    /// Frames that came with CE.
    pub marked: u64,
    /// ACKs taken.
    pub acks_rx: u64,
    /// NAKs taken.
    pub naks_rx: u64,
    /// RNR NAKs sent.
    pub rnrs_tx: u64,
    /// RNR NAKs taken.
    pub rnrs_rx: u64,
    /// CNPs taken.
    pub cnps_rx: u64,
    /// Of these, held back.
    pub cnps_merged: u64,
    /// Times that frames were sent again as no ACK came.
    pub timeouts: u64,
    /// Frames that are not RC Link's, not for this endpoint, damaged, or not from whose queue pair they name.
    pub foreign: u64,
    /// PFC frames sent.
    pub pfc_tx: u64,
    /// PFC frames taken.
    pub pfc_rx: u64,
}
