//! The live ports against a real kernel, in network namespaces that each test makes for itself.
//!
//! A namespace with a veth pair (`sw` is the port's, `host` the peer's) or a tap; the kernel's
//! own TCP, ARP and link code is at the other end. Needs root, `ip` and `tc`; says so and passes
//! otherwise.
//!
//! Units: bytes, ms.
//! Source: docs/spec/pipeline.md §11.
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::headers;
use super::kernel::{self, Bench, Netns, PacketSender, listener, mac, udp};
use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use weft_base::wait::{LONG, try_until, until};
use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::{Bufs, PartialCsum, Pool};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::csum;
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortCounters, Segments, SuperFrames};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};

fn pool(chunks: usize) -> Arc<Pool> {
    Pool::map(chunks, 1_518).unwrap()
}

fn config(device: &str) -> AfPacketConfig {
    AfPacketConfig {
        device: device.to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: 1_518,
        tx_ring_frames: 64,
        rx_ring_frames: 2_048,
        tunnel_tap: true,
    }
}

fn af_packet() -> Bench<AfPacket> {
    let mut bench = Bench::new(AfPacket::open(&config("sw")).unwrap(), pool(512));
    assert_eq!(bench.link(true), None);
    bench
}

#[test]
fn af_packet_sends_and_receives_with_short_frames_and_partial_checksums() {
    let Some(ns) = Netns::new("af_packet_sends_and_receives") else { return };
    ns.veth();
    let mut bench = af_packet();
    let socket = listener();
    let mut bytes = [0; 2_000];

    // To the kernel: padded; whole; with a checksum that only the kernel can complete.
    bench.send(&udp(mac("host"), b"short"), None);
    assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
    let mut frame = udp(mac("host"), &[7; 1_400]);
    let pseudo = csum::sum(&[0, 17], csum::sum(&frame[26..34], 1_408));
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    bench.send(&frame, Some(PartialCsum { start: 34, offset: 6 }));
    assert_eq!(socket.recv(&mut bytes).unwrap(), 1_400);
    assert_eq!(bytes[..1_400], [7; 1_400]);

    // From the kernel: a broadcast; its checksum is partial, and right once it is completed.
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"hello", "10.9.0.255:7001").unwrap();
    let is_ours = |f: &[u8]| f.get(36..38) == Some(&7_001_u16.to_be_bytes());
    let frames = bench.until(|f, _| is_ours(f));
    let (mut frame, partial) = frames.into_iter().find(|(f, _)| is_ours(f)).unwrap();
    assert_eq!(frame.len(), 14 + 20 + 8 + 5);
    assert!(csum::complete_frame(&mut frame, partial.expect("veth leaves checksums to us")));
    let packet = SlicedPacket::from_ethernet(&frame).unwrap();
    let Some(TransportSlice::Udp(datagram)) = packet.transport else { panic!("not UDP") };
    let header = datagram.to_header();
    let want = header.calc_checksum_ipv4_raw([10, 9, 0, 1], [10, 9, 0, 255], b"hello");
    assert_eq!(header.checksum, want.unwrap());

    // What we sent does not come back, and what is too long for the device is counted.
    assert_eq!(bench.port.counters().rx_dropped, PortCounters::default().rx_dropped);
    bench.port.release(&mut bench.bufs);
    ns.ip("link set sw mtu 1000");
    let mut bench = af_packet();
    bench.send(&udp(mac("host"), &[0; 1_400]), None);
    assert_eq!(bench.port.counters().tx_failed, 1);
    bench.end();
}

#[test]
fn a_tag_in_metadata_is_put_back() {
    let Some(ns) = Netns::new("a_tag_in_metadata") else { return };
    ns.veth();
    let bench = af_packet();
    // An 802.1Q device is not to be had everywhere; a packet socket with a tagged frame on a veth
    // is: the kernel takes the tag into metadata on its way.
    let mut sender = PacketSender::new("host");
    for (tpid, tci) in [(0x8100_u16, 0x6005_u16), (0x88A8, 0x0FFE)] {
        let mut frame = udp([0xFF; 6], b"tagged");
        frame.splice(12..12, [tpid.to_be_bytes(), tci.to_be_bytes()].concat());
        frame.resize(60, 0);
        sender.send(&frame);
    }
    let mut bench = bench;
    let mut seen = 0;
    let frames = bench.until(|f, _| {
        seen += usize::from(f.len() == 60);
        seen == 2
    });
    let tagged: Vec<_> = frames.iter().filter(|(f, _)| f.len() == 60).collect();
    assert_eq!(tagged[0].0[12..18], [0x81, 0x00, 0x60, 0x05, 0x08, 0x00]);
    assert_eq!(tagged[1].0[12..18], [0x88, 0xA8, 0x0F, 0xFE, 0x08, 0x00]);
    bench.end();
}

/// A TCP frame of the host's with a tag or without, with `len` bytes of payload that begin with `n`.
fn tcp(n: u16, tagged: bool, len: usize) -> Vec<u8> {
    let rest = (2..len).map(|i| u8::try_from(i % 251).unwrap());
    let payload: Vec<u8> = n.to_be_bytes().into_iter().chain(rest).collect();
    let mut frame = Vec::new();
    let ip = PacketBuilder::ethernet2(mac("host"), [2; 6]).ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64);
    ip.tcp(n, 9, 0, 4).write(&mut frame, &payload).unwrap();
    if tagged {
        frame.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
    }
    frame
}

/// As [`tcp`], with the header that says how it splits.
fn super_tcp(n: u16, tagged: bool, len: usize, size: u16) -> Vec<u8> {
    let frame = tcp(n, tagged, len);
    let start = if tagged { 38 } else { 34 };
    let words = [start + 20, size, start, 16].map(u16::to_ne_bytes);
    [&[1, 1], words.as_flattened(), &frame].concat()
}

#[test]
fn frames_that_fit_no_slot_keep_their_place_among_others() {
    const ROUNDS: u16 = 25; // more than one call receives, and less than the rings hold
    let Some(ns) = Netns::new("frames_that_fit_no_slot") else { return };
    ns.veth();
    for device in ["sw", "host"] {
        ns.ip(&format!("link set {device} mtu 3000"));
    }
    let mut bench = af_packet();
    let mut sender = headers::sender("host");
    let plain = |frame: Vec<u8>| [vec![0; 10], frame].concat();
    for n in 0..ROUNDS {
        let tagged = n % 2 == 1;
        sender.send(&plain(tcp(n, tagged, 100)));
        sender.send(&super_tcp(n, tagged, 10_000, 1_440));
        sender.send(&plain(tcp(n, tagged, 200)));
        sender.send(&super_tcp(n, tagged, 1_000, 600)); // in its slot
        sender.send(&plain(tcp(n, tagged, 2_000))); // too long for the port
    }
    let mut lens = vec![];
    let mut bodies = Vec::new();
    while bench.port.counters().rx_dropped[0].1 < u64::from(ROUNDS) {
        for (bytes, partial) in bench.until(|_, _| true) {
            let tag = if bytes[12..14] == [0x81, 0x00] { 4 } else { 0 };
            let n = u16::from_be_bytes([bytes[34 + tag], bytes[35 + tag]]);
            assert_eq!(tag, usize::from(n % 2) * 4, "{n}");
            assert!(tag == 0 || bytes[14..16] == [0x60, 0x05], "{n}");
            let split = lens.len() % 11 != 0 && lens.len() % 11 != 8;
            assert_eq!(partial.map(|p| usize::from(p.start)), split.then_some(34 + tag), "{n}");
            assert_eq!(usize::from(n), lens.len() / 11, "in order");
            lens.push(bytes.len() - 54 - tag);
            bodies.extend_from_slice(&bytes[54 + tag..]);
        }
    }
    let body = |n, len| tcp(n, false, len).split_off(54);
    let round = [100, 1_440, 1_440, 1_440, 1_440, 1_440, 1_440, 1_360, 200, 600, 400];
    assert_eq!(lens, round.repeat(usize::from(ROUNDS)));
    let want: Vec<u8> = (0..ROUNDS)
        .flat_map(|n| [body(n, 100), body(n, 10_000), body(n, 200), body(n, 1_000)].concat())
        .collect();
    assert!(bodies == want, "bytes");
    assert_eq!(bench.port.received_super_frames(), 2 * u64::from(ROUNDS));
    let dropped = bench.port.counters().rx_dropped;
    assert_eq!(dropped[0], (Some(DropReason::TooLong), u64::from(ROUNDS)));
    assert_eq!((dropped[1].0, bench.port.counters().kernel_rx), (None, 0));
    bench.end();
}

#[test]
fn a_ring_that_runs_full_is_counted() {
    let Some(ns) = Netns::new("a_ring_that_runs_full") else { return };
    ns.veth();
    let few = AfPacketConfig { rx_ring_frames: 64, ..config("sw") };
    let mut bench = Bench::new(AfPacket::open(&few).unwrap(), pool(512));
    bench.link(true);
    let mut sender = PacketSender::new("host");
    for n in 0..200_u8 {
        sender.send(&[&[0xFF; 12], &[0x12, 0x34, n][..], &[0; 45]].concat());
    }
    let mut batch = Batch::new();
    let mut seen = Vec::new();
    while bench.port.rx(bench.now, &mut bench.bufs, &mut batch) > 0 {
        for desc in batch.drain(..) {
            seen.push(bench.bufs.bytes(&desc)[14]);
            bench.bufs.free(desc);
        }
    }
    let kept = u8::try_from(seen.len()).unwrap();
    assert!((64..100).contains(&kept), "{kept} slots");
    assert_eq!(seen, (0..kept).collect::<Vec<_>>(), "the first of them");
    assert_eq!(bench.settle(), None);
    assert_eq!(bench.port.counters().kernel_rx, 200 - u64::from(kept));

    sender.send(&[0xFF; 60]); // it goes on
    bench.until(|f, _| f == [0xFF; 60]);
    assert_eq!(bench.port.counters().kernel_rx, 200 - u64::from(kept));
    bench.end();
}

#[test]
fn a_frame_that_the_kernel_refuses_is_counted_and_those_behind_it_leave() {
    let Some(ns) = Netns::new("a_frame_that_the_kernel_refuses") else { return };
    ns.veth();
    let mut bench = af_packet();
    let socket = listener();
    let mut bytes = [0; 2_000];
    for round in 1..=40_u64 {
        let mut batch = Batch::new();
        for len in [100, 1_473, 200, 300, 1_472] {
            // With one byte more than its MTU the device would not take it.
            let mut desc = bench.bufs.alloc_from(&udp(mac("host"), &vec![0; len])).unwrap();
            if len == 300 {
                // A checksum that begins in the MAC addresses: the kernel sees it in the slot.
                let nowhere = PartialCsum { start: 2, offset: 6 };
                bench.bufs.set_partial_csum(&mut desc, Some(nowhere));
            }
            batch.push(desc);
        }
        assert_eq!(bench.port.tx(bench.now, &mut bench.bufs, &mut batch), 5);
        for want in [100, 200, 1_472] {
            assert_eq!(socket.recv(&mut bytes).unwrap(), want, "{round}");
        }
        assert_eq!(bench.port.counters().tx_failed, 2 * round);
    }
    bench.end();
}

#[test]
fn frames_that_wait_while_the_interface_goes_down_are_received_or_counted() {
    let Some(ns) = Netns::new("frames_that_wait_while") else { return };
    ns.veth();
    let mut bench = af_packet();
    let mut sender = headers::sender("host");
    for n in 0..20 {
        sender.send(&super_tcp(n, false, 3_000, 1_000));
    }
    ns.ip("link set sw down");
    bench.link(false);
    let mut batch = Batch::new();
    let mut received = 0;
    let mut error = None;
    for _ in 0..30 {
        bench.port.rx(bench.now, &mut bench.bufs, &mut batch);
        received += batch.len();
        for desc in batch.drain(..) {
            bench.bufs.free(desc);
        }
        error = error.or(bench.settle());
    }
    assert_eq!(received, 60, "what was there before");
    assert!(error.is_some_and(|e| e.contains("Network is down")), "the socket says so");
    assert_eq!(bench.settle(), None, "once");

    ns.ip("link set sw up");
    bench.link(true);
    let base = bench.port.counters().kernel_rx;
    for n in 0..40 {
        sender.send(&super_tcp(n, false, 3_000, 1_000));
    }
    bench.port.rx(bench.now, &mut bench.bufs, &mut batch);
    assert_eq!(batch.len(), 63, "21 of them; for the next one there is no room");
    for desc in batch.drain(..) {
        bench.bufs.free(desc);
    }
    ns.ip("link del sw");
    bench.link(false);
    assert_eq!(bench.port.counters().kernel_rx - base, 19, "they went with it");
    ns.veth();
    bench.link(true);
    let mut sender = headers::sender("host");
    sender.send(&super_tcp(77, false, 3_000, 1_000));
    let number = |f: &[u8]| f[35];
    let frames = bench.until(|f, _| number(f) == 77);
    let numbers: Vec<_> = frames.iter().map(|(f, _)| number(f)).collect();
    assert_eq!(numbers, [77, 77, 77], "nothing of what was before");
    bench.end();
}

#[test]
fn a_call_of_the_kernel_is_for_sixteen_frames_at_least() {
    const ROUNDS: u64 = 200;
    let Some(ns) = Netns::new("a_call_of_the_kernel") else { return };
    ns.veth();
    let mut bench = af_packet();
    let mut sender = headers::sender("host");
    let single = [&[0; 10][..], &[2; 6], &[2, 0, 0, 0, 0, 8], &[0x12; 48]].concat();
    let of_two = super_tcp(7, false, 2_400, 1_200); // leaves as one message
    for (frame, count) in [(&single, 64), (&of_two, 32)] {
        let before = bench.port.system_calls();
        for _ in 0..ROUNDS {
            for _ in 0..count {
                sender.send(frame);
            }
            let mut batch = Batch::new();
            assert_eq!(bench.port.rx(bench.now, &mut bench.bufs, &mut batch), 64);
            assert_eq!(bench.port.tx(bench.now, &mut bench.bufs, &mut batch), 64);
            bench.now += Span::from_us(100); // 1.28 million frames a second
            bench.port.service(bench.now, &mut bench.bufs).unwrap();
        }
        let calls = bench.port.system_calls() - before;
        assert!(calls <= 2 * 64 * ROUNDS / 16, "{calls} calls");
        assert!(calls >= ROUNDS, "{calls} calls: are all counted?");
    }
    assert_eq!(bench.port.received_super_frames(), 32 * ROUNDS);
    bench.end();
}

/// Bytes of the TCP connection's stream.
const LEN: usize = 8 << 20;

#[test]
fn super_frames_of_a_real_tcp_connection_arrive_split_and_leave_joined() {
    super_frames("super_frames_leave_joined", true, false);
}

#[test]
fn frames_leave_one_by_one_where_the_device_does_not_segment() {
    super_frames("frames_leave_one_by_one", false, false);
}

#[test]
fn super_frames_of_a_real_tcp_connection_pass_whole() {
    super_frames("super_frames_pass_whole", true, true);
    super_frames("super_frames_do_not_pass", false, true);
}

/// Passes on the super-frames that come next at `from`, whole; returns for how many frames they stand.
fn pass(now: Instant, from: &mut AfPacket, to: &mut AfPacket) -> usize {
    let mut passed = 0;
    while let Some(frame) = from.front()
        && to.send(now, &frame)
    {
        passed += frame.segments().count;
        from.pop();
    }
    passed
}

#[test]
fn a_super_frame_of_udp_passes_whole_too() {
    let Some(ns) = Netns::new("a_super_frame_of_udp") else { return };
    ns.veth();
    ns.ip("link add name sx type veth peer name far");
    for device in ["sx", "far"] {
        ns.ip(&format!("link set {device} up"));
    }
    let open = |device| Bench::new(AfPacket::open(&config(device)).unwrap(), pool(512));
    let [mut left, mut right, mut far] = ["sw", "sx", "far"].map(open);
    for bench in [&mut left, &mut right, &mut far] {
        assert_eq!(bench.link(true), None);
    }
    let payload: Vec<u8> = (0..5_000).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let mut frame = Vec::new();
    let ip = PacketBuilder::ethernet2(mac("host"), [2; 6]).ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64);
    ip.udp(7, 9).write(&mut frame, &payload).unwrap();
    let words = [42_u16, 1_400, 34, 6].map(u16::to_ne_bytes);
    headers::sender("host").send(&[&[1, 5], words.as_flattened(), &frame].concat());

    while left.port.front().is_none() {
        let lens = left.until(|_, _| true).into_iter().map(|(frame, _)| frame.len());
        assert!(lens.max() < Some(1_000), "it was received before it was seen");
    }
    let frame = left.port.front().unwrap();
    assert_eq!(frame.segments(), Segments { count: 4, len: 1_442, last_len: 842 });
    assert!(right.port.send(right.now, &frame));
    left.port.pop();
    let got = far.until(|frame, _| frame.len() == 842);
    let bodies: Vec<u8> = got
        .iter()
        .filter(|(frame, _)| frame[23] == 17 && frame[12..14] == [8, 0])
        .flat_map(|(frame, partial)| {
            assert!(partial.is_some());
            frame[42..].to_vec()
        })
        .collect();
    assert!(bodies == payload);
    for bench in [left, right, far] {
        bench.end();
    }
}

/// Bytes that arrived, and those that were sent.
type Ends = [JoinHandle<Vec<u8>>; 2];

/// Sends a TCP stream from a host in one namespace to 10.9.0.2 in another.
fn stream(from: &Netns, to: Netns) -> Ends {
    let server = std::thread::spawn(move || {
        to.enter();
        let listener = TcpListener::bind("10.9.0.2:7000").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        drop(to);
        all
    });
    let name = from.0.clone();
    let client = std::thread::spawn(move || {
        let ns = std::mem::ManuallyDrop::new(Netns(name));
        ns.enter();
        let bytes: Vec<u8> = (0..LEN).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut stream =
            until(LONG, "the server listens", || TcpStream::connect("10.9.0.2:7000").ok());
        stream.write_all(&bytes).unwrap();
        bytes
    });
    [server, client]
}

/// A TCP stream through two ports, the second of which is on a device that segments, or not. Super-frames pass whole, or
/// as the frames for which they stand.
fn super_frames(test: &str, segments: bool, whole: bool) {
    let Some(a) = Netns::new(test) else { return };
    let b = Netns::new(test).unwrap();
    // host (in a) -- sw | two ports of ours | sx -- peer (in b)
    a.veth();
    a.ip(&format!("link add name sx type veth peer name peer netns {}", b.0));
    a.ip("link set sx up");
    if !segments {
        let off = Command::new("ethtool").args(["-K", "sx", "tso", "off", "gso", "off"]).status();
        assert!(off.unwrap().success(), "ethtool -K sx tso off gso off");
    }
    b.ip("addr add 10.9.0.2/24 dev peer");
    b.ip("link set peer up");
    let mut left = AfPacket::open(&config("sw")).unwrap();
    let mut right = AfPacket::open(&config("sx")).unwrap();
    let mut bufs = Bufs::new(pool(2_048), 64, 0);

    let [server, client] = stream(&a, b);
    let (mut now, mut frames, mut longest, mut partials) = (Instant::ZERO, 0, 0, 0);
    let (mut to_right, mut to_left) = (Batch::new(), Batch::new());
    while !server.is_finished() {
        now += Span::from_us(10);
        if whole {
            frames += pass(now, &mut left, &mut right);
        }
        left.rx(now, &mut bufs, &mut to_right);
        frames += to_right.len();
        longest = longest.max(to_right.iter().map(Desc::len).max().unwrap_or(0));
        partials += to_right.iter().filter(|d| bufs.partial_csum(d).is_some()).count();
        right.tx(now, &mut bufs, &mut to_right);
        right.rx(now, &mut bufs, &mut to_left);
        left.tx(now, &mut bufs, &mut to_left);
        left.service(now, &mut bufs).unwrap();
        right.service(now, &mut bufs).unwrap();
    }
    assert_eq!(server.join().unwrap(), client.join().unwrap());
    assert!(
        left.received_super_frames() > 100,
        "the kernel sent {} super-frames",
        left.received_super_frames()
    );
    assert!(frames > LEN / 1_500, "{frames}");
    let (joined, passed) = (right.joined_frames(), right.passed_super_frames());
    if whole {
        assert_eq!(passed > 100, segments, "{passed} super-frames passed whole");
        assert!(segments || passed == 0, "{passed}");
    } else {
        assert_eq!(longest, 1_514, "frames of one MTU");
        assert!(partials > LEN / 1_500, "{partials}: checksums of split frames are partial");
        assert_eq!(joined > 1_000, segments, "{joined} frames left as part of the one before");
        assert!(segments || joined == 0, "{joined}");
    }
    for port in [&left, &right] {
        assert_eq!(port.counters().rx_dropped, PortCounters::default().rx_dropped);
        assert_eq!(port.counters().tx_failed, 0);
    }
    for desc in to_right.drain(..).chain(to_left.drain(..)) {
        bufs.free(desc);
    }
    left.release(&mut bufs);
    right.release(&mut bufs);
    assert_eq!(bufs.used().get(), 0, "chunks leaked");
    drop(a);
}

#[test]
fn an_interface_that_vanishes_comes_back() {
    let Some(ns) = Netns::new("an_interface_that_vanishes") else { return };
    ns.veth();
    let mut bench = af_packet();

    ns.ip("link set host down");
    assert_eq!(bench.link(false), None, "no carrier is no error");
    assert_eq!(bench.port.tx_room(bench.now), 0);
    ns.ip("link set host up");
    assert_eq!(bench.link(true), None);

    ns.ip("link set sw down");
    assert_eq!(bench.link(false), None);
    let mut batch = Batch::new();
    bench.port.rx(bench.now, &mut bench.bufs, &mut batch);
    assert!(bench.settle().is_some_and(|e| e.contains("Network is down")), "the socket says so");
    ns.ip("link set sw up");
    bench.link(true);
    let socket = listener();
    bench.send(&udp(mac("host"), b"up"), None);
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 2);
    drop(socket);

    ns.ip("link del sw");
    let error = bench.link(false).expect("reported");
    assert!(error.starts_with("sw: interface is gone"), "{error}");
    assert_eq!(bench.settle(), None, "once");
    assert_eq!(bench.port.rx(bench.now, &mut bench.bufs, &mut batch), 0);

    ns.veth();
    bench.link(true);
    let socket = listener();
    bench.send(&udp(mac("host"), b"again"), None);
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 5);
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"hello", "10.9.0.255:7001").unwrap();
    bench.until(|f, _| f.get(36..38) == Some(&7_001_u16.to_be_bytes()));
    bench.end();
}

/// Asks by ARP who has 10.9.0.3 and says whether the kernel behind `sw` answers; where it is to, it has time.
fn host_answers(ns: &Netns, is_to: bool) -> bool {
    ns.ip("neigh flush dev host");
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    let answered = || {
        drop(socket.send_to(b"?", "10.9.0.3:9"));
        let out = Command::new("ip").args(["-n", &ns.0, "neigh", "show", "10.9.0.3"]).output();
        String::from_utf8_lossy(&out.unwrap().stdout).contains("lladdr").then_some(())
    };
    try_until(if is_to { LONG } else { Duration::from_secs(1) }, answered).is_some()
}

#[test]
fn the_hosts_own_stack_is_kept_out_while_the_port_is_open() {
    let Some(ns) = Netns::new("the_hosts_own_stack") else { return };
    ns.veth();
    // Same namespace on both sides: let ARP answer for the other interface's address.
    ns.ip("addr add 10.9.0.3/32 dev sw");
    for (key, value) in [("all/accept_local", "1"), ("all/rp_filter", "0"), ("sw/rp_filter", "0")] {
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{key}"), value).unwrap();
    }
    ns.ip("route del 10.9.0.3 table local");
    ns.ip("route add local 10.9.0.3 dev sw table local");
    let far = Netns::new("the_hosts_own_stack").unwrap();
    ns.ip(&format!("link set host netns {}", far.0));
    far.ip("addr add 10.9.0.1/24 dev host");
    far.ip("link set host up");
    let asked = |is_to| {
        let name = far.0.clone();
        std::thread::spawn(move || {
            let far = std::mem::ManuallyDrop::new(Netns(name));
            far.enter();
            host_answers(&far, is_to)
        })
        .join()
        .unwrap()
    };
    assert!(asked(true), "without a port the host answers");
    let mut bench = Bench::new(AfPacket::open(&config("sw")).unwrap(), pool(512));
    assert!(!asked(false), "with a port it does not");
    let arp = |f: &[u8]| f.get(12..14) == Some(&[0x08, 0x06]);
    assert!(bench.until(|f, _| arp(f)).iter().any(|(f, _)| arp(f)), "but the port sees it");

    let second = AfPacket::open(&config("sw")).err().unwrap().to_string();
    assert!(second.contains("already a port of a running switch"), "{second}");
    bench.end();
    assert!(asked(true), "afterwards it answers again");
}

#[test]
fn an_empty_pool_is_counted_and_the_socket_drained() {
    let Some(ns) = Netns::new("an_empty_pool") else { return };
    ns.veth();
    let mut bench = Bench::new(AfPacket::open(&config("sw")).unwrap(), pool(4));
    let mut held = Batch::new();
    let mut sender = PacketSender::new("host");
    for _ in 0..10 {
        sender.send(&[0xFF; 60]);
    }
    until(LONG, "six frames are dropped", || {
        bench.port.rx(bench.now, &mut bench.bufs, &mut held);
        (bench.port.counters().rx_dropped[0].1 >= 6).then_some(())
    });
    assert_eq!(held.len(), 4);
    assert_eq!(bench.port.counters().rx_dropped[0].1, 6);
    for desc in held {
        bench.bufs.free(desc);
    }
    bench.end();
}

#[test]
fn a_frame_that_the_far_end_never_takes_does_not_block_the_port() {
    let Some(ns) = Netns::new("a_frame_that_the_far_end") else { return };
    ns.veth();
    ns.ip("link set host mtu 1000"); // our end keeps 1,500
    kernel::gives_up_what_the_far_end_never_takes(af_packet());
}

#[test]
fn tap_talks_to_a_real_kernel() {
    let Some(ns) = Netns::new("tap_talks_to_a_real_kernel") else { return };
    ns.enter();
    if !std::path::Path::new("/dev/net/tun").exists() {
        eprintln!("SKIPPED tap_talks_to_a_real_kernel: no /dev/net/tun");
        return;
    }
    let settings =
        TapConfig { device: "host".to_owned(), rate: LinkRate::gbps(1), frame_len_max: 1_518 };
    let mut bench = Bench::new(Tap::open(&settings).unwrap(), pool(64));
    drop(std::fs::write("/proc/sys/net/ipv6/conf/host/disable_ipv6", "1"));
    ns.ip("addr add 10.9.0.1/24 dev host");
    assert_eq!(bench.link(true), None);
    let busy = Tap::open(&settings).err().unwrap().to_string();
    assert!(busy.contains("another process has it"), "{busy}");

    let socket = listener();
    let mut bytes = [0; 2_000];
    let mac = mac("host");
    bench.send(&udp(mac, b"short"), None);
    assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
    let mut frame = udp(mac, &[7; 1_400]);
    let pseudo = csum::sum(&[0, 17], csum::sum(&frame[26..34], 1_408));
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    bench.send(&frame, Some(PartialCsum { start: 34, offset: 6 }));
    assert_eq!(socket.recv(&mut bytes).unwrap(), 1_400);
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"hello", "10.9.0.255:7001").unwrap();
    let frames = bench.until(|f, _| f.get(36..38) == Some(&7_001_u16.to_be_bytes()));
    assert!(frames.iter().all(|(_, partial)| partial.is_none()), "offloads are off");

    ns.ip("link set host down");
    assert_eq!(bench.link(false), None);
    ns.ip("link set host up");
    assert_eq!(bench.link(true), None);

    // Moved to another namespace it goes on; removed it is made again.
    let far = Netns::new("tap_talks_to_a_real_kernel").unwrap();
    ns.ip(&format!("link set host netns {}", far.0));
    assert_eq!(bench.link(false), None, "a move sets it down");
    far.ip("link set host up");
    assert_eq!(bench.link(true), None);
    far.ip("link del host");
    let error = bench.link(false).expect("reported");
    assert!(error.starts_with("host: tap is gone"), "{error}");
    bench.link(true); // made again
    ns.ip("link show host");

    bench.end();
    // The last copy of the descriptor may be with a process that another test just starts.
    until(LONG, "the tap goes with its port", || {
        let show = Command::new("ip").args(["-n", &ns.0, "link", "show", "host"]).output();
        (!show.unwrap().status.success()).then_some(())
    });
}
