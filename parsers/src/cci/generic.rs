//! Commands of every component: 0001h to 0005h, events 0100h to 0106h, logs 0400h and 0401h.
//!
//! One struct for each request and response that is not empty; a payload of a single field has no
//! struct. Timestamps are in ns.
//!
//! Source: CXL 3.1 sections 8.2.9.1, 8.2.9.2, 8.2.9.5 (docs/spec/wire-formats.md §4.2 lists the
//! opcodes only).

use super::layout::{message, record};
use super::wire::{Payload, Uuid, Wire, front, put_front, room};
use crate::ParseError;

record! {
    /// Response of Identify (0001h).
    struct Identity: 18 {
        /// PCIe Vendor ID of the component.
        0 => vendor: u16,
        /// PCIe Device ID of the component.
        2 => device: u16,
        /// PCIe Subsystem Vendor ID of the component.
        4 => subsystem_vendor: u16,
        /// PCIe Subsystem ID of the component.
        6 => subsystem: u16,
        /// Serial number of the component (PCIe Device Serial Number).
        8 => serial: u64,
        /// Longest message that the component takes: 2^n bytes.
        16 => message_max_log2: u8,
        /// 0 switch, 3 type 3 device, 4 GFD.
        17 => component: u8,
    }
}

/// Progress of a background operation: first byte of [`BackgroundStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bit 0: a command runs in the background.
    pub running: bool,
    /// Share of the last background command that is done, 0..=100 percent; bits 7:1.
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
        /// Whether it runs, and how far it is.
        0 => progress: Progress,
        /// Opcode of the last command that ran in the background.
        2 => opcode: u16,
        /// Its result, once it is done; [`crate::cci::ReturnCode::from_bits`].
        4 => return_code: u16,
        /// Vendor-specific extended status of that command.
        6 => vendor_status: u16,
    }
}

record! {
    /// An event: its header and the 80 bytes that its kind lays out.
    struct EventRecord: 128 {
        /// UUID of the record's format, which tells the meaning of `data`.
        0 => kind: Uuid,
        /// Bytes of the whole record, 128 here.
        16 => len: u8,
        /// Bits 1:0 severity (0 informational to 3 fatal), then flags of the record; 24 bits.
        17 => flags: [u8; 3],
        /// Handle by which 0101h clears the record; never 0.
        20 => handle: u16,
        /// Handle of a related record, or 0.
        22 => related: u16,
        /// Time of the event in ns.
        24 => timestamp_ns: u64,
        /// Class of maintenance that the device asks for; 0 for none.
        32 => maintenance: u8,
        /// Subclass of that maintenance.
        33 => maintenance_sub: u8,
        /// Fields of the record's kind.
        48 => data: [u8; 80],
    }
}

message! {
    /// Response of Get Event Records (0100h).
    struct EventRecords: 32 {
        /// Bit 0 overflow, 1 more records, 2 overflow of the dynamic capacity log.
        0 => flags: u8,
        /// Events that were lost since the log was full.
        2 => lost: u16,
        /// Time of the first lost event in ns; 0 without one.
        4 => first_lost_ns: u64,
        /// Time of the last lost event in ns; 0 without one.
        12 => last_lost_ns: u64,
    }
    /// Records of the log, oldest first.
    20 as u16 => records: [EventRecord]
}

message! {
    /// Request of Clear Event Records (0101h).
    struct ClearEvents: 6 {
        /// Number of the log, 0..=4.
        0 => log: u8,
        /// Bit 0: clear all records; the list of handles is empty then.
        1 => all: bool,
    }
    /// Handles of the records to clear, oldest first.
    2 as u8 => handles: [u16]
}

record! {
    /// Response of 0102h, request of 0103h. Of each byte, bits 1:0 are the mode of a log's
    /// interrupt and bits 7:4 its vector.
    struct EventInterrupts: 5 {
        /// Interrupt of the informational log.
        0 => info: u8,
        /// Interrupt of the warning log.
        1 => warning: u8,
        /// Interrupt of the failure log.
        2 => failure: u8,
        /// Interrupt of the fatal log.
        3 => fatal: u8,
        /// Interrupt of the dynamic capacity log.
        4 => dynamic_capacity: u8,
    }
}

record! {
    /// A log that the component has.
    struct SupportedLog: 20 {
        /// UUID of the log.
        0 => log: Uuid,
        /// Length of the log in bytes.
        16 => len: u32,
    }
}

message! {
    /// Response of Get Supported Logs (0400h).
    struct SupportedLogs: 8 {}
    /// Every log that the component has.
    0 as u16 => logs: [SupportedLog]
}

record! {
    /// Request of Get Log (0401h).
    struct GetLog: 24 {
        /// UUID of the log.
        0 => log: Uuid,
        /// Offset of the first byte to return.
        16 => offset: u32,
        /// Bytes to return at most.
        20 => len: u32,
    }
}

/// Response of Get Log (0401h): all of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogData<'a> {
    /// Bytes of the log from the requested offset on.
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
