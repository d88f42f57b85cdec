//! The bpf(2) calls that ports need: a map of sockets, a number in a map, a [`Program`], a [`Link`].
//!
//! Attributes are plain structs. Written by hand, because aya would bring maps, relocation and BTF of whole objects for
//! a program of two dozen instructions.
//!
//! Source: bpf(2); Linux `include/uapi/linux/bpf.h`. Linux 5.9 or later (XDP links), 6.6 for [`Hook::Ingress`].

pub(super) mod asm;

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::sys::Mapping;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_DETACH: libc::c_int = 34;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
const SKB_MODE: u32 = 1 << 1;
const DRV_MODE: u32 = 1 << 2;

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    Xdp,
    /// At tc's ingress (tcx).
    Ingress,
}

impl Hook {
    /// Program type and attach type, as bpf(2) numbers them.
    const fn types(self) -> [u32; 2] {
        match self {
            Self::Xdp => [PROG_TYPE_XDP, ATTACH_XDP],
            Self::Ingress => [PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS],
        }
    }

    /// Name of the program and its map, as `bpftool` shows it.
    const fn name(self) -> [u8; 16] {
        match self {
            Self::Xdp => *b"weft_steer\0\0\0\0\0\0",
            Self::Ingress => *b"weft_redirect\0\0\0",
        }
    }
}

/// Attributes of a command: numbers without padding, so that the kernel never reads uninitialised bytes.
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
    log_level: u32,
    log_len: u32,
    log: u64,
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

/// The front of `bpf_link_info` for an XDP link.
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

/// Information that the kernel fills in: numbers without padding.
trait Info {}
impl Info for LinkInfo {}

/// The front of `bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    /// Bytes of machine code.
    compiled: u32,
    /// Bytes of instructions as the verifier rewrote them.
    translated: u32,
}
impl Info for ProgramInfo {}

/// # Safety
/// Pointers in the attributes lead to live memory of the sizes given there.
unsafe fn bpf<T: Attributes>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let at = core::ptr::from_mut(attributes);
    // SAFETY: the kernel reads and writes `size_of::<T>()` bytes of a live value; the caller vouches for its pointers.
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

/// A map from queue to socket (XSKMAP).
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        kind: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        entries: queues,
        flags: 0,
        inner: 0,
        node: 0,
        name: Hook::Xdp.name(),
    };
    // SAFETY: they point nowhere.
    unsafe { make(MAP_CREATE, &mut attributes) }
}

/// A number in a map of its own, which the port writes and programs read.
pub(super) struct SharedNumber {
    map: OwnedFd,
    memory: Mapping,
}

impl SharedNumber {
    /// Makes a number, initially 0.
    ///
    /// # Errors
    /// The kernel's answer: no capability, or no memory.
    pub(super) fn new() -> io::Result<Self> {
        let mut attributes = MapCreate {
            kind: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size: 4,
            entries: 1,
            flags: MAP_MMAPABLE,
            inner: 0,
            node: 0,
            name: Hook::Ingress.name(),
        };
        // SAFETY: they point nowhere.
        let map = unsafe { make(MAP_CREATE, &mut attributes) }?;
        let memory = Mapping::shared(map.as_fd(), 0, 4)?;
        Ok(Self { map, memory })
    }

    /// The map, for programs.
    pub(super) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Sets the number; programs see it with their next frame.
    pub(super) fn set(&self, value: u32) {
        // SAFETY: a page begins with the value, which programs read as one word, and is there as long as `memory`.
        let number = unsafe { self.memory.base().cast::<AtomicU32>().as_ref() };
        // Relaxed: the number stands alone, and no other memory is published with it.
        number.store(value, Ordering::Relaxed);
    }
}

/// Enters a socket as the target of a queue's frames.
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
    // SAFETY: key and value are numbers of 4 bytes, as the map was made for, and live.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
}

/// A program in the kernel.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads instructions; bound to an interface if they call its driver's metadata functions.
    ///
    /// # Errors
    /// The kernel's answer: no capability, or its verifier refuses them. `EFBIG` for a bound program that the kernel
    /// may have moved: Linux then loses track of it, and fails when its interface is deleted.
    pub fn load(instructions: &[u64], bound_to: Option<u32>) -> io::Result<Self> {
        let program = Self::load_for(Hook::Xdp, instructions, bound_to)?;
        if bound_to.is_some() && may_have_moved(instructions.len(), program.len()?) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        Ok(program)
    }

    /// Loads instructions to be attached at `hook`.
    ///
    /// # Errors
    /// The kernel's answer: no capability, or its verifier refuses them.
    pub(super) fn load_for(
        hook: Hook,
        instructions: &[u64],
        bound_to: Option<u32>,
    ) -> io::Result<Self> {
        // The verifier gives up with EAGAIN when a signal is pending; libbpf tries again, too.
        let mut tries = (0..LOADS).map(|_| Self::try_load(hook, instructions, bound_to, &mut []));
        let is_interrupted = |tried: &io::Result<Self>| matches!(tried, Err(e) if e.raw_os_error() == Some(libc::EAGAIN));
        let tried = tries.find(|tried| !is_interrupted(tried));
        tried.unwrap_or_else(|| Err(io::ErrorKind::Interrupted.into())).or_else(|error| {
            // Once more with a log, to tell the user the reason. The log is not asked for at first, as it slows the
            // verifier down.
            let mut log = vec![0; LOG_LEN];
            let again = Self::try_load(hook, instructions, bound_to, &mut log);
            again.map_err(|_| reason(error, &log))
        })
    }

    fn try_load(
        hook: Hook,
        instructions: &[u64],
        bound_to: Option<u32>,
        log: &mut [u8],
    ) -> io::Result<Self> {
        let license = c"GPL"; // kernel functions are for such programs only
        let [kind, attach] = hook.types();
        let mut attributes = ProgLoad {
            kind,
            count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_len: u32::try_from(log.len()).unwrap_or(u32::MAX),
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel: 0,
            flags: if bound_to.is_some() { XDP_DEV_BOUND_ONLY } else { 0 },
            name: hook.name(),
            ifindex: bound_to.unwrap_or(0),
            attach,
        };
        // SAFETY: instructions and license are live, and so is the log, if there is one.
        unsafe { make(PROG_LOAD, &mut attributes) }.map(Self)
    }

    /// Number of instructions after the verifier.
    fn len(&self) -> io::Result<usize> {
        let mut info = ProgramInfo::default();
        get_info(self.0.as_fd(), &mut info)?;
        Ok(info.translated as usize / size_of::<u64>())
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether the kernel may have moved a program because the verifier added instructions. The kernel keeps a header of 48
/// to 128 bytes in front, depending on its version.
const fn may_have_moved(before: usize, after: usize) -> bool {
    const PAGE: usize = 4_096;
    // Least header before, largest after: the estimate may only err towards "moved".
    let had = (48 + before * size_of::<u64>()).div_ceil(PAGE);
    let has = (128 + after * size_of::<u64>()).div_ceil(PAGE);
    has > had
}

/// Attempts at loading a program; libbpf makes as many.
const LOADS: usize = 5;
/// Room for the verifier's log in bytes; its end has the reason for a refusal.
const LOG_LEN: usize = 64 << 10;

/// Adds the verifier's reason to `error`: the last line of its log but for the one with statistics.
fn reason(error: io::Error, log: &[u8]) -> io::Error {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let said = text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("processed "));
    match said {
        Some(said) => io::Error::new(error.kind(), format!("{error}: {said}")),
        None => error,
    }
}

/// A program attached to an interface. Dropping it detaches the program, as does the kernel if the process is killed.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    ifindex: u32,
}

impl Link {
    /// Attaches `program` to an interface, in its driver or before the host's stack.
    ///
    /// # Errors
    /// The kernel's answer: the driver has no XDP, or another program is attached.
    pub fn attach(program: &Program, ifindex: u32, in_driver: bool) -> io::Result<Self> {
        let flags = if in_driver { DRV_MODE } else { SKB_MODE };
        Self::attach_at(Hook::Xdp, program, ifindex, flags)
    }

    /// Attaches `program` to an interface at `hook`.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(super) fn attach_at(
        hook: Hook,
        program: &Program,
        ifindex: u32,
        flags: u32,
    ) -> io::Result<Self> {
        let [_, attach] = hook.types();
        let mut attributes = LinkCreate { program: raw(program.as_fd()), ifindex, attach, flags };
        // SAFETY: they point nowhere.
        let fd = unsafe { make(LINK_CREATE, &mut attributes) }?;
        Ok(Self { fd, ifindex })
    }

    /// Whether the program is still attached: it was not detached, and the interface exists.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        let mut info = LinkInfo::default();
        // The kernel reports ifindex 0 for a link that lost its interface.
        get_info(self.fd.as_fd(), &mut info).is_ok() && info.ifindex == self.ifindex
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Detach explicitly: a child process that is between fork and exec may still hold a copy of the descriptor, and
        // closing ours alone would leave the program attached.
        let mut attributes = LinkDetach { link: raw(self.fd.as_fd()) };
        // SAFETY: they point nowhere.
        drop(unsafe { bpf(LINK_DETACH, &mut attributes) }); // it may be detached already
    }
}

/// Reads the kernel's information on an object.
fn get_info<T: Info>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attributes = GetInfo {
        object: raw(object),
        len: u32::try_from(size_of::<T>()).unwrap_or(0),
        info: core::ptr::from_mut(info) as u64,
    };
    // SAFETY: the kernel writes at most `len` bytes to `info`, which is live.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::may_have_moved;

    #[test]
    fn a_program_that_stays_within_its_pages_has_not_moved() {
        assert!(!may_have_moved(30, 60));
        assert!(!may_have_moved(3_000, 2_500));
        assert!(may_have_moved(30, 500));
        assert!(may_have_moved(2_000, 3_000));
    }
}
