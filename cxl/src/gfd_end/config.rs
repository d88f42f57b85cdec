//! Configuration, bounds and counts of a G-FAM device on a link.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)".

use weft_dataplane::time::Span;
use weft_parsers::fabric::Bdf;

/// Due answers from which on no more requests are taken in.
pub(super) const JOBS_MAX: usize = 4_096;
/// Most requests of each kind that wait, due or not.
pub(super) const QUEUED_MAX: usize = 4 * JOBS_MAX;
/// Most requests of each kind that are held up by bandwidth limits of their requesters.
pub(super) const HELD_MAX: usize = 2 * JOBS_MAX;
/// TLPs waiting for room at the port from which on no more answers are written.
pub(super) const PLACED_MAX: usize = 128;

/// Order in which the completions of one UIO read leave; UIO allows any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// From the lowest address up.
    #[default]
    Forward,
    /// From the highest address down.
    Backward,
}

/// Configuration of a coherent device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoherentConfig {
    /// Capacity of the snoop filter: lines that hosts can hold at once.
    pub lines: usize,
    /// Time limit for a host's answer to a snoop.
    pub answer_max: Span,
    /// Secret from which lease numbers are derived, so that no other device can guess one.
    pub secret: u64,
}

/// Configuration of a G-FAM device on a link, apart from its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GfdEndConfig {
    /// Completer ID of its completions.
    pub completer: Bdf,
    /// Number of its port, for partner information.
    pub port: u8,
    pub uuid: [u8; 16],
    pub order: Order,
    /// Coherence of hosts' copies (HDM-DB); `None`: the device tracks no copies (HDM-H).
    pub coherent: Option<CoherentConfig>,
}

/// Counts of requests at a G-FAM device; those of its link are [`crate::tlp_end::EndCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct GfdCounts {
    /// Reads that passed the checks.
    pub reads: u64,
    /// Bytes requested by them, in whole doublewords.
    pub bytes_read: u64,
    /// Writes carried out.
    pub writes: u64,
    /// Bytes of their payloads, in whole doublewords.
    pub bytes_written: u64,
    /// Atomics carried out.
    pub atomics: u64,
    /// Requests refused with an answer.
    pub refused: u64,
    /// Posted writes refused: they have no completion, so the requester is not told.
    pub refused_posted: u64,
    /// Requests and messages that the device does not serve.
    pub unrecognised: u64,
    /// Unexpected packets: completions, and packets for another PID or from PID `FFF`.
    pub unexpected: u64,
    /// Requests dropped without an answer because too many waited, in all or of their requester.
    pub overrun: u64,
    /// Notifications sent to hosts.
    pub gam: u64,
    /// Notifications for the fabric manager dropped because its message queue was full.
    pub untold: u64,
}
