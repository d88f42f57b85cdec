//! What an enumeration gives away, what it asks for, and why it may end without a tree.
//!
//! [`HostSpec`] in, [`Request`]s out, [`EnumerateError`] at a bad end.
//!
//! Units: bytes, nanoseconds, bus numbers.
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 §2.3.1, §6.7.

use weft_parsers::fabric::{Bdf, Hpa};

use super::ln::LnSettings;
use crate::pci::bridge::{Window, Windows};
use crate::pci::space::{ByteEnables, Reg};

/// What is kept free below each hot-plug slot, beyond what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Bus numbers besides the slot's own.
    pub buses: u8,
    /// I/O ports, as far as there is room.
    pub io: u64,
    /// Bytes of memory below 4 GiB, as far as there is room.
    pub mem: u64,
    /// Bytes of prefetchable memory, as far as there is room.
    pub pref: u64,
}

/// What an enumeration may assign, and how long it waits for functions that are not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Bus of its root ports.
    pub bus_first: u8,
    /// Last bus.
    pub bus_last: u8,
    /// Addresses of I/O, memory below 4 GiB, and prefetchable memory, which may be above.
    pub apertures: Windows,
    /// Kept for hot plug.
    pub reserve: Reserve,
    /// How often a function that is not ready is asked again.
    pub retries: u16,
    /// Pause between two such questions.
    pub retry_ns: u64,
    /// Accesses after which it gives up.
    pub accesses_max: u64,
    /// Where bridges send their interrupts, with their BDF as data; `None` for no hot plug.
    pub msi: Option<u64>,
    /// Where memory of devices is placed that names no place itself; `None` for nowhere.
    pub hdm: Option<Window>,
    /// Addresses of the fabric: only memory that names its place is placed there.
    pub fabric: Option<Window>,
    /// What it sets on requesters of Lightweight Notification; `None` leaves them as they are.
    pub ln: Option<LnSettings>,
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            bus_first: 0,
            bus_last: 255,
            apertures: Windows {
                io: Some(Window { base: 0x1000, limit: 0xFFFF }),
                mem: Some(Window { base: 0x8000_0000, limit: 0xDFFF_FFFF }),
                pref: Some(Window { base: 0x40_0000_0000, limit: 0x7F_FFFF_FFFF }),
            },
            reserve: Reserve { buses: 2, io: 0x1000, mem: 4 << 20, pref: 2 << 20 },
            retries: 100,
            retry_ns: 10_000_000,
            accesses_max: 4_000_000,
            msi: Some(0xFEE0_0000),
            hdm: Some(Window { base: 0x80_0000_0000, limit: 0xFF_FFFF_FFFF }),
            fabric: None,
            ln: None,
        }
    }
}

/// Why an enumeration found no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnumerateError {
    /// A tree that does not end, or registers that answer anything.
    #[error("gave up after {max} accesses")]
    TooManyAccesses {
        /// Allowed.
        max: u64,
    },
    /// The function is not in the tree, or not a bridge with a bus below.
    #[error("{bdf} is no bridge with a bus below it")]
    NoBridge {
        /// Who.
        bdf: Bdf,
    },
}

/// An access, or a pause, that the enumerator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read a register.
    Read {
        /// Whose.
        bdf: Bdf,
        /// Which.
        reg: Reg,
    },
    /// Write a register; the answer's value does not matter.
    Write {
        /// Whose.
        bdf: Bdf,
        /// Which.
        reg: Reg,
        /// Value.
        value: u32,
        /// Bytes of it.
        enables: ByteEnables,
    },
    /// Read a register in memory, of 32 bits.
    Load {
        /// Where.
        addr: Hpa,
    },
    /// Write one; the answer's value does not matter.
    Store {
        /// Where.
        addr: Hpa,
        /// Value.
        value: u32,
    },
    /// Let time pass; the answer's value does not matter.
    Wait {
        /// How much.
        ns: u64,
    },
}
