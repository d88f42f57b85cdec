//! A kernel at the other end of a port: namespaces, frames, sockets, for the tests of live ports.
//!
//! A namespace with a veth pair (`sw` is the port's, `host` the peer's); needs root and `ip`.
//!
//! Units: bytes, ms.
#![expect(unsafe_code, reason = "setns and packet sockets of the peer")]

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etherparse::PacketBuilder;
use weft_dataplane::batch::Batch;
use weft_dataplane::pool::{Bufs, PartialCsum, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, Span};

/// A namespace that is gone at the end, whatever happens.
pub struct Netns(pub String);

impl Netns {
    /// `None`, with the reason printed, where namespaces cannot be made.
    pub fn new(test: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weftp-{}-{count}", std::process::id());
        match Command::new("ip").args(["netns", "add", &name]).output() {
            Ok(done) if done.status.success() => Some(Self(name)),
            Ok(done) => {
                let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                eprintln!("SKIPPED {test}: ip netns add: {why} (needs root)");
                None
            }
            Err(error) => {
                eprintln!("SKIPPED {test}: ip: {error}");
                None
            }
        }
    }

    /// Runs `tool` in the namespace with arguments split at blanks.
    pub fn run(&self, tool: &str, arguments: &str) {
        let done = Command::new(tool)
            .args(["-n", &self.0])
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{tool} {arguments}: {why}");
    }

    pub fn ip(&self, arguments: &str) {
        self.run("ip", arguments);
    }

    /// Makes the calling thread live in the namespace.
    pub fn enter(&self) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        // SAFETY: the call takes a descriptor that lives until after it.
        let done = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(done, 0, "setns: {}", std::io::Error::last_os_error());
    }

    /// The usual pair: `sw` for the port, `host` with 10.9.0.1/24, both up and without IPv6.
    pub fn veth(&self) {
        self.enter();
        self.ip("link add name sw type veth peer name host");
        self.veth_up();
    }

    /// Sets a pair that was just made up.
    pub fn veth_up(&self) {
        for device in ["sw", "host"] {
            // The sysctls seen are those of the thread's namespace.
            let key = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
            drop(std::fs::write(key, "1"));
            self.ip(&format!("link set {device} up"));
        }
        self.ip("addr add 10.9.0.1/24 dev host");
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "del", &self.0]).output());
    }
}

/// How often a port is driven on, a millisecond each time, before what is waited for does not come.
const LOOKS: u32 = 30_000;

/// A port and the virtual clock that drives it.
pub struct Bench<P: Port> {
    pub port: P,
    pub bufs: Bufs,
    pub now: Instant,
}

impl<P: Port> Bench<P> {
    pub fn new(port: P, pool: Arc<Pool>) -> Self {
        Self { port, bufs: Bufs::new(pool, 16, 0), now: Instant::ZERO }
    }

    pub fn tick(&mut self) -> Result<(), String> {
        self.now += Span::from_ms(1);
        self.port.service(self.now, &mut self.bufs).map_err(|e| format!("{e}: {}", e.source))
    }

    /// Frames, and where their checksums are partial, until `done`.
    pub fn until(
        &mut self,
        mut done: impl FnMut(&[u8], Option<PartialCsum>) -> bool,
    ) -> Vec<(Vec<u8>, Option<PartialCsum>)> {
        let mut frames = Vec::new();
        for _ in 0..LOOKS {
            let mut batch = Batch::new();
            self.port.rx(self.now, &mut self.bufs, &mut batch);
            let mut end = false;
            for desc in batch {
                let (bytes, partial) =
                    (self.bufs.bytes(&desc).to_vec(), self.bufs.partial_csum(&desc));
                end |= done(&bytes, partial);
                frames.push((bytes, partial));
                self.bufs.free(desc);
            }
            self.tick().unwrap();
            if end {
                return frames;
            }
            pause();
        }
        panic!("nothing of what was waited for in {} frames", frames.len());
    }

    pub fn send(&mut self, frame: &[u8], partial: Option<PartialCsum>) {
        let mut desc = self.bufs.alloc_from(frame).unwrap();
        self.bufs.set_partial_csum(&mut desc, partial);
        let mut batch = Batch::new();
        batch.push(desc);
        assert_eq!(self.port.tx(self.now, &mut self.bufs, &mut batch), 1);
        assert!(batch.is_empty());
    }

    /// Waits until the link is up, or down: the kernel takes up to a second to say so. The first
    /// error on the way.
    pub fn link(&mut self, up: bool) -> Option<String> {
        let mut error = None;
        for _ in 0..LOOKS {
            error = error.or(self.tick().err());
            if self.port.link_up() == up {
                return error;
            }
            pause();
        }
        panic!("link_up is still {}", !up);
    }

    /// Lets 30 ms of the virtual clock pass, so that link state is looked at; the first error.
    pub fn settle(&mut self) -> Option<String> {
        let mut error = None;
        for _ in 0..30 {
            error = error.or(self.tick().err());
        }
        error
    }

    /// All chunks came back.
    pub fn end(mut self) {
        self.port.release(&mut self.bufs);
        assert_eq!(self.bufs.used().get(), 0, "chunks leaked");
    }
}

/// Lets a millisecond pass in which the kernel may go on, as [`Bench::tick`] does for the port.
pub fn pause() {
    weft_base::wait::pause(Duration::from_millis(1));
}

/// A UDP frame to 10.9.0.1:7000 with this payload.
pub fn udp(mac: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac)
        .ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
        .udp(5, 7_000)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

/// The address of a device in the thread's namespace.
pub fn mac(device: &str) -> [u8; 6] {
    let out = Command::new("ip").args(["-br", "link", "show", device]).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = out.split_whitespace().nth(2).unwrap();
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(text.split(':')) {
        *to = u8::from_str_radix(from, 16).unwrap();
    }
    mac
}

pub fn listener() -> UdpSocket {
    let socket = UdpSocket::bind("10.9.0.1:7000").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

/// Sends raw frames out of a device.
pub struct PacketSender {
    socket: std::os::fd::OwnedFd,
    address: libc::sockaddr_ll,
}

impl AsFd for PacketSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl PacketSender {
    pub fn new(device: &str) -> Self {
        use std::os::fd::FromRawFd;
        let name = std::ffi::CString::new(device).unwrap();
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
        assert!(fd >= 0);
        // SAFETY: just made.
        let socket = unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) };
        // SAFETY: a terminated string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: all bytes zero is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_ifindex = index.cast_signed();
        Self { socket, address }
    }

    pub fn send(&mut self, frame: &[u8]) {
        let address = (&raw const self.address).cast();
        let len = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap();
        let fd = self.socket.as_raw_fd();
        // SAFETY: frame and address are live.
        let sent = unsafe { libc::sendto(fd, frame.as_ptr().cast(), frame.len(), 0, address, len) };
        assert_eq!(sent, frame.len().cast_signed());
    }
}

/// The far end takes no frame as long as every other one of four: these are given up, and the others
/// arrive.
pub fn gives_up_what_the_far_end_never_takes<P: Port>(mut bench: Bench<P>) {
    let socket = listener();
    let mut batch = Batch::new();
    for len in [1_400, 100, 1_400, 100] {
        batch.push(bench.bufs.alloc_from(&udp(mac("host"), &vec![0; len])).unwrap());
    }
    for _ in 0..100 {
        bench.port.tx(bench.now, &mut bench.bufs, &mut batch);
        bench.tick().unwrap();
    }
    assert!(batch.is_empty());
    assert_eq!(bench.port.counters().tx_failed, 2);
    for _ in 0..2 {
        assert_eq!(socket.recv(&mut [0; 2_000]).unwrap(), 100);
    }
    bench.end();
}
