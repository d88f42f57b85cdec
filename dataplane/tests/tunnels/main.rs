//! Checksums and segmentation inside of tunnels, against frames that another program makes.
//!
//! Stacks of headers, each as a kernel hands it over; what comes of it is compared with what
//! `stack` makes of the same payload, byte for byte, and read by etherparse.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §11.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod stack;

use etherparse::{SlicedPacket, TransportSlice};
use weft_dataplane::pool::PartialCsum;
use weft_dataplane::port::csum::complete_frame;
use weft_dataplane::port::gso::{BadGso, Splitter};
use weft_parsers::partial::find;

use self::stack::Layer::{Datagram, Eth, Gre, Gue, Mpls, Tcp, Udp, V4, V6, V6Routing, Vxlan};
use self::stack::{IP4, Layer, Part, STACKS, Sums, body, build, partial};

const TCPV4: u8 = 1;
const TCPV6: u8 = 4;
const UDP_L4: u8 = 5;
const ECN: u8 = 0x80;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

fn is_plain(stack: &[Layer]) -> bool {
    let said = |l: &&Layer| matches!(l, V4(_) | V6 | V6Routing | Udp(..) | Gre(_));
    stack.iter().filter(said).count() == 1
}

fn has_outer_sums(stack: &[Layer]) -> bool {
    stack.iter().any(|layer| match layer {
        Udp(_, with_sum) => *with_sum,
        Gre(flags) => flags & 0x8000 != 0,
        _ => false,
    })
}

/// The type that a kernel gives to a super-frame, without a bit for CWR.
fn gso_type(stack: &[Layer]) -> u8 {
    match (stack.last().unwrap(), stack.iter().rfind(|l| matches!(l, V4(_) | V6 | V6Routing))) {
        (Datagram, _) => UDP_L4,
        (_, Some(V4(_))) => TCPV4,
        _ => TCPV6,
    }
}

/// What the splitter makes of a super-frame, its checksums still partial.
fn split(
    whole: &[u8],
    kind: u8,
    size: u16,
    start: usize,
) -> Result<Vec<(Vec<u8>, PartialCsum)>, BadGso> {
    let mut splitter = Splitter::new(whole, kind, size, u16::try_from(start).ok())?;
    let mut frames = Vec::new();
    while splitter.left() > 0 {
        let mut into = vec![0xEE; splitter.next_len()];
        let (len, partial) = splitter.emit(whole, &mut into).unwrap();
        assert_eq!(len, into.len());
        frames.push((into, partial));
    }
    Ok(frames)
}

/// Checksums of all that etherparse reads in a frame: the outermost IP header, and the transport inside.
fn read(name: &str, frame: &[u8], stack: &[Layer], at: usize) {
    let outer = SlicedPacket::from_ethernet(frame).unwrap();
    let is_label = stack.iter().any(|l| matches!(l, Mpls(_)));
    assert!(outer.net.is_some() || is_label, "{name}");
    if let Some(v4) = outer.net.as_ref().and_then(|net| net.ipv4_ref()) {
        let header = v4.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum(), "{name}");
    }
    let ip = stack.iter().rposition(|l| matches!(l, V4(_) | V6 | V6Routing)).unwrap();
    let len = match stack[ip] {
        V4(words) => 20 + 4 * words,
        V6Routing => 48,
        _ => 40,
    };
    let packet = SlicedPacket::from_ip(&frame[at - len..]).unwrap();
    let net = packet.net.as_ref().unwrap();
    let sum = match (packet.transport.as_ref().unwrap(), net.ipv4_ref(), net.ipv6_ref()) {
        (TransportSlice::Tcp(tcp), Some(v4), _) => (
            tcp.checksum(),
            tcp.calc_checksum_ipv4(v4.header().source(), v4.header().destination()),
        ),
        (TransportSlice::Tcp(tcp), _, Some(v6)) => (
            tcp.checksum(),
            tcp.calc_checksum_ipv6(v6.header().source(), v6.header().destination()),
        ),
        (TransportSlice::Udp(udp), Some(v4), _) => {
            let v4 = v4.header().to_header();
            (udp.checksum(), udp.to_header().calc_checksum_ipv4(&v4, udp.payload()))
        }
        (TransportSlice::Udp(udp), _, Some(v6)) => {
            let v6 = v6.header().to_header();
            (udp.checksum(), udp.to_header().calc_checksum_ipv6(&v6, udp.payload()))
        }
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(Ok(sum.0), sum.1, "{name}");
}

#[test]
fn super_frames_of_every_tunnel_are_split_into_the_frames_that_were_meant() {
    const SIZE: u16 = 1_300;
    for (name, stack) in STACKS {
        for (len, flags) in
            [(1, ACK), (1_300, ACK | FIN), (9_001, ACK | PSH | FIN | CWR), (60_001, ACK | CWR)]
        {
            let payload = body(len);
            let seq = 0xFFFF_F000_u32;
            let whole = Part { index: 0, seq, flags, payload: &payload };
            let (whole, at) = build(stack, &whole, Sums::Super);
            for ecn in [0, ECN] {
                let frames = split(&whole, gso_type(stack) | ecn, SIZE, at);
                let frames = frames.unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(frames.len(), len.div_ceil(SIZE.into()), "{name}");
                for (n, (mut frame, left)) in frames.into_iter().enumerate() {
                    let payload = payload.chunks(SIZE.into()).nth(n).unwrap();
                    let index = u16::try_from(n).unwrap();
                    let is_last = usize::from(index) + 1 == len.div_ceil(SIZE.into());
                    let last = if is_last { 0xFF } else { !(PSH | FIN) };
                    let first = if index == 0 || ecn == 0 { 0xFF } else { !CWR };
                    let seq = seq.wrapping_add(u32::from(index) * u32::from(SIZE));
                    let part = Part { index, seq, flags: flags & last & first, payload };
                    assert_eq!(left, partial(stack, at), "{name}");
                    assert_eq!(
                        frame,
                        build(stack, &part, Sums::Partial).0,
                        "{name} {n}: as it is left"
                    );
                    assert!(complete_frame(&mut frame, left), "{name}");
                    assert_eq!(frame, build(stack, &part, Sums::Complete).0, "{name} {n}");
                    read(name, &frame, stack, at);
                }
            }
        }
    }
}

#[test]
fn the_bit_of_a_tunnel_changes_nothing() {
    let stack = &[Eth(0), IP4, Udp(4789, true), Vxlan, Eth(0), IP4, Tcp];
    let part = Part { index: 0, seq: 1, flags: ACK, payload: &body(5_000) };
    let (whole, at) = build(stack, &part, Sums::Super);
    let plain = split(&whole, TCPV4, 1_300, at);
    for bit in [0x20, 0x40] {
        assert_eq!(split(&whole, TCPV4 | bit, 1_300, at), plain);
    }
}

#[test]
fn a_partial_checksum_is_found_in_every_tunnel_and_a_complete_one_left_alone() {
    for (name, stack) in STACKS {
        for len in [0, 1, 100, 1_301] {
            let name = format!("{name}, {len} bytes");
            let payload = body(len);
            let part = Part { index: 3, seq: 77, flags: ACK, payload: &payload };
            let (complete, at) = build(stack, &part, Sums::Complete);
            let (mut frame, _) = build(stack, &part, Sums::Partial);
            let left = partial(stack, at);
            assert_eq!(find(&complete, &[]), None, "{name}: complete");
            assert_eq!(find(&frame, &[]), Some(left), "{name}");
            // What is in front was not computed for it: then it is data that looks like a tunnel.
            let mut other = frame.clone();
            let outer = stack.iter().position(|l| matches!(l, Udp(_, true) | Gre(0x8000..)));
            if let Some(outer) = outer {
                let before: usize =
                    complete.len() - build(&stack[outer - 1..], &part, Sums::Complete).0.len();
                let ip = match stack[outer - 1] {
                    V4(_) => 20,
                    V6 => 40,
                    Gue(words) => 4 + 4 * words,
                    other => panic!("{name}: {other:?}"),
                };
                let field = before + ip + if matches!(stack[outer], Udp(..)) { 6 } else { 4 };
                other[field + 1] ^= 0x10;
                assert_eq!(find(&other, &[]), None, "{name}: {outer} wrong");
            }
            assert_eq!(outer.is_some(), has_outer_sums(stack), "{name}");
            assert!(complete_frame(&mut frame, left), "{name}");
            assert_eq!(frame, complete, "{name}");
            for cut in (0..complete.len()).step_by(1 + len / 40) {
                assert_eq!(find(&complete[..cut], &[]), None, "{name}: cut to {cut}");
            }
        }
    }
}

#[test]
fn ports_with_a_fixed_checksum_are_left_alone_inside_of_tunnels_too() {
    let part = Part { index: 0, seq: 0, flags: 0, payload: &body(64) };
    for (name, stack) in STACKS {
        let (frame, at) = build(stack, &part, Sums::Partial);
        let port = u16::from_be_bytes([frame[at + 2], frame[at + 3]]);
        let want = matches!(stack.last(), Some(Tcp)).then(|| partial(stack, at));
        assert_eq!(find(&frame, &[port]), want, "{name}");
        if let Some(Udp(port, _)) = stack.iter().find(|layer| matches!(layer, Udp(..))) {
            assert_eq!(find(&frame, &[*port]), None, "{name}: a tunnel there is none");
        }
    }
}

#[test]
fn a_super_frame_whose_checksum_starts_elsewhere_is_refused() {
    let part = Part { index: 0, seq: 0, flags: ACK, payload: &body(4_000) };
    for (name, stack) in STACKS {
        let (whole, at) = build(stack, &part, Sums::Super);
        let kind = gso_type(stack);
        for start in (0..at + 40).filter(|start| *start != at) {
            // A tunnel over UDP is also a datagram, whose payload may be anything.
            let is_datagram = kind == UDP_L4 && whole.get(start..start + 2) == Some(&[0xC0, 1]);
            let made = split(&whole, kind, 1_000, start);
            assert!(made.is_err() || is_datagram, "{name}: {start}");
        }
        let other = if kind == TCPV4 { TCPV6 } else { TCPV4 };
        assert!(split(&whole, other, 1_000, at).is_err(), "{name}: another type");
        assert!(split(&whole, 3, 1_000, at).is_err(), "{name}: fragments");
        let unsaid = Splitter::new(&whole, kind, 1_000, None);
        let fits = is_plain(stack) || (kind == UDP_L4 && matches!(stack[2], Udp(..)));
        assert_eq!(unsaid.is_ok(), fits, "{name}: only a tunnel's has to be named");
    }
}

/// Headers of a hostile neighbour: nothing panics, and what is split has an end.
#[test]
fn no_cut_or_damaged_header_makes_it_panic() {
    let part = Part { index: 0, seq: 0, flags: ACK, payload: &body(3_000) };
    for (_, stack) in STACKS {
        let (whole, at) = build(stack, &part, Sums::Super);
        let kind = gso_type(stack);
        let try_it = |frame: &[u8]| {
            let _ = find(frame, &[]);
            let Ok(mut splitter) = Splitter::new(frame, kind, 600, u16::try_from(at).ok()) else {
                return;
            };
            let mut bound = 70_000;
            while splitter.left() > 0 && bound > 0 {
                if splitter.emit(frame, &mut [0; 2_000]).is_none() {
                    splitter.skip();
                }
                bound -= 1;
            }
            assert!(bound > 0, "it has an end");
        };
        for cut in 0..at + 24 {
            try_it(&whole[..cut]);
        }
        for byte in 0..at + 24 {
            for value in [0, 1, 0x08, 0x45, 0x4F, 0x60, 0x86, 0xFF] {
                let mut damaged = whole.clone();
                damaged[byte] = value;
                try_it(&damaged);
            }
        }
    }
}

/// Of the packet below, from scapy 2.8.0: `SCTP(sport=5000, dport=5001, tag=0xdeadbeef)/SCTPChunkData(...)`.
const SCTP_CRC: [u8; 4] = [0x2A, 0x91, 0x0B, 0x37];

/// An SCTP packet that a kernel leaves has 0 where its CRC goes, which nothing asks for by name.
#[test]
fn the_crc_of_sctp_is_completed() {
    // A DATA chunk.
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 52, 0, 1, 0, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x13, 0x88, 0x13, 0x89, 0xDE, 0xAD, 0xBE, 0xEF, 0, 0, 0, 0]);
    frame.extend([0, 3, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'w', b'e', b'f', b't']);
    let left = PartialCsum { start: 34, offset: 8 };
    assert_eq!(find(&frame, &[]), Some(left));
    assert!(complete_frame(&mut frame, left));
    assert_eq!(frame[42..46], SCTP_CRC);
    assert_eq!(find(&frame, &[]), None);
    for len in 0..46 {
        assert!(!complete_frame(&mut frame.clone()[..len], left), "cut to {len}");
    }
}
