//! Header between the addresses of an Ethernet frame and the TLP in it.
//!
//! EtherType 16 (0x88B7), OUI 24, protocol 16, version 4, flags 4 bits; then one TLP, then padding.
//!
//! Flag bit 0 is LN of a TLP with a PTH, which has no such bit itself; the others are 0.
//!
//! Source: IEEE 802 section 9.2.4 (OUI Extended EtherType); proposed in docs/spec/wire-formats.md §3.7a.

use crate::bytes::{be16, byte, cut, cut_mut, put, window};
use crate::error::{Field, Layer, ParseError};
use crate::tlp::view::refused;

/// Bytes from the EtherType to the TLP.
pub const LEN: usize = 8;
/// OUI Extended EtherType (IEEE 802).
pub const ETHER_TYPE: u16 = 0x88B7;
/// The one version there is.
pub const VERSION: u8 = 1;
/// Flag bit 0: LN of the TLP.
pub const LN: u8 = 1;

/// The OUI that frames with TLPs have in their OUI Extended EtherType header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Oui(pub [u8; 3]);

impl Oui {
    /// Locally administered; ports may be set to another.
    pub const DEFAULT: Self = Self([0x02, 0x57, 0x46]);
}

impl Default for Oui {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The protocol that a frame of an OUI carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Protocol {
    /// TLP of a PBR link: PTH first, local prefixes before it.
    Pbr = 1,
    /// Flit-mode TLP of an HBR link.
    HbrFlit = 2,
    /// Non-flit TLP of an HBR link.
    HbrNonFlit = 3,
    /// Message about the link itself: its reset ([`super::LinkReset`]).
    Control = 4,
    /// CXL.mem message of a PBR link: PTH first.
    PbrMem = 5,
    /// CXL.mem message without PTH.
    HbrMem = 6,
    /// CXL.cache message of a PBR link: PTH first.
    PbrCache = 7,
    /// CXL.cache message without PTH.
    HbrCache = 8,
}

impl Protocol {
    /// The protocol with this number; `None` for any other.
    #[must_use]
    pub const fn decode(bits: u16) -> Option<Self> {
        Some(match bits {
            1 => Self::Pbr,
            2 => Self::HbrFlit,
            3 => Self::HbrNonFlit,
            4 => Self::Control,
            5 => Self::PbrMem,
            6 => Self::HbrMem,
            7 => Self::PbrCache,
            8 => Self::HbrCache,
            _ => return None,
        })
    }
}

/// Header of a TLP on an Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpLink {
    /// Owner of the protocol's number.
    pub oui: Oui,
    /// Protocol of the bytes that follow.
    pub protocol: Protocol,
    /// The TLP with a PTH that follows had LN set where it came in: in flit mode it has no bit for that.
    pub ln: bool,
}

impl TlpLink {
    /// Splits the header off the front of `bytes`, which start with the EtherType (a VLAN tag
    /// before it is the caller's); also returns the bytes behind it. All flags but LN are ignored,
    /// and so is LN before a TLP without PTH.
    ///
    /// # Errors
    /// Fewer than [`LEN`] bytes, or another EtherType, OUI, protocol or version.
    #[inline]
    pub const fn parse(bytes: &[u8], oui: Oui) -> Result<(Self, &[u8]), ParseError> {
        let (head, rest) = match cut::<LEN>(bytes, Layer::TlpLink) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        if be16::<0, _>(head) != ETHER_TYPE {
            return Err(refused(Layer::TlpLink, Field::EtherType, be16::<0, _>(head)));
        }
        let [a, b, c] = *window::<2, 3, _>(head);
        let Oui([want_a, want_b, want_c]) = oui;
        if a != want_a || b != want_b || c != want_c {
            return Err(refused(Layer::TlpLink, Field::Oui, u16::from_be_bytes([b, c])));
        }
        let version = byte::<7, _>(head);
        if version >> 4 != VERSION {
            return Err(refused(Layer::TlpLink, Field::Version, version as u16));
        }
        match Protocol::decode(be16::<5, _>(head)) {
            Some(protocol) => {
                // in non-flit mode the TLP has its own bit, and in flit mode on an HBR link LN does
                // not exist
                let ln = matches!(protocol, Protocol::Pbr) && version & LN != 0;
                Ok((Self { oui, protocol, ln }, rest))
            }
            None => Err(refused(Layer::TlpLink, Field::Protocol, be16::<5, _>(head))),
        }
    }

    /// Writes the header at the front of `bytes`; returns the room behind it.
    ///
    /// # Errors
    /// [`ParseError::Short`] when there is no room for [`LEN`] bytes.
    #[inline]
    pub const fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], ParseError> {
        let (head, rest) = match cut_mut::<LEN>(bytes, Layer::TlpLink) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        put::<0, 2, _>(head, ETHER_TYPE.to_be_bytes());
        put::<2, 3, _>(head, self.oui.0);
        put::<5, 2, _>(head, (self.protocol as u16).to_be_bytes());
        put::<7, 1, _>(head, [VERSION << 4 | if self.ln { LN } else { 0 }]);
        Ok(rest)
    }
}
