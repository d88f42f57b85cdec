//! What is asked and answered of Lightweight Notification.
//!
//! [`LnAccess`] in; [`LnReport`], [`LnrFunction`]s or a [`LncReport`] out, as JSON.
//!
//! Units: bytes, lines, milliseconds.
//! Source: docs/endpoint.md "Lightweight Notification".

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::number::{Hex, Num};
use crate::endpoint::time_limit::some_timeout_ms;

/// Lines that a status lists.
pub const LISTED_MAX: usize = 1_024;

/// A line of the host's memory, and who asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LnAccess {
    /// An address in the line; of a write the first one.
    pub addr: Num,
    /// What is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Which function of the device.
    #[serde(default)]
    pub function: u8,
    /// How long it may take.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "some_timeout_ms"
    )]
    pub timeout_ms: Option<u64>,
}

/// How a request for a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LnOutcome {
    /// Read: it is registered, and a copy is kept.
    Cached,
    /// Read, but no copy is kept: the host did not register it, or it changed in the meantime.
    Once,
    /// Not read or written.
    Failed,
    /// The host registers lines of this page.
    Takes,
    /// It does not.
    Declines,
    /// Written.
    Written,
    /// Given back.
    Dropped,
    /// The copy of the line.
    Copy,
    /// There is none.
    NoCopy,
}

impl LnOutcome {
    /// Whether it is what was wanted.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        !matches!(self, Self::Failed | Self::NoCopy)
    }
}

/// How a request for a line ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnReport {
    /// First address of the line.
    pub line: u64,
    /// How.
    pub outcome: LnOutcome,
    /// Why it failed: UR, CA, timeout, poisoned, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// A copy of the line is kept now.
    pub copy: bool,
    /// What was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
}

/// A line that counts against a function's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnrLine {
    /// First address.
    pub addr: u64,
    /// A copy is kept.
    pub copy: bool,
}

/// The LN requester of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LnrFunction {
    /// Number of the function.
    pub function: u8,
    /// Its id.
    pub id: String,
    /// Line sizes that it has.
    pub sizes: Vec<usize>,
    /// Lines that it could register.
    pub lines_max: u64,
    /// Software has switched it on.
    pub on: bool,
    /// Line size that software has chosen.
    pub line: usize,
    /// Lines that software allows.
    pub limit: u64,
    /// Lines that may be registered at the host.
    pub registered: usize,
    /// Those of them with a copy.
    pub copies: usize,
    /// Reads and probes under way.
    pub under_way: usize,
    /// The first 1,024 lines.
    pub lines: Vec<LnrLine>,
    /// Messages with the reserved reason.
    pub malformed: u64,
    /// Directed messages for another function.
    pub misrouted: u64,
    /// Completions that nobody waited for, or of a wrong length.
    pub unexpected: u64,
}

/// A line that is watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncLine {
    /// First address.
    pub addr: u64,
    /// Functions that are told by directed messages.
    pub watchers: Vec<String>,
    /// Instead: so many watch it that all below are told by a broadcast.
    pub broadcast: bool,
}

/// An LN requester that the host has enumerated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncRequester {
    /// Its id.
    pub id: String,
    /// It was switched on; else it does not have the lines of the system.
    pub on: bool,
    /// Lines that it may register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Lines that it is known one by one to watch.
    pub watches: usize,
}

/// The LN completer of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LncReport {
    /// Line size of the system.
    pub line: usize,
    /// Lines that can be watched at once.
    pub lines_max: usize,
    /// Watchers of one line that are told by directed messages.
    pub watchers_max: usize,
    /// Lines that are watched.
    pub watched: usize,
    /// The first 1,024 of them.
    pub lines: Vec<LncLine>,
    /// Requesters that were enumerated.
    pub requesters: Vec<LncRequester>,
    /// Messages that wait.
    pub pending: usize,
    /// What it has done.
    pub counts: Value,
}
