//! TCP segments that may be joined: finds their headers, and tells whether one continues another.
//!
//! Source: RFC 9293; RFC 791; RFC 8200; Linux `net/ipv4/udp_offload.c` (`__skb_udp_tunnel_segment`) for tunnels that
//! the kernel can split.

use weft_parsers::encap::{self, Answer, Header, Headers, Kind, Lengths, Transport};
use weft_parsers::partial::{self, UDP_FIELD};
use weft_parsers::{ip_proto, ipv4, ipv6};

use super::super::field::{be16, be32, byte, put};
use crate::pool::PartialCsum;

/// Offset of the outer IP header in a tunnel's super-frame: the kernel expects an Ethernet header without tags.
pub(in crate::port) const OUTER_IP: usize = 14;
/// Flag "more fragments" and fragment offset of IPv4; both 0 in a whole packet.
const MORE_AND_OFFSET: u16 = 0x3FFF;
const SYN_RST_URG: u8 = 0x26;
/// Offset of the checksum in a TCP header.
pub(super) const CSUM_AT: u16 = 16;

/// An IP header without options or extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip {
    pub at: usize,
    pub v6: bool,
    /// IPv4's identification; 0 for IPv6.
    id: u16,
}

/// A tunnel over UDP around a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunnel {
    pub ip: Ip,
    /// Whether its UDP header, right behind `ip`, has a checksum.
    pub has_csum: bool,
}

/// A TCP segment that may be joined.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    frame: &'a [u8],
    pub(super) tunnel: Option<Tunnel>,
    /// The segment's IP header, and offsets of TCP header and payload.
    pub(super) ip: Ip,
    pub(super) l4: usize,
    pub(super) payload: usize,
    pub(super) seq: u32,
    pub(super) flags: u8,
}

impl Ip {
    const fn len(self) -> usize {
        if self.v6 { ipv6::LEN } else { ipv4::LEN }
    }

    const fn end(self) -> usize {
        self.at + self.len()
    }

    /// Reads the header at `at` if `protocol` follows it up to the frame's end: no fragment, no options, a right IPv4
    /// checksum.
    fn parse(frame: &[u8], at: usize, v6: bool, protocol: u8) -> Option<Self> {
        let ip = Self { at, v6, id: if v6 { 0 } else { be16(frame, at + 4)? } };
        let header = frame.get(at..ip.end())?;
        let (len_at, protocol_at, uncounted) = if v6 { (4, 6, ipv6::LEN) } else { (2, 9, 0) };
        let len = usize::from(be16(header, len_at)?) + uncounted;
        let fits = if v6 {
            byte(header, 0)? >> 4 == 6
        } else {
            let whole = be16(header, 6)? & MORE_AND_OFFSET == 0;
            // The super-frame gets a new checksum, and so do the frames split from it: a wrong one would be repaired on
            // the way.
            byte(header, 0)? == 0x45 && whole && ipv4::plain_checksum(header.first_chunk()?) == 0
        };
        (fits && byte(header, protocol_at)? == protocol && at + len == frame.len()).then_some(ip)
    }

    /// Whether `other` is the header of the packet `count` packets later.
    const fn is_followed_by(self, other: Self, count: u16) -> bool {
        // Splitting counts IPv4 ids up by one; any other id could not be restored.
        self.v6 || other.id == self.id.wrapping_add(count)
    }

    /// Writes length and checksum for a packet that ends with a frame of `frame_len` bytes.
    pub(super) fn put_len(self, headers: &mut [u8], frame_len: usize) -> Option<()> {
        if self.v6 {
            put(headers, self.at + 4, u16::try_from(frame_len - self.end()).ok()?.to_be_bytes());
        } else {
            put(headers, self.at + 2, u16::try_from(frame_len - self.at).ok()?.to_be_bytes());
            put(headers, self.at + 10, [0; 2]);
            let check = ipv4::plain_checksum(headers.get(self.at..)?.first_chunk()?);
            put(headers, self.at + 10, check.to_be_bytes());
        }
        Some(())
    }

    /// Folded sum of the pseudo-header for the bytes from this header to the end of the frame.
    pub(super) fn pseudo_sum(self, headers: &[u8], protocol: u8, frame_len: usize) -> Option<u16> {
        let kind = if self.v6 { Kind::Ipv6 } else { Kind::Ipv4 };
        let header = Header { kind, at: self.at };
        Some(partial::pseudo_header(headers, header, protocol, frame_len - self.end())?.fold())
    }
}

impl Tunnel {
    /// Reads the tunnel behind `ip` around a segment at `l4`, whose partial checksum is in place. The tunnel's length
    /// and checksum must be right.
    fn parse(frame: &[u8], ip: Ip, l4: usize) -> Option<Self> {
        let udp = ip.end();
        let len = frame.len().checked_sub(udp)?;
        let has_csum = be16(frame, udp + UDP_FIELD)? != 0;
        let is_right = || {
            let inside = be16(frame, l4 + usize::from(CSUM_AT))?;
            let around = ip.pseudo_sum(frame, ip_proto::UDP, frame.len())?;
            // A wrong checksum must stay wrong: the kernel would compute a right one for each split frame.
            Some(partial::sum_if_complete(frame, udp, l4, inside)?.with16(around).fold() == 0xFFFF)
        };
        let fits = usize::from(be16(frame, udp + 4)?) == len && (!has_csum || is_right()?);
        fits.then_some(Self { ip, has_csum })
    }

    pub(super) const fn udp(self) -> usize {
        self.ip.end()
    }
}

/// Compares the headers of two frames from the front.
struct Same<'a> {
    frames: [&'a [u8]; 2],
    /// Offset up to which bytes were equal or allowed to differ.
    done: usize,
    equal: bool,
}

impl Same<'_> {
    /// The bytes up to `end` must be equal; the `free` bytes behind them may differ.
    fn until(&mut self, end: usize, free: usize) {
        let [one, other] = self.frames.map(|frame| frame.get(self.done..end));
        self.equal &= one.is_some() && one == other;
        self.done = end + free;
    }

    /// Compares an IP header, except for length, identification and checksum.
    fn ip(&mut self, ip: Ip) {
        if ip.v6 {
            self.until(ip.at + 4, 2);
        } else {
            self.until(ip.at + 2, 4);
            self.until(ip.at + 10, 2);
        }
        self.until(ip.end(), 0);
    }
}

impl<'a> Segment<'a> {
    /// Reads a segment that may be joined. `None` for anything but a whole TCP segment with payload behind plain
    /// headers or, with `tunnels`, those of one tunnel over UDP: no fragment, no SYN, RST or URG; right lengths, IPv4
    /// checksums and tunnel checksum, and a TCP checksum that is the pseudo-header's sum.
    pub fn parse(frame: &'a [u8], partial: PartialCsum, tunnels: bool) -> Option<Self> {
        let (ip, tunnel) = Self::layers(frame, usize::from(partial.start), tunnels)?;
        Self::behind(frame, partial, ip, tunnel)
    }

    /// Like [`Self::parse`], for a frame that must have the same headers as this one at the same offsets.
    pub(super) fn parse_next<'b>(
        &self,
        frame: &'b [u8],
        partial: PartialCsum,
    ) -> Option<Segment<'b>> {
        if usize::from(partial.start) != self.l4 {
            return None;
        }
        let tunnel = match self.tunnel {
            Some(Tunnel { ip, .. }) => {
                let ip = Ip::parse(frame, ip.at, ip.v6, ip_proto::UDP)?;
                Some(Tunnel::parse(frame, ip, self.l4)?)
            }
            None => None,
        };
        let ip = Ip::parse(frame, self.ip.at, self.ip.v6, ip_proto::TCP)?;
        Segment::behind(frame, partial, ip, tunnel)
    }

    /// The IP header in front of `l4`, and the tunnel around it, if there is one.
    fn layers(frame: &[u8], l4: usize, tunnels: bool) -> Option<(Ip, Option<Tunnel>)> {
        let mut l3 = 12;
        while matches!(be16(frame, l3)?, 0x8100 | 0x88A8) && l3 < 20 {
            l3 += 4;
        }
        let v6 = match be16(frame, l3)? {
            0x0800 => false,
            0x86DD => true,
            _ => return None,
        };
        l3 += 2;
        // Most segments: the checksum starts right behind a plain IP header, so no tunnel need be searched for.
        if l4 == l3 + if v6 { ipv6::LEN } else { ipv4::LEN } {
            return Some((Ip::parse(frame, l3, v6, ip_proto::TCP)?, None));
        }
        if !tunnels || l3 != OUTER_IP {
            return None; // options and extension headers are rare: sent as they are
        }
        let (ip, tunnel) = in_tunnel(frame, l4)?;
        Some((ip, Some(tunnel)))
    }

    /// The segment behind headers that were found.
    fn behind(
        frame: &'a [u8],
        partial: PartialCsum,
        ip: Ip,
        tunnel: Option<Tunnel>,
    ) -> Option<Self> {
        let l4 = usize::from(partial.start);
        let payload = l4 + usize::from(byte(frame, l4 + 12)? >> 4) * 4;
        let flags = byte(frame, l4 + 13)?;
        let seq = be32(frame, l4 + 4)?;
        let pseudo = ip.pseudo_sum(frame, ip_proto::TCP, frame.len())?;
        // The field must hold the pseudo-header's sum. Any other value would be replaced by it in the super-frame,
        // which would repair a wrong checksum.
        let is_partial = partial.offset == CSUM_AT && be16(frame, l4 + 16)? == pseudo;
        let plain = is_partial && flags & SYN_RST_URG == 0;
        (plain && payload >= l4 + 20 && payload < frame.len()).then_some(Self {
            frame,
            tunnel,
            ip,
            l4,
            payload,
            seq,
            flags,
        })
    }

    /// Bytes of the (outermost) IP packet, which the MTU limits.
    pub fn packet_len(&self) -> usize {
        self.frame.len() - self.tunnel.map_or(self.ip, |tunnel| tunnel.ip).at
    }

    /// Bytes of the frame.
    pub const fn len(&self) -> usize {
        self.frame.len()
    }

    pub const fn is_in_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    pub(super) fn headers(&self) -> &'a [u8] {
        self.frame.get(..self.payload).unwrap_or_default()
    }

    pub fn payload(&self) -> &'a [u8] {
        self.frame.get(self.payload..).unwrap_or_default()
    }

    /// Whether `next` is the segment of the same stream `count` segments later. Sequence number and flags are not
    /// compared.
    pub(super) fn is_followed_by(&self, next: &Self, count: u16) -> bool {
        let mut same = Same { frames: [self.frame, next.frame], done: 0, equal: true };
        match (self.tunnel, next.tunnel) {
            (None, None) => {}
            (Some(tunnel), Some(other)) => {
                same.equal &=
                    tunnel.has_csum == other.has_csum && tunnel.ip.is_followed_by(other.ip, count);
                same.ip(tunnel.ip);
                same.until(tunnel.udp() + 4, 4); // length and checksum
            }
            _ => return false,
        }
        same.ip(self.ip);
        same.until(self.l4 + 4, 4); // sequence
        same.until(self.l4 + 13, 1); // flags
        same.until(self.l4 + 16, 2); // checksum
        same.until(self.payload, 0);
        let layout = |segment: &Self| (segment.ip.at, segment.ip.v6, segment.l4, segment.payload);
        same.equal && layout(self) == layout(next) && self.ip.is_followed_by(next.ip, count)
    }
}

/// The headers of a TCP segment at `l4` in a tunnel over UDP, if the kernel can split such a tunnel.
fn in_tunnel(frame: &[u8], l4: usize) -> Option<(Ip, Tunnel)> {
    let accept = |_: &Headers, Transport { proto, at }: Transport| match (proto, at) {
        (_, at) if at < l4 => Answer::Inside,
        (ip_proto::TCP, at) if at == l4 => Answer::Take,
        _ => Answer::Leave,
    };
    let (headers, _) = encap::walk(frame, Lengths::Exact, accept)?;
    let &[outer, Header { kind: Kind::Udp, at }, inner] = headers.as_slice() else { return None };
    let parse =
        |header: Header, protocol| Ip::parse(frame, header.at, header.kind == Kind::Ipv6, protocol);
    let (outer, inner) = (parse(outer, ip_proto::UDP)?, parse(inner, ip_proto::TCP)?);
    let plain = outer.at == OUTER_IP && outer.end() == at && inner.end() == l4;
    if plain { Some((inner, Tunnel::parse(frame, outer, l4)?)) } else { None }
}
