//! Commands and answers of Lightweight Notification, as JSON.
//!
//! A [`LnAccess`] is answered by a [`LnReport`], by [`LnrFunction`]s, or by a [`LncReport`].
//!
//! Source: docs/endpoint.md "Lightweight Notification".

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::number::{Hex, Num};
use crate::endpoint::time_limit::some_timeout_ms;

/// Lines that a status lists at most.
pub const LISTED_MAX: usize = 1_024;

/// A line of the host's memory, and the function that requests it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LnAccess {
    /// An address in the line; for a write the first one to write.
    pub addr: Num,
    /// Bytes to write, within one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Number of the device's function.
    #[serde(default)]
    pub function: u8,
    /// Time limit in milliseconds; `None` for the default.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "some_timeout_ms"
    )]
    pub timeout_ms: Option<u64>,
}

/// Result of a request for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LnOutcome {
    /// Read and registered: a copy is kept.
    Cached,
    /// Read without a copy: the host did not register the line, or it changed meanwhile.
    Once,
    /// The read or write failed.
    Failed,
    /// Probe: the host registers lines of this page.
    Takes,
    /// Probe: the host does not register lines of this page.
    Declines,
    Written,
    Dropped,
    /// The local copy of the line.
    Copy,
    /// There is no local copy of the line.
    NoCopy,
}

impl LnOutcome {
    /// Whether the request succeeded.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        !matches!(self, Self::Failed | Self::NoCopy)
    }
}

/// Report on a request for a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnReport {
    /// First address of the line.
    pub line: u64,
    pub outcome: LnOutcome,
    /// Cause of a failure: UR, CA, timeout, poisoned, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether a copy of the line is kept now.
    pub copy: bool,
    /// Data of a read, or the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
}

/// A line that counts against a function's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnrLine {
    /// First address of the line.
    pub addr: u64,
    /// Whether a copy is kept.
    pub copy: bool,
}

/// State of one function's LN requester.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnrFunction {
    pub function: u8,
    /// Function id, such as `01:00.0`.
    pub id: String,
    /// Line sizes in bytes that it supports.
    pub sizes: Vec<usize>,
    /// Lines that it could register at most.
    pub lines_max: u64,
    /// Whether software has enabled it.
    pub on: bool,
    /// Line size in bytes that software selected.
    pub line: usize,
    /// Limit on its lines that software set.
    pub limit: u64,
    /// Lines that may be registered at the host.
    pub registered: usize,
    /// Registered lines with a local copy.
    pub copies: usize,
    /// Reads and probes in flight.
    pub under_way: usize,
    /// Up to 1,024 of its lines.
    pub lines: Vec<LnrLine>,
    /// Messages with the reserved reason.
    pub malformed: u64,
    /// Directed messages for another function.
    pub misrouted: u64,
    /// Completions without a request, or with a wrong length.
    pub unexpected: u64,
}

/// A line that the host watches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncLine {
    /// First address of the line.
    pub addr: u64,
    /// Functions that are notified by directed messages.
    pub watchers: Vec<String>,
    /// Too many functions watch it for directed messages: all below are notified by broadcast.
    pub broadcast: bool,
}

/// An LN requester that the host has enumerated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncRequester {
    /// Function id, such as `01:00.0`.
    pub id: String,
    /// Whether it was enabled; otherwise it does not support the system's line size.
    pub on: bool,
    /// Limit on its lines that the host set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Lines that it is known to watch, without those under broadcast.
    pub watches: usize,
}

/// State of a host's LN completer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncReport {
    /// Line size of the system in bytes.
    pub line: usize,
    /// Lines that it can watch at once.
    pub lines_max: usize,
    /// Watchers of one line that get directed messages; a broadcast beyond.
    pub watchers_max: usize,
    /// Lines that it watches now.
    pub watched: usize,
    /// Up to 1,024 of the watched lines.
    pub lines: Vec<LncLine>,
    /// Requesters that were enumerated.
    pub requesters: Vec<LncRequester>,
    /// Messages that wait for the link.
    pub pending: usize,
    /// Counters of its work.
    pub counts: Value,
}
