//! Workloads: who sends how much to whom, and when.
//!
//! Shape: [`Workload`] and a seed → [`Flow`]s.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §3; permutations after Sattolo (1986).

use weft_dataplane::time::{Instant, LinkRate, Span};

use super::flow::Flow;

/// Who sends how much to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// For people and for metrics; unique.
    pub name: String,
    /// What it is.
    pub kind: Pattern,
    /// When its first flows begin.
    pub start: Instant,
    /// Virtual channel; `None` for the endpoint's own of requests.
    pub vc: Option<u8>,
}

/// Kinds of workload. Hosts are named by their numbers; `hosts` empty stands for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Many to one.
    Incast {
        /// Senders; empty for all but the receiver.
        from: Vec<u16>,
        /// The receiver.
        to: u16,
        /// Bytes from each.
        bytes: u64,
    },
    /// Each host sends to one other and receives from one other, as the seed has it.
    Permutation {
        /// Who takes part.
        hosts: Vec<u16>,
        /// Bytes of each.
        bytes: u64,
    },
    /// Each host sends messages to others drawn at random, at random times (Poisson).
    Uniform {
        /// Who takes part.
        hosts: Vec<u16>,
        /// Bytes of each message.
        bytes: u64,
        /// Mean rate of payload that each host offers.
        load: LinkRate,
        /// For so long messages arrive.
        duration: Span,
    },
    /// Each host sends to each other one.
    AllToAll {
        /// Who takes part.
        hosts: Vec<u16>,
        /// Bytes of each pair.
        bytes: u64,
        /// Whether a host sends to one after the other, each when the one before is acknowledged; else to all at once.
        one_by_one: bool,
    },
    /// 2 (N - 1) steps around a ring: in each, a host sends a chunk of bytes / N to its right when it has that of the step
    /// before from its left.
    RingAllReduce {
        /// The ring, in its order.
        hosts: Vec<u16>,
        /// Bytes that are reduced.
        bytes: u64,
    },
    /// One to one, so many messages, each when the one before is acknowledged.
    PointToPoint {
        /// The sender.
        from: u16,
        /// The receiver.
        to: u16,
        /// Bytes of each.
        bytes: u64,
        /// Messages.
        count: u32,
    },
    /// One by one as given. `after` is by place in this list, `start` is counted from the workload's.
    Flows(Vec<Flow>),
}
