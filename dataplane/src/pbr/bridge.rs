//! What of a PCI-to-PCI bridge's registers routes TLPs: bus numbers, windows, enables.
//! Type 1 registers → [`Bridge`] with inclusive [`Window`]s.
//!
//! Units: bytes; I/O windows count in 4 KiB, memory windows in 1 MiB.
//! Source: PCIe 6.0 section 2.2.4; PCI-to-PCI Bridge Architecture 1.2 chapter 3; docs/spec/wire-formats.md §3.4.

/// A range of addresses, its last one included.
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
    /// Nothing.
    pub const OFF: Self = Self { base: 1, limit: 0 };

    /// From `base` to `limit`; nothing when the limit is below the base, as in the registers.
    #[must_use]
    pub const fn new(base: u64, limit: u64) -> Self {
        if limit < base { Self::OFF } else { Self { base, limit } }
    }

    /// I/O Base, Limit, and their upper 16 bits, which count where Base says 32-bit addresses.
    #[must_use]
    pub const fn io(base: u8, limit: u8, base_upper: u16, limit_upper: u16) -> Self {
        let (low, last) = ((base as u64 & 0xF0) << 8, (limit as u64 & 0xF0) << 8 | 0xFFF);
        if base & 0xF == 1 {
            Self::new((base_upper as u64) << 16 | low, (limit_upper as u64) << 16 | last)
        } else {
            Self::new(low, last)
        }
    }

    /// Memory Base and Limit.
    #[must_use]
    pub const fn memory(base: u16, limit: u16) -> Self {
        Self::new((base as u64 & 0xFFF0) << 16, (limit as u64 & 0xFFF0) << 16 | 0xF_FFFF)
    }

    /// Prefetchable Base, Limit, and their upper 32 bits, which count where Base says 64-bit addresses.
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

    /// Whether `address` lies inside.
    #[inline]
    #[must_use]
    pub const fn contains(self, address: u64) -> bool {
        self.base <= address && address <= self.limit
    }
}

/// The registers of a PCI-to-PCI bridge (Type 1 header) that route TLPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge {
    /// Command register: bit 0 I/O space, 1 memory space, 2 bus master.
    pub command: u16,
    /// Bus above.
    pub primary: u8,
    /// Bus right below; 0 before it is set.
    pub secondary: u8,
    /// Last bus below.
    pub subordinate: u8,
    /// ARI forwarding: device numbers above 0 exist on the link below.
    pub ari: bool,
    /// I/O addresses below.
    pub io: Window,
    /// Memory addresses below.
    pub memory: Window,
    /// Prefetchable memory addresses below.
    pub prefetchable: Window,
}

impl Bridge {
    /// Command: I/O space, memory space and bus master on.
    pub const ALL_ON: u16 = 7;

    /// Whether requests for I/O pass downwards.
    #[inline]
    #[must_use]
    pub const fn io_on(&self) -> bool {
        self.command & 1 != 0
    }

    /// Whether requests for memory pass downwards.
    #[inline]
    #[must_use]
    pub const fn memory_on(&self) -> bool {
        self.command & 2 != 0
    }

    /// Whether requests for memory and I/O pass upwards.
    #[inline]
    #[must_use]
    pub const fn master_on(&self) -> bool {
        self.command & 4 != 0
    }

    /// Whether `bus` lies below.
    #[inline]
    #[must_use]
    pub const fn has_bus(&self, bus: u8) -> bool {
        self.secondary != 0 && self.secondary <= bus && bus <= self.subordinate
    }

    /// Whether a request for memory at `address` passes downwards.
    #[inline]
    #[must_use]
    pub const fn has_memory(&self, address: u64) -> bool {
        self.memory_on() && (self.memory.contains(address) || self.prefetchable.contains(address))
    }

    /// Whether a request for I/O at `address` passes downwards.
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
