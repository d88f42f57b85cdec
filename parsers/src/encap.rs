//! Headers in front of a transport header: plain IP's, or those of tunnels inside of each other.
//!
//! [`walk`] shows its caller each transport header that a frame can have, from the front on, until
//! one is taken; [`Headers`] are those in front of it with a length or a checksum over the bytes
//! behind them. Offsets count from the first byte of the frame.
//!
//! Source: RFC 2003, 2473 and 4213 (IP in IP), 2784 and 2890 (GRE), 3032, 4023 and 7510 (MPLS),
//! 7348 (VXLAN), 8926 (Geneve), 8086 (GRE in UDP), 8986 (Ethernet in IPv6); Linux
//! `net/ipv4/fou_core.c` (GUE).
//!
//! No field names the protocol in a UDP payload: a VXLAN device sends to any port. So the payload
//! is tried as each tunnel that Linux has, and taken for one only if every IP header inside ends
//! where the frame ends, and every IPv4 header's checksum is right.

use crate::checksum::checksum;
use crate::types::{ether_type, ip_proto};
use crate::{ipv4, ipv6, udp};

/// Headers that [`Headers`] has room for.
pub const HEADERS_MAX: usize = 8;
/// IP headers that are looked at before a frame is given up: it may be made to fit many tunnels.
const TRIES: u8 = 24;
/// Tags of one Ethernet header.
const TAGS_MAX: usize = 4;
/// MPLS labels of one stack.
const LABELS_MAX: usize = 8;
/// Extension headers of one IPv6 header.
const EXTENSIONS_MAX: usize = 8;
const MPLS_LABEL: usize = 4;
const VXLAN: usize = 8;
const GENEVE: usize = 8;
const GUE: usize = 4;
const GRE: usize = 4;

/// Kinds of headers that have a length of, or a checksum over, the bytes behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4: length, identification, checksum of the header.
    Ipv4,
    /// IPv6: its payload length.
    Ipv6,
    /// UDP with a tunnel in it: length, checksum.
    Udp,
    /// GRE: perhaps a checksum, and a sequence number.
    Gre,
}

/// A header of such a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the header.
    pub kind: Kind,
    /// Offset of its first byte in the frame.
    pub at: usize,
}

/// The headers in front of a transport header, outermost first; the last one is its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    all: [Header; HEADERS_MAX],
    count: usize,
}

impl Headers {
    const NONE: Self = Self { all: [Header { kind: Kind::Ipv4, at: 0 }; HEADERS_MAX], count: 0 };

    /// Every header, outermost first.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Header] {
        self.all.get(..self.count).unwrap_or_default()
    }

    /// Whether there is no tunnel: IP alone.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.count == 1
    }

    fn push(&mut self, kind: Kind, at: usize) -> Option<()> {
        *self.all.get_mut(self.count)? = Header { kind, at };
        self.count += 1;
        Some(())
    }
}

/// A transport header and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// TCP, UDP or SCTP ([`ip_proto`]).
    pub proto: u8,
    /// Offset of its first byte in the frame.
    pub at: usize,
}

/// Verdict of the caller of [`walk`] on a transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This is the header sought; the walk ends.
    Take,
    /// The header sought may be in a tunnel that this one carries.
    Inside,
    /// The header sought is neither this one nor in it.
    Leave,
}

/// How the lengths in IP headers must fit a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// Each header counts all bytes up to the end.
    Exact,
    /// Of a super-frame, which may be too long for its length fields: only headers behind UDP must
    /// fit, or have a length of 0.
    SuperFrame,
}

/// Shows `accept` the transport headers of `frame`, with the headers in front of each, and returns
/// the one that it takes. A fragment, or a protocol that no kernel sends over IP, has none.
pub fn walk(
    frame: &[u8],
    lengths: Lengths,
    accept: impl FnMut(&Headers, Transport) -> Answer,
) -> Option<(Headers, Transport)> {
    let mut walk = Walk { frame, lengths, headers: Headers::NONE, left: TRIES, accept };
    let found = walk.ethernet(0, Sure::Yes)?;
    Some((walk.headers, found))
}

/// Whether a field in front names the header, or it is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sure {
    Yes,
    No,
}

struct Walk<'a, F> {
    frame: &'a [u8],
    lengths: Lengths,
    headers: Headers,
    left: u8,
    accept: F,
}

impl<F: FnMut(&Headers, Transport) -> Answer> Walk<'_, F> {
    fn byte(&self, at: usize) -> Option<u8> {
        self.frame.get(at).copied()
    }

    fn word(&self, at: usize) -> Option<u16> {
        self.frame.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
    }

    fn ethernet(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        let mut at = at + 12;
        // at most `TAGS_MAX` tags: a frame of nothing but tags must not hold up the walk
        for _ in 0..=TAGS_MAX {
            let kind = self.word(at)?;
            if !matches!(kind, ether_type::CTAG | ether_type::STAG) {
                return self.typed(kind, at + 2, sure);
            }
            at += 4;
        }
        None
    }

    /// Goes on with the header that an EtherType names.
    fn typed(&mut self, kind: u16, at: usize, sure: Sure) -> Option<Transport> {
        match kind {
            ether_type::IPV4 => self.ipv4(at, sure),
            ether_type::IPV6 => self.ipv6(at, sure),
            ether_type::MPLS | ether_type::MPLS_UPSTREAM => self.mpls(at, sure),
            ether_type::ETHERNET => self.ethernet(at, sure),
            _ => None,
        }
    }

    /// Behind the last label is IP, as far as a kernel leaves checksums there.
    fn mpls(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        let is_last = |n: &usize| self.byte(at + n * MPLS_LABEL + 2).is_some_and(|b| b & 1 != 0);
        let labels = (0..LABELS_MAX).find(is_last)? + 1;
        self.ip(at + labels * MPLS_LABEL, sure)
    }

    /// IP of either version.
    fn ip(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        match self.byte(at)? >> 4 {
            4 => self.ipv4(at, sure),
            6 => self.ipv6(at, sure),
            _ => None,
        }
    }

    fn ipv4(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        let packet = self.frame.get(at..)?;
        let first = *packet.first()?;
        let header = usize::from(first & 0xF) * 4;
        let is_fragment = self.word(at + 6)? & 0x3FFF != 0;
        let fits = first >> 4 == 4
            && header >= ipv4::LEN
            && !is_fragment
            && self.fits(self.word(at + 2)?, packet.len(), sure);
        // a header that is only tried must prove itself: lengths alone fit by chance too often
        if !fits || (sure == Sure::No && checksum(packet.get(..header)?) != 0) {
            return None;
        }
        let proto = self.byte(at + 9)?;
        self.inside(Kind::Ipv4, at, |walk| walk.transport(proto, at + header, sure))
    }

    fn ipv6(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        let packet = self.frame.get(at..)?;
        let payload = packet.len().checked_sub(ipv6::LEN)?;
        if packet.first()? >> 4 != 6 || !self.fits(self.word(at + 4)?, payload, sure) {
            return None;
        }
        let (mut next, mut behind) = (self.byte(at + 6)?, at + ipv6::LEN);
        // hop-by-hop options, routing, destination options; a frame may chain any number
        for _ in 0..EXTENSIONS_MAX {
            if !matches!(next, 0 | 43 | 60) {
                break; // no transport header follows a fragment header
            }
            next = self.byte(behind)?;
            behind += (usize::from(self.byte(behind + 1)?) + 1) * 8;
        }
        self.inside(Kind::Ipv6, at, |walk| walk.transport(next, behind, sure))
    }

    /// Whether a length field fits the number of bytes that the frame has.
    fn fits(&self, field: u16, there: usize, sure: Sure) -> bool {
        let exact = usize::from(field) == there;
        match self.lengths {
            Lengths::Exact => exact,
            // 0 is Linux's length of a super-frame above 65,535 bytes; a header that is named needs
            // no proof
            Lengths::SuperFrame => exact || sure == Sure::Yes || field == 0,
        }
    }

    /// Goes on behind a header, which is forgotten if that leads nowhere.
    fn inside(
        &mut self,
        kind: Kind,
        at: usize,
        go_on: impl FnOnce(&mut Self) -> Option<Transport>,
    ) -> Option<Transport> {
        // counts tries that led nowhere as well: a crafted frame may fit many tunnels at each level
        self.left = self.left.checked_sub(1)?;
        let count = self.headers.count;
        self.headers.push(kind, at)?;
        let found = go_on(self);
        if found.is_none() {
            self.headers.count = count;
        }
        found
    }

    /// Goes on with the header that a protocol number names.
    fn transport(&mut self, proto: u8, at: usize, sure: Sure) -> Option<Transport> {
        match proto {
            ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP => {
                let found = Transport { proto, at };
                match (self.accept)(&self.headers, found) {
                    Answer::Take => Some(found),
                    Answer::Inside if proto == ip_proto::UDP => {
                        self.inside(Kind::Udp, at, |walk| walk.datagram(at + udp::LEN))
                    }
                    Answer::Inside | Answer::Leave => None,
                }
            }
            ip_proto::IPV4 => self.ipv4(at, sure),
            ip_proto::IPV6 => self.ipv6(at, sure),
            ip_proto::GRE => self.inside(Kind::Gre, at, |walk| walk.gre(at, sure)),
            ip_proto::MPLS => self.mpls(at, sure),
            ip_proto::ETHERNET => self.ethernet(at, sure),
            _ => None,
        }
    }

    fn gre(&mut self, at: usize, sure: Sure) -> Option<Transport> {
        let flags = self.word(at)?;
        if flags & !(gre::CHECKSUM | gre::KEY | gre::SEQUENCE) != 0 {
            return None; // routing, or another version, which carries PPP
        }
        self.typed(self.word(at + 2)?, at + gre::len(flags), sure)
    }

    /// Tries the payload of UDP as one tunnel after the other, until one leads to a header that is
    /// taken.
    fn datagram(&mut self, at: usize) -> Option<Transport> {
        let first = self.byte(at)?;
        // IP first: it is FOU's payload, and GUE of version 1 has no header of its own
        self.ip(at, Sure::No)
            .or_else(|| self.vxlan(at, first))
            .or_else(|| self.geneve(at, first))
            .or_else(|| self.gue(at, first))
            .or_else(|| self.inside(Kind::Gre, at, |walk| walk.gre(at, Sure::No)))
            .or_else(|| self.mpls(at, Sure::No))
    }

    /// VXLAN, with or without the next protocol of VXLAN-GPE.
    fn vxlan(&mut self, at: usize, flags: u8) -> Option<Transport> {
        const VNI: u8 = 0x08;
        const NEXT: u8 = 0x04;
        let behind = at + VXLAN;
        match self.byte(at + 3)? {
            // the I flag: every VXLAN header has a VNI (RFC 7348, section 5)
            _ if flags & VNI == 0 => None,
            1 if flags & NEXT != 0 => self.ipv4(behind, Sure::No),
            2 if flags & NEXT != 0 => self.ipv6(behind, Sure::No),
            _ => self.ethernet(behind, Sure::No),
        }
    }

    fn geneve(&mut self, at: usize, first: u8) -> Option<Transport> {
        let options = usize::from(first & 0x3F) * 4;
        if first >> 6 != 0 {
            return None; // another version
        }
        self.typed(self.word(at + 2)?, at + GENEVE + options, Sure::No)
    }

    /// GUE of version 0, a data message; version 1 is IP itself.
    fn gue(&mut self, at: usize, first: u8) -> Option<Transport> {
        let options = usize::from(first & 0x1F) * 4;
        if first >> 5 != 0 {
            return None;
        }
        let proto = self.byte(at + 1)?;
        let is_tunnel = !matches!(proto, ip_proto::TCP | ip_proto::UDP | ip_proto::SCTP);
        is_tunnel.then(|| self.transport(proto, at + GUE + options, Sure::No))?
    }
}

/// The fields of GRE's header that flags announce.
pub mod gre {
    /// A checksum, and 16 bits of zero, are there.
    pub const CHECKSUM: u16 = 0x8000;
    /// A key is there.
    pub const KEY: u16 = 0x2000;
    /// A sequence number is there.
    pub const SEQUENCE: u16 = 0x1000;

    /// Bytes of the header.
    #[inline]
    #[must_use]
    pub const fn len(flags: u16) -> usize {
        super::GRE + 4 * (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize
    }

    /// Byte of the header where the sequence number is, if there is one.
    #[inline]
    #[must_use]
    pub const fn sequence_at(flags: u16) -> Option<usize> {
        if flags & SEQUENCE == 0 { None } else { Some(len(flags) - 4) }
    }
}
