//! Enhanced notifications of a GFD (0107h, 0108h), and the GAM buffer of a host (0109h, 010Ah).
//!
//! [`HostNotification`] is also the payload of the GAM message. Timestamps are in ns.
//!
//! Source: docs/spec/wire-formats.md §4.6, §5.4; CXL 3.1 sections 7.7.14.9 and 8.2.9.2.9.

use super::layout::record;
use super::wire::{Bits, Wire};
use crate::ParseError;
use crate::fabric::{Dpa, Hpa, Pid};

/// Type of a notification.
pub mod kind {
    /// No event; the notification is ignored.
    pub const NO_OP: u8 = 0x00;
    /// An event record of a standard kind is in the log.
    pub const STANDARD: u8 = 0x01;
    /// A request was denied; the trigger bits give the reason.
    pub const ACCESS_ERROR: u8 = 0x02;
    /// A request that the GFD does not know.
    pub const UNRECOGNISED_REQUEST: u8 = 0x03;
    /// A packet that a GFD does not expect.
    pub const UNEXPECTED_PACKET: u8 = 0x04;
    /// A field of a request has an invalid value.
    pub const INVALID_INPUT: u8 = 0x05;
    /// A flush to persistence failed.
    pub const FLUSH_FAILED: u8 = 0x06;
    /// A request failed; the GFD goes on.
    pub const EXECUTION_FAILED: u8 = 0x07;
    /// A request failed; the GFD cannot go on.
    pub const EXECUTION_FATAL: u8 = 0x08;
    /// The device's health has changed.
    pub const HEALTH: u8 = 0x09;
    /// The list of extents changed.
    pub const EXTENTS_CHANGED: u8 = 0x0A;
}

/// Trigger bits of [`kind::ACCESS_ERROR`].
pub mod trigger {
    /// No decoder, or more than one, takes the HPA.
    pub const NO_HPA_MAP: u8 = 1 << 0;
    /// The DPA does not lie in a range that maps to an HPA.
    pub const DPA_TO_HPA: u8 = 1 << 1;
    /// The block belongs to no group.
    pub const NO_GROUP: u8 = 1 << 2;
    /// The SAT denies the group.
    pub const SAT_DENIED: u8 = 1 << 3;
}

/// Flags of both notifications.
pub mod flags {
    /// Bit 1: a request is the cause. Always set towards hosts.
    pub const REQUEST: u16 = 1 << 1;
    /// Bit 2: [`FmNotification::dpa`](super::FmNotification::dpa) is valid.
    pub const DPA: u16 = 1 << 2;
    /// Bit 3: [`FmNotification::hpa`](super::FmNotification::hpa) is valid.
    pub const HPA: u16 = 1 << 3;
    /// Bit 4: [`FmNotification::group`](super::FmNotification::group) is valid. Never set towards
    /// hosts.
    pub const GROUP: u16 = 1 << 4;
    /// Bit 5: [`FmNotification::opcode`](super::FmNotification::opcode) is valid.
    pub const OPCODE: u16 = 1 << 5;
}

/// Bits of [`FmNotification::events`].
pub mod events {
    /// Bit 0: the informational log has a new record.
    pub const INFO: u16 = 1 << 0;
    /// Bit 1: the warning log has a new record.
    pub const WARNING: u16 = 1 << 1;
    /// Bit 2: the failure log has a new record.
    pub const FAILURE: u16 = 1 << 2;
    /// Bit 3: the fatal log has a new record.
    pub const FATAL: u16 = 1 << 3;
    /// Bit 4: the dynamic capacity log has a new record.
    pub const DYNAMIC_CAPACITY: u16 = 1 << 4;
    /// Bit 15: a background command is done.
    pub const BACKGROUND_DONE: u16 = 1 << 15;
}

record! {
    /// Notification from a GFD to the fabric manager (0107h).
    struct FmNotification: 40 {
        /// PBR-ID of the GFD.
        0 => pid: Pid,
        /// Logs with a new record; bits of [`mod@events`].
        2 => events: u16,
        /// Type; a constant of [`mod@kind`].
        4 => kind: u8,
        /// Cause of an access error; bits of [`mod@trigger`].
        5 => trigger: u8,
        /// RPID of the requester.
        6 => rpid: Pid,
        /// Address in the device; valid with [`flags::DPA`].
        8 => dpa: Dpa,
        /// Address as the host sent it; valid with [`flags::HPA`].
        16 => hpa: Hpa,
        /// `GrpID` of the block; valid with [`flags::GROUP`].
        24 => group: u16,
        /// Opcode of the request, 4 bits; valid with [`flags::OPCODE`].
        26 => opcode: Bits<4>,
        /// Validity of the fields above; bits of [`mod@flags`].
        28 => flags: u16,
        /// Handle of the event record in the log.
        30 => event: u16,
        /// Time of the event in ns.
        32 => timestamp_ns: u64,
    }
}

record! {
    /// Notification from a GFD to a host through its GAE (0108h). It has no group: groups are never
    /// sent to hosts.
    struct HostNotification: 32 {
        /// PBR-ID of the GFD.
        0 => pid: Pid,
        /// Type; a constant of [`mod@kind`].
        2 => kind: u8,
        /// Opcode of the request, 4 bits; valid with [`flags::OPCODE`].
        3 => opcode: Bits<4>,
        /// Validity of the fields; bits of [`mod@flags`]. [`flags::REQUEST`] is always set.
        4 => flags: u16,
        /// RPID of the requester.
        6 => rpid: Pid,
        /// Address in the device; valid with [`flags::DPA`].
        8 => dpa: Dpa,
        /// Address as the host sent it; valid with [`flags::HPA`].
        16 => hpa: Hpa,
        /// Time of the event in ns.
        24 => timestamp_ns: u64,
    }
}

/// State of the GAM buffer in the host's memory, read (0109h) or set (010Ah).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GamBuffer {
    /// Bit 0: the address is valid.
    pub valid: bool,
    /// Bit 1. Read: an entry was lost, as the buffer was full. Set: clear that.
    pub overflow: bool,
    /// Address of the buffer; bits 51:5.
    pub address: Hpa,
    /// Bits 63:56. Read: head, the entry that the GAE writes next. Set: tail, the entry that the
    /// host reads next.
    pub index: u8,
}

impl GamBuffer {
    /// Bits of the word that hold the address, 51:5.
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
