//! Memory: tries before allocations that must not fail, and pages of zeros.
//!
//! Rust ends a process whose allocation fails. So an allocation that a client may make large is
//! tried first with [`try_room`], together with the [`RESERVE`] for everything else. [`Zeros`] is a
//! box of zeros on pages of its own. [`Ending`] is an allocator that prints a message where a
//! command has no memory left.
//!
//! Source: getrlimit(2), `RLIMIT_AS`; proc(5), `statm`; mallopt(3), `M_ARENA_MAX`; mmap(2),
//! `MAP_ANONYMOUS`.
//!
//! A process runs short of memory in this way under a limit of its address space (`ulimit -v`,
//! `LimitAS=`) or where the system does not overcommit (`vm.overcommit_memory = 2`). Elsewhere the
//! kernel grants memory that it does not have, and a try succeeds.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};
use zerocopy::FromZeros;

/// Memory that stays free whenever a client is given some, for small allocations of all threads.
pub const RESERVE: usize = 16 << 20;

/// The system has no room for this number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory(pub usize);

impl std::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the system has no {} bytes of memory left", self.0)
    }
}

impl std::error::Error for NoMemory {}

/// Tries whether `bytes` could be allocated. It keeps nothing, and touches no page.
///
/// # Errors
/// See [`NoMemory`].
pub fn try_room(bytes: usize) -> Result<(), NoMemory> {
    if let Some(room) = room_under_limit() {
        return if bytes as u64 <= room { Ok(()) } else { Err(NoMemory(bytes)) };
    }
    let mut tried: Vec<u8> = Vec::new();
    TRIES.set(true);
    let had = tried.try_reserve_exact(bytes);
    TRIES.set(false);
    // The compiler would leave out an allocation that nothing reads, and the try with it.
    black_box(tried.as_mut_ptr());
    had.map_err(|_| NoMemory(bytes))
}

/// Bytes that the limit of the address space leaves; `None` without a limit, or where the size of
/// the process cannot be read.
///
/// It is calculated and not tried: a large allocation, even one that is freed at once, would for
/// that moment take the memory from which other threads make small allocations and stacks, and
/// their failure ends the process.
fn room_under_limit() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let mut text = [0; 64];
    let count = statm()?.read_at(&mut text, 0).ok()?;
    let pages = text.get(..count)?.split(|byte| *byte == b' ').next()?;
    let pages: u64 = std::str::from_utf8(pages).ok()?.parse().ok()?;
    Some(limit.saturating_sub(pages * rustix::param::page_size() as u64))
}

/// The size of this process, kept open: a switch reads it after it has given up the right to open
/// files.
fn statm() -> Option<&'static File> {
    static STATM: OnceLock<Option<File>> = OnceLock::new();
    STATM.get_or_init(|| File::open("/proc/self/statm").ok()).as_ref()
}

/// Tries whether `bytes` could be allocated, and [`RESERVE`] beside them.
///
/// # Errors
/// See [`NoMemory`].
pub fn try_room_with_reserve(bytes: usize) -> Result<(), NoMemory> {
    try_room(bytes.saturating_add(RESERVE)).map_err(|_| NoMemory(bytes))
}

/// Whether the process ends when an allocation fails.
static ENDS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread only tries an allocation.
    static TRIES: Cell<bool> = const { Cell::new(false) };
}

/// The exit code of a process that had no memory left.
const EXIT_CODE: i32 = 3;

/// Makes the process end with a line on standard error and exit code 3 when an allocation fails,
/// rather than by SIGABRT: for commands that serve no clients. [`Ending`] must be the allocator. A
/// `try_reserve` outside of [`try_room`] that fails ends the process, too.
pub fn end_where_none_is_left() {
    ENDS.store(true, Ordering::Relaxed);
}

/// The system's allocator, with a check of each result.
#[derive(Debug)]
pub struct Ending;

impl Ending {
    #[inline]
    fn look(at: *mut u8, bytes: usize) -> *mut u8 {
        if at.is_null() {
            end_if_wanted(bytes);
        }
        at
    }
}

/// Ends the process if [`end_where_none_is_left`] was called, unless this thread only tries.
#[cold]
fn end_if_wanted(bytes: usize) {
    if ENDS.load(Ordering::Relaxed) && !TRIES.get() {
        end(bytes);
    }
}

/// Ends the process, without any allocation.
#[cold]
fn end(bytes: usize) -> ! {
    let mut line = [0; 128];
    let mut rest = &mut line[..];
    let none = NoMemory(bytes);
    let _ = writeln!(rest, "error: {none}; the process ends"); // it is shorter
    let len = 128 - rest.len();
    // SAFETY: `len` bytes of `line`; whatever becomes of them, the process ends.
    unsafe { libc::write(2, line.as_ptr().cast(), len) };
    // SAFETY: a plain call. Nothing is flushed, as that may allocate.
    unsafe { libc::_exit(EXIT_CODE) }
}

// SAFETY: every call is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Ending {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is passed on.
        Self::look(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Self::look(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout, as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above, and `size` is what the caller promises.
        Self::look(unsafe { System.realloc(at, layout, size) }, size)
    }
}

/// Makes all threads allocate from one arena, and opens the file that tells the size of the
/// process; to be called before any thread is started. The C library would reserve 64 MiB of
/// address space for an arena of each thread, out of the memory that was tried just before.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain call, which sets a number.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    statm();
}

/// Maps `bytes` bytes of zeros, on pages that take no memory until they are written: at an address
/// that the kernel chooses, or with `MAP_FIXED_NOREPLACE` among `flags` at `address`.
///
/// # Errors
/// The kernel's answer.
///
/// # Panics
/// With `MAP_FIXED`, which would replace mappings that are there.
pub fn map_zeros(address: usize, bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    assert_eq!(flags & libc::MAP_FIXED, 0, "a mapping beside all others");
    // SAFETY: without MAP_FIXED a fresh anonymous mapping touches no memory of ours.
    let at = unsafe {
        libc::mmap(
            core::ptr::without_provenance_mut(address),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unmaps memory of [`map_zeros`].
///
/// # Safety
/// [`map_zeros`] made it with this length, and nothing uses it any more.
pub unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
}

/// A box of zeros whose pages take no memory until they are written, whatever `T` is aligned to: an
/// allocator writes the zeros itself where it has to align them.
#[derive(Debug)]
pub struct Zeros<T>(NonNull<T>);

// SAFETY: it owns its `T`, as a box does.
unsafe impl<T: Send> Send for Zeros<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeros<T> {}

impl<T> Zeros<T> {
    /// Bytes of the mapping.
    const LEN: usize = {
        assert!(
            align_of::<T>() <= 4_096 && !core::mem::needs_drop::<T>(),
            "pages that are given back"
        );
        if size_of::<T>() == 0 { 1 } else { size_of::<T>() }
    };
}

impl<T: FromZeros> Zeros<T> {
    /// Maps pages for a `T`. Where [`end_where_none_is_left`] was called, a process without memory
    /// for them ends, as with any other allocation.
    ///
    /// # Errors
    /// See [`NoMemory`].
    pub fn new() -> Result<Self, NoMemory> {
        if let Ok(base) = map_zeros(0, Self::LEN, 0) {
            return Ok(Self(base.cast()));
        }
        end_if_wanted(Self::LEN);
        Err(NoMemory(Self::LEN))
    }

    /// Makes all pages real now, and the values zeros again.
    pub fn touch(&mut self) {
        // SAFETY: `LEN` bytes are mapped, and ours; zeros are a `T`.
        unsafe { self.0.cast::<u8>().write_bytes(0, Self::LEN) };
    }
}

impl<T> Deref for Zeros<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: mapped in `new`, aligned to a page, and a `T` since, as zeros are one; ours alone.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Zeros<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for Zeros<T> {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, of that length; nothing borrows it any more.
        unsafe { unmap(self.0.cast(), Self::LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_an_error_that_names_it() {
        assert_eq!(
            (try_room(0), try_room(1 << 20), try_room_with_reserve(1 << 20)),
            (Ok(()), Ok(()), Ok(()))
        );
        for bytes in [usize::MAX, isize::MAX.cast_unsigned(), 1 << 62] {
            assert_eq!(try_room(bytes), Err(NoMemory(bytes)));
            assert_eq!(try_room_with_reserve(bytes), Err(NoMemory(bytes)));
        }
        assert_eq!(NoMemory(7).to_string(), "the system has no 7 bytes of memory left");
    }
    #[test]
    fn zeros_are_written_where_they_are_and_become_zeros_again() {
        #[derive(FromZeros)]
        #[repr(align(64))]
        struct Line([u64; 8]);
        let mut lines = Zeros::<[Line; 1_000]>::new().unwrap();
        assert!(core::ptr::from_ref(&*lines).addr().is_multiple_of(64));
        lines[700].0[3] = 5;
        let sum = |lines: &[Line]| lines.iter().flat_map(|line| line.0).sum::<u64>();
        assert_eq!(sum(&*lines), 5);
        lines.touch();
        assert_eq!(sum(&*lines), 0);
        assert_eq!(*Zeros::<[u8; 0]>::new().unwrap(), []);
    }
}
