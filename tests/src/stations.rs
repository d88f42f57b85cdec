//! Stations that are packet sockets only: full load on many interfaces from one thread.
//!
//! [`Station`] sends and receives bursts at an interface of a [`Net`]; [`Load`] is a thread that
//! sends from many of them until it is stopped; [`Counters`] are those of the kernel. Frames count
//! without FCS.
//!
//! Source: packet(7), sendmmsg(2), recvmmsg(2), ip-link(8).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use weft_base::wait::pause;

use crate::netns::Net;

/// Most frames that one call sends or receives.
pub const BURST: usize = 32;
/// Longest frame that a station receives.
const LEN_MAX: usize = 2_048;
/// An `EtherType` that no protocol has.
const PROTOCOL: [u8; 2] = [0x7A, 0x05];
/// Offset of the number in frames of [`frame`].
const NUMBER_AT: usize = 14;

/// Address of station `index`.
#[must_use]
pub const fn mac(index: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0x10, index]
}

/// A frame of `len` bytes from one address to another that carries a number.
///
/// # Panics
/// When it is shorter than 60 bytes.
#[must_use]
pub fn frame(to: [u8; 6], from: [u8; 6], len: usize, number: u64) -> Vec<u8> {
    assert!(len >= 60);
    let mut bytes = [&to[..], &from[..], &PROTOCOL[..]].concat();
    bytes.extend(number.to_be_bytes());
    bytes.resize(len, 0xA5);
    bytes
}

/// Addresses (to, from) and number of a frame that [`frame`] made; `None` for any other.
#[must_use]
pub fn parse(bytes: &[u8]) -> Option<([u8; 6], [u8; 6], u64)> {
    let (to, rest) = bytes.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    let number = rest.strip_prefix(&PROTOCOL)?.first_chunk()?;
    Some((*to, *from, u64::from_be_bytes(*number)))
}

/// Gives a frame of [`frame`] another number.
///
/// # Panics
/// The frame is shorter than its number.
pub fn renumber(bytes: &mut [u8], number: u64) {
    bytes[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
}

/// A packet socket: on one interface, to send; or on all of a host, which shows the order of
/// reception.
pub struct Station {
    socket: OwnedFd,
    room: Vec<[u8; LEN_MAX]>,
}

impl Station {
    /// A station that sends by `device` of `host` and receives nothing: frames that arrive show in
    /// the kernel's counters alone.
    ///
    /// # Panics
    /// There is no such interface, or the process lacks the right.
    #[must_use]
    pub fn sender(net: &Net, host: &str, device: &str) -> Self {
        let opened = net.within(host, || open(index_of(device)?, 0));
        let socket = opened.unwrap_or_else(|e| panic!("packet socket on {device} of {host}: {e}"));
        Self { socket, room: Vec::new() }
    }

    /// A station that receives all frames that come in at `host`.
    ///
    /// # Panics
    /// The process lacks the right.
    #[must_use]
    pub fn hearer(net: &Net, host: &str) -> Self {
        let opened = net.within(host, || open(0, libc::ETH_P_ALL));
        let socket = opened.unwrap_or_else(|e| panic!("packet socket of {host}: {e}"));
        Self { socket, room: vec![[0; LEN_MAX]; BURST] }
    }

    /// Sends the first [`BURST`] of `frames`; returns how many the interface took before it refused
    /// one.
    #[must_use]
    pub fn send(&self, frames: &[Vec<u8>]) -> usize {
        let mut parts: Vec<libc::iovec> = frames.iter().take(BURST).map(|f| part_of(f)).collect();
        let mut heads: Vec<libc::mmsghdr> = parts.iter_mut().map(head_of).collect();
        let mut done = 0;
        // a call may send a part of the burst and report the refusal only when called again
        while let Some(rest) = heads.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let count = u32::try_from(rest.len()).unwrap_or(0);
            let (fd, at) = (self.socket.as_raw_fd(), rest.as_mut_ptr());
            // SAFETY: `at` points to `count` headers, each with one live part of which the kernel reads.
            let sent = unsafe { libc::sendmmsg(fd, at, count, libc::MSG_DONTWAIT) };
            match usize::try_from(sent) {
                Ok(sent) => done += sent,
                Err(_) => return done,
            }
        }
        done
    }

    /// Hands up to [`BURST`] received frames to `each`, with the number of the interface that each
    /// came in by; returns their number.
    pub fn receive(&mut self, mut each: impl FnMut(i32, &[u8])) -> usize {
        let part = |room: &mut [u8; LEN_MAX]| libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: LEN_MAX,
        };
        let mut parts: Vec<libc::iovec> = self.room.iter_mut().map(part).collect();
        let mut heads: Vec<libc::mmsghdr> = parts.iter_mut().map(head_of).collect();
        let mut sources = [no_address(); BURST];
        for (head, source) in heads.iter_mut().zip(&mut sources) {
            head.msg_hdr.msg_name = (&raw mut *source).cast();
            head.msg_hdr.msg_namelen = ADDRESS_LEN;
        }
        let count = u32::try_from(heads.len()).unwrap_or(0);
        let (fd, at, none) = (self.socket.as_raw_fd(), heads.as_mut_ptr(), core::ptr::null_mut());
        // SAFETY: `at` points to `count` headers, each with one part of `LEN_MAX` bytes of ours and an
        // address.
        let got = unsafe { libc::recvmmsg(fd, at, count, libc::MSG_DONTWAIT, none) };
        let got = usize::try_from(got).unwrap_or(0);
        for ((head, room), source) in heads.iter().zip(&self.room).zip(&sources).take(got) {
            each(source.sll_ifindex, &room[..head.msg_len as usize]);
        }
        got
    }

    /// Frames that the socket had no room for since the last call.
    ///
    /// # Panics
    /// Never: packet sockets have statistics.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let mut counts = [0_u32; 2]; // struct tpacket_stats: packets, drops
        let mut len = 8;
        let (fd, at) = (self.socket.as_raw_fd(), (&raw mut counts).cast());
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: the kernel writes at most the 8 bytes that there are.
        let done = unsafe { libc::getsockopt(fd, level, name, at, &raw mut len) };
        assert_eq!(done, 0, "packet sockets have statistics");
        u64::from(counts[1])
    }
}

const fn part_of(frame: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() }
}

/// A message of one part, and no address.
fn head_of(part: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut head: libc::mmsghdr = unsafe { core::mem::zeroed() };
    head.msg_hdr.msg_iov = part;
    head.msg_hdr.msg_iovlen = 1;
    head
}

const ADDRESS_LEN: u32 = 20;
const _: () = assert!(size_of::<libc::sockaddr_ll>() == ADDRESS_LEN as usize);

const fn no_address() -> libc::sockaddr_ll {
    // SAFETY: numbers, all of which may be zero.
    unsafe { core::mem::zeroed() }
}

/// Number of an interface of the thread's namespace.
///
/// # Errors
/// The namespace has no interface of this name.
pub fn index_of(device: &str) -> io::Result<i32> {
    let name = std::ffi::CString::new(device)?;
    // SAFETY: a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index.cast_signed()) }
}

/// A packet socket on interface `index`, or on all if that is 0, that receives `protocol`.
fn open(index: i32, protocol: libc::c_int) -> io::Result<OwnedFd> {
    let check = |code: i32| if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointer.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: just made, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let options = [
        // past the queueing discipline: the interface refuses a frame instead of losing it unseen
        (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1),
        (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1),
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 4 << 20),
    ];
    for (level, name, value) in options {
        let value: i32 = value;
        let at = (&raw const value).cast();
        // SAFETY: four bytes of a live value.
        check(unsafe { libc::setsockopt(fd, level, name, at, 4) })?;
    }
    let mut address = no_address();
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    address.sll_ifindex = index;
    address.sll_protocol = u16::try_from(protocol).unwrap_or(0).to_be();
    // SAFETY: a live address of that size.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), ADDRESS_LEN) })?;
    Ok(socket)
}

/// A thread that sends bursts from stations in turn.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Its result: the frames that interfaces took, by station.
    thread: Option<JoinHandle<Vec<u64>>>,
}

impl Load {
    /// Starts to send from `stations`. `next` composes the next burst of a station, in the frames
    /// of its last burst (none at first), and gets the number of those that were taken.
    ///
    /// # Panics
    /// The kernel gives no thread.
    #[must_use]
    pub fn start(
        stations: Vec<Station>,
        mut next: impl FnMut(usize, &mut Vec<Vec<u8>>, usize) + Send + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let run = move || {
            let mut bursts: Vec<(Vec<Vec<u8>>, usize)> = vec![(Vec::new(), 0); stations.len()];
            let mut sums = vec![0; stations.len()];
            while !told.load(Ordering::Relaxed) {
                let mut idle = true;
                for (index, (station, (burst, taken))) in
                    stations.iter().zip(&mut bursts).enumerate()
                {
                    next(index, burst, *taken);
                    *taken = station.send(burst);
                    sums[index] += *taken as u64;
                    idle &= *taken == 0;
                }
                // no interface took a frame: let the kernel empty them
                if idle {
                    pause(Duration::from_micros(200));
                }
            }
            sums
        };
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(run);
        Self { stop, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Stops the load; returns the frames that interfaces took, by station.
    ///
    /// # Panics
    /// The thread has panicked.
    #[must_use]
    pub fn stop(mut self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("it does not panic")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // the test has failed already
        }
    }
}

/// The kernel's counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub rx: u64,
    /// Received frames that were dropped.
    pub rx_dropped: u64,
    /// Frames that were sent.
    pub tx: u64,
    /// Frames that were dropped instead of being sent.
    pub tx_dropped: u64,
}

/// The kernel's counters of all interfaces of `host`, by name.
///
/// # Panics
/// `ip` fails.
#[must_use]
pub fn counters(net: &Net, host: &str) -> BTreeMap<String, Counters> {
    let said = net.run(host, "ip", "-s -j link show");
    let links: Vec<Value> = serde_json::from_slice(&said.stdout).expect("ip -j says JSON");
    let of = |link: &Value| {
        let number = |way: &str, what: &str| link["stats64"][way][what].as_u64().unwrap_or(0);
        let counters = Counters {
            rx: number("rx", "packets"),
            rx_dropped: number("rx", "dropped"),
            tx: number("tx", "packets"),
            tx_dropped: number("tx", "dropped"),
        };
        (link["ifname"].as_str().unwrap_or_default().to_owned(), counters)
    };
    links.iter().map(of).collect()
}
