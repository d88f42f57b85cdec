//! Offsets and bits of configuration registers, for functions and for the software that reads them.
//!
//! Offsets are in bytes from the start of the space, or of a capability; a mask is for the register named above it.
//!
//! Source: PCIe 6.0 §7.5.1 (headers), §7.5.3 (PCI Express), §7.7.1 (MSI), §7.8.4 (AER); Linux's
//! `pci_regs.h` names the same.

/// Vendor ID, u16; ffffh where no function is, 0001h where one is not ready (§2.3.1).
pub const VENDOR: u16 = 0x00;
/// Device ID, u16.
pub const DEVICE: u16 = 0x02;
/// Command, u16.
pub const COMMAND: u16 = 0x04;
/// Status, u16.
pub const STATUS: u16 = 0x06;
/// Revision, u8; class code, u24 above it.
pub const REVISION: u16 = 0x08;
/// Cache line size, u8.
pub const CACHE_LINE: u16 = 0x0C;
/// Header type, u8: bit 7 multi-function, bits 6:0 0 or 1.
pub const HEADER_TYPE: u16 = 0x0E;
/// First base address register, u32.
pub const BAR0: u16 = 0x10;
/// Subsystem vendor, u16; subsystem id above it (type 0).
pub const SUBSYSTEM: u16 = 0x2C;
/// Pointer to the first capability, u8.
pub const CAPABILITIES: u16 = 0x34;
/// Interrupt line, u8; pin above it.
pub const INTERRUPT_LINE: u16 = 0x3C;
/// Interrupt pin, u8: 1 to 4 for INTA to INTD, 0 for none.
pub const INTERRUPT_PIN: u16 = 0x3D;

/// Primary, secondary, subordinate bus, u8 each (type 1).
pub const BUSES: u16 = 0x18;
/// I/O base and limit, u8 each.
pub const IO_WINDOW: u16 = 0x1C;
/// Secondary status, u16.
pub const SECONDARY_STATUS: u16 = 0x1E;
/// Memory base and limit, u16 each.
pub const MEM_WINDOW: u16 = 0x20;
/// Prefetchable base and limit, u16 each.
pub const PREF_WINDOW: u16 = 0x24;
/// Upper halves of prefetchable base and limit, u32 each.
pub const PREF_UPPER: u16 = 0x28;
/// Upper halves of I/O base and limit, u16 each.
pub const IO_UPPER: u16 = 0x30;
/// Bridge control, u16.
pub const BRIDGE_CONTROL: u16 = 0x3E;

/// Command: I/O space, memory space, bus master, parity, SERR#, interrupt disable.
pub mod command {
    pub const IO: u16 = 1 << 0;
    pub const MEM: u16 = 1 << 1;
    pub const MASTER: u16 = 1 << 2;
    pub const PARITY: u16 = 1 << 6;
    pub const SERR: u16 = 1 << 8;
    pub const INTX_OFF: u16 = 1 << 10;
    /// All that software may write.
    pub const WRITABLE: u16 = IO | MEM | MASTER | PARITY | SERR | INTX_OFF;
}

/// Status, and secondary status: capability list, and the errors that a 1 clears.
pub mod status {
    pub const INTX: u16 = 1 << 3;
    pub const CAPABILITIES: u16 = 1 << 4;
    pub const TARGET_ABORT_SENT: u16 = 1 << 11;
    pub const MASTER_ABORT_RECEIVED: u16 = 1 << 13;
    pub const SYSTEM_ERROR_SENT: u16 = 1 << 14;
    /// Errors; a 1 clears.
    pub const ERRORS: u16 = 0xF900;
}

/// Bridge control: parity, SERR#, ISA, VGA, VGA 16 bit, secondary bus reset.
pub mod bridge_control {
    pub const SERR: u16 = 1 << 1;
    pub const RESET: u16 = 1 << 6;
    /// All that software may write.
    pub const WRITABLE: u16 = 0x5F;
}

/// Ids of capabilities.
pub mod cap {
    pub const MSI: u8 = 0x05;
    pub const EXPRESS: u8 = 0x10;
}

/// Ids of extended capabilities.
pub mod ext {
    pub const AER: u16 = 0x0001;
    pub const SERIAL: u16 = 0x0003;
    pub const LNR: u16 = 0x001C;
    pub const DVSEC: u16 = 0x0023;
    pub const DOE: u16 = 0x002E;
}

/// Offsets in the PCI Express capability, and its bits.
pub mod express {
    pub const CAP: u16 = 0x02;
    pub const CAP_SLOT: u16 = 1 << 8;
    pub const DEV_CAP: u16 = 0x04;
    pub const DEV_CAP_EXT_TAG: u32 = 1 << 5;
    pub const DEV_CAP_ROLE_BASED: u32 = 1 << 15;
    pub const DEV_CAP_FLR: u32 = 1 << 28;
    pub const DEV_CTL: u16 = 0x08;
    /// Reporting of correctable, non-fatal, fatal errors, and of unsupported requests.
    pub const DEV_CTL_CORRECTABLE: u16 = 1 << 0;
    pub const DEV_CTL_NON_FATAL: u16 = 1 << 1;
    pub const DEV_CTL_FATAL: u16 = 1 << 2;
    pub const DEV_CTL_UNSUPPORTED: u16 = 1 << 3;
    /// On a function with FLR: reset it; reads 0.
    pub const DEV_CTL_FLR: u16 = 1 << 15;
    pub const DEV_STA: u16 = 0x0A;
    pub const DEV_STA_CORRECTABLE: u16 = 1 << 0;
    pub const DEV_STA_NON_FATAL: u16 = 1 << 1;
    pub const DEV_STA_FATAL: u16 = 1 << 2;
    pub const DEV_STA_UNSUPPORTED: u16 = 1 << 3;
    pub const LINK_CAP: u16 = 0x0C;
    pub const LINK_CAP_SURPRISE_DOWN: u32 = 1 << 19;
    pub const LINK_CAP_ACTIVE: u32 = 1 << 20;
    pub const LINK_CTL: u16 = 0x10;
    pub const LINK_CTL_DISABLE: u16 = 1 << 4;
    pub const LINK_CTL_RETRAIN: u16 = 1 << 5;
    pub const LINK_STA: u16 = 0x12;
    pub const LINK_STA_ACTIVE: u16 = 1 << 13;
    pub const SLOT_CAP: u16 = 0x14;
    pub const SLOT_CAP_POWER: u32 = 1 << 1;
    pub const SLOT_CAP_SURPRISE: u32 = 1 << 5;
    pub const SLOT_CAP_HOT_PLUG: u32 = 1 << 6;
    pub const SLOT_CAP_NO_COMPLETED: u32 = 1 << 18;
    pub const SLOT_CTL: u16 = 0x18;
    pub const SLOT_CTL_PRESENCE: u16 = 1 << 3;
    pub const SLOT_CTL_COMPLETED: u16 = 1 << 4;
    pub const SLOT_CTL_INTERRUPT: u16 = 1 << 5;
    pub const SLOT_CTL_POWER_OFF: u16 = 1 << 10;
    pub const SLOT_CTL_LINK: u16 = 1 << 12;
    pub const SLOT_STA: u16 = 0x1A;
    pub const SLOT_STA_PRESENCE: u16 = 1 << 3;
    pub const SLOT_STA_COMPLETED: u16 = 1 << 4;
    /// State, read only: something is in the slot.
    pub const SLOT_STA_PRESENT: u16 = 1 << 6;
    pub const SLOT_STA_LINK: u16 = 1 << 8;
    pub const ROOT_CTL: u16 = 0x1C;
    pub const DEV_CAP2: u16 = 0x24;
    pub const DEV_CTL2: u16 = 0x28;
    pub const LINK_CAP2: u16 = 0x2C;
    pub const LINK_CTL2: u16 = 0x30;
    /// Bytes of version 2 of the capability.
    pub const LEN: u16 = 0x3C;
}

/// Offsets in the MSI capability with a 64-bit address, bytes.
pub mod msi {
    pub const CONTROL: u16 = 0x02;
    pub const CONTROL_ENABLE: u16 = 1 << 0;
    pub const CONTROL_64: u16 = 1 << 7;
    pub const ADDRESS: u16 = 0x04;
    pub const DATA: u16 = 0x0C;
    pub const LEN: u16 = 0x10;
}

/// Offsets in the Advanced Error Reporting capability, and uncorrectable errors.
pub mod aer {
    pub const STATUS: u16 = 0x04;
    pub const MASK: u16 = 0x08;
    pub const SEVERITY: u16 = 0x0C;
    pub const COR_STATUS: u16 = 0x10;
    pub const COR_MASK: u16 = 0x14;
    pub const CONTROL: u16 = 0x18;
    pub const HEADER: u16 = 0x1C;
    pub const ROOT_COMMAND: u16 = 0x2C;
    pub const ROOT_STATUS: u16 = 0x30;
    pub const SOURCE: u16 = 0x34;
    pub const LEN: u16 = 0x2C;
    pub const LEN_ROOT: u16 = 0x38;
}

/// Offsets in the LN requester capability (docs/spec/wire-formats.md §3.3).
pub mod lnr {
    pub const CAP: u16 = 0x04;
    pub const CAP_64: u16 = 1 << 0;
    pub const CAP_128: u16 = 1 << 1;
    pub const CONTROL: u16 = 0x06;
    pub const ENABLE: u16 = 1 << 0;
    pub const CLS_128: u16 = 1 << 1;
    pub const LIMIT_SHIFT: u16 = 8;
    pub const LIMIT: u16 = 0x1F << LIMIT_SHIFT;
    pub const LEN: u16 = 0x08;
}

/// Offsets in a designated vendor-specific capability (PCIe 6.0 §7.9.6).
pub mod dvsec {
    pub const HEADER1: u16 = 0x04;
    pub const HEADER2: u16 = 0x08;
    /// Vendor ID of the CXL consortium (CXL 3.1 §8.1.1).
    pub const CXL: u16 = 0x1E98;
    /// PCIe DVSEC for CXL Devices (CXL 3.1 §8.1.3).
    pub const CXL_DEVICE: u16 = 0x0000;
    /// Register Locator (CXL 3.1 §8.1.9).
    pub const LOCATOR: u16 = 0x0008;
}

/// Offsets in the Data Object Exchange capability, and its bits (PCIe 6.0 §7.9.24).
pub mod doe {
    pub const CAP: u16 = 0x04;
    pub const CONTROL: u16 = 0x08;
    pub const CONTROL_ABORT: u32 = 1 << 0;
    pub const CONTROL_GO: u32 = 1 << 31;
    pub const STATUS: u16 = 0x0C;
    pub const STATUS_BUSY: u32 = 1 << 0;
    pub const STATUS_ERROR: u32 = 1 << 2;
    pub const STATUS_READY: u32 = 1 << 31;
    pub const WRITE: u16 = 0x10;
    pub const READ: u16 = 0x14;
    pub const LEN: u16 = 0x18;
    /// Double words of a data object's header.
    pub const HEAD_DW: usize = 2;
    /// Bits of its length, in double words; 0 is one more than they hold.
    pub const LENGTH: u32 = 0x3_FFFF;
    /// Vendor of the discovery protocol, whose type is 0.
    pub const PCI_SIG: u16 = 0x0001;
    pub const DISCOVERY: u8 = 0;
    /// Type of the table access protocol of the CXL consortium (CXL 3.1 §8.1.11).
    pub const TABLE_ACCESS: u8 = 2;
}
