//! Partial checksums of TCP, UDP and SCTP, which the kernel left to others to complete.
//!
//! [`place`] finds the field, and [`pseudo_sum`] its content while it is partial, from one pass
//! over the front; [`find`] looks at a whole frame, behind options, extension headers and tunnels,
//! too. Offsets count from the first byte of the frame.
//!
//! Source: docs/spec/pipeline.md §11; RFC 9293 3.1 and RFC 8200 8.1 (pseudo-headers); Linux
//! `CHECKSUM_PARTIAL`.

use crate::bytes::{be16, be64, window};
use crate::checksum::Sum;
use crate::classify::HEAD_LEN;
use crate::encap::{Answer, Header, Headers, Kind, Lengths, Transport, gre, walk};
use crate::head::Head;
use crate::types::{Format, IpVersion, ip_proto};
use crate::{ethernet, ipv4, ipv6, vlan};

/// Byte of the TCP header where its checksum is.
pub const TCP_FIELD: usize = 16;
/// Byte of the UDP header where its checksum is.
pub const UDP_FIELD: usize = 6;
/// Byte of the SCTP header where its checksum is: a CRC-32C of four bytes, which a kernel that leaves it to
/// others has set to 0. No other header has its checksum there.
pub const SCTP_FIELD: usize = 8;
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

/// Place of the checksum that must be looked at before it can be called complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: no checksum of the frame could be partial.
    Nowhere,
    /// The two bytes at `field`; the sum starts at `start`.
    At {
        /// Offset of the transport header, where the sum starts.
        start: usize,
        /// Offset of the checksum field.
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
        // a fixed value, which might by chance equal the pseudo-header's sum
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

/// Whether a frame could carry another packet with a partial checksum: other Ethernet could, unless
/// it is TCP; no other format carries packets.
#[inline]
#[must_use]
pub const fn may_carry(head: &Head) -> bool {
    match head.format() {
        Format::Standard | Format::AfhGen1 | Format::AfhGen2 | Format::AfhLite => false,
        Format::Other => head.ip_proto() != ip_proto::TCP || head.l4_offset().is_none(),
        Format::Pbr | Format::MacControl => false,
    }
}

/// The folded sum of the pseudo-header of a frame whose checksum is [`Place::At`]: a partial
/// checksum field holds this. Of other frames it means nothing.
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

/// Addresses, and the number of bytes behind a header without options.
#[inline]
const fn v4(header: &[u8; ipv4::LEN]) -> Sum {
    // saturates: a sender may claim a total length below the header's own
    let len = be16::<2, _>(header).saturating_sub(20);
    Sum::ZERO.with64(be64::<12, _>(header)).with16(len)
}

/// Addresses, and the number of bytes behind the fixed header.
#[inline]
const fn v6(header: &[u8; ipv6::LEN]) -> Sum {
    let source = Sum::ZERO.with64(be64::<8, _>(header)).with64(be64::<16, _>(header));
    let both = source.with64(be64::<24, _>(header)).with64(be64::<32, _>(header));
    both.with16(be16::<4, _>(header))
}

/// Finds the partial checksum of a frame that comes without a flag for it.
///
/// It is a field of TCP or UDP, perhaps inside of tunnels, that holds the folded sum of the
/// pseudo-header, or a field of SCTP that holds 0; and every checksum of a header in front of it is
/// the one for a complete field. A complete checksum may by chance look the same; completing it
/// changes nothing then. Fragments, and UDP to a port in `fixed_ports`, have no partial checksum.
#[must_use]
pub fn find(frame: &[u8], fixed_ports: &[u16]) -> Option<PartialCsum> {
    let accept = |headers: &Headers, transport: Transport| {
        let udp = transport.proto == ip_proto::UDP;
        match word(frame, transport.at + 2) {
            // a fixed value is not a sum, and no tunnel follows it
            Some(port) if udp && fixed_ports.contains(&port) => Answer::Leave,
            _ if is_partial(frame, headers, transport).unwrap_or(false) => Answer::Take,
            _ => Answer::Inside,
        }
    };
    // Padded, cut, or a fragment: a sum up to the frame's end would be of something else.
    let (_, transport) = walk(frame, Lengths::Exact, accept)?;
    let offset = u16::try_from(field_of(transport.proto)).ok()?;
    Some(PartialCsum { start: u16::try_from(transport.at).ok()?, offset })
}

/// Byte of a transport header where its checksum is.
const fn field_of(proto: u8) -> usize {
    match proto {
        ip_proto::UDP => UDP_FIELD,
        ip_proto::SCTP => SCTP_FIELD,
        _ => TCP_FIELD,
    }
}

fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Whether the checksum of a transport header that ends with the frame is partial.
fn is_partial(frame: &[u8], headers: &Headers, Transport { proto, at }: Transport) -> Option<bool> {
    let field = at + field_of(proto);
    if proto == ip_proto::SCTP {
        // Linux completes a CRC before it puts the packet into a tunnel.
        return Some(headers.is_plain() && frame.get(field..field + 4)? == [0; 4]);
    }
    let ip = headers.as_slice().last()?;
    let pseudo = pseudo_header(frame, *ip, proto, frame.len().checked_sub(at)?)?.fold();
    Some(word(frame, field)? == pseudo && fits_outer_sums(frame, headers, at, pseudo)?)
}

/// Sum of the pseudo-header of a transport packet of `len` bytes behind the IP header `ip`.
#[must_use]
pub fn pseudo_header(frame: &[u8], ip: Header, proto: u8, len: usize) -> Option<Sum> {
    let addresses = match ip.kind {
        Kind::Ipv4 => ip.at + 12..ip.at + 20,
        Kind::Ipv6 => ip.at + 8..ip.at + 40,
        Kind::Udp | Kind::Gre => return None,
    };
    let sum = Sum::ZERO.with(frame.get(addresses)?).with16(proto.into());
    Some(sum.with16(u16::try_from(len).ok()?))
}

/// Sum of a frame's bytes from `from` to its end, as if the partial checksum of the transport
/// packet at `start` were complete; it holds `pseudo` now. The sum of that packet is then known, so
/// that its bytes need not be read (Linux `lco_csum`, "local checksum offload").
#[must_use]
pub fn sum_if_complete(frame: &[u8], from: usize, start: usize, pseudo: u16) -> Option<Sum> {
    // a complete packet with its pseudo-header sums up to all ones, so that it alone sums up to
    // `!pseudo`
    Some(Sum::ZERO.with(frame.get(from..start)?).with16(!pseudo))
}

/// Whether the checksums of the tunnels' headers are right once the one inside is complete.
fn fits_outer_sums(frame: &[u8], headers: &Headers, start: usize, pseudo: u16) -> Option<bool> {
    let headers = headers.as_slice();
    for (n, header) in headers.iter().enumerate() {
        // a UDP checksum of 0 is none, and GRE has one only if its flag says so
        let before = match header.kind {
            Kind::Udp if word(frame, header.at + UDP_FIELD)? != 0 => {
                let len = frame.len().checked_sub(header.at)?;
                if usize::from(word(frame, header.at + 4)?) != len {
                    return Some(false);
                }
                let ip = headers.get(n.checked_sub(1)?)?;
                pseudo_header(frame, *ip, ip_proto::UDP, len)?
            }
            Kind::Gre if word(frame, header.at)? & gre::CHECKSUM != 0 => Sum::ZERO,
            _ => continue,
        };
        let sum = sum_if_complete(frame, header.at, start, pseudo)?.with16(before.fold());
        // all ones is 0 in one's complement: the outer checksum fits
        if sum.fold() != 0xFFFF {
            return Some(false);
        }
    }
    Some(true)
}
