//! Registers of a PCI-to-PCI bridge that route TLPs: bus numbers, windows, enables.
//!
//! I/O windows are multiples of 4 KiB, memory windows of 1 MiB; both bounds of a [`Window`] are inclusive.
//!
//! Source: PCIe 6.0 section 2.2.4; PCI-to-PCI Bridge Architecture 1.2 chapter 3; docs/spec/wire-formats.md §3.4.

/// A range of addresses, in bytes, including its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    base: u64,
    limit: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self::OFF
    }
}

impl Window {
    /// The empty window.
    pub const OFF: Self = Self { base: 1, limit: 0 };

    /// From `base` to `limit`; empty if the limit is below the base, as in the registers.
    #[must_use]
    pub const fn new(base: u64, limit: u64) -> Self {
        if limit < base { Self::OFF } else { Self { base, limit } }
    }

    /// The window of I/O Base and Limit and their upper 16 bits, which are used if Base says 32-bit addresses.
    #[must_use]
    pub const fn io(base: u8, limit: u8, base_upper: u16, limit_upper: u16) -> Self {
        let (low, last) = ((base as u64 & 0xF0) << 8, (limit as u64 & 0xF0) << 8 | 0xFFF);
        // The low four bits of Base are the addressing capability: 1 means that the upper registers exist.
        if base & 0xF == 1 {
            Self::new((base_upper as u64) << 16 | low, (limit_upper as u64) << 16 | last)
        } else {
            Self::new(low, last)
        }
    }

    /// The window of Memory Base and Limit.
    #[must_use]
    pub const fn memory(base: u16, limit: u16) -> Self {
        Self::new((base as u64 & 0xFFF0) << 16, (limit as u64 & 0xFFF0) << 16 | 0xF_FFFF)
    }

    /// The window of Prefetchable Base and Limit and their upper 32 bits, which are used if Base says 64-bit addresses.
    #[must_use]
    pub const fn prefetchable(base: u16, limit: u16, base_upper: u32, limit_upper: u32) -> Self {
        let low = (base as u64 & 0xFFF0) << 16;
        let last = (limit as u64 & 0xFFF0) << 16 | 0xF_FFFF;
        if base & 0xF == 1 {
            Self::new((base_upper as u64) << 32 | low, (limit_upper as u64) << 32 | last)
        } else {
            Self::new(low, last)
        }
    }

    /// Whether `address` is inside the window.
    #[inline]
    #[must_use]
    pub const fn contains(self, address: u64) -> bool {
        self.base <= address && address <= self.limit
    }
}

/// The registers of a PCI-to-PCI bridge (Type 1 header) that route TLPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Command register: bit 0 I/O space, bit 1 memory space, bit 2 bus master.
    pub command: u16,
    /// Number of the bus above the bridge.
    pub primary: u8,
    /// Number of the bus right below; 0 until enumeration sets it.
    pub secondary: u8,
    /// Highest bus number below the bridge.
    pub subordinate: u8,
    /// ARI forwarding: device numbers above 0 exist on the link below.
    pub ari: bool,
    /// I/O addresses that are below the bridge.
    pub io: Window,
    /// Memory addresses that are below the bridge.
    pub memory: Window,
    /// Prefetchable memory addresses that are below the bridge.
    pub prefetchable: Window,
}

impl Bridge {
    /// Value of `command` with I/O space, memory space and bus master enabled.
    pub const ALL_ON: u16 = 7;

    /// Whether I/O requests pass downwards.
    #[inline]
    #[must_use]
    pub const fn io_on(&self) -> bool {
        self.command & 1 != 0
    }

    /// Whether memory requests pass downwards.
    #[inline]
    #[must_use]
    pub const fn memory_on(&self) -> bool {
        self.command & 2 != 0
    }

    /// Whether memory and I/O requests pass upwards.
    #[inline]
    #[must_use]
    pub const fn master_on(&self) -> bool {
        self.command & 4 != 0
    }

    /// Whether `bus` is below the bridge.
    #[inline]
    #[must_use]
    pub const fn has_bus(&self, bus: u8) -> bool {
        // Secondary 0 is the reset value: such a bridge has no bus, not even bus 0, which is the root's.
        self.secondary != 0 && self.secondary <= bus && bus <= self.subordinate
    }

    /// Whether a memory request for `address` passes downwards.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self, address: u64) -> bool {
        self.memory_on() && (self.memory.contains(address) || self.prefetchable.contains(address))
    }

    /// Whether an I/O request for `address` passes downwards.
    #[inline]
    #[must_use]
    pub const fn has_io(&self, address: u64) -> bool {
        self.io_on() && self.io.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_registers() {
        #[rustfmt::skip] // columns: name, window, first, last
        let cases = [
            ("io, 16 bits",     Window::io(0x20, 0x30, 9, 9),                   0x2000, 0x3FFF),
            ("io, 32 bits",     Window::io(0x21, 0x31, 1, 2),                   0x1_2000, 0x2_3FFF),
            ("memory",          Window::memory(0xE000, 0xE010),                 0xE000_0000, 0xE01F_FFFF),
            ("memory, low bits", Window::memory(0xE00F, 0xE00F),                0xE000_0000, 0xE00F_FFFF),
            ("prefetchable 32", Window::prefetchable(0xF000, 0xF000, 7, 7),     0xF000_0000, 0xF00F_FFFF),
            ("prefetchable 64", Window::prefetchable(0x0001, 0xFFF1, 0x10, 0x1F), 0x10_0000_0000, 0x1F_FFFF_FFFF),
        ];
        for (name, window, first, last) in cases {
            assert_eq!(window, Window::new(first, last), "{name}");
            let inside = [first - 1, first, last, last + 1].map(|address| window.contains(address));
            assert_eq!(inside, [false, true, true, false], "{name}");
        }
        for off in [Window::memory(0xFFF0, 0), Window::io(0xF0, 0, 0, 0), Window::default()] {
            assert_eq!(off, Window::OFF);
            assert!(![0, 1, u64::MAX].iter().any(|&address| off.contains(address)));
        }
    }

    #[test]
    fn nothing_passes_that_is_not_enabled() {
        let all = Window::new(0, u64::MAX);
        for command in 0..8 {
            let bridge = Bridge { command, io: all, memory: all, ..Bridge::default() };
            let want = [command & 1, command & 2, command & 4].map(|bit| bit != 0);
            assert_eq!([bridge.has_io(0), bridge.has_memory(0), bridge.master_on()], want);
        }
        let unset = Bridge { subordinate: 255, ..Bridge::default() };
        assert!(!unset.has_bus(0) && !unset.has_bus(5), "bus numbers are not set yet");
    }
}
