//! Enhanced notifications of a GFD (0107h, 0108h) and the buffer a host reads them from (0109h, 010Ah).
//!
//! [`FmNotification`] 40 bytes, [`HostNotification`] 32 bytes (also the payload of the GAM message),
//! [`GamBuffer`] one 64-bit word.
//!
//! Units: bytes; timestamps in ns.
//! Source: docs/spec/wire-formats.md §4.6, §5.4; CXL 3.1 sections 7.7.14.9 and 8.2.9.2.9.

use super::layout::record;
use super::wire::{Bits, Wire};
use crate::ParseError;
use crate::fabric::{Dpa, Hpa, Pid};

/// Type of a notification.
pub mod kind {
    /// Nothing.
    pub const NO_OP: u8 = 0x00;
    /// A standard event record is in the log.
    pub const STANDARD: u8 = 0x01;
    /// An access that was not allowed; the trigger bits say why.
    pub const ACCESS_ERROR: u8 = 0x02;
    /// A request that the GFD does not know.
    pub const UNRECOGNISED_REQUEST: u8 = 0x03;
    /// A packet that has no place here.
    pub const UNEXPECTED_PACKET: u8 = 0x04;
    /// A field of a request is wrong.
    pub const INVALID_INPUT: u8 = 0x05;
    /// A flush to persistence failed.
    pub const FLUSH_FAILED: u8 = 0x06;
    /// Execution failed, not fatal.
    pub const EXECUTION_FAILED: u8 = 0x07;
    /// Execution failed, fatal.
    pub const EXECUTION_FATAL: u8 = 0x08;
    /// Health changed.
    pub const HEALTH: u8 = 0x09;
    /// The list of extents changed.
    pub const EXTENTS_CHANGED: u8 = 0x0A;
}

/// Trigger bits of [`kind::ACCESS_ERROR`].
pub mod trigger {
    /// No decoder, or more than one, takes the HPA.
    pub const NO_HPA_MAP: u8 = 1 << 0;
    /// The DPA cannot be turned into an HPA.
    pub const DPA_TO_HPA: u8 = 1 << 1;
    /// The block belongs to no group.
    pub const NO_GROUP: u8 = 1 << 2;
    /// The SAT denies the group.
    pub const SAT_DENIED: u8 = 1 << 3;
}

/// Flags of both notifications.
pub mod flags {
    /// A request brought it about; always set towards hosts.
    pub const REQUEST: u16 = 1 << 1;
    /// The DPA is valid.
    pub const DPA: u16 = 1 << 2;
    /// The HPA is valid.
    pub const HPA: u16 = 1 << 3;
    /// The group is valid; to the FM only.
    pub const GROUP: u16 = 1 << 4;
    /// The opcode is valid.
    pub const OPCODE: u16 = 1 << 5;
}

/// Bits of [`FmNotification::events`].
pub mod events {
    /// Informational log.
    pub const INFO: u16 = 1 << 0;
    /// Warning log.
    pub const WARNING: u16 = 1 << 1;
    /// Failure log.
    pub const FAILURE: u16 = 1 << 2;
    /// Fatal log.
    pub const FATAL: u16 = 1 << 3;
    /// Dynamic capacity log.
    pub const DYNAMIC_CAPACITY: u16 = 1 << 4;
    /// A command that ran in the background is done.
    pub const BACKGROUND_DONE: u16 = 1 << 15;
}

record! {
    /// What a GFD tells the fabric manager (0107h).
    struct FmNotification: 40 {
        /// Who tells.
        0 => pid: Pid,
        /// [`events`].
        2 => events: u16,
        /// [`kind`].
        4 => kind: u8,
        /// What set it off; [`trigger`].
        5 => trigger: u8,
        /// Who sent the request.
        6 => rpid: Pid,
        /// Where in the device.
        8 => dpa: Dpa,
        /// Where for the host.
        16 => hpa: Hpa,
        /// Group of the block.
        24 => group: u16,
        /// What the request was.
        26 => opcode: Bits<4>,
        /// [`flags`].
        28 => flags: u16,
        /// Handle of the event record.
        30 => event: u16,
        /// When, in ns.
        32 => timestamp_ns: u64,
    }
}

record! {
    /// What a GFD tells a host through its GAE (0108h); the group stays hidden.
    struct HostNotification: 32 {
        /// Who tells.
        0 => pid: Pid,
        /// [`kind`].
        2 => kind: u8,
        /// What the request was.
        3 => opcode: Bits<4>,
        /// [`flags`]; [`flags::REQUEST`] is always set.
        4 => flags: u16,
        /// Who sent the request.
        6 => rpid: Pid,
        /// Where in the device.
        8 => dpa: Dpa,
        /// Where for the host.
        16 => hpa: Hpa,
        /// When, in ns.
        24 => timestamp_ns: u64,
    }
}

/// State of the buffer, got (0109h) or set (010Ah).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GamBuffer {
    /// The address holds.
    pub valid: bool,
    /// Got: an entry was lost. Set: forget that.
    pub overflow: bool,
    /// Where the buffer is; bits 51:5 count.
    pub address: Hpa,
    /// Got: head, which the GAE writes next. Set: tail, which the host reads next.
    pub index: u8,
}

impl GamBuffer {
    /// Bits of the address that count.
    pub const ADDRESS: u64 = 0x000F_FFFF_FFFF_FFE0;
}

impl Wire for GamBuffer {
    const LEN: usize = 8;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let word = u64::read(bytes)?;
        let [.., index] = word.to_le_bytes();
        let address = Hpa(word & Self::ADDRESS);
        Ok(Self { valid: word & 1 != 0, overflow: word & 2 != 0, address, index })
    }

    fn write(&self, bytes: &mut [u8]) {
        let flags = u64::from(self.valid) | (u64::from(self.overflow) << 1);
        let index = u64::from(self.index) << 56;
        (flags | (self.address.0 & Self::ADDRESS) | index).write(bytes);
    }
}
