//! bpf(2): maps, programs, links and test runs.
//!
//! [`Memory`] is an array map that user space sees; [`Program`] is loaded, attached by a [`Link`] that
//! ends with the process, or run on frames of its own by [`Program::send`].
//!
//! Source: Linux `include/uapi/linux/bpf.h`, `Documentation/bpf/bpf_prog_run.rst`. Least kernel
//! 5.18 (live frames); `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::KitError;
use super::insn::{Asm, Insn};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const LINK_CREATE: i32 = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_DEVMAP: u32 = 14;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_DRV_MODE: u32 = 1 << 2;
const TEST_LIVE_FRAMES: u32 = 1 << 1;

/// `bpf_attr` of a call; all bytes that no field names are zero.
#[repr(C, align(8))]
struct Attr<T> {
    fields: T,
    rest: [u64; 8],
}

/// Calls bpf(2). The pointers in `fields` must stay valid until it returns.
fn call<T>(command: i32, fields: T) -> io::Result<i32> {
    let attr = Attr { fields, rest: [0; 8] };
    let len = u32::try_from(size_of_val(&attr)).unwrap_or(u32::MAX);
    // SAFETY: `attr` is readable for its whole length, and a union `bpf_attr` may be longer than its
    // fields when the rest is zero; callers keep alive what its pointers name.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const attr, len) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(done).unwrap_or(i32::MAX))
}

/// Calls bpf(2) with a `command` that makes a descriptor.
fn open<T>(what: &str, command: i32, fields: T) -> Result<OwnedFd, KitError> {
    let fd =
        call(command, fields).map_err(|source| KitError::Call { what: what.to_owned(), source })?;
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address<T>(of: *const T) -> u64 {
    of.addr() as u64
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    _inner_map_fd: u32, // here so that no byte of it is left open
}

/// Words that a program writes and user space reads.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    at: NonNull<AtomicU64>,
    words: usize,
}

impl Memory {
    /// Makes `words` zeroes.
    ///
    /// # Errors
    /// The kernel refuses the map or its mapping.
    ///
    /// # Panics
    /// Never: no mapping is at address 0.
    pub fn new(words: usize) -> Result<Self, KitError> {
        let bytes = words * size_of::<u64>();
        let value_size = u32::try_from(bytes).unwrap_or(u32::MAX);
        let fields = MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size,
            max_entries: 1,
            map_flags: MAP_MMAPABLE,
            _inner_map_fd: 0,
        };
        let fd = open("make an array map", MAP_CREATE, fields)?;
        // SAFETY: a new mapping at an address of the kernel's choice, of a descriptor that is ours.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(KitError::last("map an array map"));
        }
        let at = NonNull::new(at.cast()).expect("a mapping is not at 0");
        Ok(Self { fd, at, words })
    }

    /// Descriptor of the map, for programs.
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Value of word `index` now; 0 beyond the last.
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        if index >= self.words {
            return 0;
        }
        // SAFETY: `index` is inside the mapping, which lives as long as `self`.
        let word = unsafe { self.at.add(index) };
        // SAFETY: words are aligned, and programs write them as whole words.
        let word = unsafe { word.as_ref() };
        word.load(Ordering::Relaxed) // a count by itself: nothing else is read because of it
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nothing points into any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

#[repr(C)]
struct MapUpdate {
    map_fd: i32,
    _gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map with one interface to redirect to.
///
/// # Errors
/// The kernel refuses the map or the interface.
pub fn devmap(ifindex: i32) -> Result<OwnedFd, KitError> {
    let fields = MapCreate {
        map_type: MAP_TYPE_DEVMAP,
        key_size: 4,
        value_size: 4,
        max_entries: 1,
        map_flags: 0,
        _inner_map_fd: 0,
    };
    let map = open("make a devmap", MAP_CREATE, fields)?;
    let key = 0_u32;
    let fields = MapUpdate {
        map_fd: map.as_raw_fd(),
        _gap: 0,
        key: address(&raw const key),
        value: address(&raw const ifindex),
        flags: 0,
    };
    call(MAP_UPDATE, fields).map_err(|source| KitError::Call {
        what: format!("put interface {ifindex} into a devmap"),
        source,
    })?;
    Ok(map)
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
}

#[repr(C)]
struct TestRun {
    prog_fd: i32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _gap: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: i32,
    target_ifindex: i32,
    attach_type: u32,
    flags: u32,
}

/// A program on an interface, until this is dropped or its process ends.
#[derive(Debug)]
#[must_use]
pub struct Link {
    _fd: OwnedFd,
}

/// A loaded XDP program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: &'static str,
}

impl Program {
    /// Loads `asm`.
    ///
    /// # Errors
    /// The verifier refuses it (its last words are in the error), or there is no right to.
    pub fn load(name: &'static str, asm: &Asm) -> Result<Self, KitError> {
        let insns: &[Insn] = asm.insns();
        let mut log = vec![0_u8; 1 << 16];
        let fields = ProgLoad {
            prog_type: PROG_TYPE_XDP,
            insn_cnt: u32::try_from(insns.len()).unwrap_or(u32::MAX),
            insns: address(insns.as_ptr()),
            license: address(c"GPL".as_ptr()),
            log_level: 1,
            log_size: u32::try_from(log.len()).unwrap_or(u32::MAX),
            log_buf: log.as_mut_ptr().expose_provenance() as u64,
        };
        // level 1: on a refusal the kernel writes its reason, whose last lines name the fault
        match call(PROG_LOAD, fields) {
            // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
            Ok(fd) => Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, name }),
            Err(source) => {
                let text = String::from_utf8_lossy(&log);
                let text = text.trim_matches(['\0', '\n', ' ']);
                if text.is_empty() {
                    return Err(KitError::Call { what: format!("load {name}"), source });
                }
                let lines: Vec<&str> = text.lines().rev().take(4).collect();
                let log = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
                Err(KitError::Refused { name, log })
            }
        }
    }

    /// Attaches it to an interface in native mode.
    ///
    /// # Errors
    /// Another program is there, or the driver takes none.
    pub fn attach(&self, ifindex: i32) -> Result<Link, KitError> {
        let fields = LinkCreate {
            prog_fd: self.fd.as_raw_fd(),
            target_ifindex: ifindex,
            attach_type: ATTACH_XDP,
            flags: XDP_DRV_MODE,
        };
        let what = format!("attach {} to interface {ifindex}", self.name);
        Ok(Link { _fd: open(&what, LINK_CREATE, fields)? })
    }

    /// Runs the program on `count` frames made from `template`; the kernel sends, drops or passes
    /// each as the program decides. The kernel reuses frames, so that a program finds its own
    /// earlier writes in later ones.
    ///
    /// # Errors
    /// The kernel cannot; `Interrupted` when a signal came.
    pub fn send(&self, template: &[u8], count: u32, batch: u32) -> io::Result<()> {
        let len = u32::try_from(template.len()).unwrap_or(u32::MAX);
        let context = [0, len, 0, 0, 0, 0]; // struct xdp_md: only where the data ends
        let fields = TestRun {
            prog_fd: self.fd.as_raw_fd(),
            retval: 0,
            data_size_in: len,
            data_size_out: 0,
            data_in: address(template.as_ptr()),
            data_out: 0,
            repeat: count,
            duration: 0,
            ctx_size_in: u32::try_from(size_of_val(&context)).unwrap_or(u32::MAX),
            ctx_size_out: 0,
            ctx_in: address(context.as_ptr()),
            ctx_out: 0,
            flags: TEST_LIVE_FRAMES,
            cpu: 0,
            batch_size: batch,
            _gap: 0,
        };
        call(PROG_TEST_RUN, fields).map(|_| ())
    }
}
