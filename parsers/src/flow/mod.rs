//! Flow key: the bytes of a frame that its classification depends on, in three words.
//!
//! `([u8; 64], length, ParseConfig)` to [`FlowKey`]. Frames of one port with equal keys have equal
//! [`crate::Head`]s, or are all malformed.
//!
//! Source: docs/spec/wire-formats.md §1.8. The rules are those of `classify`, and a test compares
//! the two.

use crate::bytes::{be16, byte, window};
use crate::classify::{HEAD_LEN, ParseConfig};
use crate::flow_hash::{QP_AT, QP_MASK};
use crate::types::{AfhMode, Exp, ether_type, ip_proto};
use crate::{ethernet, mpls, udp, vlan};

const ETHERNET_LEN: usize = ethernet::LEN;
const TAGGED_LEN: usize = ethernet::LEN + vlan::LEN;
const L3_LEN: usize = HEAD_LEN - TAGGED_LEN;

/// Three words: destination and tag; source and EtherType; IP, UDP, RH and MPLS fields with facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// DA in the low 48 bits as they lie in memory, TCI above.
    dst: u64,
    /// SA in the low 48 bits as they lie in memory, EtherType behind the tag above.
    src: u64,
    /// TOS or EXP 7:0, protocol 15:8, UDP destination port 31:16, facts below, 0 from bit 38 on.
    rest: u64,
}

const PROTO_SHIFT: u32 = 8;
const UDP_PORT_SHIFT: u32 = 16;
/// Lowest of the two bits of the RH opcode.
const RH_SHIFT: u32 = 32;
const FRAGMENT: u64 = 1 << 34;
const UDP_FITS: u64 = 1 << 35;
const RH_FITS: u64 = 1 << 36;
const TAGGED: u64 = 1 << 37;
const LOW_48: u64 = (1 << 48) - 1;

impl FlowKey {
    /// Bits of the third word; those above are 0.
    pub const REST_BITS: u32 = 38;

    /// The key as words.
    #[inline]
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        [self.dst, self.src, self.rest]
    }
}

/// Least frame that has a key: long enough for all that is looked at, tagged or not, but for UDP over
/// IPv6.
const LEN_MIN: usize = 60;
/// Least frame with UDP over tagged IPv6.
const IPV6_LEN_MIN: usize = TAGGED_LEN + crate::ipv6::LEN + udp::LEN;

const _: () = assert!(TAGGED_LEN + crate::ipv4::LEN + udp::LEN + crate::rh::LEN <= LEN_MIN);

/// The key of a frame of `len` bytes, of which `head` is the beginning (zeros after its end); `None`
/// for MAC control, for frames of less than 60 bytes, and for headers that are too rare to remember:
/// IP options, a wrong IP version, a total length without room for the header.
#[expect(clippy::inline_always, reason = "once a frame; a call costs a third of what it does")]
#[inline(always)]
#[must_use]
pub const fn flow_key(head: &[u8; HEAD_LEN], len: usize, cfg: &ParseConfig) -> Option<FlowKey> {
    if len < LEN_MIN {
        return None;
    }
    let dst = u64::from_le_bytes(*window::<0, 8, _>(head)) & LOW_48;
    let src = u64::from_le_bytes(*window::<6, 8, _>(head)); // with the EtherType
    let kind = be16::<12, _>(head);
    if kind == ether_type::MAC_CONTROL {
        return None;
    }
    if matches!(cfg.afh, AfhMode::Lite) {
        // Lite has no EtherType: bytes 12 and 13 are payload, which changes from frame to frame
        return Some(FlowKey { dst, src: src & LOW_48, rest: 0 });
    }
    let (dst, src, kind, l3, facts) = if cfg.tpids.contains(kind) {
        let inner = be16::<16, _>(head);
        let dst = dst | (be16::<14, _>(head) as u64) << 48;
        let src = src & LOW_48 | (inner as u64) << 48;
        (dst, src, inner, window::<TAGGED_LEN, L3_LEN, _>(head), TAGGED)
    } else {
        (dst, src, kind, window::<ETHERNET_LEN, L3_LEN, _>(head), 0)
    };
    // no other EtherType leads classification any further
    if kind != ether_type::IPV4
        && kind != ether_type::IPV6
        && kind != cfg.mac_type1
        && kind != cfg.mac_type2
        && !mpls::is_mpls(kind)
    {
        return Some(FlowKey { dst, src, rest: facts }); // nothing else is looked at
    }
    match rest(l3, kind, len, cfg) {
        Some(rest) => Some(FlowKey { dst, src, rest: rest | facts }),
        None => None,
    }
}

/// Words that decide the choice of links beside the key: frames of one port with equal keys and
/// equal words have equal hashes ([`crate::flow_hash()`]). `head` and `cfg` are those of `key`.
/// `None` for IPv6, whose addresses are longer.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "fields are cut out of the words")]
pub const fn choice_words(
    head: &[u8; HEAD_LEN],
    key: FlowKey,
    cfg: &ParseConfig,
) -> Option<[u64; 2]> {
    if matches!(cfg.afh, AfhMode::Lite) {
        return Some([0; 2]);
    }
    let kind = (key.src >> 48) as u16;
    let (kind, l3) = if key.rest & TAGGED != 0 {
        (kind, window::<TAGGED_LEN, L3_LEN, _>(head))
    } else {
        (kind.swap_bytes(), window::<ETHERNET_LEN, L3_LEN, _>(head)) // as it lies in memory
    };
    if kind == ether_type::IPV6 {
        return None;
    }
    if kind == ether_type::IPV4 {
        let addresses = u64::from_le_bytes(*window::<12, 8, _>(l3));
        let proto = (key.rest >> PROTO_SHIFT) as u8;
        if key.rest & FRAGMENT != 0 || proto != ip_proto::UDP && proto != ip_proto::TCP {
            // not even the first fragment has ports here, as in `flow_hash`
            return Some([addresses, 0]);
        }
        let ports = u32::from_le_bytes(*window::<20, 4, _>(l3)) as u64;
        let port = (key.rest >> UDP_PORT_SHIFT) as u16;
        let has_rh = proto == ip_proto::UDP && (port == cfg.udp_type1 || port == cfg.udp_type2);
        let qp = if has_rh { be16::<{ 20 + udp::LEN + QP_AT }, _>(l3) & QP_MASK } else { 0 };
        return Some([addresses, ports | (qp as u64) << 32]);
    }
    if kind == cfg.mac_type1 || kind == cfg.mac_type2 {
        return Some([(be16::<QP_AT, _>(l3) & QP_MASK) as u64, 0]);
    }
    Some([0; 2]) // addresses and VLAN are in the key
}

/// `bit` if `on`, without a branch.
#[inline]
const fn flag(bit: u64, on: bool) -> u64 {
    bit * on as u64
}

#[inline(never)] // frames of one kind come one after the other: well predicted, and out of the way
const fn rest(l3: &[u8; L3_LEN], kind: u16, len: usize, cfg: &ParseConfig) -> Option<u64> {
    match kind {
        ether_type::IPV4 => ipv4(l3, cfg),
        ether_type::IPV6 => ipv6(l3, len),
        _ if kind != cfg.mac_type1 && kind != cfg.mac_type2 => Some(exp(l3)),
        _ => Some((byte::<0, _>(l3) as u64 >> 6) << RH_SHIFT), // AFH
    }
}

/// EXP of the top MPLS label, which is whole in a frame that has a key.
#[inline]
const fn exp(l3: &[u8; L3_LEN]) -> u64 {
    Exp::from_third_byte(byte::<2, _>(l3)).get() as u64
}

#[inline]
const fn ipv4(l3: &[u8; L3_LEN], cfg: &ParseConfig) -> Option<u64> {
    let total_len = be16::<2, _>(l3) as usize;
    if byte::<0, _>(l3) != 0x45 || total_len < crate::ipv4::LEN {
        // rare headers get no key: the full parser sees each such frame
        return None;
    }
    let proto = byte::<9, _>(l3);
    let ip = byte::<1, _>(l3) as u64
        | (proto as u64) << PROTO_SHIFT
        | flag(FRAGMENT, be16::<6, _>(l3) & 0x3FFF != 0);
    if proto != ip_proto::UDP {
        return Some(ip);
    }
    let port = be16::<22, _>(l3);
    let udp = ip
        | (port as u64) << UDP_PORT_SHIFT
        | flag(UDP_FITS, total_len >= crate::ipv4::LEN + udp::LEN);
    if port != cfg.udp_type1 && port != cfg.udp_type2 {
        // not to a Standard port: no RH is read, so that two lengths make no difference
        return Some(udp);
    }
    let rh = (byte::<28, _>(l3) as u64 >> 6) << RH_SHIFT;
    Some(udp | rh | flag(RH_FITS, be16::<24, _>(l3) as usize >= udp::LEN + crate::rh::LEN))
}

#[inline]
const fn ipv6(l3: &[u8; L3_LEN], len: usize) -> Option<u64> {
    let first = be16::<0, _>(l3);
    if first >> 12 != 6 {
        return None;
    }
    let next = byte::<6, _>(l3);
    let ip = (first as u64 >> 4) & 0xFF | (next as u64) << PROTO_SHIFT;
    if next != ip_proto::UDP {
        return Some(ip);
    }
    if len < IPV6_LEN_MIN {
        // shorter than `ipv6` of `classify` may read: no key, the full parser decides
        return None;
    }
    let fits = flag(UDP_FITS, be16::<4, _>(l3) as usize >= udp::LEN);
    Some(ip | (be16::<42, _>(l3) as u64) << UDP_PORT_SHIFT | fits)
}

const _: () = assert!(TAGGED >> (FlowKey::REST_BITS - 1) == 1, "the highest bit that is used");

#[cfg(test)]
mod tests;
