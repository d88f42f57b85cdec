//! Partial checksums: whether the kernel left a frame's TCP or UDP checksum for others to complete.
//! Shape: [`place`] says where the field is, [`pseudo_sum`] what it holds while it is partial: from one
//! pass over the front; [`find`] looks at a whole frame, behind options and extension headers, too.
//! Units: bytes from the first byte of the frame.
//! Source: docs/spec/pipeline.md §11; RFC 9293 3.1 and RFC 8200 8.1 (pseudo-headers); Linux `CHECKSUM_PARTIAL`.

use crate::bytes::{be16, be64, window};
use crate::checksum::Sum;
use crate::classify::HEAD_LEN;
use crate::head::Head;
use crate::types::{IpVersion, ether_type, ip_proto};
use crate::{ethernet, ipv4, ipv6, vlan};

/// Extension headers of IPv6 that are passed over.
const EXTENSIONS_MAX: usize = 8;
/// Byte of the TCP header where its checksum is.
pub const TCP_FIELD: usize = 16;
/// Byte of the UDP header where its checksum is.
pub const UDP_FIELD: usize = 6;
const PLAIN: usize = ethernet::LEN;
const TAGGED: usize = ethernet::LEN + vlan::LEN;

/// A TCP or UDP checksum that is still to be completed (virtio-net's `csum_start`, `csum_offset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialCsum {
    /// Byte of the frame where the sum starts.
    pub start: u16,
    /// Byte after `start` where the 16-bit checksum goes.
    pub offset: u16,
}

/// What is to be looked at before a frame's checksum can be called complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing: there is none that could be partial.
    Nowhere,
    /// The two bytes at `field`; the sum starts at `start`.
    At {
        /// The transport header.
        start: usize,
        /// The checksum.
        field: usize,
    },
    /// It stands behind IP options or extension headers, where one pass does not look.
    Hidden,
}

/// Where the checksum of a frame's transport header is, if it could be partial.
///
/// UDP to a Standard port never is: its field has a fixed value.
#[inline]
#[must_use]
pub const fn place(head: &Head) -> Place {
    let (Some(ip), Some(version)) = (head.ip_offset(), head.ip_version()) else {
        return Place::Nowhere;
    };
    let (header, behind_extensions) = match version {
        IpVersion::V4 => (ipv4::LEN, false),
        IpVersion::V6 => (ipv6::LEN, true),
    };
    let offset = match head.ip_proto() {
        _ if head.to_standard_port() => return Place::Nowhere,
        ip_proto::TCP => TCP_FIELD,
        ip_proto::UDP => UDP_FIELD,
        _ if behind_extensions && head.l4_offset().is_none() => return Place::Hidden,
        _ => return Place::Nowhere,
    };
    let start = ip as usize + header;
    match head.l4_offset() {
        Some(l4) if l4 as usize == start => Place::At { start, field: start + offset },
        Some(_) => Place::Hidden,
        None => Place::Nowhere, // a fragment, or a length that leaves no room for the header
    }
}

/// The folded sum of the pseudo-header of a frame whose checksum is [`Place::At`]: what the field
/// holds while it is partial. Of other frames it means nothing.
#[inline]
#[must_use]
pub const fn pseudo_sum(bytes: &[u8; HEAD_LEN], head: &Head) -> u16 {
    let sum = match (head.ip_version(), head.tagged()) {
        (Some(IpVersion::V4), false) => v4(window::<PLAIN, { ipv4::LEN }, _>(bytes)),
        (Some(IpVersion::V4), true) => v4(window::<TAGGED, { ipv4::LEN }, _>(bytes)),
        (Some(IpVersion::V6), false) => v6(window::<PLAIN, { ipv6::LEN }, _>(bytes)),
        (Some(IpVersion::V6), true) => v6(window::<TAGGED, { ipv6::LEN }, _>(bytes)),
        (None, _) => Sum::ZERO,
    };
    sum.with16(head.ip_proto() as u16).fold()
}

/// Addresses and length of what follows a header without options.
#[inline]
const fn v4(header: &[u8; ipv4::LEN]) -> Sum {
    let len = be16::<2, _>(header).saturating_sub(20);
    Sum::ZERO.with64(be64::<12, _>(header)).with16(len)
}

/// Addresses and length of what follows the fixed header.
#[inline]
const fn v6(header: &[u8; ipv6::LEN]) -> Sum {
    let source = Sum::ZERO.with64(be64::<8, _>(header)).with64(be64::<16, _>(header));
    let both = source.with64(be64::<24, _>(header)).with64(be64::<32, _>(header));
    both.with16(be16::<4, _>(header))
}

/// Where the checksum of a frame is that nothing says is partial, if it is: the field of TCP or UDP
/// holds the folded sum of the pseudo-header. (A complete one may by chance look the same; completing
/// it changes nothing then.) Fragments, and UDP to a port in `fixed_ports`, have none.
#[must_use]
pub fn find(frame: &[u8], fixed_ports: &[u16]) -> Option<PartialCsum> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut l3 = PLAIN - 2;
    while matches!(word(l3)?, ether_type::CTAG | ether_type::STAG) && l3 < 20 {
        l3 += vlan::LEN;
    }
    let v6 = match word(l3)? {
        ether_type::IPV4 => false,
        ether_type::IPV6 => true,
        _ => return None,
    };
    l3 += 2;
    let (end, addresses) = if v6 {
        (l3 + ipv6::LEN + usize::from(word(l3 + 4)?), frame.get(l3 + 8..l3 + 40)?)
    } else {
        let is_fragment = word(l3 + 6)? & 0x3FFF != 0;
        let len = if is_fragment { 0 } else { word(l3 + 2)? };
        (l3 + usize::from(len), frame.get(l3 + 12..l3 + 20)?)
    };
    if end != frame.len() {
        return None; // padded, cut, or a fragment: a sum up to the frame's end would be of something else
    }
    let of = |protocol| Some((transport(frame, l3, v6, protocol)?, protocol));
    let (l4, protocol) = of(ip_proto::TCP).or_else(|| of(ip_proto::UDP))?;
    let udp = protocol == ip_proto::UDP;
    if udp && fixed_ports.contains(&word(l4 + 2)?) {
        return None;
    }
    let offset = if udp { UDP_FIELD } else { TCP_FIELD };
    let len = u16::try_from(end.checked_sub(l4)?).ok()?;
    let pseudo = Sum::ZERO.with(addresses).with16(len).with16(protocol.into()).fold();
    let is_partial = word(l4 + offset)? == pseudo;
    let (start, offset) = (u16::try_from(l4).ok()?, u16::try_from(offset).ok()?);
    is_partial.then_some(PartialCsum { start, offset })
}

/// Where the header of protocol `want` starts in a whole frame whose IP header is at `l3`; `None`
/// behind a fragment header of IPv6.
#[must_use]
pub fn transport(frame: &[u8], l3: usize, v6: bool, want: u8) -> Option<usize> {
    let byte = |at: usize| frame.get(at).copied();
    let version = byte(l3)?;
    if !v6 {
        let header = usize::from(version & 0xF) * 4;
        let fits = version >> 4 == 4 && header >= ipv4::LEN && byte(l3 + 9)? == want;
        return fits.then_some(l3 + header);
    }
    if version >> 4 != 6 {
        return None;
    }
    let (mut header, mut at) = (byte(l3 + 6)?, l3 + ipv6::LEN);
    for _ in 0..EXTENSIONS_MAX {
        match header {
            _ if header == want => return Some(at),
            0 | 43 | 60 => {
                header = byte(at)?;
                at += (usize::from(byte(at + 1)?) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}
