//! Frames of any stack of headers, made from the inside out: as they are on a wire, and as a kernel leaves
//! them that has its checksums, or its segmentation, done by others.
//!
//! A list of [`Layer`]s and a [`Part`] of a stream → bytes.
//!
//! Units: bytes.
//! Source: those of `weft_parsers::encap`; sums a word at a time, as RFC 1071 has them; Linux
//! `udp_set_csum`, `gre_build_header` for what a kernel leaves.
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

use weft_dataplane::pool::PartialCsum;

/// One header.
#[derive(Clone, Copy, Debug)]
pub enum Layer {
    /// Ethernet with so many tags.
    Eth(usize),
    /// MPLS with so many labels; behind an IP header or UDP, or behind Ethernet.
    Mpls(usize),
    /// IPv4 with so many words of options.
    V4(usize),
    V6,
    /// IPv6 with a routing header.
    V6Routing,
    /// UDP of a tunnel to this port, with a checksum or 0.
    Udp(u16, bool),
    Vxlan,
    /// VXLAN that names what is in it.
    VxlanGpe,
    /// Geneve with so many words of options.
    Geneve(usize),
    /// GUE with so many words of options.
    Gue(usize),
    /// GRE with these flags.
    Gre(u16),
    /// The transport that is meant.
    Tcp,
    Datagram,
}
use Layer::{Datagram, Eth, Geneve, Gre, Gue, Mpls, Tcp, Udp, V4, V6, V6Routing, Vxlan, VxlanGpe};

/// IPv4 without options.
pub const IP4: Layer = V4(0);
/// Headers of all kinds.
#[rustfmt::skip] // columns: name, headers
pub const STACKS: [(&str, &[Layer]); 46] = [
    ("plain",                  &[Eth(0), IP4, Tcp]),
    ("plain, IPv6",            &[Eth(1), V6, Tcp]),
    ("plain datagrams",        &[Eth(0), IP4, Datagram]),
    ("options",                &[Eth(0), V4(3), Tcp]),
    ("routing header",         &[Eth(2), V6Routing, Tcp]),
    ("VXLAN",                  &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, no checksum",     &[Eth(0), IP4, Udp(4789, false), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, another port",    &[Eth(0), IP4, Udp(8472, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, any port",        &[Eth(0), IP4, Udp(31, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, tags outside",    &[Eth(2), IP4, Udp(4789, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, tag inside",      &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(1), IP4, Tcp]),
    ("VXLAN, tags in both",    &[Eth(1), V6, Udp(4789, true), Vxlan, Eth(2), V6, Tcp]),
    ("VXLAN, 6 in 4",          &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(0), V6, Tcp]),
    ("VXLAN, 4 in 6",          &[Eth(0), V6, Udp(4789, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN, 6 in 6",          &[Eth(0), V6, Udp(4789, true), Vxlan, Eth(0), V6, Tcp]),
    ("VXLAN, 6 in 6, no sum",  &[Eth(0), V6, Udp(4789, false), Vxlan, Eth(0), V6, Tcp]),
    ("VXLAN, datagrams",       &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(0), IP4, Datagram]),
    ("VXLAN, datagrams, 6",    &[Eth(0), V6, Udp(4789, false), Vxlan, Eth(0), V6, Datagram]),
    ("VXLAN-GPE, IPv4",        &[Eth(0), IP4, Udp(4790, true), VxlanGpe, IP4, Tcp]),
    ("VXLAN-GPE, IPv6",        &[Eth(0), IP4, Udp(4790, true), VxlanGpe, V6, Tcp]),
    ("VXLAN-GPE, Ethernet",    &[Eth(0), IP4, Udp(4790, true), VxlanGpe, Eth(0), V6, Tcp]),
    ("Geneve",                 &[Eth(0), IP4, Udp(6081, true), Geneve(0), Eth(0), IP4, Tcp]),
    ("Geneve with options",    &[Eth(0), V6, Udp(6081, true), Geneve(7), Eth(1), V6, Tcp]),
    ("Geneve, IPv4, no sum",   &[Eth(0), IP4, Udp(6081, false), Geneve(2), IP4, Tcp]),
    ("Geneve, IPv6",           &[Eth(0), IP4, Udp(6081, true), Geneve(1), V6, Datagram]),
    ("GRE",                    &[Eth(0), IP4, Gre(0), IP4, Tcp]),
    ("GRE, IPv6 in all",       &[Eth(0), V6, Gre(0), V6, Tcp]),
    ("GRE with a key",         &[Eth(0), IP4, Gre(0x2000), V6, Tcp]),
    ("GRE with a checksum",    &[Eth(0), IP4, Gre(0x8000), IP4, Tcp]),
    ("GRE with all",           &[Eth(1), V6, Gre(0xB000), IP4, Tcp]),
    ("GRE, Ethernet",          &[Eth(0), IP4, Gre(0), Eth(1), IP4, Tcp]),
    ("IP in IP",               &[Eth(0), IP4, IP4, Tcp]),
    ("SIT",                    &[Eth(0), IP4, V6, Tcp]),
    ("IPv6 in IPv6",           &[Eth(0), V6, V6, Tcp]),
    ("IPv4 in IPv6",           &[Eth(0), V6, IP4, Datagram]),
    ("IPv6 with segments",     &[Eth(0), V6Routing, V6, Tcp]),
    ("Ethernet in IPv6",       &[Eth(0), V6Routing, Eth(0), IP4, Tcp]),
    ("FOU",                    &[Eth(0), IP4, Udp(5555, true), IP4, Tcp]),
    ("FOU, GRE, no checksum",  &[Eth(0), IP4, Udp(5555, false), Gre(0x2000), V6, Tcp]),
    ("GUE",                    &[Eth(0), IP4, Udp(6080, true), Gue(0), IP4, Tcp]),
    ("GUE with options, GRE",  &[Eth(0), V6, Udp(6080, true), Gue(1), Gre(0x8000), V6, Tcp]),
    ("MPLS",                   &[Eth(0), Mpls(2), IP4, Tcp]),
    ("MPLS in UDP",            &[Eth(0), IP4, Udp(6635, true), Mpls(1), V6, Tcp]),
    ("MPLS in IP",             &[Eth(0), IP4, Mpls(3), IP4, Tcp]),
    ("VXLAN in GRE",           &[Eth(0), IP4, Gre(0x8000), V6, Udp(4789, true), Vxlan, Eth(0), IP4, Tcp]),
    ("VXLAN in VXLAN",         &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(0), V6, Udp(9, true), Vxlan, Eth(0), V6, Tcp]),
];

/// How far the checksums are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// As on a wire.
    Complete,
    /// Only that of the transport is left to others.
    Partial,
    /// Of a super-frame: those in front of it too.
    Super,
}

/// A part of a stream.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Its number: it is in IPv4's identification and GRE's sequence.
    pub index: u16,
    pub seq: u32,
    pub flags: u8,
    pub payload: &'a [u8],
}

/// Bytes of a payload, none of them alike for long.
pub fn body(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect()
}

/// Where the checksum of the frame's transport header is, which starts at `at`.
pub fn partial(stack: &[Layer], at: usize) -> PartialCsum {
    let offset = if matches!(stack.last(), Some(Tcp)) { 16 } else { 6 };
    PartialCsum { start: u16::try_from(at).unwrap(), offset }
}

const SEQUENCE: u16 = 0x1000;
const CHECKSUM: u16 = 0x8000;

/// Ones' complement sum, a word at a time.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let total = words.fold(0_u32, |total, word| {
        let total = total + word;
        (total & 0xFFFF) + (total >> 16)
    });
    u16::try_from(total).unwrap()
}

fn be(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap_or(0).to_be_bytes()
}

/// Addresses of the `depth`th IP header.
fn addresses(layer: Layer, depth: usize) -> Vec<u8> {
    let depth = u8::try_from(depth).unwrap();
    match layer {
        V4(_) => vec![10, depth, 0, 1, 10, depth, 255, 254],
        _ => [
            [0xFD, depth, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0xFE, 0x80, depth, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2],
        ]
        .concat(),
    }
}

/// Folded sum of the pseudo-header of what is behind `ip`.
fn pseudo(ip: Layer, depth: usize, proto: u8, len: usize) -> u16 {
    sum(&[addresses(ip, depth).as_slice(), &[0, proto], &be(len)].concat())
}

fn ether_type(layer: Layer) -> u16 {
    match layer {
        V4(_) => 0x0800,
        V6 | V6Routing => 0x86DD,
        Mpls(_) => 0x8847,
        Eth(_) => 0x6558,
        other => panic!("{other:?} has no EtherType"),
    }
}

fn proto(layer: Layer) -> u8 {
    match layer {
        V4(_) => 4,
        Tcp => 6,
        Udp(..) | Datagram => 17,
        V6 | V6Routing => 41,
        Gre(_) => 47,
        Mpls(_) => 137,
        Eth(_) => 143,
        other => panic!("{other:?} is not behind IP"),
    }
}

/// The frame, and where its transport header starts.
pub fn build(stack: &[Layer], part: &Part<'_>, sums: Sums) -> (Vec<u8>, usize) {
    let complete = layer(stack, 0, part, if sums == Sums::Partial { Sums::Complete } else { sums });
    let transport = match stack.last() {
        Some(Tcp) => 20,
        _ => 8,
    };
    let at = complete.len() - part.payload.len() - transport;
    let mut frame = complete;
    if sums == Sums::Partial {
        // What is in front of it was computed as if it were complete.
        let ip = stack.iter().rposition(|l| matches!(l, V4(_) | V6 | V6Routing)).unwrap();
        let last = stack.last().unwrap();
        let pseudo = pseudo(stack[ip], ip, proto(*last), frame.len() - at);
        let field = at + if matches!(last, Tcp) { 16 } else { 6 };
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    }
    (frame, at)
}

/// The header of `stack[n]` and all behind it.
fn layer(stack: &[Layer], n: usize, part: &Part<'_>, sums: Sums) -> Vec<u8> {
    let this = stack[n];
    if matches!(this, Tcp | Datagram) {
        return transport(stack, n, part, sums);
    }
    let next = stack[n + 1];
    let behind = layer(stack, n + 1, part, sums);
    let header: Vec<u8> = match this {
        Eth(tags) => {
            let mut header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].to_vec();
            for tag in 0..tags {
                header.extend(if tag + 1 < tags { [0x88, 0xA8, 0, 9] } else { [0x81, 0, 0x60, 5] });
            }
            header.extend(ether_type(next).to_be_bytes());
            header
        }
        Mpls(labels) => {
            (1..=labels).flat_map(|label| [1, 2, 0x30 | u8::from(label == labels), 64]).collect()
        }
        V4(_) => ipv4(this, n, next, part, behind.len()),
        V6 | V6Routing => ipv6(this, n, next, behind.len()),
        Vxlan => vec![0x08, 0, 0, 0, 0, 0, 42, 0],
        VxlanGpe => {
            let inside = match next {
                V4(_) => 1,
                V6 | V6Routing => 2,
                _ => 3,
            };
            vec![0x0C, 0, 0, inside, 0, 0, 42, 0]
        }
        Geneve(words) => {
            let kind = ether_type(next).to_be_bytes();
            let mut header = vec![u8::try_from(words).unwrap(), 0, kind[0], kind[1], 0, 0, 42, 0];
            header.resize(8 + 4 * words, 0x5A);
            header
        }
        Gue(words) => {
            let mut header = vec![u8::try_from(words).unwrap(), proto(next), 0, 0];
            header.resize(4 + 4 * words, 0);
            header
        }
        Udp(port, with_sum) => {
            let len = 8 + behind.len();
            let mut header = [&[0xC0, 1], &port.to_be_bytes()[..], &be(len), &[0, 0]].concat();
            if with_sum {
                let pseudo = pseudo(stack[n - 1], n - 1, 17, len);
                let whole = [&pseudo.to_be_bytes(), header.as_slice(), &behind].concat();
                let check = if sums == Sums::Super { pseudo } else { !sum(&whole) };
                let check = if check == 0 { 0xFFFF } else { check };
                header[6..].copy_from_slice(&check.to_be_bytes());
            }
            header
        }
        Gre(flags) => gre(flags, next, part, &behind, sums),
        Tcp | Datagram => unreachable!(),
    };
    [header, behind].concat()
}

fn ipv4(this: Layer, n: usize, next: Layer, part: &Part<'_>, behind: usize) -> Vec<u8> {
    let V4(words) = this else { unreachable!() };
    let len = 20 + 4 * words;
    let id = (0xFFF0 + u16::try_from(n).unwrap()).wrapping_add(part.index).to_be_bytes();
    let first = 0x45 + u8::try_from(words).unwrap();
    let mut header = vec![first, 2, 0, 0, id[0], id[1], 0x40, 0, 63, proto(next), 0, 0];
    header[2..4].copy_from_slice(&be(len + behind));
    header.extend(addresses(this, n));
    header.resize(len, 1);
    let check = !sum(&header);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

fn ipv6(this: Layer, n: usize, next: Layer, behind: usize) -> Vec<u8> {
    let routing: &[u8] =
        if matches!(this, V6Routing) { &[proto(next), 0, 4, 0, 0, 0, 0, 0] } else { &[] };
    let [l0, l1] = be(routing.len() + behind);
    let next = if routing.is_empty() { proto(next) } else { 43 };
    let mut header = vec![0x60, 0, 0, 7, l0, l1, next, 63];
    header.extend(addresses(this, n));
    header.extend(routing);
    header
}

fn gre(flags: u16, next: Layer, part: &Part<'_>, behind: &[u8], sums: Sums) -> Vec<u8> {
    let mut header = [flags.to_be_bytes(), ether_type(next).to_be_bytes()].concat();
    if flags & CHECKSUM != 0 {
        header.extend([0; 4]);
    }
    if flags & 0x2000 != 0 {
        header.extend([0, 0, 1, 7]);
    }
    if flags & SEQUENCE != 0 {
        header.extend((0xFFFF_FFFE_u32).wrapping_add(part.index.into()).to_be_bytes());
    }
    if flags & CHECKSUM != 0 && sums != Sums::Super {
        let check = !sum(&[header.as_slice(), behind].concat());
        header[4..6].copy_from_slice(&check.to_be_bytes());
    }
    header
}

fn transport(stack: &[Layer], n: usize, part: &Part<'_>, sums: Sums) -> Vec<u8> {
    let ip = (0..n).rfind(|n| matches!(stack[*n], V4(_) | V6 | V6Routing)).unwrap();
    let tcp = matches!(stack[n], Tcp);
    let mut packet = [0x9C, 0x40, 0x14, 0x51].to_vec();
    if tcp {
        packet.extend(part.seq.to_be_bytes());
        packet.extend([0, 0, 0, 9, 0x50, part.flags, 1, 0, 0, 0, 0, 0]);
    } else {
        packet.extend(be(8 + part.payload.len()));
        packet.extend([0, 0]);
    }
    packet.extend(part.payload);
    let pseudo = pseudo(stack[ip], ip, proto(stack[n]), packet.len());
    let whole = [&pseudo.to_be_bytes(), packet.as_slice()].concat();
    let check = if sums == Sums::Super { pseudo } else { !sum(&whole) };
    let check = if check == 0 { 0xFFFF } else { check };
    let field = if tcp { 16 } else { 6 };
    packet[field..field + 2].copy_from_slice(&check.to_be_bytes());
    packet
}
