//! Ids and addresses of a fabric.
//!
//! `Pid` 12 bits; `Hpa`, `Dpa` 64 bits; `Bdf` bus 8, device 5, function 3 bits.
//!
//! Source: CXL 3.1 section 7.7.6.5 (PID `0xFFF` is never assigned); PCIe 6.0 section 2.2.4.2;
//! docs/spec/wire-formats.md C10.

use core::fmt;

/// Port id of a PBR fabric, 12 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(u16);

impl Pid {
    /// How many values there are: the size of a table indexed by [`Pid::index`].
    pub const COUNT: usize = 4_096;
    /// `0xFFF`, never assigned: as a destination the receiver itself, as a source one without a PID yet.
    pub const NONE: Self = Self(0xFFF);

    /// The low 12 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u16) -> Self {
        Self(bits & 0xFFF)
    }

    /// A PID that can be assigned, 0 to `0xFFE`.
    #[must_use]
    pub const fn assignable(bits: u16) -> Option<Self> {
        if bits < 0xFFF { Some(Self(bits)) } else { None }
    }

    /// The PID as an integer, 0..=4095.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Place in a table of [`Pid::COUNT`] entries.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it is `0xFFF`.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03x}", self.0)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({self})")
    }
}

/// Host physical address of a byte.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hpa(pub u64);

/// Device physical address of a byte.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dpa(pub u64);

impl fmt::Display for Hpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Hpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hpa({self})")
    }
}

impl fmt::Display for Dpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Dpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dpa({self})")
    }
}

/// Bus, device and function as one 16-bit routing id.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bdf(u16);

impl Bdf {
    /// From its 16 bits as on the wire.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// From its parts; the low 5 bits of `device` and the low 3 of `function` count.
    #[inline]
    #[must_use]
    pub const fn new(bus: u8, device: u8, function: u8) -> Self {
        Self(u16::from_be_bytes([bus, (device << 3) | (function & 7)]))
    }

    /// The routing id as on the wire: bus in 15:8, device in 7:3, function in 2:0.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Bus number, 0..=255.
    #[inline]
    #[must_use]
    pub const fn bus(self) -> u8 {
        let [bus, _] = self.0.to_be_bytes();
        bus
    }

    /// Device number, 0..=31.
    #[inline]
    #[must_use]
    pub const fn device(self) -> u8 {
        let [_, low] = self.0.to_be_bytes();
        low >> 3
    }

    /// Function number, 0..=7.
    #[inline]
    #[must_use]
    pub const fn function(self) -> u8 {
        let [_, low] = self.0.to_be_bytes();
        low & 7
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus(), self.device(), self.function())
    }
}

impl fmt::Debug for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bdf({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Text;

    #[test]
    fn pids_have_twelve_bits_and_fff_is_none() {
        assert_eq!(Pid::from_low_bits(0xF123).bits(), 0x123);
        assert_eq!(Pid::assignable(0xFFE).map(Pid::index), Some(4_094));
        assert_eq!((Pid::assignable(0xFFF), Pid::assignable(0x1000)), (None, None));
        assert!(Pid::from_low_bits(0xFFFF).is_none() && !Pid::from_low_bits(0).is_none());
        assert_eq!(Text::of(&Pid::from_low_bits(0x0A1)).as_str(), "0a1");
    }

    #[test]
    fn a_bdf_is_eight_five_and_three_bits() {
        let bdf = Bdf::new(0x12, 0x1F, 7);
        assert_eq!((bdf.bits(), bdf.bus(), bdf.device(), bdf.function()), (0x12FF, 0x12, 31, 7));
        assert_eq!(Bdf::new(1, 32, 8), Bdf::from_bits(0x0100), "what does not fit is cut off");
        assert_eq!(Text::of(&Bdf::from_bits(0x02A3)).as_str(), "02:14.3");
    }
}
