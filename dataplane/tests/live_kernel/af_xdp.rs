//! The `AF_XDP` port against a real kernel, in network namespaces that each test makes for itself.
//!
//! Veth pairs, one end a port's, the other the kernel's; several ports share one UMEM. Needs
//! root, `ip`, and a kernel with `AF_XDP`; says so and passes otherwise.
//!
//! Units: bytes, frames, ms.
//! Source: docs/spec/pipeline.md §11.
#![expect(unsafe_code, reason = "a packet socket of the peer")]
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use std::process::Command;
use std::sync::Arc;

use super::kernel::{self, Bench, Netns, PacketSender, listener, mac, pause, udp};
use super::links;
use weft_base::wait::{LONG, try_until};
use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::{Bufs, PartialCsum, Pool};
use weft_dataplane::port::af_xdp::{
    AfXdp, AfXdpConfig, Attach, AttachTo, Builtin, Steering, Target, Umem,
};
use weft_dataplane::port::{Port, csum};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate, Span};

fn config(device: &str) -> AfXdpConfig {
    AfXdpConfig {
        device: device.to_owned(),
        rate: LinkRate::gbps(1),
        frame_len_max: 1_522,
        tx_ring_frames: 64,
        rx_ring_frames: 256,
        queues: None,
        attach: AttachTo::Native,
        zero_copy: true,
        busy_poll_us: 0,
        joins: false,
        fixed_udp_ports: [4_791, 0],
    }
}

fn umem(chunks: usize) -> Arc<Umem> {
    Umem::new(Pool::map_umem(chunks, 1_522).unwrap())
}

fn open(device: &str, umem: &Arc<Umem>) -> AfXdp {
    AfXdp::open(&config(device), umem, Box::new(Builtin::new())).unwrap_or_else(|e| {
        panic!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string))
    })
}

fn af_xdp(chunks: usize) -> Bench<AfXdp> {
    let umem = umem(chunks);
    let mut bench = Bench::new(open("sw", &umem), umem.pool().clone());
    assert_eq!(bench.link(true), None);
    bench
}

#[test]
fn frames_go_both_ways_with_partial_checksums() {
    let Some(ns) = Netns::new("af_xdp_frames_go_both_ways") else { return };
    ns.veth();
    let mut bench = af_xdp(1_024);
    assert!(bench.port.reads_tags());
    assert_eq!(bench.port.describe(), "native, copy");
    let socket = listener();
    let mut bytes = [0; 2_000];

    // To the kernel: padded; whole; with a checksum that only the kernel can complete.
    bench.send(&udp(mac("host"), b"short"), None);
    bench.tick().unwrap();
    assert_eq!(socket.recv(&mut bytes).unwrap(), 5);
    let mut frame = udp(mac("host"), &[7; 1_400]);
    let pseudo = csum::sum(&[0, 17], csum::sum(&frame[26..34], 1_408));
    frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
    bench.send(&frame, Some(PartialCsum { start: 34, offset: 6 }));
    bench.tick().unwrap();
    assert_eq!(socket.recv(&mut bytes).unwrap(), 1_400);
    assert_eq!(bytes[..1_400], [7; 1_400]);

    // From the kernel: a broadcast whose checksum it has left to us.
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"hello", "10.9.0.255:7001").unwrap();
    let is_ours = |f: &[u8]| f.get(36..38) == Some(&7_001_u16.to_be_bytes());
    let frames = bench.until(|f, _| is_ours(f));
    let (mut frame, partial) = frames.into_iter().find(|(f, _)| is_ours(f)).unwrap();
    assert_eq!(frame.len(), 14 + 20 + 8 + 5);
    assert!(csum::complete_frame(&mut frame, partial.expect("veth leaves checksums to us")));
    let header = etherparse::UdpHeader::from_slice(&frame[34..]).unwrap().0;
    let want = header.calc_checksum_ipv4_raw([10, 9, 0, 1], [10, 9, 0, 255], b"hello");
    assert_eq!(header.checksum, want.unwrap());
    bench.end();
}

/// A frame of `len` bytes that says so, and its number.
fn numbered(len: usize, number: u16) -> Vec<u8> {
    let mut frame = vec![0xFF; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xB5]);
    frame.extend((14..len).map(|at| u8::try_from((at + usize::from(number)) % 251).unwrap()));
    frame
}

/// Receives what comes out of a device, raw.
struct PacketReceiver(std::os::fd::OwnedFd);

impl PacketReceiver {
    fn new(device: &str) -> Self {
        use std::os::fd::{AsRawFd, FromRawFd};
        let name = std::ffi::CString::new(device).unwrap();
        let protocol = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0) };
        assert!(fd >= 0);
        // SAFETY: just made.
        let socket = unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) };
        let options = [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20),
        ];
        for (level, option, value) in options {
            let value: i32 = value;
            let at = (&raw const value).cast();
            // SAFETY: four bytes of a live value.
            let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, at, 4) };
            assert_eq!(set, 0);
        }
        // SAFETY: a terminated string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: all bytes zero is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        let len = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        let at = (&raw const address).cast();
        // SAFETY: a live address of that size.
        assert_eq!(unsafe { libc::bind(socket.as_raw_fd(), at, len) }, 0);
        Self(socket)
    }

    /// What has come, up to now.
    fn take(&self) -> Vec<Vec<u8>> {
        use std::os::fd::AsRawFd;
        let mut frames = Vec::new();
        let mut bytes = vec![0_u8; 4_096];
        loop {
            let (at, len) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: `len` bytes of ours.
            let had = unsafe { libc::recv(self.0.as_raw_fd(), at, len, 0) };
            let Ok(had) = usize::try_from(had) else { return frames };
            frames.push(bytes.get(..had).unwrap().to_vec());
        }
    }

    /// Waits for `count` frames of `numbered`.
    fn expect(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let came = try_until(LONG, || {
            let new = self.take();
            frames.extend(new.into_iter().filter(|f| f.get(12..14) == Some(&[0x88, 0xB5])));
            (frames.len() >= count).then_some(())
        });
        assert!(came.is_some(), "{} of {count} frames", frames.len());
        frames
    }
}

#[test]
fn frames_of_all_lengths_arrive_whole_and_in_order() {
    let Some(ns) = Netns::new("af_xdp_frames_of_all_lengths") else { return };
    ns.veth();
    let mut bench = af_xdp(1_024);
    let mut sender = PacketSender::new("host");
    let receiver = PacketReceiver::new("host");
    let lens: Vec<usize> = (14..=1_514).collect();
    let mut got = Vec::new();
    for burst in lens.chunks(64) {
        for &len in burst {
            sender.send(&numbered(len, 7));
        }
        let mut left = burst.len();
        got.extend(bench.until(|f, _| {
            left -= usize::from(f.get(12..14) == Some(&[0x88, 0xB5]));
            left == 0
        }));
    }
    let got: Vec<_> =
        got.into_iter().map(|(f, _)| f).filter(|f| f[12..14] == [0x88, 0xB5]).collect();
    assert_eq!(got.len(), lens.len());
    for (frame, &len) in got.iter().zip(&lens) {
        assert_eq!(frame, &numbered(len, 7), "{len}");
    }

    let calls = bench.port.system_calls();
    for burst in lens.chunks(64) {
        let mut batch = Batch::new();
        for &len in burst {
            batch.push(bench.bufs.alloc_from(&numbered(len, 9)).unwrap());
        }
        while !batch.is_empty() {
            bench.port.tx(bench.now, &mut bench.bufs, &mut batch);
            bench.port.service(bench.now, &mut bench.bufs).unwrap();
        }
    }
    let calls = bench.port.system_calls() - calls;
    assert!(calls * 16 <= lens.len() as u64, "{calls} calls for {} frames", lens.len());
    let got = receiver.expect(lens.len());
    for (frame, &len) in got.iter().zip(&lens) {
        let mut want = numbered(len, 9);
        want.resize(len.max(60), 0);
        assert_eq!(frame, &want, "{len}");
    }
    assert_eq!(bench.port.counters(), weft_dataplane::port::PortCounters::default());
    bench.end();
}

#[test]
fn a_frame_longer_than_the_port_takes_is_counted() {
    let Some(ns) = Netns::new("af_xdp_a_frame_longer") else { return };
    ns.veth();
    let umem = umem(512);
    let short = AfXdpConfig { frame_len_max: 1_000, ..config("sw") };
    let port = AfXdp::open(&short, &umem, Box::new(Builtin::new())).unwrap();
    let mut bench = Bench::new(port, umem.pool().clone());
    bench.link(true);
    let mut sender = PacketSender::new("host");
    for len in [1_001, 1_000] {
        sender.send(&numbered(len, 1));
    }
    let frames = bench.until(|f, _| f.len() == 1_000);
    assert!(frames.iter().all(|(f, _)| f.len() <= 1_000));
    assert_eq!(bench.port.counters().rx_dropped[0], (Some(DropReason::TooLong), 1));
    bench.end();
}

#[test]
fn a_tag_in_the_data_stays_there() {
    let Some(ns) = Netns::new("af_xdp_a_tag_in_the_data") else { return };
    ns.veth();
    let mut bench = af_xdp(512);
    let mut sender = PacketSender::new("host");
    let mut frame = numbered(100, 3);
    frame.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
    sender.send(&frame);
    let got = bench.until(|f, _| f.get(16..18) == Some(&[0x88, 0xB5]));
    assert!(got.iter().any(|(f, _)| *f == frame));
    bench.end();
}

/// Two ports in one namespace, over one pool: `sw` with the peer `host`, `sx` with the peer `far`.
struct Pair {
    left: AfXdp,
    right: AfXdp,
    bufs: Bufs,
    now: Instant,
}

impl Pair {
    fn new(ns: &Netns, chunks: usize) -> Self {
        ns.veth();
        ns.ip("link add name sx type veth peer name far");
        for device in ["sx", "far"] {
            drop(std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1"));
            ns.ip(&format!("link set {device} up"));
        }
        let umem = umem(chunks);
        let (left, right) = (open("sw", &umem), open("sx", &umem));
        let bufs = Bufs::new(umem.pool().clone(), 16, 0);
        let mut pair = Self { left, right, bufs, now: Instant::ZERO };
        for _ in 0..3_000 {
            pair.tick();
            if pair.left.link_up() && pair.right.link_up() {
                return pair;
            }
            pause();
        }
        panic!("links are down");
    }

    fn tick(&mut self) {
        self.now += Span::from_ms(1);
        drop(self.left.service(self.now, &mut self.bufs));
        drop(self.right.service(self.now, &mut self.bufs));
    }

    /// Hands on what has come, from left to right; the chunks that it was in.
    fn forward(&mut self) -> Vec<u32> {
        let mut batch = Batch::new();
        self.left.rx(self.now, &mut self.bufs, &mut batch);
        let chunks: Vec<u32> = batch.iter().map(Desc::chunk).collect();
        while !batch.is_empty() {
            self.right.tx(self.now, &mut self.bufs, &mut batch);
            self.tick();
        }
        self.tick();
        chunks
    }
}

#[test]
fn ports_hand_frames_on_without_a_copy_and_do_not_hang_on_each_other() {
    let Some(ns) = Netns::new("af_xdp_ports_hand_frames_on") else { return };
    let mut pair = Pair::new(&ns, 2_048);
    let (mut sender, receiver) = (PacketSender::new("host"), PacketReceiver::new("far"));
    let mut wanted = Vec::new();
    let mut chunks = Vec::new();
    for number in 0..1_000 {
        wanted.push(numbered(60 + usize::from(number), number));
        sender.send(wanted.last().unwrap());
        if number % 32 == 31 {
            chunks.extend(pair.forward());
        }
    }
    for _ in 0..50 {
        chunks.extend(pair.forward());
    }
    // From chunk to chunk nothing was taken: each was lent by the left port and sent by the right one.
    assert_eq!(chunks.len(), 1_000);
    assert_eq!(receiver.expect(1_000), wanted);

    // The port whose socket registered the pool goes away; the other one is not disturbed, and a new
    // one shares with it.
    let used = pair.bufs.used().get();
    pair.left.release(&mut pair.bufs);
    pair.bufs.settle();
    assert_eq!(used - pair.bufs.used().get(), 256, "its rings were full");
    pair.tick();
    let mut batch = Batch::new();
    batch.push(pair.bufs.alloc_from(&numbered(60, 5)).unwrap());
    pair.right.tx(pair.now, &mut pair.bufs, &mut batch);
    pair.tick();
    assert_eq!(receiver.expect(1), [numbered(60, 5)]);
    pair.left.release(&mut pair.bufs);
    pair.right.release(&mut pair.bufs);
    pair.bufs.settle();
    assert_eq!(pair.bufs.used().get(), 0, "chunks leaked");
}

#[test]
fn a_frame_that_several_ports_send_is_freed_once() {
    let Some(ns) = Netns::new("af_xdp_a_frame_that_several") else { return };
    let mut pair = Pair::new(&ns, 1_024);
    let receivers = [PacketReceiver::new("host"), PacketReceiver::new("far")];
    for round in 0..10_u16 {
        let mut one = pair.bufs.alloc_from(&numbered(200, round)).unwrap();
        let two = pair.bufs.share(&mut one);
        let (mut left, mut right) = (Batch::new(), Batch::new());
        left.push(one);
        right.push(two);
        assert_eq!(pair.left.tx(pair.now, &mut pair.bufs, &mut left), 1);
        assert_eq!(pair.right.tx(pair.now, &mut pair.bufs, &mut right), 1);
        pair.tick();
    }
    for receiver in receivers {
        let want: Vec<_> = (0..10).map(|round| numbered(200, round)).collect();
        assert_eq!(receiver.expect(10), want);
    }
    pair.left.release(&mut pair.bufs);
    pair.right.release(&mut pair.bufs);
    pair.bufs.settle();
    assert_eq!(pair.bufs.used().get(), 0, "chunks leaked");
}

#[test]
fn an_empty_pool_costs_frames_and_nothing_else() {
    let Some(ns) = Netns::new("af_xdp_an_empty_pool") else { return };
    ns.veth();
    let mut bench = af_xdp(300);
    let mut sender = PacketSender::new("host");
    let mut held: Vec<Desc> = Vec::new();
    // Everything that the pool has: 256 in the ring, 44 beside it.
    while let Some(desc) = bench.bufs.alloc() {
        held.push(desc);
    }
    let mut batch = Batch::new();
    for number in 0..400 {
        sender.send(&numbered(100, number));
        bench.port.rx(bench.now, &mut bench.bufs, &mut batch);
        held.extend(batch.drain(..));
        bench.tick().unwrap();
    }
    for _ in 0..50 {
        bench.port.rx(bench.now, &mut bench.bufs, &mut batch);
        held.extend(batch.drain(..));
        bench.tick().unwrap();
        pause();
    }
    assert_eq!(held.len(), 300, "all of the pool is ours");
    assert_eq!(bench.port.counters().kernel_rx, 400 - 256, "and the rest is counted");

    for desc in held {
        bench.bufs.free(desc);
    }
    bench.tick().unwrap();
    sender.send(&numbered(100, 999));
    let got = bench.until(|f, _| *f == numbered(100, 999));
    assert!(!got.is_empty());
    assert_eq!(bench.port.counters().kernel_rx, 400 - 256);
    bench.end();
}

#[test]
fn an_interface_that_vanishes_comes_back() {
    let Some(ns) = Netns::new("af_xdp_an_interface_that_vanishes") else { return };
    ns.veth();
    let mut bench = af_xdp(1_024);
    ns.ip("link set host down");
    assert_eq!(bench.link(false), None, "no carrier is no error");
    assert_eq!(bench.port.tx_room(bench.now), 0);
    ns.ip("link set host up");
    assert_eq!(bench.link(true), None);
    ns.ip("link set sw down");
    assert_eq!(bench.link(false), None);
    ns.ip("link set sw up");
    bench.link(true);
    let socket = listener();
    bench.send(&udp(mac("host"), b"up"), None);
    bench.tick().unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 2);
    drop(socket);

    ns.ip("link del sw");
    let error = bench.link(false).expect("reported");
    assert!(error.starts_with("sw: interface is gone"), "{error}");
    assert_eq!(bench.settle(), None, "once");
    bench.bufs.settle();
    assert_eq!(bench.bufs.used().get(), 0, "the rings' chunks are back");
    assert_eq!(bench.port.rx(bench.now, &mut bench.bufs, &mut Batch::new()), 0);

    ns.veth();
    bench.link(true);
    let socket = listener();
    bench.send(&udp(mac("host"), b"again"), None);
    bench.tick().unwrap();
    assert_eq!(socket.recv(&mut [0; 100]).unwrap(), 5);
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"hello", "10.9.0.255:7001").unwrap();
    bench.until(|f, _| f.get(36..38) == Some(&7_001_u16.to_be_bytes()));
    bench.end();
}

/// What was handed over and not sent is given up at once, and not sent when the link is back.
#[test]
fn frames_for_an_interface_that_is_down_are_given_up() {
    let Some(ns) = Netns::new("af_xdp_frames_for_an_interface_that_is_down") else { return };
    ns.veth();
    let mut bench = af_xdp(512);
    let used = bench.bufs.used().get();
    let receiver = PacketReceiver::new("host");
    let mut sender = PacketSender::new("host");
    for round in 1..=3 {
        for number in 0..40 {
            bench.send(&numbered(100, number), None);
        }
        assert_eq!(bench.bufs.used().get(), used + 40);
        sender.send(&numbered(100, 5)); // it comes in, and nobody takes it
        ns.ip("link set sw down");
        let error = bench.link(false).expect("reported");
        assert!(error.starts_with("sw: send"), "{error}");
        assert_eq!(bench.port.counters().tx_failed, 40 * round);
        assert_eq!(bench.port.counters().kernel_rx, round);
        // Its sockets are closed, and new ones opened: all of it is back but what is in new rings.
        for _ in 0..2_000 {
            assert_eq!(bench.tick(), Ok(()), "reported once");
            bench.bufs.settle();
            if bench.bufs.used().get() == used {
                break;
            }
            pause();
        }
        assert_eq!(bench.bufs.used().get(), used, "round {round}");
        let calls = bench.port.system_calls();
        assert_eq!(bench.settle(), None, "once");
        assert!(bench.port.system_calls() < calls + 30, "it is not tried at every step");

        ns.ip("link set sw up");
        assert_eq!(bench.link(true), None);
        bench.bufs.settle();
        assert_eq!(bench.bufs.used().get(), used, "round {round}");
        bench.send(&numbered(100, 99), None);
        bench.tick().unwrap();
        assert_eq!(receiver.expect(1), [numbered(100, 99)]);
    }
    assert_eq!(bench.port.counters().tx_failed, 120);
    bench.end();
}

/// A veth throws away a frame that is longer than its far end takes. Each is counted once, whether a frame that is sent follows it,
/// or the interface goes down with it.
#[test]
fn what_the_device_throws_away_is_counted_once() {
    let Some(ns) = Netns::new("af_xdp_what_the_device_throws_away") else { return };
    ns.veth();
    ns.ip("link set host mtu 500");
    let mut bench = af_xdp(512);
    let receiver = PacketReceiver::new("host");
    for round in 1..=3 {
        for len in [1_000, 100] {
            bench.send(&numbered(len, 7), None);
            bench.tick().unwrap();
        }
        assert_eq!(receiver.expect(1), [numbered(100, 7)]);
        assert_eq!(bench.port.counters().tx_failed, round);
    }
    bench.send(&numbered(1_000, 8), None);
    bench.tick().unwrap();
    ns.ip("link set sw down");
    assert!(bench.link(false).is_none_or(|error| error.starts_with("sw: send")));
    assert_eq!(bench.port.counters().tx_failed, 4);
    bench.end();
}

#[test]
fn a_program_that_is_removed_is_put_back() {
    let Some(ns) = Netns::new("af_xdp_a_program_that_is_removed") else { return };
    ns.enter();
    // Links are told apart by the number of their interface, which other namespaces have too.
    ns.ip("link add name sw index 47110 type veth peer name host");
    ns.veth_up();
    let mut bench = af_xdp(1_024);
    let mut sender = PacketSender::new("host");
    // `ip` cannot remove what is attached as a link, and nothing changes.
    let off = Command::new("ip").args(["-n", &ns.0, "link", "set", "sw", "xdp", "off"]).output();
    assert!(!off.unwrap().status.success());
    assert_eq!(bench.settle(), None);

    assert_eq!(links::detach("sw"), 1);
    let error = bench.settle().expect("reported");
    assert!(error.contains("the XDP program was removed; it is back"), "{error}");
    assert_eq!(bench.settle(), None, "once");
    assert!(bench.port.link_up());
    sender.send(&numbered(80, 1));
    bench.until(|f, _| *f == numbered(80, 1));

    // Somebody else's program takes its place: said again and again, and tried again until it is gone.
    let umem = umem(512);
    assert_eq!(links::detach("sw"), 1);
    let mut other = Builtin::new();
    let target = Target { index: links::index("sw"), queues: 1, shows_tags: false, is_veth: false };
    other.attach(target, Attach::Native).unwrap();
    let error = bench.link(false).expect("reported");
    assert!(error.contains("attach the XDP program"), "{error}");
    let refused = AfXdp::open(&config("sw"), &umem, Box::new(Builtin::new())).err().unwrap();
    assert!(refused.to_string().contains("already a port"), "{refused}");
    drop(other);
    bench.link(true);
    sender.send(&numbered(80, 2));
    bench.until(|f, _| *f == numbered(80, 2));
    bench.end();
    assert_eq!(links::detach("sw"), 0, "nothing is left attached");
}

#[test]
fn reasons_why_it_cannot_be_had_are_said() {
    let Some(ns) = Netns::new("af_xdp_reasons_why") else { return };
    ns.veth();
    let umem = umem(512);
    let refused = |config: &AfXdpConfig| {
        let error = AfXdp::open(config, &umem, Box::new(Builtin::new())).err().unwrap();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error}: {source}")
    };
    let why = refused(&config("lo"));
    assert!(why.contains("it is not Ethernet"), "{why}");
    ns.ip("link set host mtu 9000");
    let why = refused(&config("sw"));
    assert!(why.contains("MTU"), "{why}");
    ns.ip("link set host mtu 1500");
    let _port = open("sw", &umem);
    let why = refused(&config("sw"));
    assert!(why.contains("already a port of a running switch"), "{why}");
}

#[test]
fn a_driver_without_xdp_is_served_before_the_hosts_stack() {
    let Some(ns) = Netns::new("af_xdp_a_driver_without_xdp") else { return };
    ns.veth();
    let umem = umem(1_024);
    let generic = AfXdpConfig { attach: AttachTo::Generic, ..config("sw") };
    let port = AfXdp::open(&generic, &umem, Box::new(Builtin::new())).unwrap();
    let mut bench = Bench::new(port, umem.pool().clone());
    bench.link(true);
    assert_eq!(bench.port.describe(), "generic, copy");
    assert!(!bench.port.reads_tags());
    let (mut sender, receiver) = (PacketSender::new("host"), PacketReceiver::new("host"));
    sender.send(&numbered(700, 1));
    bench.until(|f, _| *f == numbered(700, 1));
    bench.send(&numbered(900, 2), None);
    bench.tick().unwrap();
    assert_eq!(receiver.expect(1), [numbered(900, 2)]);
    bench.end();
}

#[test]
fn several_queues_are_received_from() {
    let Some(ns) = Netns::new("af_xdp_several_queues") else { return };
    ns.enter();
    ns.ip("link add name sw numrxqueues 4 numtxqueues 4 type veth peer name host numrxqueues 4 numtxqueues 4");
    ns.veth_up();
    let mut bench = af_xdp(2_048);
    assert_eq!(bench.port.describe(), "native, copy, 4 queues");
    let mut sender = PacketSender::new("host");
    for number in 0..200 {
        sender.send(&numbered(60, number));
    }
    let mut left = 200;
    bench.until(|f, _| {
        left -= usize::from(f.get(12..14) == Some(&[0x88, 0xB5]));
        left == 0
    });
    bench.end();

    let umem = umem(2_048);
    let two = AfXdpConfig { queues: Some(2), ..config("sw") };
    let port = AfXdp::open(&two, &umem, Box::new(Builtin::new())).unwrap();
    assert_eq!(port.describe(), "native, copy, 2 of 4 queues; frames of the others are dropped");
}

#[test]
fn a_frame_that_the_far_end_never_takes_does_not_block_the_port() {
    let Some(ns) = Netns::new("af_xdp_a_frame_that_the_far_end") else { return };
    ns.veth();
    ns.ip("link set host mtu 1000"); // our end keeps 1,500
    kernel::gives_up_what_the_far_end_never_takes(af_xdp(512));
}

#[test]
fn a_far_end_without_napi_loses_nothing() {
    let Some(ns) = Netns::new("af_xdp_a_far_end_without_napi") else { return };
    ns.veth();
    let mut bench = af_xdp(1_024);
    let receiver = PacketReceiver::new("host");
    for number in 0..20_000_u16 {
        let mut batch = Batch::new();
        batch.push(bench.bufs.alloc_from(&numbered(60, number)).unwrap());
        while bench.port.tx(bench.now, &mut bench.bufs, &mut batch) == 0 {
            bench.port.service(bench.now, &mut bench.bufs).unwrap();
        }
        if number % 1_000 == 999 {
            bench.port.service(bench.now, &mut bench.bufs).unwrap();
            let got = receiver.expect(1_000);
            let want: Vec<_> = (number - 999..=number).map(|n| numbered(60, n)).collect();
            assert_eq!(got, want);
        }
    }
    assert_eq!(bench.port.counters().tx_failed, 0);
    bench.end();
}

#[test]
fn a_busily_polled_port_works_without_interrupts() {
    let Some(ns) = Netns::new("af_xdp_a_busily_polled_port") else { return };
    ns.veth();
    let umem = umem(1_024);
    let busy = AfXdpConfig { busy_poll_us: 20, ..config("sw") };
    let port = AfXdp::open(&busy, &umem, Box::new(Builtin::new())).unwrap();
    let mut bench = Bench::new(port, umem.pool().clone());
    bench.link(true);
    let (mut sender, receiver) = (PacketSender::new("host"), PacketReceiver::new("host"));
    for number in 0..100 {
        sender.send(&numbered(100, number));
    }
    let mut left = 100;
    bench.until(|f, _| {
        left -= usize::from(f.get(12..14) == Some(&[0x88, 0xB5]));
        left == 0
    });
    bench.send(&numbered(100, 7), None);
    bench.tick().unwrap();
    assert_eq!(receiver.expect(1), [numbered(100, 7)]);
    bench.end();
}
