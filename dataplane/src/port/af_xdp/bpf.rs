//! The few bpf(2) calls that steering takes: a map of sockets, a program, a link.
//!
//! Shape: attributes as plain structs, `io::Result` out. By hand: aya would bring maps, relocation and
//! BTF of whole objects for a program of two dozen instructions.
//! Units: none.
//! Source: bpf(2); Linux `include/uapi/linux/bpf.h`. Linux 5.9 or later (XDP links).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_DETACH: libc::c_int = 34;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const SKB_MODE: u32 = 1 << 1;
const DRV_MODE: u32 = 1 << 2;

/// Name of the map and the program, as `bpftool` shows it.
const NAME: [u8; 16] = *b"weft_steer\0\0\0\0\0\0";

/// Attributes of a command: plain numbers without padding, so that the kernel reads no octet of ours
/// that was not written.
trait Attributes {}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}
impl Attributes for MapCreate {}

#[repr(C)]
struct MapUpdate {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}
impl Attributes for MapUpdate {}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach: u32,
}
impl Attributes for ProgLoad {}

#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach: u32,
    flags: u32,
}
impl Attributes for LinkCreate {}

#[repr(C)]
struct LinkDetach {
    link: u32,
}
impl Attributes for LinkDetach {}

#[repr(C)]
struct GetInfo {
    object: u32,
    len: u32,
    info: u64,
}
impl Attributes for GetInfo {}

/// The front of `bpf_link_info`, of an XDP link.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    zero: u32,
    ifindex: u32,
    zeros: [u32; 3],
}

/// # Safety
/// What the attributes point to is live, and of the sizes that they say.
unsafe fn bpf<T: Attributes>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let at = core::ptr::from_mut(attributes);
    // SAFETY: the kernel reads and writes `size_of::<T>()` octets of a live value; the caller answers
    // for what it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// As for [`bpf`], of a command that makes a descriptor.
unsafe fn make<T: Attributes>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller says.
    let made = unsafe { bpf(command, attributes) }?;
    let fd = libc::c_int::try_from(made).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel just made it for us; such descriptors are closed on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// A map from queue to socket.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        kind: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        entries: queues,
        flags: 0,
        inner: 0,
        node: 0,
        name: NAME,
    };
    // SAFETY: they point nowhere.
    unsafe { make(MAP_CREATE, &mut attributes) }
}

/// Puts a socket at a queue.
pub(super) fn set_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    let (key, value) = (queue, raw(socket));
    let mut attributes = MapUpdate {
        map: raw(map),
        zero: 0,
        key: (&raw const key) as u64,
        value: (&raw const value) as u64,
        flags: 0,
    };
    // SAFETY: key and value are numbers of 4 octets, as the map was made for, and live.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// Loads an XDP program, bound to an interface if it asks its driver for metadata.
pub(super) fn load(instructions: &[u64], bound_to: Option<u32>) -> io::Result<OwnedFd> {
    let license = c"GPL"; // kernel functions are for such programs only
    let mut attributes = ProgLoad {
        kind: PROG_TYPE_XDP,
        count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        log_buffer: 0,
        kernel: 0,
        flags: if bound_to.is_some() { XDP_DEV_BOUND_ONLY } else { 0 },
        name: NAME,
        ifindex: bound_to.unwrap_or(0),
        attach: ATTACH_XDP,
    };
    // SAFETY: instructions and license are live.
    unsafe { make(PROG_LOAD, &mut attributes) }
}

/// Attaches a program to an interface, in its driver or before the host's stack, until the link is
/// closed: by us, or by the kernel when we are killed.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    in_driver: bool,
) -> io::Result<OwnedFd> {
    let flags = if in_driver { DRV_MODE } else { SKB_MODE };
    let mut attributes = LinkCreate { program: raw(program), ifindex, attach: ATTACH_XDP, flags };
    // SAFETY: they point nowhere.
    unsafe { make(LINK_CREATE, &mut attributes) }
}

/// Detaches a link, whoever else may hold it.
pub(super) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = LinkDetach { link: raw(link) };
    // SAFETY: they point nowhere.
    unsafe { bpf(LINK_DETACH, &mut attributes) }.map(drop)
}

/// The interface that a link attaches to; 0 when it was detached or the interface is gone.
pub(super) fn attached_to(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let mut attributes = GetInfo {
        object: raw(link),
        len: u32::try_from(size_of::<LinkInfo>()).unwrap_or(0),
        info: (&raw mut info) as u64,
    };
    // SAFETY: the kernel writes at most `len` octets to `info`, which is live.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(info.ifindex)
}
