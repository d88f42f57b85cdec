//! The live ports against a real kernel, in network namespaces that each test makes for itself.
//!
//! Shape: a namespace with a veth pair (`sw` is the port's, `host` the peer's) or a tap; the kernel's
//! own TCP, ARP and link code is at the other end. Needs root, `ip` and `tc`; says so and passes
//! otherwise.
//! Units: octets, ms.
//! Source: pipeline.md §11; style.md C12 (kernel).
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

mod kernel;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;

use etherparse::{SlicedPacket, TransportSlice};
use kernel::{Bench, Netns, PacketSender, listener, mac, pause, udp};
use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::{Bufs, PartialCsum, Pool};
use weft_dataplane::port::af_packet::{AfPacket, AfPacketConfig};
use weft_dataplane::port::csum;
use weft_dataplane::port::tap::{Tap, TapConfig};
use weft_dataplane::port::{Port, PortCounters};
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
    let mut octets = [0; 2_000];

    // To the kernel: padded; whole; with a checksum that only the kernel can complete.
    bench.send(&udp(mac("host"), b"short"), None);
    assert_eq!(socket.recv(&mut octets).unwrap(), 5);
    let mut frame = udp(mac("host"), &[7; 1_400]);
    let pseudo = csum::sum(&[0, 17], csum::sum(&frame[26..34], 1_408));
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    bench.send(&frame, Some(PartialCsum { start: 34, offset: 6 }));
    assert_eq!(socket.recv(&mut octets).unwrap(), 1_400);
    assert_eq!(octets[..1_400], [7; 1_400]);

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

/// Octets of the TCP connection's stream.
const LEN: usize = 8 << 20;

#[test]
fn super_frames_of_a_real_tcp_connection_arrive_split_and_leave_joined() {
    super_frames("super_frames_leave_joined", true);
}

#[test]
fn frames_leave_one_by_one_where_the_device_does_not_segment() {
    super_frames("frames_leave_one_by_one", false);
}

/// A TCP stream through two ports, the second of which is on a device that segments, or not.
fn super_frames(test: &str, segments: bool) {
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

    let server = std::thread::spawn(move || {
        b.enter();
        let listener = TcpListener::bind("10.9.0.2:7000").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        drop(b);
        all
    });
    let name = a.0.clone();
    let client = std::thread::spawn(move || {
        let ns = std::mem::ManuallyDrop::new(Netns(name));
        ns.enter();
        let octets: Vec<u8> = (0..LEN).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let mut stream = (0..2_000)
            .find_map(|_| {
                pause();
                TcpStream::connect("10.9.0.2:7000").ok()
            })
            .unwrap();
        stream.write_all(&octets).unwrap();
        octets
    });

    let (mut now, mut frames, mut longest, mut partials) = (Instant::ZERO, 0, 0, 0);
    let (mut to_right, mut to_left) = (Batch::new(), Batch::new());
    while !server.is_finished() {
        now += Span::from_us(10);
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
    assert!(left.super_frames() > 100, "the kernel sent {} super-frames", left.super_frames());
    assert_eq!(longest, 1_514, "frames of one MTU");
    assert!(frames > LEN / 1_500, "{frames}");
    assert!(partials > LEN / 1_500, "{partials}: checksums of split frames are partial");
    let joined = right.joined_frames();
    assert_eq!(joined > 1_000, segments, "{joined} frames left as part of the one before");
    assert!(segments || joined == 0, "{joined}");
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

/// Asks by ARP who has 10.9.0.3 and says whether the kernel behind `sw` answers.
fn host_answers(ns: &Netns) -> bool {
    ns.ip("neigh flush dev host");
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..50 {
        drop(socket.send_to(b"?", "10.9.0.3:9"));
        pause();
    }
    let out = Command::new("ip").args(["-n", &ns.0, "neigh", "show", "10.9.0.3"]).output();
    String::from_utf8_lossy(&out.unwrap().stdout).contains("lladdr")
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
    let asked = || {
        let name = far.0.clone();
        std::thread::spawn(move || {
            let far = std::mem::ManuallyDrop::new(Netns(name));
            far.enter();
            host_answers(&far)
        })
        .join()
        .unwrap()
    };
    assert!(asked(), "without a port the host answers");
    let mut bench = Bench::new(AfPacket::open(&config("sw")).unwrap(), pool(512));
    assert!(!asked(), "with a port it does not");
    let arp = |f: &[u8]| f.get(12..14) == Some(&[0x08, 0x06]);
    assert!(bench.until(|f, _| arp(f)).iter().any(|(f, _)| arp(f)), "but the port sees it");

    let second = AfPacket::open(&config("sw")).err().unwrap().to_string();
    assert!(second.contains("already a port of a running switch"), "{second}");
    bench.end();
    assert!(asked(), "afterwards it answers again");
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
    for _ in 0..200 {
        bench.port.rx(bench.now, &mut bench.bufs, &mut held);
        if bench.port.counters().rx_dropped[0].1 == 6 {
            break;
        }
        pause();
    }
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
    let mut octets = [0; 2_000];
    let mac = mac("host");
    bench.send(&udp(mac, b"short"), None);
    assert_eq!(socket.recv(&mut octets).unwrap(), 5);
    let mut frame = udp(mac, &[7; 1_400]);
    let pseudo = csum::sum(&[0, 17], csum::sum(&frame[26..34], 1_408));
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    bench.send(&frame, Some(PartialCsum { start: 34, offset: 6 }));
    assert_eq!(socket.recv(&mut octets).unwrap(), 1_400);
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
    let gone = (0..100).any(|_| {
        pause();
        let show = Command::new("ip").args(["-n", &ns.0, "link", "show", "host"]).output();
        !show.unwrap().status.success()
    });
    assert!(gone, "the tap goes with its port");
}
