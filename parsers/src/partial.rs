//! Partial checksums: whether the kernel left a frame's TCP or UDP checksum for others to complete.
//! Shape: [`place`] says where the field is, [`pseudo_sum`] what it holds while it is partial.
//! Units: octets from the first octet of the frame.
//! Source: pipeline.md 11; RFC 9293 3.1 and RFC 8200 8.1 (pseudo-headers); Linux `CHECKSUM_PARTIAL`.

use crate::bytes::{be16, be64, window};
use crate::checksum::Sum;
use crate::classify::HEAD_LEN;
use crate::head::Head;
use crate::types::{IpVersion, ip_proto};
use crate::{ethernet, ipv4, ipv6, vlan};

const TCP_FIELD: usize = 16;
const UDP_FIELD: usize = 6;
const PLAIN: usize = ethernet::LEN;
const TAGGED: usize = ethernet::LEN + vlan::LEN;

/// What is to be looked at before a frame's checksum can be called complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing: there is none that could be partial.
    Nowhere,
    /// The two octets at `field`; the sum starts at `start`.
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
        _ if head.ecn_markable() => return Place::Nowhere,
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
pub const fn pseudo_sum(octets: &[u8; HEAD_LEN], head: &Head) -> u16 {
    let sum = match (head.ip_version(), head.tagged()) {
        (Some(IpVersion::V4), false) => v4(window::<PLAIN, { ipv4::LEN }, _>(octets)),
        (Some(IpVersion::V4), true) => v4(window::<TAGGED, { ipv4::LEN }, _>(octets)),
        (Some(IpVersion::V6), false) => v6(window::<PLAIN, { ipv6::LEN }, _>(octets)),
        (Some(IpVersion::V6), true) => v6(window::<TAGGED, { ipv6::LEN }, _>(octets)),
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
