//! What a host is asked of its fabric memory, and what it answers.
//!
//! [`MemCommand`] in, [`MemAnswer`] out: JSON on the control socket, plain values in one process.
//!
//! Units: bytes, milliseconds, nanoseconds.
//! Source: docs/fabric-memory.md.

use serde::{Deserialize, Serialize};

use super::number::Num;
use super::time_limit::{TIMEOUT_MS, timeout, timeout_ms};

const fn yes() -> bool {
    true
}

/// One operation of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemOp {
    /// Address in the host's own memory.
    pub local: Num,
    /// Address as the peer registered it.
    pub remote: Num,
    /// Bytes.
    pub len: Num,
}

/// A transfer: a list of operations, with one peer, in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemTransfer {
    /// Number of the peer.
    pub peer: u32,
    /// What is copied; destinations must be apart.
    pub ops: Vec<MemOp>,
    /// The answer comes when the transfer has ended.
    #[serde(default = "yes")]
    pub wait: bool,
    /// How long it may take.
    #[serde(default = "timeout", deserialize_with = "timeout_ms")]
    pub timeout_ms: u64,
}

/// A command for a host's fabric memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum MemCommand {
    /// Registers a range: of the host's own memory, or of its fabric window.
    Register {
        /// First address.
        addr: Num,
        /// Bytes.
        len: Num,
    },
    /// Takes a registration back.
    Deregister {
        /// Which.
        handle: u64,
    },
    /// Shows others the mailbox and registered host memory there; with no bytes, nothing.
    Window {
        /// First address, as others have it.
        base: Num,
        /// Bytes.
        len: Num,
        /// Who may connect; nobody named: all.
        #[serde(default)]
        from: Vec<u16>,
    },
    /// Listens at a mailbox in fabric memory that both hosts were granted.
    Listen {
        /// Its address.
        mailbox: Num,
    },
    /// Connects with whoever listens at a mailbox.
    Connect {
        /// Its address: the start of the peer's window, or a mailbox that it listens at.
        mailbox: Num,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Ends a connection, or stops to listen.
    Disconnect {
        /// Number of the peer.
        peer: u32,
    },
    /// Copies from the peer's memory to the host's own.
    Read(MemTransfer),
    /// Copies from the host's own memory to the peer's.
    Write(MemTransfer),
    /// How far a transfer is that was not waited for; its end is told once.
    Status {
        /// Its number.
        transfer: u64,
    },
    /// All registrations, peers and transfers, and what is in use.
    List {},
    /// Ends all connections and frees everything; all later commands are refused.
    Finalize {},
}

impl MemCommand {
    /// How long it may take, in milliseconds.
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
    /// It goes on.
    Waiting,
    /// All is copied.
    Completed,
    /// It ended early.
    Failed,
    /// It took too long.
    Timeout,
}

impl MemStatus {
    /// Its name, as in JSON.
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

/// How a transfer went, or how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemTransferReport {
    /// Its number.
    pub transfer: u64,
    /// Its state.
    pub status: MemStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Bytes of all its operations.
    pub bytes: u64,
    /// How long it took, or has been under way.
    pub ns: u64,
}

/// A registered range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemRange {
    /// Its handle.
    pub handle: u64,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// `host`: the host's own memory; `fabric`: memory of its fabric window.
    pub kind: String,
    /// Where others find it, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa: Option<u64>,
}

/// A range of a peer that transfers can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemImport {
    /// First address, as the peer registered it.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Where this host finds it.
    pub hpa: u64,
}

/// A peer, connected or about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemPeer {
    /// Its number.
    pub peer: u32,
    /// `connecting`, `connected`, `listening`, `closing`.
    pub state: String,
    /// Mailbox of the connection.
    pub mailbox: u64,
    /// Port that its requests come from: of those who came to this host's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u16>,
    /// What it shares with this host.
    pub imports: Vec<MemImport>,
}

/// Where others find this host's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemWindow {
    /// First address: that of the mailbox.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Who may connect; nobody named: all.
    pub from: Vec<u16>,
}

/// All that a host's fabric memory has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemList {
    /// Where others find its memory.
    pub window: Option<MemWindow>,
    /// Registrations.
    pub registrations: Vec<MemRange>,
    /// Peers.
    pub peers: Vec<MemPeer>,
    /// Transfers that go on, or whose end nobody has asked for.
    pub transfers: Vec<MemTransferReport>,
    /// Streams that transfers have.
    pub streams: usize,
    /// Requests that can still be completed.
    pub requests: usize,
    /// Completions that belonged to no request.
    pub unexpected: u64,
}

/// The answer to a [`MemCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemAnswer {
    /// The registration.
    Registered(MemRange),
    /// The peer's number.
    Peer(u32),
    /// A transfer.
    Transfer(MemTransferReport),
    /// Everything.
    List(MemList),
}
