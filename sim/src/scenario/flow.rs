//! Flows: messages from one host to another, and what each waits for.
//!
//! Shape: [`Flow`] by number; a collective is flows that wait for others.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §3.

use weft_dataplane::time::Instant;

/// Number of a flow: its place in the list of all.
pub type FlowId = u32;

/// A message from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender, by number of host ([`crate::topology::Topology::hosts`]).
    pub from: u16,
    /// The receiver.
    pub to: u16,
    /// Bytes of payload, at least 1.
    pub bytes: u64,
    /// It begins no earlier.
    pub start: Instant,
    /// It begins when all of these are done at its sender: delivered there, where that is their receiver; acknowledged
    /// (sent, where nothing is acknowledged), where that is their sender. Nothing else is known there without a message.
    pub after: Vec<FlowId>,
    /// Virtual channel; `None` for the endpoint's own of requests.
    pub vc: Option<u8>,
    /// Which workload it is of, by place.
    pub workload: u16,
}
