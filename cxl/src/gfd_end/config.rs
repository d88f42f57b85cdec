//! What a G-FAM device on a link is like, its bounds and its counts.
//!
//! [`GfdEndConfig`] in, [`GfdCounts`] out.
//!
//! Units: requests, TLPs, bytes.
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)".

use weft_dataplane::time::Span;
use weft_parsers::fabric::Bdf;

/// Requests that may wait to be answered before no more are taken in.
pub(super) const JOBS_MAX: usize = 4_096;
/// Requests of each kind that may wait in all.
pub(super) const QUEUED_MAX: usize = 4 * JOBS_MAX;
/// Requests of which the limits of their requesters hold something up, of each kind.
pub(super) const HELD_MAX: usize = 2 * JOBS_MAX;
/// TLPs that may wait for room at the port before no more answers are written.
pub(super) const PLACED_MAX: usize = 128;

/// Order in which the completions of one UIO read leave; requesters take any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Lowest address first.
    #[default]
    Forward,
    /// Highest address first.
    Backward,
}

/// What makes a device coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoherentConfig {
    /// Lines that hosts can hold at once.
    pub lines: usize,
    /// How long a host may take to answer a snoop.
    pub answer_max: Span,
    /// What the numbers of leases are made of, so that no other device can tell one.
    pub secret: u64,
}

/// What a G-FAM device on a link is built from, beside its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GfdEndConfig {
    /// Who its completions say has answered.
    pub completer: Bdf,
    /// Number of its port.
    pub port: u8,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Order of the completions of one UIO read.
    pub order: Order,
    /// It keeps hosts' copies of its lines coherent (HDM-DB); without, it knows of none (HDM-H).
    pub coherent: Option<CoherentConfig>,
}

/// Counts of requests at a G-FAM device; those of its link are [`crate::tlp_end::EndCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct GfdCounts {
    /// Reads that were let through.
    pub reads: u64,
    /// Bytes that these asked for, whole double words.
    pub bytes_read: u64,
    /// Writes that were carried out.
    pub writes: u64,
    /// Bytes that these brought, whole double words.
    pub bytes_written: u64,
    /// Atomics that were carried out.
    pub atomics: u64,
    /// Requests that were refused and answered so.
    pub refused: u64,
    /// Posted writes that were refused: nobody hears of them.
    pub refused_posted: u64,
    /// Requests and messages that the device does not serve.
    pub unrecognised: u64,
    /// Unexpected packets: completions, and what is for another or from nobody.
    pub unexpected: u64,
    /// Requests that came while too many waited, or too many of their requester, and got no answer.
    pub overrun: u64,
    /// Notifications sent to hosts.
    pub gam: u64,
    /// Notifications for the fabric manager that found no place among its messages.
    pub untold: u64,
}
