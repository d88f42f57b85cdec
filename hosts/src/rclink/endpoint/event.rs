//! Messages, the events that endpoints report of them, and counters. Sizes are bytes of payload.
//!
//! Source: docs/spec/model.md §4.

use serde::Serialize;
use weft_dataplane::time::Instant;

/// A message for another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Number that the sender chooses and the receiver sees.
    pub id: u32,
    /// Number of the endpoint that it is for.
    pub to: u16,
    /// Bytes of payload, at least 1.
    pub bytes: u64,
}

/// An event of a message or a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All frames of a message are acknowledged; without acknowledgements, sent.
    Sent {
        /// Id of the message.
        id: u32,
        /// Frames of it that were sent again.
        resent: u64,
        /// Time of the event.
        at: Instant,
    },
    /// All frames of a message have arrived, undamaged and in order.
    Delivered {
        /// Number of the sender.
        from: u16,
        /// Id of the message.
        id: u32,
        /// Payload of its frames in bytes, with padding where a frame is shorter than the shortest one allowed.
        bytes: u64,
        /// When its first frame was sent for the first time.
        first: Instant,
        /// When the last frame arrived.
        at: Instant,
    },
    /// A frame of a message has arrived, undamaged and in order. Reported only if
    /// [`EndpointSpec::frame_events`](super::EndpointSpec::frame_events) is set.
    Received {
        /// Number of the sender.
        from: u16,
        /// Id of the message.
        id: u32,
        /// Index of the frame in its message, from 0.
        index: u32,
        /// Bytes of its payload.
        bytes: usize,
        /// When it was sent for the first time, if its mark says.
        sent: Option<Instant>,
        /// When it arrived undamaged.
        at: Instant,
    },
    /// A CNP for frames to `to` came and was not suppressed.
    Congested {
        /// Endpoint on whose path frames meet congestion.
        to: u16,
        /// When the CNP came.
        at: Instant,
    },
    /// Frames to `to` were sent again too often without an acknowledgement: the queue pair has failed.
    Failed {
        /// Number of the endpoint that does not answer.
        to: u16,
        /// Frames that were given up.
        frames: usize,
        /// Time of the event.
        at: Instant,
    },
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EndpointStats {
    /// Data frames sent, repetitions included.
    pub tx_frames: u64,
    /// Bytes of payload in these frames.
    pub tx_payload: u64,
    /// Data frames among them that were sent before.
    pub resent: u64,
    /// Answers sent: ACKs and NAKs of both kinds.
    pub acks_tx: u64,
    /// Sequence NAKs among these answers.
    pub naks_tx: u64,
    /// CNPs sent, one for several marked frames in a row.
    pub cnps_tx: u64,
    /// Data frames taken, each once.
    pub rx_frames: u64,
    /// Bytes of payload in these frames.
    pub rx_payload: u64,
    /// Data frames received that had been taken before.
    pub duplicates: u64,
    /// Data frames dropped because one before them was missing.
    pub out_of_order: u64,
    /// Data frames that did not come, where lost frames are not sent again.
    pub lost: u64,
    /// Data frames dropped because the receive buffer was full.
    pub overruns: u64,
    /// Data frames that came with ECN codepoint CE.
    pub marked: u64,
    /// ACKs received, NAKs not counted.
    pub acks_rx: u64,
    /// Sequence NAKs received, late ones included.
    pub naks_rx: u64,
    /// RNR NAKs sent, also counted as ACKs.
    pub rnrs_tx: u64,
    /// RNR NAKs received, late ones included.
    pub rnrs_rx: u64,
    /// CNPs received, the suppressed ones included.
    pub cnps_rx: u64,
    /// CNPs received that were suppressed.
    pub cnps_merged: u64,
    /// Retransmission timers that ended.
    pub timeouts: u64,
    /// Frames that were not RC Link's, not for this endpoint, damaged, or not from the owner of the queue pair they
    /// name.
    pub foreign: u64,
    /// PFC frames sent by the slow receiver.
    pub pfc_tx: u64,
    /// PFC frames received and obeyed.
    pub pfc_rx: u64,
}
