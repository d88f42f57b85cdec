//! What an endpoint is asked, and what it answers.
//!
//! [`Command`] in, [`Answer`] out; both are JSON on the control socket and plain values in one process.
//!
//! Units: bytes, milliseconds, addresses of the bus.
//! Source: docs/endpoint.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fabric_mem::{MemAnswer, MemCommand};
use super::ln::report::{LnAccess, LnReport, LncReport, LnrFunction};
use super::number::{Hex, Id, Num, number_or_hex};
use super::time_limit::{TIMEOUT_MS, timeout, timeout_ms};

/// Bytes of its own memory that an endpoint stores or looks at in a millisecond at least: a slice every 16 ms.
const BYTES_PER_MS: u64 = 4_096;

const fn rounds() -> u64 {
    0
}

/// By which kind of requests memory is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// A host: UIO within its fabric window, memory requests elsewhere. A device: UIO where its link has it.
    #[default]
    Auto,
    /// Memory requests.
    Plain,
    /// UIO requests.
    Uio,
    /// A host: loads and stores of lines by CXL.mem.
    CxlMem,
    /// A device: loads and stores through its cache for the host's memory.
    CxlCache,
}

/// A range of memory, what it is written with or compared to, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// First address.
    pub addr: Num,
    /// Bytes; those of `data` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<Num>,
    /// What is written, or expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Instead: bytes that are made of this seed and their place in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Kind of the requests.
    #[serde(default)]
    pub via: Via,
    /// Port that UIO requests go to past the switch's decoders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u16>,
    /// Having written, reads back and compares.
    #[serde(default)]
    pub check: bool,
    /// Which function of a device does it.
    #[serde(default)]
    pub function: u8,
    /// Which logical device does it, of a device that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ld: Option<u8>,
    /// How long it may take.
    #[serde(default = "timeout", deserialize_with = "timeout_ms")]
    pub timeout_ms: u64,
}

/// A range of an endpoint's own memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnRange {
    /// A host: an address. A device: an offset in the BAR, or in memory that the host manages.
    pub addr: Num,
    /// Bytes; those of `data` if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<Num>,
    /// What is stored, or expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
    /// Instead: a pattern, as in [`Access`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Which function of a device.
    #[serde(default)]
    pub function: u8,
    /// Which logical device, of a device that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ld: Option<u8>,
    /// Which BAR of it; without, memory that the host manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bar: Option<u8>,
}

/// A range of a host's memory that others reach by UIO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// First address, as others have it.
    pub base: Num,
    /// Bytes.
    pub len: Num,
    /// First address here.
    pub local: Num,
    /// Who may; nobody named: all.
    #[serde(default)]
    pub from: Vec<u16>,
}

/// A command to an endpoint, one line of JSON on its socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// What it is, its links and counts.
    Status {},
    /// What happened since this was last asked.
    Events {},
    /// Host: finds what is below.
    Enumerate {
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: resets the bus below a bridge, and finds anew what is there.
    Reset {
        /// The bridge.
        bdf: Id,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: finds anew what is behind a slot.
    Rescan {
        /// The bridge.
        bdf: Id,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: gives a device a `CacheID`, in place of the one that it had.
    CacheId {
        /// The device.
        bdf: Id,
        /// 0 to 15; without: none any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<u8>,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: what was found last.
    Tree {},
    /// Host: latency and bandwidth of the memory of a device, and of the way there.
    Cdat {
        /// The device; without: all that tell of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bdf: Option<Id>,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: reads four bytes of configuration space.
    ConfigRead {
        /// Whose.
        bdf: Id,
        /// Offset, a multiple of 4.
        reg: u16,
    },
    /// Host: writes configuration space.
    ConfigWrite {
        /// Whose.
        bdf: Id,
        /// Offset, a multiple of 4.
        reg: u16,
        /// Value of the four bytes.
        value: Num,
        /// Which of them are written, a bit each.
        #[serde(default = "all_bytes")]
        enables: u8,
    },
    /// Host: reads memory.
    Read(Access),
    /// Host: writes memory.
    Write(Access),
    /// Device: reads memory of the host or of a peer.
    DmaRead(Access),
    /// Device: writes memory of the host or of a peer.
    DmaWrite(Access),
    /// Writes memory of its own.
    Store(OwnRange),
    /// Reads memory of its own.
    Peek(OwnRange),
    /// Host: memory that others reach; it takes the place of what was exported before.
    Export {
        /// All of it.
        ranges: Vec<Export>,
    },
    /// Host: a command for the mailbox of a Global Access Endpoint.
    Gae {
        /// Opcode; as text with `0x`, as pages have opcodes in hexadecimal without it.
        #[serde(deserialize_with = "number_or_hex")]
        opcode: Num,
        /// Input.
        #[serde(default)]
        input: Hex,
        /// Address of its block of registers; needed where there are several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<Num>,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: reads the ring of notifications, which begins at `base` if that is given.
    Ring {
        /// Places an empty ring of 8 KiB there in the host's memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<Num>,
        /// As of [`Command::Gae`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<Num>,
        /// How long each of its commands may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Host: has all below get ready to lose power.
    TurnOff {
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Device: writes back and gives up all lines of its cache for the host's memory.
    CacheFlush {
        /// Which function.
        #[serde(default)]
        function: u8,
        /// How long it may take.
        #[serde(default = "timeout", deserialize_with = "timeout_ms")]
        timeout_ms: u64,
    },
    /// Device: interrupts.
    Interrupt {
        /// Which function.
        #[serde(default)]
        function: u8,
        /// Which logical device, of a device that has some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ld: Option<u8>,
    },
    /// Device: asserts INTx, or deasserts it.
    Intx {
        /// Assert.
        on: bool,
        /// Which function.
        #[serde(default)]
        function: u8,
        /// Which logical device, of a device that has some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ld: Option<u8>,
    },
    /// GFD: a CCI command, as the GAE of a host forwards it.
    Cci {
        /// Opcode.
        opcode: Num,
        /// Input.
        #[serde(default)]
        input: Hex,
        /// Port of the host.
        #[serde(default)]
        from: u16,
    },
    /// Device: reads a line of the host's memory, which is registered and kept as a copy.
    LnRead(LnAccess),
    /// Device: asks whether lines of a page are registered.
    LnProbe(LnAccess),
    /// Device: writes within a line, which is registered.
    LnWrite(LnAccess),
    /// Device: gives a line back.
    LnDrop(LnAccess),
    /// Device: the copy of a line, without a request.
    LnCopy(LnAccess),
    /// Device: its LN requesters. Host: who watches which line.
    LnStatus {},
    /// Host or device: begins to write a range and read it back, again and again.
    LoadStart {
        /// Which range; `check` is without meaning, the timeout is that of each round.
        access: Access,
        /// Rounds after which it ends; 0 goes on until it is stopped.
        #[serde(default = "rounds")]
        rounds: u64,
        /// Milliseconds between one round and the next.
        #[serde(default)]
        pause_ms: u64,
    },
    /// How the load went so far.
    LoadStatus {},
    /// Ends the load behind the round that is under way, and says how it went.
    LoadStop {},
    /// Host: transfers of fabric memory.
    Mem(MemCommand),
}

const fn all_bytes() -> u8 {
    0xF
}

impl Command {
    /// Its name on the socket.
    #[must_use]
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.get("cmd").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The logical device that it is for.
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

    /// How long it may take, in milliseconds.
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
            Self::Ring { timeout_ms, .. } => timeout_ms.saturating_mul(3),
            Self::Mem(command) => command.timeout_ms(),
            Self::Read(access)
            | Self::Write(access)
            | Self::DmaRead(access)
            | Self::DmaWrite(access) => access.timeout_ms,
            // Each slice of it waits for frames and for other commands.
            Self::Store(place) | Self::Peek(place) => match place.len {
                Some(len) => TIMEOUT_MS.saturating_add(len.0 / BYTES_PER_MS),
                None => TIMEOUT_MS,
            },
            _ => TIMEOUT_MS,
        }
    }
}

/// How a transfer went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferReport {
    /// All was done, and what was compared is equal.
    pub ok: bool,
    /// Bytes that were written.
    pub written: u64,
    /// Bytes that were read.
    pub read: u64,
    /// Requests of at most 4 KiB each.
    pub requests: u64,
    /// Those that were answered, with what was expected where something was.
    #[serde(default)]
    pub answered: u64,
    /// Those that were answered with something else.
    #[serde(default)]
    pub wrong: u64,
    /// Posted writes: nobody answers them, the read behind each tells.
    #[serde(default)]
    pub posted: u64,
    /// Those that did not come to their end.
    pub failed: u64,
    /// How they failed: UR, CA, RRS, timeout, poisoned, mismatch, `no_form`, `given_up`, refused.
    pub failures: BTreeMap<String, u64>,
    /// First address of the first one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed: Option<u64>,
    /// Bytes that differ from what was expected.
    pub mismatched: u64,
    /// Address of the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_mismatch: Option<u64>,
    /// Not all was done in time.
    pub timed_out: bool,
    /// Time that it took.
    pub ns: u64,
    /// What was read, unless it was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Hex>,
}

/// How a load went so far. Every request has one outcome: `requests` are those `answered`, `wrong`, `posted`,
/// `unanswered` or `under_way` and those of `failures` but `refused`, which were not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// It goes on.
    pub running: bool,
    /// Rounds that were done: the range written and read back, whole and equal.
    pub done: u64,
    /// Rounds in which a request failed or that took too long.
    pub failed: u64,
    /// Bytes that differed from what was written.
    pub mismatched: u64,
    /// Bytes written and read.
    pub bytes: u64,
    /// Requests that were sent, also those of the round that is under way.
    #[serde(default)]
    pub requests: u64,
    /// Those that were answered, with what was expected where something was.
    #[serde(default)]
    pub answered: u64,
    /// Those that were answered with something else.
    #[serde(default)]
    pub wrong: u64,
    /// Posted writes: nobody answers them, the read behind each tells.
    #[serde(default)]
    pub posted: u64,
    /// Those that had no answer when the time of their round was over.
    #[serde(default)]
    pub unanswered: u64,
    /// Those that have no answer yet.
    #[serde(default)]
    pub under_way: u64,
    /// How requests failed: as of a transfer.
    pub failures: BTreeMap<String, u64>,
    /// Longest time from one correct answer to the next; from the start to the first one.
    #[serde(default)]
    pub longest_gap_ns: u64,
}

/// One end of a link, as it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Device or pipe.
    pub device: String,
    /// It is up.
    pub up: bool,
}

/// An event at an endpoint, with its number and time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// Number, from 0.
    pub number: u64,
    /// When, on the machine's monotonic clock.
    pub at_ns: u64,
    /// For programs: `link`, `msi`, `error`, `reset`, `message`, ...
    pub kind: String,
    /// For people.
    pub text: String,
}

/// The status of an endpoint: what it is, its links and counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// `host`, `device`, `gfd`, `hbr`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Its links, in order.
    pub links: Vec<LinkReport>,
    /// Longest time from when it looked at its links until it looked again, microseconds; sleep does not count.
    #[serde(default)]
    pub longest_turn_us: u64,
    /// Counts, by who counts.
    pub counts: Value,
    /// What else there is to say, by kind.
    pub detail: Value,
}

/// Latency and bandwidth, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessFigures {
    /// Of loads.
    pub read_latency_ns: Option<u64>,
    /// Of stores.
    pub write_latency_ns: Option<u64>,
    /// Of loads.
    pub read_bandwidth_mbps: Option<u64>,
    /// Of stores.
    pub write_bandwidth_mbps: Option<u64>,
}

/// A range of the memory of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatRange {
    /// First address in the device.
    pub dpa: u64,
    /// Bytes.
    pub len: u64,
    /// Where the host has it; none where no committed decoder leads there.
    pub hpa: Option<u64>,
    /// It keeps its bytes without power.
    pub non_volatile: bool,
    /// Dynamic capacity: what of it is there changes.
    pub dynamic: bool,
    /// What the device tells of it.
    pub device: AccessFigures,
    /// The device and all switches above it together; none where not all of these tell.
    pub path: Option<AccessFigures>,
}

/// A switch above a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatSwitch {
    /// Its upstream port.
    pub bdf: Id,
    /// Number of the port that leads to the device.
    pub port: u8,
    /// What it tells of the way from one to the other, with the fabric's path where it is below a virtual link.
    #[serde(flatten)]
    pub access: AccessFigures,
}

/// What the CDATs of a device and of the switches above it tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CdatDevice {
    /// The device.
    pub bdf: Id,
    /// Ranges of its memory.
    pub ranges: Vec<CdatRange>,
    /// Switches above it, the one nearest to the host first.
    pub switches: Vec<CdatSwitch>,
    /// Who does not tell, and why.
    pub errors: Vec<String>,
}

/// An endpoint's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// What it is.
    Status(Box<Status>),
    /// What happened.
    Events {
        /// Oldest first.
        events: Vec<EventReport>,
        /// Events that nobody asked for in time.
        lost: u64,
    },
    /// What a host found.
    Tree {
        /// As a tree of functions.
        tree: Value,
        /// For people.
        text: String,
    },
    /// Latency and bandwidth of memory.
    Cdat {
        /// By device.
        devices: Vec<CdatDevice>,
    },
    /// A register.
    Register {
        /// Its four bytes.
        value: u64,
    },
    /// A transfer.
    Transfer(Box<TransferReport>),
    /// A load.
    Load(Box<LoadReport>),
    /// A request for a line of the host's memory.
    Ln(Box<LnReport>),
    /// The LN requesters of a device.
    LnRequesters {
        /// By function.
        functions: Vec<LnrFunction>,
    },
    /// The LN completer of a host.
    LnCompleter(Box<LncReport>),
    /// An answer to a command of a mailbox or CCI.
    Response {
        /// Return code.
        code: u16,
        /// Its name.
        name: String,
        /// The vendor's status.
        vendor: u16,
        /// Output.
        output: Hex,
    },
    /// What was in the ring.
    Ring {
        /// Notifications, oldest first.
        entries: Vec<Hex>,
        /// Others found no room.
        overflow: bool,
    },
    /// Fabric memory.
    Mem(Box<MemAnswer>),
}

impl Status {
    /// Adds a list to what else there is to say.
    pub(super) fn add_list(&mut self, name: &str, rows: Vec<Value>) {
        if let Value::Object(detail) = &mut self.detail {
            detail.insert(name.to_owned(), Value::Array(rows));
        }
    }
}
