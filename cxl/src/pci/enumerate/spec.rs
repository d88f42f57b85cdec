//! Inputs, requests and errors of an enumeration.
//!
//! Sizes are in bytes, times in nanoseconds.
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 §2.3.1, §6.7.

use weft_parsers::fabric::{Bdf, Hpa};

use super::ln::LnSettings;
use crate::pci::bridge::{Window, Windows};
use crate::pci::space::{ByteEnables, Reg};

/// Room kept free below each hot-plug slot, in addition to the nodes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Bus numbers besides the slot's own.
    pub buses: u8,
    /// I/O ports, given up first when space is short.
    pub io: u64,
    /// Bytes of memory below 4 GiB, given up first when space is short.
    pub mem: u64,
    /// Bytes of prefetchable memory, given up first when space is short.
    pub pref: u64,
}

/// Resources that an enumeration may assign, and its patience with functions that are not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Bus of the host's root ports.
    pub bus_first: u8,
    /// Highest bus number that may be assigned.
    pub bus_last: u8,
    /// Address space for BARs: I/O, memory below 4 GiB, and prefetchable memory, which may be above.
    pub apertures: Windows,
    /// Room kept for hot plug.
    pub reserve: Reserve,
    /// Number of times that a function with retry status is read again.
    pub retries: u16,
    /// Pause between two such reads, nanoseconds.
    pub retry_ns: u64,
    /// Number of accesses after which the enumeration fails.
    pub accesses_max: u64,
    /// Address of interrupt messages, whose data is the sender's BDF; `None` disables hot plug and MSI.
    pub msi: Option<u64>,
    /// Room for device memory that does not ask for an address; `None` places it nowhere.
    pub hdm: Option<Window>,
    /// Addresses of the fabric, where only memory that asks for its address is placed.
    pub fabric: Option<Window>,
    /// Settings of Lightweight Notification requesters; `None` leaves them as they are.
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
            // 4 MiB: the window of a virtual link that is hot-added holds component registers of its bridges,
            // besides BARs of the device behind it.
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

/// Reason why an enumeration failed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnumerateError {
    /// The access limit was reached: the hierarchy does not end, or registers read as anything.
    #[error("gave up after {max} accesses")]
    TooManyAccesses {
        /// The limit, [`HostSpec::accesses_max`].
        max: u64,
    },
    /// The function is not in the tree, or not a bridge with a bus below.
    #[error("{bdf} is no bridge with a bus below it")]
    NoBridge {
        /// Bridge that was asked for.
        bdf: Bdf,
    },
}

/// An access, or a pause, that the enumerator asks its caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read a configuration register.
    Read {
        /// Function or bridge to access.
        bdf: Bdf,
        reg: Reg,
    },
    /// Write a configuration register; the answer's value is ignored.
    Write {
        /// Function or bridge to access.
        bdf: Bdf,
        reg: Reg,
        value: u32,
        /// Bytes of the register to write.
        enables: ByteEnables,
    },
    /// Read a 32-bit register in memory.
    Load {
        /// Host physical address of the register.
        addr: Hpa,
    },
    /// Write a 32-bit register in memory; the answer's value is ignored.
    Store {
        /// Host physical address of the register.
        addr: Hpa,
        value: u32,
    },
    /// Let time pass; the answer's value is ignored.
    Wait {
        /// Nanoseconds to wait.
        ns: u64,
    },
}
