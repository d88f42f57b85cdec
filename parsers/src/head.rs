//! Result of classification: [`Head`], 32 bytes and `Copy`.
//!
//! Facts are bits of one word behind getters. Offsets are bytes from the first byte of the frame.
//!
//! Source: docs/spec/pipeline.md §1 (fields that the stages need), §3 (keys), §8 (which frames take
//! ECN marks).

use core::fmt;

use crate::addr::{AddrKey, GROUP_BIT, MAC_MASK, MacAddr, is_reserved_group};
use crate::afh::TrafficClass;
use crate::rh::RhOpcode;
use crate::source::PriSource;
use crate::types::{Dscp, Ecn, Exp, Format, IpVersion, Tci};

/// Facts about a frame that one pass over it has found. Made by [`crate::parse_head`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub(crate) dst: AddrKey,
    pub(crate) src: AddrKey,
    /// Bits and bytes below, in one word so that it is built without going through memory.
    pub(crate) facts: u64,
    pub(crate) tci_or_opcode: u16,
    pub(crate) format: Format,
}

/// M of `Key_words`; the keys of other formats show by themselves whether they are a group.
pub(crate) const ID_GROUP: u64 = 1 << 0;
/// A reserved group read as GEN2 or Lite, whose 16-bit key cannot show it; other keys can.
pub(crate) const RESERVED: u64 = 1 << 1;
pub(crate) const TAGGED: u64 = 1 << 2;
pub(crate) const IPV4: u64 = 1 << 3;
pub(crate) const IPV6: u64 = 1 << 4;
pub(crate) const STANDARD_PORT: u64 = 1 << 5;
pub(crate) const HAS_TC: u64 = 1 << 6;
pub(crate) const HAS_RH: u64 = 1 << 7;
pub(crate) const PFC_DA: u64 = 1 << 8;
pub(crate) const IP_VALID: u64 = 1 << 9;
pub(crate) const MPLS: u64 = 1 << 10;
/// Lowest of the two bits of the RH opcode.
pub(crate) const RH_OPCODE_SHIFT: u32 = 12;
/// Lowest bits of the fields of 8 bits, up to bit 47.
pub(crate) const TOS_SHIFT: u32 = 16;
/// In the place of the TOS: no frame has both.
pub(crate) const EXP_SHIFT: u32 = TOS_SHIFT;
pub(crate) const IP_PROTO_SHIFT: u32 = 24;
pub(crate) const L4_OFFSET_SHIFT: u32 = 32;
pub(crate) const TC_SHIFT: u32 = 40;

impl Head {
    /// Fills arrays before use: other Ethernet from and to address zero.
    pub const EMPTY: Self = Self {
        dst: AddrKey::ethernet(MacAddr::ZERO),
        src: AddrKey::ethernet(MacAddr::ZERO),
        facts: 0,
        tci_or_opcode: 0,
        format: Format::Other,
    };

    /// All but the keys, in three words.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub const fn rest(&self) -> [u32; 3] {
        let high = (self.facts >> 32) as u32 & 0xFFFF | (self.tci_or_opcode as u32) << 16;
        [self.facts as u32, high, self.format as u32]
    }

    /// This head with the words of another head's [`Head::rest`].
    ///
    /// The program in the kernel puts these words through memory: its verifier then takes them for any
    /// values, and follows it once instead of once for every way through the parser.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub const fn with_rest(self, [low, high, format]: [u32; 3]) -> Self {
        let facts = (high as u64 & 0xFFFF) << 32 | low as u64;
        let tci_or_opcode = (high >> 16) as u16;
        Self { facts, tci_or_opcode, format: Format::from_low_bits(format as u8), ..self }
    }

    /// Byte of the facts at `shift`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the upper bits are meant to go")]
    const fn byte(&self, shift: u32) -> u8 {
        (self.facts >> shift) as u8
    }

    /// Format of the frame, which decides how all else is read.
    #[inline]
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Destination key, in the format's address space.
    #[inline]
    #[must_use]
    pub const fn dst(&self) -> AddrKey {
        self.dst
    }

    /// Source key, in the format's address space.
    #[inline]
    #[must_use]
    pub const fn src(&self) -> AddrKey {
        self.src
    }

    #[inline]
    const fn has(&self, flag: u64) -> bool {
        self.facts & flag != 0
    }

    /// The destination is a group: I/G of DA, or M of `Key_words` for GEN2 and Lite.
    #[inline]
    #[must_use]
    pub const fn group(&self) -> bool {
        self.has(ID_GROUP) || self.dst.address() & GROUP_BIT != 0
    }

    /// The destination is neither a group nor reserved: a single station. One test for most frames.
    #[inline]
    #[must_use]
    pub const fn individual(&self) -> bool {
        !self.has(ID_GROUP | RESERVED) && self.dst.address() & GROUP_BIT == 0
    }

    /// The destination is ff:ff:ff:ff:ff:ff; implies [`Head::group`]. Never of GEN2 and Lite.
    #[inline]
    #[must_use]
    pub const fn broadcast(&self) -> bool {
        self.dst.address() == MAC_MASK
    }

    /// Bytes 0 to 5 are 01-80-C2-00-00-00..0F, which bridges do not forward unless they are told to (no valid AFH
    /// header looks so).
    #[inline]
    #[must_use]
    pub const fn reserved_group(&self) -> bool {
        is_reserved_group(self.dst.address()) || self.has(RESERVED)
    }

    /// Last digit of a reserved group's address, 0..=15; means nothing without [`Head::reserved_group`].
    #[inline]
    #[must_use]
    pub const fn reserved_number(&self) -> u32 {
        (self.dst.address() & 0xF) as u32 // low bits of the address in every space
    }

    /// The source can be learnt: neither zero nor, in 48 bits, a group.
    #[inline]
    #[must_use]
    pub const fn source_valid(&self) -> bool {
        let address = self.src.address(); // below 2^40 in the spaces of AFH
        address != 0 && address & GROUP_BIT == 0
    }

    /// The frame has a tag with one of the port's TPIDs.
    #[inline]
    #[must_use]
    pub const fn tagged(&self) -> bool {
        self.has(TAGGED)
    }

    /// The outer tag, if any.
    #[inline]
    #[must_use]
    pub const fn tci(&self) -> Option<Tci> {
        if self.has(TAGGED) { Some(Tci(self.tci_or_opcode)) } else { None }
    }

    /// Version of the IP header, if any.
    #[inline]
    #[must_use]
    pub const fn ip_version(&self) -> Option<IpVersion> {
        if self.has(IPV4) {
            Some(IpVersion::V4)
        } else if self.has(IPV6) {
            Some(IpVersion::V6)
        } else {
            None
        }
    }

    /// The frame carries a whole IPv4 or IPv6 header.
    #[inline]
    #[must_use]
    pub const fn has_ip(&self) -> bool {
        self.has(IPV4 | IPV6)
    }

    /// Offset of the IP header: 14 or 18.
    #[inline]
    #[must_use]
    pub const fn ip_offset(&self) -> Option<u8> {
        // an IP header is looked for behind at most one tag
        match (self.has_ip(), self.tagged()) {
            (false, _) => None,
            (true, false) => Some(14),
            (true, true) => Some(18),
        }
    }

    /// IPv4 protocol or IPv6 next header; 0 without IP.
    #[inline]
    #[must_use]
    pub const fn ip_proto(&self) -> u8 {
        self.byte(IP_PROTO_SHIFT)
    }

    /// Offset of the transport header; `None` without IP, for fragments, behind IPv6 extensions, and
    /// where the frame cuts a UDP header short. For other protocols, and behind options of IPv4, the
    /// offset may lie at or beyond the end of the frame.
    #[inline]
    #[must_use]
    pub const fn l4_offset(&self) -> Option<u8> {
        match self.byte(L4_OFFSET_SHIFT) {
            0 => None,
            offset => Some(offset),
        }
    }

    /// DSCP of IPv4 or IPv6.
    #[inline]
    #[must_use]
    pub const fn dscp(&self) -> Option<Dscp> {
        if self.has_ip() { Some(Dscp::from_tos(self.byte(TOS_SHIFT))) } else { None }
    }

    /// ECN codepoint of IPv4 or IPv6.
    #[inline]
    #[must_use]
    pub const fn ecn(&self) -> Option<Ecn> {
        if self.has_ip() { Some(Ecn::from_low_bits(self.byte(TOS_SHIFT))) } else { None }
    }

    /// The IP header is one that a router would take (RFC 1812 section 5.2.2, RFC 8200 section 3):
    /// version and IHL are right, and an IPv4 total length has room for the header. Whether an IPv4
    /// checksum is right is not looked at.
    #[inline]
    #[must_use]
    pub const fn ip_valid(&self) -> bool {
        self.has(IP_VALID)
    }

    /// UDP over IPv4 or IPv6 to a Standard port: Standard, or RoCEv2 over IPv6.
    #[inline]
    #[must_use]
    pub const fn to_standard_port(&self) -> bool {
        self.has(STANDARD_PORT)
    }

    /// EXP of the top MPLS label.
    #[inline]
    #[must_use]
    pub const fn exp(&self) -> Option<Exp> {
        if self.has(MPLS) { Exp::new(self.byte(EXP_SHIFT)) } else { None }
    }

    /// The sources of a priority that the frame carries: [`PriSource::bit`] of each.
    #[inline]
    #[must_use]
    pub const fn carries(&self) -> usize {
        // without branches: this runs once a frame in the kernel's program, too
        let pcp = self.has(TAGGED) as usize * PriSource::Pcp.bit();
        let dscp = self.has_ip() as usize * PriSource::Dscp.bit();
        let tc = self.has(HAS_TC) as usize * PriSource::Tc.bit();
        let exp = self.has(MPLS) as usize * PriSource::Exp.bit();
        pcp | dscp | tc | exp
    }

    /// The code that the frame has for `source`, an index of that source's map of priorities; below
    /// [`PriSource::CODES_MAX`]. It means nothing where the frame does not carry the source
    /// ([`Head::carries`]).
    #[inline]
    #[must_use]
    pub const fn code(&self, source: PriSource) -> usize {
        let code = match source {
            PriSource::Pcp => Tci(self.tci_or_opcode).pcp().get(),
            PriSource::Dscp => self.byte(TOS_SHIFT) >> 2,
            PriSource::Tc => self.byte(TC_SHIFT) >> 2,
            PriSource::Exp => self.byte(EXP_SHIFT) & 7,
        };
        code as usize
    }

    /// Traffic Class byte of an AFH frame.
    #[inline]
    #[must_use]
    pub const fn tc(&self) -> Option<TrafficClass> {
        if self.has(HAS_TC) { Some(TrafficClass(self.byte(TC_SHIFT))) } else { None }
    }

    /// Opcode of the RC Link header of Standard, GEN1 and GEN2.
    #[inline]
    #[must_use]
    pub const fn rh_opcode(&self) -> Option<RhOpcode> {
        if self.has(HAS_RH) {
            Some(RhOpcode::from_low_bits(self.byte(RH_OPCODE_SHIFT)))
        } else {
            None
        }
    }

    /// Opcode of a MAC Control frame; `None` for every other format.
    #[inline]
    #[must_use]
    pub const fn mac_control_opcode(&self) -> Option<u16> {
        match self.format {
            Format::MacControl => Some(self.tci_or_opcode),
            _ => None,
        }
    }

    /// A MAC Control frame to 01-80-C2-00-00-01 or the port's own address: it may act as PFC.
    #[inline]
    #[must_use]
    pub const fn pfc_da(&self) -> bool {
        self.has(PFC_DA)
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// All facts by name, for messages of tests and traces.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head")
            .field("format", &self.format)
            .field("dst", &self.dst)
            .field("src", &self.src)
            .field("group", &self.group())
            .field("tci", &self.tci())
            .field("ip_version", &self.ip_version())
            .field("dscp", &self.dscp())
            .field("ecn", &self.ecn())
            .field("ip_proto", &self.ip_proto())
            .field("l4_offset", &self.l4_offset())
            .field("tc", &self.tc())
            .field("exp", &self.exp())
            .field("rh_opcode", &self.rh_opcode())
            .field("mac_control_opcode", &self.mac_control_opcode())
            .field("pfc_da", &self.pfc_da())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn all_but_the_keys_comes_back_from_words() {
        let mut rng = Rng::new(7);
        for n in 0..1_000 {
            let (facts, tci_or_opcode) = (rng.u64() >> 16, rng.u16());
            let format = Format::ALL[n % Format::COUNT];
            let keys = Head { dst: AddrKey::id16(1), src: AddrKey::id16(2), ..Head::EMPTY };
            let found = Head { facts, tci_or_opcode, format, ..Head::EMPTY };
            let both = Head { facts, tci_or_opcode, format, ..keys };
            assert_eq!(keys.with_rest(found.rest()), both);
            assert_eq!(found.with_rest(found.rest()), found);
        }
    }

    #[test]
    fn a_format_is_found_by_its_code() {
        for format in Format::ALL {
            assert_eq!(Format::from_low_bits(format as u8), format);
            assert_eq!(Format::from_low_bits(format as u8 | 0xF8), format);
        }
        assert_eq!(Format::from_low_bits(7), Format::Other);
    }
}
