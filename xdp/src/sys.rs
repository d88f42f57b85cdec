//! System calls and layouts that the compiler cannot check; all unsafe code of the loader is here.
//!
//! Shape: [`Mapped`]: the words of a BPF array in memory; [`grace`]; the values that maps hold.
//! Units: words of 64 bits.
//! Source: bpf(2), `BPF_F_MMAPABLE` (Linux 5.5); membarrier(2).

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::layout::{Counts, OutputWord, Places, PortRules, PortStats, Refusals, Station};

// SAFETY: `repr(C)`, integers only, and no padding, which `layout` asserts.
unsafe impl aya::Pod for PortRules {}
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

/// A BPF array, seen in memory: the kernel's program and we read and write the same words.
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

    /// Word `index`.
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

/// Waits until every program that runs now has ended: what was written before, all others see.
///
/// # Errors
/// A kernel without the call.
pub(crate) fn grace() -> io::Result<()> {
    // MEMBARRIER_CMD_GLOBAL waits for an RCU grace period, and BPF programs run within read sides.
    // SAFETY: takes no pointer.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
