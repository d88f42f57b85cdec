//! System calls, and layouts that the compiler cannot check; all unsafe code of the loader.
//!
//! [`Mapped`] is a BPF array in memory, in words of 64 bits; [`grace`] waits for running programs; [`test_run`] tries
//! one.
//!
//! Source: bpf(2), `BPF_F_MMAPABLE` (Linux 5.5); membarrier(2).

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::layout::{Counts, Edge, OutputWord, Places, PortRules, PortStats, Refusals, Station};

// SAFETY: `repr(C)`, integers only, and no padding, which `layout` asserts.
unsafe impl aya::Pod for PortRules {}
// SAFETY: as above.
unsafe impl aya::Pod for Edge {}
// SAFETY: as above.
unsafe impl aya::Pod for Station {}
// SAFETY: as above.
unsafe impl aya::Pod for PortStats {}
// SAFETY: as above.
unsafe impl aya::Pod for Counts {}
// SAFETY: as above.
unsafe impl aya::Pod for OutputWord {}
// SAFETY: as above.
unsafe impl aya::Pod for Refusals {}
// SAFETY: as above.
unsafe impl aya::Pod for Places {}

/// A BPF array mapped into memory: the kernel's program and this process read and write the same words.
#[derive(Debug)]
pub(crate) struct Mapped {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: nothing but atomic words is reached through it, and they are unmapped with the last owner.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps the first `words` words of the array behind `fd`.
    pub fn new(fd: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        let len = words * size_of::<u64>();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: asks for new memory; no address of ours is given.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, access, kind, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, words })
    }

    /// Private memory, for tests.
    #[cfg(test)]
    pub fn anonymous(words: usize) -> io::Result<Self> {
        let len = words * size_of::<u64>();
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory; no address of ours is given.
        let at = unsafe { libc::mmap(core::ptr::null_mut(), len, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { base, words })
    }

    /// Word `index` of the array.
    ///
    /// # Panics
    /// Beyond the end.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "the map has {} words", self.words);
        // SAFETY: within the mapping, as was just checked.
        let word = unsafe { self.base.add(index) };
        // SAFETY: mapped, aligned, and alive as long as `self`.
        unsafe { word.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let len = self.words * size_of::<u64>();
        // SAFETY: what mmap gave us; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Waits until every program that runs now has ended; programs that start later see everything written before.
///
/// # Errors
/// A kernel without the call.
pub(crate) fn grace() -> io::Result<()> {
    // MEMBARRIER_CMD_GLOBAL waits for an RCU grace period, and BPF programs run within read sides.
    // SAFETY: takes no pointer.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Result of running a program on a frame.
pub(crate) struct Ran {
    /// The program's return value.
    pub verdict: u32,
    /// Length of the frame afterwards, metadata in front included.
    pub len: usize,
    /// Mean time of a run.
    pub mean: core::time::Duration,
}

/// The front of `bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    verdict: u32,
    len_in: u32,
    len_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    nanoseconds: u32,
    context_len: [u32; 2],
    context: [u64; 2],
}

const PROG_TEST_RUN: libc::c_int = 10;

/// Runs a program on a frame, `repeat` times. By hand, as aya only does this with programs that it has loaded itself.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<Ran> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut attributes = TestRun {
        program: program.as_raw_fd().cast_unsigned(),
        len_in: len(frame),
        len_out: len(out),
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    let (at, size) = (&raw mut attributes, size_of::<TestRun>());
    // SAFETY: both buffers are live and as long as is said; the kernel writes to `out` and to these.
    let done = unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, at, size) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Ran {
        verdict: attributes.verdict,
        len: attributes.len_out as usize,
        mean: core::time::Duration::from_nanos(attributes.nanoseconds.into()),
    })
}
