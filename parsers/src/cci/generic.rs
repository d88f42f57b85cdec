//! Commands of every component: 0001h to 0005h, events 0100h to 0106h, logs 0400h and 0401h.
//!
//! One struct for each request and response that is not empty; a single field goes without.
//!
//! Units: bytes and entries; timestamps in ns.
//! Source: CXL 3.1 sections 8.2.9.1, 8.2.9.2, 8.2.9.5 (docs/spec/wire-formats.md §4.2 lists the opcodes only).

use super::layout::{message, record};
use super::wire::{Payload, Uuid, Wire, front, put_front, room};
use crate::ParseError;

record! {
    /// Response of Identify (0001h).
    struct Identity: 18 {
        /// PCIe vendor id.
        0 => vendor: u16,
        /// PCIe device id.
        2 => device: u16,
        /// PCIe subsystem vendor id.
        4 => subsystem_vendor: u16,
        /// PCIe subsystem id.
        6 => subsystem: u16,
        /// Serial number.
        8 => serial: u64,
        /// Longest message that is taken: 2^n bytes.
        16 => message_max_log2: u8,
        /// 0 switch, 3 type 3 device, 4 GFD.
        17 => component: u8,
    }
}

/// Progress of a background operation: first byte of [`BackgroundStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// A command runs in the background.
    pub running: bool,
    /// How much of the last one is done, 0..=100; 7 bits.
    pub percent: u8,
}

impl Wire for Progress {
    const LEN: usize = 1;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [byte] = front(bytes)?;
        Ok(Self { running: byte & 1 == 1, percent: byte >> 1 })
    }

    fn write(&self, bytes: &mut [u8]) {
        put_front(bytes, [u8::from(self.running) | (self.percent << 1)]);
    }
}

record! {
    /// Response of Background Operation Status (0002h).
    struct BackgroundStatus: 8 {
        /// How far it is.
        0 => progress: Progress,
        /// The last command that ran in the background.
        2 => opcode: u16,
        /// How it went; [`crate::cci::ReturnCode::from_bits`].
        4 => return_code: u16,
        /// The vendor's own status.
        6 => vendor_status: u16,
    }
}

record! {
    /// An event: its header and the 80 bytes that its kind lays out.
    struct EventRecord: 128 {
        /// Kind.
        0 => kind: Uuid,
        /// Bytes of it.
        16 => len: u8,
        /// Bits 1:0 severity, then what else holds; 24 bits.
        17 => flags: [u8; 3],
        /// Handle; never 0.
        20 => handle: u16,
        /// Handle of one that belongs to it, or 0.
        22 => related: u16,
        /// When, in ns.
        24 => timestamp_ns: u64,
        /// Class of maintenance that it asks for.
        32 => maintenance: u8,
        /// Subclass of it.
        33 => maintenance_sub: u8,
        /// What the kind lays out.
        48 => data: [u8; 80],
    }
}

message! {
    /// Response of Get Event Records (0100h).
    struct EventRecords: 32 {
        /// Bit 0 overflow, 1 more records, 2 overflow of the dynamic capacity log.
        0 => flags: u8,
        /// Events that were lost.
        2 => lost: u16,
        /// When the first one was lost, in ns.
        4 => first_lost_ns: u64,
        /// When the last one was lost, in ns.
        12 => last_lost_ns: u64,
    }
    /// Oldest first.
    20 as u16 => records: [EventRecord]
}

message! {
    /// Request of Clear Event Records (0101h).
    struct ClearEvents: 6 {
        /// The log.
        0 => log: u8,
        /// Clears all of them; then no handle is given.
        1 => all: bool,
    }
    /// What is cleared, oldest first.
    2 as u8 => handles: [u16]
}

record! {
    /// Response of 0102h, request of 0103h: bits 1:0 of each how a log interrupts, 7:4 its vector.
    struct EventInterrupts: 5 {
        /// Informational log.
        0 => info: u8,
        /// Warning log.
        1 => warning: u8,
        /// Failure log.
        2 => failure: u8,
        /// Fatal log.
        3 => fatal: u8,
        /// Dynamic capacity log.
        4 => dynamic_capacity: u8,
    }
}

record! {
    /// A log and its length.
    struct SupportedLog: 20 {
        /// The log.
        0 => log: Uuid,
        /// Bytes of it, at most.
        16 => len: u32,
    }
}

message! {
    /// Response of Get Supported Logs (0400h).
    struct SupportedLogs: 8 {}
    /// All of them.
    0 as u16 => logs: [SupportedLog]
}

record! {
    /// Request of Get Log (0401h).
    struct GetLog: 24 {
        /// The log.
        0 => log: Uuid,
        /// First byte.
        16 => offset: u32,
        /// Bytes.
        20 => len: u32,
    }
}

/// Response of Get Log (0401h): all of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogData<'a> {
    /// Part of the log that was asked for.
    pub data: &'a [u8],
}

impl<'a> Payload<'a> for LogData<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        Ok(Self { data: payload })
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        room(out, self.data.len())?.copy_from_slice(self.data);
        Some(self.data.len())
    }
}
