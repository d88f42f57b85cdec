//! Commands of fabric memory transfers, and their answers.
//!
//! [`MemCommand`] and [`MemAnswer`] are JSON on the control socket, and plain values within a process.
//!
//! Source: docs/fabric-memory.md.

use serde::{Deserialize, Serialize};

use super::number::Num;
use super::time_limit::{TIMEOUT_MS, timeout, timeout_ms};

const fn yes() -> bool {
    true
}

/// One piece of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemOp {
    /// Local address, within a registered range.
    pub local: Num,
    /// Address as the peer registered it.
    pub remote: Num,
    pub len: Num,
}

/// A transfer: a list of pieces with one peer in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemTransfer {
    /// Number from connect or from the list of peers.
    pub peer: u32,
    /// Pieces to copy; their destinations must not overlap.
    pub ops: Vec<MemOp>,
    /// Whether the answer waits for the end of the transfer.
    #[serde(default = "yes")]
    pub wait: bool,
    /// Time limit in milliseconds, at most a day.
    #[serde(default = "timeout", deserialize_with = "timeout_ms")]
    pub timeout_ms: u64,
}

/// A command for a host's fabric memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum MemCommand {
    /// Registers a range of the host's own memory, or of its fabric window.
    Register {
        /// First address of the range.
        addr: Num,
        len: Num,
    },
    /// Takes a registration back.
    Deregister {
        /// Handle from the registration.
        handle: u64,
    },
    /// Opens the host's window: its mailbox and registered host memory. With a length of 0 closes it.
    Window {
        /// First address in the other hosts' windows.
        base: Num,
        /// Length in bytes; 0 closes the window.
        len: Num,
        /// PIDs that may connect; empty for all.
        #[serde(default)]
        from: Vec<u16>,
    },
    /// Listens at a mailbox in fabric memory that both hosts were granted.
    Listen {
        /// Address of the mailbox.
        mailbox: Num,
    },
    /// Connects to the peer that listens at a mailbox.
    Connect {
        /// Start of the peer's window, or the address of a mailbox that it listens at.
        mailbox: Num,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Ends a connection, or stops listening.
    Disconnect {
        /// Number from connect or from the list of peers.
        peer: u32,
    },
    /// Copies from the peer's memory to the host's own.
    Read(MemTransfer),
    /// Copies from the host's own memory to the peer's.
    Write(MemTransfer),
    /// Progress of a transfer started without `wait`; its end is reported once.
    Status {
        /// Number of the transfer.
        transfer: u64,
    },
    /// Lists registrations, peers, transfers and resources in use.
    List {},
    /// Ends all connections and frees everything; later commands are refused.
    Finalize {},
}

impl MemCommand {
    /// Time limit in milliseconds.
    #[must_use]
    pub const fn timeout_ms(&self) -> u64 {
        match self {
            Self::Connect { timeout_ms, .. } => *timeout_ms,
            Self::Read(transfer) | Self::Write(transfer) => transfer.timeout_ms,
            _ => TIMEOUT_MS,
        }
    }
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemStatus {
    /// Still in progress.
    Waiting,
    /// Everything was copied.
    Completed,
    /// Ended before everything was copied.
    Failed,
    /// The time limit ended it.
    Timeout,
}

impl MemStatus {
    /// Name of the state in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
        }
    }
}

/// Result or progress of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemTransferReport {
    /// Number of the transfer.
    pub transfer: u64,
    pub status: MemStatus,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Sum over all pieces.
    pub bytes: u64,
    /// Duration in nanoseconds, so far or in all.
    pub ns: u64,
}

/// A registered range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemRange {
    /// Handle that takes it back.
    pub handle: u64,
    /// First address of the range.
    pub addr: u64,
    pub len: u64,
    /// `host`: the host's own memory; `fabric`: memory of its fabric window.
    pub kind: String,
    /// Address at which others find it; `None` if it is not visible to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa: Option<u64>,
}

/// A range of a peer that transfers can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemImport {
    /// First address, as the peer registered it.
    pub addr: u64,
    pub len: u64,
    /// Address at which this host finds it.
    pub hpa: u64,
}

/// A peer, connected or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemPeer {
    /// Number that commands name it by.
    pub peer: u32,
    /// `connecting`, `connected`, `listening` or `closing`.
    pub state: String,
    /// Address of the mailbox that connects them.
    pub mailbox: u64,
    /// Port id of its requests, if it connected through this host's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u16>,
    /// Ranges that it shares with this host.
    pub imports: Vec<MemImport>,
}

/// The address range in which others find this host's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemWindow {
    /// First address, which is the mailbox's.
    pub base: u64,
    pub len: u64,
    /// PIDs that may connect; empty for all.
    pub from: Vec<u16>,
}

/// State of a host's fabric memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemList {
    /// The window, if one is open.
    pub window: Option<MemWindow>,
    pub registrations: Vec<MemRange>,
    pub peers: Vec<MemPeer>,
    /// Transfers in progress, and those whose end was not reported yet.
    pub transfers: Vec<MemTransferReport>,
    /// Streams in use by transfers.
    pub streams: usize,
    /// Requests that can still be completed.
    pub requests: usize,
    /// Completions without a request.
    pub unexpected: u64,
}

/// The answer to a [`MemCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemAnswer {
    /// The range was registered.
    Registered(MemRange),
    /// Number of the peer.
    Peer(u32),
    Transfer(MemTransferReport),
    /// State of all of it.
    List(MemList),
}
