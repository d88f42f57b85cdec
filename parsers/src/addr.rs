//! Addresses: 48-bit MAC addresses, and the forwarding key over three address spaces.
//! Shape: [`MacAddr`] is six octets; [`AddrKey`] is space in bits 49:48, address in bits 47:0.
//! Units: bits 48 (Ethernet), 40 (GEN1), 16 (GEN2, Lite).
//! Source: IEEE 802.3 3.2.3, pipeline.md 3 (keys), wire-formats.md 1.3 and 1.4.

use core::fmt;
use core::str::FromStr;

use crate::bytes::window;

/// 48-bit MAC address in wire order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All zero; "not set".
    pub const ZERO: Self = Self([0; 6]);
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xFF; 6]);
    /// 01:80:c2:00:00:01, where PAUSE and PFC go.
    pub const PAUSE: Self = Self([0x01, 0x80, 0xC2, 0, 0, 1]);

    /// The address as an integer below 2^48; the first octet is the most significant.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let mut wide = [0; 8];
        wide.split_at_mut(2).1.copy_from_slice(&self.0);
        u64::from_be_bytes(wide)
    }

    /// Address from the low 48 bits.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(*window::<2, 6, _>(&bits.to_be_bytes()))
    }

    /// I/G bit: a multicast or broadcast address.
    #[inline]
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.to_bits() & GROUP_BIT != 0
    }

    /// 01:80:c2:00:00:00 to :0f, which no bridge forwards.
    #[inline]
    #[must_use]
    pub const fn is_reserved_group(self) -> bool {
        is_reserved_group(self.to_bits())
    }
}

/// I/G bit of an address held as an integer.
pub(crate) const GROUP_BIT: u64 = 1 << 40;
/// 48 ones.
pub(crate) const MAC_MASK: u64 = (1 << 48) - 1;
/// 40 ones: what identifies a GEN1 station.
pub(crate) const GEN1_MASK: u64 = (1 << 40) - 1;

/// One of the 16 addresses that no bridge forwards, as an integer.
#[inline]
pub(crate) const fn is_reserved_group(address: u64) -> bool {
    address >> 4 == 0x0180_C200_0000 >> 4
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, octet) in self.0.iter().enumerate() {
            write!(f, "{}{octet:02x}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected six pairs of hexadecimal digits, such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Reads `02:00:00:00:00:01` or `02-00-00-00-00-01`, upper or lower case.
    fn from_str(text: &str) -> Result<Self, MacAddrError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().ok_or(MacAddrError)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(Self(octets)) }
    }
}

/// Address space that a station's address lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AddrSpace {
    /// 48 bits: Ethernet and Standard.
    Ethernet = 0,
    /// 40 bits: AFH_GEN1 (48 for its groups).
    Gen1 = 1,
    /// 16 bits: `AFH_GEN2_16b` and AFH_Lite.
    Id16 = 2,
}

/// Forwarding key: address space in bits 49:48, address in bits 47:0.
///
/// Unicast GEN1 keys hold 40 bits, because the top octet of its source is the Traffic Class; group
/// keys of Ethernet and GEN1 hold all 48.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrKey(u64);

impl AddrKey {
    /// Key of `address` (low 48 bits) in `space`.
    #[inline]
    #[must_use]
    pub const fn new(space: AddrSpace, address: u64) -> Self {
        Self((space as u64) << 48 | address & MAC_MASK)
    }

    /// Key of an Ethernet address.
    #[inline]
    #[must_use]
    pub const fn ethernet(address: MacAddr) -> Self {
        Self(address.to_bits())
    }

    /// Key of a unicast GEN1 station: the top octet of `address` is left out.
    #[inline]
    #[must_use]
    pub const fn gen1(address: u64) -> Self {
        Self::new(AddrSpace::Gen1, address & GEN1_MASK)
    }

    /// Key of a 16-bit id of GEN2 or Lite.
    #[inline]
    #[must_use]
    pub const fn id16(id: u16) -> Self {
        Self::new(AddrSpace::Id16, id as u64)
    }

    /// All 50 bits, for hashing and storing.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Back from [`AddrKey::to_bits`]; `None` when a bit above 49 is set or the space is unknown.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits >> 48 <= AddrSpace::Id16 as u64 { Some(Self(bits)) } else { None }
    }

    /// Address space.
    #[inline]
    #[must_use]
    pub const fn space(self) -> AddrSpace {
        match self.0 >> 48 {
            0 => AddrSpace::Ethernet,
            1 => AddrSpace::Gen1,
            _ => AddrSpace::Id16,
        }
    }

    /// Address, below 2^48.
    #[inline]
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0 & MAC_MASK
    }
}

impl fmt::Display for AddrKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space() {
            AddrSpace::Ethernet => MacAddr::from_bits(self.address()).fmt(f),
            AddrSpace::Gen1 => write!(f, "gen1:{:010x}", self.address()),
            AddrSpace::Id16 => write!(f, "id:{:04x}", self.address()),
        }
    }
}

impl fmt::Debug for AddrKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
