//! The kit's other system calls: clock, interfaces, raw sockets, processors.
//!
//! One safe function a call.
//!
//! Units: ns of `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads too.
//! Source: `clock_gettime(2)`, packet(7), `sched_setaffinity(2)`.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::KitError;

/// Nanoseconds since the machine started.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Number of the interface `name` in this network namespace.
///
/// # Errors
/// There is none of that name.
pub fn ifindex(name: &str) -> Result<i32, KitError> {
    let text = CString::new(name).map_err(|_| KitError::Usage(format!("interface {name:?}")))?;
    // SAFETY: `text` ends with a zero.
    let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
    if index == 0 {
        return Err(KitError::last(format!("find interface {name}")));
    }
    i32::try_from(index).map_err(|_| KitError::Usage(format!("number of interface {name}")))
}

/// Lets this thread run on processor `core` only.
///
/// # Errors
/// The process may not use it.
pub fn pin(core: usize) -> Result<(), KitError> {
    // SAFETY: a set of bits, for which all zeroes is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if core >= 8 * size_of_val(&set) {
        return Err(KitError::Usage(format!("processor {core}")));
    }
    // SAFETY: `core` is inside the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: `set` is readable for the length given; 0 is this thread.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if done != 0 {
        return Err(KitError::last(format!("run on processor {core}")));
    }
    Ok(())
}

/// A socket that sends whole frames out of one interface and receives nothing.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    to: libc::sockaddr_ll,
}

impl PacketSocket {
    /// Opens one on interface `ifindex`, past its queueing discipline.
    ///
    /// # Errors
    /// No right to.
    pub fn open(ifindex: i32) -> Result<Self, KitError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is passed. Protocol 0 receives nothing.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(KitError::last("open a packet socket"));
        }
        // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let on: i32 = 1;
        // SAFETY: `on` is readable for the length given.
        let done = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                (&raw const on).cast(),
                4,
            )
        };
        if done != 0 {
            return Err(KitError::last("set PACKET_QDISC_BYPASS"));
        }
        // SAFETY: plain numbers, for which all zeroes is a value.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        to.sll_ifindex = ifindex;
        to.sll_halen = 6;
        Ok(Self { fd, to })
    }

    /// Sends `frame`; whether it was taken.
    #[must_use]
    pub fn send(&self, frame: &[u8]) -> bool {
        let len = u32::try_from(size_of_val(&self.to)).unwrap_or(0);
        // SAFETY: frame and address are readable for the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.to).cast(),
                len,
            )
        };
        usize::try_from(sent) == Ok(frame.len())
    }
}
