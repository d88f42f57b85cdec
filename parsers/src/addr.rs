//! Addresses: 48-bit MAC addresses, and the forwarding key over three address spaces.
//!
//! [`MacAddr`] is six bytes; [`AddrKey`] is space in bits 49:48, address in bits 47:0. Ethernet
//! addresses have 48 bits, those of GEN1 40, those of GEN2 and Lite 16.
//!
//! Source: IEEE 802.3 3.2.3, docs/spec/pipeline.md §3 (keys), docs/spec/wire-formats.md §1.3 and
//! §1.4.

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

    /// The address as an integer below 2^48; the first byte is the most significant.
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
/// Bits 47:0, a MAC address held as an integer.
pub(crate) const MAC_MASK: u64 = (1 << 48) - 1;
/// Bits 39:0, a GEN1 station's address; above them its source has the Traffic Class.
pub(crate) const GEN1_MASK: u64 = (1 << 40) - 1;

/// One of the 16 addresses that no bridge forwards, as an integer.
#[inline]
pub(crate) const fn is_reserved_group(address: u64) -> bool {
    address >> 4 == 0x0180_C200_0000 >> 4
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" })?;
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
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacAddrError)?;
            // `from_str_radix` alone would also take a sign, as in `+1`
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        if parts.next().is_some() { Err(MacAddrError) } else { Ok(Self(bytes)) }
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
/// Unicast GEN1 keys hold 40 bits, because the top byte of its source is the Traffic Class; group
/// keys of Ethernet and GEN1 hold all 48.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrKey(u64);

impl AddrKey {
    /// Bits of a key; those above are 0.
    pub const BITS: u32 = 50;

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

    /// Key of a unicast GEN1 station: the top byte of `address` is left out.
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

    /// Address space, bits 49:48 of the key.
    #[inline]
    #[must_use]
    pub const fn space(self) -> AddrSpace {
        match self.0 >> 48 {
            0 => AddrSpace::Ethernet,
            1 => AddrSpace::Gen1,
            // neither `new` nor `from_bits` lets a 3 in
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
            // A station has 40 bits, a group all 48.
            AddrSpace::Gen1 if self.address() >> 40 == 0 => {
                write!(f, "gen1:{:010x}", self.address())
            }
            AddrSpace::Gen1 => write!(f, "gen1:{:012x}", self.address()),
            AddrSpace::Id16 => write!(f, "id:{:04x}", self.address()),
        }
    }
}

impl fmt::Debug for AddrKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, Text};

    #[test]
    fn mac_text_both_ways() {
        let want = MacAddr([0x02, 0x00, 0xAB, 0xCD, 0xEF, 0x10]);
        for text in ["02:00:ab:cd:ef:10", "02-00-AB-CD-EF-10", "02:00:aB:Cd:EF:10"] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        assert_eq!(Text::of(&want).as_str(), "02:00:ab:cd:ef:10");
        let mut rng = Rng::new(21);
        for _ in 0..1000 {
            let address = MacAddr(rng.bytes());
            assert_eq!(Text::of(&address).as_str().parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_not_a_mac_is_refused() {
        #[rustfmt::skip] // columns: name, text
        let cases = [
            ("empty", ""), ("five", "02:00:00:00:00"), ("seven", "02:00:00:00:00:00:01"),
            ("one digit", "2:00:00:00:00:01"), ("three digits", "002:00:00:00:00:01"),
            ("not hexadecimal", "0g:00:00:00:00:01"), ("sign", "+2:00:00:00:00:01"),
            ("blank", " 2:00:00:00:00:01"), ("mixed", "02:00-00:00:00:01"),
            ("no separator", "020000000001"), ("end", "02:00:00:00:00:01:"),
        ];
        for (name, text) in cases {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError), "{name}");
        }
    }

    #[test]
    fn mac_bits_both_ways_and_groups() {
        let mut rng = Rng::new(22);
        for _ in 0..1000 {
            let address = MacAddr(rng.bytes());
            assert_eq!(MacAddr::from_bits(address.to_bits()), address);
            assert_eq!(address.is_group(), address.0[0] & 1 == 1);
        }
        assert_eq!(MacAddr([1, 2, 3, 4, 5, 6]).to_bits(), 0x0102_0304_0506);
        assert!(MacAddr::BROADCAST.is_group() && MacAddr::PAUSE.is_group());
        #[rustfmt::skip] // columns: last two bytes of 01-80-C2-00-xx-xx, reserved
        let cases = [(0x0000, true), (0x0001, true), (0x000F, true), (0x0010, false), (0x0100, false)];
        for (low, want) in cases {
            let address = MacAddr::from_bits(0x0180_C200_0000 | low);
            assert_eq!(address.is_reserved_group(), want, "{low:#06x}");
        }
    }

    #[test]
    fn keys_of_different_spaces_never_meet() {
        let address = 0x0012;
        let keys = [
            AddrKey::ethernet(MacAddr::from_bits(address)),
            AddrKey::gen1(address),
            AddrKey::id16(0x0012),
        ];
        let spaces = [AddrSpace::Ethernet, AddrSpace::Gen1, AddrSpace::Id16];
        for (at, (key, space)) in keys.into_iter().zip(spaces).enumerate() {
            assert_eq!((key.space(), key.address()), (space, address));
            assert_eq!(AddrKey::from_bits(key.to_bits()), Some(key));
            assert_eq!(keys.iter().position(|other| *other == key), Some(at));
        }
        assert_eq!(AddrKey::gen1(0xFF12_3456_7890), AddrKey::gen1(0x0012_3456_7890));
        assert_eq!(AddrKey::from_bits(3 << 48), None, "there is no fourth space");
        assert_eq!(AddrKey::from_bits(1 << 50), None);
        let texts = ["00:00:00:00:00:12", "gen1:0000000012", "id:0012"];
        for (key, want) in keys.iter().zip(texts) {
            assert_eq!(Text::of(key).as_str(), want);
        }
    }
}
