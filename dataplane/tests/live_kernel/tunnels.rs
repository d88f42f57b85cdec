//! Checksums that a kernel leaves inside of tunnels, wherever they are.
//!
//! Shape: a packet socket sends frames with the place of a checksum, which the kernel leaves to the port at
//! the far end of a veth, as it does with those of its own tunnels.
//! Units: bytes.
//! Source: docs/spec/pipeline.md §11.

#[path = "../tunnels/stack.rs"]
mod stack;

use std::sync::Arc;

use weft_dataplane::pool::{PartialCsum, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::af_xdp::{AfXdp, AfXdpConfig, AttachTo, Builtin, Umem};
use weft_dataplane::time::LinkRate;

use self::stack::{Part, STACKS, Sums, body, build, partial};
use super::headers;
use super::kernel::{Bench, Netns, PacketSender};

const FRAME_LEN_MAX: usize = 1_522;
const NEEDS_CSUM: u8 = 1;

/// A frame, and what is left of its checksum.
type Left = (Vec<u8>, Option<PartialCsum>);

/// Sends a frame with what is left to others.
fn send(sender: &mut PacketSender, (frame, left): &Left) {
    let mut header = [0; 10];
    if let Some(PartialCsum { start, offset }) = left {
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&start.to_ne_bytes());
        header[8..].copy_from_slice(&offset.to_ne_bytes());
    }
    sender.send(&[&header[..], frame].concat());
}

/// Each stack, with its checksum partial and complete.
fn frames() -> Vec<(String, Left)> {
    let payload = body(200);
    let part = Part { index: 9, seq: 1, flags: 0x10, payload: &payload };
    let both = STACKS.iter().flat_map(|(name, stack)| {
        let (left, at) = build(stack, &part, Sums::Partial);
        let (complete, _) = build(stack, &part, Sums::Complete);
        let partial = partial(stack, at);
        [
            (format!("{name}, partial"), (left, Some(partial))),
            (format!("{name}, complete"), (complete, None)),
        ]
    });
    both.collect()
}

/// One in a tunnel that nothing but the kernel knows.
fn unknown() -> Left {
    let payload = body(200);
    let part = Part { index: 0, seq: 1, flags: 0x10, payload: &payload };
    let stack = &[stack::Layer::Eth(0), stack::IP4, stack::Layer::Tcp];
    let (mut frame, at) = build(stack, &part, Sums::Partial);
    frame.splice(12..12, [0x88, 0xB7, 1, 2, 3, 4, 5, 6, 7, 8]);
    let at = at + 10;
    (frame, Some(partial(stack, at)))
}

/// What a port receives of what a host sends.
fn received<P: Port>(bench: &mut Bench<P>, sender: &mut PacketSender, sent: &Left) -> Left {
    send(sender, sent);
    let (bytes, _) = sent;
    // The host says things of its own in between.
    let is_it = |frame: &[u8]| frame.len() == bytes.len() && frame.get(..12) == bytes.get(..12);
    let frames = bench.until(|frame, _| is_it(frame));
    frames.into_iter().find(|(frame, _)| is_it(frame)).unwrap()
}

fn all_are_seen<P: Port>(mut bench: Bench<P>) {
    assert_eq!(bench.link(true), None);
    let mut sender = headers::sender("host");
    for (name, sent) in frames().into_iter().chain([("unknown".to_owned(), unknown())]) {
        let got = received(&mut bench, &mut sender, &sent);
        assert_eq!(got.1, sent.1, "{name}: where the checksum is");
        assert_eq!(got.0, sent.0, "{name}: bytes");
    }
    bench.end();
}

#[test]
fn a_packet_socket_is_told_of_checksums_wherever_they_are() {
    let Some(ns) = Netns::new("a_packet_socket_is_told_of_checksums") else { return };
    ns.veth();
    let config = AfPacketConfig {
        device: "sw".to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: FRAME_LEN_MAX,
        tx_ring_frames: 64,
        rx_ring_frames: 256,
    };
    let pool = Pool::map(512, FRAME_LEN_MAX).unwrap();
    all_are_seen(Bench::new(AfPacket::open(&config).unwrap(), pool));
}

fn af_xdp(attach: AttachTo) -> Bench<AfXdp> {
    let config = AfXdpConfig {
        device: "sw".to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: FRAME_LEN_MAX,
        tx_ring_frames: 64,
        rx_ring_frames: 256,
        queues: None,
        attach,
        zero_copy: false,
        busy_poll_us: 0,
        fixed_udp_ports: [4_791, 0],
    };
    let umem = Umem::new(Pool::map_umem(1_024, FRAME_LEN_MAX).unwrap());
    let port = AfXdp::open(&config, &umem, Box::new(Builtin::new())).unwrap();
    Bench::new(port, Arc::clone(umem.pool()))
}

#[test]
fn the_program_on_a_veth_sees_checksums_wherever_they_are() {
    let Some(ns) = Netns::new("the_program_on_a_veth_sees_checksums") else { return };
    ns.veth();
    let bench = af_xdp(AttachTo::Native);
    if !bench.port.knows_checksums() {
        eprintln!(
            "SKIPPED the_program_on_a_veth_sees_checksums: this kernel does not show buffers"
        );
        return;
    }
    all_are_seen(bench);
}

/// Without a buffer beside the frame, what is left of its checksum is found by its value.
#[test]
fn checksums_in_known_tunnels_are_found_where_no_program_sees_them() {
    let Some(ns) = Netns::new("checksums_in_known_tunnels_are_found") else { return };
    ns.veth();
    let mut bench = af_xdp(AttachTo::Generic);
    assert!(!bench.port.knows_checksums());
    assert_eq!(bench.link(true), None);
    let mut sender = headers::sender("host");
    // The kernel has taken outer tags out, which no program of this kind sees.
    let is_untagged = |frame: &[u8]| frame.get(12..14) == Some(&[0x08, 0]);
    for (name, sent) in frames().into_iter().filter(|(_, (frame, _))| is_untagged(frame)) {
        assert_eq!(received(&mut bench, &mut sender, &sent), sent, "{name}");
    }
    bench.end();
}
