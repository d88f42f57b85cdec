//! Commands to an endpoint, and its answers.
//!
//! [`Command`] and [`Answer`] are JSON on the control socket, and plain values within a process.
//!
//! Source: docs/endpoint.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fabric_mem::{MemAnswer, MemCommand};
use super::ln_report::{LnAccess, LnReport, LncReport, LnrFunction};
use super::number::{Hex, Id, Num, number_or_hex};
use super::time_limit::{TIMEOUT_MS, timeout, timeout_ms};

/// Least rate at which an endpoint stores or reads its own memory: a slice of 64 KiB every 16 ms.
const BYTES_PER_MS: u64 = 4_096;

const fn rounds() -> u64 {
    0
}

/// Kind of requests by which memory is accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// Host: UIO within its fabric window, memory requests elsewhere. Device: UIO if its link is in flit mode.
    #[default]
    Auto,
    /// Memory requests.
    Plain,
    /// UIO requests.
    Uio,
    /// Host: loads and stores of lines by CXL.mem.
    CxlMem,
    /// Device: loads and stores through its cache for the host's memory.
    CxlCache,
}

/// A range of memory, the data to write or compare, and the kind of requests to reach it by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// First address of the range.
    pub addr: Num,
    /// Length in bytes; that of `data` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<Num>,
    /// Bytes to write, or to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Instead of `data`: seed of a pattern that depends on the position in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(default)]
    pub via: Via,
    /// Port (PID) that UIO requests name directly, bypassing the switch's decoders (GIM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u16>,
    /// Whether a write is read back and compared.
    #[serde(default)]
    pub check: bool,
    /// The function of a device that sends the requests.
    #[serde(default)]
    pub function: u8,
    /// The logical device that sends the requests, if the device has logical devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ld: Option<u8>,
    /// Time limit in milliseconds, at most a day.
    #[serde(default = "timeout", deserialize_with = "timeout_ms")]
    pub timeout_ms: u64,
}

/// A range of an endpoint's own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnRange {
    /// At a host an address; at a device an offset in the BAR or in host-managed memory.
    pub addr: Num,
    /// Length in bytes; that of `data` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<Num>,
    /// Bytes to store, or to compare with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Instead of `data`: seed of a pattern, as in [`Access`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The function of a device that has the memory.
    #[serde(default)]
    pub function: u8,
    /// The logical device that has the memory, if the device has logical devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ld: Option<u8>,
    /// Index of its BAR; `None` for host-managed memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<u8>,
}

/// A range of a host's memory that other hosts and devices reach by UIO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// First address in the other hosts' windows.
    pub base: Num,
    /// Length in bytes.
    pub len: Num,
    /// First address in this host's memory.
    pub local: Num,
    /// PIDs that may access it; empty for all.
    #[serde(default)]
    pub from: Vec<u16>,
}

/// A command to an endpoint: one line of JSON on its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Kind, links and counters.
    Status {},
    /// Events since the last call of this command.
    Events {},
    /// Host: enumerates all functions below.
    Enumerate {
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: resets the bus below a bridge, and enumerates it again.
    Reset {
        /// The bridge above the bus.
        bdf: Id,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: enumerates the functions behind a slot again.
    Rescan {
        /// The bridge that has the slot.
        bdf: Id,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: gives a device a `CacheID` in place of its old one.
    CacheId {
        /// The function with the cache.
        bdf: Id,
        /// `CacheID` 0 to 15; `None` takes it away.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u8>,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: the tree of the last enumeration.
    Tree {},
    /// Host: latency and bandwidth of a device's memory, and of the path to it.
    Cdat {
        /// The device; `None` for all devices with memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bdf: Option<Id>,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: reads four bytes of configuration space.
    ConfigRead {
        bdf: Id,
        /// Offset in bytes, a multiple of 4.
        reg: u16,
    },
    /// Host: writes configuration space.
    ConfigWrite {
        bdf: Id,
        /// Offset in bytes, a multiple of 4.
        reg: u16,
        /// New value of the four bytes.
        value: Num,
        /// Byte enables: bit 0 for the first byte.
        #[serde(default = "all_bytes")]
        enables: u8,
    },
    /// Host: reads memory by HPA.
    Read(Access),
    /// Host: writes memory by HPA.
    Write(Access),
    /// Device: reads memory of the host or of a peer.
    DmaRead(Access),
    /// Device: writes memory of the host or of a peer.
    DmaWrite(Access),
    /// Stores to the endpoint's own memory.
    Store(OwnRange),
    /// Reads the endpoint's own memory.
    Peek(OwnRange),
    /// Host: exports memory to others, in place of all earlier exports.
    Export {
        /// The complete set of exports.
        ranges: Vec<Export>,
    },
    /// Host: sends a command to the mailbox of a Global Access Endpoint.
    Gae {
        /// Opcode; as text only with `0x`, because documents write opcodes in hexadecimal without it.
        #[serde(deserialize_with = "number_or_hex")]
        opcode: Num,
        /// Payload of the command.
        #[serde(default)]
        input: Hex,
        /// Address of the GAE's register block; needed if there are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<Num>,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: reads the ring of notifications; with `base` places it first.
    Ring {
        /// Address in the host's memory for a new, empty ring of 8 KiB.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<Num>,
        /// Address of the GAE's register block, as in [`Command::Gae`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<Num>,
        /// Time limit of each of its mailbox commands in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: sends `PME_Turn_Off` and waits for all acknowledgements.
    TurnOff {
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Device: writes back and drops all lines of its cache for the host's memory.
    CacheFlush {
        /// The function that has the cache.
        #[serde(default)]
        function: u8,
        /// Time limit in milliseconds, at most a day.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Device: sends the MSI of a function.
    Interrupt {
        /// The function that interrupts.
        #[serde(default)]
        function: u8,
        /// The logical device that interrupts, if the device has logical devices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ld: Option<u8>,
    },
    /// Device: sets the level of a function's INTx.
    Intx {
        /// True asserts, false deasserts.
        on: bool,
        /// The function that interrupts.
        #[serde(default)]
        function: u8,
        /// The logical device that interrupts, if the device has logical devices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ld: Option<u8>,
    },
    /// GFD: carries out a CCI command as if a host's GAE had forwarded it.
    Cci {
        opcode: Num,
        /// Payload of the command.
        #[serde(default)]
        input: Hex,
        /// PID of the host's port.
        #[serde(default)]
        from: u16,
    },
    /// Device: reads and registers a line of the host's memory, and keeps a copy.
    LnRead(LnAccess),
    /// Device: asks whether the host registers lines of a page.
    LnProbe(LnAccess),
    /// Device: writes within a line, and registers it.
    LnWrite(LnAccess),
    /// Device: gives a registered line back.
    LnDrop(LnAccess),
    /// Device: the local copy of a line; sends no request.
    LnCopy(LnAccess),
    /// Device: its LN requesters. Host: its watched lines and their watchers.
    LnStatus {},
    /// Host or device: starts a load, which writes a range and reads it back in rounds.
    LoadStart {
        /// The range; `check` is ignored, and the time limit applies to each round.
        access: Access,
        /// Number of rounds; 0 runs until it is stopped.
        #[serde(default = "rounds")]
        rounds: u64,
        /// Pause after each round in milliseconds.
        #[serde(default)]
        pause_ms: u64,
    },
    /// Result of the load so far.
    LoadStatus {},
    /// Stops the load after its current round, and returns the result so far.
    LoadStop {},
    /// Host: a command of fabric memory transfers.
    Mem(MemCommand),
}

const fn all_bytes() -> u8 {
    0xF
}

impl Command {
    /// Its name in JSON, the field `cmd`.
    #[must_use]
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.get("cmd").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The logical device that it names.
    #[must_use]
    pub const fn ld(&self) -> Option<u8> {
        match self {
            Self::Read(access)
            | Self::Write(access)
            | Self::DmaRead(access)
            | Self::DmaWrite(access)
            | Self::LoadStart { access, .. } => access.ld,
            Self::Store(place) | Self::Peek(place) => place.ld,
            Self::Interrupt { ld, .. } | Self::Intx { ld, .. } => *ld,
            _ => None,
        }
    }

    /// Time limit in milliseconds.
    #[must_use]
    pub const fn timeout_ms(&self) -> u64 {
        match self {
            Self::Enumerate { timeout_ms }
            | Self::Rescan { timeout_ms, .. }
            | Self::Reset { timeout_ms, .. }
            | Self::CacheId { timeout_ms, .. }
            | Self::CacheFlush { timeout_ms, .. }
            | Self::Cdat { timeout_ms, .. }
            | Self::Gae { timeout_ms, .. }
            | Self::TurnOff { timeout_ms } => *timeout_ms,
            Self::LnRead(access)
            | Self::LnProbe(access)
            | Self::LnWrite(access)
            | Self::LnDrop(access) => match access.timeout_ms {
                Some(timeout_ms) => timeout_ms,
                None => TIMEOUT_MS,
            },
            // Up to three mailbox commands, each with this limit: place the ring, get it, clear the part that was read.
            Self::Ring { timeout_ms, .. } => timeout_ms.saturating_mul(3),
            Self::Mem(command) => command.timeout_ms(),
            Self::Read(access)
            | Self::Write(access)
            | Self::DmaRead(access)
            | Self::DmaWrite(access) => access.timeout_ms,
            // A store or peek shares its slices with frames and with other commands.
            Self::Store(place) | Self::Peek(place) => match place.len {
                Some(len) => TIMEOUT_MS.saturating_add(len.0 / BYTES_PER_MS),
                None => TIMEOUT_MS,
            },
            _ => TIMEOUT_MS,
        }
    }
}

/// Result of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferReport {
    /// Everything was transferred, and all compared bytes are equal.
    pub ok: bool,
    /// Bytes written, and known to have arrived.
    pub written: u64,
    /// Bytes read back or read.
    pub read: u64,
    /// Requests sent, each for at most 4 KiB.
    pub requests: u64,
    /// Requests answered with success, and with the expected data if any.
    #[serde(default)]
    pub answered: u64,
    /// Requests answered with data that differs.
    #[serde(default)]
    pub wrong: u64,
    /// Posted writes, which have no answer: the read after each one shows whether it arrived.
    #[serde(default)]
    pub posted: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Failures by cause: UR, CA, RRS, timeout, poisoned, mismatch, `no_form`, `given_up`, refused.
    pub failures: BTreeMap<String, u64>,
    /// Lowest address of a failed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed: Option<u64>,
    /// Bytes that differ from the expected ones.
    pub mismatched: u64,
    /// Address of the first differing byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_mismatch: Option<u64>,
    /// The time limit ended the transfer.
    pub timed_out: bool,
    /// Duration in nanoseconds.
    pub ns: u64,
    /// The data that was read, unless it was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
}

/// Result of a load so far. Every request has one outcome: `requests` is the sum of `answered`, `wrong`, `posted`,
/// `unanswered`, `under_way` and `failures`, of which the `refused` ones do not count because they were not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// False once it has ended.
    pub running: bool,
    /// Rounds in which the whole range was written and read back without a difference.
    pub done: u64,
    /// Rounds in which a request failed, or the time limit was exceeded.
    pub failed: u64,
    /// Bytes that differed from those written.
    pub mismatched: u64,
    /// Bytes written plus bytes read.
    pub bytes: u64,
    /// Requests sent, those of the current round included.
    #[serde(default)]
    pub requests: u64,
    /// Requests answered with success, and with the expected data if any.
    #[serde(default)]
    pub answered: u64,
    /// Requests answered with data that differs.
    #[serde(default)]
    pub wrong: u64,
    /// Posted writes, which have no answer: the read after each one shows whether it arrived.
    #[serde(default)]
    pub posted: u64,
    /// Requests without an answer at the end of their round's time limit.
    #[serde(default)]
    pub unanswered: u64,
    /// Requests still waiting for their answer.
    #[serde(default)]
    pub under_way: u64,
    /// Failures by cause, as for a transfer.
    pub failures: BTreeMap<String, u64>,
    /// Longest time from one correct answer to the next, from the start on.
    #[serde(default)]
    pub longest_gap_ns: u64,
}

/// State of one end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Interface or pipe that carries it.
    pub device: String,
    /// Carrier of the port.
    pub up: bool,
}

/// An event at an endpoint, with its number and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// Sequence number, from 0; a gap means lost events.
    pub number: u64,
    /// Time on the machine's monotonic clock.
    pub at_ns: u64,
    /// Category for programs: `link`, `msi`, `error`, `reset`, `message`, ...
    pub kind: String,
    /// Description for people.
    pub text: String,
}

/// Status of an endpoint: kind, links and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `host`, `device`, `gfd` or `hbr`.
    pub kind: String,
    pub name: String,
    /// Ends of its links, in port order.
    pub links: Vec<LinkReport>,
    /// Longest time between two looks at its links in microseconds; sleep does not count.
    #[serde(default)]
    pub longest_turn_us: u64,
    /// Counters, grouped by the component that counts.
    pub counts: Value,
    /// Further state, which depends on the kind.
    pub detail: Value,
}

/// Latency in ns and bandwidth in MB/s; `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessFigures {
    pub read_latency_ns: Option<u64>,
    pub write_latency_ns: Option<u64>,
    pub read_bandwidth_mbps: Option<u64>,
    pub write_bandwidth_mbps: Option<u64>,
}

/// A range of the memory of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatRange {
    /// First address in the device's own numbering (DPA).
    pub dpa: u64,
    pub len: u64,
    /// First address at the host; `None` if no committed decoder leads there.
    pub hpa: Option<u64>,
    /// Whether the memory keeps its bytes without power.
    pub non_volatile: bool,
    /// Dynamic capacity: the memory present in the range changes.
    pub dynamic: bool,
    /// Figures of the device's own CDAT.
    pub device: AccessFigures,
    /// Sum over the device and all switches above it; `None` if one of them has no CDAT.
    pub path: Option<AccessFigures>,
}

/// A switch on the path to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatSwitch {
    /// Function id of its upstream port.
    pub bdf: Id,
    /// Number of its downstream port towards the device.
    pub port: u8,
    /// Figures of the path between the two ports; below a virtual link they include the path through the fabric.
    #[serde(flatten)]
    pub access: AccessFigures,
}

/// Figures from the CDATs of a device and of the switches above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatDevice {
    pub bdf: Id,
    pub ranges: Vec<CdatRange>,
    /// Switches above it, beginning at the host.
    pub switches: Vec<CdatSwitch>,
    /// Components whose CDAT could not be read, with the reasons.
    pub errors: Vec<String>,
}

/// An endpoint's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Carried out; there is nothing to report.
    Done,
    Status(Box<Status>),
    /// Events since the last call.
    Events {
        /// In order of time, oldest first.
        events: Vec<EventReport>,
        /// Events dropped from the full list before this call.
        lost: u64,
    },
    /// The result of an enumeration.
    Tree {
        /// Functions as nested JSON.
        tree: Value,
        /// The same tree for people.
        text: String,
    },
    /// Latency and bandwidth of memory.
    Cdat {
        /// One entry for each device with memory.
        devices: Vec<CdatDevice>,
    },
    /// Configuration register.
    Register {
        /// Its four bytes, the first one least significant.
        value: u64,
    },
    Transfer(Box<TransferReport>),
    Load(Box<LoadReport>),
    /// A request for a line of the host's memory.
    Ln(Box<LnReport>),
    /// The LN requesters of a device.
    LnRequesters {
        /// One entry for each function of the device.
        functions: Vec<LnrFunction>,
    },
    /// The LN completer of a host.
    LnCompleter(Box<LncReport>),
    /// Response to a command of a mailbox or of CCI.
    Response {
        /// Return code of the command.
        code: u16,
        /// Name of the return code.
        name: String,
        /// Vendor-specific extended status.
        vendor: u16,
        /// Payload of the response.
        output: Hex,
    },
    /// Contents of the notification ring.
    Ring {
        /// Notifications, oldest first.
        entries: Vec<Hex>,
        /// Whether notifications were lost because the ring was full.
        overflow: bool,
    },
    /// Result of a fabric memory command.
    Mem(Box<MemAnswer>),
}

impl Status {
    /// Adds a list to the details.
    pub(super) fn add_list(&mut self, name: &str, rows: Vec<Value>) {
        if let Value::Object(detail) = &mut self.detail {
            detail.insert(name.to_owned(), Value::Array(rows));
        }
    }
}
