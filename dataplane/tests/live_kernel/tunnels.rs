//! Checksums that a kernel leaves inside of tunnels, wherever they are.
//!
//! A packet socket sends frames with the place of a checksum, which the kernel leaves to the port at
//! the far end of a veth, as it does with those of its own tunnels.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §11.

#[path = "../tunnels/stack.rs"]
mod stack;

use std::sync::Arc;

use weft_dataplane::batch::Batch;
use weft_dataplane::pool::{PartialCsum, Pool};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::af_xdp::{AfXdp, AfXdpConfig, AttachTo, Builtin, Umem};
use weft_dataplane::port::{Port, SuperFrames};
use weft_dataplane::time::LinkRate;

use self::stack::Layer::{self, Eth, Tcp, Udp, V4, V6};
use self::stack::{Part, STACKS, Sums, body, build, partial};
use super::headers;
use super::kernel::{Bench, Netns, PacketSender};

const FRAME_LEN_MAX: usize = 1_522;
const NEEDS_CSUM: u8 = 1;

/// A frame, and what is left of its checksum.
type Left = (Vec<u8>, Option<PartialCsum>);

/// Sends a frame with what is left to others.
fn send(sender: &mut PacketSender, frame: &[u8], left: Option<PartialCsum>) {
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
    let (bytes, left) = sent;
    send(sender, bytes, *left);
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
    all_are_seen(packet("sw", false));
}

fn packet(device: &str, tunnel_tap: bool) -> Bench<AfPacket> {
    let config = AfPacketConfig {
        device: device.to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: FRAME_LEN_MAX,
        tx_ring_frames: 64,
        rx_ring_frames: 256,
        tunnel_tap,
    };
    let pool = Pool::map(512, FRAME_LEN_MAX).unwrap();
    Bench::new(AfPacket::open(&config).unwrap(), pool)
}

fn af_xdp(attach: AttachTo, joins: bool) -> Bench<AfXdp> {
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
        joins,
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
    let bench = af_xdp(AttachTo::Native, false);
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
    let mut bench = af_xdp(AttachTo::Generic, false);
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

/// Segments of a stream, the last one short, and how many there are in all.
fn stream(stack: &[Layer]) -> Vec<Left> {
    const SIZE: usize = 1_200;
    let payload = body(20 * SIZE + 700);
    let (mut seq, last) = (0xFFFF_F000_u32, payload.len().div_ceil(SIZE) - 1);
    let mut frames = Vec::new();
    for (n, payload) in payload.chunks(SIZE).enumerate() {
        let flags = if n == last { 0x18 } else { 0x10 };
        let part = Part { index: u16::try_from(n).unwrap(), seq, flags, payload };
        let (frame, at) = build(stack, &part, Sums::Partial);
        frames.push((frame, Some(partial(stack, at))));
        seq = seq.wrapping_add(u32::try_from(payload.len()).unwrap());
    }
    frames
}

/// Those that the kernel knows how to split: TCP in one tunnel over UDP, without tags, options and extension headers in
/// front and around.
fn is_joined_in_a_tunnel(stack: &[Layer]) -> bool {
    let simple = |layer: &Layer| !matches!(layer, V4(1..) | Layer::V6Routing | Layer::Gre(_));
    let ips = stack.iter().filter(|layer| matches!(layer, V4(_) | V6)).count();
    matches!(stack, [Eth(0), V4(0) | V6, Udp(..), .., V4(0) | V6, Tcp])
        && ips == 2
        && stack.iter().all(simple)
}

/// A port that sends segments as super-frames.
trait Joins: Port + Sized {
    /// One at `sw`.
    fn open() -> Bench<Self>;
    /// Frames that went as part of the one before them.
    fn joined(&self) -> u64;
}

impl Joins for AfPacket {
    fn open() -> Bench<Self> {
        packet("sw", true)
    }

    fn joined(&self) -> u64 {
        self.joined_frames()
    }
}

impl Joins for AfXdp {
    fn open() -> Bench<Self> {
        af_xdp(AttachTo::Native, true)
    }

    fn joined(&self) -> u64 {
        self.joined_frames()
    }
}

/// A veth whose two ends are ports of ours, the first of which sends.
struct Cable<P: Joins> {
    ns: Netns,
    from: Bench<P>,
    to: Bench<AfPacket>,
}

impl<P: Joins> Cable<P> {
    /// `None`, with the reason printed, where that cannot be, or the kernel takes no super-frames of tunnels.
    fn new(test: &str) -> Option<Self> {
        let ns = Netns::new(test)?;
        if !takes_tunnels(test) {
            return None;
        }
        ns.veth();
        let (mut from, mut to) = (P::open(), packet("host", false));
        assert_eq!((from.link(true), to.link(true)), (None, None));
        Some(Self { ns, from, to })
    }

    /// Sends frames in one burst, and checks that the far end receives the same; how many left as a part of the one
    /// before, and how many super-frames came.
    fn pass(&mut self, name: &str, frames: &[Left]) -> (u64, u64) {
        let before = (self.from.port.joined(), self.to.port.received_super_frames());
        self.send(frames);
        let Self { from, to, .. } = self;
        receives(to, name, frames);
        (from.port.joined() - before.0, to.port.received_super_frames() - before.1)
    }

    /// Sends frames in one burst.
    fn send(&mut self, frames: &[Left]) {
        let from = &mut self.from;
        let mut batch = Batch::new();
        for (bytes, left) in frames {
            let mut desc = from.bufs.alloc_from(bytes).unwrap();
            from.bufs.set_partial_csum(&mut desc, *left);
            batch.push(desc);
        }
        while !batch.is_empty() {
            from.port.tx(from.now, &mut from.bufs, &mut batch);
            from.tick().unwrap();
        }
    }

    fn end(self) {
        self.from.end();
        self.to.end();
    }
}

/// Checks that a port receives these frames.
fn receives(to: &mut Bench<AfPacket>, name: &str, frames: &[Left]) {
    let (last, _) = frames.last().unwrap();
    let mut got = to.until(|frame, _| frame == last);
    got.retain(|(frame, _)| frame.len() > 700); // the kernel says things of its own in between
    assert_eq!(got.len(), frames.len(), "{name}");
    for (n, (got, sent)) in got.iter().zip(frames).enumerate() {
        let differs = got.0.iter().zip(&sent.0).position(|(got, sent)| got != sent);
        let lens = [got, sent].map(|(bytes, left)| (bytes.len(), *left));
        assert_eq!((differs, lens[0]), (None, lens[1]), "{name}: {n}");
    }
}

/// Whether this kernel takes super-frames of tunnels from a tap; the reason is printed where it does not.
fn takes_tunnels(test: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|word| word.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 17) {
        eprintln!("SKIPPED {test}: Linux 6.17 is needed, this is {}", release.trim());
    }
    version >= (6, 17)
}

#[test]
fn segments_in_a_tunnel_leave_as_one_super_frame() {
    segments_in_a_tunnel_leave_as_one::<AfPacket>(
        "segments_in_a_tunnel_leave_as_one_by_packet_sockets",
    );
    segments_in_a_tunnel_leave_as_one::<AfXdp>("segments_in_a_tunnel_leave_as_one_by_af_xdp");
}

fn segments_in_a_tunnel_leave_as_one<P: Joins>(test: &str) {
    let Some(mut cable) = Cable::<P>::new(test) else { return };
    for (name, stack) in STACKS {
        let frames = stream(stack);
        let plain = matches!(stack, [Eth(_), V4(0) | V6, Tcp]);
        let one = plain || is_joined_in_a_tunnel(stack);
        let want = if one { (frames.len() as u64 - 1, 1) } else { (0, 0) };
        assert_eq!(cable.pass(name, &frames), want, "{name}");
    }
    cable.end();
}

/// A super-frame goes on to the next hop as it came, where it splits into the frames of which it was made.
#[test]
fn a_super_frame_passes_whole_to_the_next_hop() {
    let Some(mut cable) = Cable::<AfPacket>::new("a_super_frame_passes_whole") else { return };
    cable.ns.ip("link add name sx type veth peer name far");
    for device in ["sx", "far"] {
        cable.ns.ip(&format!("link set {device} up"));
    }
    let (mut out, mut far) = (packet("sx", true), packet("far", false));
    assert_eq!((out.link(true), far.link(true)), (None, None));
    let mut done = 0;
    for (name, stack) in STACKS {
        let frames = stream(stack);
        if !matches!(stack, [Eth(_), V4(0) | V6, Tcp]) && !is_joined_in_a_tunnel(stack) {
            continue; // its frames leave one by one
        }
        cable.send(&frames);
        let from = &mut cable.to;
        // A frame that the kernel sends of its own comes before it.
        while from.port.front().is_none() {
            let lens = from.until(|_, _| true).into_iter().map(|(frame, _)| frame.len());
            assert!(lens.max() < Some(700), "{name}: it was received before it was seen");
        }
        let frame = from.port.front().unwrap();
        let segments = frame.segments();
        assert_eq!(segments.count, frames.len(), "{name}");
        assert_eq!(segments.bytes(), frames.iter().map(|(f, _)| f.len()).sum::<usize>(), "{name}");
        assert!(out.port.send(out.now, &frame), "{name}");
        from.port.pop();
        receives(&mut far, name, &frames);
        done += 1;
    }
    assert_eq!(out.port.passed_super_frames(), done);
    assert!(done > 8, "{done}");
    out.end();
    far.end();
    cable.end();
}

/// Whatever is another way in one of its headers, a frame arrives as it was sent: the kernel, which writes lengths,
/// identifications and checksums of its own, does not get it as a part of a super-frame then.
#[test]
fn a_frame_that_does_not_continue_its_stream_leaves_as_it_is() {
    a_frame_that_does_not_continue::<AfPacket>("a_frame_that_does_not_continue_by_packet_sockets");
    a_frame_that_does_not_continue::<AfXdp>("a_frame_that_does_not_continue_by_af_xdp");
}

fn a_frame_that_does_not_continue<P: Joins>(test: &str) {
    let Some(mut cable) = Cable::<P>::new(test) else { return };
    for (name, stack) in [STACKS[5], STACKS[15], STACKS[22]] {
        let frames: Vec<Left> = stream(stack).into_iter().take(6).collect();
        let start = frames.first().and_then(|(_, left)| *left).unwrap().start;
        let headers = usize::from(start) + 20;
        let mut parted = 0;
        for (at, mask) in (0..headers).flat_map(|at| [(at, 0x01), (at, 0x80)]) {
            let mut frames = frames.clone();
            let (frame, _) = frames.get_mut(2).unwrap();
            *frame.get_mut(at).unwrap() ^= mask;
            let (joined, _) = cable.pass(&format!("{name}, byte {at} ^ {mask:#x}"), &frames);
            // Six frames are one super-frame, or two and three with the changed one between them.
            parted += usize::from(joined == 3);
        }
        assert!(parted > headers, "{name}: {parted} of {}", 2 * headers);
    }
    cable.end();
}

/// The kernel splits what the device does not, into the frames that were joined.
#[test]
fn the_kernel_splits_a_super_frame_of_a_tunnel_for_a_device_that_takes_none() {
    the_kernel_splits_a_super_frame::<AfPacket>(
        "the_kernel_splits_a_super_frame_by_packet_sockets",
    );
    the_kernel_splits_a_super_frame::<AfXdp>("the_kernel_splits_a_super_frame_by_af_xdp");
}

fn the_kernel_splits_a_super_frame<P: Joins>(test: &str) {
    let Some(mut cable) = Cable::<P>::new(test) else { return };
    let off = ["tx-udp_tnl-segmentation", "off", "tx-udp_tnl-csum-segmentation", "off"];
    let done = std::process::Command::new("ethtool").args(["-K", "sw"]).args(off).status();
    assert!(done.unwrap().success(), "ethtool -K sw {off:?}");
    for (name, stack) in STACKS.iter().filter(|(_, stack)| is_joined_in_a_tunnel(stack)) {
        let frames = stream(stack);
        assert_eq!(cable.pass(name, &frames), (frames.len() as u64 - 1, 0), "{name}");
    }
    cable.end();
}

/// Whatever becomes of the tap, frames leave one by one then, and none is lost.
#[test]
fn frames_of_a_tunnel_leave_without_the_tap_too() {
    frames_of_a_tunnel_leave_without::<AfPacket>(
        "frames_of_a_tunnel_leave_without_by_packet_sockets",
    );
    frames_of_a_tunnel_leave_without::<AfXdp>("frames_of_a_tunnel_leave_without_by_af_xdp");
}

fn frames_of_a_tunnel_leave_without<P: Joins>(test: &str) {
    let Some(mut cable) = Cable::<P>::new(test) else { return };
    let (name, stack) = STACKS[5];
    let frames = stream(stack);
    for (change, joined) in [
        ("set weft-out0 up", 20),
        ("set weft-out0 down", 0),
        ("set weft-out0 up", 20),
        ("del weft-out0", 0),
    ] {
        cable.ns.ip(&format!("link {change}"));
        cable.from.settle(); // after a refusal, frames leave one by one for a while
        let name = format!("{name}, {change}");
        assert_eq!(cable.pass(&name, &frames).0, joined, "{name}");
    }
    cable.end();
}

#[test]
fn a_tap_follows_an_interface_that_is_made_again() {
    a_tap_follows_an_interface::<AfPacket>("a_tap_follows_an_interface_by_packet_sockets");
    a_tap_follows_an_interface::<AfXdp>("a_tap_follows_an_interface_by_af_xdp");
}

fn a_tap_follows_an_interface<P: Joins>(test: &str) {
    let Some(mut cable) = Cable::<P>::new(test) else { return };
    let (name, stack) = STACKS[5];
    cable.to.port.release(&mut cable.to.bufs);
    cable.ns.ip("link del sw");
    assert!(cable.from.link(false).is_some());
    cable.ns.ip("link add name sw type veth peer name host");
    cable.ns.veth_up();
    cable.from.link(true);
    cable.to = packet("host", false);
    assert_eq!(cable.to.link(true), None);
    assert_eq!(cable.pass(name, &stream(stack)), (20, 1));
    cable.end();
}
