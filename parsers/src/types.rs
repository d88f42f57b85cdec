//! Small types that fields of frames are read into: formats, classes, Ethernet types.
//!
//! Newtypes over integers; constructors mask or refuse, so a value is always in range.
//!
//! Source: IEEE 802.1Q-2022 9.6, RFC 2474, RFC 3168, docs/spec/wire-formats.md §1.1, §1.4, §1.4b,
//! §1.5.

use core::fmt;

/// Ethernet types by name.
pub mod ether_type {
    /// IPv4 (RFC 894).
    pub const IPV4: u16 = 0x0800;
    /// ARP (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// C-tag, the default TPID.
    pub const CTAG: u16 = 0x8100;
    /// IPv6 (RFC 2464).
    pub const IPV6: u16 = 0x86DD;
    /// MAC Control: PAUSE, PFC, UEC extension.
    pub const MAC_CONTROL: u16 = 0x8808;
    /// Ethernet inside of GRE or Geneve ("transparent Ethernet bridging").
    pub const ETHERNET: u16 = 0x6558;
    /// S-tag of provider bridges (802.1ad).
    pub const STAG: u16 = 0x88A8;
    /// Default of `mac_type1` (AFH, TYPE1 traffic).
    pub const MAC_TYPE1: u16 = 0x88B5;
    /// Default of `mac_type2` (AFH, TYPE2 traffic).
    pub const MAC_TYPE2: u16 = 0x88B6;
    /// MPLS with a label that the receiver gave out.
    pub const MPLS: u16 = 0x8847;
    /// MPLS with a label that the sender gave out (RFC 5332).
    pub const MPLS_UPSTREAM: u16 = 0x8848;
    /// Configuration testing ("loopback") of Ethernet 2.0.
    pub const LOOPBACK: u16 = 0x9000;
    /// `RoCE` version 1, directly on Ethernet.
    pub const ROCE_V1: u16 = 0x8915;
}

/// IP protocol numbers by name.
pub mod ip_proto {
    /// ICMP of IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 inside of IP.
    pub const IPV4: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 inside of IP.
    pub const IPV6: u8 = 41;
    /// GRE (RFC 2784).
    pub const GRE: u8 = 47;
    /// ICMP of IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
    /// MPLS inside of IP.
    pub const MPLS: u8 = 137;
    /// Ethernet inside of IPv6.
    pub const ETHERNET: u8 = 143;
}

/// Frame format. The first four codes are those of `MAC_HDR_TYPE` (docs/spec/wire-formats.md §1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Format {
    /// IPv4 and UDP to port 4791 (or the second UDP port).
    Standard = 0,
    /// AFH_GEN1, with an `EtherType` of AFH.
    AfhGen1 = 1,
    /// `AFH_GEN2_16b`, with an `EtherType` of AFH.
    AfhGen2 = 2,
    /// AFH_Lite, on ports set to it.
    AfhLite = 3,
    /// CXL port-based routing, of frames of TLP ports; `parse_head` never returns it.
    Pbr = 4,
    /// MAC Control: PAUSE, PFC, UEC `CC_Update` and unknown opcodes.
    MacControl = 5,
    /// Any other Ethernet frame (TYPE3).
    Other = 6,
}

impl Format {
    /// How many formats there are: the size of a table indexed by `format as usize`.
    pub const COUNT: usize = 7;
    /// Every format, in the order of its code.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Standard,
        Self::AfhGen1,
        Self::AfhGen2,
        Self::AfhLite,
        Self::Pbr,
        Self::MacControl,
        Self::Other,
    ];

    /// The format of this code, `format as u8`; 7, which no format has, gives [`Self::Other`].
    #[inline]
    #[must_use]
    pub const fn from_low_bits(code: u8) -> Self {
        match code & 7 {
            0 => Self::Standard,
            1 => Self::AfhGen1,
            2 => Self::AfhGen2,
            3 => Self::AfhLite,
            4 => Self::Pbr,
            5 => Self::MacControl,
            _ => Self::Other,
        }
    }

    /// Name used in output, counters and configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::AfhGen1 => "gen1",
            Self::AfhGen2 => "gen2",
            Self::AfhLite => "lite",
            Self::Pbr => "pbr",
            Self::MacControl => "mac_control",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// AFH mode of a port, beside Ethernet and Standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AfhMode {
    /// No AFH: its Ethernet types are other Ethernet.
    None,
    /// AFH_GEN1, and no other AFH.
    Gen1,
    /// `AFH_GEN2_16b`, and no other AFH.
    Gen2,
    /// AFH_Lite: every frame that is not PAUSE or PFC.
    Lite,
    /// GEN1 or GEN2, told apart by `Key_words`; never Lite.
    #[default]
    Auto,
}

impl AfhMode {
    /// Name used in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gen1 => "gen1",
            Self::Gen2 => "gen2",
            Self::Lite => "lite",
            Self::Auto => "auto",
        }
    }
}

/// Version of the IP header that a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IpVersion {
    /// IPv4, version nibble 4.
    V4 = 4,
    /// IPv6, version nibble 6.
    V6 = 6,
}

/// 802.1Q priority code point, 0..=7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pcp(u8);

impl Pcp {
    /// A PCP of 0..=7; `None` above.
    #[inline]
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 8 { Some(Self(value)) } else { None }
    }

    /// From the low three bits.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(value: u8) -> Self {
        Self(value & 7)
    }

    /// The code point as an integer, 0..=7.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// VLAN identifier, 0..=4095; 0 means priority-tagged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vid(u16);

impl Vid {
    /// A VID of 0..=4095; `None` above.
    #[inline]
    #[must_use]
    pub const fn new(value: u16) -> Option<Self> {
        if value < 4096 { Some(Self(value)) } else { None }
    }

    /// From the low twelve bits.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(value: u16) -> Self {
        Self(value & 0xFFF)
    }

    /// The identifier as an integer, 0..=4095.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Tag control information: PCP in bits 15:13, DEI in bit 12, VID in bits 11:0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tci(pub u16);

impl Tci {
    /// Joins the three fields.
    #[inline]
    #[must_use]
    pub const fn new(pcp: Pcp, dei: bool, vid: Vid) -> Self {
        Self((pcp.0 as u16) << 13 | (dei as u16) << 12 | vid.0)
    }

    /// Priority code point, bits 15:13.
    #[inline]
    #[must_use]
    pub const fn pcp(self) -> Pcp {
        Pcp((self.0 >> 13) as u8)
    }

    /// Drop eligible indicator, bit 12.
    #[inline]
    #[must_use]
    pub const fn dei(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// VLAN identifier, bits 11:0.
    #[inline]
    #[must_use]
    pub const fn vid(self) -> Vid {
        Vid::from_low_bits(self.0)
    }
}

/// Differentiated services code point, 0..=63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// A DSCP of 0..=63; `None` above.
    #[inline]
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// Upper six bits of an IPv4 TOS or IPv6 Traffic Class byte.
    #[inline]
    #[must_use]
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }

    /// The code point as an integer, 0..=63.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// EXP of an MPLS label, 0..=7: the Traffic Class of RFC 5462.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exp(u8);

impl Exp {
    /// An EXP of 0..=7; `None` above.
    #[inline]
    #[must_use]
    pub const fn new(value: u8) -> Option<Self> {
        if value < 8 { Some(Self(value)) } else { None }
    }

    /// Bits 3:1 of the third byte of a label stack entry.
    #[inline]
    #[must_use]
    pub const fn from_third_byte(byte: u8) -> Self {
        Self(byte >> 1 & 7)
    }

    /// The EXP bits as an integer, 0..=7.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Explicit congestion notification codepoint (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// 00: the flow does not take marks.
    #[default]
    NotEct = 0,
    /// 01: the flow takes marks.
    Ect1 = 1,
    /// 10: the flow takes marks.
    Ect0 = 2,
    /// 11, CE: congestion was met on the way.
    Ce = 3,
}

impl Ecn {
    /// From the low two bits.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(value: u8) -> Self {
        match value & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// 01 or 10: a mark may be set.
    #[inline]
    #[must_use]
    pub const fn is_ect(self) -> bool {
        matches!(self, Self::Ect0 | Self::Ect1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Text;

    #[test]
    fn ranges_are_held() {
        for value in 0..=u8::MAX {
            assert_eq!(Pcp::new(value).map(Pcp::get), (value < 8).then_some(value));
            assert_eq!(Dscp::new(value).map(Dscp::get), (value < 64).then_some(value));
            assert_eq!(Pcp::from_low_bits(value).get(), value % 8);
            assert_eq!(Dscp::from_tos(value).get(), value / 4);
            assert_eq!(Ecn::from_low_bits(value) as u8, value % 4);
        }
        for value in 0..=u16::MAX {
            assert_eq!(Vid::new(value).map(Vid::get), (value < 4096).then_some(value));
            assert_eq!(Vid::from_low_bits(value).get(), value % 4096);
        }
    }

    #[test]
    fn only_ect_takes_marks() {
        let cases = [(Ecn::NotEct, false), (Ecn::Ect1, true), (Ecn::Ect0, true), (Ecn::Ce, false)];
        for (ecn, want) in cases {
            assert_eq!(ecn.is_ect(), want, "{ecn:?}");
        }
    }

    #[test]
    fn format_codes_and_names_stay() {
        let names = ["standard", "gen1", "gen2", "lite", "pbr", "mac_control", "other"];
        for (code, (format, name)) in Format::ALL.into_iter().zip(names).enumerate() {
            assert_eq!((format as usize, format.name()), (code, name));
            assert_eq!(Text::of(&format).as_str(), name);
        }
    }
}
