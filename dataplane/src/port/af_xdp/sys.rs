//! System calls of `AF_XDP` sockets: one function per call.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`.

use core::ptr::NonNull;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::super::sys;
pub(super) use super::super::sys::kick_tx;
use super::rings::Offsets;

/// `XDP_MAX_TX_SKB_BUDGET` (Linux 6.17): frames that one call sends in copy mode.
const MAX_TX_BUDGET: libc::c_int = 9;
/// `AF_XDP` of `sockaddr_xdp`.
const FAMILY: u16 = 44;
const _: () = assert!(libc::AF_XDP == 44);

/// A new `AF_XDP` socket.
pub(super) fn socket() -> io::Result<OwnedFd> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}

/// Sets a socket option of 32 bits.
fn set(fd: BorrowedFd<'_>, name: libc::c_int, value: u32) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_XDP, name, value.cast_signed())
}

/// Makes a ring of `entries`, a power of two; `name` says which of the four.
pub(super) fn make_ring(fd: BorrowedFd<'_>, name: libc::c_int, entries: u32) -> io::Result<()> {
    set(fd, name, entries)
}

/// Lets one call send up to `frames`; an older kernel keeps to its limit of 32.
pub(super) fn set_tx_budget(fd: BorrowedFd<'_>, frames: u32) {
    // Not an error: `kick` calls again while frames are left, so an older kernel only takes more calls.
    drop(set(fd, MAX_TX_BUDGET, frames));
}

/// Has calls on this socket poll the NIC queue in place of interrupts; `us` is the value of `SO_BUSY_POLL`, `budget`
/// the frames per call.
pub(super) fn set_busy_poll(fd: BorrowedFd<'_>, us: i32, budget: i32) -> io::Result<()> {
    const SO_PREFER_BUSY_POLL: libc::c_int = 69;
    const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
    let options =
        [(SO_PREFER_BUSY_POLL, 1), (libc::SO_BUSY_POLL, us), (SO_BUSY_POLL_BUDGET, budget)];
    options
        .into_iter()
        .try_for_each(|(name, value)| sys::set_option(fd, libc::SOL_SOCKET, name, value))
}

/// Registers `len` bytes at `base` as the socket's UMEM, in unaligned chunk mode. `tx_metadata_len` bytes in front of a
/// frame can hold transmit metadata.
///
/// # Safety
/// The memory stays mapped as long as the socket, or one that shares its UMEM, is open, and no code reads or writes a
/// chunk while the kernel has it.
pub(super) unsafe fn register(
    fd: BorrowedFd<'_>,
    base: NonNull<u8>,
    len: usize,
    chunk_size: u32,
    tx_metadata_len: u32,
) -> io::Result<()> {
    let metadata = if tx_metadata_len > 0 { libc::XDP_UMEM_TX_METADATA_LEN } else { 0 };
    let request = libc::xdp_umem_reg {
        addr: base.as_ptr() as u64,
        len: len as u64,
        chunk_size,
        headroom: 0,
        // Aligned mode takes chunk sizes of powers of two only; the pool's are an odd number of cache lines.
        flags: libc::XDP_UMEM_UNALIGNED_CHUNK_FLAG | metadata,
        tx_metadata_len,
    };
    sys::set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, request)
}

impl sys::Plain for libc::xdp_umem_reg {}

/// Reads a socket option of type `T`. An older kernel fills in only the front; the rest stays as in `value`.
fn get<T: sys::Plain>(fd: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let at = (&raw mut value).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`, any of which are valid.
    let got = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, at, &raw mut len) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

const NO_OFFSETS: Offsets = Offsets { producer: 0, consumer: 0, desc: 0, flags: 0 };

/// Byte offsets of indices, flags and entries in this socket's rings.
pub(super) fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    let none =
        libc::xdp_mmap_offsets { rx: NO_OFFSETS, tx: NO_OFFSETS, fr: NO_OFFSETS, cr: NO_OFFSETS };
    get(fd, libc::XDP_MMAP_OFFSETS, none)
}

impl sys::Plain for libc::xdp_mmap_offsets {}

/// The kernel's counters for this socket.
pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    let none = libc::xdp_statistics {
        rx_dropped: 0,
        rx_invalid_descs: 0,
        tx_invalid_descs: 0,
        rx_ring_full: 0,
        rx_fill_ring_empty_descs: 0,
        tx_ring_empty_descs: 0,
    };
    get(fd, libc::XDP_STATISTICS, none)
}

impl sys::Plain for libc::xdp_statistics {}

/// Binds the socket to a queue of an interface; `flags` are those of `sockaddr_xdp`.
pub(super) fn bind(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: FAMILY,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd().cast_unsigned()),
    };
    sys::bind(fd, &address)
}

/// Has the kernel look at the fill ring; with busy polling, has it poll the NIC queue.
pub(super) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    let none = core::ptr::null_mut();
    let (address, len) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: no bytes, no address.
    let got = unsafe { libc::recvfrom(fd.as_raw_fd(), none, 0, libc::MSG_DONTWAIT, address, len) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One descriptor (epoll) that is readable when any of `fds` is.
pub(super) fn wait_for_any(fds: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let made = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else has it.
    let all = unsafe { OwnedFd::from_raw_fd(made) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 0 };
        let (to, fd) = (all.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event lives until after the call.
        if unsafe { libc::epoll_ctl(to, libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(all)
}
