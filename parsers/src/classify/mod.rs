//! One pass over a frame's first 64 octets: everything that the pipeline needs to know.
//! Shape: `([u8; 64], length, ParseConfig)` to [`Head`] (32 octets, `Copy`) or [`ParseError`].
//! Units: octets; lengths and offsets are from the first octet of the frame, FCS not counted.
//! Source: wire-formats.md 1.8 (order of the rules), pipeline.md 1 (MAC Control, modes, short frames).
//!
//! What the design leaves open and how it is decided here:
//! - A frame is malformed when it is shorter than a header that it names by EtherType, IHL, protocol
//!   or UDP length. IP total lengths beyond the frame's end are the end hosts' business.
//! - A UDP datagram to the Standard port with a UDP length below 16 claims no RH: Standard without RH.
//! - EtherType 0x0800 (0x86DD) with another version than 4 (6) is other Ethernet without DSCP.
//! - On a Lite port the mode is authoritative: whatever is not PAUSE or PFC by DA is Lite.
//! - Mode `auto` takes `Key_words` from the octet that looks like it, `gen2_order`'s own first.

use crate::addr::{AddrKey, AddrSpace, GEN1_MASK, GROUP_BIT, MAC_MASK, MacAddr, RESERVED_GROUP};
use crate::afh::Gen2Order;
use crate::bytes::{be16, be64, octet, window};
use crate::error::{Layer, ParseError};
use crate::head::{
    BROADCAST, GROUP, HAS_RH, HAS_TC, Head, IPV4, IPV6, MARKABLE, PFC_DA, RESERVED, SOURCE_VALID,
    TAGGED,
};
use crate::types::{AfhMode, Format, ether_type, ip_proto};
use crate::{ethernet, ipv4 as ip4, ipv6 as ip6, rh, udp, vlan};

/// Octets of a frame that classification looks at.
pub const HEAD_LEN: usize = 64;

/// Octets behind the EtherType that are looked at, with or without a tag before them.
const L3_LEN: usize = HEAD_LEN - TAGGED_LEN;
const ETHERNET_LEN: usize = ethernet::LEN;
const TAGGED_LEN: usize = ethernet::LEN + vlan::LEN;
const IPV4_LEN: usize = ip4::LEN;
const IPV6_LEN: usize = ip6::LEN;
const UDP_LEN: usize = udp::LEN;
const RH_LEN: usize = rh::LEN;
const OPCODE_LEN: usize = 2;

const _: () =
    assert!(IPV6_LEN + 6 <= L3_LEN, "ports and length of UDP over tagged IPv6 must be in view");

/// Parse settings of a port; small, built by control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseConfig {
    /// AFH mode of the port.
    pub afh: AfhMode,
    /// Octet order of GEN2 and Lite headers.
    pub gen2_order: Gen2Order,
    /// EtherType of the tag.
    pub tpid: u16,
    /// EtherType of AFH frames, TYPE1.
    pub mac_type1: u16,
    /// EtherType of AFH frames, TYPE2.
    pub mac_type2: u16,
    /// UDP destination port of Standard frames, TYPE1.
    pub udp_type1: u16,
    /// UDP destination port of Standard frames, TYPE2; 0 for none.
    pub udp_type2: u16,
    /// The port's own address, which PFC may be sent to; zero for none.
    pub port_mac: MacAddr,
}

impl ParseConfig {
    /// The defaults, usable in constants.
    pub const DEFAULT: Self = Self {
        afh: AfhMode::Auto,
        gen2_order: Gen2Order::Slap,
        tpid: ether_type::CTAG,
        mac_type1: ether_type::MAC_TYPE1,
        mac_type2: ether_type::MAC_TYPE2,
        udp_type1: udp::PORT_ROCE,
        udp_type2: 0,
        port_mac: MacAddr::ZERO,
    };

    #[inline]
    const fn is_standard_port(&self, port: u16) -> bool {
        port != 0 && (port == self.udp_type1 || port == self.udp_type2)
    }

    #[inline]
    const fn is_afh_type(&self, kind: u16) -> bool {
        kind == self.mac_type1 || kind == self.mac_type2
    }
}

impl Default for ParseConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Classifies a frame of `len` octets (FCS not counted) by its first 64.
///
/// `head` holds the first `min(len, 64)` octets of the frame and zeros after them.
///
/// # Errors
/// [`ParseError::Short`] when the frame ends inside a header that it claims to have: `need` and
/// `had` count from the first octet of the frame. No other error is returned.
#[inline]
pub fn parse_head(
    head: &[u8; HEAD_LEN],
    len: usize,
    cfg: &ParseConfig,
) -> Result<Head, ParseError> {
    need(len, ETHERNET_LEN, Layer::Ethernet)?;
    let dst = be64::<0, _>(head) >> 16;
    let src = be64::<4, _>(head) & MAC_MASK;
    let kind = be16::<12, _>(head);
    let lite = matches!(cfg.afh, AfhMode::Lite);
    let mut out = Head { flags: flag(RESERVED, dst >> 4 == RESERVED_GROUP >> 4), ..Head::EMPTY };

    // wire-formats.md 1.8, rule 2
    if kind == ether_type::MAC_CONTROL && (!lite || dst == MacAddr::PAUSE.to_bits()) {
        return mac_control(head, len, cfg, out, dst, src);
    }
    // rule 3
    if lite {
        out.format = Format::AfhLite;
        set_id16(&mut out, cfg.gen2_order, dst, src);
        return Ok(out);
    }
    // rule 4
    let (kind, l3, l3_offset) = if kind == cfg.tpid {
        need(len, TAGGED_LEN, Layer::VlanTag)?;
        out.flags |= TAGGED;
        out.tci = be16::<14, _>(head);
        (be16::<16, _>(head), window::<TAGGED_LEN, L3_LEN, _>(head), TAGGED_LEN)
    } else {
        (kind, window::<ETHERNET_LEN, L3_LEN, _>(head), ETHERNET_LEN)
    };
    let frame = L3 { octets: l3, offset: l3_offset, len };
    if kind == ether_type::IPV4 {
        set_ethernet(&mut out, dst, src);
        ipv4(&mut out, frame, cfg)?; // rule 5
    } else if kind == ether_type::IPV6 {
        set_ethernet(&mut out, dst, src);
        ipv6(&mut out, frame, cfg)?;
    } else if cfg.is_afh_type(kind) {
        afh(&mut out, frame, cfg, dst, src)?; // rule 6
    } else {
        set_ethernet(&mut out, dst, src); // rule 7
    }
    Ok(out)
}

/// What follows the EtherType: octets in view, where they start, and the frame's length.
#[derive(Clone, Copy)]
struct L3<'a> {
    octets: &'a [u8; L3_LEN],
    offset: usize,
    len: usize,
}

impl L3<'_> {
    /// Refuses a frame that ends before `octets` octets of what follows the EtherType.
    #[inline]
    const fn need(&self, octets: usize, layer: Layer) -> Result<(), ParseError> {
        need(self.len, self.offset + octets, layer)
    }
}

#[inline]
const fn need(len: usize, octets: usize, layer: Layer) -> Result<(), ParseError> {
    if len < octets { Err(ParseError::short(layer, octets, len)) } else { Ok(()) }
}

/// `bit` if `on`, without a branch.
#[inline]
const fn flag(bit: u16, on: bool) -> u16 {
    bit * on as u16
}

#[inline]
fn set_ethernet(out: &mut Head, dst: u64, src: u64) {
    out.dst = AddrKey::new(AddrSpace::Ethernet, dst);
    out.src = AddrKey::new(AddrSpace::Ethernet, src);
    out.flags |= flag(GROUP, dst & GROUP_BIT != 0)
        | flag(BROADCAST, dst == MAC_MASK)
        | flag(SOURCE_VALID, src != 0 && src & GROUP_BIT == 0);
}

#[inline]
fn set_gen1(out: &mut Head, dst: u64, src: u64) {
    let group = dst & GROUP_BIT != 0;
    out.dst = AddrKey::new(AddrSpace::Gen1, if group { dst } else { dst & GEN1_MASK });
    out.src = AddrKey::gen1(src);
    out.tc = top_octet(src);
    out.flags |= HAS_TC
        | flag(GROUP, group)
        | flag(BROADCAST, dst == MAC_MASK)
        | flag(SOURCE_VALID, src & GEN1_MASK != 0);
}

#[inline]
fn set_id16(out: &mut Head, order: Gen2Order, dst: u64, src: u64) {
    let (key_words, tc) = order.key_words_and_tc(top_octet(dst), top_octet(src));
    out.dst = AddrKey::new(AddrSpace::Id16, dst & 0xFFFF);
    out.src = AddrKey::new(AddrSpace::Id16, src & 0xFFFF);
    out.tc = tc.0;
    out.flags |=
        HAS_TC | flag(GROUP, key_words.is_multicast()) | flag(SOURCE_VALID, src & 0xFFFF != 0);
}

/// First octet on the wire of a 48-bit half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper bits are meant to go")]
const fn top_octet(half: u64) -> u8 {
    (half >> 40) as u8
}

#[inline(never)] // rare
fn mac_control(
    head: &[u8; HEAD_LEN],
    len: usize,
    cfg: &ParseConfig,
    mut out: Head,
    dst: u64,
    src: u64,
) -> Result<Head, ParseError> {
    need(len, ETHERNET_LEN + OPCODE_LEN, Layer::MacControl)?;
    set_ethernet(&mut out, dst, src);
    let own = cfg.port_mac.to_bits();
    out.format = Format::MacControl;
    out.opcode = be16::<14, _>(head);
    out.flags |= flag(PFC_DA, dst == MacAddr::PAUSE.to_bits() || (own != 0 && dst == own));
    Ok(out)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "offsets are 14 or 18 plus at most 60")]
fn ipv4(out: &mut Head, frame: L3<'_>, cfg: &ParseConfig) -> Result<(), ParseError> {
    frame.need(IPV4_LEN, Layer::Ipv4)?;
    let octets = frame.octets;
    let first = octet::<0, _>(octets);
    if first >> 4 != 4 {
        return Ok(());
    }
    out.flags |= IPV4;
    out.ip_offset = frame.offset as u8;
    out.tos = octet::<1, _>(octets);
    out.ip_proto = octet::<9, _>(octets);
    let header_len = (first & 0xF) as usize * 4;
    frame.need(header_len, Layer::Ipv4)?;
    let is_fragment = be16::<6, _>(octets) & 0x3FFF != 0; // more fragments, or an offset
    let total_len = be16::<2, _>(octets) as usize;
    if header_len < IPV4_LEN || is_fragment {
        return Ok(());
    }
    out.l4_offset = (frame.offset + header_len) as u8;
    if out.ip_proto != ip_proto::UDP || header_len != IPV4_LEN {
        return Ok(());
    }
    if total_len < IPV4_LEN + UDP_LEN {
        out.l4_offset = 0; // what follows is padding
        return Ok(());
    }
    frame.need(IPV4_LEN + UDP_LEN, Layer::Udp)?;
    if !cfg.is_standard_port(be16::<22, _>(octets)) {
        return Ok(());
    }
    out.format = Format::Standard;
    out.flags |= MARKABLE;
    if be16::<24, _>(octets) as usize >= UDP_LEN + RH_LEN {
        frame.need(IPV4_LEN + UDP_LEN + RH_LEN, Layer::Rh)?;
        out.flags |= HAS_RH;
        out.rh_opcode = octet::<28, _>(octets) >> 6;
    }
    Ok(())
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "offsets are 14 or 18 plus 40; the shift drops 4 bits"
)]
fn ipv6(out: &mut Head, frame: L3<'_>, cfg: &ParseConfig) -> Result<(), ParseError> {
    frame.need(IPV6_LEN, Layer::Ipv6)?;
    let octets = frame.octets;
    let first = be16::<0, _>(octets);
    if first >> 12 != 6 {
        return Ok(());
    }
    out.flags |= IPV6;
    out.ip_offset = frame.offset as u8;
    out.tos = (first >> 4) as u8;
    out.ip_proto = octet::<6, _>(octets);
    if is_ipv6_extension(out.ip_proto) {
        return Ok(());
    }
    if out.ip_proto == ip_proto::UDP {
        if (be16::<4, _>(octets) as usize) < UDP_LEN {
            return Ok(()); // what follows is padding
        }
        frame.need(IPV6_LEN + UDP_LEN, Layer::Udp)?;
        out.flags |= flag(MARKABLE, cfg.is_standard_port(be16::<42, _>(octets)));
    }
    out.l4_offset = (frame.offset + IPV6_LEN) as u8;
    Ok(())
}

/// Next headers behind which the transport header is not at octet 40 (the IANA list of extension
/// headers), and 59, "no next header".
#[inline]
const fn is_ipv6_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 50 | 51 | 59 | 60 | 135 | 139 | 140 | 253 | 254)
}

#[inline]
fn afh(
    out: &mut Head,
    frame: L3<'_>,
    cfg: &ParseConfig,
    dst: u64,
    src: u64,
) -> Result<(), ParseError> {
    let key_words = |order: Gen2Order| order.key_words_and_tc(top_octet(dst), top_octet(src)).0;
    let order = cfg.gen2_order;
    let gen2 = match cfg.afh {
        AfhMode::Gen1 => None,
        AfhMode::Gen2 if key_words(order).is_16b() => Some(order),
        AfhMode::Auto if key_words(order).looks_like_gen2() => Some(order),
        AfhMode::Auto if key_words(order.other()).looks_like_gen2() => Some(order.other()),
        AfhMode::Auto => None,
        // no AFH here, or GEN2_32b, whose layout is not public: plain Ethernet by 48 bits
        AfhMode::None | AfhMode::Lite | AfhMode::Gen2 => {
            set_ethernet(out, dst, src);
            return Ok(());
        }
    };
    frame.need(RH_LEN, Layer::Rh)?;
    if let Some(order) = gen2 {
        out.format = Format::AfhGen2;
        set_id16(out, order, dst, src);
    } else {
        out.format = Format::AfhGen1;
        set_gen1(out, dst, src);
    }
    out.flags |= HAS_RH;
    out.rh_opcode = octet::<0, _>(frame.octets) >> 6;
    Ok(())
}

#[cfg(test)]
mod tests;
