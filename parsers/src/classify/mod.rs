//! Classification of a frame by its first 64 bytes, in one pass.
//!
//! `([u8; 64], length, ParseConfig)` to [`Head`] (32 bytes, `Copy`) or [`ParseError`]. Lengths and
//! offsets are from the first byte of the frame, FCS not counted.
//!
//! Source: docs/spec/wire-formats.md §1.8 (order of the rules), docs/spec/pipeline.md §1 (MAC
//! Control, modes, short frames).
//!
//! Cases that the rules leave open, and how they are decided:
//! - A frame is malformed when it ends inside a part that the switch itself has to read: the Ethernet
//!   header, the tag, the opcode of MAC Control, the RH of a format that the port reads. All else behind
//!   the EtherType is the end hosts' business: an IP or UDP header that is cut short is ignored, and
//!   the frame is forwarded, as a bridge does.
//! - A UDP datagram to the Standard port with a UDP length below 16 claims no RH: Standard without RH.
//! - EtherType 0x0800 (0x86DD) with another version than 4 (6) is other Ethernet without DSCP.
//! - On a Lite port the mode is authoritative: every frame that is not PAUSE or PFC by DA is Lite.
//! - Mode `auto` takes `Key_words` from the byte that looks like it, `gen2_order`'s own first.

use crate::addr::{AddrKey, AddrSpace, GEN1_MASK, GROUP_BIT, MAC_MASK, MacAddr, is_reserved_group};
use crate::afh::Gen2Order;
use crate::bytes::{be16, be64, byte, window};
use crate::error::{Layer, ParseError};
use crate::head::{
    EXP_SHIFT, HAS_RH, HAS_TC, Head, ID_GROUP, IP_PROTO_SHIFT, IP_VALID, IPV4, IPV6,
    L4_OFFSET_SHIFT, MPLS, PFC_DA, RESERVED, RH_OPCODE_SHIFT, STANDARD_PORT, TAGGED, TC_SHIFT,
    TOS_SHIFT,
};
use crate::types::{AfhMode, Exp, Format, ether_type, ip_proto};
use crate::vlan::Tpids;
use crate::{ethernet, ipv4 as ip4, ipv6 as ip6, mpls, rh, udp, vlan};

/// Bytes of a frame that classification looks at.
pub const HEAD_LEN: usize = 64;

/// Bytes behind the EtherType that are looked at, with or without a tag before them.
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
    /// Byte order of GEN2 and Lite headers.
    pub gen2_order: Gen2Order,
    /// `EtherType` values of a tag; only a frame's first tag is read.
    pub tpids: Tpids,
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
        tpids: Tpids::CTAG,
        mac_type1: ether_type::MAC_TYPE1,
        mac_type2: ether_type::MAC_TYPE2,
        udp_type1: udp::PORT_ROCE,
        udp_type2: 0,
        port_mac: MacAddr::ZERO,
    };

    #[inline]
    const fn is_standard_port(&self, port: u16) -> bool {
        (port == self.udp_type1 || port == self.udp_type2) && port != 0
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

/// Classifies a frame of `len` bytes (FCS not counted) by its first 64.
///
/// `head` holds the first `min(len, 64)` bytes of the frame and zeros after them.
///
/// # Errors
/// [`ParseError::Short`] when the frame ends inside a header that the switch has to read: `need` and
/// `had` count from the first byte of the frame. No other error is returned.
#[inline]
pub fn parse_head(
    head: &[u8; HEAD_LEN],
    len: usize,
    cfg: &ParseConfig,
) -> Result<Head, ParseError> {
    // Everything is worked out in plain words and put together once: a result that is filled in
    // field by field goes through memory and costs twice the time.
    match scan(head, len, cfg) {
        Ok(found) => Ok(found),
        Err(Short { layer, need }) => Err(ParseError::short(layer, need, len)),
    }
}

/// The frame ends before `need` bytes, inside `layer`.
struct Short {
    layer: Layer,
    need: usize,
}

#[expect(clippy::inline_always, reason = "once a frame; a call costs a fifth of what it does")]
#[inline(always)]
fn scan(head: &[u8; HEAD_LEN], len: usize, cfg: &ParseConfig) -> Result<Head, Short> {
    need(len, ETHERNET_LEN, Layer::Ethernet)?;
    // each read takes in two bytes of the neighbouring field; the shift and the mask drop them
    let dst = be64::<0, _>(head) >> 16;
    let src = be64::<4, _>(head) & MAC_MASK;
    let kind = be16::<12, _>(head);
    let lite = matches!(cfg.afh, AfhMode::Lite);

    // docs/spec/wire-formats.md §1.8, rule 2; on a Lite port these bytes are payload, and a data
    // frame may hold 8808h there: the DA has to match, too
    if kind == ether_type::MAC_CONTROL && (!lite || dst == MacAddr::PAUSE.to_bits()) {
        need(len, ETHERNET_LEN + OPCODE_LEN, Layer::MacControl)?;
        let facts = flag(PFC_DA, is_pfc_da(dst, cfg));
        return Ok(ethernet_keys(dst, src).head(Format::MacControl, facts, be16::<14, _>(head)));
    }
    // rule 3
    if lite {
        return Ok(id16_keys(cfg.gen2_order, dst, src).head(Format::AfhLite, 0, 0));
    }
    // rule 4: one tag; a second one matches no rule below, so that the frame is other Ethernet
    let tagged = cfg.tpids.contains(kind);
    let (kind, l3, offset, tci) = if tagged {
        need(len, TAGGED_LEN, Layer::VlanTag)?;
        let l3 = window::<TAGGED_LEN, L3_LEN, _>(head);
        (be16::<16, _>(head), l3, TAGGED_LEN, be16::<14, _>(head))
    } else {
        (kind, window::<ETHERNET_LEN, L3_LEN, _>(head), ETHERNET_LEN, 0)
    };
    let frame = L3 { bytes: l3, offset, len };
    let (format, keys, found) = if kind == ether_type::IPV4 {
        let (format, found) = ipv4(frame, cfg)?; // rule 5
        (format, ethernet_keys(dst, src), found)
    } else if kind == ether_type::IPV6 {
        (Format::Other, ethernet_keys(dst, src), ipv6(frame, cfg))
    } else if cfg.is_afh_type(kind) {
        afh(frame, cfg, dst, src)? // rule 6
    } else {
        (Format::Other, ethernet_keys(dst, src), exp_facts(frame, kind)) // rule 7
    };
    Ok(keys.head(format, found | flag(TAGGED, tagged), tci))
}

/// The part behind the EtherType: its bytes in view, its offset, and the frame's length.
#[derive(Clone, Copy)]
struct L3<'a> {
    bytes: &'a [u8; L3_LEN],
    offset: usize,
    len: usize,
}

impl L3<'_> {
    /// Refuses a frame that has fewer than `bytes` bytes behind the EtherType.
    #[inline]
    const fn need(&self, bytes: usize, layer: Layer) -> Result<(), Short> {
        need(self.len, self.offset + bytes, layer)
    }

    /// Whether the frame has `bytes` bytes behind the EtherType.
    #[inline]
    const fn has(&self, bytes: usize) -> bool {
        self.len >= self.offset + bytes
    }
}

#[inline]
const fn need(len: usize, need: usize, layer: Layer) -> Result<(), Short> {
    if len < need { Err(Short { layer, need }) } else { Ok(()) }
}

/// `bit` if `on`, without a branch.
#[inline]
const fn flag(bit: u64, on: bool) -> u64 {
    bit * on as u64
}

/// Keys of a frame, and the facts that come with them.
#[derive(Clone, Copy)]
struct Keys {
    dst: AddrKey,
    src: AddrKey,
    facts: u64,
}

impl Keys {
    #[inline]
    const fn head(self, format: Format, facts: u64, tci_or_opcode: u16) -> Head {
        let Self { dst, src, facts: own } = self;
        Head { dst, src, facts: facts | own, tci_or_opcode, format }
    }
}

#[inline]
const fn ethernet_keys(dst: u64, src: u64) -> Keys {
    Keys {
        dst: AddrKey::new(AddrSpace::Ethernet, dst),
        src: AddrKey::new(AddrSpace::Ethernet, src),
        facts: 0, // group, broadcast and the like are read off the keys
    }
}

#[inline]
const fn gen1_keys(dst: u64, src: u64) -> Keys {
    let group = dst & GROUP_BIT != 0;
    Keys {
        dst: AddrKey::new(AddrSpace::Gen1, if group { dst } else { dst & GEN1_MASK }),
        src: AddrKey::gen1(src),
        facts: HAS_TC | (src >> 40) << TC_SHIFT,
    }
}

#[inline]
const fn id16_keys(order: Gen2Order, dst: u64, src: u64) -> Keys {
    let (key_words, tc) = order.key_words_and_tc(top_byte(dst), top_byte(src));
    Keys {
        dst: AddrKey::new(AddrSpace::Id16, dst & 0xFFFF),
        src: AddrKey::new(AddrSpace::Id16, src & 0xFFFF),
        facts: HAS_TC
            | (tc.0 as u64) << TC_SHIFT
            | flag(ID_GROUP, key_words.is_multicast())
            | flag(RESERVED, is_reserved_group(dst)),
    }
}

/// First byte on the wire of a 48-bit half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper bits are meant to go")]
const fn top_byte(half: u64) -> u8 {
    (half >> 40) as u8
}

/// PAUSE's address or the port's own.
#[inline]
const fn is_pfc_da(dst: u64, cfg: &ParseConfig) -> bool {
    let own = cfg.port_mac.to_bits();
    dst == MacAddr::PAUSE.to_bits() || (own != 0 && dst == own)
}

/// Format and facts of an IPv4 packet.
#[inline]
fn ipv4(frame: L3<'_>, cfg: &ParseConfig) -> Result<(Format, u64), Short> {
    if !frame.has(IPV4_LEN) {
        // cut short: forwarded without DSCP, as by a bridge (docs/spec/pipeline.md §1)
        return Ok((Format::Other, 0));
    }
    let bytes = frame.bytes;
    let proto = byte::<9, _>(bytes);
    let ip = IPV4 | ip_facts(byte::<1, _>(bytes), proto);
    let first = byte::<0, _>(bytes);
    let total_len = be16::<2, _>(bytes) as usize;
    let is_fragment = be16::<6, _>(bytes) & 0x3FFF != 0; // more fragments, or an offset
    // version 4 without options in one comparison; anything else is rare and stays out of the way
    if first != 0x45 {
        let Some(len) = ipv4_header_len(frame, first) else { return Ok((Format::Other, 0)) };
        if len < IPV4_LEN {
            // the TOS still decides a priority, but no ECN mark may be made: `IP_VALID` stays off
            return Ok((Format::Other, ip));
        }
        let ip = ip | flag(IP_VALID, total_len >= len);
        let l4 = if is_fragment { 0 } else { l4_facts(frame.offset + len) };
        return Ok((Format::Other, ip | l4));
    }
    let ip = ip | flag(IP_VALID, total_len >= IPV4_LEN);
    // not even the first fragment gives its ports: all of a datagram must have one flow hash
    if is_fragment {
        return Ok((Format::Other, ip));
    }
    let with_l4 = ip | l4_facts(frame.offset + IPV4_LEN);
    if proto != ip_proto::UDP {
        return Ok((Format::Other, with_l4));
    }
    if total_len < IPV4_LEN + UDP_LEN || !frame.has(IPV4_LEN + UDP_LEN) {
        return Ok((Format::Other, ip)); // padding follows, or part of a header
    }
    if !cfg.is_standard_port(be16::<22, _>(bytes)) {
        return Ok((Format::Other, with_l4));
    }
    let mut rh = 0;
    // below 16 the UDP length claims no RH, so that there is nothing to be cut short
    if be16::<24, _>(bytes) as usize >= UDP_LEN + RH_LEN {
        frame.need(IPV4_LEN + UDP_LEN + RH_LEN, Layer::Rh)?;
        rh = rh_facts(byte::<28, _>(bytes));
    }
    Ok((Format::Standard, with_l4 | STANDARD_PORT | rh))
}

/// Header length by an IPv4 header's first byte; `None` when that is not version 4, or the frame ends
/// before the header does.
#[cold]
const fn ipv4_header_len(frame: L3<'_>, first: u8) -> Option<usize> {
    let len = (first & 0xF) as usize * 4;
    if first >> 4 == 4 && frame.has(len) { Some(len) } else { None }
}

/// Facts of an IPv6 packet.
#[inline]
fn ipv6(frame: L3<'_>, cfg: &ParseConfig) -> u64 {
    let bytes = frame.bytes;
    let first = be16::<0, _>(bytes);
    if first >> 12 != 6 || !frame.has(IPV6_LEN) {
        return 0;
    }
    let [_, traffic_class] = (first >> 4).to_be_bytes();
    let next = byte::<6, _>(bytes);
    let ip = IPV6 | IP_VALID | ip_facts(traffic_class, next);
    // the transport header lies further back, where one pass does not look
    if is_ipv6_extension(next) {
        return ip;
    }
    let with_l4 = ip | l4_facts(frame.offset + IPV6_LEN);
    if next != ip_proto::UDP {
        return with_l4;
    }
    if (be16::<4, _>(bytes) as usize) < UDP_LEN || !frame.has(IPV6_LEN + UDP_LEN) {
        return ip; // padding follows, or part of a header
    }
    with_l4 | flag(STANDARD_PORT, cfg.is_standard_port(be16::<42, _>(bytes)))
}

/// Fields of an IP header that the switch looks at.
#[inline]
const fn ip_facts(tos: u8, proto: u8) -> u64 {
    (tos as u64) << TOS_SHIFT | (proto as u64) << IP_PROTO_SHIFT
}

/// EXP of the top label, where one is whole. A switch that does not route by labels does not judge a
/// stack that is cut short: such a frame carries no EXP, but is not malformed.
#[inline]
const fn exp_facts(frame: L3<'_>, kind: u16) -> u64 {
    if !mpls::is_mpls(kind) || frame.len < frame.offset + mpls::LEN {
        return 0;
    }
    MPLS | (Exp::from_third_byte(byte::<2, _>(frame.bytes)).get() as u64) << EXP_SHIFT
}

/// Where the transport header starts.
#[inline]
const fn l4_facts(offset: usize) -> u64 {
    (offset as u64) << L4_OFFSET_SHIFT
}

/// The opcode, from the first byte of an RH.
#[inline]
const fn rh_facts(first: u8) -> u64 {
    HAS_RH | (first as u64 >> 6) << RH_OPCODE_SHIFT
}

/// Next headers behind which the transport header is not at byte 40 (the IANA list of extension
/// headers), and 59, "no next header".
#[inline]
const fn is_ipv6_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 50 | 51 | 59 | 60 | 135 | 139 | 140 | 253 | 254)
}

/// Format, keys and facts of a frame with an EtherType of AFH.
#[inline]
fn afh(frame: L3<'_>, cfg: &ParseConfig, dst: u64, src: u64) -> Result<(Format, Keys, u64), Short> {
    let key_words = |order: Gen2Order| order.key_words_and_tc(top_byte(dst), top_byte(src)).0;
    let order = cfg.gen2_order;
    let gen2 = match cfg.afh {
        AfhMode::Gen1 => None,
        // GEN2 looks in its own order only; `auto` tries the other one as well (§1.4)
        AfhMode::Gen2 if key_words(order).is_16b() => Some(order),
        AfhMode::Auto if key_words(order).looks_like_gen2() => Some(order),
        AfhMode::Auto if key_words(order.other()).looks_like_gen2() => Some(order.other()),
        AfhMode::Auto => None,
        // no AFH here, or GEN2_32b, whose layout is not public: plain Ethernet by 48 bits
        AfhMode::None | AfhMode::Lite | AfhMode::Gen2 => {
            return Ok((Format::Other, ethernet_keys(dst, src), 0));
        }
    };
    frame.need(RH_LEN, Layer::Rh)?;
    let rh = rh_facts(byte::<0, _>(frame.bytes));
    Ok(match gen2 {
        Some(order) => (Format::AfhGen2, id16_keys(order, dst, src), rh),
        None => (Format::AfhGen1, gen1_keys(dst, src), rh),
    })
}

#[cfg(test)]
mod tests;
